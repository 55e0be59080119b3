// backward_kernels.h: the table of the backward pass's kernels, which libdeltaic_prune has (CMakeLists.txt lists them).
#ifndef BACKWARD_KERNELS_H
#define BACKWARD_KERNELS_H
#include "backward_kernel_list.h"
#include "pipeline.h"

enum backward_kernel {
#define X(module, ...) BACKWARD_##module,
  BACKWARD_KERNELS(X)
#undef X
      BACKWARD_KERNEL_COUNT
};

extern const struct shader backward_kernels[BACKWARD_KERNEL_COUNT];
extern const uint32_t backward_kernel_specs[BACKWARD_KERNEL_COUNT]; // numbers of specialization constants
#endif
