// test_rank: the rank theorems of the state-reduction paper, on random matrices and on the states of
// real models; each test is one statement. S is (Dv, Dk) as in the paper, column-major: the rows of a state as the
// library holds it.
#include "prune_case.h"

#include "deltaic_prune.h"

enum { MOST = 96 };
// Inequalities hold up to rounding of a double, or of the f32 numbers that real states are.
#define SLACK 1e-9
#define STATE_ZERO 1e-6

struct subject { // a matrix with its singular values and right singular vectors
  int m, n;      // (m, n), column-major
  double *a, *s, *right;
  struct rank_measures rank;
};

static double *copy_of(const double *a, size_t count) {
  double *out = malloc(count * sizeof *out);
  assert_non_null(out);
  memcpy(out, a, count * sizeof *out);
  return out;
}

// right: eigenvectors of A^T A, largest last. Takes a.
static struct subject subject_of(double *a, int m, int n, double zero) {
  int count = m < n ? m : n;
  struct subject x = {.m = m, .n = n, .a = a};
  double *values;
  ASSERT_OK(matrix_create(count, 1, "values", &x.s));
  ASSERT_OK(matrix_create(n, n, "vectors", &x.right));
  ASSERT_OK(matrix_create(n, 1, "eigenvalues", &values));
  double *copy = copy_of(a, (size_t)m * (size_t)n);
  ASSERT_OK(matrix_singular_values(copy, m, n, x.s));
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      for (int k = 0; k < m; k++) x.right[i + j * n] += a[k + i * m] * a[k + j * m];
  ASSERT_OK(matrix_eigen(x.right, n, true, values));
  rank_of_values(x.s, count, n, zero, &x.rank);
  free(copy);
  free(values);
  return x;
}

static void subject_free(struct subject *x) {
  free(x->a);
  free(x->s);
  free(x->right);
}

typedef void (*claim)(struct subject *x, uint64_t *seed);

// Matrices of all shapes; every third of low rank, and spectra from flat to steep.
static void on_random_matrices(claim check) {
  uint64_t seed = 1;
  for (int i = 0; i < 60; i++) {
    int m = 1 + below(&seed, 40), n = 1 + below(&seed, 40), inner = i % 3 ? 40 : 1 + below(&seed, 5);
    double steep = (i % 4) * 0.3, *a = calloc((size_t)(m * n), sizeof *a);
    for (int k = 0; k < inner; k++) {
      double u[40], v[40];
      for (int j = 0; j < m; j++) u[j] = normal(&seed);
      for (int j = 0; j < n; j++) v[j] = normal(&seed) * exp(-steep * k);
      for (int j = 0; j < m * n; j++) a[j] += u[j % m] * v[j / m];
    }
    struct subject x = subject_of(a, m, n, 1e-12);
    check(&x, &seed);
    subject_free(&x);
  }
}

// ---------------------------------------------------------------- real states

static const char *const models[] = {"tiny_delta_net", "tiny_gated_deltanet", "tiny_gated_deltanet_gva",
                                     "tiny_delta_product", "tiny_gated_delta_product"};

struct seen {
  claim check;
  uint64_t seed;
  size_t states;
};

static void check_states(struct seen *s, const deltaic_probed *p) {
  int dk = p->key_size, dv = p->value_size;
  for (int h = 0; h < p->value_heads; h++) {
    double *a = malloc((size_t)(dk * dv) * sizeof *a);
    for (int i = 0; i < dk * dv; i++) a[i] = p->data[(size_t)h * (size_t)(dk * dv) + (size_t)i];
    struct subject x = subject_of(a, dv, dk, STATE_ZERO);
    s->check(&x, &s->seed);
    subject_free(&x);
    s->states++;
  }
}

static bool on_state(void *user, const deltaic_probed *p) {
  check_states(user, p);
  return true;
}

// Tokens of prose-like bytes: any will do.
static void make_tokens(int32_t *tokens, int count) {
  static const char text[] = "the wind came down the chimney and spoke to the empty rooms, ";
  for (int i = 0; i < count; i++) tokens[i] = 3 + text[(size_t)i % (sizeof text - 1)];
}

