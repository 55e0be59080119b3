// formats.h: numbers of the formats of tiles, as enum dtype has them (format.h).
#ifndef FORMATS_H
#define FORMATS_H
#define FORMAT_Q8_0 11
#define FORMAT_Q4_0 12
#define FORMAT_Q5_0 13
#define FORMAT_Q4_K 14
#define FORMAT_Q5_K 15
#define FORMAT_Q6_K 16
#define FORMAT_IQ4_NL 17
#define FORMAT_IQ4_XS 18
#endif
