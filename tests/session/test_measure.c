// test_measure: one operator, or one product, by itself through the public API: right against the recurrence, or
// float64, on every device, and what cannot be measured is one sentence.
#include "device_handle.h"
#include "devices.h"
#include "vulkan_backend.h"

static deltaic_operator operator(uint32_t tokens, uint32_t heads, uint32_t key, uint32_t value) {
  return (deltaic_operator){.size = sizeof(deltaic_operator),
                            .sequences = 1,
                            .tokens = tokens,
                            .heads = heads,
                            .key = key,
                            .value = value,
                            .precision = DELTAIC_PRECISION_FLOAT32,
                            .repeat = 1};
}

static void check_measured(deltaic_device *device, deltaic_operator o) {
  for (o.rule = DELTAIC_RULE_AUTO; o.rule <= DELTAIC_RULE_CHUNK; o.rule++) {
    deltaic_operator_result r = {0};
    assert_ok(deltaic_device_measure_operator(device, &o, &r));
    if (!(r.error_output < 1e-4 && r.error_state < 1e-4))
      fail_msg("%u x %u, rule %d: errors %g and %g", o.key, o.value, o.rule, r.error_output, r.error_state);
    assert_true(r.least <= r.seconds && r.seconds <= r.most && r.least > 0);
    assert_true(r.kernel_count && r.kernels[0].dispatches && r.bytes && r.operations);
  }
}

// Keys beyond what chunks and matrices take are the recurrent kernel's.
static void operators_are_measured_and_right(deltaic_device *device) {
  deltaic_operator o = operator(70, 2, 16, 16);
  o.sequences = 3, o.value_heads = 4, o.gated = true;
  check_measured(device, o);
  check_measured(device, operator(5, 1, 1040, 8));
  o = operator(70, 2, 16, 8);
  o.blocks = 4, o.gated = true;
  check_measured(device, o);
}

// Single tokens are timed in a row, over several states: times and counts are those of one. Lavapipe passes for a GPU,
// whose short operators are timed in a chain.
static void steps_are_measured_and_right(deltaic_device *device) {
  deltaic_operator_result r;
  deltaic_operator o = operator(1, 2, 16, 16);
  o.rule = DELTAIC_RULE_RECURRENT, o.repeat = 3;
  if (device->backend->info.kind != DELTAIC_DEVICE_CPU) device->backend->info.kind = DELTAIC_DEVICE_DISCRETE;
  assert_ok(deltaic_device_measure_operator(device, &o, &r));
  assert_true(r.error_output < 1e-4 && r.error_state < 1e-4);
  assert_true(r.least <= r.seconds && r.seconds <= r.most && r.least > 0);
  for (size_t k = 0; k < r.kernel_count; k++) assert_int_equal(r.kernels[k].dispatches, o.repeat);
}

static void refused(deltaic_device *device, deltaic_operator o, deltaic_status status, const char *word) {
  deltaic_operator_result r = {.operations = 7};
  assert_int_equal(deltaic_device_measure_operator(device, &o, &r), status);
  if (!strstr(deltaic_last_error(), word)) fail_msg("\"%s\" does not say \"%s\"", deltaic_last_error(), word);
}

