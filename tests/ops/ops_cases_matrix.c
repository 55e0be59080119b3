// Cases of the kernels with cooperative matrices, for a device that has some: rounding operands to f16 (2^-11) may cost
// 1e-3, and nothing else may.
#include "ops_cases_matrix.h"
#include "device.h"
#include "ops_cases.h"
#include "ops_tools.h"
#include "vulkan_backend.h"

static const double CLOSE = 1e-3;

// y (T, N) = x w^T (+ bias), or added to what y has.
static void record_product(struct tensor y, struct tensor x, struct tensor w, struct tensor bias, bool add) {
  const struct tensor product = add ? oplist_value(list, y.rows, y.cols) : y;
  op_linear(list, product, x, w, bias);
  if (add) op_add(list, y, y, product);
}

// A weight as coopmats take it.
static double rounded(enum dtype dtype, double weight) {
  return dtype_is_tiles(dtype) ? (double)f16_to_f32(f32_to_f16((float)weight)) : weight;
}

// of: the size of a weight.
static void check_matmul_of(double of, uint32_t T, uint32_t N, uint32_t K, enum dtype dtype, bool bias, bool add) {
  double *values = normals((size_t)N * K);
  for (size_t i = 0; i < (size_t)N * K; i++) values[i] *= of;
  struct array x = activations(T, K, K + T % 3, normals((size_t)T * K));
  struct array w = weights(dtype, N, K, (uint32_t)weight_stride(dtype, K + 8 * (T % 2)), values);
  struct array b = weights(DTYPE_F32, 1, N, DENSE, normals(N));
  struct array y = activations(T, N, N + 5 * (K % 2), normals((size_t)T * N));
  begin();
  record_product(y.t, x.t, w.t, bias ? b.t : ABSENT, add);
  run();
  double *want = zeros((size_t)T * N);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t n = 0; n < N; n++) {
      double sum = (bias ? b.v[n] : 0) + (add ? y.v[t * N + n] : 0);
      for (uint32_t k = 0; k < K; k++) sum += x.v[t * K + k] * rounded(w.t.dtype, w.v[n * K + k]);
      want[t * N + n] = sum;
    }
  expect_close(dtype == DTYPE_BF16  ? "matmul of bf16 on matrices"
               : dtype == DTYPE_F16 ? "matmul of f16 on matrices"
                                    : "matmul of blocks on matrices",
               read_values(&y), want, (size_t)T * N, CLOSE);
}

static void check_matmul(uint32_t T, uint32_t N, uint32_t K, enum dtype dtype, bool bias, bool add) {
  check_matmul_of(1, T, N, K, dtype, bias, add);
}

static void matmul_matches_over_awkward_shapes(void **state) {
  seed(1);
  static const uint32_t sizes[][3] = {{130, 260, 96}, {17, 130, 65}, {8, 1, 1},     {9, 7, 3},     {16, 64, 64},
                                      {33, 50, 129},  {64, 96, 200}, {65, 257, 72}, {200, 128, 64}};
  for (uint32_t i = 0; i < shapes(9, 2); i++)
    for (uint32_t d = DTYPE_F16; d <= DTYPE_BF16; d++)
      if (d == 1 + i % 2 || all_shapes())
        check_matmul(sizes[i][0], sizes[i][1], sizes[i][2], (enum dtype)d, i % 3 == 1, i % 2 == 1);
  for (uint32_t d = DTYPE_BLOCKS, i = 0; d < DTYPE_TILES; d++, i++)
    if (d == DTYPE_Q4_K || all_shapes())
      check_matmul(16 + sizes[i][0], sizes[i][1], 512 + sizes[i][2], (enum dtype)d, false,
                   i % 2);                                      // more than matvec takes
  check_matmul_of(5e-5, 20, 40, 512, DTYPE_Q4_K, false, false); // factors of blocks that f16 has not exactly
}

