// tune_run: the steps of `deltaic tune`.
#include "print_numbers.h"
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- the state

static deltaic_status save_state(struct tune_work *w) {
  w->engine.keeps_on = true; // what is saved may need kernels
  char *note = tune_note(w);
  const deltaic_status status = deltaic_tune_save_state(w->tune, w->state, note);
  free(note);
  w->engine.keeps_on = false;
  if (!status) {
    w->has_state = true;
    w->saved = w->done;
  }
  return status;
}

// Weights whose loss or gradient is not finite are never saved. The training goes back to the copy that the library
// keeps. Returns whether the copy is later than the saved state.
static bool go_back(struct tune_work *w) {
  deltaic_tune_info info;
  if (deltaic_tune_return(w->tune)) return false;
  deltaic_tune_get_info(w->tune, &info);
  w->done = info.steps;
  while (w->measured_count && w->measured[w->measured_count - 1].step > w->done) --w->measured_count;
  return !w->has_state || w->done > w->saved;
}

int tune_keep(struct tune_work *w, deltaic_status status) {
  const int code = status == DELTAIC_NO_DEVICE || status == DELTAIC_DEVICE_LOST ? EXIT_DEVICE : EXIT_FAILED;
  deltaic_tune_info info;
  char error[1024], lost[1100] = "";
  snprintf(error, sizeof error, "%s", deltaic_last_error());
  deltaic_tune_get_info(w->tune, &info);
  if ((w->infinite ? go_back(w) : info.steps == w->done) && save_state(w))
    snprintf(lost, sizeof lost, "; the state after step %llu cannot be saved: %s", (unsigned long long)w->done,
             deltaic_last_error());
  if (w->has_state)
    return complain(code, "%s%s; the state after step %llu is in %s", error, lost, (unsigned long long)w->saved,
                    w->state);
  if (w->infinite && info.steps && !*lost)
    return complain(code, "%s; no earlier state was saved (--save-every)", error);
  return complain(code, "%s%s", error, lost);
}

// ---------------------------------------------------------------- batches

struct buffer { // of one batch
  int32_t *tokens, *targets;
};

static struct buffer buffer_of(const struct tune_work *w, uint32_t length) {
  const size_t n = (size_t)w->r->batch * length;
  return (struct buffer){must_resize(NULL, n * sizeof(int32_t)), must_resize(NULL, n * sizeof(int32_t))};
}

static void buffer_free(struct buffer *b) {
  free(b->tokens);
  free(b->targets);
}

// Rows first ... first + count - 1.
static deltaic_tune_batch batch_of(struct tune_rows *rows, uint64_t first, uint32_t count, struct buffer *b) {
  for (uint32_t i = 0; i < count; ++i)
    rows_fill(rows, first + i, b->tokens + (size_t)i * rows->length, b->targets + (size_t)i * (rows->length - 1));
  deltaic_tune_batch batch = DELTAIC_INIT(deltaic_tune_batch);
  batch.tokens = b->tokens;
  batch.targets = b->targets;
  batch.rows = count;
  batch.length = rows->length - 1;
  return batch;
}

// ---------------------------------------------------------------- the held-out text

static uint64_t predictions_of(const deltaic_tune_batch *batch) {
  uint64_t n = 0;
  for (uint64_t i = 0; i < (uint64_t)batch->rows * batch->length; ++i) n += batch->targets[i] >= 0;
  return n;
}

static int measure(struct tune_work *w) {
  struct tune_rows *held = &w->held;
  struct buffer b = buffer_of(w, held->length);
  deltaic_tune_loss loss = {0, 0};
  deltaic_status status = DELTAIC_OK;
  double sum = 0;
  w->predictions = 0;
  for (size_t first = 0; first < held->piece_count && !status && !interrupted(); first += w->r->batch) {
    const size_t left = held->piece_count - first;
    const deltaic_tune_batch batch = batch_of(held, first, left < w->r->batch ? (uint32_t)left : w->r->batch, &b);
    const uint64_t n = predictions_of(&batch);
    status = deltaic_tune_measure(w->tune, &batch, &loss);
    w->infinite = status == DELTAIC_INVALID_ARGUMENT && !isfinite(loss.ce + loss.kd);
    if (status == DELTAIC_CANCELLED && interrupted()) return (buffer_free(&b), EXIT_OK);
    sum += loss.ce * (double)n;
    w->predictions += n;
  }
  buffer_free(&b);
  if (status) return tune_keep(w, status);
  if (interrupted()) return EXIT_OK;
  w->measured = must_resize(w->measured, (w->measured_count + 1) * sizeof *w->measured);
  w->measured[w->measured_count++] = (struct tune_measured){w->done, sum / (double)w->predictions};
  return EXIT_OK;
}

