// Cases of the convolution that does what delta_inputs does as well, and of the two, one after the other.
#include "conv_inputs.h"
#include "ops_cases.h"
#include "ops_tools.h"
#include "vulkan_backend.h"

struct shape {
  uint32_t W, keys, Dk, values, silu_from;
  enum activation activation;
  enum key_norm norm;
  bool has_beta, gated, has_bias;
};

struct inputs_case {
  struct array x, taps, bias, history, ba, A_log, dt_bias, y, beta, g;
  struct conv conv;
  struct delta_inputs in;
};

static struct inputs_case make_case(const struct shape *z, enum dtype dtype, const struct sequence *s, uint32_t B,
                                    uint32_t T) {
  const uint32_t C = z->keys * z->Dk + z->values, old = (z->W - 1) * C, betas = 3, decays = 2, cols = betas + decays;
  const uint32_t room = z->keys * key_pitch(dtype, z->Dk) + z->values;
  const double low = z->norm == KEY_NORM_L2 ? -2 : 0.1; // positive ones keep SUM well posed
  struct inputs_case c = {
      .x = activations(T, C, DENSE, uniforms((size_t)T * C, low, 2)),
      .taps = weights(DTYPE_F32, z->W, C, (uint32_t)round_up(C, 8), uniforms((size_t)z->W * C, low / 2, 1)),
      .bias = weights(DTYPE_F32, 1, C, DENSE, normals(C)),
      .history = activations(B, old ? old : 1, DENSE, uniforms((size_t)B * (old ? old : 1), low, 2)),
      .ba = activations(T, cols, cols + 2, normals((size_t)T * cols)),
      .A_log = weights(DTYPE_F32, 1, decays, DENSE, normals(decays)),
      .dt_bias = weights(DTYPE_F32, 1, decays, DENSE, normals(decays)),
      .y = activations_in(dtype, T, room, (uint32_t)round_up(room, 8) + z->W % 2, uniforms((size_t)T * room, 7, 8)),
      .beta = activations(T, betas, DENSE, NULL),
      .g = activations(T, decays, DENSE, NULL)};
  c.in = (struct delta_inputs){
      .y = c.y.t,
      .beta = c.beta.t,
      .g = z->gated ? c.g.t : ABSENT,
      .x = c.y.t,
      .ba = c.ba.t,
      .A_log = z->gated ? c.A_log.t : ABSENT,
      .dt_bias = z->gated ? c.dt_bias.t : ABSENT,
      .a = {z->keys, z->Dk, z->activation, z->norm, betas, z->gated ? decays : 0, 2, z->has_beta, z->gated}};
  c.conv = (struct conv){.y = c.y.t,
                         .history = old ? c.history.t : ABSENT,
                         .x = c.x.t,
                         .weight = c.taps.t,
                         .bias = z->has_bias ? c.bias.t : ABSENT,
                         .sequences = sequences_of(s, B).t,
                         .a = {z->W, C, z->silu_from, z->keys, z->Dk}};
  return c;
}

static double convolved(const struct inputs_case *c, const struct sequence *s, uint32_t t, uint32_t channel) {
  const struct conv_args *a = &c->conv.a;
  double sum = c->conv.bias.buffer ? c->bias.v[channel] : 0;
  for (uint32_t w = 0; w < a->W; w++) {
    const double *x = t + w + 1 < a->W ? c->history.v + ((size_t)s->slot * (a->W - 1) + t + w) * a->C
                                       : c->x.v + (size_t)(s->row + t + w + 1 - a->W) * a->C;
    sum += c->taps.v[w * a->C + channel] * x[channel];
  }
  return channel >= a->silu_from ? reference_activation(ACTIVATION_SILU, sum) : sum;
}

// Token t of a sequence as y has it.
static void reference_row(double *y, const struct inputs_case *c, const struct sequence *s, uint32_t t) {
  const struct conv_args *a = &c->conv.a;
  const uint32_t pitch = key_pitch(c->y.t.dtype, a->Dk);
  for (uint32_t h = 0; h < a->heads; h++, y += pitch) {
    double square = 1e-6, sum = 0, absolute = 0;
    for (uint32_t d = 0; d < a->Dk; d++) {
      y[d] = reference_activation(c->in.a.activation, convolved(c, s, t, h * a->Dk + d));
      square += y[d] * y[d], sum += y[d], absolute += fabs(y[d]);
    }
    const double by[] = {
        [KEY_NORM_NONE] = 1, [KEY_NORM_L2] = sqrt(square), [KEY_NORM_SUM] = sum, [KEY_NORM_L1] = absolute};
    for (uint32_t d = 0; d < a->Dk; d++) y[d] /= by[c->in.a.norm];
  }
  for (uint32_t i = a->heads * a->Dk; i < a->C; i++) *y++ = convolved(c, s, t, i);
}

