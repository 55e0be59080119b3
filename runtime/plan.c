// plan: derives decisions from capabilities. Sizes that exceed a device's limits are halved until they fit, so every
// plan is valid on its device.
#include "plan.h"

#include "numbers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

enum {
  MIN_SHARED_BYTES = 16 * 1024,
  MIN_INVOCATIONS = 128,
  MIN_SUBGROUP = 4,           // matvec.comp and sample.comp have room for lanes / 4 partial sums: one per subgroup
  MAX_OFFSET_ALIGNMENT = 256, // tensors are laid out at multiples of this
};

__attribute__((format(printf, 2, 3))) static void refuse(struct plan *plan, const char *format, ...) {
  if (plan->reason[0]) return; // keep the first reason
  va_list args;
  va_start(args, format);
  vsnprintf(plan->reason, sizeof plan->reason, format, args);
  va_end(args);
}

static bool is_software(const struct device_caps *caps) { return caps->device_type == VK_PHYSICAL_DEVICE_TYPE_CPU; }

// ---------------------------------------------------------------- memory

enum {
  DEVICE_LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
  HOST_VISIBLE = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT,
  COHERENT = HOST_VISIBLE | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
  CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
  // Lazily allocated and protected memory cannot back a storage buffer. AMD's two types are slow and need a feature
  // that we do not enable.
  UNWANTED = VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
             VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD,
};

static uint64_t type_heap_bytes(const struct device_caps *caps, uint32_t type) {
  uint32_t heap = caps->memory_type[type].heap;
  return heap < caps->memory_heaps && heap < CAPS_MEMORY_HEAPS ? caps->memory_heap[heap].bytes : 0;
}

// Returns the first type with all of `want` and none of `avoid`, in a heap of at least `bytes`, or -1. Drivers list
// better types first.
static int memory_find(const struct device_caps *caps, uint32_t want, uint32_t avoid, uint64_t bytes) {
  for (uint32_t i = 0; i < caps->memory_types && i < CAPS_MEMORY_TYPES; i++) {
    uint32_t flags = caps->memory_type[i].flags;
    if ((flags & want) == want && !(flags & (avoid | UNWANTED)) && type_heap_bytes(caps, i) >= bytes &&
        type_heap_bytes(caps, i))
      return (int)i;
  }
  return -1;
}

static int first_valid(int a, int b, int c) { return a >= 0 ? a : b >= 0 ? b : c; }

static uint64_t largest_device_heap(const struct device_caps *caps) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < caps->memory_types && i < CAPS_MEMORY_TYPES; i++) {
    uint64_t bytes = type_heap_bytes(caps, i);
    bool suits = (caps->memory_type[i].flags & DEVICE_LOCAL) && !(caps->memory_type[i].flags & UNWANTED);
    if (suits && bytes > largest) largest = bytes;
  }
  return largest;
}

// Weights are in host-visible memory if its heap has at least 90% of the largest device-local heap: shared memory,
// software, or a resizable BAR. A BAR window of 256 MiB is a separate, smaller heap; it holds only what the host writes
// between submits.
static void plan_memory(const struct device_caps *caps, struct plan *plan) {
  uint64_t largest = largest_device_heap(caps);
  int open = memory_find(caps, DEVICE_LOCAL | COHERENT, 0, largest - largest / 10);
  int local = memory_find(caps, DEVICE_LOCAL, 0, largest);
  plan->device_mapped = open >= 0;
  plan->memory_device = open >= 0 ? open : local;
  plan->memory_unmapped = first_valid(memory_find(caps, DEVICE_LOCAL, HOST_VISIBLE, largest), plan->memory_device, -1);
  int host = memory_find(caps, COHERENT, 0, 0);
  plan->memory_shared = first_valid(memory_find(caps, DEVICE_LOCAL | COHERENT, 0, 0), host, -1);
  plan->memory_staging = first_valid(memory_find(caps, COHERENT, DEVICE_LOCAL, 0), host, -1);
  plan->memory_readback = first_valid(memory_find(caps, COHERENT | CACHED, DEVICE_LOCAL, 0),
                                      memory_find(caps, COHERENT | CACHED, 0, 0), plan->memory_staging);
  if (plan->memory_device < 0) refuse(plan, "it has no device-local memory");
  if (plan->memory_shared < 0) refuse(plan, "it has no memory that the host can map coherently");
}

// ---------------------------------------------------------------- limits

