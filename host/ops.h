// ops.h: every operation that a layer may ask for, with two bodies each: ops_vulkan*.c (shaders) and ops_cpu*.c (plain
// C: the specification, the oracle, the device of last resort). A backend is a table of functions chosen once, when the
// device opens; layers are written once, against this.
//
// Letters: T rows (tokens of all sequences in this call), D width, H query/key heads, Hv value heads, Dk, Dv sizes per
// head, n Householder steps a token, V vocabulary, F MLP width, B sequences. Activations are f32, or f16 where
// input_dtype and delta_dtype say so. `x (T, D)` is a tensor of T rows and D columns. Destinations come first, sources
// next, sizes last. Unless said otherwise a destination overlaps no source. Recording cannot fail visibly: see
// recorder_run().
#ifndef OPS_H
#define OPS_H
#include "control.h"
#include "hh.h"
#include "tensor.h"

struct backend {
  const struct ops *ops;
  uint64_t max_buffer_bytes;  // of one buffer
  uint64_t max_binding_bytes; // of one tensor that an op is given; weights are cut by rows where they have more
  uint64_t parts_bytes;       // of recorder.parts; 0: it has no use for them
  uint32_t batch;             // tokens of a prompt computed at once, unless a session says otherwise
  bool replays;               // recorded work can be run again; else ops run as they are called
  uint32_t threads;           // of the host that its user allows; 0: all cores
  deltaic_device_info info;
};

struct recorder {
  struct backend *backend;
  const struct ops *ops;
  bool matrices; // set by who made it: operands of products may be rounded to f16, to use cooperative matrices,
                 // and long sums may be made as one; else they are sums of short ones, whose roundings are smaller
  struct tensor parts; // the same: of backend.parts_bytes, zeros, where products share their sums out; or absent
};

enum activation { ACTIVATION_IDENTITY, ACTIVATION_SILU, ACTIVATION_RELU, ACTIVATION_ELU1, ACTIVATION_POWLU };
enum key_norm { KEY_NORM_NONE, KEY_NORM_L2, KEY_NORM_SUM, KEY_NORM_L1 };
enum delta_form { DELTA_AUTO, DELTA_RECURRENT, DELTA_CHUNK };
// Whether operands may be rounded to f16, to use the device's cooperative matrices; PLAIN: without what only some
// vendors' can do.
enum matrices { MATRICES_NONE, MATRICES_PLAIN, MATRICES_BEST };

// Depthwise causal convolution over time, then an activation.
//   y[t,c] = act( sum_{w<W} weight[w,c] * x[t - (W-1) + w, c]  (+ bias[c]) ),   act = SiLU for c >= silu_from else none
// Inputs before a call come from `history` (B rows of (W-1) * C, oldest first), which is then replaced by the last W-1
// inputs.
// The first channels may be `keys` heads of Dk numbers; y has padding after each then when it is f16 (key_pitch).
struct conv_args {
  uint32_t W, C;
  uint32_t silu_from;
  uint32_t keys, Dk;
};

// What a backend keeps, in h, of the norms of one residual stream from product to product of a recording. All zeros at
// its beginning; only the backend looks inside.
struct norm_ahead {
  bool estimated; // the stream's size is known about
  uint32_t parts; // of the sums of squares that the last product has left; 0: it has left nothing
};

// What a matrix is applied to: the rows of x (T, K), or, with weight (1, K) present, their norms
// x[t] / sqrt(mean(x[t]^2) + eps) * weight. h (T or more, K) is scratch for a backend that makes the norms first. ahead
// is present where x is a residual stream, the same h then with each of its norms.
struct linear_input {
  struct tensor x, weight, h;
  float eps;
  struct norm_ahead *ahead;
};

// The convolution of some columns of a product.
struct linear_conv {
  struct tensor weight, bias, history, sequences; // (W, C), (1, C) or absent, (slots, (W-1) * C), B of them
  uint32_t from;                                  // column of the product where the C channels begin
  uint32_t longest;                               // most tokens of one sequence in this call; 0: unknown
  struct conv_args a;
  const struct delta_input *inputs; // what delta_inputs does with it next, or NULL
};

