// norm_ahead.h: what rmsnorm.comp and matmul_narrow.comp keep of a row's 1 / rms, to guess the size of the next norm's
// input. A row of zeros would make it 1 / sqrt(eps), and what a layer adds to that row would leave f16's range.
#ifndef NORM_AHEAD_H
#define NORM_AHEAD_H
#define NORM_AHEAD_MOST 256.0
#endif
