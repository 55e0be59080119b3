// compile_pipelines: compiles the pipelines that models and large heads ask for on the first usable device, and runs
// none: recorders are replaced (ld --wrap), so that it also works on RADV's null device, which has no queue. Prints how
// many there were, and fails for a kernel that the device's plan may choose and nothing here asked for. tests/radv
// counts what the driver says of them.
#include "backward.h"
#include "backward_kernels.h"
#include "caps.h"
#include "device.h"
#include "device_handle.h"
#include "learner.h"
#include "open.h"
#include "vulkan_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static uint32_t dispatches, dispatched[KERNEL_COUNT], dispatched_back[BACKWARD_KERNEL_COUNT];

deltaic_status __wrap_transfer_create(struct device *device);
void __wrap_transfer_free(struct device *device);
void __wrap_device_idle(struct device *device);
deltaic_status __wrap_commands_create(struct device *device, struct commands **out);
void __wrap_commands_free(struct commands *commands);
void __wrap_commands_begin(struct commands *commands, enum commands_mode mode, const atomic_bool *cancel);
void __wrap_commands_dispatch(struct commands *commands, const struct kernel *kernel, const struct binding *bindings,
                              const void *push, const uint32_t groups[3], uint64_t operations);
void __wrap_commands_fail(struct commands *commands, deltaic_status status);
bool __wrap_commands_going(struct commands *commands);
deltaic_status __wrap_commands_submit(struct commands *commands);
deltaic_status __wrap_buffer_create(struct device *device, enum memory_kind kind, uint64_t bytes, const char *what,
                                    struct buffer *out);
void __wrap_buffer_free(struct device *device, struct buffer *buffer);
deltaic_status __wrap_buffer_read(struct device *device, struct buffer *buffer, uint64_t offset, void *data,
                                  uint64_t bytes);

deltaic_status __wrap_buffer_create(struct device *device, enum memory_kind kind, uint64_t bytes, const char *what,
                                    struct buffer *out) {
  (void)device, (void)what;
  *out = (struct buffer){.bytes = bytes, .kind = kind, .mapped = calloc(1, bytes)};
  return out->mapped ? DELTAIC_OK : DELTAIC_OUT_OF_MEMORY;
}
void __wrap_buffer_free(struct device *device, struct buffer *buffer) {
  (void)device;
  free(buffer->mapped);
  *buffer = (struct buffer){0};
}
deltaic_status __wrap_buffer_read(struct device *device, struct buffer *buffer, uint64_t offset, void *data,
                                  uint64_t bytes) {
  (void)device, (void)buffer, (void)offset;
  memset(data, 0, bytes);
  return DELTAIC_OK;
}

deltaic_status __wrap_transfer_create(struct device *device) {
  (void)device;
  return DELTAIC_OK;
}
void __wrap_transfer_free(struct device *device) { (void)device; }
void __wrap_device_idle(struct device *device) { (void)device; }
deltaic_status __wrap_commands_create(struct device *device, struct commands **out) {
  (void)device;
  *out = malloc(1); // only passed around
  return *out ? DELTAIC_OK : DELTAIC_OUT_OF_MEMORY;
}
void __wrap_commands_free(struct commands *commands) { free(commands); }
void __wrap_commands_begin(struct commands *commands, enum commands_mode mode, const atomic_bool *cancel) {
  (void)commands, (void)mode, (void)cancel;
}
void __wrap_commands_dispatch(struct commands *commands, const struct kernel *kernel, const struct binding *bindings,
                              const void *push, const uint32_t groups[3], uint64_t operations) {
  (void)commands, (void)bindings, (void)push, (void)groups, (void)operations;
  fprintf(stderr, "dispatch %s\n", kernel->shader->name); // after what the driver says of it
  dispatches++;
  for (int id = 0; id < KERNEL_COUNT; id++) dispatched[id] += kernel->shader == &kernels[id];
  for (int id = 0; id < BACKWARD_KERNEL_COUNT; id++) dispatched_back[id] += kernel->shader == &backward_kernels[id];
}
void __wrap_commands_fail(struct commands *commands, deltaic_status status) {
  (void)commands;
  fprintf(stderr, "%s: %s\n", deltaic_status_name(status), deltaic_last_error());
  failures++;
}

