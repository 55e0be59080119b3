// test_models: whole models against float64 references (tests/vectors/models), on the CPU and every Vulkan device.
#include "checkpoint.h" // before cmocka, whose macro fail() would hide ours
#include "device_handle.h"
#include "file.h"
#include "vulkan_backend.h"

#include "maker.h"

#include "devices.h"

#include <math.h>
#include <unistd.h>

// The first few are those of test_barriers, whose pipelines software has compiled.
static const char *const tiny[] = {"tiny_gated_deltanet_h1",
                                   "tiny_delta_net_swa",
                                   "tiny_gated_delta_product",
                                   "tiny_hh_gated_dynamic",
                                   "tiny_mamba2",
                                   "tiny_delta_net",
                                   "tiny_delta_net_global",
                                   "tiny_gated_deltanet",
                                   "tiny_gated_deltanet_gva",
                                   "tiny_delta_product",
                                   "tiny_gated_deltanet_h2",
                                   "tiny_mamba2_options",
                                   "tiny_hh_delta_static",
                                   "tiny_hh_gated_static",
                                   "tiny_delta_net_2"};
enum { TINY = sizeof tiny / sizeof *tiny };

// Random weights; what the papers left out or exchanged, and plain transformers (vectors/make_ablations.py).
static const char *const random_models[] = {"transformer_norm_window",
                                            "elu_l1",
                                            "relu_l2",
                                            "silu_l1_ungated",
                                            "elu_sum_no_conv",
                                            "identity_none",
                                            "gate_without_norm",
                                            "bare_output",
                                            "no_decay",
                                            "no_beta",
                                            "delta_net_relu_l1",
                                            "delta_net_decay",
                                            "product_elu_l1",
                                            "transformer",
                                            "filter_a_head",
                                            "one_filter"};
enum { RANDOM = sizeof random_models / sizeof *random_models };

// Random weights in the layout of released models (vectors/make_released.py).
static const char *const released[] = {"qwen3_5",    "qwen3_5_bias", "qwen3_5_moe",
                                       "qwen3_next", "olmo_hybrid",  "olmo_hybrid_rope"};
enum { RELEASED = sizeof released / sizeof *released };

static int models_for(deltaic_device *device, int all, int few) { return test_all_on(device) ? all : few; }

struct reference {
  struct checkpoint *file;
  const int32_t *ids, *positions, *prompt, *greedy, *eval;
  const float *logits, *margin;
  size_t n, rows, V, prompt_n, greedy_n, windows, window;
  double nll;
};

static const void *data_of(struct reference *r, const char *name, size_t *first, size_t *second) {
  struct file_tensor *t = checkpoint_find(r->file, name);
  if (!t) fail_msg("reference has no %s", name);
  *first = t->shape[0];
  if (second) *second = t->shape[1];
  return t->data;
}

static struct reference reference_open(const char *path) {
  struct reference r;
  size_t margins;
  assert_ok(checkpoint_open(path, &r.file));
  r.ids = data_of(&r, "input_ids", &r.n, NULL);
  r.positions = data_of(&r, "positions", &r.rows, NULL);
  r.logits = data_of(&r, "logits", &r.rows, &r.V);
  r.prompt = data_of(&r, "greedy.prompt", &r.prompt_n, NULL);
  r.greedy = data_of(&r, "greedy.tokens", &r.greedy_n, NULL);
  r.margin = data_of(&r, "greedy.margin", &margins, NULL);
  r.eval = data_of(&r, "eval_tokens", &r.windows, &r.window);
  r.nll = atof(checkpoint_metadata(r.file, "nll"));
  return r;
}

// Rows of `all` at the reference's positions against its logits.
static double error_of(const struct reference *r, const float *all) {
  double error = 0, size = 0;
  for (size_t i = 0; i < r->rows; i++) {
    const float *row = all + (size_t)r->positions[i] * r->V, *want = r->logits + i * r->V;
    for (size_t j = 0; j < r->V; j++) {
      error += ((double)row[j] - want[j]) * ((double)row[j] - want[j]);
      size += (double)want[j] * want[j];
    }
  }
  return sqrt(error / size);
}

