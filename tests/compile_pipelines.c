// compile_pipelines: compiles the pipelines that models and large heads ask for on the first usable device, and runs
// none: recorders are replaced (ld --wrap), so that it also works on RADV's null device, which has no queue. Prints how
// many there were, and fails for a kernel that the device's plan may choose and nothing here asked for. tests/radv
// counts what the driver says of them.
#include "device.h"
#include "device_handle.h"
#include "ops_vulkan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static uint32_t dispatches, dispatched[KERNEL_COUNT];

deltaic_status __wrap_transfer_create(struct device *device);
void __wrap_transfer_free(struct device *device);
void __wrap_device_idle(struct device *device);
deltaic_status __wrap_commands_create(struct device *device, struct commands **out);
void __wrap_commands_free(struct commands *commands);
void __wrap_commands_begin(struct commands *commands, enum commands_mode mode, const atomic_bool *cancel);
void __wrap_commands_dispatch(struct commands *commands, const struct kernel *kernel, const struct binding *bindings,
                              const void *push, const uint32_t groups[3], uint64_t operations);
void __wrap_commands_fail(struct commands *commands, deltaic_status status);
deltaic_status __wrap_commands_submit(struct commands *commands);
deltaic_status __wrap_buffer_create(struct device *device, enum memory_kind kind, uint64_t bytes, const char *what,
                                    struct buffer *out);
void __wrap_buffer_free(struct device *device, struct buffer *buffer);

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
  dispatched[kernel->shader - kernels]++;
}
void __wrap_commands_fail(struct commands *commands, deltaic_status status) {
  (void)commands;
  fprintf(stderr, "%s: %s\n", deltaic_status_name(status), deltaic_last_error());
  failures++;
}

deltaic_status __wrap_commands_submit(struct commands *commands) {
  (void)commands;
  return DELTAIC_OK;
}

static struct backend *backend;
static struct recorder *recorder;
static struct buffer nowhere = {.bytes = UINT64_MAX / 2};

static struct tensor tensor(enum dtype dtype, uint32_t rows, uint32_t cols) {
  return (struct tensor){dtype, rows, cols, (uint32_t)round_up(cols, 8), &nowhere, 0, false};
}
static struct tensor f32(uint32_t rows, uint32_t cols) { return tensor(DTYPE_F32, rows, cols); }

static const uint32_t lengths[] = {1, 4, 24, 64, 128, 300, 2048};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void compile_products(uint32_t T, enum dtype dtype) {
  const struct ops *op = backend->ops;
  enum { D = 2048, F = 5632 };
  struct tensor w = tensor(dtype, D, D), up = tensor(dtype, 2 * F, D), down = tensor(dtype, D, F);
  struct tensor x = f32(T, D), act = tensor_as(f32(T, F), op->input_dtype(recorder, down, T));
  struct norm_ahead ahead = {.estimated = true};
  struct linear_input in = {x, f32(1, D), f32(T, D), 1e-5f, &ahead};
  const struct linear_conv conv = {.weight = f32(4, D),
                                   .history = f32(T, 3 * D),
                                   .sequences = tensor(DTYPE_I32, T, 4),
                                   .longest = T > 64 ? T : 1,
                                   .a = {.W = 4, .C = D}};
  op->linear(recorder, f32(T, D), in, w, f32(1, D), false);
  op->linear_conv(recorder, f32(T, D), f32(T, D), in, w, f32(1, D), conv);
  op->linear_gated(recorder, act, f32(T, 2 * F), in, up, ACTIVATION_SILU);
  op->linear_residual(recorder, x, (struct linear_input){.x = act}, down, (struct tensor){0}, &in);
  op->linear(recorder, f32(T, D), (struct linear_input){.x = f32(T, D)}, w, f32(1, D), false);
  if (!ahead.parts) return;
  op->linear(recorder, f32(T, D), in, w, f32(1, D), false);
  op->linear_conv(recorder, f32(T, D), f32(T, D), in, w, f32(1, D), conv);
  op->linear_gated(recorder, act, f32(T, 2 * F), in, up, ACTIVATION_SILU);
}

// What a step has besides layers.
static void compile_ends(enum dtype dtype) {
  const struct ops *op = backend->ops;
  enum { V = 32000, D = 2048, B = 4 };
  const struct tensor tokens = tensor(DTYPE_I32, 1, B), sequences = tensor(DTYPE_I32, B, 4);
  const struct tensor seen = tensor(DTYPE_I32, B, V / 32), logits = f32(B, V);
  op->embed(recorder, f32(B, D), tensor(dtype, V, D), tokens);
  op->rmsnorm(recorder, tensor(dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32, B, D), f32(B, D), f32(1, D), sequences,
              1e-5f);
  op->mark(recorder, seen, tokens, sequences);
  op->sample(recorder, tokens, sequences, seen, logits, f32(B, 8), f32(B, V));
  op->score(recorder, f32(B, 2), logits, tensor(DTYPE_I32, 1, B), 0);
  op->scatter(recorder, logits, logits, sequences);
  op->copy(recorder, logits, logits);
  op->copy(recorder, f32(B, 3), (struct tensor){0});
}

