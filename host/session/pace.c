// pace: evaluates as many tokens as fit into a time. See pace.h.
#include "pace.h"

#include "session.h"

#include <math.h>

enum { FIRST = 2 }; // 4 tokens
#define FORGET 0.9  // of the slowest run, by each later one

static int length_of(uint32_t tokens) {
  int i = 0;
  while (i + 1 < PACE_LENGTHS && 2u << i <= tokens) i++;
  return i;
}

static bool known(const struct pace_row *r) { return r->runs > 1; }

static void took(struct pace_row *r, double ns) {
  if (r->runs++) r->ns = fmax(r->runs > 2 ? FORGET * r->ns : 0, ns);
}

uint32_t pace_slice(const struct pace *p, double ns, uint32_t most) {
  double expected[PACE_LENGTHS];
  int low = 0, i, high = length_of(most);
  if (ns <= 0) return 0;
  while (low < PACE_LENGTHS && !known(&p->slices[low])) low++;
  if (low == PACE_LENGTHS) return most < 1u << FIRST ? most : 1u << FIRST;
  for (i = 0; i < PACE_LENGTHS; i++) // a shorter slice takes no longer, one of twice the length at most twice as long
    expected[i] = known(&p->slices[i]) ? p->slices[i].ns : i < low ? p->slices[low].ns : 2 * expected[i - 1];
  for (i = high; i >= 0; i--)
    if (expected[i] <= ns && (i <= low || p->slices[i].runs || known(&p->slices[i - 1]))) break;
  if (i < 0) return 0;
  return i == high && 2 * expected[i] <= ns && most < 2u << i ? most : 1u << i; // the end of a prompt in one slice
}

void pace_slice_took(struct pace *p, uint32_t tokens, double ns) {
  const int length = length_of(tokens);
  took(&p->slices[length], ns);
  for (int i = length + 1; i < PACE_LENGTHS; i++) { // else a slow moment would rule a length out for ever
    const double twice = 2 * p->slices[i - 1].ns;
    if (known(&p->slices[i - 1]) && p->slices[i].ns > twice) p->slices[i].ns = fmax(FORGET * p->slices[i].ns, twice);
  }
}

bool pace_step_fits(const struct pace *p, double ns) { return known(&p->step) && p->step.ns <= ns; }

void pace_step_took(struct pace *p, double ns) { took(&p->step, ns); }

// ---------------------------------------------------------------- within a time

struct watch {
  const struct backend *backend;
  uint64_t begin;   // of the call
  uint64_t lap;     // of the slice or step
  double compiling; // seconds until then
};

static void lap_begin(struct watch *w) {
  w->lap = platform_clock_ns();
  w->compiling = w->backend->functions->compile_seconds(w->backend);
}

// Nanoseconds of a slice or step; pipelines that it made are made only once.
static double lap_end(const struct watch *w) {
  const double made = w->backend->functions->compile_seconds(w->backend) - w->compiling;
  return fmax(0, (double)(platform_clock_ns() - w->lap) - 1e9 * made);
}

static double left(const struct watch *w, double milliseconds) {
  return 1e6 * milliseconds - (double)(platform_clock_ns() - w->begin);
}

static deltaic_status check_time(double milliseconds, const char *function) {
  if (milliseconds >= 0 && milliseconds <= 1e9) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: milliseconds is %g, expected 0 to 1e9", function, milliseconds);
}

deltaic_status deltaic_session_eval_within(deltaic_session *s, const int32_t *tokens, size_t n, double milliseconds,
                                           size_t *done) {
  static const char name[] = "deltaic_session_eval_within";
  const deltaic_piece all = {.tokens = tokens, .count = n};
  if (refuse_null(name, "session,done", s, done)) return DELTAIC_INVALID_ARGUMENT;
  deltaic_status status = check_time(milliseconds, name);
  if (!status) status = session_check_piece(s, &all, name);
  if (status) return status;
  struct watch w = {.backend = s->model->backend, .begin = platform_clock_ns()};
  *done = 0;
  while (*done < n) {
    const size_t rest = n - *done;
    uint32_t slice =
        pace_slice(&s->pace, left(&w, milliseconds), rest < s->shape.batch ? (uint32_t)rest : s->shape.batch);
    if (!slice && *done) break;
    if (!slice) slice = 1; // the call must get on
    lap_begin(&w);
    status = deltaic_session_eval(s, tokens + *done, slice, DELTAIC_LOGITS_NONE, NULL);
    if (status) return status;
    pace_slice_took(&s->pace, slice, lap_end(&w));
    *done += slice;
  }
  return DELTAIC_OK;
}

deltaic_status deltaic_session_next_within(deltaic_session *s, const deltaic_sampling *sampling, double milliseconds,
                                           int32_t *tokens, size_t capacity, size_t *count) {
  static const char name[] = "deltaic_session_next_within";
  if (refuse_null(name, "session,tokens,count", s, tokens, count)) return DELTAIC_INVALID_ARGUMENT;
  deltaic_status status = check_time(milliseconds, name);
  if (!status && !capacity) status = fail(DELTAIC_INVALID_ARGUMENT, "%s: capacity is 0", name);
  if (status) return status;
  struct watch w = {.backend = s->model->backend, .begin = platform_clock_ns()};
  *count = 0;
  do {
    lap_begin(&w);
    status = deltaic_session_next(s, sampling, &tokens[*count], NULL);
    if (status) return status;
    pace_step_took(&s->pace, lap_end(&w));
    ++*count;
  } while (*count < capacity && !deltaic_model_is_end(s->model, tokens[*count - 1]) &&
           pace_step_fits(&s->pace, left(&w, milliseconds)));
  return DELTAIC_OK;
}
