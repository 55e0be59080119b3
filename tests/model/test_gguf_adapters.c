// test_gguf_adapters: LoRA adapters over GGUF files compute what they do merged into the folder's weights, whatever the
// type of the file's weights is, on the CPU and on every Vulkan device.
#define _GNU_SOURCE
#include "checkpoint.h" // before cmocka, whose macro fail() would hide ours
#include "device_handle.h"
#include "model.h"
#include "tensor_file.h"

#include "test_folder.h"

#include "devices.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#define MODELS TESTS_DIR "/vectors/models/"
#define LAYER "base_model.model.model.language_model.layers."
enum { TOKENS = 40, LANES = 3, RANK = 3 };

static const deltaic_session_options fast = {.size = sizeof fast};

// ---------------------------------------------------------------- random numbers

static uint64_t seed;

// From -size to size.
static float next_number(float size) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return size * ((float)(seed >> 40) * 0x1p-23f - 1);
}

static void next_numbers(float *x, uint64_t n, float size) {
  for (uint64_t i = 0; i < n; i++) x[i] = next_number(size);
}

// ---------------------------------------------------------------- writing

// A file of f32 tensors, which is kept until it is written.
struct written {
  struct {
    char name[400];
    int rank;
    uint64_t shape[FILE_RANK], count;
    float *x;
  } tensors[256];
  int count;
};

static float *add(struct written *w, const char *name, int rank, const uint64_t *shape) {
  assert_true(w->count < 256);
  snprintf(w->tensors[w->count].name, sizeof w->tensors->name, "%s", name);
  w->tensors[w->count].rank = rank;
  w->tensors[w->count].count = 1;
  for (int i = 0; i < rank; i++) w->tensors[w->count].count *= w->tensors[w->count].shape[i] = shape[i];
  w->tensors[w->count].x = calloc(w->tensors[w->count].count + 1, sizeof(float));
  assert_non_null(w->tensors[w->count].x);
  return w->tensors[w->count++].x;
}

static void write_all(struct written *w, const char *path) {
  struct tensor_file file;
  tensor_file_begin(&file, path, NULL);
  for (int i = 0; i < w->count; i++)
    tensor_file_declare(&file, w->tensors[i].name, "F32", w->tensors[i].rank, w->tensors[i].shape,
                        w->tensors[i].count * sizeof(float));
  tensor_file_write_header(&file);
  for (int i = 0; i < w->count; i++) {
    tensor_file_append(&file, w->tensors[i].x, w->tensors[i].count * sizeof(float));
    free(w->tensors[i].x);
  }
  assert_ok(tensor_file_end(&file));
  free(w);
}

static struct written *begin(void) {
  struct written *w = calloc(1, sizeof *w);
  assert_non_null(w);
  return w;
}

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  assert_true(f && fwrite(text, 1, strlen(text), f) == strlen(text) && !fclose(f));
}

// ---------------------------------------------------------------- models

// The path of a file in the test's folder, which stays valid for the next 15 calls.
static const char *copied(const char *name) {
  static char names[16][512];
  static int next;
  char *to = names[next++ % 16];
  snprintf(to, 512, "%s", in_folder(name));
  return to;
}

// Makes a folder in the test's folder.
static const char *make(const char *name) {
  const char *path = copied(name);
  (void)platform_make_folder(path, false);
  return path;
}

static const char *inside(const char *path, const char *name) {
  static char text[600];
  snprintf(text, sizeof text, "%s/%s", path, name);
  return text;
}

static void put(struct written *w, uint32_t layer, const char *name, uint64_t rows, uint64_t cols) {
  char text[256];
  const uint64_t shape[3] = {rows, strstr(name, "conv1d") ? 1 : cols, cols};
  snprintf(text, sizeof text, "model.language_model.layers.%u.%s", layer, name);
  const bool vector = !cols, conv = strstr(name, "conv1d") != NULL;
  float *x = add(w, text, vector ? 1 : conv ? 3 : 2, shape);
  next_numbers(x, rows * (vector ? 1 : cols), vector ? 0.4f : conv ? 0.5f : 1.7f / sqrtf((float)cols));
}

// Qwen3.5 of random weights. large: rows of whole blocks of every type, and three value heads for each key head. wordy:
// the output head's scratch is larger than a layer's. tied: the head is the embedding.
struct sizes {
  uint32_t D, F, H, Hv, Dk, Dv, heads, d, V; // the heads of attention have half as many keys
  bool tied;
};
static const struct sizes large = {256, 512, 2, 6, 64, 128, 4, 64, 96, false},
                          wordy = {32, 32, 1, 1, 32, 32, 2, 16, 9000, false},
                          tied = {32, 32, 1, 1, 32, 32, 2, 16, 9000, true};