// The text evaluated in pieces of `piece` tokens (0: whole), with calls of at most `batch` at once.
static void check_logits(deltaic_model *model, const struct reference *r, size_t piece, uint32_t batch) {
  deltaic_session_options options = {.size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .batch = batch};
  float *all = malloc(r->n * r->V * sizeof *all);
  assert_non_null(all);
  deltaic_session *session = open_session(model, &options);
  if (!piece) piece = r->n;
  for (size_t i = 0; i < r->n; i += piece) {
    size_t n = r->n - i < piece ? r->n - i : piece;
    assert_ok(deltaic_session_eval(session, r->ids + i, n, DELTAIC_LOGITS_ALL, all + i * r->V));
  }
  double error = error_of(r, all);
  // Plain fp32 gives 2e-7 to 5e-7 on these models; the bar of the project is ten times that.
  if (!(error <= 5e-6)) fail_msg("pieces of %zu, batch %u: relative RMS %.2e", piece, batch, error);
  print_message("    pieces of %-4zu batch %-4u relative RMS %.1e\n", piece, batch, error);
  deltaic_session_free(session);
  free(all);
}

// What a probe saw of every layer's mixer output.
struct outputs {
  const float *want; // (layers, n, D)
  size_t n, D;
  double error, size;
};

static bool compare_output(void *user, const deltaic_probed *probed) {
  struct outputs *o = user;
  const float *want = o->want + ((size_t)probed->layer * o->n + probed->position) * o->D;
  for (size_t i = 0; i < probed->rows * probed->cols; i++) {
    o->error += ((double)probed->data[i] - want[i]) * ((double)probed->data[i] - want[i]);
    o->size += (double)want[i] * want[i];
  }
  return true;
}

// Every layer's mixer output, and looking changes no logit.
static void check_outputs(deltaic_model *model, const struct reference *r) {
  struct file_tensor *t = checkpoint_find(r->file, "mixer_output");
  if (!t) return; // cut out of the default model's reference
  struct outputs o = {.want = t->data, .n = r->n, .D = t->shape[2]};
  float *plain = malloc(r->V * sizeof *plain), *probed = malloc(r->V * sizeof *probed);
  assert_true(plain && probed);
  deltaic_session *session = open_session(model, &exact);
  assert_ok(deltaic_session_eval(session, r->ids, r->n, DELTAIC_LOGITS_LAST, plain));
  assert_ok(deltaic_session_reset(session));
  assert_ok(deltaic_session_probe(session, DELTAIC_PROBE_MIXER_OUTPUT, compare_output, &o));
  assert_ok(deltaic_session_eval(session, r->ids, r->n, DELTAIC_LOGITS_LAST, probed));
  double error = sqrt(o.error / o.size);
  if (!(o.size > 0 && error <= 5e-6)) fail_msg("mixer outputs: relative RMS %.2e", error);
  error = 0;
  for (size_t i = 0; i < r->V; i++) error = fmax(error, fabs((double)plain[i] - probed[i]));
  if (!(error <= 1e-4)) fail_msg("a probe changed a logit by %g", error);
  print_message("    mixer outputs          relative RMS %.1e\n", sqrt(o.error / o.size));
  deltaic_session_free(session);
  free(plain);
  free(probed);
}

static void check_greedy(deltaic_model *model, const struct reference *r) {
  deltaic_session *session = open_session(model, &exact);
  assert_ok(deltaic_session_eval(session, r->prompt, r->prompt_n, DELTAIC_LOGITS_NONE, NULL));
  for (size_t i = 0; i < r->greedy_n; i++) {
    int32_t token;
    assert_ok(deltaic_session_next(session, NULL, &token, NULL));
    if (token != r->greedy[i])
      fail_msg("greedy token %zu is %d, expected %d (margin %g)", i, token, r->greedy[i], r->margin[i]);
  }
  deltaic_session_free(session);
}

static double nll_of_row(const float *logits, size_t V, int32_t target) {
  double most = logits[0], sum = 0;
  for (size_t i = 1; i < V; i++)
    if (logits[i] > most) most = logits[i];
  for (size_t i = 0; i < V; i++) sum += exp(logits[i] - most);
  return log(sum) + most - logits[target];
}

