// test_ops_vulkan: the operator cases of ops_cases.h on every usable Vulkan device, under the validation layer, with
// every recording's barriers proved by the hazard checker.
#include "device.h"
#include "hazard.h"
#include "ops_cases.h"
#include "ops_vulkan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hazard_trace *trace;
static const struct ops *vulkan;

static void log_line(void *user, deltaic_log_level level, const char *line) {
  (void)user;
  if (level != DELTAIC_LOG_INFO) fprintf(stderr, "%s\n", line);
}

// The backend's own recorders, traced.
static deltaic_status traced_recorder(struct backend *b, struct recorder **out) {
  deltaic_status status = vulkan->recorder_create(b, out);
  if (!status) commands_trace(((struct vulkan_recorder *)*out)->commands, trace, 0);
  return status;
}

static int hazards(void) {
  char text[512];
  uint64_t n = hazard_check(trace, text, sizeof text);
  if (n) fprintf(stderr, "%llu hazards: %s\n", (unsigned long long)n, text);
  return n != 0;
}

// Returns failed cases, one more for a hazard.
static int test_device(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                       const struct plan *plan) {
  struct device *device;
  struct backend *backend;
  if (device_open(instance, handle, caps, plan, NULL, &device) || backend_open_vulkan(device, &backend)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  printf("%s, %s\n", caps->name, caps->driver);
  vulkan = backend->ops;
  struct ops traced = *vulkan;
  traced.recorder_create = traced_recorder;
  backend->ops = &traced;
  int failed = ops_cases_run(backend);
  failed += hazards();
  hazard_clear(trace);
  backend->ops->backend_close(backend);
  return failed;
}

int main(void) {
  struct instance instance;
  struct device_caps *caps;
  VkPhysicalDevice *handles;
  uint32_t count;
  int failed = 0, ran = 0;
  const char *only = getenv("DELTAIC_TEST_DEVICE");
  if (only && only[0] == 'c') return 0;
  if (instance_create(&instance, true, log_line, NULL) || instance_devices(&instance, &caps, &handles, &count) ||
      hazard_create(&trace)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  const char *without = getenv("DELTAIC_TEST_NO_LAYER");
  if (!instance.validate && !(without && !strcmp(without, "1"))) {
    fprintf(stderr, "the validation layer is not installed, and DELTAIC_TEST_NO_LAYER=1 is not set\n");
    failed++;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct plan plan;
    plan_make(&caps[i], &plan);
    if (!plan.usable) continue;
    failed += test_device(&instance, handles[i], &caps[i], &plan);
    ran++;
  }
  uint64_t errors = atomic_load(&instance.validation_errors);
  if (errors) fprintf(stderr, "%llu validation errors\n", (unsigned long long)errors);
  if (!ran) fprintf(stderr, "no Vulkan device to test on\n");
  hazard_free(trace);
  free(caps);
  free(handles);
  instance_free(&instance);
  return failed || errors || !ran;
}
