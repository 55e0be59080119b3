// test_tune: the library's trainings (deltaic_tune.h): what is trained, written, resumed and refused.
#define _GNU_SOURCE // nftw, mkdtemp
#include "checkpoint.h"
#include "file.h"
#include "folder.h"
#include "tensor_file.h"
#include "tuning.h"

#include "tune_case.h"

#include <math.h>
#include <unistd.h>

static bool same_file(const char *folder_a, const char *folder_b, const char *name) {
  struct file_view a, b;
  char *path_a = path_join(folder_a, name), *path_b = path_join(folder_b, name);
  assert_ok(file_map(path_a, &a));
  assert_ok(file_map(path_b, &b));
  const bool same = a.bytes == b.bytes && !memcmp(a.data, b.data, a.bytes);
  file_unmap(&a);
  file_unmap(&b);
  free(path_a);
  free(path_b);
  return same;
}

// ---------------------------------------------------------------- what is computed

static void a_batch_is_learned(void **state) {
  deltaic_tune *tune = create(&(deltaic_tune_options){.size = sizeof(deltaic_tune_options), .everything = true});
  const deltaic_tune_batch batch = batch_at(0);
  deltaic_tune_loss first, last;
  double norm;
  assert_ok(deltaic_tune_measure(tune, &batch, &first));
  for (int i = 0; i < 12; i++) {
    assert_ok(deltaic_tune_add(tune, &batch, 1, &last));
    assert_ok(deltaic_tune_step(tune, 1e-2, &norm));
    assert_true(norm > 0);
    if (!i) assert_true(last.ce == first.ce && last.kd == 0);
  }
  assert_true(last.ce < 0.7 * first.ce);
  deltaic_tune_free(tune);
}

// Two halves of a batch, and targets that are the next tokens, give the batch's gradient.
static void shares_and_targets_add_up(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .everything = true};
  int32_t targets[ROWS * T];
  double norms[4];
  deltaic_tune_loss loss[4];
  for (int form = 0; form < 4; form++) {
    deltaic_tune *tune = create(&o);
    deltaic_tune_batch batch = batch_at(0);
    if (form == 1) { // halves
      deltaic_tune_loss a, b;
      batch.rows = 1;
      assert_ok(deltaic_tune_add(tune, &batch, 0.5, &a));
      batch.tokens += T + 1;
      assert_ok(deltaic_tune_add(tune, &batch, 0.5, &b));
      loss[form].ce = (a.ce + b.ce) / 2;
    } else {
      for (int i = 0; i < ROWS * T; i++) targets[i] = form == 3 && i >= T ? -1 : tokens[i + i / T + 1];
      if (form >= 2) batch.targets = targets;
      assert_ok(deltaic_tune_add(tune, &batch, 1, &loss[form]));
    }
    assert_ok(deltaic_tune_step(tune, 1e-3, &norms[form]));
    deltaic_tune_free(tune);
  }
  assert_float_equal(loss[1].ce, loss[0].ce, 1e-6);
  assert_float_equal(norms[1], norms[0], 1e-5 * norms[0]);
  assert_true(loss[2].ce == loss[0].ce && norms[2] == norms[0]);
  deltaic_tune *tune = create(&o); // what does not count has no part: the first row alone
  deltaic_tune_batch batch = batch_at(0);
  double norm;
  batch.rows = 1;
  assert_ok(deltaic_tune_add(tune, &batch, 1, &loss[0]));
  assert_ok(deltaic_tune_step(tune, 1e-3, &norm));
  assert_float_equal(loss[3].ce, loss[0].ce, 1e-6);
  assert_float_equal(norms[3], norm, 1e-5 * norm);
  deltaic_tune_free(tune);
}

// Batches of unequal length, each with its share of the predictions, give the gradient of one batch.
static void unequal_batches_add_up(void **state) {
  enum { SHORT = 5 };
  const deltaic_tune_options o = {.size = sizeof o, .everything = true};
  int32_t targets[ROWS * T];
  double norms[2], shares[2] = {T / (double)(T + SHORT), SHORT / (double)(T + SHORT)};
  deltaic_tune_loss whole, parts[2];
  make_tokens();
  for (int i = 0; i < ROWS * T; i++) targets[i] = i >= T + SHORT ? -1 : tokens[i + i / T + 1];
  deltaic_tune *tune = create(&o);
  deltaic_tune_batch batch = batch_at(0);
  batch.targets = targets;
  assert_ok(deltaic_tune_add(tune, &batch, 1, &whole));
  assert_ok(deltaic_tune_step(tune, 1e-3, &norms[0]));
  deltaic_tune_free(tune);
  tune = create(&o);
  for (int i = 0; i < 2; i++) {
    batch = batch_at(0);
    batch.tokens += i * (T + 1);
    batch.rows = 1;
    if (i) batch.length = SHORT;
    assert_ok(deltaic_tune_add(tune, &batch, shares[i], &parts[i]));
  }
  assert_ok(deltaic_tune_step(tune, 1e-3, &norms[1]));
  assert_float_equal(shares[0] * parts[0].ce + shares[1] * parts[1].ce, whole.ce, 1e-6);
  assert_float_equal(norms[1], norms[0], 1e-5 * norms[0]);
  deltaic_tune_free(tune);
}

