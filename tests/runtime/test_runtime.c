// test_runtime: everything of runtime/ that needs a device, on every Vulkan device that the machine has. The validation
// layer watches; after each test it must have found nothing.
#include "test_runtime.h"

#include "cache.h"
#include "platform.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "test_packed.h"

static const struct shader shader_add = {"add", packed_test_add, sizeof packed_test_add / 2, 3, 8, false};
static const struct shader shader_layout = {"layout", packed_test_layout, sizeof packed_test_layout / 2, 3, 76, false};

// ---------------------------------------------------------------- fixture

static uint32_t device_number; // which of the instance's devices the tests run on

static void on_log(void *user, deltaic_log_level level, const char *line) {
  if (level == DELTAIC_LOG_ERROR) print_error("%s\n", line);
}

void ok(deltaic_status status) {
  if (status) print_error("%s: %s\n", deltaic_status_name(status), deltaic_last_error());
  assert_int_equal(status, DELTAIC_OK);
}

struct device *open_device(struct instance *instance, const char *cache_dir) {
  struct device_caps *caps;
  VkPhysicalDevice *physical;
  struct device *device;
  struct plan plan;
  uint32_t count;
  ok(instance_devices(instance, &caps, &physical, &count));
  assert_in_range(device_number, 0, count - 1);
  plan_make(&caps[device_number], &plan);
  ok(device_open(instance, physical[device_number], &caps[device_number], &plan, cache_dir, &device));
  free(caps);
  free(physical);
  return device;
}

static bool without_layer(void) {
  const char *says = getenv("DELTAIC_TEST_NO_LAYER");
  return says && !strcmp(says, "1");
}

int runtime_setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  ok(instance_create(&f->instance, true, on_log, NULL));
  if (!f->instance.validate && !without_layer()) {
    print_error("the validation layer is not installed, and DELTAIC_TEST_NO_LAYER=1 is not set\n");
    return 1;
  }
  f->device = open_device(&f->instance, NULL);
  *state = f;
  return 0;
}

int runtime_teardown(void **state) {
  struct fixture *f = *state;
  device_close(f->device);
  uint64_t errors = atomic_load(&f->instance.validation_errors);
  instance_free(&f->instance);
  free(f);
  return errors != 0;
}

// ---------------------------------------------------------------- helpers

static struct buffer numbers(struct device *device, uint32_t n, float start) {
  struct buffer buffer;
  ok(buffer_create(device, MEMORY_DEVICE, 4 * (uint64_t)n, "numbers", &buffer));
  float *values = malloc(4 * (size_t)n);
  assert_non_null(values);
  for (uint32_t i = 0; i < n; i++) values[i] = start + (float)i;
  ok(buffer_write(device, &buffer, 0, values, 4 * (uint64_t)n));
  free(values);
  return buffer;
}

float number(struct device *device, struct buffer *buffer, uint32_t i) {
  float value;
  ok(buffer_read(device, buffer, 4 * (uint64_t)i, &value, 4));
  return value;
}

static const struct kernel *add_kernel(struct device *device) {
  const struct kernel *kernel;
  const uint32_t spec[] = {LANES};
  ok(kernel_get(device, &shader_add, spec, 1, &kernel));
  return kernel;
}

// Over whole ranges.
void add(struct commands *c, const struct kernel *kernel, struct binding y, struct binding a, struct binding b,
         float scale, uint64_t operations) {
  const struct binding bindings[] = {a, b, y};
  struct add_args args = {(uint32_t)(y.bytes / 4), scale};
  const uint32_t groups[] = {args.n / LANES + 1, 1, 1};
  commands_dispatch(c, kernel, bindings, &args, groups, operations);
}

struct scene scene_open(struct device *device) {
  struct scene s = {.device = device, .kernel = add_kernel(device)};
  ok(commands_create(device, &s.c));
  s.a = numbers(device, N, 1);
  s.b = numbers(device, N, 2);
  s.y = numbers(device, N, 0);
  s.z = numbers(device, N, 0);
  return s;
}

void scene_close(struct scene *s) {
  commands_free(s->c);
  buffer_free(s->device, &s->a);
  buffer_free(s->device, &s->b);
  buffer_free(s->device, &s->y);
  buffer_free(s->device, &s->z);
}

// ---------------------------------------------------------------- kernels