static void on_model(const char *name, uint32_t batch, uint32_t kinds, deltaic_probe_function probe, void *user) {
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_session *session;
  deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 1};
  deltaic_session_options options = {.size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .batch = batch};
  int32_t tokens[MOST];
  char path[512];
  snprintf(path, sizeof path, TESTS_DIR "/vectors/models/%s", name);
  make_tokens(tokens, MOST);
  ASSERT_OK(deltaic_context_create(NULL, &context));
  ASSERT_OK(deltaic_device_open(context, &cpu, &device));
  ASSERT_OK(deltaic_model_open(device, path, NULL, &model));
  ASSERT_OK(deltaic_session_create(model, &options, &session));
  ASSERT_OK(deltaic_session_probe(session, kinds, probe, user));
  ASSERT_OK(deltaic_session_eval(session, tokens, MOST, DELTAIC_LOGITS_NONE, NULL));
  deltaic_session_free(session);
  deltaic_model_close(model);
  deltaic_device_close(device);
  deltaic_context_free(context);
}

static void on_real_states(claim check) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    struct seen s = {.check = check, .seed = i + 1};
    on_model(models[i], 13, DELTAIC_PROBE_STATE, on_state, &s);
    assert_true(s.states >= 4 * 2 * 7);
  }
}

static void everywhere(claim check) {
  on_random_matrices(check);
  on_real_states(check);
}

// ---------------------------------------------------------------- sizes of products

