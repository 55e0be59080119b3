// ops_cpu: the CPU backend: memory, the recorder (ops work as they are called),
// and the ops that are short loops. ops_cpu_matmul.c, _linear.c, _delta.c, _attention.c and the like have the others.
#include "ops_cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// ---------------------------------------------------------------- memory

enum { HUGE_PAGE = 2 << 20 };

static deltaic_status cpu_buffer_create(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                        struct buffer *out) {
  *out = (struct buffer){.bytes = bytes, .kind = kind};
  void *memory;
  // One number more than asked for: an empty buffer is a buffer too.
  size_t align = bytes < HUGE_PAGE ? TENSOR_ALIGN : HUGE_PAGE;
  if (bytes > b->max_buffer_bytes || posix_memalign(&memory, align, bytes + sizeof(float)))
    return fail_memory(what, bytes);
#ifdef MADV_HUGEPAGE // weights are read from end to end for every token: fewer and longer pages
  if (bytes >= HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  out->mapped = memory;
  return DELTAIC_OK;
}

static void cpu_buffer_free(struct backend *b, struct buffer *buffer) {
  (void)b;
  free(buffer->mapped);
  *buffer = (struct buffer){0};
}

static deltaic_status cpu_buffer_write(struct backend *b, struct buffer *to, uint64_t offset, const void *data,
                                       uint64_t bytes) {
  (void)b;
  assert(offset + bytes <= to->bytes);
  if (bytes) memcpy((char *)to->mapped + offset, data, bytes);
  return DELTAIC_OK;
}

static deltaic_status cpu_buffer_read(struct backend *b, struct buffer *from, uint64_t offset, void *data,
                                      uint64_t bytes) {
  (void)b;
  assert(offset + bytes <= from->bytes);
  if (bytes) memcpy(data, (char *)from->mapped + offset, bytes);
  return DELTAIC_OK;
}

static deltaic_status cpu_buffer_zero(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  (void)b;
  assert(offset + bytes <= buffer->bytes);
  memset((char *)buffer->mapped + offset, 0, bytes);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- recording

static double now(void) { return 1e-9 * (double)device_clock_ns(); }

static deltaic_status cpu_recorder_create(struct backend *b, struct recorder **out) {
  struct cpu_recorder *r = calloc(1, sizeof *r);
  if (!r) return fail_memory("recorder", sizeof *r);
  r->base = (struct recorder){.backend = b, .ops = b->ops};
  *out = &r->base;
  return DELTAIC_OK;
}

static void cpu_recorder_free(struct recorder *c) { free(c); }

static void cpu_recorder_begin(struct recorder *c, bool replay, const atomic_bool *cancel) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  (void)replay;
  r->cancel = cancel;
  r->status = DELTAIC_OK;
  r->counters.recordings++;
}

static deltaic_status cpu_recorder_run(struct recorder *c) {
  const struct cpu_recorder *r = (struct cpu_recorder *)c;
  if (r->status == DELTAIC_CANCELLED) return fail(DELTAIC_CANCELLED, "the computation was cancelled");
  return r->status;
}

static deltaic_counters cpu_recorder_counters(const struct recorder *c) {
  return ((const struct cpu_recorder *)c)->counters;
}

static deltaic_status cpu_recorder_profile(struct recorder *c, bool on) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  r->profile = on;
  if (on) r->kernels = 0;
  return DELTAIC_OK;
}

static size_t cpu_recorder_times(struct recorder *c, deltaic_kernel_time *times, size_t capacity) {
  const struct cpu_recorder *r = (struct cpu_recorder *)c;
  for (size_t i = 0; i < r->kernels && i < capacity; i++) times[i] = r->times[i];
  return r->kernels;
}

bool cpu_cancelled(const struct recorder *c) {
  const struct cpu_recorder *r = (const struct cpu_recorder *)c;
  return r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed);
}

bool cpu_begin(struct recorder *c) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  if (!r->status && cpu_cancelled(c)) r->status = DELTAIC_CANCELLED;
  if (r->status) return false;
  r->counters.dispatches++;
  if (r->profile) r->started = now();
  return true;
}

static deltaic_kernel_time *kernel_of_profile(struct cpu_recorder *r, const char *name, const char *suffix) {
  char full[sizeof r->times[0].name];
  snprintf(full, sizeof full, "%s%s%s", name, suffix ? "_" : "", suffix ? suffix : "");
  for (size_t i = 0; i < r->kernels; i++)
    if (!strcmp(r->times[i].name, full)) return &r->times[i];
  assert(r->kernels < CPU_KERNELS);
  deltaic_kernel_time *kernel = &r->times[r->kernels++];
  *kernel = (deltaic_kernel_time){0};
  memcpy(kernel->name, full, sizeof full);
  return kernel;
}

