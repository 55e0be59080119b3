// test_adapters: adapters in PEFT's format that trainings write and models read.
#define _GNU_SOURCE // nftw, mkdtemp
#include "checkpoint.h"
#include "file.h"
#include "tensor_file.h"

#include "tune_case.h"

#include <math.h>

// The adapters merged into the file, and merged as the model is opened, are the same weights.
static void adapters_are_the_merged_checkpoint(void **state) {
  static const char *const adapt[] = {NULL, "embeddings", "embeddings,o_proj"};
  for (int i = 0; i < 3; i++) {
    const deltaic_tune_options o = {.size = sizeof o, .rank = 4, .alpha = 5, .adapt = adapt[i]};
    int32_t V;
    deltaic_tune *tune = create(&o);
    steps(tune, 0, STEPS);
    assert_ok(deltaic_tune_save(tune, place("merged"), true));
    assert_ok(deltaic_tune_save_adapter(tune, place("adapter"), true));
    deltaic_tune_free(tune);
    float *before = logits_of(MODEL, NULL, T, &V), *merged = logits_of(place("merged"), NULL, T, &V),
          *adapted = logits_of(MODEL, place("adapter"), T, &V);
    const size_t bytes = T * (size_t)V * sizeof *merged;
    assert_memory_equal(merged, adapted, bytes);
    assert_true(memcmp(before, adapted, bytes) != 0);
    free(before);
    free(merged);
    free(adapted);
  }
}

// PEFT multiplies the other way round at embeddings: W = W0 + s (B A)^T.
static void adapters_of_embeddings_are_transposed(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .rank = 4, .alpha = 8, .adapt = "embeddings", .whole = ""};
  const char *prefix = "base_model.model.model.embeddings.lora_embedding_";
  struct checkpoint *base, *merged, *adapter;
  deltaic_tune *tune = create(&o);
  steps(tune, 0, STEPS);
  assert_ok(deltaic_tune_save(tune, place("merged"), true));
  assert_ok(deltaic_tune_save_adapter(tune, place("adapter"), true));
  deltaic_tune_free(tune);
  assert_ok(checkpoint_open(MODEL, &base));
  assert_ok(checkpoint_open(place("merged"), &merged));
  assert_ok(checkpoint_open(place("adapter/adapter_model.safetensors"), &adapter));
  assert_int_equal(checkpoint_count(adapter), 2);
  const struct file_tensor *W0 = checkpoint_find(base, "model.embeddings.weight"),
                           *W = checkpoint_find(merged, "model.embeddings.weight"),
                           *A = checkpoint_findf(adapter, "%sA", prefix), *B = checkpoint_findf(adapter, "%sB", prefix);
  const uint64_t V = W->shape[0], D = W->shape[1];
  assert_true(A && A->shape[0] == 4 && A->shape[1] == V && B && B->shape[0] == D && B->shape[1] == 4);
  const float *a = A->data, *b = B->data;
  double most = 0;
  for (uint64_t v = 0; v < V; v++)
    for (uint64_t d = 0; d < D; d++) {
      float before, after, sum = 0;
      file_tensor_f32(W0, v * D + d, 1, &before);
      file_tensor_f32(W, v * D + d, 1, &after);
      for (int r = 0; r < 4; r++) sum += b[d * 4 + r] * a[r * V + v];
      assert_float_equal(after, before + 2 * sum, 0.005 * fabs((double)after) + 1e-6); // bf16
      most = fmax(most, fabs((double)sum));
    }
  assert_true(most > 1e-3);
  checkpoint_close(base);
  checkpoint_close(merged);
  checkpoint_close(adapter);
}

struct stop {
  uint64_t at, last;
};

static bool stop_from(void *user, uint64_t done, uint64_t total) {
  struct stop *stop = user;
  assert_true(done >= stop->last && done <= total);
  stop->last = done;
  return done < stop->at;
}

