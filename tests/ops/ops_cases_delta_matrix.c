// Cases of the delta rule on cooperative matrices. Operands rounded to f16 cost 5e-4 relative RMS and may
// cost twice that.
#include "device.h"
#include "ops_cases_matrix.h"

static const double CLOSE = 1e-3;
static enum matrices matrices; // of the group that runs

static struct delta_args args(uint32_t H, uint32_t Hv, uint32_t Dv, uint32_t n, bool gated) {
  return (struct delta_args){.H = H, .Hv = Hv, .Dk = 16, .Dv = Dv, .n = n, .scale = 0.25f, .gated = gated};
}

static void run_on_matrices(const struct delta_case *c, enum matrices which) {
  const struct delta_rule rule = delta_rule_of(c, c->s, c->B);
  list->form = DELTA_CHUNK;
  list->matrices = which;
  assert_int_equal(vulkan_plan_delta(recorder, &rule, backend->max_binding_bytes).way, DELTA_ON_MATRICES);
  RUN(op_delta_rule(list, &rule));
}

void expect_on_matrices(const char *const what[], const struct delta_case *c, enum matrices which) {
  run_on_matrices(c, which);
  expect_delta(what, c, CLOSE);
}

static void check(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B, double beta_max) {
  struct delta_case c = delta_random_in(dtype, gap, a, T, B, beta_max);
  expect_on_matrices(OUTPUTS("delta rule on matrices"), &c, matrices);
  tools_teardown(NULL);
}

// Keys and values that are no multiples of a tile, of four or of two; chunks that are not full; sequences without
// tokens. Few sizes: software compiles each kernel for seconds.
static void delta_rule_matches_over_awkward_shapes(void **state) {
  seed(50);
  static const struct {
    enum dtype dtype;
    uint32_t gap, Dk, Dv;
  } sizes[] = {
      {DTYPE_F16, 8, 16, 16}, {DTYPE_F32, 1, 5, 7},   {DTYPE_F16, 4, 16, 20},
      {DTYPE_F16, 1, 13, 34}, {DTYPE_F16, 7, 49, 32},
  };
  for (uint32_t s = 0; s < shapes(5, 2); s++)
    for (uint32_t l = 0; l < LENGTHS; l++) {
      struct delta_args a = {
          .H = 2, .Hv = l % 3 ? 4 : 2, .tiled = l % 2, .Dk = sizes[s].Dk, .Dv = sizes[s].Dv, .n = 1, .scale = 0.3f};
      uint32_t T[] = {lengths[l], 0, lengths[l] / 2 + 1};
      a.gated = (s + l) % 2;
      check(sizes[s].dtype, sizes[s].gap, a, T, 3, 1);
    }
}

// One head of one sequence: what brings the operands has subgroups of its own, where sums become operands.
static void delta_rule_of_few_heads_matches(void **state) {
  seed(51);
  for (int l = 0; l < LENGTHS; l++) check(DTYPE_F16, 8, args(1, 1, 8, 1, true), &lengths[l], 1, 1);
}

// Cut into segments that are walked at the same time; one text, or one among others, without tokens and with a few, of
// sizes that are no multiples of a tile, as a device with more processors would cut them. On lavapipe, which compiles
// this for long, Head-in-Head's long text has the other group's.
static void long_sequences_of_one_head_match(void **state) {
  seed(55);
  if (!all_shapes() && matrices == MATRICES_BEST) skip();
  struct plan *plan = &vulkan_device(backend)->plan;
  const uint32_t places = plan->processors;
  list->form = DELTA_CHUNK;
  list->matrices = matrices;
  for (uint32_t many = 0; many < shapes(2, 1); many++) {
    struct plan_delta_matrix p;
    struct delta_args a = args(1, 1, 16, 1, many);
    if (many) a.Dk = 12, a.Dv = 20, plan->processors = 8 * places;
    const uint32_t B = many ? 3 : 1;
    uint32_t T[] = {1100, 0, 50}; // or what the device's plan cuts
    while (vulkan_delta_matrix_plan(recorder, T[0], B, &a, &p) && p.segments == 1 && T[0] < 10000) T[0] *= 2;
    assert_true(p.segments > 1);
    struct delta_case c = delta_random_in(DTYPE_F16, many ? 4 : 8, a, T, B, 1);
    for (uint32_t i = 0; i < c.rows; i++) c.g.v[i] *= 0.01; // so that states reach over segments
    c.g = activations(c.g.t.rows, 1, c.g.t.stride, c.g.v);
    run_on_matrices(&c, matrices);
    plan->processors = places;
    expect_delta(OUTPUTS("segments on matrices"), &c, CLOSE);
    tools_teardown(NULL);
  }
}

