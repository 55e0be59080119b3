// vulkan_back_attention: rotary positions and softmax attention. The call begins its sequences, so all keys and values
// are rows of this call.
#include "backward_vulkan.h"

#include "attention_back.h"
#include "rope_back.h"

#include <math.h>

// The gradients of the cached keys and values are those of y's columns: vulkan_back_attention() adds them there.
void vulkan_back_rope_append(struct walk *w, const struct rope_append *op) {
  const struct tensor dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x);
  const uint32_t lanes = vulkan_plan(w->c)->block_lanes;
  const struct rope_back_args args = {.cols = dx.cols,
                                      .heads = op->a.heads + op->a.kv_heads,
                                      .d = op->a.d,
                                      .r = op->table.buffer ? op->table.cols : 0,
                                      .dy_stride = dy.stride,
                                      .dx_stride = dx.stride,
                                      .table_stride = op->table.stride};
  const struct binding bindings[ROPE_BACK_BINDINGS] = {[ROPE_BACK_DY] = vulkan_bind(dy, dy),
                                                       [ROPE_BACK_DX] = vulkan_bind(dx, dy),
                                                       [ROPE_BACK_TABLE] = vulkan_bind(op->table, dy),
                                                       [ROPE_BACK_SEQUENCES] = vulkan_bind(op->sequences, dy)};
  back_dispatch(w, BACKWARD_rope_back, &lanes, bindings, &args,
                back_grid(dx.cols, lanes, vulkan_longest(w->c, dx), op->sequences.rows), 20ull * dx.rows * dx.cols);
}

void vulkan_back_attention(struct walk *w, const struct attention *op) {
  const struct attention_args *a = &op->a;
  const struct tensor qkv = op->qkv, d_o = walk_gradient(w, op->o), dqkv = walk_gradient(w, op->qkv);
  const struct tensor sums = walk_tensor(w, qkv.rows, 3ull * a->heads, 3ull * a->heads);
  if (!sums.buffer) return;
  for (uint32_t s = 0; s < op->sequences.rows; s++) assert(walk_sequence(&op->sequences, s)->pos == 0);
  const uint32_t lanes = min32(64, vulkan_plan(w->c)->most_lanes), longest = vulkan_longest(w->c, qkv);
  const struct attention_back_args args = {.heads = a->heads,
                                           .kv_heads = a->kv_heads,
                                           .d = a->d,
                                           .window = a->window,
                                           .qkv_stride = qkv.stride,
                                           .do_stride = d_o.stride,
                                           .dqkv_stride = dqkv.stride,
                                           .scale = 1 / sqrtf((float)a->d)};
  const struct binding bindings[ATTENTION_BACK_BINDINGS] = {[ATTENTION_BACK_QKV] = vulkan_bind(qkv, qkv),
                                                            [ATTENTION_BACK_DO] = vulkan_bind(d_o, qkv),
                                                            [ATTENTION_BACK_DQKV] = vulkan_bind(dqkv, qkv),
                                                            [ATTENTION_BACK_SUMS] = vulkan_bind(sums, qkv),
                                                            [ATTENTION_BACK_SEQUENCES] =
                                                                vulkan_bind(op->sequences, qkv)};
  const uint64_t operations = 5ull * longest * qkv.rows * a->heads * a->d;
  back_dispatch(w, BACKWARD_attention_back_queries, &lanes, bindings, &args,
                (struct grid){longest, a->heads, op->sequences.rows}, operations);
  back_dispatch(w, BACKWARD_attention_back_keys, &lanes, bindings, &args,
                (struct grid){longest, a->kv_heads, op->sequences.rows}, operations);
}
