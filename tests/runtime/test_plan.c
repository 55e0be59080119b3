// test_plan: the decisions for real devices, without one.
#include "attention_matrix.h"
#include "attention_step.h"
#include "caps_devices.h"
#include "delta_chunk_prepare.h"
#include "delta_chunk_scan.h"
#include "delta_matrix_prepare.h"
#include "delta_matrix_reach.h"
#include "delta_matrix_scan.h"
#include "delta_rule_fours.h"
#include "delta_step.h"
#include "hh_matrix_prepare.h"
#include "kernels.h"
#include "mamba2_matrix.h"
#include "matmul_narrow.h"
#include "matmul_tiles.h"
#include "matvec.h"
#include "matvec_dot.h"
#include "numbers.h"
#include "plan_attention.h"
#include "plan_delta.h"
#include "plan_mamba2.h"
#include "plan_matmul.h"
#include "plan_rule.h"
#include "reflect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct plan made(const struct device_caps *caps) {
  struct plan plan;
  plan_make(caps, &plan);
  if (!plan.usable) print_error("%s: %s\n", caps->name, plan.reason);
  assert_true(plan.usable);
  return plan;
}

// The same, good until eight more were asked for.
static const struct plan *kept(const struct device_caps *caps) {
  static struct plan plans[8];
  static int next;
  struct plan *plan = &plans[next++ % 8];
  *plan = made(caps);
  return plan;
}

static struct plan_products products_of(const struct device_caps *caps) {
  struct plan_products products;
  plan_products_make(caps, kept(caps), &products);
  return products;
}

static struct plan_rules rules_of(const struct device_caps *caps) {
  struct plan_rules rules;
  plan_rules_make(caps, kept(caps), &rules);
  return rules;
}

enum { WITH_MATRICES = 4 };
static const struct device_caps *with_matrices(int i, bool conversions) {
  static struct device_caps mesa26; // software's
  const struct device_caps *const devices[WITH_MATRICES] = {&caps_h200, &caps_geforce_bar, &caps_rdna3_radv, &mesa26};
  mesa26 = caps_lavapipe, mesa26.matrix_shapes = 1, mesa26.matrix_conversions = conversions;
  mesa26.matrix_shape[0].m = mesa26.matrix_shape[0].n = mesa26.matrix_shape[0].k = 8;
  return devices[i];
}

// What kernels on matrices are made for.
#define ON_MATRICES(kernel, lanes, plan)                                                                               \
  [kernel##_SPEC_LANES] = lanes, [kernel##_SPEC_SUBGROUP] = (plan)->matrix_lanes,                                      \
  [kernel##_SPEC_TILE_M] = (plan)->matrix_m, [kernel##_SPEC_TILE_N] = (plan)->matrix_n,                                \
  [kernel##_SPEC_TILE_K] = (plan)->matrix_k

static bool power_of_two(uint64_t n) { return n && !(n & (n - 1)); }

static uint32_t flags_of(const struct device_caps *caps, int type) {
  assert_in_range(type, 0, caps->memory_types - 1);
  return caps->memory_type[type].flags;
}

static void refused_for(struct device_caps caps, const char *words) {
  struct plan plan;
  plan_make(&caps, &plan);
  assert_false(plan.usable);
  assert_non_null(strstr(plan.reason, words));
  assert_int_equal(plan.score, 0);
}

// What matmul.comp expects.
static void tile_is_possible(const struct plan_tile *t) {
  assert_int_equal(t->tile_t % 32 + t->tile_n % 32 + t->sub_t % 4 + t->sub_n % 4, 0);
  assert_int_equal(t->tile_t % (4 * t->sub_t) + t->tile_n % (4 * t->sub_n), 0);
  assert_true(power_of_two(t->tile_k) && power_of_two(t->slices) && t->tile_k >= 8);
  assert_int_equal(t->tile_k % (4 * t->slices * t->unroll), 0);
}

static void workgroups_fit_every_device(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct device_caps *caps = caps_usable[i];
    struct plan p = made(caps);
    const struct plan_products products = products_of(caps);
    const struct plan_rules rules = rules_of(caps);
    uint32_t lanes[] = {p.lanes,
                        p.block_lanes,
                        products.matvec_lanes,
                        rules.chunk_lanes,
                        products.matvec_most_lanes,
                        plan_matmul_lanes(&products.tile),
                        plan_matmul_lanes(&products.some),
                        plan_matmul_lanes(&products.few)};
    for (size_t j = 0; j < sizeof lanes / sizeof *lanes; j++) {
      assert_true(power_of_two(lanes[j]));
      assert_in_range(lanes[j], 1, caps->max_invocations);
      assert_in_range(lanes[j], 1, caps->max_workgroup[0]);
    }
    tile_is_possible(&products.tile);
    tile_is_possible(&products.some);
    tile_is_possible(&products.few);
    assert_true(power_of_two(rules.chunk) && rules.chunk >= 16);
    assert_true(rules.chunk_columns && rules.rule_columns && products.matvec_below && rules.chunk_from);
  }
}

static void shared_memory_fits_every_device(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct plan_products products = products_of(caps_usable[i]);
    const struct plan_rules rules = rules_of(caps_usable[i]);
    assert_in_range(plan_matmul_shared_bytes(&products.tile), 1, caps_usable[i]->shared_bytes);
    assert_in_range(plan_matmul_shared_bytes(&products.some), 1, caps_usable[i]->shared_bytes);
    assert_in_range(plan_matmul_shared_bytes(&products.few), 1, caps_usable[i]->shared_bytes);
    assert_in_range(plan_chunk_key(&rules), 64, 4096); // heads of 64 take chunks of the planned length everywhere
  }
}

// Shared memory of a kernel's module with these constants.
static uint64_t shared_of(enum kernel_id id, const uint32_t *spec) {
  struct reflected_size size;
  uint64_t count;
  uint32_t *words;
  assert_int_equal(shader_unpack(&kernels[id], &words, &count), DELTAIC_OK);
  assert_int_equal(reflect_size(kernels[id].name, words, count, spec, kernel_specs[id], &size), DELTAIC_OK);
  free(words);
  return size.shared_bytes;
}

static void chunk_kernels_take_the_shared_memory_that_the_plan_says(void **state) {
  const uint32_t keys[] = {1, 49, 64, 76, 96, 128, 192, 256, 4096}, steps[] = {1, 2, 3, 8};
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct plan_rules rules = rules_of(caps_usable[i]);
    struct plan_delta d;
    assert_false(plan_chunk_sizes(&rules, 16, 8, rules.chunk + 1, 1, &d)); // a token's steps are within a chunk
    for (int k = 0; k < 9; k++)
      for (int n = 0; n < 4; n++) {
        bool fits = plan_chunk_sizes(&rules, keys[k], 128, steps[n], n % 2 ? 1 : 1000, &d);
        if (steps[n] == 1) assert_int_equal(fits && d.C == rules.chunk, keys[k] <= plan_chunk_key(&rules));
        if (keys[k] <= 64) assert_true(fits);
        if (keys[k] == 4096) assert_false(fits);
        if (!fits) continue;
        const uint32_t prepare[DELTA_CHUNK_PREPARE_SPECS] = {
            [DELTA_CHUNK_PREPARE_SPEC_LANES] = 32,    [DELTA_CHUNK_PREPARE_SPEC_C] = d.C,
            [DELTA_CHUNK_PREPARE_SPEC_DK] = keys[k],  [DELTA_CHUNK_PREPARE_SPEC_SUB] = d.sub,
            [DELTA_CHUNK_PREPARE_SPEC_SLAB] = d.slab, [DELTA_CHUNK_PREPARE_SPEC_N] = steps[n]};
        const uint32_t scan[DELTA_CHUNK_SCAN_SPECS] = {
            [DELTA_CHUNK_SCAN_SPEC_LANES] = 32,      [DELTA_CHUNK_SCAN_SPEC_C] = d.C,
            [DELTA_CHUNK_SCAN_SPEC_DK] = keys[k],    [DELTA_CHUNK_SCAN_SPEC_COLUMNS] = d.columns,
            [DELTA_CHUNK_SCAN_SPEC_SUB_T] = d.sub_t, [DELTA_CHUNK_SCAN_SPEC_SUB_C] = d.sub_c,
            [DELTA_CHUNK_SCAN_SPEC_SUB_K] = d.sub_k, [DELTA_CHUNK_SCAN_SPEC_GROUPS] = d.groups,
            [DELTA_CHUNK_SCAN_SPEC_N] = steps[n]};
        assert_int_equal(shared_of(KERNEL_delta_chunk_prepare, prepare), plan_prepare_shared_bytes(&d));
        assert_int_equal(shared_of(KERNEL_delta_chunk_scan, scan), plan_scan_shared_bytes(&d, keys[k], steps[n]));
        assert_in_range(plan_prepare_shared_bytes(&d), 1, caps_usable[i]->shared_bytes);
        assert_in_range(plan_scan_shared_bytes(&d, keys[k], steps[n]), 1, caps_usable[i]->shared_bytes);
      }
  }
}

