// test_learner: gradients of whole models against float64. tests/vectors/grad has a file for each model: tokens, the
// loss, and of every tensor's gradient its 2-norm and its product with sin(1), sin(2), ...
//
// DELTAIC_REFERENCE names a folder with all reference gradients (reference/grad/models) and their checkpoints
// (checkpoints); whole tensors are then compared.
#include "backward.h"
#include "device_handle.h"
#include "learner_inside.h"
#include "learner_memory.h"

#include <math.h>

// Last: its macro fail() must not meet the declaration of ours.
#include "devices.h"

static bool all(void *user, const struct file_tensor *t) { return true; }

struct reference {
  struct checkpoint *file;
  json_t *summary;
  char checkpoint[512], teacher[512];
  int32_t *tokens;
  uint32_t rows, T;
};

static void model_path(char *path, size_t size, const char *name) {
  const char *folder = getenv("DELTAIC_REFERENCE");
  if (folder)
    snprintf(path, size, "%s/checkpoints/%s", folder, name);
  else if (!strcmp(name, "gated_deltanet"))
    snprintf(path, size, "%s", MODELS_DIR "/novelist");
  else
    snprintf(path, size, "%s/%s", TESTS_DIR "/vectors/models", name);
}

static struct reference open_reference(const char *name) {
  struct reference r = {0};
  char path[512];
  const char *folder = getenv("DELTAIC_REFERENCE");
  snprintf(path, sizeof path, "%s/%s.safetensors", folder ? folder : TESTS_DIR "/vectors/grad", name);
  if (folder) snprintf(path, sizeof path, "%s/reference/grad/models/%s.safetensors", folder, name);
  assert_ok(checkpoint_open(path, &r.file));
  const char *student = checkpoint_metadata(r.file, "student"), *teacher = checkpoint_metadata(r.file, "teacher");
  model_path(r.checkpoint, sizeof r.checkpoint, student ? student : checkpoint_metadata(r.file, "checkpoint"));
  if (teacher) model_path(r.teacher, sizeof r.teacher, teacher);
  r.summary = json_loads(checkpoint_metadata(r.file, "summary"), 0, NULL);
  assert_non_null(r.summary);
  const struct file_tensor *t = checkpoint_find(r.file, "tokens");
  r.rows = (uint32_t)t->shape[0];
  r.T = (uint32_t)t->shape[1] - 1;
  r.tokens = malloc(t->bytes);
  memcpy(r.tokens, t->data, t->bytes);
  return r;
}

static void close_reference(struct reference *r) {
  free(r->tokens);
  json_decref(r->summary);
  checkpoint_close(r->file);
}

static double loss_of(const struct reference *r, const char *key) {
  const char *text = checkpoint_metadata(r->file, key);
  return text ? strtod(text, NULL) : 0;
}

// The difference to a tensor of the reference file, or NULL if the file has none.
static double full_error(const struct reference *r, const char *name, const float *got, uint64_t n) {
  char key[256];
  snprintf(key, sizeof key, "grad.%s", name);
  const struct file_tensor *t = checkpoint_find(r->file, key);
  double sum = 0;
  if (!t) return 0;
  float *want = malloc(n * sizeof *want);
  file_tensor_f32(t, 0, n, want);
  for (uint64_t i = 0; i < n; i++) sum += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
  free(want);
  return sqrt(sum);
}

// Compares the gradients of all tensors. A tensor's error is at most `each` of its norm, all errors together at most
// `whole` of the whole gradient's.
static void compare(const struct reference *r, struct learner *l, double whole, double each) {
  double errors = 0, norms = 0, worst = 0;
  char worst_name[128] = "";
  const char *name;
  json_t *pair;
  json_object_foreach(r->summary, name, pair) {
    const struct file_tensor *t = checkpoint_find(learner_checkpoint(l), name);
    assert_non_null(t);
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    float *got = malloc(n * sizeof *got);
    assert_ok(learner_gradient(l, t, got));
    double norm = 0, product = 0;
    for (uint64_t i = 0; i < n; i++) {
      norm += (double)got[i] * got[i];
      product += got[i] * sin((double)i + 1);
    }
    const double want = json_number_value(json_array_get(pair, 0));
    const double summed = fmax(fabs(sqrt(norm) - want), fabs(product - json_number_value(json_array_get(pair, 1))));
    const double error = fmax(summed, full_error(r, name, got, n));
    if (error > each * want) fprintf(stderr, "%s: %g of %g\n", name, error, want);
    errors += error * error;
    norms += want * want;
    if (error / want > worst) {
      worst = error / want;
      snprintf(worst_name, sizeof worst_name, "%s", name);
    }
    free(got);
  }
  print_message("%-28s whole %.1e, worst %.1e %s\n", strrchr(r->checkpoint, '/') + 1, sqrt(errors / norms), worst,
                worst_name);
  assert_true(sqrt(errors / norms) <= whole);
  assert_true(worst <= each);
}

