// mixer_attention.h: sizes of a softmax attention layer: global or sliding window, grouped key/value heads, RoPE.
#ifndef MIXER_ATTENTION_H
#define MIXER_ATTENTION_H
#include "ops.h"

struct mixer;
extern const struct mixer mixer_attention;

struct attention_spec {
  uint32_t heads, kv_heads, d;
  uint32_t rotary; // elements of a head that are rotated, even; 0: no positions
  uint32_t window; // 0: global
  double rope_theta;
  bool bias;        // on q, k, v and the gate
  bool output_bias; // on the output projection
  bool gate;        // o is multiplied by the sigmoid of a projection of the input, before the output projection
  bool qk_norm;     // RMSNorm of every query and key head, before the rotation
  bool whole_norm;  // with qk_norm: of all query heads together, and of all key heads
  float norm_eps;   // of qk_norm
};
#endif