static double norm(const double *x, int n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

static double norm_of_product(const struct subject *x, const double *v) {
  double sum = 0;
  for (int i = 0; i < x->m; i++) {
    double y = 0;
    for (int j = 0; j < x->n; j++) y += x->a[i + j * x->m] * v[j];
    sum += y * y;
  }
  return sqrt(sum);
}

static void random_vector(double *v, int n, uint64_t *seed) {
  for (int i = 0; i < n; i++) v[i] = normal(seed);
}

// |v . w_1| / |v|, w_1 the first right singular vector.
static double along_first(const struct subject *x, const double *v) {
  const double *w = x->right + (size_t)(x->n - 1) * (size_t)x->n;
  double dot = 0;
  for (int i = 0; i < x->n; i++) dot += v[i] * w[i];
  return fabs(dot) / norm(v, x->n);
}

// delta / sqrt(sr) <= R <= sqrt(sr) / gamma, R = (|S n| / |S q|) / (|n| / |q|).
static void check_theorem_2_5(struct subject *x, uint64_t *seed) {
  double q[128], n[128];
  if (x->rank.stable_rank == 0) return;
  for (int i = 0; i < 20; i++) {
    random_vector(q, x->n, seed);
    random_vector(n, x->n, seed);
    double ratio = norm_of_product(x, n) / norm_of_product(x, q) / (norm(n, x->n) / norm(q, x->n));
    double root = sqrt(x->rank.stable_rank), delta = along_first(x, n), gamma = along_first(x, q);
    if (!(delta / root <= ratio * (1 + SLACK) && ratio <= root / gamma * (1 + SLACK)))
      fail_msg("%d x %d: %g <= %g <= %g does not hold", x->m, x->n, delta / root, ratio, root / gamma);
  }
}

static void noise_is_passed_on_within_the_bounds_of_theorem_2_5(void **state) { everywhere(check_theorem_2_5); }

// 1 / kappa <= R <= kappa for full column rank.
static void check_equation_9(struct subject *x, uint64_t *seed) {
  double q[128], n[128];
  if (x->m < x->n || x->s[x->n - 1] < 1e-12 * x->s[0]) return;
  double kappa = x->s[0] / x->s[x->n - 1];
  for (int i = 0; i < 20; i++) {
    random_vector(q, x->n, seed);
    random_vector(n, x->n, seed);
    double ratio = norm_of_product(x, n) / norm_of_product(x, q) / (norm(n, x->n) / norm(q, x->n));
    if (!(1 / kappa <= ratio * (1 + SLACK) && ratio <= kappa * (1 + SLACK)))
      fail_msg("ratio %g outside of 1 / %g ... %g", ratio, kappa, kappa);
  }
}

static void noise_is_passed_on_within_the_condition_number_of_equation_9(void **state) { everywhere(check_equation_9); }

// sqrt(2 / (pi sr)) xi <= E |S n| / |S q| <= sqrt(sr) xi mu / gamma for n ~ N(0, xi^2), |q| = 1; mu = sqrt 2
// Gamma((d + 1) / 2) / Gamma(d / 2). The mean over 2000 draws is within 4 standard errors, at most 4 * 0.76 /
// sqrt(2000) of its value (a half-normal's, the widest there is).
static void check_corollary_2_6(struct subject *x, uint64_t *seed) {
  double q[128], n[128], mean = 0, xi = 0.3, d = x->n;
  enum { DRAWS = 2000 };
  if (x->rank.stable_rank == 0 || below(seed, 8)) return; // a few of them suffice
  random_vector(q, x->n, seed);
  double length = norm(q, x->n), gamma = along_first(x, q), root = sqrt(x->rank.stable_rank);
  for (int i = 0; i < x->n; i++) q[i] /= length;
  for (int i = 0; i < DRAWS; i++) {
    random_vector(n, x->n, seed);
    mean += xi * norm_of_product(x, n) / norm_of_product(x, q) / DRAWS;
  }
  double mu = sqrt(2) * exp(lgamma((d + 1) / 2) - lgamma(d / 2)), slack = 1 + 4 * 0.76 / sqrt(DRAWS);
  if (!(sqrt(2 / (3.141592653589793 * x->rank.stable_rank)) * xi <= mean * slack &&
        mean <= root * xi * mu / gamma * slack))
    fail_msg("mean %g outside of corollary 2.6's bounds", mean);
}

static void gaussian_noise_is_passed_on_within_the_bounds_of_corollary_2_6(void **state) {
  everywhere(check_corollary_2_6);
}

// ---------------------------------------------------------------- the stable rank itself

// D.2, D.3: the same for the transpose, for Q A with Q a reflection, and for c A.
static void check_invariance(struct subject *x, uint64_t *seed) {
  size_t count = (size_t)x->m * (size_t)x->n;
  double *other = malloc(count * sizeof *other), u[128];
  struct rank_measures m;
  for (int i = 0; i < x->m; i++)
    for (int j = 0; j < x->n; j++) other[j + i * x->n] = x->a[i + j * x->m];
  ASSERT_OK(measures_of(other, x->n, x->m, &m));
  ASSERT_NEAR(m.stable_rank, x->rank.stable_rank, x->rank.stable_rank, 1e-12);
  random_vector(u, x->m, seed);
  double square = norm(u, x->m) * norm(u, x->m);
  for (int j = 0; j < x->n; j++) {
    double dot = 0;
    for (int i = 0; i < x->m; i++) dot += u[i] * x->a[i + j * x->m];
    for (int i = 0; i < x->m; i++) other[i + j * x->m] = x->a[i + j * x->m] - 2 * dot / square * u[i];
  }
  ASSERT_OK(measures_of(other, x->m, x->n, &m));
  ASSERT_NEAR(m.stable_rank, x->rank.stable_rank, x->rank.stable_rank, 1e-12);
  for (size_t i = 0; i < count; i++) other[i] = -1234.5 * x->a[i];
  ASSERT_OK(measures_of(other, x->m, x->n, &m));
  ASSERT_NEAR(m.stable_rank, x->rank.stable_rank, x->rank.stable_rank, 1e-12);
  free(other);
}

static void stable_rank_ignores_transposition_rotation_and_scale_d_2_d_3(void **state) { everywhere(check_invariance); }

// D.4; singular values below the threshold add at most count * zero^2 to the sum.
static void check_order(struct subject *x, uint64_t *seed) {
  int count = x->m < x->n ? x->m : x->n;
  if (x->rank.rank == 0) return;
  assert_true(x->rank.stable_rank >= 1 - SLACK);
  assert_true(x->rank.stable_rank <= x->rank.rank * (1 + SLACK) + count * STATE_ZERO * STATE_ZERO);
  assert_true(x->rank.rank <= count);
  assert_true(x->rank.entropy_rank >= 1 - SLACK && x->rank.entropy_rank <= count * (1 + SLACK));
  if (x->rank.rank == 1) ASSERT_NEAR(x->rank.stable_rank, 1, 1, SLACK);
  if (x->rank.stable_rank < 1 + 1e-13) assert_int_equal(x->rank.rank, 1);
}

static void stable_rank_lies_between_one_and_the_rank_d_4(void **state) { everywhere(check_order); }

static void stable_rank_is_the_rank_when_all_singular_values_are_equal_d_4(void **state) {
  double identity[12 * 12] = {0};
  struct rank_measures m;
  for (int i = 0; i < 12; i++) identity[13 * i] = i % 2 ? 2.5 : -2.5;
  ASSERT_OK(measures_of(identity, 12, 12, &m));
  ASSERT_NEAR(m.stable_rank, 12, 12, 1e-14);
  ASSERT_NEAR(m.entropy_rank, 12, 12, 1e-14);
  ASSERT_NEAR(m.condition, 1, 1, 1e-14);
}

// D.5: kappa^2 >= rank / sr over the singular values that are not zero; full rank: kappa^2 >= 1 / u.
static void check_condition(struct subject *x, uint64_t *seed) {
  if (x->rank.rank == 0) return;
  double square = x->rank.condition * x->rank.condition;
  assert_true(square * (1 + SLACK) >= x->rank.rank / x->rank.stable_rank);
  if (x->rank.rank == (x->m < x->n ? x->m : x->n)) assert_true(square * (1 + SLACK) >= 1 / x->rank.utilization);
}

static void condition_is_at_least_the_root_of_rank_over_stable_rank_d_5(void **state) { everywhere(check_condition); }

// ---------------------------------------------------------------- states and what was written into them

static int rank_of_rows(const float *rows, int count, int cols) {
  deltaic_rank r;
  ASSERT_OK(deltaic_matrix_rank(rows, (size_t)count, (size_t)cols, STATE_ZERO, &r, NULL));
  return r.rank;
}

// One head's columns of the rows seen so far, steps under each other.
static float *rows_of_head(const float *x, int tokens, int steps, int heads, int head, int d) {
  float *out = malloc((size_t)(tokens * steps * d) * sizeof *out);
  for (int t = 0; t < tokens; t++)
    for (int s = 0; s < steps; s++)
      memcpy(out + (size_t)(t * steps + s) * (size_t)d, x + (size_t)((t * steps + s) * heads + head) * (size_t)d,
             (size_t)d * sizeof *out);
  return out;
}

struct written {
  float keys[8][MOST * 1024], values[8][MOST * 1024]; // per layer, rows of (steps, heads, d)
  size_t states;
};

static bool compare_ranks(void *user, const deltaic_probed *p) {
  struct written *w = user;
  int H = p->heads, dk = p->key_size, n = p->steps, Hv = p->value_heads, dv = p->value_size;
  size_t at = (size_t)p->position, keys = (size_t)(n * H * dk), values = (size_t)(n * Hv * dv);
  if (p->kind == DELTAIC_PROBE_QKV) { // one token: q, then keys, then values
    assert_true(p->rows == 1 && keys <= 1024 && values <= 1024 && p->layer < 8);
    memcpy(w->keys[p->layer] + at * keys, p->data + H * dk, keys * sizeof(float));
    memcpy(w->values[p->layer] + at * values, p->data + (size_t)(H * dk) + keys, values * sizeof(float));
    return true;
  }
  int tokens = (int)at + 1;
  if (tokens > 40 && tokens % 8) return true;
  for (int h = 0; h < Hv; h++, w->states++) {
    float *K = rows_of_head(w->keys[p->layer], tokens, n, H, h / (Hv / H), dk);
    float *V = rows_of_head(w->values[p->layer], tokens, n, Hv, h, dv);
    int state = rank_of_rows(p->data + (size_t)h * (size_t)(dk * dv), dk, dv);
    int k = rank_of_rows(K, tokens * n, dk), v = rank_of_rows(V, tokens * n, dv), least = k < v ? k : v;
    if (state > least || least > tokens * n)
      fail_msg("layer %d, head %d, %d tokens: rank %d of the state, %d of keys, %d of values", p->layer, h, tokens,
               state, k, v);
    free(K);
    free(V);
  }
  return true;
}

// Equation (5), Proposition F.1. A DeltaProduct writes n keys and values a token.
static void rank_of_a_state_is_at_most_that_of_its_keys_and_values_equation_5(void **state) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    struct written *w = calloc(1, sizeof *w);
    assert_non_null(w);
    on_model(models[i], 1, DELTAIC_PROBE_QKV | DELTAIC_PROBE_STATE, compare_ranks, w);
    assert_true(w->states > 300);
    free(w);
  }
}

