// Cases of the delta rule and its inputs.
#include "delta_case.h"
#include "ops_cases.h"
#include "vulkan_backend.h"

// What says whether chunks are taken, the scratch of a list, against the names of the kernels that ran.
static void delta_rule_runs_the_form_that_its_scratch_says(void **state) {
  seed(29);
  const uint32_t keys[] = {77, 200, 16, 128, 600}, T = 40;
  for (uint32_t k = 0; k < shapes(5, 2); k++)
    for (int f = 0; f < 2; f++) {
      struct delta_case c = delta_random_in(
          DTYPE_F32, 1, (struct delta_args){1, 1, keys[k], 21, 1, .scale = 0.2f, .gated = true}, &T, 1, 1);
      profile_begin();
      const bool said = delta_case_run(&c, c.s, 1, forms[f]), ran = profile_end("chunk");
      assert_int_equal(ran, said);
      assert_false(ran && forms[f] == DELTA_RECURRENT);
      tools_teardown(NULL);
    }
}

// ---------------------------------------------------------------- against float64

// A session measures for its longest slice and calls with shorter ones, even where the longest exceed a binding.
static void scratch_grows_with_the_tokens(void **state) {
  struct delta_rule delta = {.sequences.rows = 1, .a = {.H = 64, .Hv = 64, .Dk = 64, .Dv = 64, .n = 1}}, hh = delta;
  struct mamba2 mamba2 = {.sequences.rows = 1, .a = {.heads = 64, .P = 64, .N = 64, .groups = 1}};
  uint64_t before[3] = {1, 0, 1}, bytes[3], largest; // blocks (r > 1) go by chunks only on coopmats
  hh.a.r = 2;
  list->form = DELTA_CHUNK;
  for (uint32_t T = 1; T <= 1u << 22; T *= 2) {
    delta.o.rows = delta.qkv.rows = hh.o.rows = hh.qkv.rows = mamba2.y.rows = mamba2.xBC.rows = T;
    for (int i = 0; i < 3; i++) {
      begin();
      if (i < 2)
        op_delta_rule(list, i ? &hh : &delta);
      else
        op_mamba2(list, &mamba2);
      bytes[i] = backend->functions->list_bytes(backend, list, &largest);
      assert_true(bytes[i] >= before[i]);
    }
    memcpy(before, bytes, sizeof before);
  }
}

static void keys_that_exceed_shared_memory_are_refused_with_a_sentence(void **state) {
  seed(28);
  const uint32_t T = 2; // keys of 64 KiB
  struct delta_case c =
      delta_random_in(DTYPE_F32, 1, (struct delta_args){1, 1, 16384, 8, 1, .scale = 0.2f, .gated = false}, &T, 1, 1);
  const struct delta_rule rule = delta_rule_of(&c, c.s, 1);
  begin();
  op_delta_rule(list, &rule);
  deltaic_status status = try_run();
  if (status == DELTAIC_OK) return; // the CPU
  assert_int_equal(status, DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "kernel delta_rule needs"));
}

static void delta_rule_matches_over_awkward_shapes(void **state) {
  seed(30);
  const uint32_t sizes[][2] = {{77, 21}, {1, 1}, {3, 64}, {5, 7}, {64, 1}, {64, 130}, {76, 64}};
  for (uint32_t i = 0; i < shapes(7, 1); i++)
    for (uint32_t l = 0; l < LENGTHS; l++) {
      struct delta_args a = {.H = 2, .Hv = 2, .Dk = sizes[i][0], .Dv = sizes[i][1], .n = 1, .scale = 0.3f};
      uint32_t T[] = {lengths[l], 0, lengths[l] / 2 + 1};
      a.gated = (i + l) % 2;
      check_delta(OUTPUTS("delta_rule"), 1, a, T, l % 3 == 2 ? 3 : 1, l % 2 ? 2 : 1);
    }
}