// Limits of a precision: of the loss, of all gradients together, of each tensor's.
static const struct limits {
  double loss, whole, each;
} limits[2] = {{2e-6, 1e-5, 1e-4}, {2e-3, 2e-3, 1e-2}}; // float32, fast

// With fast only where that computes in another way.
static bool is_tested(deltaic_device *device, bool fast) {
  const struct walk_functions *f = walk_functions(device->backend);
  return !fast || (f->rounds && f->rounds(device->backend));
}

static uint32_t layers_kept(const struct learner *l) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->model.spec.L; i++) n += l->is_kept[i];
  return n;
}

// Whether one more batch runs the kernel.
static bool runs(struct learner *l, const struct learner_batch *batch, const char *kernel) {
  enum { KERNELS = 128 };
  const struct backend_functions *f = l->backend->functions;
  deltaic_kernel_time times[KERNELS];
  struct learner_loss loss;
  bool found = false;
  assert_ok(f->recorder_profile(l->recorder, true));
  assert_ok(learner_add(l, batch, NULL, 1, &loss));
  const size_t n = f->recorder_times(l->recorder, times, KERNELS);
  for (size_t i = 0; i < n && i < KERNELS; i++) found |= !strcmp(times[i].name, kernel);
  assert_ok(f->recorder_profile(l->recorder, false));
  return found;
}

// passes: 3, or fewer of them.
static void compare_fast(const char *name, deltaic_device *device, bool fast, int passes) {
  if (!is_tested(device, fast)) return;
  struct reference r = open_reference(name);
  const struct learner_batch batch = {r.tokens, r.rows, r.T, NULL};
  struct learner_loss loss = {0};
  struct learner *l;
  assert_ok(learner_open(r.checkpoint, device->backend, 0, fast, all, NULL, &l));
  for (int i = 0; i < passes; i++) { // no layer is kept for the backward pass, then some, then all
    if (i) learner_keep(l, i == 1 ? learner_memory(l).values / 2 : UINT64_MAX);
    assert_ok(learner_clear(l));
    assert_ok(learner_add(l, &batch, NULL, 1, &loss));
    assert_float_equal(loss.ce, loss_of(&r, "loss"), limits[fast].loss);
    compare(&r, l, limits[fast].whole, limits[fast].each);
    const uint32_t n = layers_kept(l), L = l->model.spec.L;
    if (i == 1) assert_in_range(n, 1, L > 1 ? L - 1 : 1);
    if (i != 1) assert_int_equal(n, i ? L : 0);
    assert_true((learner_memory(l).kept != 0) == (n != 0));
  }
  if (fast) assert_true(runs(l, &batch, "rmsnorm_rounded") && runs(l, &batch, "glu_rounded"));
  learner_close(l);
  close_reference(&r);
}

// DELTAIC_TEST_FAST=1: fast gradients alone.
static void compare_model(const char *name, deltaic_device *device, int passes) {
  if (!getenv("DELTAIC_TEST_FAST")) compare_fast(name, device, false, passes);
  compare_fast(name, device, true, passes);
}

#define MODEL(name)                                                                                                    \
  static void gradients_of_##name(deltaic_device *device) { compare_model(#name, device, 3); }
// Those whose shapes and kernels others have too.
#define MORE(name)                                                                                                     \
  static void gradients_of_##name(deltaic_device *device) {                                                            \
    if (test_all_on(device)) compare_model(#name, device, 3);                                                          \
  }
MORE(tiny_delta_net)
MODEL(tiny_delta_net_swa)
MORE(tiny_delta_net_global)
MORE(tiny_gated_deltanet)
MORE(tiny_gated_deltanet_gva)
MORE(tiny_gated_deltanet_h1)
MORE(tiny_gated_deltanet_h2)
MORE(tiny_delta_product)
MORE(tiny_gated_delta_product)
MORE(tiny_hh_delta_static)
MORE(tiny_hh_gated_static)
MODEL(tiny_hh_gated_dynamic)

// What is kept is the small models' matter. The checkpoint of delta_net is not in the repository.
static void gradients_of_trained_models(deltaic_device *device) {
  if (!test_all_on(device)) return;
  compare_model("gated_deltanet", device, 1);
  if (getenv("DELTAIC_REFERENCE")) compare_model("delta_net", device, 1);
}

