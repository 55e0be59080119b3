// pipeline.h: makes kernels from SPIR-V and specialization constants. Kernels live until the device closes; getting
// the same one again is cheap. Compiled pipelines are kept on disk per device and driver.
#ifndef PIPELINE_H
#define PIPELINE_H
#include "device.h"
#include "reflect.h"

// A compiled shader and the interface that its contract header declares. host/ops/vulkan/kernels.c has the table.
struct shader {
  const char *name;       // "matvec_bf16"
  const uint16_t *packed; // as shaders/pack.cmake writes it
  uint64_t units;
  uint32_t bindings, push_bytes; // as the contract header counts them; checked against the module
  bool unchecked;                // disable bounds checks of accesses where the device allows it
};

struct kernel {
  const struct shader *shader;
  struct reflection reflection;
  VkDescriptorSetLayout set_layout;
  VkPipelineLayout layout;
  VkPipeline pipeline;
};

// spec: values of the specialization constants with ids 0 ... count - 1. The module may lack those that its compiler
// removed as unused, and must have no others. Thread-safe. Fails with INTERNAL when the module and the contract
// disagree, or when the workgroup or its shared memory exceeds the device's limits, and with CANCELLED when
// device->compiling does not want a kernel that is new.
deltaic_status kernel_get(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count,
                          const struct kernel **out);

// The same, but does not ask device->compiling, so that threads of which its owner knows nothing may call it.
deltaic_status kernel_compile(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count,
                              const struct kernel **out);

// Whether the kernel is compiled, or another thread is compiling it.
bool kernel_is_known(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count);

// *words: the shader's SPIR-V module of *count words, to be freed. INTERNAL: it is damaged.
deltaic_status shader_unpack(const struct shader *shader, uint32_t **words, uint64_t *count);

deltaic_status pipelines_create(struct device *device, const char *cache_dir); // called by device_open
uint64_t pipelines_compile_ns(struct device *device);                          // while any thread compiled, so far
void pipelines_free(struct device *device);                                    // writes the disk cache
#endif