void cpu_end(struct recorder *c, const char *name, const char *suffix, uint64_t bytes, uint64_t operations) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  if (cpu_cancelled(c)) r->status = DELTAIC_CANCELLED; // its loops may have stopped early
  if (!r->profile) return;
  deltaic_kernel_time *kernel = kernel_of_profile(r, name, suffix);
  kernel->dispatches++;
  kernel->seconds += now() - r->started;
  kernel->bytes += bytes;
  kernel->operations += operations;
}

struct loop {
  const struct recorder *c;
  pool_task task;
  void *context;
};

static void loop_task(void *context, uint64_t index, uint32_t worker) {
  const struct loop *loop = context;
  if (!cpu_cancelled(loop->c)) loop->task(loop->context, index, worker);
}

void cpu_parallel(struct recorder *c, uint64_t n, uint64_t operations, pool_task task, void *context) {
  enum { WORTH = 30000 }; // some 10 us of one thread
  struct loop loop = {c, task, context};
  if (operations < WORTH)
    for (uint64_t i = 0; i < n; i++) loop_task(&loop, i, 0);
  else
    pool_run(((struct cpu_backend *)c->backend)->pool, n, loop_task, &loop);
}

uint32_t cpu_threads(const struct backend *b) { return pool_threads(((const struct cpu_backend *)b)->pool); }

// ---------------------------------------------------------------- products

float cpu_dot(const float *a, const float *b, size_t n) { return lanes_dot(a, b, n); }

enum { WIDE = CPU_WIDE / sizeof(float) };
typedef float wide __attribute__((vector_size(CPU_WIDE), aligned(4), may_alias));

// 4 rows of y, 2 vectors each, stay in registers while k runs.
static inline __attribute__((always_inline)) void product_tile(float *y, size_t y_stride, const float *a, size_t a_row,
                                                               size_t a_col, const float *b, size_t b_stride,
                                                               uint32_t K) {
  wide s00 = *(wide *)y, s01 = *(wide *)(y + WIDE);
  wide s10 = *(wide *)(y + y_stride), s11 = *(wide *)(y + y_stride + WIDE);
  wide s20 = *(wide *)(y + 2 * y_stride), s21 = *(wide *)(y + 2 * y_stride + WIDE);
  wide s30 = *(wide *)(y + 3 * y_stride), s31 = *(wide *)(y + 3 * y_stride + WIDE);
  for (uint32_t k = 0; k < K; k++, a += a_col, b += b_stride) {
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

CPU_CLONES void cpu_product(float *y, size_t y_stride, const float *a, size_t a_row, size_t a_col, const float *b,
                            size_t b_stride, uint32_t M, uint32_t N, uint32_t K) {
  uint32_t tiled_rows = M / 4 * 4, tiled_cols = N / (2 * WIDE) * (2 * WIDE);
  for (uint32_t j = 0; j < tiled_cols; j += 2 * WIDE)
    for (uint32_t i = 0; i < tiled_rows; i += 4)
      product_tile(y + i * y_stride + j, y_stride, a + i * a_row, a_row, a_col, b + j, b_stride, K);
  for (uint32_t i = 0; i < M; i++) // what the tiles left: columns at the right, rows at the bottom
    for (uint32_t k = 0, first = i < tiled_rows ? tiled_cols : 0; first < N && k < K; k++) {
      float *restrict row = y + i * y_stride;
      const float *restrict from = b + k * b_stride, factor = a[i * a_row + k * a_col];
      for (uint32_t j = first; j < N; j++) row[j] += factor * from[j];
    }
}

// ---------------------------------------------------------------- short ops

float cpu_activate(enum activation activation, float z) {
  switch (activation) {
  case ACTIVATION_IDENTITY: return z;
  case ACTIVATION_SILU: return silu(z);
  case ACTIVATION_RELU: return z > 0 ? z : 0;
  case ACTIVATION_ELU1: return z > 0 ? z + 1 : expf(z);
  case ACTIVATION_POWLU: return z > 0 ? powf(z, 3 / (sqrtf(z) + 1)) * sigmoid(z) : silu(z); // models.md 5.4
  }
  return z;
}

struct embed_call {
  struct tensor x, table, tokens;
};

static void embed_row(void *context, uint64_t t, uint32_t worker) {
  const struct embed_call *e = context;
  (void)worker;
  uint32_t id = (uint32_t)((const int32_t *)tensor_row(&e->tokens, 0))[t];
  assert(id < e->table.rows);
  float *x = f32_row(&e->x, t);
  const void *from = tensor_row(&e->table, id);
  for (uint32_t i = 0; i < e->x.cols; i++) {
    switch (e->table.dtype) {
    case DTYPE_F16: x[i] = f16_to_f32(((const uint16_t *)from)[i]); break;
    case DTYPE_BF16: x[i] = bf16_to_f32(((const uint16_t *)from)[i]); break;
    default: x[i] = ((const float *)from)[i];
    }
  }
}

static void cpu_embed(struct recorder *c, struct tensor x, struct tensor table, struct tensor tokens) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)x.rows * x.cols;
  cpu_parallel(c, x.rows, n, embed_row, &(struct embed_call){x, table, tokens});
  cpu_end(c, "embed", dtype_name(table.dtype), n * (4 + dtype_bytes(table.dtype)), 0);
}

