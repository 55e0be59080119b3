// mixer_delta: DeltaNet and Gated DeltaNet layers (Yang et al. 2024, 2025); with n > 1, DeltaProduct; with r > 1,
// Head-in-Head (docs/mixers.md).
//
//   q, k, v = conv(h Wq), conv(h Wk), conv(h Wv);  beta, g from h;  o = delta_rule(norm(q), norm(k), v, beta, g)
//   y = ([rms](o) [* silu(h Wg)]) Wo
//
// All projections of h are one matrix, for a single product. Its rows are q, k, v, padding, gate, padding, mask logits,
// padding, beta, decay. The padding makes each part's columns start where a descriptor may start.
#include "mixer_delta.h"

#include "mixer.h"

#include <math.h>
#include <stdio.h>

struct delta_weights {
  struct tensor in_proj, in_bias;         // (P, D), (1, P) f32 or absent: only the masks have a bias
  struct tensor mask;                     // (1, Hv * r * r) f32: M of a fixed mask
  struct tensor conv, conv_bias;          // (W, C) f32, (1, C) f32 or absent; C = columns of q, k, v
  struct tensor A_log, dt_bias;           // (1, Hv) f32 when gated
  struct tensor o_norm, o_proj;           // (1, Dv) f32 or absent, (D, Hv * Dv)
  uint32_t gate_from, mask_from, ba_from; // first columns in the projections
};

struct delta_state {
  struct tensor history; // (slots, (W-1) * C), oldest first
  struct tensor S;       // (slots, Hv * Dk * Dv)
};

// Numbers of columns.
struct delta_sizes {
  uint32_t key, value;             // of one householder step
  uint32_t step_keys, step_values; // of all n steps
  uint32_t C, gate, masks, logits, betas, ba;
};

static struct delta_sizes sizes_of(const struct delta_spec *s) {
  struct delta_sizes z;
  z.key = s->H * s->Dk;
  z.value = s->Hv * s->Dv;
  z.step_keys = s->n * z.key;
  z.step_values = s->n * z.value;
  z.C = z.key + z.step_keys + z.step_values;
  z.gate = s->output_gate ? z.value : 0;
  z.masks = s->r > 1 ? s->Hv * s->r * s->r : 0;
  z.logits = s->mask_input ? z.masks : 0;
  z.betas = s->has_beta ? s->n * s->Hv : 0;
  z.ba = z.betas + (s->gated ? s->Hv : 0);
  return z;
}

static uint32_t conv_width(const struct delta_spec *s) { return s->W ? s->W : 1; }

// Without a short convolution: one tap of weight 1, which leaves only the activation.
static void ones_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  (void)context, (void)row;
  for (uint32_t i = 0; i < cols; i++) out[i] = 1.0f;
}

static void bind_conv(const struct delta_spec *s, const struct delta_sizes *z, uint32_t layer, struct weights *w,
                      struct delta_weights *d) {
  if (!s->W) {
    weights_rows(w, &d->conv, 1, z->C, ones_row, "", 0);
    return;
  }
  struct weight_part kernels[1 + 2 * DELTA_STEPS] = {weights_part(w, layer, ROLE_Q_CONV, z->key, s->W)};
  int count = 1;
  count += weights_list(w, layer, ROLE_K_CONV, s->n, z->key, s->W, kernels + count);
  count += weights_list(w, layer, ROLE_V_CONV, s->n, z->value, s->W, kernels + count);
  weights_transposed(w, &d->conv, s->W, kernels, count);
  static const enum role biases[3] = {ROLE_Q_CONV_BIAS, ROLE_K_CONV_BIAS, ROLE_V_CONV_BIAS};
  const uint32_t channels[3] = {z->key, z->step_keys, z->step_values};
  struct weight_part bias[3];
  bool any = false;
  for (int p = 0; p < 3; p++) any |= weights_has(w, layer, biases[p]);
  for (int p = 0; any && p < 3; p++) bias[p] = weights_part(w, layer, biases[p], channels[p], 0);
  if (any) weights_vector(w, &d->conv_bias, bias, 3);
}

struct fixed_mask {
  struct weight_part source;
  uint32_t r;
  enum hh_nonneg nonneg;
};

