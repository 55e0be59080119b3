// loss_back.h: contract of loss_back.comp.
#ifndef LOSS_BACK_H
#define LOSS_BACK_H
#include "interface.h"
#define LOSS_BACK_Z 0       // (n, V) in and out, f32: logits, which become their gradient
#define LOSS_BACK_TAUGHT 1  // (n, V) in, f32: the teacher's logits; with TEACHES
#define LOSS_BACK_TARGETS 2 // (N) in, i32
#define LOSS_BACK_LOSSES 3  // (N, 2) out, f32: cross entropy and distillation of every prediction
#define LOSS_BACK_BINDINGS 4
#define LOSS_BACK_SPEC_LANES 0
#define LOSS_BACK_SPEC_ALIGNED 1 // 1: V and the strides are multiples of 4
#define LOSS_BACK_SPEC_HELD 2    // units of a row that an invocation holds
#define LOSS_BACK_SPEC_TEACHES 3
#define LOSS_BACK_SPECS 4
struct loss_back_args {
  uint V;
  uint z_stride;
  uint taught_stride;
  uint first; // prediction of row 0
  float tau;
  float factor;    // of cross entropy
  float kd_factor; // of distillation: weight tau factor
};
ARGS(loss_back_args)
#endif
