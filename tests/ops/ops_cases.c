// Cases of the short ops, matrix products included.
#include "ops_cases.h"
#include "ops_tools.h"

// f32 arithmetic with sums of up to a few hundred terms; exp and sqrt good to a few units in the last place (GPUs).
static const double CLOSE = 2e-6;

// B sequences in a row, slots in reverse order; returns the rows they take together.
static uint32_t lay_out(struct sequence *s, const uint32_t *T, uint32_t B) {
  uint32_t row = 0;
  for (uint32_t i = 0; i < B; i++) {
    s[i] = (struct sequence){.row = row, .T = T[i], .pos = 7 * i, .slot = B - 1 - i};
    row += T[i];
  }
  return row;
}

static void embed_copies_rows_of_every_dtype(void **state) {
  seed(1);
  const uint32_t widths[] = {1, 7, 64, 130};
  for (int d = DTYPE_F32; d < DTYPE_TILES; d++)
    for (int w = 0; w < 4; w++) {
      uint32_t D = widths[w], V = 37, T = 17;
      int32_t ids[17];
      for (uint32_t t = 0; t < T; t++) ids[t] = (int32_t)uniform(0, V);
      struct array table = weights((enum dtype)d, V, D, (uint32_t)weight_stride((enum dtype)d, D + 8), normals(V * D));
      struct array tokens = integers(T, 1, ids), x = activations(T, D, D + 3, NULL);
      RUN(op_embed(list, x.t, table.t, tokens.t));
      double *got = read_values(&x);
      for (uint32_t t = 0; t < T; t++)
        for (uint32_t i = 0; i < D; i++) assert_true(got[t * D + i] == table.v[(uint32_t)ids[t] * D + i]);
    }
}

static void mark_sets_the_bits_of_all_tokens_and_no_others(void **state) {
  seed(2);
  enum { V = 100, WORDS = 4 };
  const uint32_t T[] = {40, 0, 9};
  struct sequence s[3];
  uint32_t rows = lay_out(s, T, 3), want[3 * WORDS] = {0};
  int32_t ids[49];
  for (uint32_t i = 0; i < 3; i++)
    for (uint32_t t = s[i].row; t < s[i].row + s[i].T; t++) {
      ids[t] = (int32_t)uniform(0, V);
      want[s[i].slot * WORDS + (uint32_t)ids[t] / 32] |= 1u << ids[t] % 32;
    }
  want[WORDS] |= 1u << 31; // there before
  uint32_t before[3 * WORDS] = {[WORDS] = 1u << 31};
  struct array seen = integers(3, WORDS, before), tokens = integers(rows, 1, ids), sequences = sequences_of(s, 3);
  RUN(op_mark(list, seen.t, tokens.t, sequences.t));
  assert_memory_equal(read_words(&seen), want, sizeof want);
}

static void reference_rms(double *y, const double *x, const double *weight, uint32_t D, double eps) {
  double sum = 0;
  for (uint32_t i = 0; i < D; i++) sum += x[i] * x[i];
  for (uint32_t i = 0; i < D; i++) y[i] = x[i] / sqrt(sum / D + eps) * weight[i];
}

static void norm_matches_its_formula(void **state) {
  seed(3);
  const uint32_t widths[] = {1, 3, 64, 76, 513, 2048};
  for (int l = 0; l < LENGTHS; l++) {
    uint32_t T = lengths[l], D = widths[l % 6];
    double *values = normals((size_t)T * D);
    for (uint32_t i = 0; i < D; i++) values[i] *= 1e-3; // where eps counts
    struct array x = activations(T, D, D + 1, values), y = activations(T, D, D + 2, NULL);
    struct array weight = weights(DTYPE_F32, 1, D, DENSE, uniforms(D, -2, 2));
    RUN(op_norm(list, y.t, x.t, weight.t, ABSENT, 1e-5f));
    double *want = zeros((size_t)T * D);
    for (uint32_t t = 0; t < T; t++) reference_rms(want + t * D, x.v + t * D, weight.v, D, 1e-5f);
    expect_close("norm", read_values(&y), want, (size_t)T * D, CLOSE);
  }
}

