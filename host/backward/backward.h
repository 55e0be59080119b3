// backward.h: the gradient of one number, a loss, by every tensor that a list of operations reads (docs/backward.md).
// The list keeps all of its values (oplist.keep); a walk goes over it from its last operation to its first. Each
// operation adds to the gradients of its inputs what those of its outputs imply.
//
// dx is the gradient with respect to x and has x's shape. It is f32. The gradient of a product's result is f16 if both
// products of its backward pass would round it. A walk adds to the gradients of weights. The last reader of a value
// overwrites the value's gradient, and earlier readers add to it. The caller sets the gradients of values that nothing
// reads. A gradient that nobody wants is an absent tensor.
//
// The walk's recorder decides who computes: the functions in cpu/, which are the specification, or those in vulkan/,
// which dispatch kernels behind the list in the same recording. The order of every sum depends on sizes alone.
#ifndef BACKWARD_H
#define BACKWARD_H
#include "backend.h"

// A weight and its gradient, of the same shape.
struct weight_gradient {
  const struct tensor *weight;
  struct tensor gradient; // absent: not wanted
};

// A weight that the list reads as f16, and the f32 that it was rounded from.
struct weight_half {
  struct tensor half, from;
};

// A value whose gradient is not at its own place in `gradients`, or is f16.
struct walk_place {
  struct tensor value, gradient; // of the same shape
};

enum { WALK_ROOMS = 16, WALK_PLACES = 16 };

struct walk {
  struct recorder *c;                     // whose last list was the walk's
  const struct walk_functions *functions; // walk_functions(c->backend)
  const struct oplist *list;
  struct buffer *values, *gradients; // of values: at the same places in two buffers, except `places`
  struct walk_place places[WALK_PLACES];
  uint32_t place_count;
  // Of states: as the call left them, as it found them, and their gradients, at the same places in three buffers.
  // Before a walk the gradients are by the states after the call, after it by those before the call. `before` without
  // memory: zeros.
  struct buffer *states, *before, *state_gradients;
  const struct weight_gradient *weights;
  size_t weight_count;
  const struct weight_half *halves; // of the list
  size_t half_count;
  struct buffer rooms[WALK_ROOMS];  // memory of one operation's backward pass
  uint32_t at;                      // the operation in hand
  uint32_t used;                    // rooms
  struct tensor unrounded, rounded; // the tensor that was rounded to f16 last, and its f16 copy
  uint32_t fresh;                   // bits of the operation's tensors whose gradient is to be overwritten
  deltaic_status status;            // first error; a recorder's own comes when it runs
};

// Predictions first ... first + z.rows - 1 of N, whose logits are z. The gradient of factor times their cross entropies
// plus kd_factor / tau times their distillation losses replaces z.
struct loss_rows {
  struct tensor z, taught; // (n, V); taught absent: no distillation
  struct tensor targets;   // (1, N) i32
  struct tensor losses;    // (N, 2) f32: receives cross entropy and distillation loss of each
  uint32_t first;
  double tau, factor, kd_factor;
};

// What a trainer computes with weights and their gradients. Numbers (rows, cols) anywhere in a buffer: (i, k) is at + i
// * row + k * col, in floats. They span at most WALK_SPAN floats, so that every device can bind them.
enum { WALK_SQUARES = 1 << 15, WALK_SPAN = 1 << 24 };
struct walk_grid {
  struct buffer *buffer; // NULL: absent
  uint64_t at;
  uint32_t row, col;
};

// The sums of the squares of factor times WALK_SQUARES numbers each, counted along rows, are sums[first] and so on.
struct walk_squares {
  uint32_t rows, cols;
  struct walk_grid from;
  double factor;
  uint32_t first;
};
static inline uint64_t walk_square_sums(uint64_t n) { return (n + WALK_SQUARES - 1) / WALK_SQUARES; }

// g is factor times what is there. m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
// p -= decay p + rate m / (sqrt(v) second + eps).
struct walk_adamw {
  uint32_t rows, cols;
  struct walk_grid p, g, m, v;
  double factor, beta1, beta2, decay, rate, second, eps;
};

// to = x + factor y + plus; y may be absent.
struct walk_blend {
  uint32_t rows, cols;
  struct walk_grid to, x, y;
  float factor, plus;
};

