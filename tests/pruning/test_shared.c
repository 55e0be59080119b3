// test_shared: models whose convolution filters are shared by the channels of a head, or by all (delta_net_2), against
// the ordinary models that have each channel's filter written out.
#define _GNU_SOURCE // nftw, mkdtemp
#include "checkpoint.h"
#include "json.h"
#include "learner.h"
#include "tensor_file.h"

#include "prune_folder.h"

#include <math.h>

static const char *const models[] = {TESTS_DIR "/vectors/models/ablation_filter_a_head",
                                     TESTS_DIR "/vectors/models/ablation_one_filter"};
enum { TOKENS = 50, WIDTH = 4, CHANNELS = 32 };
static int32_t text[TOKENS + 1];

static void make_text(void) {
  uint32_t x = 7;
  for (int i = 0; i <= TOKENS; i++) text[i] = (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % 64;
}

// ---------------------------------------------------------------- files

static json_t *config_of(const char *path) {
  char name[512];
  snprintf(name, sizeof name, "%s/config.json", path);
  json_t *config = json_load_file(name, 0, NULL);
  assert_non_null(config);
  return config;
}

// Takes the config.
static void write_config(const char *path, json_t *config) {
  char name[512];
  assert_int_equal(platform_make_folder(path, false), 0);
  snprintf(name, sizeof name, "%s/config.json", path);
  assert_int_equal(json_dump_file(config, name, 0), 0);
  json_decref(config);
}

// Of the q, k or v of a layer: its name without the filters' own part; NULL for other tensors.
static const char *filters_of(const struct file_tensor *t) {
  static char name[128];
  const char *end = strstr(t->name, ".shared_kernel");
  if (!end) return NULL;
  snprintf(name, sizeof name, "%.*s.weight", (int)(end - t->name), t->name);
  return name;
}

// Channels of q and k, or of v: half as many in these models.
static uint64_t channels_of(const char *name) { return strstr(name, "v_conv1d") ? CHANNELS / 2 : CHANNELS; }

// Copies the model's tensors; `expand` writes every channel's filter.
static void copy_tensors(const char *from, const char *to, bool expand) {
  struct checkpoint *c;
  struct tensor_file f;
  char path[512];
  snprintf(path, sizeof path, "%s/model.safetensors", to);
  assert_ok(checkpoint_open_folder(from, &c));
  tensor_file_begin(&f, path, NULL);
  for (int pass = 0; pass < 2; pass++) {
    for (uint64_t i = 0; i < checkpoint_count(c); i++) {
      const struct file_tensor *t = checkpoint_at(c, i);
      const char *name = expand ? filters_of(t) : NULL;
      const uint64_t rows = name ? channels_of(name) : t->shape[0], row = t->bytes / t->shape[0];
      const uint64_t shape[3] = {rows, t->shape[1], t->shape[2]};
      if (!pass) tensor_file_declare(&f, name ? name : t->name, t->dtype_name, t->rank, shape, rows * row);
      for (uint64_t r = 0; pass && r < rows; r++)
        tensor_file_append(&f, (const char *)t->data + r * t->shape[0] / rows * row, row);
    }
    if (!pass) tensor_file_write_header(&f);
  }
  assert_ok(tensor_file_end(&f));
  checkpoint_close(c);
}

static const char *expanded(const char *model, const char *name) {
  const char *path = place(name);
  json_t *config = config_of(model);
  json_object_set_new(config, "model_type", json_string("delta_net"));
  json_object_del(config, "per_head_conv");
  write_config(path, config);
  copy_tensors(model, path, true);
  return path;
}

// The model with q and k as they come out of the convolution, without SiLU.
static const char *linear(const char *model, const char *name) {
  const char *path = place(name);
  json_t *config = config_of(model);
  json_object_set_new(config, "qk_activation", json_string("identity"));
  write_config(path, config);
  copy_tensors(model, path, false);
  return path;
}

static float *logits_of(deltaic_device *device, const char *path, size_t *n) {
  deltaic_model *model = open_model(device, path);
  deltaic_session *session = open_session(model, &exact);
  *n = (size_t)info_of(model).vocabulary * TOKENS;
  float *logits = malloc(*n * sizeof *logits);
  assert_ok(deltaic_session_eval(session, text, TOKENS, DELTAIC_LOGITS_ALL, logits));
  close_session(session, model);
  return logits;
}

// Relative RMS of the difference between the logits.
static double difference(deltaic_device *device, const char *a, const char *b) {
  size_t n, m;
  float *x = logits_of(device, a, &n), *y = logits_of(device, b, &m);
  double error = 0, size = 0;
  assert_int_equal(n, m);
  for (size_t i = 0; i < n; i++) {
    error += (x[i] - y[i]) * (double)(x[i] - y[i]);
    size += (double)x[i] * x[i];
  }
  free(x);
  free(y);
  return sqrt(error / size);
}

static const char *prune(const char *path, const char *name, deltaic_selection *selection) {
  const char *out = place(name);
  deltaic_pruning *p;
  assert_ok(deltaic_pruning_begin(path, selection, out, NULL, &p));
  assert_ok(deltaic_pruning_commit(p));
  deltaic_pruning_free(p);
  deltaic_selection_free(selection);
  return out;
}

// ---------------------------------------------------------------- tests

static void a_shared_filter_is_that_of_its_channels(deltaic_device *device) {
  static int serial;
  for (int m = 0; m < 2; m++) {
    char name[32];
    snprintf(name, sizeof name, "expanded-%d", serial++);
    assert_true(difference(device, models[m], expanded(models[m], name)) == 0);
  }
}

static bool all(void *user, const struct file_tensor *t) { return true; }

static float *gradient(struct learner *l, const char *name, uint64_t n) {
  const struct file_tensor *t = checkpoint_find(learner_checkpoint(l), name);
  float *g = malloc(n * sizeof *g);
  assert_non_null(t);
  assert_ok(learner_gradient(l, t, g));
  return g;
}

// The gradient of every shared filter is the sum of its channels'.
static void compare_filters(struct learner *shared, struct learner *each) {
  struct checkpoint *c = learner_checkpoint(shared);
  int compared = 0;
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const struct file_tensor *t = checkpoint_at(c, i);
    const char *name = filters_of(t);
    if (!name) continue;
    const uint64_t filters = t->shape[0], channels = channels_of(name);
    float *got = gradient(shared, t->name, filters * WIDTH), *parts = gradient(each, name, channels * WIDTH);
    for (uint64_t k = 0; k < filters * WIDTH; k++) {
      double want = 0, size = 0;
      for (uint64_t j = k / WIDTH * (channels / filters); j < (k / WIDTH + 1) * (channels / filters); j++) {
        want += parts[j * WIDTH + k % WIDTH];
        size += fabs(parts[j * WIDTH + k % WIDTH]);
      }
      assert_true(size > 0);
      if (!(fabs(got[k] - want) <= 1e-6 * size)) fail_msg("%s: %g, expected %g", t->name, got[k], want);
    }
    free(got);
    free(parts);
    compared++;
  }
  assert_int_equal(compared, 6); // q, k and v of two layers
}