static void norm_of_last_rows_skips_sequences_without_tokens(void **state) {
  seed(4);
  enum { D = 76 };
  const uint32_t T[] = {5, 0, 2};
  struct sequence s[3];
  uint32_t rows = lay_out(s, T, 3);
  struct array x = activations(rows, D, DENSE, normals((size_t)rows * D));
  struct array weight = weights(DTYPE_F32, 1, D, DENSE, uniforms(D, 0, 2));
  struct array y = activations(3, D, DENSE, uniforms(3 * D, 5, 6)), sequences = sequences_of(s, 3);
  RUN(op_norm(list, y.t, x.t, weight.t, sequences.t, 1e-6f));
  double *want = zeros(3 * D);
  reference_rms(want, x.v + 4 * D, weight.v, D, 1e-6f);
  memcpy(want + D, y.v + D, D * sizeof(double));
  reference_rms(want + 2 * D, x.v + 6 * D, weight.v, D, 1e-6f);
  expect_close("norm of last rows", read_values(&y), want, 3 * D, CLOSE);
}

// Inputs (T, K) of a product, normed when eps > 0; want: what they are.
struct input_case {
  struct tensor x, weight;
  float eps;
  double *want; // (T, K)
};

static struct input_case random_input(uint32_t T, uint32_t K, float eps) {
  struct array x = activations(T, K, K + T % 3, normals((size_t)T * K));
  struct input_case c = {.x = x.t, .eps = eps, .want = x.v};
  if (!(eps > 0)) return c;
  struct array weight = weights(DTYPE_F32, 1, K, DENSE, uniforms(K, -2, 2));
  c.weight = weight.t;
  c.want = zeros((size_t)T * K);
  for (uint32_t t = 0; t < T; t++) reference_rms(c.want + t * K, x.v + t * K, weight.v, K, (double)eps);
  return c;
}

static struct tensor record_input(const struct input_case *c) {
  if (!(c->eps > 0)) return c->x;
  const struct tensor h = oplist_value(list, c->x.rows, c->x.cols);
  op_norm(list, h, c->x, c->weight, ABSENT, c->eps);
  return h;
}

// y = x w^T (+ bias), or added to y.
static void record_linear(struct tensor y, struct tensor x, struct tensor w, struct tensor bias, bool add) {
  const struct tensor product = add ? oplist_value(list, y.rows, y.cols) : y;
  op_linear(list, product, x, w, bias);
  if (add) op_add(list, y, y, product);
}

static void record_gated(struct tensor y, struct tensor x, struct tensor w, enum activation activation) {
  const struct tensor gate_up = oplist_value(list, x.rows, w.rows);
  op_linear(list, gate_up, x, w, ABSENT);
  op_glu(list, y, tensor_cols(gate_up, 0, y.cols), tensor_cols(gate_up, y.cols, y.cols), activation);
}

// x (T, K) w (N, K)^T
static double *reference_product(const double *x, const double *w, uint32_t T, uint32_t N, uint32_t K) {
  double *y = zeros((size_t)T * N);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t n = 0; n < N; n++)
      for (uint32_t k = 0; k < K; k++) y[t * N + n] += x[t * K + k] * w[n * K + k];
  return y;
}

static void check_linear(uint32_t T, uint32_t N, uint32_t K, enum dtype dtype, bool bias, bool add, float eps) {
  struct input_case c = random_input(T, K, eps);
  struct array w = weights(dtype, N, K, (uint32_t)weight_stride(dtype, K + 8 * (T % 2)), normals((size_t)N * K));
  struct array b = weights(DTYPE_F32, 1, N, DENSE, normals(N));
  struct array y = activations(T, N, N + 5 * (K % 2), normals((size_t)T * N));
  begin();
  record_linear(y.t, record_input(&c), w.t, bias ? b.t : ABSENT, add);
  run();
  double *want = reference_product(c.want, w.v, T, N, K);
  for (uint32_t i = 0; i < T * N; i++) want[i] += (bias ? b.v[i % N] : 0) + (add ? y.v[i] : 0);
  expect_close(eps > 0 ? "linear of norms" : "linear", read_values(&y), want, (size_t)T * N, CLOSE);
}

