// eval_run: runs one task on one checkpoint, scores the cases that are not in the log, and logs each finished case.
#include "common.h"
#include "eval.h"
#include "eval_text.h"

#include <stdlib.h>
#include <string.h>

struct run {
  const struct eval_task *task;
  struct eval_result *out;
  struct engine engine;
  struct encoder encoder;
  struct requests requests;
  struct scorer scorer;
  struct progress progress;
  uint32_t *waiting; // (cases) number of unfinished requests of a case
  const char *log_path;
  struct eval_log log;
};

// ---------------------------------------------------------------- results of requests

// Copies the generated text up to the end token or up to `until`.
static char *made_text(const struct run *r, const struct eval_case *c, const struct request_score *s) {
  size_t n = 0, bytes = 0, capacity = 64 * (size_t)s->made_count + 64;
  char *text = must_resize(NULL, capacity);
  while (n < s->made_count && !deltaic_model_is_end(r->engine.model, s->made[n])) ++n;
  deltaic_status status;
  while ((status = deltaic_tokenizer_decode(r->encoder.tokenizer, s->made, n, true, text, capacity - 1, &bytes)) ==
         DELTAIC_BUFFER_TOO_SMALL)
    text = must_resize(text, capacity *= 2);
  text[status ? 0 : bytes] = 0;
  char *end = c->until && *c->until ? strstr(text, c->until) : NULL;
  if (end) *end = 0;
  char *clean = text_copy(text, utf8_error(text, strlen(text))); // removes a character that the limit truncated
  free(text);
  return clean;
}

static bool finish_case(struct run *r, size_t index) {
  struct case_score *score = &r->out->scores[index];
  score->done = true;
  ++r->out->done;
  return !r->log.stream || eval_log_add(&r->log, r->task, index, score);
}

static bool on_done(void *user, const struct request *request, const struct request_score *score) {
  struct run *r = user;
  struct case_score *s = &r->out->scores[request->index];
  struct choice_score *choice = &s->choice[request->choice];
  choice->ll += score->ll;
  choice->greedy &= score->greedy;
  choice->tokens += request->count - request->context;
  if (request->make) s->made = made_text(r, &r->task->cases[request->index], score);
  return --r->waiting[request->index] || finish_case(r, request->index);
}

// ---------------------------------------------------------------- the steps

static void make_scores(struct run *r) {
  struct case_score *scores = must_resize(NULL, r->task->count * sizeof *scores);
  for (size_t i = 0; i < r->task->count; ++i) {
    size_t n = r->task->cases[i].choices;
    scores[i] = (struct case_score){.choice = must_resize(NULL, n * sizeof *scores[i].choice)};
    for (size_t k = 0; k < n; ++k) scores[i].choice[k] = (struct choice_score){.greedy = true};
  }
  r->out->scores = scores;
}

static int open_log(struct run *r) {
  if (!r->log_path) return EXIT_OK;
  int code = eval_log_open(&r->log, r->log_path, r->task, r->encoder.options, r->out);
  r->out->done = r->out->resumed;
  return code;
}

static int make_requests(struct run *r) {
  int code = EXIT_OK;
  r->waiting = must_resize(NULL, r->task->count * sizeof *r->waiting);
  for (size_t i = 0; i < r->task->count && !code; ++i) {
    size_t before = r->requests.count;
    if (r->out->scores[i].done) continue;
    code = encode_case(&r->encoder, i, &r->requests);
    r->waiting[i] = (uint32_t)(r->requests.count - before);
    if (!code && !r->waiting[i] && !finish_case(r, i)) code = EXIT_FAILED; // an empty document
    if (!code && interrupted()) code = complain_work(DELTAIC_OK);
  }
  return code;
}

static int score(struct run *r, const struct engine_options *options) {
  double start = time_now();
  r->scorer = (struct scorer){.engine = &r->engine,
                              .options = options,
                              .progress = &r->progress,
                              .busy = r->encoder.options->busy,
                              .done = on_done,
                              .user = r};
  progress_begin(&r->progress, r->task->name, "tokens", options->quiet);
  int code = score_requests(&r->scorer, &r->requests);
  progress_clear();
  r->out->seconds = time_now() - start;
  r->out->tokens = r->scorer.tokens;
  r->out->evaluated = r->scorer.evaluated;
  r->out->busy_seconds = r->scorer.busy_seconds;
  return code;
}

int eval_run(const struct eval_task *task, const struct eval_options *options, const char *log,
             struct eval_result *out) {
  struct run r = {.task = task, .out = out, .log_path = log};
  struct engine_options engine = options->engine;
  engine.model = out->checkpoint;
  make_scores(&r);
  int code = encoder_open(&r.encoder, out->checkpoint, options, task), closed = EXIT_OK;
  out->max_length = r.encoder.max_length;
  if (!code) code = engine_open(&engine, &r.engine);
  if (!code) {
    out->fingerprint = r.engine.model_info.fingerprint;
    snprintf(out->device, sizeof out->device, "%s", engine_device_text(&r.engine));
    code = open_log(&r);
  }
  if (!code) code = make_requests(&r);
  if (!code) code = score(&r, &engine);
  closed = eval_log_close(&r.log);
  requests_free(&r.requests);
  encoder_close(&r.encoder);
  free(r.waiting);
  return engine_close(&r.engine, code ? code : closed);
}

void eval_result_free(const struct eval_task *task, struct eval_result *result) {
  for (size_t i = 0; i < task->count && result->scores; ++i) {
    free(result->scores[i].choice);
    free(result->scores[i].made);
  }
  free(result->scores);
  result->scores = NULL;
}
