// Cases of mixtures of experts, against float64: which experts a token gets, the sorted choices, the products of the
// chosen rows, and their sum.
#include "experts_case.h"
#include "ops_cases.h"

static const double CLOSE = 2e-6;

// The index of the largest score that `taken` does not have, the lowest among equals.
static uint32_t best_of(const double *z, uint32_t E, const bool *taken) {
  uint32_t best = E;
  for (uint32_t e = 0; e < E; e++)
    if (!taken[e] && (best == E || z[e] > z[best])) best = e;
  return best;
}

static void check_route(uint32_t T, uint32_t E, uint32_t k, bool normalized, double *scores) {
  struct array logits = activations(T, E + 1, E + 3, scores), weights_of = activations(T, k, k + 1, NULL);
  struct array ids = activations(T, k, DENSE, NULL);
  RUN(op_route(list,
               &(struct route){
                   .ids = ids.t, .weights = weights_of.t, .logits = logits.t, .experts = E, .normalized = normalized}));
  double *want = zeros((size_t)T * k);
  const int32_t *got = read_words(&ids);
  for (uint32_t t = 0; t < T; t++) {
    const double *z = logits.v + (size_t)t * (E + 1);
    bool taken[512] = {0};
    double all = 0, chosen = 0, top = -INFINITY;
    for (uint32_t e = 0; e < E; e++) top = fmax(top, z[e]);
    for (uint32_t e = 0; e < E; e++) all += exp(z[e] - top);
    for (uint32_t j = 0; j < k; j++) {
      const uint32_t best = best_of(z, E, taken);
      taken[best] = true;
      if (got[t * k + j] != (int32_t)best) fail_msg("token %u, choice %u: %d, not %u", t, j, got[t * k + j], best);
      chosen += want[t * k + j] = exp(z[best] - top);
    }
    for (uint32_t j = 0; j < k; j++) want[t * k + j] /= normalized ? chosen : all;
  }
  expect_close("route", read_values(&weights_of), want, (size_t)T * k, CLOSE);
  tools_teardown(NULL);
}

static void route_takes_the_largest_in_order(void **state) {
  static const uint32_t sizes[][2] = {{1, 1}, {7, 3}, {9, 9}, {64, 8}, {300, 10}};
  seed(70);
  for (uint32_t i = 0; i < shapes(5, 3); i++)
    for (int l = 0; l < LENGTHS; l += 3) {
      const uint32_t T = lengths[l], E = sizes[i][0];
      double *scores = normals((size_t)T * (E + 1));
      for (uint32_t t = 0; t < T; t++) scores[t * (E + 1) + E] = 100; // the column after the experts is no expert
      check_route(T, E, sizes[i][1], (i + (uint32_t)l) % 2, scores);
    }
}

static void equal_scores_go_to_the_lower_expert(void **state) {
  enum { T = 5, E = 64 };
  double *scores = zeros(T * (E + 1));
  for (uint32_t i = 0; i < T * (E + 1); i++) scores[i] = i % 3 == 0 ? 2 : -1e30; // differences beyond exp's range too
  check_route(T, E, 25, true, scores);
}

static void ids_are_valid_whatever_the_logits_are(void **state) {
  enum { T = 3, E = 9, k = 4 };
  double *scores = zeros(T * E);
  for (int i = 0; i < T * E; i++) scores[i] = i < E ? NAN : i < 2 * E ? -INFINITY : i % 2 ? NAN : INFINITY;
  struct array logits = activations(T, E, DENSE, scores), w = activations(T, k, DENSE, NULL);
  struct array ids = activations(T, k, DENSE, uniforms(T * k, 1000, 2000));
  RUN(op_route(list, &(struct route){.ids = ids.t, .weights = w.t, .logits = logits.t, .experts = E}));
  const int32_t *got = read_words(&ids);
  for (int i = 0; i < T * k; i++) assert_in_range(got[i], 0, E - 1);
}

