// evaluate: the public functions that evaluate tokens: they check arguments and keep track of the sequences. slice.c
// computes.
#include "option_structs.h"
#include "slice.h"

#include <float.h>
#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- checks

deltaic_status session_check(const struct deltaic_session *s, uint32_t sequence, const char *function) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "%s: session is NULL", function);
  if (sequence >= s->shape.sequences)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: there is no sequence %u: the session has %u", function, sequence,
                s->shape.sequences);
  if (!s->slots[sequence].broken) return DELTAIC_OK;
  if (s->slots[sequence].loaded)
    return fail(DELTAIC_BAD_STATE, "%s: the load of sequence %u is unfinished: %llu bytes of its state are loaded",
                function, sequence, (unsigned long long)s->slots[sequence].loaded);
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
  return fail(DELTAIC_CONTEXT_FULL, "the context of %llu tokens is full: it holds %llu, and %llu more were given",
              (unsigned long long)room, (unsigned long long)position, (unsigned long long)n);
}

deltaic_status session_check_tokens(const struct deltaic_session *s, const int32_t *tokens, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->model->spec.V)
      return fail(DELTAIC_INVALID_ARGUMENT, "token %zu is %d, but the vocabulary has %u", i, tokens[i],
                  s->model->spec.V);
  return DELTAIC_OK;
}

static deltaic_status check_twice(bool *used, uint32_t sequence, const char *function) {
  if (used[sequence]) return fail(DELTAIC_INVALID_ARGUMENT, "%s: sequence %u is given twice", function, sequence);
  used[sequence] = true;
  return DELTAIC_OK;
}

static deltaic_status check_count(const struct deltaic_session *s, size_t n, const char *function) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "%s: session is NULL", function);
  if (n && n <= s->shape.sequences) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: %zu sequences are given, but the session has %u", function, n,
              s->shape.sequences);
}

deltaic_status session_check_piece(const struct deltaic_session *s, const deltaic_piece *p, const char *function) {
  deltaic_status status = session_check(s, p->sequence, function);
  if (status != DELTAIC_OK) return status;
  if (refuse_null(function, "tokens,out", p->tokens, FILLED(p->out, p->logits != DELTAIC_LOGITS_NONE)))
    return DELTAIC_INVALID_ARGUMENT;
  if (!p->count) return fail(DELTAIC_INVALID_ARGUMENT, "%s: there are no tokens", function);
  if ((unsigned)p->logits > DELTAIC_LOGITS_ALL)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: logits is %d, which is no deltaic_logits", function, (int)p->logits);
  if (!p->scores != !p->targets)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: targets and scores must be given together", function);
  status = session_check_tokens(s, p->tokens, p->count);
  for (size_t i = 0; p->targets && i < p->count && status == DELTAIC_OK; i++)
    if (p->targets[i] < -1 || p->targets[i] >= (int64_t)s->model->spec.V)
      status = fail(DELTAIC_INVALID_ARGUMENT, "target %zu is %d, but the vocabulary has %u", i, p->targets[i],
                    s->model->spec.V);
  return status == DELTAIC_OK ? check_room(s, p->sequence, p->count) : status;
}

// ---------------------------------------------------------------- failures

static bool take_cancel(struct deltaic_session *s) { return atomic_exchange(&s->cancel, false); }

static deltaic_status cancelled(void) { return fail(DELTAIC_CANCELLED, "the session was cancelled"); }

// A failure in the middle of a call leaves the state between two positions.
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

static deltaic_status eval_slice(struct deltaic_session *s, struct work *w) {
  deltaic_status status = slice_run(s, w);
  if (status != DELTAIC_OK) return status;
  for (uint32_t k = 0; k < w->count; k++) {
    const struct piece_rows *p = &w->parts[k];
    w->done[p->piece] += p->T;
    s->slots[w->pieces[p->piece].sequence].position += p->T;
  }
  return DELTAIC_OK;
}

