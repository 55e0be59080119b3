// Cases of attention on cooperative matrices: rounding operands to f16 may cost 1e-3, and nothing else may.
#include "attention_case.h"
#include "ops_cases_matrix.h"

static const double CLOSE = 1e-3;

static void check(struct attention_args a, const struct sequence *s, uint32_t B, double scale, uint32_t gap) {
  struct plan_attention_matrix m;
  assert_true(vulkan_attention_matrix_plan(recorder, DTYPE_F16, 64, B, &a, &m));
  attention_check(scale > 1 ? "attention on matrices, large scores" : "attention on matrices", a, s, B, scale,
                  DTYPE_F16, a.heads * a.d + gap, CLOSE);
  tools_teardown(NULL);
}

// Sizes that are no multiples of a tile, of eight, of four; texts side by side, without tokens, after others.
static void attention_matches_over_sizes_and_lengths(void **state) {
  seed(60);
  static const uint32_t sizes[] = {16, 7, 20};
  for (uint32_t i = 0; i < shapes(3, 2); i++)
    for (uint32_t l = 1; l < LENGTHS; l += i ? 3 : 1) {
      const uint32_t T = lengths[l], pos = l % 2 ? 37 : 0;
      const struct attention_args a = {.heads = 2, .kv_heads = 2, .d = sizes[i], .capacity = 300};
      const struct sequence s[3] = {{0, T, pos, 1}, {T, 0, 3, 0}, {T, T / 2 + 1, 0, 2}};
      check(a, s, 3, 1, i == 2 ? 3 : 0);
    }
}

static void attention_of_grouped_heads_matches(void **state) {
  seed(61);
  static const uint32_t heads[][2] = {{4, 2}, {18, 1}}; // 18: nine in each of two workgroups, 16 rows have one of all
  for (uint32_t i = 0; i < shapes(2, 1); i++) {
    const struct attention_args a = {.heads = heads[i][0], .kv_heads = heads[i][1], .d = 16, .capacity = 150};
    const struct sequence s[2] = {{0, 33, 90, 2}, {33, 50, 0, 0}};
    check(a, s, 2, 1, 0);
  }
}

static void attention_over_windows_and_rings_matches(void **state) {
  seed(62);
  static const uint32_t windows[] = {1, 7, 48, 65};
  for (int i = 0; i < 4; i++) {
    const uint32_t T = 50;
    const struct attention_args a = {
        .heads = 2, .kv_heads = 1, .d = 16, .window = windows[i], .capacity = windows[i] + T - 1};
    const struct sequence s[2] = {{0, T, 0, 0}, {T, T, 1000, 1}};
    check(a, s, 2, 1, 0);
  }
}

// Few tokens after many: the keys are cut into parts, and the position decides how many. Sequences with one part, with
// several, and with rows that see no key of the last part.
static void attention_of_few_tokens_after_many_matches(void **state) {
  seed(67);
  static const uint32_t heads[][3] = {{1, 1, 16}, {2, 1, 20}, {3, 1, 6}}, windows[] = {0, 300, 900};
  const uint32_t T = 5;
  struct plan *plan = &vulkan_device(backend)->plan;
  const uint32_t processors = plan->processors;
  if (processors < 8) plan->processors = 8; // software would not cut keys
  for (uint32_t i = 0; i < shapes(3, 2); i++)
    for (uint32_t w = 0; w < shapes(3, 1 + i); w++) {
      const uint32_t capacity = windows[w] ? windows[w] + T - 1 : 1100, last = windows[w] ? 3000 : 1022;
      const struct attention_args a = {
          .heads = heads[i][0], .kv_heads = heads[i][1], .d = heads[i][2], .window = windows[w], .capacity = capacity};
      const struct sequence many = {0, T, last, 1}, two[2] = {{0, T, 700, 2}, {T, 1, 200, 0}};
      profile_begin();
      check(a, &many, 1, 1, i == 1 ? 3 : 0);
      assert_true(profile_end("attention_join"));
      check(a, two, 2, 4, 0);
    }
  plan->processors = processors;
}

