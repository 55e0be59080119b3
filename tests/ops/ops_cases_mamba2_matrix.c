// Cases of Mamba-2's chunks on cooperative matrices. Operands and states between chunks rounded to f16 may cost 1e-3.
#include "device.h"
#include "mamba2_case.h"
#include "ops_cases_matrix.h"

static const double CLOSE = 1e-3;

// Runs the case in chunks of matrices. Several heads share a workgroup where enough workgroups remain, as in long texts
// on lavapipe's few processors. With many it compiles the same for all texts.
static void run_on(uint32_t processors, const struct mamba2_case *c, const struct sequence *s, uint32_t B) {
  struct plan *plan = &vulkan_device(backend)->plan;
  const uint32_t own = plan->processors;
  const struct mamba2 rule = mamba2_rule(c, s, B);
  list->form = DELTA_CHUNK;
  plan->processors = processors;
  assert_int_equal(vulkan_mamba2_dtype(recorder, &rule), DTYPE_F16);
  RUN(op_mamba2(list, &rule));
  plan->processors = own;
}

static void matrix_run(const struct mamba2_case *c, const struct sequence *s, uint32_t B) {
  const struct plan *plan = &vulkan_device(backend)->plan;
  run_on(plan->software ? 64 : plan->processors, c, s, B);
}

// Sizes that are no multiples of a tile, of eight, of four; groups, more heads of a group than a workgroup has; texts
// without tokens and chunks that are not full. Few sizes, and mostly one head a workgroup: software compiles each
// kernel for seconds.
static void mamba2_matches_over_awkward_shapes(void **state) {
  seed(80);
  static const struct {
    enum dtype dtype;
    uint32_t heads, groups, N, P;
  } sizes[] = {{DTYPE_F16, 6, 2, 5, 7}, {DTYPE_F32, 2, 2, 20, 12}, {DTYPE_F32, 2, 2, 17, 18}};
  for (uint32_t s = 0; s < shapes(3, 1); s++)
    for (uint32_t l = 0; l < LENGTHS; l++) {
      struct mamba2_args a = {.heads = sizes[s].heads, .P = sizes[s].P, .N = sizes[s].N, .groups = sizes[s].groups};
      uint32_t T[] = {lengths[l], 0, lengths[l] / 2 + 1};
      a.D_per_element = l % 2;
      struct mamba2_case c = mamba2_random(sizes[s].dtype, a, T, l % 3 ? 3 : 1);
      matrix_run(&c, c.s, c.B);
      expect_mamba2(OUTPUTS("mamba2 on matrices"), &c, CLOSE);
      tools_teardown(NULL);
    }
}

// As many workgroups as let several heads share one.
static void mamba2_of_many_heads_matches(void **state) {
  seed(81);
  struct plan plan = vulkan_device(backend)->plan;
  plan.processors = 1;
  const struct mamba2_args a = {.heads = 7, .P = 16, .N = 16, .groups = 1};
  uint32_t T[] = {200, 70};
  struct mamba2_case c = mamba2_random(DTYPE_F16, a, T, 2);
  struct plan_mamba2_matrix p;
  const uint32_t chunks = c.rows / vulkan_rules(recorder)->chunk / 2 + 2;
  assert_true(plan_mamba2_matrix(&plan, a.N, a.P, a.heads, a.groups, chunks, &p) && p.heads > 1);
  run_on(plan.processors, &c, c.s, c.B);
  expect_mamba2(OUTPUTS("mamba2 on matrices, many heads"), &c, CLOSE);
}

// A call whose numbers are those of mamba2_random times these, but for `decay` above 1: some tokens' only.
struct extreme {
  double size, x, decay, keys, state;
};

static struct mamba2_case extreme_case(const struct extreme *e) {
  const struct mamba2_args a = {.heads = 2, .P = 16, .N = 16, .groups = 1};
  const uint32_t T[] = {150};
  struct mamba2_case c = mamba2_random(DTYPE_F32, a, T, 1);
  const uint32_t rows = c.rows + MAMBA2_PADDING, cols = mamba2_cols(a), E = a.heads * a.P;
  for (uint32_t i = 0; i < rows * a.heads; i++) {
    c.dt.v[i] *= e->size;
    if (e->decay <= 1 || i % 17 == 0) c.g.v[i] *= e->decay;
  }
  for (uint32_t i = 0; i < rows * cols; i++) c.xBC.v[i] *= i % cols < E ? e->x : e->keys;
  c.dt = activations(rows, a.heads, DENSE, c.dt.v);
  c.g = activations(rows, a.heads, DENSE, c.g.v);
  c.xBC = activations(rows, cols, DENSE, c.xBC.v);
  // What the steps add is to be seen beside the rest.
  c.D = weights(DTYPE_F32, 1, a.heads, DENSE, zeros(a.heads));
  double *S = normals((size_t)2 * E * a.N);
  for (uint32_t i = 0; i < 2 * E * a.N; i++) S[i] *= e->state;
  c.state = activations(2, E * a.N, DENSE, S);
  return c;
}

