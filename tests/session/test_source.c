// Models and tokenizers from a caller's functions (deltaic_source) are those of the file system, and a function that
// fails gives one sentence.
#include "file.h"
#include "json.h"

#include "devices.h" // last: its macro fail() must not meet the declaration of ours

#define TINY TESTS_DIR "/vectors/models/"

// ---------------------------------------------------------------- files in memory

// A text that a test has made takes the place of the file in `folder`.
struct made {
  const char *name;
  char *data;
  uint64_t bytes;
};

struct memory {
  const char *folder;
  struct made made[4];
  int count;
  int64_t calls, fails_at; // the call that fails, from 0 on; -1: none
  bool reads_short;        // of opening and reading, how reading fails
  int open, opened;
  uint64_t bytes, read; // of the files that were opened, and read of them
};

struct file {
  struct file_view view;
  bool mapped;
};

static bool fails(struct memory *m) { return m->calls++ == m->fails_at; }

static deltaic_status open_file(void *user, const char *name, void **out, uint64_t *bytes) {
  struct memory *m = user;
  struct file *f = calloc(1, sizeof *f);
  char path[512];
  assert_non_null(f);
  if (fails(m)) {
    free(f);
    return DELTAIC_IO;
  }
  for (int i = 0; i < m->count; i++)
    if (!strcmp(m->made[i].name, name)) f->view = (struct file_view){m->made[i].data, m->made[i].bytes};
  snprintf(path, sizeof path, "%s/%s", m->folder, name);
  f->mapped = !f->view.data && file_exists(path);
  if (f->mapped) assert_ok(file_map(path, &f->view));
  if (!f->view.data) {
    free(f);
    return DELTAIC_NOT_FOUND;
  }
  *out = f;
  *bytes = f->view.bytes;
  m->open++;
  m->opened++;
  m->bytes += *bytes;
  return DELTAIC_OK;
}

static uint64_t read_file(void *user, void *file, uint64_t offset, void *to, uint64_t bytes) {
  struct memory *m = user;
  const struct file *f = file;
  assert_true(offset <= f->view.bytes && bytes <= f->view.bytes - offset && bytes > 0);
  m->read += bytes;
  if (fails(m)) return m->reads_short ? bytes - 1 : 0;
  memcpy(to, f->view.data + offset, bytes);
  return bytes;
}

static void close_file(void *user, void *file) {
  struct memory *m = user;
  struct file *f = file;
  if (f->mapped) file_unmap(&f->view);
  free(f);
  m->open--;
}

static deltaic_source source_of(struct memory *m) {
  return (deltaic_source){
      .size = sizeof(deltaic_source), .user = m, .open = open_file, .read = read_file, .close = close_file};
}

static deltaic_status open_from(deltaic_device *device, struct memory *m, const char *name, deltaic_model **out) {
  const deltaic_source source = source_of(m);
  const deltaic_model_options options = {.size = sizeof options, .source = &source};
  deltaic_status status = deltaic_model_open(device, name, &options, out);
  assert_int_equal(m->open, 0);
  return status;
}

static struct memory memory_of(const char *folder) { return (struct memory){.folder = folder, .fails_at = -1}; }

// ---------------------------------------------------------------- equal models

// The logits after some tokens, which the caller frees.
static float *logits_of(deltaic_model *model) {
  static const int32_t tokens[] = {3, 40, 7, 50, 11};
  deltaic_session *s = open_session(model, NULL);
  float *out = calloc((size_t)info_of(model).vocabulary, sizeof *out);
  assert_non_null(out);
  assert_ok(deltaic_session_eval(s, tokens, sizeof tokens / sizeof *tokens, DELTAIC_LOGITS_LAST, out));
  deltaic_session_free(s);
  return out;
}

// path: what the file system opens; name: what the source does.
static void assert_equal_models(deltaic_device *device, const char *path, struct memory *m, const char *name) {
  deltaic_model *a = open_model(device, path), *b;
  if (open_from(device, m, name, &b)) fail_msg("%s: %s", path, deltaic_last_error());
  const deltaic_model_info x = info_of(a), y = info_of(b);
  assert_memory_equal(&x, &y, sizeof x); // the fingerprint too
  float *p = logits_of(a), *q = logits_of(b);
  assert_memory_equal(p, q, (size_t)x.vocabulary * sizeof *p);
  assert_in_range(m->read, m->bytes, m->bytes + m->bytes / 2); // few tensors are needed more than once
  free(p);
  free(q);
  deltaic_model_close(a);
  deltaic_model_close(b);
}

