// kernels.h: the compiled shaders.
#ifndef KERNELS_H
#define KERNELS_H
#include "pipeline.h"

// X(module, contract, push): spv_<module> is the array, <contract>_BINDINGS and _SPECS count, struct <push> is pushed.
// The storage formats of a weight kernel, or of an output, follow each other in the order of enum dtype.
//
// Of these the driver is asked to check every access against what is bound, which makes them faster on an H200: matvec
// and matvec_conv by 2 to 4 %, delta_step_fours by 3 % (delta_step goes with it); matmul_matrix_gated it costs nothing
// (docs/speed.md).
#define KERNELS_CHECKED(X)                                                                                             \
  X(matvec_f32, MATVEC, matvec_args)                                                                                   \
  X(matvec_f16, MATVEC, matvec_args)                                                                                   \
  X(matvec_bf16, MATVEC, matvec_args)                                                                                  \
  X(matvec_conv_f32, MATVEC_CONV, matvec_args)                                                                         \
  X(matvec_conv_f16, MATVEC_CONV, matvec_args)                                                                         \
  X(matvec_conv_bf16, MATVEC_CONV, matvec_args)                                                                        \
  X(matmul_matrix_gated_f16, MATMUL_MATRIX, matmul_matrix_args)                                                        \
  X(matmul_matrix_gated_bf16, MATMUL_MATRIX, matmul_matrix_args)                                                       \
  X(delta_step_f32, DELTA_STEP, delta_step_args)                                                                       \
  X(delta_step_f16, DELTA_STEP, delta_step_args)                                                                       \
  X(delta_step_fours_f32, DELTA_STEP_FOURS, delta_step_args)                                                           \
  X(delta_step_fours_f16, DELTA_STEP_FOURS, delta_step_args)

