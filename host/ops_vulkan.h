// ops_vulkan.h: what the files of the Vulkan backend share.
#ifndef OPS_VULKAN_H
#define OPS_VULKAN_H
#include "commands.h"
#include "conv_step.h"
#include "kernels.h"
#include "numbers.h"
#include "ops.h"

struct vulkan_backend {
  struct backend base;
  struct device *device;
};

struct vulkan_recorder {
  struct recorder base;
  struct commands *commands;
};

static inline struct device *vulkan_device(const struct backend *b) {
  return ((const struct vulkan_backend *)b)->device;
}
static inline const struct plan *vulkan_plan(const struct recorder *c) { return &vulkan_device(c->backend)->plan; }

enum { MAX_GROUPS = 65535 }; // in each dimension of a grid: what every device allows

// The range of a tensor; where it is absent, `or`'s: kernels do not touch it, but something must be bound.
struct binding vulkan_bind(struct tensor t, struct tensor or);
// The same, of which a dispatch touches so many numbers.
struct binding vulkan_bind_some(struct tensor t, struct tensor or, uint64_t numbers);
// Of a product's outputs, which it reads where it adds to them.
struct binding vulkan_bind_sums(struct tensor y, bool add);
// Rows with their padding, which kernels read in vectors.
struct binding vulkan_bind_weights(struct tensor w);

// spec: kernel_specs[id] numbers; push: kernels[id].push_bytes bytes. A kernel or grid that the device does not allow
// is kept as the recording's error.
void vulkan_dispatch(struct recorder *c, enum kernel_id id, const uint32_t *spec, const struct binding *bindings,
                     const void *push, uint64_t x, uint64_t y, uint64_t z, uint64_t operations);

// Workgroups for the heads of one token, whose subgroups share them: one head each, where a subgroup has 32.
uint32_t vulkan_head_groups(const struct recorder *c, uint32_t heads);

void vulkan_output_norm(struct recorder *c, struct tensor o, struct tensor gate, struct tensor weight, uint32_t heads,
                        float eps);
// rms (1, T), where present: 1 / sqrt(mean(x[t]^2) + eps).
void vulkan_norm_and_rms(struct recorder *c, struct tensor y, struct tensor rms, struct tensor x, struct tensor weight,
                         float eps);

// ops_vulkan_linear.c: products with weights.
void vulkan_embed(struct recorder *c, struct tensor x, struct tensor table, struct tensor tokens);
void vulkan_linear(struct recorder *c, struct tensor y, struct linear_input in, struct tensor w, struct tensor bias,
                   bool add);
void vulkan_linear_residual(struct recorder *c, struct tensor x, struct linear_input in, struct tensor w,
                            struct tensor bias, const struct linear_input *next);
enum dtype vulkan_input_dtype(const struct recorder *c, struct tensor w, uint32_t T);
bool vulkan_linear_conv(struct recorder *c, struct tensor y, struct tensor p, struct linear_input in, struct tensor w,
                        struct tensor bias, struct linear_conv conv);
void vulkan_linear_gated(struct recorder *c, struct tensor y, struct tensor gate_up, struct linear_input in,
                         struct tensor w, enum activation activation);
// ops_vulkan_matrix.c: whether kernels with cooperative matrices may be used.
bool vulkan_has_matrices(const struct recorder *c);
// Whether a product of many rows with w reads its inputs as f16.
bool vulkan_takes_f16(const struct recorder *c, struct tensor w);
// y[:, first ... first + rows of w - 1] (+)= x w^T (+ bias); false: not done, for it takes the matmul without matrices.
bool vulkan_matmul_matrix(struct recorder *c, struct tensor y, struct tensor x, struct tensor w, struct tensor bias,
                          uint32_t first, bool add);

// The bindings and push constants by which a product of inputs x ends in a short convolution, whose outputs are y.
struct conv_step_args vulkan_conv_step(struct binding *bindings, struct tensor y, struct tensor x,
                                       const struct linear_conv *conv);

// ops_vulkan_narrow.c: a product of few rows; gated, y is half as wide and f16; conv: channels of y go to conv_y.
struct narrow_product {
  struct tensor y, x, w, bias;
  const struct linear_input *norm; // of which the product before has left what the kernel needs, instead of x; or NULL
  const struct linear_input *next; // of which this one leaves it; or NULL
  uint32_t first;
  bool add, gated;
  enum activation activation;
  struct tensor conv_y;
  const struct linear_conv *conv; // NULL: none
};
bool vulkan_matmul_narrow(struct recorder *c, const struct narrow_product *p); // false: not done
bool vulkan_narrow_takes(const struct recorder *c, struct tensor w, uint32_t rows);
// Where a norm's 1 / rms of every row is kept for the next; absent where that is of no use.
struct tensor vulkan_norm_rms(const struct recorder *c, const struct linear_input *norm);

bool vulkan_delta_step(struct recorder *c, const struct delta_step *s); // ops_vulkan_step.c

