// api: the public functions of contexts and devices. Models, sessions and tokenizers have theirs in their own files.
#include "arena.h"
#include "caps.h"
#include "device_handle.h"
#include "file.h"
#include "kernels.h"
#include "measure.h"
#include "open.h"
#include "option_structs.h"
#include "plan_matmul.h"
#include "plan_rule.h"
#include "timed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- context

// NULL: compiled pipelines cannot be saved, which is not an error.
static char *cache_folder(const char *wanted) {
  if (wanted) return wanted[0] ? strdup(wanted) : NULL;
  char *cache = platform_cache_folder(), *folder = cache ? path_join(cache, "deltaic") : NULL;
  free(cache);
  return folder;
}

deltaic_status deltaic_context_create(const deltaic_context_options *options, deltaic_context **out) {
  if (!out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_context_create: out is NULL");
  deltaic_context_options o;
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_context_options");
  if (status != DELTAIC_OK) return status;
  deltaic_context *c = calloc(1, sizeof *c);
  if (!c) return fail_memory("a context", sizeof *c);
  status = instance_create(&c->instance, o.validate, o.log, o.log_user);
  if (status != DELTAIC_OK) {
    free(c);
    return status;
  }
  c->cache_dir = cache_folder(o.cache_dir);
  *out = c;
  return DELTAIC_OK;
}

void deltaic_context_free(deltaic_context *c) {
  if (!c) return;
  instance_free(&c->instance);
  free(c->cache_dir);
  free(c);
}

uint64_t deltaic_context_validation_errors(const deltaic_context *c) {
  return c ? atomic_load(&c->instance.validation_errors) : 0;
}

// ---------------------------------------------------------------- devices

// The Vulkan devices, best first; device i of the public API is entry i - 1.
struct ranked {
  struct device_caps *caps;
  VkPhysicalDevice *handles;
  struct plan *plans;
  uint32_t count;
};

static void ranked_free(struct ranked *r) {
  free(r->caps);
  free(r->handles);
  free(r->plans);
}

static void swap_ranked(struct ranked *r, uint32_t i, uint32_t j) {
  struct device_caps caps = r->caps[i];
  struct plan plan = r->plans[i];
  VkPhysicalDevice handle = r->handles[i];
  r->caps[i] = r->caps[j], r->plans[i] = r->plans[j], r->handles[i] = r->handles[j];
  r->caps[j] = caps, r->plans[j] = plan, r->handles[j] = handle;
}

static deltaic_status rank_devices(deltaic_context *c, struct ranked *r) {
  *r = (struct ranked){0};
  deltaic_status status = instance_devices(&c->instance, &r->caps, &r->handles, &r->count);
  if (status != DELTAIC_OK || !r->count) return status;
  r->plans = calloc(r->count, sizeof *r->plans);
  if (!r->plans) {
    ranked_free(r);
    return fail_memory("the list of devices", r->count * sizeof *r->plans);
  }
  for (uint32_t i = 0; i < r->count; i++) plan_make(&r->caps[i], &r->plans[i]);
  for (uint32_t i = 1; i < r->count; i++) // stable: equal devices keep the driver's order
    for (uint32_t j = i; j && r->plans[j].score > r->plans[j - 1].score; j--) swap_ranked(r, j, j - 1);
  return DELTAIC_OK;
}

static deltaic_device_kind kind_of(uint32_t device_type) {
  switch (device_type) {
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return DELTAIC_DEVICE_DISCRETE;
  case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return DELTAIC_DEVICE_INTEGRATED;
  case VK_PHYSICAL_DEVICE_TYPE_CPU: return DELTAIC_DEVICE_SOFTWARE;
  default: return DELTAIC_DEVICE_VIRTUAL;
  }
}

static deltaic_device_info info_of(const struct ranked *r, uint32_t i) {
  const struct device_caps *caps = &r->caps[i];
  const struct plan *plan = &r->plans[i];
  deltaic_device_info info = {.index = (int32_t)i + 1, .kind = kind_of(caps->device_type), .usable = plan->usable};
  snprintf(info.name, sizeof info.name, "%s", caps->name);
  snprintf(info.driver, sizeof info.driver, "%s", caps->driver);
  snprintf(info.reason, sizeof info.reason, "%s", plan->reason);
  for (uint32_t h = 0; h < caps->memory_heaps; h++)
    if (caps->memory_heap[h].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT && caps->memory_heap[h].bytes > info.memory_bytes)
      info.memory_bytes = caps->memory_heap[h].bytes;
  info.free_bytes = device_free_bytes(r->handles[i], caps);
  memcpy(info.uuid, caps->uuid, sizeof info.uuid);
  memcpy(info.luid, caps->luid, sizeof info.luid);
  memcpy(info.pci, caps->pci, sizeof info.pci);
  return info;
}

deltaic_status deltaic_devices(deltaic_context *c, deltaic_device_info *infos, size_t capacity, size_t *count) {
  if (refuse_null("deltaic_devices", "context,infos,count", c, FILLED(infos, capacity), count))
    return DELTAIC_INVALID_ARGUMENT;
  struct ranked r;
  deltaic_status status = rank_devices(c, &r);
  if (status != DELTAIC_OK) return status;
  for (uint32_t i = 0; i < r.count && i < capacity; i++) infos[i] = info_of(&r, i);
  if (r.count < capacity) infos[r.count] = backend_describe_cpu();
  *count = r.count + 1;
  ranked_free(&r);
  return status;
}

static deltaic_status no_device(int32_t index, uint32_t count) {
  return fail(DELTAIC_NO_DEVICE, "there is no Vulkan device %d: this machine has %u", index, count);
}

// The rest of the text buffer after `length` bytes, and its capacity.
static char *text_rest(char *text, size_t capacity, int length) {
  return (size_t)length < capacity ? text + length : NULL;
}

static size_t text_room(size_t capacity, int length) {
  return (size_t)length < capacity ? capacity - (size_t)length : 0;
}

static bool uses_matrices(const struct plan *plan) { return plan->matrix_products || plan->matrix_mixers; }

// Whether the device has matrix units for which this build has no kernels.
static bool matrices_left_out(const struct device_caps *caps, const struct plan *plan) {
  return caps->matrix_unknown || (uses_matrices(plan) && !kernel_built(KERNEL_matmul_matrix_x32_f16));
}

// What was timed on the device, or why it does not count.
static void describe_timed(const deltaic_context *c, const struct device_caps *caps, struct plan *plan, char *text,
                           size_t capacity) {
  char *path = timed_path(c->cache_dir, caps), choices[320];
  struct timed_choices timed;
  const deltaic_status status = timed_load(path, caps, &timed);
  plan_use_timed(plan, &timed);
  timed_describe(&timed, choices, sizeof choices);
  snprintf(text, capacity, "timed             %s%s\n", status ? "ignored: " : "",
           status ? deltaic_last_error() : choices);
  free(path);
}

// Writes the device's limits, its plan, and the plans of the operations.
static int describe(const deltaic_context *c, const struct device_caps *caps, struct plan *plan, char *text,
                    size_t capacity) {
  char timed[1024];
  if (plan->usable) describe_timed(c, caps, plan, timed, sizeof timed);
  int n = plan_describe(caps, plan, text, capacity);
  if (!plan->usable) return n;
  struct plan_products products;
  struct plan_rules rules;
  plan_products_make(caps, plan, &products);
  plan_rules_make(caps, plan, &rules);
  n += plan_products_describe(&products, text_rest(text, capacity, n), text_room(capacity, n));
  n += plan_rules_describe(&rules, text_rest(text, capacity, n), text_room(capacity, n));
  n += snprintf(text_rest(text, capacity, n), text_room(capacity, n), "%s", timed);
  if (matrices_left_out(caps, plan))
    n += snprintf(
        text_rest(text, capacity, n), text_room(capacity, n),
        "left out          coopmat kernels: this build's shader compiler or Vulkan headers do not support them\n");
  return n;
}

deltaic_status deltaic_device_describe(deltaic_context *c, int32_t index, char *text, size_t capacity, size_t *needed) {
  if (refuse_null("deltaic_device_describe", "context,text", c, FILLED(text, capacity)))
    return DELTAIC_INVALID_ARGUMENT;
  int length;
  if (index == DELTAIC_DEVICE_INDEX_CPU) {
    deltaic_device_info info = backend_describe_cpu();
    length = snprintf(text, capacity, "%s: plain C, every operation's specification\n", info.name);
  } else {
    struct ranked r;
    deltaic_status status = rank_devices(c, &r);
    if (status != DELTAIC_OK) return status;
    bool found = index > 0 && (uint32_t)index <= r.count;
    length = found ? describe(c, &r.caps[index - 1], &r.plans[index - 1], text, capacity) : -1;
    uint32_t count = r.count;
    ranked_free(&r);
    if (!found) return no_device(index, count);
  }
  if (needed) *needed = (size_t)length + 1;
  return DELTAIC_OK;
}

// A GPU if there is one, else our own C code, which is faster than Vulkan on a CPU (docs/speed/log.md).
static int32_t best_index(const struct ranked *r) {
  for (uint32_t i = 0; i < r->count; i++)
    if (r->plans[i].usable && kind_of(r->caps[i].device_type) != DELTAIC_DEVICE_SOFTWARE) return (int32_t)i + 1;
  return DELTAIC_DEVICE_INDEX_CPU;
}

static deltaic_status open_vulkan(deltaic_context *c, const struct ranked *r, int32_t index,
                                  const deltaic_device_options *o, deltaic_device *out) {
  if (index <= 0 || (uint32_t)index > r->count) return no_device(index, r->count);
  const struct device_caps *caps = &r->caps[index - 1];
  struct plan plan = r->plans[index - 1];
  if (!plan.usable) return fail(DELTAIC_UNSUPPORTED, "%s cannot be used: %s", caps->name, plan.reason);
  plan.background = o->background;
  struct timed_choices timed;
  out->timed_path = timed_path(c->cache_dir, caps);
  if (timed_load(out->timed_path, caps, &timed))
    instance_log(&c->instance, DELTAIC_LOG_WARNING, "timed choices are ignored: %s", deltaic_last_error());
  plan_use_timed(&plan, &timed);
  struct device *device;
  deltaic_status status = device_open(&c->instance, r->handles[index - 1], caps, &plan, c->cache_dir, &device);
  if (status != DELTAIC_OK) return status;
  device->compiling = o->compiling;
  device->compiling_user = o->compiling_user;
  status = backend_open_vulkan(device, &out->backend);
  if (status != DELTAIC_OK) return status;
  out->backend->info = info_of(r, (uint32_t)index - 1);
  if (matrices_left_out(caps, &plan))
    instance_log(&c->instance, DELTAIC_LOG_WARNING,
                 "%s has matrix units, but this build has no kernels for them: prompts are several times slower "
                 "(docs/building.md)",
                 caps->name);
  return DELTAIC_OK;
}

static deltaic_status find_uuid(const struct ranked *r, const uint8_t *uuid, int32_t *index) {
  for (uint32_t i = 0; i < r->count; i++)
    if (!memcmp(r->caps[i].uuid, uuid, sizeof r->caps[i].uuid)) {
      *index = (int32_t)i + 1;
      return DELTAIC_OK;
    }
  char text[33];
  for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", uuid[i]);
  return fail(DELTAIC_NO_DEVICE, "there is no Vulkan device with the UUID %s", text);
}

deltaic_status deltaic_device_open(deltaic_context *c, const deltaic_device_options *options, deltaic_device **out) {
  if (refuse_null("deltaic_device_open", "context,out", c, out)) return DELTAIC_INVALID_ARGUMENT;
  deltaic_device_options o;
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_device_options");
  if (status != DELTAIC_OK) return status;
  if (o.index < DELTAIC_DEVICE_INDEX_CPU) return fail(DELTAIC_NO_DEVICE, "%d is not a device index", o.index);
  if (o.uuid && o.index)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_device_open: a UUID is given, and index is %d, not 0", o.index);
  struct ranked r;
  status = rank_devices(c, &r);
  if (status != DELTAIC_OK) return status;
  int32_t index = o.index == DELTAIC_DEVICE_BEST ? best_index(&r) : o.index;
  if (o.uuid) status = find_uuid(&r, o.uuid, &index);
  deltaic_device *d = status ? NULL : calloc(1, sizeof *d);
  if (!d)
    status = status ? status : fail_memory("a device", sizeof *d);
  else if (index == DELTAIC_DEVICE_INDEX_CPU)
    status = backend_open_cpu(o.threads, &d->backend);
  else
    status = open_vulkan(c, &r, index, &o, d);
  ranked_free(&r);
  if (status != DELTAIC_OK) {
    if (d) free(d->timed_path);
    free(d);
    return status;
  }
  *out = d;
  return DELTAIC_OK;
}

void deltaic_device_close(deltaic_device *d) {
  if (!d) return;
  d->backend->functions->close(d->backend);
  free(d->timed_path);
  free(d);
}

void deltaic_device_get_info(const deltaic_device *d, deltaic_device_info *info) {
  if (!info) return;
  *info = d ? d->backend->info : (deltaic_device_info){0};
  if (d) info->free_bytes = d->backend->functions->free_bytes(d->backend);
}

double deltaic_device_compile_seconds(const deltaic_device *d) {
  return d ? d->backend->functions->compile_seconds(d->backend) : 0;
}

// ---------------------------------------------------------------- bandwidth

// The best of a few runs, each of several copies, so that the latency of a submission is small in comparison. Runs do
// not count before `warm` seconds: after a pause of 3 s the clock of an H200 is at 345 MHz, and copies make 1.7 TB/s
// instead of 4.1.
static deltaic_status time_copies(struct backend *b, struct recorder *c, struct tensor to, struct tensor from,
                                  double warm, double *best) {
  enum { RUNS = 5, COPIES = 4 };
  const double first = measure_now();
  struct oplist l = {0};
  deltaic_status status = DELTAIC_OK;
  *best = 0;
  oplist_begin(&l);
  for (int i = 0; i < COPIES; i++) op_copy(&l, to, from);
  for (int run = 0; run < RUNS && status == DELTAIC_OK;) {
    b->functions->recorder_begin(c, false, NULL);
    double start = measure_now();
    b->functions->recorder_list(c, &l);
    status = b->functions->recorder_run(c);
    double rate = COPIES * 2.0 * (double)tensor_bytes(&to) / (measure_now() - start);
    if (run && rate > *best) *best = rate; // the first run also compiles
    if (start - first >= warm || !run) run++;
  }
  oplist_free(&l);
  return status;
}

deltaic_status deltaic_device_copy_bandwidth(deltaic_device *d, double *bytes_per_second) {
  if (!d || !bytes_per_second)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_device_copy_bandwidth: %s is NULL",
                !d ? "device" : "bytes_per_second");
  static const double WARM = 0.5;
  struct backend *b = d->backend;
  // Larger than any cache, small enough for the device.
  bool software = b->info.kind == DELTAIC_DEVICE_CPU || b->info.kind == DELTAIC_DEVICE_SOFTWARE;
  uint64_t bytes = software ? 64ull << 20 : 512ull << 20;
  if (bytes > b->max_binding_bytes) bytes = b->max_binding_bytes;
  if (bytes > b->info.memory_bytes / 4) bytes = b->info.memory_bytes / 4;
  const uint64_t elements = bytes / TENSOR_ALIGN * TENSOR_ALIGN / sizeof(float);
  struct arena arena = {0};
  struct tensor to, from;
  struct recorder *c = NULL;
  arena_add(&arena, &to, DTYPE_F32, 1, elements, elements);
  arena_add(&arena, &from, DTYPE_F32, 1, elements, elements);
  deltaic_status status = arena_allocate(&arena, b, MEMORY_DEVICE, "the bandwidth test");
  if (status == DELTAIC_OK) status = arena_zero(&arena, b);
  if (status == DELTAIC_OK) status = b->functions->recorder_create(b, &c);
  if (status == DELTAIC_OK) status = time_copies(b, c, to, from, software ? 0 : WARM, bytes_per_second);
  if (c) b->functions->recorder_free(c);
  arena_free(&arena, b);
  return status;
}
