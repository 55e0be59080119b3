// evaluate: tokens into states and logits. Prompts of any number of texts go in slices of at most `batch` rows,
// streamed; one token of each text by replaying a recording. The first call of each kind compiles its kernels and
// records.
#include "option_structs.h"
#include "session.h"

#include <string.h>

// ---------------------------------------------------------------- recording

static struct tensor table(const struct deltaic_session *s, uint32_t n) { return tensor_rows(s->sequences, 0, n); }

// x <- the model's last residual stream for the call's T tokens of n texts, of which one has at most `longest`.
static void record_layers(struct deltaic_session *s, struct recorder *c, uint32_t T, uint32_t n, uint32_t longest) {
  const struct deltaic_model *m = s->model;
  struct call call = {
      .c = c, .sequences = table(s, n), .T = T, .longest = longest, .form = T == n ? DELTA_AUTO : s->form};
  call.scratch = (struct scratch){.buffer = s->overlay.buffer, .used = s->overlay.offset};
  call.probe = s->probe.kinds ? &s->probe : NULL;
  struct tensor x = tensor_rows(s->x, 0, T);
  c->ops->embed(c, x, m->embedding, tensor_rows(s->tokens, 0, T));
  for (uint32_t i = 0; i < m->spec.L; i++) {
    if (call.probe) probe_layer(call.probe, i);
    block_forward(&m->spec, &m->spec.layers[i], &m->blocks[i], m->mixers[i], s->layers[i], &call, x);
  }
}

// Where record_last() leaves the logits of the call's first n texts, side by side, until the next call.
static struct tensor call_logits(const struct deltaic_session *s, uint32_t n) {
  return s->shape.sequences == 1 ? s->last : tensor_rows(s->rows, 0, n);
}

// last <- logits after the last tokens of the call's first n texts; single: a text has one token, in its row.
static void record_last(struct deltaic_session *s, struct recorder *c, uint32_t n, bool single) {
  const struct deltaic_model *m = s->model;
  struct tensor h = tensor_rows(s->h, 0, n);
  struct linear_input in = {.x = h};
  if (single)
    in = (struct linear_input){.x = tensor_rows(s->x, 0, n), .weight = m->norm, .h = h, .eps = m->spec.norm_eps};
  else
    c->ops->rmsnorm(c, h, s->x, m->norm, table(s, n), m->spec.norm_eps);
  c->ops->linear(c, call_logits(s, n), in, m->head, (struct tensor){0}, false);
  if (s->shape.sequences > 1) c->ops->scatter(c, s->last, call_logits(s, n), table(s, n));
}

// One token of each of n texts: the one in `tokens`, or one drawn from `last`.
static deltaic_status run_replay(struct deltaic_session *s, uint32_t n, bool draw) {
  struct replay *r = draw ? &s->next[n - 1] : &s->steps[n - 1];
  struct backend *b = s->model->backend;
  deltaic_status status = DELTAIC_OK;
  if (!r->recorder) {
    status = b->ops->recorder_create(b, &r->recorder);
    if (status == DELTAIC_OK) r->recorder->matrices = s->matrices;
    if (status == DELTAIC_OK && s->profiled) status = b->ops->recorder_profile(r->recorder, true);
    if (status == DELTAIC_OK && s->watched) status = b->ops->recorder_busy(r->recorder, true);
  }
  if (status != DELTAIC_OK) return status;
  struct recorder *c = r->recorder;
  if (!r->recorded) {
    c->ops->recorder_begin(c, b->replays, &s->cancel);
    if (draw)
      c->ops->sample(c, s->tokens, table(s, n), s->seen, s->last, s->sampling, s->rows);
    else
      c->ops->mark(c, s->seen, tensor_rows(s->tokens, 0, n), table(s, n));
    record_layers(s, c, n, n, 1);
    record_last(s, c, n, true);
  }
  status = c->ops->recorder_run(c);
  r->recorded = status == DELTAIC_OK && b->replays;
  return status;
}

// ---------------------------------------------------------------- slices

// Tokens of a text in a slice that it shares with others, at the least: enough for the chunkwise forms
// (plan.chunk_from).
enum { SHARE = 128 };

