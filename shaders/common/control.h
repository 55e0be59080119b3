// control.h: what the host writes between submits and kernels read, shared by GLSL and C.
#ifndef CONTROL_H
#define CONTROL_H
#include "interface.h"

// One text in a call. Kernels that mix tokens run once per sequence (workgroup index z).
struct sequence {
  uint row;  // its first row in the call's activations
  uint T;    // its tokens in this call: rows row ... row + T - 1
  uint pos;  // tokens before this call: position of the first row
  uint slot; // which state of the session it owns
};

// Sampling parameters of one sequence; the meaning is deltaic_sampling's.
struct sampling {
  float temperature; // 0, or a normal number
  float top_p;
  float min_p;
  float repetition_penalty;
  uint top_k;
  uint seed_low;
  uint seed_high;
  uint unused;
};
#endif
