// cpu_blocks: y (T, N) = x (T, K) w (N, K)^T for weights in blocks of integers. cpu_blocks.h has the arithmetic,
// cpu_blocks_set.h the inner loops; format.c has the plain decoders, which are the specification.
//
// One token: weights go from their bytes into products in registers. A few tokens read the weights once: a span of a
// row is unpacked into the first cache and multiplied by every token. More tokens are computed in tiles: LANES rows of a
// span are unpacked, transposed to pairs of columns, and used for all tokens of a task. An instruction multiplies pairs
// of 16-bit integers and adds them to sums of 32 bits, which is twice the rate of float32. No sum overflows:
// most_rounded() bounds the inputs by what the weights leave. Float sums have the same order for all instruction sets,
// as in cpu_matmul.c.
#include "cpu_blocks.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

typedef uint8_t bytes_16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef int8_t signed_16 __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t two_u64 __attribute__((vector_size(16)));
typedef int16_t half_lanes_s16 __attribute__((vector_size(16), aligned(2), may_alias));
typedef int16_t lanes_s16 __attribute__((vector_size(32), aligned(2), may_alias));
typedef int32_t half_lanes_s32 __attribute__((vector_size(32), aligned(4), may_alias));

#define ALWAYS static inline __attribute__((always_inline))

// Whether a format subtracts minima.
ALWAYS bool has_less(enum dtype dtype) { return dtype == DTYPE_Q4_K || dtype == DTYPE_Q5_K; }

// Groups of a block, as far as a scale of the inputs reaches, and its bytes; both are constants where dtype is one.
ALWAYS uint32_t groups_of(enum dtype dtype) {
  const bool small = dtype == DTYPE_Q8_0 || dtype == DTYPE_Q4_0 || dtype == DTYPE_Q5_0 || dtype == DTYPE_IQ4_NL;
  return small ? 1 : GROUPS;
}
ALWAYS uint32_t bytes_of(enum dtype dtype) {
  switch (dtype) {
  case DTYPE_Q8_0: return 34;
  case DTYPE_Q5_0: return 22;
  case DTYPE_Q4_K: return 144;
  case DTYPE_Q5_K: return 176;
  case DTYPE_Q6_K: return 210;
  case DTYPE_IQ4_XS: return 136;
  default: return 18; // Q4_0, IQ4_NL
  }
}

// In the order of enum dtype.
#define EVERY_FORMAT(FORMAT)                                                                                           \
  FORMAT(q8_0, DTYPE_Q8_0)                                                                                             \
  FORMAT(q4_0, DTYPE_Q4_0)                                                                                             \
  FORMAT(q5_0, DTYPE_Q5_0)                                                                                             \
  FORMAT(q4_k, DTYPE_Q4_K)                                                                                             \
  FORMAT(q5_k, DTYPE_Q5_K)                                                                                             \
  FORMAT(q6_k, DTYPE_Q6_K)                                                                                             \
  FORMAT(iq4_nl, DTYPE_IQ4_NL)                                                                                         \
  FORMAT(iq4_xs, DTYPE_IQ4_XS)

enum { AHEAD = 1024 }; // bytes of weights that are fetched ahead: about a row

// The largest rounded input. In blocks of 256 weights are at most 2^12, in blocks of 32 at most 2^7.
static int32_t most_rounded(enum dtype dtype) { return groups_of(dtype) == 1 ? INT16_MAX : 2047; }

// Groups of the span at column k.
ALWAYS uint32_t groups_from(uint32_t K, uint32_t k) {
  return K - k < SPAN ? (K - k + GROUP - 1) / GROUP : (uint32_t)GROUPS;
}

// ---------------------------------------------------------------- instruction sets

// The numbers of IQ4.
static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")))
typedef int16_t words_512 __attribute__((vector_size(64), aligned(2), may_alias));

