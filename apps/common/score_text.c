// score_text: see score_text.h.
//   NLL = mean of -log p(token)
#include "score_text.h"

#include "corpus.h"

#include <math.h>
#include <stdlib.h>

// ---------------------------------------------------------------- windows

// A window: tokens [begin, end) are evaluated from a zero state, and [scored, end) are scored.
struct window {
  size_t begin, scored, end;
};

static struct window window_at(const struct score *s, size_t index, bool bos) {
  struct window w = {.begin = index * s->stride};
  w.end = s->count - w.begin < s->window ? s->count : w.begin + s->window;
  w.scored = index ? w.begin + s->window - s->stride : 0;
  if (w.scored == w.begin && !bos) ++w.scored;
  return w;
}

// Returns the number of windows that score every token; a last window without a prediction is omitted.
static size_t count_windows(const struct score *s, bool bos) {
  size_t first = s->count < s->window ? s->count : s->window;
  size_t windows = 1 + (s->count - first + s->stride - 1) / s->stride;
  struct window last = window_at(s, windows - 1, bos);
  return last.scored < last.end ? windows : windows - 1;
}

static int lay_out(struct score *s, const struct score_options *r) {
  if (s->count < (r->bos ? 1 : 2)) return complain(EXIT_FAILED, "%s: too short: there is nothing to predict", r->file);
  s->window = r->window ? r->window : s->count;
  s->stride = r->stride ? r->stride : s->window;
  s->windows = count_windows(s, r->bos);
  if (r->windows && r->windows < s->windows) s->windows = r->windows;
  for (size_t i = 0; i < s->windows; ++i) {
    struct window w = window_at(s, i, r->bos);
    s->total += w.end - w.begin - !r->bos;
  }
  return EXIT_OK;
}

// ---------------------------------------------------------------- scores

static bool on_read(void *user, size_t tokens) {
  struct score *s = user;
  s->evaluated += tokens;
  progress_show(&s->progress, s->evaluated, s->total);
  return !interrupted();
}

static void on_scored(void *user, size_t index, double nll) {
  struct score *s = user;
  if (s->positions) positions_add(s->positions, index - s->first_id, nll);
}

static deltaic_status score_window(struct score *s, struct window w, bool bos) {
  int32_t *ids = s->ids + w.begin, before = ids[-1];
  if (bos) *--ids = s->engine.model_info.bos_token;
  deltaic_status status = deltaic_session_reset(s->session);
  if (!status)
    status = likelihood_read(&s->likelihood, s->session, ids, w.end - w.begin + bos, w.scored - w.begin + bos);
  s->ids[(ptrdiff_t)w.begin - 1] = before;
  return status;
}

int score_run(struct score *s, const struct score_options *r) {
  deltaic_status status = DELTAIC_OK;
  const struct moment start = engine_now(&s->engine);
  progress_begin(&s->progress, "reading the text", "tokens", r->engine.quiet);
  interrupt_watch(s->session);
  for (size_t i = 0; i < s->windows && !status && !interrupted(); ++i) {
    status = score_window(s, window_at(s, i, r->bos), r->bos);
    if (!status && !interrupted()) ++s->windows_done;
  }
  interrupt_watch(NULL);
  s->seconds = engine_seconds(&s->engine, start);
  int code = complain_work(status);
  if (!code && !isfinite(s->likelihood.nll))
    code = complain(EXIT_FAILED, "%s: its logits are not finite: numbers overflow", r->engine.model);
  return code;
}

// ---------------------------------------------------------------- opening

static int read_text(struct score *s, const struct score_options *r) {
  const struct corpus_reading reading = {r->engine.model, 0, false};
  struct corpus texts;
  const int code = corpus_read(&texts, &reading, &r->file, 1);
  if (code) return code;
  s->words = texts.words;
  s->bytes = texts.bytes;
  s->count = texts.count;
  s->ids = must_resize(NULL, (s->count + 1) * sizeof *s->ids);
  *s->ids++ = 0;
  for (size_t i = 0; i < s->count; ++i) s->ids[i] = texts.tokens[i];
  corpus_free(&texts);
  return EXIT_OK;
}

int score_open(struct score *s, const struct score_options *r) {
  int code = read_text(s, r);
  if (!code) code = lay_out(s, r);
  if (!code) code = engine_open(&r->engine, &s->engine);
  if (code) return code;
  if (r->bos && s->engine.model_info.bos_token < 0)
    return complain(EXIT_FAILED, "%s: has no begin token for --bos", r->engine.model);
  struct engine_options options = r->engine;
  size_t longest = s->window < s->count ? s->window : s->count;
  if (!options.context) options.context = longest < UINT32_MAX ? (uint32_t)longest + 1 : UINT32_MAX;
  likelihood_begin(&s->likelihood, r->engine.batch);
  s->likelihood.user = s;
  s->likelihood.read = on_read;
  s->likelihood.scored = on_scored;
  s->first_id = r->bos;
  return session_create(&s->engine, &options, &s->session);
}

int score_close(struct score *s, int code) {
  deltaic_session_free(s->session);
  likelihood_end(&s->likelihood);
  if (s->ids) free(s->ids - 1);
  return engine_close(&s->engine, code);
}