static void check_nll(deltaic_model *model, const struct reference *r) {
  float *all = malloc(r->window * r->V * sizeof *all);
  double sum = 0;
  assert_non_null(all);
  deltaic_session *session = open_session(model, &exact);
  for (size_t w = 0; w < r->windows; w++) {
    const int32_t *tokens = r->eval + w * r->window;
    assert_ok(deltaic_session_reset(session));
    assert_ok(deltaic_session_eval(session, tokens, r->window, DELTAIC_LOGITS_ALL, all));
    for (size_t t = 0; t + 1 < r->window; t++) sum += nll_of_row(all + t * r->V, r->V, tokens[t + 1]);
  }
  double nll = sum / (double)(r->windows * (r->window - 1));
  if (!(fabs(nll - r->nll) <= 1e-4)) fail_msg("mean NLL %.6f, expected %.6f", nll, r->nll);
  print_message("    mean NLL %.6f (reference %.6f)\n", nll, r->nll);
  deltaic_session_free(session);
  free(all);
}

// In the first `count` of the pieces that a text may be cut into.
static void check_model(deltaic_device *device, const char *path, const char *reference, size_t count) {
  static const size_t pieces[] = {0, 1, 63, 64, 65};
  struct reference r = reference_open(reference);
  deltaic_model *model = open_model(device, path);
  for (size_t i = 0; i < count; i++) check_logits(model, &r, pieces[i], 0);
  check_logits(model, &r, 0, 70); // slices that the library cuts itself, of a size that divides nothing
  check_outputs(model, &r);
  check_greedy(model, &r);
  check_nll(model, &r);
  deltaic_model_close(model);
  checkpoint_close(r.file);
}

static void check_fast(deltaic_device *device, const char *path, const char *reference, double limit) {
  struct reference r = reference_open(reference);
  deltaic_model *model = open_model(device, path);
  float *all = malloc(r.n * r.V * sizeof *all);
  assert_non_null(all);
  deltaic_session *session = open_session(model, NULL);
  assert_ok(deltaic_session_eval(session, r.ids, r.n, DELTAIC_LOGITS_ALL, all));
  double error = error_of(&r, all);
  print_message("  %s on %s, fast: relative RMS %.1e\n", path + strlen(TESTS_DIR "/vectors/models/"),
                device_name(device), error);
  if (!(error <= limit)) fail_msg("%s: relative RMS %.2e", path, error);
  close_session(session, model);
  checkpoint_close(r.file);
  free(all);
}

// Lavapipe has matrix units where a test of the stage "rest" asks for them.
static bool has_matrices(const deltaic_device *device) {
  return device->backend->functions->name[0] == 'v' && vulkan_device(device->backend)->plan.matrix_mixers;
}

// Operands of 16 bits: a thousand times the error of float32, and a tenth of what bf16 programs have. On lavapipe's
// matrix units qwen3_next stands for the last three: it has dense layers, experts and grouped value heads.
static void fast_prompts_stay_near_float64(deltaic_device *device) {
  static const char *const models[] = {"tiny_delta_net_swa",     "tiny_hh_gated_dynamic",    "tiny_mamba2_options",
                                       "tiny_gated_deltanet_h2", "tiny_gated_delta_product", "ablation_transformer",
                                       "released_olmo_hybrid",   "released_qwen3_next",      "tiny_gated_deltanet_gva",
                                       "released_qwen3_5",       "released_qwen3_5_moe"};
  for (int i = 0; i < models_for(device, 11, has_matrices(device) ? 8 : 2); i++) {
    char path[512], reference[600];
    snprintf(path, sizeof path, TESTS_DIR "/vectors/models/%s", models[i]);
    snprintf(reference, sizeof reference, "%s/reference.safetensors", path);
    check_fast(device, path, reference, 2e-3);
  }
}

// Decoded weights are rounded to f16 too.
static void fast_prompts_of_quantized_weights_stay_near_float64(deltaic_device *device) {
  const char *const folder = TESTS_DIR "/vectors/models/gguf_blocks";
  char path[512], reference[600];
  if (!test_all_on(device) && !has_matrices(device)) return; // each format is a pipeline
  snprintf(path, sizeof path, "%s/model.gguf", folder);
  snprintf(reference, sizeof reference, "%s/reference.safetensors", folder);
  check_fast(device, path, reference, 1e-2);
}

// A folder for a checkpoint that a test makes.
struct made {
  char folder[32], config[64], weights[64];
};

