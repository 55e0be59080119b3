// mixer_attention: softmax attention with rotary positions, global or over a sliding window (docs/mixers.md).
#include "mixer_attention.h"

#include "mixer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct attention_weights {
  struct tensor in_proj;  // (rows of q, k, v and gate, D)
  struct tensor bias;     // (1, rows of in_proj) or absent
  struct tensor norm;     // (1, (heads + kv_heads) * d): the weight of each head's norm; absent without
  struct tensor q_norm;   // (1, heads * d): the weight of the norm of all query heads together; absent without
  struct tensor k_norm;   // (1, kv_heads * d): likewise
  struct tensor o_proj;   // (D, heads * d)
  struct tensor o_bias;   // (1, D) or absent
  struct tensor rotation; // (ROPE_ROWS, rotary); absent without
};

struct attention_state {
  struct tensor k, v; // (slots, capacity * kv_heads * d)
};

struct rotation {
  double theta;
};

// Row level * 256 + b: the rotation of b * 256^level positions (ops.h, ROPE_ROWS).
static void rotation_row(const void *context, uint32_t row, uint32_t rotary, float *out) {
  const struct rotation *r = context;
  double position = (row & 255) * pow(256.0, row >> 8);
  for (uint32_t j = 0; j < rotary / 2; j++) {
    double angle = position * pow(r->theta, -2.0 * j / rotary);
    out[j] = (float)cos(angle);
    out[rotary / 2 + j] = (float)sin(angle);
  }
}

// The norm of heads has one weight for all query heads and one for all key heads. Each is repeated for every head.
struct norm_sources {
  struct weight_part q, k;
  uint32_t heads, d;
};

static void norm_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct norm_sources *s = context;
  (void)row;
  for (uint32_t i = 0; i < cols; i += s->d) weight_part_read(i < s->heads * s->d ? &s->q : &s->k, 0, s->d, 1, out + i);
}

static void norm_back(const void *context, uint32_t cols, const float *d, weight_give give, void *user) {
  const struct norm_sources *s = context;
  for (uint32_t i = 0; i < cols; i += s->d) give(user, i < s->heads * s->d ? &s->q : &s->k, 1, d + i);
}

static void bind_norm(const struct attention_spec *s, uint32_t layer, struct weights *w, struct attention_weights *a) {
  if (s->whole_norm) {
    weights_bind_vector(w, &a->q_norm, layer, ROLE_Q_NORM, s->heads * s->d);
    weights_bind_vector(w, &a->k_norm, layer, ROLE_K_NORM, s->kv_heads * s->d);
    return;
  }
  const struct norm_sources sources = {.q = weights_part(w, layer, ROLE_Q_NORM, s->d, 0),
                                       .k = weights_part(w, layer, ROLE_K_NORM, s->d, 0),
                                       .heads = s->heads,
                                       .d = s->d};
  weights_rows(w, &a->norm, 1, (s->heads + s->kv_heads) * s->d, norm_row, &sources, sizeof sources);
  weights_rows_back(w, norm_back);
  w->parameters += 2 * s->d;
}

// The column of the projection where the gate begins: views must be aligned.
static uint32_t gate_from(const struct attention_spec *s) {
  return (uint32_t)round_up((s->heads + 2 * s->kv_heads) * s->d, TENSOR_ALIGN / sizeof(float));
}

struct bias_sources {
  struct weight_part parts[4]; // q, k, v, gate
  uint32_t gate_from;          // 0: no gate
};

static_assert(sizeof(struct bias_sources) <= WEIGHT_CONTEXT, "a request copies it");

static void bias_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct bias_sources *s = context;
  uint32_t from = 0;
  (void)row;
  memset(out, 0, cols * sizeof *out);
  for (int i = 0; i < (s->gate_from ? 4 : 3); from += s->parts[i++].rows) {
    if (i == 3) from = s->gate_from;
    weight_part_read(&s->parts[i], 0, s->parts[i].rows, 1, out + from);
  }
}

static void bias_back(const void *context, uint32_t cols, const float *d, weight_give give, void *user) {
  const struct bias_sources *s = context;
  uint32_t from = 0;
  (void)cols;
  for (int i = 0; i < (s->gate_from ? 4 : 3); from += s->parts[i++].rows) {
    if (i == 3) from = s->gate_from;
    give(user, &s->parts[i], 1, d + from);
  }
}