// Rows of a slice that continue one piece.
struct part {
  uint32_t piece, row, T;
};

struct work {
  const deltaic_piece *pieces;
  size_t n;
  size_t done[MOST_SEQUENCES]; // tokens of each piece that are evaluated
  struct part parts[MOST_SEQUENCES];
  uint32_t count, ends; // parts of the slice; after the first `ends` of them their pieces are done
  uint32_t T;           // rows of the slice
};

static size_t left(const struct work *w, uint32_t piece) { return w->pieces[piece].count - w->done[piece]; }

static uint32_t least(size_t a, uint32_t b) { return a < b ? (uint32_t)a : b; }

// Deals the slice's rows to the pieces that are left: evenly, for texts side by side keep a device busier than tokens
// one after the other, then what remains to the first.
static void deal_rows(struct work *w, uint32_t batch) {
  uint32_t share[MOST_SEQUENCES] = {0}, active = 0;
  for (uint32_t i = 0; i < w->n; i++) active += left(w, i) > 0;
  uint32_t even = batch / active / SHARE * SHARE;
  if (even < SHARE) even = SHARE;
  w->T = w->count = 0;
  for (int round = 0; round < 2; round++)
    for (uint32_t i = 0; i < w->n; i++) {
      uint32_t more = least(left(w, i) - share[i], round ? batch : even - share[i]);
      if (more > batch - w->T) more = batch - w->T;
      share[i] += more;
      w->T += more;
    }
  uint32_t row = 0;
  for (int ending = 1; ending >= 0; ending--) {
    for (uint32_t i = 0; i < w->n; i++) {
      if (!share[i] || (share[i] == left(w, i)) != ending) continue;
      w->parts[w->count++] = (struct part){i, row, share[i]};
      row += share[i];
    }
    if (ending) w->ends = w->count;
  }
}

// Tells the device which rows belong to which text, and what they are.
static void place_slice(struct deltaic_session *s, const struct work *w) {
  for (uint32_t k = 0; k < w->count; k++) {
    const struct part *p = &w->parts[k];
    const deltaic_piece *piece = &w->pieces[p->piece];
    memcpy(tensor_row(&s->tokens, p->row), piece->tokens + w->done[p->piece], p->T * sizeof *piece->tokens);
    *(struct sequence *)tensor_row(&s->sequences, k) = (struct sequence){
        .row = p->row, .T = p->T, .pos = (uint32_t)s->slots[piece->sequence].position, .slot = piece->sequence};
  }
}

// ---------------------------------------------------------------- logits for the caller

static deltaic_status read_row(struct deltaic_session *s, struct tensor t, uint64_t row, uint64_t rows, float *out) {
  struct backend *b = s->model->backend;
  return b->ops->buffer_read(b, t.buffer, t.offset + row * t.stride * sizeof *out, out, rows * t.cols * sizeof *out);
}

// The rows among t ... t + n - 1 of the slice that belong to part k, if its piece asked for all logits.
struct run {
  uint32_t first, rows;
};

static struct run wanted_rows(const struct work *w, uint32_t k, uint32_t t, uint32_t n) {
  const struct part *p = &w->parts[k];
  uint32_t first = t > p->row ? t : p->row, end = least(t + n, p->row + p->T);
  if (w->pieces[p->piece].logits != DELTAIC_LOGITS_ALL || first >= end) return (struct run){0, 0};
  return (struct run){first, end - first};
}

static bool any_wanted(const struct work *w, uint32_t t, uint32_t n) {
  for (uint32_t k = 0; k < w->count; k++)
    if (wanted_rows(w, k, t, n).rows) return true;
  return false;
}

// Where a piece wants the logits of the slice's row.
static float *out_of(const struct deltaic_session *s, const struct work *w, uint32_t k, uint32_t row) {
  const struct part *p = &w->parts[k];
  return w->pieces[p->piece].out + (w->done[p->piece] + (row - p->row)) * s->model->spec.V;
}