// Inputs in f16 and sizes for which subgroups share K; what follows the tokens must not be seen.
static void check_few(uint32_t T, uint32_t N, uint32_t K, enum dtype dtype, bool bias, bool add) {
  const uint32_t rows = (uint32_t)round_up(T, 64);
  struct array x = weights(DTYPE_F16, rows, K, DENSE, normals((size_t)rows * K));
  struct array w = weights(dtype, N, K, DENSE, normals((size_t)N * K));
  struct array b = weights(DTYPE_F32, 1, N, DENSE, normals(N));
  struct array y = activations(T, N, N + 3, normals((size_t)T * N));
  begin();
  record_product(y.t, tensor_rows(x.t, 0, T), w.t, bias ? b.t : ABSENT, add);
  run();
  double *want = zeros((size_t)T * N);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t n = 0; n < N; n++) {
      want[t * N + n] = (bias ? b.v[n] : 0) + (add ? y.v[t * N + n] : 0);
      for (uint32_t k = 0; k < K; k++) want[t * N + n] += x.v[t * K + k] * rounded(w.t.dtype, w.v[n * K + k]);
    }
  expect_close("matmul of few tokens", read_values(&y), want, (size_t)T * N, CLOSE);
}

static void few_tokens_match_too(void **state) {
  seed(2);
  static const uint32_t sizes[][3] = {{9, 24, 256},  {41, 50, 64},   {16, 17, 512},
                                      {17, 64, 192}, {32, 40, 1024}, {31, 130, 64}};
  for (uint32_t i = 0; i < shapes(6, 2); i++)
    for (uint32_t d = DTYPE_F16; d <= DTYPE_BF16; d++)
      if (d == 1 + i % 2 || all_shapes()) check_few(sizes[i][0], sizes[i][1], sizes[i][2], (enum dtype)d, i % 2, i % 4);
  for (uint32_t d = DTYPE_BLOCKS, i = 0; d < DTYPE_TILES; d++, i++)
    if (d == DTYPE_Q6_K || all_shapes())
      check_few(sizes[i % 6][0], sizes[i % 6][1], 256 * (1 + i % 2), (enum dtype)d, i % 2, false);
}

// Software takes shorter steps along K than GPUs do, for which LLVM would compile minutes: theirs once each.
static void the_steps_of_gpus_match(void **state) {
  seed(4);
  if (!all_shapes()) skip();
  uint32_t *step = &((struct vulkan_backend *)backend)->products.matrix_step;
  const uint32_t own = *step;
  *step = 64;
  check_matmul(16, 16, 136, DTYPE_BF16, true, false);
  check_few(9, 16, 1024, DTYPE_F16, false, true);
  *step = own;
}

// y (T, F) of the norm of x (T, D): a product, and half of it the gate of the other.
static void record_gates(struct tensor y, struct tensor x, struct tensor norm, struct tensor w) {
  const struct tensor h = oplist_value(list, x.rows, x.cols), both = oplist_value(list, x.rows, w.rows);
  op_norm(list, h, x, norm, ABSENT, 1e-5f);
  op_linear(list, both, h, w, ABSENT);
  op_glu(list, y, tensor_cols(both, 0, y.cols), tensor_cols(both, y.cols, y.cols), ACTIVATION_SILU);
}

// Without matrices; software does not stage one token's inputs, as GPUs do for gate and up.
static void one_token_is_normed_once_for_a_workgroup(void **state) {
  enum { F = 21, K = 2048 };
  struct plan_products *plan = &((struct vulkan_backend *)backend)->products;
  const struct plan_products own = *plan;
  seed(6);
  plan->matvec_sets = 4;
  plan->matvec_lanes = plan->matvec_most_lanes = 32;
  plan->matvec_rows = plan->matvec_most_rows = 1;
  assert_int_equal(plan_matvec(plan, K, F, 1, true, true).sets, 4);
  struct array x = activations(1, K, DENSE, normals(K)), norm = weights(DTYPE_F32, 1, K, DENSE, uniforms(K, 0.5, 2));
  struct array w = weights(DTYPE_BF16, 2 * F, K, DENSE, normals(2 * F * K)), y = activations(1, F, DENSE, NULL);
  begin();
  record_gates(y.t, x.t, norm.t, w.t);
  run();
  *plan = own;
  double want[F], sum = 0;
  for (int k = 0; k < K; k++) sum += x.v[k] * x.v[k];
  for (int f = 0; f < F; f++) {
    double gate = 0, value = 0;
    for (int k = 0; k < K; k++) {
      double n = x.v[k] / sqrt(sum / K + 1e-5) * norm.v[k];
      gate += n * w.v[f * K + k];
      value += n * w.v[(F + f) * K + k];
    }
    want[f] = gate / (1 + exp(-gate)) * value;
  }
  expect_close("one token, gated", read_values(&y), want, F, CLOSE);
}