static deltaic_status evaluate(struct deltaic_session *s, const deltaic_piece *pieces, size_t n, const char *function) {
  bool used[MOST_SEQUENCES] = {false};
  deltaic_status status = check_count(s, n, function);
  for (size_t i = 0; i < n && status == DELTAIC_OK; i++) {
    status = session_check_piece(s, &pieces[i], function);
    if (status == DELTAIC_OK) status = check_twice(used, pieces[i].sequence, function);
  }
  if (status != DELTAIC_OK) return status;
  if (take_cancel(s)) return cancelled(); // nothing is computed yet: the sequences are unchanged
  struct work w = {.pieces = pieces, .n = n};
  uint64_t all = 0;
  for (size_t i = 0; i < n; i++) all += pieces[i].count;
  for (uint64_t tokens = all; tokens && status == DELTAIC_OK; tokens -= w.T) {
    status = w.T && atomic_load(&s->cancel) ? cancelled() : DELTAIC_OK; // a later one is for the next call
    if (status == DELTAIC_OK) status = eval_slice(s, &w);
  }
  if (status == DELTAIC_CANCELLED && w.step && all == n) return status; // nothing has run
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

// A GPU may flush a subnormal temperature to 0 and divide by it.
static struct sampling sampling_of(const deltaic_sampling *o) {
  return (struct sampling){.temperature = o->temperature > 0 ? fmaxf(o->temperature, FLT_MIN) : 0,
                           .top_p = o->top_p,
                           .min_p = o->min_p,
                           .repetition_penalty = o->repetition_penalty,
                           .top_k = o->top_k,
                           .seed_low = (uint32_t)o->seed,
                           .seed_high = (uint32_t)(o->seed >> 32)};
}

static deltaic_status check_sampling(const deltaic_sampling *o) {
  if (!(o->temperature >= 0 && o->temperature <= 1e6f))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: temperature is %g, expected 0 to 1e6", o->temperature);
  if (!(o->top_p >= 0 && o->top_p <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: top_p is %g, expected 0 to 1", o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: min_p is %g, expected 0 to 1", o->min_p);
  if (!(o->repetition_penalty >= 0 && o->repetition_penalty <= 1e6f))
    return fail(DELTAIC_INVALID_ARGUMENT, "sampling: repetition_penalty is %g, expected 0 to 1e6",
                o->repetition_penalty);
  return DELTAIC_OK;
}

static deltaic_status check_draw(const struct deltaic_session *s, uint32_t sequence, const char *function) {
  deltaic_status status = session_check(s, sequence, function);
  if (status != DELTAIC_OK) return status;
  if (!s->slots[sequence].has_logits) return fail(DELTAIC_BAD_STATE, "%s: nothing has been evaluated yet", function);
  return check_room(s, sequence, 1);
}

// The draws of a call: their sequences and settings.
struct draws {
  uint32_t n, sequences[MOST_SEQUENCES];
  struct sampling sampling[MOST_SEQUENCES];
};

// The array of options structs has the stride of the caller's header.
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
  for (uint32_t i = 0; i < d->n; i++) {
    const uint32_t sequence = d->sequences[i];
    *(struct sequence *)tensor_row(&s->sequences, i) = // without a row: drawing assigns one
        (struct sequence){.pos = (uint32_t)s->slots[sequence].position, .slot = sequence};
    *(struct sampling *)tensor_row(&s->sampling, i) = d->sampling[i];
  }
  deltaic_status status = slice_replay(s, d->n, true);
  if (status == DELTAIC_OK && logits) status = slice_read(s, slice_logits(s, d->n), 0, d->n, logits);
  if (status != DELTAIC_OK) return status;
  for (uint32_t i = 0; i < d->n; i++) s->slots[d->sequences[i]].position++;
  memcpy(tokens, tensor_row(&s->tokens, 0), d->n * sizeof *tokens);
  return DELTAIC_OK;
}

static deltaic_status next(struct deltaic_session *s, const uint32_t *sequences, size_t n,
                           const deltaic_sampling *sampling, int32_t *tokens, float *logits, const char *function) {
  struct draws d;
  deltaic_status status = read_draws(s, &d, sequences, n, sampling, function);
  if (status == DELTAIC_OK && !tokens) status = fail(DELTAIC_INVALID_ARGUMENT, "%s: tokens is NULL", function);
  if (status != DELTAIC_OK) return status;
  if (take_cancel(s)) return cancelled(); // nothing is computed yet: the sequences are unchanged
  status = run_draws(s, &d, tokens, logits);
  if (status == DELTAIC_OK) return DELTAIC_OK;
  if (status == DELTAIC_CANCELLED) return status; // while its kernels were compiled: nothing has run
  for (uint32_t i = 0; i < d.n; i++) break_slot(s, d.sequences[i]);
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

// ---------------------------------------------------------------- results

static deltaic_status logits_of(struct deltaic_session *s, uint32_t sequence, float *out, const char *function) {
  deltaic_status status = session_check(s, sequence, function);
  if (status != DELTAIC_OK) return status;
  if (!out) return fail(DELTAIC_INVALID_ARGUMENT, "%s: out is NULL", function);
  if (!s->slots[sequence].has_logits) return fail(DELTAIC_BAD_STATE, "%s: nothing has been evaluated yet", function);
  return slice_read(s, s->last, sequence, 1, out);
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
  if (!probe != !kinds || kinds >= 2 * DELTAIC_PROBE_EXPERTS)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_probe: kinds is %u, with%s a function", kinds,
                probe ? "" : "out");
  if (s->shape.sequences > 1)
    return fail(DELTAIC_UNSUPPORTED, "deltaic_session_probe: the session has %u sequences, but only one can be probed",
                s->shape.sequences);
  probe_free(&s->probe);
  s->probe = (struct probe){.kinds = kinds, .function = probe, .user = user, .cancel = &s->cancel};
  return DELTAIC_OK;
}
