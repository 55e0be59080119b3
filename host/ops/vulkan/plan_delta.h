// plan_delta.h: chooses the sizes of the chunkwise delta rule's kernels on cooperative matrices (coopmat).
#ifndef PLAN_DELTA_H
#define PLAN_DELTA_H
#include "plan.h"
#include "status.h"

// Also for Head-in-Head, whose r blocks have an unknown each, as householder steps have.
struct plan_delta_matrix {
  uint32_t r, block;            // blocks of a head, rows of a block; 1 and Dk without Head-in-Head
  bool conversions;             // scan: accumulators become operands in registers; false: through shared memory
  bool lockstep;                // scan: a subgroup runs in lockstep and needs no subgroup barrier
  uint32_t C;                   // householder steps of a chunk: 16, 32, 48 or 64
  uint32_t Dk;                  // rounded up to a multiple of 16
  uint32_t slab, prepare_lanes; // prepare: columns of K that are staged at once
  uint32_t computers, tiles;    // scan: subgroups that compute, tiles of value columns of each
  uint32_t stagers;             // scan: subgroups that only stage; 0: the computing subgroups do it
  uint32_t ahead;               // scan without stagers: how many chunks ahead it fetches; 0: it waits for each
  uint32_t segments;            // segments of a sequence, which run at the same time
  uint32_t join_tiles;          // join: tiles of value columns of a workgroup
};
// heads: value heads of all sequences; T: tokens of a sequence. False: the device has no coopmat, or none of the shapes
// fits.
bool plan_delta_matrix(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, uint32_t heads,
                       uint32_t T, struct plan_delta_matrix *out);
// Chooses the slab and the lanes of prepare from C and Dk; C becomes shorter if shared memory demands it. n: unknowns
// of a token.
void plan_delta_prepare(const struct plan *plan, uint32_t n, struct plan_delta_matrix *d) INSIDE(plan_delta_prepare);
uint64_t plan_delta_matrix_join_bytes(const struct plan *plan, const struct plan_delta_matrix *d);
uint64_t plan_delta_matrix_reach_bytes(const struct plan *plan, const struct plan_delta_matrix *d);
// Bytes of shared memory. n: unknowns of a token, householder steps times blocks.
uint64_t plan_delta_matrix_prepare_bytes(const struct plan_delta_matrix *d, uint32_t n);
uint64_t plan_delta_matrix_scan_bytes(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t n,
                                      bool edges);
#endif