// The product, the convolution and its inputs as lower.c asks for them, with a y of any dtype and stride. Returns
// whether the inputs are done.
static bool run_joined(const struct inputs_case *c) {
  const uint32_t C = c->x.t.cols;
  const struct linear copy = {
      .y = activations(c->x.t.rows, C, DENSE, NULL).t, .x = c->x.t, .w = copying_weights(C, 0, C).t};
  struct conv conv = c->conv;
  conv.x = copy.y;
  begin();
  ((struct vulkan_recorder *)recorder)->list = list;
  const bool done = vulkan_linear_conv(recorder, &(struct linear_input){.x = copy.x}, &copy,
                                       &(struct linear_conv){.conv = &conv, .inputs = &c->in});
  if (recorder->functions->recorder_run(recorder)) fail_msg("%s", deltaic_last_error());
  return done;
}

// Whether the device does both at once here: so many numbers of a head as its subgroups have room for.
static bool check(const struct shape *z, enum dtype dtype, const uint32_t *T, uint32_t B) {
  struct sequence s[4];
  uint32_t rows = place_sequences(s, T, B), longest = 0;
  for (uint32_t i = 0; i < B; i++) {
    s[i].slot--; // B - 1 ... 0
    longest = T[i] > longest ? T[i] : longest;
  }
  struct inputs_case c = make_case(z, dtype, s, B, rows);
  list->longest = longest;
  const size_t outputs = (size_t)rows * c.y.t.cols;
  double *want = zeros(outputs);
  for (uint32_t i = 0; i < B; i++)
    for (uint32_t t = 0; t < T[i]; t++) reference_row(want + (size_t)(s[i].row + t) * c.y.t.cols, &c, &s[i], t);
  convolve(&c.conv, 0);
  RUN(op_delta_inputs(list, &c.in));
  const double *beta = read_values(&c.beta), *g = read_values(&c.g);
  const double limit = dtype == DTYPE_F16 ? 1e-3 : 2e-6;
  expect_close("conv, then delta_inputs", read_values(&c.y), want, outputs, limit);
  const double *history = read_values(&c.history);
  rewind_array(&c.y), rewind_array(&c.beta), rewind_array(&c.g), rewind_array(&c.history);
  c.in.beta = c.beta.t, c.in.g = z->gated ? c.g.t : ABSENT;
  if (z->W > 1) c.conv.history = c.history.t;
  c.conv.y = c.in.y = c.in.x = c.y.t;
  const bool done = backend->replays && run_joined(&c);
  if (done) {
    expect_close("conv_inputs", read_values(&c.y), want, outputs, limit);
    expect_close("conv_inputs: beta", read_values(&c.beta), beta, (size_t)rows * 3, 1e-7);
    if (z->gated) expect_close("conv_inputs: g", read_values(&c.g), g, (size_t)rows * 2, 1e-7);
    expect_close("conv_inputs: history", read_values(&c.history), history, (size_t)B * c.history.t.cols, 0);
  }
  tools_teardown(NULL);
  return done;
}

static bool device_can(void) {
  if (!backend->replays) return false;
  const struct device *d = vulkan_device(backend);
  return d->plan.subgroup_width && d->caps.max_storage_buffers >= CONV_INPUTS_BINDINGS;
}

static void conv_inputs_matches_the_convolution_and_its_inputs(void **state) {
  seed(61);
  const struct shape all[] = {
      {4, 2, 64, 64, 0, ACTIVATION_IDENTITY, KEY_NORM_L2, true, true, false},
      {4, 3, 24, 40, 72, ACTIVATION_ELU1, KEY_NORM_SUM, true, false, true},
      {1, 2, 5, 7, 10, ACTIVATION_RELU, KEY_NORM_L1, false, true, false},
      {4, 3, 7, 48, 0, ACTIVATION_SILU, KEY_NORM_L2, true, true, true},
      {3, 2, 49, 33, 0, ACTIVATION_IDENTITY, KEY_NORM_L2, true, true, true},
      {9, 1, 12, 68, 12, ACTIVATION_IDENTITY, KEY_NORM_NONE, false, false, false},
  };
  const uint32_t T[][3] = {{1, 0, 2}, {7, 0, 20}, {65, 8, 9}};
  for (uint32_t i = 0; i < shapes(6, 3); i++)
    for (int t = 0; t < 3; t++)
      assert_int_equal(check(&all[i], list->matrices ? DTYPE_F16 : DTYPE_F32, T[t], 3), device_can());
}

static void conv_inputs_leaves_what_does_not_fit(void **state) {
  seed(62);
  const struct shape long_head = {4, 1, 2100, 4, 0, ACTIVATION_IDENTITY, KEY_NORM_L2, true, true, false};
  const struct shape many_taps = {10, 1, 8, 4, 0, ACTIVATION_IDENTITY, KEY_NORM_L2, true, true, false};
  assert_false(check(&long_head, DTYPE_F32, (const uint32_t[]){3}, 1));
  assert_false(check(&many_taps, DTYPE_F32, (const uint32_t[]){3}, 1));
}

int ops_cases_inputs(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(conv_inputs_matches_the_convolution_and_its_inputs),
      OPS_CASE(conv_inputs_leaves_what_does_not_fit),
  };
  return cmocka_run_group_tests_name("convolution with inputs", cases, NULL, NULL);
}
