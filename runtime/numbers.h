// numbers.h: minimum, maximum, division rounded up, and rounding up to a multiple.
#ifndef NUMBERS_H
#define NUMBERS_H
#include <stdint.h>

static inline uint32_t min32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static inline uint32_t max32(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline uint64_t min64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max64(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint32_t divide_up(uint32_t n, uint32_t by) { return n / by + (n % by != 0); }
static inline uint32_t round_up32(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }
static inline uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }
#endif