static void fixed_mask_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct fixed_mask *s = context;
  uint32_t size = s->r * s->r;
  float z[HH_MOST * HH_MOST];
  (void)row;
  for (uint32_t i = 0; i < cols; i += size) {
    weight_part_read(&s->source, i / size, 1, size, z);
    hh_mask(out + i, z, s->r, s->nonneg);
  }
}

static void fixed_mask_back(const void *context, uint32_t cols, const float *d, weight_give give, void *user) {
  const struct fixed_mask *s = context;
  const uint32_t size = s->r * s->r;
  float z[HH_MOST * HH_MOST], dz[HH_MOST * HH_MOST];
  for (uint32_t i = 0; i < cols; i += size) {
    struct weight_part head = s->source; // its one row is the mask of this head
    head.first = weight_part_row(&s->source, i / size);
    head.map = NULL;
    head.rows = 1;
    weight_part_read(&head, 0, 1, size, z);
    hh_mask_back(dz, d + i, z, s->r, s->nonneg);
    give(user, &head, size, dz);
  }
}

struct mask_bias {
  struct weight_part source;
  uint32_t from;
};

static void mask_bias_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct mask_bias *s = context;
  (void)row;
  for (uint32_t i = 0; i < cols; i++) out[i] = 0;
  weight_part_read(&s->source, 0, s->source.rows, 1, out + s->from);
}

static void mask_bias_back(const void *context, uint32_t cols, const float *d, weight_give give, void *user) {
  const struct mask_bias *s = context;
  (void)cols;
  give(user, &s->source, 1, d + s->from);
}

// Binds a fixed mask, or the bias of the projection that computes masks.
static void bind_mask(const struct delta_spec *s, const struct delta_sizes *z, uint32_t layer, struct weights *w,
                      struct delta_weights *d) {
  if (s->mask_input && !weights_has(w, layer, ROLE_MASK_BIAS)) return;
  const struct weight_part source = s->mask_input ? weights_part(w, layer, ROLE_MASK_BIAS, z->masks, 0)
                                                  : weights_part(w, layer, ROLE_MASK_FIXED, s->Hv, s->r * s->r);
  const struct fixed_mask mask = {source, s->r, s->nonneg};
  const struct mask_bias bias = {source, d->mask_from};
  w->parameters += z->masks;
  if (s->mask_input)
    weights_rows(w, &d->in_bias, 1, d->ba_from + z->ba, mask_bias_row, &bias, sizeof bias);
  else
    weights_rows(w, &d->mask, 1, z->masks, fixed_mask_row, &mask, sizeof mask);
  weights_rows_back(w, s->mask_input ? mask_bias_back : fixed_mask_back);
}

static struct weight_part aligned(struct weight_part part, uint32_t align) {
  part.align = align;
  return part;
}

static void delta_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const struct delta_spec *s = spec;
  struct delta_weights *d = weights;
  struct delta_sizes z = sizes_of(s);
  const uint32_t align = TENSOR_ALIGN / sizeof(float);
  struct weight_part in[4 + 3 * DELTA_STEPS] = {weights_part(w, layer, ROLE_Q, z.key, D)};
  int count = 1;
  d->gate_from = (uint32_t)round_up(z.C, align);
  d->mask_from = d->gate_from + (uint32_t)round_up(z.gate, align);
  d->ba_from = d->mask_from + (uint32_t)round_up(z.logits, align);
  count += weights_list(w, layer, ROLE_K, s->n, z.key, D, in + count);
  count += weights_list(w, layer, ROLE_V, s->n, z.value, D, in + count);
  in[count - 1].align = align;
  if (s->output_gate) in[count++] = aligned(weights_part(w, layer, ROLE_GATE, z.gate, D), align);
  if (z.logits) in[count++] = aligned(weights_part(w, layer, ROLE_MASK, z.logits, D), align);
  if (s->has_beta) count += weights_list(w, layer, ROLE_BETA, s->n, s->Hv, D, in + count);
  if (s->gated) in[count++] = weights_part(w, layer, ROLE_DECAY, s->Hv, D);
  weights_matrix(w, &d->in_proj, D, in, count);
  bind_conv(s, &z, layer, w, d);
  if (z.masks) bind_mask(s, &z, layer, w, d);
  if (s->gated) {
    weights_bind_vector(w, &d->A_log, layer, ROLE_A_LOG, s->Hv);
    weights_bind_vector(w, &d->dt_bias, layer, ROLE_STEP_BIAS, s->Hv);
  }
  if (s->output_norm) weights_bind_vector(w, &d->o_norm, layer, ROLE_OUTPUT_NORM, s->Dv);
  weights_bind_matrix(w, &d->o_proj, layer, ROLE_OUTPUT, D, s->Hv * s->Dv);
}

