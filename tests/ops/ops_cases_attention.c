// Cases of rotary positions and softmax attention.
#include "attention_case.h"
#include "ops_cases.h"
#include "ops_tools.h"

static const double THETA = 10000;

static struct array rotation_table(uint32_t d) {
  uint32_t half = d / 2;
  double *values = zeros(ROPE_ROWS * (size_t)d);
  for (uint32_t row = 0; row < ROPE_ROWS; row++)
    for (uint32_t j = 0; j < half; j++) {
      double angle = row % 256 * pow(256, row / 256) * pow(THETA, -2.0 * j / d);
      values[row * d + j] = cos(angle);
      values[row * d + d - half + j] = sin(angle);
    }
  return weights(DTYPE_F32, ROPE_ROWS, d, DENSE, values);
}

static void reference_rope(double *x, uint32_t position, uint32_t d) {
  uint32_t half = d / 2;
  for (uint32_t j = 0; j < half; j++) {
    double angle = position * pow(THETA, -2.0 * j / d), a = x[j], b = x[j + half];
    x[j] = a * cos(angle) - b * sin(angle);
    x[j + half] = a * sin(angle) + b * cos(angle);
  }
}

// f32 products of up to four rotations; the angles' own rounding is not in it, as the table is made in double.
static const double ROPE_CLOSE = 1e-6;

static void rope_append_rotates_and_stores_at_any_position(void **state) {
  seed(20);
  const uint32_t positions[] = {0, 1, 255, 256, 257, 65535, 65536, 16777216, 1000000000};
  for (int i = 0; i < 18; i++) { // the second half rotates a part of every head; nothing; a part of an odd number
    struct attention_args a = {.heads = 3, .kv_heads = 1, .d = i % 2 ? 6 : 64, .capacity = 5};
    if (i % 6 == 5) a.d = 7;
    const uint32_t rotary = i < 9 ? a.d : i % 3 == 0 ? a.d / 4 * 2 : i % 3 == 1 ? 0 : 4;
    uint32_t d = a.d, width = 5 * d, T[] = {3, 0, 5};
    struct sequence s[3] = {{0, T[0], positions[i % 9], 2}, {3, T[1], 9, 1}, {3, T[2], positions[i % 9] + 3, 0}};
    struct array qkv = activations(8, width, width + 1, normals(8 * (size_t)width)), table = {0};
    if (rotary) table = rotation_table(rotary);
    struct array cache_k = activations(3, a.capacity * d, DENSE, normals(3 * (size_t)a.capacity * d));
    struct array cache_v = activations(3, a.capacity * d, DENSE, normals(3 * (size_t)a.capacity * d));
    RUN(op_rope_append(list, &(struct rope_append){.y = qkv.t,
                                                   .cache_k = cache_k.t,
                                                   .cache_v = cache_v.t,
                                                   .x = qkv.t,
                                                   .table = table.t,
                                                   .sequences = sequences_of(s, 3).t,
                                                   .a = a}));
    for (int q = 0; q < 3; q++)
      for (uint32_t t = 0; t < s[q].T; t++) {
        uint32_t position = s[q].pos + t, slot = position % a.capacity;
        double *row = qkv.v + (s[q].row + t) * width;
        for (uint32_t h = 0; h < 4; h++) reference_rope(row + h * d, position, rotary);
        memcpy(cache_k.v + (s[q].slot * a.capacity + slot) * d, row + 3 * d, d * sizeof(double));
        memcpy(cache_v.v + (s[q].slot * a.capacity + slot) * d, row + 4 * d, d * sizeof(double));
      }
    expect_close("rope_append: q, k", read_values(&qkv), qkv.v, 8 * (size_t)width, ROPE_CLOSE);
    expect_close("rope_append: keys", read_values(&cache_k), cache_k.v, 3 * (size_t)a.capacity * d, ROPE_CLOSE);
    expect_close("rope_append: values", read_values(&cache_v), cache_v.v, 3 * (size_t)a.capacity * d, 0);
  }
}

static void check_attention(struct attention_args a, const struct sequence *s, uint32_t B, double scale) {
  // Scores of size ~scale^2 lose as much in exp: relative error = absolute error of the score.
  const char *what = scale > 1 ? "attention, large scores" : "attention";
  attention_check(what, a, s, B, scale, DTYPE_F32, DENSE, scale > 1 ? 2e-5 : 3e-6);
}

