// deltaic_device_time_choices(): choices are kept in a file, read when the device is opened, ignored where they are
// damaged or of another driver, and forgotten.
#include "device_handle.h"
#include "file.h"
#include "test_folder.h"
#include "timed.h"
#include "vulkan_backend.h"

#include "devices.h"

struct seen_times {
  size_t count, stop_at; // stop_at 0: never
  uint64_t compiled;     // kernels before the first time
};

static uint64_t compiled; // kernels that the device's owner was asked for

static bool count_compiled(void *user, uint64_t done, uint64_t total) { return ++compiled > 0; }

// No kernel is compiled between times.
static bool see(void *user, const deltaic_timing *timing) {
  struct seen_times *t = user;
  assert_true(timing->name[0] && timing->seconds > 0);
  if (!t->count) t->compiled = compiled;
  assert_true(compiled > 0 && compiled == t->compiled);
  return ++t->count != t->stop_at;
}

// Under the validation layer, with a cache folder.
static deltaic_context *context_in(const char *cache) {
  deltaic_context_options o = {.size = sizeof o, .validate = true, .cache_dir = cache};
  deltaic_context *context;
  assert_ok(deltaic_context_create(&o, &context));
  return context;
}

static deltaic_device *open_index(deltaic_context *context, int32_t index) {
  deltaic_device_options o = {.size = sizeof o, .index = index, .compiling = count_compiled};
  deltaic_device *device;
  assert_ok(deltaic_device_open(context, &o, &device));
  return device;
}

// The first usable Vulkan device; -1: there is none.
static int32_t vulkan_index(deltaic_context *context) {
  deltaic_device_info infos[16];
  size_t count;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count && i < 16; i++)
    if (device_wanted(&infos[i]) && infos[i].kind != DELTAIC_DEVICE_CPU) return infos[i].index;
  assert_vulkan_tested(0);
  return -1;
}

static struct timed_choices timed_of(deltaic_context *context, int32_t index) {
  deltaic_device *device = open_index(context, index);
  const struct timed_choices timed = ((struct vulkan_backend *)device->backend)->device->plan.timed;
  deltaic_device_close(device);
  return timed;
}

static void write_text(const char *path, const char *text) {
  FILE *file = platform_open(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
  fclose(file);
}

static void describes(deltaic_context *context, int32_t index, const char *words) {
  static char text[1 << 14];
  assert_ok(deltaic_device_describe(context, index, text, sizeof text, NULL));
  if (!strstr(text, words)) fail_msg("\"%s\" is not in %s", words, text);
}

static void choices_are_kept_and_forgotten(void **state) {
  (void)state;
  deltaic_context *context = context_in(folder);
  const int32_t index = vulkan_index(context);
  if (index < 0) {
    deltaic_context_free(context);
    return;
  }
  struct seen_times all = {0}, some = {.stop_at = 2};
  deltaic_device *device = open_index(context, index);
  assert_int_equal(deltaic_device_time_choices(device, see, &some), DELTAIC_CANCELLED);
  assert_false(file_exists(device->timed_path));
  describes(context, index, "timed             nothing\n");
  assert_ok(deltaic_device_time_choices(device, see, &all));
  assert_true(file_exists(device->timed_path) && all.count >= 4);
  const struct device_caps caps = ((struct vulkan_backend *)device->backend)->device->caps;
  struct timed_choices kept, none = {0}, own = ((struct vulkan_backend *)device->backend)->device->plan.timed;
  assert_ok(timed_load(device->timed_path, &caps, &kept));
  assert_true(kept.chunk_percent > 0);
  assert_memory_equal(&own, &none, sizeof own); // an open device keeps its plan
  own = timed_of(context, index);
  assert_memory_equal(&own, &kept, sizeof own);
  describes(context, index, "timed             ");
  assert_ok(deltaic_device_forget_choices(device));
  assert_ok(deltaic_device_forget_choices(device));
  assert_false(file_exists(device->timed_path));
  own = timed_of(context, index);
  assert_memory_equal(&own, &none, sizeof own);
  deltaic_device_close(device);
  assert_int_equal(deltaic_context_validation_errors(context), 0);
  deltaic_context_free(context);
}

static void what_is_wrong_is_ignored(void **state) {
  (void)state;
  static const char *const wrong[][2] = {{"", "line 1"},
                                         {"[]", "not a JSON object"},
                                         {"{\"version\": 1}", "version is 1"},
                                         {"{\"version\": 2, \"identity\": \"0\"}", "another device or driver"}};
  deltaic_context *context = context_in(folder);
  const int32_t index = vulkan_index(context);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong && index >= 0; i++) {
    deltaic_device *device = open_index(context, index);
    write_text(device->timed_path, wrong[i][0]);
    deltaic_device_close(device);
    const struct timed_choices got = timed_of(context, index), none = {0};
    assert_memory_equal(&got, &none, sizeof got);
    describes(context, index, "timed             ignored: ");
    describes(context, index, wrong[i][1]);
  }
  deltaic_context_free(context);
}

static void without_a_folder_nothing_is_kept(void **state) {
  (void)state;
  deltaic_context *context = context_in("");
  const int32_t index = vulkan_index(context);
  deltaic_device *cpu = open_index(context, DELTAIC_DEVICE_INDEX_CPU), *device = cpu;
  assert_int_equal(deltaic_device_time_choices(cpu, NULL, NULL), DELTAIC_UNSUPPORTED);
  assert_int_equal(deltaic_device_forget_choices(NULL), DELTAIC_INVALID_ARGUMENT);
  if (index >= 0) device = open_index(context, index);
  if (device != cpu) {
    assert_int_equal(deltaic_device_time_choices(device, NULL, NULL), DELTAIC_BAD_STATE);
    assert_int_equal(deltaic_device_forget_choices(device), DELTAIC_BAD_STATE);
    deltaic_device_close(device);
  }
  deltaic_device_close(cpu);
  deltaic_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_FOLDER(choices_are_kept_and_forgotten),
      IN_FOLDER(what_is_wrong_is_ignored),
      cmocka_unit_test(without_a_folder_nothing_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
