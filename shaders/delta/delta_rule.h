// delta_rule.h: contract of delta_rule.comp.
#ifndef DELTA_RULE_H
#define DELTA_RULE_H
#include "control.h"
#include "hh_mask.h"
#include "interface.h"
#define DELTA_RULE_O 0         // (T, Hv * Dv) out, f32
#define DELTA_RULE_QKV 1       // (T, H * Dk + n * H * Dk + n * Hv * Dv) in, f32: q, k of each step, v of each step
#define DELTA_RULE_BETA 2      // (T, n * Hv) in, f32
#define DELTA_RULE_G 3         // (T, Hv) in, f32; read when args.gated
#define DELTA_RULE_MASK 4      // (T or 1, Hv * R * R) in, f32; read when R > 1: logits, or M when NONNEG is HH_GIVEN
#define DELTA_RULE_STATE 5     // (slots, Hv * Dk * Dv) inout, f32
#define DELTA_RULE_SEQUENCES 6 // (B) in, struct sequence
#define DELTA_RULE_BINDINGS 7
#define DELTA_RULE_SPEC_LANES 0   // COLUMNS * R * SUB / PER
#define DELTA_RULE_SPEC_D 1       // Dk / R, rows of a block
#define DELTA_RULE_SPEC_R 2       // blocks of a head; R > 1 needs N = 1
#define DELTA_RULE_SPEC_N 3       // householder steps per token
#define DELTA_RULE_SPEC_COLUMNS 4 // value columns of a workgroup
#define DELTA_RULE_SPEC_SUB 5     // parts that a block is cut into
#define DELTA_RULE_SPEC_PER 6     // parts of an invocation, divides R * SUB; 1 if SUB > 1
#define DELTA_RULE_SPEC_BLOCK 7   // tokens staged at once
#define DELTA_RULE_SPEC_ALIGNED 8 // 1: D and qkv_stride are multiples of 4
#define DELTA_RULE_SPEC_NONNEG 9  // HH_...
#define DELTA_RULE_SPECS 10
struct delta_rule_args {
  uint H;
  uint Hv;
  uint share; // value head j uses key head j / share mod H
  uint Dv;
  uint gated;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint beta_stride;
  uint g_stride;
  uint mask_stride; // 0: one row serves every token
  uint state_stride;
};
ARGS(delta_rule_args)
#endif
