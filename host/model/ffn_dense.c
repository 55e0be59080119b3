// ffn_dense: a gated MLP. Old checkpoints keep gate and up in one tensor (2F, D), whose rows are in our order.
#include "ffn_dense.h"

#include "ffn.h"

struct dense_weights {
  struct tensor gate_up, down; // (2F, D): gate's rows, then up's; (D, F)
};

static void dense_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const uint32_t F = ((const struct dense_spec *)spec)->F;
  struct dense_weights *d = weights;
  const bool apart = weights_has(w, layer, ROLE_FFN_UP);
  struct weight_part mlp[2] = {weights_part(w, layer, ROLE_FFN_GATE, apart ? F : 2 * F, D)};
  if (apart) mlp[1] = weights_part(w, layer, ROLE_FFN_UP, F, D);
  weights_matrix(w, &d->gate_up, D, mlp, 2);
  weights_bind_matrix(w, &d->down, layer, ROLE_FFN_DOWN, D, F);
}

static void dense_forward(const void *spec, const void *weights, const struct call *call, struct tensor y,
                          struct tensor h) {
  const struct dense_spec *s = spec;
  const struct dense_weights *w = weights;
  const struct tensor none = {0};
  struct oplist *l = call->l;
  const struct tensor gate_up = oplist_value(l, call->T, 2 * s->F), act = oplist_value(l, call->T, s->F);

  op_linear(l, gate_up, h, w->gate_up, none);
  op_glu(l, act, tensor_cols(gate_up, 0, s->F), tensor_cols(gate_up, s->F, s->F), s->activation);
  op_linear(l, y, act, w->down, none);
}

static uint32_t dense_width(const void *spec) { return ((const struct dense_spec *)spec)->F; }

const struct ffn ffn_dense = {
    .weights_bytes = sizeof(struct dense_weights), .width = dense_width, .bind = dense_bind, .forward = dense_forward};
