// vulkan.h: what the files of the Vulkan backend share. lower.c walks a list and asks for what is declared here: an
// operation, or several in one kernel.
#ifndef VULKAN_BACKEND_H
#define VULKAN_BACKEND_H
#include "backend.h"
#include "commands.h"
#include "conv_step.h"
#include "kernels.h"
#include "numbers.h"
#include "plan_attention.h"
#include "plan_delta.h"
#include "plan_mamba2.h"
#include "plan_matmul.h"
#include "plan_rule.h"

struct vulkan_backend {
  struct backend base;
  struct device *device;
  struct plan_products products;
  struct plan_rules rules;
};

struct vulkan_recorder {
  struct recorder base;
  struct commands *commands; // NULL: a list is only planned
  const struct oplist *list; // the one that is lowered or planned
};

static inline struct device *vulkan_device(const struct backend *b) {
  return ((const struct vulkan_backend *)b)->device;
}
static inline const struct plan *vulkan_plan(const struct recorder *c) { return &vulkan_device(c->backend)->plan; }
static inline const struct plan_products *vulkan_products(const struct recorder *c) {
  return &((const struct vulkan_backend *)c->backend)->products;
}
static inline const struct plan_rules *vulkan_rules(const struct recorder *c) {
  return &((const struct vulkan_backend *)c->backend)->rules;
}
static inline const struct oplist *vulkan_list(const struct recorder *c) {
  return ((const struct vulkan_recorder *)c)->list;
}

// Plans the list and records it (lower.c).
void vulkan_lower(struct recorder *c, struct oplist *l);
uint64_t vulkan_list_bytes(struct backend *b, struct oplist *l, uint64_t *largest);

enum { MAX_GROUPS = 65535 }; // in each dimension of a grid: what every device allows

// The range of a tensor; where it is absent, `or`'s: kernels do not touch it, but something must be bound.
struct binding vulkan_bind(struct tensor t, struct tensor or);
// The same, of which a dispatch touches so many numbers.
struct binding vulkan_bind_some(struct tensor t, struct tensor or, uint64_t numbers);
// Of a product's outputs, which it reads where it adds to them.
struct binding vulkan_bind_sums(struct tensor y, bool add);
// Rows with their padding, which kernels read in vectors.
struct binding vulkan_bind_weights(struct tensor w);

struct grid { // workgroups
  uint64_t x, y, z;
};

// spec: kernel_specs[id] numbers; push: kernels[id].push_bytes bytes. A kernel or grid that the device does not allow
// is kept as the recording's error.
void vulkan_dispatch(struct recorder *c, enum kernel_id id, const uint32_t *spec, const struct binding *bindings,
                     const void *push, struct grid grid, uint64_t operations);

// Workgroups for the heads of one token, whose subgroups share them: one head each, where a subgroup has 32.
uint32_t vulkan_head_groups(const struct recorder *c, uint32_t heads);
// Grids have room for this many tokens of every sequence; without the host's word for less, for all of the call's.
static inline uint32_t vulkan_longest(const struct recorder *c, struct tensor rows) {
  const uint32_t longest = vulkan_list(c)->longest;
  return longest && longest < rows.rows ? longest : rows.rows;
}

// ---------------------------------------------------------------- operations; those with y and x work in y's place

// vulkan.c: tokens alone.
void vulkan_mark(struct recorder *c, const struct mark *m);
// rms (1, T), where present: 1 / sqrt(mean(x[t]^2) + eps).
void vulkan_norm(struct recorder *c, const struct norm *norm, struct tensor rms);
void vulkan_add(struct recorder *c, const struct add *a);
void vulkan_gated_norm(struct recorder *c, const struct gated_norm *norm);
void vulkan_sample(struct recorder *c, const struct sample *sample);
void vulkan_copy(struct recorder *c, const struct copy *copy);
void vulkan_scatter(struct recorder *c, const struct scatter *s);
void vulkan_score(struct recorder *c, const struct score *score);

// vulkan_linear.c: products with weights.
// What lies between the norms of a residual stream, from product to product.
struct norm_ahead {
  bool estimated;  // the stream's size is known about
  uint32_t parts;  // of the sums of squares that the last product has left; 0: it has left nothing
  struct tensor h; // where it is
};