// B texts of T tokens. halves: qkv and o are f16 where the rule likes that.
static void compile_delta(uint32_t B, uint32_t T, uint32_t Dk, uint32_t Dv, uint32_t n, bool gated, bool matrices,
                          bool halves) {
  const struct ops *op = backend->ops;
  enum { H = 16 };
  const uint32_t all = B * T;
  struct delta_args a = {.H = H, .Hv = H, .Dk = Dk, .Dv = Dv, .n = n, .scale = 1, .gated = gated};
  a.matrices = matrices ? MATRICES_BEST : MATRICES_NONE;
  struct tensor scratch = f32(1, (uint32_t)(op->delta_scratch_bytes(backend, all, B, a) / 4));
  enum dtype dtype = halves ? op->delta_dtype(recorder, all, B, scratch, a) : DTYPE_F32;
  struct tensor qkv = tensor(dtype, all, H * ((1 + n) * key_pitch(dtype, Dk) + n * Dv)), o = tensor(dtype, all, H * Dv);
  struct tensor beta = f32(all, n * H), g = f32(all, H), sequences = tensor(DTYPE_I32, B, 4), none = {0};
  struct delta_input_args inputs = {.heads = (1 + n) * H,
                                    .Dk = Dk,
                                    .norm = KEY_NORM_L2,
                                    .betas = n * H,
                                    .decays = H,
                                    .beta_scale = 1,
                                    .has_beta = true,
                                    .gated = gated};
  const struct delta_input input = {beta, g, f32(all, (n + 1) * H), f32(1, H), f32(1, H), inputs};
  const uint32_t C = H * ((1 + n) * Dk + n * Dv);
  struct linear_conv conv = {.weight = f32(4, C),
                             .history = f32(B, 3 * C),
                             .sequences = sequences,
                             .longest = T,
                             .a = {.W = 4, .C = C, .keys = (1 + n) * H, .Dk = Dk},
                             .inputs = &input};
  const struct linear_input x = {.x = f32(all, 64)};
  op->linear_conv(recorder, qkv, f32(all, C), x, tensor(DTYPE_F16, C, 64), none, conv);
  conv.inputs = NULL;
  op->linear_conv(recorder, qkv, f32(all, C), x, tensor(DTYPE_F16, C, 64), none, conv);
  op->delta_inputs(recorder, qkv, &input);
  op->delta_rule(recorder, o, qkv, beta, gated ? g : none, none, f32(B, H * Dk * Dv), sequences, scratch, a);
  op->output_norm(recorder, o, f32(all, H * Dv), f32(1, Dv), H, 1e-5f);
}

// A token of each of 4 texts, and of one.
static void compile_step(uint32_t Dk, uint32_t Dv, uint32_t n, bool gated) {
  enum { H = 16 };
  for (uint32_t B = 1; B <= 4; B += 3)
    for (int norm = 0; norm < 2; norm++) {
      const struct tensor none = {0};
      const struct delta_step s = {.o = tensor(norm ? DTYPE_F16 : DTYPE_F32, B, H * Dv),
                                   .qkv = f32(B, H * (Dk + n * (Dk + Dv))),
                                   .ba = f32(B, (n + 1) * H),
                                   .A_log = f32(1, H),
                                   .dt_bias = f32(1, H),
                                   .state = f32(B, H * Dk * Dv),
                                   .sequences = tensor(DTYPE_I32, B, 4),
                                   .gate = norm ? f32(B, H * Dv) : none,
                                   .norm = norm ? f32(1, Dv) : none,
                                   .inputs = {(1 + n) * H, Dk, gated ? ACTIVATION_SILU : ACTIVATION_IDENTITY,
                                              KEY_NORM_L2, n * H, H, 1, true, gated},
                                   .rule = {.H = H, .Hv = H, .Dk = Dk, .Dv = Dv, .n = n, .scale = 1, .gated = gated},
                                   .eps = 1e-5f};
      if (!backend->ops->delta_step(recorder, &s)) failures++;
    }
}

