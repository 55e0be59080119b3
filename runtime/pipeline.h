// pipeline.h: SPIR-V + specialization constants -> a kernel that can be dispatched. Kernels live until the device
// closes; asking for the same one again is cheap. Compiled pipelines are kept on disk per device and driver.
#ifndef PIPELINE_H
#define PIPELINE_H
#include "device.h"
#include "reflect.h"

// A compiled shader and what the host believes about it (its contract header): one static table in
// host/ops/vulkan/kernels.c.
struct shader {
  const char *name; // "matvec_bf16"
  const uint32_t *words;
  uint64_t bytes;
  uint32_t bindings, push_bytes; // as the contract header counts them; checked against the module
  bool unchecked;                // of a device that lets us choose, accesses are not checked against what is bound
};

struct kernel {
  const struct shader *shader;
  struct reflection reflection;
  VkDescriptorSetLayout set_layout;
  VkPipelineLayout layout;
  VkPipeline pipeline;
};

// spec: values of the specialization constants 0 ... count - 1, by id; the module may lack some that its compiler found
// unused, and has none beyond. Thread-safe. Fails with INTERNAL when the module and the contract disagree, or when the
// workgroup or its shared memory would be larger than the device allows.
deltaic_status kernel_get(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count,
                          const struct kernel **out);

deltaic_status pipelines_create(struct device *device, const char *cache_dir); // called by device_open
void pipelines_free(struct device *device);                                    // writes the disk cache
#endif
