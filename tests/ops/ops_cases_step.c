// Cases of one token of every sequence from the convolved q, k, v to the gated output, against float64: delta_inputs,
// delta_rule and gated_norm, which Vulkan joins into delta_step.
#include "delta_case.h"
#include "ops_cases.h"
#include "ops_tools.h"

static const double STEP_CLOSE = 5e-6;

struct step_case {
  struct delta_inputs inputs;
  struct delta_rule rule;
  struct gated_norm last;
  uint32_t B, rows; // sequences; rows of the call, one for each of them that has a token
  struct sequence sequences[4];
  struct array o, qkv, ba, mask, A_log, dt_bias, state, gate, norm;
};

struct step_shape {
  uint32_t H, Hv, Dk, Dv, n, r;
  bool gated, has_beta, has_gate, has_norm, fixed_mask, tiled;
  bool fours, alone; // rows of whole vectors; one text and no other slot
  enum activation activation;
  enum key_norm key_norm;
  enum hh_nonneg nonneg;
};

static uint32_t ba_cols(const struct step_shape *z) {
  return (z->has_beta ? z->n * z->Hv : 0) + (z->gated ? z->Hv : 0);
}

// Sequences 0, 2 and 3 have a token each, in rows 0, 2 and 1; row 3 is nobody's.
static struct step_case random_step(const struct step_shape *z) {
  const uint32_t rows = z->alone ? 1 : 4, slots = z->alone ? 1 : 5, row[] = {0, 3, 2, 1}, T[] = {1, 0, 1, 1};
  struct step_case c = {.B = rows, .rows = rows};
  for (uint32_t i = 0; i < c.B; i++) c.sequences[i] = (struct sequence){row[i], T[i], 5 * i, slots - 1 - i};
  const uint32_t cols = (1 + z->n) * z->H * z->Dk + z->n * z->Hv * z->Dv, values = z->Hv * z->Dv;
  const uint32_t masks = z->Hv * z->r * z->r, S = z->Hv * z->Dk * z->Dv, ba = ba_cols(z);
  const uint32_t pad = z->fours ? 4 : 3, o_pad = z->fours ? 8 : 1, gate_pad = z->fours ? 4 : 2;
  // Sums of signed numbers may cancel to nothing; positive input keeps SUM well posed.
  const size_t all = (size_t)rows * cols;
  c.qkv = activations(rows, cols, cols + pad, z->key_norm == KEY_NORM_SUM ? uniforms(all, 0.1, 3) : normals(all));
  c.o = activations(rows, values, values + o_pad, uniforms(rows * (size_t)values, 7, 8));
  c.ba = activations(rows, ba ? ba : 1, ba + 2, normals(rows * (size_t)(ba + 1)));
  c.mask = activations(z->fixed_mask ? 1 : rows, masks, DENSE, uniforms(rows * (size_t)masks, 0.1, 1));
  c.A_log = weights(DTYPE_F32, 1, z->Hv, DENSE, uniforms(z->Hv, -3, 1));
  c.dt_bias = weights(DTYPE_F32, 1, z->Hv, DENSE, uniforms(z->Hv, -5, 3));
  c.state = activations(slots, S, DENSE, normals(slots * (size_t)S));
  c.gate = activations(rows, values, values + gate_pad, normals(rows * (size_t)values));
  c.norm = weights(DTYPE_F32, 1, z->Dv, DENSE, uniforms(z->Dv, -2, 2));
  const float scale = 1 / sqrtf((float)z->Dk);
  c.inputs = (struct delta_inputs){.y = c.qkv.t,
                                   .beta = activations(rows, z->n * z->Hv, DENSE, NULL).t,
                                   .g = z->gated ? activations(rows, z->Hv, DENSE, NULL).t : ABSENT,
                                   .x = c.qkv.t,
                                   .ba = ba ? c.ba.t : ABSENT,
                                   .A_log = z->gated ? c.A_log.t : ABSENT,
                                   .dt_bias = z->gated ? c.dt_bias.t : ABSENT,
                                   .a = {(1 + z->n) * z->H, z->Dk, z->activation, z->key_norm, z->n * z->Hv,
                                         z->gated ? z->Hv : 0, 1.5f, z->has_beta, z->gated}};
  c.rule = (struct delta_rule){.o = c.o.t,
                               .state = c.state.t,
                               .qkv = c.qkv.t,
                               .beta = c.inputs.beta,
                               .g = c.inputs.g,
                               .mask = z->r > 1 ? c.mask.t : ABSENT,
                               .sequences = sequences_of(c.sequences, c.B).t,
                               .a = {.H = z->H,
                                     .Hv = z->Hv,
                                     .Dk = z->Dk,
                                     .Dv = z->Dv,
                                     .n = z->n,
                                     .r = z->r,
                                     .scale = scale,
                                     .gated = z->gated,
                                     .fixed_mask = z->fixed_mask,
                                     .tiled = z->tiled,
                                     .nonneg = z->nonneg}};
  c.last = (struct gated_norm){.y = c.o.t,
                               .gate = z->has_gate ? c.gate.t : ABSENT,
                               .weight = z->has_norm ? c.norm.t : ABSENT,
                               .groups = z->Hv,
                               .group_cols = z->Dv,
                               .place = z->has_norm ? NORM_FIRST : NORM_ABSENT,
                               .eps = 1e-5f};
  return c;
}

