// rmsnorm.h: contract of rmsnorm.comp.
#ifndef RMSNORM_H
#define RMSNORM_H
#include "control.h"
#include "interface.h"
#define RMSNORM_Y 0         // (T, D) out, f32 or f16; (B, D) when args.last
#define RMSNORM_X 1         // (T, D) in, f32
#define RMSNORM_WEIGHT 2    // (1, D) in, f32
#define RMSNORM_SEQUENCES 3 // (B) in, struct sequence; read when args.last
#define RMSNORM_RMS 4       // (1, T) out, f32, 1 / rms of each row, at most NORM_AHEAD_MOST; when args.keep
#define RMSNORM_BINDINGS 5
#define RMSNORM_SPEC_LANES 0
#define RMSNORM_SPEC_VECTORS 1 // vec4 of a row in an invocation; 0: D or a stride not divisible by 4, or D too long
#define RMSNORM_SPECS 2
struct rmsnorm_args {
  uint D;
  uint y_stride;
  uint x_stride;
  uint last; // 1: row s of y comes from the last row of sequence s
  uint keep;
  float eps;
};
ARGS(rmsnorm_args)
#endif