static void plan_limits(const struct device_caps *caps, struct plan *plan) {
  plan->device_bytes = largest_device_heap(caps);
  uint64_t block = min64(min64(caps->max_allocation, caps->max_buffer), plan->device_bytes);
  plan->block_bytes = block / MAX_OFFSET_ALIGNMENT * MAX_OFFSET_ALIGNMENT;
  plan->binding_bytes = min64(caps->storage_range, plan->block_bytes) / MAX_OFFSET_ALIGNMENT * MAX_OFFSET_ALIGNMENT;
  // Kernels read vectors of 16 bytes, so ranges start at multiples of 16 bytes even if the device needs less.
  plan->offset_alignment = caps->offset_alignment > 16 ? caps->offset_alignment : 16;
}

static void check_limits(const struct device_caps *caps, struct plan *plan) {
  uint32_t api = caps->api_version;
  if (api < VK_API_VERSION_1_1)
    refuse(plan, "it offers Vulkan %u.%u; 1.1 is needed", VK_API_VERSION_MAJOR(api), VK_API_VERSION_MINOR(api));
  if (!caps->max_invocations || !caps->max_groups[0]) refuse(plan, "it has no compute queue");
  if (!caps->subgroup_arithmetic) refuse(plan, "it has no subgroup arithmetic in compute shaders");
  if (caps->subgroup_size < MIN_SUBGROUP)
    refuse(plan, "its subgroups have %u lanes; %d are needed", caps->subgroup_size, MIN_SUBGROUP);
  if (caps->max_storage_buffers < PLAN_STORAGE_BUFFERS)
    refuse(plan, "it binds %u storage buffers to a shader; %d are needed", caps->max_storage_buffers,
           PLAN_STORAGE_BUFFERS);
  if (caps->shared_bytes < MIN_SHARED_BYTES)
    refuse(plan, "it has %u bytes of shared memory; %d are needed", caps->shared_bytes, MIN_SHARED_BYTES);
  if (caps->max_invocations < MIN_INVOCATIONS || caps->max_workgroup[0] < MIN_INVOCATIONS)
    refuse(plan, "its workgroups have at most %u invocations; %d are needed",
           min32(caps->max_invocations, caps->max_workgroup[0]), MIN_INVOCATIONS);
  if (caps->offset_alignment > MAX_OFFSET_ALIGNMENT)
    refuse(plan, "it aligns storage buffers to %u bytes; at most %d are supported", caps->offset_alignment,
           MAX_OFFSET_ALIGNMENT);
}

// ---------------------------------------------------------------- workgroups

// All kernels have the same subgroup size, so that sums do not depend on the compiler's choice. It is 32, as on most
// devices, or 16 on Intel, where 32 costs registers.
static uint32_t choose_subgroup(const struct device_caps *caps) {
  if (!caps->subgroup_size_control || caps->subgroup_min >= caps->subgroup_max) return 0;
  uint32_t size = caps->vendor_id == VENDOR_INTEL ? 16 : 32;
  if (size < caps->subgroup_min) size = caps->subgroup_min;
  return min32(size, caps->subgroup_max);
}

// Kernels combine coopmats into tiles of 16, read them as vectors of eight halves, and give each invocation the same
// number of a coopmat's elements.
static bool matrix_suits(uint32_t m, uint32_t n, uint32_t k, uint32_t lanes) {
  return (m == 8 || m == 16) && (n == 8 || n == 16) && (k == 8 || k == 16) && m * n % lanes == 0;
}

// Prefers 16 x 16 x 16, which is AMD's only shape and NVIDIA's best.
static void plan_matrices(const struct device_caps *caps, struct plan *plan) {
  bool slow = caps->vendor_id == VENDOR_INTEL && caps->device_type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU &&
              caps->subgroup_min < 16; // Xe-HPG: coopmats slow kernels down (llama.cpp #24404)
  plan->matrix_lanes = plan->subgroup ? plan->subgroup : caps->subgroup_size;
  if (!plan->matrix_lanes) return;
  for (uint32_t i = 0; i < caps->matrix_shapes && i < CAPS_MATRIX_SHAPES; i++) {
    uint32_t m = caps->matrix_shape[i].m, n = caps->matrix_shape[i].n, k = caps->matrix_shape[i].k;
    bool wanted = m == 16 && n == 16 && k == 16;
    if (!matrix_suits(m, n, k, plan->matrix_lanes) || (plan->matrix_m && !wanted)) continue;
    plan->matrix_m = m;
    plan->matrix_n = n;
    plan->matrix_k = k;
  }
  plan->matrix_conversions = plan->matrix_m && caps->matrix_conversions;
  plan->matrix_products = plan->matrix_mixers = plan->matrix_m && !slow;
  // RDNA3's compiler spills 16 coopmats; we assume the same of other GPUs.
  plan->matrix_sums = caps->vendor_id == VENDOR_NVIDIA || is_software(caps) ? 16 : 8;
}