static void cpu_mark(struct recorder *c, struct tensor seen, struct tensor tokens, struct tensor sequences) {
  if (!cpu_begin(c)) return;
  const int32_t *ids = tensor_row(&tokens, 0);
  uint64_t n = 0;
  for (uint32_t s = 0; s < sequences.rows; s++) {
    const struct sequence *q = sequence_at(&sequences, s);
    uint32_t *bits = tensor_row(&seen, q->slot);
    for (uint32_t t = q->row; t < q->row + q->T; t++) bits[ids[t] / 32] |= 1u << ids[t] % 32;
    n += q->T;
  }
  cpu_end(c, "mark", NULL, 12 * n, 0);
}

struct rmsnorm_call {
  struct tensor y, x, weight, last;
  float eps;
};

static void rmsnorm_row(void *context, uint64_t t, uint32_t worker) {
  const struct rmsnorm_call *n = context;
  (void)worker;
  uint64_t from = t;
  if (n->last.buffer) {
    const struct sequence *q = sequence_at(&n->last, (uint32_t)t);
    if (!q->T) return;
    from = q->row + q->T - 1;
  }
  uint32_t D = n->x.cols;
  const float *x = f32_row(&n->x, from), *weight = f32_row(&n->weight, 0);
  float *y = f32_row(&n->y, t);
  float r = 1 / sqrtf(cpu_dot(x, x, D) / (float)D + n->eps);
  for (uint32_t i = 0; i < D; i++) y[i] = x[i] * r * weight[i];
}

void cpu_rmsnorm(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor last,
                 float eps) {
  if (!cpu_begin(c)) return;
  uint64_t rows = last.buffer ? last.rows : x.rows, n = rows * x.cols;
  cpu_parallel(c, rows, 4 * n, rmsnorm_row, &(struct rmsnorm_call){y, x, weight, last, eps});
  cpu_end(c, "rmsnorm", NULL, 8 * n + 4 * (uint64_t)x.cols, 4 * n);
}

struct conv_call {
  struct tensor y, x, weight, bias, history;
  struct conv_args a;
  const struct sequence *q;
};

// Input of the token `back` before the call's token t, from the call or from the history.
static const float *conv_input(const struct conv_call *v, uint32_t t, uint32_t back) {
  uint32_t old = v->a.W - 1;
  if (back <= t) return f32_row(&v->x, v->q->row + t - back);
  return f32_row(&v->history, v->q->slot) + (uint64_t)(old + t - back) * v->a.C;
}

static void conv_row(void *context, uint64_t t, uint32_t worker) {
  const struct conv_call *v = context;
  (void)worker;
  uint32_t W = v->a.W, C = v->a.C;
  float *restrict y = f32_row(&v->y, v->q->row + t);
  const float *bias = v->bias.buffer ? f32_row(&v->bias, 0) : NULL;
  for (uint32_t c = 0; c < C; c++) y[c] = bias ? bias[c] : 0;
  for (uint32_t w = 0; w < W; w++) {
    const float *restrict weight = f32_row(&v->weight, w), *restrict x = conv_input(v, (uint32_t)t, W - 1 - w);
    for (uint32_t c = 0; c < C; c++) y[c] += weight[c] * x[c];
  }
  for (uint32_t c = v->a.silu_from; c < C; c++) y[c] = silu(y[c]);
}

// The last W-1 inputs become the history. Row i of it is the input W-1-i before the end, so with T < W-1 rows move
// towards 0: in this order none is read after it was written.
static void conv_history(const struct conv_call *v) {
  uint32_t W = v->a.W, T = v->q->T;
  if (!T) return;
  float *history = W > 1 ? f32_row(&v->history, v->q->slot) : NULL;
  for (uint32_t i = 0; i + 1 < W; i++)
    memmove(history + (uint64_t)i * v->a.C, conv_input(v, T - 1, W - 2 - i), v->a.C * sizeof(float));
}