static void a_module_against_its_contract_is_refused(void **state) {
  struct device *device = device_of(state);
  const struct kernel *kernel;
  const uint32_t spec[] = {LANES};
  struct shader shader = shader_add;
  shader.bindings = 2;
  assert_int_equal(kernel_get(device, &shader, spec, 1, &kernel), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "add: its module has 3 bindings, its contract 2"));
  shader = shader_add;
  shader.push_bytes = 12;
  assert_int_equal(kernel_get(device, &shader, spec, 1, &kernel), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "8 bytes of push constants, its contract 12"));
  assert_int_equal(kernel_get(device, &shader_add, NULL, 0, &kernel), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "specialization constant 0"));
  assert_null(kernel);
}

static void damaged_modules_are_refused(void **state) {
  struct device *device = device_of(state);
  const struct kernel *kernel;
  const uint32_t spec[] = {LANES};
  enum { UNITS = sizeof packed_test_add / 2 };
  uint16_t copy[UNITS];
  memcpy(copy, packed_test_add, sizeof copy);
  struct shader shader = {"damaged", copy, UNITS, 3, 8, false};
  assert_int_equal(copy[0], 0xffff); // the first word takes three units
  for (shader.units = 1; shader.units < 100; shader.units++)
    assert_int_equal(kernel_get(device, &shader, spec, 1, &kernel), DELTAIC_INTERNAL);
  shader.units = UNITS;
  copy[0] = 0x9000;
  assert_int_equal(kernel_get(device, &shader, spec, 1, &kernel), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "damaged: its packed module is damaged"));
  copy[0] = 0xffff;
  copy[1] ^= 1;
  assert_int_equal(kernel_get(device, &shader, spec, 1, &kernel), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "damaged"));
}

static VkPipelineRobustnessBufferBehavior asked; // of the last pipeline; DEVICE_DEFAULT where it said nothing

// Makes nothing, so that the test also means something where the driver lacks the extension.
static VKAPI_ATTR VkResult VKAPI_CALL note_asked(VkDevice device, VkPipelineCache cache, uint32_t n,
                                                 const VkComputePipelineCreateInfo *info,
                                                 const VkAllocationCallbacks *allocator, VkPipeline *out) {
  const VkPipelineRobustnessCreateInfoEXT *first = info->pNext;
  bool said = first && first->sType == VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT;
  asked = said ? first->storageBuffers : VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT;
  *out = VK_NULL_HANDLE;
  return VK_SUCCESS;
}

static void only_what_may_be_is_unchecked(void **state) {
  static struct shader shader[4]; // kept: kernels are found by the address of theirs
  struct device *device = device_of(state);
  PFN_vkCreateComputePipelines create = device->vk.vkCreateComputePipelines;
  VkPipelineRobustnessBufferBehavior of[4];
  bool offered = device->caps.unchecked, failed = false;
  device->vk.vkCreateComputePipelines = note_asked;
  for (int i = 0; i < 4; i++) {
    const struct kernel *kernel;
    const uint32_t spec[] = {LANES};
    shader[i] = shader_add;
    shader[i].unchecked = i & 1;
    device->caps.unchecked = i >= 2;
    failed |= kernel_get(device, &shader[i], spec, 1, &kernel) != DELTAIC_OK;
    of[i] = asked;
  }
  device->vk.vkCreateComputePipelines = create;
  device->caps.unchecked = offered;
  assert_false(failed);
  assert_int_equal(of[0], VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT);
  assert_int_equal(of[1], VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT);
  assert_int_equal(of[2], VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_ROBUST_BUFFER_ACCESS_EXT);
  assert_int_equal(of[3], VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT);
}

static void workgroups_beyond_the_limits_are_refused(void **state) {
  struct device *device = device_of(state);
  const struct kernel *kernel;
  uint32_t most = device->caps.max_invocations;
  const uint32_t none[] = {0}, many[] = {most + 1}, twice[] = {4, 0, 0, most, 0, 0, 0, 1};
  assert_int_equal(kernel_get(device, &shader_add, none, 1, &kernel), DELTAIC_INTERNAL);
  assert_int_equal(kernel_get(device, &shader_add, many, 1, &kernel), DELTAIC_INTERNAL);
  assert_int_equal(kernel_get(device, &shader_layout, twice, 8, &kernel), DELTAIC_INTERNAL); // most x 2
  assert_non_null(strstr(deltaic_last_error(), "layout: workgroups of"));
}

