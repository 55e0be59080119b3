// test_ops_vulkan: the operator cases of ops_cases.h on every usable Vulkan device, under the validation layer, with
// every recording's barriers proved by the hazard checker.
#include "hazard.h"
#include "ops_cases.h"
#include "vulkan_backend.h"
#include "vulkan_devices.h"

static struct hazard_trace *trace;
static const struct backend_functions *vulkan;

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
  // Software compiles its own tiles of chunks for ten seconds; the tests of models run those.
  struct plan_rules *rules = &((struct vulkan_backend *)backend)->rules;
  if (plan->software) rules->chunk_lanes = 64, rules->chunk_columns = 16;
  vulkan = backend->functions;
  struct backend_functions traced = *vulkan;
  traced.recorder_create = traced_recorder;
  backend->functions = &traced;
  int failed = ops_cases_run(backend);
  failed += hazards();
  hazard_clear(trace);
  backend->functions->close(backend);
  return failed;
}

int main(void) {
  if (hazard_create(&trace)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  int code = test_vulkan_devices(test_device);
  hazard_free(trace);
  return code;
}