static struct made made_begin(void) {
  struct made m;
  snprintf(m.folder, sizeof m.folder, "test_models.%u", platform_process());
  assert_int_equal(platform_make_folder(m.folder, true), 0);
  snprintf(m.config, sizeof m.config, "%s/config.json", m.folder);
  snprintf(m.weights, sizeof m.weights, "%s/model.safetensors", m.folder);
  return m;
}

static void made_end(const struct made *m) { unlink(m->config), unlink(m->weights), rmdir(m->folder); }

#define WIDE TESTS_DIR "/vectors/models/tiny_gated_deltanet"

// WIDE with two weights that are infinite as f16.
static void write_wide(const char *config, const char *weights) {
  struct file_view view;
  struct checkpoint *c;
  const uint16_t value = 0x47c3; // 99,840 as bf16
  assert_ok(file_map(WIDE "/config.json", &view));
  assert_ok(file_replace(config, view.data, view.bytes));
  file_unmap(&view);
  assert_ok(file_map(WIDE "/model.safetensors", &view));
  char *data = malloc(view.bytes);
  assert_non_null(data);
  memcpy(data, view.data, view.bytes);
  assert_ok(checkpoint_open(WIDE "/model.safetensors", &c));
  const char *base = (const char *)checkpoint_at(c, 0)->data; // of the tensors' bytes
  uint64_t tensors = 0;
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const struct file_tensor *t = checkpoint_at(c, i);
    if ((const char *)t->data < base) base = t->data;
    tensors += t->bytes;
  }
  char *first = data + view.bytes - tensors;
  const char *const names[] = {"model.layers.0.mlp.down_proj.weight", "model.layers.1.mlp.gate_proj.weight"};
  for (int i = 0; i < 2; i++)
    memcpy(first + ((const char *)checkpoint_find(c, names[i])->data - base) + 6, &value, sizeof value);
  assert_ok(file_replace(weights, data, view.bytes));
  checkpoint_close(c);
  file_unmap(&view);
  free(data);
}

// Such matrices go through the kernels of float32.
static void fast_takes_weights_beyond_f16(deltaic_device *device) {
  enum { N = 70, V = 512 };
  static float logits[2][V];
  struct made made = made_begin();
  write_wide(made.config, made.weights);
  deltaic_model *model = open_model(device, made.folder);
  const deltaic_model_info info = info_of(model);
  assert_true(info.vocabulary <= V);
  int32_t ids[N];
  for (int i = 0; i < N; i++) ids[i] = (i * i + 3) % (int32_t)info.vocabulary;
  double error = 0, size = 0;
  for (int i = 0; i < 2; i++) {
    deltaic_session *session = open_session(model, i ? NULL : &exact);
    assert_ok(deltaic_session_eval(session, ids, N, DELTAIC_LOGITS_LAST, logits[i]));
    deltaic_session_free(session);
  }
  for (int32_t i = 0; i < info.vocabulary; i++) {
    error += pow((double)logits[1][i] - logits[0][i], 2);
    size += pow(logits[0][i], 2);
  }
  print_message("  wide weights on %s, fast: relative RMS %.1e\n", device_name(device), sqrt(error / size));
  assert_true(error <= 2e-3 * 2e-3 * size);
  deltaic_model_close(model);
  made_end(&made);
}

#define HEADS TESTS_DIR "/vectors/models/ablation_transformer"

// HEADS, to be made again.
struct remade {
  struct made files;
  struct checkpoint *from;
  json_t *header;
  char *data;
  uint64_t used;
};
enum { ROOM = 1 << 18 };

static struct remade remade_begin(void) {
  struct remade r = {.files = made_begin(), .header = json_object(), .data = calloc(ROOM, 1)};
  assert_non_null(r.data);
  assert_ok(checkpoint_open(HEADS "/model.safetensors", &r.from));
  return r;
}

// Where the numbers of a tensor go that comes next: zeros.
static void *append(struct remade *r, const char *name, const char *dtype, json_t *shape, uint64_t bytes) {
  void *data = r->data + r->used;
  assert_true(r->used + bytes <= ROOM);
  json_object_set_new(r->header, name,
                      json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape, "data_offsets",
                                (json_int_t)r->used, (json_int_t)(r->used + bytes)));
  r->used += bytes;
  return data;
}

