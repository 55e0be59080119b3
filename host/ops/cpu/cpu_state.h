// cpu_state.h: what one step of a recurrence does with the state S (d, Dv), or with one of its blocks. It covers
// `width` columns. If that is a constant, y, u and o stay in registers.
#ifndef CPU_STATE_H
#define CPU_STATE_H
#include <stdint.h>

// y (width) = k S, after S <- decay S in the same pass.
static inline __attribute__((always_inline)) void read_state(float *restrict y, float *restrict S, const float *k,
                                                             float decay, uint32_t d, uint32_t Dv, uint32_t width) {
  for (uint32_t j = 0; j < width; j++) y[j] = 0;
  for (uint32_t i = 0; i < d; i++)
    for (uint32_t j = 0; j < width; j++) {
      S[(uint64_t)i * Dv + j] *= decay;
      y[j] += k[i] * S[(uint64_t)i * Dv + j];
    }
}

// S += k^T u, then o += q S in the same pass.
static inline __attribute__((always_inline)) void write_state(float *restrict o, float *restrict S, const float *k,
                                                              const float *q, const float *restrict u, uint32_t d,
                                                              uint32_t Dv, uint32_t width) {
  for (uint32_t i = 0; i < d; i++)
    for (uint32_t j = 0; j < width; j++) {
      S[(uint64_t)i * Dv + j] += k[i] * u[j];
      o[j] += q[i] * S[(uint64_t)i * Dv + j];
    }
}
#endif
