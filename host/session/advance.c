// advance: see advance.h.
#include "advance.h"

#include "session.h"

#include <string.h>

// ---------------------------------------------------------------- one slice

static void begin(struct deltaic_session *s, uint32_t T) {
  struct recorder *c = s->prefill;
  c->functions->recorder_begin(c, false, &s->cancel);
  oplist_begin(&s->list);
  s->list.longest = T;
  s->list.form = s->form;
  s->list.kinds = s->probe.kinds;
}

// Runs the list, whose result `out` is a value, and reads the result unless y is NULL.
static deltaic_status run(struct deltaic_session *s, struct tensor out, float *y) {
  struct recorder *c = s->prefill;
  struct backend *b = s->model->backend;
  const struct tensor x = tensor_rows(s->x, 0, out.rows);
  oplist_bind(&s->list, out, x);
  c->functions->recorder_list(c, &s->list);
  deltaic_status status = c->functions->recorder_run(c);
  if (s->probe.kinds && s->probe.status) status = s->probe.status;
  if (!status && y) status = b->functions->buffer_read(b, x.buffer, x.offset, y, tensor_bytes(&x));
  return status;
}

static deltaic_status advance_slice(struct deltaic_session *s, uint32_t layer, enum layer_half half, const float *x,
                                    float *y, struct sequence sequence) {
  const struct deltaic_model *m = s->model;
  struct backend *b = m->backend;
  const struct tensor from = tensor_rows(s->x, 0, sequence.T);
  deltaic_status status = b->functions->buffer_write(b, from.buffer, from.offset, x, tensor_bytes(&from));
  if (status) return status;
  *(struct sequence *)tensor_row(&s->sequences, 0) = sequence;
  s->probe.position = sequence.pos;
  s->probe.tokens = sequence.T;
  s->probe.status = DELTAIC_OK;
  begin(s, sequence.T);
  const struct call call = {.l = &s->list,
                            .sequences = tensor_rows(s->sequences, 0, 1),
                            .T = sequence.T,
                            .probed_layer = block_probed(&m->spec.layers[layer], layer)};
  struct tensor v = oplist_value(&s->list, from.rows, from.cols);
  op_copy(&s->list, v, from);
  v = half == HALF_MIXER ? block_mixer(&m->spec, &m->spec.layers[layer], &m->blocks[layer], m->mixers[layer],
                                       s->layers[layer], &call, v)
                         : block_ffn(&m->spec, &m->spec.layers[layer], &m->blocks[layer], &call, v);
  return run(s, v, y);
}

// ---------------------------------------------------------------- a text

static deltaic_status zero_state(const struct deltaic_session *s, uint32_t layer) {
  struct backend *b = s->model->backend;
  const struct state_list *list = &s->lists[layer];
  deltaic_status status = DELTAIC_OK;
  for (int i = 0; i < list->count && !status; i++) {
    const struct tensor *t = list->entries[i].tensor;
    status = b->functions->buffer_zero(b, t->buffer, t->offset, tensor_bytes(t));
  }
  return status;
}

static uint32_t slice_rows(const struct deltaic_session *s, uint64_t left) {
  return left < s->shape.batch ? (uint32_t)left : s->shape.batch;
}

deltaic_status session_embed(deltaic_session *s, const int32_t *tokens, uint64_t count, float *x) {
  deltaic_status status = session_check_tokens(s, tokens, count);
  s->slots[0].broken = true;
  for (uint64_t at = 0, T; at < count && !status; at += T) {
    T = slice_rows(s, count - at);
    memcpy(tensor_row(&s->tokens, 0), tokens + at, T * sizeof *tokens);
    begin(s, (uint32_t)T);
    const struct tensor out = oplist_value(&s->list, (uint32_t)T, s->model->spec.D);
    op_embed(&s->list, out, s->model->embedding, tensor_rows(s->tokens, 0, (uint32_t)T));
    status = run(s, out, x + at * s->model->spec.D);
  }
  return status;
}

deltaic_status session_advance(deltaic_session *s, uint32_t layer, enum layer_half half, const float *x, float *y,
                               uint64_t count) {
  const uint64_t D = s->model->spec.D;
  if (layer >= s->model->spec.L || count > s->shape.context)
    return fail(DELTAIC_INTERNAL, "%llu tokens cannot pass through layer %u", (unsigned long long)count, layer);
  if (half == HALF_FFN && !s->model->spec.layers[layer].ffn) {
    if (y && y != x) memcpy(y, x, count * D * sizeof *y);
    return DELTAIC_OK;
  }
  s->slots[0].broken = true;
  deltaic_status status = half == HALF_MIXER ? zero_state(s, layer) : DELTAIC_OK;
  for (uint64_t at = 0, T; at < count && !status; at += T) {
    T = slice_rows(s, count - at);
    status = advance_slice(s, layer, half, x + at * D, y ? y + at * D : NULL,
                           (struct sequence){.T = (uint32_t)T, .pos = (uint32_t)at});
  }
  return status;
}
