// mixer_delta: DeltaNet and Gated DeltaNet layers (Yang et al. 2024, 2025); with n > 1, DeltaProduct; with r > 1,
// Head-in-Head (docs/mixers.md).
//
//   q, k, v = conv(input Wq), conv(input Wk), conv(input Wv);  beta, g from input
//   o = delta_rule(norm([act] q), norm([act] k), v, beta, g);  output = (o [/ rms(o) * o_norm] [* silu(input Wg)]) Wo
//
// conv ends with SiLU, for q and k only if they have no other activation act. delta_rule scales q by 1 / sqrt(Dk).
//
// Sizes have the letters of docs/mixers.md: T tokens, D width of the model, H query and key heads of Dk elements, Hv
// value heads of Dv, n householder steps per token, r blocks of a head with a mask between them, W taps of convolution.
//
// All projections of the input are one matrix, for a single op_linear(). Its rows are q, k, v, padding, gate, padding,
// mask logits, padding, beta, decay. The padding makes the columns after it start where a descriptor may start. The
// decay needs none: op_delta_inputs reads beta and the decay as one view.
#include "mixer_delta.h"
#include "mixer.h"

#include <math.h>
#include <stdio.h>

// Zeroed before delta_bind(): what it does not bind is absent.
struct delta_weights {
  struct tensor in_proj, in_bias; // (rows, D), (1, rows) f32 or absent: only the masks have a bias
  struct tensor mask;             // (1, Hv * r * r) f32: M of a fixed mask
  struct tensor conv, conv_bias;  // (conv_width(), columns.qkv) f32, (1, columns.qkv) f32 or absent
  struct tensor A_log, dt_bias;   // (1, Hv) f32 when gated
  struct tensor o_norm, o_proj;   // (1, Dv) f32 or absent, (D, Hv * Dv)
  uint32_t gate_from, mask_from;  // first columns in the projections
  uint32_t beta_decay_from;       // likewise: what beta and the decay are computed from
};

struct delta_state {
  struct tensor history; // (slots, (conv_width() - 1) * columns.qkv), oldest token first
  struct tensor S;       // (slots, Hv * Dk * Dv)
};

// Numbers of columns; 0 for what the layer does not have.
struct delta_columns {
  uint32_t key, value;             // of one householder step: H * Dk (q has as many), Hv * Dv (o has as many)
  uint32_t step_keys, step_values; // of all n steps
  uint32_t qkv;                    // q, step_keys and step_values: the channels of the convolution
  uint32_t gate;                   // of the output gate
  uint32_t masks;                  // of Head-in-Head's masks
  uint32_t mask_logits;            // of the masks that are computed from the input
  uint32_t beta;                   // n * Hv: one per householder step and head
  uint32_t decay;                  // Hv: one per head
  uint32_t beta_decay;             // beta, then decay
};

static struct delta_columns columns_of(const struct delta_spec *s) {
  struct delta_columns columns;
  columns.key = s->H * s->Dk;
  columns.value = s->Hv * s->Dv;
  columns.step_keys = s->n * columns.key;
  columns.step_values = s->n * columns.value;
  columns.qkv = columns.key + columns.step_keys + columns.step_values;
  columns.gate = s->output_gate ? columns.value : 0;
  columns.masks = s->r > 1 ? s->Hv * s->r * s->r : 0;
  columns.mask_logits = s->mask_input ? columns.masks : 0;
  columns.beta = s->has_beta ? s->n * s->Hv : 0;
  columns.decay = s->gated ? s->Hv : 0;
  columns.beta_decay = columns.beta + columns.decay;
  return columns;
}

static uint32_t conv_width(const struct delta_spec *s) { return s->W ? s->W : 1; }
// Without a short convolution: one tap of weight 1, which leaves only the activation.
static void ones_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  (void)context, (void)row;
  for (uint32_t i = 0; i < cols; i++) out[i] = 1.0f;
}