static void distill(deltaic_device *device, bool fast) {
  if (!is_tested(device, fast)) return;
  struct reference r = open_reference("distill_tiny");
  const struct learner_batch batch = {r.tokens, r.rows, r.T, NULL};
  struct learner_loss loss = {0};
  struct learner *l, *teacher;
  assert_ok(learner_open(r.checkpoint, device->backend, 0, fast, all, NULL, &l));
  assert_ok(learner_open(r.teacher, device->backend, 0, fast, NULL, NULL, &teacher));
  const struct distillation d = {teacher, 1, 2};
  learner_keep(l, UINT64_MAX);
  assert_ok(learner_add(l, &batch, &d, 1, &loss));
  assert_float_equal(loss.ce, loss_of(&r, "loss_ce"), limits[fast].loss);
  assert_float_equal(loss.kd, loss_of(&r, "loss_kd"), limits[fast].loss);
  compare(&r, l, limits[fast].whole, limits[fast].each);
  learner_close(teacher);
  learner_close(l);
  close_reference(&r);
}

static void distillation_adds_its_gradient(deltaic_device *device) {
  if (!test_all_on(device)) return;
  distill(device, false);
  distill(device, true);
}

// ---------------------------------------------------------------- kept layers

// Measuring, a batch of another size and a smaller limit come between two batches.
static void kept_layers_survive_what_comes_between(deltaic_device *device) {
  struct reference r = open_reference("tiny_gated_deltanet");
  const struct learner_batch batch = {r.tokens, r.rows, r.T, NULL}, less = {r.tokens, 1, r.T, NULL};
  struct learner_loss loss;
  struct learner *l;
  assert_true(r.rows > 1);
  assert_ok(learner_open(r.checkpoint, device->backend, 0, false, all, NULL, &l));
  learner_keep(l, UINT64_MAX);
  assert_ok(learner_add(l, &batch, NULL, 1, &loss));
  const uint64_t kept = learner_memory(l).kept;
  assert_ok(learner_measure(l, &less, NULL, &loss));
  assert_int_equal(layers_kept(l), 0);
  assert_ok(learner_add(l, &less, NULL, 1, &loss));
  assert_int_equal(learner_memory(l).kept, kept); // the memory stays
  assert_ok(learner_clear(l));
  assert_ok(learner_add(l, &batch, NULL, 1, &loss));
  assert_int_equal(layers_kept(l), l->model.spec.L);
  compare(&r, l, limits[false].whole, limits[false].each);
  learner_keep(l, kept - 1);
  assert_int_equal(learner_memory(l).kept, 0);
  assert_ok(learner_add(l, &batch, NULL, 1, &loss));
  assert_int_equal(layers_kept(l), l->model.spec.L - 1);
  learner_close(l);
  close_reference(&r);
}

static int allocations_left;
static const struct backend_functions *real;

static deltaic_status create_few(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                 struct buffer *out) {
  if (!strcmp(what, "a layer's values") && !allocations_left--) return DELTAIC_OUT_OF_MEMORY;
  return real->buffer_create(b, kind, bytes, what, out);
}

// The second layer's values find no memory: no layer is kept, and the gradients are right.
static void without_memory_no_layer_is_kept(deltaic_device *device) {
  struct reference r = open_reference("tiny_gated_deltanet");
  const struct learner_batch batch = {r.tokens, r.rows, r.T, NULL};
  struct learner_loss loss;
  struct learner *l;
  assert_ok(learner_open(r.checkpoint, device->backend, 0, false, all, NULL, &l));
  assert_ok(learner_add(l, &batch, NULL, 1, &loss)); // now all other memory is there
  assert_ok(learner_clear(l));
  learner_keep(l, UINT64_MAX);
  real = device->backend->functions;
  struct backend_functions few = *real;
  few.buffer_create = create_few;
  device->backend->functions = &few;
  allocations_left = 1;
  assert_ok(learner_add(l, &batch, NULL, 1, &loss));
  device->backend->functions = real;
  assert_int_equal(layers_kept(l), 0);
  assert_int_equal(learner_memory(l).kept, 0);
  compare(&r, l, limits[false].whole, limits[false].each);
  learner_close(l);
  close_reference(&r);
}

// DELTAIC_TEST_FILTER: only the tests that match it.
int main(void) {
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  const struct CMUnitTest tests[] = {
      device_test(gradients_of_tiny_delta_net),           device_test(gradients_of_tiny_delta_net_swa),
      device_test(gradients_of_tiny_delta_net_global),    device_test(gradients_of_tiny_gated_deltanet),
      device_test(gradients_of_tiny_gated_deltanet_gva),  device_test(gradients_of_tiny_gated_deltanet_h1),
      device_test(gradients_of_tiny_gated_deltanet_h2),   device_test(gradients_of_tiny_delta_product),
      device_test(gradients_of_tiny_gated_delta_product), device_test(gradients_of_tiny_hh_delta_static),
      device_test(gradients_of_tiny_hh_gated_static),     device_test(gradients_of_tiny_hh_gated_dynamic),
      device_test(gradients_of_trained_models),           device_test(distillation_adds_its_gradient),
      device_test(kept_layers_survive_what_comes_between), device_test(without_memory_no_layer_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
