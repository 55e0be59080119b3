// test_accurate.h: numbers of the functions in test_accurate.comp, for GLSL and C.
#ifndef TEST_ACCURATE_H
#define TEST_ACCURATE_H
#define F_EXP 0
#define F_LOG 1
#define F_LOG1P 2
#define F_SIGMOID 3
#define F_SILU 4
#define F_SOFTPLUS 5
#define F_ELU1 6
#define F_POWLU 7
#define F_QUOTIENT 8
#define F_ROOT 9
#define F_RECIPROCAL_ROOT 10
#define F_DEVICE_EXP 11
#define F_DEVICE_LOG 12
#define F_DEVICE_RSQRT 13
#define F_DEVICE_SIGMOID 14
#define F_DEVICE_SOFTPLUS 15
#define F_INVERSESQRT 16
#endif