static void the_rate_rises_and_falls(void **state) {
  const deltaic_tune_schedule s = {.size = sizeof s, .rate = 1, .least = 0.1, .steps = 12, .warm_up = 4};
  assert_float_equal(deltaic_tune_rate(&s, 0), 0.25, 1e-12);
  assert_float_equal(deltaic_tune_rate(&s, 3), 1, 1e-12);
  assert_float_equal(deltaic_tune_rate(&s, 4), 1, 1e-12);
  assert_float_equal(deltaic_tune_rate(&s, 8), 0.55, 1e-12);
  assert_float_equal(deltaic_tune_rate(&s, 12), 0.1, 1e-12);
  assert_float_equal(deltaic_tune_rate(&s, 99), 0.1, 1e-12);
}

// ---------------------------------------------------------------- what is written

static void going_on_gives_the_same_bits(void **state) {
  const deltaic_tune_options whole = {.size = sizeof whole, .teacher = MODEL, .rank = 4, .seed = 7, .threads = 1};
  const deltaic_tune_options parted = {.size = sizeof parted, .teacher = MODEL, .rank = 4, .seed = 8, .threads = 2};
  char *note;
  deltaic_tune_info info;
  deltaic_tune *tune = create(&whole);
  steps(tune, 0, 2);
  assert_ok(deltaic_tune_save_state(tune, place("state"), "a note"));
  steps(tune, 2, STEPS);
  assert_ok(deltaic_tune_save(tune, place("whole"), false));
  deltaic_tune_free(tune);
  tune = create(&parted); // another seed: the adapters come from the file
  steps(tune, 0, 1);
  const deltaic_tune_batch batch = batch_at(0);
  assert_ok(deltaic_tune_add(tune, &batch, 1, NULL)); // a gradient that is gone
  assert_ok(deltaic_tune_load_state(tune, place("state"), &note));
  assert_string_equal(note, "a note");
  free(note);
  deltaic_tune_get_info(tune, &info);
  assert_int_equal(info.steps, 2);
  steps(tune, 2, STEPS);
  assert_ok(deltaic_tune_save(tune, place("parted"), false));
  assert_true(same_file(place("whole"), place("parted"), "model.safetensors"));
  assert_false(same_file(place("whole"), MODEL, "model.safetensors"));
  assert_true(same_file(place("whole"), MODEL, "config.json"));
  assert_false(file_exists(place("whole/reference.safetensors")));
  assert_int_equal(deltaic_tune_save(tune, place("parted"), false), DELTAIC_INVALID_ARGUMENT);
  assert_ok(deltaic_tune_save(tune, place("parted"), true));
  deltaic_tune_free(tune);
}

// A state in main memory: whatever is done from it, going back gives the same bits as if nothing had been.
static void going_back_gives_the_same_bits(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .rank = 4, .seed = 7};
  deltaic_tune_info info;
  deltaic_tune *tune = create(&o);
  const deltaic_tune_batch batch = batch_at(3);
  double norm, again;
  assert_int_equal(deltaic_tune_return(tune), DELTAIC_NOT_FOUND);
  steps(tune, 0, 2);
  assert_ok(deltaic_tune_keep_state(tune));
  steps(tune, 2, STEPS);
  assert_ok(deltaic_tune_save(tune, place("straight"), false));
  assert_ok(deltaic_tune_add(tune, &batch, 1, NULL)); // a gradient that is gone too
  assert_ok(deltaic_tune_return(tune));
  deltaic_tune_get_info(tune, &info);
  assert_int_equal(info.steps, 2);
  steps(tune, 2, STEPS);
  assert_ok(deltaic_tune_save(tune, place("back"), false));
  assert_true(same_file(place("straight"), place("back"), "model.safetensors"));
  assert_ok(deltaic_tune_add(tune, &batch, 1, NULL));
  assert_ok(deltaic_tune_norm(tune, &norm));
  assert_ok(deltaic_tune_step(tune, 0, &again));
  assert_true(norm > 0 && norm == again);
  deltaic_tune_free(tune);
}