static void folders_and_gguf_files_are_the_same_from_memory(deltaic_device *device) {
  static const char *const folders[] = {TINY "tiny_delta_net_global", TINY "tiny_hh_gated_static",
                                        TINY "tiny_mamba2_options",   TINY "released_qwen3_next",
                                        TINY "released_qwen3_5_moe",  TINY "released_qwen3_5_bias"};
  static const char *const files[] = {"gguf_qwen3_next", "gguf_blocks"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    struct memory m = memory_of(folders[i]);
    assert_equal_models(device, folders[i], &m, "");
  }
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    struct memory m = memory_of(TINY);
    char path[256], name[64];
    snprintf(name, sizeof name, "%s/model.gguf", files[i]);
    snprintf(path, sizeof path, TINY "%s", name);
    assert_equal_models(device, path, &m, name);
    assert_int_equal(m.opened, 1);
  }
}

// What novelist writes is what it writes from its folder; its tokenizer comes from memory too.
static void novelist_writes_the_same_from_memory(deltaic_device *device) {
  struct memory m = memory_of(MODELS_DIR);
  const deltaic_source source = source_of(&m);
  deltaic_tokenizer *tokenizers[2];
  deltaic_model *models[2] = {open_model(device, MODELS_DIR "/novelist")};
  int32_t written[2][24];
  assert_ok(open_from(device, &m, "novelist", &models[1]));
  assert_ok(deltaic_tokenizer_open(MODELS_DIR "/novelist", &tokenizers[0]));
  assert_ok(deltaic_tokenizer_open_from(&source, "novelist/tokenizer.json", &tokenizers[1]));
  for (int i = 0; i < 2; i++) {
    deltaic_session *s = open_session(models[i], NULL);
    size_t n;
    assert_ok(deltaic_tokenizer_encode(tokenizers[i], "It was a dark", 13, true, written[i], 24, &n));
    assert_ok(deltaic_session_eval(s, written[i], n, DELTAIC_LOGITS_NONE, NULL));
    for (; n < 24; n++) assert_ok(deltaic_session_next(s, NULL, &written[i][n], NULL));
    close_session(s, models[i]);
    deltaic_tokenizer_close(tokenizers[i]);
  }
  assert_memory_equal(written[0], written[1], sizeof *written);
  assert_int_equal(m.open, 0);
}

// ---------------------------------------------------------------- shards

// A safetensors file with every second tensor of the whole one. The data stays, with gaps.
static struct made shard_of(const struct file_view *whole, const char *name, bool odd, json_t *map) {
  uint64_t length;
  json_t *header, *kept = json_object(), *entry;
  const char *tensor;
  size_t i = 0;
  memcpy(&length, whole->data, 8);
  assert_ok(json_parse(name, whole->data + 8, length, &header));
  json_object_foreach(header, tensor, entry) {
    if (!strcmp(tensor, "__metadata__") || (i++ & 1) != odd) continue;
    json_object_set(kept, tensor, entry);
    json_object_set_new(map, tensor, json_string(name));
  }
  char *text = json_dumps(kept, JSON_COMPACT);
  const uint64_t bytes = strlen(text), data = whole->bytes - 8 - length;
  struct made made = {name, malloc(8 + bytes + data), 8 + bytes + data};
  assert_non_null(made.data);
  memcpy(made.data, &bytes, 8);
  memcpy(made.data + 8, text, bytes);
  memcpy(made.data + 8 + bytes, whole->data + 8 + length, data);
  free(text);
  json_decref(kept);
  json_decref(header);
  return made;
}

