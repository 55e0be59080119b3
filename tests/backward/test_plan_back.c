// test_plan_back: the sizes of the delta rule's backward pass by chunks, for real devices, without one.
#include "backward_kernels.h"
#include "caps_devices.h"
#include "delta_matrix_prepare.h"
#include "matmul_tiles.h"
#include "numbers.h"
#include "plan_back_rule.h"
#include "plan_matmul.h"
#include "reflect.h"
#include "rule_matrix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t shared_of(enum backward_kernel id, const uint32_t *spec) {
  struct reflected_size size;
  uint64_t count;
  uint32_t *words;
  assert_int_equal(shader_unpack(&backward_kernels[id], &words, &count), DELTAIC_OK);
  assert_int_equal(reflect_size(backward_kernels[id].name, words, count, spec, backward_kernel_specs[id], &size),
                   DELTAIC_OK);
  free(words);
  return size.shared_bytes;
}

static void check_kernel(const struct plan *plan, enum backward_kernel id, const struct plan_back_rule *p,
                         uint32_t subgroups, uint64_t bytes) {
  uint32_t spec[RULE_MATRIX_GRADS_SPECS] = {[RULE_MATRIX_SPEC_LANES] = subgroups * plan->matrix_lanes,
                                            [RULE_MATRIX_SPEC_BLOCK] = p->block,
                                            [RULE_MATRIX_SPEC_DK] = p->Dk,
                                            [RULE_MATRIX_SPEC_DV] = p->Dv,
                                            [RULE_MATRIX_SPEC_N] = 1,
                                            [RULE_MATRIX_SPEC_SUBGROUP] = plan->matrix_lanes,
                                            [RULE_MATRIX_SPEC_TILE] = plan->matrix_m,
                                            [RULE_MATRIX_SPEC_GATED] = 1,
                                            [RULE_MATRIX_SPEC_WHOLE] = 1,
                                            [RULE_MATRIX_SPEC_SPLIT] = p->split,
                                            [RULE_MATRIX_SPEC_OWN] = p->own,
                                            [RULE_MATRIX_SPEC_SCORES] = plan_back_pool(plan, p).scores,
                                            [RULE_MATRIX_SPEC_POOL] = plan_back_pool(plan, p).all};
  if (id != BACKWARD_rule_matrix_grads) spec[RULE_MATRIX_SPEC_WIDTH] = p->width;
  if (backward_kernels[id].units > 1) assert_int_equal(shared_of(id, spec), bytes);
  assert_in_range(bytes, 1, plan->shared_bytes);
  assert_in_range(subgroups * plan->matrix_lanes, 1, plan->most_lanes);
}

static void kernels_take_the_shared_memory_that_the_plan_says(void **state) {
  const uint32_t keys[] = {1, 16, 49, 64, 128, 256, 4096}, values[] = {16, 70, 128, 512};
  int planned = 0;
  for (int i = 0; i < CAPS_USABLE; i++)
    for (int k = 0; k < 7; k++)
      for (int v = 0; v < 4; v++)
        for (int conversions = 0; conversions < 2; conversions++) {
          struct plan plan;
          struct plan_back_rule p;
          plan_make(caps_usable[i], &plan);
          const bool square = plan.matrix_m == plan.matrix_n && plan.matrix_n == plan.matrix_k,
                     there = plan_back_rule(&plan, keys[k], values[v], v % 2 ? 512 : 16, conversions, &p);
          if (keys[k] <= 128) assert_int_equal(there, plan.matrix_mixers && square);
          if (keys[k] == 4096) assert_false(there);
          if (!there) continue;
          planned++;
          assert_true(p.block % RULE_MATRIX_CHUNK == 0 && p.prepare.C == RULE_MATRIX_CHUNK);
          assert_true(2 * p.own * p.block / plan.matrix_m <= plan.matrix_sums * p.split); // of grads, in registers
          check_kernel(&plan, p.conversions ? BACKWARD_rule_matrix_states_registers : BACKWARD_rule_matrix_states, &p,
                       p.states, plan_back_scan_bytes(&plan, &p, false));
          check_kernel(&plan, p.conversions ? BACKWARD_rule_matrix_reverse_registers : BACKWARD_rule_matrix_reverse, &p,
                       p.reverse, plan_back_scan_bytes(&plan, &p, true));
          check_kernel(&plan, BACKWARD_rule_matrix_grads, &p, p.grads, plan_back_grads_bytes(&plan, &p));
          assert_in_range(plan_delta_matrix_prepare_bytes(&p.prepare, 1), 1, plan.shared_bytes);
        }
  assert_true(planned > 0);
}

// dX = dY W and dW = dY^T X: the shared memory that the plan says.
static void turned_products_fit_their_device(void **state) {
  for (int i = 0; i < TILE_DEVICES; i++)
    for (uint32_t T = 16; T <= 8192; T *= 8)
      for (uint32_t N = 16; N <= 65536; N *= 16) {
        const struct device_caps caps = tile_device(i);
        struct plan p;
        struct plan_products products;
        struct plan_matmul m;
        plan_make(&caps, &p);
        plan_products_make(&caps, &p, &products);
        assert_true(plan_matmul_matrix(&products, T, N, 16384, true, &m));
        uint32_t spec[MATMUL_MATRIX_SPECS] = {0};
        tile_spec(&p, &m, spec);
        for (int x = 0; x < 2; x++) {
          const enum backward_kernel id = x ? BACKWARD_matmul_matrix_outer : BACKWARD_matmul_matrix_times;
          if (backward_kernels[id].units > 1) assert_int_equal(shared_of(id, spec), plan_matmul_turned_bytes(&m, x));
          assert_true(plan_matmul_turns(&products, &m, x));
        }
      }
  (void)state;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_take_the_shared_memory_that_the_plan_says),
      cmocka_unit_test(turned_products_fit_their_device),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