static uint64_t bytes_of(struct tensor t) { return dtype_bytes(t.dtype, (uint64_t)t.rows * t.cols); }

// Both kernels move q, k, the sequences and what the first prepares for the second, which reads v too; what lies
// between a tensor's rows does not count.
static void the_profile_counts_every_byte_once(void **state) {
  seed(56);
  const uint32_t T = 40;
  deltaic_kernel_time times[4];
  uint64_t prepare = 0, scan = 0;
  struct delta_case c = delta_random_in(DTYPE_F16, 8, args(1, 1, 8, 1, true), &T, 1, 1);
  assert_int_equal(backend->functions->recorder_profile(recorder, true), DELTAIC_OK);
  run_on_matrices(&c, matrices);
  size_t count = backend->functions->recorder_times(recorder, times, 4);
  assert_int_equal(backend->functions->recorder_profile(recorder, false), DELTAIC_OK);
  for (size_t i = 0; i < count; i++) *(strstr(times[i].name, "prepare") ? &prepare : &scan) += times[i].bytes;
  assert_int_equal(count, 2);
  assert_int_equal(scan + bytes_of(c.beta.t) + bytes_of(c.g.t),
                   prepare + bytes_of(tensor_cols(c.qkv.t, 0, 8)) + bytes_of(c.o.t) + 2 * bytes_of(c.state.t));
}

static void delta_rule_shares_keys_among_grouped_value_heads(void **state) {
  seed(52);
  for (int l = 0; l < 4; l++) {
    uint32_t T[] = {lengths[2 * l + 1], lengths[LENGTHS - 1 - l]};
    check(DTYPE_F16, 8, args(2, 6, 16, 1, l % 2), T, 2, 1);
  }
}

static void delta_product_matches(void **state) {
  seed(53);
  for (int l = 0; l < LENGTHS; l++) {
    const uint32_t T[] = {lengths[l], 0, 21},
                   n = all_shapes() && l / 2 % 2 ? 2 : 3; // three leave a row of a chunk empty
    check(DTYPE_F16, 8, args(2, 2, 16, n, l % 2), T, 3, 1);
  }
}

// Keys with a common part as large as their own: where a series for the inverse is off by orders of magnitude.
static void correlated_keys_lose_no_digits(void **state) {
  seed(54);
  const uint32_t T[] = {200, 0, 63}, cols = 4 * 16 + 2 * 16;
  for (int hard = 0; hard < 2; hard++) {
    struct delta_case c = delta_random_in(DTYPE_F16, 8, args(2, 2, 16, 1, true), T, 3, 1);
    for (uint32_t t = 0; t < c.rows; t++)
      for (int h = 0; h < 4; h++) {
        double *x = c.qkv.v + t * cols + h * 16;
        for (int d = 0; d < 16; d++) x[d] += 0.25; // as long as a random key
        normalise(x, 16);
      }
    // A decay that leaves nothing, now and then; e^-30000 is not to cost the tokens after it digits.
    for (uint32_t i = 0; i < c.g.t.rows * c.g.t.cols; i++) c.g.v[i] = hard && i % 11 == 3 ? -30000 : -0.01;
    c.qkv = activations_in(DTYPE_F16, c.qkv.t.rows, cols, c.qkv.t.stride, c.qkv.v);
    c.g = activations(c.g.t.rows, c.g.t.cols, c.g.t.stride, c.g.v);
    expect_on_matrices(OUTPUTS("correlated keys on matrices"), &c, matrices);
    tools_teardown(NULL);
  }
}