static void write_config(const char *path, const struct sizes *z) {
  char text[1024];
  snprintf(text, sizeof text,
           "{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": %s, \"text_config\": {\"model_type\": "
           "\"qwen3_5_text\", \"hidden_size\": %u, \"num_hidden_layers\": 3, \"vocab_size\": %u, "
           "\"intermediate_size\": %u, \"num_attention_heads\": %u, \"num_key_value_heads\": %u, \"head_dim\": %u, "
           "\"linear_num_key_heads\": %u, \"linear_num_value_heads\": %u, \"linear_key_head_dim\": %u, "
           "\"linear_value_head_dim\": %u, \"linear_conv_kernel_dim\": 4, \"rms_norm_eps\": 1e-6, "
           "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1000.0, \"partial_rotary_factor\": "
           "0.25}, \"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"]}}",
           z->tied ? "true" : "false", z->D, z->V, z->F, z->heads, z->heads / 2, z->d, z->H, z->Hv, z->Dk, z->Dv);
  write_text(path, text);
}

static const char *random_model(const struct sizes *z) {
  const uint32_t values = z->Hv * z->Dv, qkv = 2 * z->H * z->Dk + values, q = z->heads * z->d;
  const char *path = make("random");
  struct written *w = begin();
  seed = 1;
  write_config(inside(path, "config.json"), z);
  next_numbers(add(w, "model.language_model.embed_tokens.weight", 2, (uint64_t[]){z->V, z->D}), z->V * z->D, 1);
  next_numbers(add(w, "model.language_model.norm.weight", 1, (uint64_t[]){z->D}), z->D, 0.4f);
  if (!z->tied) next_numbers(add(w, "lm_head.weight", 2, (uint64_t[]){z->V, z->D}), z->V * z->D, 0.1f);
  for (uint32_t i = 0; i < 3; i++) {
    put(w, i, "input_layernorm.weight", z->D, 0);
    put(w, i, "post_attention_layernorm.weight", z->D, 0);
    put(w, i, "mlp.gate_proj.weight", z->F, z->D);
    put(w, i, "mlp.up_proj.weight", z->F, z->D);
    put(w, i, "mlp.down_proj.weight", z->D, z->F);
    if (i == 1) {
      put(w, i, "self_attn.q_proj.weight", 2 * q, z->D);
      put(w, i, "self_attn.k_proj.weight", q / 2, z->D);
      put(w, i, "self_attn.v_proj.weight", q / 2, z->D);
      put(w, i, "self_attn.o_proj.weight", z->D, q);
      put(w, i, "self_attn.q_norm.weight", z->d, 0);
      put(w, i, "self_attn.k_norm.weight", z->d, 0);
      continue;
    }
    put(w, i, "linear_attn.A_log", z->Hv, 0);
    put(w, i, "linear_attn.dt_bias", z->Hv, 0);
    put(w, i, "linear_attn.conv1d.weight", qkv, 4);
    put(w, i, "linear_attn.norm.weight", z->Dv, 0);
    put(w, i, "linear_attn.out_proj.weight", z->D, values);
    put(w, i, "linear_attn.in_proj_qkv.weight", qkv, z->D);
    put(w, i, "linear_attn.in_proj_z.weight", values, z->D);
    put(w, i, "linear_attn.in_proj_a.weight", z->Hv, z->D);
    put(w, i, "linear_attn.in_proj_b.weight", z->Hv, z->D);
  }
  write_all(w, inside(path, "model.safetensors"));
  return path;
}

static const char *large_model(void) { return random_model(&large); }

// The folder with all weights as f32, so that merged sums are not rounded.
static const char *widened(const char *from) {
  const char *path = make("wide");
  struct checkpoint *c;
  struct written *w = begin();
  size_t size = 0;
  char text[1 << 14];
  assert_ok(checkpoint_open(from, &c));
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const struct file_tensor *t = checkpoint_at(c, i);
    float *x = add(w, t->name, t->rank, t->shape);
    file_tensor_f32(t, 0, w->tensors[w->count - 1].count, x);
  }
  checkpoint_close(c);
  write_all(w, inside(path, "model.safetensors"));
  FILE *f = fopen(inside(from, "config.json"), "rb");
  assert_non_null(f);
  size = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[size] = 0;
  write_text(inside(path, "config.json"), text);
  return path;
}

// ---------------------------------------------------------------- adapters

