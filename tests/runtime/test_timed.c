// Choices from times, without a device: what they make of plans, and files that are not to be trusted.
#include "caps_devices.h"
#include "plan_delta.h"
#include "plan_matmul.h"
#include "plan_rule.h"
#include "test_folder.h"
#include "timed.h"

static struct plan plan_of(const struct device_caps *caps, const struct timed_choices *timed) {
  struct plan plan;
  plan_make(caps, &plan);
  plan_use_timed(&plan, timed);
  return plan;
}

static bool product_on_matrices(const struct device_caps *caps, const struct timed_choices *timed) {
  const struct plan plan = plan_of(caps, timed);
  struct plan_products products;
  struct plan_matmul m;
  plan_products_make(caps, &plan, &products);
  return plan_matmul_matrix(&products, 512, 2048, 2048, true, &m);
}

static bool rule_on_matrices(const struct device_caps *caps, const struct timed_choices *timed) {
  const struct plan plan = plan_of(caps, timed);
  struct plan_delta_matrix d;
  return plan_delta_matrix(&plan, 128, 128, 1, 1, 16, 2048, &d);
}

static void unknown_choices_leave_the_plan_as_it_is(void **state) {
  const struct timed_choices none = timed_choose(&(struct timed_times){0});
  (void)state;
  assert_memory_equal(&none, &(struct timed_choices){0}, sizeof none);
  assert_true(product_on_matrices(&caps_h200, &none) && rule_on_matrices(&caps_h200, &none));
  assert_false(product_on_matrices(&caps_arc_linux, &none) || rule_on_matrices(&caps_arc_linux, &none));
}

static void matrices_are_used_where_they_are_faster(void **state) {
  struct timed_times times = {.product = {1e-3, 20e-3}, .mixer = {1, 1e-3}};
  (void)state;
  struct timed_choices t = timed_choose(&times);
  assert_true(t.products == TIMED_YES && t.mixers == TIMED_NO);
  assert_true(product_on_matrices(&caps_h200, &t) && !rule_on_matrices(&caps_h200, &t));
  assert_true(product_on_matrices(&caps_arc_linux, &t)); // which the plan alone would not
  assert_false(product_on_matrices(&caps_lavapipe, &t)); // it has none
  times.product = (struct timed_pair){1, 1e-3};          // a thousand times slower
  times.mixer = (struct timed_pair){1e-3, 2e-3};
  t = timed_choose(&times);
  assert_true(!product_on_matrices(&caps_h200, &t) && rule_on_matrices(&caps_h200, &t));
  times.mixer.scalar = 0; // not timed
  assert_int_equal(timed_choose(&times).mixers, TIMED_UNKNOWN);
}

static uint16_t percent_of(uint32_t works, const double (*work)[3]) {
  struct timed_times times = {.works = works};
  for (uint32_t i = 0; i < works; i++) {
    times.work[i].percent = (uint64_t)work[i][0];
    times.work[i].chunks = work[i][1];
    times.work[i].tokens = work[i][2];
  }
  return timed_choose(&times).chunk_percent;
}

static void chunks_are_taken_until_they_are_slower(void **state) {
  (void)state;
  assert_int_equal(percent_of(3, (const double[][3]){{25, 1, 2}, {100, 2, 1}, {400, 9, 1}}), 50);
  assert_int_equal(percent_of(3, (const double[][3]){{25, 1, 2}, {100, 0, 1}, {400, 2, 1}}), 100); // one is missing
  assert_int_equal(percent_of(2, (const double[][3]){{25, 1, 2}, {100, 1, 2}}), 100);
  assert_int_equal(percent_of(3, (const double[][3]){{25, 1, 2}, {99, 1, 2}, {400, 0, 1}}), 0); // unknown
  assert_int_equal(percent_of(2, (const double[][3]){{25, 1, 2}, {50, 2, 1}}), 35); // below the plan's limit, but seen
  assert_int_equal(percent_of(2, (const double[][3]){{25, 1e3, 1}, {100, 1, 2}}), 1);
  assert_int_equal(percent_of(2, (const double[][3]){{25, 1, 2}, {1e9, 1, 2}}), 10000);
  assert_int_equal(percent_of(0, NULL), 0);
}

static void the_limit_moves_the_choice_of_chunks(void **state) {
  static const struct device_caps *const devices[] = {&caps_h200, &caps_lavapipe, &caps_rdna3_radv};
  (void)state;
  for (int i = 0; i < 3; i++)
    for (uint16_t limit = 0; limit <= 400; limit += 50) {
      const struct plan plan = plan_of(devices[i], &(struct timed_choices){.chunk_percent = limit});
      struct plan_rules rules;
      struct plan_delta d;
      plan_rules_make(devices[i], &plan, &rules);
      for (uint32_t heads = 1; heads < 1000; heads += 1 + heads / 8) {
        assert_true(plan_chunk_sizes(&rules, 128, 128, 1, heads, &d));
        const bool below = plan_chunk_percent(&rules, &d, 128, 128, 1, heads) < (limit ? limit : 100);
        const bool always = !limit && devices[i] == &caps_lavapipe;
        assert_int_equal(plan_chunks_pay(&rules, &d, 128, 128, 1, heads), below || always);
      }
    }
}