static void delta_state(const void *spec, const struct state_shape *shape, struct arena *arena, void *state,
                        struct state_list *list) {
  const struct delta_spec *s = spec;
  struct delta_state *d = state;
  uint64_t history = (uint64_t)(conv_width(s) - 1) * sizes_of(s).C, S = (uint64_t)s->Hv * s->Dk * s->Dv;
  state_add(arena, &d->history, DTYPE_F32, shape, history);
  state_add(arena, &d->S, DTYPE_F32, shape, S);
  *list = (struct state_list){.entries = {{.tensor = &d->history}, {.tensor = &d->S}}, .count = 2};
}

static struct delta_args rule_args(const struct delta_spec *s) {
  return (struct delta_args){.H = s->H,
                             .Hv = s->Hv,
                             .Dk = s->Dk,
                             .Dv = s->Dv,
                             .n = s->n,
                             .r = s->r,
                             .scale = 1 / sqrtf((float)s->Dk),
                             .gated = s->gated,
                             .fixed_mask = !s->mask_input,
                             .tiled = s->tiled,
                             .nonneg = s->mask_input ? s->nonneg : HH_NONNEG_GIVEN};
}

static struct conv_args conv_args(const struct delta_spec *s) {
  const struct delta_sizes z = sizes_of(s);
  return (struct conv_args){.W = conv_width(s),
                            .C = z.C,
                            .silu_from = s->activation == ACTIVATION_SILU ? 0 : z.key + z.step_keys,
                            .keys = (1 + s->n) * s->H,
                            .Dk = s->Dk};
}

static struct delta_input_args input_args(const struct delta_spec *s) {
  return (struct delta_input_args){.heads = (1 + s->n) * s->H,
                                   .Dk = s->Dk,
                                   .norm = s->norm,
                                   .activation = s->activation == ACTIVATION_SILU ? ACTIVATION_IDENTITY : s->activation,
                                   .betas = s->n * s->Hv,
                                   .decays = s->gated ? s->Hv : 0,
                                   .beta_scale = s->beta_scale,
                                   .has_beta = s->has_beta,
                                   .gated = s->gated};
}

