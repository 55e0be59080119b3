// test_quantize: GGUF files that deltaic_quantize() writes, read again: on the CPU they compute what the folder does.
#define _GNU_SOURCE     // memmem
#include "checkpoint.h" // before cmocka, whose macro fail() would hide ours
#include "gguf.h"

#include "test_folder.h"

#include "devices.h"

#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODELS TESTS_DIR "/vectors/models/"
enum { TOKENS = 40 };

static deltaic_context *context;
static deltaic_device *cpu;

static int open_cpu(void **state) {
  const deltaic_device_options options = {.size = sizeof options, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 2};
  const deltaic_context_options none = {.size = sizeof none, .cache_dir = ""};
  return deltaic_context_create(&none, &context) || deltaic_device_open(context, &options, &cpu);
}

static int close_cpu(void **state) {
  deltaic_device_close(cpu);
  deltaic_context_free(context);
  return 0;
}

static deltaic_status quantize(const char *from, const char *to, const char *type) {
  const deltaic_quantize_options o = {.size = sizeof o, .type = type, .force = true, .threads = 2};
  return deltaic_quantize(from, to, &o, NULL);
}

// The logits of a short text.
static float *logits_of(const char *path, size_t *count) {
  deltaic_model *model = open_model(cpu, path);
  deltaic_session *session = open_session(model, &exact);
  const size_t V = (size_t)info_of(model).vocabulary;
  int32_t ids[TOKENS];
  float *logits = malloc(TOKENS * V * sizeof *logits);
  assert_non_null(logits);
  for (size_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)((7 * i * i + 3 * i + 1) % V);
  assert_ok(deltaic_session_eval(session, ids, TOKENS, DELTAIC_LOGITS_ALL, logits));
  close_session(session, model);
  *count = TOKENS * V;
  return logits;
}

// The relative RMS of the differences; 0: the bits are equal.
static double distance(const char *a, const char *b) {
  size_t n, m;
  float *x = logits_of(a, &n), *y = logits_of(b, &m);
  double error = 0, size = 0;
  assert_int_equal(n, m);
  for (size_t i = 0; i < n; i++) {
    error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    size += (double)x[i] * x[i];
  }
  const bool same = !memcmp(x, y, n * sizeof *x);
  free(x);
  free(y);
  assert_true(isfinite(error) && size > 0);
  return same ? 0 : fmax(sqrt(error / size), 1e-300);
}

static bool is_folder(const char *path) {
  struct stat about;
  return !stat(path, &about) && S_ISDIR(about.st_mode);
}

// Calls `each` for every folder with a model, and the number of calls that counted.
static int each_folder(bool (*each)(const char *path)) {
  DIR *all = opendir(MODELS);
  struct dirent *e;
  int count = 0;
  assert_non_null(all);
  while ((e = readdir(all))) {
    char path[512], config[600];
    snprintf(path, sizeof path, MODELS "%s", e->d_name);
    snprintf(config, sizeof config, "%s/config.json", path);
    if (*e->d_name != '.' && is_folder(path) && !access(config, F_OK)) count += each(path);
  }
  closedir(all);
  return count;
}

// ---------------------------------------------------------------- the same numbers

static bool is_qwen(const char *path) { return strstr(path, "qwen3") && !strstr(path, "_bias"); }

static bool check_f32(const char *path) {
  char *to = strdup(in_folder("f32.gguf")), *again = strdup(in_folder("again.gguf"));
  assert_ok(quantize(path, to, "f32"));
  const double error = distance(path, to);
  // A product adds in the order of the stored format. The value heads of Qwen are in another order.
  if (!(error <= 5e-6)) fail_msg("%s: %g", path, error);
  assert_ok(quantize(to, again, "f32"));
  assert_true(distance(to, again) == 0);
  free(to);
  free(again);
  return true;
}

static void f32_files_compute_what_folders_do(void **state) { assert_true(each_folder(check_f32) > 30); }

// A folder whose matrices have one format gives the same bits from a file of that format.
static bool check_bits(const char *path) {
  struct checkpoint *c;
  int formats_seen[FILE_OTHER + 1] = {0};
  if (is_qwen(path)) return false;
  assert_ok(checkpoint_open(path, &c));
  for (uint64_t i = 0; i < checkpoint_count(c); i++)
    if (checkpoint_at(c, i)->rank == 2) formats_seen[checkpoint_at(c, i)->dtype]++;
  checkpoint_close(c);
  const bool f32 = formats_seen[FILE_F32], f16 = formats_seen[FILE_F16], bf16 = formats_seen[FILE_BF16];
  if (f32 + f16 + bf16 != 1) return false;
  assert_ok(quantize(path, in_folder("same.gguf"), f32 ? "f32" : f16 ? "f16" : "bf16"));
  const double error = distance(path, in_folder("same.gguf"));
  if (error > 0) fail_msg("%s: %g", path, error);
  return true;
}