// Merging alone writes what a training saves whose steps made the adapters; and refuses what it cannot merge.
static void adapters_are_merged_into_a_folder(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .rank = 4, .adapt = "embeddings,o_proj"};
  struct checkpoint *saved, *merged;
  deltaic_tune *tune = create(&o);
  steps(tune, 0, STEPS);
  assert_ok(deltaic_tune_save(tune, place("saved"), false));
  assert_ok(deltaic_tune_save_adapter(tune, place("parts"), false));
  deltaic_tune_free(tune);
  assert_ok(deltaic_tune_merge(MODEL, place("parts"), place("together"), false, NULL, NULL));
  assert_ok(checkpoint_open(place("saved"), &saved));
  assert_ok(checkpoint_open(place("together"), &merged));
  assert_int_equal(checkpoint_count(merged), checkpoint_count(saved));
  for (uint64_t i = 0; i < checkpoint_count(saved); i++) {
    const struct file_tensor *a = checkpoint_at(saved, i), *b = checkpoint_at(merged, i);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
  }
  checkpoint_close(saved);
  checkpoint_close(merged);
  assert_true(file_exists(place("together/config.json")) && file_exists(place("together/tokenizer.json")));
  assert_false(file_exists(place("together/reference.safetensors")));
  assert_int_equal(deltaic_tune_merge(MODEL, place("parts"), place("together"), false, NULL, NULL),
                   DELTAIC_INVALID_ARGUMENT);
  assert_ok(deltaic_tune_merge(MODEL, place("parts"), place("together"), true, NULL, NULL));
  assert_int_equal(deltaic_tune_merge(MODEL, place("parts"), MODEL, true, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tune_merge(TESTS_DIR "/vectors/models/gguf_blocks/model.gguf", place("parts"),
                                      place("nothing"), false, NULL, NULL),
                   DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "adapters are merged into a model's folder only"));
  assert_int_equal(deltaic_tune_merge(MODEL, NULL, place("nothing"), false, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "adapter is NULL"));
  for (uint64_t at = 0; at < 2; at++) { // before anything is copied; after a tensor
    struct stop stop = {.at = at};
    assert_int_equal(deltaic_tune_merge(MODEL, place("parts"), place("nothing"), false, stop_from, &stop),
                     DELTAIC_CANCELLED);
    assert_int_equal(stop.last > 0, at > 0);
  }
  assert_false(file_exists(place("nothing")));
}

static bool lists(const json_t *list, const char *end) {
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) {
    const char *text = json_string_value(item);
    if (strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end)) return true;
  }
  return false;
}

// PEFT wants the weight of every module in modules_to_save; the bias of an adapted layer is its base layer's.
static void biases_of_adapted_layers_are_stored_as_peft_has_them(void **state) {
  const char *model = TESTS_DIR "/vectors/models/released_qwen3_5_bias";
  const deltaic_tune_options o = {.size = sizeof o, .rank = 2};
  struct checkpoint *c;
  int32_t V, adapted = 0, others = 0;
  deltaic_tune *tune;
  make_tokens();
  assert_ok(deltaic_tune_create(model, &o, &tune));
  steps(tune, 0, 1);
  assert_ok(deltaic_tune_save(tune, place("biased"), false));
  assert_ok(deltaic_tune_save_adapter(tune, place("biases"), false));
  deltaic_tune_free(tune);
  json_t *config = json_load_file(place("biases/adapter_config.json"), 0, NULL);
  const json_t *saved = json_object_get(config, "modules_to_save");
  assert_string_equal(json_string_value(json_object_get(config, "bias")), "all");
  assert_true(lists(json_object_get(config, "target_modules"), "q_proj"));
  assert_true(lists(saved, ".0.input_layernorm") && !lists(saved, "proj"));
  assert_ok(checkpoint_open(place("biases/adapter_model.safetensors"), &c));
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const char *name = checkpoint_at(c, i)->name;
    adapted += strstr(name, "q_proj.base_layer.bias") != NULL;
    others += strstr(name, "o_proj.bias") != NULL;
    assert_null(strstr(name, "q_proj.bias"));
  }
  assert_true(adapted > 0 && others > 0);
  for (size_t i = 0; i < json_array_size(saved); i++) {
    char name[256];
    snprintf(name, sizeof name, "base_model.model.%s.weight", json_string_value(json_array_get(saved, i)));
    assert_non_null(checkpoint_find(c, name));
  }
  checkpoint_close(c);
  json_decref(config);
  float *merged = logits_of(place("biased"), NULL, T, &V), *read = logits_of(model, place("biases"), T, &V);
  assert_memory_equal(merged, read, T * (size_t)V * sizeof *merged);
  free(merged);
  free(read);
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void refuse_adapter(const char *path, const char *adapter, const char *message) {
  deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  deltaic_model *model = NULL;
  assert_true(deltaic_model_open(cpu, path, &o, &model) != DELTAIC_OK);
  if (!strstr(deltaic_last_error(), message)) print_error("%s\n", deltaic_last_error());
  assert_non_null(strstr(deltaic_last_error(), message));
  assert_null(model);
}

