// test_prune_rrqr: strong rank-revealing QR: both routes, the bounds of Gu and Eisenstat, swaps, degenerate
// activations.
#include "prune_case.h"

static double singular(double *a, int m, int n, int i) {
  double *values;
  ASSERT_OK(matrix_create(m < n ? m : n, 1, "values", &values));
  ASSERT_OK(matrix_singular_values(a, m, n, values));
  double value = values[i];
  free(values);
  return value;
}

// Singular value i of the block of r (n, n) that begins at (first, first) and has size (size, size).
static double block_value(const double *r, int n, int first, int size, int i) {
  double *copy;
  ASSERT_OK(matrix_create(size, size, "a block", &copy));
  for (int b = 0; b < size; b++)
    for (int a = 0; a < size; a++) copy[a + (size_t)b * size] = r[first + a + (size_t)(first + b) * n];
  double value = singular(copy, size, size, i);
  free(copy);
  return value;
}

// ln of the volume of columns of x, by a QR of their own.
static double log_volume(const float *x, int rows, int d, const int *columns, int k) {
  double *a, sum = 0;
  ASSERT_OK(matrix_create(rows, k, "columns", &a));
  for (int j = 0; j < k; j++)
    for (int t = 0; t < rows; t++) a[t + (size_t)j * rows] = x[(size_t)t * d + columns[j]];
  ASSERT_OK(matrix_qr(rows, k, a));
  for (int j = 0; j < k; j++) sum += log(fabs(a[j + (size_t)j * rows]));
  free(a);
  return sum;
}

static struct rrqr from_rows(const float *x, int rows, int d, int k) {
  struct rrqr s;
  struct matrix_rows part = {x, rows, d};
  ASSERT_OK(rrqr_from_rows(&s, &part, 1, d, k, 1));
  return s;
}

static struct rrqr from_gram(const float *x, int rows, int d, int k) {
  struct rrqr s;
  double *gram;
  ASSERT_OK(matrix_create(d, d, "a Gram matrix", &gram));
  ASSERT_OK(matrix_add_gram((struct matrix_rows){x, rows, d}, d, gram, NULL));
  ASSERT_OK(rrqr_from_gram(&s, gram, d, k, 1));
  free(gram);
  return s;
}

static void assert_same_selection(const struct prune_result *a, const struct prune_result *b) {
  assert_int_equal(a->keep, b->keep);
  assert_same(a->kept, b->kept, a->keep);
  assert_same(a->order, b->order, a->keep);
  assert_int_equal(a->swap_count, b->swap_count);
  assert_int_equal(a->rank, b->rank);
  assert_int_equal(a->dead, b->dead);
  for (int i = 0; i < a->swap_count; i++) {
    assert_int_equal(a->swaps[i].dropped, b->swaps[i].dropped);
    assert_int_equal(a->swaps[i].taken, b->swaps[i].taken);
    ASSERT_NEAR(a->swaps[i].gain, b->swaps[i].gain, 1, 1e-6);
  }
}

// ---------------------------------------------------------------- the two routes

static void gram_and_rows_choose_the_same_channels(void **state) {
  static const double tolerances[] = {1, 1, 1.01, 1.5};
  uint64_t seed = 1;
  int swaps = 0;
  for (int trial = 0; trial < 300; trial++) {
    int d = 2 + below(&seed, 40), rows = d + 1 + below(&seed, 300), keep = 1 + below(&seed, d);
    struct measured m = random_head(&seed, rows, d, (enum kind)(trial % KINDS));
    struct prune_options o = {.side = (enum prune_side)(trial % 3), .tolerance = tolerances[below(&seed, 4)]};
    struct prune_result gram = select_with("drrqr", &m.head, keep, o);
    o.route = PRUNE_ROWS;
    struct prune_result direct = select_with("drrqr", &m.head, keep, o);
    assert_same_selection(&gram, &direct);
    assert_true(gram.settled && gram.rho <= o.tolerance * (1 + 1e-8));
    ASSERT_NEAR(gram.log_volume, direct.log_volume, 1, 1e-6);
    swaps += gram.swap_count;
    prune_result_free(&gram);
    prune_result_free(&direct);
    measured_free(&m);
  }
  assert_true(swaps > 10); // they are rare on such matrices; Kahan's below needs them
}