ALWAYS TARGET void halves_avx512(words_512 *q, const uint8_t *b) {
  const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)b));
  const __m512i by = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
  *q = (words_512)_mm512_srlv_epi16(_mm512_cvtepu8_epi16(twice), by) & 15;
}
ALWAYS TARGET void chosen_avx512(words_512 *q, const uint8_t *b) {
  const __m128i both = _mm_loadu_si128((const __m128i *)b), high = _mm_srli_epi16(both, 4);
  const __m256i indices = _mm256_and_si256(_mm256_set_m128i(high, both), _mm256_set1_epi8(15));
  const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)iq4));
  *q = (words_512)_mm512_cvtepi8_epi16(_mm256_shuffle_epi8(table, indices));
}
ALWAYS TARGET void fifths_avx512(words_512 *q, const uint8_t *b) {
  uint32_t bits;
  memcpy(&bits, b, 4);
  *q = (words_512)_mm512_mask_sub_epi16((__m512i)*q, ~bits, (__m512i)*q, _mm512_set1_epi16(16));
}
ALWAYS TARGET half_lanes_s32 fold_avx512(__m512i a, __m512i b) {
  const __m512i both = _mm512_add_epi32(a, b);
  return (half_lanes_s32)_mm256_add_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
}
// 16 times the first number, 16 times the second.
ALWAYS TARGET words_512 scales_avx512(const int16_t *two) {
  const __m512i first = _mm512_set1_epi16(two[0]);
  return (words_512)_mm512_mask_set1_epi16(first, 0xffff0000, two[1]);
}

#define NAME(x) x##_avx512
#define WIDE 64
#define TILE_STRIPS MOST_STRIPS
#define TILE_ROWS 6
#define MADD(s, a, b) ((wide_avx512)_mm512_dpwssd_epi32((__m512i)(s), (__m512i)(a), (__m512i)(b)))
#define FOLD(a, b) fold_avx512((__m512i)(a), (__m512i)(b))
#define HALF(bits) _cvtsh_ss(bits)
#define SIXTEEN(bytes) ((lanes_s16)_mm256_cvtepu8_epi16((__m128i)(bytes)))
#define SIGNED_SIXTEEN(bytes) ((lanes_s16)_mm256_cvtepi8_epi16((__m128i)(bytes)))
#define EIGHT(p) ((half_lanes)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(p)))))
#define BYTES(p) ((words_512)_mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(p))))
#define SIGNED_BYTES(p) ((words_512)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(p))))
#define SCALES(p) scales_avx512(p)
#include "cpu_blocks_set.h"

#define NAME(x) x##_avx2
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define WIDE 32
#define TILE_STRIPS 1
#define TILE_ROWS 6
#define MADD(s, a, b) ((s) + (wide_avx2)_mm256_madd_epi16((__m256i)(a), (__m256i)(b)))
#define FOLD(a, b) ((half_lanes_s32)((a) + (b)))
#define HALF(bits) _cvtsh_ss(bits)
#define SIXTEEN(bytes) ((lanes_s16)_mm256_cvtepu8_epi16((__m128i)(bytes)))
#define SIGNED_SIXTEEN(bytes) ((lanes_s16)_mm256_cvtepi8_epi16((__m128i)(bytes)))
#define EIGHT(p) ((half_lanes)_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(p)))))
#define BYTES(p) ((words_avx2)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(p))))
#define SIGNED_BYTES(p) ((words_avx2)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p))))
#define SCALES(p) (*(p))
#define CHOOSE(to, table, i) to = (signed_16)_mm_shuffle_epi8((__m128i)(table), (__m128i)(i))
#include "cpu_blocks_set.h"

#define PLAIN_MADD(s, a, b) ((s) + (wide_plain)_mm_madd_epi16((__m128i)(a), (__m128i)(b)))
#else
// The lower and the upper halves of words. A lower half with its sign: (x & 65535 ^ 32768) - 32768.
#define LOWER(x) ((((x)&65535) ^ 32768) - 32768)
#define PLAIN_MADD(s, a, b)                                                                                            \
  ((s) + LOWER((wide_plain)(a)) * LOWER((wide_plain)(b)) + ((wide_plain)(a) >> 16) * ((wide_plain)(b) >> 16))
