// test_runtime_lost: devices that fail, and one that stays silent: all work is refused, and closing ends.
#include "test_runtime.h"

static VKAPI_ATTR VkResult VKAPI_CALL lose_device(VkQueue queue, uint32_t count, const VkSubmitInfo *info,
                                                  VkFence fence) {
  return VK_ERROR_DEVICE_LOST;
}

static void assert_lost(deltaic_status status) {
  assert_int_equal(status, DELTAIC_DEVICE_LOST);
  assert_non_null(strstr(deltaic_last_error(), "was lost"));
}

static void a_lost_device_refuses_all_work(void **state) {
  struct scene s = scene_open(device_of(state));
  struct buffer buffer;
  struct commands *other;
  char byte = 0;
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
  PFN_vkQueueSubmit real = s.device->vk.vkQueueSubmit;
  s.device->vk.vkQueueSubmit = lose_device;
  assert_lost(commands_submit(s.c));
  s.device->vk.vkQueueSubmit = real; // it does not come back
  assert_lost(commands_submit(s.c));
  commands_begin(s.c, COMMANDS_STREAM, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
  assert_lost(commands_submit(s.c));
  assert_lost(buffer_create(s.device, MEMORY_DEVICE, 16, "a test", &buffer));
  assert_lost(buffer_read(s.device, &s.a, 0, &byte, 1));
  assert_lost(buffer_write(s.device, &s.a, 0, &byte, 1));
  assert_lost(commands_create(s.device, &other));
  scene_close(&s);
}

static void a_stream_stops_when_the_device_is_lost(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  commands_begin(s.c, COMMANDS_STREAM, NULL);
  for (int i = 0; i < 9; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 50);
  s.device->vk.vkQueueSubmit = lose_device;
  for (int i = 0; i < 9; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 50);
  assert_lost(commands_submit(s.c));
  scene_close(&s);
}

static VKAPI_ATTR VkResult VKAPI_CALL lose_fences(VkDevice device, uint32_t count, const VkFence *fence, VkBool32 all,
                                                  uint64_t timeout) {
  return VK_ERROR_DEVICE_LOST;
}

static VKAPI_ATTR VkResult VKAPI_CALL lose_fence(VkDevice device, VkFence fence) { return VK_ERROR_DEVICE_LOST; }

static void a_device_lost_while_waiting_is_freed_in_order(void **state) {
  struct scene s = scene_open(device_of(state));
  s.b.mapped = NULL;
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  for (int i = 0; i < 100; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 0);
  s.device->vk.vkWaitForFences = lose_fences;
  s.device->vk.vkGetFenceStatus = lose_fence;
  assert_lost(commands_submit(s.c));
  assert_lost(buffer_zero(s.device, &s.b, 0, 400));
  scene_close(&s);
}

static void a_transfer_that_loses_the_device_says_so(void **state) {
  struct scene s = scene_open(device_of(state));
  char bytes[64] = {0};
  s.b.mapped = NULL;
  s.device->vk.vkWaitForFences = lose_fences;
  s.device->vk.vkGetFenceStatus = lose_fence;
  assert_lost(buffer_write(s.device, &s.b, 0, bytes, sizeof bytes));
  scene_close(&s);
}

static struct device *mute; // never signals a fence
static int waits, signs, unanswered, touched;

static VKAPI_ATTR VkResult VKAPI_CALL never_signalled(VkDevice device, uint32_t count, const VkFence *fence,
                                                      VkBool32 all, uint64_t timeout) {
  if (waits++ < signs) atomic_fetch_add(&mute->answers, 1); // as another thread's wait does
  return VK_TIMEOUT;
}

static VKAPI_ATTR VkResult VKAPI_CALL never_waited_for(VkDevice device, uint32_t count, const VkFence *fence,
                                                       VkBool32 all, uint64_t timeout) {
  waits++;
  return VK_ERROR_OUT_OF_HOST_MEMORY;
}

static VKAPI_ATTR VkResult VKAPI_CALL never_ready(VkDevice device, VkFence fence) { return VK_NOT_READY; }

static VKAPI_ATTR VkResult VKAPI_CALL never_idle(VkQueue queue) {
  unanswered++;
  return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL no_device_destroyed(VkDevice device, const VkAllocationCallbacks *allocator) {
  touched++;
}

static VKAPI_ATTR void VKAPI_CALL no_memory_freed(VkDevice device, VkDeviceMemory memory,
                                                  const VkAllocationCallbacks *allocator) {
  touched++;
}

static VKAPI_ATTR void VKAPI_CALL no_pool_destroyed(VkDevice device, VkCommandPool pool,
                                                    const VkAllocationCallbacks *allocator) {
  touched++;
}

static VKAPI_ATTR void VKAPI_CALL no_pipeline_destroyed(VkDevice device, VkPipeline pipeline,
                                                        const VkAllocationCallbacks *allocator) {
  touched++;
}

// On an instance of its own, which it loses, and without the layer, which would count what is left behind. Returns how
// often the device was waited for until it was lost.
static int lose_by_silence(PFN_vkWaitForFences wait, uint32_t seconds) {
  struct instance instance;
  ok(instance_create(&instance, false, NULL, NULL));
  struct device *device = mute = open_device(&instance, NULL);
  struct scene s = scene_open(device);
  s.b.mapped = NULL;
  device->plan.silent_seconds = seconds;
  device->vk.vkWaitForFences = wait;
  device->vk.vkGetFenceStatus = never_ready;
  device->vk.vkQueueWaitIdle = never_idle;
  device->vk.vkDestroyDevice = no_device_destroyed;
  device->vk.vkFreeMemory = no_memory_freed;
  device->vk.vkDestroyCommandPool = no_pool_destroyed;
  device->vk.vkDestroyPipeline = no_pipeline_destroyed;
  waits = unanswered = touched = 0;
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
  assert_lost(commands_submit(s.c));
  assert_non_null(strstr(deltaic_last_error(), "has not answered for"));
  int waited = waits;
  assert_lost(buffer_zero(device, &s.b, 0, 400)); // at once
  scene_close(&s);
  device_close(device);
  instance_free(&instance);
  assert_int_equal(waits, waited);
  assert_int_equal(unanswered, 0);
  assert_int_equal(touched, 0);
  return waited;
}

static void a_device_that_stays_silent_is_lost_and_closing_does_not_wait(void **state) {
  signs = 500;
  assert_int_equal(lose_by_silence(never_signalled, 60), signs + 60);
}

static void a_silent_device_is_lost_too_when_waiting_for_it_fails(void **state) {
  assert_in_range(lose_by_silence(never_waited_for, 1), 10, 1000);
}

int test_lost(void) {
  const struct CMUnitTest tests[] = {
      ON_DEVICE(a_lost_device_refuses_all_work),
      ON_DEVICE(a_stream_stops_when_the_device_is_lost),
      ON_DEVICE(a_device_lost_while_waiting_is_freed_in_order),
      ON_DEVICE(a_transfer_that_loses_the_device_says_so),
      cmocka_unit_test(a_device_that_stays_silent_is_lost_and_closing_does_not_wait),
      cmocka_unit_test(a_silent_device_is_lost_too_when_waiting_for_it_fails),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