// The gated delta rule in double with keys and values from subspaces of dimensions a and b: rank min(a, b), and the
// state's rows stay in the keys' subspace, its columns in the values'.
static void check_subspaces(int d, int a, int b, uint64_t *seed) {
  double *S = calloc((size_t)(d * d), sizeof *S), k[64], v[64], y[64]; // S (values, keys)
  struct rank_measures m;
  for (int t = 0; t < 200; t++) {
    for (int i = 0; i < d; i++) {
      k[i] = i < a ? normal(seed) : 0;
      v[i] = i < b ? normal(seed) : 0;
    }
    double length = norm(k, d), beta = 2 * uniform(seed), decay = exp(-0.2 * uniform(seed));
    for (int i = 0; i < d; i++) k[i] /= length;
    for (int i = 0; i < d; i++) {
      y[i] = v[i];
      for (int j = 0; j < d; j++) y[i] -= decay * S[i + j * d] * k[j];
    }
    for (int j = 0; j < d; j++)
      for (int i = 0; i < d; i++) S[i + j * d] = decay * S[i + j * d] + beta * y[i] * k[j];
    if (t < 12 || t == 199) {
      ASSERT_OK(measures_of(S, d, d, &m));
      int most = a < b ? a : b, now = t + 1 < most ? t + 1 : most;
      if (m.rank > now) fail_msg("d %d: rank %d after %d tokens in subspaces of %d and %d", d, m.rank, t + 1, a, b);
    }
  }
  for (int j = 0; j < d; j++)
    for (int i = 0; i < d; i++)
      if (i >= b || j >= a) assert_true(S[i + j * d] == 0);
  free(S);
}