// Query and key heads: y = norm(act(x)) per head of Dk numbers, in place, `heads` heads from column 0.
//   L2: x / sqrt(sum x^2 + 1e-6);  SUM: x / sum x;  L1: x / sum |x|;  0 where a sum is 0
// Gates: beta[t,j] = beta_scale * sigmoid(ba[t,j])  (or beta_scale when !has_beta),  j < betas
//        g[t,j] = -exp(A_log[j]) * softplus(ba[t, betas' + j] + dt_bias[j])  when gated, j < decays; betas' = betas
//        when has_beta else 0; softplus(z) = z for z > 20.
struct delta_input_args {
  uint32_t heads, Dk;
  enum activation activation;
  enum key_norm norm;
  uint32_t betas, decays;
  float beta_scale;
  bool has_beta, gated;
};

// The tensors of delta_inputs beside its queries and keys.
struct delta_input {
  struct tensor beta, g, ba, A_log, dt_bias;
  struct delta_input_args a;
};

// The (gated) delta rule, DeltaProduct with n > 1 (docs/mixers.md):  per token and value head, S (Dk, Dv):
//   S <- e^g S;  n times: S <- S + k^T beta (v - k S);  o = scale * q S
// qkv (T, H*Dk + n*H*Dk + n*Hv*Dv): q, then the k of each step, then the v of each step. beta (T, n*Hv), g (T, Hv).
// Value head j uses the q and k of head j / (Hv/H). state: B rows of Hv * Dk * Dv, updated.
// RECURRENT walks the tokens; CHUNK is the chunkwise UT transform; AUTO: what the device's plan says for T.
// Only with matrices and CHUNK may qkv and o be f16, both; then every q and k is followed by zeros up to a multiple of
// 16 numbers (key_pitch), for delta_inputs too, which writes them.
struct delta_args {
  uint32_t H, Hv, Dk, Dv, n;
  float scale;
  bool gated;
  enum delta_form form;
  enum matrices matrices;
  uint32_t longest; // most tokens of one sequence in this call, for AUTO; 0: all have alike
};

// Mamba-2 (Dao and Gu 2024; docs/mixers.md), S (N, P) per head, B and C of the head's group:
//   S <- e^g S + B^T (dt x);  y = C S + D x
// xBC (T, E + 2 * groups * N), E = heads * P: x of each head, then B and C of each group. dt, g (T, heads). Head j is
// of group j / (heads / groups). D (1, heads), or (1, E) with D_per_element. state: sequences' rows of heads * N * P,
// updated. RECURRENT walks the tokens; CHUNK is the chunkwise form (SSD); AUTO: what the device's plan says for T.
// y is f32, or what mamba2_dtype says.
struct mamba2_args {
  uint32_t heads, P, N, groups;
  bool D_per_element;
  enum delta_form form;
  enum matrices matrices;
  uint32_t longest; // as delta_args
};

// dt[t,j] = clamp(softplus(raw[t,j] + dt_bias[j]), low, high);  g[t,j] = -exp(A_log[j]) * dt[t,j].  high may be
// INFINITY.
struct mamba2_input_args {
  float low, high;
};

// mamba2_inputs and mamba2 in one, the tensors as for these, and what gated_norm does without a norm where gate (T, E)
// is present. y: f32 or f16.
struct mamba2_step {
  struct tensor y, xBC, raw, A_log, dt_bias, D, state, sequences, gate;
  struct mamba2_input_args inputs;
  struct mamba2_args rule;
};

// y (T, E) in place, f32 or f16, z (T, E) the gate; rms is over each of `groups` slices of E / groups numbers, weight
// (1, E):
//   OF_GATED: rms(y * silu(z)) * weight;  FIRST: rms(y) * weight * silu(z);  ABSENT: y * silu(z)
enum norm_place { NORM_OF_GATED, NORM_FIRST, NORM_ABSENT };
struct gated_norm_args {
  uint32_t groups;
  enum norm_place place;
  float eps;
};