static void a_state_of_something_else_is_refused(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .rank = 2}, rank = {.size = sizeof rank, .rank = 3},
                             taught = {.size = sizeof taught, .rank = 2, .teacher = MODEL},
                             fewer = {.size = sizeof fewer, .rank = 2, .whole = ""};
  const deltaic_tune_options *const others[] = {&rank, &taught, &fewer};
  static const char *const messages[] = {"was trained with rank 2, and this training has rank 3", "another teacher",
                                         "is a training of other tensors"};
  deltaic_tune *tune = create(&o);
  assert_ok(deltaic_tune_save_state(tune, place("state"), NULL));
  deltaic_tune_free(tune);
  for (int i = 0; i < 3; i++) {
    tune = create(others[i]);
    assert_int_equal(deltaic_tune_load_state(tune, place("state"), NULL), DELTAIC_INVALID_ARGUMENT);
    assert_non_null(strstr(deltaic_last_error(), messages[i]));
    deltaic_tune_free(tune);
  }
  assert_ok(deltaic_tune_create(TESTS_DIR "/vectors/models/tiny_delta_net", &o, &tune));
  assert_int_equal(deltaic_tune_load_state(tune, place("state"), NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "another model"));
  assert_int_equal(deltaic_tune_load_state(tune, MODEL "/model.safetensors", NULL), DELTAIC_BAD_FILE);
  deltaic_tune_free(tune);
}

static void write_shard(struct checkpoint *c, uint64_t shard, json_t *map) {
  char name[64];
  struct tensor_file file;
  snprintf(name, sizeof name, "model-%llu.safetensors", (unsigned long long)shard);
  const char *path = place("shards/");
  char *whole = path_join(path, name);
  tensor_file_begin(&file, whole, NULL);
  for (uint64_t i = shard; i < checkpoint_count(c); i += 2) {
    const struct file_tensor *t = checkpoint_at(c, i);
    tensor_file_declare(&file, t->name, t->dtype_name, t->rank, t->shape, t->bytes);
    json_object_set_new(map, t->name, json_string(name));
  }
  tensor_file_write_header(&file);
  for (uint64_t i = shard; i < checkpoint_count(c); i += 2)
    tensor_file_append(&file, checkpoint_at(c, i)->data, checkpoint_at(c, i)->bytes);
  assert_ok(tensor_file_end(&file));
  free(whole);
}

static bool is_config(const void *user, const char *name) { return !strcmp(name, "config.json"); }

// A checkpoint in several files is written in these files, and trained as the one in a single file.
static void shards_stay_shards(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .rank = 2};
  struct checkpoint *c;
  json_t *map = json_object(), *index = json_pack("{s:o}", "weight_map", map);
  int32_t V;
  deltaic_tune *tune = create(&o);
  steps(tune, 0, 2);
  assert_ok(deltaic_tune_save(tune, place("single"), false));
  deltaic_tune_free(tune);
  assert_ok(checkpoint_open(MODEL, &c));
  assert_int_equal(platform_make_folder(place("shards"), false), 0);
  for (uint64_t shard = 0; shard < 2; shard++) write_shard(c, shard, map);
  checkpoint_close(c);
  assert_int_equal(json_dump_file(index, place("shards/model.safetensors.index.json"), 0), 0);
  json_decref(index);
  assert_ok(folder_copy(MODEL, place("shards"), is_config, NULL));
  assert_ok(deltaic_tune_create(place("shards"), &o, &tune));
  steps(tune, 0, 2);
  assert_ok(deltaic_tune_save(tune, place("tuned"), false));
  deltaic_tune_free(tune);
  assert_true(file_exists(place("tuned/model-1.safetensors")) && !file_exists(place("tuned/model.safetensors")));
  float *single = logits_of(place("single"), NULL, T, &V), *tuned = logits_of(place("tuned"), NULL, T, &V);
  assert_memory_equal(single, tuned, T * (size_t)V * sizeof *single);
  free(single);
  free(tuned);
}

// ---------------------------------------------------------------- what is refused

static void refuse(const char *path, deltaic_tune_options o, const char *message) {
  deltaic_tune *tune = NULL;
  o.size = sizeof o;
  assert_true(deltaic_tune_create(path, &o, &tune) != DELTAIC_OK);
  if (!strstr(deltaic_last_error(), message)) print_error("%s\n", deltaic_last_error());
  assert_non_null(strstr(deltaic_last_error(), message));
  assert_null(tune);
}

