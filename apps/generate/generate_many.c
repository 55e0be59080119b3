// generate_many: implements `deltaic generate --prompts`: every line of a file is a prompt. All lanes generate one
// token per step; a lane whose sequence has ended takes the next prompt.
#include "common.h"
#include "generate.h"
#include "lanes.h"
#include "lines.h"
#include "print.h"

#include <stdlib.h>
#include <string.h>

enum { ROUND_BATCHES = 4, NO_TEXT = -1 };

struct text_job {
  char *prompt;
  size_t bytes, line;
  int32_t *ids; // of the prompt
  size_t id_count, at;
  int32_t *made;
  uint32_t made_count; // tokens drawn
  deltaic_decoder *decoder;
  deltaic_stops *stops;
  char *text; // so far, without what the decoder and the stop strings hold back
  size_t text_bytes;
  const char *end; // NULL: it goes on
};

struct many {
  const struct generate_request *request;
  struct engine engine;
  deltaic_tokenizer *tokenizer;
  struct lanes lanes;
  deltaic_sampling sampling; // with the first text's seed
  struct text_job *jobs;
  size_t count, capacity;
  size_t begun, written;
  size_t overflowed; // texts whose last logits are not finite
  int64_t *job_of;   // (lanes) or NO_TEXT
  uint64_t read, made;
  double read_seconds, made_seconds;
};

// ---------------------------------------------------------------- prompts

static int add_job(struct many *m, const char *prompt, size_t bytes, const struct lines *lines) {
  if (m->count == m->capacity) {
    m->capacity = 2 * m->capacity + 64;
    m->jobs = must_resize(m->jobs, m->capacity * sizeof *m->jobs);
  }
  struct text_job *job = &m->jobs[m->count++];
  *job = (struct text_job){.prompt = must_resize(NULL, bytes + 1), .bytes = bytes, .line = lines->number};
  memcpy(job->prompt, prompt, bytes);
  job->prompt[bytes] = 0;
  char where[1100];
  snprintf(where, sizeof where, "%.1000s:%zu: ", lines->path, lines->number);
  return generate_encode(m->request, m->tokenizer, prompt, bytes, where, &job->ids, &job->id_count);
}

