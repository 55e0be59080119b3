// cpu_product: small products of f32 matrices, for the chunkwise operations. cpu_matmul.c has products with weights.
#include "cpu_backend.h"

CPU_CLONES static float dot(const float *a, const float *b, size_t n) { return lanes_dot(a, b, n); }
float cpu_dot(const float *a, const float *b, size_t n) { return dot(a, b, n); }

// Columns of b are copied where many rows of a use them: rows of b that lie 512 bytes apart share few sets of a cache.
// The vectors are as wide as registers of the instruction set: those that are wider are kept in memory by the compiler.
// The order of every sum is the same for all.
struct product {
  float *y;
  size_t y_stride;
  struct cpu_view a;
  const float *b;
  size_t b_stride;
  uint32_t N;
};

enum { TILE_ROWS = 4, TILE_VECTORS = 2, PANEL_ROWS = 128 };

// y (4 rows, 2 vectors) += a b; y stays in registers while k runs.
#define TILE(vector)                                                                                                   \
  {                                                                                                                    \
    const float *from = p->a.x + i * p->a.row, *b = panel;                                                             \
    vector s[TILE_ROWS][TILE_VECTORS];                                                                                 \
    for (uint32_t r = 0; r < TILE_ROWS; r++)                                                                           \
      for (uint32_t v = 0; v < TILE_VECTORS; v++) s[r][v] = ((vector *)(y + r * p->y_stride))[v];                      \
    for (uint32_t k = 0; k < p->a.cols; k++, from += p->a.col, b += step)                                              \
      for (uint32_t r = 0; r < TILE_ROWS; r++)                                                                         \
        for (uint32_t v = 0; v < TILE_VECTORS; v++) s[r][v] += from[r * p->a.row] * ((const vector *)b)[v];            \
    for (uint32_t r = 0; r < TILE_ROWS; r++)                                                                           \
      for (uint32_t v = 0; v < TILE_VECTORS; v++) ((vector *)(y + r * p->y_stride))[v] = s[r][v];                      \
  }

#define PRODUCT(name, attribute, bytes)                                                                                \
  attribute static void name(const struct product *p) {                                                                \
    typedef float vector __attribute__((vector_size(bytes), aligned(4), may_alias));                                   \
    enum { COLUMNS = TILE_VECTORS * bytes / 4 };                                                                       \
    const uint32_t tiled_rows = p->a.rows / TILE_ROWS * TILE_ROWS, tiled_cols = p->N / COLUMNS * COLUMNS;              \
    const bool copy = tiled_rows > 2 * TILE_ROWS && p->a.cols <= PANEL_ROWS;                                           \
    const size_t step = copy ? COLUMNS : p->b_stride;                                                                  \
    float copied[PANEL_ROWS * COLUMNS];                                                                                \
    for (uint32_t j = 0; j < tiled_cols; j += COLUMNS) {                                                               \
      const float *const panel = copy ? copied : p->b + j;                                                             \
      for (uint32_t k = 0; copy && k < p->a.cols; k++)                                                                 \
        for (uint32_t v = 0; v < TILE_VECTORS; v++)                                                                    \
          ((vector *)(copied + k * COLUMNS))[v] = ((const vector *)(p->b + k * p->b_stride + j))[v];                   \
      for (uint32_t i = 0; i < tiled_rows; i += TILE_ROWS) {                                                           \
        float *y = p->y + i * p->y_stride + j;                                                                         \
        TILE(vector)                                                                                                   \
      }                                                                                                                \
    }                                                                                                                  \
    for (uint32_t i = 0; i < p->a.rows; i++) /* what the tiles left: columns at the right, rows at the bottom */       \
      for (uint32_t k = 0, first = i < tiled_rows ? tiled_cols : 0; first < p->N && k < p->a.cols; k++) {              \
        float *restrict row = p->y + i * p->y_stride;                                                                  \
        const float *restrict from = p->b + k * p->b_stride, factor = p->a.x[i * p->a.row + k * p->a.col];             \
        for (uint32_t j = first; j < p->N; j++) row[j] += factor * from[j];                                            \
      }                                                                                                                \
  }

PRODUCT(product_plain, , 16)
#if defined(__x86_64__) && defined(__GNUC__)
PRODUCT(product_avx2, __attribute__((target("avx2"))), 32)
PRODUCT(product_avx512, __attribute__((target("avx512f"))), 64)
#endif

void cpu_product(float *y, size_t y_stride, struct cpu_view a, const float *b, size_t b_stride, uint32_t N) {
  const struct product p = {y, y_stride, a, b, b_stride, N};
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("avx512f")) {
    product_avx512(&p);
    return;
  }
  if (__builtin_cpu_supports("avx2")) {
    product_avx2(&p);
    return;
  }
#endif
  product_plain(&p);
}
