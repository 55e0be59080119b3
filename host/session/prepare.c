// prepare: compiles what a session's calls need before the first of them. No list is computed.
#include "slice.h"

static void add(struct deltaic_session *s, struct recorder *c) { c->functions->recorder_list(c, &s->list); }

// Short slices differ in their kernels from row to row, long ones seldom.
static uint32_t longer(uint32_t rows) { return rows < LOGIT_ROWS ? rows + 1 : rows + rows / 8; }

static void add_steps(struct deltaic_session *s, struct recorder *c) {
  for (uint32_t n = 1; n <= s->shape.sequences; n++)
    for (int draw = 0; draw <= 1; draw++) {
      slice_list_step(s, n, draw);
      add(s, c);
    }
}

// Slices of 1, 2, 4, ... sequences, which share them evenly, or of which one has nearly all tokens.
static void add_prompts(struct deltaic_session *s, struct recorder *c) {
  const uint32_t most = s->shape.batch;
  for (uint32_t n = 1; n <= s->shape.sequences; n *= 2)
    for (uint32_t T = n + 1, last = n; last < most; last = T, T = longer(T)) {
      if (T > most) T = most;
      const uint32_t longest[] = {(T + n - 1) / n, T - n + 1};
      for (int i = 0; i < 2; i++) {
        slice_list_prompt(s, &(struct slice_shape){.T = T, .count = n, .longest = longest[i], .ends = n});
        add(s, c);
      }
    }
}

// Of any number of sequences the logits after the last tokens, and logits of so many rows.
static void add_logits(struct deltaic_session *s, struct recorder *c) {
  for (uint32_t n = 1; n <= s->shape.sequences && n < s->shape.batch; n++) {
    slice_list_prompt(s, &(struct slice_shape){.T = n + 1, .count = n, .longest = 2, .ends = n});
    add(s, c);
  }
  for (uint32_t n = 1; n <= s->logit_rows; n++) {
    uint32_t normed = UINT32_MAX;
    slice_list_logits(s, n, 0, n, &normed);
    add(s, c);
  }
}

static void add_all(struct recorder *c, void *context) {
  add_steps(context, c);
  add_prompts(context, c);
  add_logits(context, c);
}

deltaic_status deltaic_session_prepare(deltaic_session *s) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_prepare: session is NULL");
  struct backend *b = s->model->backend;
  return b->functions->compile(b, add_all, s);
}