// The (gated) Head-in-Head delta rule (docs/mixers.md): keys and queries of a head are r blocks of Dk / r numbers, S
// (Dk, Dv) as many blocks of rows, M (r, r) a mask:
//   S <- e^g S;  y_b = k_b S_b;  u_a = beta (v - sum_b M_ab y_b);  S_a <- S_a + k_a^T u_a;  o = scale * q S
// mask (T, Hv*r*r), or one row for every token when fixed_mask: M when nonneg is GIVEN, else the logits of hh_mask().
// The rest is as for the delta rule with n = 1; r <= HH_MOST divides Dk.
struct hh_args {
  uint32_t H, Hv, Dk, Dv, r;
  float scale;
  bool gated, fixed_mask;
  enum hh_nonneg nonneg;
  enum delta_form form;
  enum matrices matrices;
  uint32_t longest; // as delta_args
};

// A delta layer between its two products, for calls that have at most one token of every sequence. What is absent is
// absent as for the ops that it stands for.
struct delta_step {
  struct tensor o, qkv, ba, mask; // as for delta_inputs and hh_rule; qkv is undefined after
  struct tensor A_log, dt_bias;   // of delta_inputs
  struct tensor state, sequences; // of the rule
  struct tensor gate, norm;       // of output_norm
  struct delta_input_args inputs;
  struct delta_args rule;
  struct hh_args hh; // hh.r > 1: this rule instead
  float eps;         // of output_norm
};

// rope_append: rotates the first r numbers of each head of q and k of qkv (T, heads*d + 2*kv_heads*d) in place at their
// positions, r the columns of the table (absent: none), and stores k and v at slot position % capacity of the caches, B
// rows of capacity * kv_heads * d each. attention: o[t] = softmax(q k^T / sqrt(d)) v over positions p-window+1 ... p
// (window 0: 0 ... p).
struct attention_args {
  uint32_t heads, kv_heads, d;
  uint32_t window;   // 0: global
  uint32_t capacity; // positions in the caches
  uint32_t longest;  // most tokens of one sequence in this call; 0: unknown
};
// Rows of the rotation table: 4 levels of 256. Row l * 256 + b holds cos (first r/2 numbers) and sin (last r/2) of the
// angle b * 256^l * theta^(-2j/r), computed in double; a position's rotation is the product of its four bytes'.
enum { ROPE_ROWS = 1024 };

struct ops {
  const char *name; // "vulkan", "cpu"
  void (*backend_close)(struct backend *b);
  uint64_t (*free_bytes)(const struct backend *b); // as deltaic_device_info has it, now

  // Memory. As buffer.h; `what` names it in a failure.
  deltaic_status (*buffer_create)(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                  struct buffer *out);
  void (*buffer_free)(struct backend *b, struct buffer *buffer);
  deltaic_status (*buffer_write)(struct backend *b, struct buffer *to, uint64_t offset, const void *data,
                                 uint64_t bytes);
  deltaic_status (*buffer_write_by)(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes,
                                    uint64_t unit, buffer_fill fill, void *context);
  deltaic_status (*buffer_read)(struct backend *b, struct buffer *from, uint64_t offset, void *data, uint64_t bytes);
  deltaic_status (*buffer_zero)(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes);

  // Recording. begin (replay: the recording will be run many times, whole; cancel: else stops it; may be NULL), ops,
  // run, run, ...
  // Where backend->replays is false, ops work when called and every run must be preceded by begin and the ops again.
  deltaic_status (*recorder_create)(struct backend *b, struct recorder **out);
  void (*recorder_free)(struct recorder *c);
  void (*recorder_begin)(struct recorder *c, bool replay, const atomic_bool *cancel);
  deltaic_status (*recorder_run)(struct recorder *c); // runs and waits; the first error of the recording, if any
  deltaic_counters (*recorder_counters)(const struct recorder *c);
  deltaic_status (*recorder_profile)(struct recorder *c, bool on);
  deltaic_status (*recorder_busy)(struct recorder *c, bool on); // only the sum, which slows nothing
  size_t (*recorder_times)(struct recorder *c, deltaic_kernel_time *times, size_t capacity);