// Of all others it is asked not to: those that were timed were faster without, or as fast.
#define KERNELS_UNCHECKED(X)                                                                                           \
  X(embed_f32, EMBED, embed_args)                                                                                      \
  X(embed_f16, EMBED, embed_args)                                                                                      \
  X(embed_bf16, EMBED, embed_args)                                                                                     \
  X(matmul_f32, MATMUL, matmul_args)                                                                                   \
  X(matmul_f16, MATMUL, matmul_args)                                                                                   \
  X(matmul_bf16, MATMUL, matmul_args)                                                                                  \
  X(matmul_matrix_x32_f16, MATMUL_MATRIX, matmul_matrix_args)                                                          \
  X(matmul_matrix_x32_bf16, MATMUL_MATRIX, matmul_matrix_args)                                                         \
  X(matmul_matrix_x16_f16, MATMUL_MATRIX, matmul_matrix_args)                                                          \
  X(matmul_matrix_x16_bf16, MATMUL_MATRIX, matmul_matrix_args)                                                         \
  X(matmul_narrow_f16, MATMUL_NARROW, matmul_narrow_args)                                                              \
  X(matmul_narrow_bf16, MATMUL_NARROW, matmul_narrow_args)                                                             \
  X(matmul_narrow_gated_f16, MATMUL_NARROW, matmul_narrow_args)                                                        \
  X(matmul_narrow_gated_bf16, MATMUL_NARROW, matmul_narrow_args)                                                       \
  X(matmul_narrow_conv_f16, MATMUL_NARROW_CONV, matmul_narrow_args)                                                    \
  X(matmul_narrow_conv_bf16, MATMUL_NARROW_CONV, matmul_narrow_args)                                                   \
  X(matmul_narrow_next_f16, MATMUL_NARROW_NEXT, matmul_narrow_args)                                                    \
  X(matmul_narrow_next_bf16, MATMUL_NARROW_NEXT, matmul_narrow_args)                                                   \
  X(mark, MARK, mark_args)                                                                                             \
  X(rmsnorm_f32, RMSNORM, rmsnorm_args)                                                                                \
  X(rmsnorm_f16, RMSNORM, rmsnorm_args)                                                                                \
  X(short_conv_f32, SHORT_CONV, short_conv_args)                                                                       \
  X(short_conv_f16, SHORT_CONV, short_conv_args)                                                                       \
  X(delta_inputs_f32, DELTA_INPUTS, delta_inputs_args)                                                                 \
  X(delta_inputs_f16, DELTA_INPUTS, delta_inputs_args)                                                                 \
  X(conv_inputs_f32, CONV_INPUTS, conv_inputs_args)                                                                    \
  X(conv_inputs_f16, CONV_INPUTS, conv_inputs_args)                                                                    \
  X(delta_rule, DELTA_RULE, delta_rule_args)                                                                           \
  X(delta_chunk_prepare, DELTA_CHUNK_PREPARE, delta_chunk_prepare_args)                                                \
  X(delta_chunk_scan, DELTA_CHUNK_SCAN, delta_chunk_scan_args)                                                         \
  X(delta_matrix_prepare_f32, DELTA_MATRIX_PREPARE, delta_matrix_prepare_args)                                         \
  X(delta_matrix_prepare_f16, DELTA_MATRIX_PREPARE, delta_matrix_prepare_args)                                         \
  X(hh_matrix_prepare_f32, HH_MATRIX_PREPARE, hh_matrix_prepare_args)                                                  \
  X(hh_matrix_prepare_f16, HH_MATRIX_PREPARE, hh_matrix_prepare_args)                                                  \
  X(delta_matrix_scan_f32, DELTA_MATRIX_SCAN, delta_matrix_scan_args)                                                  \
  X(delta_matrix_scan_f16, DELTA_MATRIX_SCAN, delta_matrix_scan_args)                                                  \
  X(delta_matrix_scan_khr_f32, DELTA_MATRIX_SCAN, delta_matrix_scan_args)                                              \
  X(delta_matrix_scan_khr_f16, DELTA_MATRIX_SCAN, delta_matrix_scan_args)                                              \
  X(delta_matrix_join, DELTA_MATRIX_JOIN, delta_matrix_join_args)                                                      \
  X(delta_matrix_reach_f32, DELTA_MATRIX_REACH, delta_matrix_reach_args)                                               \
  X(delta_matrix_reach_f16, DELTA_MATRIX_REACH, delta_matrix_reach_args)                                               \
  X(hh_chunk_prepare, HH_CHUNK_PREPARE, hh_chunk_prepare_args)                                                         \
  X(hh_chunk_scan, HH_CHUNK_SCAN, hh_chunk_scan_args)                                                                  \
  X(output_norm_f32, OUTPUT_NORM, output_norm_args)                                                                    \
  X(output_norm_f16, OUTPUT_NORM, output_norm_args)                                                                    \
  X(mamba2_inputs, MAMBA2_INPUTS, mamba2_inputs_args)                                                                  \
  X(mamba2, MAMBA2, mamba2_push)                                                                                       \
  X(mamba2_step_f32, MAMBA2_STEP, mamba2_push)                                                                         \
  X(mamba2_step_f16, MAMBA2_STEP, mamba2_push)                                                                         \
  X(mamba2_chunk_state, MAMBA2_CHUNK_STATE, mamba2_chunk_args)                                                         \
  X(mamba2_chunk_pass, MAMBA2_CHUNK_PASS, mamba2_chunk_pass_args)                                                      \
  X(mamba2_chunk_output, MAMBA2_CHUNK_OUTPUT, mamba2_chunk_args)                                                       \
  X(mamba2_matrix_state, MAMBA2_MATRIX_STATE, mamba2_chunk_args)                                                       \
  X(mamba2_matrix_output_f32, MAMBA2_MATRIX_OUTPUT, mamba2_chunk_args)                                                 \
  X(mamba2_matrix_output_f16, MAMBA2_MATRIX_OUTPUT, mamba2_chunk_args)                                                 \
  X(gated_norm_f32, GATED_NORM, gated_norm_push)                                                                       \
  X(gated_norm_f16, GATED_NORM, gated_norm_push)                                                                       \
  X(swiglu_f32, SWIGLU, swiglu_args)                                                                                   \
  X(swiglu_f16, SWIGLU, swiglu_args)                                                                                   \
  X(rope_append, ROPE_APPEND, rope_append_args)                                                                        \
  X(attention_f32, ATTENTION, attention_push)                                                                          \
  X(attention_f16, ATTENTION, attention_push)                                                                          \
  X(attention_step_f32, ATTENTION_STEP, attention_step_push)                                                           \
  X(attention_step_f16, ATTENTION_STEP, attention_step_push)                                                           \
  X(attention_matrix, ATTENTION_MATRIX, attention_matrix_push)                                                         \
  X(sample, SAMPLE, sample_args)                                                                                       \
  X(copy, COPY, copy_args)                                                                                             \
  X(scatter, SCATTER, scatter_args)                                                                                    \
  X(score, SCORE, score_args)

#define KERNELS(X) KERNELS_CHECKED(X) KERNELS_UNCHECKED(X)

enum kernel_id {
#define X(module, contract, push) KERNEL_##module,
  KERNELS(X)
#undef X
      KERNEL_COUNT
};

extern const struct shader kernels[KERNEL_COUNT];
// False for a kernel that this build's shader compiler could not make.
static inline bool kernel_built(enum kernel_id id) { return kernels[id].bytes > sizeof(uint32_t); }
extern const uint32_t kernel_specs[KERNEL_COUNT]; // specialization constants, as the contract headers count them
#endif
