// serve_slots: reads prompts into sequences and draws tokens of them.
//
// With --reproducible a text's numbers do not depend on its neighbours: its prompt is read alone, in slices that end at
// fixed tokens, and every step has the same number of sequences, some of which may be spare ones that nobody reads.
// Otherwise products choose other kernels, with other sums, for other numbers of rows.
#include "serve_slots.h"
#include "common.h"
#include "lanes.h"

#include <math.h>
#include <stdlib.h>

enum { GPU_SLOTS = 64, CPU_SLOTS = 8, GPU_GROUP = 32, CPU_GROUP = 6 };
enum { FIRST_SLICE = 128, GPU_SLICE = 4096 };

// ---------------------------------------------------------------- opening

static bool on_gpu(const struct batch *b) {
  const deltaic_device_kind kind = b->server->engine.device_info.kind;
  return kind != DELTAIC_DEVICE_CPU && kind != DELTAIC_DEVICE_SOFTWARE;
}

// The sequences of every step. Rows of an expert depend on the tokens of all texts, so a model with experts computes
// every text alone.
static uint32_t group_of(const struct batch *b) {
  if (!b->server->options.reproducible) return 0;
  if (b->server->engine.model_info.experts) return 1;
  return on_gpu(b) ? GPU_GROUP : CPU_GROUP;
}

// Tokens of a slice at most; 0: the session chooses. The more tokens, the fewer slices interrupt the running texts, and
// the faster are the prompts.
static uint32_t slice_of(const struct batch *b, const struct engine_options *options) {
  const struct engine *engine = &b->server->engine;
  deltaic_session_options o = session_options(options);
  deltaic_memory memory;
  if (o.batch || b->group || !on_gpu(b)) return o.batch;
  o.sequences = 1;
  o.batch = GPU_SLICE;
  if (deltaic_model_get_memory(engine->model, &o, &memory)) return 0;
  return memory.scratch_bytes <= engine->device_info.memory_bytes / 16 ? GPU_SLICE : 0;
}

int slots_open(struct batch *b) {
  struct server *server = b->server;
  struct engine_options options = server->options.engine;
  struct lanes lanes = {0};
  b->group = group_of(b);
  options.sequences = server->options.slots;
  if (b->group && !options.sequences) options.sequences = on_gpu(b) ? GPU_SLOTS : CPU_SLOTS;
  if (b->group && b->group > options.sequences) b->group = options.sequences;
  if (b->group) options.sequences += b->group - 1;
  if (options.sequences > MOST_SLOTS)
    return complain(EXIT_USAGE, "--reproducible leaves room for %u slots", MOST_SLOTS - b->group + 1);
  options.batch = slice_of(b, &options);
  int code = lanes_open(&lanes, &server->engine, &options, 1, MOST_SLOTS, options.context);
  if (code) return code;
  interrupt_watch(NULL); // SIGTERM lets texts end
  b->session = lanes.session;
  if (!state_layout_read(b->session, server->engine.model_info.fingerprint, &server->layout))
    return complain(EXIT_FAILED, "%s", deltaic_last_error());
  code = complain_status(deltaic_session_prepare(b->session)); // no client waits for the driver's compiler
  progress_clear();
  if (code) return code;
  b->slots = b->group ? lanes.count - b->group + 1 : lanes.count;
  b->tokens = lanes.batch;
  b->slice = FIRST_SLICE;
  if (server->options.slice && server->options.slice < b->tokens) b->tokens = server->options.slice;
  b->context = server->engine.model_info.grows ? (options.context ? options.context : 4096) : INT32_MAX;
  const size_t vocabulary = (size_t)server->engine.model_info.vocabulary;
  b->logits = malloc(vocabulary * LOGIT_ROWS * sizeof *b->logits);
  if (!b->logits) return complain(EXIT_FAILED, "out of memory");
  metrics_set(&server->metrics, METRIC_SLOTS, b->slots);
  return complain_status(fill_spares(b));
}

// ---------------------------------------------------------------- probabilities