// From s->rows, which holds the logits of rows t ... t + n - 1.
static deltaic_status read_wanted(struct deltaic_session *s, const struct work *w, uint32_t t, uint32_t n) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t k = 0; k < w->count && status == DELTAIC_OK; k++) {
    struct run r = wanted_rows(w, k, t, n);
    if (r.rows) status = read_row(s, s->rows, r.first - t, r.rows, out_of(s, w, k, r.first));
  }
  return status;
}

// How many rows from t on, of `rows`, have their logits made at once: those of at most LOGIT_ROWS that are normed at
// once, and at most logit_rows of these.
static uint32_t logit_rows_at(const struct deltaic_session *s, uint32_t t, uint32_t rows) {
  return least(LOGIT_ROWS - t % LOGIT_ROWS, least(rows - t, s->logit_rows));
}

// rows <- logits of rows t ... t + n - 1 of x, or, where it is present, of the rows that `chosen` lists. normed: first
// of the rows that h has the norms of.
static void record_logits(struct deltaic_session *s, struct recorder *c, struct tensor chosen, uint32_t rows,
                          uint32_t t, uint32_t n, uint32_t *normed) {
  const struct deltaic_model *m = s->model;
  const uint32_t block = t / LOGIT_ROWS * LOGIT_ROWS, norms = least(rows - block, LOGIT_ROWS);
  if (*normed != block) {
    struct tensor x = chosen.buffer ? s->x : tensor_rows(s->x, block, norms);
    if (chosen.buffer) chosen = tensor_rows(chosen, block, norms);
    c->ops->rmsnorm(c, tensor_rows(s->h, 0, norms), x, m->norm, chosen, m->spec.norm_eps);
  }
  *normed = block;
  c->ops->linear(c, tensor_rows(s->rows, 0, n), (struct linear_input){.x = tensor_rows(s->h, t - block, n)}, m->head,
                 (struct tensor){0}, false);
}

// The logits of every row of x that a piece wants all of.
static deltaic_status run_all_logits(struct deltaic_session *s, const struct work *w) {
  struct recorder *c = s->prefill;
  deltaic_status status = DELTAIC_OK;
  uint32_t normed = UINT32_MAX;
  for (uint32_t t = 0, n; t < w->T && status == DELTAIC_OK; t += n) {
    n = logit_rows_at(s, t, w->T);
    if (!any_wanted(w, t, n)) continue;
    c->ops->recorder_begin(c, false, &s->cancel);
    record_logits(s, c, (struct tensor){0}, w->T, t, n, &normed);
    status = c->ops->recorder_run(c);
    if (status == DELTAIC_OK) status = read_wanted(s, w, t, n);
  }
  return status;
}

// ---------------------------------------------------------------- scores

static const int32_t *targets_of(const struct work *w, const struct part *p) {
  const deltaic_piece *piece = &w->pieces[p->piece];
  return piece->scores ? piece->targets + w->done[p->piece] : NULL;
}

// Lists the slice's rows that have a target, and these; their number. Often they are few: the last word of a passage.
static uint32_t place_targets(struct deltaic_session *s, const struct work *w) {
  int32_t *targets = tensor_row(&s->targets, 0);
  struct sequence *scored = tensor_row(&s->scored, 0);
  uint32_t n = 0;
  for (uint32_t k = 0; k < w->count; k++) {
    const struct part *p = &w->parts[k];
    const int32_t *from = targets_of(w, p);
    for (uint32_t t = 0; from && t < p->T; t++) {
      if (from[t] < 0) continue;
      scored[n] = (struct sequence){.row = p->row + t, .T = 1};
      targets[n++] = from[t];
    }
  }
  return n;
}

static void hand_out_scores(const struct deltaic_session *s, const struct work *w) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < w->count; k++) {
    const struct part *p = &w->parts[k];
    const int32_t *targets = targets_of(w, p);
    if (!targets) continue;
    deltaic_score *out = w->pieces[p->piece].scores + w->done[p->piece];
    for (uint32_t t = 0; t < p->T; t++) {
      if (targets[t] < 0) continue;
      const float *score = tensor_row(&s->scores, n++);
      out[t] = (deltaic_score){score[0], score[1] != 0};
    }
  }
}

