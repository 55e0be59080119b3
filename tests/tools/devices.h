// devices.h: runs a test on the CPU and on every Vulkan device of the machine. DELTAIC_TEST_DEVICE=cpu or =vulkan
// narrows it.
#ifndef TEST_DEVICES_H
#define TEST_DEVICES_H
#include "deltaic.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define assert_ok(call)                                                                                                \
  do {                                                                                                                 \
    deltaic_status assert_ok_status = (call);                                                                          \
    if (assert_ok_status != DELTAIC_OK)                                                                                \
      fail_msg("%s: %s: %s", #call, deltaic_status_name(assert_ok_status), deltaic_last_error());                      \
  } while (0)

// Sessions whose numbers are compared with float64.
static const deltaic_session_options exact = {.size = sizeof exact, .precision = DELTAIC_PRECISION_FLOAT32};

static bool test_layer_missing; // of a context that a test has made

static void test_log(void *user, deltaic_log_level level, const char *line) {
  (void)user;
  if (strstr(line, "validation was asked for")) test_layer_missing = true;
  if (level != DELTAIC_LOG_INFO) print_message("log: %s\n", line);
}

static inline deltaic_model *open_model(deltaic_device *device, const char *path) {
  deltaic_model *model;
  assert_ok(deltaic_model_open(device, path, NULL, &model));
  return model;
}

static inline deltaic_session *open_session(deltaic_model *model, const deltaic_session_options *options) {
  deltaic_session *session;
  assert_ok(deltaic_session_create(model, options, &session));
  return session;
}

static inline void close_session(deltaic_session *session, deltaic_model *model) {
  deltaic_session_free(session);
  deltaic_model_close(model);
}

static inline deltaic_model_info info_of(const deltaic_model *model) {
  deltaic_model_info info;
  deltaic_model_get_info(model, &info);
  return info;
}

static inline deltaic_device_info device_info(const deltaic_device *device) {
  deltaic_device_info info;
  deltaic_device_get_info(device, &info);
  return info;
}

// Under the validation layer, and fails without it, so that a machine that lacks it does not pass in silence, unless
// DELTAIC_TEST_NO_LAYER=1 says so or only the CPU is tested.
static inline deltaic_context *test_context(void) {
  deltaic_context_options options = {.size = sizeof options, .validate = true, .log = test_log, .cache_dir = ""};
  deltaic_context *context;
  assert_ok(deltaic_context_create(&options, &context));
  const char *without = getenv("DELTAIC_TEST_NO_LAYER"), *only = getenv("DELTAIC_TEST_DEVICE");
  if (test_layer_missing && !(without && !strcmp(without, "1")) && !(only && !strcmp(only, "cpu")))
    fail_msg("the validation layer is not installed, and DELTAIC_TEST_NO_LAYER=1 is not set");
  return context;
}

// Fails when no Vulkan device was tested, so that a machine without Vulkan does not pass in silence, unless
// DELTAIC_TEST_DEVICE=cpu says so.
static inline void assert_vulkan_tested(size_t tested) {
  const char *only = getenv("DELTAIC_TEST_DEVICE");
  if (!tested && !(only && !strcmp(only, "cpu"))) fail_msg("no Vulkan device to test on");
}

typedef void (*test_of_device)(deltaic_device *device);

static inline bool device_wanted(const deltaic_device_info *info) {
  const char *only = getenv("DELTAIC_TEST_DEVICE");
  return info->usable && (!only || !strcmp(only, info->kind == DELTAIC_DEVICE_CPU ? "cpu" : "vulkan"));
}

static inline void on_every_device(test_of_device test) {
  deltaic_context *context = test_context();
  deltaic_device_info infos[16];
  size_t count, ran = 0, vulkan = 0;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count && i < 16; i++) {
    if (!device_wanted(&infos[i])) continue;
    // The CPU's scratch grows with its threads, and some tests have little room for it.
    deltaic_device_options options = {.size = sizeof options, .index = infos[i].index, .threads = 2};
    deltaic_device *device;
    assert_ok(deltaic_device_open(context, &options, &device));
    test(device);
    deltaic_device_close(device);
    ran++;
    vulkan += infos[i].kind != DELTAIC_DEVICE_CPU;
  }
  assert_true(ran);
  assert_vulkan_tested(vulkan);
  assert_int_equal(deltaic_context_validation_errors(context), 0);
  deltaic_context_free(context);
}

// An entry of a group: a function of a device, run on every one.
struct device_case {
  test_of_device test;
};
static inline void run_device_case(void **state) { on_every_device(((const struct device_case *)*state)->test); }
#define device_test(name)                                                                                              \
  {                                                                                                                    \
#name, run_device_case, NULL, NULL, &(struct device_case) { name }                                                 \
  }

// Software compiles each model's shapes for seconds: on Vulkan devices tests that go through models have the first few,
// unless DELTAIC_TEST_ALL=1 wants all.
static inline bool test_all_on(deltaic_device *device) {
  const char *all = getenv("DELTAIC_TEST_ALL");
  return device_info(device).kind == DELTAIC_DEVICE_CPU || (all && !strcmp(all, "1"));
}

static inline const char *device_name(deltaic_device *device) {
  static char name[256];
  const deltaic_device_info info = device_info(device);
  memcpy(name, info.name, sizeof name);
  return name;
}
#endif
