// cpu_blocks.h: products with weights that are stored as blocks of integers. SPAN columns of a row of weights are
// unpacked to integers of 16 bits, which hold every format exactly: element i of group g (GROUP elements) is
// d[g] q[i] - less[g]. In float32 sessions these are widened. In sessions of precision fast the inputs are rounded to
// integers too, and the products are summed up as integers, exactly, as far as a scale reaches.
#ifndef CPU_BLOCKS_H
#define CPU_BLOCKS_H
#include "cpu_backend.h"

enum { SPAN = 256, GROUP = 32, GROUPS = SPAN / GROUP, BLOCKS_T = 8, BLOCKS_TILE_T = 6, MOST_STRIPS = 2 };

struct span {
  int16_t q[SPAN];
  float d[GROUPS], less[GROUPS];
};

// Inputs: element i of group g is about d[g] q[i]; sums[g] is the group's sum of these. Scales reach as far as those of
// the weights: for blocks of 256 all d are equal.
struct rounded {
  int16_t q[SPAN];
  float d[GROUPS], sums[GROUPS];
};

// LANES rows of weights, transposed: pairs of columns lie side by side. No vector of them is in two cache lines.
struct strip {
  _Alignas(64) int16_t q[SPAN / 2][LANES][2];
  float d[GROUPS][LANES], less[GROUPS][LANES];
};

// A row of weights, or the first of LANES rows that lie `stride` bytes apart.
struct block_row {
  const uint8_t *blocks;
  uint64_t stride;
  uint32_t K, rows; // rows: beyond them a strip has zeros
  enum dtype dtype;
};

// The inner loops for an instruction set.
struct block_kernels {
  // out = columns k ... k + n - 1, k a multiple of SPAN, n at most SPAN; out has whole groups.
  void (*widen)(float *out, struct block_row w, uint32_t k, uint32_t n);
  // y[t] = x[t] w^T for T <= BLOCKS_T; x[t] is at x + t * x_stride.
  void (*dots)(float *y, const float *x, size_t x_stride, uint32_t T, struct block_row w);
  void (*rounded_dots)(float *y, const struct rounded *x, size_t x_stride, uint32_t T, struct block_row w);
  // y[r] = x w[r]^T for one token and rows of w, which are all there.
  void (*rounded_rows)(float *y, const struct rounded *x, struct block_row w, uint32_t rows);
  void (*round)(struct rounded *to, const float *x, uint32_t K, enum dtype dtype);
  void (*pack)(struct strip *to, struct block_row w, uint32_t k);
  uint32_t strips; // that `tiles` takes: 1 or MOST_STRIPS
  // sums (T, strips * LANES), rows `stride` floats apart, += x (T, SPAN) strips; T is a multiple of BLOCKS_TILE_T.
  void (*tiles)(float *sums, size_t stride, const struct rounded *x, size_t x_stride, uint32_t T,
                const struct strip *strips, uint32_t groups, enum dtype dtype);
};
// The i-th set that this processor has, best first; NULL after the last.
const struct block_kernels *cpu_block_kernels(uint32_t i);

static inline struct block_row block_row(const struct tensor *w, uint32_t row) {
  return (struct block_row){.blocks = tensor_row(w, row),
                            .stride = dtype_bytes(w->dtype, w->stride),
                            .K = w->cols,
                            .rows = w->rows > row ? w->rows - row : 0,
                            .dtype = w->dtype};
}

// True if the product of p is computed here; its scratch then has cpu_blocks_bytes().
bool cpu_blocks_take(const struct oplist *l, const struct linear *p);
uint64_t cpu_blocks_bytes(const struct oplist *l, enum dtype dtype, uint64_t T, uint64_t K);
void cpu_blocks_multiply(struct recorder *c, const struct linear *p, struct tensor scratch);
#endif
