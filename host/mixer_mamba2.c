// mixer_mamba2: Mamba-2 layers (Dao and Gu 2024; docs/mixers.md).
//
//   z, xBC, dt = x Win;  xBC = silu(conv(xBC));  dt, g from dt;  y = mamba2(xBC, dt, g) with the skip D x
//   out = norm(y, gate z) Wout
//
// The checkpoint's one projection has rows z, xBC, dt. Ours has zero rows between them, so that the columns of each
// start where a descriptor may start.
#include "mixer_mamba2.h"

#include "mixer.h"
#include "probe.h"

struct mamba2_weights {
  struct tensor in_proj, in_bias;   // (rows, D), (1, rows) f32 or absent
  struct tensor conv, conv_bias;    // (W, C) f32, (1, C) f32 or absent; C = columns of xBC
  struct tensor A_log, dt_bias, D;  // (1, heads) f32, the same, (1, heads) or (1, E) f32
  struct tensor norm;               // (1, E) f32 or absent
  struct tensor out_proj, out_bias; // (D, E), (1, D) f32 or absent
  uint32_t xBC_from, dt_from;       // columns of the projection
};

struct mamba2_state {
  struct tensor history; // (B, (W-1) * C), oldest first
  struct tensor S;       // (B, heads * N * P)
};

static uint32_t inner(const struct mamba2_spec *s) { return s->heads * s->P; }
static uint32_t channels(const struct mamba2_spec *s) { return inner(s) + 2 * s->groups * s->N; }

// The projection's bias with the same gaps as its rows.
struct bias_source {
  struct weight_part parts[3];
  uint32_t from[3];
};

static void bias_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  const struct bias_source *s = context;
  (void)row, (void)cols;
  for (int p = 0; p < 3; p++) weight_part_read(&s->parts[p], 0, s->parts[p].rows, 1, out + s->from[p]);
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
  if (s->bias) weights_rows(w, &m->in_bias, 1, m->dt_from + s->heads, bias_row, &bias, sizeof bias);
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

// Everything that forward puts into scratch, in order: also how the scratch is measured.
struct mamba2_scratch {
  struct tensor p, xBC, dt, g, y, scan; // (T, rows), (T, C), (T, heads), (T, heads), (T, E)
};

static struct mamba2_args scan_args(const struct mamba2_spec *s, const struct call *call, enum matrices matrices) {
  return (struct mamba2_args){.heads = s->heads,
                              .P = s->P,
                              .N = s->N,
                              .groups = s->groups,
                              .D_per_element = s->D_per_element,
                              .form = call->form,
                              .matrices = matrices,
                              .longest = call->longest};
}

// For sessions of every precision.
static uint64_t scan_bytes(const struct mamba2_spec *s, struct backend *b, const struct call *call) {
  const uint32_t T = call->T, B = call->sequences.rows;
  const uint64_t exact = b->ops->mamba2_scratch_bytes(b, T, B, scan_args(s, call, MATRICES_NONE));
  const uint64_t fast = b->ops->mamba2_scratch_bytes(b, T, B, scan_args(s, call, MATRICES_BEST));
  return exact > fast ? exact : fast;
}

static struct mamba2_scratch take(const struct mamba2_spec *s, const struct mamba2_weights *m, struct backend *b,
                                  struct call *call) {
  const uint32_t T = call->T;
  struct scratch *scratch = &call->scratch;
  struct mamba2_scratch t;
  t.p = scratch_take(scratch, T, m->in_proj.rows);
  t.xBC = scratch_take(scratch, T, channels(s));
  t.dt = scratch_take(scratch, T, s->heads);
  t.g = scratch_take(scratch, T, s->heads);
  t.y = scratch_take(scratch, T, inner(s));
  t.scan = scratch_take_bytes(scratch, scan_bytes(s, b, call));
  return t;
}

static void mamba2_measure(const void *spec, const void *weights, struct backend *b, struct scratch *measure,
                           uint32_t T, uint32_t B) {
  struct call call = {.sequences = {.rows = B}, .T = T, .form = DELTA_CHUNK, .scratch = *measure}; // needs most
  take(spec, weights, b, &call);
  *measure = call.scratch;
}