static void the_step_kernel_takes_the_shared_memory_that_the_plan_says(void **state) {
  const uint32_t keys[] = {16, 64, 80, 128, 256, 32768}, values[] = {1, 64, 128, 512}, steps[] = {1, 2, 4};
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct plan_rules rules = rules_of(caps_usable[i]);
    for (int k = 0; k < 6; k++)
      for (int j = 0; j < 12; j++)
        for (uint32_t r = 1; r <= 16; r *= 2) {
          struct plan_step s;
          const uint32_t n = steps[j % 3], Dk = keys[k], Dv = values[j / 3];
          bool fits = plan_step(&rules, Dk, Dv, n, r, &s);
          if (Dk <= 128 && r <= 4) assert_true(fits);
          if (Dk == 32768) assert_false(fits); // left to the ops that the kernel stands for
          if (!fits) continue;
          const uint32_t lanes = s.columns * s.sub * r;
          const uint32_t spec[DELTA_STEP_SPECS] = {
              [DELTA_STEP_SPEC_LANES] = lanes, [DELTA_STEP_SPEC_D] = Dk / r,  [DELTA_STEP_SPEC_R] = r,
              [DELTA_STEP_SPEC_N] = n,         [DELTA_STEP_SPEC_SUB] = s.sub, [DELTA_STEP_SPEC_COLUMNS] = s.columns};
          assert_int_equal(shared_of(KERNEL_delta_step_f32, spec), plan_step_shared_bytes(&s, Dk, n, r));
          assert_in_range(plan_step_shared_bytes(&s, Dk, n, r), 1, caps_usable[i]->shared_bytes);
          assert_in_range(lanes, 1, caps_usable[i]->max_invocations);
          assert_true(!s.whole || s.columns >= Dv);
        }
  }
}

static void the_rule_by_fours_fits_the_device(void **state) {
  const uint32_t keys[] = {4, 64, 76, 96, 128, 256, 512, 4096}, values[] = {4, 20, 64, 128, 512}, steps[] = {1, 3, 40};
  struct plan_rule_fours f;
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct device_caps *caps = caps_usable[i];
    const struct plan_rules rules = rules_of(caps);
    const uint32_t width = rules.step_width;
    for (int j = 0; j < 8 * 5 * 3; j++) {
      const uint32_t Dk = keys[j / 15], Dv = values[j / 3 % 5], n = steps[j % 3], heads = j % 2 ? 16 : 512;
      const bool fits = plan_rule_fours(&rules, Dk, Dv, n, heads, &f);
      if (!rules.fours_most_rows || !width || Dk == 4096) assert_false(fits);
      if (!fits) continue;
      const uint32_t rows = (Dk / 4 - 1) / (width / f.groups) * 4 + 4;
      assert_true(4 * f.groups <= width && f.lanes % width == 0 && f.lanes >= f.block * n);
      assert_in_range(f.lanes, 1, caps->max_invocations);
      assert_in_range(rows, 4, rules.fours_most_rows);
      const uint32_t spec[DELTA_RULE_FOURS_SPECS] = {
          [DELTA_RULE_FOURS_SPEC_LANES] = f.lanes, [DELTA_RULE_FOURS_SPEC_DK] = Dk,
          [DELTA_RULE_FOURS_SPEC_DV] = Dv,         [DELTA_RULE_FOURS_SPEC_N] = n,
          [DELTA_RULE_FOURS_SPEC_WIDTH] = width,   [DELTA_RULE_FOURS_SPEC_GROUPS] = f.groups,
          [DELTA_RULE_FOURS_SPEC_BLOCK] = f.block};
      assert_int_equal(shared_of(KERNEL_delta_rule_fours, spec), plan_rule_fours_shared_bytes(&rules, &f, Dk, n));
      assert_in_range(plan_rule_fours_shared_bytes(&rules, &f, Dk, n), 1, caps->shared_bytes);
    }
    assert_false(plan_rule_fours(&rules, 49, 128, 1, 16, &f) || plan_rule_fours(&rules, 128, 130, 1, 16, &f));
  }
}

// What was measured on an H200 without matrix units, T 2,048: chunks, or the rows of a lane where token by token is
// faster.
static void many_heads_go_token_by_token(void **state) {
  static const struct {
    uint32_t heads, Dk, Dv, n, rows; // rows 0: chunks
  } measured[] = {{16, 128, 128, 1, 0},   {64, 128, 128, 1, 16}, {512, 128, 128, 1, 32}, {8, 256, 256, 1, 0},
                  {16, 64, 64, 1, 0},     {256, 64, 64, 1, 16},  {16, 128, 128, 2, 0},   {16, 128, 128, 3, 8},
                  {512, 128, 128, 2, 32}, {512, 128, 128, 3, 32}};
  const struct plan_rules rules = rules_of(&caps_h200);
  struct plan_delta d;
  struct plan_rule_fours f;
  for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
    const uint32_t Dk = measured[i].Dk, Dv = measured[i].Dv, n = measured[i].n, heads = measured[i].heads;
    assert_true(plan_chunk_sizes(&rules, Dk, Dv, n, heads, &d) && d.C == (Dk == 256 ? 16 : rules.chunk));
    assert_int_equal(d.columns, heads * Dv / 16 <= 132 ? 8 : 16);
    assert_int_equal(plan_chunks_pay(&rules, &d, Dk, Dv, n, heads), !measured[i].rows);
    assert_true(plan_rule_fours(&rules, Dk, Dv, n, heads, &f));
    const uint32_t rows = Dk / (rules.step_width / f.groups);
    if (measured[i].rows) assert_int_equal(rows, measured[i].rows);
    assert_int_equal(f.ahead, rows <= 16);
  }
  assert_true(plan_rule_fours(&rules, 256, 256, 1, 8, &f) && f.groups == 1);
  assert_true(plan_rule_fours(&rules, 256, 256, 1, 64, &f) && f.groups == 4);
  assert_true(plan_chunk_sizes(&rules, 49, 128, 1, 61, &d));
  assert_true(plan_chunks_pay(&rules, &d, 49, 128, 1, 61)); // by columns, which is slower than by fours
  assert_false(plan_chunks_pay(&rules, &d, 49, 128, 1, 62));
  struct device_caps small = caps_h200;
  small.shared_bytes = 32 << 10;
  const struct plan_rules least = rules_of(&small); // shorter chunks are not measured there
  assert_true(plan_chunk_sizes(&least, 128, 128, 1, 1, &d) && d.C < least.chunk);
  assert_false(plan_chunks_pay(&least, &d, 128, 128, 1, 1));
  const struct plan_rules software = rules_of(&caps_lavapipe);
  assert_true(plan_chunk_sizes(&software, 64, 64, 1, 65536, &d) && plan_chunks_pay(&software, &d, 64, 64, 1, 65536));
}

static void steps_by_fours_fit_the_device(void **state) {
  const uint32_t keys[] = {4, 64, 76, 96, 128, 256, 512, 4096}, values[] = {4, 20, 64, 128, 512, 2048};
  struct plan_step_fours s;
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct device_caps *caps = caps_usable[i];
    const struct plan_rules rules = rules_of(caps);
    const uint32_t width = rules.step_width;
    if (width) assert_true(caps->full_subgroups && caps->subgroup_shuffle && width <= 128 && !(width & (width - 1)));
    for (int j = 0; j < 8 * 6 * 2; j++) {
      const uint32_t Dk = keys[j / 12], Dv = values[j / 2 % 6];
      if (!plan_step_fours(&rules, Dk, Dv, j % 3 ? 16 : 512, j % 2, &s)) continue;
      assert_true(width && s.groups <= width && s.lanes % width == 0);
      assert_in_range(s.lanes, 1, caps->max_invocations);
      assert_in_range((Dk / 4 - 1) / (width / s.groups) * 4 + 4, 4, rules.step_most_rows);
      if (s.whole) assert_true(j % 2 && s.lanes / width * 4 * s.groups >= Dv);
    }
    assert_false(plan_step_fours(&rules, 49, 128, 16, false, &s) || plan_step_fours(&rules, 128, 130, 16, false, &s));
    assert_false(plan_step_fours(&rules, 4096, 128, 16, false, &s));
  }
  const struct plan_rules h200_rules = rules_of(&caps_h200);
  assert_true(plan_step_fours(&h200_rules, 128, 128, 512, false, &s) && s.groups == 4 && s.lanes == 64);
  assert_true(plan_step_fours(&h200_rules, 128, 128, 16, true, &s) && s.groups == 4 && s.lanes == 256 && s.whole);
  assert_true(plan_step_fours(&h200_rules, 64, 64, 16, true, &s) && s.groups == 8 && s.lanes == 64 && s.whole);
  assert_true(plan_step_fours(&h200_rules, 64, 64, 512, true, &s) && s.groups == 16 && s.lanes == 32 && s.whole);
  assert_true(plan_step_fours(&h200_rules, 256, 256, 8, true, &s) && !s.whole);
}