// What computes a walk on a backend.
struct walk_functions {
  void (*clear)(struct walk *w, struct tensor t);
  void (*copy)(struct walk *w, struct tensor to, struct tensor from);
  void (*add)(struct walk *w, struct tensor to, struct tensor from); // to += from; `to` may be absent
  // to (1, n) += the sum of from's rows; `to` may be absent.
  void (*add_rows)(struct walk *w, struct tensor to, struct tensor from);
  // y (T, N) = x (T, K) m (N, K)^T;  y (T, K) = or, if adds, += x (T, N) m (N, K), m as it is stored;
  // y (N, K) += a (T, N)^T b (T, K)
  void (*linear)(struct walk *w, struct tensor y, struct tensor x, struct tensor m);
  void (*times)(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds);
  void (*add_outer)(struct walk *w, struct tensor y, struct tensor a, struct tensor b);
  // to (f16) = from, rounded; infinite beyond f16's range. NULL: no backend of this kind has use for it.
  void (*round)(struct walk *w, struct tensor to, struct tensor from);
  // Whether the device's products are faster with operands of f16 (cooperative matrices). NULL: never.
  bool (*rounds)(const struct backend *b);
  void (*loss)(struct walk *w, const struct loss_rows *rows);
  void (*squares)(struct walk *w, struct tensor sums, const struct walk_squares *s); // sums (N, 2): each of two parts
  void (*adamw)(struct walk *w, const struct walk_adamw *a);
  void (*blend)(struct walk *w, const struct walk_blend *b);
  uint32_t overwrites; // kinds of operations, as bits, that obey `fresh`; a glu: for both inputs or none
  // The operations, with their tensors in memory.
  void (*embed)(struct walk *w, const struct embed *op);
  void (*norm)(struct walk *w, const struct norm *op);
  void (*conv)(struct walk *w, const struct conv *op);
  void (*glu)(struct walk *w, const struct glu *op);
  void (*delta_inputs)(struct walk *w, const struct delta_inputs *op);
  void (*delta_rule)(struct walk *w, const struct delta_rule *op);
  void (*mamba2_inputs)(struct walk *w, const struct mamba2_inputs *op);
  void (*mamba2)(struct walk *w, const struct mamba2 *op);
  void (*gated_norm)(struct walk *w, const struct gated_norm *op);
  void (*rope_append)(struct walk *w, const struct rope_append *op);
  void (*attention)(struct walk *w, const struct attention *op);
};
extern const struct walk_functions backward_on_cpu, backward_on_vulkan;
const struct walk_functions *walk_functions(const struct backend *b);

// Walks the list in reverse. UNSUPPORTED for an operation that has no backward pass. On Vulkan the recorder's run
// computes it.
deltaic_status walk_back(struct walk *w);
void walk_free(struct walk *w); // the rooms; accepts a zeroed walk

// From now on the value's gradient is in this memory. False: the table is full, or the strides differ.
bool walk_place(struct walk *w, struct tensor value, struct tensor gradient);
// The f32 that a weight in f16 was rounded from; another tensor itself.
struct tensor walk_unrounded(const struct walk *w, struct tensor weight);
// Finds the product without a bias whose result is all of this value. False: there is none.
bool walk_product(const struct walk *w, struct tensor value, struct linear *out);
// The gradient of a tensor of an operation; absent if it is not wanted. A rounded weight has that of its f32.
struct tensor walk_gradient(const struct walk *w, struct tensor t);
// Whether the operation's functions overwrite the gradient of its tensor k instead of adding to it.
static inline bool walk_is_fresh(const struct walk *w, uint32_t k) { return w->fresh >> k & 1; }
// The state before the call; absent if it was zero.
struct tensor walk_before(const struct walk *w, struct tensor t);
// Before an operation's backward pass: its rooms are free.
static inline void walk_begin(struct walk *w) {
  w->used = 0;
  w->unrounded.buffer = NULL;
}
// Memory until the operation's backward pass ends, not cleared; NULL after a failure, which the walk keeps.
struct buffer *walk_room(struct walk *w, uint64_t floats);
// The same as a tensor (rows, cols) of f32, or of f16 for walk_half(), whose buffer is NULL after a failure.
struct tensor walk_tensor(struct walk *w, uint64_t rows, uint64_t cols, uint64_t stride);
struct tensor walk_half(struct walk *w, uint64_t rows, uint64_t cols); // with a stride of a multiple of 8

static inline const struct sequence *walk_sequence(const struct tensor *sequences, uint32_t s) {
  return (const struct sequence *)(const void *)((char *)sequences->buffer->mapped + sequences->offset) + s;
}
#endif
