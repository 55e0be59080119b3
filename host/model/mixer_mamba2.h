// mixer_mamba2.h: sizes of a Mamba-2 layer.
#ifndef MIXER_MAMBA2_H
#define MIXER_MAMBA2_H
#include "ops.h"

struct mixer;
extern const struct mixer mixer_mamba2;

struct mamba2_spec {
  uint32_t heads, P, N, groups; // heads of P elements: E = heads * P; B and C are (groups, N)
  uint32_t W;                   // convolution width
  bool bias;                    // of both projections
  bool conv_bias;
  bool D_per_element;         // D is (E), else (heads)
  float dt_low, dt_high;      // dt is clamped to this range; high may be INFINITY
  enum norm_place norm_place; // of the output norm
  float norm_eps;
};
#endif