static void attention_takes_the_shared_memory_that_the_plan_says(void **state) {
  const uint32_t sizes[] = {1, 49, 64, 128, 256, 512}, groups[] = {1, 2, 6, 8, 11, 64};
  for (int i = 0; i < CAPS_USABLE; i++) {
    struct plan p = made(caps_usable[i]);
    for (int d = 0; d < 6; d++)
      for (int g = 0; g < 6; g++)
        for (uint32_t B = 1; B <= 256; B *= 16) {
          struct plan_attention_step s;
          plan_attention_step(&p, 4 * groups[g], 4, sizes[d], B, 100000, &s);
          const uint32_t spec[ATTENTION_STEP_SPECS] = {[ATTENTION_STEP_SPEC_LANES] = s.lanes,
                                                       [ATTENTION_STEP_SPEC_D] = sizes[d],
                                                       [ATTENTION_STEP_SPEC_QUERIES] = s.queries};
          assert_int_equal(shared_of(KERNEL_attention_step_f32, spec), plan_attention_step_bytes(&s, sizes[d]));
          assert_in_range(plan_attention_step_bytes(&s, sizes[d]), 1, caps_usable[i]->shared_bytes);
          assert_in_range(s.lanes, 1, caps_usable[i]->max_invocations);
          assert_true(s.queries * s.across >= 4 * groups[g] && s.across % 4 == 0);
          assert_in_range(s.parts, 1, s.lanes);
          assert_int_equal(s.batch, p.software ? 1 : 8);
          assert_true(s.parts == 1 || (s.parts - 1) * s.across * B < (p.software ? 2 : 4) * p.processors);
          assert_true(s.single <= s.lanes && s.single <= s.queries * s.parts &&
                      s.single * s.across * B <= p.processors);
        }
  }
  // H200: a cache of 8 heads is read by four workgroups a processor, a short one by as many as it has runs.
  struct plan p = made(&caps_h200);
  struct plan_attention_step s;
  plan_attention_step(&p, 8, 8, 128, 1, 100000, &s);
  assert_true(s.queries == 1 && s.across == 8 && s.parts == 66);
  plan_attention_step(&p, 32, 8, 128, 1, 500, &s);
  assert_true(s.queries == 2 && s.across == 16 && s.parts == 8 && s.single == 8);
  plan_attention_step(&p, 16, 16, 128, 64, 100000, &s);
  assert_true(s.parts == 1);
}

static void matvec_fits_every_device(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct plan_products products = products_of(caps_usable[i]);
    for (uint32_t tokens = 1; tokens <= 8; tokens *= 2)
      for (uint32_t K = 8; K < 100000; K = K == 5832 ? 2048 : K == 2048 ? 52488 : K * 9)
        for (uint32_t option = 0; option < 8; option++) {
          const bool norm = option % 2, gated = option / 2 % 2;
          struct plan_matvec m = plan_matvec(&products, K, option < 4 ? 8192 : 64, tokens, norm, gated);
          const uint32_t spec[MATVEC_SPECS] = {
              [MATVEC_SPEC_LANES] = m.lanes * m.sets,    [MATVEC_SPEC_ROWS] = m.rows, [MATVEC_SPEC_TOKENS] = tokens,
              [MATVEC_SPEC_UNROLL] = m.unroll,           [MATVEC_SPEC_NORM] = norm,   [MATVEC_SPEC_GATED] = gated,
              [MATVEC_SPEC_LENGTH] = m.sets > 1 ? K : 0, [MATVEC_SPEC_SETS] = m.sets};
          assert_in_range(shared_of(KERNEL_matvec_bf16, spec), 1, caps_usable[i]->shared_bytes);
          assert_in_range(m.lanes * m.sets, 1, caps_usable[i]->max_invocations);
          assert_true(m.rows && m.unroll);
          assert_true(m.sets == 1 || (K % (8 * m.lanes) == 0 && K >= 8 * m.lanes * m.unroll)); // all have as many
        }
  }
  const struct plan_products h200_products = products_of(&caps_h200);
  struct plan_matvec o = plan_matvec(&h200_products, 2048, 8192, 1, false, false),
                     gate = plan_matvec(&h200_products, 2048, 8192, 1, true, true),
                     wide = plan_matvec(&h200_products, 2048, 8192, 1, true, false),
                     router = plan_matvec(&h200_products, 2048, 257, 1, true, false),
                     lora_A = plan_matvec(&h200_products, 4096, 16, 1, false, false),
                     lora_B = plan_matvec(&h200_products, 16, 8192, 1, false, false),
                     lora_gate = plan_matvec(&h200_products, 32, 12288, 1, false, true),
                     few_B = plan_matvec(&h200_products, 16, 1024, 1, false, false);
  assert_true(o.lanes == 128 && o.unroll == 2 && o.sets == 1 && gate.lanes == 32 && gate.unroll == 2 &&
              gate.sets == 16);
  assert_true(wide.lanes == 32 && router.lanes == 128); // few rows are shared by more invocations
  assert_true(lora_A.lanes == 128 && lora_A.rows == 1 && lora_B.lanes == 32 && lora_B.rows == 16 && lora_B.unroll == 1);
  assert_true(lora_gate.rows == 8 && few_B.rows == 4);
}

// Whatever is asked for; teams are whole subgroups and hold all of K.
static void sums_of_integers_fit_every_device(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    struct device_caps caps = *caps_usable[i];
    assert_false(products_of(&caps).dots && !caps.integer_dot_fast);
    caps.integer_dot_fast = true;
    const struct plan_products products = products_of(&caps);
    const uint32_t width = products.device->subgroup_width;
    for (uint32_t K = 32; K < 100000; K *= 3)
      for (uint32_t N = 1; N < 1000000; N *= 10)
        for (uint32_t gated = 0; gated < 2; gated++) {
          struct plan_dot m;
          if (!plan_dot(&products, K, N * (1 + gated), gated, products.device->processors, &m)) continue;
          const uint32_t spec[MATVEC_DOT_SPECS] = {
              [MATVEC_DOT_SPEC_LANES] = m.lanes, [MATVEC_DOT_SPEC_K] = K,
              [MATVEC_DOT_SPEC_TEAMS] = m.teams, [MATVEC_DOT_SPEC_ROWS] = m.rows,
              [MATVEC_DOT_SPEC_AHEAD] = m.ahead, [MATVEC_DOT_SPEC_NORM] = 1,
              [MATVEC_DOT_SPEC_GATED] = gated,   [MATVEC_DOT_SPEC_FORMAT] = DTYPE_TILED_Q8_0,
              [MATVEC_DOT_SPEC_WIDTH] = width};
          assert_in_range(shared_of(KERNEL_matvec_dot_blocks, spec), 1, caps.shared_bytes);
          assert_in_range(m.lanes, width, caps.max_invocations);
          assert_true(width >= 8 && m.lanes % (m.teams * width) == 0 && m.rows && m.ahead);
          assert_true(4ull * m.lanes / m.teams >= K / 32);
        }
  }
  struct device_caps caps = caps_h200;
  struct plan_dot m;
  caps.integer_dot_fast = true;
  const struct plan_products h200 = products_of(&caps);
  // One workgroup for each of 132 processors; a head has several.
  assert_true(plan_dot(&h200, 4096, 24576, true, 132, &m) && m.lanes == 1024 && m.teams == 8 && m.rows == 12 &&
              m.ahead == 2);
  assert_true(plan_dot(&h200, 17408, 5120, false, 132, &m) && m.lanes == 544 && m.teams == 1 && m.rows == 39);
  assert_true(plan_dot(&h200, 4096, 248320, false, 132, &m) && m.teams == 8 && m.rows == 59);
  assert_true(plan_dot(&h200, 1024, 1024, false, 132, &m) && m.rows * m.teams <= 8); // no processor idles
  assert_false(plan_dot(&h200, 1000, 1024, false, 132, &m));
  // Parts of one matrix that share the processors.
  const uint32_t parts[][2] = {{5120, 63}, {1024, 18}, {4096, 50}};
  for (int i = 0; i < 3; i++) {
    assert_true(plan_dot(&h200, 4096, parts[i][0], false, parts[i][1], &m) && m.teams == 8);
    assert_in_range(divide_up(parts[i][0], m.rows * m.teams), parts[i][1] - parts[i][1] / 8, parts[i][1]);
  }
}

