// test_differences: gradients against differences of the loss, for models of every family, also those that have no
// reference. Moving a tensor by h g, where g is its gradient, changes the loss by about h |g|^2. The Vulkan device's
// gradients equal the CPU's within 1e-4, fast ones within 3e-2.
#include "checkpoint.h"
#include "device_handle.h"
#include "devices.h"
#include "learner_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, ROWS = 2, T = 24 };

struct tensors {
  size_t count;
  char names[MOST][128];
  uint64_t elements[MOST];
  float *gradients[MOST];
};

static bool wanted(void *user, const struct file_tensor *t) {
  struct tensors *all = user;
  if (!t->used || t->dtype > FILE_BF16) return false;
  assert_true(all->count < MOST);
  snprintf(all->names[all->count], sizeof all->names[0], "%s", t->name);
  all->elements[all->count] = 1;
  for (int i = 0; i < t->rank; i++) all->elements[all->count] *= t->shape[i];
  all->count++;
  return true;
}

static void fill_batch(struct learner *l, int32_t *tokens) {
  uint32_t seed = 1;
  for (uint32_t i = 0; i < ROWS * (T + 1); i++)
    tokens[i] = (int32_t)(((seed = seed * 1664525 + 1013904223) >> 8) % learner_vocabulary(l));
}

// Memory of gradients that holds NaN: what is read before it is written shows.
static void poison(struct learner *l) {
  const uint64_t n = l->value_gradients.bytes / sizeof(float);
  float *nan = malloc(n * sizeof *nan);
  for (uint64_t i = 0; i < n; i++) nan[i] = NAN;
  assert_ok(l->backend->functions->buffer_write(l->backend, &l->value_gradients, 0, nan, n * sizeof *nan));
  free(nan);
}

static void find_gradients(struct learner *l, struct tensors *all, const struct learner_batch *batch) {
  struct learner_loss loss;
  assert_ok(learner_add(l, batch, NULL, 1, &loss));
  assert_ok(learner_clear(l));
  poison(l);
  assert_ok(learner_add(l, batch, NULL, 1, &loss));
  for (size_t i = 0; i < all->count; i++) {
    all->gradients[i] = malloc(all->elements[i] * sizeof(float));
    assert_ok(learner_gradient(l, checkpoint_find(learner_checkpoint(l), all->names[i]), all->gradients[i]));
  }
}

static double dot(const float *a, const float *b, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
  return sum;
}

// The loss with tensor i moved by `step` times its gradient. at: memory that the learner keeps.
static double loss_at(struct learner *l, const struct tensors *all, size_t i, const float *from, double step, float *at,
                      const struct learner_batch *batch) {
  struct learner_loss loss;
  for (uint64_t k = 0; k < all->elements[i]; k++) at[k] = (float)(from[k] + step * all->gradients[i][k]);
  assert_ok(learner_set(l, checkpoint_find(learner_checkpoint(l), all->names[i]), at));
  assert_ok(learner_measure(l, batch, NULL, &loss));
  return loss.ce;
}

// Compares tensor i's gradient with small moves along it. False: rounding would hide the change of the loss.
static bool check_tensor(struct learner *l, const struct tensors *all, size_t i, const struct learner_batch *batch,
                         float *at) {
  const uint64_t n = all->elements[i];
  const double squares = dot(all->gradients[i], all->gradients[i], n);
  float *from = malloc(n * sizeof *from);
  file_tensor_f32(checkpoint_find(learner_checkpoint(l), all->names[i]), 0, n, from);
  const double size = sqrt(dot(from, from, n)) + 1e-3 * sqrt((double)n);
  const double step = fmin(1e-3 / squares, 0.005 * size / sqrt(squares));
  const bool seen = step * squares > 2e-5;
  double ratio[2] = {1, 1}; // with a step, and with half of it
  for (int half = 0; half < 2 && seen; half++) {
    const double h = step / (1 + half), up = loss_at(l, all, i, from, h, at, batch);
    ratio[half] = (up - loss_at(l, all, i, from, -h, at, batch)) / (2 * h * squares);
  }
  if (seen) loss_at(l, all, i, from, 0, at, batch);
  const double found = (4 * ratio[1] - ratio[0]) / 3; // without the term of the third derivative
  if (!(fabs(found - 1) < 0.03)) fail_msg("%s: %.4f times its gradient", all->names[i], found);
  free(from);
  return seen;
}

