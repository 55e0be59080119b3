// block: see block.h.
#include "block.h"

struct tensor scratch_take_bytes(struct scratch *s, uint64_t bytes) {
  struct tensor t = {.dtype = DTYPE_F32, .rows = 1, .buffer = s->buffer, .offset = s->used};
  t.cols = t.stride = (uint32_t)((bytes + 3) / 4);
  s->used += round_up(bytes ? bytes : 1, TENSOR_ALIGN);
  if (bytes > s->largest) s->largest = bytes;
  return t;
}

struct tensor scratch_take(struct scratch *s, uint32_t rows, uint32_t cols) {
  struct tensor t = scratch_take_bytes(s, (uint64_t)rows * cols * sizeof(float));
  t.rows = rows;
  t.cols = t.stride = cols;
  return t;
}

void state_add(struct arena *arena, struct tensor *out, enum dtype dtype, const struct state_shape *shape,
               uint64_t cols) {
  arena_add(arena, out, dtype, shape->sequences, cols, round_up(cols, TENSOR_ALIGN / formats[dtype].bytes));
}

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b) {
  const struct layer_spec *l = &m->layers[layer];
  weights_bind_vector(w, &b->mixer_norm, layer, ROLE_MIXER_NORM, m->D);
  if (!l->ffn) return;
  weights_bind_vector(w, &b->ffn_norm, layer, ROLE_FFN_NORM, m->D);
  l->ffn->bind(l->ffn_spec, layer, m->D, w, b->ffn);
}

void block_scratch(const struct layer_spec *layer, const void *mixer_weights, struct backend *b,
                   struct scratch *measure, uint32_t T, uint32_t B) {
  struct scratch ffn = *measure;
  layer->mixer->scratch(layer->spec, mixer_weights, b, measure, T, B);
  if (layer->ffn) layer->ffn->scratch(layer->ffn_spec, &ffn, T); // in the same place
  if (ffn.used > measure->used) measure->used = ffn.used;
  if (ffn.largest > measure->largest) measure->largest = ffn.largest;
}

struct linear_input block_norm(struct call *call, struct tensor x, struct tensor weight, float eps) {
  return (struct linear_input){.x = x, .weight = weight, .h = call->h, .eps = eps, .ahead = &call->ahead};
}

void block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                   const void *mixer_weights, const void *state, struct call *call, struct tensor x,
                   const struct linear_input *after) {
  struct recorder *c = call->c;
  const struct ops *op = c->ops;
  const struct tensor none = {0};
  const uint64_t before = call->scratch.used;

  struct linear_input in = block_norm(call, x, b->mixer_norm, m->norm_eps);
  const struct linear_input ffn = block_norm(call, x, b->ffn_norm, m->ffn_norm_eps);
  call->next = call->probe ? NULL : layer->ffn ? &ffn : after;
  if (call->probe) { // who looks sees the norm and finds x without the mixer's part
    op->rmsnorm(c, call->h, x, b->mixer_norm, none, m->norm_eps);
    in = (struct linear_input){.x = call->h};
    probe_tensor(call->probe, c, DELTAIC_PROBE_RESIDUAL, x, x.rows, x.cols);
    probe_tensor(call->probe, c, DELTAIC_PROBE_MIXER_INPUT, call->h, x.rows, x.cols);
    probe_output_begin(call->probe, c, x);
  }
  layer->mixer->forward(layer->spec, mixer_weights, state, call, x, in);
  if (call->probe) probe_output_end(call->probe, c, x);
  call->scratch.used = before;
  if (!layer->ffn) return;

  call->next = call->probe ? NULL : after;
  layer->ffn->forward(layer->ffn_spec, b->ffn, call, x, ffn);
  call->scratch.used = before;
}
