// Cases of sampling. The draw is checked against a float64 definition with sorting, and by statistics.
#include "ops_cases.h"
#include "ops_tools.h"

#include <float.h>

enum { ROWS = 64 };

struct sample_case {
  uint32_t V, B;
  struct array logits, tokens, sequences, seen, sampling, scratch;
};

static uint32_t words_of(uint32_t V) { return (V + 31) / 32; }

// B sequences with the same logits and options at positions first, first + 1, ...
static struct sample_case sample_create(uint32_t V, uint32_t B, const double *logits, struct sampling p,
                                        uint32_t first) {
  struct sample_case c = {.V = V, .B = B};
  struct sequence s[ROWS];
  struct sampling options[ROWS];
  double *all = zeros((size_t)B * V);
  for (uint32_t b = 0; b < B; b++) {
    memcpy(all + (size_t)b * V, logits, V * sizeof *all);
    s[b] = (struct sequence){.row = 3 * b, .T = 3, .pos = first + b, .slot = B - 1 - b};
    options[b] = p;
  }
  c.logits = activations(B, V, DENSE, all);
  c.scratch = activations(B, V, DENSE, NULL);
  c.tokens = integers(B, 1, NULL);
  c.sequences = sequences_of(s, B);
  c.seen = integers(B, words_of(V), NULL);
  c.sampling = integers(B, 8, options);
  return c;
}

static int32_t *sample_run(struct sample_case *c) {
  RUN(op_sample(list, &(struct sample){.tokens = c->tokens.t,
                                       .scratch = c->scratch.t,
                                       .sequences = c->sequences.t,
                                       .seen = c->seen.t,
                                       .logits = c->logits.t,
                                       .sampling = c->sampling.t}));
  return read_words(&c->tokens);
}

static int32_t sample_one(uint32_t V, const double *logits, struct sampling p) {
  struct sample_case c = sample_create(V, 1, logits, p, 5);
  return sample_run(&c)[0];
}

// ---------------------------------------------------------------- reference

// Philox-4x32-10 as published (Salmon et al. 2011).
static uint32_t reference_philox(uint32_t counter, uint32_t key_low, uint32_t key_high) {
  uint32_t c0 = counter, c1 = 0, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key_low;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key_high;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return c0;
}

static void the_random_numbers_are_philox(void **state) {
  assert_int_equal(reference_philox(0, 0, 0), 0x6627e8d5); // known answer of the authors' Random123
}

struct ranked {
  uint32_t id;
  double z, w;
};

static int by_rank(const void *a, const void *b) {
  const struct ranked *x = a, *y = b;
  if (x->z != y->z) return x->z > y->z ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b) {
  return ((const struct ranked *)a)->id < ((const struct ranked *)b)->id ? -1 : 1;
}

// The kept tokens, by id, with weights; returns how many.
static uint32_t reference_kept(struct ranked *r, const double *logits, uint32_t V, struct sampling p,
                               const uint32_t *seen) {
  for (uint32_t i = 0; i < V; i++) {
    double z = logits[i];
    if (p.repetition_penalty != 0 && seen[i / 32] >> i % 32 & 1)
      z = z > 0 ? z / p.repetition_penalty : z * p.repetition_penalty;
    r[i] = (struct ranked){i, z / p.temperature, 0};
  }
  qsort(r, V, sizeof *r, by_rank);
  uint32_t kept = p.top_k && p.top_k < V ? p.top_k : V, n = 0;
  double total = 0, sum = 0;
  for (uint32_t i = 0; i < kept; i++) total += r[i].w = exp(r[i].z - r[0].z);
  if (p.top_p > 0 && p.top_p < 1) {
    while (n < kept && sum < p.top_p * total) sum += r[n++].w;
    kept = n;
  }
  for (n = 0; n < kept && r[n].w >= p.min_p;) n++;
  qsort(r, n, sizeof *r, by_id);
  return n;
}