static bool ends(const char *name, const char *end) {
  return strlen(name) >= strlen(end) && !strcmp(name + strlen(name) - strlen(end), end);
}

// Tensors that are not run, or are of experts.
static bool left_out(const char *name) {
  static const char *const parts[] = {"mtp.", "visual.", "inv_freq", ".experts."};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strstr(name, parts[i])) return true;
  return false;
}

enum kind { WHOLE, PAIR, TABLE };

static enum kind kind_of(const struct file_tensor *t) {
  const bool matrix = t->rank == 2 && t->shape[0] > 1 && ends(t->name, ".weight");
  if (matrix && strstr(t->name, "embed")) return TABLE;
  return matrix && !strstr(t->name, "mixer.conv") && !strstr(t->name, "1.mlp.up_proj") &&
                 !strstr(t->name, "1.self_attn.k_proj")
             ? PAIR
             : WHOLE;
}

// PEFT's A and B of an embedding.
static void add_table(struct written *w, const struct file_tensor *t) {
  char name[512];
  const int stem = (int)(strlen(t->name) - strlen(".weight"));
  snprintf(name, sizeof name, "base_model.model.%.*s.lora_embedding_A", stem, t->name);
  next_numbers(add(w, name, 2, (uint64_t[]){RANK, t->shape[0]}), RANK * t->shape[0], 0.1f);
  snprintf(name, sizeof name, "base_model.model.%.*s.lora_embedding_B", stem, t->name);
  next_numbers(add(w, name, 2, (uint64_t[]){t->shape[1], RANK}), RANK * t->shape[1], 0.5f);
}

static void add_pair(struct written *w, const struct file_tensor *t) {
  char name[512];
  const int stem = (int)(strlen(t->name) - strlen(".weight"));
  snprintf(name, sizeof name, "base_model.model.%.*s.lora_A.weight", stem, t->name);
  next_numbers(add(w, name, 2, (uint64_t[]){RANK, t->shape[1]}), RANK * t->shape[1], 1 / sqrtf((float)t->shape[1]));
  snprintf(name, sizeof name, "base_model.model.%.*s.lora_B.weight", stem, t->name);
  next_numbers(add(w, name, 2, (uint64_t[]){t->shape[0], RANK}), RANK * t->shape[0], 0.5f);
}

static void add_whole(struct written *w, const struct file_tensor *t, const char *module, const char *end) {
  char name[512];
  snprintf(name, sizeof name, "base_model.model.%.*s%s%s", (int)(strlen(t->name) - strlen(end)), t->name, module, end);
  float *x = add(w, name, t->rank, t->shape);
  const uint64_t n = w->tensors[w->count - 1].count;
  file_tensor_f32(t, 0, n, x);
  for (uint64_t i = 0; i < n; i++) x[i] += next_number(0.1f * (1 + fabsf(x[i])));
}

// Layers with adapters have a base layer, whose bias or weight may be stored too.
static void add_changes(struct written *w, const struct file_tensor *t) {
  if (kind_of(t) == PAIR) add_pair(w, t);
  if (kind_of(t) == TABLE) add_table(w, t);
  if (ends(t->name, "0.mlp.down_proj.weight")) add_whole(w, t, ".base_layer", ".weight");
  if (kind_of(t) != WHOLE) return;
  const bool bias = ends(t->name, "proj.bias");
  add_whole(w, t, bias ? ".base_layer" : "", bias ? ".bias" : "");
}

static const char config[] = "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 4}";

// An adapter for every tensor of the folder's model; its matrices get pairs, with few exceptions.
static const char *make_adapter(const char *of, const char *name) {
  const char *path = make(name);
  struct checkpoint *c;
  struct written *w = begin();
  seed = 7;
  assert_ok(checkpoint_open(of, &c));
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const struct file_tensor *t = checkpoint_at(c, i);
    if (left_out(t->name)) continue;
    add_changes(w, t);
  }
  checkpoint_close(c);
  write_all(w, inside(path, "adapter_model.safetensors"));
  write_text(inside(path, "adapter_config.json"), config);
  return path;
}

// ---------------------------------------------------------------- logits

static deltaic_model *open_with(deltaic_device *device, const char *path, const char *adapter) {
  const deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  deltaic_model *model;
  assert_ok(deltaic_model_open(device, path, &o, &model));
  return model;
}

// The score that the device has computed is that of the logits.
static void check_score(const deltaic_score *score, const float *logits, size_t V, int32_t target, double limit) {
  double sum = 0;
  for (size_t i = 0; i < V; i++) sum += exp((double)logits[i] - logits[target]);
  assert_true(fabs(-log(sum) - (double)score->log_probability) < limit);
}