static void gram_and_rows_agree_on_a_head_of_the_papers_size(void **state) {
  uint64_t seed = 2;
  struct measured m = random_head(&seed, 3000, 128, SILU);
  for (int keep = 16; keep <= 128; keep += 37) {
    struct prune_result gram = select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1});
    struct prune_result direct =
        select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1, .route = PRUNE_ROWS});
    assert_same_selection(&gram, &direct);
    prune_result_free(&gram);
    prune_result_free(&direct);
  }
  measured_free(&m);
}

static void moments_do_not_depend_on_how_the_rows_are_split(void **state) {
  enum { D = 7, ROWS = 5003 };
  uint64_t seed = 3;
  float *x = random_rows(&seed, ROWS, D, CORRELATED);
  double whole[D * D] = {0}, parts[D * D] = {0}, sum[D] = {0}, sum2[D] = {0}, r[D * D];
  ASSERT_OK(matrix_add_gram((struct matrix_rows){x, ROWS, D}, D, whole, sum));
  ASSERT_OK(matrix_add_gram((struct matrix_rows){x, 1, D}, D, parts, sum2));
  ASSERT_OK(matrix_add_gram((struct matrix_rows){x + D, 2999, D}, D, parts, sum2));
  ASSERT_OK(matrix_add_gram((struct matrix_rows){x + 3000 * D, ROWS - 3000, D}, D, parts, sum2));
  struct matrix_rows split[2] = {{x, 4000, D}, {x + 4000 * D, ROWS - 4000, D}};
  ASSERT_OK(matrix_rows_qr(split, 2, D, r));
  for (int j = 0; j < D; j++) {
    ASSERT_NEAR(sum[j], sum2[j], ROWS, 1e-15);
    for (int i = 0; i < D; i++) {
      double product = 0;
      for (int a = 0; a < D; a++) product += r[a + i * D] * r[a + j * D];
      ASSERT_NEAR(whole[i + j * D], parts[i + j * D], whole[i + i * D] + whole[j + j * D], 1e-14);
      ASSERT_NEAR(whole[i + j * D], product, whole[i + i * D] + whole[j + j * D], 1e-14);
      assert_true(i <= j || r[i + j * D] == 0);
    }
  }
  free(x);
}

// ---------------------------------------------------------------- what strong RRQR promises

static void singular_values_obey_the_bounds_of_gu_and_eisenstat(void **state) {
  uint64_t seed = 4;
  for (int trial = 0; trial < 60; trial++) {
    int d = 3 + below(&seed, 20), k = 1 + below(&seed, d - 1), rows = 4 * d;
    double f = trial % 2 ? 1 : 1.5, bound = sqrt(1 + f * f * k * (d - k)) * (1 + 1e-8);
    float *x = random_rows(&seed, rows, d, (enum kind)(trial % KINDS));
    struct rrqr s = trial % 3 ? from_rows(x, rows, d, k) : from_gram(x, rows, d, k);
    int i, j;
    while (rrqr_worst(&s, &i, &j) > f * (1 + 1e-9)) rrqr_swap(&s, i, j);
    for (i = 0; i < k; i++) assert_true(block_value(s.r, d, 0, k, i) >= block_value(s.r, d, 0, d, i) / bound);
    for (i = 0; i < d - k; i++)
      assert_true(block_value(s.r, d, k, d - k, i) <= block_value(s.r, d, 0, d, k + i) * bound);
    for (i = 0; i < k * (d - k); i++) assert_true(fabs(s.u[i]) <= f * (1 + 1e-8));
    rrqr_free(&s);
    free(x);
  }
}

static void no_single_swap_gains_more_than_f(void **state) {
  enum { D = 9, ROWS = 30 };
  uint64_t seed = 5;
  for (int trial = 0; trial < 12; trial++) {
    int k = 1 + below(&seed, D - 1);
    double f = trial % 2 ? 1 : 1.05;
    struct measured m = random_head(&seed, ROWS, D, (enum kind)(trial % KINDS));
    struct prune_options o = {.side = PRUNE_KEYS, .tolerance = f, .route = (enum prune_route)(trial % 2)};
    struct prune_result r = select_with("drrqr", &m.head, k, o);
    double volume = log_volume(m.k, ROWS, D, r.kept, k);
    ASSERT_NEAR(volume, r.log_volume, 1, 1e-8);
    for (int i = 0; i < k; i++)
      for (int j = 0; j < D; j++) {
        if (contains(r.kept, k, j)) continue;
        int other[D];
        memcpy(other, r.kept, sizeof *other * (size_t)k);
        other[i] = j;
        assert_true(log_volume(m.k, ROWS, D, other, k) <= volume + log(f) + 1e-8);
      }
    prune_result_free(&r);
    measured_free(&m);
  }
}

