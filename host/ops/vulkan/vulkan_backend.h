// vulkan_backend.h: what the files of the Vulkan backend share. lower.c walks a list and calls the functions below;
// each records one operation, or several that share a kernel.
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

// Plans the operations from the device's plan.
void vulkan_backend_plan(struct vulkan_backend *b) INSIDE(vulkan_backend_plan);
// backend_functions.imagine. It needs no more of the device than its limits and its plan.
deltaic_status vulkan_imagine(const struct backend *of, struct backend **out) INSIDE(vulkan_imagine);

// Kernels that lists need, each once.
struct kernel_choices {
  struct kernel_choice {
    const struct shader *shader;
    uint32_t count, spec[REFLECT_SPEC];
  } * of;
  size_t count, capacity;
};

struct vulkan_recorder {
  struct recorder base;
  struct commands *commands;      // NULL: lists are only planned
  const struct oplist *list;      // the list that is being lowered or planned
  struct kernel_choices *choices; // gets the kernels of the lists, which are not recorded; NULL: lists are recorded
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
// Whether an f16 output is rounded to the nearest, and infinite out of range, as a walk in reverse needs it; else it is
// clamped.
static inline bool vulkan_rounds_output(const struct recorder *c, struct tensor y) {
  return y.dtype == DTYPE_F16 && vulkan_list(c)->keep;
}

// Plans the list and records it (lower.c).
void vulkan_lower(struct recorder *c, struct oplist *l);
uint64_t vulkan_list_bytes(struct backend *b, struct oplist *l, uint64_t *largest);

enum { MAX_GROUPS = 65535 }; // in each dimension of a grid: the limit that every device has at least

// Binds a tensor. An absent tensor binds `or` instead: the kernel does not read it, but Vulkan needs some binding.
struct binding vulkan_bind(struct tensor t, struct tensor or) INSIDE(vulkan_bind);
// The same for a dispatch that touches only this many elements.
struct binding vulkan_bind_some(struct tensor t, struct tensor or, uint64_t elements);
// Binds a product's output. The product reads the old output only if it adds to it.
struct binding vulkan_bind_output(struct tensor y, bool add);
// Binds weights with the padding of their rows, since kernels read whole vectors.
struct binding vulkan_bind_weights(struct tensor w) INSIDE(vulkan_bind_weights);

struct grid { // workgroups
  uint64_t x, y, z;
};

// A shader with its `count` specialization constants and push constants of push_bytes bytes.
struct dispatched {
  const struct shader *shader;
  const uint32_t *spec;
  uint32_t count;
  const struct binding *bindings;
  const void *push;
};
// Keeps its kernel among the choices, if it is neither there nor known to the device.
deltaic_status vulkan_choose(struct device *device, struct kernel_choices *choices, const struct dispatched *d);
// backend_functions.compile. Kernels that fail are left to kernel_get(), which tells why.
deltaic_status vulkan_compile(struct backend *b, void (*lists)(struct recorder *c, void *context), void *context);
// If the device does not support the kernel or the grid, the recording keeps the error.
void vulkan_dispatch_shader(struct recorder *c, const struct dispatched *d, struct grid grid, uint64_t operations)
    INSIDE(vulkan_dispatch_shader);
// spec: kernel_specs[id] constants; push: kernels[id].push_bytes bytes.
void vulkan_dispatch(struct recorder *c, enum kernel_id id, const uint32_t *spec, const struct binding *bindings,
                     const void *push, struct grid grid, uint64_t operations);

// Workgroups for the heads of one token, with one head per subgroup of 32 lanes.
uint32_t vulkan_head_groups(const struct recorder *c, uint32_t heads);
// The most tokens of one sequence, for the size of a grid. If the host gives no limit, all tokens of the call.
static inline uint32_t vulkan_longest(const struct recorder *c, struct tensor rows) {
  const uint32_t longest = vulkan_list(c)->longest;
  return longest && longest < rows.rows ? longest : rows.rows;
}

// ---------------------------------------------------------------- operations

// vulkan_token.c: operations on single tokens.
void vulkan_mark(struct recorder *c, const struct mark *m);
// rms (1, T), if present, receives 1 / sqrt(mean(x[t]^2) + eps).
void vulkan_norm(struct recorder *c, const struct norm *norm, struct tensor rms);
void vulkan_add(struct recorder *c, const struct add *a) INSIDE(vulkan_add);
void vulkan_gated_norm(struct recorder *c, const struct gated_norm *norm);
void vulkan_sample(struct recorder *c, const struct sample *sample);
void vulkan_copy(struct recorder *c, const struct copy *copy) INSIDE(vulkan_copy);
void vulkan_scatter(struct recorder *c, const struct scatter *s);
void vulkan_score(struct recorder *c, const struct score *score);

// vulkan_linear.c: products with weights.

// What a product that adds to the residual stream leaves for the norm after it.
struct norm_ahead {
  bool estimated;  // an estimate of the stream's rms is known
  uint32_t parts;  // partial sums of squares per row that the last product wrote; 0: it wrote none
  struct tensor h; // memory that holds them
};

// Input of a product: the rows of x (T, K), or, if weight (1, K) is present, their norms x[t] / sqrt(mean(x[t]^2) +
// eps) * weight. h (T, K) is memory for the norms. Without weight, h may be memory of f16 to which x is rounded if the
// product then takes coopmats, which read f16 faster. ahead is present if x is a residual stream.
struct linear_input {
  struct tensor x, weight, h;
  float eps;
  struct norm_ahead *ahead;
};

// A convolution of a product's columns from `from` on. inputs: the operation after the convolution, or NULL.
struct linear_conv {
  const struct conv *conv;
  uint32_t from;
  const struct delta_inputs *inputs;
};

// Fills the constants of matvec_dot that depend on the product's size.
void vulkan_dot_spec(const struct recorder *c, const struct plan_dot *m, uint32_t K, bool gated, enum dtype tiles,
                     uint32_t *spec);
void vulkan_embed(struct recorder *c, const struct embed *e);
void vulkan_glu(struct recorder *c, const struct glu *g);
// Whether one token's product with w also computes the norm of its input, in the same kernel.
bool vulkan_linear_norms(const struct recorder *c, struct tensor w);
// y (T, N) = in w^T (+ bias), or y += if add.
void vulkan_linear(struct recorder *c, struct tensor y, const struct linear_input *in, const struct linear *p, bool add)
    INSIDE(vulkan_linear);
// x (T, N) += in w^T (+ bias), where x is a residual stream. next: the norm of x at the start of a later product, or
// NULL.
void vulkan_linear_residual(struct recorder *c, struct tensor x, const struct linear_input *in, const struct linear *p,
                            const struct linear_input *next);
// The product, then the convolution of some of its columns, whose product is undefined afterwards. Returns true if
// conv->inputs are computed too.
bool vulkan_linear_conv(struct recorder *c, const struct linear_input *in, const struct linear *p,
                        const struct linear_conv *conv);
// The product, then act(first half) * second half.
void vulkan_linear_glu(struct recorder *c, const struct linear_input *in, const struct linear *p, const struct glu *g);
// The best dtype for the input of a product of T rows with w: f16 if the product rounds to f16 anyway, else f32.
enum dtype vulkan_input_dtype(const struct recorder *c, struct tensor w, uint32_t T) INSIDE(vulkan_input_dtype);
// Fills spec (MATMUL_SPECS) for the kernels of matmul.h with input x and weights w.
void vulkan_matmul_spec(const struct recorder *c, struct tensor x, struct tensor w, const struct plan_tile *tile,
                        uint32_t *spec);

// vulkan_matrix.c: products on cooperative matrices (coopmat). Whether this list may use them:
bool vulkan_has_matrices(const struct recorder *c) INSIDE(vulkan_has_matrices);
// Whether a list may, if it says so.
bool vulkan_can_round(const struct backend *b) INSIDE(vulkan_can_round);
// Whether a product of many rows with w reads its inputs as f16.
bool vulkan_takes_f16(const struct recorder *c, struct tensor w);
// Fills the bindings, and returns the push constants, of a product of inputs x that ends in a short convolution.
struct conv_step_args vulkan_conv_step(struct binding *bindings, struct tensor x, const struct linear_conv *conv);
// Fills the bindings where there is none; nothing uses them. y: what the dispatch writes.
void vulkan_no_conv_step(struct binding *bindings, struct binding y);
// A product of many rows with w. glu: y is half as wide and f16.
struct matrix_product {
  struct tensor y, x, w, bias;
  const struct shader *turned; // a variant of matmul_matrix.comp: w is (K, N), with turn_x also x (K, T); NULL: neither
  bool turn_x;
  uint32_t first; // column of y that w's first row computes
  bool add, glu;
  enum activation activation;
};
// to (f16) = from (f32), rounded to the nearest; infinite beyond f16's range; zeros up to its stride.
void vulkan_round(struct recorder *c, struct tensor to, struct tensor from) INSIDE(vulkan_round);
bool vulkan_matmul_matrix(struct recorder *c, const struct matrix_product *p); // false: not done
// With `turned`, for which vulkan_turns() must hold.
void vulkan_matmul_turned(struct recorder *c, const struct matrix_product *p) INSIDE(vulkan_matmul_turned);
bool vulkan_turns(const struct recorder *c, uint32_t T, uint32_t N, uint32_t K, bool turn_x) INSIDE(vulkan_turns);

// vulkan_narrow.c: products of few rows. conv: channels of the product go to conv->conv->y.
struct narrow_product {
  struct matrix_product p;
  const struct linear_input *norm; // input: replaces p.x by this norm, which the product before prepared; or NULL
  const struct linear_input *next; // output: prepares this norm for the product after it; or NULL
  const struct linear_conv *conv;  // NULL: none
};
bool vulkan_matmul_narrow(struct recorder *c, const struct narrow_product *n); // false: not done
bool vulkan_narrow_takes(const struct recorder *c, struct tensor w, uint32_t rows);
// Memory for a norm's 1 / rms of every row, which the next norm uses as an estimate; absent if that is of no use.
struct tensor vulkan_norm_rms(const struct recorder *c, const struct linear_input *norm);

// vulkan_mix.c: convolution and the delta rule.
void vulkan_conv(struct recorder *c, const struct conv *conv);
// The convolution and conv->inputs in one kernel. False: the kernel does not support them; nothing is recorded.
bool vulkan_conv_inputs(struct recorder *c, const struct linear_conv *conv);
void vulkan_delta_inputs(struct recorder *c, const struct delta_inputs *in);

// How a call of the delta rule is computed.
struct delta_chunks { // vulkan_mix.c
  struct plan_delta p;
  uint32_t chunks; // the most chunks that T tokens of B sequences can make
  uint32_t prepare_lanes;
};
struct delta_plan {
  enum { DELTA_BY_TOKENS, DELTA_BY_CHUNKS, DELTA_ON_MATRICES } way;
  struct delta_chunks delta;
  struct plan_delta_matrix matrix;
  uint64_t bytes; // of scratch
};
// Chooses a way that needs at most `limit` bytes of scratch.
struct delta_plan vulkan_plan_delta(const struct recorder *c, const struct delta_rule *rule, uint64_t limit);
void vulkan_delta_rule(struct recorder *c, const struct delta_rule *rule, struct tensor scratch);

// A call of the delta rule. aligned: q and k of every block (or head) begin at a multiple of four elements.
struct delta_call {
  struct delta_rule rule;
  struct tensor scratch;
  uint32_t aligned;
};
// vulkan_rule.c: the delta rule token by token.
void vulkan_delta_tokens(struct recorder *c, const struct delta_call *d);
// vulkan_delta_matrix.c: the delta rule on coopmat. False: it does not support T tokens of B sequences.
bool vulkan_delta_matrix_plan(const struct recorder *c, uint32_t T, uint32_t B, const struct delta_args *a,
                              struct plan_delta_matrix *p);
uint64_t vulkan_delta_matrix_bytes(const struct device *device, const struct plan_delta_matrix *p, uint32_t T,
                                   uint32_t B, const struct delta_args *a); // of scratch
void vulkan_delta_matrix(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *p);
// What needs no state: the records of `chunks` chunks (delta_matrix.h), without Head-in-Head. The operation's o and
// state are not used.
void vulkan_delta_prepare(struct recorder *c, const struct delta_rule *r, const struct plan_delta_matrix *p,
                          struct binding prepared, uint32_t chunks) INSIDE(vulkan_delta_prepare);
// Whether the rule runs by chunks, given the list's form. n: steps per token; T and B as for plan_chunks().
bool vulkan_chunked(const struct recorder *c, uint32_t T, uint32_t B, uint32_t n);

// vulkan_step.c: delta_inputs, delta_rule and gated_norm (NULL: none) for one token of every sequence.
struct delta_step {
  struct tensor o; // output of the last operation
  const struct delta_inputs *inputs;
  const struct delta_rule *rule;
  const struct gated_norm *norm;
};
struct delta_step_plan {
  bool fours, apart; // fours: delta_step_fours.comp; apart: the norm is a separate kernel
  struct plan_step p;
  struct plan_step_fours f;
};
bool vulkan_plan_delta_step(const struct recorder *c, const struct delta_step *s, struct delta_step_plan *p);
void vulkan_delta_step(struct recorder *c, const struct delta_step *s, const struct delta_step_plan *p);

// vulkan_attention.c
// Reads x from y, where it is already.
void vulkan_rope_append(struct recorder *c, const struct rope_append *rope, struct tensor scratch);
void vulkan_attention(struct recorder *c, const struct attention *op, struct tensor scratch);
// rope_append and attention for one token of every sequence in one kernel, with the norm of each head before them and
// the gate after them (NULL: none). The gate's columns are behind those of q, k and v. False: the kernel does not
// support it; nothing is recorded.
struct attention_joined {
  const struct gated_norm *norm;
  const struct rope_append *rope;
  const struct attention *attention;
  const struct glu *gate;
};
bool vulkan_attention_joined(struct recorder *c, const struct attention_joined *joined, struct tensor scratch);
// Bytes of scratch, for both operations, for single tokens of B sequences.
uint64_t vulkan_attention_bytes(const struct backend *b, uint32_t B, const struct attention_args *a);
// Bytes of attention's scratch, for any number of tokens. limit: the most that one binding can hold.
uint64_t vulkan_attention_scratch(const struct recorder *c, const struct attention *op, uint64_t limit);
// Plans attention on coopmat for T tokens of B sequences with an output of dtype o. False: it is not supported.
bool vulkan_attention_matrix_plan(const struct recorder *c, enum dtype o, uint32_t T, uint32_t B,
                                  const struct attention_args *a, struct plan_attention_matrix *m);

// vulkan_experts.c
void vulkan_route(struct recorder *c, const struct route *route);
void vulkan_group(struct recorder *c, const struct group *group);
// Whether a call of the operation reads order and starts.
bool vulkan_experts_sorted(const struct recorder *c, const struct experts *e);
// The best dtype of x: f16 if the product rounds to f16 anyway, else f32.
enum dtype vulkan_experts_dtype(const struct recorder *c, const struct experts *e);
// Whether the product's kernel, for one token, also computes the norm of its input.
bool vulkan_experts_norm(const struct recorder *c, const struct experts *e);
// in: e->x, or its norm if vulkan_experts_norm(). glu: the activation of the halves of e->y, whose value may then be
// undefined afterwards; or NULL.
void vulkan_experts(struct recorder *c, const struct experts *e, const struct linear_input *in, const struct glu *glu);
// Writes the sum to y, or adds it.
void vulkan_mix(struct recorder *c, const struct mix *m, struct tensor y, bool add);

// vulkan_mamba2.c
void vulkan_mamba2_inputs(struct recorder *c, const struct mamba2_inputs *in);
void vulkan_mamba2(struct recorder *c, const struct mamba2 *rule, struct tensor scratch);
// Bytes of scratch, at most `limit`.
uint64_t vulkan_mamba2_bytes(const struct recorder *c, const struct mamba2 *rule, uint64_t limit);
// Best dtype of y: f16 if the kernel that computes it can write f16, else f32.
enum dtype vulkan_mamba2_dtype(const struct recorder *c, const struct mamba2 *rule);
// mamba2_inputs and mamba2 in one kernel. If gate (T, E) is present, also the gating of gated_norm, without its norm.
// y: f32 or f16.
struct mamba2_step {
  struct tensor y, gate;
  const struct mamba2_inputs *inputs;
  const struct mamba2 *rule;
};
bool vulkan_steps_mamba2(const struct recorder *c, const struct mamba2 *rule); // whether the kernel supports it
void vulkan_mamba2_step(struct recorder *c, const struct mamba2_step *s);
#endif