static void compile_attention(uint32_t T, uint32_t B, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t window) {
  const struct ops *op = backend->ops;
  struct attention_args a = {
      .heads = heads, .kv_heads = kv_heads, .d = d, .window = window, .capacity = 8192, .longest = T / B};
  struct tensor scratch = f32(1, (uint32_t)(op->attention_scratch_bytes(backend, B, a) / 4));
  struct tensor qkv = f32(T, (heads + 2 * kv_heads) * d), cache = f32(B, a.capacity * kv_heads * d);
  struct tensor o = tensor_as(f32(T, heads * d), op->input_dtype(recorder, tensor(DTYPE_BF16, 2048, heads * d), T));
  struct tensor sequences = tensor(DTYPE_I32, B, 4);
  op->rope_append(recorder, qkv, cache, cache, f32(ROPE_ROWS, d), sequences, scratch, a);
  op->attention(recorder, o, qkv, cache, cache, sequences, scratch, a);
}

static void compile_hh(uint32_t T, uint32_t D, uint32_t r, enum hh_nonneg nonneg, bool matrices, bool halves) {
  const struct ops *op = backend->ops;
  enum { H = 16 };
  struct delta_args a = {
      .H = H, .Hv = H, .Dk = D, .Dv = D, .n = 1, .r = r, .scale = 1, .gated = true, .nonneg = nonneg};
  a.matrices = matrices ? MATRICES_BEST : MATRICES_NONE;
  struct tensor scratch = f32(1, (uint32_t)(op->delta_scratch_bytes(backend, T, 1, a) / 4));
  enum dtype dtype = halves ? op->delta_dtype(recorder, T, 1, scratch, a) : DTYPE_F32;
  struct tensor qkv = tensor(dtype, T, H * (2 * key_pitch(dtype, D) + D)), o = tensor(dtype, T, H * D),
                sequences = tensor(DTYPE_I32, 1, 4);
  op->delta_rule(recorder, o, qkv, f32(T, H), f32(T, H), f32(T, H * r * r), f32(1, H * D * D), sequences, scratch, a);
}

static void compile_mamba2(uint32_t T, uint32_t N, uint32_t P, bool matrices, bool halves) {
  const struct ops *op = backend->ops;
  enum { H = 32 };
  struct mamba2_args a = {
      .heads = H, .P = P, .N = N, .groups = 1, .matrices = matrices ? MATRICES_BEST : MATRICES_NONE};
  struct tensor scratch = f32(1, (uint32_t)(op->mamba2_scratch_bytes(backend, T, 1, a) / 4));
  struct tensor y = tensor(halves ? op->mamba2_dtype(recorder, T, 1, scratch, a) : DTYPE_F32, T, H * P);
  op->mamba2(recorder, y, f32(T, H * P + 2 * N), f32(T, H), f32(T, H), f32(1, H), f32(1, H * N * P),
             tensor(DTYPE_I32, 1, 4), scratch, a);
  op->gated_norm(recorder, y, f32(T, H * P), f32(1, H * P), (struct gated_norm_args){1, NORM_OF_GATED, 1e-5f});
}