static void adapters_that_do_not_fit_are_refused(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .rank = 2};
  deltaic_tune *tune = create(&o);
  assert_ok(deltaic_tune_save_adapter(tune, place("fits"), false));
  deltaic_tune_free(tune);
  refuse_adapter(MODEL, place("no_such"), "no_such");
  refuse_adapter(TESTS_DIR "/vectors/models/tiny_mamba2", place("fits"), "is for no tensor of");
  refuse_adapter(TESTS_DIR "/vectors/models/tiny_gated_deltanet_gva", place("fits"), "does not fit tensor");
  refuse_adapter(TESTS_DIR "/vectors/models/gguf_blocks/model.gguf", place("fits"),
                 "does not fit tensor output_norm.weight of");
  write_file(place("fits/adapter_config.json"), "{\"peft_type\": \"LORA\", \"use_dora\": true}");
  refuse_adapter(MODEL, place("fits"), "only plain LoRA");
  write_file(place("fits/adapter_config.json"), "{\"peft_type\": \"LORA\", \"alora_invocation_tokens\": [3]}");
  refuse_adapter(MODEL, place("fits"), "alora_invocation_tokens");
  write_file(place("fits/adapter_config.json"), "{\"peft_type\": \"LORA\", \"layer_replication\": [[0, 2]]}");
  refuse_adapter(MODEL, place("fits"), "layer_replication");
  write_file(place("fits/adapter_config.json"), "{\"peft_type\": \"LORA\", \"r\": 3}");
  refuse_adapter(MODEL, place("fits"), "lora_A.weight has rank 2, and r of adapter_config.json is 3");
}

// An adapter of zeros: `count` matrices of these shapes.
static void write_zeros(const char *to, const char *const *names, const uint64_t (*shapes)[2], int count) {
  static const float zeros[1 << 14];
  struct tensor_file file;
  char path[512];
  snprintf(path, sizeof path, "%s/adapter_config.json", to);
  assert_int_equal(platform_make_folder(to, false), 0);
  write_file(path, "{\"peft_type\": \"LORA\"}");
  snprintf(path, sizeof path, "%s/adapter_model.safetensors", to);
  tensor_file_begin(&file, path, NULL);
  for (int i = 0; i < count; i++) {
    assert_true(shapes[i][0] * shapes[i][1] * sizeof *zeros <= sizeof zeros);
    tensor_file_declare(&file, names[i], "F32", 2, shapes[i], shapes[i][0] * shapes[i][1] * sizeof *zeros);
  }
  tensor_file_write_header(&file);
  for (int i = 0; i < count; i++) tensor_file_append(&file, zeros, shapes[i][0] * shapes[i][1] * sizeof *zeros);
  assert_ok(tensor_file_end(&file));
}

