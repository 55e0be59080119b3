// rule_back.h: contract of rule_back.comp, the backward pass of the delta rule and of Mamba-2 token by token, and of
// the kernels around it:
//   rule_back_gates  beta, e^g and the mask of every token and value head, in one tensor
//   rule_back        the pass; what several workgroups would add to one gradient goes to `parts`
//   rule_back_sum    adds the parts to the gradients of q, k, v, beta and g
//   rule_back_mask   adds the parts of the mask's gradient
#ifndef RULE_BACK_H
#define RULE_BACK_H
#include "control.h"
#include "hh_mask.h"
#include "interface.h"
// (T, Hv, n + 1 + r^2) f32: beta of each step, e^g, the mask if r > 1. Out of rule_back_gates.
#define RULE_BACK_GATES 0
// (T, Hv, n v's of Dv, then for each of the blocks of columns: n dk's and dq of Dk, n dbeta, dg, dM (r^2) if r > 1)
// f32. Out of rule_back.
#define RULE_BACK_PARTS 1
#define RULE_BACK_QKV 2       // (T, ...) in, f32
#define RULE_BACK_BEFORE 3    // (slots, Hv * Dk * Dv) in, f32: states before the call; has_before
#define RULE_BACK_DSTATE 4    // the same, in and out: gradients of the states after the call, then before it
#define RULE_BACK_DO 5        // (T, Hv * Dv) in, f32
#define RULE_BACK_STATES 6    // (B, Hv, blocks, kept_count + kept, Dk, columns) f32 scratch
#define RULE_BACK_SEQUENCES 7 // (B) in, struct sequence
#define RULE_BACK_BINDINGS 8
// rule_back_gates
#define RULE_BACK_BETA 1 // (T, n * Hv) in, f32
#define RULE_BACK_G 2    // (T, Hv) in, f32; gated
#define RULE_BACK_MASK 3 // (T or 1, Hv * r^2) in, f32; r > 1
#define RULE_BACK_GATES_BINDINGS 4
// rule_back_sum
#define RULE_BACK_DQKV 0  // (T, ...) in and out, f32
#define RULE_BACK_DBETA 2 // (T, n * Hv) in and out, f32
#define RULE_BACK_DG 3    // (T, Hv) in and out, f32; gated
#define RULE_BACK_SUM_BINDINGS 4
// rule_back_mask
#define RULE_BACK_DMASK 0  // (T, Hv * r^2) in and out, f32
#define RULE_BACK_LOGITS 2 // (T, Hv * r^2) in, f32; unless the values are M
#define RULE_BACK_MASK_BINDINGS 3

#define RULE_BACK_SPEC_LANES 0
#define RULE_BACK_SPEC_R 1
#define RULE_BACK_SPEC_COLUMNS 2 // of a workgroup; divides the lanes
#define RULE_BACK_SPEC_ROWS 3    // at least Dk
#define RULE_BACK_SPEC_ERASES 4  // 0: Mamba-2, whose u is beta v
#define RULE_BACK_SPECS 5
#define RULE_BACK_SPEC_NONNEG 2 // of gates and mask
#define RULE_BACK_GATES_SPECS 3
#define RULE_BACK_MASK_SPECS 3
#define RULE_BACK_SUM_SPECS 1
struct rule_back_args {
  uint T;
  uint H;
  uint Hv;
  uint Dk;
  uint Dv;
  uint n;
  uint share; // value head j uses key head j / share mod H
  uint gated;
  uint fixed_mask;
  uint has_before;
  uint blocks; // of columns
  uint kept;   // steps between two states that are kept
  uint room;   // states of a workgroup
  uint part;   // elements of parts of one token and value head
  uint q_at;   // columns of q, k and v in a row of qkv
  uint k_at;
  uint v_at;
  uint qkv_stride;
  uint do_stride;
  uint state_stride;
  uint beta_stride; // of beta, or of dbeta
  uint g_stride;    // of g, or of dg
  uint mask_stride; // of the mask, or of dmask
  uint logits_stride;
  float scale;
};
ARGS(rule_back_args)
#endif
