// plan_delta.h: sizes of the chunkwise delta rule's kernels on cooperative matrices.
#ifndef PLAN_DELTA_H
#define PLAN_DELTA_H
#include "plan.h"

// Head-in-Head too, whose r blocks have an unknown each, as steps have.
struct plan_delta_matrix {
  uint32_t r, block;            // blocks of a head, rows of one: 1, Dk but for Head-in-Head
  bool conversions;             // scan: sums become operands in registers, else through shared memory
  bool lockstep;                // scan: a subgroup needs no barrier of its own
  uint32_t C;                   // steps of a chunk: 16, 32, 48 or 64
  uint32_t Dk;                  // rounded up to a multiple of 16
  uint32_t slab, prepare_lanes; // of prepare: columns of K staged at a time
  uint32_t computers, tiles;    // of scan: subgroups, tiles of value columns that each owns
  uint32_t stagers;             // further subgroups that bring what those need; 0: they do it themselves
  uint32_t ahead;               // without those: chunks that what is staged was fetched before; 0: scan waits
  uint32_t segments;            // of a sequence, walked at the same time; 1: it is walked once
  uint32_t join_tiles;          // of join: tiles of value columns of a workgroup
};
// heads: value heads of all sequences; T: tokens of a sequence. False where the plan has no matrices, or none of the
// shapes fits the device.
bool plan_delta_matrix(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, uint32_t heads,
                       uint32_t T, struct plan_delta_matrix *out);
uint64_t plan_delta_matrix_join_bytes(const struct plan *plan, const struct plan_delta_matrix *d);
uint64_t plan_delta_matrix_reach_bytes(const struct plan *plan, const struct plan_delta_matrix *d);
// Shared memory; n: unknowns of a token, steps times blocks.
uint64_t plan_delta_matrix_prepare_bytes(const struct plan_delta_matrix *d, uint32_t n);
uint64_t plan_delta_matrix_scan_bytes(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t n,
                                      bool edges);
#endif