// n steps a token, or d->r blocks.
static void check_matrix_shape(const struct plan *p, const struct device_caps *caps, const struct plan_delta_matrix *d,
                               uint32_t Dk, uint32_t Dv, uint32_t n) {
  const bool edges = Dk != d->Dk || Dv % (d->computers * d->tiles * p->matrix_n) != 0;
  const uint32_t unknowns = n * d->r, queries = (d->C / unknowns + 15) / 16 * 16;
  const uint32_t blocks[HH_MATRIX_PREPARE_SPECS] = {ON_MATRICES(HH_MATRIX_PREPARE, d->prepare_lanes, p),
                                                    [HH_MATRIX_PREPARE_SPEC_C] = d->C,
                                                    [HH_MATRIX_PREPARE_SPEC_DK] = d->Dk,
                                                    [HH_MATRIX_PREPARE_SPEC_R] = d->r,
                                                    [HH_MATRIX_PREPARE_SPEC_D] = d->block,
                                                    [HH_MATRIX_PREPARE_SPEC_SLAB] = d->slab,
                                                    [HH_MATRIX_PREPARE_SPEC_UNIT] = 8,
                                                    [HH_MATRIX_PREPARE_SPEC_NONNEG] = HH_EXP};
  const uint32_t prepare[DELTA_MATRIX_PREPARE_SPECS] = {ON_MATRICES(DELTA_MATRIX_PREPARE, d->prepare_lanes, p),
                                                        [DELTA_MATRIX_PREPARE_SPEC_C] = d->C,
                                                        [DELTA_MATRIX_PREPARE_SPEC_DK] = d->Dk,
                                                        [DELTA_MATRIX_PREPARE_SPEC_N] = n,
                                                        [DELTA_MATRIX_PREPARE_SPEC_SLAB] = d->slab,
                                                        [DELTA_MATRIX_PREPARE_SPEC_UNIT] = 8};
  const uint32_t scan[DELTA_MATRIX_SCAN_SPECS] = {
      ON_MATRICES(DELTA_MATRIX_SCAN, (d->computers + d->stagers) * p->matrix_lanes, p),
      [DELTA_MATRIX_SCAN_SPEC_C] = d->C,
      [DELTA_MATRIX_SCAN_SPEC_DK] = d->Dk,
      [DELTA_MATRIX_SCAN_SPEC_N] = n,
      [DELTA_MATRIX_SCAN_SPEC_COMPUTERS] = d->computers,
      [DELTA_MATRIX_SCAN_SPEC_TILES] = d->tiles,
      [DELTA_MATRIX_SCAN_SPEC_STAGERS] = d->stagers,
      [DELTA_MATRIX_SCAN_SPEC_EDGES] = edges ? DELTA_MATRIX_EDGE_ROWS : 0,
      [DELTA_MATRIX_SCAN_SPEC_R] = d->r,
      [DELTA_MATRIX_SCAN_SPEC_D] = d->block,
      [DELTA_MATRIX_SCAN_SPEC_AHEAD] = d->ahead};
  enum kernel_id id = d->conversions ? KERNEL_delta_matrix_scan_f16 : KERNEL_delta_matrix_scan_khr_f16;
  if (kernel_built(KERNEL_delta_matrix_prepare_f16) && kernel_built(id)) {
    assert_int_equal(d->r > 1 ? shared_of(KERNEL_hh_matrix_prepare_f16, blocks)
                              : shared_of(KERNEL_delta_matrix_prepare_f16, prepare),
                     plan_delta_matrix_prepare_bytes(d, unknowns));
    assert_int_equal(shared_of(id, scan), plan_delta_matrix_scan_bytes(p, d, unknowns, edges));
  }
  assert_in_range(plan_delta_matrix_prepare_bytes(d, unknowns), 1, caps->shared_bytes);
  assert_in_range(plan_delta_matrix_scan_bytes(p, d, unknowns, edges), 1, caps->shared_bytes);
  assert_in_range(d->prepare_lanes, 1, caps->max_invocations);
  assert_in_range((d->computers + d->stagers) * p->matrix_lanes, 1, caps->max_invocations);
  assert_true(d->C >= unknowns && d->C % 16 == 0 && queries % p->matrix_m == 0);
  if (d->segments == 1) return;
  const uint32_t reach[DELTA_MATRIX_REACH_SPECS] = {
      ON_MATRICES(DELTA_MATRIX_REACH, d->computers * p->matrix_lanes, p), [DELTA_MATRIX_REACH_SPEC_DK] = d->Dk,
      [DELTA_MATRIX_REACH_SPEC_COMPUTERS] = d->computers, [DELTA_MATRIX_REACH_SPEC_TILES] = d->tiles};
  if (kernel_built(KERNEL_delta_matrix_reach_f16))
    assert_int_equal(shared_of(KERNEL_delta_matrix_reach_f16, reach), plan_delta_matrix_reach_bytes(p, d));
  assert_in_range(plan_delta_matrix_join_bytes(p, d), 1, caps->shared_bytes);
  assert_in_range(plan_delta_matrix_reach_bytes(p, d), 1, caps->shared_bytes);
}

static void the_delta_rule_on_matrices_fits_its_device(void **state) {
  const uint32_t keys[] = {1, 49, 64, 76, 128, 256}, steps[] = {1, 2, 3, 8}, heads[] = {1, 16, 512};
  for (int i = 0; i < WITH_MATRICES; i++)
    for (int k = 0; k < 6; k++)
      for (int n = 0; n < 4; n++)
        for (int h = 0; h < 3; h++)
          for (uint32_t T = 64; T <= 65536; T *= 32) {
            const struct device_caps *caps = with_matrices(i, true);
            struct plan p = made(caps);
            struct plan_delta_matrix d;
            if (plan_delta_matrix(&p, keys[k], 128, steps[n], 1, heads[h], T, &d))
              check_matrix_shape(&p, caps, &d, keys[k], 128, steps[n]);
            else
              assert_true(keys[k] > 128 || (caps != &caps_h200 && caps != &caps_rdna3_radv && keys[k] > 64));
            for (uint32_t r = 2; n == 0 && r <= 16 && keys[k] % r == 0; r *= 2)
              if (plan_delta_matrix(&p, keys[k], 128, 1, r, heads[h], T, &d))
                check_matrix_shape(&p, caps, &d, keys[k], 128, 1);
              else
                assert_true(caps != &caps_h200 || keys[k] > 128);
          }
}

// H200: a whole head in a workgroup when heads are many, narrow columns for few, segments for few and long.
static void the_delta_rule_on_matrices_follows_the_shape(void **state) {
  struct plan p = made(&caps_h200), none = made(&caps_rdna2_radv_bar);
  struct plan_delta_matrix d;
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 512, 2048, &d));
  assert_true(d.conversions && d.computers * d.tiles * p.matrix_n == 128 && !d.stagers && d.segments == 1);
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 16, 1024, &d));
  assert_true(d.computers * d.tiles == 1 && d.stagers && d.C == 32 && d.segments == 1);
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 64, 2048, &d) && d.computers == 4 && d.tiles == 1 && !d.stagers);
  assert_true(plan_delta_matrix(&p, 64, 64, 1, 1, 256, 2048, &d) && d.computers == 4);
  assert_true(plan_delta_matrix(&p, 64, 64, 1, 1, 1024, 2048, &d) && d.computers == 2);
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 16, 2048, &d) && d.segments == 4);
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 16, 4096, &d) && d.segments == 8);
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 16, 32768, &d));
  assert_true(d.segments == 8 && d.computers * d.tiles * p.matrix_n == 128);
  assert_true(d.ahead == 1);
  assert_true(plan_delta_matrix(&p, 64, 64, 1, 1, 256, 2048, &d) && d.ahead == 2);
  assert_true(plan_delta_matrix(&p, 96, 128, 1, 1, 512, 2048, &d) && d.ahead == 0);
  assert_true(plan_delta_matrix(&p, 80, 128, 1, 1, 512, 2048, &d) && d.ahead == 0);
  assert_true(plan_delta_matrix(&p, 80, 128, 1, 1, 128, 2048, &d) && d.tiles == 1 && d.ahead == 2);
  assert_true(plan_delta_matrix(&p, 49, 128, 1, 1, 512, 2048, &d) && d.Dk == 64 && d.ahead == 0);
  assert_true(plan_delta_matrix(&p, 49, 128, 1, 1, 16, 8192, &d) && d.segments > 1 && d.ahead == 2);
  assert_true(plan_delta_matrix(&p, 24, 128, 1, 1, 512, 2048, &d) && d.Dk == 32 && d.ahead == 2);
  assert_true(plan_delta_matrix(&p, 256, 256, 1, 1, 64, 2048, &d) && d.ahead == 1);
  assert_true(plan_delta_matrix(&p, 128, 128, 1, 1, 512, 2048, &d) && d.ahead == 0);
  assert_true(plan_delta_matrix(&p, 128, 128, 3, 1, 512, 2048, &d) && d.C == 16 && d.ahead == 0);
  assert_false(plan_delta_matrix(&none, 128, 128, 1, 1, 512, 2048, &d));
}

// As the dispatches decide for a long text of few heads: on matrices, in scalar chunks ('c'; shorter ones: 's'), or
// recurrently.
static char delta_form(const struct plan *p, const struct plan_rules *rules, uint32_t Dk, uint32_t Dv, uint32_t n,
                       uint32_t r, uint32_t heads) {
  struct plan_delta_matrix m;
  struct plan_delta d;
  if (plan_delta_matrix(p, Dk, Dv, n, r, heads, 2048, &m)) return 'm';
  if (r > 1) return 'r';
  if (!plan_chunk_sizes(rules, Dk, Dv, n, heads, &d)) return 'r';
  return d.C >= rules->chunk ? 'c' : 's';
}

