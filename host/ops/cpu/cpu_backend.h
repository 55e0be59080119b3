// cpu_backend.h: what the files of the CPU backend share. The order of every sum depends on sizes alone, never on the
// number of threads or the instruction set. So any number of threads gives the same bits, and so do any two processors
// that both have fused multiply-add (cpu_matmul.c) or both lack it.
#ifndef CPU_BACKEND_H
#define CPU_BACKEND_H
#include "backend.h"
#include "pool.h"
#include <math.h>
#include <string.h>

enum { CPU_KERNELS = 32 };

struct cpu_backend {
  struct backend base;
  struct pool *pool;
  const struct matmul_kernels *matmul;
  const struct block_kernels *blocks;
};

// The inner loops of matmul for the i-th instruction set that this processor has, best first; NULL after the last.
const struct matmul_kernels *cpu_matmul_kernels(uint32_t i);

struct cpu_recorder {
  struct recorder base;
  const struct oplist *list; // the list that is running
  const atomic_bool *cancel; // may be NULL
  deltaic_status status;     // first error
  deltaic_counters counters;
  bool profile;
  double started; // when the running operation began
  size_t kernels;
  deltaic_kernel_time times[CPU_KERNELS];
};

// Every operation: if (!cpu_begin(c)) return; ... cpu_end(...). begin returns false after an error or a cancel.
bool cpu_begin(struct recorder *c);
// The profile's name of the kernel is `name`, followed by "_" and `suffix` if that is not NULL.
void cpu_end(struct recorder *c, const char *name, const char *suffix, uint64_t bytes, uint64_t operations);
bool cpu_cancelled(const struct recorder *c);
// Runs the task for 0 ... n-1, on all threads if `operations` of them together are worth waking the threads. Skips the
// rest after a cancel.
void cpu_parallel(struct recorder *c, uint64_t n, uint64_t operations, pool_task task, void *context)
    INSIDE(cpu_parallel);
uint32_t cpu_threads(const struct backend *b) INSIDE(cpu_threads);
// Sum of the rows of all sequences; *longest: rows of the longest.
uint64_t cpu_count_rows(const struct tensor *sequences, uint32_t *longest);
// Columns of a task when `heads` heads of Dv columns are cut into blocks only to occupy all threads; a multiple of
// `unit`.
uint32_t cpu_task_columns(const struct recorder *c, uint64_t heads, uint32_t Dv, uint32_t unit);

// Loops of products are compiled for several instruction sets; one is chosen when the program starts. Sanitizers run
// before that choice, so they build one. Such functions are static: else GCC exports them.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) &&                           \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CPU_CLONES
#endif

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias)); // LANES floats anywhere in memory

typedef float half_lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef float quarter_lanes __attribute__((vector_size(16), aligned(4), may_alias));

