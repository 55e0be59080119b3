// Cases of Mamba-2: its scan, the inputs of it and the gated norm after it.
#include "fixture.h"
#include "mamba2_case.h"
#include "ops_cases.h"

// The project's bar; plain f32 gives some 2e-7.
static const double MAMBA2_CLOSE = 5e-6;

static const struct mamba2_args usual = {.heads = 6, .P = 20, .N = 24, .groups = 2}; // mamba2_step has the same

static void mamba2_run(const struct mamba2_case *c, const struct sequence *s, uint32_t B, enum delta_form form) {
  const struct mamba2 rule = mamba2_rule(c, s, B);
  list->form = form;
  RUN(op_mamba2(list, &rule));
  if (form == DELTA_CHUNK) assert_true(tensor_present(list->scratch)); // else both forms would be one
}

static void expect_forms(const char *const what[], struct mamba2_case *c) {
  for (int f = 0; f < FORMS; f++) {
    mamba2_rewind(c);
    mamba2_run(c, c->s, c->B, forms[f]);
    expect_mamba2(what, c, MAMBA2_CLOSE);
  }
  tools_teardown(NULL);
}

static void check_mamba2(struct mamba2_args a, const uint32_t *T, uint32_t B) {
  struct mamba2_case c = mamba2_random(DTYPE_F32, a, T, B);
  expect_forms(OUTPUTS("mamba2"), &c);
}

static void mamba2_matches_over_awkward_shapes(void **state) {
  seed(70);
  // {N, P}; the first has keys so long that two invocations share a column.
  const uint32_t sizes[][2] = {{131, 21}, {1, 1}, {3, 64}, {5, 7}, {32, 130}, {64, 1}, {64, 64}, {77, 130}};
  for (uint32_t i = 0; i < shapes(8, 1); i++)
    for (uint32_t l = 0; l < LENGTHS; l++) {
      struct mamba2_args a = {.heads = 6, .N = sizes[i][0], .P = sizes[i][1], .D_per_element = l / 2 % 2};
      uint32_t T[] = {lengths[l], 0, lengths[l] / 2 + 1};
      a.groups = (uint32_t[]){1, 2, 3, 6}[(i + l) % 4];
      check_mamba2(a, T, l % 3 == 2 ? 3 : 1);
    }
}

static void long_mamba2_matches_at_the_size_of_models(void **state) {
  seed(71);
  uint32_t T[] = {130, 65};
  check_mamba2((struct mamba2_args){.heads = 4, .P = 64, .N = 128, .groups = 1}, T, 2);
  check_mamba2((struct mamba2_args){.heads = 4, .P = 64, .N = 256, .groups = 2}, T, 2);
}

static void any_split_gives_the_same_mamba2_state(void **state) {
  seed(72);
  const uint32_t T = CUT_TOKENS;
  struct mamba2_case c = mamba2_random(DTYPE_F32, usual, &T, 1);
  for (int i = 0; i < CUTS; i++)
    for (int form = 0; form < FORMS; form++) {
      mamba2_rewind(&c);
      struct sequence s = {0, 0, 0, c.s[0].slot};
      for (int j = 0; j < 4 && s.row < T; j++, s.row += s.T) {
        s.T = text_cuts[i][j];
        mamba2_run(&c, &s, 1, forms[form]);
      }
      expect_mamba2(OUTPUTS("split mamba2"), &c, MAMBA2_CLOSE);
    }
}

static void mamba2_with_hard_decays_keeps_its_digits(void **state) {
  seed(73);
  const double hard[] = {-30000, -3e38};
  uint32_t T = 100;
  for (int i = 0; i < 2; i++) {
    struct mamba2_case c = mamba2_random(DTYPE_F32, usual, &T, 1);
    for (uint32_t t = 0; t < usual.heads * T; t++) c.g.v[t] = t == 7 || t == 290 ? hard[i] : -0.01;
    c.g = activations(T + MAMBA2_PADDING, usual.heads, DENSE, c.g.v);
    expect_forms(OUTPUTS("mamba2 with hard decays"), &c);
  }
}

// ---------------------------------------------------------------- inputs and norm