// After step 0, every N-th and the last of this run; not again where a state has it.
static int measure_held(struct tune_work *w, uint64_t stop) {
  const bool due = !w->done || w->done == stop || (w->r->every && w->done % w->r->every == 0);
  const bool known = w->measured_count && w->measured[w->measured_count - 1].step == w->done;
  return w->held.piece_count && due && !known ? measure(w) : EXIT_OK;
}

uint64_t tune_tokens(const struct tune_work *w, uint64_t steps) {
  const uint64_t rows = steps * w->r->accumulate * w->r->batch;
  return (rows < w->all_rows ? rows : w->all_rows) * (w->rows.length - 1);
}

double tune_tokens_per_second(const struct tune_work *w) {
  const uint64_t tokens = tune_tokens(w, w->done) - tune_tokens(w, w->seconds_from);
  return w->seconds > 0 ? (double)tokens / w->seconds : 0;
}

static void report(const struct tune_work *w, double rate, uint64_t stop) {
  if (w->r->quiet || !w->r->every || w->done % w->r->every) return;
  progress_clear();
  fprintf(stderr, "step %llu of %llu   loss %.4f   rate %.3g", (unsigned long long)w->done,
          (unsigned long long)w->steps, w->losses[w->done - 1], rate);
  if (w->measured_count) fprintf(stderr, "   held out %.4f", w->measured[w->measured_count - 1].nll);
  fprintf(stderr, "   %s tokens/s", text_rate(tune_tokens_per_second(w)).text);
  const double seconds = w->seconds / (double)(w->done - w->seconds_from); // of a step
  if (w->done < stop) fprintf(stderr, "   %s left", text_seconds((double)(stop - w->done) * seconds).text);
  fprintf(stderr, "\n");
}

// ---------------------------------------------------------------- steps

// Batch `a` of the next step. In the last step batches may have fewer rows, or none.
static deltaic_tune_batch step_batch(struct tune_work *w, uint32_t a, struct buffer *b) {
  const uint64_t first = (w->done * w->r->accumulate + a) * w->r->batch,
                 left = first < w->all_rows ? w->all_rows - first : 0;
  return batch_of(&w->rows, first, left < w->r->batch ? (uint32_t)left : w->r->batch, b);
}

// Training continues if a save fails; the disk may have room at the next save.
static void save_on_the_way(struct tune_work *w) {
  if (!save_state(w)) return;
  progress_clear();
  complain(EXIT_OK, "%s; the training goes on without the state after step %llu", deltaic_last_error(),
           (unsigned long long)w->done);
}

// The number of predictions in all batches of a step.
static uint64_t step_predictions(struct tune_work *w, struct buffer *b) {
  uint64_t n = 0;
  for (uint32_t a = 0; a < w->r->accumulate; ++a) {
    const deltaic_tune_batch batch = step_batch(w, a, b);
    n += predictions_of(&batch);
  }
  return n;
}

struct step {
  double loss, norm; // the gradient's
};

// All predictions of a step have the same weight, in whichever batch they are. Leaves *s incomplete if Ctrl-C came.
static deltaic_status find_gradient(struct tune_work *w, struct buffer *b, struct step *s) {
  const struct tune_request *r = w->r;
  const uint64_t all = step_predictions(w, b);
  deltaic_status status = DELTAIC_OK;
  *s = (struct step){0, 0};
  for (uint32_t a = 0; a < r->accumulate && !status; ++a) {
    deltaic_tune_loss loss = {0, 0};
    if (interrupted()) return DELTAIC_OK;
    const deltaic_tune_batch batch = step_batch(w, a, b);
    const double share = (double)predictions_of(&batch) / (double)all;
    if (!batch.rows) break;
    status = deltaic_tune_add(w->tune, &batch, share, &loss);
    s->loss += (loss.ce + (r->teacher ? (double)r->weight * loss.kd : 0)) * share;
  }
  if (!status) status = deltaic_tune_norm(w->tune, &s->norm);
  w->infinite = !isfinite(s->loss) || !isfinite(s->norm);
  return status;
}