static void files_of_the_folders_format_compute_the_same_bits(void **state) {
  assert_true(each_folder(check_bits) >= 10);
}

// ---------------------------------------------------------------- what another converter writes

static float *numbers(const struct file_tensor *t, uint64_t *count) {
  *count = 1;
  for (int i = 0; i < t->rank; i++) *count *= t->shape[i];
  float *x = malloc(*count * sizeof *x);
  assert_non_null(x);
  file_tensor_f32(t, 0, *count, x);
  return x;
}

static void compare_tensors(struct checkpoint *a, struct checkpoint *b) {
  uint64_t found = 0;
  for (uint64_t i = 0; i < checkpoint_count(b); i++) {
    struct file_tensor *y = checkpoint_at(b, i), *x = checkpoint_find(a, y->name);
    uint64_t n, m;
    if (strstr(y->name, "blk.3.")) continue; // predicts a second token
    if (!x) fail_msg("%s is missing", y->name);
    if (x->rank != y->rank || memcmp(x->shape, y->shape, sizeof x->shape)) fail_msg("%s: another shape", y->name);
    float *p = numbers(x, &n), *q = numbers(y, &m);
    for (uint64_t k = 0; k < n; k++)
      if (fabsf(p[k] - q[k]) > 1e-6f * fabsf(q[k]))
        fail_msg("%s: element %d is %g, not %g", y->name, (int)k, (double)p[k], (double)q[k]);
    free(p);
    free(q);
    found++;
  }
  assert_int_equal(found, checkpoint_count(a));
}

static void compare_keys(const json_t *a, const json_t *b, const char *arch) {
  static const char *const elsewhere[] = {".block_count", ".nextn_predict_layers", ".context_length",
                                          ".rope.dimension_sections", ".attention.recurrent_layers"};
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)b, name, value) {
    bool skip = strncmp(name, arch, strlen(arch)) != 0;
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) skip |= strstr(name, elsewhere[i]) != NULL;
    if (skip) continue;
    const json_t *mine = json_object_get(a, name);
    if (!mine || fabs(json_number_value(mine) - json_number_value(value)) > 1e-9) fail_msg("%s differs", name);
  }
}

// The files that tests/vectors/make_gguf.py converted.
static void qwen_files_are_those_of_another_converter(void **state) {
  static const char *const pairs[][3] = {{"released_qwen3_5", "gguf_qwen3_5", "qwen35."},
                                         {"released_qwen3_5_moe", "gguf_qwen3_5_moe", "qwen35moe."}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    char from[256], other[256];
    struct checkpoint *a, *b;
    snprintf(from, sizeof from, MODELS "%s", pairs[i][0]);
    snprintf(other, sizeof other, MODELS "%s/model.gguf", pairs[i][1]);
    assert_ok(quantize(from, in_folder("f32.gguf"), "f32"));
    assert_ok(checkpoint_open(in_folder("f32.gguf"), &a));
    assert_ok(checkpoint_open(other, &b));
    compare_tensors(a, b);
    compare_keys(checkpoint_keys(a), checkpoint_keys(b), pairs[i][2]);
    checkpoint_close(a);
    checkpoint_close(b);
  }
}

// ---------------------------------------------------------------- quantized

// The file's own numbers as f32 give its logits.
static void check_type(const char *path, const char *type) {
  char *small = strdup(in_folder("small.gguf"));
  assert_ok(quantize(path, small, type));
  assert_ok(quantize(small, in_folder("wide.gguf"), "f32"));
  const double error = distance(small, in_folder("wide.gguf"));
  if (!(error <= 5e-6)) fail_msg("%s, %s: %g", path, type, error);
  free(small);
}

static void quantized_files_compute_what_their_numbers_do(void **state) {
  static const char *const paths[] = {MODELS_DIR "/novelist", MODELS "tiny_delta_net", MODELS "released_qwen3_5_moe",
                                      MODELS "gguf_blocks/model.gguf"};
  deltaic_quantize_type type;
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    for (int32_t k = 0; deltaic_quantize_type_at(k, &type); k++)
      if (i || k % 4 == 0) check_type(paths[i], type.name); // the first is the largest
}