static void attention_matches_over_lengths_and_heads(void **state) {
  seed(21);
  const uint32_t sizes[] = {64, 6, 2, 76};
  for (uint32_t i = 0; i < shapes(4, 2); i++)
    for (int l = 0; l < LENGTHS; l++) {
      uint32_t T = lengths[l], pos = l % 2 ? 37 : 0;
      struct attention_args a = {.heads = 4, .kv_heads = l % 3 ? 2 : 4, .d = sizes[i], .capacity = 300};
      struct sequence s[3] = {{0, T, pos, 1}, {T, 0, 3, 0}, {T, T / 2 + 1, 0, 2}};
      check_attention(a, s, l % 2 ? 3 : 1, 1);
      tools_teardown(NULL);
    }
}

static void attention_window_and_ring_match(void **state) {
  seed(22);
  const uint32_t windows[] = {1, 2, 7, 48, 64, 65};
  for (int i = 0; i < 6; i++) {
    uint32_t w = windows[i], T[] = {1, 20};
    for (int j = 0; j < 2; j++) {
      struct attention_args a = {.heads = 2, .kv_heads = 1, .d = 64, .window = w, .capacity = w + T[j] - 1};
      struct sequence s[2] = {{0, T[j], 0, 0}, {T[j], T[j], 1000, 1}};
      check_attention(a, s, 2, 1);
      tools_teardown(NULL);
    }
  }
}

// Caches in one part and in several, which the last to end joins; texts that need fewer of them than there are.
static void attention_of_single_tokens_matches_after_long_texts(void **state) {
  seed(24);
  const uint32_t sizes[] = {64, 6, 1, 130, 300};
  list->longest = 1;
  for (uint32_t i = 0; i < shapes(5, 2); i++) {
    const struct attention_args a = {.heads = 2, .kv_heads = 1 + i % 2, .d = sizes[i], .capacity = i < 3 ? 700 : 300};
    const struct sequence s[3] = {{2, 1, a.capacity - 1, 1}, {0, 1, 5 + 8 * i, 0}, {1, 1, 133, 2}};
    check_attention(a, s, i == 3 ? 1 : 3, 1);
    tools_teardown(NULL);
  }
}

// One text leaves processors for fewer heads in a workgroup.
static void attention_of_single_tokens_matches_over_groups_and_windows(void **state) {
  seed(25);
  const uint32_t heads[][2] = {{11, 1}, {3, 3}, {6, 2}, {4, 1}}, windows[] = {0, 200, 31, 0};
  list->longest = 1;
  for (int i = 0; i < 4; i++) {
    const uint32_t w = windows[i];
    const struct attention_args a = {
        .heads = heads[i][0], .kv_heads = heads[i][1], .d = 64, .window = w, .capacity = w ? w + 5 : 320};
    const struct sequence s[3] = {{0, 1, w ? 5000 : 319, 0}, {1, 0, 90, 2}, {1, 1, 70, 1}};
    check_attention(a, s, i == 3 ? 1 : 3, 1);
    tools_teardown(NULL);
  }
}

struct joined_case {
  struct attention_args a;
  uint32_t rotary;
  bool norm, weights_of_heads, gate;
  uint32_t texts, pos[3];
};

struct joined_result {
  double *o, *keys, *values;
  uint64_t dispatches;
};

