// test_reflect: what a module binds, and that no module, however damaged, is read outside.
#include "reflect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test_add.spv.h"
#include "test_layout.spv.h"

enum { ADD_WORDS = sizeof spv_test_add / 4, LAYOUT_WORDS = sizeof spv_test_layout / 4 };

static void bindings_and_their_directions_are_found(void **state) {
  struct reflection r;
  assert_int_equal(reflect("add", spv_test_add, ADD_WORDS, &r), DELTAIC_OK);
  assert_int_equal(r.bindings, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(r.reads[i], i < 2);
    assert_int_equal(r.writes[i], i == 2);
  }
}

static void push_constants_and_spec_ids_are_found(void **state) {
  struct reflection r;
  assert_int_equal(reflect("add", spv_test_add, ADD_WORDS, &r), DELTAIC_OK);
  assert_int_equal(r.push_bytes, 8);
  assert_int_equal(r.spec_count, 1);
  assert_int_equal(r.spec_id[0], 0);
  assert_true(r.spec_workgroup);
}

// readonly on one member of two leaves the block writable; two views of a binding add up.
static void blocks_are_read_only_when_all_members_are(void **state) {
  struct reflection r;
  assert_int_equal(reflect("layout", spv_test_layout, LAYOUT_WORDS, &r), DELTAIC_OK);
  assert_int_equal(r.bindings, 3);
  assert_true(r.reads[0] && !r.writes[0]);
  assert_true(r.reads[1] && r.writes[1]);
  assert_true(r.reads[2] && r.writes[2]);
}

static void nested_push_constants_are_measured(void **state) {
  struct reflection r;
  assert_int_equal(reflect("layout", spv_test_layout, LAYOUT_WORDS, &r), DELTAIC_OK);
  assert_int_equal(r.push_bytes, 76);
}

static void spec_ids_come_in_ascending_order(void **state) {
  struct reflection r;
  assert_int_equal(reflect("layout", spv_test_layout, LAYOUT_WORDS, &r), DELTAIC_OK);
  const uint32_t expected[] = {0, 3, 5, 7};
  assert_int_equal(r.spec_count, 4);
  assert_memory_equal(r.spec_id, expected, sizeof expected);
}

static void sizes_follow_the_spec_values(void **state) {
  struct reflected_size size;
  const uint32_t spec[] = {8, 0, 0, 64, 0, 1, 0, 3}; // ROWS 8, 64 lanes, WIDE, SHIFT 3: COLS = 16 + 8
  assert_int_equal(reflect_size("layout", spv_test_layout, LAYOUT_WORDS, spec, 8, &size), DELTAIC_OK);
  const uint32_t workgroup[] = {64, 2, 1};
  assert_memory_equal(size.workgroup, workgroup, sizeof workgroup);
  assert_int_equal(size.shared_bytes, 8 * 25 * 4 + 64 * 16 + 16);
  // Without values the module's own: ROWS 4, 1 lane, narrow, SHIFT 1: COLS = 4 + 2.
  assert_int_equal(reflect_size("layout", spv_test_layout, LAYOUT_WORDS, NULL, 0, &size), DELTAIC_OK);
  assert_int_equal(size.shared_bytes, 4 * 7 * 4 + 16 + 16);
  assert_int_equal(size.workgroup[0], 1);
}

static void absurd_spec_values_overflow_nothing(void **state) {
  struct reflected_size size;
  const uint32_t spec[] = {0xffffffff, 0, 0, 0xffffffff, 0, 1, 0, 31};
  assert_int_equal(reflect_size("layout", spv_test_layout, LAYOUT_WORDS, spec, 8, &size), DELTAIC_INTERNAL);
}

static void what_is_no_module_is_refused_by_name(void **state) {
  struct reflection r;
  const uint32_t other[8] = {0x12345678, 0x10300, 0, 8};
  assert_int_equal(reflect("matvec_f16", other, 8, &r), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "matvec_f16"));
  assert_int_equal(reflect("none", NULL, 0, &r), DELTAIC_INTERNAL);
}

// Both entry points over a copy that ends exactly where its allocation does, so that AddressSanitizer sees every word
// read beyond it.
static bool accepted(const uint32_t *words, size_t count) {
  uint32_t *copy = malloc(count ? count * 4 : 1);
  assert_non_null(copy);
  if (count) memcpy(copy, words, count * 4);
  struct reflection r;
  struct reflected_size size;
  const uint32_t spec[8] = {8, 8, 8, 8, 8, 8, 8, 8};
  bool ok = reflect("damaged", copy, count, &r) == DELTAIC_OK;
  if (ok) {
    assert_in_range(r.bindings, 0, REFLECT_BINDINGS);
    assert_in_range(r.spec_count, 0, REFLECT_SPEC);
  }
  reflect_size("damaged", copy, count, spec, 8, &size);
  free(copy);
  return ok;
}

static void truncated_modules_are_refused(void **state) {
  // Without its declarations a module is refused; what functions miss is not ours to see.
  for (size_t n = 0; n < 60; n++) assert_false(accepted(spv_test_add, n));
  for (size_t n = 60; n < ADD_WORDS; n++) accepted(spv_test_add, n);
  for (size_t n = 0; n < LAYOUT_WORDS; n++) accepted(spv_test_layout, n);
}

static void damage(const uint32_t *words, size_t count) {
  uint32_t *copy = malloc(count * 4);
  assert_non_null(copy);
  memcpy(copy, words, count * 4);
  const uint32_t values[] = {0, 1, 0x7fffffff, 0xffffffff, 0x00020047, 0xffff001e};
  for (size_t i = 0; i < count; i++) {
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
      copy[i] = values[v];
      accepted(copy, count);
    }
    for (int bit = 0; bit < 32; bit += 3) {
      copy[i] = words[i] ^ 1u << bit;
      accepted(copy, count);
    }
    copy[i] = words[i];
  }
  free(copy);
}

static void damaged_words_are_never_followed_outside(void **state) {
  damage(spv_test_add, ADD_WORDS);
  damage(spv_test_layout, LAYOUT_WORDS);
}

static uint32_t next_random(uint32_t *seed) { return *seed = *seed * 1664525 + 1013904223; }

// Words swapped, copied over and replaced at random, several at a time.
static void scrambled_modules_are_never_followed_outside(void **state) {
  uint32_t seed = 1, copy[LAYOUT_WORDS];
  for (int round = 0; round < 20000; round++) {
    memcpy(copy, spv_test_layout, sizeof copy);
    for (int i = 0; i < 4; i++) {
      uint32_t to = next_random(&seed) / 7 % LAYOUT_WORDS, from = next_random(&seed) / 7 % LAYOUT_WORDS;
      copy[to] = round % 2 ? copy[from] : next_random(&seed);
    }
    accepted(copy, LAYOUT_WORDS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bindings_and_their_directions_are_found),
      cmocka_unit_test(push_constants_and_spec_ids_are_found),
      cmocka_unit_test(blocks_are_read_only_when_all_members_are),
      cmocka_unit_test(nested_push_constants_are_measured),
      cmocka_unit_test(spec_ids_come_in_ascending_order),
      cmocka_unit_test(sizes_follow_the_spec_values),
      cmocka_unit_test(absurd_spec_values_overflow_nothing),
      cmocka_unit_test(what_is_no_module_is_refused_by_name),
      cmocka_unit_test(truncated_modules_are_refused),
      cmocka_unit_test(damaged_words_are_never_followed_outside),
      cmocka_unit_test(scrambled_modules_are_never_followed_outside),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