static void a_state_stays_in_the_spans_of_its_keys_and_values_proposition_f_1(void **state) {
  uint64_t seed = 7;
  for (int i = 0; i < 20; i++) {
    int d = 2 + below(&seed, 30);
    check_subspaces(d, 1 + below(&seed, d), 1 + below(&seed, d), &seed);
  }
}

// Proposition 2.2, plain linear attention: nu / kappa(K)^2 <= sr(V^T K), nu the stable rank of V's columns projected on
// the span of K's. T >= dk, K of full rank.
static void check_linear_attention(int T, int dk, int dv, uint64_t *seed) {
  float *keys = random_rows(seed, T, dk, SILU), *values = random_rows(seed, T, dv, CORRELATED);
  double *K = malloc((size_t)(T * dk) * sizeof *K), *V = calloc((size_t)(T * dv), sizeof *V);
  double *S = calloc((size_t)(dk * dv), sizeof *S);
  struct rank_measures of_K, of_V, of_S;
  for (int t = 0; t < T; t++) {
    for (int j = 0; j < dk; j++) K[t + j * T] = keys[t * dk + j];
    for (int i = 0; i < dv * dk; i++) S[i] += (double)values[t * dv + i % dv] * keys[t * dk + i / dv];
  }
  ASSERT_OK(measures_of(K, T, dk, &of_K));
  ASSERT_OK(measures_of(S, dv, dk, &of_S));
  for (int pass = 0; pass < 2; pass++) // an orthonormal basis of K's columns; twice is enough
    for (int j = 0; j < dk; j++) {
      double *q = K + (size_t)j * (size_t)T;
      for (int i = 0; i < j; i++) {
        double dot = 0;
        for (int t = 0; t < T; t++) dot += K[t + i * T] * q[t];
        for (int t = 0; t < T; t++) q[t] -= dot * K[t + i * T];
      }
      double length = norm(q, T);
      for (int t = 0; t < T; t++) q[t] /= length;
    }
  for (int c = 0; c < dv; c++)
    for (int j = 0; j < dk; j++) {
      double dot = 0;
      for (int t = 0; t < T; t++) dot += K[t + j * T] * (double)values[t * dv + c];
      for (int t = 0; t < T; t++) V[t + c * T] += dot * K[t + j * T];
    }
  ASSERT_OK(measures_of(V, T, dv, &of_V));
  assert_int_equal(of_K.rank, dk);
  if (!(of_V.stable_rank / (of_K.condition * of_K.condition) <= of_S.stable_rank * (1 + SLACK)))
    fail_msg("%g / %g^2 > %g", of_V.stable_rank, of_K.condition, of_S.stable_rank);
  free(keys);
  free(values);
  free(K);
  free(V);
  free(S);
}

