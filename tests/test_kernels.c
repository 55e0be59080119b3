// test_kernels: every compiled kernel against its contract header, without a device: bindings, push constants,
// specialization constants; inputs that nobody writes are declared so, since barriers are derived from it.
#include "status.h"

#include "kernels.h"

#include "attention.h"
#include "attention_matrix.h"
#include "attention_step.h"
#include "conv_inputs.h"
#include "copy.h"
#include "delta_chunk_prepare.h"
#include "delta_chunk_scan.h"
#include "delta_inputs.h"
#include "delta_matrix_join.h"
#include "delta_matrix_prepare.h"
#include "delta_matrix_reach.h"
#include "delta_matrix_scan.h"
#include "delta_rule.h"
#include "delta_step.h"
#include "delta_step_fours.h"
#include "embed.h"
#include "gated_norm.h"
#include "hh_chunk_prepare.h"
#include "hh_chunk_scan.h"
#include "hh_matrix_prepare.h"
#include "mamba2.h"
#include "mamba2_chunk_output.h"
#include "mamba2_chunk_pass.h"
#include "mamba2_chunk_state.h"
#include "mamba2_inputs.h"
#include "mamba2_matrix_output.h"
#include "mamba2_matrix_state.h"
#include "mark.h"
#include "matmul.h"
#include "matmul_matrix.h"
#include "matmul_narrow.h"
#include "matvec.h"
#include "output_norm.h"
#include "rmsnorm.h"
#include "rope_append.h"
#include "sample.h"
#include "scatter.h"
#include "score.h"
#include "short_conv.h"
#include "swiglu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static struct reflection reflected(enum kernel_id id) {
  struct reflection r;
  if (reflect(kernels[id].name, kernels[id].words, kernels[id].bytes / 4, &r)) fail_msg("%s", deltaic_last_error());
  return r;
}

static void modules_match_their_contracts(void **state) {
  (void)state;
  for (int id = 0; id < KERNEL_COUNT; id++) {
    if (!kernel_built(id)) continue;
    struct reflection r = reflected(id);
    if (r.bindings != kernels[id].bindings || r.push_bytes != kernels[id].push_bytes ||
        r.spec_count != kernel_specs[id])
      fail_msg("%s: %u bindings, %u bytes pushed, %u constants", kernels[id].name, r.bindings, r.push_bytes,
               r.spec_count);
    for (uint32_t i = 0; i < r.spec_count; i++) assert_int_equal(r.spec_id[i], i);
    assert_true(r.spec_workgroup);
  }
}

// The callers of these ask the device's limit, and go another way.
static const char *const wide[] = {"matvec_conv_", "matmul_narrow_conv_", "conv_inputs_", "delta_step_",
                                   "mamba2_step_"};

static void kernels_without_another_way_bind_what_every_device_allows(void **state) {
  (void)state;
  for (int id = 0; id < KERNEL_COUNT; id++) {
    bool other = false;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
      other |= !strncmp(kernels[id].name, wide[i], strlen(wide[i]));
    if (other != (kernels[id].bindings > PLAN_STORAGE_BUFFERS))
      fail_msg("%s: %u bindings", kernels[id].name, kernels[id].bindings);
  }
}

// What a kernel writes, as bits by binding; it reads what it does not write, and what it both reads and writes.
struct access {
  enum kernel_id id;
  uint32_t writes, also_read;
};
#define BIT(binding) (1u << (binding))
#define MATRIX_SCAN_UPDATES BIT(DELTA_MATRIX_SCAN_STATE)
#define MATRIX_SCAN_WRITES                                                                                             \
  (MATRIX_SCAN_UPDATES | BIT(DELTA_MATRIX_SCAN_MAPS) | BIT(DELTA_MATRIX_SCAN_REACH) | BIT(DELTA_MATRIX_SCAN_O))
#define MATRIX_REACH (BIT(DELTA_MATRIX_REACH_O))

#define CONV_WRITES (BIT(MATVEC_Y) | BIT(MATVEC_BINDINGS + CONV_STEP_Y) | BIT(MATVEC_BINDINGS + CONV_STEP_HISTORY))
#define CONV_INPUTS_WRITES (BIT(CONV_INPUTS_Y) | BIT(CONV_INPUTS_HISTORY) | BIT(CONV_INPUTS_BETA) | BIT(CONV_INPUTS_G))
#define SHARED_TILES (BIT(MATMUL_MATRIX_PARTS) | BIT(MATMUL_MATRIX_TICKETS))
#define NARROW (BIT(MATMUL_NARROW_Y) | BIT(MATMUL_NARROW_RMS))
#define NARROW_CONV                                                                                                    \
  (NARROW | BIT(MATMUL_NARROW_BINDINGS + CONV_STEP_Y) | BIT(MATMUL_NARROW_BINDINGS + CONV_STEP_HISTORY))