enum way { PROMPT, ONE_BY_ONE, TOGETHER };

// The logits of a short text; TOGETHER: of LANES sequences, of which the last is it, in two pieces.
static float *logits_of(deltaic_device *device, const char *path, const char *adapter, enum way way,
                        deltaic_session_options options, size_t *count) {
  deltaic_model *model = open_with(device, path, adapter);
  options.sequences = way == TOGETHER ? LANES : 1;
  deltaic_session *session = open_session(model, &options);
  const size_t V = (size_t)info_of(model).vocabulary;
  int32_t ids[TOKENS];
  float *logits = malloc(TOKENS * V * sizeof *logits);
  assert_non_null(logits);
  for (size_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)((7 * i * i + 3 * i + 1) % V);
  if (way == PROMPT) assert_ok(deltaic_session_eval(session, ids, TOKENS, DELTAIC_LOGITS_ALL, logits));
  for (size_t i = 0; way == ONE_BY_ONE && i < TOKENS; i++)
    assert_ok(deltaic_session_eval(session, ids + i, 1, DELTAIC_LOGITS_LAST, logits + i * V));
  for (size_t i = 0; way == TOGETHER && i < 2; i++) {
    deltaic_piece pieces[LANES];
    deltaic_score scores[TOKENS];
    const size_t first = i ? 5 : 0, n = i ? TOKENS - 5 : 5;
    for (uint32_t k = 0; k < LANES; k++)
      pieces[k] = (deltaic_piece){.sequence = k, .tokens = ids + k, .count = 3 + k, .logits = DELTAIC_LOGITS_NONE};
    pieces[LANES - 1] = (deltaic_piece){.sequence = LANES - 1,
                                        .tokens = ids + first,
                                        .count = n,
                                        .logits = DELTAIC_LOGITS_ALL,
                                        .out = logits + first * V,
                                        .targets = ids,
                                        .scores = scores};
    assert_ok(deltaic_session_eval_batch(session, pieces, LANES));
    for (size_t t = 0; t < n; t++)
      check_score(&scores[t], logits + (first + t) * V, V, ids[t], options.precision ? 1e-4 : 0.05);
  }
  close_session(session, model);
  *count = TOKENS * V;
  return logits;
}

static double distance(const float *x, const float *y, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    size += (double)x[i] * x[i];
  }
  assert_true(isfinite(error) && size > 0);
  return sqrt(error / size);
}

static deltaic_status quantize_with(const char *from, const char *adapter, const char *to, const char *type) {
  const deltaic_quantize_options o = {.size = sizeof o, .type = type, .force = true, .threads = 2, .adapter = adapter};
  return deltaic_quantize(from, to, &o, NULL);
}

static void quantize(const char *from, const char *to, const char *type) {
  assert_ok(quantize_with(from, NULL, to, type));
}

// ---------------------------------------------------------------- tests

// Merged into the folder's f32, and over a file of the same numbers; and what is that without the adapter?
static void check_folder(deltaic_device *device, const char *folder_path, const char *name) {
  const char *adapter = make_adapter(folder_path, "adapter"), *file = copied("f32.gguf");
  size_t n;
  quantize(folder_path, file, "f32");
  float *merged = logits_of(device, folder_path, adapter, PROMPT, exact, &n),
        *without = logits_of(device, folder_path, NULL, PROMPT, exact, &n),
        *over = logits_of(device, file, adapter, PROMPT, exact, &n);
  const double error = distance(merged, over, n), change = distance(merged, without, n);
  const double limit = ends(name, "identity_none") ? 2e-5 : 5e-6; // keys without a norm amplify what is rounded
  if (!(error <= limit) || !(change > 0.02)) fail_msg("%s: %g; without the adapter %g", name, error, change);
  free(merged);
  free(without);
  free(over);
}

static bool is_folder_of_a_model(const char *path) { return !access(inside(path, "config.json"), F_OK); }

static void on_cpu(test_of_device test) {
  const deltaic_device_options options = {.size = sizeof options, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 2};
  const deltaic_context_options none = {.size = sizeof none, .cache_dir = ""};
  deltaic_context *context;
  deltaic_device *cpu;
  assert_ok(deltaic_context_create(&none, &context));
  assert_ok(deltaic_device_open(context, &options, &cpu));
  test(cpu);
  deltaic_device_close(cpu);
  deltaic_context_free(context);
}