static void rho_is_the_ratio_of_volumes(void **state) {
  enum { D = 12, ROWS = 50 };
  uint64_t seed = 6;
  for (int trial = 0; trial < 40; trial++) {
    int k = 1 + below(&seed, D - 1), i = below(&seed, k), j = below(&seed, D - k);
    float *x = random_rows(&seed, ROWS, D, (enum kind)(trial % KINDS));
    struct rrqr s = from_rows(x, ROWS, D, k);
    double u = s.u[i + (size_t)j * k], rho = sqrt(u * u + s.inverse_omega2[i] * s.gamma2[j]);
    double before = log_volume(x, ROWS, D, s.order, k);
    rrqr_swap(&s, i, j);
    ASSERT_NEAR(log_volume(x, ROWS, D, s.order, k) - before, log(rho), 1, 1e-8);
    ASSERT_NEAR(rrqr_log_volume(&s) - before, log(rho), 1, 1e-8);
    rrqr_free(&s);
    free(x);
  }
}

// Kahan's matrix, its columns shrunk a little one after the other so that pivoting keeps them in place.
static float *kahan(int n, double c) {
  float *x = calloc((size_t)n * (size_t)n, sizeof *x);
  for (int i = 0; i < n; i++)
    for (int j = i; j < n; j++)
      x[(size_t)i * n + j] = (float)(pow(1 - c * c, i / 2.0) * (i == j ? 1 : -c) * pow(1 + 1e-5, -j));
  return x;
}

static void kahans_matrix_forces_swaps(void **state) {
  for (int n = 20; n <= 60; n += 10) {
    float *x = kahan(n, 0.2);
    struct measured m = measure_head(x, kahan(n, 0.2), n, n);
    struct prune_result gram = select_with("drrqr", &m.head, n - 1, (struct prune_options){.side = PRUNE_KEYS});
    struct prune_result rows =
        select_with("drrqr", &m.head, n - 1, (struct prune_options){.side = PRUNE_KEYS, .route = PRUNE_ROWS});
    assert_true(gram.swap_count > 0);
    assert_true(gram.swaps[0].gain > 1.5);
    assert_true(gram.settled && gram.rho <= 1.5);
    assert_same_selection(&gram, &rows);
    prune_result_free(&gram);
    prune_result_free(&rows);
    measured_free(&m);
  }
}

static void swaps_begin_above_one_and_a_half_unless_told_otherwise(void **state) {
  int between = 0; // matrices that 1.5 and 1.6 tell apart
  for (int trial = 0; trial < 200; trial++) {
    int i, j, n = 3 + trial % 25;
    double c = 0.1 + 0.02 * (trial / 25);
    struct measured m = measure_head(kahan(n, c), kahan(n, c), n, n);
    struct rrqr s = from_rows(m.k, n, n, n - 1);
    double rho = rrqr_worst(&s, &i, &j);
    struct prune_result r = select_with("drrqr", &m.head, n - 1, (struct prune_options){.side = PRUNE_KEYS});
    assert_int_equal(r.swap_count > 0, rho > 1.5);
    between += rho > 1.5 && rho < 1.6;
    prune_result_free(&r);
    rrqr_free(&s);
    measured_free(&m);
  }
  assert_true(between > 0);
}

// Kahan's matrix on the diagonal, block after block: every block needs its own swap.
static struct measured many_kahans(int count, int n, float scale) {
  int d = count * n;
  float *x[2];
  for (int side = 0; side < 2; side++) {
    x[side] = calloc((size_t)d * (size_t)d, sizeof **x);
    for (int b = 0; b < count; b++) {
      float *one = kahan(n, 0.2);
      for (int t = 0; t < n; t++)
        for (int j = 0; j < n; j++)
          x[side][(size_t)(b * n + t) * (size_t)d + (size_t)(b * n + j)] =
              one[t * n + j] * scale * (1 + 0.001f * (float)b);
      free(one);
    }
  }
  return measure_head(x[0], x[1], d, d);
}

