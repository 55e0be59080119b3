// ops.h: every operation that a layer can record, as data: the tensors that it writes, updates and reads, and its
// parameters. Layers record operations into a list (oplist.h); a backend runs the list. The CPU runs each operation as
// it stands and is the specification (cpu_*.c); Vulkan joins neighbouring operations into kernels (lower.c).
//
// Letters: T rows (tokens of all sequences in this call), D width, H query/key heads, Hv value heads, Dk, Dv sizes per
// head, n householder steps per token, V vocabulary, F FFN width, B sequences. `x (T, D)` is a tensor of T rows and D
// columns. In every struct the tensors come first: those that the operation writes, then those that it updates, then
// those that it only reads. `a` has an operation's sizes and switches. `sequences` has a struct sequence (control.h)
// for each sequence of the call: its rows of x and its slot, the row of every state that belongs to it. For a layer,
// operations keep their inputs; the backend decides whether an output reuses its input's memory.
#ifndef OPS_H
#define OPS_H
#include "control.h"
#include "hh.h"
#include "tensor.h"

enum activation {
  ACTIVATION_IDENTITY,
  ACTIVATION_SILU,
  ACTIVATION_RELU,
  ACTIVATION_ELU1,
  ACTIVATION_POWLU,
  ACTIVATION_SIGMOID
};
enum key_norm { KEY_NORM_NONE, KEY_NORM_L2, KEY_NORM_SUM, KEY_NORM_L1 };
enum norm_place { NORM_OF_GATED, NORM_FIRST, NORM_ABSENT };

// X(NAME, struct, tensors written, updated, read)
#define OPS(X)                                                                                                         \
  X(EMBED, embed, 1, 0, 2)                                                                                             \
  X(MARK, mark, 0, 1, 2)                                                                                               \
  X(NORM, norm, 1, 0, 3)                                                                                               \
  X(LINEAR, linear, 1, 0, 3)                                                                                           \
  X(ADD, add, 1, 0, 2)                                                                                                 \
  X(CONV, conv, 1, 1, 4)                                                                                               \
  X(GLU, glu, 1, 0, 2)                                                                                                 \
  X(DELTA_INPUTS, delta_inputs, 3, 0, 4)                                                                               \
  X(DELTA_RULE, delta_rule, 1, 1, 5)                                                                                   \
  X(MAMBA2_INPUTS, mamba2_inputs, 2, 0, 3)                                                                             \
  X(MAMBA2, mamba2, 1, 1, 5)                                                                                           \
  X(GATED_NORM, gated_norm, 1, 0, 3)                                                                                   \
  X(ROPE_APPEND, rope_append, 1, 2, 3)                                                                                 \
  X(ATTENTION, attention, 1, 0, 4)                                                                                     \
  X(ROUTE, route, 2, 0, 1)                                                                                             \
  X(GROUP, group, 2, 0, 1)                                                                                             \
  X(EXPERTS, experts, 1, 0, 5)                                                                                         \
  X(MIX, mix, 1, 0, 4)                                                                                                 \
  X(SAMPLE, sample, 2, 2, 2)                                                                                           \
  X(COPY, copy, 1, 0, 1)                                                                                               \
  X(SCATTER, scatter, 0, 1, 2)                                                                                         \
  X(SCORE, score, 0, 1, 2)                                                                                             \
  X(PROBE, probed, 0, 0, 1)

// x (T, D) = table (V, D) [tokens (T) i32]; ids are valid.
struct embed {
  struct tensor x, table, tokens;
};

// Sets bit `token` of seen (B rows of ceil(V/32) i32) for every token of every sequence.
struct mark {
  struct tensor seen, tokens, sequences;
};

// y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight. With `last` (B sequences) present, y is (B, D): the norm of each
// sequence's last row.
struct norm {
  struct tensor y, x, weight, last;
  float eps;
};

// y (T, N) = x w^T (+ bias). w (N, K) has any format of weights; sums are f32; bias (1, N) or absent.
struct linear {
  struct tensor y, x, w, bias;
};

// y = x + z
struct add {
  struct tensor y, x, z;
};

// Depthwise causal convolution over time, then an activation.
//   y[t,c] = act( sum_{w<W} weight[w,c] * x[t - (W-1) + w, c]  (+ bias[c]) ),  act = SiLU for c >= silu_from
// weight (W, C), bias (1, C) or absent. Inputs before this call come from `history` (one row of (W-1) * C per slot,
// oldest first); the last W-1 inputs then replace it. heads: how many heads of Dk elements the channels begin with (q
// and k of a delta layer; 0 elsewhere). If y is f16, each of these heads has padding after it (key_pitch).
struct conv_args {
  uint32_t W, C;
  uint32_t silu_from;
  uint32_t heads, Dk;
};
struct conv {
  struct tensor y, history, x, weight, bias, sequences;
  struct conv_args a;
};

