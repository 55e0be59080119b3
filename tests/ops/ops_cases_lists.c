// Cases of whole lists: layers as block.c records them, and operations in and out of place.
#include "ops_cases.h"
#include "ops_tools.h"

enum { D = 64, F = 96, TEXTS = 2, ALIGN = TENSOR_ALIGN / sizeof(float) };

// ---------------------------------------------------------------- layers

struct layer {
  uint32_t rows; // of all texts
  struct sequence s[TEXTS];
  struct tensor sequences;
  struct array states[2];
};

static struct tensor matrix(uint32_t N, uint32_t K) {
  double *values = normals((size_t)N * K);
  for (size_t i = 0; i < (size_t)N * K; i++) values[i] /= sqrt(K);
  return weights(DTYPE_F32, N, K, DENSE, values).t;
}

static struct tensor vector(uint32_t n, double low, double high) {
  return weights(DTYPE_F32, 1, n, DENSE, uniforms(n, low, high)).t;
}

static struct array state_of(uint32_t cols) {
  return activations(TEXTS + 1, cols, DENSE, normals((TEXTS + 1) * (size_t)cols));
}

static uint32_t align(uint32_t columns) { return (uint32_t)round_up(columns, ALIGN); }

// As mixer_delta.c: a convolution, inputs, the rule, a gated norm of every head.
static void record_delta(struct layer *c, struct tensor y, struct tensor h) {
  enum { H = 2, Hv = 4, Dk = 16, Dv = 24, W = 4, C = 2 * H * Dk + Hv * Dv, VALUES = Hv * Dv };
  const uint32_t gate = align(C), ba = gate + align(VALUES), T = c->rows;
  c->states[0] = state_of((W - 1) * C);
  c->states[1] = state_of(Hv * Dk * Dv);
  const struct tensor p = oplist_value(list, T, ba + 2 * Hv), convolved = oplist_value(list, T, C);
  const struct tensor qkv = oplist_value(list, T, C), beta = oplist_value(list, T, Hv), g = oplist_value(list, T, Hv);
  const struct tensor o = oplist_value(list, T, VALUES), normed = oplist_value(list, T, VALUES);
  op_linear(list, p, h, matrix(p.cols, D), ABSENT);
  op_conv(list, &(struct conv){.y = convolved,
                               .history = c->states[0].t,
                               .x = tensor_cols(p, 0, C),
                               .weight = weights(DTYPE_F32, W, C, DENSE, normals(W * C)).t,
                               .sequences = c->sequences,
                               .a = {.W = W, .C = C, .heads = 2 * H, .Dk = Dk}});
  op_delta_inputs(list, &(struct delta_inputs){.y = qkv,
                                               .beta = beta,
                                               .g = g,
                                               .x = convolved,
                                               .ba = tensor_cols(p, ba, 2 * Hv),
                                               .A_log = vector(Hv, -3, 1),
                                               .dt_bias = vector(Hv, -5, 3),
                                               .a = {.heads = 2 * H,
                                                     .Dk = Dk,
                                                     .norm = KEY_NORM_L2,
                                                     .betas = Hv,
                                                     .decays = Hv,
                                                     .beta_scale = 1,
                                                     .has_beta = true,
                                                     .gated = true}});
  op_delta_rule(
      list, &(struct delta_rule){.o = o,
                                 .state = c->states[1].t,
                                 .qkv = qkv,
                                 .beta = beta,
                                 .g = g,
                                 .sequences = c->sequences,
                                 .a = {.H = H, .Hv = Hv, .Dk = Dk, .Dv = Dv, .n = 1, .scale = 0.25f, .gated = true}});
  op_gated_norm(list, &(struct gated_norm){.y = normed,
                                           .x = o,
                                           .gate = tensor_cols(p, gate, VALUES),
                                           .weight = vector(Dv, 0.5, 2),
                                           .groups = Hv,
                                           .group_cols = Dv,
                                           .place = NORM_FIRST,
                                           .eps = 1e-5f});
  op_linear(list, y, normed, matrix(D, VALUES), ABSENT);
}