static void probe_sizes(struct probe *p, const struct mamba2_spec *s) {
  p->sizes = (deltaic_probed){.heads = (int32_t)s->groups,
                              .key_size = (int32_t)s->N,
                              .steps = 1,
                              .value_heads = (int32_t)s->heads,
                              .value_size = (int32_t)s->P};
}

static void mamba2_forward(const void *spec, const void *weights, const void *state, struct call *call, struct tensor x,
                           struct linear_input in) {
  const struct mamba2_spec *s = spec;
  const struct mamba2_weights *m = weights;
  const struct mamba2_state *st = state;
  struct recorder *c = call->c;
  const struct ops *op = c->ops;
  struct mamba2_scratch t = take(s, m, c->backend, call);
  struct tensor z = tensor_cols(t.p, 0, inner(s)), dt = tensor_cols(t.p, m->dt_from, s->heads);

  op->linear_conv(c, t.xBC, t.p, in, m->in_proj, m->in_bias,
                  (struct linear_conv){.weight = m->conv,
                                       .bias = m->conv_bias,
                                       .history = st->history,
                                       .sequences = call->sequences,
                                       .from = m->xBC_from,
                                       .longest = call->longest,
                                       .a = {.W = s->W, .C = channels(s), .silu_from = 0}});
  if (call->probe) probe_sizes(call->probe, s);
  // f16 where the product that reads it rounds to that anyway; who looks sees f32.
  const enum dtype dtype = c->matrices && !call->probe ? op->input_dtype(c, m->out_proj, call->T) : DTYPE_F32;
  // In few tokens the product makes the norm; then what is before it can be the step's.
  const bool normed = dtype == DTYPE_F16 || s->norm_place == NORM_FIRST || (m->norm.buffer && s->groups > 1);
  struct mamba2_step step = {.y = tensor_as(t.y, dtype),
                             .xBC = t.xBC,
                             .raw = dt,
                             .A_log = m->A_log,
                             .dt_bias = m->dt_bias,
                             .D = m->D,
                             .state = st->S,
                             .sequences = call->sequences,
                             .inputs = {.low = s->dt_low, .high = s->dt_high},
                             .rule = scan_args(s, call, c->matrices ? MATRICES_BEST : MATRICES_NONE)};
  if (!normed) step.gate = z;
  struct linear_input out = {.x = step.y};
  const bool stepped = !call->probe && op->mamba2_step(c, &step);
  if (!stepped) {
    op->mamba2_inputs(c, t.dt, t.g, dt, m->A_log, m->dt_bias, step.inputs);
    probe_tensor(call->probe, c, DELTAIC_PROBE_DECAY, t.g, call->T, t.g.cols);
    if (dtype == DTYPE_F16)
      out.x = tensor_as(t.y, op->mamba2_dtype(c, call->T, call->sequences.rows, t.scan, step.rule));
    op->mamba2(c, out.x, t.xBC, t.dt, t.g, m->D, st->S, call->sequences, t.scan, step.rule);
    probe_tensor(call->probe, c, DELTAIC_PROBE_STATE, st->S, (size_t)s->heads * s->N, s->P);
  }
  if (stepped && !normed) {
    out.weight = m->norm;
    out.h = z;
    out.eps = s->norm_eps;
  } else {
    op->gated_norm(c, out.x, z, m->norm,
                   (struct gated_norm_args){.groups = s->groups, .place = s->norm_place, .eps = s->norm_eps});
  }
  probe_tensor(call->probe, c, DELTAIC_PROBE_HEADS, t.y, call->T, t.y.cols);
  op->linear_residual(c, x, out, m->out_proj, m->out_bias, call->next);
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
  *sizes = (struct mixer_sizes){.heads = s->groups, .value_heads = s->heads, .key_size = s->N, .value_size = s->P};
}

const struct mixer mixer_mamba2 = {.name = "mamba2",
                                   .weights_bytes = sizeof(struct mamba2_weights),
                                   .state_bytes = sizeof(struct mamba2_state),
                                   .describe = mamba2_describe,
                                   .grows = mamba2_grows,
                                   .sizes = mamba2_sizes,
                                   .bind = mamba2_bind,
                                   .state = mamba2_state,
                                   .scratch = mamba2_measure,
                                   .forward = mamba2_forward};
