// control.h: structs that the host writes between submissions and kernels read, shared by GLSL and C.
#ifndef CONTROL_H
#define CONTROL_H
#include "interface.h"

// One sequence in a call. Kernels that mix tokens run once per sequence (workgroup index z).
struct sequence {
  uint row;  // first row in the call's activations
  uint T;    // tokens in this call: rows row ... row + T - 1
  uint pos;  // tokens before this call: position of the first row
  uint slot; // row of the session's state that belongs to it
};

// Sampling parameters of one sequence, with the meaning of deltaic_sampling.
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