static void check_folders(deltaic_device *cpu) {
  DIR *all = opendir(MODELS);
  struct dirent *e;
  int count = 0;
  assert_non_null(all);
  while ((e = readdir(all))) {
    char path[512];
    snprintf(path, sizeof path, MODELS "%s", e->d_name);
    if (*e->d_name == '.' || !is_folder_of_a_model(path)) continue;
    check_folder(cpu, widened(path), e->d_name);
    count++;
  }
  closedir(all);
  assert_true(count > 30);
}

static void every_family_computes_what_its_merged_folder_does(void **state) { on_cpu(check_folders); }

static void qwen_computes_what_its_merged_folder_does(deltaic_device *device) {
  check_folder(device, large_model(), "large");
  const char *path = random_model(&wordy);
  check_folder(device, path, "wordy");
  check_folder(device, random_model(&tied), "tied");
  size_t n;
  free(logits_of(device, copied("f32.gguf"), copied("adapter"), TOGETHER, exact, &n));
}

// The file's own numbers in f32, with the same adapter, and their logits by every way to read the text.
static void check_type(deltaic_device *device, const char *adapter, const char *type, double limit) {
  const char *small = copied("small.gguf"), *wide = copied("decoded.gguf");
  size_t n;
  quantize(copied("random"), small, type);
  quantize(small, wide, "f32");
  float *reference = logits_of(device, wide, adapter, PROMPT, exact, &n);
  for (enum way way = PROMPT; way <= TOGETHER; way++) {
    float *x = logits_of(device, small, adapter, way, exact, &n);
    float *y = logits_of(device, small, adapter, way, fast, &n);
    const double error = distance(reference, x, n), rounded = distance(reference, y, n);
    print_message("  %s, way %d: %.1e, fast %.1e\n", type, (int)way, error, rounded);
    if (!(error <= 5e-6) || !(rounded <= limit)) fail_msg("%s, way %d: %g, fast %g", type, (int)way, error, rounded);
    free(x);
    free(y);
  }
  free(reference);
}

static void blocks_stay_and_compute_what_their_numbers_do(deltaic_device *device) {
  const char *adapter = make_adapter(large_model(), "adapter");
  check_type(device, adapter, "q8_0", 1e-2);
  check_type(device, adapter, "q4_k_m", 1e-2);
  check_type(device, adapter, "iq4_xs", 1e-2);
}

// Numbers of A or B outside the range of f16, for which a fast session has no f16 copy.
static void large_factors_are_not_rounded(deltaic_device *device) {
  const char *path = copied("small.gguf"), *adapter = make("adapter");
  size_t n;
  quantize(large_model(), path, "q8_0");
  for (int large_A = 0; large_A < 2; large_A++) {
    struct written *w = begin();
    seed = 5;
    for (int i = 0; i < 2; i++) {
      const bool is_A = i == 0;
      const uint64_t shape[] = {is_A ? RANK : 512, is_A ? 256 : RANK}, count = shape[0] * shape[1];
      char name[400];
      snprintf(name, sizeof name, LAYER "0.mlp.up_proj.lora_%c.weight", is_A ? 'A' : 'B');
      next_numbers(add(w, name, 2, shape), count, is_A == (large_A != 0) ? 1e6f : 1e-7f);
    }
    write_all(w, inside(adapter, "adapter_model.safetensors"));
    write_text(inside(adapter, "adapter_config.json"), config);
    float *x = logits_of(device, path, adapter, PROMPT, exact, &n),
          *y = logits_of(device, path, adapter, PROMPT, fast, &n);
    const double error = distance(x, y, n);
    if (!(error <= 1e-2)) fail_msg("%g", error);
    free(x);
    free(y);
  }
}

// What a model is said to take, before and after it is opened; and one that lacks room for its adapter.
static void memory_counts_adapters(deltaic_device *device) {
  const char *adapter = make_adapter(large_model(), "adapter"), *path = copied("small.gguf");
  const deltaic_model_options options = {.size = sizeof options, .adapter = adapter};
  deltaic_memory without, before, after;
  deltaic_model *model;
  quantize(copied("random"), path, "q4_k_m");
  assert_ok(deltaic_model_inspect(device, path, NULL, NULL, &without));
  assert_ok(deltaic_model_inspect_with(device, path, &options, NULL, NULL, &before));
  model = open_with(device, path, adapter);
  assert_ok(deltaic_model_get_memory(model, NULL, &after));
  assert_int_equal(before.weights_bytes, after.weights_bytes);
  assert_int_equal(before.scratch_bytes, after.scratch_bytes);
  uint64_t used = 0;
  for (uint64_t i = 0; i < model->weights.arena.block_count; i++) used += model->weights.arena.blocks[i].bytes;
  assert_true(fabs((double)used - (double)before.weights_bytes) <= 0.02 * (double)used);
  assert_true(before.weights_bytes > without.weights_bytes + 100000);
  assert_non_null(strstr(info_of(model).formats, "q4_k"));
  deltaic_model_close(model);
  const uint64_t all = device->backend->info.memory_bytes;
  device->backend->info.memory_bytes = before.weights_bytes - 1;
  assert_int_equal(deltaic_model_open(device, path, &options, &model), DELTAIC_OUT_OF_MEMORY);
  device->backend->info.memory_bytes = all;
}

