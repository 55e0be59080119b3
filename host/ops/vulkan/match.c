// match: which operations the joining rules match.
#include "match.h"

uint32_t match_delta_step(const struct oplist *l, uint32_t i) {
  if (l->plain || l->longest != 1 || !is_kind(l, i, OP_DELTA_INPUTS) || !is_kind(l, i + 1, OP_DELTA_RULE)) return 0;
  // The kernel does not write qkv. If qkv is not a value of the list but memory of the caller (measure_operator.c),
  // nothing in the list reads it later.
  if (l->ops[i].t[0].value && !only_for(l, i, i + 1)) return 0;
  const bool norm = is_kind(l, i + 2, OP_GATED_NORM) && only_for(l, i + 1, i + 2);
  // The kernel can norm o and then gate it, or only gate it. It cannot gate first and norm afterwards (Mamba-2's form).
  return norm && l->ops[i + 2].gated_norm.place != NORM_OF_GATED ? 3 : 2;
}

uint32_t match_mamba2_step(const struct oplist *l, uint32_t i) {
  if (l->plain || !is_kind(l, i, OP_MAMBA2_INPUTS) || !is_kind(l, i + 1, OP_MAMBA2)) return 0;
  return is_kind(l, i + 2, OP_GATED_NORM) && only_for(l, i + 1, i + 2) ? 3 : 2;
}

bool is_input_norm(const struct oplist *l, uint32_t i) {
  return is_kind(l, i, OP_NORM) && !tensor_present(l->ops[i].norm.last) && is_kind(l, i + 1, OP_LINEAR) &&
         same_value(l->ops[i + 1].linear.x, l->ops[i].norm.y) && only_for(l, i, i + 1);
}

bool gates_halves(const struct oplist *l, uint32_t i) {
  const struct tensor y = l->ops[i].t[0];
  const struct glu *g = &l->ops[i + 1].glu;
  return same_value(g->gate, y) && same_value(g->x, y) && 2 * g->y.cols == y.cols && g->gate.offset == y.offset &&
         g->x.offset == y.offset + g->y.cols * sizeof(float) && l->values[y.value - 1].last_read == i + 1;
}

bool sums_products(const struct oplist *l, uint32_t i) {
  const struct op *op = &l->ops[i];
  return is_kind(l, i, OP_LINEAR) && is_kind(l, i + 1, OP_LINEAR) && is_kind(l, i + 2, OP_ADD) &&
         is_kind(l, i + 3, OP_ADD) && same_value(op[2].add.x, op[0].linear.y) &&
         same_value(op[2].add.z, op[1].linear.y) && same_value(op[3].add.z, op[2].add.y) && only_for(l, i, i + 2) &&
         only_for(l, i + 1, i + 2) && only_for(l, i + 2, i + 3);
}

// Whether operation i norms each head of q and k, and nothing else, for the rope_append after it.
static bool norms_heads(const struct oplist *l, uint32_t i) {
  const struct gated_norm *n = &l->ops[i].gated_norm;
  const struct attention_args *a = &l->ops[i + 1].rope_append.a;
  return is_kind(l, i, OP_GATED_NORM) && is_kind(l, i + 1, OP_ROPE_APPEND) && only_for(l, i, i + 1) &&
         !tensor_present(n->gate) && n->place == NORM_FIRST && !n->from && n->groups == a->heads + a->kv_heads &&
         n->group_cols == a->d;
}

// Whether operation i + 1 gates the output of attention i by columns behind x, which are x's neighbours.
static bool gates_attention(const struct oplist *l, uint32_t i, struct tensor x) {
  const struct glu *g = &l->ops[i + 1].glu;
  return is_kind(l, i + 1, OP_GLU) && only_for(l, i, i + 1) && same_value(g->x, l->ops[i].attention.o) && x.value &&
         same_value(g->gate, x) && g->gate.stride == x.stride && g->gate.offset > x.offset;
}

struct attention_match match_attention_step(const struct oplist *l, uint32_t i) {
  struct attention_match m = {0};
  if (l->plain || l->longest != 1) return m;
  m.norm = norms_heads(l, i);
  const uint32_t rope = i + m.norm;
  const struct attention *attention = &l->ops[rope + 1].attention;
  if (!is_kind(l, rope, OP_ROPE_APPEND) || !is_kind(l, rope + 1, OP_ATTENTION) || !only_for(l, rope, rope + 1) ||
      !same_place(attention->cache_k, l->ops[rope].rope_append.cache_k))
    return m;
  const struct tensor x = m.norm ? l->ops[i].gated_norm.x : l->ops[i].rope_append.x;
  m.gate = gates_attention(l, rope + 1, x);
  m.count = 2u + m.norm + m.gate;
  return m;
}
