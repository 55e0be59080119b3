// What the delta rule and its products must do whatever the numbers: properties, and hard decay.
#include "delta_case.h"
#include "ops_cases.h"

enum { Dk = DELTA_DK, Dv = DELTA_DV };

// ---------------------------------------------------------------- properties

static void any_split_of_a_sequence_gives_the_same_state(void **state) {
  seed(33);
  for (int gated = 0; gated < 2; gated++)
    check_splits(OUTPUTS("split sequences"), (struct delta_args){2, 2, Dk, Dv, 1, .scale = 0.2f, .gated = gated});
}

// One head: keys (T, n, Dk), values (T, n, Dv), beta (T, n), g (T) or NULL; a token's last key is also its query.
static struct delta_case product_case(uint32_t T, uint32_t n, const double *keys, const double *values,
                                      const double *beta, const double *g, const double *S0) {
  struct delta_case c = {
      .a = {1, 1, Dk, Dv, n, .scale = 1, .gated = g != NULL}, .B = 1, .rows = T, .s = {{0, T, 0, 0}}};
  uint32_t cols = delta_cols(DTYPE_F32, c.a);
  double *qkv = zeros((size_t)T * cols);
  for (uint32_t t = 0; t < T; t++) {
    double *row = qkv + (size_t)t * cols;
    memcpy(row, keys + (t * n + n - 1) * Dk, Dk * sizeof *keys);
    memcpy(row + Dk, keys + t * n * Dk, n * Dk * sizeof *keys);
    memcpy(row + (1 + n) * Dk, values + t * n * Dv, n * Dv * sizeof *values);
  }
  c.qkv = activations(T, cols, DENSE, qkv);
  c.beta = activations(T, n, DENSE, beta);
  c.g = activations(T, 1, DENSE, g);
  c.state = activations(1, Dk * Dv, DENSE, S0);
  c.o = activations(T, Dv, DENSE, NULL);
  return c;
}

// One step a token, beta and g the same everywhere.
static struct delta_case plain_case(uint32_t T, const double *keys, const double *values, double beta, double g,
                                    const double *S0) {
  return product_case(T, 1, keys, values, uniforms(T, beta, beta), g != 0 ? uniforms(T, g, g) : NULL, S0);
}

static double *unit_keys(uint32_t count) {
  double *keys = normals((size_t)count * Dk);
  for (uint32_t i = 0; i < count; i++) normalise(keys + (size_t)i * Dk, Dk);
  return keys;
}

// Both cases in either form: got's o is want's at the end of every `every_o` tokens, and so is the state.
static void expect_same(const char *what, struct delta_case *got, struct delta_case *want, uint32_t every_o,
                        double limit) {
  for (int form = 0; form < 2; form++) {
    delta_rewind(got), delta_rewind(want);
    delta_case_run(got, got->s, 1, forms[form]);
    delta_case_run(want, want->s, 1, forms[form]);
    double *o = zeros((size_t)got->rows * Dv), *all = read_values(&want->o);
    for (uint32_t t = 0; t < got->rows; t++) memcpy(o + t * Dv, all + ((t + 1) * every_o - 1) * Dv, Dv * sizeof *o);
    expect_close(what, read_values(&got->o), o, (size_t)got->rows * Dv, limit);
    expect_close(what, read_values(&got->state), read_values(&want->state), got->state.t.cols, limit);
  }
}

static void orthogonal_keys_store_values_exactly(void **state) {
  seed(34);
  double *keys = zeros(Dk * Dk), *values = normals(Dk * Dv);
  for (int i = 0; i < Dk; i++) keys[i * Dk + (i * 7 + 3) % Dk] = 1;
  for (int form = 0; form < 2; form++) {
    struct delta_case c = plain_case(Dk, keys, values, 1, 0, normals(Dk * Dv));
    delta_case_run(&c, c.s, 1, forms[form]);
    double *S = read_values(&c.state);
    for (int i = 0; i < Dk; i++)
      for (int j = 0; j < Dv; j++) assert_true(fabs(S[(i * 7 + 3) % Dk * Dv + j] - (float)values[i * Dv + j]) < 1e-6);
  }
}

static void a_repeated_key_returns_its_latest_value(void **state) {
  seed(35);
  enum { T = 100 };
  double *keys = zeros(T * Dk), *values = normals(T * Dv), *one = unit_keys(1);
  for (int t = 0; t < T; t++) memcpy(keys + t * Dk, one, Dk * sizeof *one);
  for (int form = 0; form < 2; form++) {
    struct delta_case c = plain_case(T, keys, values, 1, 0, NULL);
    delta_case_run(&c, c.s, 1, forms[form]);
    expect_close("repeated key", read_values(&c.o), values, T * Dv, 1e-6); // q = k: o is what is stored under k
  }
}

