// experts.h: contract of experts.comp.
#ifndef EXPERTS_H
#define EXPERTS_H
#include "interface.h"
#define EXPERTS_Y 0       // (R, N) out, f32
#define EXPERTS_X 1       // (R / share, K) in, f32
#define EXPERTS_WEIGHTS 2 // (E * N, K) in; (E * 2 N, K) when GATED: of each expert gate's rows, then up's
#define EXPERTS_IDS 3     // (T, k) in, i32, R = T * k
#define EXPERTS_BINDINGS 4
#define EXPERTS_SPEC_LANES 0
#define EXPERTS_SPEC_ROWS 1    // outputs of a workgroup
#define EXPERTS_SPEC_ALIGNED 2 // 1: K and x_stride are multiples of 4
#define EXPERTS_SPEC_GATED 3   // 1: y = act(gate) * up
#define EXPERTS_SPEC_FORMAT 4  // weights.glsl
#define EXPERTS_SPECS 5
struct experts_args {
  uint R;
  uint N;
  uint K;
  uint k;
  uint share; // rows of y with the same row of x
  uint y_stride;
  uint x_stride;
  uint w_stride;
  uint ids_stride;
  uint first; // expert: weights too large for one descriptor take several dispatches
  uint count; // experts of this dispatch
  uint activation;
};
ARGS(experts_args)
#endif
