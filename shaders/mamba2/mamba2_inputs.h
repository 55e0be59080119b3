// mamba2_inputs.h: contract of mamba2_inputs.comp.
#ifndef MAMBA2_INPUTS_H
#define MAMBA2_INPUTS_H
#include "interface.h"
#define MAMBA2_INPUTS_DT 0      // (T, heads) out, f32
#define MAMBA2_INPUTS_G 1       // (T, heads) out, f32
#define MAMBA2_INPUTS_RAW 2     // (T, heads) in, f32
#define MAMBA2_INPUTS_A_LOG 3   // (1, heads) in, f32
#define MAMBA2_INPUTS_DT_BIAS 4 // (1, heads) in, f32
#define MAMBA2_INPUTS_BINDINGS 5
#define MAMBA2_INPUTS_SPEC_LANES 0
#define MAMBA2_INPUTS_SPECS 1
struct mamba2_inputs_args {
  uint heads;
  float low;
  float high;
  uint dt_stride;
  uint g_stride;
  uint raw_stride;
};
ARGS(mamba2_inputs_args)
#endif