static void record_scores(struct deltaic_session *s, struct recorder *c, uint32_t targets) {
  uint32_t normed = UINT32_MAX;
  for (uint32_t t = 0, n; t < targets; t += n) {
    n = logit_rows_at(s, t, targets);
    record_logits(s, c, s->scored, targets, t, n, &normed);
    c->ops->score(c, s->scores, tensor_rows(s->rows, 0, n), s->targets, t);
  }
}

// ---------------------------------------------------------------- last logits

// What record_last() has left, before the rows of all take its place. A step has it for each of its texts.
static deltaic_status read_last_logits(struct deltaic_session *s, const struct work *w, bool step) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t k = 0; k < w->count && status == DELTAIC_OK; k++) {
    const struct part *p = &w->parts[k];
    const deltaic_piece *piece = &w->pieces[p->piece];
    if (step && piece->logits == DELTAIC_LOGITS_ALL)
      status = read_row(s, call_logits(s, w->count), k, 1, out_of(s, w, k, p->row));
    else if (k < w->ends && piece->logits == DELTAIC_LOGITS_LAST)
      status = read_row(s, call_logits(s, w->ends), k, 1, piece->out);
  }
  return status;
}

// ---------------------------------------------------------------- checks

deltaic_status session_check(const struct deltaic_session *s, uint32_t sequence, const char *function) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "%s: session is NULL", function);
  if (sequence >= s->shape.sequences)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: there is no sequence %u: the session has %u", function, sequence,
                s->shape.sequences);
  if (!s->slots[sequence].broken) return DELTAIC_OK;
  if (s->shape.sequences == 1)
    return fail(DELTAIC_BAD_STATE, "%s: an earlier failure left the session undefined: reset, load or free it",
                function);
  return fail(DELTAIC_BAD_STATE, "%s: an earlier failure left sequence %u undefined: reset or load it", function,
              sequence);
}

static deltaic_status check_room(const struct deltaic_session *s, uint32_t sequence, size_t n) {
  const uint64_t room = model_grows(&s->model->spec) ? s->shape.context : INT32_MAX;
  const uint64_t position = s->slots[sequence].position;
  if (n <= room && position <= room - n) return DELTAIC_OK;
  return fail(DELTAIC_CONTEXT_FULL, "the context of %llu tokens is full: %llu are there and %llu more were given",
              (unsigned long long)room, (unsigned long long)position, (unsigned long long)n);
}

static deltaic_status check_tokens(const struct deltaic_session *s, const int32_t *tokens, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->model->spec.V)
      return fail(DELTAIC_INVALID_ARGUMENT, "token %zu is %d, but the vocabulary has %u", i, tokens[i],
                  s->model->spec.V);
  return DELTAIC_OK;
}

static deltaic_status check_twice(bool *used, uint32_t sequence, const char *function) {
  if (used[sequence]) return fail(DELTAIC_INVALID_ARGUMENT, "%s: sequence %u is there twice", function, sequence);
  used[sequence] = true;
  return DELTAIC_OK;
}

static deltaic_status check_count(const struct deltaic_session *s, size_t n, const char *function) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "%s: session is NULL", function);
  if (n && n <= s->shape.sequences) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: %zu texts, but the session has %u", function, n, s->shape.sequences);
}

static deltaic_status check_piece(const struct deltaic_session *s, const deltaic_piece *p, const char *function) {
  deltaic_status status = session_check(s, p->sequence, function);
  if (status != DELTAIC_OK) return status;
  if (!p->tokens || !p->count || (unsigned)p->logits > DELTAIC_LOGITS_ALL ||
      (p->logits != DELTAIC_LOGITS_NONE && !p->out))
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: tokens and how many, and out with logits, are required", function);
  if (!p->scores != !p->targets)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: targets and scores belong together", function);
  status = check_tokens(s, p->tokens, p->count);
  for (size_t i = 0; p->targets && i < p->count && status == DELTAIC_OK; i++)
    if (p->targets[i] < -1 || p->targets[i] >= (int64_t)s->model->spec.V)
      status = fail(DELTAIC_INVALID_ARGUMENT, "target %zu is %d, but the vocabulary has %u", i, p->targets[i],
                    s->model->spec.V);
  return status == DELTAIC_OK ? check_room(s, p->sequence, p->count) : status;
}