// One token, y (1, N) += x w^T + bias, or the gates of its norm, in sums of integers: one group of a lane and four,
// teams that share a workgroup and one that fills it.
static void check_dots(uint32_t N, uint32_t K, enum dtype dtype, bool gated) {
  struct array x = activations(1, K, DENSE, normals(K)), norm = weights(DTYPE_F32, 1, K, DENSE, uniforms(K, 0.5, 2));
  struct array w = weights(dtype, N, K, DENSE, normals((size_t)N * K));
  struct array b = weights(DTYPE_F32, 1, N, DENSE, normals(N)),
               y = activations(1, gated ? N / 2 : N, DENSE, normals(N));
  double *want = zeros(N), sum = 0;
  begin();
  if (gated)
    record_gates(y.t, x.t, norm.t, w.t);
  else
    record_product(y.t, x.t, w.t, b.t, true);
  for (uint32_t k = 0; k < K; k++) sum += x.v[k] * x.v[k];
  for (uint32_t n = 0; n < N; n++) {
    want[n] = gated ? 0 : b.v[n] + y.v[n];
    for (uint32_t k = 0; k < K; k++)
      want[n] += w.v[n * K + k] * x.v[k] * (gated ? norm.v[k] / sqrt(sum / K + 1e-5) : 1);
  }
  for (uint32_t n = 0; n < N / 2 && gated; n++) want[n] = want[n] / (1 + exp(-want[n])) * want[N / 2 + n];
  run();
  expect_close(gated ? "gates in integers" : "product in integers", read_values(&y), want, gated ? N / 2 : N,
               gated ? CLOSE : 2e-4);
}

static void check_conv(uint32_t B, uint32_t W, uint32_t from, uint32_t C, uint32_t N, uint32_t K, enum dtype dtype);

static void one_tokens_products_with_tiles_are_sums_of_integers(void **state) {
  struct plan_products *plan = &((struct vulkan_backend *)backend)->products;
  const struct plan_products own = *plan;
  struct plan_dot m;
  if (!vulkan_device(backend)->caps.integer_dot) {
    assert_false(vulkan_device(backend)->plan.software); // lavapipe has them
    skip();
  }
  seed(9);
  plan->dots = true;
  plan->dot_lanes = 64;
  static const uint32_t sizes[][2] = {{70, 256}, {34, 1056}, {9, 8192}, {3, 32}};
  for (enum dtype d = DTYPE_BLOCKS; d < DTYPE_TILES; d++)
    for (int i = 0; i < 4; i++) {
      const uint32_t K = (uint32_t)round_up(sizes[i][1], formats[d].elements);
      if (!all_shapes() && i != (int)d % 4) continue;
      assert_true(plan_dot(plan, K, sizes[i][0], false, plan->device->processors, &m));
      plan->dot_rows = 2 + 4 * (i % 3);
      plan->dot_ahead = 1u << i % 3;
      check_dots(sizes[i][0], K, d, false);
      check_dots(2 * sizes[i][0], K, d, true);
    }
  check_conv(1, 4, 5, 48, 70, 256, DTYPE_Q4_K);
  check_conv(1, 4, 5, 48, 200, 256, DTYPE_Q4_K);   // of the first part
  check_conv(1, 3, 100, 48, 200, 256, DTYPE_Q4_K); // of both
  *plan = own;
}

