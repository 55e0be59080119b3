// backward_vulkan.h: the backward pass on Vulkan: one or a few dispatches for each operation, into the walk's recorder.
#ifndef BACKWARD_VULKAN_H
#define BACKWARD_VULKAN_H
#include "backward.h"
#include "backward_kernels.h"
#include "plan_back_rule.h"
#include "vulkan_backend.h"

// spec: backward_kernel_specs[id] constants; push: backward_kernels[id].push_bytes bytes.
void back_dispatch(struct walk *w, enum backward_kernel id, const uint32_t *spec, const struct binding *bindings,
                   const void *push, struct grid grid, uint64_t operations);
// Binds a gradient that is written, or added to.
struct binding back_bind(struct tensor d, bool add);
// to (1, n) += the sum over `rows` rows of `from`, which are `stride` apart, of columns first ... first + n - 1.
void back_sum_rows(struct walk *w, struct tensor to, struct tensor from, uint64_t rows, uint32_t stride,
                   uint32_t first);
// A transposed copy with zeros up to its stride, which products read.
struct tensor back_transposed(struct walk *w, struct tensor from);
// The tensor in f16, with zeros up to its stride. The last copy is kept until walk_begin(): `from` must not change
// before.
struct tensor back_rounded(struct walk *w, struct tensor from);
// y = x m^T, or y += it if adds. Products of many rows with m in f16 round x.
void back_product(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds);
// Whether both products of p's backward pass round dy to f16.
bool back_rounds(const struct walk *w, const struct linear *p);
// Products on cooperative matrices, from operands in f16. False: the plan does not use them; nothing is recorded.
//   times: y (T, K) = x (T, N) m (N, K), or += if adds;  outer: y (N, K) += a (T, N)^T b (T, K)
bool back_turned_times(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds);
bool back_turned_outer(struct walk *w, struct tensor y, struct tensor a, struct tensor b);
// Workgroups for elements in lanes along x and, folded into what every device allows, rows along y.
struct grid back_grid(uint32_t cols, uint32_t lanes, uint32_t rows, uint32_t z);

// vulkan_back_short.c
void vulkan_back_loss(struct walk *w, const struct loss_rows *rows);
void vulkan_back_embed(struct walk *w, const struct embed *op);
void vulkan_back_norm(struct walk *w, const struct norm *op);
void vulkan_back_glu(struct walk *w, const struct glu *op);
void vulkan_back_gated_norm(struct walk *w, const struct gated_norm *op);
// vulkan_back_adamw.c
void vulkan_back_squares(struct walk *w, struct tensor sums, const struct walk_squares *s);
void vulkan_back_adamw(struct walk *w, const struct walk_adamw *a);
void vulkan_back_blend(struct walk *w, const struct walk_blend *b);
// vulkan_back_mix.c
void vulkan_back_conv(struct walk *w, const struct conv *op);
void vulkan_back_delta_inputs(struct walk *w, const struct delta_inputs *op);
void vulkan_back_mamba2_inputs(struct walk *w, const struct mamba2_inputs *op);
// vulkan_back_rule.c
void vulkan_back_delta_rule(struct walk *w, const struct delta_rule *op);
void vulkan_back_mamba2(struct walk *w, const struct mamba2 *op);
// vulkan_back_chunks.c: the delta rule by chunks on cooperative matrices. False: not for this list, call or device.
bool vulkan_back_chunks(struct walk *w, const struct delta_rule *op);
void vulkan_back_chunks_planned(struct walk *w, const struct delta_rule *op, const struct plan_back_rule *p);
// vulkan_back_attention.c
void vulkan_back_rope_append(struct walk *w, const struct rope_append *op);
void vulkan_back_attention(struct walk *w, const struct attention *op);
#endif
