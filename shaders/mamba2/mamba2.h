// mamba2.h: contract of mamba2.comp.
#ifndef MAMBA2_H
#define MAMBA2_H
#include "control.h"
#include "interface.h"
#define MAMBA2_Y 0         // (T, heads * P) out, f32, or with -DRAW f16
#define MAMBA2_XBC 1       // (T, heads * P + 2 * groups * N) in, f32: x of each head, then B, then C of each group
#define MAMBA2_DT 2        // (T, heads) in, f32; with -DRAW the raw input of mamba2_inputs.comp
#define MAMBA2_G 3         // (T, heads) in, f32; with -DRAW A_log (1, heads)
#define MAMBA2_D 4         // (1, heads) in, f32; (1, heads * P) when args.D_per_element
#define MAMBA2_STATE 5     // (slots, heads * N * P) inout, f32
#define MAMBA2_SEQUENCES 6 // (B) in, struct sequence
#define MAMBA2_BINDINGS 7
#define MAMBA2_DT_BIAS 7 // (1, heads) in, f32; only with -DRAW
#define MAMBA2_GATE 8    // (T, heads * P) in, f32; only with -DRAW, read when args.has_gate
#define MAMBA2_STEP_BINDINGS 9
#define MAMBA2_SPEC_LANES 0 // COLUMNS * SPLIT
#define MAMBA2_SPEC_N 1
#define MAMBA2_SPEC_COLUMNS 2 // columns of S in a workgroup
#define MAMBA2_SPEC_SPLIT 3   // invocations that share a column
#define MAMBA2_SPEC_BLOCK 4   // tokens staged at once
#define MAMBA2_SPEC_ALIGNED 5 // 1: P, N and xBC_stride are multiples of 4
#define MAMBA2_SPECS 6
#define MAMBA2_STEP_SPECS MAMBA2_SPECS
struct mamba2_push {
  uint heads;
  uint P;
  uint groups;
  uint D_per_element;
  uint y_stride;
  uint xBC_stride;
  uint dt_stride;
  uint g_stride;
  uint state_stride;
  float low; // low and high: limits of dt, with -DRAW
  float high;
  uint has_gate;
  uint gate_stride;
};
ARGS(mamba2_push)
#endif
