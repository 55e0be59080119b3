// mixer_delta.h: sizes of a delta-rule layer (DeltaNet, Gated DeltaNet; n > 1: DeltaProduct; r > 1: Head-in-Head).
#ifndef MIXER_DELTA_H
#define MIXER_DELTA_H
#include "ops.h"

struct mixer;
// The same functions, under four names.
extern const struct mixer mixer_delta_net, mixer_gated_deltanet, mixer_delta_product, mixer_gated_delta_product;

enum { DELTA_STEPS = 64 }; // most householder steps per token: far more than any model has (4)

struct delta_spec {
  uint32_t H, Hv, Dk, Dv;     // query/key heads, value heads, sizes per head
  uint32_t n;                 // householder steps per token, at most DELTA_STEPS
  uint32_t r;                 // blocks of a head's keys with a mask between them; r > 1 needs n = 1
  bool mask_input;            // true: the mask is computed from the input; false: it is a parameter
  enum hh_nonneg nonneg;      // makes the mask's logits non-negative
  uint32_t W;                 // convolution width; 0: no short convolution
  uint32_t filters;           // of q, of k and of v: one for each head, or 1 for all; 0: one for each channel
  enum activation activation; // of q and k: SILU (in the convolution), or RELU, ELU1, IDENTITY after it
  enum key_norm norm;
  bool has_beta;    // else beta is beta_scale for every token
  float beta_scale; // 1, or 2 with allow_neg_eigval
  bool gated;       // decay: a_proj, A_log, dt_bias
  bool output_gate; // g_proj
  bool output_norm; // o_norm
  float norm_eps;   // of the output norm
  bool tiled;       // value head j uses key head j mod H (Qwen3.5 in GGUF files), else j / (Hv / H)
};
#endif
