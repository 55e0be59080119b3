// plan.h: derives limits and memory types from a device's recorded capabilities, without Vulkan calls; host/ops/vulkan has
// a plan_*.h for each operation. Code depends on a vendor only in plan*.c and caps.c.
#ifndef PLAN_H
#define PLAN_H
#include <stdbool.h>
#include <stdint.h>

enum { CAPS_MEMORY_TYPES = 32, CAPS_MEMORY_HEAPS = 16, CAPS_MATRIX_SHAPES = 16 };

enum { PLAN_STORAGE_BUFFERS = 8 }; // that a shader may bind on every device that is not refused
enum { VENDOR_INTEL = 0x8086, VENDOR_NVIDIA = 0x10de };

// Facts as Vulkan reports them; device.c fills it, tests write it by hand.
struct device_caps {
  char name[256];
  char driver[256];                           // driver name and its own version text
  uint32_t vendor_id, device_id, device_type; // device_type: VkPhysicalDeviceType's value
  uint32_t api_version;
  uint8_t uuid[16], driver_uuid[16];
  uint32_t subgroup_size, subgroup_min, subgroup_max; // min and max equal size without subgroup size control
  bool subgroup_arithmetic, subgroup_shuffle;         // operations in compute shaders
  bool subgroup_size_control, full_subgroups;         // in compute shaders
  uint32_t max_subgroups;                             // of a workgroup whose subgroup size is chosen
  uint32_t shared_bytes;                              // maxComputeSharedMemorySize
  uint32_t max_invocations;                           // maxComputeWorkGroupInvocations
  uint32_t max_workgroup[3], max_groups[3];           // max_groups[0] is 0 when there is no compute queue
  uint32_t push_bytes;                                // maxPushConstantsSize
  uint32_t max_storage_buffers;                       // per stage and per set, the smaller
  uint64_t storage_range;                             // maxStorageBufferRange
  uint64_t max_allocation;                            // maxMemoryAllocationSize
  uint64_t max_buffer;                                // maxBufferSize, or max_allocation where unknown
  uint32_t offset_alignment;                          // minStorageBufferOffsetAlignment
  uint32_t processors;     // multiprocessors, compute units or cores, where an extension tells their number; else 0
  uint32_t timestamp_bits; // of the compute queue; 0: none
  float timestamp_period;  // nanoseconds a tick
  // Cooperative matrices of a subgroup, (m, k) x (k, n), f16 operands and f32 sums; none where the device or the
  // Vulkan headers lack something that kernels with matrices need.
  uint32_t matrix_shapes;
  struct {
    uint8_t m, n, k;
  } matrix_shape[CAPS_MATRIX_SHAPES];
  bool matrix_conversions; // sums convert to operands in registers (VK_NV_cooperative_matrix2)
  bool memory_budget;      // the driver reports free memory (VK_EXT_memory_budget)
  bool unchecked;          // NVIDIA's checks of accesses can be left out of pipelines (VK_EXT_pipeline_robustness)
  uint32_t memory_types, memory_heaps;
  struct {
    uint32_t flags, heap;
  } memory_type[CAPS_MEMORY_TYPES]; // VkMemoryPropertyFlags
  struct {
    uint64_t bytes;
    uint32_t flags;
  } memory_heap[CAPS_MEMORY_HEAPS];
};

// Decisions that concern no single operation. Sizes are in elements unless they say bytes.
struct plan {
  bool usable;
  char reason[256]; // why the device is not usable, in one sentence; "" when usable
  uint32_t score;   // larger is better; a GPU always beats software
  bool software;    // the device is the processor

  uint32_t subgroup;       // the size that kernels are compiled for where the device lets us choose, else 0
  uint32_t subgroup_width; // of every subgroup of a workgroup that it divides, all lanes there; 0: no such promise
  uint32_t matrix_m, matrix_n, matrix_k; // the cooperative matrices that kernels use; 0: none
  uint32_t matrix_lanes;                 // of the subgroup that holds one
  uint32_t matrix_sums; // most matrices of sums that a subgroup's registers hold beside what a product needs
  bool matrix_conversions;
  uint32_t processors;   // that run workgroups at the same time: recorded, or a guess
  uint32_t most_lanes;   // of a workgroup, as the device has
  uint32_t shared_bytes; // of a workgroup, as the device has
  uint32_t lanes;        // invocations of a workgroup that reduces over a row (norms, sampling, softmax)
  uint32_t block_lanes;  // invocations of an elementwise workgroup

  uint64_t device_bytes;      // of the largest device-local heap
  uint64_t binding_bytes;     // most bytes behind one descriptor
  uint64_t block_bytes;       // most bytes of one buffer
  uint32_t offset_alignment;  // of a descriptor, bytes: at most 256
  uint64_t submit_operations; // record about this much work, then submit it: bounds cancel and watchdogs
  uint32_t silent_seconds;    // after this time without an answer the device counts as lost
  int memory_device;          // memory type for weights, state, scratch
  int memory_shared;          // host visible and coherent, device local where that costs nothing: control block
  int memory_staging;         // host visible, coherent: uploads
  int memory_readback;        // host visible, cached where there is one
  bool device_mapped;         // memory_device is host visible and coherent: no staging
};

void plan_make(const struct device_caps *caps, struct plan *plan);
// Readable text of both, for `deltaic devices`; as snprintf: returns the length that it has or would have.
int plan_describe(const struct device_caps *caps, const struct plan *plan, char *text, uint64_t capacity);
#endif
