// block: see block.h. Old checkpoints keep gate and up in one matrix [2F, D]: the same rows as ours.
#include "block.h"

void state_add(struct arena *arena, struct tensor *out, enum dtype dtype, const struct state_shape *shape,
               uint64_t cols) {
  arena_add(arena, out, dtype, shape->sequences, cols, round_up(cols, TENSOR_ALIGN / dtype_bytes(dtype)));
}

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b) {
  struct weight_part norm = {weights_get(w, layer, m->names->mixer_norm, m->D, 0), 0, m->D, 0};
  weights_vector(w, &b->mixer_norm, &norm, 1);
  if (!m->F) return;
  norm.source = weights_get(w, layer, "mlp_norm.weight", m->D, 0);
  weights_vector(w, &b->mlp_norm, &norm, 1);
  struct weight_part mlp[2] = {{0}};
  if (weights_find(w, layer, "mlp.up_proj.weight")) {
    mlp[0] = (struct weight_part){weights_get(w, layer, "mlp.gate_proj.weight", m->F, m->D), 0, m->F, 0};
    mlp[1] = (struct weight_part){weights_get(w, layer, "mlp.up_proj.weight", m->F, m->D), 0, m->F, 0};
  } else {
    mlp[0] = (struct weight_part){weights_get(w, layer, "mlp.gate_proj.weight", 2ull * m->F, m->D), 0, 2 * m->F, 0};
  }
  weights_matrix(w, &b->gate_up, m->D, mlp, 2);
  struct weight_part down = {weights_get(w, layer, "mlp.down_proj.weight", m->D, m->F), 0, m->D, 0};
  weights_matrix(w, &b->down, m->F, &down, 1);
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

struct tensor block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                            const void *mixer_weights, const void *state, const struct call *call, struct tensor x) {
  const struct tensor none = {0};
  const uint32_t T = call->T;
  struct oplist *l = call->l;
  const struct tensor mixed = oplist_value(l, T, m->D);

  op_probe(l, DELTAIC_PROBE_RESIDUAL, x, T, m->D, &call->layer);
  oplist_scope_begin(l);
  const struct tensor h = oplist_value(l, T, m->D), y = oplist_value(l, T, m->D);
  op_norm(l, h, x, b->mixer_norm, none, m->norm_eps);
  op_probe(l, DELTAIC_PROBE_MIXER_INPUT, h, T, m->D, &call->layer);
  layer->mixer->forward(layer->spec, mixer_weights, state, call, y, h);
  op_probe(l, DELTAIC_PROBE_MIXER_OUTPUT, y, T, m->D, &call->layer);
  op_add(l, mixed, x, y);
  oplist_scope_end(l);
  if (!m->F) return mixed;

  const struct tensor out = oplist_value(l, T, m->D);
  oplist_scope_begin(l);
  const struct tensor h2 = oplist_value(l, T, m->D), z = oplist_value(l, T, m->D);
  const struct tensor gate_up = oplist_value(l, T, 2 * m->F), act = oplist_value(l, T, m->F);
  op_norm(l, h2, mixed, b->mlp_norm, none, m->mlp_norm_eps);
  op_linear(l, gate_up, h2, b->gate_up, none);
  op_glu(l, act, gate_up, m->mlp);
  op_linear(l, z, act, b->down, none);
  op_add(l, out, mixed, z);
  oplist_scope_end(l);
  return out;
}