static void padding_rows_with_zero_beta_and_key_do_nothing(void **state) {
  seed(36);
  enum { T = 70 };
  double *keys = zeros(T * Dk), *S0 = normals(Dk * Dv);
  for (int form = 0; form < 2; form++) {
    struct delta_case c = plain_case(T, keys, normals(T * Dv), 0, 0, S0);
    delta_case_run(&c, c.s, 1, forms[form]);
    expect_close("padding rows", read_values(&c.state), c.state.v, Dk * Dv, 0);
  }
}

static void padding_after_a_text_changes_nothing(void **state) {
  seed(63);
  enum { T = 50, ALL = 64 };
  double *keys = zeros(ALL * Dk), *values = normals(ALL * Dv), *beta = zeros(ALL), *g = zeros(ALL);
  double *S0 = normals(Dk * Dv);
  memcpy(keys, unit_keys(T), T * Dk * sizeof *keys);
  memcpy(beta, uniforms(T, 0, 2), T * sizeof *beta);
  memcpy(g, uniforms(T, -1, 0), T * sizeof *g);
  struct delta_case padded = product_case(ALL, 1, keys, values, beta, g, S0);
  struct delta_case text = product_case(T, 1, keys, values, beta, g, S0);
  expect_same("padded", &text, &padded, 1, 1e-6);
}

// The reduction paper's Proposition 3.1, from an empty state. product_case() asks with a token's key.
static void a_rotation_of_keys_and_queries_leaves_outputs(void **state) {
  seed(64);
  enum { T = 90, MIRRORS = 6 };
  for (uint32_t n = 1; n <= 3; n += 2) {
    double *keys = unit_keys(T * n), *turned = zeros(T * n * Dk), *mirrors = unit_keys(MIRRORS);
    double *values = normals(T * n * Dv), *beta = uniforms(T * n, 0, 2), *g = uniforms(T, -1, 0);
    memcpy(turned, keys, T * n * Dk * sizeof *keys);
    for (uint32_t row = 0; row < T * n; row++)
      for (uint32_t m = 0; m < MIRRORS; m++) {
        double *x = turned + row * Dk, *mirror = mirrors + m * Dk, dot = 0;
        for (uint32_t i = 0; i < Dk; i++) dot += x[i] * mirror[i];
        for (uint32_t i = 0; i < Dk; i++) x[i] -= 2 * dot * mirror[i];
      }
    struct delta_case before = product_case(T, n, keys, values, beta, g, NULL);
    struct delta_case after = product_case(T, n, turned, values, beta, g, NULL);
    for (int form = 0; form < 2; form++) {
      delta_rewind(&before), delta_rewind(&after);
      delta_case_run(&before, before.s, 1, forms[form]);
      delta_case_run(&after, after.s, 1, forms[form]);
      expect_close("rotated keys: o", read_values(&after.o), read_values(&before.o), T * Dv, DELTA_CLOSE);
    }
  }
}

