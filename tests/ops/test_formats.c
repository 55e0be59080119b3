// The decoders of stored formats, against float64 (tests/vectors/make_blocks.py).
#include "format.h" // before cmocka, whose macro fail() would hide ours

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

enum { BLOCKS = 4 };

// The blocks of a format, unaligned, and their values.
static char *blocks_of(const struct fixture *f, enum dtype dtype, double **values) {
  const struct format *format = &formats[dtype];
  char name[64], *bytes = malloc(1 + BLOCKS * format->bytes);
  double *each = fixture_values(f, format->name, BLOCKS * format->bytes);
  for (uint32_t i = 0; i < BLOCKS * format->bytes; i++) bytes[1 + i] = (char)(unsigned char)each[i];
  free(each);
  snprintf(name, sizeof name, "%s.values", format->name);
  *values = fixture_values(f, name, BLOCKS * format->elements);
  return bytes;
}

static void blocks_decode_to_what_float64_has(void **state) {
  struct fixture *f = fixture_open("vectors/ops/blocks.safetensors");
  for (enum dtype d = DTYPE_Q8_0; d < DTYPE_TILES; d++) {
    const uint32_t n = BLOCKS * formats[d].elements;
    double *want;
    char *bytes = blocks_of(f, d, &want);
    float *got = malloc(n * sizeof *got), some[7], largest = 0;
    formats[d].decode(bytes + 1, BLOCKS, got);
    for (uint32_t i = 0; i < n; i++) {
      if (got[i] != (float)want[i]) fail_msg("%s: element %u is %g, not %g", dtype_name(d), i, (double)got[i], want[i]);
      largest = fmaxf(largest, fabsf(got[i]));
    }
    for (uint32_t first = 0; first + 7 <= n; first += 29) {
      dtype_decode(d, bytes + 1, first, 7, some);
      assert_memory_equal(some, got + first, sizeof some);
    }
    const float bound = dtype_blocks_bound(d, bytes + 1, BLOCKS);
    if (!(bound >= largest && bound < 20 * largest))
      fail_msg("%s: the bound of %g is %g", dtype_name(d), (double)largest, (double)bound);
    free(got);
    free(want);
    free(bytes);
  }
  fixture_close(f);
}

static void scales_that_are_not_finite_have_no_bound(void **state) {
  for (enum dtype d = DTYPE_Q8_0; d < DTYPE_TILES; d++)
    for (int i = 0; i < 2; i++) {
      char blocks[3 * 512] = {0};
      if (formats[d].scales[i].most == 0) continue;
      assert_true(dtype_blocks_bound(d, blocks, 3) == 0);
      memcpy(blocks + formats[d].bytes + formats[d].scales[i].at, "\0\x7c", 2);
      assert_true(isinf(dtype_blocks_bound(d, blocks, 3)));
      memcpy(blocks + formats[d].bytes + formats[d].scales[i].at, "\1\x7c", 2);
      assert_true(isnan(dtype_blocks_bound(d, blocks, 3)));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_decode_to_what_float64_has),
      cmocka_unit_test(scales_that_are_not_finite_have_no_bound),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
