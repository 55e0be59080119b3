// Cases of mixtures of experts on cooperative matrices: rounding operands to f16 may cost 1e-3, and nothing else may.
#include "experts_case.h"
#include "ops_cases_matrix.h"

static const double CLOSE = 1e-3;

static void experts_on_matrices_match_over_sizes(void **state) {
  static const struct experts_shape sizes[] = {{70, 3, 5, 70, 64, false, false},
                                               {40, 2, 3, 34, 75, true, false},
                                               {90, 2, 7, 40, 32, false, false},
                                               {300, 2, 3, 130, 72, false, false},
                                               {60, 4, 1, 64, 40, true, false}};
  seed(75);
  for (uint32_t i = 0; i < shapes(5, 3); i++) {
    profile_begin();
    experts_check(i % 2 ? DTYPE_BF16 : DTYPE_F16, &sizes[i], CLOSE);
    assert_true(profile_end("matmul_matrix_experts"));
  }
}

static void experts_of_several_bindings_match(void **state) {
  seed(77);
  experts_check_parts(DTYPE_F16, 15, CLOSE);
}

static void one_tokens_experts_with_tiles_are_sums_of_integers(void **state) {
  static const struct experts_shape sizes[] = {{1, 3, 5, 70, 256, false, false},
                                               {1, 2, 4, 34, 512, true, false},
                                               {1, 4, 6, 40, 256, true, true},
                                               {1, 3, 5, 9, 1024, false, true}};
  static const enum dtype formats_of[] = {DTYPE_Q4_K, DTYPE_Q8_0, DTYPE_Q6_K};
  struct plan_products *plan = &((struct vulkan_backend *)backend)->products;
  const struct plan_products own = *plan;
  if (!vulkan_device(backend)->caps.integer_dot) {
    assert_false(vulkan_device(backend)->plan.software); // lavapipe has them
    skip();
  }
  seed(78);
  plan->dots = true;
  plan->dot_lanes = 64;
  for (uint32_t i = 0; i < shapes(12, 4); i++) {
    plan->dot_rows = 2 + 2 * (i % 2);
    profile_begin();
    experts_check(formats_of[i % 3], &sizes[i % 4], sizes[i % 4].gated ? CLOSE : 2e-4);
    assert_true(profile_end("matvec_dot"));
  }
  profile_begin();
  experts_check_parts(DTYPE_Q8_0, 1, 2e-4);
  assert_true(profile_end("matvec_dot"));
  *plan = own;
}