// Merged before the numbers are encoded.
static void check_merged(deltaic_device *device) {
  static const char *const names[] = {"released_qwen3_5", "released_qwen3_next", "tiny_gated_delta_product"};
  const char *whole = copied("whole.gguf"), *small = copied("small.gguf"), *again = copied("again.gguf");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char from[512];
    size_t n;
    snprintf(from, sizeof from, MODELS "%s", names[i]);
    const char *path = widened(from), *adapter = make_adapter(path, "adapter");
    assert_ok(quantize_with(path, adapter, whole, "f32"));
    assert_ok(quantize_with(path, adapter, small, "q8_0"));
    quantize(whole, again, "q8_0");
    float *merged = logits_of(device, path, adapter, PROMPT, exact, &n),
          *x = logits_of(device, whole, NULL, PROMPT, exact, &n),
          *y = logits_of(device, small, NULL, PROMPT, exact, &n),
          *z = logits_of(device, again, NULL, PROMPT, exact, &n);
    if (!(distance(merged, x, n) <= 5e-6) || distance(y, z, n) > 0)
      fail_msg("%s: %g, %g", names[i], distance(merged, x, n), distance(y, z, n));
    free(merged);
    free(x);
    free(y);
    free(z);
    assert_int_equal(quantize_with(whole, adapter, small, "q8_0"), DELTAIC_UNSUPPORTED);
    ASSERT_MESSAGE("whole.gguf: is a GGUF file; adapters are merged into a model's folder only");
  }
}

static void quantizing_merges_adapters(void **state) { on_cpu(check_merged); }

static uint64_t fingerprint(deltaic_device *device, const char *path, const char *adapter) {
  deltaic_model *model = open_with(device, path, adapter);
  const uint64_t found = info_of(model).fingerprint;
  deltaic_model_close(model);
  return found;
}

static void models_with_other_adapters_are_others(deltaic_device *device) {
  const char *adapter = make_adapter(large_model(), "adapter"), *path = copied("small.gguf");
  quantize(copied("random"), path, "q8_0");
  const uint64_t without = fingerprint(device, path, NULL), with = fingerprint(device, path, adapter);
  assert_true(with == fingerprint(device, path, adapter));
  write_text(inside(adapter, "adapter_config.json"), "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 5}");
  const uint64_t scaled = fingerprint(device, path, adapter);
  write_text(inside(adapter, "adapter_config.json"), "{\"r\": 3, \"lora_alpha\": 5, \"use_rslora\": true}");
  const uint64_t root = fingerprint(device, path, adapter);
  assert_true(without != with && with != scaled && without != scaled && scaled != root && root != with);
}

// ---------------------------------------------------------------- what is refused

struct wrong {
  const char *name, *other; // two tensors; other NULL: one
  uint64_t shape[2], more[2];
  const char *message;
};