static void a_swap_limit_ends_the_swaps_and_is_reported(void **state) {
  struct measured m = many_kahans(24, 16, 1);
  int keep = 24 * 15;
  struct prune_result all = select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1.1});
  assert_true(all.swap_count >= 24 && all.settled && all.rho <= 1.1);
  for (int i = 0; i < all.swap_count; i++) assert_true(all.swaps[i].gain > 1.1);
  struct prune_result two =
      select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1.1, .swap_limit = 2});
  assert_int_equal(two.swap_count, 2);
  assert_false(two.settled);
  ASSERT_NEAR(two.rho, all.swaps[2].gain, 1, 1e-9);
  struct prune_result reference =
      select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1.1, .like_reference = true});
  assert_int_equal(reference.swap_count, 20);
  assert_false(reference.settled);
  prune_result_free(&all);
  prune_result_free(&two);
  prune_result_free(&reference);
  measured_free(&m);
}

static void only_the_published_code_takes_small_activations_for_singular_ones(void **state) {
  struct measured m = many_kahans(1, 30, 1e-10f);
  struct prune_result ours = select_with("drrqr", &m.head, 29, (struct prune_options){0});
  struct prune_result theirs = select_with("drrqr", &m.head, 29, (struct prune_options){.like_reference = true});
  assert_true(ours.swap_count > 0 && ours.settled);
  assert_true(theirs.swap_count == 0 && !theirs.settled);
  prune_result_free(&ours);
  prune_result_free(&theirs);
  measured_free(&m);
}

// ---------------------------------------------------------------- updates

// U, omega and gamma of s against those of a factorization from scratch in the same order.
static void compare_with_fresh(const struct rrqr *s, const float *x, int rows) {
  int n = s->n, k = s->k;
  struct rrqr fresh = from_rows(x, rows, n, k);
  double *a, scale_omega = 0, scale_gamma = 0;
  ASSERT_OK(matrix_create(rows, n, "ordered columns", &a));
  for (int j = 0; j < n; j++)
    for (int t = 0; t < rows; t++) a[t + (size_t)j * rows] = x[(size_t)t * n + s->order[j]];
  ASSERT_OK(matrix_qr(rows, n, a));
  for (int j = 0; j < n; j++) memcpy(fresh.r + (size_t)j * n, a + (size_t)j * rows, sizeof *a * (size_t)n);
  ASSERT_OK(rrqr_measure(&fresh));
  for (int i = 0; i < k; i++) scale_omega = fmax(scale_omega, fresh.inverse_omega2[i]);
  for (int j = 0; j < n - k; j++) scale_gamma = fmax(scale_gamma, fresh.gamma2[j]);
  for (int i = 0; i < k; i++) ASSERT_NEAR(s->inverse_omega2[i], fresh.inverse_omega2[i], scale_omega, 1e-9);
  for (int j = 0; j < n - k; j++) ASSERT_NEAR(s->gamma2[j], fresh.gamma2[j], scale_gamma, 1e-9);
  for (int i = 0; i < k * (n - k); i++) ASSERT_NEAR(s->u[i], fresh.u[i], 1 + fabs(fresh.u[i]), 1e-9);
  for (int j = 0; j < n; j++) // R up to the signs of its rows
    for (int i = 0; i < n; i++)
      ASSERT_NEAR(fabs(s->r[i + (size_t)j * n]), fabs(fresh.r[i + (size_t)j * n]), fabs(s->r[0]) + 1, 1e-9);
  free(a);
  rrqr_free(&fresh);
}

static void updates_equal_a_fresh_factorization_after_every_swap(void **state) {
  static const int sizes[][2] = {{2, 1}, {3, 1}, {3, 2}, {8, 1}, {8, 7}, {17, 9}, {40, 20}, {64, 16}};
  uint64_t seed = 8;
  for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
    int n = sizes[c][0], k = sizes[c][1], rows = 3 * n + 5;
    float *x = random_rows(&seed, rows, n, (enum kind)(c % KINDS));
    struct rrqr s = c % 2 ? from_rows(x, rows, n, k) : from_gram(x, rows, n, k);
    for (int swap = 0; swap < 25; swap++) {
      int i = below(&seed, k), j = below(&seed, n - k);
      double u = s.u[i + (size_t)j * k];
      if (u * u + s.inverse_omega2[i] * s.gamma2[j] < 0.04) continue; // the driver never swaps below 1
      rrqr_swap(&s, i, j);
      compare_with_fresh(&s, x, rows);
    }
    rrqr_free(&s);
    free(x);
  }
}

// ---------------------------------------------------------------- degenerate activations

