// Cases of Head-in-Head: masks and the rule (docs/mixers.md).
#include "delta_case.h"
#include "ops_cases.h"

enum { Dk = DELTA_DK, Dv = DELTA_DV, BLOCKS = 5 }; // of most cases
static const uint32_t block_counts[] = {BLOCKS, 2, 4, 10, 1};

// ---------------------------------------------------------------- against float64

static void hh_rule_matches_over_awkward_shapes(void **state) {
  seed(50);
  static const struct {
    uint32_t r, d, Dv;
    enum hh_nonneg nonneg;
  } kinds[] = {{3, 43, 21, HH_NONNEG_EXP}, // keys so long that an invocation has one block
               {3, 1, 1, HH_NONNEG_GIVEN},    {3, 8, 7, HH_NONNEG_SIGMOID},    {2, 3, 7, HH_NONNEG_SIGMOID},
               {2, 19, 64, HH_NONNEG_GIVEN},  {4, 3, 130, HH_NONNEG_SOFTPLUS}, {8, 8, 7, HH_NONNEG_SIGMOID},
               {16, 3, 7, HH_NONNEG_SIGMOID}, {16, 19, 64, HH_NONNEG_GIVEN}};
  for (uint32_t i = 0; i < shapes(9, 1); i++)
    for (uint32_t l = 0; l < LENGTHS; l++) {
      struct delta_args a = {.H = 2, .Hv = 2, .n = 1, .r = kinds[i].r, .Dv = kinds[i].Dv, .scale = 0.3f};
      uint32_t T[] = {lengths[l], 0, lengths[l] / 2 + 1};
      a.Dk = a.r * kinds[i].d;
      a.gated = (i + l) % 2;
      a.fixed_mask = l / 2 % 2;
      a.nonneg = kinds[i].nonneg;
      check_delta(OUTPUTS("hh_rule"), 1, a, T, l % 3 == 2 ? 3 : 1, l % 2 ? 2 : 1);
    }
}

static void long_hh_rule_of_usual_heads_matches(void **state) {
  seed(51);
  for (uint32_t r = 2; r <= 8; r *= 2)
    for (int gated = 0; gated < 2; gated++) {
      uint32_t T[] = {150, 65};
      check_delta(OUTPUTS("hh_rule, heads of 128"), 4,
                  (struct delta_args){2, 2, 128, 128, 1, r, 0.088f, gated, false, HH_NONNEG_SOFTPLUS, false}, T, 2,
                  gated ? 1 : 2);
    }
}

static void hh_rule_shares_keys_among_grouped_value_heads(void **state) {
  seed(52);
  for (int l = 0; l < LENGTHS; l++) {
    uint32_t T[] = {lengths[l], lengths[LENGTHS - 1 - l]};
    struct delta_args a = {2, 6, Dk, Dv, 1, BLOCKS, 0.25f, l % 2, l % 3 == 0, HH_NONNEG_SIGMOID, l / 2 % 2};
    check_delta(OUTPUTS("hh_rule, grouped value heads"), 4, a, T, 2, 1);
  }
}

static void long_hh_rule_computes_the_operator_truths(void **state) {
  assert_int_equal(check_truths(OUTPUTS("Head-in-Head truths"), "vectors/ops/hh.safetensors", true), 3);
}

// ---------------------------------------------------------------- masks

static void masks_are_symmetric_with_unit_diagonal_and_entries_up_to_one(void **state) {
  seed(53);
  for (int nonneg = HH_NONNEG_SOFTPLUS; nonneg <= HH_NONNEG_EXP; nonneg++)
    for (uint32_t r = 1; r <= HH_MOST; r++) {
      float z[HH_MOST * HH_MOST], M[HH_MOST * HH_MOST];
      double values[HH_MOST * HH_MOST], want[HH_MOST * HH_MOST], got[HH_MOST * HH_MOST];
      for (uint32_t i = 0; i < r * r; i++) values[i] = z[i] = (float)(2 * normal());
      hh_mask(M, z, r, (enum hh_nonneg)nonneg);
      reference_mask(want, values, r, (enum hh_nonneg)nonneg);
      for (uint32_t i = 0; i < r * r; i++) {
        got[i] = M[i];
        assert_true(M[i] == M[i % r * r + i / r] && M[i] >= 0 && M[i] <= 1 + 1e-6);
        if (i % (r + 1) == 0) assert_true(M[i] > 0.99); // 1 but for the 1e-6 beside the squares
      }
      expect_close("hh_mask", got, want, r * r, 1e-6);
    }
}