static void adapters_that_do_not_fit_are_refused(deltaic_device *device) {
  static const struct wrong wrongs[] = {
      {LAYER "0.linear_attn.in_proj_z.lora_A.weight",
       LAYER "0.linear_attn.in_proj_z.lora_B.weight",
       {3, 128},
       {768, 3},
       "in_proj_z.lora_A.weight does not fit tensor blk.0.attn_gate.weight of "},
      {LAYER "0.linear_attn.in_proj_z.lora_A.weight",
       LAYER "0.linear_attn.in_proj_z.lora_B.weight",
       {3, 256},
       {767, 3},
       "in_proj_z.lora_A.weight does not fit tensor blk.0.attn_gate.weight of "},
      {LAYER "0.linear_attn.in_proj_qkv.lora_A.weight",
       LAYER "0.linear_attn.in_proj_qkv.lora_B.weight",
       {3, 256},
       {1024, 2},
       "in_proj_qkv.lora_A.weight does not fit tensor blk.0.attn_qkv.weight of "},
      {LAYER "0.linear_attn.in_proj_qkv.lora_A.weight",
       LAYER "0.linear_attn.in_proj_qkv.lora_B.weight",
       {2, 256},
       {1024, 2},
       "in_proj_qkv.lora_A.weight has rank 2, and r of adapter_config.json is 3"},
      {LAYER "0.linear_attn.in_proj_qkv.lora_A.weight", NULL, {3, 256}, {0}, "is without its B, lora_B.weight"},
      {LAYER "0.linear_attn.in_proj_qkv.lora_B.weight", NULL, {1024, 3}, {0}, "is without its A, lora_A.weight"},
      {LAYER "3.mlp.up_proj.lora_A.weight",
       LAYER "3.mlp.up_proj.lora_B.weight",
       {3, 256},
       {512, 3},
       "3.mlp.up_proj.lora_A.weight is for no tensor of "},
      {LAYER "1.mlp.experts.7.up_proj.lora_A.weight",
       LAYER "1.mlp.experts.7.up_proj.lora_B.weight",
       {3, 256},
       {512, 3},
       "up_proj.lora_A.weight is for no tensor of "},
      {LAYER "1.mlp.experts.7.up_proj.lora_A.weight",
       LAYER "1.mlp.experts.7.up_proj.lora_B.weight",
       {3, 256},
       {512, 3},
       ", where single experts cannot be changed"},
      {LAYER "1.self_attn.q_norm.weight", NULL, {1, 63}, {0}, "does not fit tensor blk.1.attn_q_norm.weight of "},
      {LAYER "1.self_attn.k_proj.weight", NULL, {256, 128}, {0}, "does not fit tensor blk.1.attn_k.weight of "},
      {LAYER "1.self_attn.q_proj.bias", NULL, {1, 512}, {0}, "q_proj.bias is for no tensor of "},
      {"model.language_model.norm.weight", NULL, {1, 256}, {0}, "has no name as PEFT gives them"},
      {"base_model.model.model.language_model.embed_tokens.lora_embedding_A",
       "base_model.model.model.language_model.embed_tokens.lora_embedding_B",
       {3, 97},
       {256, 3},
       "embed_tokens.lora_embedding_A does not fit tensor token_embd.weight of "},
      {"base_model.model.model.language_model.embed_tokens.lora_A.weight",
       "base_model.model.model.language_model.embed_tokens.lora_B.weight",
       {3, 256},
       {96, 3},
       "is for tensor token_embd.weight of "},
      {LAYER "0.linear_attn.conv1d.lora_A.weight",
       LAYER "0.linear_attn.conv1d.lora_B.weight",
       {3, 4},
       {1024, 3},
       "in a GGUF file A and B change projections and embeddings only"},
      {LAYER "0.linear_attn.out_proj.weight", NULL, {256, 768}, {0}, "cannot replace tensor blk.0.ssm_out.weight of "},
      {"base_model.model.lm_head.weight",
       "base_model.model.model.lm_head.weight",
       {96, 256},
       {96, 256},
       "model.model.lm_head.weight is for no tensor of "},
  };
  const char *path = copied("small.gguf"), *adapter = make("wrong");
  quantize(large_model(), path, "q8_0");
  write_text(inside(adapter, "adapter_config.json"), config);
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
    const deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
    struct written *w = begin();
    deltaic_model *model = NULL;
    add(w, wrongs[i].name, 2, wrongs[i].shape);
    if (wrongs[i].other) add(w, wrongs[i].other, 2, wrongs[i].more);
    write_all(w, inside(adapter, "adapter_model.safetensors"));
    assert_true(deltaic_model_open(device, path, &o, &model) != DELTAIC_OK);
    assert_null(model);
    ASSERT_MESSAGE(wrongs[i].message);
    assert_true(deltaic_model_inspect_with(device, path, &o, NULL, NULL, NULL) != DELTAIC_OK);
    ASSERT_MESSAGE(wrongs[i].message);
  }
}