static void dead_channels_come_last_and_are_counted(void **state) {
  enum { D = 20, ROWS = 100 };
  uint64_t seed = 9;
  for (int route = PRUNE_GRAM; route <= PRUNE_ROWS; route++)
    for (int keep = 1; keep <= D; keep++) {
      float *q = random_rows(&seed, ROWS, D, SILU), *k = random_rows(&seed, ROWS, D, SILU);
      for (int t = 0; t < ROWS; t++)
        for (int j = 0; j < D; j += 3) q[t * D + j] = k[t * D + j] = 0; // 0, 3 ... 18: seven
      struct measured m = measure_head(q, k, ROWS, D);
      struct prune_result r =
          select_with("drrqr", &m.head, keep, (struct prune_options){.route = (enum prune_route)route});
      int dead = 0;
      for (int i = 0; i < keep; i++) dead += r.kept[i] % 3 == 0;
      assert_int_equal(dead, keep > 13 ? keep - 13 : 0);
      for (int i = 13; i < keep; i++) assert_int_equal(r.order[i], 3 * (i - 13)); // the first of them first
      assert_int_equal(r.dead, 7);
      assert_int_equal(r.rank, 13);
      assert_true(keep <= 13 ? isfinite(r.log_volume) : r.log_volume == -INFINITY);
      assert_true(r.settled);
      prune_result_free(&r);
      measured_free(&m);
    }
}

static void dependent_channels_are_chosen_only_when_nothing_else_is_left(void **state) {
  enum { D = 12, ROWS = 90 };
  uint64_t seed = 10;
  for (int keep = 1; keep <= D; keep++) {
    float *q = random_rows(&seed, ROWS, D, CORRELATED), *k = random_rows(&seed, ROWS, D, CORRELATED);
    for (int t = 0; t < ROWS; t++) {
      float *rows[2] = {q + t * D, k + t * D};
      for (int s = 0; s < 2; s++) {
        rows[s][4] = rows[s][1];     // a copy
        rows[s][7] = 2 * rows[s][2]; // a multiple, longer than what it copies
        rows[s][9] = 0;
      }
    }
    struct measured m = measure_head(q, k, ROWS, D);
    struct prune_result gram = select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1});
    struct prune_result rows =
        select_with("drrqr", &m.head, keep, (struct prune_options){.tolerance = 1, .route = PRUNE_ROWS});
    assert_same_selection(&gram, &rows);
    assert_int_equal(gram.rank, 9);
    assert_int_equal(gram.dead, 1);
    if (keep <= 9) assert_false(contains(gram.kept, keep, 4)); // the lower of the two copies
    if (keep <= 9) assert_false(contains(gram.kept, keep, 2)); // the longer one
    if (keep < D) assert_false(contains(gram.kept, keep, 9));
    if (keep > 9) assert_int_equal(gram.swap_count, 0);
    prune_result_free(&gram);
    prune_result_free(&rows);
    measured_free(&m);
  }
}

static void fewer_tokens_than_channels_are_enough(void **state) {
  uint64_t seed = 11;
  struct measured m = random_head(&seed, 4, 10, INDEPENDENT);
  for (int keep = 1; keep <= 10; keep++) {
    struct prune_result gram = select_with("drrqr", &m.head, keep, (struct prune_options){.side = PRUNE_KEYS});
    struct prune_result rows =
        select_with("drrqr", &m.head, keep, (struct prune_options){.side = PRUNE_KEYS, .route = PRUNE_ROWS});
    assert_same_selection(&gram, &rows);
    assert_int_equal(gram.rank, 4);
    prune_result_free(&gram);
    prune_result_free(&rows);
  }
  measured_free(&m);
}

static void a_short_channel_that_is_independent_beats_a_long_copy(void **state) {
  enum { D = 4, ROWS = 60 };
  uint64_t seed = 12;
  float *q = random_rows(&seed, ROWS, D, INDEPENDENT), *k = random_rows(&seed, ROWS, D, INDEPENDENT), *x[2] = {q, k};
  for (int t = 0; t < 2 * ROWS; t++) {
    float *row = x[t / ROWS] + t % ROWS * D;
    for (int j = 0; j < D; j++) row[j] = roundf(row[j] * 64) / 64; // so that the sum is exact
    row[1] = row[0] + row[2];
    row[3] *= 0x1p-40f;
  }
  struct measured m = measure_head(q, k, ROWS, D);
  for (int route = PRUNE_GRAM; route <= PRUNE_ROWS; route++) {
    struct prune_result r = select_with("drrqr", &m.head, 3, (struct prune_options){.route = (enum prune_route)route});
    assert_true(contains(r.kept, 3, 3));
    assert_int_equal(r.rank, 3);
    prune_result_free(&r);
  }
  measured_free(&m);
}

