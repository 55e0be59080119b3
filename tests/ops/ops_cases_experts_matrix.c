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

int ops_cases_experts_matrix(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(experts_on_matrices_match_over_sizes),
      OPS_CASE(experts_of_several_bindings_match),
      OPS_CASE(one_tokens_experts_with_tiles_are_sums_of_integers),
      OPS_CASE(a_mixture_stays_f16_between_its_products),
  };
  return cmocka_run_group_tests_name("experts on matrices", cases, NULL, NULL);
}