static void exponential_masks_of_large_logits_are_finite(void **state) {
  seed(54);
  uint32_t T = 20;
  struct delta_args a = {1, 1, Dk, Dv, 1, BLOCKS, 1, false, false, HH_NONNEG_EXP, false};
  struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 1);
  for (size_t i = 0; i < (size_t)(T + DELTA_PADDING) * BLOCKS * BLOCKS; i++) c.mask.v[i] *= 60;
  c.mask = activations(T + DELTA_PADDING, BLOCKS * BLOCKS, DENSE, c.mask.v);
  expect_forms(OUTPUTS("masks of large logits"), &c);
}

// ---------------------------------------------------------------- properties

static void a_mask_of_ones_is_the_delta_rule(void **state) {
  seed(55);
  const uint32_t T = 100;
  for (uint32_t i = 0; i < shapes(4, 2); i++) {
    struct delta_args a = {2, 2, Dk, Dv, 1, i / 2 ? 4 : BLOCKS, 0.2f, i % 2, true, HH_NONNEG_GIVEN, false};
    struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 2), without = c;
    uint32_t n = a.Hv * a.r * a.r;
    c.mask = activations(1, n, DENSE, uniforms(n, 1, 1));
    without.a.r = 1;
    delta_case_run(&without, c.s, 1, DELTA_RECURRENT);
    double *o = read_values(&c.o), *S = read_values(&c.state);
    delta_rewind(&c);
    delta_case_run(&c, c.s, 1, DELTA_AUTO);
    expect_close("mask of ones: o", read_values(&c.o), o, (size_t)T * c.o.t.cols, 1e-6);
    expect_close("mask of ones: state", read_values(&c.state), S, 2 * (size_t)c.state.t.cols, 1e-6);
  }
}

// Eigenvalues of a symmetric matrix, which becomes diagonal: Jacobi's rotations.
static void eigenvalues(double *x, uint32_t n) {
  for (int sweep = 0; sweep < 30; sweep++)
    for (uint32_t p = 0; p < n; p++)
      for (uint32_t q = p + 1; q < n; q++) {
        double angle = 0.5 * atan2(2 * x[p * n + q], x[q * n + q] - x[p * n + p]), c = cos(angle), s = sin(angle);
        for (uint32_t i = 0; i < n; i++) {
          double a = x[i * n + p], b = x[i * n + q];
          x[i * n + p] = c * a - s * b, x[i * n + q] = s * a + c * b;
        }
        for (uint32_t i = 0; i < n; i++) {
          double a = x[p * n + i], b = x[q * n + i];
          x[p * n + i] = c * a - s * b, x[q * n + i] = s * a + c * b;
        }
      }
}

// One token with v = 0 turns S = I into its transition.
static double *transition(uint32_t r, double beta, double length) {
  uint32_t T = 1;
  struct delta_args a = {1, 1, Dk, Dv, 1, r, 1, false, false, HH_NONNEG_SOFTPLUS, false};
  struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 1);
  double *one = zeros(2 * Dk * Dv), *square = zeros(Dk * Dk);
  for (int i = 0; i < Dk; i++) one[Dk * Dv + i * Dv + i] = 1, c.qkv.v[Dk + i] *= length;
  for (int i = 0; i < Dv; i++) c.qkv.v[2 * Dk + i] = 0;
  c.qkv = activations(1 + DELTA_PADDING, 2 * Dk + Dv, DENSE, c.qkv.v);
  c.beta = activations(1 + DELTA_PADDING, 1, DENSE, uniforms(1 + DELTA_PADDING, beta, beta));
  c.state = activations(2, Dk * Dv, DENSE, one);
  delta_case_run(&c, c.s, 1, DELTA_AUTO);
  const double *S = read_values(&c.state) + Dk * Dv;
  for (int i = 0; i < Dk * Dk; i++) square[i] = S[i / Dk * Dv + i % Dk];
  return square;
}

static void the_erase_has_at_most_rank_r_and_eigenvalues_up_to_beta_times_the_key_squared(void **state) {
  seed(56);
  for (uint32_t k = 0; k < shapes(5, 1); k++)
    for (int i = 0; i < 8; i++) {
      const uint32_t r = block_counts[k];
      double beta = uniform(0.1, 2), length = uniform(0.5, 1), *erase = zeros(Dk * Dk);
      double *S = transition(r, beta, length), most = beta * length * length;
      for (int j = 0; j < Dk * Dk; j++) erase[j] = (j % (Dk + 1) == 0) - S[j];
      eigenvalues(erase, Dk);
      uint32_t rank = 0;
      for (int j = 0; j < Dk; j++) {
        double value = erase[j * (Dk + 1)];
        assert_true(value >= -1e-6 && value <= most + 1e-6);
        rank += value > 1e-5;
      }
      assert_true(rank >= 1 && rank <= r);
    }
}