bool __wrap_commands_going(struct commands *commands) { return commands != NULL; }
deltaic_status __wrap_commands_submit(struct commands *commands) {
  (void)commands;
  return DELTAIC_OK;
}

static struct backend *backend;
static struct recorder *recorder;
static struct oplist list;
static struct buffer nowhere = {.bytes = UINT64_MAX / 2};
static const struct tensor none;

static struct tensor tensor(enum dtype dtype, uint32_t rows, uint32_t cols) {
  return (struct tensor){
      .dtype = dtype, .rows = rows, .cols = cols, .stride = (uint32_t)round_up(cols, 8), .buffer = &nowhere};
}
static struct tensor f32(uint32_t rows, uint32_t cols) { return tensor(DTYPE_F32, rows, cols); }
static struct tensor sequences(uint32_t B) { return tensor(DTYPE_I32, B, 4); }
static struct tensor value(uint32_t rows, uint32_t cols) { return oplist_value(&list, rows, cols); }

// begin() and run() bracket the operations of a list, in which no text has more than `longest` tokens.
static void begin(uint32_t longest, bool plain) {
  oplist_begin(&list);
  list.longest = longest;
  list.plain = plain;
}

static void run(void) {
  uint64_t largest;
  list.scratch = f32(1, (uint32_t)(backend->functions->list_bytes(backend, &list, &largest) / sizeof(float)));
  recorder->functions->recorder_list(recorder, &list);
}

static const uint32_t lengths[] = {1, 4, 24, 64, 128, 300, 2048};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

enum { D = 2048, F = 5632 };

// A product of the norm of x (T, D), by itself or convolved.
static void record_product(struct tensor x, enum dtype dtype, bool convolved) {
  const uint32_t T = x.rows;
  oplist_scope_begin(&list);
  const struct tensor h = value(T, D), p = value(T, D);
  op_norm(&list, h, x, f32(1, D), none, 1e-5f);
  op_linear(&list, p, h, tensor(dtype, D, D), f32(1, D));
  if (convolved)
    op_conv(&list, &(struct conv){.y = value(T, D),
                                  .history = f32(T, 3 * D),
                                  .x = p,
                                  .weight = f32(4, D),
                                  .sequences = sequences(T),
                                  .a = {.W = 4, .C = D}});
  oplist_scope_end(&list);
}

// A product whose input a walk in reverse keeps.
static void compile_kept(void) {
  begin(300, true);
  list.keep = true;
  op_linear(&list, value(300, D), f32(300, D), tensor(DTYPE_F16, D, D), none);
  run();
  list.keep = false;
}

