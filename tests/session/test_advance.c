// test_advance: half a layer at a time gives the residual streams that an evaluation of the text has.
#include "advance.h"
#include "devices.h"

#include <math.h>

#define MODEL TESTS_DIR "/vectors/models/tiny_gated_deltanet_h2"
enum { TOKENS = 40, BATCH = 16, MOST = 1 << 16 }; // three slices, the last one short

struct streams {
  float before[MOST], after_mixer[MOST]; // (layers, TOKENS, width)
  size_t width;
};

static bool on_probe(void *user, const deltaic_probed *p) {
  struct streams *s = user;
  float *to = p->kind == DELTAIC_PROBE_RESIDUAL ? s->before : s->after_mixer;
  const size_t from = ((size_t)p->layer * TOKENS + p->position) * p->cols;
  s->width = p->cols;
  assert_true(from + p->rows * p->cols <= MOST);
  memcpy(to + from, p->data, p->rows * p->cols * sizeof *to);
  return true;
}

static void assert_close(const float *got, const float *want, size_t n, const char *what, int layer) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    error += (got[i] - want[i]) * (double)(got[i] - want[i]);
    size += (double)want[i] * want[i];
  }
  if (!(sqrt(error) <= 2e-6 * sqrt(size))) fail_msg("layer %d: %s: off by %g", layer, what, sqrt(error / size));
}

static void halves_of_layers_are_the_evaluation(deltaic_device *device) {
  static struct streams s;
  static float x[MOST], y[MOST];
  int32_t tokens[TOKENS];
  deltaic_session_options o = exact;
  deltaic_model *model = open_model(device, MODEL);
  for (int i = 0; i < TOKENS; i++) tokens[i] = 3 + i * 37 % 200;
  o.context = TOKENS;
  o.batch = BATCH;
  deltaic_session *session = open_session(model, &o);
  assert_ok(deltaic_session_probe(session, DELTAIC_PROBE_RESIDUAL | DELTAIC_PROBE_MIXER_OUTPUT, on_probe, &s));
  assert_ok(deltaic_session_eval(session, tokens, TOKENS, DELTAIC_LOGITS_NONE, NULL));
  assert_ok(deltaic_session_probe(session, 0, NULL, NULL));
  const size_t n = TOKENS * s.width;
  const int layers = info_of(model).layers;
  assert_ok(session_embed(session, tokens, TOKENS, x));
  assert_close(x, s.before, n, "embedding", 0);
  for (int i = 0; i < layers; i++) {
    const float *before = s.before + (size_t)i * n;
    for (size_t k = 0; k < n; k++) s.after_mixer[(size_t)i * n + k] += before[k];
    assert_ok(session_advance(session, (uint32_t)i, HALF_MIXER, x, y, TOKENS));
    assert_close(y, s.after_mixer + (size_t)i * n, n, "mixer", i);
    assert_ok(session_advance(session, (uint32_t)i, HALF_MIXER, x, x, TOKENS)); // again from a zero state
    assert_memory_equal(x, y, n * sizeof *x);
    assert_ok(session_advance(session, (uint32_t)i, HALF_FFN, x, x, TOKENS));
    if (i + 1 < layers) assert_close(x, before + n, n, "FFN", i);
  }
  assert_int_equal(deltaic_session_eval(session, tokens, 1, DELTAIC_LOGITS_NONE, NULL), DELTAIC_BAD_STATE);
  assert_ok(deltaic_session_reset(session));
  assert_ok(deltaic_session_eval(session, tokens, 1, DELTAIC_LOGITS_NONE, NULL));
  close_session(session, model);
}

static void what_does_not_fit_is_refused(deltaic_device *device) {
  int32_t tokens[2] = {3, 100000};
  static float x[MOST];
  deltaic_session_options o = exact;
  deltaic_model *model = open_model(device, MODEL);
  o.context = TOKENS;
  deltaic_session *session = open_session(model, &o);
  assert_int_equal(session_embed(session, tokens, 2, x), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), "token 1 is 100000"));
  assert_int_equal(session_advance(session, 0, HALF_MIXER, x, x, TOKENS + 1), DELTAIC_INTERNAL);
  assert_int_equal(session_advance(session, 6, HALF_MIXER, x, x, 1), DELTAIC_INTERNAL);
  close_session(session, model);
}

int main(void) {
  const struct CMUnitTest tests[] = {device_test(halves_of_layers_are_the_evaluation),
                                     device_test(what_does_not_fit_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