static void shards_are_the_same_from_memory(deltaic_device *device) {
  struct memory m = memory_of(TESTS_DIR "/vectors"); // has no model.safetensors
  struct file_view whole, config;
  json_t *map = json_object();
  assert_ok(file_map(MODELS_DIR "/novelist/model.safetensors", &whole));
  assert_ok(file_map(MODELS_DIR "/novelist/config.json", &config));
  m.made[0] = shard_of(&whole, "1.safetensors", false, map);
  m.made[1] = shard_of(&whole, "2.safetensors", true, map);
  json_t *root = json_pack("{s:o}", "weight_map", map);
  char *text = json_dumps(root, JSON_COMPACT);
  m.made[2] = (struct made){"model.safetensors.index.json", text, strlen(text)};
  m.made[3] = (struct made){"config.json", (char *)config.data, config.bytes};
  m.count = 4;
  deltaic_model *model;
  assert_ok(open_from(device, &m, "", &model));
  deltaic_model *from_folder = open_model(device, MODELS_DIR "/novelist");
  float *a = logits_of(model), *b = logits_of(from_folder);
  assert_memory_equal(a, b, (size_t)info_of(model).vocabulary * sizeof *a);
  assert_int_equal(info_of(model).fingerprint, info_of(from_folder).fingerprint);
  deltaic_model_close(model);
  deltaic_model_close(from_folder);

  m.made[1].name = "3.safetensors";
  assert_int_equal(open_from(device, &m, "", &model), DELTAIC_NOT_FOUND);
  assert_string_equal(deltaic_last_error(),
                      "model.safetensors.index.json: shard 2.safetensors is missing from the folder");
  m.count = 0;
  assert_int_equal(open_from(device, &m, "", &model), DELTAIC_NOT_FOUND);
  assert_string_equal(deltaic_last_error(),
                      "the source: has neither model.safetensors nor model.safetensors.index.json");
  free(a);
  free(b);
  free(m.made[0].data);
  free(m.made[1].data);
  free(text);
  json_decref(root);
  file_unmap(&whole);
  file_unmap(&config);
}

// ---------------------------------------------------------------- failures

// Every call of the source fails once: each model is refused with a sentence about the source, and nothing stays open.
static void assert_all_failures(deltaic_device *device, const char *folder, const char *name, bool reads_short) {
  deltaic_model *model = NULL;
  deltaic_status status = DELTAIC_IO;
  int64_t at = 0;
  for (; status; at++) {
    struct memory m = memory_of(folder);
    m.fails_at = at;
    m.reads_short = reads_short;
    status = open_from(device, &m, name, &model);
    if (!status) break;
    assert_int_equal(status, DELTAIC_IO);
    assert_int_equal(m.calls, at + 1); // nothing is read after a failure
    if (!strstr(deltaic_last_error(), ": the source ")) fail_msg("call %d: %s", (int)at, deltaic_last_error());
  }
  assert_true(at > 8);
  deltaic_model_close(model);
}

static void a_call_that_fails_gives_one_sentence(deltaic_device *device) {
  assert_all_failures(device, TINY "tiny_hh_gated_static", "", false);
  assert_all_failures(device, TINY "released_qwen3_next", "", true);
  assert_all_failures(device, TINY, "gguf_qwen3_next/model.gguf", true);
}

static void a_short_read_is_named(deltaic_device *device) {
  struct memory m = memory_of(MODELS_DIR "/novelist");
  deltaic_model *model;
  m.reads_short = true;
  m.fails_at = 1; // the call after the opening of model.safetensors
  assert_int_equal(open_from(device, &m, "", &model), DELTAIC_IO);
  assert_string_equal(deltaic_last_error(), "model.safetensors: the source read 4095 of 4096 bytes at byte 0");
}

static void wrong_arguments_are_named(deltaic_device *device) {
  struct memory m = memory_of(MODELS_DIR "/novelist");
  deltaic_source source = source_of(&m);
  deltaic_model_options options = {.size = sizeof options, .source = &source};
  deltaic_tokenizer *tokenizer;
  deltaic_model *model;
  source.read = NULL;
  assert_int_equal(deltaic_model_open(device, "", &options, &model), DELTAIC_INVALID_ARGUMENT);
  assert_string_equal(deltaic_last_error(), "deltaic_model_open: the source's read is NULL");
  source.size = 0;
  assert_int_equal(deltaic_tokenizer_open_from(&source, "", &tokenizer), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "deltaic_source: its size field is 0"));
  assert_int_equal(deltaic_tokenizer_open_from(NULL, "", &tokenizer), DELTAIC_INVALID_ARGUMENT);
  source = source_of(&m);
  source.close = NULL; // files that need no closing are as good, except for this test's own memory
  m.folder = TESTS_DIR;
  assert_int_equal(deltaic_tokenizer_open_from(&source, "", &tokenizer), DELTAIC_NOT_FOUND);
  assert_string_equal(deltaic_last_error(), "tokenizer.json: the source has no such file");
}

int main(void) {
  // Where files come from is the same on every device.
  setenv("DELTAIC_TEST_DEVICE", "cpu", 1);
  const struct CMUnitTest tests[] = {device_test(folders_and_gguf_files_are_the_same_from_memory),
                                     device_test(novelist_writes_the_same_from_memory),
                                     device_test(shards_are_the_same_from_memory),
                                     device_test(a_call_that_fails_gives_one_sentence),
                                     device_test(a_short_read_is_named),
                                     device_test(wrong_arguments_are_named)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