static int add_json(struct many *m, const struct lines *lines) {
  json_error_t error;
  json_t *record = json_loadb(lines->text, lines->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  const json_t *prompt = json_object_get(record, "prompt");
  int code = EXIT_OK;
  if (!record)
    code = complain(EXIT_FAILED, "%s:%zu: not JSON: %s", lines->path, lines->number, error.text);
  else if (!json_is_string(prompt))
    code = complain(EXIT_FAILED, "%s:%zu: no \"prompt\" whose value is a string", lines->path, lines->number);
  else
    code = add_job(m, json_string_value(prompt), json_string_length(prompt), lines);
  json_decref(record);
  return code;
}

// Skips empty lines; the first line determines the format of all lines.
static int read_prompts(struct many *m) {
  struct lines *lines = must_resize(NULL, sizeof *lines);
  int code = lines_open(lines, m->request->prompts);
  bool json = false;
  while (!code && lines_next(lines)) {
    if (lines->problem[0]) code = complain(EXIT_FAILED, "%s:%zu: %s", lines->path, lines->number, lines->problem);
    if (code || !lines->length) continue;
    if (!m->count) json = lines->text[0] == '{';
    code = json ? add_json(m, lines) : add_job(m, lines->text, lines->length, lines);
  }
  int closed = lines_close(lines);
  if (!code && !closed && !m->count) code = complain(EXIT_FAILED, "%s: there is no prompt in it", lines->path);
  free(lines);
  return code ? code : closed;
}

// ---------------------------------------------------------------- opening

// Before anything is computed: a prompt that --context has no room for. It means nothing where no cache grows.
static int check_context(const struct many *m, const char *path) {
  const struct engine_options *engine = &m->request->engine;
  deltaic_session_options session = session_options(engine);
  deltaic_memory memory;
  session.sequences = 1;
  int code = complain_status(deltaic_model_inspect(NULL, path, &session, NULL, &memory));
  for (size_t i = 0; i < m->count && !code && memory.cache_per_token; ++i)
    if (m->jobs[i].id_count > engine->context)
      code = complain(EXIT_FAILED, "%s:%zu: the prompt's %zu tokens do not fit --context %u",
                      strcmp(m->request->prompts, "-") ? m->request->prompts : "standard input", m->jobs[i].line,
                      m->jobs[i].id_count, engine->context);
  return code;
}

static int open_many(struct many *m) {
  const struct generate_request *r = m->request;
  const char *path = model_path(r->engine.model);
  uint64_t longest = r->engine.context;
  if (!path) return EXIT_USAGE;
  int code = tokenizer_open(path, &m->tokenizer);
  if (!code) code = read_prompts(m);
  if (!code && r->engine.context) code = check_context(m, path);
  if (!code) code = engine_open(&r->engine, &m->engine);
  if (code) return code;
  for (size_t i = 0; i < m->count; ++i)
    if (m->jobs[i].id_count + r->tokens > longest && !r->engine.context) longest = m->jobs[i].id_count + r->tokens;
  struct engine_options options = r->engine;
  options.model = path;
  code = lanes_open(&m->lanes, &m->engine, &options, 1, m->count, longest);
  if (code) return code;
  m->job_of = must_resize(NULL, m->lanes.count * sizeof *m->job_of);
  for (uint32_t i = 0; i < m->lanes.count; ++i) m->job_of[i] = NO_TEXT;
  return EXIT_OK;
}

static void free_job(struct text_job *job) {
  free(job->prompt);
  free(job->ids);
  free(job->made);
  free(job->text);
  deltaic_decoder_free(job->decoder);
  deltaic_stops_free(job->stops);
  *job = (struct text_job){.end = job->end};
}

static int close_many(struct many *m, int code) {
  lanes_close(&m->lanes);
  deltaic_tokenizer_close(m->tokenizer);
  for (size_t i = 0; i < m->count; ++i) free_job(&m->jobs[i]);
  free(m->jobs);
  free(m->job_of);
  return engine_close(&m->engine, code);
}

// ---------------------------------------------------------------- texts out

static void append(char **text, size_t *used, const char *more, size_t bytes) {
  *text = must_resize(*text, *used + bytes + 1);
  if (bytes) memcpy(*text + *used, more, bytes);
  *used += bytes;
}

// Adds a decoder's text to the job's, up to a stop string.
static deltaic_status hear(struct text_job *job, const char *text, size_t bytes) {
  deltaic_status status = deltaic_stops_push(job->stops, text, bytes, &text, &bytes);
  if (!status) append(&job->text, &job->text_bytes, text, bytes);
  return status;
}

static deltaic_status hear_token(struct text_job *job, int32_t token) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_push(job->decoder, token, &text, &bytes);
  return status ? status : hear(job, text, bytes);
}

// The decoder must know the prompt: some tokenizers write a word's space only inside a text.
static deltaic_status begin_text(const struct many *m, struct text_job *job) {
  const struct text_list *stops = &m->request->stops;
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_create(m->tokenizer, true, &job->decoder);
  if (!status) status = deltaic_stops_create(stops->items, stops->count, &job->stops);
  for (size_t i = 0; i < job->id_count && !status; ++i)
    status = deltaic_decoder_push(job->decoder, job->ids[i], &text, &bytes);
  return status;
}

static deltaic_status end_text(struct text_job *job) {
  const char *text;
  size_t bytes;
  if (!job->decoder) return DELTAIC_OK; // no tokens were wanted
  deltaic_status status = deltaic_decoder_finish(job->decoder, &text, &bytes);
  if (!status) status = hear(job, text, bytes);
  if (!status) status = deltaic_stops_finish(job->stops, &text, &bytes);
  if (!status) append(&job->text, &job->text_bytes, text, bytes);
  if (deltaic_stops_found(job->stops) >= 0) job->end = "stop";
  return status;
}

