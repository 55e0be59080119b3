// ffn_dense: a gated MLP. Old checkpoints keep gate and up in one tensor [2F, D]: the same rows as ours.
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

struct dense_scratch {
  struct tensor gate_up, act; // (T, 2F), (T, F)
};

static struct dense_scratch take(const struct dense_spec *s, struct scratch *scratch, uint32_t T) {
  struct dense_scratch t;
  t.gate_up = scratch_take(scratch, T, 2 * s->F);
  t.act = scratch_take(scratch, T, s->F);
  return t;
}

static void dense_measure(const void *spec, struct scratch *measure, uint32_t T) { take(spec, measure, T); }

static void dense_forward(const void *spec, const void *weights, struct call *call, struct tensor x,
                          struct linear_input in) {
  const struct dense_spec *s = spec;
  const struct dense_weights *w = weights;
  struct recorder *c = call->c;
  const struct ops *op = c->ops;
  struct dense_scratch t = take(s, &call->scratch, call->T);
  t.act = tensor_as(t.act, op->input_dtype(c, w->down, call->T));
  op->linear_gated(c, t.act, t.gate_up, in, w->gate_up, s->activation);
  op->linear_residual(c, x, (struct linear_input){.x = t.act}, w->down, (struct tensor){0}, call->next);
}

static uint32_t dense_width(const void *spec) { return ((const struct dense_spec *)spec)->F; }

const struct ffn ffn_dense = {.weights_bytes = sizeof(struct dense_weights),
                              .width = dense_width,
                              .bind = dense_bind,
                              .scratch = dense_measure,
                              .forward = dense_forward};