// A token of every text: norm, rotation and cache, attention, gate, as mixer_attention.c records them.
static struct joined_result run_joined(const struct joined_case *j, bool plain) {
  const struct attention_args *a = &j->a;
  const uint32_t E = a->heads * a->d, cols = E + 2 * a->kv_heads * a->d, B = j->texts;
  const uint32_t gate_from = (uint32_t)round_up(cols, TENSOR_ALIGN / sizeof(float));
  const uint32_t weight_cols = j->weights_of_heads ? cols - a->kv_heads * a->d : a->d;
  struct sequence s[3];
  seed(26);
  for (uint32_t i = 0; i < B; i++) s[i] = (struct sequence){.row = B - 1 - i, .T = 1, .pos = j->pos[i], .slot = i};
  const struct tensor sequences = sequences_of(s, B).t;
  struct array x = activations(B, gate_from + E, DENSE, normals((size_t)B * (gate_from + E)));
  const size_t cached = B * (size_t)a->capacity * a->kv_heads * a->d;
  struct array keys = activations(B, (uint32_t)(cached / B), DENSE, normals(cached)),
               values = activations(B, (uint32_t)(cached / B), DENSE, normals(cached)),
               o = activations(B, E, DENSE, NULL);
  const struct tensor table = j->rotary ? rotation_table(j->rotary).t : ABSENT,
                      weight = weights(DTYPE_F32, 1, weight_cols, DENSE, uniforms(weight_cols, 0.5, 2)).t;
  list->plain = plain;
  list->longest = 1;
  begin();
  const struct tensor p = oplist_value(list, B, gate_from + E), normed = oplist_value(list, B, cols),
                      rotated = oplist_value(list, B, cols), y = oplist_value(list, B, E),
                      gated = oplist_value(list, B, E);
  op_copy(list, p, x.t);
  if (j->norm)
    op_gated_norm(list, &(struct gated_norm){.y = normed,
                                             .x = tensor_cols(p, 0, cols),
                                             .weight = weight,
                                             .groups = a->heads + a->kv_heads,
                                             .group_cols = a->d,
                                             .place = NORM_FIRST,
                                             .eps = 1e-6f});
  op_rope_append(list, &(struct rope_append){.y = rotated,
                                             .cache_k = keys.t,
                                             .cache_v = values.t,
                                             .x = j->norm ? normed : tensor_cols(p, 0, cols),
                                             .table = table,
                                             .sequences = sequences,
                                             .a = *a});
  op_attention(list,
               &(struct attention){
                   .o = y, .qkv = rotated, .cache_k = keys.t, .cache_v = values.t, .sequences = sequences, .a = *a});
  if (j->gate) op_glu(list, gated, tensor_cols(p, gate_from, E), y, ACTIVATION_SIGMOID);
  op_copy(list, o.t, j->gate ? gated : y);
  const uint64_t before = recorder->functions->recorder_counters(recorder).dispatches;
  run();
  return (struct joined_result){read_values(&o), read_values(&keys), read_values(&values),
                                recorder->functions->recorder_counters(recorder).dispatches - before};
}

// Parts that one workgroup reads, that several share by heads, and that the last of several joins; the first token.
static void joined_attention_steps_match_plain_ones(void **state) {
  const struct joined_case cases[] = {
      {{4, 1, 64, 0, 700}, 64, true, false, true, 3, {0, 5, 699}},
      {{4, 1, 64, 0, 700}, 64, true, false, true, 1, {100}},
      {{11, 1, 64, 0, 320}, 16, true, true, false, 2, {319, 90}},
      {{6, 2, 20, 31, 36}, 0, true, false, true, 3, {5000, 30, 35}},
      {{3, 3, 7, 0, 300}, 4, false, false, true, 2, {256, 257}},
      {{2, 1, 300, 1, 1}, 300, true, false, true, 2, {0, 9}},
  };
  for (int i = 0; i < 6; i++) {
    const struct attention_args *a = &cases[i].a;
    const struct joined_result joined = run_joined(&cases[i], false), plain = run_joined(&cases[i], true);
    const size_t cached = cases[i].texts * (size_t)a->capacity * a->kv_heads * a->d;
    expect_close("joined attention", joined.o, plain.o, (size_t)cases[i].texts * a->heads * a->d, 3e-6);
    expect_close("joined attention: keys", joined.keys, plain.keys, cached, ROPE_CLOSE);
    expect_close("joined attention: values", joined.values, plain.values, cached, 0);
    if (backend->replays && a->d < 300) assert_true(joined.dispatches < plain.dispatches); // 300 may not fit
    tools_teardown(NULL);
  }
}

static void attention_of_large_scores_is_safe(void **state) {
  seed(23);
  struct sequence s = {0, 20, 150, 1};
  const struct attention_args a = {.heads = 2, .kv_heads = 2, .d = 64, .capacity = 200};
  check_attention(a, &s, 1, 100);
  s.T = 1;
  check_attention(a, &s, 1, 100);
}

int ops_cases_attention(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(rope_append_rotates_and_stores_at_any_position),
      OPS_CASE(attention_matches_over_lengths_and_heads),
      OPS_CASE(attention_window_and_ring_match),
      OPS_CASE(attention_of_single_tokens_matches_after_long_texts),
      OPS_CASE(attention_of_single_tokens_matches_over_groups_and_windows),
      OPS_CASE(joined_attention_steps_match_plain_ones),
      OPS_CASE(attention_of_large_scores_is_safe),
  };
  return cmocka_run_group_tests_name("attention", cases, NULL, NULL);
}
