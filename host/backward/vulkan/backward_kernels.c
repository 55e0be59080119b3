// backward_kernels: the only file that includes the compiled modules of the backward pass.
#include "backward_kernels.h"

#include "backward_kernel_modules.h"

const struct shader backward_kernels[BACKWARD_KERNEL_COUNT] = {
#define X(module, contract, push, checked)                                                                             \
  [BACKWARD_##                                                                                                         \
      module] = {#module, packed_##module, sizeof packed_##module / 2, contract##_BINDINGS, sizeof(struct push), !checked},
    BACKWARD_KERNELS(X)
#undef X
};

const uint32_t backward_kernel_specs[BACKWARD_KERNEL_COUNT] = {
#define X(module, contract, push, checked) [BACKWARD_##module] = contract##_SPECS,
    BACKWARD_KERNELS(X)
#undef X
};