static void never_is_for_little_work_too(void **state) {
  const struct plan plan = plan_of(&caps_h200, &(struct timed_choices){.chunk_percent = PLAN_CHUNKS_NEVER});
  struct plan_rules rules;
  struct plan_delta d;
  (void)state;
  plan_rules_make(&caps_h200, &plan, &rules);
  assert_true(plan_chunk_sizes(&rules, 16, 16, 1, 1, &d));
  assert_int_equal(plan_chunk_percent(&rules, &d, 16, 16, 1, 1), 0);
  assert_false(plan_chunks_pay(&rules, &d, 16, 16, 1, 1));
}

static void the_fastest_tile_is_taken(void **state) {
  struct timed_times times = {.usual_tile = 1, .tile = {0, 0.97, 1.2, 0}};
  (void)state;
  assert_int_equal(timed_choose(&times).tile, 0); // hardly faster
  times.tile[2] = 0.5, times.tile[3] = 0.4;
  const struct timed_choices t = timed_choose(&times);
  assert_int_equal(t.tile, 4);
  for (int i = 0; i < CAPS_USABLE; i++) {
    const struct plan plan = plan_of(caps_usable[i], &t);
    struct plan_products products;
    plan_products_make(caps_usable[i], &plan, &products);
    assert_true(plan_has_tile(&products, &plan_tiles[3]));
    assert_true(plan_matmul_lanes(&products.tile) <= plan.most_lanes &&
                plan_matmul_shared_bytes(&products.tile) <= plan.shared_bytes);
  }
}

// ---------------------------------------------------------------- files

static void a_file_gives_what_was_stored(void **state) {
  static const struct timed_choices all[] = {
      {0}, {TIMED_NO, TIMED_YES, 137, 2}, {TIMED_YES, TIMED_UNKNOWN, 1, PLAN_TILES}};
  (void)state;
  char *path = timed_path(folder, &caps_h200);
  for (int i = 0; i < 3; i++) {
    struct timed_choices got;
    assert_int_equal(timed_store(path, &caps_h200, &all[i]), DELTAIC_OK);
    assert_int_equal(timed_load(path, &caps_h200, &got), DELTAIC_OK);
    assert_memory_equal(&got, &all[i], sizeof got);
  }
  struct device_caps newer = caps_h200;
  snprintf(newer.driver, sizeof newer.driver, "a newer one");
  char *other = timed_path(folder, &newer);
  assert_string_not_equal(path, other);
  struct timed_choices got;
  assert_int_equal(timed_load(other, &newer, &got), DELTAIC_OK); // there is none
  assert_memory_equal(&got, &all[0], sizeof got);
  assert_int_equal(timed_load(path, &newer, &got), DELTAIC_BAD_FILE);
  ASSERT_MESSAGE(path, "another device or driver");
  assert_memory_equal(&got, &all[0], sizeof got);
  free(path);
  free(other);
}

// Every byte of a good file replaced by others, and every beginning of it.
static void damaged_files_change_nothing(void **state) {
  static const struct timed_choices stored = {TIMED_NO, TIMED_YES, 137, 2}, none = {0};
  static char text[4096];
  (void)state;
  char *path = timed_path(folder, &caps_h200);
  assert_int_equal(timed_store(path, &caps_h200, &stored), DELTAIC_OK);
  FILE *file = platform_open(path, "rb");
  const size_t bytes = fread(text, 1, sizeof text, file);
  fclose(file);
  assert_in_range(bytes, 100, sizeof text - 1);
  for (size_t i = 0; i < 2 * bytes; i++) {
    const size_t at = i / 2, length = i % 2 ? at : bytes;
    const char kept = text[at];
    struct timed_choices got;
    if (length == bytes) text[at] = (char)(kept == '9' ? '0' : kept + 1);
    file = platform_open(path, "wb");
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
    text[at] = kept;
    const deltaic_status status = timed_load(path, &caps_h200, &got);
    assert_true(got.products <= TIMED_YES && got.mixers <= TIMED_YES && got.tile <= PLAN_TILES);
    assert_true(got.chunk_percent <= 10000);
    if (status) assert_memory_equal(&got, &none, sizeof got);
    if (length < bytes) assert_int_equal(status, DELTAIC_BAD_FILE);
  }
  free(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unknown_choices_leave_the_plan_as_it_is),
      cmocka_unit_test(matrices_are_used_where_they_are_faster),
      cmocka_unit_test(chunks_are_taken_until_they_are_slower),
      cmocka_unit_test(the_limit_moves_the_choice_of_chunks),
      cmocka_unit_test(never_is_for_little_work_too),
      cmocka_unit_test(the_fastest_tile_is_taken),
      IN_FOLDER(a_file_gives_what_was_stored),
      IN_FOLDER(damaged_files_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
