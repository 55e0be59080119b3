// delta_inputs.h: contract of delta_inputs.comp.
#ifndef DELTA_INPUTS_H
#define DELTA_INPUTS_H
#include "interface.h"
#include "key_norm.h"
#define DELTA_INPUTS_QK 0      // (T, heads * pitch) out, f32 or f16
#define DELTA_INPUTS_BETA 1    // (T, betas) out, f32
#define DELTA_INPUTS_G 2       // (T, decays) out, f32; written when args.gated
#define DELTA_INPUTS_BA 3      // (T, betas + decays) in, f32; read when args.has_beta or args.gated
#define DELTA_INPUTS_A_LOG 4   // (1, decays) in, f32; read when args.gated
#define DELTA_INPUTS_DT_BIAS 5 // (1, decays) in, f32; read when args.gated
#define DELTA_INPUTS_X 6       // (T, heads * pitch) in, as QK, and maybe the same memory
#define DELTA_INPUTS_BINDINGS 7
#define DELTA_INPUTS_SPEC_LANES 0
#define DELTA_INPUTS_SPECS 1
struct delta_inputs_args {
  uint heads;
  uint Dk;
  uint pitch; // elements from a head to the next, with zeros between
  uint activation;
  uint norm;
  uint betas;
  uint decays;
  uint has_beta;
  uint gated;
  float beta_scale;
  uint x_stride;
  uint qk_stride;
  uint beta_stride;
  uint g_stride;
  uint ba_stride;
};
ARGS(delta_inputs_args)
#endif