// The table of docs/mixers.md, "Where matrices are not used"; Xe2 as Arc would report it.
static void cards_with_few_registers_do_what_the_table_says(void **state) {
  struct device_caps xe2 = caps_arc_linux;
  xe2.subgroup_min = 16, xe2.matrix_shape[0].n = 16;
  const struct device_caps *const devices[] = {&caps_rdna3_radv, &xe2, &caps_arc_linux, &caps_h200};
  static const struct {
    uint32_t Dk, Dv, n, r;
    const char *forms; // of each device
  } rows[] = {{64, 64, 1, 1, "mmcm"},   {96, 128, 1, 1, "mccm"},  {128, 128, 1, 1, "mccm"}, {128, 32, 1, 1, "mccm"},
              {120, 128, 1, 1, "mccm"}, {120, 32, 1, 1, "cccm"},  {76, 32, 2, 1, "mccm"},   {192, 128, 1, 1, "cccm"},
              {256, 256, 1, 1, "sssm"}, {256, 512, 1, 1, "sssm"}, {216, 128, 1, 1, "cccm"}, {217, 128, 1, 1, "sssm"},
              {272, 128, 2, 1, "cccs"}, {288, 128, 2, 1, "ssss"}, {64, 64, 2, 1, "mmcm"},   {128, 128, 2, 1, "mccm"},
              {128, 64, 2, 1, "mccm"},  {128, 32, 2, 1, "cccm"},  {128, 128, 3, 1, "mccm"}, {128, 128, 8, 1, "mccm"},
              {64, 64, 9, 1, "cccm"},   {128, 128, 9, 1, "cccm"}, {64, 64, 1, 2, "mmrm"},   {112, 112, 1, 2, "mrrm"},
              {128, 128, 1, 2, "mrrm"}, {120, 120, 1, 2, "rrrm"}, {64, 64, 1, 4, "rrrm"},   {128, 128, 1, 4, "rrrm"},
              {128, 128, 1, 8, "rrrm"}, {60, 32, 1, 1, "mccm"},   {60, 64, 1, 1, "mmcm"},   {60, 60, 1, 2, "mrrm"}};
  for (int d = 0; d < 4; d++) {
    const struct plan p = made(devices[d]);
    const struct plan_rules rules = rules_of(devices[d]);
    const bool registers = d == 3, matrices = d != 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      for (uint32_t heads = 16; heads <= 512; heads *= 32) {
        const char form = delta_form(&p, &rules, rows[i].Dk, rows[i].Dv, rows[i].n, rows[i].r, heads);
        if (form != rows[i].forms[d])
          fail_msg("%s, %u heads of %u x %u, n %u, r %u: %c", devices[d]->name, heads, rows[i].Dk, rows[i].Dv,
                   rows[i].n, rows[i].r, form);
      }
    struct plan_delta_matrix m;
    struct plan_mamba2_matrix mamba2;
    struct plan_attention_matrix attention;
    if (matrices) assert_true(plan_delta_matrix(&p, 64, 128, 1, 1, 16, 8192, &m) && registers == (m.segments > 1));
    assert_int_equal(plan_mamba2_matrix(&p, 128, 128, 24, 1, 32, &mamba2), matrices);
    assert_int_equal(plan_mamba2_matrix(&p, 256, 64, 24, 1, 32, &mamba2), registers);
    assert_int_equal(plan_attention_matrix(&p, 16, 4, 128, 1, 2048, &attention), matrices);
    assert_int_equal(plan_attention_matrix(&p, 16, 4, 256, 1, 2048, &attention), registers);
  }
}

static void experts_on_matrices_fit_their_device(void **state) {
  const uint32_t rows[] = {1, 40, 4096, 16384}, counts[] = {1, 7, 256};
  for (int i = 0; i < WITH_MATRICES; i++)
    for (int k = 0; k < 12; k++) {
      const struct device_caps *caps = with_matrices(i, false);
      struct plan p = made(caps);
      struct plan_products products;
      struct plan_matmul m;
      const uint32_t R = rows[k % 4], E = counts[k / 4];
      plan_products_make(caps, &p, &products);
      assert_true(plan_matmul_experts(&products, R, E, 1000, &m));
      assert_in_range(plan_matmul_matrix_shared_bytes(&m), 1, caps->shared_bytes);
      assert_in_range(m.lanes, 1, caps->max_invocations);
      assert_true(m.tile_n / m.across_n / p.matrix_n % 2 == 0); // halves of a gated product
      assert_true(m.tile_t <= R / E || m.tile_t <= 2 * p.matrix_m);
      // The most tiles: all experts have one row, and the first has all others.
      const uint32_t tiles = plan_experts_tiles(R, E, m.tile_t), used = R < E ? R : E;
      assert_in_range(tiles, used - 1 + (R - used + m.tile_t) / m.tile_t, R);
    }
  assert_false(plan_experts_sorted(8, 256)); // a token
  assert_false(plan_experts_sorted(16 * 8, 256));
  assert_true(plan_experts_sorted(512 * 8, 256));
}

static void attention_on_matrices_fits_its_device(void **state) {
  const uint32_t sizes[] = {1, 49, 64, 128, 256}, groups[] = {1, 3, 8, 40};
  for (int i = 0; i < WITH_MATRICES; i++)
    for (int d = 0; d < 5; d++)
      for (int g = 0; g < 4; g++)
        for (uint32_t T = 2; T <= 8192; T *= 16) {
          const struct device_caps *caps = with_matrices(i, false);
          struct plan p = made(caps);
          struct plan_attention_matrix m;
          if (!plan_attention_matrix(&p, 2 * groups[g], 2, sizes[d], 1, T, &m)) {
            assert_true(sizes[d] > 128);
            continue;
          }
          const uint32_t spec[ATTENTION_MATRIX_SPECS] = {
              ON_MATRICES(ATTENTION_MATRIX, m.lanes, &p), [ATTENTION_MATRIX_SPEC_D] = sizes[d],
              [ATTENTION_MATRIX_SPEC_KEYS] = m.keys, [ATTENTION_MATRIX_SPEC_GROUP] = m.group};
          if (kernel_built(KERNEL_attention_matrix))
            assert_int_equal(shared_of(KERNEL_attention_matrix, spec), plan_attention_matrix_bytes(&m, sizes[d]));
          assert_in_range(plan_attention_matrix_bytes(&m, sizes[d]), 1, caps->shared_bytes);
          assert_in_range(m.lanes, 1, caps->max_invocations);
          assert_true(m.tokens && m.group * m.across >= 2 * groups[g]);
          assert_int_equal(m.rows, m.lanes / p.matrix_lanes * p.matrix_m);
          assert_int_equal(m.tokens, m.rows / m.group);
          const uint64_t workgroups = (uint64_t)m.across * ((T + m.tokens - 1) / m.tokens);
          const uint32_t parts = plan_attention_parts(&p, &m, workgroups, 100000);
          assert_in_range(parts, 1, 100000 / ATTENTION_MATRIX_LEAST + 1);
          if (parts > 1)
            assert_in_range(parts * workgroups * m.rows * 16 * ATTENTION_MATRIX_RECORD(sizes[d]), 1,
                            plan_attention_records(&p, sizes[d], 100000));
        }
  struct plan h200 = made(&caps_h200), none = made(&caps_rdna2_radv_bar);
  struct plan_attention_matrix m;
  assert_false(plan_attention_matrix(&none, 8, 8, 64, 1, 512, &m));
  // More workgroups of fewer rows, until there are some 100.
  assert_true(plan_attention_matrix(&h200, 8, 8, 128, 1, 1536, &m) && m.lanes == 4 * h200.matrix_lanes);
  assert_true(plan_attention_matrix(&h200, 8, 8, 128, 1, 2048, &m) && m.lanes == 8 * h200.matrix_lanes);
  assert_int_equal(plan_attention_parts(&h200, &m, 128, 100000), 1);
  // 32 tokens of 8 heads: four workgroups, so up to 66 parts, of 256 keys at least.
  assert_true(plan_attention_matrix(&h200, 8, 2, 256, 1, 32, &m) && m.across * 32 / m.tokens == 4);
  assert_int_equal(plan_attention_parts(&h200, &m, 4, 100000), 66);
  assert_int_equal(plan_attention_parts(&h200, &m, 4, 4096), 16);
  assert_int_equal(plan_attention_parts(&h200, &m, 4, 256), 1);
  assert_int_equal(plan_attention_parts(&h200, &m, 88, 100000), 3);
  assert_int_equal(plan_attention_parts(&h200, &m, 89, 100000), 1); // two gain little
  assert_int_equal(plan_attention_records(&h200, 256, 256), 0);
}

static void mamba2_on_matrices_fits_its_device(void **state) {
  const uint32_t sizes[] = {1, 20, 64, 128, 256}, groups[] = {1, 3, 24};
  for (int i = 0; i < WITH_MATRICES; i++)
    for (int k = 0; k < 25; k++)
      for (int g = 0; g < 3; g++)
        for (uint32_t chunks = 1; chunks <= 1024; chunks *= 32) {
          const struct device_caps *caps = with_matrices(i, false);
          struct plan p = made(caps);
          struct plan_mamba2_matrix m;
          const uint32_t N = sizes[k % 5], P = sizes[k / 5];
          if (!plan_mamba2_matrix(&p, N, P, 24, groups[g], chunks, &m)) {
            assert_true(P > 128 || N > 128 || N + P > 192); // the usual 128 x 64 and 64 x 128 fit
            continue;
          }
          const uint32_t spec[MAMBA2_MATRIX_SPECS] = {
              ON_MATRICES(MAMBA2_MATRIX, m.lanes, &p), [MAMBA2_MATRIX_SPEC_C] = m.C, [MAMBA2_MATRIX_SPEC_N] = N,
              [MAMBA2_MATRIX_SPEC_P] = P, [MAMBA2_MATRIX_SPEC_HEADS] = m.heads};
          if (kernel_built(KERNEL_mamba2_matrix_state)) {
            assert_int_equal(shared_of(KERNEL_mamba2_matrix_state, spec), plan_mamba2_state_bytes(&m));
            assert_int_equal(shared_of(KERNEL_mamba2_matrix_output_f16, spec), plan_mamba2_output_bytes(&p, &m));
          }
          assert_in_range(plan_mamba2_state_bytes(&m), 1, caps->shared_bytes);
          assert_in_range(plan_mamba2_output_bytes(&p, &m), 1, caps->shared_bytes);
          assert_in_range(m.lanes, 1, caps->max_invocations);
          assert_int_equal(m.C, m.lanes / p.matrix_lanes * p.matrix_m);
          assert_true(m.heads * m.across >= 24 && m.across % groups[g] == 0);
        }
  struct plan none = made(&caps_rdna2_radv_bar);
  struct plan_mamba2_matrix m;
  assert_false(plan_mamba2_matrix(&none, 128, 64, 32, 1, 32, &m));
}