static const char *type_of(const deltaic_quantization *report, const char *name) {
  deltaic_quantized_tensor t;
  for (size_t i = 0; deltaic_quantization_at(report, i, &t); i++)
    if (!strcmp(t.name, name)) return t.type;
  return "missing";
}

static void mixtures_give_more_bits_where_errors_cost_most(void **state) {
  static const char *const want[][2] = {{"model.embeddings.weight", "q6_k"}, // it is the head too
                                        {"model.layers.0.attn.q_proj.weight", "q4_k"},
                                        {"model.layers.0.attn.k_proj.weight", "q4_k"},
                                        {"model.layers.0.attn.v_proj.weight", "q4_k"},
                                        {"model.layers.2.attn.v_proj.weight", "q6_k"},
                                        {"model.layers.5.attn.v_proj.weight", "q6_k"},
                                        {"model.layers.2.mlp.down_proj.weight", "q6_k"},
                                        {"model.layers.1.mlp.down_proj.weight", "q4_k"},
                                        {"model.layers.0.attn.b_proj.weight", "q8_0"},
                                        {"model.layers.0.attn.A_log", "f32"},
                                        {"model.layers.0.attn.q_conv1d.weight", "f32"},
                                        {"model.layers.0.attn_norm.weight", "f32"},
                                        {"model.layers.0.mlp.gate_proj.weight", "q4_k"}};
  deltaic_quantization *report;
  assert_ok(deltaic_quantize(MODELS_DIR "/novelist", in_folder("plan.gguf"),
                             &(deltaic_quantize_options){.size = sizeof(deltaic_quantize_options), .plan_only = true},
                             &report));
  for (size_t i = 0; i < sizeof want / sizeof *want; i++)
    if (strcmp(type_of(report, want[i][0]), want[i][1]))
      fail_msg("%s is %s, not %s", want[i][0], type_of(report, want[i][0]), want[i][1]);
  assert_true(access(in_folder("plan.gguf"), F_OK));
  deltaic_quantization_free(report);
}

// What llama.cpp keeps in one tensor counts among the values: of so few layers the third has more.
static void queries_keys_and_values_in_one_are_chosen_as_values(void **state) {
  deltaic_quantization *report;
  deltaic_quantized_tensor t;
  int seen = 0, joined = 0;
  assert_ok(deltaic_quantize(MODELS "released_qwen3_5", in_folder("plan.gguf"),
                             &(deltaic_quantize_options){.size = sizeof(deltaic_quantize_options), .plan_only = true},
                             &report));
  for (size_t i = 0; deltaic_quantization_at(report, i, &t); i++) {
    const bool both = strstr(t.name, "attn_qkv.weight") != NULL;
    if (!both && !strstr(t.name, "attn_v.weight")) continue;
    assert_string_equal(t.wanted, seen++ == 2 ? "q6_k" : "q4_k");
    joined += both;
  }
  assert_int_equal(seen, 3);
  assert_int_equal(joined, 2);
  deltaic_quantization_free(report);
}

static bool is_mapped(const char *file) {
  char line[1024];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps)) found |= strstr(line, file) != NULL;
  fclose(maps);
  return found;
}

// Rows of 80 are whole blocks of no type; those of 96 of the types of 32.
static void rows_of_other_lengths_get_wider_types(void **state) {
  deltaic_quantization *report;
  deltaic_quantized_tensor t;
  size_t seen = 0;
  assert_ok(quantize(MODELS "tiny_delta_net", in_folder("odd.gguf"), "q4_k"));
  assert_ok(deltaic_quantize(MODELS "tiny_delta_net", in_folder("plan.gguf"),
                             &(deltaic_quantize_options){.size = sizeof(deltaic_quantize_options), .type = "q4_k"},
                             &report));
  assert_false(is_mapped("tiny_delta_net/model.safetensors")); // the report keeps no files
  for (size_t i = 0; deltaic_quantization_at(report, i, &t); i++) {
    if (!strcmp(t.type, t.wanted)) continue;
    assert_string_equal(t.type, t.columns % 32 ? "f16" : !strcmp(t.wanted, "q4_k") ? "q5_0" : "q8_0");
    assert_true(t.columns % (strcmp(t.wanted, "q8_0") ? 256 : 32) != 0);
    seen++;
  }
  assert_true(seen > 4);
  deltaic_quantization_free(report);
}

