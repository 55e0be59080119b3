// mixer_attention: softmax attention with rotary positions, global or over a sliding window (docs/mixers.md).
#include "mixer_attention.h"

#include "mixer.h"

#include <math.h>
#include <stdio.h>

static const float QK_NORM_EPS = 1e-5f; // fla leaves it at its RMSNorm's default; norm_eps is not passed on

struct attention_weights {
  struct tensor qkv, bias; // ((heads + 2 kv_heads) * d, D); (1, the same) or absent
  struct tensor norm;      // (1, (heads + kv_heads) * d): the weight of each head's norm; absent without
  struct tensor o_proj;    // (D, heads * d)
  struct tensor rotation;  // (ROPE_ROWS, rotary); absent without
};

struct attention_state {
  struct tensor k, v; // (B, capacity * kv_heads * d)
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

// One weight for all queries, one for all keys: each as often as there are heads.
struct norm_sources {
  struct weight_part q, k;
  uint32_t heads, d;
};

static void norm_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct norm_sources *s = context;
  (void)row;
  for (uint32_t i = 0; i < cols; i += s->d) weight_part_read(i < s->heads * s->d ? &s->q : &s->k, 0, s->d, 1, out + i);
}

static void bind_norm(const struct attention_spec *s, uint32_t layer, struct weights *w, struct attention_weights *a) {
  const struct norm_sources sources = {.q = weights_part(w, layer, ROLE_Q_NORM, s->d, 0),
                                       .k = weights_part(w, layer, ROLE_K_NORM, s->d, 0),
                                       .heads = s->heads,
                                       .d = s->d};
  weights_rows(w, &a->norm, 1, (s->heads + s->kv_heads) * s->d, norm_row, &sources, sizeof sources);
  w->parameters += 2 * s->d;
}

static void attention_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const struct attention_spec *s = spec;
  struct attention_weights *a = weights;
  const uint32_t q = s->heads * s->d, kv = s->kv_heads * s->d;
  const struct weight_part in[3] = {weights_part(w, layer, ROLE_Q, q, D), weights_part(w, layer, ROLE_K, kv, D),
                                    weights_part(w, layer, ROLE_V, kv, D)};
  weights_matrix(w, &a->qkv, D, in, 3);
  if (s->bias) {
    const struct weight_part bias[3] = {weights_part(w, layer, ROLE_Q_BIAS, q, 0),
                                        weights_part(w, layer, ROLE_K_BIAS, kv, 0),
                                        weights_part(w, layer, ROLE_V_BIAS, kv, 0)};
    weights_vector(w, &a->bias, bias, 3);
  }
  if (s->qk_norm) bind_norm(s, layer, w, a);
  weights_bind_matrix(w, &a->o_proj, layer, ROLE_OUTPUT, D, q);
  struct rotation r = {.theta = s->rope_theta};
  if (s->rotary) weights_rows(w, &a->rotation, ROPE_ROWS, s->rotary, rotation_row, &r, sizeof r);
}

// A window's cache also holds the tokens of one call: its first query still sees window - 1 positions before it.
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

struct attention_scratch {
  struct tensor qkv, o; // (T, (heads + 2 kv_heads) * d), (T, heads * d)
  struct tensor parts;
};

static struct attention_scratch take(const struct attention_spec *s, struct backend *b, struct scratch *scratch,
                                     uint32_t T, uint32_t B, struct attention_args a) {
  struct attention_scratch t;
  t.qkv = scratch_take(scratch, T, (s->heads + 2 * s->kv_heads) * s->d);
  t.o = scratch_take(scratch, T, s->heads * s->d);
  t.parts = scratch_take_bytes(scratch, b->ops->attention_scratch_bytes(b, B, a));
  return t;
}

static struct attention_args args_of(const struct attention_spec *s, uint32_t capacity, uint32_t longest) {
  return (struct attention_args){.heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .d = s->d,
                                 .window = s->window,
                                 .capacity = capacity,
                                 .longest = longest};
}

// For caches of any capacity.
static void attention_measure(const void *spec, const void *weights, struct backend *b, struct scratch *measure,
                              uint32_t T, uint32_t B) {
  (void)weights;
  take(spec, b, measure, T, B, args_of(spec, UINT32_MAX, 0));
}

static void attention_forward(const void *spec, const void *weights, const void *state, struct call *call,
                              struct tensor x, struct linear_input in) {
  const struct attention_spec *s = spec;
  const struct attention_weights *w = weights;
  const struct attention_state *st = state;
  struct recorder *c = call->c;
  const struct ops *op = c->ops;
  const struct attention_args args = args_of(s, st->k.cols / (s->kv_heads * s->d), call->longest);
  struct attention_scratch t = take(s, c->backend, &call->scratch, call->T, call->sequences.rows, args);
  t.o = tensor_as(t.o, call->probe ? DTYPE_F32 : op->input_dtype(c, w->o_proj, call->T));
  op->linear(c, t.qkv, in, w->qkv, w->bias, false);
  if (s->qk_norm) {
    const uint32_t heads = s->heads + s->kv_heads;
    op->output_norm(c, tensor_cols(t.qkv, 0, heads * s->d), (struct tensor){0}, w->norm, heads, QK_NORM_EPS);
  }
  op->rope_append(c, t.qkv, st->k, st->v, w->rotation, call->sequences, t.parts, args);
  op->attention(c, t.o, t.qkv, st->k, st->v, call->sequences, t.parts, args);
  op->linear_residual(c, x, (struct linear_input){.x = t.o}, w->o_proj, (struct tensor){0}, call->next);
}

static void attention_describe(const void *spec, char *text, size_t capacity) {
  const struct attention_spec *s = spec;
  if (s->window)
    snprintf(text, capacity, "window %u", s->window);
  else
    snprintf(text, capacity, "global");
}

static bool attention_grows(const void *spec) { return ((const struct attention_spec *)spec)->window == 0; }

static void attention_see(void *spec, uint32_t window) { ((struct attention_spec *)spec)->window = window; }

const struct mixer mixer_attention = {.name = "attention",
                                      .weights_bytes = sizeof(struct attention_weights),
                                      .state_bytes = sizeof(struct attention_state),
                                      .describe = attention_describe,
                                      .grows = attention_grows,
                                      .see = attention_see,
                                      .bind = attention_bind,
                                      .state = attention_state,
                                      .scratch = attention_measure,
                                      .forward = attention_forward};