// Such as of B A, or in the tensor's format.
static void numbers_that_overflow_are_not_merged(void **state) {
  static const char name[] = "model.layers.0.mlp.down_proj.weight";
  enum { WIDE = 1 << 14 };
  struct checkpoint *c;
  struct tensor_file file;
  float *values = malloc(WIDE * sizeof *values);
  char stored[sizeof name + 20];
  snprintf(stored, sizeof stored, "base_model.model.%s", name);
  assert_ok(checkpoint_open(MODEL, &c));
  const struct file_tensor *t = checkpoint_find(c, name);
  const uint64_t n = t->shape[0] * t->shape[1];
  assert_true(values && t->dtype == FILE_BF16 && n <= WIDE);
  for (uint64_t i = 0; i < n; i++) values[i] = i == n - 1 ? 3.4e38f : 0; // above the largest number of bf16
  assert_int_equal(platform_make_folder(place("large"), false), 0);
  write_file(place("large/adapter_config.json"), "{\"peft_type\": \"LORA\"}");
  tensor_file_begin(&file, place("large/adapter_model.safetensors"), NULL);
  tensor_file_declare(&file, stored, "F32", 2, t->shape, n * sizeof *values);
  tensor_file_write_header(&file);
  tensor_file_append(&file, values, n * sizeof *values);
  assert_ok(tensor_file_end(&file));
  checkpoint_close(c);
  free(values);
  assert_int_equal(deltaic_tune_merge(MODEL, place("large"), place("overflow"), false, NULL, NULL), DELTAIC_BAD_FILE);
  assert_non_null(strstr(deltaic_last_error(), "down_proj.weight is not finite (NaN or infinity) with"));
  assert_false(file_exists(place("overflow")));
}

// B's name begins with more characters than messages show.
static void long_names_of_adapters_are_whole(void **state) {
  enum { LONG = 260 };
  char stem[LONG + 1], A[512], B[512];
  memset(stem, 'x', LONG);
  stem[LONG] = 0;
  snprintf(A, sizeof A, "base_model.model.%s.lora_A.weight", stem);
  snprintf(B, sizeof B, "base_model.model.%s.lora_B.weight", stem);
  write_zeros(place("long"), (const char *const[]){A, B}, (const uint64_t[][2]){{2, 64}, {64, 2}}, 2);
  refuse_adapter(MODEL, place("long"), "is for no tensor of");
}

// As many elements in another order are other weights.
static void transposed_tensors_are_refused(void **state) {
  static const char name[] = "model.layers.0.mlp.down_proj.weight";
  char stored[sizeof name + 20];
  struct checkpoint *c;
  snprintf(stored, sizeof stored, "base_model.model.%s", name);
  assert_ok(checkpoint_open(MODEL, &c));
  const struct file_tensor *t = checkpoint_find(c, name);
  assert_true(t && t->shape[0] != t->shape[1]);
  const uint64_t shape[1][2] = {{t->shape[1], t->shape[0]}};
  checkpoint_close(c);
  write_zeros(place("transposed"), (const char *const[]){stored}, shape, 1);
  refuse_adapter(MODEL, place("transposed"), "does not fit tensor model.layers.0.mlp.down_proj.weight");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adapters_are_the_merged_checkpoint),
      cmocka_unit_test(adapters_of_embeddings_are_transposed),
      cmocka_unit_test(adapters_are_merged_into_a_folder),
      cmocka_unit_test(numbers_that_overflow_are_not_merged),
      cmocka_unit_test(biases_of_adapted_layers_are_stored_as_peft_has_them),
      cmocka_unit_test(long_names_of_adapters_are_whole),
      cmocka_unit_test(transposed_tensors_are_refused),
      cmocka_unit_test(adapters_that_do_not_fit_are_refused),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