#endif

typedef uint8_t bytes_8 __attribute__((vector_size(8), aligned(1), may_alias));
typedef int8_t signed_8 __attribute__((vector_size(8), aligned(1), may_alias));

#define NAME(x) x##_plain
#define TARGET
#define WIDE 16
#define TILE_STRIPS 1
#define TILE_ROWS 2
#define MADD(s, a, b) PLAIN_MADD(s, a, b)
#define FOLD(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#define HALF(bits) f16_to_f32(bits)
#define SIXTEEN(bytes) __builtin_convertvector((bytes_16)(bytes), lanes_s16)
#define SIGNED_SIXTEEN(bytes) __builtin_convertvector(bytes, lanes_s16)
#define EIGHT(p) __builtin_convertvector(*(const half_lanes_s16 *)(p), half_lanes)
#define BYTES(p) __builtin_convertvector(*(const bytes_8 *)(p), words_plain)
#define SIGNED_BYTES(p) __builtin_convertvector(*(const signed_8 *)(p), words_plain)
#define SCALES(p) (*(p))
#define CHOOSE(to, table, i)                                                                                           \
  do {                                                                                                                 \
    const bytes_16 indices = i;                                                                                        \
    for (int k = 0; k < 16; k++) ((int8_t *)&to)[k] = ((const int8_t *)&table)[((const uint8_t *)&indices)[k]];        \
  } while (0)
#include "cpu_blocks_set.h"

const struct block_kernels *cpu_block_kernels(uint32_t i) {
  const struct block_kernels *found[3];
  uint32_t n = 0;
#if defined(__x86_64__) && defined(__GNUC__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni"))
    found[n++] = &block_kernels_avx512;
  if (avx2) found[n++] = &block_kernels_avx2;
#endif
  found[n++] = &block_kernels_plain;
  return i < n ? found[i] : NULL;
}

// ---------------------------------------------------------------- the operation

// Rows of w and tokens of a task. Inputs of T_PART tokens stay in the first cache while the strips of the panel pass.
enum { STRIPS = 4, PANEL = STRIPS * LANES, T_PART = 4 * BLOCKS_TILE_T, T_BLOCK = 22 * T_PART };

struct blocks_call {
  const struct block_kernels *kernels;
  struct tensor y, x, w, bias;
  struct rounded *rounded; // NULL: float32
  uint32_t panels, spans;
};

// Rounding the inputs pays for itself, since all rows of w read them.
bool cpu_blocks_take(const struct oplist *l, const struct linear *p) {
  return dtype_is_blocks(p->w.dtype) && (l->matrices || p->x.rows <= BLOCKS_T);
}

static uint64_t tiled(uint64_t T) { return T <= BLOCKS_T ? T : round_up(T, BLOCKS_TILE_T); }

uint64_t cpu_blocks_bytes(const struct oplist *l, enum dtype dtype, uint64_t T, uint64_t K) {
  if (!dtype_is_blocks(dtype) || !l->matrices) return 0;
  return tiled(T) * ((K + SPAN - 1) / SPAN) * sizeof(struct rounded);
}

static void round_task(void *context, uint64_t t, uint32_t worker) {
  const struct blocks_call *m = context;
  struct rounded *to = m->rounded + t * m->spans;
  (void)worker;
  if (t < m->x.rows)
    m->kernels->round(to, f32_row(&m->x, t), m->x.cols, m->w.dtype);
  else // completes the last tile
    memset(to, 0, m->spans * sizeof *to);
}

static void store(const struct blocks_call *m, uint32_t t, uint32_t first, uint32_t rows, const float *sums) {
  float *y = f32_row(&m->y, t) + first;
  const float *bias = m->bias.buffer ? f32_row(&m->bias, 0) + first : NULL;
  for (uint32_t r = 0; r < rows; r++) y[r] = sums[r] + (bias ? bias[r] : 0);
}

