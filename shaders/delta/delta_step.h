// delta_step.h: contract of delta_step.comp.
#ifndef DELTA_STEP_H
#define DELTA_STEP_H
#include "activation.h"
#include "control.h"
#include "hh_mask.h"
#include "interface.h"
#include "key_norm.h"
#define DELTA_STEP_O 0           // (T, Hv * Dv) out, f32 or f16
#define DELTA_STEP_QKV 1         // (T, H * DK + N * H * DK + N * Hv * Dv) in, f32: q, k of each step, v of each step
#define DELTA_STEP_BA 2          // (T, N * Hv + Hv) in, f32; first part read when has_beta, second when args.gated
#define DELTA_STEP_A_LOG 3       // (1, Hv) in, f32; read when args.gated
#define DELTA_STEP_DT_BIAS 4     // (1, Hv) in, f32; read when args.gated
#define DELTA_STEP_STATE 5       // (slots, Hv * DK * Dv) inout, f32
#define DELTA_STEP_SEQUENCES 6   // (B) in, struct sequence, of at most 1 token each
#define DELTA_STEP_GATE 7        // (T, Hv * Dv) in, f32; read when args.has_gate
#define DELTA_STEP_NORM_WEIGHT 8 // (1, Dv) in, f32; read when NORM
#define DELTA_STEP_MASK 9        // (T or 1, Hv * R * R) in, f32; read when R > 1: logits, or M when NONNEG is HH_GIVEN
#define DELTA_STEP_BINDINGS 10
#define DELTA_STEP_SPEC_LANES 0      // COLUMNS * R * SUB
#define DELTA_STEP_SPEC_D 1          // Dk / R, rows of a block
#define DELTA_STEP_SPEC_R 2          // blocks of a head; > 1: Head-in-Head
#define DELTA_STEP_SPEC_N 3          // householder steps per token; 1 when R > 1
#define DELTA_STEP_SPEC_COLUMNS 4    // value columns of a workgroup; >= Dv when NORM
#define DELTA_STEP_SPEC_SUB 5        // invocations that share the rows of a block in a column
#define DELTA_STEP_SPEC_NORM 6       // 1: the output is normed
#define DELTA_STEP_SPEC_NONNEG 7     // HH_...
#define DELTA_STEP_SPEC_ACTIVATION 8 // of q and k: ACT_...
#define DELTA_STEP_SPEC_KEY_NORM 9   // NORM_...
#define DELTA_STEP_SPECS 10
struct delta_step_args {
  uint H;
  uint Hv;
  uint share; // value head j uses key head j / share mod H
  uint Dv;
  uint has_beta;
  uint gated;
  uint has_gate;
  float beta_scale;
  float scale;
  float eps; // of the output's norm
  uint o_stride;
  uint qkv_stride;
  uint ba_stride;
  uint mask_stride; // 0: one row serves every token
  uint state_stride;
  uint gate_stride;
};
ARGS(delta_step_args)
#endif