// Copies take at most a fiftieth of the time. If there is no memory for a copy, none is made.
static void keep_good_state(struct tune_work *w) {
  const double now = time_now();
  if (now - w->kept_at < w->pause) return;
  const bool kept = !deltaic_tune_keep_state(w->tune);
  w->kept_at = time_now();
  w->pause = kept ? 50 * (w->kept_at - now) : INFINITY;
}

static deltaic_status take_step(struct tune_work *w, double rate, const struct step *s) {
  const deltaic_status status = deltaic_tune_step(w->tune, rate, NULL);
  deltaic_tune_info info;
  deltaic_tune_get_info(w->tune, &info);
  if (info.steps == w->done) return status; // else the step is taken
  w->losses[w->done] = s->loss;
  w->norms[w->done++] = s->norm;
  return status;
}

// Takes a step. Between the gradient and the update it saves the state, whose loss and gradient are then known to be
// finite.
static deltaic_status go_on(struct tune_work *w, struct buffer *b, double rate) {
  const uint32_t every = w->r->save_every;
  struct step s;
  double start = time_now();
  deltaic_status status = find_gradient(w, b, &s);
  if (!status && !interrupted()) {
    keep_good_state(w);
    w->seconds += time_now() - start;
    if (every && w->done && w->done % every == 0 && w->saved != w->done) save_on_the_way(w);
    start = time_now();
    status = take_step(w, rate, &s);
    w->seconds += time_now() - start;
  }
  return status == DELTAIC_CANCELLED && interrupted() ? DELTAIC_OK : status; // while pipelines were compiled
}

// Checks that the loss of the last weights is finite, because no further step has computed it. If the training stops
// early, it may go on from these weights, so the gradient is checked too.
static int check_last(struct tune_work *w, struct buffer *b) {
  const bool measured = w->measured_count && w->measured[w->measured_count - 1].step == w->done;
  const bool stopped = tune_stopped(w);
  if (w->done == w->seconds_from || (measured && !stopped)) return EXIT_OK;
  const deltaic_tune_batch batch = batch_of(&w->rows, w->done * w->r->accumulate * w->r->batch, w->r->batch, b);
  deltaic_tune_loss loss = {0, 0};
  double norm = 0;
  w->engine.keeps_on = true; // Ctrl-C may have come
  deltaic_status status =
      stopped ? deltaic_tune_add(w->tune, &batch, 1, &loss) : deltaic_tune_measure(w->tune, &batch, &loss);
  if (stopped && !status) status = deltaic_tune_norm(w->tune, &norm);
  w->engine.keeps_on = false;
  w->infinite = !isfinite(loss.ce + loss.kd) || !isfinite(norm);
  return status ? tune_keep(w, status) : EXIT_OK;
}

static int run_steps(struct tune_work *w, struct buffer *b) {
  const struct tune_request *r = w->r;
  const uint64_t stop = r->stop_at && r->stop_at < w->steps ? r->stop_at : w->steps;
  deltaic_tune_schedule schedule = DELTAIC_INIT(deltaic_tune_schedule);
  schedule.rate = (double)r->rate;
  schedule.least = strcmp(r->schedule, "constant") ? 0.1 : 1;
  schedule.steps = w->steps;
  schedule.warm_up = r->warm_up;
  struct progress progress;
  progress_begin(&progress, "training", "tokens", r->quiet);
  const uint64_t from = tune_tokens(w, w->done), tokens = tune_tokens(w, stop) - from;
  int code = measure_held(w, stop);
  while (!code && w->done < stop && !interrupted()) {
    const double rate = deltaic_tune_rate(&schedule, w->done);
    const uint64_t before = w->done;
    const deltaic_status status = go_on(w, b, rate);
    if (status) return tune_keep(w, status);
    if (w->done == before) break; // Ctrl-C
    code = measure_held(w, stop);
    report(w, rate, stop);
    progress_show(&progress, tune_tokens(w, w->done) - from, tokens);
  }
  progress_clear();
  return code ? code : check_last(w, b);
}

bool tune_stopped(const struct tune_work *w) { return w->done < w->steps; }

int tune_run(struct tune_work *w) {
  struct buffer b = buffer_of(w, w->rows.length);
  int code = run_steps(w, &b);
  buffer_free(&b);
  if (code || !tune_stopped(w)) return code;
  code = complain_status(save_state(w));
  if (code || !interrupted()) return code;
  return complain(EXIT_INTERRUPTED, "stopped by %s after step %llu of %llu; --resume goes on from %s", interrupt_name(),
                  (unsigned long long)w->done, (unsigned long long)w->steps, w->state);
}
