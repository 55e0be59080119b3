// kernels: the only file that includes the compiled modules. Each becomes a row of the table, with its contract.
#include "kernels.h"

#include "kernel_modules.h"

const struct shader kernels[KERNEL_COUNT] = {[KERNEL_NONE] = {.name = "none"},
#define X(module, contract, push, checked)                                                                             \
  [KERNEL_##module] = {#module, packed_##module, sizeof packed_##module / 2, contract##_BINDINGS, sizeof(struct push), !checked},
                                             KERNELS(X)
#undef X
};

const uint32_t kernel_specs[KERNEL_COUNT] = {
#define X(module, contract, push, checked) [KERNEL_##module] = contract##_SPECS,
    KERNELS(X)
#undef X
};

const enum kernel_id kernel_variants[FAMILY_COUNT][DTYPE_BLOCKS + 1] = {
#define X(family, format, module) [FAMILY_##family][DTYPE_##format] = KERNEL_##module,
    KERNEL_VARIANTS(X)
#undef X
};