// What a matrix is applied to: the rows of x (T, K), or, with weight (1, K) present, their norms
// x[t] / sqrt(mean(x[t]^2) + eps) * weight. h (T, K) has room for the norms. ahead is present where x is a residual
// stream.
struct linear_input {
  struct tensor x, weight, h;
  float eps;
  struct norm_ahead *ahead;
};

// The convolution of some columns of a product, from column `from`; inputs: what follows it, or NULL.
struct linear_conv {
  const struct conv *conv;
  uint32_t from;
  const struct delta_inputs *inputs;
};

void vulkan_embed(struct recorder *c, const struct embed *e);
void vulkan_glu(struct recorder *c, const struct glu *g);
// y (T, N) = in w^T (+ bias); add: y += instead.
void vulkan_linear(struct recorder *c, struct tensor y, const struct linear_input *in, const struct linear *p,
                   bool add);
// x (T, N) += in w^T (+ bias), a residual stream; next: the norm of x that a product begins with, or NULL.
void vulkan_linear_residual(struct recorder *c, struct tensor x, const struct linear_input *in, const struct linear *p,
                            const struct linear_input *next);
// The product, then the convolution of some of its columns, which are undefined after. True: conv.inputs are done too.
bool vulkan_linear_conv(struct recorder *c, const struct linear_input *in, const struct linear *p,
                        const struct linear_conv *conv);
// The product, then act(its first half) * its second.
void vulkan_linear_glu(struct recorder *c, const struct linear_input *in, const struct linear *p, const struct glu *g);
// How a product of T rows with w best finds its inputs: f32, or f16 where it rounds them to that anyway.
enum dtype vulkan_input_dtype(const struct recorder *c, struct tensor w, uint32_t T);

// vulkan_matrix.c: on cooperative matrices.
bool vulkan_has_matrices(const struct recorder *c);
// Whether a product of many rows with w reads its inputs as f16.
bool vulkan_takes_f16(const struct recorder *c, struct tensor w);
// The bindings and push constants by which a product of inputs x ends in a short convolution.
struct conv_step_args vulkan_conv_step(struct binding *bindings, struct tensor x, const struct linear_conv *conv);
// A product of many rows with w; glu: y is half as wide and f16.
struct matrix_product {
  struct tensor y, x, w, bias;
  uint32_t first; // column of y that w's first row makes
  bool add, glu;
  enum activation activation;
};
bool vulkan_matmul_matrix(struct recorder *c, const struct matrix_product *p); // false: not done

// vulkan_narrow.c: of few rows; conv: channels of the product go to conv->conv->y.
struct narrow_product {
  struct matrix_product p;
  const struct linear_input *norm; // of which the product before has left what the kernel needs, instead of x; or NULL
  const struct linear_input *next; // of which this one leaves it; or NULL
  const struct linear_conv *conv;  // NULL: none
};
bool vulkan_matmul_narrow(struct recorder *c, const struct narrow_product *n); // false: not done
bool vulkan_narrow_takes(const struct recorder *c, struct tensor w, uint32_t rows);
// Where a norm's 1 / rms of every row is kept for the next; absent where that is of no use.
struct tensor vulkan_norm_rms(const struct recorder *c, const struct linear_input *norm);

// vulkan_mix.c: convolution and the delta rule.
void vulkan_conv(struct recorder *c, const struct conv *conv);
// That and delta_inputs, as conv->inputs says. False: not here, nothing happened.
bool vulkan_conv_inputs(struct recorder *c, const struct linear_conv *conv);
void vulkan_delta_inputs(struct recorder *c, const struct delta_inputs *in);

// How a call of the delta rule goes.
struct delta_chunks { // vulkan_mix.c
  struct plan_delta p;
  uint32_t chunks; // the most that T tokens of B sequences can make
  uint32_t prepare_lanes;
};
struct hh_chunks { // vulkan_hh.c
  uint32_t C, chunks, lanes, columns;
};
struct delta_plan {
  enum { DELTA_BY_TOKENS, DELTA_BY_CHUNKS, DELTA_ON_MATRICES } way;
  struct delta_chunks delta;
  struct hh_chunks hh; // instead, with r > 1
  struct plan_delta_matrix matrix;
  uint64_t bytes; // of scratch
};
// In at most `limit` bytes of scratch.
struct delta_plan vulkan_plan_delta(const struct recorder *c, const struct delta_rule *rule, uint64_t limit);
void vulkan_delta_rule(struct recorder *c, const struct delta_rule *rule, struct tensor scratch);