void cpu_short_conv(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor bias,
                    struct tensor history, struct tensor sequences, struct conv_args a) {
  if (!cpu_begin(c)) return;
  uint64_t rows = 0;
  for (uint32_t s = 0; s < sequences.rows; s++) {
    struct conv_call v = {y, x, weight, bias, history, a, sequence_at(&sequences, s)};
    cpu_parallel(c, v.q->T, 2ull * v.q->T * a.W * a.C, conv_row, &v);
    conv_history(&v);
    rows += v.q->T;
  }
  uint64_t bytes = 4 * (2 * rows * a.C + (uint64_t)a.W * a.C + 2ull * sequences.rows * (a.W - 1) * a.C);
  cpu_end(c, "short_conv", NULL, bytes, 2 * rows * a.W * a.C);
}

struct output_norm_call {
  struct tensor o, gate, weight;
  uint32_t heads, Dv;
  float eps;
};

static void output_norm_row(void *context, uint64_t t, uint32_t worker) {
  const struct output_norm_call *n = context;
  (void)worker;
  const float *weight = n->weight.buffer ? f32_row(&n->weight, 0) : NULL;
  uint32_t step = n->weight.cols == n->Dv ? 0 : n->Dv;
  for (uint32_t h = 0; h < n->heads; h++) {
    float *o = f32_row(&n->o, t) + (uint64_t)h * n->Dv;
    const float *gate = n->gate.buffer ? f32_row(&n->gate, t) + (uint64_t)h * n->Dv : NULL;
    float r = 1 / sqrtf(cpu_dot(o, o, n->Dv) / (float)n->Dv + n->eps);
    for (uint32_t i = 0; weight && i < n->Dv; i++) o[i] = o[i] * r * weight[h * step + i];
    for (uint32_t i = 0; gate && i < n->Dv; i++) o[i] *= silu(gate[i]);
  }
}

static void cpu_output_norm(struct recorder *c, struct tensor o, struct tensor gate, struct tensor weight,
                            uint32_t heads, float eps) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)o.rows * o.cols;
  cpu_parallel(c, o.rows, 8 * n, output_norm_row,
               &(struct output_norm_call){o, gate, weight, heads, o.cols / heads, eps});
  cpu_end(c, "output_norm", NULL, (gate.buffer ? 12 : 8) * n, (gate.buffer ? 8 : 4) * n);
}

struct swiglu_call {
  struct tensor y, gate_up;
  enum activation activation;
};

static void swiglu_row(void *context, uint64_t t, uint32_t worker) {
  const struct swiglu_call *g = context;
  (void)worker;
  uint32_t F = g->y.cols;
  float *y = f32_row(&g->y, t);
  const float *gate = f32_row(&g->gate_up, t), *up = gate + F;
  for (uint32_t i = 0; i < F; i++) y[i] = cpu_activate(g->activation, gate[i]) * up[i];
}

void cpu_swiglu(struct recorder *c, struct tensor y, struct tensor gate_up, enum activation activation) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)y.rows * y.cols;
  cpu_parallel(c, y.rows, 5 * n, swiglu_row, &(struct swiglu_call){y, gate_up, activation});
  cpu_end(c, "swiglu", NULL, 12 * n, 5 * n);
}

struct copy_call {
  struct tensor to, from;
  uint64_t block; // numbers of a row in one task
  uint64_t blocks;
};

static void copy_block(void *context, uint64_t index, uint32_t worker) {
  const struct copy_call *p = context;
  (void)worker;
  uint64_t row = index / p->blocks, first = index % p->blocks * p->block;
  uint64_t n = p->to.cols - first < p->block ? p->to.cols - first : p->block;
  if (p->from.buffer)
    memcpy(f32_row(&p->to, row) + first, f32_row(&p->from, row) + first, n * sizeof(float));
  else
    memset(f32_row(&p->to, row) + first, 0, n * sizeof(float));
}

static void cpu_copy(struct recorder *c, struct tensor to, struct tensor from) {
  enum { BLOCK = 1 << 16 };
  if (!cpu_begin(c)) return;
  assert(!from.buffer || (to.rows == from.rows && to.cols == from.cols));
  uint64_t n = (uint64_t)to.rows * to.cols, blocks = (to.cols + BLOCK - 1) / BLOCK;
  cpu_parallel(c, to.rows * blocks, n, copy_block, &(struct copy_call){to, from, BLOCK, blocks});
  cpu_end(c, "copy", NULL, 8 * n, 0);
}

