// test_prune_grad: the method grad keeps the channels that gradients in float64 keep (tests/vectors/grad/saliency_*),
// except in heads where the last kept and the first dropped channel differ by less than 1e-5.
//
// DELTAIC_REFERENCE names a folder with reference/grad/saliency and the checkpoints.
#include "checkpoint.h"

#include "deltaic_prune.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Last: its macro fail() must not meet the declaration of ours.
#include <cmocka.h>

static void assert_ok(deltaic_status status) {
  if (status) print_error("%s\n", deltaic_last_error());
  assert_int_equal(status, DELTAIC_OK);
}

struct reference {
  struct checkpoint *file;
  char model[512];
  const struct file_tensor *tokens;
  deltaic_statistics *statistics;
};

static struct reference open_reference(const char *name) {
  struct reference r = {0};
  char path[512];
  const char *folder = getenv("DELTAIC_REFERENCE");
  if (folder) {
    snprintf(path, sizeof path, "%s/reference/grad/saliency/%s.safetensors", folder, name);
    snprintf(r.model, sizeof r.model, "%s/checkpoints/%s", folder, name);
  } else {
    snprintf(path, sizeof path, TESTS_DIR "/vectors/grad/saliency_%s.safetensors", name);
    snprintf(r.model, sizeof r.model, "%s%s",
             strcmp(name, "gated_deltanet") ? TESTS_DIR "/vectors/models/" : MODELS_DIR,
             strcmp(name, "gated_deltanet") ? name : "/novelist");
  }
  assert_ok(checkpoint_open(path, &r.file));
  r.tokens = checkpoint_find(r.file, "tokens");
  if (!r.tokens) r.tokens = checkpoint_find(r.file, "calibration_tokens");
  deltaic_calibration_options o = DELTAIC_INIT(deltaic_calibration_options);
  o.window = (uint32_t)r.tokens->shape[1];
  assert_ok(deltaic_statistics_create(r.model, &o, &r.statistics));
  assert_ok(deltaic_calibrate_gradients(r.statistics, NULL, r.model, r.tokens->data, r.tokens->bytes / 4, NULL, NULL));
  return r;
}

static void close_reference(struct reference *r) {
  deltaic_statistics_free(r->statistics);
  checkpoint_close(r->file);
}

static deltaic_selection *selection(const struct reference *r, double cut, deltaic_prune_side side) {
  deltaic_select_options o = DELTAIC_INIT(deltaic_select_options);
  deltaic_selection *s;
  o.method = "grad";
  o.cut = cut;
  o.side = side;
  assert_ok(deltaic_select(r->model, r->statistics, &o, &s));
  return s;
}

// Head i of the selection keeps the numbers of row `row` of the tensor.
static void compare_head(const deltaic_selection *s, size_t i, const struct file_tensor *kept, size_t row) {
  deltaic_selected_head head;
  const int32_t *want = (const int32_t *)kept->data + row * kept->shape[kept->rank - 1];
  assert_ok(deltaic_selection_at(s, i, &head));
  assert_int_equal(head.keep, kept->shape[kept->rank - 1]);
  assert_false(head.measured);
  assert_memory_equal(head.kept, want, (size_t)head.keep * sizeof *want);
}

static void compare(const struct reference *r, const char *name, double cut, deltaic_prune_side side) {
  char key[64];
  deltaic_selection *s = selection(r, cut, side);
  size_t compared = 0;
  snprintf(key, sizeof key, "kept.%s", name);
  const struct file_tensor *kept = checkpoint_find(r->file, key);
  snprintf(key, sizeof key, "margin.%s", name);
  const struct file_tensor *margin = checkpoint_find(r->file, key); // there is none for keys or queries alone
  for (size_t i = 0; i < deltaic_selection_count(s); i++) {
    float m = 1;
    if (margin) file_tensor_f32(margin, i, 1, &m);
    if (m <= 1e-5f) continue;
    compare_head(s, i, kept, i);
    compared++;
  }
  assert_true(compared > 0 && compared + 1 >= deltaic_selection_count(s));
  deltaic_selection_free(s);
}

static void compare_model(const char *name) {
  struct reference r = open_reference(name);
  compare(&r, "25", 0.25, DELTAIC_PRUNE_JOINT);
  compare(&r, "50", 0.5, DELTAIC_PRUNE_JOINT);
  compare(&r, "75", 0.75, DELTAIC_PRUNE_JOINT);
  compare(&r, "50.q", 0.5, DELTAIC_PRUNE_QUERIES);
  compare(&r, "50.k", 0.5, DELTAIC_PRUNE_KEYS);
  close_reference(&r);
}

// The checkpoint of delta_net is not in the repository.
static void channels_of_trained_models(void **state) {
  compare_model("gated_deltanet");
  if (getenv("DELTAIC_REFERENCE")) compare_model("delta_net");
}