static void what_cannot_be_trained_is_refused(void **state) {
  refuse(MODEL, (deltaic_tune_options){.adapt = "q_proj,nothing"}, "has no matrix with \"nothing\" in its name");
  refuse(MODEL, (deltaic_tune_options){.adapt = "conv1d"},
         "has no matrix with \"conv1d\" in its name; its matrices are embeddings, a_proj, b_proj, ");
  refuse(TESTS_DIR "/vectors/models/tiny_mamba2", (deltaic_tune_options){.rank = 4},
         "has no matrix with \"q_proj,k_proj,v_proj\" in its name; its matrices are embeddings, in_proj, out_proj");
  refuse(MODEL, (deltaic_tune_options){.whole = "nothing"}, "has no tensor with \"nothing\" in its name");
  refuse(MODEL, (deltaic_tune_options){.adapt = "q_proj,,k_proj"}, "has an empty one");
  refuse(MODEL, (deltaic_tune_options){.adapt = "", .whole = ""}, "has no tensors of the kinds that are trained");
  refuse(MODEL, (deltaic_tune_options){.rank = 5000}, "rank 5000");
  refuse(MODEL, (deltaic_tune_options){.beta2 = 1}, "betas are below 1");
  refuse(MODEL, (deltaic_tune_options){.eps = 1e-39}, "and eps 1e-39: betas are below 1, eps is 1.18e-38 to 3.4e+38");
  refuse(MODEL, (deltaic_tune_options){.decay = -1}, "a decay of -1");
  refuse(MODEL, (deltaic_tune_options){.temperature = NAN}, "both must be above 0");
  refuse(MODEL, (deltaic_tune_options){.teacher = "no/such"}, "no/such");
  refuse(TESTS_DIR "/vectors/models/gguf_blocks/model.gguf", (deltaic_tune_options){.rank = 0}, "is a GGUF file");
}

static void teachers_with_other_tokens_are_refused(void **state) {
  assert_int_equal(platform_make_folder(place("teacher"), false), 0);
  swap_tokens(MODEL "/tokenizer.json", place("teacher/tokenizer.json"));
  refuse(MODEL, (deltaic_tune_options){.teacher = place("teacher")},
         "has other tokens than " MODEL ", the first of them 123");
  assert_ok(deltaic_tune_check_teacher(MODEL, MODEL));
  assert_ok(deltaic_tune_check_teacher(MODEL, folder)); // without a tokenizer
  assert_int_equal(deltaic_tune_check_teacher(MODEL, NULL), DELTAIC_INVALID_ARGUMENT);
}

// A name that is part of another is a name too; none is there twice, and none in part.
static void matrices_are_listed_once(void **state) {
  static const char *const names[] = {"gate_proj", "gate", "proj", "gate_proj", "gate", "too_long_a_name", "up"};
  char list[32] = "";
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) tuning_list(list, sizeof list, names[i], strlen(names[i]));
  assert_string_equal(list, "gate_proj, gate, proj, up");
  tuning_list(list, sizeof list, "seven_more", 5);
  assert_string_equal(list, "gate_proj, gate, proj, up"); // with it and its NUL 33 bytes
  tuning_list(list, sizeof list, "seven_more", 4);
  assert_string_equal(list, "gate_proj, gate, proj, up, seve");
}

static void bad_calls_change_nothing(void **state) {
  const deltaic_tune_options o = {.size = sizeof o, .everything = true};
  deltaic_tune *tune = create(&o);
  deltaic_tune_batch batch = batch_at(0);
  int32_t bad[T + 1] = {0}, nothing[T];
  deltaic_tune_loss before, after;
  memset(nothing, 0xff, sizeof nothing);
  assert_ok(deltaic_tune_measure(tune, &batch, &before));
  bad[T] = 259;
  assert_int_equal(deltaic_tune_add(tune, &(deltaic_tune_batch){sizeof batch, bad, 1, T, NULL}, 1, NULL),
                   DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tune_add(tune, &(deltaic_tune_batch){sizeof batch, tokens, 1, T, nothing}, 1, NULL),
                   DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tune_add(tune, &(deltaic_tune_batch){sizeof batch, tokens, 0, T, NULL}, 1, NULL),
                   DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tune_add(tune, &batch, NAN, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tune_step(tune, NAN, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_tune_step(tune, 1e-3, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "deltaic_tune_step: there is no gradient"));
  assert_int_equal(deltaic_tune_norm(tune, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_ok(deltaic_tune_measure(tune, &batch, &after));
  assert_true(before.ce == after.ce);
  deltaic_tune_free(tune);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_batch_is_learned),
      cmocka_unit_test(shares_and_targets_add_up),
      cmocka_unit_test(unequal_batches_add_up),
      cmocka_unit_test(the_rate_rises_and_falls),
      cmocka_unit_test(going_on_gives_the_same_bits),
      cmocka_unit_test(going_back_gives_the_same_bits),
      cmocka_unit_test(a_state_of_something_else_is_refused),
      cmocka_unit_test(shards_stay_shards),
      cmocka_unit_test(what_cannot_be_trained_is_refused),
      cmocka_unit_test(teachers_with_other_tokens_are_refused),
      cmocka_unit_test(matrices_are_listed_once),
      cmocka_unit_test(bad_calls_change_nothing),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
