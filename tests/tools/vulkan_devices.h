// vulkan_devices.h: for programs that go through the usable Vulkan devices themselves, below the public interface.
#ifndef VULKAN_DEVICES_H
#define VULKAN_DEVICES_H
#include "caps.h"
#include "open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*use_device)(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                          const struct plan *plan); // returns its failures

static inline void vulkan_log_line(void *user, deltaic_log_level level, const char *line) {
  (void)user;
  if (level != DELTAIC_LOG_INFO) fprintf(stderr, "%s\n", line);
}

// The exit code of a test: 0 where every usable device passed, under the validation layer. DELTAIC_TEST_DEVICE=cpu:
// there is nothing to do. DELTAIC_TEST_NO_LAYER=1: without the layer.
static inline int test_vulkan_devices(use_device test) {
  struct instance instance;
  struct device_caps *caps;
  VkPhysicalDevice *handles;
  uint32_t count;
  int failed = 0, ran = 0;
  const char *only = getenv("DELTAIC_TEST_DEVICE"), *without = getenv("DELTAIC_TEST_NO_LAYER");
  if (only && only[0] == 'c') return 0;
  if (instance_create(&instance, true, vulkan_log_line, NULL) || instance_devices(&instance, &caps, &handles, &count)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  if (!instance.validate && !(without && !strcmp(without, "1"))) {
    fprintf(stderr, "the validation layer is not installed, and DELTAIC_TEST_NO_LAYER=1 is not set\n");
    failed++;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct plan plan;
    plan_make(&caps[i], &plan);
    if (!plan.usable) continue;
    failed += test(&instance, handles[i], &caps[i], &plan);
    ran++;
  }
  uint64_t errors = atomic_load(&instance.validation_errors);
  if (errors) fprintf(stderr, "%llu validation errors\n", (unsigned long long)errors);
  if (!ran) fprintf(stderr, "no Vulkan device to test on\n");
  free(caps);
  free(handles);
  instance_free(&instance);
  return failed || errors || !ran;
}

// The exit code of a bench, on every GPU or on what DELTAIC_TEST_DEVICE names.
static inline int bench_vulkan_devices(use_device bench) {
  struct instance instance;
  struct device_caps *caps;
  VkPhysicalDevice *handles;
  uint32_t count;
  int failed = 0;
  const char *only = getenv("DELTAIC_TEST_DEVICE");
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (instance_create(&instance, false, NULL, NULL) || instance_devices(&instance, &caps, &handles, &count)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct plan plan;
    plan_make(&caps[i], &plan);
    bool software = caps[i].device_type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    if (plan.usable && (only ? strstr(caps[i].name, only) != NULL : !software))
      failed += bench(&instance, handles[i], &caps[i], &plan);
  }
  free(caps);
  free(handles);
  instance_free(&instance);
  return failed != 0;
}
#endif