// Guesses if no extension reports the number: 132 on a discrete GPU (H200), 4 in software, 16 otherwise.
static uint32_t count_processors(const struct device_caps *caps) {
  if (caps->processors) return caps->processors;
  switch (caps->device_type) {
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return 132;
  case VK_PHYSICAL_DEVICE_TYPE_CPU: return 4;
  default: return 16;
  }
}

// Software workgroups are small, because software runs their subgroups one after the other and switches between them
// at each barrier.
static void plan_workgroups(const struct device_caps *caps, struct plan *plan) {
  plan->processors = count_processors(caps);
  plan->most_lanes = min32(caps->max_invocations, caps->max_workgroup[0]);
  plan->shared_bytes = caps->shared_bytes;
  plan->lanes = plan->software ? 32 : 256;
  plan->block_lanes = plan->software ? 64 : 256;
  while (plan->lanes > plan->most_lanes) plan->lanes /= 2;
  while (plan->block_lanes > plan->most_lanes) plan->block_lanes /= 2;
  // A subgroup wider than its workgroup would have idle lanes. Some AMD GPUs have 64 lanes, some phones 128.
  while (plan->lanes < plan->matrix_lanes && plan->lanes * 2 <= plan->most_lanes) plan->lanes *= 2;
}

static void plan_pace(const struct device_caps *caps, struct plan *plan) {
  switch (caps->device_type) { // about 0.1 s of work
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: plan->submit_operations = 200000000000; break;
  case VK_PHYSICAL_DEVICE_TYPE_CPU: plan->submit_operations = 2000000000; break;
  default: plan->submit_operations = 20000000000; break;
  }
  // The time is longer than the drivers' own watchdogs (amdgpu: 60 s for compute), so that they report first. A CPU
  // does not hang, but if it is loaded, large products take minutes, and so does LLVM's compilation of some kernels.
  plan->silent_seconds = plan->software ? 3600 : 120;
}

// Orders devices by kind first, then by memory.
static void plan_score(const struct device_caps *caps, struct plan *plan) {
  uint32_t rank = 0;
  switch (caps->device_type) {
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: rank = 3; break;
  case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: rank = 2; break;
  case VK_PHYSICAL_DEVICE_TYPE_CPU: rank = 0; break;
  default: rank = 1; break;
  }
  uint64_t mib = min64(plan->device_bytes >> 20, (1u << 28) - 1);
  plan->score = rank << 28 | (uint32_t)(mib ? mib : 1);
}

void plan_make(const struct device_caps *caps, struct plan *plan) {
  memset(plan, 0, sizeof *plan);
  check_limits(caps, plan);
  plan_memory(caps, plan);
  plan_limits(caps, plan);
  if (!plan->binding_bytes) refuse(plan, "it allows no storage buffer of a useful size");
  plan->usable = !plan->reason[0];
  if (!plan->usable) return;
  plan->software = is_software(caps);
  plan->subgroup = choose_subgroup(caps);
  if (caps->full_subgroups) plan->subgroup_width = plan->subgroup ? plan->subgroup : caps->subgroup_size;
  plan_matrices(caps, plan);
  plan_workgroups(caps, plan);
  plan_pace(caps, plan);
  plan_score(caps, plan);
}

static bool timed_or(uint8_t way, bool usual) { return way == TIMED_UNKNOWN ? usual : way == TIMED_YES; }

void plan_use_timed(struct plan *plan, const struct timed_choices *timed) {
  plan->timed = *timed;
  plan->matrix_products = plan->matrix_m && timed_or(timed->products, plan->matrix_products);
  plan->matrix_mixers = plan->matrix_m && timed_or(timed->mixers, plan->matrix_mixers);
}

// ---------------------------------------------------------------- text

struct text {
  char *at;
  uint64_t capacity, used; // used: length of the full text, which may exceed capacity
};

__attribute__((format(printf, 2, 3))) static void say(struct text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  bool room = text->used < text->capacity;
  int n = vsnprintf(room ? text->at + text->used : NULL, room ? text->capacity - text->used : 0, format, args);
  va_end(args);
  if (n > 0) text->used += (uint64_t)n;
}

// Appends e.g. "128 MiB", or bytes if the size is not a multiple of 1 KiB.
static void say_bytes(struct text *text, const char *before, uint64_t bytes, const char *after) {
  static const char *const units[] = {"bytes", "KiB", "MiB"};
  int unit = 0;
  for (; unit < 2 && bytes && bytes % 1024 == 0; unit++) bytes /= 1024;
  say(text, "%s%llu %s%s", before, (unsigned long long)bytes, units[unit], after);
}

static const char *type_name(uint32_t type) {
  switch (type) {
  case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: return "discrete GPU";
  case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: return "integrated GPU";
  case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: return "virtual GPU";
  case VK_PHYSICAL_DEVICE_TYPE_CPU: return "software";
  default: return "other";
  }
}

