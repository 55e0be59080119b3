// block: binds a layer's weights and records its operations (block.h).
#include "block.h"

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

deltaic_probed block_probed(const struct layer_spec *layer, uint32_t index) {
  struct mixer_sizes z = {0};
  if (layer->mixer->sizes) layer->mixer->sizes(layer->spec, &z);
  return (deltaic_probed){.layer = (int32_t)index,
                          .heads = (int32_t)z.heads,
                          .key_size = (int32_t)z.key_size,
                          .steps = (int32_t)z.steps,
                          .value_heads = (int32_t)z.value_heads,
                          .value_size = (int32_t)z.value_size};
}

struct tensor block_mixer(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                          const void *mixer_weights, const void *state, const struct call *call, struct tensor x) {
  const struct tensor none = {0};
  const uint32_t T = call->T, D = m->D;
  const bool after = layer->norms_after;
  struct oplist *l = call->l;

  op_probe(l, DELTAIC_PROBE_RESIDUAL, x, T, D, &call->probed_layer);
  const struct tensor mixed = oplist_value(l, T, D);
  oplist_scope_begin(l);
  struct tensor h = oplist_value(l, T, D), y = oplist_value(l, T, D); // y is added to x; h is the norm's other side
  if (!after) op_norm(l, h, x, b->mixer_norm, none, m->norm_eps);
  op_probe(l, DELTAIC_PROBE_MIXER_INPUT, after ? x : h, T, D, &call->probed_layer);
  layer->mixer->forward(layer->spec, mixer_weights, state, call, after ? h : y, after ? x : h);
  if (after) op_norm(l, y, h, b->mixer_norm, none, m->norm_eps);
  op_probe(l, DELTAIC_PROBE_MIXER_OUTPUT, y, T, D, &call->probed_layer);
  op_add(l, mixed, x, y);
  oplist_scope_end(l);
  return mixed;
}

struct tensor block_ffn(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                        const struct call *call, struct tensor x) {
  const struct tensor none = {0};
  const uint32_t T = call->T, D = m->D;
  const bool after = layer->norms_after;
  struct oplist *l = call->l;

  if (!layer->ffn) return x;
  const struct tensor out = oplist_value(l, T, D);
  oplist_scope_begin(l);
  struct tensor h = oplist_value(l, T, D), y = oplist_value(l, T, D);
  if (!after) op_norm(l, h, x, b->ffn_norm, none, m->ffn_norm_eps);
  layer->ffn->forward(layer->ffn_spec, b->ffn, call, after ? h : y, after ? x : h);
  if (after) op_norm(l, y, h, b->ffn_norm, none, m->ffn_norm_eps);
  op_add(l, out, x, y);
  oplist_scope_end(l);
  return out;
}

struct tensor block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                            const void *mixer_weights, const void *state, const struct call *call, struct tensor x) {
  x = block_mixer(m, layer, b, mixer_weights, state, call, x);
  return block_ffn(m, layer, b, call, x);
}