static const uint32_t linear_sizes[][2] = {{65, 131}, {7, 76},   {1, 1},   {3, 5},
                                           {64, 64},  {37, 513}, {130, 1}, {16, 1040}};

static void linear_matches_over_awkward_shapes_and_dtypes(void **state) {
  seed(5);
  for (uint32_t d = DTYPE_F32; d < DTYPE_TILES; d++)
    for (uint32_t i = 0; i < shapes(8, 2); i++) {
      if (!all_shapes() && i != d % 2) continue;
      const uint32_t N = linear_sizes[i][0], K = linear_sizes[i][1];
      for (uint32_t l = 0; l < LENGTHS; l++) {
        // A dtype changes how weights are read, not the tokens.
        const bool least = l == 0 || l == 8, some = least || l == 4 || l == 5;
        if (all_shapes() || d < DTYPE_BF16 || (d > DTYPE_BLOCKS ? least : some))
          check_linear(lengths[l], N, K, (enum dtype)d, (i + l) % 2, (i + l) / 2 % 2, 0);
      }
      tools_teardown(NULL);
    }
  check_linear(65, 64, 64, DTYPE_BF16, true, true, 0); // rows of y that kernels store in fours
  check_linear(300, 131, 40, DTYPE_BF16, false, false, 0); // more rows of tiles than a strip
}

// Rows of Q4_K, f32 and Q8_0, with and without the operations that products take along.
static void matrices_of_several_formats_are_products_of_each(void **state) {
  enum { N = 66, K = 256 };
  static const uint32_t T[] = {1, 5, 65}, rows[] = {32, 3, 31};
  static const enum dtype dtypes[] = {DTYPE_Q4_K, DTYPE_F32, DTYPE_Q8_0};
  struct tensor parts[3];
  seed(18);
  double *values = zeros(N * K), *from = values;
  for (int i = 0; i < 3; from += rows[i++] * K) {
    const struct array w = weights(dtypes[i], rows[i], K, DENSE, normals((size_t)rows[i] * K));
    parts[i] = w.t;
    memcpy(from, w.v, rows[i] * K * sizeof *w.v);
  }
  struct tensor w = parts[0];
  w.rows = N;
  w.mixed = parts;
  const struct array bias = weights(DTYPE_F32, 1, N, DENSE, normals(N));
  for (int l = 0; l < 3; l++) {
    const struct input_case c = random_input(T[l], K, l % 2 ? 1e-5f : 0);
    const struct array y = activations(T[l], N, N + 1, normals((size_t)T[l] * N));
    const struct array gated = activations(T[l], N / 2, DENSE, NULL);
    double *want = reference_product(c.want, values, T[l], N, K), *half = zeros((size_t)T[l] * N / 2);
    begin();
    record_linear(y.t, record_input(&c), w, bias.t, true);
    run();
    begin();
    record_gated(gated.t, record_input(&c), w, ACTIVATION_SILU);
    run();
    for (uint32_t i = 0; i < T[l] * N / 2; i++) {
      const double *row = want + i / (N / 2) * N + i % (N / 2);
      half[i] = reference_activation(ACTIVATION_SILU, row[0]) * row[N / 2];
    }
    for (uint32_t i = 0; i < T[l] * N; i++) want[i] += bias.v[i % N] + y.v[i];
    expect_close("linear of several formats", read_values(&y), want, (size_t)T[l] * N, CLOSE);
    expect_close("linear_gated of several formats", read_values(&gated), half, (size_t)T[l] * N / 2, 2 * CLOSE);
  }
}

