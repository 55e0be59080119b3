// formats.h: numbers of the formats of blocks, as enum dtype has them (format.h).
#ifndef FORMATS_H
#define FORMATS_H
#define FORMAT_Q8_0 3
#define FORMAT_Q4_0 4
#define FORMAT_Q5_0 5
#define FORMAT_Q4_K 6
#define FORMAT_Q5_K 7
#define FORMAT_Q6_K 8
#define FORMAT_IQ4_NL 9
#define FORMAT_IQ4_XS 10
#endif