// y = act(gate) * x, all (T, F)
struct glu {
  struct tensor y, gate, x;
  enum activation activation;
};

// Query and key heads: y = norm(act(x)) per head of Dk elements, for `heads` heads from column 0; other columns are
// copied from x.
//   L2: x / sqrt(sum x^2 + 1e-6);  SUM: x / sum x;  L1: x / sum |x|;  0 where a sum is 0;  NONE: x
// ba (T, b + decays), where b = betas when has_beta, else 0: fla's projections b and a, which beta and the decay are
// computed from; absent if it has no columns.
//   beta[t,j] = beta_scale * sigmoid(ba[t,j])  when has_beta, else beta_scale,  j < betas
//   g[t,j] = -exp(A_log[j]) * softplus(ba[t, b + j] + dt_bias[j])  when gated,  j < decays;  softplus(z) = z for z > 20
struct delta_input_args {
  uint32_t heads, Dk;
  enum activation activation;
  enum key_norm norm;
  uint32_t betas, decays;
  float beta_scale;
  bool has_beta, gated; // gated: g, A_log and dt_bias are present; must agree with the tensors
};
struct delta_inputs {
  struct tensor y, beta, g, x, ba, A_log, dt_bias;
  struct delta_input_args a;
};

// The (gated) delta rule; DeltaProduct if n > 1 (docs/mixers.md). Per token and value head, with S (Dk, Dv):
//   S <- e^g S;  n times: S <- S + k^T beta (v - k S);  o = scale * q S
// qkv (T, H*Dk + n*H*Dk + n*Hv*Dv): q, then k of each householder step, then v of each step. beta (T, n*Hv), g (T, Hv).
// Value head j uses q and k of head j / (Hv/H), or if tiled of head j mod H. state: one row of Hv * Dk * Dv per slot,
// updated. o (T, Hv*Dv). r > 1 is Head-in-Head and needs n = 1. Keys and queries of a head are r blocks of Dk / r
// elements, S is as many blocks of rows, and M (r, r) is a mask:
//   S <- e^g S;  y_b = k_b S_b;  u_a = beta (v - sum_b M_ab y_b);  S_a <- S_a + k_a^T u_a;  o = scale * q S
// mask (T, Hv*r*r), or one row for every token when fixed_mask. It holds M when nonneg is GIVEN, else the logits of
// hh_mask(). r <= HH_MOST divides Dk.
// qkv and o may both be f16, but only if the rule runs by chunks on cooperative matrices. Then zeros follow every q and
// k, up to a multiple of 16 elements (key_pitch). For single tokens o alone may be f16, if delta_step writes it.
struct delta_args {
  uint32_t H, Hv, Dk, Dv, n;
  uint32_t r; // 0 means 1
  float scale;
  bool gated; // g is present; must agree with the tensor
  bool fixed_mask;
  enum hh_nonneg nonneg;
  bool tiled;
};
// Value head j uses key head j / share mod H.
static inline uint32_t delta_share(const struct delta_args *a) { return a->tiled ? 1 : a->Hv / a->H; }
struct delta_rule {
  struct tensor o, state, qkv, beta, g, mask, sequences;
  struct delta_args a;
};

// dt[t,j] = clamp(softplus(raw[t,j] + dt_bias[j]), low, high);  g[t,j] = -exp(A_log[j]) * dt[t,j].  high may be
// INFINITY.
struct mamba2_inputs {
  struct tensor dt, g, raw, A_log, dt_bias;
  float low, high;
};

// Mamba-2 (Dao and Gu 2024; docs/mixers.md). S (N, P) per head, B and C of the head's group:
//   S <- e^g S + B^T (dt x);  y = C S + D x
// xBC (T, E + 2 * groups * N), E = heads * P: x of each head, then B and C of each group. dt, g (T, heads). Head j
// belongs to group j / (heads / groups). D (1, heads), or (1, E) with D_per_element. state: one row of heads * N * P
// per slot, updated. y (T, E).
struct mamba2_args {
  uint32_t heads, P, N, groups;
  bool D_per_element;
};
struct mamba2 {
  struct tensor y, state, xBC, dt, g, D, sequences;
  struct mamba2_args a;
};

