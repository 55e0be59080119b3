// plan_mamba2.h: chooses the sizes of Mamba-2's chunks on cooperative matrices (coopmat).
#ifndef PLAN_MAMBA2_H
#define PLAN_MAMBA2_H
#include "plan.h"

// Sizes of mamba2_matrix_state.comp and mamba2_matrix_output.comp.
struct plan_mamba2_matrix {
  uint32_t C, N, P; // tokens of a chunk; N and P rounded up to multiples of 16
  uint32_t lanes;
  uint32_t heads, across; // heads of a workgroup, all of one group; workgroups of one chunk
  bool lockstep;          // a subgroup runs in lockstep and needs no subgroup barrier
};
// chunks: their approximate number, on which C, N and P do not depend. False: the device has no coopmat, or not enough
// memory for such heads.
bool plan_mamba2_matrix(const struct plan *plan, uint32_t N, uint32_t P, uint32_t heads, uint32_t groups,
                        uint32_t chunks, struct plan_mamba2_matrix *out);
uint64_t plan_mamba2_state_bytes(const struct plan_mamba2_matrix *m); // bytes of shared memory
uint64_t plan_mamba2_output_bytes(const struct plan *plan, const struct plan_mamba2_matrix *m);
#endif
