// plan.h: derives limits and memory types from a device's recorded capabilities, without Vulkan calls. host/ops/vulkan
// has a plan_*.h for each operation. Code depends on a vendor only in plan*.c and caps.c.
#ifndef PLAN_H
#define PLAN_H
#include <stdbool.h>
#include <stdint.h>

enum { CAPS_MEMORY_TYPES = 32, CAPS_MEMORY_HEAPS = 16, CAPS_MATRIX_SHAPES = 16 };

enum { PLAN_STORAGE_BUFFERS = 8 }; // storage buffers that a shader can bind on every supported device
enum { VENDOR_INTEL = 0x8086, VENDOR_NVIDIA = 0x10de };

// Capabilities as Vulkan reports them. caps.c fills the struct; tests write it by hand.
struct device_caps {
  char name[256];
  char driver[256];                           // driver name and its own version text
  uint32_t vendor_id, device_id, device_type; // device_type: VkPhysicalDeviceType's value
  uint32_t api_version;
  uint8_t uuid[16], driver_uuid[16];
  uint8_t luid[8];                                    // zeros: not valid
  char pci[16];                                       // "0000:01:00.0"; "": the driver does not tell
  bool global_priority;                               // queues have a priority among those of all programs
  uint32_t subgroup_size, subgroup_min, subgroup_max; // min = max = size without subgroup size control
  bool subgroup_arithmetic, subgroup_shuffle;         // operations in compute shaders
  bool subgroup_size_control, full_subgroups;         // in compute shaders
  uint32_t max_subgroups;                             // of a workgroup if the subgroup size is chosen
  uint32_t shared_bytes;                              // maxComputeSharedMemorySize
  uint32_t max_invocations;                           // maxComputeWorkGroupInvocations
  uint32_t max_workgroup[3], max_groups[3];           // max_groups[0] 0: there is no compute queue
  uint32_t push_bytes;                                // maxPushConstantsSize
  uint32_t max_storage_buffers;                       // the smaller of the limits per stage and per set
  uint64_t storage_range;                             // maxStorageBufferRange
  uint64_t max_allocation;                            // maxMemoryAllocationSize
  uint64_t max_buffer;                                // maxBufferSize, or max_allocation if unknown
  uint32_t offset_alignment;                          // minStorageBufferOffsetAlignment
  uint32_t processors;     // multiprocessors, compute units or cores; 0: no extension reports them
  uint32_t timestamp_bits; // of the compute queue; 0: no timestamps
  float timestamp_period;  // nanoseconds per tick
  // Coopmats of a subgroup, (m, k) x (k, n), with f16 operands and f32 sums. There are none if the device or the Vulkan
  // headers lack a feature that kernels with coopmats need.
  uint32_t matrix_shapes;
  struct {
    uint8_t m, n, k;
  } matrix_shape[CAPS_MATRIX_SHAPES];
  bool matrix_conversions; // sums convert to operands in registers (VK_NV_cooperative_matrix2)
  bool matrix_unknown;     // it has coopmats, and the Vulkan headers of this build have none
  bool memory_budget;      // the driver reports free memory (VK_EXT_memory_budget)
  bool integer_dot;        // products of four bytes (VK_KHR_shader_integer_dot_product)
  bool integer_dot_fast;   // the hardware computes them
  bool unchecked;          // pipelines can omit NVIDIA's bounds checks (VK_EXT_pipeline_robustness)
  uint32_t memory_types, memory_heaps;
  struct {
    uint32_t flags, heap;
  } memory_type[CAPS_MEMORY_TYPES]; // VkMemoryPropertyFlags
  struct {
    uint64_t bytes;
    uint32_t flags;
  } memory_heap[CAPS_MEMORY_HEAPS];
};

// Choices that were timed on a device, since its capabilities do not tell (host/session/time_choices.c). 0 in a field:
// unknown.
enum timed_way { TIMED_UNKNOWN, TIMED_NO, TIMED_YES };
enum { PLAN_CHUNKS_NEVER = 1 }; // a chunk_percent: no chunks, however little the work
struct timed_choices {
  uint8_t products, mixers; // enum timed_way: whether products use coopmats; whether mixers do, see below
  uint16_t chunk_percent;   // the delta rule takes chunks up to this part of the plan's limit (plan_rule.h)
  uint8_t tile;             // of products without coopmats: 1 + its index in plan_tiles (plan_matmul.h)
};

// Decisions that all operations share. Sizes are in elements unless the name says bytes.
struct plan {
  bool usable;
  char reason[256]; // one sentence: why the device is not usable; "": it is usable
  uint32_t score;   // larger is better; a GPU always beats software
  bool software;    // the device is the CPU

  uint32_t subgroup;       // size that kernels request; 0: the device allows no choice
  uint32_t subgroup_width; // lanes of each subgroup if it divides the workgroup; 0: subgroups may be partly filled
  uint32_t matrix_m, matrix_n, matrix_k; // the coopmats that kernels can use; 0: none
  bool matrix_products, matrix_mixers;   // whether products use them; the delta rule, Mamba-2 and attention
  uint32_t matrix_lanes;                 // lanes of the subgroup that holds a coopmat
  uint32_t matrix_sums; // most coopmats of partial sums that fit into a subgroup's registers beside the operands
  bool matrix_conversions;
  uint32_t processors;   // processors that run workgroups concurrently: reported or guessed
  uint32_t most_lanes;   // the device's limit per workgroup
  uint32_t shared_bytes; // the device's limit per workgroup
  uint32_t lanes;        // of a workgroup that reduces a row (norms, sampling, softmax)
  uint32_t block_lanes;  // of an elementwise workgroup

  uint64_t device_bytes;      // size of the largest device-local heap
  uint64_t binding_bytes;     // most bytes of one descriptor
  uint64_t block_bytes;       // most bytes of one buffer
  uint32_t offset_alignment;  // of a descriptor, in bytes; at most 256
  uint64_t submit_operations; // least work per submission; limits the delay of a cancel
  uint32_t silent_seconds;    // a device that does not respond for this time counts as lost
  int memory_device;          // memory type for weights, state, scratch
  int memory_unmapped;        // device local but not host visible, used when memory_device is full; memory_device if
                              // there is no such type
  int memory_shared;          // host visible and coherent, device local if such a type exists: control memory
  int memory_staging;         // host visible, coherent: uploads
  int memory_readback;        // host visible, cached if such a type exists
  bool device_mapped;         // memory_device is host visible and coherent, and needs no staging
  bool background;            // the queue yields to others; the caller's choice, not plan_make's
  struct timed_choices timed; // zeros from plan_make()
};

void plan_make(const struct device_caps *caps, struct plan *plan);
// Replaces what plan_make() assumed by what was timed. Unknown choices leave the plan as it is.
void plan_use_timed(struct plan *plan, const struct timed_choices *timed);
// Writes a readable text of both for `deltaic devices`. Like snprintf, it returns the length of the full text.
int plan_describe(const struct device_caps *caps, const struct plan *plan, char *text, uint64_t capacity);
#endif