// Fails unless token is the one whose interval of the cumulative distribution holds u, give or take rounding.
static void expect_drawn(const struct ranked *r, uint32_t n, double u, int32_t token) {
  double total = 0, sum = 0, rounding = 1e-6;
  for (uint32_t i = 0; i < n; i++) total += r[i].w;
  for (uint32_t i = 0; i < n; i++) {
    double end = sum + r[i].w / total;
    if (r[i].id == (uint32_t)token) {
      if (!(u >= sum - rounding && u <= end + rounding))
        fail_msg("token %d owns %g ... %g, not %g", token, sum, end, u);
      return;
    }
    sum = end;
  }
  fail_msg("token %d was not among the %u kept", token, n);
}

static void draws_are_those_of_the_definition(void **state) {
  const uint32_t sizes[] = {2, 33, 1000, 20011};
  const struct sampling options[] = {
      {.temperature = 1},
      {.temperature = 0.7f, .top_k = 5},
      {.temperature = 1.3f, .top_p = 0.8f},
      {.temperature = 1, .min_p = 0.1f},
      {.temperature = 0.9f, .repetition_penalty = 1.7f},
      {.temperature = 1.1f, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f, .repetition_penalty = 1.2f},
      {.temperature = 50, .top_k = 300, .top_p = 0.5f},
      {.temperature = 1.5f, .top_k = 12, .top_p = 0.95f, .repetition_penalty = 1.1f},
  };
  seed(50);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 8; j++) {
      uint32_t V = sizes[i], B = 16;
      struct sampling p = options[j];
      p.seed_low = (uint32_t)uniform(0, 0x1p32), p.seed_high = (uint32_t)uniform(0, 0x1p32);
      double *logits = normals(V);
      for (uint32_t k = 0; k < V; k++) logits[k] *= 3;
      struct sample_case c = sample_create(V, B, logits, p, 1000);
      uint32_t *seen = calloc((size_t)B * words_of(V), 4);
      for (uint32_t k = 0; k < B * words_of(V); k++) seen[k] = (uint32_t)uniform(0, 0x1p32);
      c.seen = integers(B, words_of(V), seen);
      int32_t *tokens = sample_run(&c);
      uint32_t *marked = read_words(&c.seen);
      struct sequence *s = read_words(&c.sequences);
      struct ranked *r = calloc(V, sizeof *r);
      for (uint32_t b = 0; b < B; b++) {
        uint32_t slot = B - 1 - b, n = reference_kept(r, c.logits.v, V, p, seen + slot * words_of(V));
        double u = (reference_philox(1003 + b, p.seed_low, p.seed_high) >> 8) * 0x1p-24;
        expect_drawn(r, n, u, tokens[b]);
        assert_true(marked[slot * words_of(V) + (uint32_t)tokens[b] / 32] >> tokens[b] % 32 & 1);
        assert_true(s[b].pos == 1003 + b && s[b].T == 1 && s[b].row == b && s[b].slot == slot);
      }
      free(r), free(seen);
      tools_teardown(NULL);
    }
}

// ---------------------------------------------------------------- statistics

static void frequencies_follow_the_probabilities(void **state) {
  enum { V = 8, CALLS = 63 };
  const double logits[V] = {0, 1, -1, 0.5, 2, -3, 0, 1.5};
  uint32_t count[V] = {0};
  double p[V], total = 0, chi = 0;
  for (int call = 0; call < CALLS; call++) {
    struct sampling options = {.temperature = 1, .seed_low = 42, .seed_high = 7};
    struct sample_case c = sample_create(V, ROWS, logits, options, (uint32_t)call * ROWS);
    int32_t *tokens = sample_run(&c);
    for (int b = 0; b < ROWS; b++) count[tokens[b]]++;
    tools_teardown(NULL);
  }
  for (int i = 0; i < V; i++) total += p[i] = exp(logits[i]);
  for (int i = 0; i < V; i++) {
    double expected = CALLS * ROWS * p[i] / total;
    chi += (count[i] - expected) * (count[i] - expected) / expected;
  }
  print_message("  chi-square with 7 degrees of freedom: %.1f\n", chi);
  assert_true(chi < 24.3); // 1 in 1000; seeds are fixed
}

