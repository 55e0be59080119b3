// ffn_experts: a mixture of experts (docs/mixers.md).
//
//   s = softmax(h router^T);  w = the k largest of s [/ their sum];  y = sum of w_j mlp_j(h) + sigmoid(h gate^T)
//   shared(h)
//
// The router and the shared expert's gate are one matrix in f32, since a rounded score may choose another expert.
#include "ffn_experts.h"

#include "ffn.h"

#include <stdlib.h>

struct experts_weights {
  struct tensor router;              // (E, D), or (E + 1, D) with the gate of the shared expert
  struct tensor gate_up, down;       // (E * 2F, D): of each expert gate's rows, then up's; (E * D, F)
  struct tensor shared, shared_down; // (2 * shared, D), (D, shared); absent without
};

// Part e of a role that is one tensor of all experts, or a tensor for each.
static struct weight_part part_of(struct weights *w, uint32_t layer, enum role role, uint32_t e, uint32_t E,
                                  uint32_t rows, uint32_t cols) {
  if (weights_lists(w, layer, role)) return weights_item(w, layer, role, e, rows, cols);
  struct weight_part part = weights_part(w, layer, role, E * rows, cols);
  part.first = (uint64_t)e * rows;
  part.rows = rows;
  return part;
}

static void bind_experts(const struct experts_spec *s, uint32_t layer, uint32_t D, struct weights *w,
                         struct experts_weights *x) {
  const bool joined = weights_has(w, layer, ROLE_EXPERTS_GATE_UP);
  struct weight_part *parts = calloc(3 * (size_t)s->E, sizeof *parts), *down = parts + 2 * (size_t)s->E;
  if (!parts) {
    w->status = fail_memory("a list of experts", 3 * s->E * sizeof *parts);
    return;
  }
  for (uint32_t e = 0; e < s->E && !w->status; e++) {
    if (!joined) parts[2 * e] = part_of(w, layer, ROLE_EXPERTS_GATE, e, s->E, s->F, D);
    if (!joined) parts[2 * e + 1] = part_of(w, layer, ROLE_EXPERTS_UP, e, s->E, s->F, D);
    down[e] = part_of(w, layer, ROLE_EXPERTS_DOWN, e, s->E, D, s->F);
  }
  if (joined) parts[0] = weights_part(w, layer, ROLE_EXPERTS_GATE_UP, s->E * 2 * s->F, D);
  weights_matrix(w, &x->gate_up, D, parts, 2 * (int)s->E);
  weights_matrix(w, &x->down, s->F, down, (int)s->E);
  if (w->status == DELTAIC_OK && (x->gate_up.mixed || x->down.mixed))
    w->status = fail(DELTAIC_UNSUPPORTED, "%s: the experts of layer %u have weights of several quantized types",
                     checkpoint_path(w->checkpoint), layer);
  free(parts);
}

static void experts_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const struct experts_spec *s = spec;
  struct experts_weights *x = weights;
  struct weight_part router[2] = {weights_part(w, layer, ROLE_ROUTER, s->E, D)}, shared[2];
  if (s->shared) router[1] = weights_part(w, layer, ROLE_SHARED_SCALE, 1, D);
  weights_matrix_f32(w, &x->router, D, router, s->shared ? 2 : 1);
  bind_experts(s, layer, D, w, x);
  if (!s->shared) return;
  shared[0] = weights_part(w, layer, ROLE_SHARED_GATE, s->shared, D);
  shared[1] = weights_part(w, layer, ROLE_SHARED_UP, s->shared, D);
  weights_matrix(w, &x->shared, D, shared, 2);
  weights_bind_matrix(w, &x->shared_down, layer, ROLE_SHARED_DOWN, D, s->shared);
}

// act(gate h) * (up h) (T, shared) of the shared expert.
static struct tensor shared_act(const struct experts_spec *s, const struct experts_weights *w, struct oplist *l,
                                struct tensor h) {
  const struct tensor none = {0}, both = oplist_value(l, h.rows, 2 * s->shared);
  const struct tensor act = oplist_value(l, h.rows, s->shared);
  op_linear(l, both, h, w->shared, none);
  op_glu(l, act, tensor_cols(both, 0, s->shared), tensor_cols(both, s->shared, s->shared), s->activation);
  return act;
}

// The shared expert's products stand beside the router's and the choice: they do not need these, so a backend can
// compute them at the same time.
static void experts_forward(const void *spec, const void *weights, const struct call *call, struct tensor y,
                            struct tensor h) {
  const struct experts_spec *s = spec;
  const struct experts_weights *w = weights;
  const struct tensor none = {0};
  const uint32_t T = call->T, R = T * s->k;
  struct oplist *l = call->l;
  const struct tensor logits = oplist_value(l, T, w->router.rows);
  const struct tensor ids = oplist_value(l, T, s->k), scores = oplist_value(l, T, s->k);
  const struct tensor order = oplist_value(l, 1, R), starts = oplist_value(l, 1, s->E + 1);
  const struct tensor gate_up = oplist_value(l, R, 2 * s->F), act = oplist_value(l, R, s->F);
  const struct tensor down = oplist_value(l, R, y.cols);
  const struct tensor shared = s->shared ? oplist_value(l, T, y.cols) : none;

  op_linear(l, logits, h, w->router, none);
  const struct tensor shared_in = s->shared ? shared_act(s, w, l, h) : none;
  op_route(l, &(struct route){
                  .ids = ids, .weights = scores, .logits = logits, .experts = s->E, .normalized = s->normalized});
  op_probe(l, DELTAIC_PROBE_EXPERTS, ids, T, s->k, &call->probed_layer);
  op_group(l, order, starts, ids);
  if (s->shared) op_linear(l, shared, shared_in, w->shared_down, none);
  op_experts(l, &(struct experts){gate_up, h, w->gate_up, ids, order, starts});
  op_glu(l, act, tensor_cols(gate_up, 0, s->F), tensor_cols(gate_up, s->F, s->F), s->activation);
  op_experts(l, &(struct experts){down, act, w->down, ids, order, starts});
  op_mix(l, &(struct mix){.y = y, .x = down, .weights = scores, .shared = shared, .logits = logits, .gate_col = s->E});
}

static void experts_describe(const void *spec, const void *weights, uint32_t D, deltaic_model_info *info) {
  const struct experts_spec *s = spec;
  const struct experts_weights *w = weights;
  if (!info->experts) {
    info->experts = (int32_t)s->E;
    info->experts_per_token = (int32_t)s->k;
    info->expert_width = (int32_t)s->F;
  }
  info->active_parameters -= (uint64_t)(s->E - s->k) * 3 * s->F * D;
  info->expert_bytes += dtype_bytes(w->gate_up.dtype, (uint64_t)w->gate_up.rows * w->gate_up.stride) +
                        dtype_bytes(w->down.dtype, (uint64_t)w->down.rows * w->down.stride);
}

static uint32_t experts_width(const void *spec) {
  const struct experts_spec *s = spec;
  return s->k * s->F + s->shared;
}

const struct ffn ffn_experts = {.weights_bytes = sizeof(struct experts_weights),
                                .width = experts_width,
                                .bind = experts_bind,
                                .describe = experts_describe,
                                .forward = experts_forward};
