// match.h: which operations the joining rules match (lower.c), from operation i of a list on.
#ifndef MATCH_H
#define MATCH_H
#include "oplist.h"

static inline bool is_kind(const struct oplist *l, uint32_t i, enum op_kind kind) {
  return i < l->count && l->ops[i].kind == kind;
}
static inline bool op_reads(const struct op *op, struct tensor t) {
  for (uint32_t k = op_shapes[op->kind].writes; k < op_tensors(op->kind); k++)
    if (same_value(op->t[k], t)) return true;
  return false;
}
// Whether operation `reader` is the only reader of the first output of operation i, and reads all of it.
static inline bool only_for(const struct oplist *l, uint32_t i, uint32_t reader) {
  return oplist_reader(l, l->ops[i].t[0], i) == reader;
}
static inline bool same_place(struct tensor a, struct tensor b) { return a.buffer == b.buffer && a.offset == b.offset; }

// Whether operation i is a norm that only the product after it reads.
bool is_input_norm(const struct oplist *l, uint32_t i);
// Whether operation i + 1 gates the second half of product i (linear or experts) by its first half and nothing else
// reads the product.
bool gates_halves(const struct oplist *l, uint32_t i);
// Whether operations i ... i + 3 are two products, their sum, and the sum of that, as z, and another tensor, and
// nothing else reads the products and their sum.
bool sums_products(const struct oplist *l, uint32_t i);

// Operations of single tokens. How many match, or 0.
uint32_t match_delta_step(const struct oplist *l, uint32_t i);  // delta_inputs, delta_rule, gated_norm or not
uint32_t match_mamba2_step(const struct oplist *l, uint32_t i); // mamba2_inputs, mamba2, gated_norm or not
struct attention_match { // gated_norm if `norm`, rope_append, attention, glu if `gate`
  uint32_t count;
  bool norm, gate;
};
struct attention_match match_attention_step(const struct oplist *l, uint32_t i);
#endif