// Norm, product, gate and product again, as an MLP's, with f16 between them.
static void check_gates(uint32_t T, uint32_t D, uint32_t F) {
  struct array x = activations(T, D, DENSE, normals((size_t)T * D));
  struct array norm = weights(DTYPE_F32, 1, D, DENSE, uniforms(D, 0.5, 2));
  struct array up = weights(DTYPE_BF16, 2 * F, D, DENSE, normals((size_t)2 * F * D));
  struct array down = weights(DTYPE_F16, D, F, DENSE, normals((size_t)D * F));
  begin();
  const struct tensor act = oplist_value(list, T, F);
  record_gates(act, x.t, norm.t, up.t);
  record_product(x.t, act, down.t, ABSENT, true);
  run();
  assert_int_equal(oplist_tensor(list, act).dtype, DTYPE_F16);
  double *want = zeros((size_t)T * D), *a = zeros(F);
  for (uint32_t t = 0; t < T; t++) {
    const double *row = x.v + (size_t)t * D;
    double sum = 0;
    for (uint32_t d = 0; d < D; d++) sum += row[d] * row[d];
    for (uint32_t f = 0; f < F; f++) {
      double gate = 0, value = 0;
      for (uint32_t d = 0; d < D; d++) {
        double n = row[d] / sqrt(sum / D + 1e-5) * norm.v[d];
        gate += n * up.v[f * D + d];
        value += n * up.v[(F + f) * D + d];
      }
      a[f] = gate / (1 + exp(-gate)) * value;
    }
    for (uint32_t d = 0; d < D; d++) {
      want[t * D + d] = row[d];
      for (uint32_t f = 0; f < F; f++) want[t * D + d] += a[f] * down.v[d * F + f];
    }
  }
  expect_close("norm, gate and products", read_values(&x), want, (size_t)T * D, CLOSE);
}

static void norms_and_gates_round_to_f16_and_no_further(void **state) {
  seed(3);
  static const uint32_t sizes[][3] = {{33, 19, 30}, {9, 24, 40}, {70, 64, 96}, {17, 5, 7}, {130, 72, 136}};
  for (uint32_t i = 0; i < shapes(5, 1); i++) check_gates(sizes[i][0], sizes[i][1], sizes[i][2]);
}

// Twice the same: whichever workgroup ends last.
static void check_sums_are_in_order(uint32_t T, uint32_t N, uint32_t K) {
  struct array x = activations(T, K, DENSE, normals((size_t)T * K));
  struct array w = weights(DTYPE_F16, N, K, DENSE, normals((size_t)N * K));
  struct array y[2] = {activations(T, N, DENSE, NULL), activations(T, N, DENSE, NULL)};
  begin();
  for (int i = 0; i < 2; i++) op_linear(list, y[i].t, x.t, w.t, ABSENT);
  run();
  assert_memory_equal(read_values(&y[0]), read_values(&y[1]), (size_t)T * N * sizeof(double));
}

// As on a GPU whose processors would have nothing to do else: workgroups share the K of a tile. No ticket is left.
static void tiles_are_shared_where_they_are_few(void **state) {
  struct plan *device = &vulkan_device(backend)->plan;
  struct plan_products *plan = &((struct vulkan_backend *)backend)->products;
  const uint32_t own_parts = plan->matrix_parts, own_processors = device->processors;
  seed(8);
  plan->matrix_parts = 3;
  device->processors = 2;
  const uint32_t numbers = (uint32_t)(plan_matmul_parts_bytes(plan) / sizeof(float));
  struct array parts = activations(1, numbers, DENSE, zeros(numbers));
  static const uint32_t sizes[][3] = {{70, 96, 520}, {130, 61, 299}, {70, 304, 168}, {70, 168, 152}};
  for (int i = 0; i < 4 && device->software; i++) {
    struct plan_matmul m;
    assert_true(plan_matmul_matrix(plan, sizes[i][0], sizes[i][1], sizes[i][2], true, &m) && m.parts > 1 && m.whole);
  }
  list->parts = parts.t;
  check_matmul(70, 96, 520, DTYPE_F16, true, true);
  if (all_shapes()) check_matmul(130, 61, 299, DTYPE_BF16, false, true);
  check_sums_are_in_order(70, 96, 520);
  if (all_shapes()) check_gates(70, 168, 152); // products of the other two shapes
  list->parts = ABSENT;
  const double *left = read_values(&parts);
  for (uint32_t i = 0; i < plan_matmul_tickets_bytes(plan) / sizeof(float); i++) assert_true(left[i] == 0);
  plan->matrix_parts = own_parts;
  device->processors = own_processors;
}

