// prune_run: runs the steps of `deltaic prune`: calibration, evaluation, refit.
#include "common.h"
#include "likelihood.h"
#include "prune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAVE_EVERY 60.0 // seconds between saves of the statistics

bool prune_show(void *progress, uint64_t done, uint64_t total) {
  progress_show(progress, done, total);
  return !interrupted();
}

bool prune_from_rows(const struct prune_work *w, const char *method) {
  deltaic_prune_method about;
  deltaic_statistics_info info = {0};
  if (!(w->r->rows || w->r->like_reference) || !deltaic_prune_method_find(method, &about)) return false;
  if (w->statistics) deltaic_statistics_get_info(w->statistics, &info);
  return about.rows && info.rows;
}

// Opens the device if it is not open yet.
static int open_device(struct prune_work *w) {
  const struct engine_options *o = &w->r->engine;
  if (w->engine.device) return EXIT_OK;
  w->open = true;
  if (precision_check(o)) return EXIT_USAGE;
  interrupt_catch();
  int code = model_check(o->model);
  if (!code) code = context_open(o, &w->engine.context);
  return code ? code : engine_open_device(o, &w->engine);
}

// And the model.
static int open_model(struct prune_work *w) {
  const int code = open_device(w);
  return code || w->engine.model ? code : engine_open_model(&w->r->engine, w->model, &w->engine);
}

void prune_work_free(struct prune_work *w) {
  deltaic_pruning_free(w->pruning);
  deltaic_selection_free(w->selection);
  deltaic_statistics_free(w->statistics);
  corpus_free(&w->text);
  corpus_free(&w->eval);
  corpus_free(&w->recover);
}

static int read_ids(const struct prune_work *w, const char *path, uint32_t most, struct corpus *out) {
  const struct corpus_reading reading = {w->r->engine.model, most, false};
  const int code = corpus_read(out, &reading, &path, 1);
  if (!code && out->count < 2) return complain(EXIT_FAILED, "%s: too short: it has %zu tokens", path, out->count);
  return code;
}

// ---------------------------------------------------------------- calibration

struct calibration_progress {
  struct progress progress;
  struct prune_work *w;
  double saved;
};

static bool show_calibration(void *user, uint64_t done, uint64_t total) {
  struct calibration_progress *p = user;
  double now = time_now();
  if (p->w->r->statistics && now - p->saved > SAVE_EVERY) { // between windows, so that the statistics are consistent
    deltaic_statistics_save(p->w->statistics, p->w->r->statistics);
    p->saved = now;
  }
  return prune_show(&p->progress, done, total);
}

static int calibrate(struct prune_work *w) {
  struct calibration_progress p = {.w = w, .saved = time_now()};
  deltaic_statistics_info before, after;
  deltaic_statistics_get_info(w->statistics, &before);
  // Without --text and --refit, statistics of another text are used as they are.
  if (w->r->text_of_recover && !w->r->refit && before.tokens &&
      !deltaic_statistics_begun_with(w->statistics, w->text.tokens, w->text.count))
    return EXIT_OK;
  int code = open_model(w);
  if (code) return code;
  double start = time_now();
  progress_begin(&p.progress, "calibrating", "tokens", w->r->engine.quiet);
  deltaic_status status =
      deltaic_calibrate(w->statistics, w->engine.model, w->text.tokens, w->text.count, show_calibration, &p);
  progress_clear();
  w->seconds_calibration = time_now() - start;
  deltaic_statistics_get_info(w->statistics, &after);
  code = complain_work(status);
  bool changed = after.tokens != before.tokens;
  if (changed && w->r->statistics && (!status || status == DELTAIC_CANCELLED)) {
    int saved = complain_status(deltaic_statistics_save(w->statistics, w->r->statistics));
    if (saved) return saved;
  }
  return code;
}

