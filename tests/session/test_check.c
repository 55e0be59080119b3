// deltaic_device_check(): right on every device, and a kernel that is broken on purpose is named.
#include "device_handle.h"
#include "vulkan_backend.h"

#include "devices.h"

#include <math.h>

struct seen {
  size_t count, stop_at; // stop_at 0: never
  char wrong[256];       // kernels of the first wrong result
  bool passes_as_whole;  // a wrong result is within the limit of whole tensors
};

static bool see(void *user, const deltaic_check *check) {
  struct seen *s = user;
  const bool right = check->error <= check->limit && check->worst <= check->worst_limit;
  assert_true(check->name[0] && check->limit > 0 && check->worst_limit > check->limit && check->right == right);
  s->passes_as_whole |= !right && check->error <= check->limit;
  if (!check->right && !s->wrong[0]) snprintf(s->wrong, sizeof s->wrong, "%s", check->kernels);
  return ++s->count != s->stop_at;
}

// On Vulkan devices the first lists alone; the program's test has them all.
static void a_whole_device_is_all_right(deltaic_device *device) {
  struct seen s = {.stop_at = test_all_on(device) ? 0 : 3};
  const deltaic_status status = deltaic_device_check(device, see, &s);
  assert_int_equal(status, s.stop_at ? DELTAIC_CANCELLED : DELTAIC_OK);
  assert_string_equal(s.wrong, "");
  assert_int_equal(s.count, s.stop_at ? s.stop_at : 55);
  assert_int_equal(deltaic_device_check(device, NULL, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_device_check(NULL, see, &s), DELTAIC_INVALID_ARGUMENT);
}

// ---------------------------------------------------------------- broken kernels

static uint32_t *broken; // its module
static uint64_t broken_words;
static PFN_vkCreateShaderModule real_module;

// Sums instead of differences and products in one module.
static VKAPI_ATTR VkResult VKAPI_CALL module_with_sums(VkDevice device, const VkShaderModuleCreateInfo *info,
                                                       const VkAllocationCallbacks *memory, VkShaderModule *out) {
  enum { HEADER = 5, FADD = 129, FSUB = 131, FMUL = 133 };
  if (info->codeSize != 4 * broken_words || memcmp(info->pCode, broken, info->codeSize))
    return real_module(device, info, memory, out);
  uint32_t *words = malloc(info->codeSize);
  VkShaderModuleCreateInfo changed = *info;
  memcpy(words, info->pCode, info->codeSize);
  for (size_t i = HEADER; i < info->codeSize / 4 && words[i] >> 16; i += words[i] >> 16)
    if ((words[i] & 0xffff) == FSUB || (words[i] & 0xffff) == FMUL) words[i] = (words[i] & 0xffff0000) | FADD;
  changed.pCode = words;
  const VkResult result = real_module(device, &changed, memory, out);
  free(words);
  return result;
}

static void check_named(deltaic_context *context, int32_t index, enum kernel_id kernel, size_t lists) {
  deltaic_device_options o = {.size = sizeof o, .index = index};
  deltaic_device *device;
  struct seen s = {.stop_at = lists};
  assert_ok(deltaic_device_open(context, &o, &device));
  struct device *inner = ((struct vulkan_backend *)device->backend)->device;
  real_module = inner->vk.vkCreateShaderModule;
  inner->vk.vkCreateShaderModule = module_with_sums;
  assert_ok(shader_unpack(&kernels[kernel], &broken, &broken_words));
  assert_int_equal(deltaic_device_check(device, see, &s), DELTAIC_CANCELLED);
  assert_string_equal(s.wrong, kernels[kernel].name);
  deltaic_device_close(device);
  free(broken);
}

// Of a list of six operations, and of one whose operations share kernels.
static void a_broken_kernel_is_named(void **state) {
  (void)state;
  deltaic_context *context = test_context();
  deltaic_device_info infos[16];
  size_t count, tested = 0;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count && i < 16; i++) {
    if (!device_wanted(&infos[i]) || infos[i].kind == DELTAIC_DEVICE_CPU) continue;
    tested++;
    check_named(context, infos[i].index, KERNEL_rmsnorm_f32, 1);
    check_named(context, infos[i].index, KERNEL_score, 1);
    check_named(context, infos[i].index, KERNEL_matvec_f32, 2);
  }
  assert_vulkan_tested(tested);
  deltaic_context_free(context);
}

// ---------------------------------------------------------------- a single wrong element

static const struct backend_functions *real_functions;

// Moves the last element by a part of what the others are, which the tensor as a whole does not show.
static deltaic_status read_with_wrong_element(struct backend *b, struct buffer *from, uint64_t offset, void *data,
                                              uint64_t bytes) {
  const deltaic_status status = real_functions->buffer_read(b, from, offset, data, bytes);
  const uint64_t n = bytes / sizeof(float);
  float *x = data;
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
  if (n >= 40000) x[n - 1] += (float)(5e-4 * (sqrt(sum / (double)n) + fabs(x[n - 1])));
  return status;
}

static void one_wrong_element_of_many_is_seen(deltaic_device *device) {
  struct seen s = {.stop_at = 5}; // the last one has 200 tokens
  struct backend_functions changed = *device->backend->functions;
  real_functions = device->backend->functions;
  changed.buffer_read = read_with_wrong_element;
  device->backend->functions = &changed;
  assert_int_equal(deltaic_device_check(device, see, &s), DELTAIC_CANCELLED);
  device->backend->functions = real_functions;
  assert_true(s.wrong[0] && s.passes_as_whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      device_test(a_whole_device_is_all_right),
      cmocka_unit_test(a_broken_kernel_is_named),
      device_test(one_wrong_element_of_many_is_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
