// test_demo: the groups behind `deltaic demo`, what is built from them, and the feature map's inverse.
#include "checkpoint_writer.h"
#include "demo_groups.h"
#include "demo_tracker.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
  const char *name;
  bool swaps;
  uint32_t order, steps;
} groups[] = {{"S2", false, 2, 1},   {"S3", false, 6, 2},   {"S4", false, 24, 2}, {"S4", true, 24, 3},
              {"S5", false, 120, 4}, {"S6", false, 720, 5}, {"A5", false, 60, 2}, {"Z2", false, 2, 1},
              {"Z7", false, 7, 2},   {"Z60", false, 60, 2}, {"D3", false, 6, 2},  {"D6", false, 12, 2}};
enum { GROUPS = sizeof groups / sizeof *groups };

static void for_every_group(void (*check)(const struct group *group)) {
  for (int i = 0; i < GROUPS; i++) {
    struct group g;
    assert_true(group_make(groups[i].name, groups[i].swaps, &g));
    check(&g);
    group_free(&g);
  }
}

// ---------------------------------------------------------------- groups

static void check_axioms(const struct group *g) {
  for (uint32_t a = 0; a < g->order; a++) {
    uint32_t inverses = 0;
    assert_int_equal(group_after(g, 0, a), a);
    assert_int_equal(group_after(g, a, 0), a);
    for (uint32_t b = 0; b < g->order; b++) {
      uint32_t ab = group_after(g, a, b), c = (7 * a + 3 * b + 1) % g->order;
      assert_true(ab < g->order);
      inverses += ab == 0;
      assert_int_equal(group_after(g, ab, c), group_after(g, a, group_after(g, b, c)));
      assert_true(a == b || strcmp(g->names[a], g->names[b]) != 0);
    }
    assert_int_equal(inverses, 1);
  }
}

static void tables_are_closed_associative_and_have_inverses(void **state) { for_every_group(check_axioms); }

static void orders_and_steps_are_the_groups(void **state) {
  for (int i = 0; i < GROUPS; i++) {
    struct group g;
    assert_true(group_make(groups[i].name, groups[i].swaps, &g));
    assert_int_equal(g.order, groups[i].order);
    assert_int_equal(g.steps, groups[i].steps);
    group_free(&g);
  }
}

static void other_names_are_refused(void **state) {
  static const char *const names[] = {"",      "S",  "S1",   "S7",  "A4",  "Z0", "Z1",
                                      "Z1025", "D2", "D513", "Z-3", "Z3x", "z3", "Z03"};
  struct group g;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_false(group_make(names[i], false, &g));
}

// ---------------------------------------------------------------- representations

static double product_error(const double *a, const double *b, const double *ab, uint32_t d) {
  double worst = 0;
  for (uint32_t i = 0; i < d; i++)
    for (uint32_t j = 0; j < d; j++) {
      double sum = 0;
      for (uint32_t k = 0; k < d; k++) sum += a[i * d + k] * b[k * d + j];
      worst = fmax(worst, fabs(sum - ab[i * d + j]));
    }
  return worst;
}

static void check_homomorphism(const struct group *g) {
  for (uint32_t r = 0; r < g->representation_count; r++)
    for (uint32_t a = 0; a<g->order; a += g->order> 200 ? 37 : 1)
      for (uint32_t b = 0; b < g->order; b++)
        assert_true(product_error(group_matrix(g, r, a), group_matrix(g, r, b),
                                  group_matrix(g, r, group_after(g, a, b)), g->representations[r].d) < 1e-12);
}

static void representations_multiply_as_the_table_does(void **state) { for_every_group(check_homomorphism); }

static void reflect(double *R, const double *k, uint32_t d) {
  for (uint32_t j = 0; j < d; j++) {
    double dot = 0;
    for (uint32_t i = 0; i < d; i++) dot += k[i] * R[i * d + j];
    for (uint32_t i = 0; i < d; i++) R[i * d + j] -= 2 * dot * k[i];
  }
}

static void check_reflections(const struct group *g) {
  for (uint32_t r = 0; r < g->representation_count; r++)
    for (uint32_t a = 0; a < g->order; a++) {
      double keys[GROUP_DIMENSION * GROUP_DIMENSION], R[GROUP_DIMENSION * GROUP_DIMENSION] = {0};
      uint32_t d = g->representations[r].d, n = reflections(group_matrix(g, r, a), d, keys);
      assert_true(n <= g->steps);
      for (uint32_t i = 0; i < d; i++) R[i * d + i] = 1;
      for (uint32_t m = 0; m < n; m++) reflect(R, keys + m * d, d);
      for (uint32_t i = 0; i < d * d; i++) assert_true(fabs(R[i] - group_matrix(g, r, a)[i]) < 1e-12);
    }
}

static void every_element_is_its_reflections_in_order(void **state) { for_every_group(check_reflections); }

static void permutations_take_swaps(void **state) {
  struct group g;
  assert_true(group_make("S5", false, &g));
  for (uint32_t a = 0; a < g.order; a++) {
    double keys[GROUP_DIMENSION * GROUP_DIMENSION];
    uint32_t n = reflections(group_matrix(&g, 0, a), 5, keys);
    for (uint32_t i = 0; i < 5 * n; i++) assert_true(fabs(keys[i]) < 1e-12 || fabs(fabs(keys[i]) - sqrt(0.5)) < 1e-12);
  }
  group_free(&g);
}

// ---------------------------------------------------------------- what is built

static void check_margin(const struct group *g) {
  struct tracker_options options = {.steps = g->steps};
  struct tracker t;
  if (g->order > 200) return; // takes seconds
  tracker_design(g, &options, &t);
  assert_true(t.margin > 0.1); // 26 degrees between any two elements
  tracker_free(&t);
}

static void the_readout_parts_all_elements(void **state) { for_every_group(check_margin); }

static void a_start_of_too_low_rank_cannot_be_read(void **state) {
  struct tracker_options options = {.steps = 1};
  struct tracker t;
  struct group g;
  assert_true(group_make("A5", false, &g));
  tracker_design(&g, &options, &t); // one number a head, whose sign alone the output norm leaves: 16 patterns
  assert_true(t.margin < 1e-9);
  tracker_free(&t);
  group_free(&g);
}

static void directions_are_reached_through_silu(void **state) {
  for (double y = -0.278; y < 20; y += 0.0137) {
    double x = silu_inverse(y);
    assert_true(fabs(x / (1 + exp(-x)) - y) < 1e-12);
  }
  const double target[5] = {0.6, -0.3, 0, 0.7, -0.05};
  double x[5], y[5], size = 0, dot = 0, target_size = 0;
  reach_direction(target, 5, x);
  for (int i = 0; i < 5; i++) {
    y[i] = x[i] / (1 + exp(-x[i]));
    assert_true(y[i] > -0.2785);
    size += y[i] * y[i];
    dot += y[i] * target[i];
    target_size += target[i] * target[i];
  }
  assert_true(fabs(dot / sqrt(size * target_size) - 1) < 1e-14);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_are_closed_associative_and_have_inverses),
      cmocka_unit_test(orders_and_steps_are_the_groups),
      cmocka_unit_test(other_names_are_refused),
      cmocka_unit_test(representations_multiply_as_the_table_does),
      cmocka_unit_test(every_element_is_its_reflections_in_order),
      cmocka_unit_test(permutations_take_swaps),
      cmocka_unit_test(the_readout_parts_all_elements),
      cmocka_unit_test(a_start_of_too_low_rank_cannot_be_read),
      cmocka_unit_test(directions_are_reached_through_silu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