static int open_statistics(struct prune_work *w) {
  const struct prune_request *r = w->r;
  deltaic_calibration_options o = DELTAIC_INIT(deltaic_calibration_options);
  if (r->statistics && file_size(r->statistics))
    return complain_status(deltaic_statistics_load(w->model, r->statistics, &w->statistics));
  if (!r->text) return complain(EXIT_FAILED, "%s: no such file or folder; --text FILE would make it", r->statistics);
  int code = r->statistics ? output_check(r->statistics) : EXIT_OK;
  if (code) return code;
  o.window = r->window;
  o.unit = r->about.unit || r->sweep;
  o.seed = r->seed;
  o.rows_together = r->like_reference;
  o.rows = r->rows ? r->rows : r->like_reference && r->about.rows ? 5000 : 0;
  return complain_status(deltaic_statistics_create(w->model, &o, &w->statistics));
}

static int measure_gradients(struct prune_work *w) {
  struct progress progress;
  int code = open_device(w);
  if (code) return code;
  const double start = time_now();
  progress_begin(&progress, "gradients", "tokens", w->r->engine.quiet);
  deltaic_status status = deltaic_calibrate_gradients(w->statistics, w->engine.device, w->model, w->text.tokens,
                                                      w->text.count, prune_show, &progress);
  progress_clear();
  w->seconds_gradients = time_now() - start;
  code = complain_work(status);
  if (code || !w->r->statistics) return code;
  return complain_status(deltaic_statistics_save(w->statistics, w->r->statistics));
}

static void copy_ids(const int32_t *tokens, size_t count, struct corpus *out) {
  out->tokens = must_resize(NULL, count * sizeof *tokens);
  memcpy(out->tokens, tokens, count * sizeof *tokens);
  out->count = count;
}

// Reads the calibration text. If it is the text of --recover, the part that is held back is not in it. The names
// are compared too: standard input ("-") is no file for same_file(), and can be read only once.
static int read_text(struct prune_work *w) {
  const struct prune_request *r = w->r;
  const bool same = r->recover && (!strcmp(r->text, r->recover) || same_file(r->text, r->recover));
  if (!same) return read_ids(w, r->text, r->tokens, &w->text);
  copy_ids(w->recover.tokens, w->recover.count, &w->text);
  return EXIT_OK;
}

// Whether something looks at activations: the method, a rule, a picture, or statistics that are to be kept.
static bool wants_activations(const struct prune_request *r) {
  const bool other = r->statistics && !r->about.gradients;
  return (r->about.text && !r->about.gradients) || r->sweep || r->select.rule || r->plot || other;
}

int prune_measure(struct prune_work *w) {
  const struct prune_request *r = w->r;
  const bool activations = wants_activations(r), gradients = r->about.gradients || r->sweep;
  int code = EXIT_OK;
  if ((activations || gradients) && (r->text || r->statistics)) code = open_statistics(w);
  if (!code && r->text && activations) code = calibrate(w);
  if (!code && r->text && gradients) code = measure_gradients(w);
  return code;
}

// ---------------------------------------------------------------- evaluation

static int nll_of(struct prune_work *w, deltaic_model *model, const char *label, double *nll) {
  struct progress progress;
  struct likelihood l;
  deltaic_session *session = NULL;
  size_t window = w->r->window;
  deltaic_session_options o = session_options(&w->r->engine);
  o.context = (uint32_t)window;
  deltaic_status status = deltaic_session_create(model, &o, &session);
  likelihood_begin(&l, 0);
  progress_begin(&progress, label, "tokens", w->r->engine.quiet);
  for (size_t at = 0; at + 1 < w->eval.count && !status; at += window) {
    size_t n = w->eval.count - at < window ? w->eval.count - at : window;
    status = deltaic_session_reset(session);
    if (!status) status = likelihood_read(&l, session, w->eval.tokens + at, n, 1);
    if (!status && !prune_show(&progress, at + n, w->eval.count)) status = DELTAIC_CANCELLED;
  }
  progress_clear();
  *nll = l.nll / (double)l.predictions;
  w->predictions = l.predictions;
  deltaic_session_free(session);
  likelihood_end(&l);
  return complain_work(status);
}