static void delta_rule_shares_keys_among_grouped_value_heads(void **state) {
  seed(31);
  for (int l = 0; l < LENGTHS; l++) {
    uint32_t T[] = {lengths[l], lengths[LENGTHS - 1 - l]};
    struct delta_args a = {2, 6, 77, 21, 1, .scale = 0.25f, .gated = l % 2, .tiled = l / 2 % 2};
    check_delta(OUTPUTS("grouped value heads"), 1, a, T, 2, 1);
  }
}

static void delta_product_matches_for_several_steps(void **state) {
  seed(32);
  static const struct { uint32_t n, gap; } kinds[] = {{3, 4}, {2, 1}, {4, 1}, {5, 1}};
  for (uint32_t i = 0; i < shapes(4, 1); i++)
    for (int l = 0; l < LENGTHS; l++) {
      uint32_t T[] = {lengths[l], 0, 21};
      struct delta_args a = {2, 2, DELTA_DK, DELTA_DV, kinds[i].n, .scale = 0.25f, .gated = l % 2};
      check_delta(OUTPUTS("delta product"), kinds[i].gap, a, T, 1 + 2 * (l % 2), 2);
    }
}

// delta_rule_fours.comp, in workgroups that leave columns and rows over; devices in software do without it.
static void fours_match_for_each_way_to_load(void **state) {
  if (!backend->replays) return; // the CPU
  struct plan_rules *rules = &((struct vulkan_backend *)backend)->rules, usual = *rules;
  seed(33);
  for (uint32_t i = 0; i < (rules->step_width ? 2 : 0); i++) {
    const uint32_t T[] = {21, 0, 200};
    const struct delta_args a = {2, 4, 20, 20, 1 + i, .scale = 0.25f, .gated = true};
    rules->fours_most_rows = rules->fours_least_rows = 16;
    rules->fours_lanes = 2 * rules->step_width;
    rules->fours_ahead_rows = i ? 16 : 0;
    profile_begin();
    check_delta(OUTPUTS("delta rule by fours"), 4, a, T, 3, 1);
    assert_true(profile_end("delta_rule_fours"));
    check_digits_after_a_decay(OUTPUTS("fours after a decay"),
                               (struct delta_args){1, 1, 20, 20, 1, .scale = 1, .gated = true});
  }
  *rules = usual;
}

static void long_delta_rule_is_closer_to_the_truth_than_fla_on_cuda(void **state) {
  assert_int_equal(check_truths(OUTPUTS("fla fixtures"), "vectors/ops/delta.safetensors", false), 10);
}

// ---------------------------------------------------------------- inputs

static double reference_softplus(double z) { return z > 20 ? z : log1p(exp(z)); }

static void check_inputs(uint32_t T, struct delta_input_args a) {
  uint32_t n = a.heads * a.Dk, first = a.has_beta ? a.betas : 0, cols = first + (a.gated ? a.decays : 0);
  // Sums of signed numbers may cancel to nothing; positive input keeps SUM well posed.
  double *x = a.norm == KEY_NORM_SUM ? uniforms((size_t)T * n, 0.1, 3) : normals((size_t)T * n);
  struct array qk = activations(T, n, n + 2, x), ba = activations(T, cols ? cols : 1, DENSE, normals(T * (cols + 1)));
  struct array beta = activations(T, a.betas, DENSE, NULL), g = activations(T, a.decays, DENSE, NULL);
  struct array A_log = weights(DTYPE_F32, 1, a.decays, DENSE, uniforms(a.decays, -3, 3));
  struct array dt_bias = weights(DTYPE_F32, 1, a.decays, DENSE, uniforms(a.decays, -5, 30));
  RUN(op_delta_inputs(list, &(struct delta_inputs){.y = qk.t,
                                                   .beta = beta.t,
                                                   .g = a.gated ? g.t : ABSENT,
                                                   .x = qk.t,
                                                   .ba = cols ? ba.t : ABSENT,
                                                   .A_log = a.gated ? A_log.t : ABSENT,
                                                   .dt_bias = a.gated ? dt_bias.t : ABSENT,
                                                   .a = a}));
  double *want_beta = zeros(T * a.betas), *want_g = zeros(T * a.decays);
  for (uint32_t t = 0; t < T; t++) {
    for (uint32_t h = 0; h < a.heads; h++) reference_key(qk.v + (size_t)t * n + h * a.Dk, &a);
    for (uint32_t j = 0; j < a.betas; j++)
      want_beta[t * a.betas + j] = a.beta_scale * (a.has_beta ? 1 / (1 + exp(-ba.v[t * cols + j])) : 1);
    for (uint32_t j = 0; a.gated && j < a.decays; j++)
      want_g[t * a.decays + j] = -exp(A_log.v[j]) * reference_softplus(ba.v[t * cols + first + j] + dt_bias.v[j]);
  }
  expect_close("delta_inputs: q, k", read_values(&qk), qk.v, (size_t)T * n, 2e-6);
  expect_close("delta_inputs: beta", read_values(&beta), want_beta, T * a.betas, 1e-6);
  if (a.gated) expect_close("delta_inputs: g", read_values(&g), want_g, T * a.decays, 1e-6);
}

