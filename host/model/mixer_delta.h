// mixer_delta.h: what the delta-rule layers need to know of one layer (DeltaNet, Gated DeltaNet; n > 1: DeltaProduct;
// r > 1: Head-in-Head).
#ifndef MIXER_DELTA_H
#define MIXER_DELTA_H
#include "ops.h"

struct mixer;
// The same functions under each name.
extern const struct mixer mixer_delta_net, mixer_gated_deltanet, mixer_delta_product, mixer_gated_delta_product;

enum { DELTA_STEPS = 64 }; // the most Householder steps a token: far above any model (4)

struct delta_spec {
  uint32_t H, Hv, Dk, Dv;     // query/key heads, value heads, sizes per head
  uint32_t n;                 // Householder steps a token, at most DELTA_STEPS
  uint32_t r;                 // blocks of a head's keys with a mask between them; more than 1 only with n 1
  bool mask_input;            // the mask comes from the input, else it is a parameter
  enum hh_nonneg nonneg;      // of the mask's numbers
  uint32_t W;                 // convolution width; 0: no short convolution
  enum activation activation; // of q and k: SILU (inside the convolution), or RELU, ELU1, IDENTITY after it
  enum key_norm norm;
  bool has_beta;    // else beta is 1
  float beta_scale; // 2 with allow_neg_eigval
  bool gated;       // decay: a_proj, A_log, dt_bias
  bool output_gate; // g_proj
  bool output_norm; // o_norm
  float norm_eps;   // of the output norm
};
#endif
