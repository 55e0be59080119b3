// hh_rule.h: contract of hh_rule.comp.
#ifndef HH_RULE_H
#define HH_RULE_H
#include "control.h"
#include "hh_mask.h"
#include "interface.h"
#define HH_RULE_O 0         // (T, Hv * Dv) out, f32
#define HH_RULE_QKV 1       // (T, 2 * H * R * D + Hv * Dv) in, f32: q, k, v
#define HH_RULE_BETA 2      // (T, Hv) in, f32
#define HH_RULE_G 3         // (T, Hv) in, f32; read when args.gated
#define HH_RULE_MASK 4      // (T or 1, Hv * R * R) in, f32: logits, or M when NONNEG is HH_GIVEN
#define HH_RULE_STATE 5     // (slots, Hv * R * D * Dv) inout, f32
#define HH_RULE_SEQUENCES 6 // (B) in, struct sequence
#define HH_RULE_BINDINGS 7
#define HH_RULE_SPEC_LANES 0   // COLUMNS * R * SUB / PER
#define HH_RULE_SPEC_D 1       // Dk / R, rows of a block
#define HH_RULE_SPEC_R 2       // blocks of a head
#define HH_RULE_SPEC_COLUMNS 3 // value columns of a workgroup
#define HH_RULE_SPEC_SUB 4     // pieces that a block is cut into
#define HH_RULE_SPEC_PER 5     // pieces of an invocation, divides R * SUB
#define HH_RULE_SPEC_BLOCK 6   // tokens staged at a time
#define HH_RULE_SPEC_ALIGNED 7 // 1: D and qkv_stride are multiples of 4
#define HH_RULE_SPEC_NONNEG 8  // HH_...
#define HH_RULE_SPECS 9
struct hh_rule_args {
  uint H;
  uint Hv;
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
ARGS(hh_rule_args)
#endif
