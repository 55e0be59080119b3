// cpu_matmul: y (T, N) = x (T, K) w (N, K)^T for any dtype of w, accumulated in f32.
//
// A few tokens (T <= DOTS_T) are bound by memory: DOT_ROWS rows of w are read side by side and widened in registers.
// Partial sums are over k % LANES (for bf16 over its pairs), then added as a tree. More tokens are bound by arithmetic:
// PANEL rows of w are widened and transposed, K_BLOCK columns at once, for up to T_BLOCK tokens, and a tile of tokens
// by columns stays in registers while k runs. Sums run over k in order, K_BLOCK at a time. In float32 sessions it is
// SUM_BLOCK at a time, since rounding errors grow with the sum so far: that brings the models' logits 1.3 to 2.3 times
// nearer to float64 and makes prompts a tenth slower. The order of sums is the same for all instruction sets. But this
// file is compiled with contraction: a processor with fused multiply-add does not round a product before adding it.
#include "cpu_blocks.h"

enum {
  DOTS_T = 3,
  DOT_ROWS = 8,
  STRIPS = 4,             // strips of LANES rows of w in a panel
  PANEL = STRIPS * LANES, // rows of w in a task
  K_BLOCK = 256,
  SUM_BLOCK = 16,
  T_BLOCK = 512,
  TILE_T = 6, // most tokens of a tile
};

#define INLINE static inline __attribute__((always_inline))
#define shuffle __builtin_shufflevector
#define UNROLL _Pragma("GCC unroll 8")

// ---------------------------------------------------------------- widening

typedef uint32_t lanes_u32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t lanes_u16 __attribute__((vector_size(32), aligned(2), may_alias));

// Bytes of an element in the formats that are widened in registers. Other formats are first decoded to f32, K_BLOCK
// columns of some rows at a time.
INLINE size_t element_bytes(enum dtype dtype) { return dtype == DTYPE_F32 ? 4 : 2; }

// Widens LANES elements of those formats to f32, exactly. f16: the exponent is re-biased by 127 - 15 = 112; where it
// was all ones (infinity, NaN) it is all ones again. A denormal m 2^-24 becomes 2^-14 (1 + m / 1024), which is normal,
// minus 2^-14.
INLINE void widen(lanes *to, const void *from, enum dtype dtype) {
  if (dtype == DTYPE_F32) {
    *to = *(const lanes *)from;
    return;
  }
  lanes_u32 h = __builtin_convertvector(*(const lanes_u16 *)from, lanes_u32);
  if (dtype == DTYPE_BF16) {
    *(lanes_u32 *)to = h << 16;
    return;
  }
  lanes_u32 magnitude = (h & 0x7fff) << 13, denormal = (lanes_u32)((h & 0x7c00) == 0);
  lanes small = (lanes)(magnitude | 0x38800000) - 0x1p-14f;
  lanes_u32 special = (lanes_u32)((h & 0x7c00) == 0x7c00) & 0x7f800000;
  *(lanes_u32 *)to =
      ((lanes_u32)small & denormal) | ((magnitude + 0x38000000) & ~denormal) | special | (h & 0x8000) << 16;
}

// The first n of LANES elements; the others are zero.
INLINE void widen_some(lanes *to, const char *from, uint32_t n, enum dtype dtype) {
  _Alignas(float) char tail[LANES * sizeof(float)] = {0};
  memcpy(tail, from, n * element_bytes(dtype));
  widen(to, tail, dtype);
}

// ---------------------------------------------------------------- a few tokens

INLINE void fetch_ahead(const char *w, size_t w_bytes, uint32_t r, size_t at) {
  __builtin_prefetch((const void *)((uintptr_t)w + (r + DOT_ROWS) * w_bytes + at)); // may be past the end
}