static void check_inputs(uint32_t T, uint32_t heads, float low, float high) {
  struct array raw = activations(T, heads, heads + 2, uniforms((size_t)T * heads, -9, 40));
  struct array dt = activations(T, heads, DENSE, NULL), g = activations(T, heads, heads + 1, NULL);
  struct array A_log = weights(DTYPE_F32, 1, heads, DENSE, uniforms(heads, -3, 3));
  struct array dt_bias = weights(DTYPE_F32, 1, heads, DENSE, uniforms(heads, -5, 1));
  RUN(op_mamba2_inputs(list, &(struct mamba2_inputs){dt.t, g.t, raw.t, A_log.t, dt_bias.t, low, high}));
  size_t n = (size_t)T * heads;
  double *want = zeros(n), *want_g = zeros(n);
  for (size_t i = 0; i < n; i++) {
    want[i] = fmin(fmax(log1p(exp(raw.v[i] + dt_bias.v[i % heads])), (double)low), (double)high);
    want_g[i] = -exp(A_log.v[i % heads]) * want[i];
  }
  expect_close("mamba2_inputs: dt", read_values(&dt), want, n, 1e-6);
  expect_close("mamba2_inputs: g", read_values(&g), want_g, n, 1e-6);
}

static void mamba2_inputs_match_and_keep_their_limits(void **state) {
  seed(74);
  const uint32_t heads[] = {1, 5, 64, 130};
  for (int l = 0; l < LENGTHS; l++) {
    check_inputs(lengths[l], heads[l % 4], 0, INFINITY);
    check_inputs(lengths[l], heads[l % 4], 0.25f, 2.5f);
  }
}

// mamba2_inputs, mamba2 and the gate in one dispatch: what three give, whatever the number of tokens.
static void mamba2_steps_match_single_operations(void **state) {
  seed(76);
  for (int l = 0; l < LENGTHS; l++) {
    const uint32_t T[] = {lengths[l], 1, 0};
    check_mamba2_step(DTYPE_F32, T, 3, l % 2, l % 4 ? INFINITY : 0.5f, 1e-6);
    tools_teardown(NULL);
  }
}

static void gated_norm_matches_for_every_place_and_grouping(void **state) {
  seed(75);
  const uint32_t sizes[] = {1, 7, 64, 130, 1025, 512, 388}, groups[] = {1, 2, 5};
  for (int l = 0; l < LENGTHS; l++)
    for (int place = NORM_OF_GATED; place <= NORM_ABSENT; place++) {
      struct gated_norm a = {.groups = groups[(l + place) % 3], .place = (enum norm_place)place, .eps = 1e-5f};
      a.group_cols = sizes[l % 7];
      const uint32_t T = lengths[l], E = a.group_cols * a.groups;
      const bool fours = sizes[l % 7] % 4 == 0 && place != l % 3; // else numbers are read one at a time
      struct array y = activations(T, E, E + (fours ? 4 : 1), normals((size_t)T * E));
      struct array z = activations(T, E, E + (fours ? 8 : 2), uniforms((size_t)T * E, -4, 4));
      struct array weight = weights(DTYPE_F32, 1, E, DENSE, normals(E));
      a.y = a.x = y.t;
      a.gate = z.t;
      if (place != NORM_ABSENT) a.weight = weight.t;
      RUN(op_gated_norm(list, &a));
      for (uint32_t t = 0; t < T; t++) reference_gated_norm(y.v + (size_t)t * E, z.v + (size_t)t * E, weight.v, &a);
      expect_close("gated_norm", read_values(&y), y.v, (size_t)T * E, 2e-6);
      tools_teardown(NULL);
    }
}

// ---------------------------------------------------------------- the mixer between its projections

static struct array fixture_array(const struct fixture *f, const char *name, const char *key, uint32_t rows,
                                  uint32_t cols) {
  char tensor[128];
  snprintf(tensor, sizeof tensor, "%s.%s", name, key);
  double *values = fixture_values(f, tensor, (size_t)rows * cols);
  struct array a = activations(rows, cols, DENSE, values);
  free(values);
  return a;
}

static uint32_t fixture_count(const struct fixture *f, const char *name, const char *key) {
  return (uint32_t)fixture_number(f, name, key);
}

