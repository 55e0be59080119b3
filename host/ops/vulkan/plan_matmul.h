// plan_matmul.h: chooses the sizes of the product kernels from a device's plan. Coopmat: cooperative matrices.
#ifndef PLAN_MATMUL_H
#define PLAN_MATMUL_H
#include "plan.h"

// Sizes of matmul.comp.
struct plan_tile {
  uint16_t tile_t, tile_n, tile_k; // tokens x outputs of a workgroup; step along K
  uint8_t sub_t, sub_n;            // outputs of one invocation
  uint8_t slices;                  // invocations that share outputs, of other K
  uint8_t buffers;                 // tiles in shared memory
  uint8_t unroll;                  // fours of K that a lane multiplies at once
};

// Starting values of all products on a device.
struct plan_products {
  const struct plan *device;

  uint32_t matvec_lanes, matvec_most_lanes; // invocations that share one group of rows
  uint32_t matvec_rows, matvec_most_rows;   // rows of weights that a workgroup reads
  uint32_t matvec_unroll;                   // loads of a row in flight in one invocation, for one token
  uint32_t matvec_sets;                     // sets of lanes in a workgroup that shares x; 1: workgroups never share it
  bool dots;                                // one token's products with tiles are sums of integers (matvec_dot)
  uint32_t dot_lanes;                       // most lanes of plan_dot
  uint32_t dot_rows, dot_ahead; // rows of weights of a team, 0: chosen by the shape; most that are loaded at once, 2^n
  uint32_t matvec_below;        // with fewer tokens matvec, else matmul

  struct plan_tile tile, some, few; // of matmul: of large products, of middle ones, and of small ones

  uint32_t matrix_step;  // most elements of K that a tile stages at once
  uint32_t matrix_parts; // most workgroups that share a tile; 1: none do

  uint32_t narrow_tiles, narrow_parts, narrow_step; // of plan_narrow; 0: chosen by the shape
  uint32_t narrow_from;                             // with fewer tokens matvec, even with coopmat
  uint32_t narrow_tokens; // most tokens of a workgroup; more would leave no registers to prefetch

  uint32_t batch; // default number of prompt tokens that are computed at once
};
// Tiles of products without coopmats that are timed (struct timed_choices). The first is a GPU's, the last software's.
enum { PLAN_TILES = 4 };
extern const struct plan_tile plan_tiles[PLAN_TILES];
// Whether the plan has just this tile: one that is too large for the device was made smaller.
bool plan_has_tile(const struct plan_products *plan, const struct plan_tile *tile);
void plan_products_make(const struct device_caps *caps, const struct plan *device, struct plan_products *out);
// Readable text, like plan_describe().
int plan_products_describe(const struct plan_products *plan, char *text, uint64_t capacity);

// Shared memory and invocations of a workgroup of matmul; plan_products_make() chooses sizes that fit the device.
uint64_t plan_matmul_shared_bytes(const struct plan_tile *tile);
uint32_t plan_matmul_lanes(const struct plan_tile *tile);
// The tile of a product of T rows with N rows of weights.
const struct plan_tile *plan_matmul_tile(const struct plan_products *plan, uint32_t T, uint32_t N);

// Tiles of a coopmat product (T, K) x (K, N): their size per workgroup, and how many subgroups lie along their sides.
struct plan_matmul {
  uint32_t tile_t, tile_n, tile_k, across_t, across_n, lanes;
  uint32_t whole, parts; // `whole` tiles have one workgroup each, other tiles `parts`, which split K
  uint32_t groups;       // workgroups in all
};
// split: there is a buffer of plan_matmul_parts_bytes() for the partial sums of split tiles. False: the device has no
// coopmat.
bool plan_matmul_matrix(const struct plan_products *plan, uint32_t T, uint32_t N, uint32_t K, bool split,
                        struct plan_matmul *out);
uint64_t plan_matmul_matrix_shared_bytes(const struct plan_matmul *m);
// Whether matmul_matrix.comp with TURN_W, or also TURN_X, has the shared memory for these tiles, and how much it needs.
bool plan_matmul_turns(const struct plan_products *plan, const struct plan_matmul *m, bool turn_x);
uint64_t plan_matmul_turned_bytes(const struct plan_matmul *m, bool turn_x);
// That buffer holds a ticket for each split tile, which is zero before and after, then partial sums. 0: tiles are never
// split.
uint64_t plan_matmul_parts_bytes(const struct plan_products *plan);
uint64_t plan_matmul_tickets_bytes(const struct plan_products *plan); // a multiple of 256

// Tiles of the rows of each of E experts, R in all. whole = groups: the most tiles times those along N. False: no
// coopmat.
bool plan_matmul_experts(const struct plan_products *plan, uint32_t R, uint32_t E, uint32_t N, struct plan_matmul *out);
// The most tiles of tile_t rows that R rows of E experts can make.
uint32_t plan_experts_tiles(uint32_t R, uint32_t E, uint32_t tile_t);
// Whether R rows are enough to sort them by expert.
bool plan_experts_sorted(uint32_t R, uint32_t E);

// Sizes of matvec.comp for one product of `tokens` rows (1, 2, 4, 8) of K elements.
struct plan_matvec {
  uint32_t lanes, rows, unroll;
  uint32_t sets; // sets of `lanes`, which share x in shared memory; 1: x is not in shared memory
};
struct plan_matvec plan_matvec(const struct plan_products *plan, uint32_t K, uint32_t N, uint32_t tokens, bool norm,
                               bool gated);

// Sizes of matvec_dot.comp for N rows of K weights, whose outputs are half as many with `gated`, on so many processors.
struct plan_dot {
  uint32_t lanes, teams, rows, ahead;
};
// False: the device has no such sums, or the kernel cannot take K.
bool plan_dot(const struct plan_products *plan, uint32_t K, uint32_t N, bool gated, uint32_t processors,
              struct plan_dot *out);

// Sizes of matmul_narrow.comp, for so few tokens that reading the weights takes most of the time: subgroups split K.
struct plan_narrow {
  uint32_t parts, tiles_t, tiles_n, step, lanes;
  uint32_t passes; // workgroups with the same outputs but other tokens
};
// False: the device has no coopmat, or the sizes do not fit.
bool plan_matmul_narrow(const struct plan_products *plan, uint32_t T, uint32_t N, uint32_t K, struct plan_narrow *out);
uint64_t plan_matmul_narrow_shared_bytes(const struct plan_products *plan, const struct plan_narrow *m);
#endif
