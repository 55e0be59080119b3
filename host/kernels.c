// kernels: the only file that includes the compiled modules; each becomes a row of the table with its contract.
#include "kernels.h"

#include "attention.h"
#include "copy.h"
#include "delta_chunk_prepare.h"
#include "delta_chunk_scan.h"
#include "delta_inputs.h"
#include "delta_rule.h"
#include "embed.h"
#include "gated_norm.h"
#include "hh_chunk_prepare.h"
#include "hh_chunk_scan.h"
#include "hh_rule.h"
#include "mamba2.h"
#include "mamba2_chunk_output.h"
#include "mamba2_chunk_pass.h"
#include "mamba2_chunk_state.h"
#include "mamba2_inputs.h"
#include "mark.h"
#include "matmul.h"
#include "matmul_matrix.h"
#include "matvec.h"
#include "output_norm.h"
#include "rmsnorm.h"
#include "rope_append.h"
#include "sample.h"
#include "scatter.h"
#include "score.h"
#include "short_conv.h"
#include "swiglu.h"

#include "attention.spv.h"
#include "copy.spv.h"
#include "delta_chunk_prepare.spv.h"
#include "delta_chunk_scan.spv.h"
#include "delta_inputs.spv.h"
#include "delta_rule.spv.h"
#include "embed_bf16.spv.h"
#include "embed_f16.spv.h"
#include "embed_f32.spv.h"
#include "gated_norm.spv.h"
#include "hh_chunk_prepare.spv.h"
#include "hh_chunk_scan.spv.h"
#include "hh_rule.spv.h"
#include "mamba2.spv.h"
#include "mamba2_chunk_output.spv.h"
#include "mamba2_chunk_pass.spv.h"
#include "mamba2_chunk_state.spv.h"
#include "mamba2_inputs.spv.h"
#include "mark.spv.h"
#include "matmul_bf16.spv.h"
#include "matmul_f16.spv.h"
#include "matmul_f32.spv.h"
#include "matmul_matrix_bf16.spv.h"
#include "matmul_matrix_f16.spv.h"
#include "matvec_bf16.spv.h"
#include "matvec_conv_bf16.spv.h"
#include "matvec_conv_f16.spv.h"
#include "matvec_conv_f32.spv.h"
#include "matvec_f16.spv.h"
#include "matvec_f32.spv.h"
#include "output_norm.spv.h"
#include "rmsnorm.spv.h"
#include "rope_append.spv.h"
#include "sample.spv.h"
#include "scatter.spv.h"
#include "score.spv.h"
#include "short_conv.spv.h"
#include "swiglu.spv.h"

const struct shader kernels[KERNEL_COUNT] = {
#define X(module, contract, push)                                                                                      \
  {#module, spv_##module, sizeof spv_##module, contract##_BINDINGS, sizeof(struct push)},
    KERNELS(X)
#undef X
};

const uint32_t kernel_specs[KERNEL_COUNT] = {
#define X(module, contract, push) contract##_SPECS,
    KERNELS(X)
#undef X
};
