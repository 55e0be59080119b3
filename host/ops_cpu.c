// ops_cpu: the CPU backend: memory, the recorder (ops work as they are called) and the table of the ops, which are in
// ops_cpu_short.c, _matmul.c, _linear.c, _delta.c, _attention.c and the like.
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

static deltaic_status cpu_buffer_write_by(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes,
                                          uint64_t unit, buffer_fill fill, void *context) {
  (void)b, (void)unit;
  assert(offset + bytes <= to->bytes);
  return bytes ? fill(context, 0, bytes, (char *)to->mapped + offset) : DELTAIC_OK;
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

uint64_t cpu_count_rows(const struct tensor *sequences, uint32_t *longest) {
  uint64_t rows = 0;
  *longest = 0;
  for (uint32_t s = 0; s < sequences->rows; s++) {
    const uint32_t T = sequence_at(sequences, s)->T;
    rows += T;
    if (T > *longest) *longest = T;
  }
  return rows;
}

uint32_t cpu_task_columns(const struct recorder *c, uint64_t heads, uint32_t Dv, uint32_t unit) {
  const uint64_t wanted = 2ull * cpu_threads(c->backend), blocks = heads >= wanted ? 1 : (wanted + heads - 1) / heads;
  return (uint32_t)round_up((Dv + blocks - 1) / blocks, unit);
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
    .buffer_write_by = cpu_buffer_write_by,
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
    .linear_residual = cpu_linear_residual,
    .linear_conv = cpu_linear_conv,
    .linear_gated = cpu_linear_gated,
    .delta_inputs = cpu_delta_inputs,
    .delta_rule = cpu_delta_rule,
    .delta_dtype = cpu_delta_dtype,
    .delta_scratch_bytes = cpu_delta_scratch_bytes,
    .output_norm = cpu_output_norm,
    .delta_step = cpu_delta_step,
    .mamba2_inputs = cpu_mamba2_inputs,
    .mamba2 = cpu_mamba2,
    .mamba2_dtype = cpu_mamba2_dtype,
    .mamba2_scratch_bytes = cpu_mamba2_scratch_bytes,
    .mamba2_step = cpu_mamba2_step,
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
