// caps_devices.h: capabilities of real devices, as their drivers report them: what plan.c is tested with. Where a field
// is not in the reports at hand (identity, time stamps) it is left zero. H200 and lavapipe were recorded by
// `deltaic devices`; the others are from driver sources and public reports of vulkaninfo, processors from data sheets.
#ifndef CAPS_DEVICES_H
#define CAPS_DEVICES_H
#include "plan.h"
#include <vulkan/vulkan_core.h>

enum {
  DL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
  MAP = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
  CACHE = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
  LAZY = VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT,
  AMD = VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD,
  LOCAL_HEAP = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT,
};

#define MiB ((uint64_t)1 << 20)
#define GiB ((uint64_t)1 << 30)
#define SUBGROUP(size, least, most, count)                                                                             \
  .subgroup_size = size, .subgroup_min = least, .subgroup_max = most, .subgroup_arithmetic = true,                     \
  .subgroup_shuffle = true, .subgroup_size_control = true, .full_subgroups = true, .max_subgroups = count
#define WORKGROUP(bytes, invocations, depth, groups, others)                                                           \
  .shared_bytes = bytes, .max_invocations = invocations, .max_workgroup = {invocations, invocations, depth},           \
  .max_groups = {groups, others, others}
#define IDENTITY(vendor, device, type, minor, patch)                                                                   \
  .vendor_id = vendor, .device_id = device, .device_type = VK_PHYSICAL_DEVICE_TYPE_##type,                             \
  .api_version = VK_MAKE_API_VERSION(0, 1, minor, patch)
#define BUFFERS(push, count, range, allocation, largest, alignment)                                                    \
  .push_bytes = push, .max_storage_buffers = count, .storage_range = range, .max_allocation = allocation,              \
  .max_buffer = largest, .offset_alignment = alignment
#define TIMESTAMPS(bits, period) .timestamp_bits = bits, .timestamp_period = period
#define NVIDIA                                                                                                         \
  SUBGROUP(32, 32, 32, 2097152), WORKGROUP(49152, 1024, 64, 2147483647, 65535),                                        \
      BUFFERS(256, 1048576, 4294967295, 4292870144, 1099511627776, 16), TIMESTAMPS(64, 1),                             \
      .matrix_shapes = 3, .matrix_shape = {{16, 16, 16}, {16, 8, 16}, {16, 8, 8}}
// Each type twice, the second time coherent between units.
#define AMD_TYPES(local, host, window)                                                                                 \
  {DL, local}, {MAP, host}, {DL | MAP, window}, {MAP | CACHE, host}, {DL | AMD, local}, {MAP | AMD, host},             \
      {DL | MAP | AMD, window}, {                                                                                      \
    MAP | CACHE | AMD, host                                                                                            \
  }
#define MEMORY(types, heaps) .memory_types = types, .memory_heaps = heaps

static const struct device_caps caps_h200 = {
    .name = "NVIDIA H200",
    .driver = "NVIDIA 580.159.04",
    IDENTITY(0x10de, 0x2335, DISCRETE_GPU, 4, 312),
    NVIDIA,
    .processors = 132,
    .matrix_conversions = true,
    MEMORY(5, 2),
    .memory_type = {{0, 1}, {DL, 0}, {MAP, 1}, {MAP | CACHE, 1}, {DL | MAP, 0}},
    .memory_heap = {{143771 * MiB, LOCAL_HEAP}, {96665 * MiB, 0}},
};

// Resizable BAR off: the host sees a window of 246 MiB.
static const struct device_caps caps_geforce_bar = {
    .name = "NVIDIA GeForce RTX 3070",
    .driver = "NVIDIA 535.183.01",
    IDENTITY(0x10de, 0x2484, DISCRETE_GPU, 3, 242),
    NVIDIA,
    .processors = 46,
    MEMORY(5, 3),
    .memory_type = {{0, 1}, {DL, 0}, {MAP, 1}, {MAP | CACHE, 1}, {DL | MAP, 2}},
    .memory_heap = {{8 * GiB, LOCAL_HEAP}, {23 * GiB, 0}, {246 * MiB, LOCAL_HEAP}},
};