static void keys_well_conditioned_keep_the_rank_of_values_proposition_2_2(void **state) {
  uint64_t seed = 9;
  for (int i = 0; i < 20; i++) {
    int dk = 1 + below(&seed, 12);
    check_linear_attention(dk + 5 + below(&seed, 60), dk, 1 + below(&seed, 12), &seed);
  }
}

// ---------------------------------------------------------------- the public function

static void matrix_rank_of_the_public_header_says_what_is_wrong_and_knows_zero(void **state) {
  float a[6] = {0}, bad[2] = {1, NAN};
  double values[2];
  deltaic_rank r;
  ASSERT_OK(deltaic_matrix_rank(a, 2, 3, 0, &r, values));
  assert_true(r.stable_rank == 0 && r.rank == 0 && r.condition == 0 && r.utilization == 0 && values[0] == 0);
  a[0] = 3;
  a[4] = -4; // [[3, 0, 0], [0, -4, 0]]
  ASSERT_OK(deltaic_matrix_rank(a, 2, 3, 0, &r, values));
  ASSERT_NEAR(values[0], 4, 4, 1e-14);
  ASSERT_NEAR(values[1], 3, 3, 1e-14);
  ASSERT_NEAR(r.stable_rank, 25.0 / 16, 1, 1e-14);
  ASSERT_NEAR(r.utilization, 25.0 / 32, 1, 1e-14);
  ASSERT_NEAR(r.condition, 4.0 / 3, 1, 1e-14);
  ASSERT_OK(deltaic_matrix_rank(a, 2, 3, 0.8, &r, NULL));
  assert_int_equal(r.rank, 1);
  assert_int_equal(deltaic_matrix_rank(bad, 1, 2, 0, &r, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_matrix_rank(a, 0, 3, 0, &r, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_matrix_rank(NULL, 1, 1, 0, &r, NULL), DELTAIC_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(noise_is_passed_on_within_the_bounds_of_theorem_2_5),
      cmocka_unit_test(noise_is_passed_on_within_the_condition_number_of_equation_9),
      cmocka_unit_test(gaussian_noise_is_passed_on_within_the_bounds_of_corollary_2_6),
      cmocka_unit_test(stable_rank_ignores_transposition_rotation_and_scale_d_2_d_3),
      cmocka_unit_test(stable_rank_lies_between_one_and_the_rank_d_4),
      cmocka_unit_test(stable_rank_is_the_rank_when_all_singular_values_are_equal_d_4),
      cmocka_unit_test(condition_is_at_least_the_root_of_rank_over_stable_rank_d_5),
      cmocka_unit_test(rank_of_a_state_is_at_most_that_of_its_keys_and_values_equation_5),
      cmocka_unit_test(a_state_stays_in_the_spans_of_its_keys_and_values_proposition_f_1),
      cmocka_unit_test(keys_well_conditioned_keep_the_rank_of_values_proposition_2_2),
      cmocka_unit_test(matrix_rank_of_the_public_header_says_what_is_wrong_and_knows_zero),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
