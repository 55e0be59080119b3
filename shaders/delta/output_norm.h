// output_norm.h: contract of output_norm.comp.
#ifndef OUTPUT_NORM_H
#define OUTPUT_NORM_H
#include "interface.h"
#define OUTPUT_NORM_O 0      // (T, heads * Dv) inout, f32 or f16
#define OUTPUT_NORM_GATE 1   // (T, heads * Dv) in, f32; read when args.has_gate
#define OUTPUT_NORM_WEIGHT 2 // (1, Dv) or (1, heads * Dv) in, f32; read when args.has_norm
#define OUTPUT_NORM_BINDINGS 3
#define OUTPUT_NORM_SPEC_LANES 0
#define OUTPUT_NORM_SPEC_FOURS 1 // vectors of four of a head that an invocation holds; 0: single elements
#define OUTPUT_NORM_SPECS 2
struct output_norm_args {
  uint heads;
  uint Dv;
  uint o_stride;
  uint gate_stride;
  uint has_gate;
  uint has_norm;
  uint weight_step; // from one head's weight to the next one's: 0 or Dv
  float eps;
};
ARGS(output_norm_args)
#endif