static void lanes_hold_a_whole_subgroup(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct device_caps *caps = caps_usable[i];
    struct plan p = made(caps);
    const struct plan_products products = products_of(caps);
    uint32_t subgroup = p.subgroup ? p.subgroup : caps->subgroup_size;
    assert_int_equal(p.lanes % subgroup, 0);
    assert_int_equal(products.matvec_lanes % subgroup, 0);
    if (p.subgroup) assert_in_range(p.subgroup, caps->subgroup_min, caps->subgroup_max);
  }
}

static void buffers_stay_within_the_limits(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct device_caps *caps = caps_usable[i];
    struct plan p = made(caps);
    assert_in_range(p.block_bytes, 1 << 30, caps->max_allocation);
    assert_in_range(p.block_bytes, 1 << 30, caps->max_buffer);
    assert_in_range(p.binding_bytes, 128 << 20, p.block_bytes);
    assert_in_range(p.binding_bytes, 128 << 20, caps->storage_range);
    assert_int_equal(p.binding_bytes % 256, 0);
    assert_int_equal(p.offset_alignment % caps->offset_alignment, 0);
    assert_true(power_of_two(p.offset_alignment) && p.offset_alignment >= 16 && p.offset_alignment <= 256);
  }
}

static void memory_types_have_what_their_use_needs(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct device_caps *caps = caps_usable[i];
    struct plan p = made(caps);
    assert_true(flags_of(caps, p.memory_device) & DL);
    assert_int_equal(flags_of(caps, p.memory_shared) & MAP, MAP);
    assert_int_equal(flags_of(caps, p.memory_staging) & MAP, MAP);
    assert_int_equal(flags_of(caps, p.memory_readback) & (MAP | CACHE), MAP | CACHE);
    assert_int_equal(p.device_mapped, (flags_of(caps, p.memory_device) & MAP) == MAP);
    assert_true(flags_of(caps, p.memory_unmapped) & DL);
    int types[] = {p.memory_device, p.memory_unmapped, p.memory_shared, p.memory_staging, p.memory_readback};
    for (int j = 0; j < 5; j++) assert_false(flags_of(caps, types[j]) & (LAZY | AMD));
  }
}

static void resizable_bar_needs_no_staging(void **state) {
  assert_true(made(&caps_h200).device_mapped);
  assert_true(made(&caps_rdna3_radv).device_mapped);
  assert_true(made(&caps_arc_linux).device_mapped);
  assert_true(made(&caps_intel_integrated).device_mapped);
  assert_true(made(&caps_lavapipe).device_mapped);
}

static void what_cannot_be_mapped_has_another_type(void **state) {
  const struct plan h200 = made(&caps_h200), lavapipe = made(&caps_lavapipe), geforce = made(&caps_geforce_bar);
  assert_true(h200.memory_unmapped != h200.memory_device);
  assert_false(flags_of(&caps_h200, h200.memory_unmapped) & MAP);
  assert_int_equal(lavapipe.memory_unmapped, lavapipe.memory_device); // its only one
  assert_int_equal(geforce.memory_unmapped, geforce.memory_device);
}

static void a_bar_window_serves_shared_memory_only(void **state) {
  struct plan geforce = made(&caps_geforce_bar), radeon = made(&caps_rdna2_radv_bar);
  assert_false(geforce.device_mapped);
  assert_int_equal(geforce.memory_device, 1);
  assert_int_equal(geforce.memory_shared, 4);
  assert_int_equal(geforce.memory_staging, 2);
  assert_int_equal(geforce.memory_readback, 3);
  assert_false(radeon.device_mapped);
  assert_int_equal(radeon.memory_device, 0);
  assert_int_equal(radeon.memory_shared, 2);
}

static void apple_memory_is_mapped_and_never_lazy(void **state) {
  struct plan p = made(&caps_apple);
  assert_true(p.device_mapped);
  assert_int_equal(p.memory_device, 1);
}

static void the_subgroup_size_is_chosen_where_it_varies(void **state) {
  assert_int_equal(made(&caps_h200).subgroup, 0);
  assert_int_equal(made(&caps_lavapipe).subgroup, 0);
  assert_int_equal(made(&caps_apple).subgroup, 0);
  assert_int_equal(made(&caps_rdna3_radv).subgroup, 32);
  assert_int_equal(made(&caps_arc_linux).subgroup, 16);
  struct device_caps loose = caps_h200;
  loose.full_subgroups = false;
  assert_int_equal(made(&caps_arc_linux).subgroup_width, 16);
  assert_int_equal(made(&caps_h200).subgroup_width, 32);
  assert_int_equal(made(&loose).subgroup_width, 0);
}

static void software_gets_small_workgroups(void **state) {
  struct plan software = made(&caps_lavapipe), gpu = made(&caps_h200);
  assert_in_range(software.lanes, 8, 64);
  assert_in_range(software.block_lanes, 8, 64);
  assert_int_equal(gpu.lanes, 256);
  assert_true(software.submit_operations < gpu.submit_operations);
  assert_in_range(gpu.silent_seconds, 61, software.silent_seconds - 1); // after amdgpu's own watchdog
}

// The average of equal texts, in steps; else the longest alone, whatever is beside it.
static void long_texts_decide_whether_a_batch_takes_chunks(void **state) {
  const struct device_caps *const devices[] = {&caps_h200, &caps_lavapipe};
  for (int i = 0; i < 2; i++) {
    const struct plan_rules rules = rules_of(devices[i]);
    const uint64_t from = rules.chunk_from;
    for (uint32_t B = 1; B <= 256; B *= 4) {
      assert_true(plan_chunks(&rules, B * from, B, 0));
      assert_false(plan_chunks(&rules, B * from - 1, B, 0));
      assert_true(plan_chunks(&rules, B * from, B, from));
      assert_true(plan_chunks(&rules, from + B - 1, B, from)); // one of that length, the others of one token
      assert_false(plan_chunks(&rules, B * (from - 1), B, from - 1));
    }
  }
}

// Shapes that no kernel takes: a device that has only such computes without.
static void matrices_of_other_sides_are_left_alone(void **state) {
  static const uint32_t shapes[][3] = {{16, 16, 32}, {32, 8, 16}, {8, 32, 16}, {16, 16, 4}, {64, 64, 16}, {12, 16, 16}};
  struct device_caps caps = caps_h200;
  struct plan_matmul product;
  struct plan_narrow narrow;
  for (int i = 0; i < 6; i++) {
    caps.matrix_shapes = 1;
    caps.matrix_shape[0].m = shapes[i][0], caps.matrix_shape[0].n = shapes[i][1], caps.matrix_shape[0].k = shapes[i][2];
    struct plan p = made(&caps);
    const struct plan_products products = products_of(&caps);
    assert_true(p.usable && !p.matrix_m && !p.matrix_conversions);
    assert_false(plan_matmul_matrix(&products, 512, 512, 512, true, &product) ||
                 plan_matmul_narrow(&products, 16, 512, 512, &narrow));
    caps.matrix_shapes = 2;
    caps.matrix_shape[1].m = 8, caps.matrix_shape[1].n = 16, caps.matrix_shape[1].k = 16;
    p = made(&caps);
    assert_true(p.matrix_m == 8 && p.matrix_n == 16 && p.matrix_k == 16);
  }
  caps.subgroup_size = 128;
  caps.subgroup_size_control = false;
  caps.matrix_shape[1].n = 8; // 64 numbers for 128 lanes
  assert_int_equal(made(&caps).matrix_m, 0);
}

static void the_square_matrix_is_chosen_where_there_is_one(void **state) {
  struct plan p = made(&caps_h200);
  assert_true(p.matrix_m == 16 && p.matrix_n == 16 && p.matrix_k == 16 && p.matrix_conversions);
  p = made(&caps_rdna3_radv);
  assert_true(p.matrix_m == 16 && p.matrix_n == 16 && p.matrix_k == 16 && !p.matrix_conversions);
  assert_int_equal(made(&caps_lavapipe).matrix_m, 0);
  assert_int_equal(made(&caps_rdna2_radv_bar).matrix_m, 0);
  p = made(&caps_arc_linux); // has them, and is faster without
  assert_true(p.matrix_m && !p.matrix_products && !p.matrix_mixers);
  assert_int_equal(made(with_matrices(3, false)).matrix_k, 8);
  struct device_caps c = caps_arc_linux; // Xe2
  c.subgroup_min = 16;
  c.matrix_shape[0].n = 16;
  p = made(&c);
  assert_true(p.matrix_m == 8 && p.matrix_n == 16 && p.matrix_k == 16);
  c = caps_h200, c.matrix_shapes = 0;
  assert_false(made(&c).matrix_conversions);
}