// With this config, which it takes, it computes what HEADS does.
static void remade_end(struct remade *r, deltaic_device *device, json_t *config) {
  assert_int_equal(json_dump_file(config, r->files.config, 0), 0);
  write_checkpoint(r->files.weights, r->header, r->data, r->used, 0);
  check_model(device, r->files.folder, HEADS "/reference.safetensors", 2);
  json_decref(r->header);
  json_decref(config);
  checkpoint_close(r->from);
  free(r->data);
  made_end(&r->files);
}

// Where number i of rows of heads of 8 goes when heads have 32: zeros follow each head.
static uint64_t padded(uint64_t i) { return i / 8 * 32 + i % 8; }

// Appends a tensor of bf16 with its heads padded. Queries are doubled, as scores are divided by sqrt(32) instead of
// sqrt(8); so is the output projection, as the gate halves its input.
static void pad_heads(struct remade *r, const struct file_tensor *t) {
  const bool q = strstr(t->name, "attn.q_proj"), o = strstr(t->name, "attn.o_proj");
  const bool rows = q || strstr(t->name, "attn.k_proj") || strstr(t->name, "attn.v_proj");
  const uint64_t N = t->shape[0], K = t->rank > 1 ? t->shape[1] : 1, to_N = rows ? 4 * N : N, to_K = o ? 4 * K : K;
  json_t *shape =
      t->rank > 1 ? json_pack("[I,I]", (json_int_t)to_N, (json_int_t)to_K) : json_pack("[I]", (json_int_t)to_N);
  uint16_t *data = append(r, t->name, "BF16", shape, 2 * to_N * to_K);
  for (uint64_t n = 0; n < N; n++)
    for (uint64_t k = 0; k < K; k++) {
      uint16_t x = ((const uint16_t *)t->data)[n * K + k];
      if ((q || o) && x & 0x7fff) x = (uint16_t)(x + 0x80);
      data[(rows ? padded(n) : n) * to_K + (o ? padded(k) : k)] = x;
    }
}

// HEADS with heads of 32 numbers, of which 8 are rotated, and a gate: the same function of the tokens.
static void heads_may_be_larger_gated_and_rotated_in_part(deltaic_device *device) {
  if (!test_all_on(device)) return; // test_ops_vulkan rotates heads in part, and has gates
  struct remade r = remade_begin();
  json_t *config = json_load_file(HEADS "/config.json", 0, NULL);
  for (uint64_t i = 0; i < checkpoint_count(r.from); i++) pad_heads(&r, checkpoint_at(r.from, i));
  // A gate of weights 0 halves what attention gives; the padding, which is 0, has gates of its own.
  for (int layer = 0; layer < 2; layer++) {
    char name[64];
    snprintf(name, sizeof name, "model.layers.%d.attn.g_proj.weight", layer);
    uint16_t *gate = append(&r, name, "BF16", json_pack("[i,i]", 4 * 32, 32), 2 * 4 * 32 * 32);
    for (int i = 0; i < 4 * 32 * 32; i++) gate[i] = i / 32 % 32 < 8 ? 0 : i % 3 ? 0x4040 : 0xc080; // 3, -4
  }
  json_object_set_new(config, "head_dim", json_integer(32));
  json_object_set_new(config, "partial_rotary_factor", json_real(0.25));
  json_object_set_new(config, "attn_output_gate", json_true());
  remade_end(&r, device, config);
}

// HEADS as Qwen2 calls its tensors and its config's keys.
static void qwen2_is_a_transformer_of_other_names(deltaic_device *device) {
  if (!test_all_on(device)) return; // no kernel knows a name
  static const char *const renamed[][2] = {{"embeddings", "embed_tokens"},
                                           {"attn_norm", "input_layernorm"},
                                           {"mlp_norm", "post_attention_layernorm"},
                                           {".attn.", ".self_attn."}};
  struct remade r = remade_begin();
  for (uint64_t i = 0; i < checkpoint_count(r.from); i++) {
    const struct file_tensor *t = checkpoint_at(r.from, i);
    char name[128];
    json_t *shape = json_array();
    for (int k = 0; k < t->rank; k++) json_array_append_new(shape, json_integer((json_int_t)t->shape[k]));
    snprintf(name, sizeof name, "%s", t->name);
    for (int k = 0; k < 4; k++) {
      const char *at = strstr(t->name, renamed[k][0]);
      if (at)
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - t->name), t->name, renamed[k][1],
                 at + strlen(renamed[k][0]));
    }
    memcpy(append(&r, name, t->dtype_name, shape, t->bytes), t->data, t->bytes);
  }
  json_t *config = json_pack("{s:s,s:i,s:i,s:f,s:i,s:i,s:i,s:i,s:f}", "model_type", "qwen2", "num_attention_heads", 4,
                             "num_key_value_heads", 2, "rope_theta", 500.0, "hidden_size", 32, "num_hidden_layers", 2,
                             "vocab_size", 64, "intermediate_size", 48, "rms_norm_eps", 1e-6);
  remade_end(&r, device, config);
}