#define NARROW_NEXT (BIT(MATMUL_NARROW_Y) | BIT(MATMUL_NARROW_SUMS) | BIT(MATMUL_NARROW_NEXT_H))
#define CONV_READS (BIT(MATVEC_Y) | BIT(MATVEC_BINDINGS + CONV_STEP_HISTORY))

static const struct access accesses[] = {
    {KERNEL_embed_f32, BIT(EMBED_X), 0},
    {KERNEL_embed_f16, BIT(EMBED_X), 0},
    {KERNEL_embed_bf16, BIT(EMBED_X), 0},
    {KERNEL_matvec_f32, BIT(MATVEC_Y), BIT(MATVEC_Y)},
    {KERNEL_matvec_f16, BIT(MATVEC_Y), BIT(MATVEC_Y)},
    {KERNEL_matvec_bf16, BIT(MATVEC_Y), BIT(MATVEC_Y)},
    {KERNEL_matvec_conv_f32, CONV_WRITES, CONV_READS},
    {KERNEL_matvec_conv_f16, CONV_WRITES, CONV_READS},
    {KERNEL_matvec_conv_bf16, CONV_WRITES, CONV_READS},
    {KERNEL_matmul_f32, BIT(MATMUL_Y), BIT(MATMUL_Y)},
    {KERNEL_matmul_f16, BIT(MATMUL_Y), BIT(MATMUL_Y)},
    {KERNEL_matmul_bf16, BIT(MATMUL_Y), BIT(MATMUL_Y)},
    {KERNEL_matmul_matrix_x32_f16, BIT(MATMUL_MATRIX_Y) | SHARED_TILES, BIT(MATMUL_MATRIX_Y) | SHARED_TILES},
    {KERNEL_matmul_matrix_x32_bf16, BIT(MATMUL_MATRIX_Y) | SHARED_TILES, BIT(MATMUL_MATRIX_Y) | SHARED_TILES},
    {KERNEL_matmul_matrix_x16_f16, BIT(MATMUL_MATRIX_Y) | SHARED_TILES, BIT(MATMUL_MATRIX_Y) | SHARED_TILES},
    {KERNEL_matmul_matrix_x16_bf16, BIT(MATMUL_MATRIX_Y) | SHARED_TILES, BIT(MATMUL_MATRIX_Y) | SHARED_TILES},
    {KERNEL_matmul_matrix_gated_f16, BIT(MATMUL_MATRIX_Y) | SHARED_TILES, SHARED_TILES},
    {KERNEL_matmul_matrix_gated_bf16, BIT(MATMUL_MATRIX_Y) | SHARED_TILES, SHARED_TILES},
    {KERNEL_matmul_narrow_f16, NARROW, BIT(MATMUL_NARROW_Y)},
    {KERNEL_matmul_narrow_bf16, NARROW, BIT(MATMUL_NARROW_Y)},
    {KERNEL_matmul_narrow_gated_f16, NARROW, 0},
    {KERNEL_matmul_narrow_gated_bf16, NARROW, 0},
    {KERNEL_matmul_narrow_conv_f16, NARROW_CONV,
     BIT(MATMUL_NARROW_Y) | BIT(MATMUL_NARROW_BINDINGS + CONV_STEP_HISTORY)},
    {KERNEL_matmul_narrow_conv_bf16, NARROW_CONV,
     BIT(MATMUL_NARROW_Y) | BIT(MATMUL_NARROW_BINDINGS + CONV_STEP_HISTORY)},
    {KERNEL_matmul_narrow_next_f16, NARROW_NEXT, BIT(MATMUL_NARROW_Y)},
    {KERNEL_matmul_narrow_next_bf16, NARROW_NEXT, BIT(MATMUL_NARROW_Y)},
    {KERNEL_mark, BIT(MARK_SEEN), BIT(MARK_SEEN)},
    {KERNEL_rmsnorm_f32, BIT(RMSNORM_Y) | BIT(RMSNORM_RMS), 0},
    {KERNEL_rmsnorm_f16, BIT(RMSNORM_Y) | BIT(RMSNORM_RMS), 0},
    {KERNEL_short_conv_f16, BIT(SHORT_CONV_Y) | BIT(SHORT_CONV_HISTORY), BIT(SHORT_CONV_HISTORY)},
    {KERNEL_short_conv_f32, BIT(SHORT_CONV_Y) | BIT(SHORT_CONV_HISTORY), BIT(SHORT_CONV_HISTORY)},
    {KERNEL_conv_inputs_f16, CONV_INPUTS_WRITES, BIT(CONV_INPUTS_HISTORY)},
    {KERNEL_conv_inputs_f32, CONV_INPUTS_WRITES, BIT(CONV_INPUTS_HISTORY)},
    {KERNEL_delta_inputs_f16, BIT(DELTA_INPUTS_QK) | BIT(DELTA_INPUTS_BETA) | BIT(DELTA_INPUTS_G),
     BIT(DELTA_INPUTS_QK)},
    {KERNEL_delta_inputs_f32, BIT(DELTA_INPUTS_QK) | BIT(DELTA_INPUTS_BETA) | BIT(DELTA_INPUTS_G),
     BIT(DELTA_INPUTS_QK)},
    {KERNEL_delta_rule, BIT(DELTA_RULE_O) | BIT(DELTA_RULE_STATE), BIT(DELTA_RULE_STATE)},
    {KERNEL_delta_step_f16, BIT(DELTA_STEP_O) | BIT(DELTA_STEP_STATE), BIT(DELTA_STEP_STATE)},
    {KERNEL_delta_step_f32, BIT(DELTA_STEP_O) | BIT(DELTA_STEP_STATE), BIT(DELTA_STEP_STATE)},
    {KERNEL_delta_step_fours_f16, BIT(DELTA_STEP_O) | BIT(DELTA_STEP_STATE), BIT(DELTA_STEP_STATE)},
    {KERNEL_delta_step_fours_f32, BIT(DELTA_STEP_O) | BIT(DELTA_STEP_STATE), BIT(DELTA_STEP_STATE)},
    {KERNEL_delta_chunk_prepare, BIT(DELTA_CHUNK_PREPARE_PREPARED), 0},
    {KERNEL_delta_matrix_prepare_f32, BIT(DELTA_MATRIX_PREPARE_PREPARED), 0},
    {KERNEL_delta_matrix_prepare_f16, BIT(DELTA_MATRIX_PREPARE_PREPARED), 0},
    {KERNEL_hh_matrix_prepare_f32, BIT(HH_MATRIX_PREPARE_PREPARED), 0},
    {KERNEL_hh_matrix_prepare_f16, BIT(HH_MATRIX_PREPARE_PREPARED), 0},
    {KERNEL_delta_matrix_scan_f32, MATRIX_SCAN_WRITES, MATRIX_SCAN_UPDATES},
    {KERNEL_delta_matrix_scan_f16, MATRIX_SCAN_WRITES, MATRIX_SCAN_UPDATES},
    {KERNEL_delta_matrix_scan_khr_f32, MATRIX_SCAN_WRITES, MATRIX_SCAN_UPDATES},
    {KERNEL_delta_matrix_scan_khr_f16, MATRIX_SCAN_WRITES, MATRIX_SCAN_UPDATES},
    {KERNEL_delta_matrix_join, BIT(DELTA_MATRIX_JOIN_MAPS) | BIT(DELTA_MATRIX_JOIN_STATE), BIT(DELTA_MATRIX_JOIN_MAPS)},
    {KERNEL_delta_matrix_reach_f32, MATRIX_REACH, MATRIX_REACH},
    {KERNEL_delta_matrix_reach_f16, MATRIX_REACH, MATRIX_REACH},
    {KERNEL_delta_chunk_scan, BIT(DELTA_CHUNK_SCAN_O) | BIT(DELTA_CHUNK_SCAN_STATE), BIT(DELTA_CHUNK_SCAN_STATE)},
    {KERNEL_hh_chunk_prepare, BIT(HH_CHUNK_PREPARE_PREPARED), 0},
    {KERNEL_hh_chunk_scan, BIT(HH_CHUNK_SCAN_O) | BIT(HH_CHUNK_SCAN_STATE), BIT(HH_CHUNK_SCAN_STATE)},
    {KERNEL_output_norm_f16, BIT(OUTPUT_NORM_O), BIT(OUTPUT_NORM_O)},
    {KERNEL_output_norm_f32, BIT(OUTPUT_NORM_O), BIT(OUTPUT_NORM_O)},
    {KERNEL_mamba2_inputs, BIT(MAMBA2_INPUTS_DT) | BIT(MAMBA2_INPUTS_G), 0},
    {KERNEL_mamba2, BIT(MAMBA2_Y) | BIT(MAMBA2_STATE), BIT(MAMBA2_STATE)},
    {KERNEL_mamba2_step_f32, BIT(MAMBA2_Y) | BIT(MAMBA2_STATE), BIT(MAMBA2_STATE)},
    {KERNEL_mamba2_step_f16, BIT(MAMBA2_Y) | BIT(MAMBA2_STATE), BIT(MAMBA2_STATE)},
    {KERNEL_mamba2_chunk_state, BIT(MAMBA2_CHUNK_STATES), 0},
    {KERNEL_mamba2_chunk_pass, BIT(MAMBA2_CHUNK_PASS_STATES) | BIT(MAMBA2_CHUNK_PASS_STATE),
     BIT(MAMBA2_CHUNK_PASS_STATES) | BIT(MAMBA2_CHUNK_PASS_STATE)},
    {KERNEL_mamba2_chunk_output, BIT(MAMBA2_CHUNK_OUTPUT_Y), 0},
    {KERNEL_mamba2_matrix_state, BIT(MAMBA2_CHUNK_STATES), 0},
    {KERNEL_mamba2_matrix_output_f32, BIT(MAMBA2_MATRIX_OUTPUT_Y), 0},
    {KERNEL_mamba2_matrix_output_f16, BIT(MAMBA2_MATRIX_OUTPUT_Y), 0},
    {KERNEL_gated_norm_f32, BIT(GATED_NORM_Y), BIT(GATED_NORM_Y)},
    {KERNEL_gated_norm_f16, BIT(GATED_NORM_Y), BIT(GATED_NORM_Y)},
    {KERNEL_swiglu_f16, BIT(SWIGLU_Y), 0},
    {KERNEL_swiglu_f32, BIT(SWIGLU_Y), 0},
    {KERNEL_rope_append,
     BIT(ROPE_APPEND_QKV) | BIT(ROPE_APPEND_CACHE_K) | BIT(ROPE_APPEND_CACHE_V) | BIT(ROPE_APPEND_PARTS),
     BIT(ROPE_APPEND_QKV)},
    {KERNEL_attention_f32, BIT(ATTENTION_O), 0},
    {KERNEL_attention_f16, BIT(ATTENTION_O), 0},
    {KERNEL_attention_matrix, BIT(ATTENTION_MATRIX_O), 0},
    {KERNEL_attention_step_f32, BIT(ATTENTION_STEP_O) | BIT(ATTENTION_STEP_PARTS), BIT(ATTENTION_STEP_PARTS)},
    {KERNEL_attention_step_f16, BIT(ATTENTION_STEP_O) | BIT(ATTENTION_STEP_PARTS), BIT(ATTENTION_STEP_PARTS)},
    {KERNEL_sample, BIT(SAMPLE_TOKENS) | BIT(SAMPLE_SEQUENCES) | BIT(SAMPLE_SEEN),
     BIT(SAMPLE_SEQUENCES) | BIT(SAMPLE_SEEN)},
    {KERNEL_copy, BIT(COPY_TO), 0},
    {KERNEL_scatter, BIT(SCATTER_TO), 0},
    {KERNEL_score, BIT(SCORE_SCORES), 0},
};

static void reads_and_writes_are_declared(void **state) {
  (void)state;
  assert_int_equal(sizeof accesses / sizeof *accesses, KERNEL_COUNT);
  for (int i = 0; i < KERNEL_COUNT; i++) {
    const struct access *a = &accesses[i];
    if (!kernel_built(a->id)) continue;
    struct reflection r = reflected(a->id);
    for (uint32_t b = 0; b < r.bindings; b++) {
      bool writes = a->writes >> b & 1, reads = !writes || (a->also_read >> b & 1);
      if (r.writes[b] != writes || r.reads[b] != reads)
        fail_msg("%s, binding %u: reads %d, writes %d", kernels[a->id].name, b, r.reads[b], r.writes[b]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(modules_match_their_contracts),
      cmocka_unit_test(kernels_without_another_way_bind_what_every_device_allows),
      cmocka_unit_test(reads_and_writes_are_declared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