// What the profile counts of one product beside its inputs and outputs, each once. Shapes that other cases compile.
static uint64_t profiled_bytes(uint32_t T, uint32_t N, uint32_t K, bool gated, bool add) {
  struct array x = activations_in(gated ? DTYPE_F16 : DTYPE_F32, T, K, DENSE, NULL);
  struct array w = weights(gated ? DTYPE_BF16 : DTYPE_F16, N, K, DENSE, zeros((size_t)N * K));
  struct array y = activations_in(gated ? DTYPE_F16 : DTYPE_F32, T, gated ? N / 2 : N, DENSE, NULL);
  deltaic_kernel_time times[2];
  assert_int_equal(backend->functions->recorder_profile(recorder, true), DELTAIC_OK);
  begin();
  const struct tensor product = gated ? oplist_value(list, T, N) : y.t;
  record_product(product, x.t, w.t, ABSENT, add);
  if (gated) op_glu(list, y.t, tensor_cols(product, 0, N / 2), tensor_cols(product, N / 2, N / 2), ACTIVATION_SILU);
  run();
  assert_int_equal(backend->functions->recorder_times(recorder, times, 2), 1);
  assert_int_equal(backend->functions->recorder_profile(recorder, false), DELTAIC_OK);
  return times[0].bytes - tensor_bytes(&x.t) - tensor_bytes(&w.t) - (add ? 2 : 1) * tensor_bytes(&y.t);
}

// Sums that workgroups leave each other and tickets, written and read; or a few bytes that stand for none.
static void the_profile_counts_outputs_once_and_the_sums_that_are_left(void **state) {
  enum { T = 70, N = 96 };
  struct plan *device = &vulkan_device(backend)->plan;
  struct plan_products *plan = &((struct vulkan_backend *)backend)->products;
  const uint32_t own_parts = plan->matrix_parts, own_processors = device->processors;
  struct plan_matmul m;
  uint32_t K = 520; // where that is shared; more of it, as devices' steps may be longer
  assert_in_range(profiled_bytes(T, 2 * N, 64, true, false), 0, 8);
  plan->matrix_parts = 3;
  device->processors = 2;
  const uint32_t numbers = (uint32_t)(plan_matmul_parts_bytes(plan) / sizeof(float));
  struct array parts = activations(1, numbers, DENSE, zeros(numbers));
  list->parts = parts.t;
  while (plan_matmul_matrix(plan, T, N, K, true, &m) && m.groups == m.whole && K < 20000) K += 520;
  assert_true(m.groups > m.whole);
  const uint64_t sums = (uint64_t)(m.groups - m.whole) * m.tile_t * m.tile_n, tickets = (m.groups - m.whole) / m.parts;
  for (int add = 0; add < 2; add++)
    assert_int_equal(profiled_bytes(T, N, K, false, add), 2 * sizeof(float) * (sums + tickets));
  list->parts = ABSENT;
  plan->matrix_parts = own_parts;
  device->processors = own_processors;
}

// x (T, D) += mlp(norm x) of some layers, then y (T, N) = norm x w^T, in double.
enum { LAYERS = 2 };
struct stream_case {
  uint32_t T, D, F, N;
  struct array x, norm, up[LAYERS], down[LAYERS], w, bias, y;
};

static double *scaled_normals(size_t n, double by) {
  double *values = normals(n);
  for (size_t i = 0; i < n; i++) values[i] *= by;
  return values;
}

