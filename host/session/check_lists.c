// check_lists: what a device is checked with: lists as layers record them, in small sizes that reach every kernel that
// the plan would choose, with random inputs.
#include "check.h"
#include "measure.h"

#include <math.h>

enum { D = 256, HEADS = 2, SIZE = 64, ALIGN = TENSOR_ALIGN / 4, MOST_V = 20001 };
static const float EPS = 1e-5f;
static const struct tensor none;

const struct check_case check_cases[] = {
#define PRODUCTS(format, rows)                                                                                         \
  { CHECK_PRODUCTS, DTYPE_##format, .B = 1, .T = rows }
#define EACH(format) PRODUCTS(format, 1), PRODUCTS(format, 4), PRODUCTS(format, 24), PRODUCTS(format, 200)
#define DELTA(B, T, form, n, r, Dk)                                                                                    \
  { CHECK_DELTA, DTYPE_BF16, DELTA_##form, B, T, n, r, Dk, 0, 0 }
    {CHECK_TOKENS, DTYPE_F32, .B = 3, .T = 5, .V = 1000},
    EACH(F32),
    EACH(F16),
    EACH(BF16),
    EACH(Q4_K),
    PRODUCTS(Q8_0, 1),
    PRODUCTS(Q4_0, 1),
    PRODUCTS(Q5_0, 1),
    PRODUCTS(Q5_K, 1),
    PRODUCTS(Q6_K, 1),
    PRODUCTS(IQ4_NL, 1),
    PRODUCTS(IQ4_XS, 1),
    DELTA(1, 1, AUTO, 1, 1, 64),
    DELTA(2, 1, AUTO, 1, 1, 49),
    DELTA(2, 1, AUTO, 2, 1, 64),
    DELTA(2, 1, AUTO, 1, 2, 64),
    DELTA(2, 40, RECURRENT, 1, 1, 64),
    DELTA(2, 40, RECURRENT, 1, 1, 49),
    DELTA(2, 40, RECURRENT, 2, 1, 64),
    DELTA(2, 40, RECURRENT, 1, 2, 64),
    DELTA(2, 150, CHUNK, 1, 1, 64),
    DELTA(2, 150, CHUNK, 1, 1, 49),
    DELTA(2, 150, CHUNK, 2, 1, 64),
    DELTA(2, 150, CHUNK, 1, 2, 64),
    DELTA(1, 2048, CHUNK, 1, 1, 64), // in segments, where they are
    {CHECK_MAMBA2, DTYPE_BF16, .B = 2, .T = 1},
    {CHECK_MAMBA2, DTYPE_BF16, DELTA_RECURRENT, .B = 2, .T = 40},
    {CHECK_MAMBA2, DTYPE_BF16, DELTA_CHUNK, .B = 2, .T = 150},
    {CHECK_ATTENTION, DTYPE_BF16, .B = 2, .T = 1},
    {CHECK_ATTENTION, DTYPE_BF16, .B = 2, .T = 100},
    {CHECK_ATTENTION, DTYPE_BF16, .B = 2, .T = 1, .before = 900}, // in parts, with what is around it
    {CHECK_EXPERTS, DTYPE_BF16, .B = 1, .T = 1},
    {CHECK_EXPERTS, DTYPE_BF16, .B = 1, .T = 200},
    {CHECK_EXPERTS, DTYPE_Q4_K, .B = 1, .T = 200},
    {CHECK_EXPERTS, DTYPE_Q4_K, .B = 1, .T = 1},
    {CHECK_EXPERTS, DTYPE_F16, .B = 1, .T = 1},
    {CHECK_EXPERTS, DTYPE_F16, .B = 1, .T = 200},
    {CHECK_EXPERTS, DTYPE_Q6_K, .B = 1, .T = 1},
    {CHECK_EXPERTS, DTYPE_Q6_K, .B = 1, .T = 200},
    {CHECK_DELTA, DTYPE_Q4_K, .B = 1, .T = 1, .n = 1, .r = 1, .Dk = 64},
    {CHECK_DELTA, DTYPE_F16, .B = 1, .T = 1, .n = 1, .r = 1, .Dk = 64},
    {CHECK_DELTA, DTYPE_Q8_0, .B = 1, .T = 1, .n = 1, .r = 1, .Dk = 64},
    {CHECK_TOKENS, DTYPE_F32, .B = 3, .T = 5, .V = MOST_V}, // sampled in parts
};
const uint32_t check_case_count = sizeof check_cases / sizeof *check_cases;

static struct oplist *list_of(struct check *k) { return &k->list[k->side]; }

static struct tensor value(struct check *k, uint32_t rows, uint32_t cols) {
  return oplist_value(list_of(k), rows, cols);
}

static struct tensor vector(struct check *k, uint32_t rows, uint32_t cols) {
  return check_numbers(k, DTYPE_F32, rows, cols, 0.5f);
}

static struct tensor output(struct check *k, uint32_t rows, uint32_t cols) {
  return check_output(k, check_numbers(k, DTYPE_F32, rows, cols, 0));
}

static struct tensor state(struct check *k, uint32_t rows, uint32_t cols) {
  return check_output(k, vector(k, rows, cols));
}

// A product with new weights; its results are about as large as its inputs.
static struct tensor linear(struct check *k, const struct check_case *c, struct tensor x, uint32_t outputs) {
  const struct tensor w = check_numbers(k, c->dtype, outputs, x.cols, sqrtf(3.0f / (float)x.cols));
  const struct tensor y = value(k, x.rows, outputs);
  op_linear(list_of(k), y, x, w, none);
  return y;
}

static struct tensor norm(struct check *k, struct tensor x) {
  const struct tensor y = value(k, x.rows, x.cols);
  op_norm(list_of(k), y, x, check_numbers(k, DTYPE_F32, 1, x.cols, 1), none, EPS);
  return y;
}

// The last product of a list, whose results are compared.
static void last(struct check *k, const struct check_case *c, struct tensor x) {
  oplist_bind(list_of(k), linear(k, c, x, D), output(k, x.rows, D));
}

static struct tensor sequences(struct check *k, const struct check_case *c, uint32_t pos) {
  struct sequence all[4];
  for (uint32_t i = 0; i < c->B; i++) all[i] = (struct sequence){i * c->T, c->T, pos + i, c->B - 1 - i};
  return check_words(k, c->B, 4, all);
}

static struct tensor tokens(struct check *k, uint32_t count, uint32_t vocabulary) {
  uint32_t ids[256];
  for (uint32_t i = 0; i < count; i++) ids[i] = i * 37 % vocabulary;
  return check_words(k, 1, count, ids);
}

// The FFN of a layer between embedding and head.
static void products(struct check *k, const struct check_case *c) {
  enum { F = 512, V = 264 };
  struct oplist *l = list_of(k);
  const struct tensor x = value(k, c->T, D), sum = value(k, c->T, D), act = value(k, c->T, F);
  op_embed(l, x, check_numbers(k, c->dtype, V, D, 1), tokens(k, c->T, V));
  const struct tensor both = linear(k, c, norm(k, x), 2 * F);
  op_glu(l, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
  op_add(l, sum, x, linear(k, c, act, D));
  oplist_bind(l, sum, output(k, c->T, D));
  last(k, c, norm(k, sum));
}

static struct tensor conv(struct check *k, const struct check_case *c, struct tensor x, struct tensor s,
                          struct conv_args a) {
  const struct tensor y = value(k, x.rows, x.cols);
  a.W = 4, a.C = x.cols;
  op_conv(list_of(k), &(struct conv){.y = y,
                                     .history = state(k, c->B, 3 * x.cols),
                                     .x = x,
                                     .weight = vector(k, 4, x.cols),
                                     .bias = vector(k, 1, x.cols),
                                     .sequences = s,
                                     .a = a});
  return y;
}

static struct tensor gated(struct check *k, struct tensor x, struct tensor gate, uint32_t groups,
                           enum norm_place place) {
  const struct tensor y = value(k, x.rows, x.cols);
  op_gated_norm(list_of(k), &(struct gated_norm){.y = y,
                                                 .x = x,
                                                 .gate = gate,
                                                 .weight = vector(k, 1, place == NORM_FIRST ? x.cols / groups : x.cols),
                                                 .groups = groups,
                                                 .group_cols = x.cols / groups,
                                                 .place = place,
                                                 .eps = EPS});
  return y;
}

// Columns of a layer's first product begin at multiples of ALIGN.
static void delta(struct check *k, const struct check_case *c) {
  const uint32_t rows = c->B * c->T, keys = (1u + c->n) * HEADS, values = HEADS * SIZE, n = c->n, Dk = c->Dk;
  const uint32_t C = keys * Dk + n * values, gate_from = (uint32_t)round_up(C, ALIGN), ba_from = gate_from + values;
  struct oplist *l = list_of(k);
  const struct tensor s = sequences(k, c, 0), all = linear(k, c, vector(k, rows, D), ba_from + n * HEADS + HEADS);
  const struct tensor y = conv(k, c, tensor_cols(all, 0, C), s, (struct conv_args){.heads = keys, .Dk = Dk});
  const struct tensor qkv = value(k, rows, C), beta = value(k, rows, n * HEADS), g = value(k, rows, HEADS);
  const struct tensor o = value(k, rows, values);
  op_delta_inputs(l, &(struct delta_inputs){.y = qkv,
                                            .beta = beta,
                                            .g = g,
                                            .x = y,
                                            .ba = tensor_cols(all, ba_from, n * HEADS + HEADS),
                                            .A_log = vector(k, 1, HEADS),
                                            .dt_bias = vector(k, 1, HEADS),
                                            .a = {.heads = keys,
                                                  .Dk = Dk,
                                                  .norm = KEY_NORM_L2,
                                                  .betas = n * HEADS,
                                                  .decays = HEADS,
                                                  .beta_scale = 1,
                                                  .has_beta = true,
                                                  .gated = true}});
  op_delta_rule(l, &(struct delta_rule){.o = o,
                                        .state = state(k, c->B, values * Dk),
                                        .qkv = qkv,
                                        .beta = beta,
                                        .g = g,
                                        .mask = c->r > 1 ? vector(k, rows, HEADS * c->r * c->r) : none,
                                        .sequences = s,
                                        .a = {.H = HEADS,
                                              .Hv = HEADS,
                                              .Dk = Dk,
                                              .Dv = SIZE,
                                              .n = n,
                                              .r = c->r,
                                              .scale = 0.125f,
                                              .gated = true,
                                              .nonneg = HH_NONNEG_SOFTPLUS}});
  const struct check_case plain = {.dtype = DTYPE_BF16}; // rows of 128 are no whole blocks
  last(k, &plain, gated(k, o, tensor_cols(all, gate_from, values), HEADS, NORM_FIRST));
}

static void mamba2(struct check *k, const struct check_case *c) {
  enum { P = 32, N = 64, E = 128, C = E + 2 * N };
  const uint32_t rows = c->B * c->T, heads = E / P;
  struct oplist *l = list_of(k);
  const struct tensor s = sequences(k, c, 0), all = linear(k, c, vector(k, rows, D), E + C + heads);
  const struct tensor xBC = conv(k, c, tensor_cols(all, E, C), s, (struct conv_args){0});
  const struct tensor dt = value(k, rows, heads), g = value(k, rows, heads), y = value(k, rows, E);
  op_mamba2_inputs(l, &(struct mamba2_inputs){.dt = dt,
                                              .g = g,
                                              .raw = tensor_cols(all, E + C, heads),
                                              .A_log = vector(k, 1, heads),
                                              .dt_bias = vector(k, 1, heads),
                                              .high = INFINITY});
  op_mamba2(l, &(struct mamba2){.y = y,
                                .state = state(k, c->B, E * N),
                                .xBC = xBC,
                                .dt = dt,
                                .g = g,
                                .D = vector(k, 1, heads),
                                .sequences = s,
                                .a = {.heads = heads, .P = P, .N = N, .groups = 1}});
  last(k, c, gated(k, y, tensor_cols(all, 0, E), 1, NORM_OF_GATED));
}

static void attention(struct check *k, const struct check_case *c) {
  enum { QUERIES = 4, CACHED = 1024, BEFORE = 60 };
  const struct attention_args a = {.heads = QUERIES, .kv_heads = HEADS, .d = SIZE, .capacity = CACHED};
  const uint32_t rows = c->B * c->T, gate = QUERIES * SIZE, cols = (QUERIES + 2 * HEADS) * SIZE;
  struct oplist *l = list_of(k);
  const struct tensor s = sequences(k, c, c->before ? c->before : BEFORE);
  const struct tensor all = linear(k, c, vector(k, rows, D), cols + gate), normed = value(k, rows, cols);
  const struct tensor x = c->before ? normed : tensor_cols(all, 0, cols);
  const struct tensor y = value(k, rows, cols), o = value(k, rows, gate);
  const struct tensor keys = state(k, c->B, CACHED * HEADS * SIZE), values = state(k, c->B, CACHED * HEADS * SIZE);
  if (c->before)
    op_gated_norm(l, &(struct gated_norm){.y = normed,
                                          .x = tensor_cols(all, 0, cols),
                                          .weight = vector(k, 1, (QUERIES + HEADS) * SIZE),
                                          .groups = QUERIES + HEADS,
                                          .group_cols = SIZE,
                                          .place = NORM_FIRST,
                                          .eps = EPS});
  op_rope_append(l, &(struct rope_append){.y = y,
                                          .cache_k = keys,
                                          .cache_v = values,
                                          .x = x,
                                          .table = check_numbers(k, DTYPE_F32, ROPE_ROWS, SIZE, 1),
                                          .sequences = s,
                                          .a = a});
  op_attention(l, &(struct attention){.o = o, .qkv = y, .cache_k = keys, .cache_v = values, .sequences = s, .a = a});
  if (!c->before) {
    last(k, c, o);
    return;
  }
  const struct tensor gated = value(k, rows, gate);
  op_glu(l, gated, tensor_cols(all, cols, gate), o, ACTIVATION_SIGMOID);
  last(k, c, gated);
}

static void experts(struct check *k, const struct check_case *c) {
  enum { E = 8, CHOSEN = 2, F = 256 };
  const uint32_t T = c->T, R = T * CHOSEN;
  const struct check_case exact = {.dtype = DTYPE_F32};
  const float most = sqrtf(3.0f / D);
  struct oplist *l = list_of(k);
  const struct tensor x = vector(k, T, D), logits = linear(k, &exact, x, E);
  const struct tensor ids = value(k, T, CHOSEN), weights = value(k, T, CHOSEN), order = value(k, 1, R);
  const struct tensor starts = value(k, 1, E + 1), both = value(k, R, 2 * F), act = value(k, R, F), y = value(k, R, D);
  op_route(l, &(struct route){ids, weights, logits, .experts = E, .normalized = true});
  op_group(l, order, starts, ids);
  op_experts(l, &(struct experts){both, x, check_numbers(k, c->dtype, E * 2 * F, D, most), ids, order, starts});
  op_glu(l, act, tensor_cols(both, 0, F), tensor_cols(both, F, F), ACTIVATION_SILU);
  op_experts(l, &(struct experts){y, act, check_numbers(k, c->dtype, E * D, F, most), ids, order, starts});
  op_mix(l, &(struct mix){.y = output(k, T, D), .x = y, .weights = weights, .logits = logits});
}

// What is around the layers.
static void around(struct check *k, const struct check_case *c) {
  const uint32_t rows = c->B * c->T, V = c->V, words = (V + 31) / 32;
  static const uint32_t zeros[3 * ((MOST_V + 31) / 32)];
  const struct sampling settings[] = {
      {.repetition_penalty = 1.2f},
      {.temperature = 0.8f, .top_p = 0.9f, .repetition_penalty = 1, .seed_low = 7},
      {.temperature = 1.1f, .top_p = 1, .min_p = 0.02f, .repetition_penalty = 1.1f, .top_k = 40}};
  struct oplist *l = list_of(k);
  const struct tensor s = sequences(k, c, 0), ids = tokens(k, rows, V), x = vector(k, rows, D);
  const struct tensor seen = check_output(k, check_words(k, c->B, words, zeros));
  const struct tensor drawn = check_output(k, check_words(k, 1, c->B, zeros)),
                      logits = check_numbers(k, DTYPE_F32, c->B, V, 8);
  const struct tensor ends = output(k, c->B, D), copied = output(k, c->B, D), scattered = output(k, c->B, D);
  op_mark(l, seen, ids, s);
  op_norm(l, ends, x, vector(k, 1, D), s, EPS);
  op_copy(l, copied, ends);
  op_scatter(l, scattered, copied, s);
  op_score(l, output(k, c->B, 2), logits, tokens(k, c->B, V), 0);
  op_sample(l, &(struct sample){.tokens = drawn,
                                .scratch = check_numbers(k, DTYPE_F32, c->B, V, 0),
                                .sequences = s,
                                .seen = seen,
                                .logits = logits,
                                .sampling = check_words(k, c->B, 8, settings)});
}

void check_record(struct check *k, const struct check_case *c) {
  static void (*const each[])(struct check *, const struct check_case *) = {
      [CHECK_PRODUCTS] = products,   [CHECK_DELTA] = delta,     [CHECK_MAMBA2] = mamba2,
      [CHECK_ATTENTION] = attention, [CHECK_EXPERTS] = experts, [CHECK_TOKENS] = around};
  each[c->kind](k, c);
}