static void the_transition_without_decay_lies_between_one_minus_beta_and_one(void **state) {
  seed(57);
  for (uint32_t k = 0; k < shapes(4, 1); k++)
    for (int i = 0; i < 8; i++) {
      const uint32_t r = block_counts[k];
      double beta = uniform(0.1, 2), *S = transition(r, beta, 1), least = 2;
      eigenvalues(S, Dk);
      for (int j = 0; j < Dk; j++) {
        assert_true(S[j * (Dk + 1)] >= 1 - beta - 1e-6 && S[j * (Dk + 1)] <= 1 + 1e-6);
        least = fmin(least, S[j * (Dk + 1)]);
      }
      assert_true(least < 1 - beta / r + 1e-6); // the erase's trace is beta
    }
}

// x <- x R in every block, R a product of random reflections.
static void rotate_blocks(double *x, uint32_t blocks, uint32_t d, const double *mirrors, uint32_t count) {
  for (uint32_t b = 0; b < blocks; b++)
    for (uint32_t m = 0; m < count; m++) {
      const double *mirror = mirrors + (b * count + m) * d;
      double dot = 0;
      for (uint32_t i = 0; i < d; i++) dot += x[b * d + i] * mirror[i];
      for (uint32_t i = 0; i < d; i++) x[b * d + i] -= 2 * dot * mirror[i];
    }
}

static void a_rotation_within_blocks_of_keys_and_queries_leaves_outputs(void **state) {
  seed(58);
  enum { MIRRORS = 6, d = Dk / BLOCKS };
  uint32_t T = 90;
  struct delta_args a = {1, 1, Dk, Dv, 1, BLOCKS, 0.3f, true, false, HH_NONNEG_SIGMOID, false};
  struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 1);
  c.state = activations(2, Dk * Dv, DENSE, NULL);
  double *mirrors = normals(BLOCKS * MIRRORS * d);
  for (uint32_t i = 0; i < BLOCKS * MIRRORS; i++) normalise(mirrors + i * d, d);
  delta_case_run(&c, c.s, 1, DELTA_AUTO);
  double *o = read_values(&c.o);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t x = 0; x < 2; x++)
      rotate_blocks(c.qkv.v + (size_t)t * delta_cols(DTYPE_F32, a) + x * Dk, BLOCKS, d, mirrors, MIRRORS);
  c.qkv = activations(c.qkv.t.rows, c.qkv.t.cols, DENSE, c.qkv.v);
  delta_rewind(&c);
  delta_case_run(&c, c.s, 1, DELTA_AUTO);
  expect_close("rotated blocks", read_values(&c.o), o, (size_t)T * Dv, 1e-6);
}

static void hh_any_split_of_a_sequence_gives_the_same_state(void **state) {
  seed(59);
  for (uint32_t k = 0; k < shapes(4, 1); k++)
    check_splits(OUTPUTS("hh split"),
                 (struct delta_args){2, 2, Dk, Dv, 1, block_counts[k], 0.2f, k != 3, false, HH_NONNEG_EXP, false});
}

static void hh_hard_decay_gives_no_nan_and_forgets(void **state) {
  seed(60);
  check_forgetting(OUTPUTS("hh hard decay"),
                   (struct delta_args){1, 1, Dk, Dv, 1, BLOCKS, 1, true, true, HH_NONNEG_SOFTPLUS, false});
}

static void hh_a_hard_decay_costs_later_tokens_no_digits(void **state) {
  seed(61);
  check_digits_after_a_decay(OUTPUTS("hh after a hard decay"),
                             (struct delta_args){1, 1, Dk, Dv, 1, BLOCKS, 1, true, false, HH_NONNEG_SIGMOID, false});
}

int ops_cases_hh(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(hh_rule_matches_over_awkward_shapes),
      OPS_CASE(long_hh_rule_of_usual_heads_matches),
      OPS_CASE(hh_rule_shares_keys_among_grouped_value_heads),
      OPS_CASE(long_hh_rule_computes_the_operator_truths),
      OPS_CASE(masks_are_symmetric_with_unit_diagonal_and_entries_up_to_one),
      OPS_CASE(exponential_masks_of_large_logits_are_finite),
      OPS_CASE(a_mask_of_ones_is_the_delta_rule),
      OPS_CASE(the_erase_has_at_most_rank_r_and_eigenvalues_up_to_beta_times_the_key_squared),
      OPS_CASE(the_transition_without_decay_lies_between_one_minus_beta_and_one),
      OPS_CASE(a_rotation_within_blocks_of_keys_and_queries_leaves_outputs),
      OPS_CASE(hh_any_split_of_a_sequence_gives_the_same_state),
      OPS_CASE(hh_hard_decay_gives_no_nan_and_forgets),
      OPS_CASE(hh_a_hard_decay_costs_later_tokens_no_digits),
  };
  return cmocka_run_group_tests_name("Head-in-Head", cases, NULL, NULL);
}