  // x (T, D) = table (V, D) [tokens (T) i32]; ids are valid.
  void (*embed)(struct recorder *c, struct tensor x, struct tensor table, struct tensor tokens);
  // Sets bit `token` of seen (B rows of ceil(V/32) i32) for every token of every sequence.
  void (*mark)(struct recorder *c, struct tensor seen, struct tensor tokens, struct tensor sequences);
  // y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight. last (B sequences) present: y (B, D), of each sequence's last row.
  void (*rmsnorm)(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor last,
                  float eps);
  // Products with weights, and what a backend may do in the same pass over them. w (N, K): f32, f16 or bf16; sums are
  // in f32; bias (1, N) or absent.
  // y (T, N) = in w^T (+ bias); add: y += instead.
  void (*linear)(struct recorder *c, struct tensor y, struct linear_input in, struct tensor w, struct tensor bias,
                 bool add);
  // x (T, N) += in w^T (+ bias), a residual stream; next: the norm of x that some product begins with, or NULL. A
  // backend may do a part of it here.
  void (*linear_residual)(struct recorder *c, struct tensor x, struct linear_input in, struct tensor w,
                          struct tensor bias, const struct linear_input *next);
  // p (T, N) = in w^T (+ bias); then y (T, C) = the short convolution of C of p's columns, which are undefined after.
  // True: y is as delta_inputs leaves it, who is not needed any more.
  bool (*linear_conv)(struct recorder *c, struct tensor y, struct tensor p, struct linear_input in, struct tensor w,
                      struct tensor bias, struct linear_conv conv);
  // y (T, F) = act(in gate^T) * (in up^T), w (2F, K): gate's rows, then up's. gate_up (T, 2F): scratch.
  void (*linear_gated)(struct recorder *c, struct tensor y, struct tensor gate_up, struct linear_input in,
                       struct tensor w, enum activation activation);
  // How a product of T rows with w best finds its inputs: f32, or f16 where it rounds them to that anyway.
  enum dtype (*input_dtype)(const struct recorder *c, struct tensor w, uint32_t T);
  void (*delta_inputs)(struct recorder *c, struct tensor qk, const struct delta_input *in);
  // o (T, Hv*Dv). scratch: delta_scratch_bytes() for this T, which grows with T and is 0 exactly where the rule walks
  // the tokens; so it does when the scratch is larger than max_binding_bytes. hh_rule and mamba2 the same.
  void (*delta_rule)(struct recorder *c, struct tensor o, struct tensor qkv, struct tensor beta, struct tensor g,
                     struct tensor state, struct tensor sequences, struct tensor scratch, struct delta_args a);
  // How the rule best finds its qkv and leaves its o, with this scratch: f32, or f16. hh_dtype the same.
  enum dtype (*delta_dtype)(const struct recorder *c, uint32_t T, uint32_t B, struct tensor scratch,
                            struct delta_args a);
  uint64_t (*delta_scratch_bytes)(const struct backend *b, uint32_t T, uint32_t B, struct delta_args a);
  void (*hh_rule)(struct recorder *c, struct tensor o, struct tensor qkv, struct tensor beta, struct tensor g,
                  struct tensor mask, struct tensor state, struct tensor sequences, struct tensor scratch,
                  struct hh_args a);
  enum dtype (*hh_dtype)(const struct recorder *c, uint32_t T, uint32_t B, struct tensor scratch, struct hh_args a);
  uint64_t (*hh_scratch_bytes)(const struct backend *b, uint32_t T, uint32_t B, struct hh_args a);
  // o[t,h] = rms(o[t,h]) * weight per head, then * silu(gate[t,h]) when gate is present. In place. weight (1, Dv), or
  // (1, heads*Dv): each head has its own; absent: no norm, and there is a gate.
  void (*output_norm)(struct recorder *c, struct tensor o, struct tensor gate, struct tensor weight, uint32_t heads,
                      float eps);
  // delta_inputs, delta_rule or hh_rule, and output_norm in fewer dispatches. False: not here, nothing happened.
  bool (*delta_step)(struct recorder *c, const struct delta_step *s);
  void (*mamba2_inputs)(struct recorder *c, struct tensor dt, struct tensor g, struct tensor raw, struct tensor A_log,
                        struct tensor dt_bias, struct mamba2_input_args a);
  // y (T, heads*P). scratch: mamba2_scratch_bytes() for this T.
  void (*mamba2)(struct recorder *c, struct tensor y, struct tensor xBC, struct tensor dt, struct tensor g,
                 struct tensor D, struct tensor state, struct tensor sequences, struct tensor scratch,
                 struct mamba2_args a);
  enum dtype (*mamba2_dtype)(const struct recorder *c, uint32_t T, uint32_t B, struct tensor scratch,
                             struct mamba2_args a); // as delta_dtype, of y alone
  uint64_t (*mamba2_scratch_bytes)(const struct backend *b, uint32_t T, uint32_t B, struct mamba2_args a);
  // False: not here, or not for so many tokens; nothing happened.
  bool (*mamba2_step)(struct recorder *c, const struct mamba2_step *s);
  void (*gated_norm)(struct recorder *c, struct tensor y, struct tensor z, struct tensor weight,
                     struct gated_norm_args a);
  // scratch: attention_scratch_bytes() for the call's B sequences, the same one in both calls, untouched in between.
  void (*rope_append)(struct recorder *c, struct tensor qkv, struct tensor cache_k, struct tensor cache_v,
                      struct tensor table, struct tensor sequences, struct tensor scratch, struct attention_args a);
  // o (T, heads*d): f32, or f16 where input_dtype says so.
  void (*attention)(struct recorder *c, struct tensor o, struct tensor qkv, struct tensor cache_k,
                    struct tensor cache_v, struct tensor sequences, struct tensor scratch, struct attention_args a);
  uint64_t (*attention_scratch_bytes)(const struct backend *b, uint32_t B, struct attention_args a);
  // Draws the next token of every sequence s from its row (slot) of logits (slots, V) as row s of sampling says; stores
  // it in tokens[s], marks it in seen, and turns sequence s into the call that evaluates it: pos += T, T = 1, row = s.
  // The random number of a draw is a function of (seed, pos after the step) alone. scratch: B rows of V f32.
  void (*sample)(struct recorder *c, struct tensor tokens, struct tensor sequences, struct tensor seen,
                 struct tensor logits, struct tensor sampling, struct tensor scratch);
  // to = from, both of 32 bits and of equal size; from absent: 0.
  void (*copy)(struct recorder *c, struct tensor to, struct tensor from);
  // to (slots, cols)[slot of sequence s] = from (B, cols)[s], both of 32 bits.
  void (*scatter)(struct recorder *c, struct tensor to, struct tensor from, struct tensor sequences);
  // Rows first ... first + n - 1 of scores (T, 2), from logits (n, V) and targets (T) i32: the logarithm of the
  // target's probability, and 1 if it is the lowest id of the likeliest, else 0. Where a target is negative, nothing is
  // written.
  void (*score)(struct recorder *c, struct tensor scores, struct tensor logits, struct tensor targets, uint32_t first);
};

deltaic_device_info backend_describe_cpu(void); // with all threads; starts none
deltaic_status backend_open_cpu(uint32_t threads, struct backend **out);
deltaic_status backend_open_vulkan(struct device *device, struct backend **out); // takes the device, also on failure
#endif