static void the_same_seed_and_position_draw_the_same_token(void **state) {
  seed(51);
  enum { V = 500 };
  double *logits = normals(V);
  struct sampling p = {.temperature = 2, .seed_low = 1};
  struct sample_case a = sample_create(V, ROWS, logits, p, 9), b = sample_create(V, ROWS, logits, p, 9);
  assert_memory_equal(sample_run(&a), sample_run(&b), ROWS * sizeof(int32_t));
  p.seed_high = 1;
  struct sample_case other = sample_create(V, ROWS, logits, p, 9);
  assert_memory_not_equal(sample_run(&a), sample_run(&other), ROWS * sizeof(int32_t));
}

// ---------------------------------------------------------------- edges

static void greedy_takes_the_lowest_id_among_equals(void **state) {
  double logits[300] = {0};
  for (int i = 0; i < 300; i++) logits[i] = -i;
  logits[77] = logits[201] = logits[299] = 3;
  assert_int_equal(sample_one(300, logits, (struct sampling){0}), 77);
  for (int i = 0; i < 300; i++) logits[i] = -5;
  assert_int_equal(sample_one(300, logits, (struct sampling){0}), 0);
}

// Kernels look for the largest logit of a large vocabulary in parts.
static void parts_of_a_vocabulary_have_one_largest_logit(void **state) {
  enum { V = 20011, B = 3 };
  const uint32_t largest[] = {0, 1023, 1024, 8191, V - 2, V - 1};
  struct sampling p = {.repetition_penalty = 4};
  seed(54);
  for (size_t i = 0; i < sizeof largest / sizeof *largest; i++) {
    double *logits = normals(V);
    for (uint32_t k = 0; k < V; k++) logits[k] = fmin(logits[k], 3);
    logits[largest[i]] = logits[V - 1] = 5;
    struct sample_case c = sample_create(V, B, logits, p, 0);
    int32_t *tokens = sample_run(&c);
    for (int b = 0; b < B; b++) assert_int_equal(tokens[b], largest[i]);
    logits[(largest[i] + 10000) % V] = 6; // seen
    c = sample_create(V, B, logits, p, 0);
    uint32_t *seen = calloc((size_t)B * words_of(V), 4), id = (largest[i] + 10000) % V;
    for (int b = 1; b < B; b++) seen[b * words_of(V) + id / 32] = 1u << id % 32;
    c.seen = integers(B, words_of(V), seen);
    tokens = sample_run(&c);
    for (int b = 0; b < B; b++) assert_int_equal(tokens[b], c.B - 1 - b ? largest[i] : id);
    free(seen);
    tools_teardown(NULL);
  }
  double *none = zeros(V);
  for (uint32_t k = 0; k < V; k++) none[k] = k % 2 ? -INFINITY : NAN;
  assert_int_equal(sample_one(V, none, (struct sampling){.temperature = 1}), 0);
  none[17777] = INFINITY;
  assert_int_equal(sample_one(V, none, (struct sampling){.temperature = 1}), 17777);
  const struct sampling few = {.temperature = 1, .top_k = 3}; // which no part's largest logit tells apart
  struct sample_case c = sample_create(V, ROWS, zeros(V), few, 0);
  const int32_t *tokens = sample_run(&c);
  bool drawn[3] = {0};
  for (int b = 0; b < ROWS; b++) {
    assert_in_range(tokens[b], 0, 2);
    drawn[tokens[b]] = true;
  }
  assert_true(drawn[0] && drawn[1] && drawn[2]);
}

