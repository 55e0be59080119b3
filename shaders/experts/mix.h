// mix.h: contract of mix.comp.
#ifndef MIX_H
#define MIX_H
#include "interface.h"
#define MIX_Y 0       // (T, D) out, f32; inout when args.add
#define MIX_X 1       // (T * k, D) in, f32
#define MIX_WEIGHTS 2 // (T, k) in, f32
#define MIX_SHARED 3  // (T, D) in, f32; read when args.has_shared
#define MIX_LOGITS 4  // (T, gate_col + 1 or more) in, f32; read when args.has_shared
#define MIX_BINDINGS 5
#define MIX_SPEC_LANES 0
#define MIX_SPECS 1
struct mix_args {
  uint D;
  uint k;
  uint y_stride;
  uint x_stride;
  uint weights_stride;
  uint shared_stride;
  uint logits_stride;
  uint gate_col;
  uint has_shared;
  uint add; // 1: y += the sum
};
ARGS(mix_args)
#endif