// ---------------------------------------------------------------- failures

static bool take_cancel(struct deltaic_session *s) { return atomic_exchange(&s->cancel, false); }

static deltaic_status cancelled(void) { return fail(DELTAIC_CANCELLED, "the session was cancelled"); }

// A failure in the middle of a call leaves a state between positions.
static void break_slot(struct deltaic_session *s, uint32_t sequence) {
  s->slots[sequence].broken = true;
  s->slots[sequence].has_logits = false;
}

static deltaic_status break_pieces(struct deltaic_session *s, const deltaic_piece *pieces, size_t n,
                                   deltaic_status status) {
  for (size_t i = 0; i < n; i++) break_slot(s, pieces[i].sequence);
  if (status == DELTAIC_CANCELLED) take_cancel(s);
  return status;
}

// ---------------------------------------------------------------- eval

// The slice's tokens, the scores of its targets, and the logits after the texts that end with it.
static deltaic_status run_prefill(struct deltaic_session *s, const struct work *w, uint32_t longest, uint32_t targets) {
  struct recorder *c = s->prefill;
  c->ops->recorder_begin(c, false, &s->cancel);
  c->ops->mark(c, s->seen, tensor_rows(s->tokens, 0, w->T), table(s, w->count));
  record_layers(s, c, w->T, w->count, longest);
  record_scores(s, c, targets);
  if (w->ends) record_last(s, c, w->ends, longest == 1);
  deltaic_status status = c->ops->recorder_run(c);
  return s->probe.kinds && s->probe.status != DELTAIC_OK ? s->probe.status : status;
}

static deltaic_status eval_slice(struct deltaic_session *s, struct work *w) {
  deal_rows(w, s->shape.batch);
  place_slice(s, w);
  uint32_t longest = 0;
  for (uint32_t k = 0; k < w->count; k++)
    if (w->parts[k].T > longest) longest = w->parts[k].T;
  // A replayed recording cannot stop to be looked at, nor score.
  const uint32_t targets = place_targets(s, w);
  const bool step = w->T == w->count && !s->probe.kinds && !targets;
  s->probe.position = s->slots[w->pieces[0].sequence].position;
  s->probe.tokens = w->T;
  s->probe.status = DELTAIC_OK;
  deltaic_status status = step ? run_replay(s, w->count, false) : run_prefill(s, w, longest, targets);
  if (status == DELTAIC_OK) hand_out_scores(s, w);
  if (status == DELTAIC_OK) status = read_last_logits(s, w, step);
  if (status == DELTAIC_OK && !step) status = run_all_logits(s, w);
  if (status == DELTAIC_OK && atomic_load(&s->cancel)) status = cancelled();
  if (status != DELTAIC_OK) return status;
  for (uint32_t k = 0; k < w->count; k++) {
    const struct part *p = &w->parts[k];
    w->done[p->piece] += p->T;
    s->slots[w->pieces[p->piece].sequence].position += p->T;
  }
  return DELTAIC_OK;
}

static deltaic_status evaluate(struct deltaic_session *s, const deltaic_piece *pieces, size_t n, const char *function) {
  bool used[MOST_SEQUENCES] = {false};
  deltaic_status status = check_count(s, n, function);
  for (size_t i = 0; i < n && status == DELTAIC_OK; i++) {
    status = check_piece(s, &pieces[i], function);
    if (status == DELTAIC_OK) status = check_twice(used, pieces[i].sequence, function);
  }
  if (status != DELTAIC_OK) return status;
  if (take_cancel(s)) return break_pieces(s, pieces, n, cancelled());
  struct work w = {.pieces = pieces, .n = n};
  uint64_t tokens = 0;
  for (size_t i = 0; i < n; i++) tokens += pieces[i].count;
  for (; tokens && status == DELTAIC_OK; tokens -= w.T) status = eval_slice(s, &w);
  if (status != DELTAIC_OK) return break_pieces(s, pieces, n, status);
  for (size_t i = 0; i < n; i++) s->slots[pieces[i].sequence].has_logits = true;
  return DELTAIC_OK;
}

