// norm_ahead.h: limit of the 1 / rms that rmsnorm.comp and matmul_narrow.comp keep per row as an estimate for the next
// norm. For a row of zeros it would be 1 / sqrt(eps), and what a layer adds to that row would exceed f16's range.
#ifndef NORM_AHEAD_H
#define NORM_AHEAD_H
#define NORM_AHEAD_MOST 256.0
#endif
