// plan_matmul.h: sizes of the kernels of products with weights, chosen from a device's plan.
#ifndef PLAN_MATMUL_H
#define PLAN_MATMUL_H
#include "plan.h"

// What all products on a device start from.
struct plan_products {
  const struct plan *device;

  uint32_t matvec_lanes, matvec_most_lanes; // invocations that share one group of rows
  uint32_t matvec_rows, matvec_most_rows;   // rows of weights that a workgroup reads
  uint32_t matvec_unroll;                   // loads of a row in flight in one invocation, for one token
  uint32_t matvec_sets;                     // sets of lanes of a workgroup where they share x, 1: they never do
  uint32_t matvec_below;                    // fewer tokens than this: matvec, else matmul

  uint32_t matmul_tile_t, matmul_tile_n, matmul_tile_k; // tokens x outputs of a workgroup; step along K
  uint32_t matmul_sub_t, matmul_sub_n;                  // outputs of one invocation; lanes = product of the quotients

  uint32_t matrix_step;  // most numbers of K that a product's tile has at a time
  uint32_t matrix_parts; // most workgroups that share a tile; 1: none do

  uint32_t narrow_tiles, narrow_parts, narrow_step; // of plan_narrow; 0: as the shape wants
  uint32_t narrow_from;                             // fewer tokens than this: matvec
  uint32_t narrow_tokens; // of a workgroup: more leave no registers to ask for what comes next

  uint32_t batch; // tokens of a prompt computed at once by default
};
void plan_products_make(const struct device_caps *caps, const struct plan *device, struct plan_products *out);
// Readable text, as plan_describe.
int plan_products_describe(const struct plan_products *plan, char *text, uint64_t capacity);

// Shared memory of a workgroup, and invocations: plan_products_make chooses sizes for which they fit the device.
uint64_t plan_matmul_shared_bytes(const struct plan_products *plan);
uint32_t plan_matmul_lanes(const struct plan_products *plan);

// Tiles of a product on cooperative matrices, (T, K) x (K, N): of a workgroup, and how many subgroups share its sides.
struct plan_matmul {
  uint32_t tile_t, tile_n, tile_k, across_t, across_n, lanes;
  uint32_t whole, parts; // `whole` tiles have a workgroup each, the others `parts` of them, which share K; 1: none do
  uint32_t groups;       // in all
};
// split: there is room of plan_matmul_parts_bytes() for what workgroups of one tile leave each other. False where the
// plan has no matrices.
bool plan_matmul_matrix(const struct plan_products *plan, uint32_t T, uint32_t N, uint32_t K, bool split,
                        struct plan_matmul *out);
uint64_t plan_matmul_matrix_shared_bytes(const struct plan_matmul *m);
// A ticket of each tile that is shared, zeros before and after, and then sums. 0: none ever are.
uint64_t plan_matmul_parts_bytes(const struct plan_products *plan);
uint64_t plan_matmul_tickets_bytes(const struct plan_products *plan); // a multiple of 256

// Sizes of matvec.comp for one product of `tokens` rows (1, 2, 4, 8) of K numbers.
struct plan_matvec {
  uint32_t lanes, rows, unroll;
  uint32_t sets; // of so many lanes, which share x in shared memory; 1: it is not there
};
struct plan_matvec plan_matvec(const struct plan_products *plan, uint32_t K, uint32_t tokens, bool norm, bool gated);

// The same for so few tokens that reading the weights is what takes the time: subgroups share K.
struct plan_narrow {
  uint32_t parts, tiles_t, tiles_n, step, lanes;
  uint32_t passes; // workgroups with the same outputs and other tokens
};
// False where the plan has no matrices, or for sizes that this does not suit.
bool plan_matmul_narrow(const struct plan_products *plan, uint32_t T, uint32_t N, uint32_t K, struct plan_narrow *out);
uint64_t plan_matmul_narrow_shared_bytes(const struct plan_products *plan, const struct plan_narrow *m);
#endif