// ---------------------------------------------------------------- what else is in a file

static void check_tokenizer(const char *a, const char *b) {
  static const char text[] = "The old House, isn't it?  12 \n\n\tcaf\xc3\xa9 \xe6\x97\xa5 <s></s>";
  deltaic_tokenizer *x, *y;
  int32_t ids[2][256];
  size_t count[2];
  assert_ok(deltaic_tokenizer_open(a, &x));
  assert_ok(deltaic_tokenizer_open(b, &y));
  assert_int_equal(deltaic_tokenizer_size(x), deltaic_tokenizer_size(y));
  assert_ok(deltaic_tokenizer_encode(x, text, sizeof text - 1, true, ids[0], 256, &count[0]));
  assert_ok(deltaic_tokenizer_encode(y, text, sizeof text - 1, true, ids[1], 256, &count[1]));
  assert_int_equal(count[0], count[1]);
  assert_memory_equal(ids[0], ids[1], count[0] * sizeof **ids);
  deltaic_tokenizer_close(x);
  deltaic_tokenizer_close(y);
}

static void tokenizers_and_ends_come_along(void **state) {
  static const char *const paths[] = {MODELS_DIR "/novelist", MODELS "tiny_delta_net"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    int32_t ids[2][32];
    size_t count[2];
    deltaic_model_info info[2];
    assert_ok(quantize(paths[i], in_folder("f16.gguf"), "f16"));
    check_tokenizer(paths[i], in_folder("f16.gguf"));
    assert_ok(deltaic_model_inspect_ends(paths[i], ids[0], 32, &count[0]));
    assert_ok(deltaic_model_inspect_ends(in_folder("f16.gguf"), ids[1], 32, &count[1]));
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(ids[0], ids[1], count[0] * sizeof **ids);
    assert_ok(deltaic_model_inspect(NULL, paths[i], NULL, &info[0], NULL));
    assert_ok(deltaic_model_inspect(NULL, in_folder("f16.gguf"), NULL, &info[1], NULL));
    assert_string_equal(info[0].architecture, info[1].architecture);
    assert_string_equal(info[0].layers_text, info[1].layers_text);
    assert_int_equal(info[0].parameters, info[1].parameters);
    assert_int_equal(info[0].bos_token, info[1].bos_token);
  }
}

// ---------------------------------------------------------------- what is refused

static bool stop_at_half(void *user, uint64_t done, uint64_t total) {
  ++*(int *)user;
  return 2 * done < total;
}

static int files_in_folder(void) {
  DIR *d = opendir(folder);
  struct dirent *e;
  int count = 0;
  while ((e = readdir(d))) count += *e->d_name != '.';
  closedir(d);
  return count;
}

static void a_failure_leaves_no_file(void **state) {
  int calls = 0;
  deltaic_quantize_options o = {.size = sizeof o, .type = "q4_0", .progress = stop_at_half, .progress_user = &calls};
  assert_int_equal(deltaic_quantize(MODELS_DIR "/novelist", in_folder("half.gguf"), &o, NULL), DELTAIC_CANCELLED);
  assert_true(calls > 1);
  assert_int_equal(files_in_folder(), 0);
  o.progress = NULL;
  assert_int_equal(deltaic_quantize(MODELS_DIR "/novelist", "/dev/full", &o, NULL), DELTAIC_IO);
  ASSERT_MESSAGE("/dev/full: cannot be written: ");
  assert_int_equal(deltaic_quantize(MODELS_DIR "/novelist", "nowhere/x.gguf", &o, NULL), DELTAIC_NOT_FOUND);
}

