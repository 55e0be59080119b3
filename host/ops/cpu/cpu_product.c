// cpu_product: small products of f32 matrices, for the chunkwise operations. cpu_matmul.c has products with weights.
#include "cpu_backend.h"

float cpu_dot(const float *a, const float *b, size_t n) { return lanes_dot(a, b, n); }

enum { WIDE = CPU_WIDE / sizeof(float) };
typedef float wide __attribute__((vector_size(CPU_WIDE), aligned(4), may_alias));

// 4 rows of y, 2 vectors each, stay in registers while k runs.
static inline __attribute__((always_inline)) void product_tile(float *y, size_t y_stride, const struct cpu_view view,
                                                               const float *b, size_t b_stride) {
  const float *a = view.x;
  const size_t a_row = view.row, a_col = view.col;
  wide s00 = *(wide *)y, s01 = *(wide *)(y + WIDE);
  wide s10 = *(wide *)(y + y_stride), s11 = *(wide *)(y + y_stride + WIDE);
  wide s20 = *(wide *)(y + 2 * y_stride), s21 = *(wide *)(y + 2 * y_stride + WIDE);
  wide s30 = *(wide *)(y + 3 * y_stride), s31 = *(wide *)(y + 3 * y_stride + WIDE);
  for (uint32_t k = 0; k < view.cols; k++, a += a_col, b += b_stride) {
    wide b0 = *(const wide *)b, b1 = *(const wide *)(b + WIDE);
    s00 += a[0] * b0, s01 += a[0] * b1;
    s10 += a[a_row] * b0, s11 += a[a_row] * b1;
    s20 += a[2 * a_row] * b0, s21 += a[2 * a_row] * b1;
    s30 += a[3 * a_row] * b0, s31 += a[3 * a_row] * b1;
  }
  *(wide *)y = s00, *(wide *)(y + WIDE) = s01;
  *(wide *)(y + y_stride) = s10, *(wide *)(y + y_stride + WIDE) = s11;
  *(wide *)(y + 2 * y_stride) = s20, *(wide *)(y + 2 * y_stride + WIDE) = s21;
  *(wide *)(y + 3 * y_stride) = s30, *(wide *)(y + 3 * y_stride + WIDE) = s31;
}

static CPU_CLONES void product(float *y, size_t y_stride, struct cpu_view a, const float *b, size_t b_stride,
                               uint32_t N) {
  uint32_t tiled_rows = a.rows / 4 * 4, tiled_cols = N / (2 * WIDE) * (2 * WIDE);
  for (uint32_t j = 0; j < tiled_cols; j += 2 * WIDE)
    for (uint32_t i = 0; i < tiled_rows; i += 4)
      product_tile(y + i * y_stride + j, y_stride, (struct cpu_view){a.x + i * a.row, a.row, a.col, 4, a.cols}, b + j,
                   b_stride);
  for (uint32_t i = 0; i < a.rows; i++) // what the tiles left: columns at the right, rows at the bottom
    for (uint32_t k = 0, first = i < tiled_rows ? tiled_cols : 0; first < N && k < a.cols; k++) {
      float *restrict row = y + i * y_stride;
      const float *restrict from = b + k * b_stride, factor = a.x[i * a.row + k * a.col];
      for (uint32_t j = first; j < N; j++) row[j] += factor * from[j];
    }
}

void cpu_product(float *y, size_t y_stride, struct cpu_view a, const float *b, size_t b_stride, uint32_t N) {
  product(y, y_stride, a, b, b_stride, N);
}