static void shared_memory_beyond_the_limit_is_refused(void **state) {
  struct device *device = device_of(state);
  const struct kernel *kernel;
  const uint32_t small[] = {4, 0, 0, 16, 0, 0, 0, 1}, large[] = {512, 0, 0, 16, 0, 1, 0, 1};
  ok(kernel_get(device, &shader_layout, small, 8, &kernel));
  assert_int_equal(kernel_get(device, &shader_layout, large, 8, &kernel), DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "bytes of shared memory"));
}

struct request {
  struct device *device;
  const struct kernel *kernel[8];
};

static void *get_kernels(void *argument) {
  struct request *r = argument;
  for (uint32_t i = 0; i < 8; i++) {
    uint32_t spec[] = {8 + 8 * i};
    if (kernel_get(r->device, &shader_add, spec, 1, &r->kernel[i])) r->kernel[i] = NULL;
  }
  return NULL;
}

static void threads_asking_for_a_kernel_get_the_same(void **state) {
  struct request request[4];
  pthread_t thread[4];
  for (int i = 0; i < 4; i++) {
    request[i] = (struct request){.device = device_of(state)};
    assert_int_equal(pthread_create(&thread[i], NULL, get_kernels, &request[i]), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  for (int k = 0; k < 8; k++) {
    assert_non_null(request[0].kernel[k]);
    for (int i = 1; i < 4; i++) assert_ptr_equal(request[i].kernel[k], request[0].kernel[k]);
    for (int other = 0; other < k; other++) assert_ptr_not_equal(request[0].kernel[k], request[0].kernel[other]);
  }
}

// ---------------------------------------------------------------- the disk cache

static void flip_byte(const char *path, long at) {
  FILE *file = fopen(path, "r+b");
  assert_non_null(file);
  fseek(file, at, SEEK_SET);
  int byte = fgetc(file);
  fseek(file, at, SEEK_SET);
  fputc(byte ^ 0xff, file);
  fclose(file);
}

static bool cache_valid(const char *path, const struct device_caps *caps) {
  void *data;
  size_t bytes;
  cache_load(path, caps, &data, &bytes);
  free(data);
  return data != NULL;
}

// Removes the file and its lock, and frees the path.
static void remove_cache(char *path) {
  char lock[256];
  snprintf(lock, sizeof lock, "%s.lock", path);
  unlink(path);
  assert_int_equal(unlink(lock), 0);
  free(path);
}

static void compile_and_close(struct instance *instance, const char *dir) {
  struct device *device = open_device(instance, dir);
  add_kernel(device);
  device_close(device);
}

static void compiled_pipelines_are_kept_on_disk(void **state) {
  struct fixture *f = *state;
  const struct device_caps *caps = &f->device->caps;
  char dir[] = "test_runtime.XXXXXX", nested[64];
  assert_non_null(mkdtemp(dir));
  snprintf(nested, sizeof nested, "%s/a/b", dir); // made when missing
  char *path = cache_path(nested, caps, "pipelines");
  assert_non_null(path);
  assert_false(cache_valid(path, caps));
  compile_and_close(&f->instance, nested);
  assert_true(cache_valid(path, caps));
  compile_and_close(&f->instance, nested); // reads it back
  assert_true(cache_valid(path, caps));

  struct device_caps other = *caps;
  other.driver_uuid[3] ^= 1;
  assert_false(cache_valid(path, &other)); // of another driver
  for (long at = 0; at < 40; at += 3) {
    flip_byte(path, at);
    assert_false(cache_valid(path, caps));
    flip_byte(path, at);
  }
  flip_byte(path, 35);
  compile_and_close(&f->instance, nested); // ignored, and replaced
  assert_true(cache_valid(path, caps));
  assert_int_equal(truncate(path, 20), 0);
  compile_and_close(&f->instance, nested);
  assert_true(cache_valid(path, caps));

  remove_cache(path);
  rmdir(nested);
  snprintf(nested, sizeof nested, "%s/a", dir);
  rmdir(nested);
  assert_int_equal(rmdir(dir), 0); // no temporary file was left
}

// A driver whose caches hold a letter for each pipeline. Mesa's lavapipe keeps nothing in its own.
struct letters {
  char text[8];
};

static PFN_vkCreateComputePipelines real_pipelines;
static char next_letter;

static struct letters *letters_of(VkPipelineCache cache) { return (struct letters *)(uintptr_t)cache; }

static void add_letter(struct letters *to, char c) {
  if (!memchr(to->text, c, sizeof to->text)) to->text[strlen(to->text)] = c;
}

static VKAPI_ATTR VkResult VKAPI_CALL letters_create(VkDevice device, const VkPipelineCacheCreateInfo *info,
                                                     const VkAllocationCallbacks *none, VkPipelineCache *out) {
  struct letters *made = calloc(1, sizeof *made);
  memcpy(made->text, info->pInitialData ? info->pInitialData : "", info->initialDataSize);
  *out = (VkPipelineCache)(uintptr_t)made;
  return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL letters_destroy(VkDevice device, VkPipelineCache cache,
                                                  const VkAllocationCallbacks *none) {
  free(letters_of(cache));
}

// When a device has merged the file and is about to replace it, `other` is closed too, and saves, if it may, at once.
static struct {
  struct device *device; // NULL: no other
  pthread_t thread;
  atomic_bool saved;
} other;

static void *close_other(void *device) {
  device_close(device);
  atomic_store(&other.saved, true);
  return NULL;
}

static void let_other_save(void) {
  struct device *device = other.device;
  if (!device) return;
  other.device = NULL;
  assert_int_equal(pthread_create(&other.thread, NULL, close_other, device), 0);
  for (int i = 0; i < 50 && !atomic_load(&other.saved); i++) platform_sleep_ns(10000000);
}

static VKAPI_ATTR VkResult VKAPI_CALL letters_read(VkDevice device, VkPipelineCache cache, size_t *bytes, void *out) {
  *bytes = strlen(letters_of(cache)->text);
  if (!out) return VK_SUCCESS;
  memcpy(out, letters_of(cache)->text, *bytes);
  let_other_save();
  return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL letters_merge(VkDevice device, VkPipelineCache to, uint32_t n,
                                                    const VkPipelineCache *from) {
  for (uint32_t i = 0; i < n; i++)
    for (const char *c = letters_of(from[i])->text; *c; c++) add_letter(letters_of(to), *c);
  return VK_SUCCESS;
}

static VKAPI_ATTR VkResult VKAPI_CALL letters_compile(VkDevice device, VkPipelineCache cache, uint32_t n,
                                                      const VkComputePipelineCreateInfo *infos,
                                                      const VkAllocationCallbacks *none, VkPipeline *out) {
  add_letter(letters_of(cache), next_letter);
  return real_pipelines(device, VK_NULL_HANDLE, n, infos, none, out);
}

static struct device *open_with_letters(struct instance *instance, const char *dir) {
  struct device *device = open_device(instance, NULL);
  pipelines_free(device);
  real_pipelines = device->vk.vkCreateComputePipelines;
  device->vk.vkCreateComputePipelines = letters_compile;
  device->vk.vkCreatePipelineCache = letters_create;
  device->vk.vkDestroyPipelineCache = letters_destroy;
  device->vk.vkGetPipelineCacheData = letters_read;
  device->vk.vkMergePipelineCaches = letters_merge;
  ok(pipelines_create(device, dir));
  return device;
}

static void compile_letter(struct device *device, char letter) {
  next_letter = letter;
  add_kernel(device);
}

static void close_with_letter(struct device *device, char letter) {
  compile_letter(device, letter);
  device_close(device);
}

static void check_letters(const char *path, const struct device_caps *caps, const char *expected) {
  void *data;
  size_t bytes;
  cache_load(path, caps, &data, &bytes);
  assert_int_equal(bytes, strlen(expected));
  assert_memory_equal(data, expected, bytes);
  free(data);
}

// As the device on which choices are timed closes before the caller's.
static void pipelines_that_another_device_saved_meanwhile_are_kept(void **state) {
  struct fixture *f = *state;
  const struct device_caps *caps = &f->device->caps;
  char dir[] = "test_runtime.XXXXXX";
  assert_non_null(mkdtemp(dir));
  char *path = cache_path(dir, caps, "pipelines");
  close_with_letter(open_with_letters(&f->instance, dir), 'a');
  struct device *first = open_with_letters(&f->instance, dir), *second = open_with_letters(&f->instance, dir);
  close_with_letter(second, 'b');
  close_with_letter(first, 'c');
  check_letters(path, caps, "acb");

  // At the same time.
  first = open_with_letters(&f->instance, dir);
  other.device = open_with_letters(&f->instance, dir);
  compile_letter(other.device, 'd');
  close_with_letter(first, 'e');
  assert_int_equal(pthread_join(other.thread, NULL), 0);
  check_letters(path, caps, "acbde");
  remove_cache(path);
  assert_int_equal(rmdir(dir), 0);
}

static void a_lock_that_is_never_given_up_delays_only(void **state) {
  struct fixture *f = *state;
  char dir[] = "test_runtime.XXXXXX", name[256];
  assert_non_null(mkdtemp(dir));
  char *path = cache_path(dir, &f->device->caps, "pipelines");
  snprintf(name, sizeof name, "%s.lock", path);
  FILE *lock = platform_open(name, "ab"), *again = platform_open(name, "ab");
  assert_true(lock && again);
  assert_int_equal(platform_lock(lock), 0);
  assert_int_equal(platform_lock(again), EAGAIN);
  close_with_letter(open_with_letters(&f->instance, dir), 'a');
  check_letters(path, &f->device->caps, "a");
  fclose(lock);
  assert_int_equal(platform_lock(again), 0);
  fclose(again);
  remove_cache(path);
  assert_int_equal(rmdir(dir), 0);
}

static void a_cache_that_cannot_be_written_is_no_failure(void **state) {
  struct fixture *f = *state;
  compile_and_close(&f->instance, "/proc/no/such/folder");
  assert_null(cache_path("", &f->device->caps, "pipelines"));
  assert_null(cache_path(NULL, &f->device->caps, "pipelines"));
}

// ---------------------------------------------------------------- instances

static void instances_do_not_disturb_each_other(void **state) {
  struct fixture *f = *state;
  struct instance second;
  ok(instance_create(&second, false, NULL, NULL));
  struct device *device = open_device(&second, NULL);
  compile_and_close(&f->instance, NULL);
  struct scene s = scene_open(device);
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
  ok(commands_submit(s.c));
  assert_true(number(device, &s.y, 1) == 5);
  scene_close(&s);
  device_close(device);
  instance_free(&second);
}

// NVIDIA's driver does not stand being loaded anew for each.
static void forty_instances_follow_each_other(void **state) {
  uint32_t first = 0;
  for (int i = 0; i < 40; i++) {
    struct instance instance;
    struct device_caps *caps;
    VkPhysicalDevice *physical;
    uint32_t count;
    ok(instance_create(&instance, false, NULL, NULL));
    ok(instance_devices(&instance, &caps, &physical, &count));
    if (i == 0) first = count;
    assert_true(count > 0 && count == first);
    free(caps);
    free(physical);
    instance_free(&instance);
  }
}

static VKAPI_ATTR void VKAPI_CALL two_heaps(VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *memory) {
  VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = memory->pNext;
  memory->memoryProperties =
      (VkPhysicalDeviceMemoryProperties){.memoryHeapCount = 3,
                                         .memoryHeaps = {{.size = 256, .flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                                                         {.size = 8000, .flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                                                         {.size = 64000}}};
  budget->heapBudget[0] = 200, budget->heapBudget[1] = 5000, budget->heapBudget[2] = 64000;
  budget->heapUsage[0] = 0, budget->heapUsage[1] = 1200, budget->heapUsage[2] = 0;
}

// VK_EXT_memory_budget as the driver has it: lavapipe does since Mesa 25, which the newest layer runs with.
static void a_driver_tells_what_is_free(void **state) {
  const struct device *device = device_of(state);
  const char *mesa = strstr(device->caps.driver, "llvmpipe Mesa ");
  uint64_t left = device_free_bytes(device->physical, &device->caps), largest = 0;
  for (uint32_t i = 0; i < device->caps.memory_heaps; i++)
    if ((device->caps.memory_heap[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) &&
        device->caps.memory_heap[i].bytes > largest)
      largest = device->caps.memory_heap[i].bytes;
  if (mesa && atoi(mesa + strlen("llvmpipe Mesa ")) >= 25) assert_true(device->caps.memory_budget);
  if (device->caps.memory_budget)
    assert_in_range(left, largest / 100, largest); // a machine whose memory is used up to that runs no tests
  else
    assert_int_equal(left, 0);
}

static void what_others_use_of_the_memory_is_not_free(void **state) {
  struct device_caps caps = device_of(state)->caps;
  VkPhysicalDevice physical = device_of(state)->physical;
  uint64_t left;
  PFN_vkGetPhysicalDeviceMemoryProperties2 real = vkGetPhysicalDeviceMemoryProperties2;
  vkGetPhysicalDeviceMemoryProperties2 = two_heaps;
  caps.memory_budget = true;
  left = device_free_bytes(physical, &caps);
  caps.memory_budget = false;
  uint64_t unknown = device_free_bytes(physical, &caps);
  vkGetPhysicalDeviceMemoryProperties2 = real;
  assert_int_equal(left, 3800);
  assert_int_equal(unknown, 0);
}

static void an_unusable_device_is_not_opened(void **state) {
  struct fixture *f = *state;
  struct plan plan = f->device->plan;
  struct device *device;
  plan.usable = false;
  snprintf(plan.reason, sizeof plan.reason, "it is made of cheese");
  assert_int_equal(device_open(&f->instance, f->device->physical, &f->device->caps, &plan, NULL, &device),
                   DELTAIC_UNSUPPORTED);
  assert_non_null(strstr(deltaic_last_error(), "it is made of cheese"));
  assert_null(device);
}

static void the_plan_of_this_device_is_told(void **state) {
  struct device *device = device_of(state);
  char text[8192];
  assert_in_range(plan_describe(&device->caps, &device->plan, text, sizeof text), 100, sizeof text - 1);
  assert_non_null(strstr(text, device->caps.name));
}

static void a_machine_without_drivers_has_no_devices(void **state) {
  struct instance instance;
  struct device_caps *caps;
  VkPhysicalDevice *physical;
  uint32_t count = 7;
  setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
  setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
  ok(instance_create(&instance, false, NULL, NULL));
  ok(instance_devices(&instance, &caps, &physical, &count));
  assert_int_equal(count, 0);
  assert_null(caps);
  instance_free(&instance);
  unsetenv("VK_DRIVER_FILES");
  unsetenv("VK_ICD_FILENAMES");
}

// ---------------------------------------------------------------- main

static int run_on_device(void) {
  const struct CMUnitTest tests[] = {
      ON_DEVICE(the_plan_of_this_device_is_told),
      ON_DEVICE(a_module_against_its_contract_is_refused),
      ON_DEVICE(damaged_modules_are_refused),
      ON_DEVICE(only_what_may_be_is_unchecked),
      ON_DEVICE(workgroups_beyond_the_limits_are_refused),
      ON_DEVICE(shared_memory_beyond_the_limit_is_refused),
      ON_DEVICE(threads_asking_for_a_kernel_get_the_same),
      ON_DEVICE(compiled_pipelines_are_kept_on_disk),
      ON_DEVICE(pipelines_that_another_device_saved_meanwhile_are_kept),
      ON_DEVICE(a_lock_that_is_never_given_up_delays_only),
      ON_DEVICE(a_cache_that_cannot_be_written_is_no_failure),
      ON_DEVICE(instances_do_not_disturb_each_other),
      ON_DEVICE(a_driver_tells_what_is_free),
      ON_DEVICE(what_others_use_of_the_memory_is_not_free),
      ON_DEVICE(an_unusable_device_is_not_opened),
      ON_DEVICE(forty_instances_follow_each_other),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// What is there, with its plan; true for the devices to test.
static uint32_t list_devices(bool **usable) {
  struct instance instance;
  struct device_caps *caps;
  VkPhysicalDevice *physical;
  uint32_t count;
  *usable = NULL;
  if (instance_create(&instance, false, NULL, NULL) || instance_devices(&instance, &caps, &physical, &count)) return 0;
  if (count) *usable = calloc(count, sizeof **usable);
  for (uint32_t i = 0; i < count && *usable; i++) {
    char text[8192];
    struct plan plan;
    plan_make(&caps[i], &plan);
    plan_describe(&caps[i], &plan, text, sizeof text);
    printf("%s\n", text);
    (*usable)[i] = plan.usable;
  }
  free(caps);
  free(physical);
  instance_free(&instance);
  return *usable ? count : 0;
}

int main(void) {
  const struct CMUnitTest anywhere[] = {cmocka_unit_test(a_machine_without_drivers_has_no_devices)};
  int failures = cmocka_run_group_tests(anywhere, NULL, NULL);
  bool *usable;
  uint32_t count = list_devices(&usable);
  bool tested = false;
  for (device_number = 0; device_number < count; device_number++) {
    if (!usable[device_number]) continue;
    failures += run_on_device() + test_buffers() + test_lost() + test_commands();
    tested = true;
  }
  free(usable);
  const char *only = getenv("DELTAIC_TEST_DEVICE");
  if (tested || (only && !strcmp(only, "cpu"))) return failures;
  printf("no Vulkan device to test on\n");
  return 1;
}