// size: of x's numbers; down: of the first layer's last weights, which grow from layer to layer.
static struct stream_case stream_of(uint32_t T, uint32_t D, uint32_t F, uint32_t N, double size, double down,
                                    double growth, enum dtype dtype) {
  struct stream_case s = {.T = T, .D = D, .F = F, .N = N};
  s.x = activations(T, D, DENSE, scaled_normals((size_t)T * D, size));
  s.norm = weights(DTYPE_F32, 1, D, DENSE, uniforms(D, 0.5, 2));
  for (int i = 0; i < LAYERS; i++, down *= growth) {
    s.up[i] = weights(dtype, 2 * F, D, DENSE, scaled_normals((size_t)2 * F * D, 0.1));
    s.down[i] = weights(DTYPE_BF16, D, F, DENSE, scaled_normals((size_t)D * F, down));
  }
  s.w = weights(dtype, N, D, DENSE, normals((size_t)N * D));
  s.bias = weights(DTYPE_F32, 1, N, DENSE, normals(N));
  s.y = activations(T, N, DENSE, NULL);
  return s;
}

static void norm_of(const struct stream_case *s, const double *x, double *out) {
  double sum = 0;
  for (uint32_t d = 0; d < s->D; d++) sum += x[d] * x[d];
  for (uint32_t d = 0; d < s->D; d++) out[d] = x[d] / sqrt(sum / s->D + 1e-5) * s->norm.v[d];
}

static void expect_stream(const struct stream_case *s) {
  const uint32_t T = s->T, D = s->D, F = s->F, N = s->N;
  double *x = zeros((size_t)T * D), *y = zeros((size_t)T * N), *n = zeros(D);
  for (uint32_t t = 0; t < T; t++) {
    double *row = memcpy(x + (size_t)t * D, s->x.v + (size_t)t * D, D * sizeof *row);
    for (int i = 0; i < LAYERS; i++) {
      norm_of(s, row, n);
      for (uint32_t f = 0; f < F; f++) {
        double gate = 0, value = 0;
        for (uint32_t d = 0; d < D; d++) gate += n[d] * s->up[i].v[f * D + d];
        for (uint32_t d = 0; d < D; d++) value += n[d] * s->up[i].v[(F + f) * D + d];
        for (uint32_t d = 0; d < D; d++) row[d] += gate / (1 + exp(-gate)) * value * s->down[i].v[d * F + f];
      }
    }
    norm_of(s, row, n);
    for (uint32_t k = 0; k < N; k++) {
      y[t * N + k] = s->bias.v[k];
      for (uint32_t d = 0; d < D; d++) y[t * N + k] += n[d] * s->w.v[k * D + d];
    }
  }
  expect_close("residual stream", read_values(&s->x), x, (size_t)T * D, CLOSE);
  expect_close("product of its norm", read_values(&s->y), y, (size_t)T * N, CLOSE);
}