// Of DeltaProduct, grouped value heads, a hybrid and Head-in-Head the file has one tensor for each pruned layer.
static void channels_of_other_mixers(void **state) {
  static const char *const names[] = {"tiny_delta_product", "tiny_gated_deltanet_gva", "tiny_gated_deltanet_h1",
                                      "tiny_hh_gated_static"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    struct reference r = open_reference(names[n]);
    deltaic_selection *s = selection(&r, 0.5, DELTAIC_PRUNE_JOINT);
    size_t row = 0;
    int32_t layer = -1;
    for (size_t i = 0; i < deltaic_selection_count(s); i++) {
      char key[32];
      deltaic_selected_head head;
      assert_ok(deltaic_selection_at(s, i, &head));
      row = head.layer == layer ? row + 1 : 0;
      layer = head.layer;
      snprintf(key, sizeof key, "kept.50.%d", layer);
      const struct file_tensor *kept = checkpoint_find(r.file, key);
      assert_non_null(kept);
      compare_head(s, i, kept, row);
    }
    deltaic_selection_free(s);
    close_reference(&r);
  }
}

#define TINY TESTS_DIR "/vectors/models/tiny_gated_deltanet"

static deltaic_statistics *small_statistics(void) {
  deltaic_calibration_options o = DELTAIC_INIT(deltaic_calibration_options);
  deltaic_statistics *s;
  o.window = 20;
  assert_ok(deltaic_statistics_create(TINY, &o, &s));
  return s;
}

static void gradients_are_in_the_statistics_file(void **state) {
  enum { COUNT = 50 };
  deltaic_statistics *s = small_statistics(), *read;
  deltaic_statistics_info info;
  int32_t tokens[COUNT];
  char file[64];
  for (int i = 0; i < COUNT; i++) tokens[i] = 3 + i * 37 % 250;
  assert_ok(deltaic_calibrate_gradients(s, NULL, TINY, tokens, COUNT, NULL, NULL));
  deltaic_statistics_get_info(s, &info);
  assert_int_equal(info.gradient_tokens, COUNT);
  assert_int_equal(info.tokens, 0);
  snprintf(file, sizeof file, "test_prune_grad.%u", (unsigned)info.gradient_hash);
  assert_ok(deltaic_statistics_save(s, file));
  assert_ok(deltaic_statistics_load(TINY, file, &read));
  const struct reference a = {.model = TINY, .statistics = s}, b = {.model = TINY, .statistics = read};
  deltaic_selection *x = selection(&a, 0.5, DELTAIC_PRUNE_JOINT), *y = selection(&b, 0.5, DELTAIC_PRUNE_JOINT);
  for (size_t i = 0; i < deltaic_selection_count(x); i++) {
    deltaic_selected_head g, h;
    assert_ok(deltaic_selection_at(x, i, &g));
    assert_ok(deltaic_selection_at(y, i, &h));
    assert_memory_equal(g.kept, h.kept, (size_t)g.keep * sizeof *g.kept);
  }
  remove(file);
  deltaic_selection_free(x);
  deltaic_selection_free(y);
  deltaic_statistics_free(s);
  deltaic_statistics_free(read);
}

static bool stop(void *user, uint64_t done, uint64_t total) { return false; }

static void what_cannot_be_is_refused(void **state) {
  deltaic_statistics *s = small_statistics();
  deltaic_select_options o = DELTAIC_INIT(deltaic_select_options);
  deltaic_selection *selected;
  const int32_t tokens[] = {3, 4, 5, 1 << 20};
  o.method = "grad";
  o.cut = 0.5;
  assert_int_equal(deltaic_select(TINY, s, &o, &selected), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "grad needs a calibration text"));
  assert_int_equal(deltaic_calibrate_gradients(s, NULL, TINY, tokens, 1, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "too few"));
  assert_int_equal(deltaic_calibrate_gradients(s, NULL, TINY, tokens, 4, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "vocabulary"));
  assert_int_equal(deltaic_calibrate_gradients(s, NULL, TINY, tokens, 3, stop, NULL), DELTAIC_CANCELLED);
  assert_int_equal(
      deltaic_calibrate_gradients(s, NULL, TESTS_DIR "/vectors/models/tiny_delta_net", tokens, 3, NULL, NULL),
      DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "another model"));
  assert_int_equal(deltaic_select(TINY, s, &o, &selected), DELTAIC_INVALID_ARGUMENT);
  deltaic_statistics_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(channels_of_trained_models),
      cmocka_unit_test(channels_of_other_mixers),
      cmocka_unit_test(gradients_are_in_the_statistics_file),
      cmocka_unit_test(what_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