deltaic_status deltaic_session_eval(deltaic_session *s, const int32_t *tokens, size_t n, deltaic_logits logits,
                                    float *out) {
  const deltaic_piece piece = {.tokens = tokens, .count = n, .logits = logits, .out = out};
  return evaluate(s, &piece, 1, "deltaic_session_eval");
}

deltaic_status deltaic_session_eval_batch(deltaic_session *s, const deltaic_piece *pieces, size_t n) {
  if (!pieces) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_eval_batch: pieces is NULL");
  return evaluate(s, pieces, n, "deltaic_session_eval_batch");
}

// ---------------------------------------------------------------- next

static struct sampling sampling_of(const deltaic_sampling *o) {
  return (struct sampling){.temperature = o->temperature,
                           .top_p = o->top_p,
                           .min_p = o->min_p,
                           .repetition_penalty = o->repetition_penalty,
                           .top_k = o->top_k,
                           .seed_low = (uint32_t)o->seed,
                           .seed_high = (uint32_t)(o->seed >> 32)};
}

static deltaic_status check_sampling(const deltaic_sampling *o) {
  if (!(o->temperature >= 0 && o->temperature <= 1e6f))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: temperature is %g, not in 0 ... 1e6", o->temperature);
  if (!(o->top_p >= 0 && o->top_p <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: top_p is %g, not in 0 ... 1", o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: min_p is %g, not in 0 ... 1", o->min_p);
  if (!(o->repetition_penalty >= 0 && o->repetition_penalty <= 1e6f))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: repetition_penalty is %g, not in 0 ... 1e6",
                o->repetition_penalty);
  return DELTAIC_OK;
}

static deltaic_status check_draw(const struct deltaic_session *s, uint32_t sequence, const char *function) {
  deltaic_status status = session_check(s, sequence, function);
  if (status != DELTAIC_OK) return status;
  if (!s->slots[sequence].has_logits) return fail(DELTAIC_BAD_STATE, "%s: nothing has been evaluated yet", function);
  return check_room(s, sequence, 1);
}

// The draws of a call: whose they are and how.
struct draws {
  uint32_t n, sequences[MOST_SEQUENCES];
  struct sampling sampling[MOST_SEQUENCES];
};

// Options structs follow each other at the distance that the caller's header has given them.
static deltaic_status read_draws(const struct deltaic_session *s, struct draws *d, const uint32_t *sequences, size_t n,
                                 const deltaic_sampling *sampling, const char *function) {
  bool used[MOST_SEQUENCES] = {false};
  size_t size = 0;
  deltaic_status status = check_count(s, n, function);
  if (sampling) memcpy(&size, sampling, sizeof size);
  d->n = (uint32_t)n;
  for (uint32_t i = 0; i < n && status == DELTAIC_OK; i++) {
    deltaic_sampling o;
    d->sequences[i] = sequences ? sequences[i] : i;
    status = check_draw(s, d->sequences[i], function);
    if (status == DELTAIC_OK) status = check_twice(used, d->sequences[i], function);
    if (status == DELTAIC_OK)
      status = options_read(&o, sizeof o, sampling ? (const char *)sampling + i * size : NULL, "deltaic_sampling");
    if (status == DELTAIC_OK && sampling && o.size != size)
      status = fail(DELTAIC_INVALID_ARGUMENT, "%s: the size fields of sampling differ", function);
    if (status == DELTAIC_OK) status = check_sampling(&o);
    if (status == DELTAIC_OK) d->sampling[i] = sampling_of(&o);
  }
  return status;
}