static void record_step(struct step_case *c) {
  const bool last = tensor_present(c->last.weight) || tensor_present(c->last.gate);
  if (last) c->rule.o = c->last.x = oplist_value(list, c->rows, c->o.t.cols);
  op_delta_inputs(list, &c->inputs);
  op_delta_rule(list, &c->rule);
  if (last) op_gated_norm(list, &c->last);
}

static void reference_head(double *o, double *state, const struct step_case *c, const struct sequence *q,
                           uint32_t head) {
  const struct delta_input_args *in = &c->inputs.a;
  const struct delta_args *a = &c->rule.a;
  const uint32_t key = a->tiled ? head % a->H : head / (a->Hv / a->H),
                 cols = (1 + a->n) * a->H * a->Dk + a->n * a->Hv * a->Dv;
  const double *row = c->qkv.v + (size_t)q->row * cols, *ba = c->ba.v + (size_t)q->row * c->ba.t.cols;
  double M[HH_MOST * HH_MOST] = {1}, *keys = zeros((1 + a->n) * a->Dk), decay = 1, squares = 0;
  double *S = state + (size_t)q->slot * c->state.t.cols + (size_t)head * a->Dk * a->Dv;
  for (uint32_t m = 0; m <= a->n; m++) {
    memcpy(keys + m * a->Dk, row + (m * a->H + key) * a->Dk, a->Dk * sizeof *keys);
    reference_key(keys + m * a->Dk, in);
  }
  const size_t mask = (a->fixed_mask ? 0 : (size_t)q->row * a->Hv) + head;
  if (a->r > 1) reference_mask(M, c->mask.v + mask * a->r * a->r, a->r, a->nonneg);
  if (a->gated) {
    double z = ba[(in->has_beta ? a->n * a->Hv : 0) + head] + c->dt_bias.v[head];
    decay = exp(-exp(c->A_log.v[head]) * log1p(exp(z)));
  }
  o += (size_t)q->row * a->Hv * a->Dv + head * a->Dv;
  for (uint32_t j = 0; j < a->Dv; j++) {
    for (uint32_t i = 0; i < a->Dk; i++) S[i * a->Dv + j] *= decay;
    for (uint32_t m = 0; m < a->n; m++) {
      double beta = (double)in->beta_scale;
      if (in->has_beta) beta /= 1 + exp(-ba[m * a->Hv + head]);
      const double *v = row + (1 + a->n) * a->H * a->Dk + (m * a->Hv + head) * a->Dv;
      reference_update(S + j, a, M, keys + (m + 1) * a->Dk, beta, v[j]);
    }
    o[j] = 0;
    for (uint32_t i = 0; i < a->Dk; i++) o[j] += (double)a->scale * keys[i] * S[i * a->Dv + j];
    squares += o[j] * o[j];
  }
  const double *gate = c->gate.v + (size_t)q->row * a->Hv * a->Dv + head * a->Dv;
  for (uint32_t j = 0; j < a->Dv; j++) {
    if (tensor_present(c->last.weight)) o[j] *= c->norm.v[j] / sqrt(squares / a->Dv + (double)c->last.eps);
    if (tensor_present(c->last.gate)) o[j] *= reference_activation(ACTIVATION_SILU, gate[j]);
  }
}

// Against float64; rows of no sequence and states of no slot keep their values.
static void check_step(const char *const what[], struct step_shape z) {
  struct step_case c = random_step(&z);
  const size_t row = c.o.t.cols, states = (size_t)c.state.t.rows * c.state.t.cols;
  double *o = zeros(c.rows * row), *state = zeros(states);
  memcpy(o, c.o.v, c.rows * row * sizeof *o);
  memcpy(state, c.state.v, states * sizeof *state);
  for (uint32_t i = 0; i < c.B; i++)
    for (uint32_t h = 0; h < z.Hv && c.sequences[i].T; h++) reference_head(o, state, &c, &c.sequences[i], h);
  list->form = DELTA_RECURRENT;
  list->longest = 1;
  profile_begin();
  begin();
  record_step(&c);
  run();
  assert_int_equal(profile_end("delta_step"), backend->replays);
  expect_close(what[0], read_values(&c.o), o, (c.rows > 3 ? 3 : c.rows) * row, STEP_CLOSE);
  expect_close(what[1], read_values(&c.state), state, states, STEP_CLOSE);
}