// A call of the delta rule. aligned: q and k of every block (of a head, where it has none) begin at a multiple of four
// numbers.
struct delta_call {
  struct tensor o, qkv, beta, g, mask, state, sequences, scratch;
  struct delta_args a;
  uint32_t aligned;
};
// vulkan_delta_matrix.c: on cooperative matrices. False: T tokens of B sequences do not go that way.
bool vulkan_delta_matrix_plan(const struct recorder *c, uint32_t T, uint32_t B, const struct delta_args *a,
                              struct plan_delta_matrix *p);
uint64_t vulkan_delta_matrix_bytes(const struct device *device, const struct plan_delta_matrix *p, uint32_t T,
                                   uint32_t B, const struct delta_args *a); // of scratch
void vulkan_delta_matrix(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *p);
// vulkan_hh.c: r > 1 by chunks without cooperative matrices. plan: false when they do not fit.
bool vulkan_hh_plan(const struct plan_rules *plan, uint32_t T, uint32_t B, const struct delta_args *a,
                    struct hh_chunks *s);
uint64_t vulkan_hh_bytes(const struct hh_chunks *s, const struct delta_args *a);
void vulkan_hh_chunks(struct recorder *c, const struct delta_call *d, const struct hh_chunks *s);
// Whether a rule of the list's form takes chunks, n tokens of it for one of the text; the rest as for plan_chunks().
bool vulkan_chunked(const struct recorder *c, uint32_t T, uint32_t B, uint32_t n);

// vulkan_step.c: delta_inputs, delta_rule and gated_norm (NULL: none) of single tokens of every sequence.
struct delta_step {
  struct tensor o; // of the last of them
  const struct delta_inputs *inputs;
  const struct delta_rule *rule;
  const struct gated_norm *norm;
};
struct delta_step_plan {
  bool fours, apart; // apart: the norm is a kernel of its own
  struct plan_step p;
  struct plan_step_fours f;
};
bool vulkan_plan_delta_step(const struct recorder *c, const struct delta_step *s, struct delta_step_plan *p);
void vulkan_delta_step(struct recorder *c, const struct delta_step *s, const struct delta_step_plan *p);

// vulkan_attention.c
void vulkan_rope_append(struct recorder *c, const struct rope_append *rope, struct tensor scratch);
void vulkan_attention(struct recorder *c, const struct attention *op, struct tensor scratch);
// Of scratch, the same for both.
uint64_t vulkan_attention_bytes(const struct backend *b, uint32_t B, const struct attention_args *a);
// On cooperative matrices, T tokens of B sequences with o of this dtype; false: they do not go that way.
bool vulkan_attention_matrix_plan(const struct recorder *c, enum dtype o, uint32_t T, uint32_t B,
                                  const struct attention_args *a, struct plan_attention_matrix *m);

// vulkan_mamba2.c
void vulkan_mamba2_inputs(struct recorder *c, const struct mamba2_inputs *in);
void vulkan_mamba2(struct recorder *c, const struct mamba2 *rule, struct tensor scratch);
// Of scratch, in at most `limit`.
uint64_t vulkan_mamba2_bytes(const struct recorder *c, const struct mamba2 *rule, uint64_t limit);
// Of y: f32, or f16 where the chunks that it makes are so.
enum dtype vulkan_mamba2_dtype(const struct recorder *c, const struct mamba2 *rule);
// mamba2_inputs and mamba2 in one, and what gated_norm does without a norm where gate (T, E) is present. y: f32 or f16.
struct mamba2_step {
  struct tensor y, gate;
  const struct mamba2_inputs *inputs;
  const struct mamba2 *rule;
};
bool vulkan_steps_mamba2(const struct recorder *c, const struct mamba2 *rule); // whether it takes it
void vulkan_mamba2_step(struct recorder *c, const struct mamba2_step *s);
#endif