static deltaic_status run_draws(struct deltaic_session *s, const struct draws *d, int32_t *tokens, float *logits) {
  if (take_cancel(s)) return cancelled();
  for (uint32_t i = 0; i < d->n; i++) {
    const uint32_t sequence = d->sequences[i];
    *(struct sequence *)tensor_row(&s->sequences, i) = // with no row yet: drawing gives it one
        (struct sequence){.pos = (uint32_t)s->slots[sequence].position, .slot = sequence};
    *(struct sampling *)tensor_row(&s->sampling, i) = d->sampling[i];
  }
  deltaic_status status = run_replay(s, d->n, true);
  if (status == DELTAIC_OK && atomic_load(&s->cancel)) status = cancelled();
  if (status == DELTAIC_OK && logits) status = read_row(s, call_logits(s, d->n), 0, d->n, logits);
  if (status != DELTAIC_OK) return status;
  for (uint32_t i = 0; i < d->n; i++) s->slots[d->sequences[i]].position++;
  memcpy(tokens, tensor_row(&s->tokens, 0), d->n * sizeof *tokens);
  return DELTAIC_OK;
}

static deltaic_status next(struct deltaic_session *s, const uint32_t *sequences, size_t n,
                           const deltaic_sampling *sampling, int32_t *tokens, float *logits, const char *function) {
  struct draws d;
  deltaic_status status = read_draws(s, &d, sequences, n, sampling, function);
  if (status == DELTAIC_OK && !tokens)
    status = fail(DELTAIC_INVALID_ARGUMENT, "%s: there is no room for the tokens", function);
  if (status != DELTAIC_OK) return status;
  status = run_draws(s, &d, tokens, logits);
  if (status == DELTAIC_OK) return DELTAIC_OK;
  for (uint32_t i = 0; i < d.n; i++) break_slot(s, d.sequences[i]);
  if (status == DELTAIC_CANCELLED) take_cancel(s);
  return status;
}

deltaic_status deltaic_session_next(deltaic_session *s, const deltaic_sampling *sampling, int32_t *token,
                                    float *logits) {
  return next(s, NULL, 1, sampling, token, logits, "deltaic_session_next");
}

deltaic_status deltaic_session_next_batch(deltaic_session *s, const uint32_t *sequences, size_t n,
                                          const deltaic_sampling *sampling, int32_t *tokens, float *logits) {
  return next(s, sequences, n, sampling, tokens, logits, "deltaic_session_next_batch");
}

// ---------------------------------------------------------------- what there is

static deltaic_status logits_of(struct deltaic_session *s, uint32_t sequence, float *out, const char *function) {
  deltaic_status status = session_check(s, sequence, function);
  if (status != DELTAIC_OK) return status;
  if (!out) return fail(DELTAIC_INVALID_ARGUMENT, "%s: out is NULL", function);
  if (!s->slots[sequence].has_logits) return fail(DELTAIC_BAD_STATE, "%s: nothing has been evaluated yet", function);
  return read_row(s, s->last, sequence, 1, out);
}

deltaic_status deltaic_session_logits(deltaic_session *s, float *out) {
  return logits_of(s, 0, out, "deltaic_session_logits");
}

deltaic_status deltaic_sequence_logits(deltaic_session *s, uint32_t sequence, float *out) {
  return logits_of(s, sequence, out, "deltaic_sequence_logits");
}

uint64_t deltaic_session_position(const deltaic_session *s) { return deltaic_sequence_position(s, 0); }

uint64_t deltaic_sequence_position(const deltaic_session *s, uint32_t sequence) {
  return s && sequence < s->shape.sequences ? s->slots[sequence].position : 0;
}

void deltaic_session_cancel(deltaic_session *s) {
  if (s) atomic_store(&s->cancel, true);
}

deltaic_status deltaic_session_probe(deltaic_session *s, uint32_t kinds, deltaic_probe_function probe, void *user) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_probe: session is NULL");
  if (!probe != !kinds || kinds >= 2 * DELTAIC_PROBE_STATE)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_probe: kinds is %u, with%s a function", kinds,
                probe ? "" : "out");
  if (s->shape.sequences > 1)
    return fail(DELTAIC_UNSUPPORTED, "deltaic_session_probe: the session has %u texts; only one can be looked into",
                s->shape.sequences);
  probe_free(&s->probe);
  s->probe = (struct probe){.kinds = kinds, .function = probe, .user = user, .cancel = &s->cancel};
  return DELTAIC_OK;
}