static double norm(const double *x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

static void expect_shrinking(struct delta_case *c, double slack) {
  for (int form = 0; form < 2; form++) {
    delta_rewind(c);
    double before = norm(c->state.v, Dk * Dv);
    for (int call = 0; call < 8; call++) {
      delta_case_run(c, c->s, 1, forms[form]);
      double after = norm(read_values(&c->state), Dk * Dv);
      assert_true(after <= before * (1 + slack));
      before = after;
    }
  }
}

static void state_norm_never_grows_without_values(void **state) {
  seed(37);
  enum { T = 64 };
  for (int b = 0; b < 3; b++) {
    struct delta_case c = plain_case(T, unit_keys(T), zeros(T * Dv), b, b == 2 ? -1e-4 : 0, normals(Dk * Dv));
    expect_shrinking(&c, 1e-5); // reflections (beta 2) keep it, to rounding
  }
}

// beta 2 reflects: the swap of elements i and j is I - 2 k k^T with k = (e_i - e_j) / sqrt 2.
static void swap_elements(double *S, double *key, uint32_t i, uint32_t j) {
  key[i] = sqrt(0.5), key[j] = -sqrt(0.5);
  for (uint32_t l = 0; l < Dv; l++) {
    double swap = S[i * Dv + l];
    S[i * Dv + l] = S[j * Dv + l];
    S[j * Dv + l] = swap;
  }
}

static double *identity(void) {
  double *S = zeros(Dk * Dv);
  for (int i = 0; i < Dk; i++) S[i * Dv + i] = 1;
  return S;
}

static void negative_eigenvalues_track_permutations(void **state) {
  seed(38);
  enum { T = 300 };
  for (int form = 0; form < 2; form++) {
    double *keys = zeros(T * Dk), *S = identity();
    for (int t = 0; t < T; t++) {
      uint32_t i = (uint32_t)uniform(0, Dk), j = (i + 1 + (uint32_t)uniform(0, Dk - 1)) % Dk;
      swap_elements(S, keys + t * Dk, i, j);
    }
    struct delta_case c = plain_case(T, keys, zeros(T * Dv), 2, 0, identity());
    delta_case_run(&c, c.s, 1, forms[form]);
    expect_close("permutations", read_values(&c.state), S, Dk * Dv, 1e-4); // what f32 loses over so many swaps
  }
}

// ---------------------------------------------------------------- properties of products

// The merged step has beta* = b1 + b2 - b1 b2 and beta* v* = b2 v2 + (1 - b2) b1 v1. A step before both has beta 0.
static void two_steps_with_one_unit_key_are_one_step(void **state) {
  seed(43);
  enum { T = 150, n = 3 };
  double *once = unit_keys(T), *keys = zeros(T * n * Dk), *merged = zeros(T * Dv), *merged_beta = zeros(T);
  double *values = normals(T * n * Dv), *beta = uniforms(T * n, 0.1, 0.9), *g = uniforms(T, -2, 0);
  double *S0 = normals(Dk * Dv);
  for (int t = 0; t < T; t++) {
    double b1 = beta[t * n + 1], b2 = beta[t * n + 2], *v = values + t * n * Dv;
    beta[t * n] = 0;
    merged_beta[t] = b1 + b2 - b1 * b2;
    for (int m = 1; m < n; m++) memcpy(keys + (t * n + m) * Dk, once + t * Dk, Dk * sizeof *once);
    for (int j = 0; j < Dv; j++) merged[t * Dv + j] = (b2 * v[2 * Dv + j] + (1 - b2) * b1 * v[Dv + j]) / merged_beta[t];
  }
  struct delta_case one = product_case(T, 1, once, merged, merged_beta, g, S0);
  struct delta_case two = product_case(T, n, keys, values, beta, g, S0);
  expect_same("one key in two steps", &two, &one, 1, DELTA_CLOSE);
}

// Step m of token t is token t n + m of the gated rule, the decay at m = 0.
static void a_product_is_the_gated_rule_over_its_steps(void **state) {
  seed(44);
  enum { T = 70 };
  static const uint32_t steps[] = {3, 1, 2, 4};
  for (uint32_t i = 0; i < shapes(4, 1); i++) {
    const uint32_t n = steps[i];
    double *keys = unit_keys(T * n), *values = normals(T * n * Dv), *beta = uniforms(T * n, 0, 2);
    double *g = uniforms(T, -1, 0), *virtual_g = zeros(T * n), *S0 = normals(Dk * Dv);
    for (uint32_t t = 0; t < T; t++) virtual_g[t * n] = g[t];
    struct delta_case product = product_case(T, n, keys, values, beta, g, S0);
    struct delta_case rule = product_case(T * n, 1, keys, values, beta, virtual_g, S0);
    expect_same("steps as tokens", &product, &rule, n, DELTA_CLOSE);
  }
}

static void a_decay_of_zero_is_the_rule_without_one(void **state) {
  seed(65);
  enum { T = 100 };
  for (uint32_t n = 1; n <= 3; n += 2) {
    double *keys = unit_keys(T * n), *values = normals(T * n * Dv), *beta = uniforms(T * n, 0, 2);
    double *S0 = normals(Dk * Dv);
    struct delta_case gated = product_case(T, n, keys, values, beta, zeros(T), S0);
    struct delta_case plain = product_case(T, n, keys, values, beta, NULL, S0);
    expect_same("no decay", &gated, &plain, 1, DELTA_CLOSE);
  }
}

static void steps_with_zero_beta_leave_the_gated_rule(void **state) {
  seed(45);
  enum { T = 90, n = 3 };
  double *keys = unit_keys(T), *values = normals(T * Dv), *beta = uniforms(T, 0, 2), *g = uniforms(T, -1, 0);
  double *all_keys = unit_keys(T * n), *all_values = normals(T * n * Dv), *all_beta = zeros(T * n);
  for (int t = 0; t < T; t++) {
    memcpy(all_keys + (t * n + n - 1) * Dk, keys + t * Dk, Dk * sizeof *keys);
    memcpy(all_values + (t * n + n - 1) * Dv, values + t * Dv, Dv * sizeof *values);
    all_beta[t * n + n - 1] = beta[t];
  }
  struct delta_case rule = product_case(T, 1, keys, values, beta, g, NULL);
  struct delta_case product = product_case(T, n, all_keys, all_values, all_beta, g, NULL);
  expect_same("steps with beta 0", &product, &rule, 1, DELTA_CLOSE);
}

static void state_norm_of_products_never_grows_without_values(void **state) {
  seed(46);
  enum { T = 40, n = 3 };
  for (int gated = 0; gated < 2; gated++) {
    struct delta_case c = product_case(T, n, unit_keys(T * n), zeros(T * n * Dv), uniforms(T * n, 0, 2),
                                       gated ? uniforms(T, -1e-3, 0) : NULL, normals(Dk * Dv));
    expect_shrinking(&c, 1e-6);
  }
}

// A random permutation p of D elements as at most D - 1 swaps: element i is fetched to its place, one after another.
static uint32_t random_swaps(uint32_t D, uint32_t swaps[][2]) {
  uint32_t p[8], used = 0;
  for (uint32_t i = 0; i < D; i++) p[i] = i;
  for (uint32_t i = 0; i + 1 < D; i++) {
    uint32_t j = i + (uint32_t)uniform(0, D - i), was = p[i];
    if (j == i) continue;
    p[i] = p[j];
    p[j] = was;
    swaps[used][0] = i;
    swaps[used++][1] = j;
  }
  return used;
}

// n = 4 steps make any element of S5: its word problem is tracked without training.
static void long_four_steps_track_the_permutations_of_five(void **state) {
  seed(47);
  enum { D = 5, n = 4, T = 300 };
  double *keys = zeros(T * n * Dk), *beta = zeros(T * n), *S = identity();
  for (uint32_t t = 0; t < T; t++) {
    uint32_t swaps[n][2], used = random_swaps(D, swaps);
    for (uint32_t m = 0; m < used; m++) {
      beta[t * n + m] = 2;
      swap_elements(S, keys + (t * n + m) * Dk, swaps[m][0], swaps[m][1]);
    }
  }
  for (int form = 0; form < 2; form++) {
    struct delta_case c = product_case(T, n, keys, zeros(T * n * Dv), beta, NULL, identity());
    delta_case_run(&c, c.s, 1, forms[form]);
    double *got = read_values(&c.state);
    for (int i = 0; i < Dk * Dv; i++) assert_true(fabs(got[i] - S[i]) < 1e-4);
    expect_close("permutations by products", got, S, Dk * Dv, 1e-4);
  }
}

// Two keys in D of Dk dimensions, rows 1 and 2 of three: the first step has beta 0.
static double *two_keys(uint32_t D) {
  double *keys = zeros(3 * Dk);
  for (uint32_t m = 1; m < 3; m++) {
    memcpy(keys + m * Dk, normals(D), D * sizeof *keys);
    normalise(keys + m * Dk, D);
  }
  return keys;
}

static double cosine_of(const double *keys) {
  double sum = 0;
  for (int i = 0; i < Dk; i++) sum += keys[Dk + i] * keys[2 * Dk + i];
  return sum;
}

// Trace and determinant of A = (I - b1 k1 k1^T)(I - b0 k0 k0^T) in the plane of its keys, read off a state that starts
// as the identity; outside the plane A is the identity.
static void plane_of_transition(const double *keys, const double *betas, enum delta_form form, double *trace,
                                double *determinant) {
  double e[2][Dk], block[2][2] = {{0}}, along = cosine_of(keys), whole = 0;
  const double beta[] = {0, betas[0], betas[1]};
  struct delta_case c = product_case(1, 3, keys, zeros(3 * Dv), beta, NULL, identity());
  delta_case_run(&c, c.s, 1, form);
  double *A = read_values(&c.state);
  for (int i = 0; i < Dk; i++) {
    e[0][i] = keys[Dk + i];
    e[1][i] = (keys[2 * Dk + i] - along * e[0][i]) / sqrt(1 - along * along);
    whole += A[i * Dv + i];
  }
  for (int r = 0; r < 2; r++)
    for (int s = 0; s < 2; s++)
      for (int i = 0; i < Dk; i++)
        for (int j = 0; j < Dk; j++) block[r][s] += e[r][i] * A[i * Dv + j] * e[s][j];
  *trace = block[0][0] + block[1][1];
  *determinant = block[0][0] * block[1][1] - block[0][1] * block[1][0];
  assert_true(fabs(whole - *trace - (Dk - 2)) < 1e-5);
}

// Eigenvalues z, 1/z of the rotation: |z| = 1, arg z = twice the angle between the keys.
static void two_reflections_rotate_by_twice_the_angle_of_their_keys(void **state) {
  seed(48);
  const double pi = acos(-1);
  for (uint32_t D = 2; D <= 4; D++)
    for (int i = 0; i < 20; i++) {
      double *keys = two_keys(D), beta[] = {2, 2}, trace, determinant;
      plane_of_transition(keys, beta, forms[i % 2], &trace, &determinant);
      assert_true(fabs(determinant - 1) < 1e-5);
      double turned = acos(fmax(-1, fmin(1, trace / 2))), twice = 2 * acos(fabs(cosine_of(keys)));
      assert_true(fabs(turned - fmin(twice, 2 * pi - twice)) < 2e-3); // acos is steep near 0 and pi
      assert_true(fabs(trace - 2 * cos(twice)) < 1e-5);
    }
}

// |z|^2 = (1 - b0)(1 - b1) wherever they are complex, which takes an angle of the keys with
// (2 - b0 - b1 + b0 b1 cos^2)^2 < 4 (1 - b0)(1 - b1): never when one beta is above and one below 1.
static void complex_eigenvalues_of_two_steps_have_the_modulus_of_their_betas(void **state) {
  seed(49);
  int found = 0;
  for (uint32_t D = 2; D <= 4; D++)
    for (int i = 0; i < 60; i++) {
      double *keys = two_keys(D), *beta = uniforms(2, 0, 2), cosine = cosine_of(keys), trace, determinant;
      plane_of_transition(keys, beta, forms[i % 2], &trace, &determinant);
      assert_true(fabs(determinant - (1 - beta[0]) * (1 - beta[1])) < 1e-5);
      assert_true(fabs(trace - (2 - beta[0] - beta[1] + beta[0] * beta[1] * cosine * cosine)) < 1e-5);
      if (trace * trace >= 4 * determinant - 1e-4) continue;
      found++;
      assert_true((beta[0] - 1) * (beta[1] - 1) > 0 && sqrt(determinant) <= 1);
    }
  assert_true(found > 10);
}

// ---------------------------------------------------------------- hard decay

static void hard_decay_gives_no_nan_and_forgets(void **state) {
  seed(39);
  check_forgetting(OUTPUTS("hard decay"), (struct delta_args){1, 1, Dk, Dv, 1, .scale = 1, .gated = true});
}

static void a_hard_decay_costs_later_tokens_no_digits(void **state) {
  seed(40);
  check_digits_after_a_decay(OUTPUTS("after a hard decay"),
                             (struct delta_args){1, 1, Dk, Dv, 1, .scale = 1, .gated = true});
}

int ops_cases_delta_properties(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(any_split_of_a_sequence_gives_the_same_state),
      OPS_CASE(orthogonal_keys_store_values_exactly),
      OPS_CASE(a_repeated_key_returns_its_latest_value),
      OPS_CASE(padding_rows_with_zero_beta_and_key_do_nothing),
      OPS_CASE(padding_after_a_text_changes_nothing),
      OPS_CASE(a_rotation_of_keys_and_queries_leaves_outputs),
      OPS_CASE(state_norm_never_grows_without_values),
      OPS_CASE(negative_eigenvalues_track_permutations),
      OPS_CASE(two_steps_with_one_unit_key_are_one_step),
      OPS_CASE(a_product_is_the_gated_rule_over_its_steps),
      OPS_CASE(a_decay_of_zero_is_the_rule_without_one),
      OPS_CASE(steps_with_zero_beta_leave_the_gated_rule),
      OPS_CASE(state_norm_of_products_never_grows_without_values),
      OPS_CASE(long_four_steps_track_the_permutations_of_five),
      OPS_CASE(two_reflections_rotate_by_twice_the_angle_of_their_keys),
      OPS_CASE(complex_eigenvalues_of_two_steps_have_the_modulus_of_their_betas),
      OPS_CASE(hard_decay_gives_no_nan_and_forgets),
      OPS_CASE(a_hard_decay_costs_later_tokens_no_digits),
  };
  return cmocka_run_group_tests_name("properties of the delta rule", cases, NULL, NULL);
}