static void linear_norms_its_input(void **state) {
  seed(13);
  const uint32_t T[] = {1, 3, 8, 65, 2, 5, 7, 9};
  for (uint32_t i = 0; i < shapes(8, 2); i++) {
    const uint32_t N = linear_sizes[i][0], K = linear_sizes[i][1];
    for (uint32_t l = 0; l < shapes(8, 4); l++)
      check_linear(T[l], N, K, (enum dtype)((8 - i) % DTYPE_TILES), l % 2, l / 2 % 2, 1e-5f);
    tools_teardown(NULL);
  }
}

static void linear_reads_f16_denormals(void **state) {
  seed(6);
  enum { N = 5, K = 40 };
  struct array x = activations(2, K, DENSE, normals(2 * K)), y = activations(2, N, DENSE, NULL);
  struct array w = weights(DTYPE_F16, N, K, DENSE, uniforms(N * K, -6e-5, 6e-5));
  RUN(op_linear(list, y.t, x.t, w.t, ABSENT));
  double want[2 * N] = {0};
  for (int i = 0; i < 2 * N * K; i++) want[i / K] += x.v[i / K / N * K + i % K] * w.v[i / K % N * K + i % K];
  expect_close("linear with f16 denormals", read_values(&y), want, 2 * N, CLOSE);
}

// Each input and each output once, and outputs that are added to twice; the CPU adds in an operation of its own. One
// row, few and many, so that all kernels for them are asked; shapes without padding.
static void the_profile_counts_what_a_product_moves(void **state) {
  enum { N = 32, K = 64 };
  const uint32_t T[] = {1, 3, 70};
  struct array w = weights(DTYPE_F16, N, K, DENSE, zeros(N * K));
  for (int i = 0; i < 6; i++) {
    const bool add = i % 2, apart = add && !backend->replays;
    struct array x = activations(T[i / 2], K, DENSE, NULL), y = activations(T[i / 2], N, DENSE, NULL);
    deltaic_kernel_time times[2];
    assert_int_equal(recorder->functions->recorder_profile(recorder, true), DELTAIC_OK);
    begin();
    record_linear(y.t, x.t, w.t, ABSENT, add);
    run();
    assert_int_equal(recorder->functions->recorder_times(recorder, times, 2), 1 + apart);
    assert_int_equal(recorder->functions->recorder_profile(recorder, false), DELTAIC_OK);
    assert_int_equal(times[0].bytes,
                     tensor_bytes(&x.t) + tensor_bytes(&w.t) + (1 + (add && !apart)) * tensor_bytes(&y.t));
    if (apart) assert_int_equal(times[1].bytes, 3 * tensor_bytes(&y.t));
  }
}

struct conv_case {
  struct conv_args a;
  struct array x, weight, bias, history;
  bool has_bias;
};

static uint32_t longest_of(const struct sequence *s, uint32_t B) {
  uint32_t longest = 0;
  for (uint32_t i = 0; i < B; i++) longest = s[i].T > longest ? s[i].T : longest;
  return longest;
}

// y and the new history of one sequence, from the definition.
static void reference_conv(double *y, double *history, const struct conv_case *v, const struct sequence *s) {
  uint32_t W = v->a.W, C = v->a.C, old = W - 1;
  double *all = zeros((size_t)(old + s->T) * C); // the history, then the call's inputs
  memcpy(all, history, (size_t)old * C * sizeof *all);
  memcpy(all + (size_t)old * C, v->x.v + (size_t)s->row * C, (size_t)s->T * C * sizeof *all);
  for (uint32_t t = 0; t < s->T; t++)
    for (uint32_t c = 0; c < C; c++) {
      double sum = v->has_bias ? v->bias.v[c] : 0;
      for (uint32_t w = 0; w < W; w++) sum += v->weight.v[w * C + c] * all[(t + w) * C + c];
      y[(s->row + t) * C + c] = c >= v->a.silu_from ? reference_activation(ACTIVATION_SILU, sum) : sum;
    }
  memcpy(history, all + (size_t)s->T * C, (size_t)old * C * sizeof *all);
}