static const struct device_caps caps_rdna3_radv = {
    .name = "AMD Radeon RX 7900 XTX (RADV NAVI31)",
    .driver = "radv Mesa 25.0.7",
    IDENTITY(0x1002, 0x744c, DISCRETE_GPU, 4, 305),
    SUBGROUP(64, 32, 64, 32),
    .processors = 96,
    WORKGROUP(65536, 1024, 1024, 4294967295, 65535),
    BUFFERS(256, 8388606, 4294967295, 4294967292, 4294967292, 4),
    TIMESTAMPS(64, 10),
    .matrix_shapes = 1,
    .matrix_shape = {{16, 16, 16}},
    MEMORY(11, 2),
    .memory_type = {{DL, 1},
                    {DL, 1},
                    {MAP, 0},
                    {DL | MAP, 1},
                    {DL | MAP, 1},
                    {MAP | CACHE, 0},
                    {MAP | CACHE, 0},
                    {DL | AMD, 1},
                    {MAP | AMD, 0},
                    {DL | MAP | AMD, 1},
                    {MAP | CACHE | AMD, 0}},
    .memory_heap = {{31 * GiB, 0}, {24 * GiB, LOCAL_HEAP}},
};

// Resizable BAR off: what the host sees of the card's memory is a heap of its own, and not part of the other.
static const struct device_caps caps_rdna2_radv_bar = {
    .name = "AMD Radeon RX 6700 XT (RADV NAVI22)",
    .driver = "radv Mesa 23.2.1",
    IDENTITY(0x1002, 0x73df, DISCRETE_GPU, 3, 255),
    SUBGROUP(64, 32, 64, 32),
    .processors = 40,
    WORKGROUP(65536, 1024, 1024, 4294967295, 65535),
    BUFFERS(256, 8388606, 4294967295, 4294967292, 4294967292, 4),
    TIMESTAMPS(64, 10),
    MEMORY(8, 3),
    .memory_type = {AMD_TYPES(0, 1, 2)},
    .memory_heap = {{12016 * MiB, LOCAL_HEAP}, {16 * GiB, 0}, {256 * MiB, LOCAL_HEAP}},
};

static const struct device_caps caps_amd_windows = {
    .name = "AMD Radeon RX 9070 XT",
    .driver = "AMD proprietary driver 25.10.2",
    IDENTITY(0x1002, 0x7550, DISCRETE_GPU, 4, 315),
    SUBGROUP(64, 32, 64, 32),
    .processors = 64,
    WORKGROUP(32768, 1024, 1024, 4294967295, 65535),
    BUFFERS(256, 4294967295, 4294967295, 2147483648, 2147483648, 4),
    TIMESTAMPS(64, 10),
    MEMORY(8, 2),
    .memory_type = {AMD_TYPES(0, 1, 0)},
    .memory_heap = {{16304 * MiB, LOCAL_HEAP}, {15 * GiB, 0}},
};

static const struct device_caps caps_arc_linux = {
    .name = "Intel(R) Arc(tm) A770 Graphics (DG2)",
    .driver = "Intel open-source Mesa driver Mesa 25.0.7",
    IDENTITY(0x8086, 0x56a0, DISCRETE_GPU, 4, 305),
    SUBGROUP(32, 8, 32, 128),
    WORKGROUP(65536, 1024, 1024, 65535, 65535),
    BUFFERS(256, 4194303, 4294967295, 4294967292, 4294967292, 4),
    TIMESTAMPS(36, 52.0833f),
    .matrix_shapes = 1,
    .matrix_shape = {{8, 8, 16}},
    MEMORY(3, 2),
    .memory_type = {{DL, 0}, {MAP | CACHE, 1}, {DL | MAP, 0}},
    .memory_heap = {{16192 * MiB, LOCAL_HEAP}, {31 * GiB, 0}},
};