static void check_all(deltaic_device *device, const char *prefix, const char *const *names, int count) {
  for (int i = 0; i < count; i++) {
    char path[512], reference[600];
    snprintf(path, sizeof path, TESTS_DIR "/vectors/models/%s%s", prefix, names[i]);
    snprintf(reference, sizeof reference, "%s/reference.safetensors", path);
    print_message("  %s on %s\n", names[i], device_name(device));
    check_model(device, path, reference, 5);
  }
}

static void tiny_models_compute_their_float64_references(deltaic_device *device) {
  check_all(device, "", tiny, models_for(device, TINY, 5));
}

static void ablations_and_transformers_compute_their_float64_references(deltaic_device *device) {
  check_all(device, "ablation_", random_models, models_for(device, RANDOM, 1));
}

static void released_families_compute_their_float64_references(deltaic_device *device) {
  check_all(device, "released_", released, RELEASED);
}

// As they are in the file, mixtures included; on a GPU in tiles, which fill up the file's rows of 128.
static void quantized_weights_stay_quantized(deltaic_device *device) {
  deltaic_model_info info;
  deltaic_memory memory;
  assert_ok(deltaic_model_inspect(device, TESTS_DIR "/vectors/models/gguf_blocks/model.gguf", NULL, &info, &memory));
  print_message("  %s\n", info.formats);
  deltaic_device_info on;
  deltaic_device_get_info(device, &on);
  const bool tiles = on.kind != DELTAIC_DEVICE_CPU;
  assert_string_equal(
      info.formats,
      tiles
          ? "25 % q4_k, 12 % f16, 11 % f32, 11 % q5_0, 9 % q4_0, 9 % iq4_nl, 8 % q5_k, 7 % q6_k, 5 % q8_0, 3 % iq4_xs"
          : "31 % q4_k, 14 % f16, 14 % f32, 10 % q5_k, 8 % q6_k, 6 % q8_0, 5 % iq4_nl, 5 % q5_0, 4 % q4_0, 4 % iq4_xs");
  assert_int_equal(info.context, 4096);
  assert_in_range(memory.weights_bytes, tiles ? 370000 : 290000, tiles ? 430000 : 350000); // the file has 305,000
}

// Bytes of the buffers that exist, counted where a backend creates and frees them.
static struct {
  const struct backend_functions *real;
  uint64_t now;
} counted;

static deltaic_status create_counted(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                     struct buffer *out) {
  const deltaic_status status = counted.real->buffer_create(b, kind, bytes, what, out);
  if (status == DELTAIC_OK) counted.now += bytes;
  return status;
}

static void free_counted(struct backend *b, struct buffer *buffer) {
  counted.now -= buffer->bytes;
  counted.real->buffer_free(b, buffer);
}

// What deltaic_model_inspect() says before anything is loaded, against the buffers of a loaded model and its session.
static void memory_before_loading_is_the_memory_used(deltaic_device *device) {
  static const char *const names[] = {"gguf_blocks/model.gguf", "gguf_qwen3_5/model.gguf",
                                      "gguf_qwen3_5_moe/model.gguf", "tiny_gated_deltanet"};
  struct backend_functions counting = *device->backend->functions;
  counted.real = device->backend->functions;
  counting.buffer_create = create_counted;
  counting.buffer_free = free_counted;
  device->backend->functions = &counting;
  for (int i = 0; i < 4; i++)
    for (int precise = 0; precise < 2; precise++) {
      char path[512];
      deltaic_memory memory;
      const deltaic_session_options *options = precise ? &exact : NULL;
      snprintf(path, sizeof path, TESTS_DIR "/vectors/models/%s", names[i]);
      assert_ok(deltaic_model_inspect(device, path, options, NULL, &memory));
      counted.now = 0;
      deltaic_model *model = open_model(device, path);
      const uint64_t weights = counted.now;
      deltaic_session *session = open_session(model, options);
      const uint64_t rest = memory.state_bytes + memory.scratch_bytes, used = counted.now - weights;
      print_message("  %s on %s: weights %llu of %llu, session %llu of %llu\n", names[i], device_name(device),
                    (unsigned long long)memory.weights_bytes, (unsigned long long)weights, (unsigned long long)rest,
                    (unsigned long long)used);
      assert_true(fabs((double)memory.weights_bytes - (double)weights) <= 0.02 * (double)weights);
      assert_true(fabs((double)rest - (double)used) <= 0.02 * (double)used);
      deltaic_session_free(session);
      deltaic_model_close(model);
      assert_true(counted.now == 0);
    }
  device->backend->functions = counted.real;
}

