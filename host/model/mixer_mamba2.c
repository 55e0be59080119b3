// mixer_mamba2: Mamba-2 layers (Dao and Gu 2024; docs/mixers.md).
//
//   z, xBC, raw = input Win;  xBC = silu(conv(xBC));  dt, g from raw;  o = mamba2(xBC, dt, g) with the skip D x
//   output = norm(o, gate z) Wout
//
// The checkpoint's projection has the rows z, xBC, raw. Ours has zero rows between them, which align the columns of
// each to the start of a descriptor.
#include "mixer_mamba2.h"

#include "mixer.h"

struct mamba2_weights {
  struct tensor in_proj, in_bias;   // (rows, D), (1, rows) f32 or absent
  struct tensor conv, conv_bias;    // (W, C) f32, (1, C) f32 or absent; C = columns of xBC
  struct tensor A_log, dt_bias, D;  // (1, heads) f32, the same, (1, heads) or (1, E) f32
  struct tensor norm;               // (1, E) f32 or absent
  struct tensor out_proj, out_bias; // (D, E), (1, D) f32 or absent
  uint32_t xBC_from, dt_from;       // first columns in the projections
};

struct mamba2_state {
  struct tensor history; // (slots, (W-1) * C), oldest first
  struct tensor S;       // (slots, heads * N * P)
};

static uint32_t inner(const struct mamba2_spec *s) { return s->heads * s->P; }
static uint32_t channels(const struct mamba2_spec *s) { return inner(s) + 2 * s->groups * s->N; }

// The projection's bias, with the same padding as its rows.
struct bias_source {
  struct weight_part parts[3];
  uint32_t from[3];
};

static void bias_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct bias_source *s = context;
  (void)row, (void)cols;
  for (int p = 0; p < 3; p++) weight_part_read(&s->parts[p], 0, s->parts[p].rows, 1, out + s->from[p]);
}

static void bias_back(const void *context, uint32_t cols, const float *d, weight_give give, void *user) {
  const struct bias_source *s = context;
  (void)cols;
  for (int p = 0; p < 3; p++) give(user, &s->parts[p], 1, d + s->from[p]);
}

static void bind_in_proj(const struct mamba2_spec *s, uint32_t layer, uint32_t D, struct weights *w,
                         struct mamba2_weights *m) {
  static const enum role roles[3] = {ROLE_Z, ROLE_XBC, ROLE_DT}, biases[3] = {ROLE_Z_BIAS, ROLE_XBC_BIAS, ROLE_DT_BIAS};
  const uint32_t align = TENSOR_ALIGN / sizeof(float), rows[3] = {inner(s), channels(s), s->heads};
  m->xBC_from = (uint32_t)round_up(rows[0], align);
  m->dt_from = m->xBC_from + (uint32_t)round_up(rows[1], align);
  struct weight_part in[3];
  struct bias_source bias = {.from = {0, m->xBC_from, m->dt_from}};
  for (int p = 0; p < 3; p++) {
    in[p] = weights_part(w, layer, roles[p], rows[p], D);
    in[p].align = p < 2 ? align : 0;
    if (s->bias) bias.parts[p] = weights_part(w, layer, biases[p], rows[p], 0);
    if (s->bias) w->parameters += rows[p];
  }
  weights_matrix(w, &m->in_proj, D, in, 3);
  if (!s->bias) return;
  weights_rows(w, &m->in_bias, 1, m->dt_from + s->heads, bias_row, &bias, sizeof bias);
  weights_rows_back(w, bias_back);
}

static void mamba2_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const struct mamba2_spec *s = spec;
  struct mamba2_weights *m = weights;
  const uint32_t E = inner(s), C = channels(s);
  bind_in_proj(s, layer, D, w, m);
  const struct weight_part conv = weights_part(w, layer, ROLE_CONV, C, s->W);
  weights_transposed(w, &m->conv, s->W, &conv, 1);
  if (s->conv_bias) weights_bind_vector(w, &m->conv_bias, layer, ROLE_CONV_BIAS, C);
  weights_bind_vector(w, &m->A_log, layer, ROLE_A_LOG, s->heads);
  weights_bind_vector(w, &m->dt_bias, layer, ROLE_STEP_BIAS, s->heads);
  weights_bind_vector(w, &m->D, layer, ROLE_SKIP, s->D_per_element ? E : s->heads);
  if (s->norm_place != NORM_ABSENT) weights_bind_vector(w, &m->norm, layer, ROLE_OUTPUT_NORM, E);
  weights_bind_matrix(w, &m->out_proj, layer, ROLE_OUTPUT, D, E);
  if (s->bias) weights_bind_vector(w, &m->out_bias, layer, ROLE_OUTPUT_BIAS, D);
}

