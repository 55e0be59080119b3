// kernels.h: the table of compiled shaders. CMakeLists.txt lists them with deltaic_kernel(); kernel_list.h is generated from
// that.
#ifndef KERNELS_H
#define KERNELS_H
#include "kernel_list.h"
#include "pipeline.h"
#include "tensor.h"

enum kernel_id {
  KERNEL_NONE,
#define X(module, ...) KERNEL_##module,
  KERNELS(X)
#undef X
      KERNEL_COUNT
};

// Kernels with variants for several storage formats, of weights or of an output.
enum kernel_family {
#define X(family) FAMILY_##family,
  KERNEL_FAMILIES(X)
#undef X
      FAMILY_COUNT
};

extern const struct shader kernels[KERNEL_COUNT];
extern const uint32_t kernel_specs[KERNEL_COUNT];                            // numbers of specialization constants
extern const enum kernel_id kernel_variants[FAMILY_COUNT][DTYPE_BLOCKS + 1]; // for formats

// False for a kernel that the build's shader compiler could not compile, and for KERNEL_NONE.
static inline bool kernel_built(enum kernel_id id) { return kernels[id].units > 1; }
// KERNEL_NONE: the family has no variant for this format.
static inline enum kernel_id kernel_variant(enum kernel_family family, enum dtype dtype) {
  return kernel_variants[family][dtype < DTYPE_BLOCKS ? dtype : DTYPE_BLOCKS];
}
#endif