// Seeds end below 2^63 (JSON) and begin again at 0, so that each can be given to --seed.
static uint64_t seed_of(const struct many *m, size_t i) { return (m->sampling.seed + i) & INT64_MAX; }

static int write_job(const struct many *m, size_t i) {
  struct text_job *job = &m->jobs[i];
  int code = complain_status(end_text(job));
  if (code) return code;
  json_t *tokens = json_array();
  for (uint32_t k = 0; k < job->made_count; ++k) json_array_append_new(tokens, json_integer(job->made[k]));
  json_t *line = json_pack("{s:o, s:o, s:o, s:I, s:s, s:o}", "prompt", json_stringn(job->prompt, job->bytes), "text",
                           json_stringn(job->text ? job->text : "", job->text_bytes), "tokens", tokens, "seed",
                           (json_int_t)(m->sampling.temperature > 0 ? seed_of(m, i) : 0), "end", job->end, "stop",
                           generate_stop_json(m->request, job->stops));
  bool good = line && !json_dumpf(line, stdout, JSON_COMPACT) && putchar('\n') != EOF && !fflush(stdout);
  json_decref(line);
  return good ? EXIT_OK : complain_output();
}

// Writes finished sequences in order, up to the first unfinished one.
static int write_jobs(struct many *m) {
  int code = EXIT_OK;
  for (; m->written < m->count && m->jobs[m->written].end && !code; ++m->written) {
    code = write_job(m, m->written);
    free_job(&m->jobs[m->written]);
  }
  return code;
}

// ---------------------------------------------------------------- the work

static struct text_job *job_in(const struct many *m, uint32_t lane) {
  return m->job_of[lane] == NO_TEXT ? NULL : &m->jobs[m->job_of[lane]];
}

static deltaic_status begin_jobs(struct many *m) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t lane = 0; lane < m->lanes.count && m->begun < m->count && !status; ++lane) {
    if (m->job_of[lane] != NO_TEXT) continue;
    m->job_of[lane] = (int64_t)m->begun;
    struct text_job *job = &m->jobs[m->begun++];
    job->made = must_resize(NULL, m->request->tokens * sizeof *job->made);
    status = begin_text(m, job);
    if (!status) status = deltaic_sequence_reset(m->lanes.session, lane);
  }
  return status;
}

// Some tokens of the prompts that are not read yet.
static deltaic_status read_round(struct many *m) {
  deltaic_piece *pieces = must_resize(NULL, m->lanes.count * sizeof *pieces);
  size_t n = 0, room = (size_t)ROUND_BATCHES * m->lanes.batch;
  const struct moment start = engine_now(&m->engine);
  for (uint32_t lane = 0; lane < m->lanes.count && room; ++lane) {
    struct text_job *job = job_in(m, lane);
    size_t left = job ? job->id_count - job->at : 0, count = left < room ? left : room;
    if (!count) continue;
    pieces[n++] = (deltaic_piece){.sequence = lane, .tokens = job->ids + job->at, .count = count};
    room -= count;
  }
  deltaic_status status = n ? deltaic_session_eval_batch(m->lanes.session, pieces, n) : DELTAIC_OK;
  for (size_t i = 0; i < n && !status; ++i) {
    job_in(m, pieces[i].sequence)->at += pieces[i].count;
    m->read += pieces[i].count;
  }
  m->read_seconds += engine_seconds(&m->engine, start);
  free(pieces);
  return status;
}

static deltaic_status take_token(struct many *m, uint32_t lane, int32_t token) {
  struct text_job *job = job_in(m, lane);
  bool finite = true;
  bool eos = !m->request->ignore_eos && deltaic_model_is_end(m->engine.model, token);
  job->made[job->made_count++] = token;
  ++m->made;
  deltaic_status status = eos ? DELTAIC_OK : hear_token(job, token);
  if (status) return status;
  const bool stop = deltaic_stops_found(job->stops) >= 0;
  if (!eos && !stop && job->made_count < m->request->tokens) return DELTAIC_OK;
  status = generate_finite(m->lanes.session, lane, &m->engine, &finite);
  if (status) return status;
  job->end = !finite ? "error" : eos ? "eos" : "tokens";
  m->overflowed += !finite;
  m->job_of[lane] = NO_TEXT;
  return DELTAIC_OK;
}

