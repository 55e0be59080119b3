// mamba2_case: random calls of Mamba-2, what they give in float64, and steps.
#include "mamba2_case.h"

#include "vulkan_backend.h"

uint32_t mamba2_cols(struct mamba2_args a) { return a.heads * a.P + 2 * a.groups * a.N; }

struct mamba2_case mamba2_random(enum dtype dtype, struct mamba2_args a, const uint32_t *T, uint32_t B) {
  struct mamba2_case c = {.a = a, .B = B};
  c.rows = place_sequences(c.s, T, B);
  uint32_t rows = c.rows + MAMBA2_PADDING, cols = mamba2_cols(a), E = a.heads * a.P;
  double *xBC = normals((size_t)rows * cols), *dt = uniforms((size_t)rows * a.heads, log(1e-3), 0);
  double *g = uniforms((size_t)rows * a.heads, log(1e-3), log(5));
  for (uint32_t t = 0; t < rows; t++)
    for (uint32_t i = E; i < cols; i++) xBC[(size_t)t * cols + i] /= sqrt(a.N);
  for (size_t i = 0; i < (size_t)rows * a.heads; i++) dt[i] = exp(dt[i]), g[i] = -exp(g[i]);
  for (size_t i = (size_t)c.rows * cols; i < (size_t)rows * cols; i++) xBC[i] = NAN;
  c.xBC = activations(rows, cols, cols % 3 ? cols + 1 : DENSE, xBC);
  c.dt = activations(rows, a.heads, DENSE, dt);
  c.g = activations(rows, a.heads, a.heads + 1, g);
  c.D = weights(DTYPE_F32, 1, a.D_per_element ? E : a.heads, DENSE, normals(E));
  c.state = activations(B + 1, E * a.N, DENSE, normals((size_t)(B + 1) * E * a.N));
  c.y = activations_in(dtype, rows, E, c.rows % 2 ? E + 4 : E + 3, uniforms((size_t)rows * E, 7, 8));
  return c;
}

void mamba2_rewind(struct mamba2_case *c) {
  rewind_array(&c->state);
  rewind_array(&c->y);
}

// The recurrence of one head in float64.
static void reference_head(double *y, double *S, const struct mamba2_case *c, const struct sequence *s, uint32_t head) {
  const struct mamba2_args *a = &c->a;
  uint32_t cols = mamba2_cols(*a), E = a->heads * a->P;
  for (uint32_t t = s->row; t < s->row + s->T; t++) {
    const double *x = c->xBC.v + (size_t)t * cols + head * a->P;
    const double *B = c->xBC.v + (size_t)t * cols + E + head / (a->heads / a->groups) * a->N, *C = B + a->groups * a->N;
    double dt = c->dt.v[t * a->heads + head], decay = exp(c->g.v[t * a->heads + head]);
    for (uint32_t p = 0; p < a->P; p++) {
      double sum = c->D.v[a->D_per_element ? head * a->P + p : head] * x[p];
      for (uint32_t n = 0; n < a->N; n++) {
        S[n * a->P + p] = decay * S[n * a->P + p] + B[n] * dt * x[p];
        sum += C[n] * S[n * a->P + p];
      }
      y[(size_t)t * E + head * a->P + p] = sum;
    }
  }
}

void reference_mamba2(double *y, double *state, const struct mamba2_case *c) {
  memcpy(y, c->y.v, (size_t)c->y.t.rows * c->y.t.cols * sizeof *y);
  memcpy(state, c->state.v, (size_t)c->state.t.rows * c->state.t.cols * sizeof *state);
  for (uint32_t i = 0; i < c->B; i++)
    for (uint32_t h = 0; h < c->a.heads; h++)
      reference_head(y, state + (size_t)c->s[i].slot * c->state.t.cols + (size_t)h * c->a.N * c->a.P, c, &c->s[i], h);
}