static void check_conv(uint32_t W, uint32_t C, const uint32_t *T, uint32_t B) {
  struct sequence s[12];
  uint32_t rows = lay_out(s, T, B), old = (W - 1) * C;
  struct conv_case v = {.a = {.W = W, .C = C, .silu_from = C / 3}, .has_bias = C % 2};
  v.x = activations(rows, C, C + 3, normals((size_t)rows * C));
  v.weight = weights(DTYPE_F32, W, C, DENSE, normals((size_t)W * C));
  v.bias = weights(DTYPE_F32, 1, C, DENSE, normals(C));
  v.history = activations(B, old ? old : 1, DENSE, normals((size_t)B * (old ? old : 1)));
  struct array y = activations(rows, C, C + 1, NULL), sequences = sequences_of(s, B);
  list->longest = longest_of(s, B);
  convolve(&(struct conv){.y = y.t,
                          .history = old ? v.history.t : ABSENT,
                          .x = v.x.t,
                          .weight = v.weight.t,
                          .bias = v.has_bias ? v.bias.t : ABSENT,
                          .sequences = sequences.t,
                          .a = v.a},
           W % 2 * TENSOR_ALIGN / sizeof(float));
  double *want = zeros((size_t)rows * C);
  for (uint32_t i = 0; i < B; i++) reference_conv(want, v.history.v + (size_t)s[i].slot * old, &v, &s[i]);
  expect_close("conv", read_values(&y), want, (size_t)rows * C, CLOSE);
  if (old) expect_close("conv history", read_values(&v.history), v.history.v, (size_t)B * old, 0);
}

static void conv_matches_and_leaves_the_last_inputs(void **state) {
  seed(7);
  const uint32_t widths[] = {1, 7, 64, 130};
  const uint32_t taps[] = {4, 1, 10, 2, 3, 5, 9, 12, 33};
  for (uint32_t w = 0; w < shapes(9, 3); w++)
    for (int l = 0; l < LENGTHS; l++) {
      const uint32_t W = taps[w];
      uint32_t C = widths[(W + (uint32_t)l) % 4], T[] = {lengths[l], 0, lengths[l] / 2 + 1};
      check_conv(W, C, T, l % 2 ? 3 : 1);
      if (l % 5 == 4) tools_teardown(NULL);
    }
}

static void conv_of_single_tokens_matches(void **state) {
  seed(14);
  const uint32_t taps[] = {4, 1, 2, 3, 5};
  for (uint32_t w = 0; w < shapes(5, 2); w++) {
    const uint32_t W = taps[w];
    check_conv(W, 3 + 64 * W, (const uint32_t[]){1, 0, 1}, 3);
    check_conv(W, 40, (const uint32_t[]){1, 1}, 2);
    check_conv(W, 9, (const uint32_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1}, 12); // more than one workgroup's tokens
  }
}

static void conv_in_pieces_equals_whole(void **state) {
  seed(8);
  enum { W = 4, C = 33, T = 20 };
  struct array x = activations(T, C, 64, normals(T * C)), weight = weights(DTYPE_F32, W, C, DENSE, normals(W * C));
  struct array whole = activations(T, C, 64, NULL), pieces = activations(T, C, 64, NULL); // any row may begin a view
  struct array history = activations(1, (W - 1) * C, DENSE, NULL);
  struct sequence all = {0, T, 0, 0};
  struct conv conv = {.y = whole.t,
                      .history = history.t,
                      .x = x.t,
                      .weight = weight.t,
                      .sequences = sequences_of(&all, 1).t,
                      .a = {.W = W, .C = C}};
  list->longest = T;
  convolve(&conv, 0);
  for (uint32_t step = 1; step <= 3; step++) {
    backend->functions->buffer_zero(backend, history.t.buffer, 0, (W - 1) * C * sizeof(float));
    for (uint32_t t = 0; t < T; t += step) {
      struct sequence part = {0, T - t < step ? T - t : step, t, 0};
      conv.sequences = sequences_of(&part, 1).t;
      list->longest = part.T;
      conv.y = tensor_rows(pieces.t, t, part.T);
      conv.x = tensor_rows(x.t, t, part.T);
      convolve(&conv, 0);
    }
    expect_close("conv in pieces", read_values(&pieces), read_values(&whole), T * C, 1e-7);
  }
}

