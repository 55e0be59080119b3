// swiglu.h: contract of swiglu.comp.
#ifndef SWIGLU_H
#define SWIGLU_H
#include "interface.h"
#define SWIGLU_Y 0       // (T, F) out, f32 or f16
#define SWIGLU_GATE_UP 1 // (T, 2 F) in, f32: gate, then up
#define SWIGLU_BINDINGS 2
#define SWIGLU_SPEC_LANES 0
#define SWIGLU_SPECS 1
struct swiglu_args {
  uint F;
  uint activation;
  uint y_stride;
  uint gate_up_stride;
};
ARGS(swiglu_args)
#endif