// A word holds two bf16. Without its lower half it is the upper element as f32; shifted up, it gives the lower one.
// That takes half the instructions of widening each. x's elements are separated likewise, once for all rows. Returns
// the number of columns that are done.
INLINE uint32_t dots_of_pairs(lanes *sums, const float *x, const char *w, size_t w_bytes, uint32_t K) {
  uint32_t k = 0;
  for (; k + 2 * LANES <= K; k += 2 * LANES) {
    lanes a = *(const lanes *)(x + k), b = *(const lanes *)(x + k + LANES);
    lanes even = shuffle(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    lanes odd = shuffle(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    for (uint32_t r = 0; r < DOT_ROWS; r++) {
      lanes_u32 pairs = *(const lanes_u32 *)(w + r * w_bytes + k * 2);
      fetch_ahead(w, w_bytes, r, k * 2);
      sums[r] += even * (lanes)(pairs << 16);
      sums[r] += odd * (lanes)(pairs & 0xffff0000);
    }
  }
  return k;
}

// y[r] = x w[r]^T for DOT_ROWS rows of w. It prefetches the next DOT_ROWS rows: a row is about as long as a page, and
// hardware prefetching stops at a page's end.
INLINE void dots(float *y, const float *x, const char *w, size_t w_bytes, uint32_t K, enum dtype dtype) {
  const size_t size = element_bytes(dtype);
  lanes sums[DOT_ROWS] = {{0}}, v, u;
  uint32_t k = dtype == DTYPE_BF16 ? dots_of_pairs(sums, x, w, w_bytes, K) : 0;
  for (; k + LANES <= K; k += LANES) {
    v = *(const lanes *)(x + k);
    for (uint32_t r = 0; r < DOT_ROWS; r++) {
      widen(&u, w + r * w_bytes + k * size, dtype);
      if (k * size % 64 == 0) fetch_ahead(w, w_bytes, r, k * size); // once per cache line
      sums[r] += v * u;
    }
  }
  if (k < K) {
    widen_some(&v, (const char *)(x + k), K - k, DTYPE_F32);
    for (uint32_t r = 0; r < DOT_ROWS; r++) {
      widen_some(&u, w + r * w_bytes + k * size, K - k, dtype);
      sums[r] += v * u;
    }
  }
  for (uint32_t r = 0; r < DOT_ROWS; r++) y[r] = lanes_sum(&sums[r]);
}

// ---------------------------------------------------------------- many tokens

// A panel is [strip][k][LANES]: for each column k the elements of LANES rows of w, side by side.
typedef float panel_strip[K_BLOCK][LANES];

// n columns of `rows` rows of w; missing rows are zeros.
INLINE void pack(panel_strip strip, const char *w, size_t w_bytes, uint32_t rows, uint32_t n, enum dtype dtype) {
  const size_t size = element_bytes(dtype);
  float wide[4 * K_BLOCK];
  for (uint32_t first = 0; first < LANES; first += 4) {
    for (uint32_t r = 0; r < 4; r++) {
      const char *row = w + (first + r) * w_bytes;
      float *to = wide + r * K_BLOCK;
      uint32_t k = 0;
      if (first + r >= rows) {
        memset(to, 0, K_BLOCK * sizeof(float));
        continue;
      }
      for (; k + LANES <= n; k += LANES) widen((lanes *)(to + k), row + k * size, dtype);
      if (k < n) widen_some((lanes *)(to + k), row + k * size, n - k, dtype);
    }
    for (uint32_t k = 0; k < n; k += 4) transpose_4x4(&strip[k][first], LANES, wide + k, K_BLOCK);
  }
}

// n columns of some strips; `block` of them are summed up by themselves.
struct panel {
  panel_strip *strips;
  uint32_t n, block;
};

// sums (R, S strips of LANES) += x (R, n) panel (n, S strips), in registers: vectors that are wider than those are kept
// in memory by the compiler. R, S and V, the vectors of a strip, are constants.
#define TILE(name, vector)                                                                                             \
  INLINE void name(float *sums, const float *x, size_t x_stride, struct panel panel, const uint32_t R,                 \
                   const uint32_t S) {                                                                                 \
    enum { W = sizeof(vector) / sizeof(float), V = LANES / W };                                                        \
    for (uint32_t first = 0; first < panel.n; first += panel.block) {                                                  \
      const uint32_t end = panel.n - first < panel.block ? panel.n : first + panel.block;                              \
      vector s[TILE_T][STRIPS * V] = {{{0}}};                                                                          \
      for (uint32_t k = first; k < end; k++) {                                                                         \
        vector b[STRIPS * V];                                                                                          \
        UNROLL for (uint32_t j = 0; j < S * V; j++) b[j] = *(const vector *)&panel.strips[j / V][k][j % V * W];        \
        UNROLL for (uint32_t i = 0; i < R; i++) UNROLL for (uint32_t j = 0; j < S * V; j++) s[i][j] +=                 \
            x[i * x_stride + k] * b[j];                                                                                \
      }                                                                                                                \
      UNROLL for (uint32_t i = 0; i < R; i++) UNROLL for (uint32_t j = 0; j < S * V; j++) *                            \
          (vector *)(sums + i * PANEL + j * W) += s[i][j];                                                             \
    }                                                                                                                  \
  }
TILE(tile_64, lanes)
TILE(tile_32, half_lanes)
TILE(tile_16, quarter_lanes)

// `bytes` of a vector is a constant. A compiler that does not optimize could not inline a function that is passed.
INLINE void tile(float *sums, const float *x, size_t x_stride, struct panel panel, const uint32_t bytes,
                 const uint32_t R, const uint32_t S) {
  if (bytes == 64)
    tile_64(sums, x, x_stride, panel, R, S);
  else if (bytes == 32)
    tile_32(sums, x, x_stride, panel, R, S);
  else
    tile_16(sums, x, x_stride, panel, R, S);
}

// sums (T, PANEL) += x (T, n) panel (n, PANEL), R tokens and S strips at a time; the last R may go beyond T.
INLINE void tiles(float *sums, const float *x, size_t x_stride, uint32_t T, struct panel panel, const uint32_t bytes,
                  const uint32_t R, const uint32_t S) {
  float last[TILE_T][K_BLOCK];
  uint32_t full = T / R * R;
  for (uint32_t i = 0; i < R; i++)
    if (full + i < T)
      memcpy(last[i], x + (full + i) * x_stride, panel.n * sizeof(float));
    else
      memset(last[i], 0, panel.n * sizeof(float));
  for (uint32_t j = 0; j < STRIPS; j += S, panel.strips += S) {
    float *to = sums + j * LANES;
    for (uint32_t t = 0; t < full; t += R) tile(to + t * PANEL, x + t * x_stride, x_stride, panel, bytes, R, S);
    if (full < T) tile(to + full * PANEL, last[0], K_BLOCK, panel, bytes, R, S);
  }
}

// ---------------------------------------------------------------- instruction sets

struct matmul_kernels {
  void (*dots)(float *y, const float *x, const char *w, size_t w_bytes, uint32_t K, enum dtype dtype);
  void (*pack)(panel_strip strip, const char *w, size_t w_bytes, uint32_t rows, uint32_t n, enum dtype dtype);
  void (*tiles)(float *sums, const float *x, size_t x_stride, uint32_t T, struct panel panel);
};

// The registers hold R x S vectors of LANES floats, and S vectors of the panel.
#define KERNELS(name, attribute, bytes, R, S)                                                                          \
  attribute static void dots_##name(float *y, const float *x, const char *w, size_t w_bytes, uint32_t K,               \
                                    enum dtype dtype) {                                                                \
    switch (dtype) {                                                                                                   \
    case DTYPE_F16: dots(y, x, w, w_bytes, K, DTYPE_F16); break;                                                       \
    case DTYPE_BF16: dots(y, x, w, w_bytes, K, DTYPE_BF16); break;                                                     \
    default: dots(y, x, w, w_bytes, K, DTYPE_F32);                                                                     \
    }                                                                                                                  \
  }                                                                                                                    \
  attribute static void pack_##name(panel_strip strip, const char *w, size_t w_bytes, uint32_t rows, uint32_t n,       \
                                    enum dtype dtype) {                                                                \
    switch (dtype) {                                                                                                   \
    case DTYPE_F16: pack(strip, w, w_bytes, rows, n, DTYPE_F16); break;                                                \
    case DTYPE_BF16: pack(strip, w, w_bytes, rows, n, DTYPE_BF16); break;                                              \
    default: pack(strip, w, w_bytes, rows, n, DTYPE_F32);                                                              \
    }                                                                                                                  \
  }                                                                                                                    \
  attribute static void tiles_##name(float *sums, const float *x, size_t x_stride, uint32_t T, struct panel panel) {   \
    tiles(sums, x, x_stride, T, panel, bytes, R, S);                                                                   \
  }                                                                                                                    \
  static const struct matmul_kernels name = {dots_##name, pack_##name, tiles_##name};

#if defined(__x86_64__) && defined(__GNUC__)
KERNELS(avx512, __attribute__((target("avx512f"))), 64, 6, 4)
KERNELS(avx2, __attribute__((target("avx2,fma"))), 32, 6, 1)
KERNELS(plain, , 16, 2, 1)
const struct matmul_kernels *cpu_matmul_kernels(uint32_t i) {
  const struct matmul_kernels *found[3];
  uint32_t n = 0;
  if (__builtin_cpu_supports("avx512f")) found[n++] = &avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found[n++] = &avx2;
  found[n++] = &plain;
  return i < n ? found[i] : NULL;
}
#else
KERNELS(plain, , 16, 6, 1)
const struct matmul_kernels *cpu_matmul_kernels(uint32_t i) { return i ? NULL : &plain; }
#endif

// ---------------------------------------------------------------- the operation

struct matmul_call {
  struct recorder *c;
  const struct matmul_kernels *kernels;
  struct tensor y, x, w, bias;
  uint32_t panels, block; // block: elements of a partial sum
};

// y[t, first ...] = sums plus the bias.
static void store(const struct matmul_call *m, uint32_t t, uint32_t first, uint32_t rows, const float *sums) {
  float *y = f32_row(&m->y, t) + first;
  const float *bias = m->bias.buffer ? f32_row(&m->bias, 0) + first : NULL;
  for (uint32_t r = 0; r < rows; r++) y[r] = sums[r] + (bias ? bias[r] : 0);
}

static size_t row_bytes(const struct tensor *w) { return dtype_bytes(w->dtype, w->stride); }

static void dots_task(void *context, uint64_t index, uint32_t worker) {
  const struct matmul_call *m = context;
  (void)worker;
  uint32_t first = (uint32_t)index * PANEL, end = m->w.rows - first < PANEL ? m->w.rows : first + PANEL;
  float sums[DOT_ROWS];
  for (uint32_t n = first; n < end; n += DOT_ROWS)
    for (uint32_t t = 0; t < m->x.rows; t++) {
      if (end - n >= DOT_ROWS)
        m->kernels->dots(sums, f32_row(&m->x, t), tensor_row(&m->w, n), row_bytes(&m->w), m->x.cols, m->w.dtype);
      else // the last rows, one by one: a stride of 0 reads the same row DOT_ROWS times
        for (uint32_t r = 0; r < end - n; r++) {
          float same[DOT_ROWS];
          m->kernels->dots(same, f32_row(&m->x, t), tensor_row(&m->w, n + r), 0, m->x.cols, m->w.dtype);
          sums[r] = same[0];
        }
      store(m, t, n, end - n < DOT_ROWS ? end - n : DOT_ROWS, sums);
    }
}

// Packs a strip of the panel: rows from `first` on, n columns from k on.
static void pack_strip(const struct matmul_call *m, panel_strip strip, uint32_t first, uint32_t k, uint32_t n) {
  const uint32_t left = m->w.rows > first ? m->w.rows - first : 0, rows = left < LANES ? left : LANES;
  if (formats[m->w.dtype].elements > 1) {
    float wide[LANES][K_BLOCK];
    for (uint32_t r = 0; r < rows; r++)
      ((struct cpu_backend *)m->c->backend)->blocks->widen(wide[r], block_row(&m->w, first + r), k, n);
    m->kernels->pack(strip, (const char *)wide, sizeof wide[0], rows, n, DTYPE_F32);
  } else {
    const char *w = (const char *)tensor_row(&m->w, first) + dtype_bytes(m->w.dtype, k);
    m->kernels->pack(strip, w, row_bytes(&m->w), rows, n, m->w.dtype);
  }
}

static void tiles_task(void *context, uint64_t index, uint32_t worker) {
  const struct matmul_call *m = context;
  (void)worker;
  uint32_t first = (uint32_t)(index % m->panels) * PANEL, t = (uint32_t)(index / m->panels) * T_BLOCK;
  uint32_t rows = m->w.rows - first < PANEL ? m->w.rows - first : PANEL, K = m->w.cols;
  uint32_t T = m->x.rows - t < T_BLOCK ? m->x.rows - t : T_BLOCK;
  panel_strip panel[STRIPS];
  float sums[(T_BLOCK + TILE_T) * PANEL];
  memset(sums, 0, (T + TILE_T) * PANEL * sizeof(float));
  for (uint32_t k = 0; k < K; k += K_BLOCK) {
    uint32_t n = K - k < K_BLOCK ? K - k : K_BLOCK;
    for (uint32_t s = 0; s < STRIPS; s++) pack_strip(m, panel[s], first + s * LANES, k, n);
    m->kernels->tiles(sums, f32_row(&m->x, t) + k, m->x.stride, T, (struct panel){panel, n, m->block});
  }
  for (uint32_t i = 0; i < T; i++) store(m, t + i, first, rows, sums + i * PANEL);
}

void cpu_multiply(struct recorder *c, const struct linear *p, struct tensor scratch) {
  const struct tensor x = p->x, w = p->w;
  assert(x.cols == w.cols && p->y.cols == w.rows && p->y.rows == x.rows);
  if (cpu_blocks_take(cpu_list(c), p)) {
    cpu_blocks_multiply(c, p, scratch);
    return;
  }
  const uint32_t T = x.rows;
  uint64_t operations = 2ull * T * w.rows * w.cols;
  struct matmul_call m = {.c = c,
                          .kernels = ((struct cpu_backend *)c->backend)->matmul,
                          .y = p->y,
                          .x = x,
                          .w = w,
                          .bias = p->bias,
                          .panels = (w.rows + PANEL - 1) / PANEL,
                          .block = cpu_list(c)->matrices ? K_BLOCK : SUM_BLOCK};
  if (T <= DOTS_T)
    cpu_parallel(c, T ? m.panels : 0, operations, dots_task, &m);
  else
    cpu_parallel(c, (uint64_t)m.panels * ((T + T_BLOCK - 1) / T_BLOCK), operations, tiles_task, &m);
}

// A matrix of several formats: one product for each, with its columns of y.
static void mixed_linear(struct recorder *c, const struct linear *p, struct tensor scratch) {
  struct linear one = *p;
  uint32_t first = 0;
  for (const struct tensor *w = p->w.mixed; first < p->w.rows; first += w++->rows) {
    one.w = *w;
    one.y = tensor_cols(p->y, first, w->rows);
    if (p->bias.buffer) one.bias = tensor_cols(p->bias, first, w->rows);
    cpu_linear(c, &one, scratch);
  }
}

uint64_t cpu_linear_bytes(const struct oplist *l, const struct linear *p) {
  uint64_t most = 0;
  uint32_t first = 0;
  if (!p->w.mixed) return cpu_blocks_bytes(l, p->w.dtype, p->x.rows, p->x.cols);
  for (const struct tensor *w = p->w.mixed; first < p->w.rows; first += w++->rows) {
    const uint64_t bytes = cpu_blocks_bytes(l, w->dtype, p->x.rows, p->x.cols);
    if (bytes > most) most = bytes;
  }
  return most;
}

void cpu_linear(struct recorder *c, const struct linear *p, struct tensor scratch) {
  if (p->w.mixed) {
    mixed_linear(c, p, scratch);
    return;
  }
  if (!cpu_begin(c)) return;
  const uint64_t T = p->x.rows, N = p->w.rows, K = p->w.cols;
  cpu_multiply(c, p, scratch);
  cpu_end(c, "matmul", dtype_name(p->w.dtype), tensor_bytes(&p->w) + 4 * T * (K + N), 2 * T * N * K);
}