static uint32_t batch_of(const struct device_caps *caps) { return products_of(caps).batch; }

static void large_cards_take_longer_slices(void **state) {
  struct device_caps without = caps_h200; // matrix units
  without.matrix_shapes = 0;
  assert_int_equal(batch_of(&caps_h200), 2048);
  assert_int_equal(batch_of(&without), 2048);
  assert_int_equal(batch_of(&caps_rdna3_radv), 2048);
  assert_int_equal(batch_of(&caps_geforce_bar), 512); // 8 GiB
  assert_int_equal(batch_of(&caps_lavapipe), 512);
}

static void tiles_of_matrices_fit_their_device(void **state) {
  for (int i = 0; i < TILE_DEVICES; i++)
    for (uint32_t T = 1; T <= 8192; T *= 4)
      for (uint32_t N = 1; N <= 65536; N *= 16) {
        const struct device_caps caps = tile_device(i);
        struct plan p = made(&caps);
        const struct plan_products products = products_of(&caps);
        struct plan_matmul m;
        assert_true(plan_matmul_matrix(&products, T, N, 2048, true, &m));
        uint32_t spec[MATMUL_MATRIX_SPECS] = {0};
        tile_spec(&p, &m, spec);
        if (kernel_built(KERNEL_matmul_matrix_x16_f16))
          assert_int_equal(shared_of(KERNEL_matmul_matrix_x16_f16, spec), plan_matmul_matrix_shared_bytes(&m));
        assert_in_range(plan_matmul_matrix_shared_bytes(&m), 1, caps.shared_bytes);
        assert_in_range(m.lanes, 1, caps.max_invocations);
        assert_int_equal(m.lanes, m.across_t * m.across_n * p.matrix_lanes);
        // A matrix of each subgroup waits where w was, when y is not stored directly.
        assert_true(m.across_t * m.across_n * p.matrix_m * p.matrix_n <= m.tile_n * (m.tile_k / 8 + 1) * 4);
        assert_int_equal(m.tile_t % (m.across_t * p.matrix_m), 0);
        assert_int_equal(m.tile_n % (m.across_n * p.matrix_n), 0);
        assert_int_equal(m.tile_k % p.matrix_k, 0);
        // Its end is a stage for one matrix of sums a subgroup.
        struct plan_narrow narrow;
        if (plan_matmul_narrow(&products, T, N, 5632, &narrow)) {
          assert_in_range(plan_matmul_narrow_shared_bytes(&products, &narrow), 1, caps.shared_bytes);
          assert_in_range(narrow.lanes, 1, caps.max_invocations);
          assert_true(narrow.passes * narrow.tiles_t * p.matrix_m >= T && 5632 % narrow.step == 0);
          assert_true((narrow.passes - 1) * narrow.tiles_t * p.matrix_m < T); // none has no tokens
        } else {
          assert_true(T > 64);
        }
        assert_true(m.tile_n * (m.tile_k / 8 + 1) >= m.across_t * m.across_n * p.matrix_m * p.matrix_n / 4);
      }
  const struct plan_products products = products_of(&caps_h200);
  const struct plan_products none_products = products_of(&caps_rdna2_radv_bar);
  struct plan_matmul large, small;
  assert_true(plan_matmul_matrix(&products, 4096, 4096, 4096, true, &large) &&
              plan_matmul_matrix(&products, 64, 2048, 2048, true, &small));
  assert_true(large.tile_t == 128 && large.tile_n == 128 && small.tile_t * small.tile_n < 128 * 128);
  assert_false(plan_matmul_matrix(&none_products, 4096, 4096, 4096, true, &large));
}

// By how much of the device they fill; what workgroups of one tile leave each other has room.
static void products_share_tiles_where_these_are_few(void **state) {
  const struct device_caps *const devices[] = {&caps_h200, &caps_geforce_bar, &caps_rdna3_radv};
  struct plan_matmul m, alone;
  for (int i = 0; i < 3; i++) {
    const struct plan_products products = products_of(devices[i]);
    const uint64_t tickets = plan_matmul_tickets_bytes(&products), room = plan_matmul_parts_bytes(&products) - tickets;
    assert_true(tickets % 256 == 0 && products.matrix_parts > 1);
    for (uint32_t T = 1; T <= 8192; T = 3 * T / 2 + 1)
      for (uint32_t N = 16; N <= 65536; N *= 4)
        for (uint32_t K = 64; K <= 16384; K *= 4) {
          assert_true(plan_matmul_matrix(&products, T, N, K, true, &m) &&
                      plan_matmul_matrix(&products, T, N, K, false, &alone));
          const uint32_t tiles = divide_up(T, m.tile_t) * divide_up(N, m.tile_n), shared = tiles - m.whole;
          assert_true(m.parts >= 1 && m.parts <= products.matrix_parts && m.whole <= tiles && (m.parts > 1 || !shared));
          assert_int_equal(m.groups, m.whole + shared * m.parts);
          assert_true(m.parts == 1 || m.parts * m.tile_k < K + m.tile_k); // each has a step, and more
          assert_true(shared * sizeof(uint32_t) <= tickets);
          assert_true(4ull * shared * (shared ? m.parts : 0) * m.tile_t * m.tile_n <= room);
          assert_true(alone.parts == 1 && alone.groups == alone.whole);
        }
  }
  const struct plan_products h200_products = products_of(&caps_h200);
  const struct plan_products software_products = products_of(&caps_lavapipe);
  assert_int_equal(plan_matmul_parts_bytes(&software_products), 0);
  static const struct {
    uint32_t T, N, K, tile_t, whole, parts;
  } fastest[] = {{128, 2048, 2048, 64, 0, 4},     {128, 11264, 2048, 128, 0, 3},    {512, 6272, 2048, 128, 132, 2},
                 {512, 11264, 2048, 128, 264, 3}, {512, 2048, 5632, 128, 0, 4},     {1024, 2048, 5632, 128, 0, 2},
                 {2048, 2048, 2048, 128, 256, 1}, {4096, 11264, 2048, 128, 2816, 1}};
  for (size_t i = 0; i < sizeof fastest / sizeof *fastest; i++) {
    assert_true(plan_matmul_matrix(&h200_products, fastest[i].T, fastest[i].N, fastest[i].K, true, &m));
    assert_true(m.tile_t == fastest[i].tile_t && m.whole == fastest[i].whole && m.parts == fastest[i].parts);
  }
}

static void few_tokens_take_the_shared_memory_that_the_plan_says(void **state) {
  const struct device_caps *const devices[] = {&caps_h200, &caps_geforce_bar, &caps_rdna3_radv};
  for (int i = 0; i < 3 && kernel_built(KERNEL_matmul_narrow_conv_bf16); i++)
    for (uint32_t T = 1; T <= 64; T += 21)
      for (uint32_t N = 16; N <= 65536; N *= 8)
        for (uint32_t K = 16; K <= 8192; K = 2 * K + 16) {
          struct plan p = made(devices[i]);
          const struct plan_products products = products_of(devices[i]);
          struct plan_narrow m;
          assert_true(plan_matmul_narrow(&products, T, N, K, &m));
          assert_true(m.tiles_t * m.tiles_n <= p.matrix_sums && m.lanes == m.parts * p.matrix_lanes);
          assert_true(K % m.step == 0 && m.parts * m.step <= K);
          const uint32_t spec[MATMUL_NARROW_CONV_SPECS] = {
              [MATMUL_NARROW_SPEC_LANES] = m.lanes,     [MATMUL_NARROW_SPEC_PARTS] = m.parts,
              [MATMUL_NARROW_SPEC_TILES_T] = m.tiles_t, [MATMUL_NARROW_SPEC_TILES_N] = m.tiles_n,
              [MATMUL_NARROW_SPEC_STEP] = m.step,       [MATMUL_NARROW_SPEC_M] = p.matrix_m,
              [MATMUL_NARROW_SPEC_N] = p.matrix_n,      [MATMUL_NARROW_SPEC_K] = p.matrix_k,
              [MATMUL_NARROW_SPEC_SQUARES] = 1,         [MATMUL_NARROW_SPEC_LENGTH] = K,
              [MATMUL_NARROW_SPEC_PASSES] = m.passes,   [MATMUL_NARROW_CONV_SPEC_W] = 4};
          assert_int_equal(shared_of(KERNEL_matmul_narrow_conv_bf16, spec),
                           plan_matmul_narrow_shared_bytes(&products, &m));
          assert_in_range(plan_matmul_narrow_shared_bytes(&products, &m), 1, devices[i]->shared_bytes);
        }
  const struct plan_products h200_products = products_of(&caps_h200);
  struct plan_narrow o, in, up;
  assert_true(plan_matmul_narrow(&h200_products, 32, 2048, 2048, &o) && o.tiles_n == 1 && o.parts == 16);
  assert_true(plan_matmul_narrow(&h200_products, 32, 6272, 2048, &in) && in.tiles_n == 3 && in.parts == 8);
  assert_true(plan_matmul_narrow(&h200_products, 32, 11264, 2048, &up) && up.tiles_n == 2 && up.parts == 4);
  assert_int_equal(up.passes, 1);
  assert_true(plan_matmul_narrow(&h200_products, 64, 2048, 2048, &o) && o.tiles_n == 1 && o.parts == 8 &&
              o.passes == 2);
  assert_true(plan_matmul_narrow(&h200_products, 64, 6272, 2048, &in) && in.tiles_n == 2 && in.parts == 4);
  assert_true(plan_matmul_narrow(&h200_products, 64, 11264, 2048, &up) && up.tiles_n == 2 && up.parts == 2);
}