static void inputs_and_other_files_stay(void **state) {
  char *file = strdup(in_folder("kept.gguf"));
  assert_ok(quantize(MODELS "tiny_delta_net", file, "f16"));
  assert_int_equal(quantize(file, file, "q8_0"), DELTAIC_INVALID_ARGUMENT);
  ASSERT_MESSAGE("kept.gguf: is the model that is to be read");
  assert_int_equal(quantize(MODELS "tiny_delta_net", MODELS "tiny_delta_net/model.safetensors", "q8_0"),
                   DELTAIC_INVALID_ARGUMENT);
  ASSERT_MESSAGE("model.safetensors: is the model that is to be read");
  assert_int_equal(symlink(MODELS "tiny_delta_net/config.json", in_folder("link")), 0);
  assert_int_equal(quantize(MODELS "tiny_delta_net", in_folder("link"), "q8_0"), DELTAIC_INVALID_ARGUMENT);
  ASSERT_MESSAGE("link: is the model that is to be read");
  const deltaic_quantize_options o = {.size = sizeof o};
  assert_int_equal(deltaic_quantize(MODELS_DIR "/novelist", file, &o, NULL), DELTAIC_INVALID_ARGUMENT);
  ASSERT_MESSAGE("kept.gguf: is there already (force replaces it)");
  assert_int_equal(quantize(MODELS "tiny_delta_net", folder, "q8_0"), DELTAIC_INVALID_ARGUMENT);
  ASSERT_MESSAGE("is a folder, not a file");
  assert_int_equal(quantize(MODELS "tiny_delta_net", file, "q3_k"), DELTAIC_INVALID_ARGUMENT);
  ASSERT_MESSAGE("there is no type \"q3_k\"; there are: f32, f16,", "iq4_xs");
  assert_int_equal(deltaic_quantize(NULL, file, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_true(distance(file, file) == 0);
  free(file);
}

static void a_model_that_does_not_run_is_refused(void **state) {
  assert_int_equal(symlink(MODELS "tiny_delta_net/config.json", in_folder("config.json")), 0);
  assert_int_equal(symlink(MODELS "tiny_delta_net_swa/model.safetensors", in_folder("model.safetensors")), 0);
  assert_int_equal(quantize(folder, "never.gguf", "q8_0"), DELTAIC_BAD_SHAPE);
  ASSERT_MESSAGE("k_proj.weight has shape [32, 64], expected [64, 64]");
  assert_true(access("never.gguf", F_OK));
}

// A copy of a file's bytes with one number of a tensor changed.
static void spoil(const char *from, const char *to, const char *tensor, float value) {
  struct checkpoint *c;
  struct file_view view;
  assert_ok(checkpoint_open(from, &c));
  assert_ok(file_map(from, &view));
  struct file_tensor *t = checkpoint_find(c, tensor);
  assert_true(t && t->dtype == FILE_F32);
  // The tensor's place, found by its bytes: the two mappings have the same content.
  char *copy = malloc(view.bytes);
  memcpy(copy, view.data, view.bytes);
  char *at = memmem(copy, view.bytes, t->data, t->bytes);
  assert_non_null(at);
  memcpy(at + 4, &value, 4);
  assert_ok(file_replace(to, copy, view.bytes));
  free(copy);
  file_unmap(&view);
  checkpoint_close(c);
}

static void numbers_that_cannot_be_stored_are_named(void **state) {
  static const char name[] = "model.layers.0.attn.q_proj.weight";
  static const float values[] = {NAN, INFINITY, 1e6f, -70000};
  char *f32 = strdup(in_folder("f32.gguf")), *bad = strdup(in_folder("bad.gguf"));
  assert_ok(quantize(MODELS_DIR "/novelist", f32, "f32"));
  for (int i = 0; i < 4; i++) {
    spoil(f32, bad, name, values[i]);
    for (int k = 0; k < 2; k++) {
      assert_int_equal(quantize(bad, in_folder("out.gguf"), k ? "f16" : "q4_k_m"),
                       i < 2 ? DELTAIC_BAD_FILE : DELTAIC_UNSUPPORTED);
      ASSERT_MESSAGE("bad.gguf: tensor ", name, i < 2 ? "a value that is not finite" : "a value above 65504, which");
    }
    assert_int_equal(quantize(bad, in_folder("out.gguf"), "bf16"), i < 2 ? DELTAIC_BAD_FILE : DELTAIC_OK);
  }
  free(f32);
  free(bad);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_FOLDER(f32_files_compute_what_folders_do),
      IN_FOLDER(files_of_the_folders_format_compute_the_same_bits),
      IN_FOLDER(qwen_files_are_those_of_another_converter),
      IN_FOLDER(quantized_files_compute_what_their_numbers_do),
      IN_FOLDER(mixtures_give_more_bits_where_errors_cost_most),
      IN_FOLDER(queries_keys_and_values_in_one_are_chosen_as_values),
      IN_FOLDER(rows_of_other_lengths_get_wider_types),
      IN_FOLDER(tokenizers_and_ends_come_along),
      IN_FOLDER(a_failure_leaves_no_file),
      IN_FOLDER(inputs_and_other_files_stay),
      IN_FOLDER(a_model_that_does_not_run_is_refused),
      IN_FOLDER(numbers_that_cannot_be_stored_are_named),
  };
  return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