// As mixer_mamba2.c.
static void record_mamba2(struct layer *c, struct tensor y, struct tensor h) {
  enum { HEADS = 4, P = 16, N = 20, W = 4, E = HEADS * P, C = E + 2 * N };
  const uint32_t xBC_from = align(E), dt_from = xBC_from + align(C), T = c->rows;
  c->states[0] = state_of((W - 1) * C);
  c->states[1] = state_of(E * N);
  const struct tensor p = oplist_value(list, T, dt_from + HEADS), xBC = oplist_value(list, T, C);
  const struct tensor dt = oplist_value(list, T, HEADS), g = oplist_value(list, T, HEADS);
  const struct tensor o = oplist_value(list, T, E), out = oplist_value(list, T, E);
  op_linear(list, p, h, matrix(p.cols, D), ABSENT);
  op_conv(list, &(struct conv){.y = xBC,
                               .history = c->states[0].t,
                               .x = tensor_cols(p, xBC_from, C),
                               .weight = weights(DTYPE_F32, W, C, DENSE, normals(W * C)).t,
                               .bias = vector(C, -1, 1),
                               .sequences = c->sequences,
                               .a = {.W = W, .C = C}});
  op_mamba2_inputs(list, &(struct mamba2_inputs){.dt = dt,
                                                 .g = g,
                                                 .raw = tensor_cols(p, dt_from, HEADS),
                                                 .A_log = vector(HEADS, -3, 1),
                                                 .dt_bias = vector(HEADS, -3, 1),
                                                 .high = INFINITY});
  op_mamba2(list, &(struct mamba2){.y = o,
                                   .state = c->states[1].t,
                                   .xBC = xBC,
                                   .dt = dt,
                                   .g = g,
                                   .D = vector(HEADS, -1, 1),
                                   .sequences = c->sequences,
                                   .a = {.heads = HEADS, .P = P, .N = N, .groups = 1}});
  op_gated_norm(list, &(struct gated_norm){.y = out,
                                           .x = o,
                                           .gate = tensor_cols(p, 0, E),
                                           .weight = vector(E, 0.5, 2),
                                           .groups = 1,
                                           .group_cols = E,
                                           .place = NORM_OF_GATED,
                                           .eps = 1e-5f});
  op_linear(list, y, out, matrix(D, E), ABSENT);
}

// As mixer_attention.c, with a norm of queries and keys and an output gate.
static void record_attention(struct layer *c, struct tensor y, struct tensor h) {
  enum { HEADS = 4, KV = 2, d = 16, CAPACITY = 80, COLS = (HEADS + 2 * KV) * d, E = HEADS * d };
  const struct attention_args a = {.heads = HEADS, .kv_heads = KV, .d = d, .capacity = CAPACITY};
  const uint32_t T = c->rows;
  c->states[0] = state_of(CAPACITY * KV * d);
  c->states[1] = state_of(CAPACITY * KV * d);
  const struct tensor p = oplist_value(list, T, COLS + E), normed = oplist_value(list, T, COLS);
  const struct tensor rotated = oplist_value(list, T, COLS), o = oplist_value(list, T, E),
                      gated = oplist_value(list, T, E);
  op_linear(list, p, h, matrix(COLS + E, D), vector(COLS + E, -1, 1));
  op_gated_norm(list, &(struct gated_norm){.y = normed,
                                           .x = tensor_cols(p, 0, COLS),
                                           .weight = vector(d, 0.5, 2),
                                           .groups = HEADS + KV,
                                           .group_cols = d,
                                           .place = NORM_FIRST,
                                           .eps = 1e-6f});
  op_rope_append(list, &(struct rope_append){
                           .y = rotated,
                           .cache_k = c->states[0].t,
                           .cache_v = c->states[1].t,
                           .x = normed,
                           .table = weights(DTYPE_F32, ROPE_ROWS, d, DENSE, uniforms(ROPE_ROWS * (size_t)d, 0.5, 1)).t,
                           .sequences = c->sequences,
                           .a = a});
  op_attention(list, &(struct attention){.o = o,
                                         .qkv = rotated,
                                         .cache_k = c->states[0].t,
                                         .cache_v = c->states[1].t,
                                         .sequences = c->sequences,
                                         .a = a});
  op_glu(list, gated, tensor_cols(p, COLS, E), o, ACTIVATION_SIGMOID);
  op_linear(list, y, gated, matrix(D, E), ABSENT);
}