// A gate that is no part of q_proj has no bias.
static void bind_bias(const struct attention_spec *s, uint32_t layer, struct weights *w, struct attention_weights *a) {
  const uint32_t q = s->heads * s->d, kv = s->kv_heads * s->d;
  const bool gate = s->gate && weights_has(w, layer, ROLE_GATE_BIAS);
  struct bias_sources sources = {.parts = {weights_part(w, layer, ROLE_Q_BIAS, q, 0),
                                           weights_part(w, layer, ROLE_K_BIAS, kv, 0),
                                           weights_part(w, layer, ROLE_V_BIAS, kv, 0)},
                                 .gate_from = gate ? gate_from(s) : 0};
  if (gate) sources.parts[3] = weights_part(w, layer, ROLE_GATE_BIAS, q, 0);
  weights_rows(w, &a->bias, 1, a->in_proj.rows, bias_row, &sources, sizeof sources);
  weights_rows_back(w, bias_back);
  w->parameters += q + 2 * kv + (gate ? q : 0);
}

static void attention_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const struct attention_spec *s = spec;
  struct attention_weights *a = weights;
  const uint32_t q = s->heads * s->d, kv = s->kv_heads * s->d;
  struct weight_part in[4] = {weights_part(w, layer, ROLE_Q, q, D), weights_part(w, layer, ROLE_K, kv, D),
                              weights_part(w, layer, ROLE_V, kv, D)};
  if (s->gate) in[2].align = gate_from(s) - q - kv;
  if (s->gate) in[3] = weights_part(w, layer, ROLE_GATE, q, D);
  weights_matrix(w, &a->in_proj, D, in, s->gate ? 4 : 3);
  if (s->bias) bind_bias(s, layer, w, a);
  if (s->qk_norm) bind_norm(s, layer, w, a);
  weights_bind_matrix(w, &a->o_proj, layer, ROLE_OUTPUT, D, q);
  if (s->output_bias) weights_bind_vector(w, &a->o_bias, layer, ROLE_OUTPUT_BIAS, D);
  struct rotation r = {.theta = s->rope_theta};
  if (s->rotary) weights_rows(w, &a->rotation, ROPE_ROWS, s->rotary, rotation_row, &r, sizeof r);
}

// The cache of a window also holds the tokens of one call, whose first query still sees window - 1 earlier positions.
static uint32_t capacity_of(const struct attention_spec *s, const struct state_shape *shape) {
  if (!s->window) return shape->context;
  uint64_t capacity = (uint64_t)s->window - 1 + shape->batch;
  return capacity < UINT32_MAX ? (uint32_t)capacity : UINT32_MAX;
}

static void attention_state(const void *spec, const struct state_shape *shape, struct arena *arena, void *state,
                            struct state_list *list) {
  const struct attention_spec *s = spec;
  struct attention_state *a = state;
  uint32_t position = s->kv_heads * s->d;
  uint64_t cols = (uint64_t)capacity_of(s, shape) * position;
  state_add(arena, &a->k, DTYPE_F32, shape, cols);
  state_add(arena, &a->v, DTYPE_F32, shape, cols);
  *list = (struct state_list){.entries = {{&a->k, position, s->window}, {&a->v, position, s->window}}, .count = 2};
}

// Records a norm of each head of q and k, the first columns of qkv. Returns qkv with these columns normalized.
static struct tensor normed_heads(const struct attention_spec *spec, const struct attention_weights *weights,
                                  struct oplist *list, struct tensor qkv) {
  const struct tensor normed = oplist_value(list, qkv.rows, qkv.cols);
  op_gated_norm(list, &(struct gated_norm){.y = normed,
                                           .x = qkv,
                                           .weight = weights->norm,
                                           .groups = spec->heads + spec->kv_heads,
                                           .group_cols = spec->d,
                                           .place = NORM_FIRST,
                                           .eps = spec->norm_eps});
  return normed;
}

