// The time that a command reports is without the time in which the driver compiled.
#include "engine.h"
#include "vulkan_backend.h"

#include "device_handle.h"
#include "devices.h" // last: its macro fail() must not meet the declaration of ours

static const double wait = 0.05;
static PFN_vkCreateComputePipelines real_pipelines;
static uint32_t made;

static VKAPI_ATTR VkResult VKAPI_CALL slow_pipelines(VkDevice device, VkPipelineCache cache, uint32_t count,
                                                     const VkComputePipelineCreateInfo *infos,
                                                     const VkAllocationCallbacks *memory, VkPipeline *out) {
  const double until = time_now() + wait;
  while (time_now() < until) {
  }
  made += count;
  return real_pipelines(device, cache, count, infos, memory, out);
}

static void speeds_are_without_compiling(deltaic_device *device) {
  if (device->backend->info.kind == DELTAIC_DEVICE_CPU) return;
  struct device *inner = ((struct vulkan_backend *)device->backend)->device;
  real_pipelines = inner->vk.vkCreateComputePipelines;
  inner->vk.vkCreateComputePipelines = slow_pipelines;
  made = 0;
  static const int32_t text[3] = {1, 5, 3};
  struct engine engine = {.device = device};
  deltaic_model *model = open_model(device, TESTS_DIR "/vectors/models/tiny_delta_net");
  deltaic_session *s = open_session(model, NULL);
  const struct moment before = engine_now(&engine);
  const uint32_t made_before = made;
  assert_ok(deltaic_session_eval(s, text, 3, DELTAIC_LOGITS_NONE, NULL));
  const double seconds = engine_seconds(&engine, before), all = time_now() - before.at;
  assert_true(made > made_before);
  assert_true(seconds > 0 && seconds < all - wait * (made - made_before));
  inner->vk.vkCreateComputePipelines = real_pipelines;
  close_session(s, model);
}

int main(void) {
  const struct CMUnitTest tests[] = {device_test(speeds_are_without_compiling)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
