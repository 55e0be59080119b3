// slice: records and runs slices (slice.h). A slice of a prompt is streamed to the device. A call with one
// token per sequence is recorded once and then replayed. The first call of each kind compiles its kernels.
#include "slice.h"

#include <string.h>

// ---------------------------------------------------------------- rows

// When sequences share a slice, each gets at least this many tokens, unless it has fewer left or the slice is full:
// enough for the chunkwise forms (plan_rules.chunk_from).
enum { SHARE = 128 };

static size_t left(const struct work *w, uint32_t piece) { return w->pieces[piece].count - w->done[piece]; }

static uint32_t least(size_t a, uint32_t b) { return a < b ? (uint32_t)a : b; }

// Divides the slice's rows among the pieces that have tokens left. Each piece first gets an equal share, because a
// device is busier with many sequences than with one long one. What is left goes to the first pieces.
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
      w->parts[w->count++] = (struct piece_rows){i, row, share[i]};
      row += share[i];
    }
    if (ending) w->ends = w->count;
  }
}

// Writes the slice's tokens, and which rows belong to which sequence.
static void place_slice(struct deltaic_session *s, const struct work *w) {
  for (uint32_t k = 0; k < w->count; k++) {
    const struct piece_rows *p = &w->parts[k];
    const deltaic_piece *piece = &w->pieces[p->piece];
    memcpy(tensor_row(&s->tokens, p->row), piece->tokens + w->done[p->piece], p->T * sizeof *piece->tokens);
    *(struct sequence *)tensor_row(&s->sequences, k) = (struct sequence){
        .row = p->row, .T = p->T, .pos = (uint32_t)s->slots[piece->sequence].position, .slot = piece->sequence};
  }
}

// ---------------------------------------------------------------- recording

static struct tensor table(const struct deltaic_session *s, uint32_t n) { return tensor_rows(s->sequences, 0, n); }

// Begins the session's list, for a call of T tokens of n sequences, at most `longest` in one.
static struct call call_of(struct deltaic_session *s, uint32_t T, uint32_t n, uint32_t longest) {
  struct oplist *l = &s->list;
  oplist_begin(l);
  l->longest = longest;
  l->form = T == n ? DELTA_AUTO : s->form;
  l->kinds = 0;
  return (struct call){.l = l, .sequences = table(s, n), .T = T};
}

// Returns the residual stream after the last layer, stored in s->x.
static struct tensor record_layers(struct deltaic_session *s, struct call *call) {
  const struct deltaic_model *m = s->model;
  struct tensor x = oplist_value(call->l, call->T, m->spec.D);
  op_embed(call->l, x, m->embedding, tensor_rows(s->tokens, 0, call->T));
  for (uint32_t i = 0; i < m->spec.L; i++) {
    const struct layer_spec *layer = &m->spec.layers[i];
    call->probed_layer = block_probed(layer, i);
    x = block_forward(&m->spec, layer, &m->blocks[i], m->mixers[i], s->layers[i], call, x);
  }
  oplist_bind(call->l, x, tensor_rows(s->x, 0, call->T));
  return x;
}

struct tensor slice_logits(const struct deltaic_session *s, uint32_t n) {
  return s->shape.sequences == 1 ? s->last : tensor_rows(s->rows, 0, n);
}

// Writes to s->last the logits after the final token of each of the first n sequences. x: the residual stream after the
// last layer. If no sequence has more than one token, row i of x is already that of sequence i.
static void record_last(struct deltaic_session *s, const struct call *call, struct tensor x, uint32_t n) {
  const struct deltaic_model *m = s->model;
  struct oplist *l = call->l;
  const struct tensor none = {0};
  oplist_scope_begin(l);
  struct tensor h = oplist_value(l, n, m->spec.D);
  if (l->longest == 1) {
    op_norm(l, h, n == call->T ? x : tensor_rows(s->x, 0, n), m->norm, none, m->spec.norm_eps);
  } else {
    h = tensor_rows(s->h, 0, n);
    op_norm(l, h, x, m->norm, table(s, n), m->spec.norm_eps);
  }
  op_linear(l, slice_logits(s, n), h, m->head, none);
  if (s->shape.sequences > 1) op_scatter(l, s->last, slice_logits(s, n), table(s, n));
  oplist_scope_end(l);
}

// The number of rows from t on, of `rows`, whose logits are computed at once: rows of one block of LOGIT_ROWS, whose
// norms are computed together, and at most logit_rows of them.
static uint32_t logit_rows_at(const struct deltaic_session *s, uint32_t t, uint32_t rows) {
  return least(LOGIT_ROWS - t % LOGIT_ROWS, least(rows - t, s->logit_rows));
}