static const struct device_caps caps_arc_windows = {
    .name = "Intel(R) Arc(TM) A770 Graphics",
    .driver = "Intel Corporation 101.6795",
    IDENTITY(0x8086, 0x56a0, DISCRETE_GPU, 4, 309),
    SUBGROUP(32, 8, 32, 64),
    WORKGROUP(32768, 1024, 64, 65536, 65536),
    BUFFERS(256, 1310720, 4294967295, 4294901760, 4294901760, 64),
    TIMESTAMPS(64, 52.0833f),
    MEMORY(5, 2),
    .memory_type = {{DL, 0}, {MAP, 1}, {MAP | CACHE, 1}, {DL | MAP, 0}, {DL, 0}},
    .memory_heap = {{16242 * MiB, LOCAL_HEAP}, {16 * GiB, 0}},
};

static const struct device_caps caps_intel_integrated = {
    .name = "Intel(R) UHD Graphics 630 (CFL GT2)",
    .driver = "Intel open-source Mesa driver Mesa 22.3.6",
    IDENTITY(0x8086, 0x3e92, INTEGRATED_GPU, 3, 230),
    SUBGROUP(32, 8, 32, 56),
    WORKGROUP(65536, 896, 896, 65535, 65535),
    BUFFERS(128, 1048576, 1073741824, 2147483648, 2147483648, 4),
    TIMESTAMPS(36, 83.3333f),
    MEMORY(1, 1),
    .memory_type = {{DL | MAP | CACHE, 0}},
    .memory_heap = {{11833 * MiB, LOCAL_HEAP}},
};

static const struct device_caps caps_lavapipe = {
    .name = "llvmpipe (LLVM 15.0.6, 256 bits)",
    .driver = "llvmpipe Mesa 22.3.6 (LLVM 15.0.6)",
    IDENTITY(0x10005, 0, CPU, 3, 230),
    SUBGROUP(8, 8, 8, 32),
    WORKGROUP(32768, 1024, 1024, 65535, 65535),
    BUFFERS(128, 32, 134217728, 2147483648, 4294967295, 16),
    TIMESTAMPS(64, 1),
    MEMORY(1, 1),
    .memory_type = {{DL | MAP | CACHE, 0}},
    .memory_heap = {{2 * GiB, LOCAL_HEAP}},
};

static const struct device_caps caps_apple = {
    .name = "Apple M1",
    .driver = "MoltenVK 1.2.9",
    IDENTITY(0x106b, 0xc0503ef, INTEGRATED_GPU, 2, 283),
    .subgroup_size = 32,
    .subgroup_min = 4,
    .subgroup_max = 32,
    .subgroup_arithmetic = true, // its sizes cannot be chosen
    WORKGROUP(32768, 1024, 1024, 1073741824, 1073741824),
    BUFFERS(4096, 31, 4294967295, 8589934592, 8589934592, 16),
    TIMESTAMPS(64, 1),
    MEMORY(3, 1),
    .memory_type = {{DL, 0}, {DL | MAP | CACHE, 0}, {DL | LAZY, 0}},
    .memory_heap = {{10922 * MiB, LOCAL_HEAP}},
};

// Mesa before 24 offers no subgroup arithmetic on this one.
static const struct device_caps caps_raspberry = {
    .name = "V3D 4.2",
    .driver = "V3DV Mesa Mesa 22.3.6",
    IDENTITY(0x14e4, 42, INTEGRATED_GPU, 2, 230),
    .subgroup_size = 16,
    .subgroup_min = 16,
    .subgroup_max = 16,
    WORKGROUP(16384, 256, 256, 65535, 65535),
    BUFFERS(128, 8, 1073741824, 1073741824, 1073741824, 32),
    TIMESTAMPS(64, 1),
    MEMORY(1, 1),
    .memory_type = {{DL | MAP, 0}},
    .memory_heap = {{1850 * MiB, LOCAL_HEAP}},
};

static const struct device_caps *const caps_usable[] = {
    &caps_h200,      &caps_geforce_bar, &caps_rdna3_radv,       &caps_rdna2_radv_bar, &caps_amd_windows,
    &caps_arc_linux, &caps_arc_windows, &caps_intel_integrated, &caps_lavapipe,       &caps_apple,
};
enum { CAPS_USABLE = sizeof caps_usable / sizeof *caps_usable };
#endif
