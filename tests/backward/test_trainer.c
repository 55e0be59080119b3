// test_trainer: five steps of AdamW against float64 (tests/vectors/grad/train_*): losses, gradient norms and the
// tensors after the last step.
//
// DELTAIC_REFERENCE names a folder with reference/grad/train and the checkpoints.
#include "device_handle.h"
#include "trainer.h"

#include <math.h>

// Last: its macro fail() must not meet the declaration of ours.
#include "devices.h"

static struct file_tensor *find(struct checkpoint *c, const char *prefix, const char *name) {
  char key[256];
  snprintf(key, sizeof key, "%s%s", prefix, name);
  return checkpoint_find(c, key);
}

static enum training kind(void *user, const struct file_tensor *t) {
  if (find(user, "init.A.", t->name)) return TRAIN_LORA;
  return find(user, "final.", t->name) ? TRAIN_WHOLE : TRAIN_NOT;
}

static void model_path(char *path, size_t size, const char *name) {
  const char *folder = getenv("DELTAIC_REFERENCE");
  if (folder)
    snprintf(path, size, "%s/checkpoints/%s", folder, name);
  else
    snprintf(path, size, "%s/%s", TESTS_DIR "/vectors/models", name);
}

static uint64_t elements(const struct file_tensor *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

// |p - final| is at most the limit times |final - start|. The limit: 1e-3, or three times what float32 by itself is off
// by.
static void compare(struct checkpoint *c, const json_t *f32_error, const char *prefix, const char *name, const float *p,
                    const float *start) {
  char key[256];
  snprintf(key, sizeof key, "%s%s", prefix, name);
  const struct file_tensor *t = find(c, "final.", key);
  assert_non_null(t);
  const uint64_t n = elements(t);
  float *want = malloc(n * sizeof *want);
  double error = 0, moved = 0;
  file_tensor_f32(t, 0, n, want);
  for (uint64_t i = 0; i < n; i++) {
    error += ((double)p[i] - want[i]) * ((double)p[i] - want[i]);
    moved += ((double)want[i] - start[i]) * ((double)want[i] - start[i]);
  }
  const double limit = fmax(1e-3, 3 * json_number_value(json_object_get(f32_error, key)));
  if (sqrt(error) > limit * sqrt(moved)) print_error("%s: %g\n", key, sqrt(error / moved));
  assert_true(sqrt(error) <= limit * sqrt(moved));
  free(want);
}

static void compare_all(struct checkpoint *c, struct trainer *t, float **start, uint32_t rank) {
  json_t *f32_error = json_loads(checkpoint_metadata(c, "f32_error"), 0, NULL);
  for (size_t i = 0; i < trainer_count(t); i++) {
    const struct trained *x = trainer_at(t, i);
    const uint64_t split = rank * x->cols;
    float *p = malloc(x->n * sizeof *p);
    assert_ok(trainer_read(t, i, TRAINED_P, p));
    compare(c, f32_error, x->lora ? "A." : "", x->tensor->name, p, start[i]);
    if (x->lora) compare(c, f32_error, "B.", x->tensor->name, p + split, start[i] + split);
    free(p);
  }
  json_decref(f32_error);
}

// Sets A and B to the file's and returns copies of what is trained.
static float **take_start(struct checkpoint *c, struct trainer *t, uint32_t rank) {
  float **start = calloc(trainer_count(t), sizeof *start);
  for (size_t i = 0; i < trainer_count(t); i++) {
    const struct trained *x = trainer_at(t, i);
    start[i] = malloc(x->n * sizeof *start[i]);
    assert_ok(trainer_read(t, i, TRAINED_P, start[i]));
    if (!x->lora) continue;
    file_tensor_f32(find(c, "init.A.", x->tensor->name), 0, rank * x->cols, start[i]);
    file_tensor_f32(find(c, "init.B.", x->tensor->name), 0, rank * x->rows, start[i] + rank * x->cols);
    assert_ok(trainer_write(t, i, TRAINED_P, start[i]));
  }
  assert_ok(trainer_refresh(t));
  return start;
}

static void train(const char *name, deltaic_device *device) {
  struct checkpoint *c;
  char path[512], teacher_path[512];
  const char *folder = getenv("DELTAIC_REFERENCE");
  snprintf(path, sizeof path, "%s%s%s.safetensors", folder ? folder : TESTS_DIR "/vectors/grad",
           folder ? "/reference/grad/train/" : "/train_", name);
  assert_ok(checkpoint_open(path, &c));
  json_t *hyper = json_loads(checkpoint_metadata(c, "hyper"), 0, NULL);
  json_t *losses = json_loads(checkpoint_metadata(c, "loss"), 0, NULL);
  json_t *norms = json_loads(checkpoint_metadata(c, "grad_norm"), 0, NULL);
#define HYPER(key) json_number_value(json_object_get(hyper, key))
  const struct trainer_options o = {.rank = (uint32_t)HYPER("rank"),
                                    .alpha = HYPER("alpha"),
                                    .beta1 = HYPER("beta1"),
                                    .beta2 = HYPER("beta2"),
                                    .eps = HYPER("eps"),
                                    .decay = HYPER("weight_decay"),
                                    .clip = HYPER("clip")};
#undef HYPER
  const struct file_tensor *tokens = checkpoint_find(c, "tokens");
  const uint32_t rows = (uint32_t)tokens->shape[1], T = (uint32_t)tokens->shape[2] - 1;
  int32_t *ids = malloc(tokens->bytes);
  memcpy(ids, tokens->data, tokens->bytes);
  struct trainer *t;
  struct distillation d = {NULL, 1, 2};
  model_path(path, sizeof path, checkpoint_metadata(c, "checkpoint"));
  assert_ok(trainer_open(path, device->backend, 0, kind, c, &o, &t));
  if (strcmp(checkpoint_metadata(c, "teacher"), "None")) {
    model_path(teacher_path, sizeof teacher_path, checkpoint_metadata(c, "teacher"));
    assert_ok(learner_open(teacher_path, device->backend, 0, false, NULL, NULL, &d.teacher));
  }
  float **start = take_start(c, t, o.rank);
  for (size_t step = 0; step < tokens->shape[0]; step++) {
    const struct learner_batch batch = {ids + step * rows * (T + 1), rows, T, NULL};
    struct learner_loss loss = {0};
    double norm, wanted = json_number_value(json_array_get(norms, step));
    assert_ok(learner_add(trainer_learner(t), &batch, &d, 1, &loss));
    assert_float_equal(loss.ce + loss.kd, json_number_value(json_array_get(losses, step)), 1e-5);
    assert_ok(trainer_step(t, json_number_value(json_array_get(json_object_get(hyper, "lr"), step)), &norm));
    assert_float_equal(norm, wanted, 1e-4 * wanted);
  }
  compare_all(c, t, start, o.rank);
  for (size_t i = 0; i < trainer_count(t); i++) free(start[i]);
  free(start);
  trainer_close(t);
  learner_close(d.teacher);
  json_decref(hyper);
  json_decref(losses);
  json_decref(norms);
  free(ids);
  checkpoint_close(c);
}

// Adapters of attention too; norms, biases and convolutions of Mamba-2 trained themselves.
static void steps_match(deltaic_device *device) {
  train("lora_tiny_gated_deltanet_h2", device);
  if (!getenv("DELTAIC_REFERENCE")) return; // the files of the other cases are not in the repository
  train("lora_tiny_gated_deltanet", device);
  train("full_tiny_delta_product", device);
  train("lora_gated_deltanet", device);
}

static enum training all_norms(void *user, const struct file_tensor *t) {
  return strstr(t->name, "norm") ? TRAIN_WHOLE : TRAIN_NOT;
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state) {
  enum { T = 20 };
  const struct trainer_options o = {.rank = 1, .alpha = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
  struct trainer *t;
  struct learner_loss loss = {0};
  int32_t tokens[T + 1];
  double norm;
  for (int i = 0; i <= T; i++) tokens[i] = 3 + i;
  assert_ok(trainer_open(TESTS_DIR "/vectors/models/tiny_gated_deltanet", NULL, 1, all_norms, NULL, &o, &t));
  const uint64_t n = trainer_at(t, 0)->n;
  float p[2][256];
  assert_true(n <= 256 && trainer_at(t, 1)->n <= 256);
  for (uint64_t i = 0; i < n; i++) p[0][i] = INFINITY;
  assert_ok(trainer_write(t, 0, TRAINED_P, p[0]));
  assert_ok(trainer_refresh(t));
  assert_ok(learner_add(trainer_learner(t), &(struct learner_batch){tokens, 1, T, NULL}, NULL, 1, &loss));
  assert_ok(trainer_read(t, 1, TRAINED_P, p[0]));
  assert_int_equal(trainer_step(t, 1e-3, &norm), DELTAIC_INVALID_ARGUMENT);
  assert_string_equal(deltaic_last_error(), "the gradient is not finite");
  assert_ok(trainer_read(t, 1, TRAINED_P, p[1]));
  assert_memory_equal(p[0], p[1], trainer_at(t, 1)->n * sizeof(float));
  trainer_close(t);
}

static enum training nothing(void *user, const struct file_tensor *t) { return TRAIN_NOT; }

static void nothing_to_train_is_refused(void **state) {
  const struct trainer_options o = {.rank = 1, .alpha = 1};
  struct trainer *t;
  assert_int_equal(trainer_open(TESTS_DIR "/vectors/models/tiny_gated_deltanet", NULL, 1, nothing, NULL, &o, &t),
                   DELTAIC_UNSUPPORTED);
  assert_null(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      device_test(steps_match),
      cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
      cmocka_unit_test(nothing_to_train_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