static void every_sequence_draws_from_its_slot(void **state) {
  enum { V = 90, SLOTS = 5, B = 3 };
  const struct sequence s[B] = {{.pos = 7, .slot = 4}, {.pos = 9, .slot = 0}, {.pos = 8, .slot = 2}};
  struct sampling options[B] = {{.top_k = 1}, {.temperature = 1, .top_k = 1}, {.temperature = 1e-6f}};
  double logits[SLOTS * V] = {0};
  for (int i = 0; i < SLOTS; i++) logits[i * V + 7 * i + 3] = 5;
  struct sample_case c = {.V = V, .B = B};
  c.logits = activations(SLOTS, V, V + 5, logits);
  c.scratch = activations(B, V, DENSE, NULL);
  c.tokens = integers(B, 1, NULL);
  c.sequences = sequences_of(s, B);
  c.seen = integers(SLOTS, words_of(V), NULL);
  c.sampling = integers(B, 8, options);
  int32_t *tokens = sample_run(&c);
  uint32_t *seen = read_words(&c.seen);
  for (uint32_t b = 0; b < B; b++) {
    assert_int_equal(tokens[b], 7 * s[b].slot + 3);
    assert_true(seen[s[b].slot * words_of(V) + (uint32_t)tokens[b] / 32] == 1u << tokens[b] % 32);
  }
  assert_true(!seen[words_of(V)] && !seen[3 * words_of(V) + 0]);
}

static void tight_top_k_top_p_and_min_p_equal_greedy(void **state) {
  seed(52);
  enum { V = 700 };
  const struct sampling tight[] = {{.temperature = 1, .top_k = 1},
                                   {.temperature = 1, .top_p = 1e-6f},
                                   {.temperature = 1, .min_p = 1},
                                   {.temperature = 1e-6f},
                                   {.temperature = FLT_MIN}, // a logit / FLT_MIN is infinite
                                   {.temperature = FLT_MIN, .top_k = 9, .top_p = 0.9f}};
  for (int i = 0; i < 20; i++) {
    double *logits = normals(V);
    for (int k = 0; k < V; k++) logits[k] = 20 + 9 * logits[k];
    int32_t greedy = sample_one(V, logits, (struct sampling){0});
    for (int j = 0; j < 6; j++) {
      struct sampling p = tight[j];
      p.seed_low = (uint32_t)i;
      assert_int_equal(sample_one(V, logits, p), greedy);
    }
  }
}

static void ties_at_a_cut_keep_the_lowest_ids(void **state) {
  enum { V = 40 };
  double logits[V] = {0};
  logits[30] = 1;
  bool drawn[3][V] = {{0}};
  const struct sampling cuts[] = {
      {.temperature = 1, .top_k = 3}, // 30, 0, 1
                                      // weights 1 and 39 times e^-1: half of the sum, 7.67, takes 30 and 19 more
      {.temperature = 1, .top_p = 0.5f},
      {.temperature = 1, .top_k = 5, .top_p = 0.6f}}; // sum 2.47: 30 and 2 more
  const int kept[] = {2, 19, 2};
  for (int j = 0; j < 3; j++)
    for (uint32_t call = 0; call < 8; call++) {
      struct sample_case c = sample_create(V, ROWS, logits, cuts[j], call * ROWS);
      int32_t *tokens = sample_run(&c);
      for (int b = 0; b < ROWS; b++) drawn[j][tokens[b]] = true;
    }
  for (int j = 0; j < 3; j++)
    for (int i = 0; i < V; i++) assert_int_equal(drawn[j][i], i < kept[j] || i == 30);
}

static void the_penalty_applies_to_seen_tokens_of_either_sign(void **state) {
  enum { V = 64 };
  double logits[V] = {0};
  for (int i = 0; i < V; i++) logits[i] = -9;
  logits[40] = 3, logits[50] = 2;
  struct sampling p = {.repetition_penalty = 2};
  struct sample_case c = sample_create(V, 1, logits, p, 0);
  uint32_t seen[2] = {0, 1u << 8};
  c.seen = integers(1, 2, seen);
  assert_int_equal(sample_run(&c)[0], 50); // 3 / 2 < 2
  for (int i = 0; i < V; i++) logits[i] = -9;
  logits[40] = -1, logits[50] = -1.5;
  c = sample_create(V, 1, logits, p, 0);
  c.seen = integers(1, 2, seen);
  assert_int_equal(sample_run(&c)[0], 50); // -1 * 2 < -1.5
  assert_int_equal(sample_one(V, logits, p), 40);
}

