// cpu_backend: the CPU backend: memory, the recorder, and the loop that runs a list, one operation after another. The
// operations are in cpu_short.c, cpu_matmul.c, cpu_delta.c, cpu_attention.c and so on.
#include "cpu_blocks.h"
#include "imagined.h"
#include "platform.h"

#include <stdlib.h>

// ---------------------------------------------------------------- memory

static deltaic_status cpu_buffer_create(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                        struct buffer *out) {
  *out = (struct buffer){.bytes = bytes, .kind = kind};
  // One element more than requested, so that an empty buffer is valid too.
  void *memory = bytes > b->max_buffer_bytes ? NULL : platform_alloc(bytes + sizeof(float), TENSOR_ALIGN);
  if (!memory) return fail_memory(what, bytes);
  out->mapped = memory;
  return DELTAIC_OK;
}

static void cpu_buffer_free(struct backend *b, struct buffer *buffer) {
  (void)b;
  platform_free(buffer->mapped);
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

static deltaic_status cpu_buffer_read_parts(struct backend *b, const struct buffer_part *parts, size_t n) {
  for (size_t i = 0; i < n; i++) cpu_buffer_read(b, parts[i].buffer, parts[i].offset, parts[i].data, parts[i].bytes);
  return DELTAIC_OK;
}

static deltaic_status cpu_buffer_zero(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  (void)b;
  assert(offset + bytes <= buffer->bytes);
  memset((char *)buffer->mapped + offset, 0, bytes);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- recording

static deltaic_status cpu_recorder_create(struct backend *b, struct recorder **out) {
  struct cpu_recorder *r = calloc(1, sizeof *r);
  if (!r) return fail_memory("recorder", sizeof *r);
  r->base = (struct recorder){.backend = b, .functions = b->functions};
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

// ---------------------------------------------------------------- the backend

static uint64_t cpu_free_bytes(const struct backend *b) {
  (void)b;
  return platform_free_memory();
}

static double cpu_compile_seconds(const struct backend *b) {
  (void)b;
  return 0;
}

static deltaic_status cpu_compile(struct backend *b, void (*lists)(struct recorder *c, void *context), void *context) {
  (void)b, (void)lists, (void)context;
  return DELTAIC_OK;
}

static void cpu_backend_close(struct backend *b) {
  if (!b) return;
  pool_free(((struct cpu_backend *)b)->pool);
  free(b);
}

static uint64_t cpu_own_bytes(const struct backend *b, const struct oplist *l, const struct op *op) {
  switch (op->kind) {
  case OP_LINEAR: return cpu_linear_bytes(l, &op->linear);
  case OP_DELTA_RULE: return cpu_delta_bytes(b, l, &op->delta_rule);
  case OP_MAMBA2: return cpu_mamba2_bytes(b, l, &op->mamba2);
  case OP_EXPERTS: return cpu_experts_bytes(l, &op->experts);
  default: return 0;
  }
}

static uint64_t cpu_list_bytes(struct backend *b, struct oplist *l, uint64_t *largest) {
  return oplist_plan(l, b, cpu_own_bytes, largest);
}

static void run_op(struct recorder *c, const struct op *op, struct tensor scratch) {
  const struct oplist *l = cpu_list(c);
  switch (op->kind) {
  case OP_EMBED: cpu_embed(c, &op->embed); break;
  case OP_MARK: cpu_mark(c, &op->mark); break;
  case OP_NORM: cpu_norm(c, &op->norm); break;
  case OP_LINEAR: cpu_linear(c, &op->linear, scratch); break;
  case OP_ADD: cpu_add(c, &op->add); break;
  case OP_CONV: cpu_conv(c, &op->conv); break;
  case OP_GLU: cpu_glu(c, &op->glu); break;
  case OP_DELTA_INPUTS: cpu_delta_inputs(c, &op->delta_inputs); break;
  case OP_DELTA_RULE: cpu_delta_rule(c, &op->delta_rule, scratch); break;
  case OP_MAMBA2_INPUTS: cpu_mamba2_inputs(c, &op->mamba2_inputs); break;
  case OP_MAMBA2: cpu_mamba2(c, &op->mamba2, scratch); break;
  case OP_GATED_NORM: cpu_gated_norm(c, &op->gated_norm); break;
  case OP_ROPE_APPEND: cpu_rope_append(c, &op->rope_append); break;
  case OP_ATTENTION: cpu_attention(c, &op->attention); break;
  case OP_ROUTE: cpu_route(c, &op->route); break;
  case OP_GROUP: cpu_group(c, &op->group); break;
  case OP_EXPERTS: cpu_experts(c, &op->experts, scratch); break;
  case OP_MIX: cpu_mix(c, &op->mix); break;
  case OP_SAMPLE: cpu_sample(c, &op->sample); break;
  case OP_COPY: cpu_copy(c, &op->copy); break;
  case OP_SCATTER: cpu_scatter(c, &op->scatter); break;
  case OP_SCORE: cpu_score(c, &op->score); break;
  case OP_PROBE: l->look(l->look_context, c, &op->probed); break;
  case OP_KINDS: break;
  }
}

static void cpu_recorder_list(struct recorder *c, struct oplist *l) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  uint64_t largest, bytes = cpu_list_bytes(c->backend, l, &largest);
  if (!r->status) r->status = oplist_check(l, bytes);
  if (r->status) return;
  r->list = l;
  for (uint32_t i = 0; i < l->count; i++) {
    const struct op op = oplist_op(l, i);
    run_op(c, &op, oplist_own_scratch(l, i, cpu_own_bytes(c->backend, l, &op)));
  }
}

// What is recorded is cancelled before it begins.
static void cpu_imagined_begin(struct recorder *c, bool replay, const atomic_bool *cancel) {
  static const atomic_bool always = true;
  (void)cancel;
  cpu_recorder_begin(c, replay, &always);
}

static const struct backend_functions cpu_imagined = {
    IMAGINED_FUNCTIONS,
    .name = "cpu",
    .free_bytes = cpu_free_bytes,
    .recorder_create = cpu_recorder_create,
    .recorder_free = cpu_recorder_free,
    .recorder_begin = cpu_imagined_begin,
    .recorder_list = cpu_recorder_list,
    .list_bytes = cpu_list_bytes,
};

static deltaic_status cpu_imagine(const struct backend *of, struct backend **out) {
  struct cpu_backend *b = malloc(sizeof *b);
  *out = NULL;
  if (!b) return fail_memory("CPU backend", sizeof *b);
  *b = *(const struct cpu_backend *)of;
  b->base.functions = &cpu_imagined;
  b->base.imagined = true;
  b->base.max_buffer_bytes = UINT64_MAX;
  *out = &b->base;
  return DELTAIC_OK;
}

static const struct backend_functions cpu_functions = {
    .name = "cpu",
    .close = cpu_backend_close,
    .free_bytes = cpu_free_bytes,
    .compile_seconds = cpu_compile_seconds,
    .buffer_create = cpu_buffer_create,
    .buffer_free = cpu_buffer_free,
    .buffer_write = cpu_buffer_write,
    .buffer_write_by = cpu_buffer_write_by,
    .buffer_read = cpu_buffer_read,
    .buffer_read_parts = cpu_buffer_read_parts,
    .buffer_zero = cpu_buffer_zero,
    .recorder_create = cpu_recorder_create,
    .recorder_free = cpu_recorder_free,
    .recorder_begin = cpu_recorder_begin,
    .recorder_list = cpu_recorder_list,
    .recorder_run = cpu_recorder_run,
    .recorder_counters = cpu_recorder_counters,
    .recorder_profile = cpu_recorder_profile,
    .recorder_busy = cpu_recorder_profile, // profiling costs nothing here
    .recorder_times = cpu_recorder_times,
    .list_bytes = cpu_list_bytes,
    .compile = cpu_compile,
    .imagine = cpu_imagine,
};

static deltaic_device_info describe(uint32_t threads) {
  deltaic_device_info info = {.index = DELTAIC_DEVICE_INDEX_CPU, .kind = DELTAIC_DEVICE_CPU, .usable = true};
  info.memory_bytes = platform_memory();
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
  b->blocks = cpu_block_kernels(0);
  b->base = (struct backend){.functions = &cpu_functions, .max_binding_bytes = UINT64_MAX, .batch = 512};
  b->base.threads = pool_threads(b->pool);
  b->base.info = describe(b->base.threads);
  b->base.max_buffer_bytes = b->base.info.memory_bytes;
  *out = &b->base;
  return DELTAIC_OK;
}
