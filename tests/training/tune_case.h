// tune_case.h: what the tests of trainings share: a small model, its tokens and steps. <cmocka.h> comes with
// prune_folder.h.
#ifndef TUNE_CASE_H
#define TUNE_CASE_H
#include "deltaic_tune.h"
#include "prune_folder.h"

#define MODEL TESTS_DIR "/vectors/models/tiny_gated_deltanet"
enum { ROWS = 2, T = 24, STEPS = 4, BATCH = ROWS * (T + 1) };

static int32_t tokens[STEPS * BATCH];

static inline void make_tokens(void) {
  uint32_t x = 1;
  for (int i = 0; i < STEPS * BATCH; i++) {
    x = x * 1664525 + 1013904223;
    tokens[i] = 3 + (int32_t)((x >> 20) % 40);
  }
}

static inline deltaic_tune_batch batch_at(int step) {
  return (deltaic_tune_batch){
      .size = sizeof(deltaic_tune_batch), .tokens = tokens + step * BATCH, .rows = ROWS, .length = T};
}

static inline deltaic_tune *create(const deltaic_tune_options *o) {
  deltaic_tune *tune = NULL;
  make_tokens();
  assert_ok(deltaic_tune_create(MODEL, o, &tune));
  return tune;
}

static inline void steps(deltaic_tune *tune, int from, int to) {
  for (int i = from; i < to; i++) {
    const deltaic_tune_batch batch = batch_at(i);
    assert_ok(deltaic_tune_add(tune, &batch, 1, NULL));
    assert_ok(deltaic_tune_step(tune, 1e-2, NULL));
  }
}

static inline float *logits_of(const char *path, const char *adapter, size_t count, int32_t *vocabulary) {
  deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  deltaic_model *model;
  deltaic_session *session;
  deltaic_model_info info;
  assert_ok(deltaic_model_open(cpu, path, &o, &model));
  deltaic_model_get_info(model, &info);
  float *logits = malloc(count * (size_t)info.vocabulary * sizeof *logits);
  assert_ok(deltaic_session_create(model, NULL, &session));
  assert_ok(deltaic_session_eval(session, tokens, count, DELTAIC_LOGITS_ALL, logits));
  deltaic_session_free(session);
  deltaic_model_close(model);
  *vocabulary = info.vocabulary;
  return logits;
}
#endif