static void gradients_add_up_over_the_channels(void **state) {
  const struct learner_batch batch = {.tokens = text, .rows = 1, .T = TOKENS};
  for (int m = 0; m < 2; m++) {
    const char *ordinary = expanded(models[m], m ? "ordinary-1" : "ordinary-0");
    struct learner *shared, *each;
    struct learner_loss loss;
    assert_ok(learner_open(models[m], NULL, 1, false, all, NULL, &shared));
    assert_ok(learner_open(ordinary, NULL, 1, false, all, NULL, &each));
    assert_ok(learner_add(shared, &batch, NULL, 1, &loss));
    assert_ok(learner_add(each, &batch, NULL, 1, &loss));
    compare_filters(shared, each);
    learner_close(shared);
    learner_close(each);
  }
}

static void channels_go_and_filters_stay(void **state) {
  static const char *const methods[] = {"drrqr", "s-wanda", "l1"};
  for (int m = 0; m < 2; m++) {
    const char *ordinary = expanded(models[m], m ? "whole-1" : "whole-0");
    deltaic_statistics *s = measure(models[m], text, TOKENS, TOKENS), *t = measure(ordinary, text, TOKENS, TOKENS);
    for (int i = 0; i < 3; i++) {
      char a[32], b[32];
      snprintf(a, sizeof a, "shared-%d-%d", m, i);
      snprintf(b, sizeof b, "each-%d-%d", m, i);
      const char *shared = prune(models[m], a, select_cut(models[m], s, methods[i], 0.5));
      const char *each = prune(ordinary, b, select_cut(ordinary, t, methods[i], 0.5));
      assert_true(difference(cpu, shared, each) == 0);
      struct checkpoint *c;
      assert_ok(checkpoint_open_folder(shared, &c));
      assert_int_equal(checkpoint_findf(c, "model.layers.1.attn.q_conv1d.shared_kernel")->shape[0], m ? 1 : 2);
      assert_int_equal(checkpoint_findf(c, "model.layers.1.attn.q_proj.weight")->shape[0], CHANNELS / 2);
      checkpoint_close(c);
    }
    deltaic_statistics_free(s);
    deltaic_statistics_free(t);
  }
}

