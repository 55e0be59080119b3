// backward_cpu.h: the backward pass on the CPU, which is its specification.
#ifndef BACKWARD_CPU_H
#define BACKWARD_CPU_H
#include "backward.h"
#include "cpu_backend.h"

// walk_room(), as the host sees it.
float *back_room(struct walk *w, uint64_t floats);
// to += from; `to` may be absent
void back_add(struct walk *w, struct tensor to, struct tensor from);
// to (1, n) += the sum of the rows of `rows` arrays of n numbers, `stride` apart, in order; `to` may be absent.
void back_add_rows(struct walk *w, struct tensor to, const float *from, uint64_t rows, uint64_t stride);
// x (T, N) times matrix (N, K), as it is stored; and (N, K): a (T, N) transposed times b (T, K). Their memory is the
// walk's.
struct tensor back_times(struct walk *w, struct tensor x, struct tensor matrix);
struct tensor back_outer(struct walk *w, struct tensor a, struct tensor b);

// Slope of an activation.
float activation_slope(enum activation activation, float z);

void backward_loss(struct walk *w, const struct loss_rows *rows);
void backward_squares(struct walk *w, struct tensor sums, const struct walk_squares *s);
void backward_adamw(struct walk *w, const struct walk_adamw *a);
void backward_blend(struct walk *w, const struct walk_blend *b);
void backward_norm(struct walk *w, const struct norm *op);
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
