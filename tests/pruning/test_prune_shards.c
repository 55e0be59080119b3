// test_prune_shards: a checkpoint of several files is pruned as the same checkpoint in one file is.
#define _GNU_SOURCE // nftw, mkdtemp
#include "checkpoint.h"
#include "file.h"
#include "json.h"

#include "deltaic_prune.h"
#include "prune_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#define MODEL TESTS_DIR "/vectors/models/tiny_delta_product"

enum { SHARDS = 2, TOKENS = 96 };

// Every second tensor, so that a layer's are in both.
static void write_shard(struct checkpoint *c, int shard, const char *path, json_t *weight_map) {
  json_t *header = json_object();
  uint64_t bytes = 0, count = checkpoint_count(c), at = 0;
  for (uint64_t i = (uint64_t)shard; i < count; i += SHARDS) {
    const struct file_tensor *t = checkpoint_at(c, i);
    json_t *shape = json_array();
    for (int d = 0; d < t->rank; d++) json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
    json_object_set_new(header, t->name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype_name, "shape", shape, "data_offsets",
                                  (json_int_t)bytes, (json_int_t)(bytes + t->bytes)));
    json_object_set_new(weight_map, t->name, json_string(strrchr(path, '/') + 1));
    bytes += t->bytes;
  }
  char *text = json_dumps(header, JSON_COMPACT);
  uint64_t length = strlen(text);
  char *file = malloc(8 + length + bytes);
  memcpy(file, &length, 8);
  memcpy(file + 8, text, length);
  for (uint64_t i = (uint64_t)shard; i < count; i += SHARDS) {
    const struct file_tensor *t = checkpoint_at(c, i);
    memcpy(file + 8 + length + at, t->data, t->bytes);
    at += t->bytes;
  }
  assert_ok(file_replace(path, file, 8 + length + bytes));
  free(file);
  free(text);
  json_decref(header);
}

// The model again, its tensors in two files with an index.
static const char *make_shards(void) {
  struct checkpoint *c;
  struct file_view config;
  json_t *weight_map = json_object();
  assert_int_equal(mkdir(place("shards"), 0777), 0);
  assert_ok(file_map(MODEL "/config.json", &config));
  assert_ok(file_replace(place("shards/config.json"), config.data, config.bytes));
  file_unmap(&config);
  assert_ok(checkpoint_open(MODEL "/model.safetensors", &c));
  write_shard(c, 0, place("shards/model-00001-of-00002.safetensors"), weight_map);
  write_shard(c, 1, place("shards/model-00002-of-00002.safetensors"), weight_map);
  checkpoint_close(c);
  json_t *index = json_pack("{s:{}, s:o}", "metadata", "weight_map", weight_map);
  char *text = json_dumps(index, JSON_COMPACT);
  assert_ok(file_replace(place("shards/model.safetensors.index.json"), text, strlen(text)));
  free(text);
  json_decref(index);
  return place("shards");
}

static void prune(const char *path, const int32_t *text, const char *out) {
  deltaic_select_options o = {.size = sizeof o, .method = "drrqr", .cut = 0.5};
  deltaic_calibration_options calibration = {.size = sizeof calibration, .window = TOKENS / 2};
  deltaic_statistics *s;
  deltaic_selection *selection;
  deltaic_pruning *p;
  deltaic_model *model = open_model(cpu, path);
  assert_ok(deltaic_statistics_create(path, &calibration, &s));
  assert_ok(deltaic_calibrate(s, model, text, TOKENS, NULL, NULL));
  assert_ok(deltaic_select(path, s, &o, &selection));
  assert_ok(deltaic_pruning_begin(path, selection, out, NULL, &p));
  assert_ok(deltaic_pruning_refit(p, cpu, model, text, TOKENS, NULL, NULL, NULL));
  assert_ok(deltaic_pruning_commit(p));
  deltaic_pruning_free(p);
  deltaic_selection_free(selection);
  deltaic_statistics_free(s);
  deltaic_model_close(model);
}

static void shards_are_pruned_and_refitted_as_one_file(void **state) {
  int32_t text[TOKENS];
  struct checkpoint *whole, *joined, *before;
  for (int i = 0; i < TOKENS; i++) text[i] = 3 + i * i % 250;
  const char *shards = make_shards();
  prune(MODEL, text, place("whole"));
  prune(shards, text, place("joined"));
  assert_ok(checkpoint_open(place("whole"), &whole));
  assert_ok(checkpoint_open(place("joined"), &joined));
  assert_ok(checkpoint_open(MODEL "/model.safetensors", &before));
  assert_int_equal(checkpoint_count(joined), checkpoint_count(before));
  assert_int_equal(checkpoint_count(joined), checkpoint_count(whole));
  for (uint64_t i = 0; i < checkpoint_count(whole); i++) {
    const struct file_tensor *a = checkpoint_at(whole, i), *b = checkpoint_at(joined, i);
    assert_string_equal(a->name, b->name);
    assert_memory_equal(a->shape, b->shape, sizeof a->shape);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
  }
  checkpoint_close(before);
  checkpoint_close(joined);
  checkpoint_close(whole);
  // One file, and none of the old ones beside it.
  assert_int_equal(access(place("joined/model.safetensors"), F_OK), 0);
  assert_int_not_equal(access(place("joined/model.safetensors.index.json"), F_OK), 0);
  assert_int_not_equal(access(place("joined/model-00001-of-00002.safetensors"), F_OK), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(shards_are_pruned_and_refitted_as_one_file)};
  return cmocka_run_group_tests(tests, begin, end);
}