// Records the layer's operations (ops.h defines each). h (T, D) is already normalized, and block.c adds y to the
// residual stream. T: the tokens of all sequences in this call. One token and a prompt record the same list. A tensor
// that is absent (`none`) leaves its operand, output or probe out.
static void delta_forward(const void *spec, const void *weights, const void *state, const struct call *call,
                          struct tensor y, struct tensor h) {
  const struct delta_spec *s = spec;
  const struct delta_weights *w = weights;
  const struct delta_state *st = state;
  const struct delta_sizes sizes = sizes_of(s);
  const struct tensor none = {0};
  const uint32_t T = call->T;
  struct oplist *l = call->l;

  // All projections of h, and views of their columns. qkv_in (T, C): q of H heads, then k of each householder step,
  // then v of each. gate (T, Hv * Dv). ba (T, n * Hv + Hv): the inputs of beta's sigmoid, then those of the decay's
  // softplus (fla's b and a); what the model does not have takes no columns. Head-in-Head only: mask (T, Hv * r^2), r x
  // r logits for every token and head, or one row of finished masks.
  const struct tensor projected = oplist_value(l, T, w->in_proj.rows);
  const struct tensor qkv_in = tensor_cols(projected, 0, sizes.C);
  const struct tensor gate = sizes.gate ? tensor_cols(projected, w->gate_from, sizes.gate) : none;
  const struct tensor mask = sizes.logits ? tensor_cols(projected, w->mask_from, sizes.logits) : w->mask;
  const struct tensor ba = sizes.ba ? tensor_cols(projected, w->ba_from, sizes.ba) : none;
  const struct tensor convolved = oplist_value(l, T, sizes.C);         // (T, C)
  const struct tensor qkv = oplist_value(l, T, sizes.C);               // (T, C): q and k are normalized
  const struct tensor beta = oplist_value(l, T, s->n * s->Hv);         // (T, n * Hv): one a householder step
  const struct tensor g = s->gated ? oplist_value(l, T, s->Hv) : none; // (T, Hv): log of the papers' alpha, one a token
  struct tensor o = oplist_value(l, T, sizes.value);                   // (T, Hv * Dv)

  op_linear(l, projected, h, w->in_proj, w->in_bias);
  // Updates the history and applies SiLU: to q, k and v, or to v alone if q and k have another activation. A model
  // without convolution has one tap of weight 1.
  op_conv(l, &(struct conv){.y = convolved,
                            .x = qkv_in,
                            .weight = w->conv,
                            .bias = w->conv_bias,
                            .history = st->history,
                            .sequences = call->sequences,
                            .a = conv_args(s)});
  op_probe(l, DELTAIC_PROBE_QKV, convolved, T, sizes.C, &call->layer);
  // q and k: the other activation, and the norm (s->norm; L2 by default). beta = beta_scale * sigmoid(b), or beta_scale
  // without b. g = -exp(A_log) * softplus(a + dt_bias).
  op_delta_inputs(l, &(struct delta_inputs){.y = qkv,
                                            .beta = beta,
                                            .g = g,
                                            .x = convolved,
                                            .ba = ba,
                                            .A_log = w->A_log,
                                            .dt_bias = w->dt_bias,
                                            .a = input_args(s)});
  op_probe(l, DELTAIC_PROBE_BETA, beta, T, beta.cols, &call->layer);
  op_probe(l, DELTAIC_PROBE_DECAY, g, T, g.cols, &call->layer);
  // For each token: S <- e^g S; then n times S <- S + k^T beta (v - k S); o = q S / sqrt(Dk). Value head j uses q and k
  // of head j / (Hv / H). With r > 1 the mask says how the r parts of a key act on each other (docs/mixers.md).
  op_delta_rule(l, &(struct delta_rule){.o = o,
                                        .state = st->S,
                                        .qkv = qkv,
                                        .beta = beta,
                                        .g = g,
                                        .mask = mask,
                                        .sequences = call->sequences,
                                        .a = rule_args(s)});
  op_probe(l, DELTAIC_PROBE_STATE, st->S, (size_t)s->Hv * s->Dk, s->Dv, &call->layer);
  // RMS norm of each head, times silu(gate): both, or the one that the model has.
  if (s->output_norm || s->output_gate) {
    const struct tensor normed = oplist_value(l, T, sizes.value);
    op_gated_norm(l, &(struct gated_norm){.y = normed,
                                          .x = o,
                                          .gate = gate,
                                          .weight = w->o_norm,
                                          .groups = s->Hv,
                                          .n = s->Dv,
                                          .place = s->output_norm ? NORM_FIRST : NORM_ABSENT,
                                          .eps = s->norm_eps});
    o = normed;
  }
  op_probe(l, DELTAIC_PROBE_HEADS, o, T, sizes.value, &call->layer);
  op_linear(l, y, o, w->o_proj, none);
}

static void delta_describe(const void *spec, char *text, size_t capacity) {
  const struct delta_spec *s = spec;
  if (s->n > 1)
    snprintf(text, capacity, "%u householder steps", s->n);
  else if (s->r > 1)
    snprintf(text, capacity, "%u heads in a head, masks %s", s->r, s->mask_input ? "from the input" : "static");
  else if (capacity)
    text[0] = 0;
}

static bool delta_grows(const void *spec) {
  (void)spec;
  return false;
}

static void delta_sizes(const void *spec, struct mixer_sizes *sizes) {
  const struct delta_spec *s = spec;
  *sizes =
      (struct mixer_sizes){.heads = s->H, .value_heads = s->Hv, .key_size = s->Dk, .value_size = s->Dv, .steps = s->n};
}

#define DELTA_MIXER(text)                                                                                              \
  {                                                                                                                    \
    .name = text, .weights_bytes = sizeof(struct delta_weights), .state_bytes = sizeof(struct delta_state),            \
    .describe = delta_describe, .grows = delta_grows, .sizes = delta_sizes, .bind = delta_bind, .state = delta_state,  \
    .forward = delta_forward                                                                                           \
  }

const struct mixer mixer_delta_net = DELTA_MIXER("delta_net");
const struct mixer mixer_gated_deltanet = DELTA_MIXER("gated_deltanet");
const struct mixer mixer_delta_product = DELTA_MIXER("delta_product");
const struct mixer mixer_gated_delta_product = DELTA_MIXER("gated_delta_product");