// The first norm is a kernel of its own; each of the others is half of the product before it, half of that after it.
static void check_stream(uint32_t T, uint32_t D, uint32_t F, double size, double down, double growth,
                         enum dtype dtype) {
  struct stream_case s = stream_of(T, D, F, 52, size, down, growth, dtype);
  const deltaic_counters before = backend->functions->recorder_counters(recorder);
  begin();
  struct tensor x = oplist_value(list, T, D);
  oplist_bind(list, x, s.x.t);
  for (int i = 0; i < LAYERS; i++) {
    const struct tensor next = oplist_value(list, T, D);
    oplist_scope_begin(list);
    const struct tensor h = oplist_value(list, T, D), both = oplist_value(list, T, 2 * F);
    const struct tensor act = oplist_value(list, T, F), mlp = oplist_value(list, T, D);
    op_norm(list, h, x, s.norm.t, ABSENT, 1e-5f);
    op_linear(list, both, h, s.up[i].t, ABSENT);
    op_glu(list, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
    op_linear(list, mlp, act, s.down[i].t, ABSENT);
    op_add(list, next, x, mlp);
    oplist_scope_end(list);
    x = next;
  }
  oplist_scope_begin(list);
  const struct tensor h = oplist_value(list, T, D);
  op_norm(list, h, x, s.norm.t, ABSENT, 1e-5f);
  op_linear(list, s.y.t, h, s.w.t, s.bias.t);
  run();
  assert_int_equal(backend->functions->recorder_counters(recorder).dispatches - before.dispatches, 2 * LAYERS + 2);
  expect_stream(&s);
}

static void norms_of_streams_are_made_by_the_products_around_them(void **state) {
  seed(7);
  check_stream(64, 336, 16, 1, 1, 1, DTYPE_F16);     // in two passes, as the next
  check_stream(41, 64, 64, 1e6, 1e4, 1, DTYPE_BF16); // far beyond f16
  if (!all_shapes()) return;
  check_stream(3, 80, 48, 1, 1, 1, DTYPE_BF16);
  check_stream(25, 64, 64, 1e-3, 0.01, 1000, DTYPE_BF16); // each layer makes it a thousand times as large
}

// Single tokens of B sequences: N outputs, of which C from `from` on are channels.
static void check_conv(uint32_t B, uint32_t W, uint32_t from, uint32_t C, uint32_t N, uint32_t K, enum dtype dtype) {
  enum { MOST = 51, PART = 128 }; // one sequence's weights of more rows are two matrices
  const uint32_t old = (W - 1) * C, slots = B + 2;
  struct sequence s[MOST];
  uint32_t T = 0;
  for (uint32_t i = 0; i < B; i++) // backwards, and every fifth has none
    s[i] = (struct sequence){.row = i % 5 == 3 ? 0 : T++, .T = i % 5 != 3, .slot = B - i};
  struct array x = activations(T, K, DENSE, normals((size_t)T * K));
  struct array ones = weights(DTYPE_F32, 1, K, DENSE, uniforms(K, 0.5, 2));
  struct array w = weights(dtype, N, K, DENSE, normals((size_t)N * K)), b = weights(DTYPE_F32, 1, N, DENSE, normals(N));
  struct array taps = weights(DTYPE_F32, W, C, DENSE, normals((size_t)W * C));
  struct array bias = weights(DTYPE_F32, 1, C, DENSE, normals(C));
  struct array history = activations(slots, old ? old : 1, DENSE, normals((size_t)slots * (old ? old : 1)));
  struct array p = activations(T, N, DENSE, NULL), y = activations(T, C, C + 1, NULL), sequences = sequences_of(s, B);
  list->longest = 1;
  begin();
  const struct tensor h = oplist_value(list, T, K), product = oplist_value(list, T, N);
  oplist_bind(list, product, p.t);
  op_norm(list, h, x.t, ones.t, ABSENT, 1e-5f);
  const struct tensor parts[] = {tensor_rows(w.t, 0, min32(N, PART)), tensor_rows(w.t, PART, N - PART)};
  if (B == 1 && N > PART) w.t.mixed = parts;
  op_linear(list, product, h, w.t, W % 2 ? b.t : ABSENT);
  op_conv(list, &(struct conv){.y = y.t,
                               .history = old ? history.t : ABSENT,
                               .x = tensor_cols(product, from, C),
                               .weight = taps.t,
                               .bias = W > 2 ? bias.t : ABSENT,
                               .sequences = sequences.t,
                               .a = {.W = W, .C = C, .silu_from = C / 3}});
  run();
  double *want = zeros((size_t)T * C), *got = read_values(&p), *rest = zeros((size_t)T * N);
  for (uint32_t i = 0; i < B; i++) {
    const uint32_t t = s[i].row;
    double sum = 0, *past = history.v + (size_t)s[i].slot * old;
    if (!s[i].T) continue;
    for (uint32_t k = 0; k < K; k++) sum += x.v[t * K + k] * x.v[t * K + k];
    for (uint32_t n = 0; n < N; n++) {
      double value = W % 2 ? b.v[n] : 0;
      for (uint32_t k = 0; k < K; k++)
        value += x.v[t * K + k] / sqrt(sum / K + 1e-5) * ones.v[k] * rounded(w.t.dtype, w.v[n * K + k]);
      const uint32_t c = n - from; // wraps
      rest[t * N + n] = c < C ? got[t * N + n] : value;
      if (c >= C) continue;
      double z = (W > 2 ? bias.v[c] : 0) + taps.v[(W - 1) * C + c] * value;
      for (uint32_t k = 0; k + 1 < W; k++) z += taps.v[k * C + c] * past[k * C + c];
      for (uint32_t k = 0; k + 1 < W; k++) past[k * C + c] = k + 2 < W ? past[(k + 1) * C + c] : value;
      want[t * C + c] = c >= C / 3 ? reference_activation(ACTIVATION_SILU, z) : z;
    }
  }
  expect_close("few tokens, convolved", read_values(&y), want, (size_t)T * C, CLOSE);
  expect_close("few tokens, no channels", got, rest, (size_t)T * N, CLOSE);
  if (old) expect_close("few tokens' history", read_values(&history), history.v, (size_t)slots * old, CLOSE);
}

static void few_tokens_are_convolved(void **state) {
  seed(5);
  check_conv(51, 4, 0, 48, 70, 64, DTYPE_BF16);
  if (!all_shapes()) return;
  check_conv(21, 3, 64, 33, 100, 192, DTYPE_F16);
  check_conv(21, 2, 0, 40, 40, 128, DTYPE_BF16);
  check_conv(21, 1, 0, 17, 19, 64, DTYPE_F16);
}

static void large_inputs_are_clamped_and_do_not_become_infinite(void **state) {
  enum { T = 16, N = 16, K = 32 };
  double values[T * K] = {[5] = 1e6, [K + 6] = -1e6}, ones[N * K];
  for (int i = 0; i < N * K; i++) ones[i] = 1;
  struct array x = activations(T, K, DENSE, values), w = weights(DTYPE_BF16, N, K, DENSE, ones);
  struct array y = activations(T, N, DENSE, NULL);
  RUN(op_linear(list, y.t, x.t, w.t, ABSENT));
  double *got = read_values(&y);
  assert_true(got[0] == 65504 && got[N] == -65504 && got[2 * N] == 0);
}

// DELTAIC_TEST_FILTER: only the cases that match it.
int ops_cases_run(struct backend *b) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(matmul_matches_over_awkward_shapes),
      OPS_CASE(few_tokens_match_too),
      OPS_CASE(the_steps_of_gpus_match),
      OPS_CASE(few_tokens_are_convolved),
      OPS_CASE(one_token_is_normed_once_for_a_workgroup),
      OPS_CASE(one_tokens_products_with_tiles_are_sums_of_integers),
      OPS_CASE(norms_and_gates_round_to_f16_and_no_further),
      OPS_CASE(tiles_are_shared_where_they_are_few),
      OPS_CASE(the_profile_counts_outputs_once_and_the_sums_that_are_left),
      OPS_CASE(norms_of_streams_are_made_by_the_products_around_them),
      OPS_CASE(large_inputs_are_clamped_and_do_not_become_infinite),
  };
  backend = b;
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  if (b->functions->recorder_create(b, &recorder)) return 1;
  case_matrices = MATRICES_BEST;
  list_defaults();
  ((struct vulkan_recorder *)recorder)->list = list;
  int failed = 1;
  if (vulkan_has_matrices(recorder))
    failed = cmocka_run_group_tests_name("cooperative matrices", cases, NULL, NULL) + ops_cases_inputs() +
             ops_cases_delta_matrix() + ops_cases_hh_matrix() + ops_cases_attention_matrix() +
             ops_cases_experts_matrix() + ops_cases_mamba2_matrix();
  else
    print_message("this device, or the compiler of the shaders, has no cooperative matrices\n");
  report_worst();
  b->functions->recorder_free(recorder);
  return failed;
}