// The same with one norm over all query heads and one over all key heads.
static struct tensor normed_wholly(const struct attention_spec *spec, const struct attention_weights *weights,
                                   struct oplist *list, struct tensor qkv) {
  const uint32_t q_cols = spec->heads * spec->d, k_cols = spec->kv_heads * spec->d;
  const struct tensor q_normed = oplist_value(list, qkv.rows, qkv.cols),
                      normed = oplist_value(list, qkv.rows, qkv.cols);
  op_gated_norm(list, &(struct gated_norm){.y = q_normed,
                                           .x = qkv,
                                           .weight = weights->q_norm,
                                           .groups = 1,
                                           .group_cols = q_cols,
                                           .place = NORM_FIRST,
                                           .eps = spec->norm_eps});
  op_gated_norm(list, &(struct gated_norm){.y = normed,
                                           .x = q_normed,
                                           .weight = weights->k_norm,
                                           .groups = 1,
                                           .group_cols = k_cols,
                                           .place = NORM_FIRST,
                                           .eps = spec->norm_eps,
                                           .from = q_cols});
  return normed;
}

static struct tensor normed_qk(const struct attention_spec *spec, const struct attention_weights *weights,
                               struct oplist *list, struct tensor qkv) {
  if (!spec->qk_norm) return qkv;
  return spec->whole_norm ? normed_wholly(spec, weights, list, qkv) : normed_heads(spec, weights, list, qkv);
}

// Records the layer's operations, in this order: projections, norms of q and k, rotation and cache, attention, gate,
// output projection.
//
//   qkv      (T, (heads + 2 * kv_heads) * d)  q of each query head, then k and v of each key head
//   rotated  the same shape                   q and k are rotated by their positions
//   o        (T, heads * d)                   the values that the heads read
//   gated    (T, heads * d)                   o times sigmoid(gate), or o in a layer without a gate
static void attention_forward(const void *layer_spec, const void *layer_weights, const void *layer_state,
                              const struct call *call, struct tensor output, struct tensor input) {
  const struct attention_spec *spec = layer_spec;
  const struct attention_weights *weights = layer_weights;
  const struct attention_state *state = layer_state;
  const struct attention_args args = {.heads = spec->heads,
                                      .kv_heads = spec->kv_heads,
                                      .d = spec->d,
                                      .window = spec->window,
                                      .capacity = state->k.cols / (spec->kv_heads * spec->d)};
  const uint32_t T = call->T, q_cols = spec->heads * spec->d, qkv_cols = q_cols + 2 * spec->kv_heads * spec->d;
  struct oplist *list = call->l;

  const struct tensor projected = oplist_value(list, T, weights->in_proj.rows);
  op_linear(list, projected, input, weights->in_proj, weights->bias);
  const struct tensor qkv = normed_qk(spec, weights, list, tensor_cols(projected, 0, qkv_cols));

  const struct tensor rotated = oplist_value(list, T, qkv_cols);
  op_rope_append(list, &(struct rope_append){.y = rotated,
                                             .cache_k = state->k,
                                             .cache_v = state->v,
                                             .x = qkv,
                                             .table = weights->rotation,
                                             .sequences = call->sequences,
                                             .a = args});

  const struct tensor o = oplist_value(list, T, q_cols);
  op_attention(
      list,
      &(struct attention){
          .o = o, .qkv = rotated, .cache_k = state->k, .cache_v = state->v, .sequences = call->sequences, .a = args});

  const struct tensor gated = spec->gate ? oplist_value(list, T, q_cols) : o;
  if (spec->gate) op_glu(list, gated, tensor_cols(projected, gate_from(spec), q_cols), o, ACTIVATION_SIGMOID);
  op_linear(list, output, gated, weights->o_proj, weights->o_bias);
}

static void attention_describe(const void *spec, char *text, size_t capacity) {
  const struct attention_spec *s = spec;
  if (s->window)
    snprintf(text, capacity, "window %u", s->window);
  else
    snprintf(text, capacity, "global");
}

static bool attention_grows(const void *spec) { return ((const struct attention_spec *)spec)->window == 0; }

static void attention_limit(void *spec, uint32_t window) { ((struct attention_spec *)spec)->window = window; }

const struct mixer mixer_attention = {.name = "attention",
                                      .weights_bytes = sizeof(struct attention_weights),
                                      .state_bytes = sizeof(struct attention_state),
                                      .describe = attention_describe,
                                      .grows = attention_grows,
                                      .limit = attention_limit,
                                      .bind = attention_bind,
                                      .state = attention_state,
                                      .forward = attention_forward};