int prune_nll_of(struct prune_work *w, const char *path, const char *label, double *nll) {
  deltaic_model *model = NULL;
  int code = complain_status(deltaic_model_open(w->engine.device, path, NULL, &model));
  if (!code) code = nll_of(w, model, label, nll);
  deltaic_model_close(model);
  return code;
}

int prune_measure_whole(struct prune_work *w) {
  if (!w->eval.count) return EXIT_OK;
  int code = open_model(w);
  if (!code) code = nll_of(w, w->engine.model, "evaluating", &w->nll_before);
  if (!code && !isfinite(w->nll_before))
    return complain(EXIT_FAILED, "%s: its logits are not finite: numbers overflow", w->r->engine.model);
  return code;
}

// ---------------------------------------------------------------- refit

int prune_refit(struct prune_work *w) {
  struct progress progress;
  deltaic_refit_options o = DELTAIC_INIT(deltaic_refit_options);
  int code = open_model(w);
  if (code) return code;
  o.ridge = (double)w->r->ridge;
  o.window = w->r->window;
  double start = time_now();
  progress_begin(&progress, "refitting", "tokens", w->r->engine.quiet);
  deltaic_status status = deltaic_pruning_refit(w->pruning, w->engine.device, w->engine.model, w->text.tokens,
                                                w->text.count, &o, prune_show, &progress);
  progress_clear();
  w->seconds_refit = time_now() - start;
  return complain_work(status);
}

// ---------------------------------------------------------------- recovery

// The last tenth of the text to recover on is held back to measure the loss on: at least one window of it.
static void hold_back(struct prune_work *w) {
  const size_t all = w->recover.count, tenth = all / 10, window = w->r->window, held = tenth > window ? tenth : window;
  w->recover.count = all - held;
  copy_ids(w->recover.tokens + w->recover.count, held, &w->eval);
  w->held_back = true;
  if (!w->r->engine.quiet)
    fprintf(stderr, "held back: the last %s of %s tokens of %s, to measure the loss on\n", text_count(held).text,
            text_count(all).text, w->r->recover);
}

static int read_recover(struct prune_work *w) {
  const size_t step = 2 * (size_t)w->r->window, held = w->r->eval ? 0 : w->r->window;
  int code = read_ids(w, w->r->recover, w->r->tokens, &w->recover);
  if (!code && w->recover.count < step + held)
    return complain(EXIT_FAILED, "%s: too short: it has %zu tokens, and a step of --recover reads %zu%s", w->r->recover,
                    w->recover.count, step, held ? "; without --eval one more window is held back" : "");
  if (!code && held) hold_back(w);
  return code;
}

int prune_read_texts(struct prune_work *w) {
  int code = w->r->eval ? read_ids(w, w->r->eval, 0, &w->eval) : EXIT_OK;
  if (!code && w->r->recover) code = read_recover(w);
  return code || !w->r->text ? code : read_text(w);
}

int prune_recover(struct prune_work *w) {
  struct progress progress;
  deltaic_recover_options o = DELTAIC_INIT(deltaic_recover_options);
  o.window = w->r->window;
  o.rate = (double)w->r->rate;
  o.seed = w->r->seed;
  o.precision = w->r->recover_precision;
  int code = open_device(w);
  if (code) return code;
  o.device = w->engine.device;
  double start = time_now();
  progress_begin(&progress, "recovering", "tokens", w->r->engine.quiet);
  deltaic_status status =
      deltaic_pruning_recover(w->pruning, w->recover.tokens, w->recover.count, &o, prune_show, &progress);
  progress_clear();
  w->seconds_recover = time_now() - start;
  w->unrecovered = status == DELTAIC_CANCELLED;
  return complain_work(status);
}