static void bind_conv(const struct delta_spec *s, const struct delta_columns *columns, uint32_t layer,
                      struct weights *w, struct delta_weights *d) {
  if (!s->W) {
    weights_rows(w, &d->conv, 1, columns->qkv, ones_row, "", 0);
    return;
  }
  struct weight_part kernels[1 + 2 * DELTA_STEPS] = {weights_part(w, layer, ROLE_Q_CONV, columns->key, s->W)};
  int count = 1;
  count += weights_list(w, layer, ROLE_K_CONV, s->n, columns->key, s->W, kernels + count);
  count += weights_list(w, layer, ROLE_V_CONV, s->n, columns->value, s->W, kernels + count);
  weights_transposed(w, &d->conv, s->W, kernels, count);
  static const enum role biases[3] = {ROLE_Q_CONV_BIAS, ROLE_K_CONV_BIAS, ROLE_V_CONV_BIAS};
  const uint32_t channels[3] = {columns->key, columns->step_keys, columns->step_values};
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
static void bind_mask(const struct delta_spec *s, const struct delta_columns *columns, uint32_t layer,
                      struct weights *w, struct delta_weights *d) {
  if (s->mask_input && !weights_has(w, layer, ROLE_MASK_BIAS)) return;
  const struct weight_part source = s->mask_input ? weights_part(w, layer, ROLE_MASK_BIAS, columns->masks, 0)
                                                  : weights_part(w, layer, ROLE_MASK_FIXED, s->Hv, s->r * s->r);
  const struct fixed_mask mask = {source, s->r, s->nonneg};
  const struct mask_bias bias = {source, d->mask_from};
  w->parameters += columns->masks;
  if (s->mask_input)
    weights_rows(w, &d->in_bias, 1, d->beta_decay_from + columns->beta_decay, mask_bias_row, &bias, sizeof bias);
  else
    weights_rows(w, &d->mask, 1, columns->masks, fixed_mask_row, &mask, sizeof mask);
  weights_rows_back(w, s->mask_input ? mask_bias_back : fixed_mask_back);
}

static struct weight_part aligned(struct weight_part part, uint32_t align) {
  part.align = align;
  return part;
}

static void delta_bind(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights) {
  const struct delta_spec *s = spec;
  struct delta_weights *d = weights;
  struct delta_columns columns = columns_of(s);
  const uint32_t align = TENSOR_ALIGN / sizeof(float);
  struct weight_part in[4 + 3 * DELTA_STEPS] = {weights_part(w, layer, ROLE_Q, columns.key, D)};
  int count = 1;
  d->gate_from = (uint32_t)round_up(columns.qkv, align);
  d->mask_from = d->gate_from + (uint32_t)round_up(columns.gate, align);
  d->beta_decay_from = d->mask_from + (uint32_t)round_up(columns.mask_logits, align);
  count += weights_list(w, layer, ROLE_K, s->n, columns.key, D, in + count);
  count += weights_list(w, layer, ROLE_V, s->n, columns.value, D, in + count);
  in[count - 1].align = align;
  if (s->output_gate) in[count++] = aligned(weights_part(w, layer, ROLE_GATE, columns.gate, D), align);
  if (columns.mask_logits) in[count++] = aligned(weights_part(w, layer, ROLE_MASK, columns.mask_logits, D), align);
  if (s->has_beta) count += weights_list(w, layer, ROLE_BETA, s->n, s->Hv, D, in + count);
  if (s->gated) in[count++] = weights_part(w, layer, ROLE_DECAY, s->Hv, D);
  weights_matrix(w, &d->in_proj, D, in, count);
  bind_conv(s, &columns, layer, w, d);
  if (columns.masks) bind_mask(s, &columns, layer, w, d);
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
  uint64_t history = (uint64_t)(conv_width(s) - 1) * columns_of(s).qkv, S = (uint64_t)s->Hv * s->Dk * s->Dv;
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
                             .fixed_mask = !s->mask_input, // without effect if r = 1
                             .tiled = s->tiled,
                             .nonneg = s->mask_input ? s->nonneg : HH_NONNEG_GIVEN};
}

static struct conv_args conv_args(const struct delta_spec *s) {
  const struct delta_columns columns = columns_of(s);
  return (struct conv_args){.W = conv_width(s),
                            .C = columns.qkv,
                            .silu_from = s->activation == ACTIVATION_SILU ? 0 : columns.key + columns.step_keys,
                            .heads = (1 + s->n) * s->H,
                            .Dk = s->Dk};
}

// If the activation of q and k is SiLU, op_conv has applied it. Otherwise op_delta_inputs applies theirs.
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