// The sum of all lanes, as a tree. By pointer: passing vectors by value depends on the instruction set.
static inline __attribute__((always_inline)) float lanes_sum(const lanes *v) {
  const half_lanes *half = (const half_lanes *)v;
  half_lanes eight = half[0] + half[1];
  const quarter_lanes *quarter = (const quarter_lanes *)&eight;
  quarter_lanes four = quarter[0] + quarter[1];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// to[j][i] = from[i][j]; rows are `to_stride` and `stride` floats apart.
static inline __attribute__((always_inline)) void transpose_4x4(float *to, size_t to_stride, const float *from,
                                                                size_t stride) {
  quarter_lanes a = *(const quarter_lanes *)from, b = *(const quarter_lanes *)(from + stride);
  quarter_lanes c = *(const quarter_lanes *)(from + 2 * stride), d = *(const quarter_lanes *)(from + 3 * stride);
  quarter_lanes ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  quarter_lanes AB = __builtin_shufflevector(a, b, 2, 6, 3, 7), CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(quarter_lanes *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
  *(quarter_lanes *)(to + to_stride) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  *(quarter_lanes *)(to + 2 * to_stride) = __builtin_shufflevector(AB, CD, 0, 1, 4, 5);
  *(quarter_lanes *)(to + 3 * to_stride) = __builtin_shufflevector(AB, CD, 2, 3, 6, 7);
}

// sum a[i] b[i], with partial sums over i % LANES. Inlined into callers that are compiled for an instruction set; half
// vectors stay in registers of AVX2.
static inline __attribute__((always_inline)) float lanes_dot(const float *a, const float *b, size_t n) {
  half_lanes sum[2] = {{0}};
  float x[LANES] = {0}, y[LANES] = {0};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int h = 0; h < 2; h++) sum[h] += ((const half_lanes *)(a + i))[h] * ((const half_lanes *)(b + i))[h];
  if (i < n) {
    memcpy(x, a + i, (n - i) * sizeof(float));
    memcpy(y, b + i, (n - i) * sizeof(float));
    for (int h = 0; h < 2; h++) sum[h] += ((const half_lanes *)x)[h] * ((const half_lanes *)y)[h];
  }
  return lanes_sum((const lanes *)sum);
}
float cpu_dot(const float *a, const float *b, size_t n);
// A matrix (rows, cols) in other numbers, perhaps transposed: number (m, k) is x[m * row + k * col].
struct cpu_view {
  const float *x;
  size_t row, col;
  uint32_t rows, cols;
};
// y (M, N) += a (M, K) b (K, N); every sum runs over k in order.
void cpu_product(float *y, size_t y_stride, struct cpu_view a, const float *b, size_t b_stride, uint32_t N);

// e^x for loops of vectors, which cannot call libm: within 1e-7 of it from -87 to 88, infinity above, e^-87 below.
// x = n ln 2 + r, where adding 1.5 2^23 rounds to the integer n; then a polynomial gives e^r, and n is added to the
// exponent.
static inline __attribute__((always_inline)) float cpu_exp(float z) {
  const float x = z > 88 ? 88 : z < -87 ? -87 : z;
  const float shifted = x * 0x1.715476p+0f + 0x1.8p23f, n = shifted - 0x1.8p23f;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 0x1.6850e4p-10f;
  p = p * r + 0x1.123bccp-7f;
  p = p * r + 0x1.555b98p-5f;
  p = p * r + 0x1.55548ep-3f;
  p = p * r + 0x1.fffff8p-2f;
  p = (p * r * r + r) + 1;
  return z > 88 ? INFINITY : float_of(bits_of(p) + (bits_of(shifted) << 23));
}
static inline float sigmoid(float z) { return 1 / (1 + expf(-z)); }
static inline __attribute__((always_inline)) float silu(float z) { return z / (1 + cpu_exp(-z)); }
// y[i] = silu(z[i]) x[i]; y may be one of both.
void cpu_silu(float *y, const float *z, const float *x, uint32_t n);
float cpu_activate(enum activation activation, float z) INSIDE(cpu_activate);

static inline const struct sequence *sequence_at(const struct tensor *sequences, uint32_t s) {
  return (const struct sequence *)tensor_row(sequences, 0) + s;
}
static inline float *f32_row(const struct tensor *t, uint64_t row) {
  return (float *)((char *)t->buffer->mapped + t->offset) + row * t->stride;
}

static inline const struct oplist *cpu_list(const struct recorder *c) { return ((const struct cpu_recorder *)c)->list; }

// y = x unless they share their memory; for operations that work in place.
void cpu_copy_to_output(struct recorder *c, struct tensor y, struct tensor x);

// The operations, with their tensors in memory. The *_bytes() below give the size of `scratch`.
void cpu_embed(struct recorder *c, const struct embed *e);
void cpu_mark(struct recorder *c, const struct mark *m);
void cpu_norm(struct recorder *c, const struct norm *norm);
void cpu_linear(struct recorder *c, const struct linear *p, struct tensor scratch) INSIDE(cpu_linear);
uint64_t cpu_linear_bytes(const struct oplist *l, const struct linear *p);
void cpu_add(struct recorder *c, const struct add *a);
void cpu_conv(struct recorder *c, const struct conv *conv);
void cpu_glu(struct recorder *c, const struct glu *g);
void cpu_delta_inputs(struct recorder *c, const struct delta_inputs *in);
void cpu_delta_rule(struct recorder *c, const struct delta_rule *rule, struct tensor scratch);
uint64_t cpu_delta_bytes(const struct backend *b, const struct oplist *l, const struct delta_rule *rule);
void cpu_mamba2_inputs(struct recorder *c, const struct mamba2_inputs *in);
void cpu_mamba2(struct recorder *c, const struct mamba2 *rule, struct tensor scratch);
uint64_t cpu_mamba2_bytes(const struct backend *b, const struct oplist *l, const struct mamba2 *rule);
void cpu_gated_norm(struct recorder *c, const struct gated_norm *norm);
void cpu_rope_append(struct recorder *c, const struct rope_append *rope);
void cpu_attention(struct recorder *c, const struct attention *op);
void cpu_route(struct recorder *c, const struct route *route);
void cpu_group(struct recorder *c, const struct group *group);
void cpu_experts(struct recorder *c, const struct experts *e, struct tensor scratch);
uint64_t cpu_experts_bytes(const struct oplist *l, const struct experts *e);
void cpu_mix(struct recorder *c, const struct mix *mix);
// The product of cpu_linear(), without its entry in the profile.
void cpu_multiply(struct recorder *c, const struct linear *p, struct tensor scratch);
void cpu_sample(struct recorder *c, const struct sample *sample);
void cpu_copy(struct recorder *c, const struct copy *copy);
void cpu_scatter(struct recorder *c, const struct scatter *s);
void cpu_score(struct recorder *c, const struct score *score);
#endif