static void group_sorts_every_choice_once(void **state) {
  static const uint32_t sizes[][3] = {{1, 1, 1}, {5, 3, 7}, {200, 2, 300}, {700, 4, 9}};
  seed(71);
  for (uint32_t i = 0; i < shapes(4, 4); i++) {
    const uint32_t T = sizes[i][0], k = sizes[i][1], E = sizes[i][2];
    struct array ids = experts_ids(T, k, E), order = activations(1, T * k, DENSE, NULL);
    struct array starts = activations(1, E + 1, DENSE, NULL);
    RUN(op_group(list, order.t, starts.t, ids.t));
    const int32_t *id = read_words(&ids), *at = read_words(&order), *from = read_words(&starts);
    bool *seen = calloc(T * k, sizeof *seen);
    assert_true(from[0] == 0 && from[E] == (int32_t)(T * k));
    for (uint32_t e = 0; e < E; e++)
      for (int32_t n = from[e]; n < from[e + 1]; n++) {
        assert_in_range(at[n], 0, T * k - 1);
        assert_false(seen[at[n]]);
        seen[at[n]] = true;
        assert_int_equal(id[at[n]], e);
      }
    free(seen);
    tools_teardown(NULL);
  }
}

static void experts_match_for_every_format_and_shape(void **state) {
  static const struct experts_shape sizes[] = {{1, 2, 5, 6, 20, false, true},     {9, 3, 4, 64, 40, true, false},
                                               {3, 4, 7, 33, 77, false, false},   {1, 1, 1, 1, 3, false, false},
                                               {70, 3, 5, 70, 64, false, true},   {70, 3, 5, 34, 130, true, false},
                                               {200, 2, 3, 130, 72, false, false}};
  static const enum dtype formats_of[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_Q8_0};
  seed(72);
  for (uint32_t f = 0; f < 4; f++)
    for (uint32_t i = 0; i < shapes(7, 3); i++) experts_check(formats_of[f], &sizes[(i + f) % 7], CLOSE);
}

static void experts_of_several_bindings_match(void **state) {
  seed(77);
  experts_check_parts(DTYPE_F32, 15, CLOSE); // in tiles
  experts_check_parts(DTYPE_F16, 2, CLOSE);  // row by row
}

static void mix_adds_the_experts_and_the_shared_one(void **state) {
  seed(73);
  for (int l = 0; l < LENGTHS; l += 2) {
    const uint32_t T = lengths[l], k = 1 + (uint32_t)l, D = 30 + 40 * (uint32_t)l;
    struct array x = activations(T * k, D, D + 2, normals((size_t)T * k * D)), y = activations(T, D, DENSE, NULL);
    struct array w = activations(T, k, k + 1, uniforms((size_t)T * k, 0, 1));
    struct array shared = activations(T, D, D + 1, normals((size_t)T * D));
    struct array logits = activations(T, 6, 7, normals((size_t)T * 6));
    double *want = zeros((size_t)T * D);
    for (int with = 0; with < 2; with++) {
      RUN(op_mix(list, &(struct mix){.y = y.t,
                                     .x = x.t,
                                     .weights = w.t,
                                     .shared = with ? shared.t : ABSENT,
                                     .logits = logits.t,
                                     .gate_col = 4}));
      for (uint32_t t = 0; t < T; t++)
        for (uint32_t i = 0; i < D; i++) {
          const double gate = reference_activation(ACTIVATION_SIGMOID, logits.v[t * 6 + 4]);
          double sum = with ? gate * shared.v[t * D + i] : 0;
          for (uint32_t j = 0; j < k; j++) sum += w.v[t * k + j] * x.v[((size_t)t * k + j) * D + i];
          want[t * D + i] = sum;
        }
      expect_close("mix", read_values(&y), want, (size_t)T * D, CLOSE);
    }
    tools_teardown(NULL);
  }
}

int ops_cases_experts(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(route_takes_the_largest_in_order),         OPS_CASE(equal_scores_go_to_the_lower_expert),
      OPS_CASE(ids_are_valid_whatever_the_logits_are),    OPS_CASE(group_sorts_every_choice_once),
      OPS_CASE(experts_match_for_every_format_and_shape), OPS_CASE(experts_of_several_bindings_match),
      OPS_CASE(mix_adds_the_experts_and_the_shared_one),
  };
  return cmocka_run_group_tests_name("mixtures of experts", cases, NULL, NULL);
}