// Every byte of the file's header, in three ways: no crash, and a sentence for what is refused.
static void changed_headers_are_refused_or_harmless(deltaic_device *device) {
  const char *path = copied("small.gguf"), *adapter = make("wrong");
  const deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  char file[600];
  struct written *w = begin();
  quantize(large_model(), path, "q8_0");
  add(w, LAYER "1.self_attn.k_proj.lora_A.weight", 2, (uint64_t[]){3, 256});
  add(w, LAYER "1.self_attn.k_proj.lora_B.weight", 2, (uint64_t[]){128, 3});
  add(w, LAYER "0.linear_attn.dt_bias", 1, (uint64_t[]){6});
  add(w, "base_model.model.model.language_model.embed_tokens.lora_embedding_A", 2, (uint64_t[]){3, 96});
  add(w, "base_model.model.model.language_model.embed_tokens.lora_embedding_B", 2, (uint64_t[]){256, 3});
  snprintf(file, sizeof file, "%s", inside(adapter, "adapter_model.safetensors"));
  write_all(w, file);
  write_text(inside(adapter, "adapter_config.json"), config);
  assert_ok(deltaic_model_inspect_with(device, path, &o, NULL, NULL, NULL));
  uint64_t length;
  FILE *f = fopen(file, "r+b");
  assert_true(f && fread(&length, sizeof length, 1, f) == 1 && length < 2000);
  for (long at = 0; at < 8 + (long)length; at++) {
    static const int changes[] = {1, 2, 0x80};
    int byte = EOF;
    assert_true(!fseek(f, at, SEEK_SET) && (byte = fgetc(f)) != EOF);
    for (size_t k = 0; k < 4; k++) { // and back
      assert_true(!fseek(f, at, SEEK_SET) && fputc(k < 3 ? byte ^ changes[k] : byte, f) != EOF && !fflush(f));
      if (deltaic_model_inspect_with(device, path, &o, NULL, NULL, NULL))
        assert_true(strlen(deltaic_last_error()) > 20);
    }
  }
  fclose(f);
  assert_ok(deltaic_model_inspect_with(device, path, &o, NULL, NULL, NULL));
}

// What the tensors of an adapter over a Q8_0 file are refused with; the caller fills them.
static void refuse(deltaic_device *device, struct written *w, const char *message) {
  const char *path = copied("small.gguf"), *adapter = make("wrong");
  const deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  deltaic_model *model;
  quantize(large_model(), path, "q8_0");
  write_all(w, inside(adapter, "adapter_model.safetensors"));
  write_text(inside(adapter, "adapter_config.json"), config);
  assert_true(deltaic_model_open(device, path, &o, &model) != DELTAIC_OK);
  ASSERT_MESSAGE(message);
}

static struct written *key_pair(float first) {
  struct written *w = begin();
  add(w, LAYER "1.self_attn.k_proj.lora_A.weight", 2, (uint64_t[]){3, 256})[0] = first;
  add(w, LAYER "1.self_attn.k_proj.lora_B.weight", 2, (uint64_t[]){128, 3});
  return w;
}

// A tensor that is there whole and as a pair.
static void what_changes_a_tensor_twice_is_refused(deltaic_device *device) {
  struct written *w = key_pair(0);
  add(w, LAYER "1.self_attn.k_proj.weight", 2, (uint64_t[]){128, 256});
  refuse(device, w, "changes tensor blk.1.attn_k.weight twice");
}

static void numbers_that_are_not_finite_are_refused(deltaic_device *device) {
  struct written *w = begin();
  refuse(device, key_pair(NAN), "wrong/adapter_model.safetensors: a computed weight is not finite");
  add(w, LAYER "0.input_layernorm.weight", 1, (uint64_t[]){256})[7] = INFINITY;
  refuse(device, w,
         "wrong/adapter_model.safetensors: tensor " LAYER "0.input_layernorm.weight has a value that is not");
}

static int remove_below(void *path, const char *name) { return remove(inside(path, name)); }

static int clear(void **state) {
  static const char *const folders[] = {"random", "wide", "adapter", "wrong"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder(folders[i]));
    if (access(path, F_OK)) continue;
    if (platform_list(path, remove_below, path) || platform_remove_folder(path)) return 1;
  }
  return remove_folder(state);
}

#define ON_DEVICES(name)                                                                                               \
  {                                                                                                                    \
#name, run_device_case, make_folder, clear, &(struct device_case) { name }                                         \
  }

// DELTAIC_TEST_FILTER: only the tests that match it.
int main(void) {
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(every_family_computes_what_its_merged_folder_does, make_folder, clear),
      ON_DEVICES(qwen_computes_what_its_merged_folder_does),
      ON_DEVICES(blocks_stay_and_compute_what_their_numbers_do),
      ON_DEVICES(large_factors_are_not_rounded),
      cmocka_unit_test_setup_teardown(quantizing_merges_adapters, make_folder, clear),
      ON_DEVICES(memory_counts_adapters),
      ON_DEVICES(models_with_other_adapters_are_others),
      ON_DEVICES(adapters_that_do_not_fit_are_refused),
      ON_DEVICES(changed_headers_are_refused_or_harmless),
      ON_DEVICES(what_changes_a_tensor_twice_is_refused),
      ON_DEVICES(numbers_that_are_not_finite_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