static void what_cannot_be_measured_is_one_sentence(deltaic_device *device) {
  static const struct {
    size_t at;
    const char *name;
  } sizes[] = {{offsetof(deltaic_operator, sequences), ": sequences is 0"},
               {offsetof(deltaic_operator, tokens), ": tokens is 0"},
               {offsetof(deltaic_operator, heads), ": heads is 0"},
               {offsetof(deltaic_operator, key), ": key is 0"},
               {offsetof(deltaic_operator, value), ": value is 0"}};
  const deltaic_operator good = operator(8, 2, 16, 16);
  deltaic_operator_result r;
  for (int i = 0; i < 5; i++) {
    deltaic_operator o = good;
    memset((char *)&o + sizes[i].at, 0, sizeof(uint32_t));
    refused(device, o, DELTAIC_INVALID_ARGUMENT, sizes[i].name);
  }
  deltaic_operator o = good;
  o.value_heads = 3;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": value_heads is 3");
  o = good, o.blocks = 3;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": blocks is 3");
  o = good, o.blocks = 32, o.key = 64;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": blocks is 32");
  o = good, o.blocks = 2, o.steps = 2;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": steps is 2");
  o = good, o.repeat = 1001;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": repeat is 1001");
  o = good, o.rule = (deltaic_rule)3;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": rule is 3");
  o = good, o.precision = (deltaic_precision)2;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, ": precision is 2");
  o = good, o.size = 0;
  refused(device, o, DELTAIC_INVALID_ARGUMENT, "size");
  o = good, o.sequences = UINT32_MAX;
  refused(device, o, DELTAIC_UNSUPPORTED, "larger than");
  o = good, o.heads = UINT32_MAX;
  refused(device, o, DELTAIC_UNSUPPORTED, "larger than");
  o = good, o.key = 1 << 16, o.value = 1 << 16;
  refused(device, o, DELTAIC_UNSUPPORTED, "larger than");
  o = good, o.tokens = INT32_MAX, o.steps = 1 << 20; // 2^62 bytes and more
  refused(device, o, DELTAIC_UNSUPPORTED, "larger than");
  refused(NULL, good, DELTAIC_INVALID_ARGUMENT, ": device is NULL");
  assert_int_equal(deltaic_device_measure_operator(device, NULL, &r), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), ": op is NULL"));
  assert_int_equal(deltaic_device_measure_operator(device, &good, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_non_null(strstr(deltaic_last_error(), ": result is NULL"));
}

static deltaic_matmul matmul(uint32_t rows, uint32_t outputs, uint32_t inputs, deltaic_precision precision) {
  return (deltaic_matmul){sizeof(deltaic_matmul), rows, outputs, inputs, precision, 2};
}

static void products_are_measured_and_right(deltaic_device *device) {
  static const uint32_t shapes[][3] = {{1, 48, 64}, {3, 40, 72}, {16, 50, 64}, {70, 96, 128}};
  for (int i = 0; i < 8; i++) {
    const uint32_t *n = shapes[i / 2];
    const deltaic_precision precision = i % 2 ? DELTAIC_PRECISION_FAST : DELTAIC_PRECISION_FLOAT32;
    const deltaic_matmul m = matmul(n[0], n[1], n[2], precision);
    deltaic_matmul_result r = {0};
    assert_ok(deltaic_device_measure_matmul(device, &m, &r));
    if (!(r.error < (precision == DELTAIC_PRECISION_FAST ? 1e-3 : 1e-6)))
      fail_msg("%u x %u x %u: error %g", n[0], n[1], n[2], r.error);
    assert_true(r.least <= r.seconds && r.seconds <= r.most && r.least > 0);
    assert_int_equal(r.operations, 2 * n[0] * n[1] * n[2]);
    assert_true(r.bytes >= 2 * n[1] * n[2] + 2 * n[0] * n[2] + 4 * n[0] * n[1] && !strncmp(r.kernel, "mat", 3));
  }
}

// Sizes that the plan of a GPU may choose: software has one tile, without slices and with one tile in shared memory.
static void tiles_of_other_sizes_are_right(deltaic_device *device) {
  static const struct plan_tile tiles[] = {{32, 32, 32, 4, 4, 2, 2, 1},
                                           {32, 32, 64, 4, 4, 4, 1, 2},
                                           {64, 32, 8, 8, 4, 1, 2, 2},
                                           {32, 64, 16, 4, 8, 1, 1, 4}};
  if (!device->backend->replays) return;
  struct plan_products *plan = &((struct vulkan_backend *)device->backend)->products;
  for (int i = 0; i < 4; i++) {
    plan->tile = plan->some = plan->few = tiles[i];
    const deltaic_matmul m = matmul(70, 50, 136, DELTAIC_PRECISION_FLOAT32);
    deltaic_matmul_result r = {0};
    assert_ok(deltaic_device_measure_matmul(device, &m, &r));
    if (!(r.error < 1e-6)) fail_msg("tile %d: error %g", i, r.error);
  }
}

static void refused_matmul(deltaic_device *device, deltaic_matmul m, deltaic_status status, const char *word) {
  deltaic_matmul_result r;
  assert_int_equal(deltaic_device_measure_matmul(device, &m, &r), status);
  if (!strstr(deltaic_last_error(), word)) fail_msg("\"%s\" does not say \"%s\"", deltaic_last_error(), word);
}

static void products_that_cannot_be_measured_are_one_sentence(deltaic_device *device) {
  const deltaic_matmul good = matmul(2, 16, 16, DELTAIC_PRECISION_FAST);
  deltaic_matmul m = good;
  deltaic_matmul_result r;
  refused_matmul(device, matmul(0, 16, 16, DELTAIC_PRECISION_FAST), DELTAIC_INVALID_ARGUMENT, "a multiple of 8");
  refused_matmul(device, matmul(2, 0, 16, DELTAIC_PRECISION_FAST), DELTAIC_INVALID_ARGUMENT, "a multiple of 8");
  refused_matmul(device, matmul(2, 16, 0, DELTAIC_PRECISION_FAST), DELTAIC_INVALID_ARGUMENT, "a multiple of 8");
  refused_matmul(device, matmul(2, 16, 12, DELTAIC_PRECISION_FAST), DELTAIC_INVALID_ARGUMENT, "a multiple of 8");
  refused_matmul(device, matmul(2, 16, 16, (deltaic_precision)2), DELTAIC_INVALID_ARGUMENT, "a multiple of 8");
  m.repeat = 1001;
  refused_matmul(device, m, DELTAIC_INVALID_ARGUMENT, "a multiple of 8");
  m = good, m.size = 0;
  refused_matmul(device, m, DELTAIC_INVALID_ARGUMENT, "size");
  refused_matmul(device, matmul(1 << 20, 16, 1 << 20, DELTAIC_PRECISION_FAST), DELTAIC_UNSUPPORTED, "larger than");
  refused_matmul(device, matmul(2, 1 << 20, 1 << 20, DELTAIC_PRECISION_FAST), DELTAIC_UNSUPPORTED, "larger than");
  assert_int_equal(deltaic_device_measure_matmul(NULL, &good, &r), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_device_measure_matmul(device, NULL, &r), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_device_measure_matmul(device, &good, NULL), DELTAIC_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      device_test(operators_are_measured_and_right),
      device_test(steps_are_measured_and_right),
      device_test(what_cannot_be_measured_is_one_sentence),
      device_test(products_are_measured_and_right),
      device_test(tiles_of_other_sizes_are_right),
      device_test(products_that_cannot_be_measured_are_one_sentence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
