// device.h: the Vulkan instance and one opened device with its one compute queue.
#ifndef DEVICE_H
#define DEVICE_H
#include "plan.h"
#include "status.h"
#include <pthread.h>
#include <stdatomic.h>
#include <volk.h>

typedef void (*log_function)(void *user, deltaic_log_level level, const char *line);

struct instance {
  VkInstance handle; // NULL: no Vulkan loader or no driver; listing then gives no device
  VkDebugUtilsMessengerEXT messenger;
  uint32_t api_version;
  atomic_uint_fast64_t validation_errors;
  log_function log;
  void *log_user;
  bool validate;
  atomic_bool abandoned; // a silent device was closed, so the VkInstance is never destroyed
};

// Succeeds with handle NULL when the machine has no Vulkan. Logs a warning when `validate` is set but not installed.
deltaic_status instance_create(struct instance *instance, bool validate, log_function log, void *log_user);
void instance_free(struct instance *instance);
__attribute__((format(printf, 3, 4))) void instance_log(struct instance *instance, deltaic_log_level level,
                                                        const char *format, ...);

struct pipeline_store; // every kernel created so far and the disk cache (pipeline.c)
struct transfer;       // staging memory and its command buffers (buffer.c)

struct device {
  struct instance *instance;
  VkPhysicalDevice physical;
  VkDevice handle;
  struct VolkDeviceTable vk; // d->vk.vkQueueSubmit(...); tests replace entries to make the device fail
  uint32_t queue_family;
  VkQueue queue;
  pthread_mutex_t queue_lock; // around every use of the queue
  struct device_caps caps;
  struct plan plan;
  // Set when a call returned VK_ERROR_DEVICE_LOST or the device was silent too long; all later work is refused.
  atomic_bool lost;
  // Lost because it was silent; it may still run submitted work. Nothing waits for it, and its Vulkan objects are not
  // destroyed, since that could block or free memory that the work uses.
  atomic_bool silent;
  atomic_uint_fast64_t answers;                                 // fences waited for with success
  bool (*compiling)(void *user, uint64_t done, uint64_t total); // before each pipeline (deltaic.h); NULL: none
  void *compiling_user;
  struct pipeline_store *pipelines;
  struct transfer *transfer;
};

// Converts a VkResult to a status with a message: DEVICE_LOST (also marks the device), OUT_OF_MEMORY, else INTERNAL.
deltaic_status device_fail(struct device *device, VkResult result, const char *what);
// DELTAIC_DEVICE_LOST with its sentence once the device is lost, else DELTAIC_OK.
deltaic_status device_check(const struct device *device);
// Submits one command buffer; `fence`, which no work holds, is signalled when it has run.
deltaic_status device_submit(struct device *device, VkCommandBuffer cmd, VkFence fence);
// Waits for the fence of a successful device_submit; a wait that fails is repeated. expected_ns: duration of the work
// when known, else 0; for work of up to about 20 ms the wait polls, which avoids the delay of being woken up. Fails
// when the device is lost, which includes the case that no fence was signalled for plan.silent_seconds; in all other
// cases the work has run.
deltaic_status device_wait(struct device *device, VkFence fence, uint64_t expected_ns);
// Waits until the queue is idle and ignores failures, so the last error's message stays. Not for a silent device.
void device_idle(struct device *device);
#endif