// rows <- logits of rows t ... t + n - 1 of x or, if `chosen` is present, of the rows that it lists. normed: first row
// of the block whose norms are in h.
static void record_logits(struct deltaic_session *s, struct tensor chosen, uint32_t rows, uint32_t t, uint32_t n,
                          uint32_t *normed) {
  const struct deltaic_model *m = s->model;
  struct oplist *l = &s->list;
  const uint32_t block = t / LOGIT_ROWS * LOGIT_ROWS, norms = least(rows - block, LOGIT_ROWS);
  if (*normed != block) {
    struct tensor x = chosen.buffer ? s->x : tensor_rows(s->x, block, norms);
    if (chosen.buffer) chosen = tensor_rows(chosen, block, norms);
    op_norm(l, tensor_rows(s->h, 0, norms), x, m->norm, chosen, m->spec.norm_eps);
  }
  *normed = block;
  op_linear(l, tensor_rows(s->rows, 0, n), tensor_rows(s->h, t - block, n), m->head, (struct tensor){0});
}

static void record_scores(struct deltaic_session *s, uint32_t targets) {
  uint32_t normed = UINT32_MAX;
  for (uint32_t t = 0, n; t < targets; t += n) {
    n = logit_rows_at(s, t, targets);
    record_logits(s, s->scored, targets, t, n, &normed);
    op_score(&s->list, s->scores, tensor_rows(s->rows, 0, n), s->targets, t);
  }
}

// ---------------------------------------------------------------- one token of each sequence

void slice_list_step(struct deltaic_session *s, uint32_t n, bool draw) {
  struct call call = call_of(s, n, n, 1);
  if (draw)
    op_sample(call.l, &(struct sample){.tokens = s->tokens,
                                       .scratch = s->rows,
                                       .sequences = table(s, n),
                                       .seen = s->seen,
                                       .logits = s->last,
                                       .sampling = s->sampling});
  else
    op_mark(call.l, s->seen, tensor_rows(s->tokens, 0, n), table(s, n));
  record_last(s, &call, record_layers(s, &call), n);
}

deltaic_status slice_replay(struct deltaic_session *s, uint32_t n, bool draw) {
  struct replay *r = draw ? &s->next[n - 1] : &s->steps[n - 1];
  struct backend *b = s->model->backend;
  deltaic_status status = DELTAIC_OK;
  if (!r->recorder) {
    status = b->functions->recorder_create(b, &r->recorder);
    if (status == DELTAIC_OK && s->profiled) status = b->functions->recorder_profile(r->recorder, true);
    if (status == DELTAIC_OK && s->watched) status = b->functions->recorder_busy(r->recorder, true);
  }
  if (status != DELTAIC_OK) return status;
  struct recorder *c = r->recorder;
  if (!r->recorded) {
    c->functions->recorder_begin(c, b->replays, NULL); // cancelling a step would break the sequences
    slice_list_step(s, n, draw);
    c->functions->recorder_list(c, &s->list);
  }
  status = c->functions->recorder_run(c);
  r->recorded = status == DELTAIC_OK && b->replays;
  return status;
}

// ---------------------------------------------------------------- logits for the caller

deltaic_status slice_read(struct deltaic_session *s, struct tensor t, uint64_t row, uint64_t rows, float *out) {
  struct backend *b = s->model->backend;
  return b->functions->buffer_read(b, t.buffer, t.offset + row * t.stride * sizeof *out, out,
                                   rows * t.cols * sizeof *out);
}

// The rows among t ... t + n - 1 of the slice that belong to part k, if its piece wants all logits.
struct run {
  uint32_t first, rows;
};

static struct run wanted_rows(const struct work *w, uint32_t k, uint32_t t, uint32_t n) {
  const struct piece_rows *p = &w->parts[k];
  uint32_t first = t > p->row ? t : p->row, end = least(t + n, p->row + p->T);
  if (w->pieces[p->piece].logits != DELTAIC_LOGITS_ALL || first >= end) return (struct run){0, 0};
  return (struct run){first, end - first};
}

static bool any_wanted(const struct work *w, uint32_t t, uint32_t n) {
  for (uint32_t k = 0; k < w->count; k++)
    if (wanted_rows(w, k, t, n).rows) return true;
  return false;
}

// Where the piece of part k wants the logits of this row of the slice.
static float *out_of(const struct deltaic_session *s, const struct work *w, uint32_t k, uint32_t row) {
  const struct piece_rows *p = &w->parts[k];
  return w->pieces[p->piece].out + (w->done[p->piece] + (row - p->row)) * s->model->spec.V;
}

// Reads the wanted rows from s->rows, which holds the logits of rows t ... t + n - 1.
static deltaic_status read_wanted(struct deltaic_session *s, const struct work *w, uint32_t t, uint32_t n) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t k = 0; k < w->count && status == DELTAIC_OK; k++) {
    struct run r = wanted_rows(w, k, t, n);
    if (r.rows) status = slice_read(s, s->rows, r.first - t, r.rows, out_of(s, w, k, r.first));
  }
  return status;
}