static const char *const delta[] = {"delta_step: o", "delta_step: state"};

static void delta_step_matches_over_awkward_shapes(void **state) {
  seed(61);
  const uint32_t sizes[][2] = {{49, 76}, {130, 512}, {1, 1}, {3, 130}, {16, 24}, {64, 64}, {128, 128}, {256, 33}};
  for (uint32_t i = 0; i < shapes(8, 2); i++)
    for (uint32_t option = 0; option < 4; option++) {
      struct step_shape z = {.H = 2, .Hv = option % 2 ? 2 : 4, .Dk = sizes[i][0], .Dv = sizes[i][1], .n = 1, .r = 1};
      z.tiled = option == 2, z.gated = option != 0, z.has_beta = option != 3, z.has_gate = option % 2,
      z.has_norm = i != 4;
      z.key_norm = KEY_NORM_L2;
      check_step(delta, z);
      tools_teardown(NULL);
    }
}

static void delta_step_takes_four_columns_at_a_time(void **state) {
  seed(65);
  const uint32_t sizes[][2] = {{76, 132}, {12, 8}, {132, 516}, {4, 4}, {64, 64}, {128, 128}, {96, 20}, {256, 36}};
  for (uint32_t i = 0; i < shapes(16, 6); i++) {
    struct step_shape z = {.H = 2, .Hv = i % 2 ? 2 : 4, .Dk = sizes[i / 2][0], .Dv = sizes[i / 2][1], .n = 1, .r = 1};
    z.gated = i % 3 != 0, z.has_beta = i % 8 != 3, z.has_gate = i / 2 % 2, z.has_norm = i % 2;
    z.key_norm = KEY_NORM_L2, z.fours = true, z.alone = i % 4 == 1, z.tiled = i % 4 == 2;
    check_step((const char *const[]){"delta_step by fours: o", "delta_step by fours: state"}, z);
    tools_teardown(NULL);
  }
}

static void delta_step_knows_every_activation_and_norm(void **state) {
  seed(62);
  for (int activation = ACTIVATION_IDENTITY; activation <= ACTIVATION_POWLU; activation++)
    for (int norm = KEY_NORM_NONE; norm <= KEY_NORM_L1; norm++)
      for (int fours = 0; fours < 2 && (norm == activation % 4 || all_shapes()); fours++) {
        struct step_shape z = {.H = 2, .Hv = 2, .Dk = 40, .Dv = 20, .n = 1, .r = 1, .fours = fours};
        z.gated = z.has_beta = z.has_gate = z.has_norm = true;
        z.activation = (enum activation)activation, z.key_norm = (enum key_norm)norm;
        check_step(delta, z);
        tools_teardown(NULL);
      }
}

static void delta_step_takes_several_steps_a_token(void **state) {
  seed(63);
  const uint32_t steps[] = {3, 2, 4};
  for (uint32_t i = 0; i < shapes(3, 1); i++) {
    const uint32_t n = steps[i];
    struct step_shape z = {.H = 2, .Hv = 4, .Dk = 36, .Dv = 20 * n, .n = n, .r = 1};
    z.gated = n % 2, z.has_beta = z.has_gate = z.has_norm = true, z.key_norm = KEY_NORM_L2;
    check_step((const char *const[]){"delta_step of products: o", "delta_step of products: state"}, z);
    tools_teardown(NULL);
  }
}

static void delta_step_takes_heads_in_heads(void **state) {
  seed(64);
  const uint32_t blocks[] = {5, 2, 4, 16};
  for (uint32_t i = 0; i < shapes(4, 1); i++)
    for (int nonneg = HH_NONNEG_GIVEN; nonneg <= HH_NONNEG_EXP; nonneg++) {
      struct step_shape z = {.H = 2, .Hv = 4, .Dk = blocks[i] * (3 + 2 * i), .Dv = 48, .n = 1, .r = blocks[i]};
      z.gated = z.has_beta = z.has_gate = z.has_norm = true, z.fixed_mask = nonneg == HH_NONNEG_GIVEN;
      z.key_norm = KEY_NORM_L2, z.nonneg = (enum hh_nonneg)nonneg;
      check_step((const char *const[]){"delta_step, Head-in-Head: o", "delta_step, Head-in-Head: state"}, z);
      tools_teardown(NULL);
    }
}

int ops_cases_step(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(delta_step_matches_over_awkward_shapes),
      OPS_CASE(delta_step_takes_four_columns_at_a_time),
      OPS_CASE(delta_step_knows_every_activation_and_norm),
      OPS_CASE(delta_step_takes_several_steps_a_token),
      OPS_CASE(delta_step_takes_heads_in_heads),
  };
  return cmocka_run_group_tests_name("delta step", cases, NULL, NULL);
}