// As ffn_dense.c.
static void record_ffn(struct layer *c, struct tensor y, struct tensor h) {
  const struct tensor gate_up = oplist_value(list, c->rows, 2 * F), act = oplist_value(list, c->rows, F);
  op_linear(list, gate_up, h, matrix(2 * F, D), ABSENT);
  op_glu(list, act, tensor_cols(gate_up, 0, F), tensor_cols(gate_up, F, F), ACTIVATION_SILU);
  op_linear(list, y, act, matrix(D, F), ABSENT);
}

typedef void (*record_part)(struct layer *c, struct tensor y, struct tensor h);

static struct tensor record_residual(struct layer *c, record_part part, struct tensor x) {
  const struct tensor sum = oplist_value(list, c->rows, D);
  oplist_scope_begin(list);
  const struct tensor h = oplist_value(list, c->rows, D), y = oplist_value(list, c->rows, D);
  op_norm(list, h, x, vector(D, 0.5, 2), ABSENT, 1e-5f);
  part(c, y, h);
  op_add(list, sum, x, y);
  oplist_scope_end(list);
  return sum;
}

struct outcome {
  double *x, *states[2];
  size_t numbers[2]; // of the states
  uint64_t dispatches;
};

// Two texts of T tokens through a mixer and an FFN, all of whose numbers follow from the seed.
static struct outcome run_block(record_part mixer, uint32_t T, bool plain) {
  const uint32_t lengths_of[TEXTS] = {T, T};
  struct layer c = {0};
  struct outcome out = {0};
  seed(90);
  c.rows = place_sequences(c.s, lengths_of, TEXTS);
  c.sequences = sequences_of(c.s, TEXTS).t;
  struct array before = activations(c.rows, D, DENSE, normals((size_t)c.rows * D));
  struct array after = activations(c.rows, D, DENSE, NULL);
  list->plain = plain;
  list->longest = T;
  begin();
  struct tensor x = oplist_value(list, c.rows, D);
  op_copy(list, x, before.t);
  x = record_residual(&c, record_ffn, record_residual(&c, mixer, x));
  oplist_bind(list, x, after.t);
  const uint64_t dispatches = recorder->functions->recorder_counters(recorder).dispatches;
  run();
  out.dispatches = recorder->functions->recorder_counters(recorder).dispatches - dispatches;
  out.x = read_values(&after);
  for (int i = 0; i < 2; i++) {
    out.states[i] = read_values(&c.states[i]);
    out.numbers[i] = (size_t)c.states[i].t.rows * c.states[i].t.cols;
  }
  return out;
}

static void check_block(const char *what, record_part mixer) {
  const uint32_t texts[] = {1, 5, 70};
  for (int i = 0; i < 3; i++) {
    const struct outcome joined = run_block(mixer, texts[i], false), plain = run_block(mixer, texts[i], true);
    expect_close(what, joined.x, plain.x, (size_t)TEXTS * texts[i] * D, 5e-6);
    for (int k = 0; k < 2; k++) expect_close(what, joined.states[k], plain.states[k], joined.numbers[k], 5e-6);
    if (backend->replays)
      assert_true(joined.dispatches < plain.dispatches);
    else
      assert_int_equal(joined.dispatches, plain.dispatches);
    tools_teardown(NULL);
  }
}

static void joined_lists_give_what_plain_ones_give(void **state) {
  check_block("joined lists: delta rule and FFN", record_delta);
  check_block("joined lists: Mamba-2 and FFN", record_mamba2);
  check_block("joined lists: attention and FFN", record_attention);
}

// ---------------------------------------------------------------- places

enum { T = 5, HEADS = 3, d = 8, COLS = HEADS * d + 6 };

// What an operation reads beside x, and writes beside y.
struct aside {
  struct array cache_k, cache_v, beta, g;
  struct tensor z, weight, sequences;
};

static void record_add(const struct aside *a, struct tensor y, struct tensor x) { op_add(list, y, x, a->z); }