static void gated_norm_of_heads_matches_with_and_without_gate(void **state) {
  seed(9);
  const uint32_t widths[] = {1, 7, 64, 130};
  for (int l = 0; l < LENGTHS; l++)
    for (int gated = 0; gated < 2; gated++) {
      uint32_t T = lengths[l], Dv = widths[l % 4], heads = 1 + (uint32_t)l % 3, n = heads * Dv;
      const uint32_t more = l % 4 == 2 ? 4 : 1; // in fours where it can be
      struct array o = activations(T, n, n + 2 * more, normals((size_t)T * n));
      struct array gate = activations(T, n, n + more, normals((size_t)T * n));
      struct array weight = weights(DTYPE_F32, 1, Dv, DENSE, uniforms(Dv, -2, 2));
      RUN(op_gated_norm(
          list, &(struct gated_norm){o.t, o.t, gated ? gate.t : ABSENT, weight.t, heads, Dv, NORM_FIRST, 1e-6f, 0}));
      double *want = zeros((size_t)T * n);
      for (uint32_t i = 0; i < T * heads; i++) reference_rms(want + i * Dv, o.v + i * Dv, weight.v, Dv, 1e-6f);
      for (size_t i = 0; gated && i < (size_t)T * n; i++) want[i] *= reference_activation(ACTIVATION_SILU, gate.v[i]);
      expect_close("gated_norm of heads", read_values(&o), want, (size_t)T * n, CLOSE);
    }
}

static void check_norm_of_heads(uint32_t Dv, uint32_t more) {
  enum { T = 5, HEADS = 3 };
  const uint32_t N = HEADS * Dv;
  struct array weight = weights(DTYPE_F32, 1, N, DENSE, uniforms(N, -2, 2));
  struct array gate = activations(T, N, DENSE, normals(T * N));
  double *want = zeros(T * N);
  struct array o = activations(T, N, N + more, normals(T * N));
  RUN(op_gated_norm(list, &(struct gated_norm){o.t, o.t, ABSENT, weight.t, HEADS, Dv, NORM_FIRST, 1e-5f, 0}));
  for (uint32_t i = 0; i < T * HEADS; i++)
    reference_rms(want + i * Dv, o.v + i * Dv, weight.v + i % HEADS * Dv, Dv, 1e-5f);
  expect_close("gated_norm of heads, a weight per head", read_values(&o), want, T * N, CLOSE);
  o = activations(T, N, N + more, o.v);
  RUN(op_gated_norm(list, &(struct gated_norm){o.t, o.t, gate.t, ABSENT, HEADS, Dv, NORM_ABSENT, 1e-5f, 0}));
  for (uint32_t i = 0; i < T * N; i++) want[i] = o.v[i] * reference_activation(ACTIVATION_SILU, gate.v[i]);
  expect_close("gated_norm of heads, gate only", read_values(&o), want, T * N, CLOSE);
}

static void gated_norm_of_heads_takes_a_weight_for_each_head_or_none(void **state) {
  seed(12);
  check_norm_of_heads(22, 1);
  check_norm_of_heads(24, 4); // in fours
}