// Prepare makes decays as products of two factors where f32 holds both, to a sum of -80 in a chunk of 16 tokens.
static void decays_beyond_their_factors_match(void **state) {
  seed(58);
  const uint32_t T[] = {40, 0, 21}; // as many as in cases that compile the same
  for (uint32_t n = 1; n <= 3; n += 2) {
    struct delta_case c = delta_random_in(DTYPE_F16, 8, args(2, 2, 16, n, true), T, 3, 1);
    for (uint32_t i = 0; i < c.g.t.rows * c.g.t.cols; i++) c.g.v[i] = i % 2 ? -4.9 : i < 20 * c.g.t.cols ? -5.1 : -1.5;
    c.g = activations(c.g.t.rows, c.g.t.cols, c.g.t.stride, c.g.v);
    expect_on_matrices(OUTPUTS("hard decays on matrices"), &c, matrices);
    tools_teardown(NULL);
  }
}

// The convolution leaves room after keys of f16, and the norm fills it with zeros.
static void keys_of_f16_are_whole_tiles(void **state) {
  seed(57);
  enum { T = 20, W = 3, H = 2, Dk = 5, V = 6, C = H * Dk + V, PITCH = 16, COLS = H * PITCH + V };
  const struct sequence all = {.T = T};
  double *same = zeros(C * C), want[T * COLS] = {0};
  for (int c = 0; c < C; c++) same[c * C + c] = 1;
  struct array x = activations(T, C, DENSE, normals(T * C)), w = weights(DTYPE_F16, C, C, DENSE, same);
  struct array taps = weights(DTYPE_F32, W, C, DENSE, normals(W * C));
  struct array y = activations_in(DTYPE_F16, T, COLS, 40, uniforms(T * COLS, 7, 8));
  struct array history = activations(1, (W - 1) * C, DENSE, NULL), beta = activations(T, 1, DENSE, NULL);
  list->longest = T;
  begin();
  const struct tensor p = oplist_value(list, T, C);
  op_linear(list, p, x.t, w.t, ABSENT);
  op_conv(list, &(struct conv){.y = y.t,
                               .history = history.t,
                               .x = p,
                               .weight = taps.t,
                               .sequences = sequences_of(&all, 1).t,
                               .a = {.W = W, .C = C, .heads = H, .Dk = Dk}});
  op_delta_inputs(
      list, &(struct delta_inputs){.y = y.t,
                                   .beta = beta.t,
                                   .x = y.t,
                                   .a = {.heads = H, .Dk = Dk, .norm = KEY_NORM_L2, .betas = 1, .beta_scale = 1}});
  run();
  for (int t = 0; t < T; t++) {
    for (int c = 0; c < C; c++) {
      double sum = 0;
      for (int i = 0; i < W; i++) sum += t + i < W - 1 ? 0 : taps.v[i * C + c] * x.v[(t + i - W + 1) * C + c];
      want[t * COLS + (c < H * Dk ? c / Dk * PITCH + c % Dk : c + H * (PITCH - Dk))] = sum / (1 + exp(-sum));
    }
    for (int h = 0; h < H; h++) normalise(want + t * COLS + h * PITCH, Dk);
  }
  double *got = read_values(&y);
  expect_close("convolution and norm of f16", got, want, T * COLS, CLOSE);
  for (int i = 0; i < T * H; i++)
    for (int d = Dk; d < PITCH; d++) assert_true(got[i / H * COLS + i % H * PITCH + d] == 0);
}

int ops_cases_delta_matrix(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(delta_rule_matches_over_awkward_shapes), OPS_CASE(delta_rule_shares_keys_among_grouped_value_heads),
      OPS_CASE(long_sequences_of_one_head_match),       OPS_CASE(delta_product_matches),
      OPS_CASE(correlated_keys_lose_no_digits),         OPS_CASE(decays_beyond_their_factors_match),
  };
  const struct CMUnitTest once[] = {OPS_CASE(keys_of_f16_are_whole_tiles), OPS_CASE(delta_rule_of_few_heads_matches),
                                    OPS_CASE(the_profile_counts_every_byte_once)};
  int failed = 0;
  matrices = MATRICES_PLAIN;
  failed += cmocka_run_group_tests_name("delta rule, plain matrices", cases, NULL, NULL);
  matrices = MATRICES_BEST;
  if (vulkan_device(backend)->plan.matrix_conversions)
    failed += cmocka_run_group_tests_name("delta rule, sums become operands", cases, NULL, NULL);
  return failed + cmocka_run_group_tests_name("delta rule, the best matrices", once, NULL, NULL);
}