// The longest heads that a device may have on matrices.
static void attention_of_heads_of_256_matches(void **state) {
  if (!all_shapes()) return; // software compiles it for minutes
  seed(66);
  const struct attention_args a = {.heads = 4, .kv_heads = 2, .d = 256, .capacity = 70};
  const struct sequence s = {0, 40, 20, 1};
  check(a, &s, 1, 1, 0);
}

// One key takes all the weight, and which it is changes from block to block.
static void attention_of_large_scores_keeps_its_digits(void **state) {
  seed(63);
  const struct attention_args a = {.heads = 2, .kv_heads = 2, .d = 16, .capacity = 200};
  const struct sequence s = {0, 40, 150, 1};
  check(a, &s, 1, 5, 0);
}

// What goes by the other kernels because its heads are too long, or because it is one token, is f16 all the same.
static void attention_without_matrices_rounds_its_outputs(void **state) {
  seed(64);
  struct attention_args a = {.heads = 2, .kv_heads = 1, .d = 260, .capacity = 60};
  const struct sequence s[2] = {{0, 5, 40, 1}, {5, 1, 50, 0}}, single[2] = {{0, 1, 40, 1}, {1, 1, 50, 0}};
  struct plan_attention_matrix m;
  assert_false(vulkan_attention_matrix_plan(recorder, DTYPE_F16, 64, 2, &a, &m));
  attention_check("attention, f16 outputs", a, s, 2, 1, DTYPE_F16, DENSE, CLOSE);
  a.d = 6, list->longest = 1;
  attention_check("attention, f16 outputs", a, single, 2, 1, DTYPE_F16, DENSE, CLOSE);
}

// Attention, its gate and the output projection, in f32 or with what lies between them in f16.
static struct array gated_attention(enum matrices matrices, enum dtype want) {
  enum { T = 40, HEADS = 4, KV = 2, d = 24, E = HEADS * d, WIDTH = E + 2 * KV * d, D = 70 };
  const struct attention_args a = {.heads = HEADS, .kv_heads = KV, .d = d, .capacity = 64};
  const struct sequence s = {0, T, 0, 0};
  seed(65);
  struct array qkv = activations(T, WIDTH, DENSE, normals(T * WIDTH)), y = activations(T, D, DENSE, NULL);
  struct array gate = activations(T, E, E + 6, normals(T * E)), w = weights(DTYPE_F16, D, E, DENSE, normals(D * E));
  struct array k = activations(1, 64 * KV * d, DENSE, normals(64 * KV * d));
  struct array v = activations(1, 64 * KV * d, DENSE, normals(64 * KV * d));
  list->matrices = matrices;
  profile_begin();
  begin();
  const struct tensor o = oplist_value(list, T, E), gated = oplist_value(list, T, E);
  op_attention(list,
               &(struct attention){
                   .o = o, .qkv = qkv.t, .cache_k = k.t, .cache_v = v.t, .sequences = sequences_of(&s, 1).t, .a = a});
  op_glu(list, gated, gate.t, o, ACTIVATION_SIGMOID);
  op_linear(list, y.t, gated, w.t, ABSENT);
  run();
  assert_int_equal(profile_end("attention_matrix"), want == DTYPE_F16);
  assert_int_equal(list->values[o.value - 1].dtype, want);
  assert_int_equal(list->values[gated.value - 1].dtype, want);
  return y;
}

static void gated_attention_stays_f16_up_to_the_product(void **state) {
  const struct array f32 = gated_attention(MATRICES_NONE, DTYPE_F32), f16 = gated_attention(MATRICES_BEST, DTYPE_F16);
  expect_close("gated attention, f16", read_values(&f16), read_values(&f32), (size_t)f32.t.rows * f32.t.cols, CLOSE);
}

int ops_cases_attention_matrix(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(attention_matches_over_sizes_and_lengths),      OPS_CASE(attention_of_grouped_heads_matches),
      OPS_CASE(attention_over_windows_and_rings_matches),      OPS_CASE(attention_of_large_scores_keeps_its_digits),
      OPS_CASE(attention_of_few_tokens_after_many_matches),    OPS_CASE(attention_of_heads_of_256_matches),
      OPS_CASE(attention_without_matrices_rounds_its_outputs), OPS_CASE(gated_attention_stays_f16_up_to_the_product),
  };
  return cmocka_run_group_tests_name("attention on matrices", cases, NULL, NULL);
}