// Records the layer's operations, in the order of the equations. ops.h defines each operation; a backend runs them
// later. Views may be made first; only the order of the op_*() calls counts. One token and a prompt record the same
// operations; the sizes differ. A list of single tokens may be recorded once and run for many, so nothing here may
// depend on a position: that is in call->sequences. Training runs the same list backwards, so each operation has a
// backward pass (docs/backward.md). The Vulkan backend may run neighbouring operations as one kernel (lower.c has the
// rules). An operation between them, or another reader of their values, costs speed and changes no result beyond
// rounding.
//
// oplist_value(list, rows, columns) declares a temporary tensor, which one operation writes and later ones read. Its
// memory is the backend's choice (oplist.h). A value is f32. A backend may store two pairs as f16 (lower_values.c):
// convolved and normed_qkv if the delta rule multiplies f16 matrices, with padding after each query and key, and o and
// normed if the output projection does. tensor_cols(t, first, count) is a view of columns; a value with views stays
// f32. What the layer does not have is absent: a zeroed tensor, such as `none`, which operations and probes leave out.
//
// op_probe() shows a tensor to the library's caller, with rows and columns as the caller sees them. It records nothing
// unless the caller asked for this kind. Tokens that deltaic_session_next() draws are not probed.
//
//   input       (T, D)            from block.c, which computes the norm, before the mixer or after it. One row for each
//                                 token; sequence after sequence
//   qkv_in      (T, columns.qkv)  q of H heads; k of H heads, step after step; v of Hv heads, step after step
//   gate        (T, Hv * Dv)      input of the output gate's SiLU
//   beta_decay  (T, n * Hv + Hv)  inputs of beta's sigmoid, then of the decay's softplus; no columns for what is absent
//   mask        (T, Hv * r * r)   Head-in-Head's; absent if r = 1. For each head r rows of r columns: the logits of
//                                 every token's mask, or, if it is fixed, M itself, in one row for all tokens
//   convolved   (T, columns.qkv)  qkv_in after convolution; v, and q and k if spec->activation is SiLU, also after SiLU
//   normed_qkv  (T, columns.qkv)  convolved; q and k after their other activation, if any, and their norm
//   beta        (T, n * Hv)       step after step, Hv each: column step * Hv + head, from 0
//   g           (T, Hv)           logarithm of the papers' decay alpha, one per token and head
//   o           (T, Hv * Dv)      what the heads read from their states
//   normed      (T, Hv * Dv)      o after the output norm and gate
//   output      (T, D)            block.c adds it, or its norm, to the residual stream
//
// A call is one slice. A long prompt takes several, each from the states that the one before it left.
//
//   call->sequences (B, 4)        struct sequence (control.h): first row, number of rows, position (tokens before this
//                                 slice), slot (row of the states). Together they have all T rows; no slot occurs twice
//   state->S                      for each slot: Hv matrices (Dk, Dv)
//   state->history                for each slot: the last W - 1 rows of qkv_in, the oldest first; no columns if W < 2
//
// Both are zero in a new session and after a reset (session.c: all slots; state.c: one). layer_state is const because
// it has the tensors only. The list changes the memory behind them.
static void delta_forward(const void *layer_spec, const void *layer_weights, const void *layer_state,
                          const struct call *call, struct tensor output, struct tensor input) {
  const struct delta_spec *spec = layer_spec;
  const struct delta_weights *weights = layer_weights;
  const struct delta_state *state = layer_state;
  const struct delta_columns columns = columns_of(spec);
  const struct tensor none = {0};
  const uint32_t T = call->T;
  struct oplist *list = call->l;

  // One operation computes all projections of the input: projected = input in_proj^T (+ in_bias). in_proj has a row for
  // each column of projected, padding included. Each part is a view of columns.
  const struct tensor projected = oplist_value(list, T, weights->in_proj.rows);
  const struct tensor qkv_in = tensor_cols(projected, 0, columns.qkv);
  const struct tensor gate = spec->output_gate ? tensor_cols(projected, weights->gate_from, columns.gate) : none;
  const struct tensor mask =
      columns.mask_logits ? tensor_cols(projected, weights->mask_from, columns.mask_logits) : weights->mask;
  const struct tensor beta_decay =
      columns.beta_decay ? tensor_cols(projected, weights->beta_decay_from, columns.beta_decay) : none;
  op_linear(list, projected, input, weights->in_proj, weights->in_bias);

  // The short convolution: reads and updates the history, and applies SiLU to v, and also to q and k unless
  // spec->activation is another one, identity included (conv_args, silu_from). The last row of weights->conv is the
  // weight of the token itself, the first that of the oldest. A layer without convolution has one row of ones.
  const struct tensor convolved = oplist_value(list, T, columns.qkv);
  op_conv(list, &(struct conv){.y = convolved,
                               .history = state->history,
                               .x = qkv_in,
                               .weight = weights->conv,
                               .bias = weights->conv_bias,
                               .sequences = call->sequences,
                               .a = conv_args(spec)});
  // The probe sees q and k before their norm, and after SiLU only if that is their activation. A probe is a reader that
  // does not round, so it sees f32, without padding.
  op_probe(list, DELTAIC_PROBE_QKV, convolved, T, convolved.cols, &call->probed_layer);

  // q and k: the other activation if they have one, then the norm of each head (spec->norm, usually L2; ops.h).
  // beta = beta_scale * sigmoid(its columns of beta_decay), or beta_scale for every token if the layer has no beta
  // projection. beta always exists. beta_scale is 1, or 2 if eigenvalues may be negative.
  // g = -exp(A_log) * softplus(its columns of beta_decay + dt_bias). g is absent if the layer has no decay.
  const struct tensor normed_qkv = oplist_value(list, T, columns.qkv);
  const struct tensor beta = oplist_value(list, T, spec->n * spec->Hv);
  const struct tensor g = spec->gated ? oplist_value(list, T, spec->Hv) : none;
  op_delta_inputs(list, &(struct delta_inputs){.y = normed_qkv,
                                               .beta = beta,
                                               .g = g,
                                               .x = convolved,
                                               .ba = beta_decay, // named after fla's projections b and a
                                               .A_log = weights->A_log,
                                               .dt_bias = weights->dt_bias,
                                               .a = input_args(spec)});
  op_probe(list, DELTAIC_PROBE_BETA, beta, T, beta.cols, &call->probed_layer);
  op_probe(list, DELTAIC_PROBE_DECAY, g, T, g.cols, &call->probed_layer);

  // The delta rule. q, k and v of a head are row vectors, so k^T v is (Dk, Dv). For each token: S <- e^g S (g = 0 if
  // absent); then for each householder step S <- S + k^T beta (v - k S); then o = q S / sqrt(Dk) (rule_args, scale).
  // Value head j uses q and k of head j / (Hv / H), or of head j mod H if spec->tiled. Hv is a multiple of H.
  // With r > 1, n is 1, k has r blocks of elements and S has r blocks of rows; M_ab scales what block b reads (k_b S_b)
  // in the update of block a (docs/mixers.md). op_delta_rule computes M from the logits; a fixed mask already is M.
  const struct tensor o = oplist_value(list, T, columns.value);
  op_delta_rule(list, &(struct delta_rule){.o = o,
                                           .state = state->S,
                                           .qkv = normed_qkv,
                                           .beta = beta,
                                           .g = g,
                                           .mask = mask,
                                           .sequences = call->sequences,
                                           .a = rule_args(spec)});
  // The probe sees S after the slice's last token. Probes need a session with one sequence (evaluate.c checks it), so S
  // has one slot. The caller sees the slot's row as Hv * Dk rows of Dv.
  op_probe(list, DELTAIC_PROBE_STATE, state->S, (size_t)spec->Hv * spec->Dk, spec->Dv, &call->probed_layer);

  // For each of Hv groups of Dv columns, NORM_FIRST: normed = o / rms(o) * o_norm [* silu(gate)]; NORM_ABSENT: normed =
  // o * silu(gate). rms(o) = sqrt(mean(o^2) + spec->norm_eps). All groups share o_norm, which has Dv weights. Without
  // norm and gate, normed is o.
  const bool norm_or_gate = spec->output_norm || spec->output_gate;
  const struct tensor normed = norm_or_gate ? oplist_value(list, T, columns.value) : o;
  if (norm_or_gate)
    op_gated_norm(list, &(struct gated_norm){.y = normed,
                                             .x = o,
                                             .gate = gate,
                                             .weight = weights->o_norm,
                                             .groups = spec->Hv,
                                             .group_cols = spec->Dv,
                                             .place = spec->output_norm ? NORM_FIRST : NORM_ABSENT,
                                             .eps = spec->norm_eps});
  op_probe(list, DELTAIC_PROBE_HEADS, normed, T, normed.cols, &call->probed_layer);
  op_linear(list, output, normed, weights->o_proj, none);
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