static void nan_and_infinite_logits_are_survived(void **state) {
  enum { V = 50 };
  double logits[V];
  const struct sampling options[] = {{0},
                                     {.temperature = 1},
                                     {.temperature = 1, .top_k = 3},
                                     {.temperature = 1, .top_p = 0.9f},
                                     {.temperature = 1, .top_k = 3, .top_p = 0.9f, .min_p = 0.1f}};
  for (int j = 0; j < 5; j++) {
    for (int i = 0; i < V; i++) logits[i] = NAN;
    assert_int_equal(sample_one(V, logits, options[j]), 0);
    for (int i = 0; i < V; i++) logits[i] = i % 2 ? -INFINITY : NAN;
    assert_int_equal(sample_one(V, logits, options[j]), 0);
    logits[33] = -4;
    assert_int_equal(sample_one(V, logits, options[j]), 33);
    logits[21] = INFINITY;
    assert_int_equal(sample_one(V, logits, options[j]), 21);
  }
}

// ---------------------------------------------------------------- scores

static void scores_are_log_probabilities_and_find_the_likeliest(void **state) {
  seed(53);
  enum { T = 9, FIRST = 2, N = 6 };
  const uint32_t sizes[] = {1, 2, 63, 1000, 20011};
  for (int i = 0; i < 5; i++) {
    uint32_t V = sizes[i];
    double *logits = normals((size_t)N * V), untouched[2 * T];
    for (size_t k = 0; k < (size_t)N * V; k++) logits[k] *= 4;
    for (uint32_t t = 0; t < N; t++) logits[(size_t)t * V + V / 2] = logits[(size_t)t * V + V - 1] = 20 + 100 * t;
    // Rows 0, 1 and 8 have no logits; among the others a target below 0, the likeliest, one that equals it, and others.
    const int32_t targets[T] = {0, 0, -1, (int32_t)V / 2, (int32_t)V - 1, 0, (int32_t)V / 3, (int32_t)V / 2, 0};
    for (int k = 0; k < 2 * T; k++) untouched[k] = 7;
    struct array z = activations(N, V, V + 3, logits), scores = activations(T, 2, DENSE, untouched);
    struct array ids = integers(T, 1, targets);
    RUN(op_score(list, scores.t, z.t, ids.t, FIRST));
    double *got = read_values(&scores);
    for (uint32_t t = 0; t < T; t++) {
      if (t < FIRST || t >= FIRST + N || targets[t] < 0) {
        assert_true(got[2 * t] == 7 && got[2 * t + 1] == 7);
        continue;
      }
      const double *row = z.v + (size_t)(t - FIRST) * V;
      double sum = 0, most = row[V / 2];
      for (uint32_t k = 0; k < V; k++) sum += exp(row[k] - most);
      double want = row[targets[t]] - most - log(sum);
      if (!(fabs(got[2 * t] - want) <= 1e-6 * (2 + fabs(want))))
        fail_msg("V %u, row %u: %.9g, want %.9g", V, t, got[2 * t], want);
      assert_true(got[2 * t + 1] == (targets[t] == (int32_t)V / 2));
    }
    tools_teardown(NULL);
  }
}

int ops_cases_sample(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(the_random_numbers_are_philox),
      OPS_CASE(draws_are_those_of_the_definition),
      OPS_CASE(frequencies_follow_the_probabilities),
      OPS_CASE(the_same_seed_and_position_draw_the_same_token),
      OPS_CASE(greedy_takes_the_lowest_id_among_equals),
      OPS_CASE(parts_of_a_vocabulary_have_one_largest_logit),
      OPS_CASE(tight_top_k_top_p_and_min_p_equal_greedy),
      OPS_CASE(ties_at_a_cut_keep_the_lowest_ids),
      OPS_CASE(the_penalty_applies_to_seen_tokens_of_either_sign),
      OPS_CASE(nan_and_infinite_logits_are_survived),
      OPS_CASE(every_sequence_draws_from_its_slot),
      OPS_CASE(scores_are_log_probabilities_and_find_the_likeliest),
  };
  return cmocka_run_group_tests_name("sampling", cases, NULL, NULL);
}