// The notes of `count` tokens of the prompt behind t->at; logits[i] are those after token at + i.
static void note_prompt(struct batch *b, struct task *t, size_t count) {
  const size_t vocabulary = (size_t)b->server->engine.model_info.vocabulary;
  pthread_mutex_lock(&t->call->lock);
  for (size_t i = 0; i < count && t->at + i + 1 < t->prompt_count; ++i)
    fill_note(&t->notes[t->at + i + 1 - t->own], b->logits + i * vocabulary, (int32_t)vocabulary,
              t->call->request.likely);
  t->note_count = t->at + count - t->own;
  pthread_mutex_unlock(&t->call->lock);
}

// ---------------------------------------------------------------- reading

// The span that the next token is computed in again; 0: it never was computed.
static uint32_t span_at(const struct task *t) {
  for (size_t i = 0; i < t->span_count; ++i)
    if (TURN_SPAN_END(t->spans[i]) > t->at) return t->spans[i];
  return 0;
}

static bool drawn_again(const struct batch *b, const struct task *t) { return b->group && TURN_SPAN_DRAWN(span_at(t)); }

// Tokens of the next slice of this text, at most `most`.
static size_t next_slice(const struct batch *b, const struct task *t, size_t most) {
  const uint32_t span = span_at(t);
  size_t end = t->at < t->mark ? t->mark : t->prompt_count;
  if (t->score && t->at < t->own) end = t->own;
  if (b->group && span && TURN_SPAN_END(span) < end) end = TURN_SPAN_END(span);
  if (b->group) most = TURN_SPAN_DRAWN(span) ? 1 : b->tokens - t->at % b->tokens;
  if (t->score && t->at >= t->own && most > LOGIT_ROWS) most = LOGIT_ROWS;
  return end - t->at < most ? end - t->at : most;
}

static deltaic_status read_scored(struct batch *b, struct task *t, size_t count) {
  const int32_t vocabulary = b->server->engine.model_info.vocabulary;
  deltaic_status status = DELTAIC_OK;
  if (t->at == t->own && t->at) { // the first token's likelihood is in the state
    status = deltaic_sequence_logits(b->session, (uint32_t)t->slot, b->logits);
    if (!status) fill_note(&t->notes[0], b->logits, vocabulary, t->call->request.likely);
  }
  const deltaic_piece piece = {.sequence = (uint32_t)t->slot,
                               .tokens = t->tokens + t->at,
                               .count = count,
                               .logits = DELTAIC_LOGITS_ALL,
                               .out = b->logits};
  if (!status) status = deltaic_session_eval_batch(b->session, &piece, 1);
  if (!status) note_prompt(b, t, count);
  return status;
}

// A token that was drawn in a step, in a step of as many rows.
static deltaic_status read_drawn(struct batch *b, const deltaic_piece *piece) {
  static const int32_t token = 0;
  deltaic_piece pieces[MOST_SLOTS];
  deltaic_status status = fill_spares(b);
  pieces[0] = *piece;
  for (uint32_t i = 1; i < b->group; ++i)
    pieces[i] = (deltaic_piece){.sequence = b->slots + i - 1, .tokens = &token, .count = 1};
  return status ? status : deltaic_session_eval_batch(b->session, pieces, b->group);
}

static void measure(struct batch *b, const deltaic_piece *pieces, size_t n, double seconds) {
  size_t tokens = 0;
  for (size_t i = 0; i < n; ++i) tokens += pieces[i].count;
  metrics_add(&b->server->metrics, METRIC_PROMPT_TOKENS, (int64_t)tokens);
  metrics_add(&b->server->metrics, METRIC_SLICES, 1);
  metrics_add(&b->server->metrics, METRIC_SLICE_TIME, (int64_t)(1e6 * seconds));
  if (tokens < LEAST_SLICE || seconds <= 0) return; // says little about long slices
  const double rate = (double)tokens / seconds;
  b->rate = b->rate > 0 ? 0.7 * b->rate + 0.3 * rate : rate;
  metrics_set(&b->server->metrics, METRIC_PROMPT_RATE, (int64_t)b->rate);
}

static bool reads_alone(const struct batch *b, const struct task *t) { return b->group || t->score; }