// Reads the result of record_last() before other rows overwrite it. `step`: the call has one token of each sequence.
static deltaic_status read_last_logits(struct deltaic_session *s, const struct work *w, bool step) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t k = 0; k < w->count && status == DELTAIC_OK; k++) {
    const struct piece_rows *p = &w->parts[k];
    const deltaic_piece *piece = &w->pieces[p->piece];
    if (step && piece->logits == DELTAIC_LOGITS_ALL)
      status = slice_read(s, slice_logits(s, w->count), k, 1, out_of(s, w, k, p->row));
    else if (k < w->ends && piece->logits == DELTAIC_LOGITS_LAST)
      status = slice_read(s, slice_logits(s, w->ends), k, 1, piece->out);
  }
  return status;
}

void slice_list_logits(struct deltaic_session *s, uint32_t rows, uint32_t t, uint32_t n, uint32_t *normed) {
  oplist_begin(&s->list);
  record_logits(s, (struct tensor){0}, rows, t, n, normed);
}

// Computes the logits of every row of x whose piece wants all logits.
static deltaic_status run_all_logits(struct deltaic_session *s, const struct work *w) {
  struct recorder *c = s->prefill;
  deltaic_status status = DELTAIC_OK;
  uint32_t normed = UINT32_MAX;
  for (uint32_t t = 0, n; t < w->T && status == DELTAIC_OK; t += n) {
    n = logit_rows_at(s, t, w->T);
    if (!any_wanted(w, t, n)) continue;
    c->functions->recorder_begin(c, false, &s->cancel);
    slice_list_logits(s, w->T, t, n, &normed);
    c->functions->recorder_list(c, &s->list);
    status = c->functions->recorder_run(c);
    if (status == DELTAIC_OK) status = read_wanted(s, w, t, n);
  }
  return status;
}

// ---------------------------------------------------------------- scores

static const int32_t *targets_of(const struct work *w, const struct piece_rows *p) {
  const deltaic_piece *piece = &w->pieces[p->piece];
  return piece->scores ? piece->targets + w->done[p->piece] : NULL;
}

// Lists the slice's rows that have a target, and the targets; returns their number. Often they are few, such as the
// last word of a passage.
static uint32_t place_targets(struct deltaic_session *s, const struct work *w) {
  int32_t *targets = tensor_row(&s->targets, 0);
  struct sequence *scored = tensor_row(&s->scored, 0);
  uint32_t n = 0;
  for (uint32_t k = 0; k < w->count; k++) {
    const struct piece_rows *p = &w->parts[k];
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
    const struct piece_rows *p = &w->parts[k];
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

// ---------------------------------------------------------------- the whole slice

void slice_list_prompt(struct deltaic_session *s, const struct slice_shape *p) {
  struct call call = call_of(s, p->T, p->count, p->longest);
  call.l->kinds = p->probes; // deltaic_session_next() replays, so it cannot be probed
  op_mark(call.l, s->seen, tensor_rows(s->tokens, 0, p->T), table(s, p->count));
  const struct tensor x = record_layers(s, &call);
  record_scores(s, p->targets);
  if (p->ends) record_last(s, &call, x, p->ends);
}

// Evaluates the slice's tokens, the scores of its targets, and the last logits of the pieces that it completes.
static deltaic_status run_prefill(struct deltaic_session *s, const struct work *w, uint32_t longest, uint32_t targets) {
  struct recorder *c = s->prefill;
  c->functions->recorder_begin(c, false, &s->cancel);
  slice_list_prompt(s, &(struct slice_shape){.T = w->T,
                                             .count = w->count,
                                             .longest = longest,
                                             .ends = w->ends,
                                             .targets = targets,
                                             .probes = s->probe.kinds});
  c->functions->recorder_list(c, &s->list);
  deltaic_status status = c->functions->recorder_run(c);
  return s->probe.kinds && s->probe.status != DELTAIC_OK ? s->probe.status : status;
}

deltaic_status slice_run(struct deltaic_session *s, struct work *w) {
  deal_rows(w, s->shape.batch);
  place_slice(s, w);
  uint32_t longest = 0;
  for (uint32_t k = 0; k < w->count; k++)
    if (w->parts[k].T > longest) longest = w->parts[k].T;
  // A replayed recording cannot be probed or scored.
  const uint32_t targets = place_targets(s, w);
  const bool step = w->step = w->T == w->count && !s->probe.kinds && !targets;
  s->probe.position = s->slots[w->pieces[0].sequence].position;
  s->probe.tokens = w->T;
  s->probe.status = DELTAIC_OK;
  deltaic_status status = step ? slice_replay(s, w->count, false) : run_prefill(s, w, longest, targets);
  if (status == DELTAIC_OK) hand_out_scores(s, w);
  if (status == DELTAIC_OK) status = read_last_logits(s, w, step);
  return status == DELTAIC_OK && !step ? run_all_logits(s, w) : status;
}