static void gated_norm_from_a_column_leaves_the_others(void **state) {
  seed(13);
  const uint32_t before[] = {3, 8}, widths[] = {21, 64};
  for (int i = 0; i < 4; i++) {
    const uint32_t T = 5, from = before[i % 2], n = widths[i / 2], cols = from + n + 4;
    struct array x = activations(T, cols, DENSE, normals((size_t)T * cols));
    struct array y = activations(T, cols, DENSE, zeros((size_t)T * cols));
    struct array weight = weights(DTYPE_F32, 1, n, DENSE, uniforms(n, -2, 2));
    RUN(op_gated_norm(list, &(struct gated_norm){y.t, x.t, ABSENT, weight.t, 1, n, NORM_FIRST, 1e-6f, from}));
    for (uint32_t t = 0; t < T; t++) {
      double *row = x.v + (size_t)t * cols + from, want[64];
      reference_rms(want, row, weight.v, n, 1e-6f);
      memcpy(row, want, n * sizeof *want);
    }
    expect_close("gated_norm from a column", read_values(&y), x.v, (size_t)T * cols, CLOSE);
  }
}

static void check_gated(uint32_t T, uint32_t F, uint32_t K, enum dtype dtype, enum activation activation, float eps) {
  struct input_case c = random_input(T, K, eps);
  struct array w = weights(dtype, 2 * F, K, (uint32_t)weight_stride(dtype, K), normals(2 * (size_t)F * K));
  struct array y = activations(T, F, F + 1, NULL);
  begin();
  record_gated(y.t, record_input(&c), w.t, activation);
  run();
  double *want = zeros((size_t)T * F), *both = reference_product(c.want, w.v, T, 2 * F, K);
  for (uint32_t i = 0; i < T * F; i++) {
    const double *row = both + i / F * 2 * F;
    want[i] = reference_activation(activation, row[i % F]) * row[F + i % F];
  }
  expect_close("linear_gated", read_values(&y), want, (size_t)T * F, 2 * CLOSE); // two sums multiplied
}

static void linear_gated_matches_for_every_activation(void **state) {
  seed(10);
  const uint32_t T[] = {1, 2, 5, 8, 13};
  for (int activation = ACTIVATION_IDENTITY; activation <= ACTIVATION_SIGMOID; activation++)
    for (uint32_t i = 0; i < 5; i++)
      check_gated(T[i], 1 + 43 * i, 3 + 61 * i, (enum dtype)(i % DTYPE_TILES), (enum activation)activation,
                  i % 2 ? 1e-6f : 0);
}

static void glu_takes_a_gate_of_another_tensor(void **state) {
  enum { T = 3, F = 130, FROM = 64 };
  seed(11);
  struct array p = activations(T, FROM + F, DENSE, normals(T * (FROM + F))),
               x = activations(T, F, F + 3, normals(T * F));
  struct array y = activations(T, F, DENSE, NULL);
  double *want = zeros(T * F);
  for (uint32_t i = 0; i < T * F; i++)
    want[i] = x.v[i] * reference_activation(ACTIVATION_SIGMOID, p.v[i / F * (FROM + F) + FROM + i % F]);
  begin();
  op_glu(list, y.t, tensor_cols(p.t, FROM, F), x.t, ACTIVATION_SIGMOID);
  run();
  expect_close("glu", read_values(&y), want, T * F, CLOSE);
}

static void linear_gated_of_large_numbers_is_finite(void **state) {
  const double values[] = {-200, 200, -1e30, 1, 1, 1}, one = 1;
  struct array x = activations(1, 1, DENSE, &one), w = weights(DTYPE_F32, 6, 1, 8, values);
  struct array y = activations(1, 3, DENSE, NULL);
  begin();
  record_gated(y.t, x.t, w.t, ACTIVATION_SILU);
  run();
  double *got = read_values(&y);
  assert_true(fabs(got[0]) < 1e-30 && got[1] == 200 && fabs(got[2]) < 1e-30);
}