static void describe_caps(struct text *text, const struct device_caps *caps) {
  say(text, "device            %s (%s)\n", caps->name, type_name(caps->device_type));
  say(text, "driver            %s, Vulkan %u.%u.%u\n", caps->driver, VK_API_VERSION_MAJOR(caps->api_version),
      VK_API_VERSION_MINOR(caps->api_version), VK_API_VERSION_PATCH(caps->api_version));
  say(text, "UUID              ");
  for (int i = 0; i < 16; i++) say(text, "%02x", caps->uuid[i]);
  say(text, caps->pci[0] ? ", PCI %s\n" : "\n", caps->pci);
  say(text, "subgroup          %u lanes (%u to %u), %s\n", caps->subgroup_size, caps->subgroup_min, caps->subgroup_max,
      caps->subgroup_arithmetic ? "arithmetic" : "no arithmetic");
  if (caps->matrix_shapes) {
    say(text, "matrices          f16, f32 sums:");
    for (uint32_t i = 0; i < caps->matrix_shapes && i < CAPS_MATRIX_SHAPES; i++)
      say(text, " %ux%ux%u", caps->matrix_shape[i].m, caps->matrix_shape[i].n, caps->matrix_shape[i].k);
    say(text, "%s\n", caps->matrix_conversions ? ", with conversions" : "");
  }
  if (caps->processors) say(text, "processors        %u\n", caps->processors);
  say(text, "workgroup         %u invocations, ", caps->max_invocations);
  say_bytes(text, "", caps->shared_bytes, " shared\n");
  say(text, "storage buffers   %u of ", caps->max_storage_buffers);
  say_bytes(text, "", caps->storage_range, ", ");
  say(text, "offsets of %u bytes\n", caps->offset_alignment);
  say_bytes(text, "largest block     ", caps->max_allocation, " allocated, ");
  say_bytes(text, "", caps->max_buffer, " a buffer\n");
  say(text, "push constants    %u bytes\n", caps->push_bytes);
  say(text, "time stamps       %u bits, %.3g ns\n", caps->timestamp_bits, (double)caps->timestamp_period);
  for (uint32_t i = 0; i < caps->memory_types && i < CAPS_MEMORY_TYPES; i++) {
    uint32_t flags = caps->memory_type[i].flags;
    say(text, "memory type %-2u    heap %u, %llu MiB%s%s%s%s\n", i, caps->memory_type[i].heap,
        (unsigned long long)(type_heap_bytes(caps, i) >> 20), flags & DEVICE_LOCAL ? ", device local" : "",
        (flags & COHERENT) == COHERENT ? ", mapped" : "", flags & CACHED ? ", cached" : "",
        flags & UNWANTED ? ", unused" : "");
  }
}

static const char *matrix_uses(const struct plan *plan) {
  if (plan->matrix_products) return plan->matrix_mixers ? "products and mixers" : "products";
  return plan->matrix_mixers ? "mixers" : "nothing: they are slower";
}

static void describe_plan(struct text *text, const struct plan *plan) {
  if (!plan->usable) {
    say(text, "not usable: %s\n", plan->reason);
    return;
  }
  if (plan->subgroup) say(text, "subgroup used     %u lanes\n", plan->subgroup);
  if (plan->matrix_m)
    say(text, "matrices          %u x %u x %u%s, for %s\n", plan->matrix_m, plan->matrix_n, plan->matrix_k,
        plan->matrix_conversions ? ", sums become operands in registers" : "", matrix_uses(plan));
  say(text, "lanes             %u a row, %u a block, on %u processors\n", plan->lanes, plan->block_lanes,
      plan->processors);
  say_bytes(text, "buffers           ", plan->block_bytes, ", ");
  say_bytes(text, "", plan->binding_bytes, " a binding, ");
  say(text, "offsets of %u bytes\n", plan->offset_alignment);
  say(text, "memory types      device %d%s, shared %d, staging %d, readback %d\n", plan->memory_device,
      plan->device_mapped ? " (mapped)" : "", plan->memory_shared, plan->memory_staging, plan->memory_readback);
  say(text, "submits           about every %llu million operations\n",
      (unsigned long long)(plan->submit_operations / 1000000));
  say(text, "waits             at most %u seconds without an answer\n", plan->silent_seconds);
}

int plan_describe(const struct device_caps *caps, const struct plan *plan, char *text, uint64_t capacity) {
  struct text out = {text, capacity, 0};
  if (capacity) text[0] = 0;
  describe_caps(&out, caps);
  describe_plan(&out, plan);
  return (int)out.used;
}