static void few_task(void *context, uint64_t index, uint32_t worker) {
  const struct blocks_call *m = context;
  const uint32_t first = (uint32_t)index * PANEL, T = m->x.rows;
  const uint32_t rows = m->w.rows - first < PANEL ? m->w.rows - first : PANEL;
  float sums[BLOCKS_T][PANEL], one[BLOCKS_T];
  (void)worker;
  if (T == 1 && m->rounded) {
    m->kernels->rounded_rows(sums[0], m->rounded, block_row(&m->w, first), rows);
    store(m, 0, first, rows, sums[0]);
    return;
  }
  for (uint32_t r = 0; r < rows; r++) {
    const struct block_row w = block_row(&m->w, first + r);
    if (m->rounded)
      m->kernels->rounded_dots(one, m->rounded, m->spans, T, w);
    else
      m->kernels->dots(one, f32_row(&m->x, 0), m->x.stride, T, w);
    for (uint32_t t = 0; t < T; t++) sums[t][r] = one[t];
  }
  for (uint32_t t = 0; t < T; t++) store(m, t, first, rows, sums[t]);
}

static void tiles_task(void *context, uint64_t index, uint32_t worker) {
  const struct blocks_call *m = context;
  const uint32_t first = (uint32_t)(index % m->panels) * PANEL, t = (uint32_t)(index / m->panels) * T_BLOCK;
  const uint32_t rows = m->w.rows - first < PANEL ? m->w.rows - first : PANEL;
  const uint32_t left = m->x.rows - t, T = left < T_BLOCK ? left : T_BLOCK;
  const struct rounded *x = m->rounded + (size_t)t * m->spans;
  _Alignas(64) float sums[T_BLOCK][PANEL];
  struct strip strips[STRIPS];
  (void)worker;
  memset(sums, 0, tiled(T) * sizeof sums[0]);
  for (uint32_t c = 0; c < m->spans; c++) {
    for (uint32_t j = 0; j < round_up(rows, m->kernels->strips * LANES) / LANES; j++)
      m->kernels->pack(&strips[j], block_row(&m->w, first + j * LANES), c * SPAN);
    for (uint32_t i = 0; i < T; i += T_PART)
      for (uint32_t j = 0; j * LANES < rows; j += m->kernels->strips)
        m->kernels->tiles(&sums[i][j * LANES], PANEL, x + (size_t)i * m->spans + c, m->spans,
                          T - i < T_PART ? (uint32_t)round_up(T - i, BLOCKS_TILE_T) : T_PART, &strips[j],
                          groups_from(m->w.cols, c * SPAN), m->w.dtype);
  }
  for (uint32_t i = 0; i < T; i++) store(m, t + i, first, rows, sums[i]);
}

void cpu_blocks_multiply(struct recorder *c, const struct linear *p, struct tensor scratch) {
  const uint64_t T = p->x.rows, K = p->x.cols, operations = 2 * T * p->w.rows * K;
  struct blocks_call m = {.kernels = ((struct cpu_backend *)c->backend)->blocks,
                          .y = p->y,
                          .x = p->x,
                          .w = p->w,
                          .bias = p->bias,
                          .panels = (p->w.rows + PANEL - 1) / PANEL,
                          .spans = (uint32_t)((K + SPAN - 1) / SPAN)};
  if (cpu_list(c)->matrices) {
    m.rounded = (struct rounded *)f32_row(&scratch, 0);
    cpu_parallel(c, tiled(T), 4 * T * K, round_task, &m);
  }
  if (T <= BLOCKS_T)
    cpu_parallel(c, T ? m.panels : 0, operations, few_task, &m);
  else
    cpu_parallel(c, m.panels * ((T + T_BLOCK - 1) / T_BLOCK), operations, tiles_task, &m);
}
