// delta_rule.h: contract of delta_rule.comp.
#ifndef DELTA_RULE_H
#define DELTA_RULE_H
#include "control.h"
#include "interface.h"
#define DELTA_RULE_O 0     // (T, Hv * Dv) out, f32
#define DELTA_RULE_QKV 1   // (T, H * Dk + n * H * Dk + n * Hv * Dv) in, f32: q, the k of each step, the v of each step
#define DELTA_RULE_BETA 2  // (T, n * Hv) in, f32
#define DELTA_RULE_G 3     // (T, Hv) in, f32; read when args.gated
#define DELTA_RULE_STATE 4 // (slots, Hv * Dk * Dv) inout, f32
#define DELTA_RULE_SEQUENCES 5 // (B) in, struct sequence
#define DELTA_RULE_BINDINGS 6
#define DELTA_RULE_SPEC_LANES 0 // COLUMNS * SPLIT
#define DELTA_RULE_SPEC_DK 1
#define DELTA_RULE_SPEC_N 2       // Householder steps a token
#define DELTA_RULE_SPEC_COLUMNS 3 // value columns of a workgroup
#define DELTA_RULE_SPEC_SPLIT 4   // invocations that share a column
#define DELTA_RULE_SPEC_BLOCK 5   // tokens staged at a time
#define DELTA_RULE_SPEC_ALIGNED 6 // 1: Dk and qkv_stride are multiples of 4
#define DELTA_RULE_SPECS 7
struct delta_rule_args {
  uint H;
  uint Hv;
  uint Dv;
  uint gated;
  float scale;
  uint o_stride;
  uint qkv_stride;
  uint beta_stride;
  uint g_stride;
  uint state_stride;
};
ARGS(delta_rule_args)
#endif