static void check_fixture(const struct fixture *f, const char *name, enum delta_form form) {
  enum { W = 4 };
  struct mamba2_args a = {.heads = fixture_count(f, name, "heads"), .P = fixture_count(f, name, "P")};
  a.N = fixture_count(f, name, "N");
  a.groups = fixture_count(f, name, "groups");
  a.D_per_element = fixture_number(f, name, "D_per_element") != 0;
  double high = fixture_number(f, name, "high");
  const enum norm_place place = (enum norm_place)fixture_count(f, name, "place");
  uint32_t T = fixture_count(f, name, "T"), E = a.heads * a.P, cols = mamba2_cols(a);
  struct sequence s = {0, T, 0, 0};
  struct array sequences = sequences_of(&s, 1), xBC = activations(T, cols, DENSE, NULL);
  struct array dt = activations(T, a.heads, DENSE, NULL), g = activations(T, a.heads, DENSE, NULL);
  struct array y = activations(T, E, DENSE, NULL), history = activations(1, (W - 1) * cols, DENSE, NULL);
  struct array S = fixture_array(f, name, "S0", 1, E * a.N);
  list->longest = T;
  list->form = form;
  convolve(&(struct conv){.y = xBC.t,
                          .history = history.t,
                          .x = fixture_array(f, name, "xBC", T, cols).t,
                          .weight = fixture_array(f, name, "conv", W, cols).t,
                          .bias = fixture_array(f, name, "conv_bias", 1, cols).t,
                          .sequences = sequences.t,
                          .a = {.W = W, .C = cols}},
           0);
  begin();
  op_mamba2_inputs(list, &(struct mamba2_inputs){.dt = dt.t,
                                                 .g = g.t,
                                                 .raw = fixture_array(f, name, "raw", T, a.heads).t,
                                                 .A_log = fixture_array(f, name, "A_log", 1, a.heads).t,
                                                 .dt_bias = fixture_array(f, name, "dt_bias", 1, a.heads).t,
                                                 .low = (float)fixture_number(f, name, "low"),
                                                 .high = high < 0 ? INFINITY : (float)high});
  op_mamba2(list, &(struct mamba2){.y = y.t,
                                   .state = S.t,
                                   .xBC = xBC.t,
                                   .dt = dt.t,
                                   .g = g.t,
                                   .D = fixture_array(f, name, "D", 1, a.D_per_element ? E : a.heads).t,
                                   .sequences = sequences.t,
                                   .a = a});
  run();
  expect_close("mamba2 fixtures: y", read_values(&y), fixture_array(f, name, "truth_y", T, E).v, (size_t)T * E,
               MAMBA2_CLOSE);
  expect_close("mamba2 fixtures: state", read_values(&S), fixture_array(f, name, "truth_s", 1, E * a.N).v,
               (size_t)E * a.N, MAMBA2_CLOSE);
  RUN(op_gated_norm(
      list, &(struct gated_norm){.y = y.t,
                                 .x = y.t,
                                 .gate = fixture_array(f, name, "z", T, E).t,
                                 .weight = place == NORM_ABSENT ? ABSENT : fixture_array(f, name, "weight", 1, E).t,
                                 .groups = a.groups,
                                 .group_cols = E / a.groups,
                                 .place = place,
                                 .eps = 1e-5f}));
  expect_close("mamba2 fixtures: out", read_values(&y), fixture_array(f, name, "truth_out", T, E).v, (size_t)T * E,
               MAMBA2_CLOSE);
}

static void long_mamba2_computes_its_float64_fixtures(void **state) {
  struct fixture *f = fixture_open("vectors/ops/mamba2.safetensors");
  size_t cases = 0;
  for (const char *name; (name = fixture_case(f, cases)); cases++)
    for (int form = 0; form < FORMS; form++) {
      check_fixture(f, name, forms[form]);
      tools_teardown(NULL);
    }
  assert_true(cases == 7);
  fixture_close(f);
}

int ops_cases_mamba2(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(mamba2_matches_over_awkward_shapes),        OPS_CASE(long_mamba2_matches_at_the_size_of_models),
      OPS_CASE(any_split_gives_the_same_mamba2_state),     OPS_CASE(mamba2_with_hard_decays_keeps_its_digits),
      OPS_CASE(mamba2_inputs_match_and_keep_their_limits), OPS_CASE(gated_norm_matches_for_every_place_and_grouping),
      OPS_CASE(mamba2_steps_match_single_operations),      OPS_CASE(long_mamba2_computes_its_float64_fixtures),
  };
  return cmocka_run_group_tests_name("mamba2", cases, NULL, NULL);
}