// Without SiLU, a rotation of a head's channels commutes with the convolution and leaves the delta rule as it is, so
// that pca without a cut changes nothing but bf16's roundings. It does not commute with filters that differ.
static void a_rotation_commutes_with_shared_filters(void **state) {
  for (int m = 0; m < 2; m++) {
    const char *path = linear(models[m], m ? "linear-1" : "linear-0");
    deltaic_statistics *s = measure(path, text, TOKENS, TOKENS);
    const char *turned = prune(path, m ? "turned-1" : "turned-0", select_cut(path, s, "pca", 0));
    const double error = difference(cpu, path, turned);
    if (!(error < 0.02)) fail_msg("rotated: off by %g", error);
    deltaic_statistics_free(s);
  }
  const char *path = linear(TESTS_DIR "/vectors/models/ablation_delta_net_relu_l1", "linear-2");
  deltaic_statistics *s = measure(path, text, TOKENS, TOKENS);
  assert_true(difference(cpu, path, prune(path, "turned-2", select_cut(path, s, "pca", 0))) > 0.2);
  deltaic_statistics_free(s);
}

static void the_config_has_the_sizes_of_layers(void **state) {
  static const uint32_t keep[2] = {5, 12};
  deltaic_select_options o = {.size = sizeof o, .method = "l1", .keep = keep, .keep_count = 2};
  deltaic_selection *s;
  size_t n;
  assert_ok(deltaic_select(models[0], NULL, &o, &s));
  const char *path = prune(models[0], "sizes", s);
  json_t *config = config_of(path);
  const json_t *ratios = json_object_get(config, "expand_k");
  assert_int_equal(json_object_size(ratios), 2);
  assert_float_equal(json_real_value(json_object_get(ratios, "0")), 10.0 / 32, 1e-12);
  assert_float_equal(json_real_value(json_object_get(ratios, "1")), 24.0 / 32, 1e-12);
  json_decref(config);
  free(logits_of(cpu, path, &n));
}

static void other_numbers_of_filters_are_refused(void **state) {
  deltaic_model *model;
  const char *path = place("wrong");
  json_t *config = config_of(models[0]);
  json_object_set_new(config, "num_heads", json_integer(4));
  write_config(path, config);
  copy_tensors(models[0], path, false);
  assert_int_equal(deltaic_model_open(cpu, path, NULL, &model), DELTAIC_BAD_SHAPE);
  assert_non_null(
      strstr(deltaic_last_error(), "q_conv1d.shared_kernel has 2 filters, expected 1 or one for each of 4"));
}

int main(void) {
  make_text();
  const struct CMUnitTest tests[] = {
      device_test(a_shared_filter_is_that_of_its_channels), cmocka_unit_test(gradients_add_up_over_the_channels),
      cmocka_unit_test(channels_go_and_filters_stay),       cmocka_unit_test(a_rotation_commutes_with_shared_filters),
      cmocka_unit_test(the_config_has_the_sizes_of_layers), cmocka_unit_test(other_numbers_of_filters_are_refused)};
  return cmocka_run_group_tests(tests, begin, end);
}