// A slice's time has a part that does not depend on its length, so its length follows from the time of the one before.
// part: of --stall, which this one had. Short slices say little about long ones.
static void adapt(struct batch *b, const deltaic_piece *pieces, size_t n, double seconds, double part) {
  const double stall = 1e-3 * b->server->options.stall;
  size_t tokens = 0;
  for (size_t i = 0; i < n; ++i) tokens += pieces[i].count;
  const double most = part * b->slice < b->tokens ? part * b->slice : b->tokens;
  if (seconds <= 0 || ((double)tokens < 0.9 * most && seconds < part * stall)) return;
  const double change = part * stall / seconds;
  b->slice = (double)tokens / part * (change < 0.25 ? 0.25 : change > 8 ? 8 : change);
  if (b->slice < LEAST_SLICE) b->slice = LEAST_SLICE;
}

static void read_texts(struct batch *b, struct task **tasks, size_t n, const deltaic_piece *pieces, double part) {
  const struct moment start = engine_now(&b->server->engine);
  deltaic_status status = DELTAIC_OK;
  if (tasks[0]->score && tasks[0]->at >= tasks[0]->own)
    status = read_scored(b, tasks[0], pieces[0].count);
  else if (drawn_again(b, tasks[0]))
    status = read_drawn(b, pieces);
  else
    status = deltaic_session_eval_batch(b->session, pieces, n);
  const double seconds = engine_seconds(&b->server->engine, start);
  if (!status) measure(b, pieces, n, seconds);
  if (!status && !reads_alone(b, tasks[0])) adapt(b, pieces, n, seconds, part);
  if (status) fail_texts(b, tasks, n, status);
  for (size_t i = 0; i < n && !status; ++i)
    if (tasks[i]->slot >= 0) slot_has_read(b, tasks[i], pieces[i].count);
}

static bool reads(const struct batch *b, uint32_t slot) {
  const struct task *t = b->tasks[slot];
  return t && t->at < t->prompt_count && !move_active(b, slot);
}

// Texts are read together, except that those are alone whose prompt is scored or whose numbers are not to change. Who
// waits longest, one of these or the others, reads.
void slots_read(struct batch *b) {
  struct task *tasks[MOST_SLOTS], *alone = NULL;
  deltaic_piece pieces[MOST_SLOTS];
  size_t readers = 0, n = 0;
  const double spent = (time_now() - b->stepped) / (1e-3 * b->server->options.stall);
  const double part = spent < 0.9 ? 1 - spent : 0.1, most = part * b->slice;
  const size_t least = LEAST_SLICE < b->tokens ? LEAST_SLICE : b->tokens;
  size_t left = most < least ? least : most < b->tokens ? (size_t)most : b->tokens;
  double last = INFINITY; // when the text that waits longest among the others has read
  for (uint32_t i = 0; i < b->slots; ++i) {
    struct task *t = b->tasks[i];
    if (!reads(b, i)) continue;
    if (!reads_alone(b, t)) {
      ++readers;
      if (t->last_read < last) last = t->last_read;
    } else if (!alone || t->last_read < alone->last_read) {
      alone = t;
    }
  }
  if (alone && last < alone->last_read) alone = NULL; // it reads in another round
  size_t share = readers ? left / readers : 0;
  if (share < least) share = least;
  if (alone) {
    tasks[n] = alone;
    pieces[n++] = (deltaic_piece){
        .sequence = (uint32_t)alone->slot, .tokens = alone->tokens + alone->at, .count = next_slice(b, alone, left)};
  }
  for (uint32_t k = 0; k < b->slots && !alone && left; ++k) {
    const uint32_t i = (b->turn + k) % b->slots;
    struct task *t = b->tasks[i];
    if (!reads(b, i) || reads_alone(b, t)) continue;
    const size_t count = next_slice(b, t, share < left ? share : left);
    tasks[n] = t;
    pieces[n++] = (deltaic_piece){.sequence = i, .tokens = t->tokens + t->at, .count = count};
    left -= count;
  }
  b->turn = n ? (uint32_t)(tasks[n - 1]->slot + 1) % b->slots : 0;
  const double now = time_now();
  for (size_t i = 0; i < n; ++i) tasks[i]->last_read = now;
  struct call *calls[MOST_SLOTS]; // a text that fails ends the others of its call
  for (size_t i = 0; i < n; ++i) calls[i] = call_hold(tasks[i]->call);
  if (n) read_texts(b, tasks, n, pieces, part);
  for (size_t i = 0; i < n; ++i) call_drop(calls[i]);
}
