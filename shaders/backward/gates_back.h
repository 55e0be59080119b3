// gates_back.h: contract of gates_back.comp.
#ifndef GATES_BACK_H
#define GATES_BACK_H
#include "interface.h"
#define GATES_BACK_RAW 0     // (T, betas' + decays) in, f32: before the activations
#define GATES_BACK_A_LOG 1   // (1, decays) in, f32; gated
#define GATES_BACK_DT_BIAS 2 // (1, decays) in, f32; gated
#define GATES_BACK_DBETA 3   // (T, betas) in, f32; has_beta. Mamba-2: ddt (T, decays)
#define GATES_BACK_DG 4      // (T, decays) in, f32; gated
#define GATES_BACK_DRAW 5    // as raw, in and out
#define GATES_BACK_PARTS 6   // (T, 2 * decays) out, f32: terms of dA_log, then of ddt_bias; gated
#define GATES_BACK_BINDINGS 7
#define GATES_BACK_SPEC_LANES 0
#define GATES_BACK_SPEC_MAMBA2 1
#define GATES_BACK_SPECS 2
struct gates_back_args {
  uint T;
  uint betas; // 0 without them
  uint decays;
  float beta_scale;
  float low; // Mamba-2: clamp of dt
  float high;
  uint raw_stride;
  uint dbeta_stride;
  uint dg_stride;
  uint draw_stride;
};
ARGS(gates_back_args)
#endif