static void copy_copies_or_clears(void **state) {
  seed(11);
  const uint32_t sizes[][2] = {{1, 1}, {3, 7}, {65, 130}, {2, 70001}};
  for (int i = 0; i < 4; i++) {
    uint32_t rows = sizes[i][0], cols = sizes[i][1];
    struct array from = activations(rows, cols, DENSE, normals((size_t)rows * cols));
    struct array to = activations(rows, cols, DENSE, NULL);
    RUN(op_copy(list, to.t, from.t));
    expect_close("copy", read_values(&to), from.v, (size_t)rows * cols, 0);
    RUN(op_copy(list, to.t, ABSENT));
    double *cleared = read_values(&to);
    for (size_t k = 0; k < (size_t)rows * cols; k++) assert_true(cleared[k] == 0);
  }
}

static void scatter_fills_the_rows_of_its_slots_and_no_others(void **state) {
  seed(12);
  enum { SLOTS = 5, B = 3 };
  const struct sequence s[B] = {{.T = 1, .slot = 4}, {.T = 1, .slot = 0}, {.T = 1, .slot = 2}};
  const uint32_t sizes[] = {1, 63, 1030};
  for (int i = 0; i < 3; i++) {
    uint32_t cols = sizes[i];
    struct array to = activations(SLOTS, cols, cols + 6, normals(SLOTS * cols)), sequences = sequences_of(s, B);
    struct array from = activations(B, cols, cols + 1, normals(B * cols));
    for (uint32_t b = 0; b < B; b++) memcpy(to.v + s[b].slot * cols, from.v + b * cols, cols * sizeof *to.v);
    RUN(op_scatter(list, to.t, from.t, sequences.t));
    expect_close("scatter", read_values(&to), to.v, SLOTS * cols, 0);
  }
}

static int ops_cases_short(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(embed_copies_rows_of_every_dtype),
      OPS_CASE(mark_sets_the_bits_of_all_tokens_and_no_others),
      OPS_CASE(norm_matches_its_formula),
      OPS_CASE(norm_of_last_rows_skips_sequences_without_tokens),
      OPS_CASE(linear_matches_over_awkward_shapes_and_dtypes),
      OPS_CASE(matrices_of_several_formats_are_products_of_each),
      OPS_CASE(linear_norms_its_input),
      OPS_CASE(linear_reads_f16_denormals),
      OPS_CASE(the_profile_counts_what_a_product_moves),
      OPS_CASE(conv_matches_and_leaves_the_last_inputs),
      OPS_CASE(conv_of_single_tokens_matches),
      OPS_CASE(conv_in_pieces_equals_whole),
      OPS_CASE(gated_norm_of_heads_matches_with_and_without_gate),
      OPS_CASE(gated_norm_of_heads_takes_a_weight_for_each_head_or_none),
      OPS_CASE(gated_norm_from_a_column_leaves_the_others),
      OPS_CASE(linear_gated_matches_for_every_activation),
      OPS_CASE(glu_takes_a_gate_of_another_tensor),
      OPS_CASE(linear_gated_of_large_numbers_is_finite),
      OPS_CASE(copy_copies_or_clears),
      OPS_CASE(scatter_fills_the_rows_of_its_slots_and_no_others),
  };
  return cmocka_run_group_tests_name("short ops", cases, NULL, NULL);
}

// DELTAIC_TEST_FILTER: only the cases that match it. DELTAIC_TEST_SKIP: all but those that match.
int ops_cases_run(struct backend *b) {
  backend = b;
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  cmocka_set_skip_filter(getenv("DELTAIC_TEST_SKIP"));
  if (b->functions->recorder_create(b, &recorder)) return 1;
  print_message("backend %s: %s\n", b->functions->name, b->info.name);
  int failed = ops_cases_short() + ops_cases_inputs() + ops_cases_delta() + ops_cases_delta_properties() +
               ops_cases_step() + ops_cases_experts() + ops_cases_hh() + ops_cases_mamba2() + ops_cases_attention() +
               ops_cases_sample() + ops_cases_lists();
  report_worst();
  oplist_free(list);
  b->functions->recorder_free(recorder);
  return failed;
}
