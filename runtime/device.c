// device: handles a device's errors, submits to its queue and waits for it.
#include "device.h"
#include "platform.h"

deltaic_status device_fail(struct device *device, VkResult result, const char *what) {
  switch (result) {
  case VK_ERROR_DEVICE_LOST:
    atomic_store(&device->lost, true);
    return fail(DELTAIC_DEVICE_LOST, "%s was lost while %s", device->caps.name, what);
  case VK_ERROR_OUT_OF_HOST_MEMORY:
    return fail(DELTAIC_OUT_OF_MEMORY, "%s: out of main memory while %s", device->caps.name, what);
  case VK_ERROR_OUT_OF_DEVICE_MEMORY:
  case VK_ERROR_OUT_OF_POOL_MEMORY:
  case VK_ERROR_TOO_MANY_OBJECTS:
    return fail(DELTAIC_OUT_OF_MEMORY, "%s: out of memory while %s", device->caps.name, what);
  default: return fail(DELTAIC_INTERNAL, "%s: VkResult %d while %s", device->caps.name, result, what);
  }
}

deltaic_status device_check(const struct device *device) {
  if (!atomic_load(&device->lost)) return DELTAIC_OK;
  return fail(DELTAIC_DEVICE_LOST, "%s was lost; close it and open it again", device->caps.name);
}

// ---------------------------------------------------------------- queue

deltaic_status device_submit(struct device *device, VkCommandBuffer cmd, VkFence fence) {
  deltaic_status status = device_check(device);
  if (status) return status;
  VkResult result = device->vk.vkResetFences(device->handle, 1, &fence);
  if (result) return device_fail(device, result, "work was submitted");
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &cmd};
  pthread_mutex_lock(&device->queue_lock);
  result = device->vk.vkQueueSubmit(device->queue, 1, &info, fence);
  pthread_mutex_unlock(&device->queue_lock);
  return result == VK_SUCCESS ? DELTAIC_OK : device_fail(device, result, "work was submitted");
}

void device_idle(struct device *device) {
  if (atomic_load(&device->silent)) return;
  pthread_mutex_lock(&device->queue_lock);
  if (device->queue) device->vk.vkQueueWaitIdle(device->queue);
  pthread_mutex_unlock(&device->queue_lock);
}

// Polling a fence notices its signal about 20 us sooner than a blocking wait. For work of known duration this sleeps
// for three quarters of it, then polls for a limited time; for other work it polls briefly. Software devices are not
// polled, since they need the processor.
static VkResult poll_fence(struct device *device, VkFence fence, uint64_t expected_ns) {
  enum { POLL_NS = 50000, WORTH_SLEEPING_NS = 400000, LONGEST_NS = 20000000 };
  VkResult result;
  if (expected_ns > LONGEST_NS) return VK_NOT_READY;
  if (expected_ns > WORTH_SLEEPING_NS) platform_sleep_ns(expected_ns / 4 * 3 - POLL_NS);
  uint64_t until = platform_clock_ns() + POLL_NS + expected_ns / 2;
  do result = device->vk.vkGetFenceStatus(device->handle, fence);
  while (result == VK_NOT_READY && platform_clock_ns() < until);
  return result;
}

enum { SECOND_NS = 1000000000, NAP_NS = 10000000 };

// Waits on the fence for up to a second. When the wait fails, for example for lack of memory, the work still runs, so
// this sleeps briefly and checks the fence. Returns the nanoseconds slept as a count, not from a clock, so that time in
// which the process was stopped is not attributed to the device.
static uint64_t sleep_on_fence(struct device *device, VkFence fence, VkResult *result) {
  if (*result >= VK_SUCCESS) {
    *result = device->vk.vkWaitForFences(device->handle, 1, &fence, VK_TRUE, SECOND_NS);
    return *result == VK_TIMEOUT ? SECOND_NS : 0;
  }
  platform_sleep_ns(NAP_NS);
  *result = device->vk.vkGetFenceStatus(device->handle, fence);
  return NAP_NS;
}

// Waits until the fence is signalled or the device is lost. Signals of other threads' fences also show that the device
// works, since the queue runs all work in order.
static deltaic_status await_fence(struct device *device, VkFence fence, VkResult *result) {
  uint64_t answers = atomic_load(&device->answers), silent = 0;
  while (*result != VK_SUCCESS && *result != VK_ERROR_DEVICE_LOST) {
    silent += sleep_on_fence(device, fence, result);
    if (*result == VK_SUCCESS) break;
    uint64_t now = atomic_load(&device->answers);
    if (now != answers) silent = 0;
    answers = now;
    if (atomic_load(&device->lost))
      *result = VK_ERROR_DEVICE_LOST; // the fence may never be signalled
    else if (silent >= (uint64_t)device->plan.silent_seconds * SECOND_NS) {
      atomic_store(&device->silent, true);
      atomic_store(&device->lost, true);
      return fail(DELTAIC_DEVICE_LOST, "%s was lost: it has not answered for %u seconds", device->caps.name,
                  device->plan.silent_seconds);
    }
  }
  return DELTAIC_OK;
}

deltaic_status device_wait(struct device *device, VkFence fence, uint64_t expected_ns) {
  bool software = device->caps.device_type == VK_PHYSICAL_DEVICE_TYPE_CPU;
  VkResult result = software ? VK_NOT_READY : poll_fence(device, fence, expected_ns);
  deltaic_status status = await_fence(device, fence, &result);
  if (status) return status;
  if (result != VK_SUCCESS) return device_fail(device, result, "work was waited for");
  atomic_fetch_add(&device->answers, 1);
  return DELTAIC_OK;
}