static void record_inputs(const struct aside *a, struct tensor y, struct tensor x) {
  op_delta_inputs(list, &(struct delta_inputs){.y = y,
                                               .beta = a->beta.t,
                                               .g = a->g.t,
                                               .x = x,
                                               .ba = a->z,
                                               .A_log = a->weight,
                                               .dt_bias = a->weight,
                                               .a = {.heads = HEADS,
                                                     .Dk = d,
                                                     .activation = ACTIVATION_SILU,
                                                     .norm = KEY_NORM_L2,
                                                     .betas = HEADS,
                                                     .decays = HEADS,
                                                     .beta_scale = 1,
                                                     .has_beta = true,
                                                     .gated = true}});
}

static void record_normed_heads(const struct aside *a, struct tensor y, struct tensor x) {
  struct tensor weight = a->weight;
  weight.cols = HEADS * d;
  op_gated_norm(list, &(struct gated_norm){.y = y,
                                           .x = x,
                                           .gate = a->z,
                                           .weight = weight,
                                           .groups = HEADS,
                                           .group_cols = d,
                                           .place = NORM_FIRST,
                                           .eps = 1e-5f});
}

static void record_gated_norm(const struct aside *a, struct tensor y, struct tensor x) {
  op_gated_norm(list, &(struct gated_norm){.y = y,
                                           .x = x,
                                           .gate = a->z,
                                           .weight = a->weight,
                                           .groups = 2,
                                           .group_cols = y.cols / 2,
                                           .place = NORM_FIRST,
                                           .eps = 1e-5f});
}

// One head of queries, one of keys, one of values; the columns after them are nobody's.
static void record_rope(const struct aside *a, struct tensor y, struct tensor x) {
  op_rope_append(list, &(struct rope_append){
                           .y = y,
                           .cache_k = a->cache_k.t,
                           .cache_v = a->cache_v.t,
                           .x = x,
                           .table = weights(DTYPE_F32, ROPE_ROWS, d, DENSE, uniforms(ROPE_ROWS * (size_t)d, 0.5, 1)).t,
                           .sequences = a->sequences,
                           .a = {.heads = 1, .kv_heads = 1, .d = d, .capacity = T}});
}

static void run_placed(void (*record)(const struct aside *a, struct tensor y, struct tensor x), bool in_place,
                       double *results[5]) {
  const struct sequence all = {.T = T};
  seed(91);
  struct array x = activations(T, COLS, COLS + 1, normals(T * COLS)), y = x;
  const struct aside a = {.cache_k = activations(1, T * d, DENSE, NULL),
                          .cache_v = activations(1, T * d, DENSE, NULL),
                          .beta = activations(T, HEADS, DENSE, NULL),
                          .g = activations(T, HEADS, DENSE, NULL),
                          .z = activations(T, COLS, COLS + 2, normals(T * COLS)).t,
                          .weight = vector(COLS, 0.5, 2),
                          .sequences = sequences_of(&all, 1).t};
  if (!in_place) y = activations(T, COLS, COLS + 5, NULL);
  begin();
  record(&a, y.t, x.t);
  run();
  const struct array *all_results[] = {&y, &a.cache_k, &a.cache_v, &a.beta, &a.g};
  for (int i = 0; i < 5; i++) results[i] = read_values(all_results[i]);
  if (!in_place) assert_memory_equal(read_values(&x), x.v, T * COLS * sizeof(double));
}

static void operations_in_and_out_of_place_give_the_same_bits(void **state) {
  void (*const records[])(const struct aside *, struct tensor, struct tensor) = {
      record_add, record_inputs, record_normed_heads, record_gated_norm, record_rope};
  const size_t numbers[5] = {T * COLS, T * d, T * d, T * HEADS, T * HEADS};
  for (int i = 0; i < 5; i++) {
    double *in[5], *out[5];
    run_placed(records[i], true, in);
    run_placed(records[i], false, out);
    for (int k = 0; k < 5; k++) assert_memory_equal(in[k], out[k], numbers[k] * sizeof(double));
  }
}

int ops_cases_lists(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(joined_lists_give_what_plain_ones_give),
      OPS_CASE(operations_in_and_out_of_place_give_the_same_bits),
  };
  return cmocka_run_group_tests_name("lists", cases, NULL, NULL);
}