static void delta_inputs_match_for_every_option(void **state) {
  seed(41);
  const uint32_t sizes[] = {1, 3, 64, 76};
  for (int activation = ACTIVATION_IDENTITY; activation <= ACTIVATION_ELU1; activation++)
    for (int norm = KEY_NORM_NONE; norm <= KEY_NORM_L1; norm++)
      for (int option = 0; option < 4; option++) {
        struct delta_input_args a = {.heads = 5, .betas = 6, .decays = 3, .beta_scale = option % 2 ? 2 : 1};
        a.Dk = sizes[(activation + norm + option) % 4];
        a.activation = (enum activation)activation;
        a.norm = (enum key_norm)norm;
        a.has_beta = option < 2;
        a.gated = option % 2;
        // ReLU can make a head of zeros, whose SUM and L1 are not defined: more than one number is enough here.
        if (activation == ACTIVATION_RELU && norm >= KEY_NORM_SUM) a.Dk = 64;
        check_inputs(lengths[(activation + option) % LENGTHS], a);
        tools_teardown(NULL);
      }
}

static void heads_without_positive_numbers_stay_zero(void **state) {
  seed(42);
  const enum key_norm all[] = {KEY_NORM_L2, KEY_NORM_SUM, KEY_NORM_L1};
  for (int i = 0; i < 3; i++) {
    struct array qk = activations(2, 24, DENSE, uniforms(48, -2, -1)), beta = activations(2, 1, DENSE, NULL);
    const struct delta_inputs in = {
        .y = qk.t,
        .beta = beta.t,
        .x = qk.t,
        .a = {.heads = 3, .Dk = 8, .activation = ACTIVATION_RELU, .norm = all[i], .betas = 1, .beta_scale = 1}};
    RUN(op_delta_inputs(list, &in));
    double *got = read_values(&qk);
    for (int j = 0; j < 48; j++) assert_true(got[j] == 0);
  }
}

int ops_cases_delta(void) {
  const struct CMUnitTest cases[] = {
      OPS_CASE(delta_rule_runs_the_form_that_its_scratch_says),
      OPS_CASE(scratch_grows_with_the_tokens),
      OPS_CASE(keys_that_exceed_shared_memory_are_refused_with_a_sentence),
      OPS_CASE(delta_rule_matches_over_awkward_shapes),
      OPS_CASE(delta_rule_shares_keys_among_grouped_value_heads),
      OPS_CASE(delta_product_matches_for_several_steps),
      OPS_CASE(fours_match_for_each_way_to_load),
      OPS_CASE(long_delta_rule_is_closer_to_the_truth_than_fla_on_cuda),
      OPS_CASE(delta_inputs_match_for_every_option),
      OPS_CASE(heads_without_positive_numbers_stay_zero),
  };
  return cmocka_run_group_tests_name("delta rule", cases, NULL, NULL);
}