void expect_mamba2(const char *const what[], const struct mamba2_case *c, double limit) {
  double *y = zeros((size_t)c->y.t.rows * c->y.t.cols), *S = zeros((size_t)c->state.t.rows * c->state.t.cols);
  reference_mamba2(y, S, c);
  expect_rows(what[0], &c->y, c->rows, y, limit);
  expect_state(what[1], &c->state, S, limit);
}

struct mamba2 mamba2_rule(const struct mamba2_case *c, const struct sequence *s, uint32_t B) {
  return (struct mamba2){.y = c->y.t,
                         .state = c->state.t,
                         .xBC = c->xBC.t,
                         .dt = c->dt.t,
                         .g = c->g.t,
                         .D = c->D.t,
                         .sequences = sequences_of(s, B).t,
                         .a = c->a};
}

void check_mamba2_step(enum dtype y, const uint32_t *T, uint32_t B, bool gated, float high, double close) {
  const struct mamba2_args a = {.heads = 6, .P = 20, .N = 24, .groups = 2};
  struct mamba2_case c = mamba2_random(DTYPE_F32, a, T, B);
  const uint32_t rows = c.rows + MAMBA2_PADDING, E = a.heads * a.P;
  struct array raw = activations(rows, a.heads, a.heads + 3, uniforms((size_t)rows * a.heads, -4, 2));
  struct array z = activations(rows, E, E + 1, uniforms((size_t)rows * E, -4, 4));
  struct array stepped = activations_in(y, rows, E, DENSE, NULL);
  const struct mamba2_inputs inputs = {.dt = c.dt.t,
                                       .g = c.g.t,
                                       .raw = raw.t,
                                       .A_log = weights(DTYPE_F32, 1, a.heads, DENSE, uniforms(a.heads, -3, 2)).t,
                                       .dt_bias = weights(DTYPE_F32, 1, a.heads, DENSE, uniforms(a.heads, -2, 1)).t,
                                       .low = 0.01f,
                                       .high = high};
  struct mamba2 rule = mamba2_rule(&c, c.s, B);
  list->form = DELTA_RECURRENT;
  list->plain = true;
  begin();
  op_mamba2_inputs(list, &inputs);
  op_mamba2(list, &rule);
  if (gated)
    op_gated_norm(list, &(struct gated_norm){
                            .y = c.y.t, .x = c.y.t, .gate = z.t, .groups = 1, .group_cols = E, .place = NORM_ABSENT});
  run();
  list->plain = false;
  if (!backend->replays) return; // the CPU has no steps
  double *want = read_values(&c.y), *S = read_values(&c.state);
  mamba2_rewind(&c);
  rule.state = c.state.t;
  begin();
  ((struct vulkan_recorder *)recorder)->list = list;
  if (!vulkan_steps_mamba2(recorder, &rule)) return; // nor has a device with few bindings
  vulkan_mamba2_step(
      recorder, &(struct mamba2_step){.y = stepped.t, .gate = gated ? z.t : ABSENT, .inputs = &inputs, .rule = &rule});
  if (recorder->functions->recorder_run(recorder)) fail_msg("%s", deltaic_last_error());
  expect_close("mamba2 in a step: y", read_values(&stepped), want, (size_t)c.rows * E, close);
  expect_close("mamba2 in a step: state", read_values(&c.state), S, (size_t)c.state.t.rows * c.state.t.cols, 1e-6);
}

void reference_gated_norm(double *y, const double *z, const double *weight, const struct gated_norm *a) {
  const uint32_t n = a->group_cols, E = a->groups * n;
  for (uint32_t i = 0; a->place != NORM_FIRST && i < E; i++) y[i] *= reference_activation(ACTIVATION_SILU, z[i]);
  for (uint32_t from = 0; a->place != NORM_ABSENT && from < E; from += n) {
    double sum = 0;
    for (uint32_t i = from; i < from + n; i++) sum += y[i] * y[i];
    for (uint32_t i = from; i < from + n; i++) y[i] *= weight[i] / sqrt(sum / n + (double)a->eps);
  }
  for (uint32_t i = 0; a->place == NORM_FIRST && i < E; i++) y[i] *= reference_activation(ACTIVATION_SILU, z[i]);
}