// The recorded number; without one, the guess for that kind of device. Work is cut for as many.
static void processors_are_recorded_or_guessed(void **state) {
  const struct {
    const struct device_caps *caps;
    uint32_t processors;
  } rows[] = {{&caps_h200, 132},      {&caps_geforce_bar, 46},      {&caps_rdna3_radv, 96}, {&caps_amd_windows, 64},
              {&caps_arc_linux, 132}, {&caps_intel_integrated, 16}, {&caps_apple, 16},      {&caps_lavapipe, 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const struct plan p = made(rows[i].caps);
    char text[8192], used[64];
    assert_int_equal(p.processors, rows[i].processors);
    plan_describe(rows[i].caps, &p, text, sizeof text);
    assert_int_equal(strstr(text, "\nprocessors ") != NULL, rows[i].caps->processors > 0);
    snprintf(used, sizeof used, " a block, on %u processors\n", rows[i].processors);
    assert_non_null(strstr(text, used));
  }
  struct device_caps unknown = caps_geforce_bar;
  unknown.processors = 0;
  const struct plan few = made(&caps_geforce_bar), guessed = made(&unknown);
  struct plan_attention_step a, b;
  plan_attention_step(&few, 8, 8, 128, 1, 100000, &a);
  plan_attention_step(&guessed, 8, 8, 128, 1, 100000, &b);
  assert_true(a.parts == 23 && b.parts == 66);
  const struct plan_products products = products_of(&caps_geforce_bar), more = products_of(&caps_h200);
  assert_int_equal(plan_matmul_tickets_bytes(&products) / 46, plan_matmul_tickets_bytes(&more) / 132);
}

static void a_gpu_is_better_than_software(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++)
    if (caps_usable[i] != &caps_lavapipe) assert_true(made(caps_usable[i]).score > made(&caps_lavapipe).score);
  struct device_caps huge = caps_lavapipe;
  huge.memory_heap[0].bytes = UINT64_MAX;
  assert_true(made(&caps_intel_integrated).score > made(&huge).score);
  assert_true(made(&caps_geforce_bar).score > made(&caps_apple).score);
  assert_true(made(&caps_h200).score > made(&caps_geforce_bar).score);
}

#define LACKING(change, text) (c = caps_h200, c.change, refused_for(c, text))
static void what_is_missing_is_named(void **state) {
  refused_for(caps_raspberry, "subgroup arithmetic");
  struct device_caps c = caps_raspberry;
  c.subgroup_arithmetic = true; // as in later Mesa
  made(&c);
  LACKING(api_version = VK_MAKE_API_VERSION(0, 1, 0, 65), "Vulkan 1.0");
  for (uint32_t lanes = 0; lanes < 4; lanes++)
    LACKING(subgroup_size = c.subgroup_min = c.subgroup_max = lanes, "4 are needed");
  c = caps_h200, c.subgroup_size = c.subgroup_min = c.subgroup_max = 4;
  made(&c);
  LACKING(max_groups[0] = 0, "no compute queue");
  LACKING(max_storage_buffers = 4, "4 storage buffers");
  LACKING(shared_bytes = 8192, "8192 bytes of shared memory");
  LACKING(max_invocations = 64, "64 invocations");
  LACKING(memory_types = 0, "device-local");
  LACKING(memory_types = 2, "map");
  LACKING(offset_alignment = 512, "512 bytes");
  LACKING(storage_range = 0, "storage buffer");
}

static void nothing_reported_is_refused(void **state) {
  struct device_caps c;
  memset(&c, 0, sizeof c);
  refused_for(c, "Vulkan");
  memset(&c, 0xff, sizeof c); // nonsense must not be read past its arrays
  c.subgroup_arithmetic = c.subgroup_size_control = c.full_subgroups = true;
  struct plan plan;
  plan_make(&c, &plan);
  assert_false(plan.usable);
}

// The least that is accepted: 128 invocations, 16 KiB.
static void the_least_device_gets_a_valid_plan(void **state) {
  struct device_caps c = caps_raspberry;
  c.subgroup_arithmetic = true;
  c.max_invocations = c.max_workgroup[0] = 128;
  struct plan p = made(&c);
  const struct plan_products products = products_of(&c);
  const struct plan_rules rules = rules_of(&c);
  assert_in_range(plan_matmul_lanes(&products.tile), 1, 128);
  assert_in_range(plan_matmul_shared_bytes(&products.tile), 1, 16384);
  // 16 KiB have room for the sums of two slices, but for half the numbers of a step.
  tile_is_possible(&products.few);
  assert_true(products.few.slices == 2 && products.few.tile_k == 32 && plan_matmul_lanes(&products.few) == 128);
  assert_in_range(plan_matmul_shared_bytes(&products.few), 1, 16384);
  struct plan_delta d;
  assert_true(plan_chunk_sizes(&rules, 64, 64, 1, 1, &d));
  assert_in_range(plan_scan_shared_bytes(&d, 64, 1), 1, 16384);
  assert_in_range(plan_prepare_shared_bytes(&d), 1, 16384);
  assert_in_range(p.lanes, 1, 128);
}

static void the_description_has_the_length_it_says(void **state) {
  for (int i = 0; i < CAPS_USABLE; i++) {
    struct plan p = made(caps_usable[i]);
    char text[8192], cut[40];
    int n = plan_describe(caps_usable[i], &p, text, sizeof text);
    assert_int_equal(n, strlen(text));
    assert_non_null(strstr(text, caps_usable[i]->name));
    assert_int_equal(plan_describe(caps_usable[i], &p, cut, sizeof cut), n);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(plan_describe(caps_usable[i], &p, NULL, 0), n);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(workgroups_fit_every_device),
      cmocka_unit_test(shared_memory_fits_every_device),
      cmocka_unit_test(chunk_kernels_take_the_shared_memory_that_the_plan_says),
      cmocka_unit_test(the_step_kernel_takes_the_shared_memory_that_the_plan_says),
      cmocka_unit_test(the_rule_by_fours_fits_the_device),
      cmocka_unit_test(many_heads_go_token_by_token),
      cmocka_unit_test(steps_by_fours_fit_the_device),
      cmocka_unit_test(attention_takes_the_shared_memory_that_the_plan_says),
      cmocka_unit_test(matvec_fits_every_device),
      cmocka_unit_test(sums_of_integers_fit_every_device),
      cmocka_unit_test(the_delta_rule_on_matrices_fits_its_device),
      cmocka_unit_test(the_delta_rule_on_matrices_follows_the_shape),
      cmocka_unit_test(cards_with_few_registers_do_what_the_table_says),
      cmocka_unit_test(attention_on_matrices_fits_its_device),
      cmocka_unit_test(experts_on_matrices_fit_their_device),
      cmocka_unit_test(mamba2_on_matrices_fits_its_device),
      cmocka_unit_test(lanes_hold_a_whole_subgroup),
      cmocka_unit_test(buffers_stay_within_the_limits),
      cmocka_unit_test(memory_types_have_what_their_use_needs),
      cmocka_unit_test(resizable_bar_needs_no_staging),
      cmocka_unit_test(what_cannot_be_mapped_has_another_type),
      cmocka_unit_test(a_bar_window_serves_shared_memory_only),
      cmocka_unit_test(apple_memory_is_mapped_and_never_lazy),
      cmocka_unit_test(the_subgroup_size_is_chosen_where_it_varies),
      cmocka_unit_test(software_gets_small_workgroups),
      cmocka_unit_test(long_texts_decide_whether_a_batch_takes_chunks),
      cmocka_unit_test(matrices_of_other_sides_are_left_alone),
      cmocka_unit_test(the_square_matrix_is_chosen_where_there_is_one),
      cmocka_unit_test(large_cards_take_longer_slices),
      cmocka_unit_test(tiles_of_matrices_fit_their_device),
      cmocka_unit_test(products_share_tiles_where_these_are_few),
      cmocka_unit_test(few_tokens_take_the_shared_memory_that_the_plan_says),
      cmocka_unit_test(processors_are_recorded_or_guessed),
      cmocka_unit_test(a_gpu_is_better_than_software),
      cmocka_unit_test(what_is_missing_is_named),
      cmocka_unit_test(nothing_reported_is_refused),
      cmocka_unit_test(the_least_device_gets_a_valid_plan),
      cmocka_unit_test(the_description_has_the_length_it_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