// `groups` groups of group_cols columns of x, from column `from` on, each with the root mean square of its elements:
//   OF_GATED: z / rms(z) * weight, z = x * silu(gate);  FIRST: x / rms(x) * weight [* silu(gate)];
//   ABSENT: x * silu(gate), no weight
// Other columns of y are x's. weight (1, groups * group_cols), or (1, group_cols) for all groups.
struct gated_norm {
  struct tensor y, x, gate, weight;
  uint32_t groups, group_cols;
  enum norm_place place;
  float eps;
  uint32_t from; // without a gate
};

// Rotates the first r elements of each head of q and k by their positions, from x (T, heads*d + 2*kv_heads*d) into y. r
// is the number of the table's columns (table absent: no rotation). Stores k and v at index position % capacity of the
// caches, which have one row of capacity * kv_heads * d per slot.
struct attention_args {
  uint32_t heads, kv_heads, d;
  uint32_t window;   // 0: global
  uint32_t capacity; // positions in the caches
};
// Rows of the rotation table: 4 levels of 256. Row l * 256 + b holds cos (first r/2 elements) and sin (last r/2) of the
// angle b * 256^l * theta^(-2j/r), computed in double. The rotation of a position is the product of the rotations of
// its four bytes.
enum { ROPE_ROWS = 1024 };
struct rope_append {
  struct tensor y, cache_k, cache_v, x, table, sequences;
  struct attention_args a;
};

// o[t] = softmax(q k^T / sqrt(d)) v over positions p-window+1 ... p (window 0: 0 ... p), o (T, heads*d). The caches
// already hold this call's keys and values.
struct attention {
  struct tensor o, qkv, cache_k, cache_v, sequences;
  struct attention_args a;
};

// Mixtures of experts: each token goes through k of E experts. Elements of ids, order and starts are i32.
//
// ids (T, k): the experts with the k largest of the first `experts` columns of logits (T, E or more), largest first,
// the lower index among equals. weights (T, k): their softmax over all E; normalized: divided by the sum of the k.
struct route {
  struct tensor ids, weights, logits;
  uint32_t experts;
  bool normalized;
};

// Sorts the choices: order (1, T * k) has the indices t * k + j into ids, those of expert e from starts[e] to starts[e
// + 1] - 1, in any order among them; starts (1, E + 1).
struct group {
  struct tensor order, starts, ids;
};

// y (T * k, N): row t * k + j = x w_e^T with e = ids[t, j]. x (T, K) has a row for each token, or (T * k, K) one for
// each choice. w (E * N, K): expert e's rows from e * N on; of other experts than those in ids nothing is read.
struct experts {
  struct tensor y, x, w, ids, order, starts;
};

// y (T, D): y[t] = sum over j of weights[t, j] * x[t * k + j] + sigmoid(gate[t]) * shared[t]. x (T * k, D), shared (T,
// D) or absent, gate: the column `gate_col` of logits (T, any).
struct mix {
  struct tensor y, x, weights, shared, logits;
  uint32_t gate_col;
};

// Draws the next token of every sequence s from its row (slot) of logits (slots, V), with the settings in row s of
// sampling. Stores it in tokens[s], marks it in seen, and turns sequence s into the call that evaluates it: pos += T, T
// = 1, row = s. The random number depends only on (seed, pos after the step). scratch: B rows of V f32.
struct sample {
  struct tensor tokens, scratch, sequences, seen, logits, sampling;
};

// to = from. Both have 32-bit elements and the same shape. from absent: to = 0.
struct copy {
  struct tensor to, from;
};

// to (slots, cols)[slot of sequence s] = from (B, cols)[s]; 32-bit elements.
struct scatter {
  struct tensor to, from, sequences;
};

// Writes rows first ... first + n - 1 of scores (T, 2) from logits (n, V) and targets (T) i32: the log-probability of
// the target, and 1 if the target is the lowest id with the largest logit, else 0. Writes nothing where a target is
// negative.
struct score {
  struct tensor scores, logits, targets;
  uint32_t first;
};

// Passes t to the caller that probes the model (probe.h). `what`: kind, shape as the caller sees it, and the layer's
// sizes.
struct probed {
  struct tensor t;
  deltaic_probed what;
};

enum op_kind {
#define X(name, member, writes, updates, reads) OP_##name,
  OPS(X)
#undef X
      OP_KINDS
};
struct op {
  enum op_kind kind;
  uint32_t scope; // oplist.h
  union {
    struct tensor t[8]; // the tensors of any operation, in the order of its struct
#define X(name, member, writes, updates, reads) struct member member;
    OPS(X)
#undef X
  };
};
#endif