static void equal_channels_are_taken_in_order(void **state) {
  enum { D = 16 };
  float *q = calloc(D * D, sizeof *q), *k = calloc(D * D, sizeof *k);
  for (int j = 0; j < D; j++) q[j * D + j] = k[(D - 1 - j) * D + j] = 0.3f; // orthogonal, all of one length
  struct measured m = measure_head(q, k, D, D);
  for (int route = PRUNE_GRAM; route <= PRUNE_ROWS; route++)
    for (int keep = 1; keep <= D; keep += 5) {
      struct prune_options o = {.route = (enum prune_route)route, .tolerance = 1};
      struct prune_result r = select_with("drrqr", &m.head, keep, o);
      for (int i = 0; i < keep; i++) assert_int_equal(r.order[i], i);
      prune_result_free(&r);
    }
  measured_free(&m);
}

static void every_block_keeps_the_same_number(void **state) {
  uint64_t seed = 13;
  int swaps = 0;
  for (int trial = 0; trial < 60; trial++) {
    int blocks = 2 << below(&seed, 2), size = 2 + below(&seed, 8), d = blocks * size;
    int keep = blocks * (1 + below(&seed, size));
    struct measured m = random_head(&seed, 3 * d, d, (enum kind)(trial % KINDS));
    m.head.blocks = blocks;
    struct prune_options o = {.tolerance = 1};
    struct prune_result gram = select_with("drrqr", &m.head, keep, o);
    o.route = PRUNE_ROWS;
    struct prune_result rows = select_with("drrqr", &m.head, keep, o);
    assert_same_selection(&gram, &rows);
    for (int i = 0; i < keep; i++) assert_int_equal(gram.kept[i] / size, i / (keep / blocks));
    for (int i = 0; i < gram.swap_count; i++)
      assert_int_equal(gram.swaps[i].dropped / size, gram.swaps[i].taken / size);
    swaps += gram.swap_count;
    prune_result_free(&gram);
    prune_result_free(&rows);
    measured_free(&m);
  }
  assert_true(swaps > 0);
}

static void values_that_are_not_finite_are_refused(void **state) {
  uint64_t seed = 14;
  const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    struct measured m = random_head(&seed, 30, 6, SILU);
    struct prune_result r;
    m.k[7 * 6 + 2] = bad[i];
    m.gram[36 + 8] = bad[i];
    for (int route = PRUNE_GRAM; route <= PRUNE_ROWS; route++) {
      struct prune_options o = {.route = (enum prune_route)route};
      assert_int_equal(prune_select(prune_method_find("drrqr"), &m.head, 3, &o, &r), DELTAIC_INVALID_ARGUMENT);
      assert_non_null(strstr(deltaic_last_error(), "finite"));
      assert_null(r.kept);
    }
    double gram[36] = {0};
    assert_int_equal(matrix_add_gram(m.head.k_rows, 6, gram, NULL), DELTAIC_INVALID_ARGUMENT);
    measured_free(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gram_and_rows_choose_the_same_channels),
      cmocka_unit_test(gram_and_rows_agree_on_a_head_of_the_papers_size),
      cmocka_unit_test(moments_do_not_depend_on_how_the_rows_are_split),
      cmocka_unit_test(singular_values_obey_the_bounds_of_gu_and_eisenstat),
      cmocka_unit_test(no_single_swap_gains_more_than_f),
      cmocka_unit_test(rho_is_the_ratio_of_volumes),
      cmocka_unit_test(kahans_matrix_forces_swaps),
      cmocka_unit_test(swaps_begin_above_one_and_a_half_unless_told_otherwise),
      cmocka_unit_test(only_the_published_code_takes_small_activations_for_singular_ones),
      cmocka_unit_test(a_swap_limit_ends_the_swaps_and_is_reported),
      cmocka_unit_test(updates_equal_a_fresh_factorization_after_every_swap),
      cmocka_unit_test(dead_channels_come_last_and_are_counted),
      cmocka_unit_test(dependent_channels_are_chosen_only_when_nothing_else_is_left),
      cmocka_unit_test(fewer_tokens_than_channels_are_enough),
      cmocka_unit_test(a_short_channel_that_is_independent_beats_a_long_copy),
      cmocka_unit_test(equal_channels_are_taken_in_order),
      cmocka_unit_test(every_block_keeps_the_same_number),
      cmocka_unit_test(values_that_are_not_finite_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