// A whole mixture: the activation of the first product is f16 and goes to the second as it is.
static struct array mixture(enum matrices matrices) {
  enum { T = 50, E = 4, k = 2, D = 40, F = 24, R = T * k };
  seed(76);
  struct array x = activations(T, D, DENSE, normals(T * D)), y = activations(R, D, DENSE, NULL);
  struct array up = weights(DTYPE_F16, E * 2 * F, D, DENSE, normals(E * 2 * F * D));
  struct array down = weights(DTYPE_BF16, E * D, F, DENSE, normals(E * D * F));
  struct array ids = experts_ids(T, k, E);
  list->matrices = matrices;
  profile_begin();
  begin();
  const struct tensor order = oplist_value(list, 1, R), starts = oplist_value(list, 1, E + 1);
  const struct tensor both = oplist_value(list, R, 2 * F), act = oplist_value(list, R, F);
  op_group(list, order, starts, ids.t);
  op_experts(list, &(struct experts){both, x.t, up.t, ids.t, order, starts});
  op_glu(list, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
  op_experts(list, &(struct experts){y.t, act, down.t, ids.t, order, starts});
  run();
  assert_int_equal(list->values[act.value - 1].dtype, matrices ? DTYPE_F16 : DTYPE_F32);
  assert_int_equal(profile_end("matmul_matrix_experts_gated"), matrices != MATRICES_NONE);
  return y;
}

static void a_mixture_stays_f16_between_its_products(void **state) {
  const struct array f32 = mixture(MATRICES_NONE), f16 = mixture(MATRICES_BEST);
  expect_close("mixture on matrices", read_values(&f16), read_values(&f32), (size_t)f32.t.rows * f32.t.cols, CLOSE);
}

static struct tensor random_matrix(enum dtype dtype, uint32_t N, uint32_t K) {
  double *values = normals((size_t)N * K);
  for (size_t i = 0; i < (size_t)N * K; i++) values[i] /= sqrt(K);
  return weights(dtype, N, K, DENSE, values).t;
}

// One token through a layer's mixture, as ffn_experts.c and block.c record it, with or without a shared expert. T rows
// of T texts.
static struct array one_token(uint32_t T, enum dtype dtype, bool plain) {
  enum { E = 6, k = 3, D = 64, F = 32 };
  seed(79);
  struct array before = activations(T, D, DENSE, normals(T * D)), after = activations(T, D, DENSE, NULL);
  const struct tensor norm = weights(DTYPE_F32, 1, D, DENSE, uniforms(D, 0.5, 2)).t;
  const struct tensor router = random_matrix(DTYPE_F32, E + 1, D), shared = random_matrix(dtype, 2 * F, D);
  const struct tensor shared_down = random_matrix(dtype, D, F), up = random_matrix(dtype, E * 2 * F, D);
  const struct tensor down_w = random_matrix(dtype, E * D, F);
  list->plain = plain;
  list->longest = 1;
  begin();
  const struct tensor x = oplist_value(list, T, D), h = oplist_value(list, T, D), y = oplist_value(list, T, D);
  const struct tensor sum = oplist_value(list, T, D), logits = oplist_value(list, T, E + 1);
  const struct tensor ids = oplist_value(list, T, k), scores = oplist_value(list, T, k);
  const struct tensor order = oplist_value(list, 1, T * k), starts = oplist_value(list, 1, E + 1);
  const struct tensor both = oplist_value(list, T, 2 * F), act = oplist_value(list, T, F);
  const struct tensor gate_up = oplist_value(list, T * k, 2 * F), acts = oplist_value(list, T * k, F);
  const struct tensor down = oplist_value(list, T * k, D), alone = oplist_value(list, T, D);
  op_copy(list, x, before.t);
  op_norm(list, h, x, norm, ABSENT, 1e-5f);
  op_linear(list, logits, h, router, ABSENT);
  op_linear(list, both, h, shared, ABSENT);
  op_glu(list, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
  op_route(list, &(struct route){.ids = ids, .weights = scores, .logits = logits, .experts = E, .normalized = true});
  op_group(list, order, starts, ids);
  op_linear(list, alone, act, shared_down, ABSENT);
  op_experts(list, &(struct experts){gate_up, h, up, ids, order, starts});
  op_glu(list, acts, tensor_cols(gate_up, 0, F), tensor_cols(gate_up, F, F), ACTIVATION_SILU);
  op_experts(list, &(struct experts){down, acts, down_w, ids, order, starts});
  op_mix(list, &(struct mix){.y = y, .x = down, .weights = scores, .shared = alone, .logits = logits, .gate_col = E});
  op_add(list, sum, x, y);
  oplist_bind(list, sum, after.t);
  run();
  return after;
}

// The norm before a mixture has several readers. For one token whose experts are products of integers they compute it
// themselves, and the sum over experts adds to the residual stream.
static void products_of_one_token_norm_their_input(void **state) {
  static const struct {
    uint32_t T;
    enum dtype dtype;
    bool left;
    double limit;
  } cases[] = {{1, DTYPE_Q8_0, true, 2e-4}, {1, DTYPE_F16, false, 5e-6}, {3, DTYPE_Q8_0, false, 1e-3}};
  struct plan_products *plan = &((struct vulkan_backend *)backend)->products;
  const struct plan_products own = *plan;
  if (!vulkan_device(backend)->caps.integer_dot) {
    assert_false(vulkan_device(backend)->plan.software); // lavapipe has them
    skip();
  }
  plan->dots = true;
  plan->dot_lanes = 64;
  for (int i = 0; i < 3; i++) {
    const struct array plain = one_token(cases[i].T, cases[i].dtype, true);
    profile_begin();
    const struct array joined = one_token(cases[i].T, cases[i].dtype, false);
    struct array *const both[] = {(struct array *)&joined, (struct array *)&plain};
    expect_close("mixture of one token", read_values(both[0]), read_values(both[1]), (size_t)cases[i].T * 64,
                 cases[i].limit);
    assert_int_equal(profile_end("rmsnorm"), !cases[i].left);
    tools_teardown(NULL);
  }
  *plan = own;
}

int ops_cases_experts_matrix(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(experts_on_matrices_match_over_sizes),
      OPS_CASE(experts_of_several_bindings_match),
      OPS_CASE(one_tokens_experts_with_tiles_are_sums_of_integers),
      OPS_CASE(a_mixture_stays_f16_between_its_products),
      OPS_CASE(products_of_one_token_norm_their_input),
  };
  return cmocka_run_group_tests_name("experts on matrices", cases, NULL, NULL);
}