// other: the CPU's gradients, which the device's equal within `limit`. NULL: these are compared with differences.
static void check_model(const char *name, deltaic_device *device, bool fast, const struct tensors *other, double limit,
                        struct tensors *all) {
  struct learner *l;
  char path[512];
  int32_t tokens[ROWS * (T + 1)];
  snprintf(path, sizeof path, TESTS_DIR "/vectors/models/%s", name);
  memset(all, 0, sizeof *all);
  assert_ok(learner_open(path, device->backend, 0, fast, wanted, all, &l));
  fill_batch(l, tokens);
  const struct learner_batch batch = {tokens, ROWS, T, NULL};
  find_gradients(l, all, &batch);
  float *kept[MOST];
  size_t seen = 0;
  for (size_t i = 0; i < all->count; i++) {
    kept[i] = malloc(all->elements[i] * sizeof(float));
    if (!other) {
      seen += check_tensor(l, all, i, &batch, kept[i]);
      continue;
    }
    double error = 0;
    for (uint64_t k = 0; k < all->elements[i]; k++)
      error += pow((double)all->gradients[i][k] - other->gradients[i][k], 2);
    const double norm = dot(other->gradients[i], other->gradients[i], all->elements[i]);
    if (!(sqrt(error) <= limit * sqrt(norm) + 1e-5 * limit))
      fail_msg("%s, %s: %g of %g", name, all->names[i], sqrt(error), sqrt(norm));
  }
  if (!other) print_message("  %-24s %zu of %zu tensors\n", name, seen, all->count);
  if (!other) assert_true(2 * seen > all->count);
  learner_close(l);
  for (size_t i = 0; i < all->count; i++) free(kept[i]);
}

static void forget(struct tensors *all) {
  for (size_t i = 0; i < all->count; i++) free(all->gradients[i]);
}

// DELTAIC_TEST_FAST=1: the Vulkan device's are fast, of a few models with awkward widths.
static void gradients_are_differences(void **state) {
  enum { AWKWARD = 3 };
  static const char *const models[] = {
      "released_qwen3_5",      "released_olmo_hybrid",     "tiny_mamba2_options",     "released_olmo_hybrid_rope",
      "tiny_mamba2",           "released_qwen3_5_bias",    "tiny_delta_net_swa",      "tiny_delta_net_2",
      "tiny_delta_product",    "tiny_gated_delta_product", "tiny_gated_deltanet_gva", "tiny_gated_deltanet_h2",
      "tiny_hh_gated_dynamic", "ablation_filter_a_head",   "ablation_no_beta",        "ablation_gate_without_norm",
      "ablation_transformer",
  };
  struct tensors *cpu = calloc(1, sizeof *cpu), *gpu = calloc(1, sizeof *gpu);
  deltaic_context *context = test_context();
  deltaic_device_info infos[16];
  deltaic_device *devices[2] = {0}; // the CPU, and a Vulkan device
  size_t count;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count && i < 16; i++) {
    const bool vulkan = infos[i].kind != DELTAIC_DEVICE_CPU;
    const deltaic_device_options o = {.size = sizeof o, .index = infos[i].index, .threads = 2};
    const bool opens = vulkan ? device_wanted(&infos[i]) : infos[i].usable;
    if (opens && !devices[vulkan]) assert_ok(deltaic_device_open(context, &o, &devices[vulkan]));
  }
  assert_non_null(devices[0]);
  assert_vulkan_tested(devices[1] != NULL);
  const bool fast = getenv("DELTAIC_TEST_FAST");
  const struct walk_functions *f = devices[1] ? walk_functions(devices[1]->backend) : NULL;
  if (fast) assert_true(f && f->rounds && f->rounds(devices[1]->backend));
  for (size_t i = 0; i < (fast ? AWKWARD : sizeof models / sizeof *models); i++) {
    check_model(models[i], devices[0], false, NULL, 0, cpu);
    if (devices[1]) check_model(models[i], devices[1], fast, cpu, fast ? 3e-2 : 1e-4, gpu);
    if (devices[1]) forget(gpu);
    forget(cpu);
  }
  assert_int_equal(deltaic_context_validation_errors(context), 0);
  for (int i = 0; i < 2; i++) deltaic_device_close(devices[i]);
  deltaic_context_free(context);
  free(cpu);
  free(gpu);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_differences)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