static void cpu_scatter(struct recorder *c, struct tensor to, struct tensor from, struct tensor sequences) {
  if (!cpu_begin(c)) return;
  for (uint32_t s = 0; s < sequences.rows; s++)
    memcpy(f32_row(&to, sequence_at(&sequences, s)->slot), f32_row(&from, s), from.cols * sizeof(float));
  cpu_end(c, "scatter", NULL, 8ull * sequences.rows * from.cols, 0);
}

// ---------------------------------------------------------------- the backend

// What the kernel could give without swapping, caches of files included.
static uint64_t cpu_free_bytes(const struct backend *b) {
  (void)b;
  FILE *f = fopen("/proc/meminfo", "r");
  char line[128];
  unsigned long long kib = 0;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  if (f) fclose(f);
  return (uint64_t)kib << 10;
}

static void cpu_backend_close(struct backend *b) {
  if (!b) return;
  pool_free(((struct cpu_backend *)b)->pool);
  free(b);
}

static const struct ops cpu_ops = {
    .name = "cpu",
    .backend_close = cpu_backend_close,
    .free_bytes = cpu_free_bytes,
    .buffer_create = cpu_buffer_create,
    .buffer_free = cpu_buffer_free,
    .buffer_write = cpu_buffer_write,
    .buffer_read = cpu_buffer_read,
    .buffer_zero = cpu_buffer_zero,
    .recorder_create = cpu_recorder_create,
    .recorder_free = cpu_recorder_free,
    .recorder_begin = cpu_recorder_begin,
    .recorder_run = cpu_recorder_run,
    .recorder_counters = cpu_recorder_counters,
    .recorder_profile = cpu_recorder_profile,
    .recorder_busy = cpu_recorder_profile, // which slows nothing
    .recorder_times = cpu_recorder_times,
    .embed = cpu_embed,
    .mark = cpu_mark,
    .rmsnorm = cpu_rmsnorm,
    .input_dtype = cpu_input_dtype,
    .linear = cpu_linear,
    .linear_conv = cpu_linear_conv,
    .linear_gated = cpu_linear_gated,
    .delta_inputs = cpu_delta_inputs,
    .delta_rule = cpu_delta_rule,
    .delta_dtype = cpu_delta_dtype,
    .delta_scratch_bytes = cpu_delta_scratch_bytes,
    .hh_rule = cpu_hh_rule,
    .hh_dtype = cpu_hh_dtype,
    .hh_scratch_bytes = cpu_hh_scratch_bytes,
    .output_norm = cpu_output_norm,
    .delta_step = cpu_delta_step,
    .mamba2_inputs = cpu_mamba2_inputs,
    .mamba2 = cpu_mamba2,
    .mamba2_scratch_bytes = cpu_mamba2_scratch_bytes,
    .gated_norm = cpu_gated_norm,
    .rope_append = cpu_rope_append,
    .attention = cpu_attention,
    .attention_scratch_bytes = cpu_attention_scratch_bytes,
    .sample = cpu_sample,
    .copy = cpu_copy,
    .scatter = cpu_scatter,
    .score = cpu_score,
};

static deltaic_device_info describe(uint32_t threads) {
  deltaic_device_info info = {.index = DELTAIC_DEVICE_INDEX_CPU, .kind = DELTAIC_DEVICE_CPU, .usable = true};
  info.memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  info.free_bytes = cpu_free_bytes(NULL);
  snprintf(info.name, sizeof info.name, "CPU (%u thread%s)", threads, threads == 1 ? "" : "s");
  return info;
}

deltaic_device_info backend_describe_cpu(void) { return describe(pool_threads_for(0)); }

deltaic_status backend_open_cpu(uint32_t threads, struct backend **out) {
  struct cpu_backend *b = calloc(1, sizeof *b);
  if (!b) return fail_memory("CPU backend", sizeof *b);
  deltaic_status status = pool_create(threads, &b->pool);
  if (status) {
    free(b);
    return status;
  }
  b->matmul = cpu_matmul_kernels(0);
  b->base = (struct backend){.ops = &cpu_ops, .max_binding_bytes = UINT64_MAX, .batch = 512};
  b->base.threads = pool_threads(b->pool);
  b->base.info = describe(b->base.threads);
  b->base.max_buffer_bytes = b->base.info.memory_bytes;
  *out = &b->base;
  return DELTAIC_OK;
}