static void mamba2_state(const void *spec, const struct state_shape *shape, struct arena *arena, void *state,
                         struct state_list *list) {
  const struct mamba2_spec *s = spec;
  struct mamba2_state *m = state;
  uint64_t history = (uint64_t)(s->W - 1) * channels(s), S = (uint64_t)inner(s) * s->N;
  state_add(arena, &m->history, DTYPE_F32, shape, history);
  state_add(arena, &m->S, DTYPE_F32, shape, S);
  *list = (struct state_list){.entries = {{.tensor = &m->history}, {.tensor = &m->S}}, .count = 2};
}

// Records the layer's operations, in the order of the equations. Sizes: T tokens, heads of P elements, E = heads * P,
// groups of heads that share B and C of N elements.
//
//   z          (T, E)               the input of the output's gate
//   xBC        (T, E + 2*groups*N)  x of each head, then B and C of each group
//   raw        (T, heads)           what the step size dt is computed from
//   convolved  (T, E + 2*groups*N)  xBC after convolution and SiLU
//   dt, g      (T, heads)           step sizes; logarithms of the decay
//   o, normed  (T, E)               what the heads read from their states; the same after norm and gate
static void mamba2_forward(const void *layer_spec, const void *layer_weights, const void *layer_state,
                           const struct call *call, struct tensor output, struct tensor input) {
  const struct mamba2_spec *spec = layer_spec;
  const struct mamba2_weights *weights = layer_weights;
  const struct mamba2_state *state = layer_state;
  const uint32_t T = call->T, C = channels(spec), E = inner(spec);
  struct oplist *list = call->l;

  // One product computes all projections of the input. Each part is a view of its columns.
  const struct tensor projected = oplist_value(list, T, weights->in_proj.rows);
  const struct tensor z = tensor_cols(projected, 0, E);
  const struct tensor xBC = tensor_cols(projected, weights->xBC_from, C);
  const struct tensor raw = tensor_cols(projected, weights->dt_from, spec->heads);
  op_linear(list, projected, input, weights->in_proj, weights->in_bias);

  const struct tensor convolved = oplist_value(list, T, C);
  op_conv(list, &(struct conv){.y = convolved,
                               .history = state->history,
                               .x = xBC,
                               .weight = weights->conv,
                               .bias = weights->conv_bias,
                               .sequences = call->sequences,
                               .a = {.W = spec->W, .C = C, .silu_from = 0}});

  const struct tensor dt = oplist_value(list, T, spec->heads), g = oplist_value(list, T, spec->heads);
  op_mamba2_inputs(list, &(struct mamba2_inputs){.dt = dt,
                                                 .g = g,
                                                 .raw = raw,
                                                 .A_log = weights->A_log,
                                                 .dt_bias = weights->dt_bias,
                                                 .low = spec->dt_low,
                                                 .high = spec->dt_high});
  op_probe(list, DELTAIC_PROBE_DECAY, g, T, spec->heads, &call->probed_layer);

  const struct tensor o = oplist_value(list, T, E);
  op_mamba2(list, &(struct mamba2){.y = o,
                                   .state = state->S,
                                   .xBC = convolved,
                                   .dt = dt,
                                   .g = g,
                                   .D = weights->D,
                                   .sequences = call->sequences,
                                   .a = {.heads = spec->heads,
                                         .P = spec->P,
                                         .N = spec->N,
                                         .groups = spec->groups,
                                         .D_per_element = spec->D_per_element}});
  op_probe(list, DELTAIC_PROBE_STATE, state->S, (size_t)spec->heads * spec->N, spec->P, &call->probed_layer);

  const struct tensor normed = oplist_value(list, T, E);
  op_gated_norm(list, &(struct gated_norm){.y = normed,
                                           .x = o,
                                           .gate = z,
                                           .weight = weights->norm,
                                           .groups = spec->groups,
                                           .group_cols = E / spec->groups,
                                           .place = spec->norm_place,
                                           .eps = spec->norm_eps});
  op_probe(list, DELTAIC_PROBE_HEADS, normed, T, E, &call->probed_layer);
  op_linear(list, output, normed, weights->out_proj, weights->out_bias);
}

static void mamba2_describe(const void *spec, char *text, size_t capacity) {
  (void)spec;
  if (capacity) text[0] = 0;
}

static bool mamba2_grows(const void *spec) {
  (void)spec;
  return false;
}

static void mamba2_sizes(const void *spec, struct mixer_sizes *sizes) {
  const struct mamba2_spec *s = spec;
  *sizes = (struct mixer_sizes){
      .heads = s->groups, .value_heads = s->heads, .key_size = s->N, .value_size = s->P, .steps = 1};
}

const struct mixer mixer_mamba2 = {.name = "mamba2",
                                   .weights_bytes = sizeof(struct mamba2_weights),
                                   .state_bytes = sizeof(struct mamba2_state),
                                   .describe = mamba2_describe,
                                   .grows = mamba2_grows,
                                   .sizes = mamba2_sizes,
                                   .bind = mamba2_bind,
                                   .state = mamba2_state,
                                   .forward = mamba2_forward};