// Steps, products and states so small, or so large, that f16 does not hold them; decays that leave nothing; zeros.
static void mamba2_keeps_its_digits_at_extreme_steps(void **state) {
  seed(82);
  static const struct extreme kinds[] = {{1e-6, 1, 1, 1, 1e-6}, {1e4, 60, 1, 1, 6e5}, {1e-3, 1e-2, 1e-4, 1, 1e-5},
                                         {1, 1, 3e4, 1, 1},     {1, 1, 1, 1e3, 1e3},  {1e3, 60, 1, 1e4, 0},
                                         {1e-3, 1, 1, 1, 1e30}, {1, 1, 1, 0, 1},      {0, 1, 1, 1, 0},
                                         {0, 0, 0, 0, 1e-30},   {1, 1e-3, 1e-4, 1, 0}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct mamba2_case c = extreme_case(&kinds[k]);
    matrix_run(&c, c.s, 1);
    expect_mamba2(OUTPUTS("mamba2 on matrices, extreme steps"), &c, CLOSE);
    tools_teardown(NULL);
  }
}

// What f16 cannot hold is cut off in y, whatever comes of it is a number; the state has it all.
static void mamba2_of_huge_numbers_stays_finite(void **state) {
  seed(85);
  static const struct extreme kinds[] = {{1e3, 1e10, 1, 1e6, 1}, {1, 1e6, 3e4, 1e-3, 1e36}, {1e-30, 1, 1, 1e6, 1e20}};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    struct mamba2_case c = extreme_case(&kinds[k]);
    double *y = zeros((size_t)c.y.t.rows * c.y.t.cols), *S = zeros((size_t)c.state.t.rows * c.state.t.cols);
    reference_mamba2(y, S, &c);
    matrix_run(&c, c.s, 1);
    expect_state("mamba2 on matrices, huge: state", &c.state, S, CLOSE);
    const double *got = read_values(&c.y);
    for (size_t i = 0; i < (size_t)c.rows * c.y.t.cols; i++) assert_true(isfinite(got[i]));
    tools_teardown(NULL);
  }
}

static void any_split_gives_the_same_mamba2_state(void **state) {
  seed(83);
  const uint32_t T = CUT_TOKENS;
  struct mamba2_case c =
      mamba2_random(DTYPE_F32, (struct mamba2_args){.heads = 2, .P = 16, .N = 16, .groups = 1}, &T, 1);
  for (int i = 0; i < CUTS; i++) {
    mamba2_rewind(&c);
    struct sequence s = {0, 0, 0, c.s[0].slot};
    for (int j = 0; j < 4 && s.row < T; j++, s.row += s.T) {
      s.T = text_cuts[i][j];
      if (s.T) matrix_run(&c, &s, 1);
    }
    expect_mamba2(OUTPUTS("split mamba2 on matrices"), &c, CLOSE);
  }
}

static void gated_norm_of_f16_rounds_and_no_more(void **state) {
  seed(84);
  static const uint32_t sizes[] = {64, 7, 388};
  for (int i = 0; i < 9; i++) {
    const uint32_t T = 5, groups = 2, n = sizes[i % 3], E = groups * n;
    const enum norm_place place = (enum norm_place)(i / 3);
    struct array y = activations_in(DTYPE_F16, T, E, E + 4, normals((size_t)T * E));
    struct array z = activations(T, E, DENSE, uniforms((size_t)T * E, -4, 4));
    struct array weight = weights(DTYPE_F32, 1, E, DENSE, normals(E));
    const struct gated_norm norm = {.y = y.t,
                                    .x = y.t,
                                    .gate = z.t,
                                    .weight = place == NORM_ABSENT ? ABSENT : weight.t,
                                    .groups = groups,
                                    .group_cols = E / groups,
                                    .place = place,
                                    .eps = 1e-5f};
    RUN(op_gated_norm(list, &norm));
    for (uint32_t t = 0; t < T; t++) reference_gated_norm(y.v + (size_t)t * E, z.v + (size_t)t * E, weight.v, &norm);
    expect_close("gated_norm of f16", read_values(&y), y.v, (size_t)T * E, CLOSE);
    tools_teardown(NULL);
  }
}

static void mamba2_steps_of_f16_round_and_no_more(void **state) {
  seed(86);
  check_mamba2_step(DTYPE_F16, (const uint32_t[]){17, 0, 3}, 3, true, INFINITY, CLOSE);
}

int ops_cases_mamba2_matrix(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(mamba2_matches_over_awkward_shapes),       OPS_CASE(mamba2_of_many_heads_matches),
      OPS_CASE(mamba2_keeps_its_digits_at_extreme_steps), OPS_CASE(mamba2_of_huge_numbers_stays_finite),
      OPS_CASE(any_split_gives_the_same_mamba2_state),    OPS_CASE(gated_norm_of_f16_rounds_and_no_more),
      OPS_CASE(mamba2_steps_of_f16_round_and_no_more),
  };
  return cmocka_run_group_tests_name("mamba2 on matrices", cases, NULL, NULL);
}
