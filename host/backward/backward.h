// backward.h: the gradient of one number, a loss, by every tensor that a list of operations reads (docs/backward.md).
// The list keeps all of its values (oplist.keep); a walk goes over it from its last operation to its first. Each
// operation adds to the gradients of its inputs what those of its outputs imply.
//
// dx is the gradient with respect to x, has x's shape, and all gradients are f32 and are added to: whoever begins a
// walk clears those of values. A gradient that nobody wants is an absent tensor.
//
// This is the specification of the backward pass, and what the CPU runs. The order of every sum depends on sizes alone,
// never on the number of threads.
#ifndef BACKWARD_H
#define BACKWARD_H
#include "cpu_backend.h"

// A weight and its gradient, of the same shape.
struct weight_gradient {
  const struct tensor *weight;
  struct tensor gradient; // absent: not wanted
};

enum { WALK_ROOMS = 16 };

struct walk {
  struct recorder *c; // of the CPU backend, whose last list was the walk's
  const struct oplist *list;
  struct buffer *values, *gradients; // of values: at the same places in two buffers
  // Of states: as the call left them, as it found them, and their gradients, at the same places in three buffers.
  // Before a walk the gradients are by the states after the call, after it by those before the call. `before` without
  // memory: zeros.
  struct buffer *states, *before, *state_gradients;
  const struct weight_gradient *weights;
  size_t weight_count;
  // Memory of one operation's backward pass.
  struct {
    float *data;
    uint64_t floats;
  } rooms[WALK_ROOMS];
  uint32_t used;
  struct buffer wrapped[WALK_ROOMS]; // the rooms, as buffers of tensors
  deltaic_status status;             // first error
};

// Walks the list in reverse. UNSUPPORTED for an operation that has no backward pass.
deltaic_status walk_back(struct walk *w);
void walk_free(struct walk *w); // the rooms; accepts a zeroed walk

// The gradient of a tensor of an operation; absent if it is not wanted.
struct tensor walk_gradient(const struct walk *w, struct tensor t);
// The state before the call; absent if it was zero.
struct tensor walk_before(const struct walk *w, struct tensor t);
// Memory until the operation's backward pass ends, not cleared; NULL after a failure, which the walk keeps.
float *walk_room(struct walk *w, uint64_t floats);
// The same as a tensor (rows, cols), whose buffer is NULL after a failure.
struct tensor walk_tensor(struct walk *w, uint32_t rows, uint32_t cols, uint32_t stride);
// to += from
void walk_add(struct walk *w, struct tensor to, struct tensor from);
// to (1, n) += the sum of the rows of `rows` arrays of n numbers, `stride` apart, in order.
void walk_add_rows(struct walk *w, struct tensor to, const float *from, uint64_t rows, uint64_t stride);
// y (T, N) = x (T, K) w (K, N), w as it is stored; and y (N, K) = a (T, N) transposed times b (T, K). Their memory is
// the walk's.
struct tensor walk_times(struct walk *w, struct tensor x, struct tensor matrix);
struct tensor walk_outer(struct walk *w, struct tensor a, struct tensor b);

static inline const struct sequence *walk_sequence(const struct tensor *sequences, uint32_t s) {
  return (const struct sequence *)(const void *)((char *)sequences->buffer->mapped + sequences->offset) + s;
}

// Slope of an activation.
float activation_slope(enum activation activation, float z);

// The operations, with their tensors in memory.
void backward_norm(struct walk *w, const struct norm *op);
void backward_linear(struct walk *w, const struct linear *op);
void backward_conv(struct walk *w, const struct conv *op);
void backward_glu(struct walk *w, const struct glu *op);
void backward_gated_norm(struct walk *w, const struct gated_norm *op);
void backward_embed(struct walk *w, const struct embed *op);
void backward_delta_inputs(struct walk *w, const struct delta_inputs *op);
void backward_delta_rule(struct walk *w, const struct delta_rule *op);
void backward_mamba2_inputs(struct walk *w, const struct mamba2_inputs *op);
void backward_mamba2(struct walk *w, const struct mamba2 *op);
void backward_rope_append(struct walk *w, const struct rope_append *op);
void backward_attention(struct walk *w, const struct attention *op);
#endif