// Nothing is loaded; the sentence names the sizes and a format that would fit.
static void models_that_do_not_fit_are_refused(deltaic_device *device) {
  const char *const path = TESTS_DIR "/vectors/models/gguf_qwen3_5/model.gguf";
  deltaic_memory memory;
  deltaic_model *model;
  const uint64_t all = device->backend->info.memory_bytes;
  assert_ok(deltaic_model_inspect(device, path, NULL, NULL, &memory));
  device->backend->info.memory_bytes = memory.weights_bytes;
  assert_ok(deltaic_model_open(device, path, NULL, &model));
  deltaic_model_close(model);
  device->backend->info.memory_bytes = memory.weights_bytes - 1;
  assert_int_equal(deltaic_model_open(device, path, NULL, &model), DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "gguf_qwen3_5/model.gguf: its weights take "));
  assert_non_null(strstr(deltaic_last_error(), " KiB; in f16 they would take "));
  device->backend->info.memory_bytes = 1000;
  assert_int_equal(deltaic_model_open(device, path, NULL, &model), DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), " has 1000 bytes free of 1000 bytes"));
  assert_null(strstr(deltaic_last_error(), "would take"));
  device->backend->info.memory_bytes = all;
}

// GGUF files (vectors/make_gguf.py): folders of released families as one file, and one of quantized weights.
static void gguf_files_compute_their_float64_references(deltaic_device *device) {
  static const char *const names[][2] = {{"gguf_qwen3_5", "released_qwen3_5"},
                                         {"gguf_blocks", "gguf_blocks"},
                                         {"gguf_qwen3_5_moe", "released_qwen3_5_moe"},
                                         {"gguf_qwen3_next", "gguf_qwen3_next"},
                                         {"gguf_qwen3_next_joined", "gguf_qwen3_next"}};
  for (int i = 0; i < models_for(device, 5, 2); i++) {
    char path[512], reference[600];
    snprintf(path, sizeof path, TESTS_DIR "/vectors/models/%s/model.gguf", names[i][0]);
    snprintf(reference, sizeof reference, TESTS_DIR "/vectors/models/%s/reference.safetensors", names[i][1]);
    print_message("  %s on %s\n", names[i][0], device_name(device));
    check_model(device, path, reference, 5);
  }
}

static void the_default_model_computes_its_float64_reference(deltaic_device *device) {
  print_message("  novelist on %s\n", device_name(device));
  // Whole and in slices of 70; the tiny models have the pieces.
  check_model(device, MODELS_DIR "/novelist", TESTS_DIR "/vectors/models/novelist.safetensors", 1);
}

// DELTAIC_TEST_FILTER: only the tests that match it.
int main(void) {
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  const struct CMUnitTest tests[] = {
      device_test(tiny_models_compute_their_float64_references),
      device_test(ablations_and_transformers_compute_their_float64_references),
      device_test(released_families_compute_their_float64_references),
      device_test(quantized_weights_stay_quantized),
      device_test(models_that_do_not_fit_are_refused),
      device_test(gguf_files_compute_their_float64_references),
      device_test(memory_before_loading_is_the_memory_used),
      device_test(the_default_model_computes_its_float64_reference),
      device_test(heads_may_be_larger_gated_and_rotated_in_part),
      device_test(qwen2_is_a_transformer_of_other_names),
      device_test(fast_prompts_stay_near_float64),
      device_test(fast_prompts_of_quantized_weights_stay_near_float64),
      device_test(fast_takes_weights_beyond_f16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
