// test_trainer: five steps of AdamW against float64 (tests/vectors/grad/train_*): losses, gradient norms and the
// tensors after the last step.
//
// DELTAIC_REFERENCE names a folder with reference/grad/train and the checkpoints.
#include "device_handle.h"
#include "trainer_items.h"

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

// ---------------------------------------------------------------- a step that fails

static int reads_left; // until one fails
static const struct backend_functions *real;

static deltaic_status read_or_fail(struct backend *b, struct buffer *from, uint64_t offset, void *data,
                                   uint64_t bytes) {
  if (reads_left-- > 0) return real->buffer_read(b, from, offset, data, bytes);
  return fail_memory("a read", bytes);
}

static enum training all_masks(void *user, const struct file_tensor *t) {
  return t->used && strstr(t->name, "M_org") ? TRAIN_WHOLE : TRAIN_NOT;
}

// Masks pass through the host: the gradient is read before the update, the new values after it.
static void a_model_that_is_half_updated_is_refused(void **state) {
  enum { T = 20 };
  static const char text[] = "the model was left half updated by what failed before: go on from a saved state";
  const struct trainer_options o = {.rank = 1, .alpha = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
  int32_t tokens[T + 1];
  for (int i = 0; i <= T; i++) tokens[i] = 3 + i;
  const struct learner_batch batch = {tokens, 1, T, NULL};
  bool before = false, after = false;
  for (int reads = 0; !after || reads_left <= 0; reads++) {
    struct trainer *t;
    struct learner_loss loss;
    struct backend_functions functions;
    double norm;
    float p[256];
    assert_ok(trainer_open(TESTS_DIR "/vectors/models/tiny_hh_delta_static", NULL, 1, all_masks, NULL, &o, &t));
    assert_true(trainer_at(t, 0)->n <= sizeof p / sizeof *p);
    struct backend *b = learner_backend(trainer_learner(t));
    assert_ok(learner_add(trainer_learner(t), &batch, NULL, 1, &loss));
    functions = *(real = b->functions);
    functions.buffer_read = read_or_fail;
    b->functions = &functions;
    reads_left = reads;
    const deltaic_status status = trainer_step(t, 1e-3, &norm);
    b->functions = real;
    assert_int_equal(trainer_steps(t), !status);
    const deltaic_status next = trainer_read(t, 0, TRAINED_P, p);
    if (status && next) {
      after = true;
      assert_int_equal(status, DELTAIC_OUT_OF_MEMORY);
      assert_int_equal(next, DELTAIC_OUT_OF_MEMORY);
      assert_string_equal(deltaic_last_error(), text);
      assert_int_equal(trainer_step(t, 1e-3, &norm), DELTAIC_OUT_OF_MEMORY);
      assert_string_equal(deltaic_last_error(), text);
      assert_int_equal(trainer_values(t, 0, p), DELTAIC_OUT_OF_MEMORY);
    } else if (status)
      before = true;
    trainer_close(t);
    if (!status) break;
  }
  assert_true(before && after);
}

// ---------------------------------------------------------------- a step of every tensor

// user: how matrices are trained.
static enum training each(void *user, const struct file_tensor *t) {
  if (!t->used || t->dtype > FILE_BF16) return TRAIN_NOT;
  return t->rank == 2 ? *(const enum training *)user : TRAIN_WHOLE;
}

static float *numbers(uint64_t n) { return calloc(n, sizeof(float)); }

// A tensor before a step, and the gradient of what is trained, computed on the host in f64.
struct before {
  float *p, *m, *v;
  double *g;
};

static double *lora_gradient(const struct trained *x, const float *p, const float *dW,
                             const struct trainer_options *o) {
  const uint64_t rank = o->rank, rows = x->rows, cols = x->cols;
  double *g = calloc(x->n, sizeof *g);
  for (uint64_t i = 0; i < rows; i++)
    for (uint64_t r = 0; r < rank; r++)
      for (uint64_t k = 0; k < cols; k++) {
        const double d = o->alpha / o->rank * (double)dW[i * cols + k];
        g[r * cols + k] += d * (double)p[rank * cols + i * rank + r];
        g[rank * cols + i * rank + r] += d * (double)p[r * cols + k];
      }
  return g;
}

static struct before look(struct trainer *t, size_t i, const struct trainer_options *o) {
  const struct trained *x = trainer_at(t, i);
  struct before b = {numbers(x->n), numbers(x->n), numbers(x->n), NULL};
  const uint64_t n = elements(x->tensor);
  float *g = numbers(n);
  assert_ok(trainer_read(t, i, TRAINED_P, b.p));
  assert_ok(trainer_read(t, i, TRAINED_M, b.m));
  assert_ok(trainer_read(t, i, TRAINED_V, b.v));
  assert_ok(learner_gradient(trainer_learner(t), x->tensor, g));
  if (x->lora) b.g = lora_gradient(x, b.p, g, o);
  if (!x->lora) b.g = malloc(n * sizeof *b.g);
  for (uint64_t k = 0; k < n && !x->lora; k++) b.g[k] = (double)g[k];
  free(g);
  return b;
}

// The numbers after the step are those of AdamW in f64. A small gradient that is off by a little moves a number by
// much.
static void compare_step(struct trainer *t, size_t i, const struct trainer_options *o, struct before b, double scale) {
  const struct trained *x = trainer_at(t, i);
  const double steps = (double)trainer_steps(t), rate = 1e-2;
  float *p = numbers(x->n);
  double error = 0, moved = 0, size = 0;
  assert_ok(trainer_read(t, i, TRAINED_P, p));
  for (uint64_t k = 0; k < x->n; k++) {
    const double g = b.g[k] * scale, m = o->beta1 * (double)b.m[k] + (1 - o->beta1) * g;
    const double v = o->beta2 * (double)b.v[k] + (1 - o->beta2) * g * g, old = (double)b.p[k];
    const double step = m / (1 - pow(o->beta1, steps)) / (sqrt(v / (1 - pow(o->beta2, steps))) + o->eps);
    const double want = old * (1 - rate * o->decay) - rate * step;
    error += ((double)p[k] - want) * ((double)p[k] - want);
    moved += (want - old) * (want - old);
    size += old * old;
  }
  if (sqrt(error) > 1e-3 * sqrt(moved) + 1e-7 * sqrt(size))
    fail_msg("%s: off by %g of %g", x->name, sqrt(error), sqrt(moved));
  free(p);
  free(b.p);
  free(b.m);
  free(b.v);
  free(b.g);
}

static void take_steps(struct trainer *t, const struct trainer_options *o, const struct learner_batch *batch) {
  struct before *b = calloc(trainer_count(t), sizeof *b);
  for (int step = 0; step < 2; step++) {
    struct learner_loss loss;
    double norm, squares = 0;
    assert_ok(learner_add(trainer_learner(t), batch, NULL, 1, &loss));
    for (size_t i = 0; i < trainer_count(t); i++) {
      b[i] = look(t, i, o);
      for (uint64_t k = 0; k < trainer_at(t, i)->n; k++) squares += b[i].g[k] * b[i].g[k];
    }
    assert_ok(trainer_step(t, 1e-2, &norm));
    assert_float_equal(norm, sqrt(squares), 1e-5 * norm);
    for (size_t i = 0; i < trainer_count(t); i++) compare_step(t, i, o, b[i], fmin(1, o->clip / (norm + 1e-6)));
  }
  free(b);
}

// The learner has the tensors' values: setting them on the host, which is another way, changes nothing.
static void compare_weights(struct trainer *t, const struct learner_batch *batch, bool lora) {
  struct learner_loss loss, again;
  float **values = calloc(trainer_count(t), sizeof *values);
  assert_ok(learner_measure(trainer_learner(t), batch, NULL, &loss));
  for (size_t i = 0; i < trainer_count(t); i++) {
    values[i] = numbers(elements(trainer_at(t, i)->tensor));
    assert_ok(trainer_values(t, i, values[i]));
  }
  for (size_t i = 0; i < trainer_count(t); i++)
    assert_ok(learner_set(trainer_learner(t), trainer_at(t, i)->tensor, values[i]));
  assert_ok(learner_measure(trainer_learner(t), batch, NULL, &again));
  if (lora)
    assert_float_equal(loss.ce, again.ce, 1e-6);
  else
    assert_true(loss.ce == again.ce);
  for (size_t i = 0; i < trainer_count(t); i++) free(values[i]);
  free(values);
}

static void take_steps_of(deltaic_device *device, const char *name, enum training matrices) {
  enum { ROWS = 2, T = 20 };
  const struct trainer_options o = {
      .rank = 3, .alpha = 5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .clip = 1};
  int32_t tokens[ROWS * (T + 1)];
  struct trainer *t;
  char path[512];
  for (int i = 0; i < ROWS * (T + 1); i++) tokens[i] = 3 + i * 7 % 40;
  const struct learner_batch batch = {tokens, ROWS, T, NULL};
  snprintf(path, sizeof path, "%s/%s", TESTS_DIR "/vectors/models", name);
  assert_ok(trainer_open(path, device->backend, 0, each, &matrices, &o, &t));
  print_message("%s\n", name);
  take_steps(t, &o, &batch);
  compare_weights(t, &batch, matrices == TRAIN_LORA);
  trainer_close(t);
}

// Joined and transposed matrices, norms that are stored less 1, rows in another order, filters that heads share, masks
// and norms that are computed: the step is that of the formulas, and the device's weights follow.
static void every_tensor_takes_its_step(deltaic_device *device) {
  static const char *const all[] = {"tiny_gated_deltanet",  "tiny_hh_delta_static", "tiny_hh_gated_dynamic",
                                    "tiny_delta_net_swa",   "released_qwen3_5",     "ablation_filter_a_head",
                                    "ablation_one_filter",  "tiny_mamba2",          "tiny_gated_delta_product",
                                    "released_olmo_hybrid", "released_qwen3_5_bias"};
  const size_t count = test_all_on(device) ? sizeof all / sizeof *all : 2;
  for (size_t i = 0; i < count; i++)
    for (int k = 0; k < 2; k++) take_steps_of(device, all[i], k ? TRAIN_LORA : TRAIN_WHOLE);
}

// ---------------------------------------------------------------- going on

static void two_steps(struct trainer *t, const struct learner_batch *batch) {
  struct learner_loss loss;
  double norm;
  for (int i = 0; i < 2; i++) {
    assert_ok(learner_add(trainer_learner(t), batch, NULL, 1, &loss));
    assert_ok(trainer_step(t, 1e-2, &norm));
  }
}

// Reads every array of `from`, and writes it to `to`, or compares it with to's.
static void pass(struct trainer *from, struct trainer *to, bool compares) {
  for (size_t i = 0; i < trainer_count(from); i++)
    for (int k = 0; k < TRAINED_ARRAYS; k++) {
      const uint64_t n = trainer_at(from, i)->n;
      float *a = numbers(n), *b = numbers(n);
      assert_ok(trainer_read(from, i, (enum trained_array)k, a));
      if (compares) {
        assert_ok(trainer_read(to, i, (enum trained_array)k, b));
        assert_memory_equal(a, b, n * sizeof *a);
      } else
        assert_ok(trainer_write(to, i, (enum trained_array)k, a));
      free(a);
      free(b);
    }
}

// Matrices whose rows have no multiple of 8 columns pass through other memory when they are read.
static void what_is_read_and_written_goes_on_with_the_same_bits(deltaic_device *device) {
  enum { ROWS = 2, T = 20 };
  static const char *const names[] = {"tiny_hh_gated_dynamic", "released_qwen3_5"};
  int32_t tokens[ROWS * (T + 1)];
  for (int i = 0; i < ROWS * (T + 1); i++) tokens[i] = 3 + i * 7 % 40;
  const struct learner_batch batch = {tokens, ROWS, T, NULL};
  for (int i = 0; i < (test_all_on(device) ? 4 : 2); i++) {
    enum training matrices = i % 2 ? TRAIN_LORA : TRAIN_WHOLE;
    struct trainer_options o = {.rank = 3, .alpha = 5, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
    struct trainer *one, *other;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TESTS_DIR "/vectors/models", names[i / 2]);
    assert_ok(trainer_open(path, device->backend, 0, each, &matrices, &o, &one));
    o.seed = 1;
    assert_ok(trainer_open(path, device->backend, 0, each, &matrices, &o, &other));
    two_steps(one, &batch);
    pass(one, other, false);
    trainer_set_steps(other, trainer_steps(one));
    assert_ok(trainer_refresh(other));
    two_steps(one, &batch);
    two_steps(other, &batch);
    pass(one, other, true);
    trainer_close(one);
    trainer_close(other);
  }
}

static enum training nothing(void *user, const struct file_tensor *t) { return TRAIN_NOT; }

static void nothing_to_train_is_refused(void **state) {
  const struct trainer_options o = {.rank = 1, .alpha = 1};
  struct trainer *t;
  assert_int_equal(trainer_open(TESTS_DIR "/vectors/models/tiny_gated_deltanet", NULL, 1, nothing, NULL, &o, &t),
                   DELTAIC_UNSUPPORTED);
  assert_null(t);
}

// ---------------------------------------------------------------- large tensors, without their memory

struct pieces {
  uint64_t end; // of those so far
  uint32_t count;
};

static void see_piece(void *user, const struct strip *s) {
  struct pieces *p = user;
  assert_int_equal(s->first, p->end);
  assert_int_equal(s->p.at, s->first);
  assert_int_equal(s->g.at, s->first);
  assert_int_equal(s->m.at, s->first);
  assert_true((uint64_t)s->rows * s->cols <= WALK_SPAN);
  p->end += (uint64_t)s->rows * s->cols;
  p->count++;
}

// A tensor that passes through the host is one row.
static void a_row_of_any_length_is_cut_into_pieces_that_every_device_binds(void **state) {
  for (uint32_t n = 1; n < 4000000000u; n = n * 3 + 1) {
    struct buffer b = {0};
    const struct tensor all = {.dtype = DTYPE_F32, .rows = 1, .cols = n, .stride = n, .buffer = &b};
    struct learner_place place = {0, 1, n, grid_at(all, 0, n), grid_at(all, 0, n), 0};
    const struct item x = {.x = {.n = n},
                           .values_count = n,
                           .places = &place,
                           .count = 1,
                           .passes = true,
                           .p = all,
                           .m = all,
                           .v = all,
                           .gradient = all};
    struct pieces p = {0, 0};
    item_strips(&x, see_piece, &p);
    assert_int_equal(p.end, n);
    assert_true(p.count <= 1 + n / (WALK_SPAN / 2));
    if (n > UINT32_MAX / 3 - 1) break;
  }
}

// The products of LoRA take some rows at once, however long these are.
static void a_matrix_of_any_width_has_pieces_of_rows(void **state) {
  for (uint64_t cols = 1; cols < 1 << 30; cols *= 7) {
    const struct item x = {.x = {.lora = true, .rows = 1000, .cols = cols}};
    uint32_t first = 0;
    for (uint32_t n; first < 1000; first += n) {
      n = item_piece(&x, first);
      assert_true(n > 0 && (n % LORA_ROWS == 0 || first + n == 1000));
      assert_true(n <= LORA_ROWS || n * cols <= WALK_SPAN);
    }
    assert_int_equal(first, 1000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      device_test(steps_match),
      device_test(every_tensor_takes_its_step),
      device_test(what_is_read_and_written_goes_on_with_the_same_bits),
      cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
      cmocka_unit_test(a_model_that_is_half_updated_is_refused),
      cmocka_unit_test(nothing_to_train_is_refused),
      cmocka_unit_test(a_row_of_any_length_is_cut_into_pieces_that_every_device_binds),
      cmocka_unit_test(a_matrix_of_any_width_has_pieces_of_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