// Generates one token of every sequence whose prompt has been evaluated.
static deltaic_status draw_round(struct many *m) {
  uint32_t lanes = m->lanes.count, n = 0, *who = must_resize(NULL, lanes * sizeof *who);
  int32_t *tokens = must_resize(NULL, lanes * sizeof *tokens);
  deltaic_sampling *sampling = must_resize(NULL, lanes * sizeof *sampling);
  const struct moment start = engine_now(&m->engine);
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    const struct text_job *job = job_in(m, lane);
    if (!job || job->at < job->id_count) continue;
    sampling[n] = m->sampling;
    sampling[n].seed = seed_of(m, (size_t)m->job_of[lane]);
    who[n++] = lane;
  }
  deltaic_status status = n ? deltaic_session_next_batch(m->lanes.session, who, n, sampling, tokens, NULL) : DELTAIC_OK;
  for (uint32_t i = 0; i < n && !status; ++i) status = take_token(m, who[i], tokens[i]);
  m->made_seconds += engine_seconds(&m->engine, start);
  free(who);
  free(tokens);
  free(sampling);
  return status;
}

// After what ended the work: texts that have begun are written as they are.
static int write_begun(struct many *m, const char *end) {
  int code = EXIT_OK;
  for (size_t i = m->written; i < m->begun && !code; ++i) {
    if (!m->jobs[i].end) m->jobs[i].end = end;
    code = write_jobs(m);
  }
  return code;
}

static int run(struct many *m) {
  struct progress progress;
  deltaic_status status = DELTAIC_OK;
  int code = EXIT_OK;
  for (; !m->request->tokens && m->begun < m->count; ++m->begun) m->jobs[m->begun].end = "tokens";
  progress_begin(&progress, "writing", "texts", m->request->engine.quiet);
  while (!code && m->written < m->count && !interrupted()) {
    status = begin_jobs(m);
    if (!status) status = read_round(m);
    if (!status) status = draw_round(m);
    code = status ? complain_work(status) : write_jobs(m);
    progress_show(&progress, m->written, m->count);
  }
  progress_clear();
  if (code && !status) return code; // they cannot be written
  if (!code) code = complain_work(status);
  int written = code ? write_begun(m, code == EXIT_INTERRUPTED ? "interrupt" : "error") : EXIT_OK;
  return written ? written : code;
}

static void report(const struct many *m) {
  if (m->request->engine.quiet) return;
  fprintf(stderr, "texts   %s of %s, %u at once\n", text_count(m->written).text, text_count(m->count).text,
          m->lanes.count);
  if (m->read)
    fprintf(stderr, "prefill %s tokens in %s: %s tokens/s\n", text_count(m->read).text,
            text_seconds(m->read_seconds).text, text_rate((double)m->read / m->read_seconds).text);
  if (m->made)
    fprintf(stderr, "decode  %s tokens in %s: %s tokens/s\n", text_count(m->made).text,
            text_seconds(m->made_seconds).text, text_rate((double)m->made / m->made_seconds).text);
}

int generate_many(const struct generate_request *request) {
  struct many m = {.request = request};
  int code = open_many(&m);
  if (code) return close_many(&m, code);
  m.sampling = choice_sampling(&request->choice, m.engine.model);
  generate_announce(request, &m.engine, &m.sampling);
  code = run(&m);
  if (!code || code == EXIT_INTERRUPTED) report(&m);
  if (!code && m.overflowed)
    code = complain(EXIT_FAILED, "%s: its logits are not finite in %zu of %zu texts: numbers overflow",
                    model_path(request->engine.model), m.overflowed, m.count);
  return close_many(&m, code);
}