// y = act(x gate^T) * (x up^T), w both under each other; false: not done.
bool vulkan_gated_matrix(struct recorder *c, struct tensor y, struct tensor x, struct tensor w,
                         enum activation activation);

// Grids have room for this many tokens of every sequence; without the host's word for less, for all of the call's.
static inline uint32_t vulkan_longest(struct tensor rows, uint32_t longest) {
  return longest && longest < rows.rows ? longest : rows.rows;
}

// ops_vulkan_mix.c: ops that mix tokens.
// Whether a rule of that form takes chunks; the rest as for plan_chunks().
bool vulkan_chunked(const struct plan *plan, enum delta_form form, uint64_t T, uint32_t B, uint64_t longest);
void vulkan_short_conv(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor bias,
                       struct tensor history, struct tensor sequences, uint32_t longest, struct conv_args a);
// That and delta_inputs, as conv.inputs says. False: not here, nothing happened.
bool vulkan_conv_inputs(struct recorder *c, struct tensor y, struct tensor x, const struct linear_conv *conv);
void vulkan_delta_inputs(struct recorder *c, struct tensor qk, const struct delta_input *in);
void vulkan_delta_rule(struct recorder *c, struct tensor o, struct tensor qkv, struct tensor beta, struct tensor g,
                       struct tensor mask, struct tensor state, struct tensor sequences, struct tensor scratch,
                       struct delta_args a);
enum dtype vulkan_delta_dtype(const struct recorder *c, uint32_t T, uint32_t B, struct tensor scratch,
                              struct delta_args a);
uint64_t vulkan_delta_scratch_bytes(const struct backend *b, uint32_t T, uint32_t B, struct delta_args a);
// A call of the delta rule. aligned: q and k of every block (of a head, where it has none) begin at a multiple of four
// numbers.
struct delta_call {
  struct tensor o, qkv, beta, g, mask, state, sequences, scratch;
  struct delta_args a;
  uint32_t aligned;
};
// ops_vulkan_delta_matrix.c: on cooperative matrices. False: T tokens of B sequences do not go that way.
bool vulkan_delta_matrix_plan(const struct device *device, uint32_t T, uint32_t B, const struct delta_args *a,
                              struct plan_delta_matrix *p);
uint64_t vulkan_delta_matrix_bytes(const struct device *device, const struct plan_delta_matrix *p, uint32_t T,
                                   uint32_t B, const struct delta_args *a); // of scratch
void vulkan_delta_matrix(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *p);
// ops_vulkan_hh.c: r > 1 in chunks without cooperative matrices.
uint64_t vulkan_hh_scratch_bytes(const struct device *device, uint32_t T, uint32_t B, const struct delta_args *a);
bool vulkan_hh_chunks(struct recorder *c, const struct delta_call *d); // false: not done, it walks the tokens

// ops_vulkan_attention.c
void vulkan_rope_append(struct recorder *c, struct tensor qkv, struct tensor cache_k, struct tensor cache_v,
                        struct tensor table, struct tensor sequences, struct tensor scratch, struct attention_args a);
void vulkan_attention(struct recorder *c, struct tensor o, struct tensor qkv, struct tensor cache_k,
                      struct tensor cache_v, struct tensor sequences, struct tensor scratch, struct attention_args a);
// On cooperative matrices, T tokens of B sequences with o of this dtype; false: they do not go that way.
bool vulkan_attention_matrix_plan(const struct recorder *c, enum dtype o, uint32_t T, uint32_t B,
                                  const struct attention_args *a, struct plan_attention_matrix *m);
uint64_t vulkan_attention_scratch_bytes(const struct backend *b, uint32_t B, struct attention_args a);

// ops_vulkan_mamba2.c
void vulkan_mamba2_inputs(struct recorder *c, struct tensor dt, struct tensor g, struct tensor raw, struct tensor A_log,
                          struct tensor dt_bias, struct mamba2_input_args a);
void vulkan_mamba2(struct recorder *c, struct tensor y, struct tensor xBC, struct tensor dt, struct tensor g,
                   struct tensor D, struct tensor state, struct tensor sequences, struct tensor scratch,
                   struct mamba2_args a);
bool vulkan_mamba2_step(struct recorder *c, const struct mamba2_step *s);
enum dtype vulkan_mamba2_dtype(const struct recorder *c, uint32_t T, uint32_t B, struct tensor scratch,
                               struct mamba2_args a);
bool vulkan_mamba2_matrix_plan(const struct device *device, uint32_t T, uint32_t B, const struct mamba2_args *a,
                               struct plan_mamba2_matrix *p);
uint64_t vulkan_mamba2_scratch_bytes(const struct backend *b, uint32_t T, uint32_t B, struct mamba2_args a);
void vulkan_gated_norm(struct recorder *c, struct tensor y, struct tensor z, struct tensor weight,
                       struct gated_norm_args a);
#endif
