// test_scale: the numbers at the axes of plots.
#include "scale.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void expect(bool log, double least, double most, const char *want) {
  const struct axis axis = {.log = log};
  struct scale s = scale_make(&axis, log ? log10(least) : least, log ? log10(most) : most, 0, 0, 200);
  char text[SCALE_TEXT], all[512] = "";
  for (int i = 0; i < s.count; i++) {
    scale_text(&s, i, text);
    snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", text);
  }
  assert_string_equal(all, want);
}

static void an_axis_has_one_notation(void **state) {
  expect(true, 100, 1e5, "100 1000 10000 100000");
  expect(true, 1e4, 1e6, "1e4 1e5 1e6"); // 10000 100000 1e6 before
  expect(true, 2e5, 2e6, "2e5 5e5 1e6 2e6");
  expect(true, 1e-3, 1, "0.001 0.01 0.1 1");
  expect(true, 1e-4, 1, "1e-4 1e-3 1e-2 1e-1 1e0");
  expect(false, 0, 1e6, "0 2.0e5 4.0e5 6.0e5 8.0e5 1.0e6");
  expect(false, 0, 999999, "0 200000 400000 600000 800000");
  expect(false, 0, 1.2e6, "0 5.0e5 1.0e6");
}

static void neighbours_differ(void **state) {
  expect(false, 1e6, 1.04e6, "1.00e6 1.01e6 1.02e6 1.03e6 1.04e6"); // 1.0e+06 five times before
  expect(false, -2e-5, 2e-5, "-2e-5 -1e-5 0 1e-5 2e-5");
  expect(false, 0.99999, 1.00001, "9.999900e-1 9.999950e-1 1.000000e0 1.000005e0 1.000010e0");
  expect(false, -0.2, 0.2, "-0.2 -0.1 0.0 0.1 0.2");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_axis_has_one_notation), cmocka_unit_test(neighbours_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