// A token of each of 4 texts.
static void compile_mamba2_step(enum dtype dtype) {
  enum { H = 32, N = 128, P = 64, B = 4 };
  const struct mamba2_step s = {.y = tensor(dtype, B, H * P),
                                .xBC = f32(B, H * P + 2 * N),
                                .raw = f32(B, H),
                                .A_log = f32(1, H),
                                .dt_bias = f32(1, H),
                                .D = f32(1, H),
                                .state = f32(B, H * N * P),
                                .sequences = tensor(DTYPE_I32, B, 4),
                                .gate = f32(B, H * P),
                                .rule = {.heads = H, .P = P, .N = N, .groups = 1}};
  if (!backend->ops->mamba2_step(recorder, &s)) failures++;
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
           id == KERNEL_delta_inputs_f16 || id == KERNEL_conv_inputs_f16 || id == KERNEL_gated_norm_f16 ||
           id == KERNEL_attention_f16 || id == KERNEL_attention_step_f16;
  if (id == KERNEL_delta_matrix_scan_f32 || id == KERNEL_delta_matrix_scan_f16) return !plan->matrix_conversions;
  if (id == KERNEL_delta_matrix_scan_khr_f32 || id == KERNEL_delta_matrix_scan_khr_f16) return plan->matrix_conversions;
  if (id == KERNEL_delta_matrix_join || id == KERNEL_delta_matrix_reach_f32 || id == KERNEL_delta_matrix_reach_f16)
    return plan->matrix_sums < 16;
  return false;
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
  struct plan plan = {0};
  if (count) plan_make(&caps[0], &plan);
  if (!count || device_open(&instance, handles[0], &caps[0], &plan, NULL, &device) ||
      backend_open_vulkan(device, &backend) || backend->ops->recorder_create(backend, &recorder)) {
    fprintf(stderr, "no device: %s\n", deltaic_last_error());
    return 1;
  }
  compile_step(64, 64, 1, false);
  compile_step(76, 128, 1, false);
  compile_step(49, 128, 1, true);
  compile_step(96, 128, 1, true);
  compile_step(128, 128, 1, false);
  compile_step(128, 128, 1, true);
  compile_step(128, 128, 2, true);
  compile_step(256, 512, 1, true);
  for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) compile_ends(dtype);
  compile_mamba2_step(DTYPE_F32);
  compile_mamba2_step(DTYPE_F16);
  // The keys that models have, and what pruning leaves of them.
  static const uint32_t keys[] = {32, 49, 64, 76, 96, 112, 113, 120, 128, 256};
  for (int matrices = 0; matrices < 2; matrices++) {
    recorder->matrices = matrices;
    if (backend->parts_bytes) recorder->parts = f32(1, (uint32_t)(backend->parts_bytes / sizeof(float)));
    for (int l = 0; l < LENGTHS; l++) {
      compile_products(lengths[l], DTYPE_BF16);
      compile_products(lengths[l], DTYPE_F16);
      compile_products(lengths[l], DTYPE_F32);
    }
    backend->ops->linear_gated(recorder, tensor(matrices ? DTYPE_F16 : DTYPE_F32, 300, 5632), f32(300, 2 * 5632),
                               (struct linear_input){.x = f32(300, 2048)}, tensor(DTYPE_BF16, 2 * 5632, 2048),
                               ACTIVATION_SILU);
    for (int halves = 0; halves <= matrices; halves++) {
      compile_mamba2(1, 128, 64, matrices, halves);
      compile_mamba2(2048, 128, 64, matrices, halves);
      compile_mamba2(2048, 256, 64, matrices, halves);
      compile_mamba2(2048, 64, 128, matrices, halves);
      for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        if (!halves && matrices && keys[k] % 8) continue; // of f32 keys these have one kernel more
        for (uint32_t n = 1; n <= (keys[k] % 64 ? 2 : 3); n++)
          compile_delta(1, 2048, keys[k], 128, n, true, matrices, halves);
      }
      for (uint32_t n = 1; n <= 2; n++) { // many heads; values that end within a tile
        compile_delta(16, 2048, 128, 128, n, true, matrices, halves);
        compile_delta(1, 2048, 128, 100, n, true, matrices, halves);
      }
      compile_delta(16, 2048, 76, 128, 1, true, matrices, halves);
      compile_delta(1, 2048, 64, 64, 1, true, matrices, halves);
      for (uint32_t n = 4; n <= 8; n *= 2) compile_delta(1, 2048, 128, 128, n, true, matrices, halves);
      compile_delta(1, 2048, 128, 128, 1, false, matrices, halves);
      compile_delta(1, 2048, 256, 512, 1, true, matrices, halves);
      compile_delta(1, 4, 128, 128, 1, true, matrices, halves);
      for (uint32_t D = 96; D <= 128; D += 8) compile_hh(2048, D, 2, HH_NONNEG_SOFTPLUS, matrices, halves);
      for (uint32_t D = 64; D <= 128; D *= 2) {
        compile_hh(2048, D, D / 32, HH_NONNEG_SOFTPLUS, matrices, halves);
        compile_hh(2048, D, 8, HH_NONNEG_GIVEN, matrices, halves);
      }
    }
    for (uint32_t T = 1; T <= 2048; T = T == 1 ? 4 : T * 512) {
      const uint32_t B = T == 4 ? 4 : 1;
      compile_attention(T, B, 16, 16, 128, 0);
      compile_attention(T, B, 16, 16, 64, 2048);
      compile_attention(T, B, 32, 4, 128, 0);
      compile_attention(T, B, 8, 2, 256, 0);
    }
  }
  for (int i = 1; i < argc; i++) failures += compile_model(argv[i]);
  for (int id = 0; id < KERNEL_COUNT; id++) {
    if ((dispatched[id] > 0) != left_out(&plan, id)) continue;
    fprintf(stderr, "%s was %s\n", kernels[id].name,
            dispatched[id] ? "asked for, and no plan should" : "not asked for");
    failures++;
  }
  printf("%s, %s: %u dispatches, matrices %u x %u x %u\n", caps[0].name, caps[0].driver, dispatches, plan.matrix_m,
         plan.matrix_n, plan.matrix_k);
  fflush(stdout);
  _Exit(failures != 0); // waiting for a queue that is none would not end well
}