// x + an MLP of its norm.
static struct tensor record_mlp(struct tensor x, enum dtype dtype) {
  const uint32_t T = x.rows;
  const struct tensor out = value(T, D);
  oplist_scope_begin(&list);
  const struct tensor h = value(T, D), both = value(T, 2 * F), act = value(T, F), y = value(T, D);
  op_norm(&list, h, x, f32(1, D), none, 1e-5f);
  op_linear(&list, both, h, tensor(dtype, 2 * F, D), none);
  op_glu(&list, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
  op_linear(&list, y, act, tensor(dtype, D, F), none);
  op_add(&list, out, x, y);
  oplist_scope_end(&list);
  return out;
}

// Norms are made by the products around them, where there is one before them.
static void compile_products(uint32_t T, enum dtype dtype) {
  begin(T > 64 ? T : 1, false);
  struct tensor x = value(T, D);
  record_product(x, dtype, false);
  record_product(x, dtype, true);
  x = record_mlp(x, dtype);
  record_product(x, dtype, false);
  x = record_mlp(x, dtype);
  record_product(x, dtype, true);
  x = record_mlp(record_mlp(x, dtype), dtype);
  op_linear(&list, value(T, D), x, tensor(dtype, D, D), f32(1, D));
  run();
}

// What a step has besides layers, and an addition that no product makes.
static void compile_ends(enum dtype dtype) {
  enum { V = 32000, B = 4 };
  const struct tensor tokens = tensor(DTYPE_I32, 1, B), seen = tensor(DTYPE_I32, B, V / 32), logits = f32(B, V);
  begin(0, false);
  op_embed(&list, f32(B, D), tensor(dtype, V, D), tokens);
  op_norm(&list, tensor(dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32, B, D), f32(B, D), f32(1, D), sequences(B), 1e-5f);
  op_add(&list, f32(B, D), f32(B, D), f32(B, D));
  op_mark(&list, seen, tokens, sequences(B));
  op_sample(&list, &(struct sample){tokens, f32(B, V), sequences(B), seen, logits, f32(B, 8)});
  op_score(&list, f32(B, 2), logits, tensor(DTYPE_I32, 1, B), 0);
  op_scatter(&list, logits, logits, sequences(B));
  op_copy(&list, logits, logits);
  op_copy(&list, f32(B, 3), none);
  run();
}

enum { H = 16 }; // heads

static struct delta_args delta_args(uint32_t Dk, uint32_t Dv, uint32_t n, bool gated) {
  return (struct delta_args){.H = H, .Hv = H, .Dk = Dk, .Dv = Dv, .n = n, .scale = 1, .gated = gated};
}

static struct delta_args hh_args(uint32_t size, uint32_t r, enum hh_nonneg nonneg) {
  struct delta_args a = delta_args(size, size, 1, true);
  a.r = r;
  a.nonneg = nonneg;
  return a;
}

// The inputs, the rule and the norm of its output, which is returned; x: q, k and v.
static struct tensor record_rule(uint32_t B, struct tensor x, struct delta_args a, enum activation activation,
                                 struct tensor gate, struct tensor norm, struct tensor out) {
  const uint32_t rows = x.rows;
  const struct tensor qkv = value(rows, x.cols), beta = value(rows, a.n * H), g = value(rows, H);
  const struct tensor o = norm.buffer ? value(rows, H * a.Dv) : out;
  op_delta_inputs(&list, &(struct delta_inputs){.y = qkv,
                                                .beta = beta,
                                                .g = g,
                                                .x = x,
                                                .ba = f32(rows, (a.n + 1) * H),
                                                .A_log = f32(1, H),
                                                .dt_bias = f32(1, H),
                                                .a = {.heads = (1 + a.n) * H,
                                                      .Dk = a.Dk,
                                                      .activation = activation,
                                                      .norm = KEY_NORM_L2,
                                                      .betas = a.n * H,
                                                      .decays = H,
                                                      .beta_scale = 1,
                                                      .has_beta = true,
                                                      .gated = a.gated}});
  op_delta_rule(&list, &(struct delta_rule){.o = o,
                                            .state = f32(B, H * a.Dk * a.Dv),
                                            .qkv = qkv,
                                            .beta = beta,
                                            .g = a.gated ? g : none,
                                            .mask = a.r > 1 ? f32(rows, H * a.r * a.r) : none,
                                            .sequences = sequences(B),
                                            .a = a});
  if (norm.buffer)
    op_gated_norm(&list, &(struct gated_norm){.y = out,
                                              .x = o,
                                              .gate = gate,
                                              .weight = norm,
                                              .groups = H,
                                              .group_cols = a.Dv,
                                              .place = NORM_FIRST,
                                              .eps = 1e-5f});
  return out;
}

// The rule of B texts of T tokens, as layers have it, and each operation by itself. halves: q, k, v and o are f16 where
// the rule likes that.
static void compile_delta(uint32_t B, uint32_t T, struct delta_args a, bool halves) {
  const uint32_t all = B * T, C = H * ((1 + a.n) * a.Dk + a.n * a.Dv);
  for (int plain = 0; plain < 2; plain++) {
    begin(T, plain);
    const struct tensor p = value(all, C), x = value(all, C);
    op_linear(&list, p, f32(all, 64), tensor(DTYPE_F16, C, 64), none);
    op_conv(&list, &(struct conv){.y = x,
                                  .history = f32(B, 3 * C),
                                  .x = p,
                                  .weight = f32(4, C),
                                  .sequences = sequences(B),
                                  .a = {.W = 4, .C = C, .heads = (1 + a.n) * H, .Dk = a.Dk}});
    const struct tensor o =
        record_rule(B, x, a, ACTIVATION_IDENTITY, f32(all, H * a.Dv), f32(1, a.Dv), value(all, H * a.Dv));
    if (halves) op_linear(&list, value(all, 64), o, tensor(DTYPE_F16, 64, H * a.Dv), none);
    run();
  }
}

// A token of each of 4 texts, and of one.
static void compile_step(struct delta_args a) {
  for (uint32_t B = 1; B <= 4; B += 3)
    for (uint32_t norm = 0; norm < 2; norm++) {
      const uint32_t before = dispatches;
      begin(1, false);
      record_rule(B, f32(B, H * (a.Dk + a.n * (a.Dk + a.Dv))), a, a.gated ? ACTIVATION_SILU : ACTIVATION_IDENTITY,
                  f32(B, H * a.Dv), norm ? f32(1, a.Dv) : none, tensor(norm ? DTYPE_F16 : DTYPE_F32, B, H * a.Dv));
      run();
      failures += dispatches - before > 1 + norm; // not in one kernel, or in two with the norm
    }
}

// With four key heads, the output has a gate.
static void compile_attention(uint32_t T, uint32_t B, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t window) {
  const struct attention_args a = {.heads = heads, .kv_heads = kv_heads, .d = d, .window = window, .capacity = 8192};
  const uint32_t cols = (heads + 2 * kv_heads) * d;
  const struct tensor cache = f32(B, a.capacity * kv_heads * d);
  begin(T / B, false);
  const struct tensor qkv = value(T, cols), gated = value(T, heads * d);
  struct tensor o = value(T, heads * d);
  op_rope_append(&list, &(struct rope_append){qkv, cache, cache, value(T, cols), f32(ROPE_ROWS, d), sequences(B), a});
  op_attention(&list, &(struct attention){o, qkv, cache, cache, sequences(B), a});
  if (kv_heads == 4) op_glu(&list, gated, f32(T, heads * d), o, ACTIVATION_SIGMOID);
  if (kv_heads == 4) o = gated;
  op_linear(&list, value(T, D), o, tensor(DTYPE_BF16, D, heads * d), none);
  run();
}

// Token by token where B texts have one token each, else in chunks. halves: y is f16, of single tokens on any device.
static void compile_mamba2(uint32_t B, uint32_t T, uint32_t N, uint32_t P, bool halves) {
  enum { HEADS = 32 };
  const uint32_t all = B * T, E = HEADS * P;
  for (int plain = 0; plain < 2; plain++) {
    begin(T, plain);
    const struct tensor dt = value(all, HEADS), g = value(all, HEADS), normed = value(all, E);
    const bool rule_alone = halves && T == 1;
    const struct tensor y = rule_alone ? tensor(DTYPE_F16, all, E) : value(all, E);
    op_mamba2_inputs(
        &list,
        &(struct mamba2_inputs){
            .dt = dt, .g = g, .raw = f32(all, HEADS), .A_log = f32(1, HEADS), .dt_bias = f32(1, HEADS), .high = 1});
    op_mamba2(&list, &(struct mamba2){.y = y,
                                      .state = f32(B, E * N),
                                      .xBC = f32(all, E + 2 * N),
                                      .dt = dt,
                                      .g = g,
                                      .D = f32(1, HEADS),
                                      .sequences = sequences(B),
                                      .a = {.heads = HEADS, .P = P, .N = N, .groups = 1}});
    if (!rule_alone)
      op_gated_norm(&list, &(struct gated_norm){.y = normed,
                                                .x = y,
                                                .gate = f32(all, E),
                                                .weight = f32(1, E),
                                                .groups = 1,
                                                .group_cols = E,
                                                .place = NORM_OF_GATED,
                                                .eps = 1e-5f});
    if (halves && !rule_alone) op_linear(&list, value(all, D), normed, tensor(DTYPE_BF16, D, E), none);
    run();
  }
}

// A mixture of experts as an FFN records it, or each operation by itself.
static void compile_experts(uint32_t T, enum dtype dtype, bool plain) {
  enum { E = 64, K = 4, WIDE = 512 };
  const uint32_t R = T * K;
  begin(T, plain);
  const struct tensor h = value(T, D), logits = value(T, E + 1), ids = value(T, K), scores = value(T, K);
  const struct tensor order = value(1, R), starts = value(1, E + 1), gate_up = value(R, 2 * WIDE);
  const struct tensor act = value(R, WIDE), down = value(R, D);
  op_linear(&list, logits, h, f32(E + 1, D), none);
  op_route(&list, &(struct route){.ids = ids, .weights = scores, .logits = logits, .experts = E, .normalized = true});
  op_group(&list, order, starts, ids);
  op_experts(&list, &(struct experts){gate_up, h, tensor(dtype, E * 2 * WIDE, D), ids, order, starts});
  op_glu(&list, act, tensor_cols(gate_up, 0, WIDE), tensor_cols(gate_up, WIDE, WIDE), ACTIVATION_SILU);
  op_experts(&list, &(struct experts){down, act, tensor(dtype, E * D, WIDE), ids, order, starts});
  op_mix(&list,
         &(struct mix){.y = value(T, D), .x = down, .weights = scores, .shared = h, .logits = logits, .gate_col = E});
  run();
}

static int compile_model(const char *path) {
  static const int32_t ids[300];
  struct deltaic_device device = {.backend = backend};
  deltaic_model *model;
  deltaic_session *session;
  if (deltaic_model_open(&device, path, NULL, &model) || deltaic_session_create(model, NULL, &session)) {
    fprintf(stderr, "%s: %s\n", path, deltaic_last_error());
    return 1;
  }
  int failed = 0;
  for (int i = 0; i < LENGTHS && lengths[i] <= 300; i++)
    failed += deltaic_session_eval(session, ids, lengths[i], DELTAIC_LOGITS_NONE, NULL) != DELTAIC_OK;
  deltaic_session_free(session);
  deltaic_model_close(model);
  return failed;
}

static bool wants_all(void *user, const struct file_tensor *t) {
  (void)user, (void)t;
  return true;
}

// The gradients of two texts of 300 tokens.
static int compile_gradients(const char *path, bool fast) {
  enum { ROWS = 2, T = 300 };
  static const int32_t ids[ROWS * (T + 1)];
  const struct learner_batch batch = {ids, ROWS, T, NULL};
  struct learner_loss loss;
  struct learner *l = NULL;
  const bool failed = learner_open(path, backend, 0, fast, wants_all, NULL, &l) || learner_clear(l) ||
                      learner_add(l, &batch, NULL, 1, &loss);
  if (failed) fprintf(stderr, "gradients of %s: %s\n", path, deltaic_last_error());
  learner_close(l);
  return failed;
}

// dW of few rows, from an input in f16.
static void compile_few_rows(enum matrices matrices) {
  struct walk w = {.functions = walk_functions(backend), .c = recorder, .list = &list};
  begin(300, true);
  list.matrices = matrices;
  run();
  w.functions->add_outer(&w, f32(4, D), f32(300, 4), tensor(DTYPE_F16, 300, D));
  failures += w.status != DELTAIC_OK;
  walk_free(&w);
}

static void log_line(void *user, deltaic_log_level level, const char *line) {
  (void)user, (void)level;
  fprintf(stderr, "%s\n", line);
}

// What no plan for this device chooses.
static bool left_out(const struct plan *plan, enum kernel_id id) {
  const char *name = kernels[id].name;
  if (!kernel_built(id)) return true;
  if (!plan->matrix_m) // nor is there a reader of f16
    return strstr(name, "_matrix") || strstr(name, "narrow") || id == KERNEL_short_conv_f16 ||
           id == KERNEL_delta_inputs_f16 || id == KERNEL_conv_inputs_f16 || id == KERNEL_attention_f16 ||
           id == KERNEL_attention_step_f16 || id == KERNEL_glu_x16_f16 || strstr(name, "round") ||
           id == KERNEL_attention_join;
  if (id == KERNEL_delta_matrix_scan_f32 || id == KERNEL_delta_matrix_scan_f16) return !plan->matrix_conversions;
  if (id == KERNEL_delta_matrix_scan_khr_f32 || id == KERNEL_delta_matrix_scan_khr_f16) return plan->matrix_conversions;
  if (id == KERNEL_delta_matrix_join || id == KERNEL_delta_matrix_reach_f32 || id == KERNEL_delta_matrix_reach_f16)
    return plan->matrix_sums < 16;
  return false;
}

// Of a backward pass; a trainer's steps are no part of it.
static bool left_out_backward(const struct plan *plan, enum backward_kernel id) {
  if (id == BACKWARD_sum_squares || id == BACKWARD_adamw || id == BACKWARD_blend) return true;
  const char *name = backward_kernels[id].name;
  if (strstr(name, "rule_matrix_states") || strstr(name, "rule_matrix_rev"))
    return !plan->matrix_mixers || (strstr(name, "_registers") != NULL) != plan->matrix_conversions;
  return !plan->matrix_m && (strstr(name, "matrix") || strstr(name, "rounded") || strstr(name, "halves"));
}

int main(int argc, char **argv) {
  struct instance instance;
  struct device_caps *caps;
  VkPhysicalDevice *handles;
  uint32_t count;
  struct device *device;
  if (instance_create(&instance, false, log_line, NULL) || instance_devices(&instance, &caps, &handles, &count))
    return 1;
  if (count && !caps[0].memory_heap[0].bytes) { // RADV's null device has no memory; a card's beside which it would be
    caps[0].memory_types = caps[0].memory_heaps = 1;
    caps[0].memory_heap[0].bytes = caps[0].max_allocation = caps[0].max_buffer = (uint64_t)16 << 30;
    caps[0].memory_type[0].flags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                   VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  }
  if (count) caps[0].memory_budget = false; // the null device of an APU crashes when it is asked for it
  struct plan plan = {0};
  if (count) plan_make(&caps[0], &plan);
  if (!count || device_open(&instance, handles[0], &caps[0], &plan, NULL, &device) ||
      backend_open_vulkan(device, &backend) || backend->functions->recorder_create(backend, &recorder)) {
    fprintf(stderr, "no device: %s\n", deltaic_last_error());
    return 1;
  }
  compile_step(delta_args(64, 64, 1, false));
  compile_step(delta_args(76, 128, 1, false));
  compile_step(delta_args(49, 128, 1, true));
  compile_step(delta_args(96, 128, 1, true));
  compile_step(delta_args(128, 128, 1, false));
  compile_step(delta_args(128, 128, 1, true));
  compile_step(delta_args(128, 128, 2, true));
  compile_step(delta_args(256, 512, 1, true));
  for (enum dtype dtype = DTYPE_F32; dtype < DTYPE_TILES; dtype++) compile_ends(dtype_tiled(dtype));
  // The keys that models have, and what pruning leaves of them.
  static const uint32_t keys[] = {32, 49, 64, 76, 96, 112, 113, 120, 128, 256};
  for (int matrices = 0; matrices < 2; matrices++) {
    list.matrices = matrices ? MATRICES_BEST : MATRICES_NONE;
    if (backend->parts_bytes) list.parts = f32(1, (uint32_t)(backend->parts_bytes / sizeof(float)));
    for (int l = 0; l < LENGTHS; l++)
      for (enum dtype dtype = DTYPE_F32; dtype < DTYPE_TILES; dtype++) {
        compile_products(lengths[l], dtype_tiled(dtype));
        if (lengths[l] != 24 && lengths[l] != 300) compile_experts(lengths[l], dtype_tiled(dtype), false);
        if (lengths[l] == 2048) compile_experts(2048, dtype_tiled(dtype), true);
      }
    compile_kept();
    begin(0, false);
    const struct tensor gate_up = value(300, 2 * F);
    op_linear(&list, gate_up, f32(300, D), tensor(DTYPE_BF16, 2 * F, D), none);
    op_glu(&list, tensor(matrices ? DTYPE_F16 : DTYPE_F32, 300, F), tensor_cols(gate_up, 0, F),
           tensor_cols(gate_up, F, F), ACTIVATION_SILU);
    run();
    for (int halves = 0; halves <= matrices; halves++) {
      compile_mamba2(1, 1, 128, 64, halves);
      compile_mamba2(4, 1, 128, 64, halves);
      compile_mamba2(1, 2048, 128, 64, halves);
      compile_mamba2(1, 2048, 256, 64, halves);
      compile_mamba2(1, 2048, 64, 128, halves);
      for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!halves && matrices && keys[k] % 8) continue; // of f32 keys these have one kernel more
        for (uint32_t n = 1; n <= (keys[k] % 64 ? 2 : 3); n++)
          compile_delta(1, 2048, delta_args(keys[k], 128, n, true), halves);
      }
      for (uint32_t n = 1; n <= 2; n++) { // many heads; values that end within a tile
        compile_delta(16, 2048, delta_args(128, 128, n, true), halves);
        compile_delta(1, 2048, delta_args(128, 100, n, true), halves);
      }
      compile_delta(16, 2048, delta_args(76, 128, 1, true), halves);
      compile_delta(1, 2048, delta_args(64, 64, 1, true), halves);
      for (uint32_t n = 4; n <= 8; n *= 2) compile_delta(1, 2048, delta_args(128, 128, n, true), halves);
      compile_delta(1, 2048, delta_args(128, 128, 1, false), halves);
      compile_delta(1, 2048, delta_args(256, 512, 1, true), halves);
      compile_delta(1, 4, delta_args(128, 128, 1, true), halves);
      for (uint32_t d = 96; d <= 128; d += 8) compile_delta(1, 2048, hh_args(d, 2, HH_NONNEG_SOFTPLUS), halves);
      for (uint32_t d = 64; d <= 128; d *= 2) {
        compile_delta(1, 2048, hh_args(d, d / 32, HH_NONNEG_SOFTPLUS), halves);
        compile_delta(1, 2048, hh_args(d, 8, HH_NONNEG_GIVEN), halves);
      }
    }
    list.form = DELTA_CHUNK; // which no plan may choose
    compile_delta(1, 2048, delta_args(128, 128, 1, true), 0);
    list.form = DELTA_AUTO;
    for (uint32_t T = 1; T <= 2048; T = T == 1 ? 4 : T * 512) {
      const uint32_t B = T == 4 ? 4 : 1;
      compile_attention(T, B, 16, 16, 128, 0);
      compile_attention(T, B, 16, 16, 64, 2048);
      compile_attention(T, B, 32, 4, 128, 0);
      compile_attention(T, B, 8, 2, 256, 0);
    }
    for (uint32_t d = 64; d <= 256; d *= 2) compile_attention(16, 1, 8, 2, d, 0); // keys are cut
  }
  for (int i = 1; i < argc; i++) failures += compile_model(argv[i]);
  for (int i = 1; i < argc; i++)
    for (int fast = 0; fast < 1 + (plan.matrix_m > 0); fast++) failures += compile_gradients(argv[i], fast);
  if (plan.matrix_m > 0) compile_few_rows(MATRICES_BEST);
  for (int id = 0; id < KERNEL_COUNT; id++) {
    if ((dispatched[id] > 0) != left_out(&plan, id)) continue;
    fprintf(stderr, "%s was %s\n", kernels[id].name,
            dispatched[id] ? "asked for, and no plan should" : "not asked for");
    failures++;
  }
  for (int id = 0; id < BACKWARD_KERNEL_COUNT; id++) {
    if ((dispatched_back[id] > 0) != left_out_backward(&plan, id)) continue;
    fprintf(stderr, "%s of the backward pass was %s\n", backward_kernels[id].name,
            dispatched_back[id] ? "asked for, and no plan should" : "not asked for");
    failures++;
  }
  printf("%s, %s: %u dispatches, matrices %u x %u x %u\n", caps[0].name, caps[0].driver, dispatches, plan.matrix_m,
         plan.matrix_n, plan.matrix_k);
  fflush(stdout);
  _Exit(failures != 0); // waiting for a queue that is none would not end well
}
