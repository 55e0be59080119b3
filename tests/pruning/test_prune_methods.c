// test_prune_methods: every pruning method against the published pruners' index sets (tests/vectors/prune), against
// a reference in float64 (vectors/make_prune.py), and against what it promises; rank measures.
#include "prune_case.h"

// ---------------------------------------------------------------- fixtures

static const char *const percents[] = {"25", "50", "75"};

static struct checkpoint *open_vectors(const char *name) {
  char path[512];
  struct checkpoint *file;
  snprintf(path, sizeof path, TESTS_DIR "/vectors/prune/%s.safetensors", name);
  ASSERT_OK(checkpoint_open(path, &file));
  return file;
}

static struct file_tensor *get(struct checkpoint *file, const char *format, const char *part) {
  struct file_tensor *t = checkpoint_findf(file, "%s%s", format, part);
  if (!t) fail_msg("%s has no %s%s", checkpoint_path(file), format, part);
  return t;
}

static uint64_t elements(const struct file_tensor *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

// To be freed.
static float *floats(const struct file_tensor *t) {
  float *x = malloc(elements(t) * sizeof *x);
  file_tensor_f32(t, 0, elements(t), x);
  return x;
}

static double *doubles(const struct file_tensor *t) {
  double *x = malloc(t->bytes);
  assert_int_equal(t->dtype, FILE_F64);
  memcpy(x, t->data, t->bytes);
  return x;
}

static int *integers(const struct file_tensor *t) {
  int *x = malloc(t->bytes);
  assert_int_equal(t->dtype, FILE_I32);
  memcpy(x, t->data, t->bytes);
  return x;
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// Entries of one head of a published table [layer][heads * keep] of channels of all heads: as channels of this head.
static void published(const int *table, int layer, int head, int heads, int d, int keep, int *out) {
  for (int i = 0; i < keep; i++) out[i] = table[(layer * heads + head) * keep + i] - head * d;
}

// For every layer, head and ratio of a model: what select_one chooses against the published table.
struct model {
  struct checkpoint *file;
  int layers, heads, d;
};

static struct model open_model(const char *name) {
  struct model m = {.file = open_vectors(name)};
  struct file_tensor *gram = get(m.file, "gram", "");
  m.layers = (int)gram->shape[0];
  m.heads = (int)gram->shape[1];
  m.d = (int)(sqrt(8.0 * (double)gram->shape[2] + 1) - 1) / 2;
  return m;
}

static void compare(const struct model *m, const char *method, const char *table_name, int layer, int head,
                    const struct prune_head *h, struct prune_options o) {
  for (int p = 0; p < 3; p++) {
    int keep, want[256], *table = integers(get(m->file, table_name, percents[p]));
    ASSERT_OK(prune_target(m->d, atoi(percents[p]) / 100.0, 1, &keep));
    published(table, layer, head, m->heads, m->d, keep, want);
    struct prune_result r = select_with(method, h, keep, o);
    if (!strcmp(method, "drrqr")) assert_same(r.order, want, keep); // the published order is that of the pivots
    qsort(want, (size_t)keep, sizeof *want, ascending);
    assert_same(r.kept, want, keep);
    if (!strcmp(method, "drrqr")) assert_true(r.settled && r.rho <= 1.5 && r.rank == m->d);
    prune_result_free(&r);
    free(table);
  }
}

// ---------------------------------------------------------------- the published sets

static void l1_chooses_the_published_channels(void **state) {
  const char *const names[] = {"gated_deltanet", "delta_net"};
  for (int n = 0; n < 2; n++) {
    struct model m = open_model(names[n]);
    float *q = floats(get(m.file, "l1.q", "")), *k = floats(get(m.file, "l1.k", ""));
    for (int i = 0; i < m.layers * m.heads; i++) {
      const float *wk = k + i * m.d; // norms stand for rows of one weight
      struct prune_head h = {.d = m.d, .wq = q + i * m.d, .wk = &wk, .steps = 1, .hidden = 1};
      compare(&m, "l1", "l1.", i / m.heads, i % m.heads, &h, (struct prune_options){0});
    }
    free(q);
    free(k);
    checkpoint_close(m.file);
  }
}

// The default checkpoint's own weights.
static void l1_and_wanda_choose_the_published_channels_from_the_weights(void **state) {
  struct model m = open_model("gated_deltanet");
  struct checkpoint *weights;
  ASSERT_OK(checkpoint_open(MODELS_DIR "/novelist", &weights));
  double *squares = doubles(get(m.file, "inputs.squares", ""));
  for (int layer = 0; layer < m.layers; layer++) {
    struct file_tensor *tq = checkpoint_findf(weights, "model.layers.%d.attn.q_proj.weight", layer);
    struct file_tensor *tk = checkpoint_findf(weights, "model.layers.%d.attn.k_proj.weight", layer);
    int hidden = (int)tq->shape[1];
    float *q = floats(tq), *k = floats(tk);
    for (int head = 0; head < m.heads; head++) {
      const float *wk = k + head * m.d * hidden;
      struct prune_head h = {.d = m.d,
                             .wq = q + head * m.d * hidden,
                             .wk = &wk,
                             .steps = 1,
                             .hidden = hidden,
                             .input_squares = squares + layer * hidden};
      compare(&m, "l1", "l1.", layer, head, &h, (struct prune_options){0});
      compare(&m, "s-wanda", "wanda.", layer, head, &h, (struct prune_options){0});
    }
    free(q);
    free(k);
  }
  free(squares);
  checkpoint_close(weights);
  checkpoint_close(m.file);
}

static void drrqr_chooses_the_published_channels_from_gram_matrices(void **state) {
  const char *const names[] = {"gated_deltanet", "delta_net"};
  for (int n = 0; n < 2; n++) {
    struct model m = open_model(names[n]);
    int d = m.d, size = d * (d + 1) / 2;
    float *lower = floats(get(m.file, "gram", ""));
    double *gram, *zero;
    ASSERT_OK(matrix_create(d, d, "a Gram matrix", &gram));
    ASSERT_OK(matrix_create(d, d, "a Gram matrix", &zero));
    for (int i = 0; i < m.layers * m.heads; i++) {
      for (int a = 0; a < d; a++)
        for (int b = 0; b <= a; b++)
          gram[a * d + b] = gram[b * d + a] = lower[(size_t)i * (size_t)size + (size_t)(a * (a + 1) / 2 + b)];
      // The fixture holds queries and keys together.
      struct prune_head h = {.d = d, .q = {1, gram, NULL}, .k = {1, zero, NULL}};
      compare(&m, "drrqr", "rrqr.", i / m.heads, i % m.heads, &h, (struct prune_options){0});
      compare(&m, "drrqr", "rrqr.", i / m.heads, i % m.heads, &h, (struct prune_options){.like_reference = true});
    }
    free(lower);
    free(gram);
    free(zero);
    checkpoint_close(m.file);
  }
}

static void drrqr_chooses_the_published_channels_from_activations(void **state) {
  const int layers[] = {0, 5};
  struct model m = open_model("gated_deltanet");
  for (int n = 0; n < 2; n++) {
    struct file_tensor *t = checkpoint_findf(m.file, "rows.%d.0", layers[n]);
    int rows = (int)t->shape[0] / 2;
    float *x = floats(t), *q = malloc((size_t)rows * (size_t)m.d * sizeof *q),
          *k = malloc((size_t)rows * (size_t)m.d * sizeof *k);
    memcpy(q, x, (size_t)rows * (size_t)m.d * sizeof *q);
    memcpy(k, x + rows * m.d, (size_t)rows * (size_t)m.d * sizeof *k);
    struct measured all = measure_head(q, k, rows, m.d);
    compare(&m, "drrqr", "rrqr.", layers[n], 0, &all.head, (struct prune_options){.route = PRUNE_ROWS});
    compare(&m, "drrqr", "rrqr.", layers[n], 0, &all.head, (struct prune_options){.route = PRUNE_GRAM});
    measured_free(&all);
    free(x);
  }
  checkpoint_close(m.file);
}

// ---------------------------------------------------------------- against the reference in float64

static const char *const sides[] = {"both", "keys", "queries"};

static void scores_are_the_references_for_every_side_and_step(void **state) {
  struct checkpoint *file = open_vectors("algorithms");
  float *wq = floats(get(file, "score.wq", "")), *wk = floats(get(file, "score.wk", ""));
  double *squares = doubles(get(file, "score.squares", ""));
  const float *steps[2] = {wk, wk + 24 * 40};
  struct prune_head h = {.d = 24, .wq = wq, .wk = steps, .steps = 2, .hidden = 40, .input_squares = squares};
  for (int side = 0; side < 3; side++) {
    double *l1 = doubles(get(file, "score.l1.", sides[side])), *wanda = doubles(get(file, "score.wanda.", sides[side]));
    char name[64];
    snprintf(name, sizeof name, "%s.kept", sides[side]);
    int *kept = integers(get(file, "score.wanda.", name));
    struct prune_options o = {.side = (enum prune_side)side};
    struct prune_result a = select_with("l1", &h, 11, o), b = select_with("s-wanda", &h, 11, o);
    for (int j = 0; j < 24; j++) {
      ASSERT_NEAR(a.scores[j], l1[j], l1[j], 1e-13);
      ASSERT_NEAR(b.scores[j], wanda[j], wanda[j], 1e-13);
    }
    assert_same(b.kept, kept, 11);
    prune_result_free(&a);
    prune_result_free(&b);
    free(l1);
    free(wanda);
    free(kept);
  }
  free(wq);
  free(wk);
  free(squares);
  checkpoint_close(file);
}

static void drrqr_makes_the_references_swaps(void **state) {
  struct checkpoint *file = open_vectors("algorithms");
  struct file_tensor *t = get(file, "rrqr.m", "");
  int trials = (int)t->shape[0], rows = (int)t->shape[1], d = (int)t->shape[2], total = 0;
  float *m = floats(t);
  int *kept = integers(get(file, "rrqr.kept", "")), *swaps = integers(get(file, "rrqr.swaps", ""));
  double *rho = doubles(get(file, "rrqr.rho", ""));
  for (int i = 0; i < trials; i++)
    for (int route = PRUNE_GRAM; route <= PRUNE_ROWS; route++) {
      double gram[16 * 16] = {0};
      struct prune_head h = {.d = d, .k_rows = {m + i * rows * d, rows, d}, .k = {rows, gram, NULL}};
      ASSERT_OK(matrix_add_gram(h.k_rows, d, gram, NULL));
      struct prune_result r = select_with(
          "drrqr", &h, 9,
          (struct prune_options){
              .side = PRUNE_KEYS, .route = (enum prune_route)route, .tolerance = i % 2 ? 1 : 1.02, .swap_limit = 200});
      assert_same(r.kept, kept + i * 9, 9);
      assert_int_equal(r.swap_count, swaps[i]);
      ASSERT_NEAR(r.rho, rho[i], 1, 1e-8);
      total += r.swap_count;
      prune_result_free(&r);
    }
  assert_true(total > 0);
  free(m);
  free(kept);
  free(swaps);
  free(rho);
  checkpoint_close(file);
}

static void compare_projection(struct checkpoint *file, const char *name, const struct prune_head *h,
                               struct prune_options o) {
  double *want = doubles(get(file, "pca.", name));
  struct prune_result r = select_with("pca", h, 4, o);
  assert_null(r.kept);
  for (int i = 0; i < 4 * h->d; i++) ASSERT_NEAR(r.projection[i], want[i], 1, 1e-6); // the unit rows here are float
  prune_result_free(&r);
  free(want);
}

static void pca_projects_like_the_reference(void **state) {
  struct checkpoint *file = open_vectors("algorithms");
  struct file_tensor *t = get(file, "pca.q", "");
  struct measured m = measure_head(floats(t), floats(get(file, "pca.k", "")), (int)t->shape[0], (int)t->shape[1]);
  compare_projection(file, "keys", &m.head, (struct prune_options){.side = PRUNE_KEYS});
  compare_projection(file, "queries", &m.head, (struct prune_options){.side = PRUNE_QUERIES});
  compare_projection(file, "both", &m.head, (struct prune_options){0});
  compare_projection(file, "adversarial", &m.head, (struct prune_options){.side = PRUNE_KEYS, .adversarial = true});
  compare_projection(file, "keys.centred", &m.head, (struct prune_options){.side = PRUNE_KEYS, .like_reference = true});
  compare_projection(file, "both.centred", &m.head, (struct prune_options){.like_reference = true});
  measured_free(&m);
  checkpoint_close(file);
}

static void pca_adapts_filters_and_weights_like_the_reference(void **state) {
  struct checkpoint *file = open_vectors("algorithms");
  double *T = doubles(get(file, "pca.keys", "")), *filters = doubles(get(file, "pca.filters.new", "")),
         *rows = doubles(get(file, "pca.weights.new", ""));
  float *w = floats(get(file, "pca.filters", "")), out[4 * 4];
  assert_false(pca_filters_shared(w, 10, 4));
  pca_filters(T, 4, 10, w, 4, out);
  for (int i = 0; i < 16; i++) ASSERT_NEAR(out[i], filters[i], 1, 1e-6);
  pca_rows(T, 4, 10, w, 4, out);
  for (int i = 0; i < 16; i++) ASSERT_NEAR(out[i], rows[i], 1, 1e-6);
  for (int j = 1; j < 10; j++) memcpy(w + j * 4, w, 4 * sizeof *w);
  assert_true(pca_filters_shared(w, 10, 4));
  pca_filters(T, 4, 10, w, 4, out);
  for (int i = 0; i < 4; i++) assert_memory_equal(out + i * 4, w, 4 * sizeof *w);
  free(T);
  free(filters);
  free(rows);
  free(w);
  checkpoint_close(file);
}

static void rank_measures_are_numpys(void **state) {
  enum { M = 12, N = 9 };
  struct checkpoint *file = open_vectors("algorithms");
  struct file_tensor *t = get(file, "rank.a", "");
  double *a = doubles(t), *values = doubles(get(file, "rank.values", ""));
  for (uint64_t i = 0; i < t->shape[0]; i++) {
    double columns[M * N], gram[N * N] = {0}, *want = values + i * 6;
    for (int r = 0; r < M; r++)
      for (int c = 0; c < N; c++) columns[r + c * M] = a[i * M * N + (uint64_t)(r * N + c)];
    for (int r = 0; r < M; r++)
      for (int c = 0; c < N * N; c++) gram[c] += columns[r + c / N * M] * columns[r + c % N * M];
    struct rank_measures got[2];
    ASSERT_OK(measures_of(columns, M, N, &got[0]));
    ASSERT_OK(rank_of_gram(gram, N, M, &got[1]));
    for (int s = 0; s < 2; s++) {
      ASSERT_NEAR(got[s].stable_rank, want[0], want[0], 1e-10);
      ASSERT_NEAR(got[s].utilization, want[1], want[1], 1e-10);
      ASSERT_NEAR(got[s].entropy_rank, want[2], want[2], 1e-6);
      ASSERT_NEAR(got[s].condition, want[3], want[3], 1e-6);
      assert_int_equal(got[s].rank, (int)want[4]);
      if (want[4] == N)
        ASSERT_NEAR(got[s].log_volume, want[5], 1, 1e-6);
      else
        assert_true(got[s].log_volume == -INFINITY);
    }
  }
  free(a);
  free(values);
  checkpoint_close(file);
}

// ---------------------------------------------------------------- promises

static void the_zero_matrix_has_no_rank(void **state) {
  double zero[12] = {0};
  struct rank_measures m;
  ASSERT_OK(measures_of(zero, 4, 3, &m));
  assert_true(m.stable_rank == 0 && m.utilization == 0 && m.entropy_rank == 0 && m.condition == 0 && m.rank == 0);
  zero[5] = NAN;
  assert_int_equal(measures_of(zero, 4, 3, &m), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(rank_of_gram(zero, 3, 9, &m), DELTAIC_INVALID_ARGUMENT);
}

static void fewer_kept_channels_are_better_conditioned(void **state) {
  uint64_t seed = 30;
  struct measured m = random_head(&seed, 400, 32, SILU);
  struct rank_measures all, kept;
  ASSERT_OK(rank_of_gram(m.head.k.gram, 32, 400, &all));
  for (int keep = 1; keep <= 32; keep += 5) {
    struct prune_result r = select_with("drrqr", &m.head, keep, (struct prune_options){.side = PRUNE_KEYS});
    ASSERT_OK(rank_of_kept(m.head.k.gram, 32, r.kept, keep, 400, &kept));
    assert_true(kept.condition <= all.condition && kept.rank == keep); // interlacing
    ASSERT_NEAR(kept.log_volume, r.log_volume, 1, 1e-8);
    prune_result_free(&r);
  }
  measured_free(&m);
}

// |X - X T^T T|^2 is the variance that the projection leaves, and no other projection leaves less.
static void pca_reconstructs_best(void **state) {
  enum { D = 12, ROWS = 150 };
  uint64_t seed = 31;
  struct measured m = random_head(&seed, ROWS, D, SILU);
  const double *gram = m.head.k_unit.gram;
  for (int keep = 1; keep <= D; keep++) {
    struct prune_result r = select_with("pca", &m.head, keep, (struct prune_options){.side = PRUNE_KEYS});
    double left = 0;
    for (int i = keep; i < D; i++) left += r.scores[i];
    for (int trial = 0; trial < 20; trial++) {
      double T[D * D] = {0}, captured = 0, all = 0;
      if (trial == 0)
        for (int i = 0; i < keep * D; i++) T[i % D + i / D * D] = r.projection[i];
      else
        for (int i = 0; i < keep * D; i++) T[i] = normal(&seed);
      for (int i = 0; i < keep; i++) { // columns of T made orthonormal
        double *t = T + i * D, norm = 0;
        for (int b = 0; b < i; b++) {
          double dot = 0;
          for (int j = 0; j < D; j++) dot += t[j] * T[b * D + j];
          if (trial == 0) assert_true(fabs(dot) < 1e-12);
          for (int j = 0; j < D; j++) t[j] -= dot * T[b * D + j];
        }
        for (int j = 0; j < D; j++) norm += t[j] * t[j];
        if (trial == 0) ASSERT_NEAR(norm, 1, 1, 1e-12);
        for (int j = 0; j < D; j++) t[j] /= sqrt(norm);
        for (int a = 0; a < D * D; a++) captured += t[a / D] * gram[a] * t[a % D] / ROWS;
      }
      for (int j = 0; j < D; j++) all += gram[j + j * D] / ROWS;
      if (trial == 0) ASSERT_NEAR(all - captured, left, 1, 1e-12);
      assert_true(all - captured >= left - 1e-12);
    }
    prune_result_free(&r);
  }
  measured_free(&m);
}

static void pca_keeps_the_blocks_apart(void **state) {
  uint64_t seed = 32;
  struct measured m = random_head(&seed, 100, 12, CORRELATED);
  m.head.blocks = 2;
  struct prune_result r = select_with("pca", &m.head, 4, (struct prune_options){0});
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 12; j++)
      if (i / 2 != j / 6) assert_true(r.projection[i * 12 + j] == 0);
  prune_result_free(&r);
  measured_free(&m);
}

static void equal_scores_go_to_the_lower_channel(void **state) {
  float wq[] = {1, 2, 2, 0, 2, 1, 2, 2}, wk[] = {1, -1, 1, 1, -1, 1, 1, 1};
  const float *steps = wk;
  const int want[] = {1, 2, 4, 6, 7, 0, 5, 3};
  struct prune_head h = {.d = 8, .wq = wq, .wk = &steps, .steps = 1, .hidden = 1};
  for (int keep = 1; keep <= 8; keep++) {
    struct prune_result r = select_with("l1", &h, keep, (struct prune_options){0});
    assert_same(r.order, want, keep);
    prune_result_free(&r);
  }
  h.blocks = 4;
  struct prune_result r = select_with("l1", &h, 4, (struct prune_options){0});
  assert_same(r.kept, (const int[]){1, 2, 4, 6}, 4);
  prune_result_free(&r);
}

static void random_sets_depend_on_seed_and_head_alone(void **state) {
  enum { D = 16, HEADS = 2000 };
  int count[D] = {0}, same = 0;
  for (int i = 0; i < HEADS; i++) {
    struct prune_head h = {.d = D, .id = (uint64_t)i};
    struct prune_result a = select_with("random", &h, 4, (struct prune_options){.seed = 42});
    struct prune_result b = select_with("random", &h, 4, (struct prune_options){.seed = 42});
    struct prune_result c = select_with("random", &h, 4, (struct prune_options){.seed = 43});
    assert_same(a.kept, b.kept, 4);
    same += !memcmp(a.kept, c.kept, 4 * sizeof(int));
    for (int j = 0; j < 4; j++) count[a.kept[j]]++;
    for (int j = 1; j < 4; j++) assert_true(a.kept[j - 1] < a.kept[j]);
    prune_result_free(&a);
    prune_result_free(&b);
    prune_result_free(&c);
  }
  assert_true(same < 10);                                          // 1 in 1820 by chance
  for (int j = 0; j < D; j++) assert_in_range(count[j], 400, 600); // 500 expected, deviation 19
}

static void every_method_keeps_everything_when_asked_to(void **state) {
  uint64_t seed = 33;
  for (int d = 1; d <= 21; d += 5) {
    struct measured m = random_head(&seed, 60, d, SILU);
    double squares[60];
    for (int i = 0; i < 60; i++) squares[i] = i;
    const float *wk = m.k; // (d, 60) of whatever numbers
    m.head.wq = m.q;
    m.head.wk = &wk;
    m.head.steps = 1;
    m.head.hidden = 60;
    m.head.input_squares = m.head.q_saliency = m.head.k_saliency = squares;
    for (int i = 0; prune_method_at(i); i++)
      for (int route = PRUNE_GRAM; route <= PRUNE_ROWS; route++)
        for (int side = PRUNE_BOTH; side <= PRUNE_QUERIES; side++) {
          struct prune_options o = {.side = (enum prune_side)side, .route = (enum prune_route)route};
          struct prune_result r = select_with(prune_method_at(i)->name, &m.head, d, o);
          assert_int_equal(r.keep, d);
          for (int j = 0; r.kept && j < d; j++) assert_int_equal(r.kept[j], j);
          assert_true(r.kept || r.projection);
          prune_result_free(&r);
        }
    measured_free(&m);
  }
}

static void bad_requests_are_refused_in_a_sentence(void **state) {
  uint64_t seed = 34;
  struct measured m = random_head(&seed, 20, 6, SILU);
  struct prune_result r;
  const struct prune_method *drrqr = prune_method_find("drrqr");
  for (int keep = -1; keep <= 7; keep += 8)
    assert_int_equal(prune_select(drrqr, &m.head, keep, NULL, &r), DELTAIC_INVALID_ARGUMENT);
  assert_string_equal(deltaic_last_error(), "cannot keep 7 of 6 channels");
  struct prune_options o = {.tolerance = 0.5};
  assert_int_equal(prune_select(drrqr, &m.head, 3, &o, &r), DELTAIC_INVALID_ARGUMENT);
  m.head.blocks = 4;
  assert_int_equal(prune_select(drrqr, &m.head, 3, NULL, &r), DELTAIC_INVALID_ARGUMENT);
  struct prune_head nothing = {.d = 6};
  for (int i = 0; prune_method_at(i); i++) {
    if (!prune_method_at(i)->needs) continue;
    assert_int_equal(prune_select(prune_method_at(i), &nothing, 3, NULL, &r), DELTAIC_INVALID_ARGUMENT);
    assert_non_null(strstr(deltaic_last_error(), "needs"));
  }
  assert_null(prune_method_find("no such method"));
  assert_null(prune_method_at(-1));
  measured_free(&m);
}

static void targets_are_those_of_the_specification(void **state) {
  static const struct {
    int d;
    double ratio;
    int blocks, keep;
  } cases[] = {{128, 0.3, 1, 89},   {128, 0.4, 1, 76},  {128, 0.5, 1, 64},  {128, 0.75, 1, 32}, {256, 0.3, 1, 179},
               {256, 0.4, 1, 153},  {256, 0.5, 1, 128}, {256, 0.75, 1, 64}, {128, 0, 1, 128},   {4, 0.9, 1, 1},
               {128, 0.875, 1, 16}, {1, 0.5, 1, 1},     {128, 0.3, 4, 88},  {128, 0.3, 0, 89},  {16, 0.9, 4, 4}};
  int keep;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ASSERT_OK(prune_target(cases[i].d, cases[i].ratio, cases[i].blocks, &keep));
    assert_int_equal(keep, cases[i].keep);
  }
  const double bad[] = {-0.1, 1, 2, NAN, INFINITY};
  for (int i = 0; i < 5; i++) assert_int_equal(prune_target(8, bad[i], 1, &keep), DELTAIC_INVALID_ARGUMENT);
}

static void counts_can_be_chosen_by_rank_or_volume(void **state) {
  enum { D = 10, ROWS = 200 };
  uint64_t seed = 35;
  float *k = random_rows(&seed, ROWS, D, INDEPENDENT);
  for (int t = 0; t < ROWS; t++)
    for (int j = 6; j < D; j++) k[t * D + j] = k[t * D + j - 6] - 2 * k[t * D + j - 5]; // rank 6
  struct measured m = measure_head(random_rows(&seed, ROWS, D, SILU), k, ROWS, D);
  const double *gram = m.head.k.gram;
  int keep, last = D;
  struct rank_measures r;
  ASSERT_OK(rank_of_gram(gram, D, ROWS, &r));
  ASSERT_OK(rank_keep_by_rank(gram, D, RANK_NUMERICAL, &keep));
  assert_int_equal(keep, 6);
  ASSERT_OK(rank_keep_by_rank(gram, D, RANK_ENTROPY, &keep));
  assert_int_equal(keep, (int)ceil(r.entropy_rank));
  ASSERT_OK(rank_keep_by_rank(gram, D, RANK_STABLE, &keep));
  assert_int_equal(keep, (int)ceil(r.stable_rank));
  ASSERT_OK(rank_keep_by_volume(gram, D, 0, &keep));
  assert_int_equal(keep, 6);
  for (double limit = 0; limit < 1; limit += 0.05) {
    ASSERT_OK(rank_keep_by_volume(gram, D, limit, &keep));
    assert_true(keep <= last && keep >= 1);
    last = keep;
    // What is lost with so many kept, by projecting; with one fewer it would be too much.
    for (int n = keep; n >= keep - 1 && n >= 1; n--) {
      struct rrqr s;
      double lost = 0, all = 0;
      ASSERT_OK(rrqr_from_gram(&s, gram, D, n, 1));
      for (int j = 0; j < D; j++) all += gram[j + j * D];
      for (int j = 0; j < D - n; j++) lost += s.gamma2[j];
      assert_true(n == keep ? sqrt(lost / all) <= limit + 1e-7 : sqrt(lost / all) > limit);
      rrqr_free(&s);
    }
  }
  assert_int_equal(rank_keep_by_volume(gram, D, 1, &keep), DELTAIC_INVALID_ARGUMENT);
  measured_free(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(l1_chooses_the_published_channels),
      cmocka_unit_test(l1_and_wanda_choose_the_published_channels_from_the_weights),
      cmocka_unit_test(drrqr_chooses_the_published_channels_from_gram_matrices),
      cmocka_unit_test(drrqr_chooses_the_published_channels_from_activations),
      cmocka_unit_test(scores_are_the_references_for_every_side_and_step),
      cmocka_unit_test(drrqr_makes_the_references_swaps),
      cmocka_unit_test(pca_projects_like_the_reference),
      cmocka_unit_test(pca_adapts_filters_and_weights_like_the_reference),
      cmocka_unit_test(rank_measures_are_numpys),
      cmocka_unit_test(the_zero_matrix_has_no_rank),
      cmocka_unit_test(fewer_kept_channels_are_better_conditioned),
      cmocka_unit_test(pca_reconstructs_best),
      cmocka_unit_test(pca_keeps_the_blocks_apart),
      cmocka_unit_test(equal_scores_go_to_the_lower_channel),
      cmocka_unit_test(random_sets_depend_on_seed_and_head_alone),
      cmocka_unit_test(every_method_keeps_everything_when_asked_to),
      cmocka_unit_test(bad_requests_are_refused_in_a_sentence),
      cmocka_unit_test(targets_are_those_of_the_specification),
      cmocka_unit_test(counts_can_be_chosen_by_rank_or_volume),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
