// backward: goes over a list in reverse and calls the backward pass of each operation.
#include "backward.h"

#include <string.h>

const struct walk_functions *walk_functions(const struct backend *b) {
  return strcmp(b->functions->name, "vulkan") ? &backward_on_cpu : &backward_on_vulkan;
}

static void linear(struct walk *w, const struct linear *op) {
  const struct tensor dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x), dw = walk_gradient(w, op->w);
  if (dx.buffer) w->functions->times(w, dx, dy, op->w, !walk_is_fresh(w, 1));
  if (dw.buffer) w->functions->add_outer(w, dw, dy, op->x);
  w->functions->add_rows(w, walk_gradient(w, op->bias), dy);
}

// stays: the term's gradient may use the memory of the sum's gradient.
static void add_to(struct walk *w, struct tensor term, struct tensor dy, bool fresh, bool stays) {
  const struct tensor to = walk_gradient(w, term);
  if (!fresh || !to.buffer)
    w->functions->add(w, to, dy);
  else if (!stays || !walk_place(w, term, dy))
    w->functions->copy(w, to, dy);
}

// The gradient of each term begins as the sum's, and nothing reads the sum's afterwards. So one term's gradient takes
// over that memory. Both terms share it if oplist_is_own_term() says so of one: the operation that wrote that term has
// read the gradient before anything is added to the other term's.
static void add(struct walk *w, const struct add *op) {
  const struct add *of = &w->list->ops[w->at].add;
  const struct tensor dy = walk_gradient(w, op->y);
  const bool fresh_x = walk_is_fresh(w, 1), fresh_z = walk_is_fresh(w, 2);
  const bool both =
      oplist_is_own_term(w->list, w->at, of->z, of->x) || oplist_is_own_term(w->list, w->at, of->x, of->z);
  add_to(w, op->x, dy, fresh_x, true);
  add_to(w, op->z, dy, fresh_z, !fresh_x || both);
}

// Whether the backward pass of an operation can overwrite the gradient of its tensor k.
static bool can_overwrite(const struct walk *w, const struct op *op, uint32_t k) {
  static const uint32_t inputs[OP_KINDS] = {
      [OP_LINEAR] = 1u << 1,     [OP_ADD] = 1u << 1 | 1u << 2,       [OP_NORM] = 1u << 1,
      [OP_CONV] = 1u << 2,       [OP_GLU] = 1u << 1 | 1u << 2,       [OP_DELTA_INPUTS] = 1u << 3,
      [OP_DELTA_RULE] = 1u << 2, [OP_GATED_NORM] = 1u << 1 | 1u << 2};
  const bool able = op->kind == OP_LINEAR || op->kind == OP_ADD || w->functions->overwrites >> op->kind & 1;
  return able && inputs[op->kind] >> k & 1;
}

static bool is_whole(const struct walk *w, struct tensor t) {
  const struct tensor whole = oplist_whole(w->list, t);
  return t.offset == 0 && t.rows == whole.rows && t.cols == whole.cols;
}

// Before the backward pass of operation i. Nothing has been added yet to the gradient of a value whose last reader is
// i, nor to that of a tile (oplist_tiles()). The pass overwrites such a gradient if it can. Otherwise it is cleared
// here. A gated unit overwrites the gradients of gate and x only if both are tiles.
static void begin_gradients(struct walk *w, uint32_t i) {
  const struct op *op = &w->list->ops[i];
  const uint32_t last = oplist_last_reads(w->list, i), tiles = oplist_tiles(w->list, i);
  const bool halves = tiles >> 1 & 1 && tiles >> 2 & 1;
  w->fresh = 0;
  for (uint32_t k = 0; (last | tiles) >> k; k++) {
    const bool tile = tiles >> k & 1, able = can_overwrite(w, op, k) && (op->kind != OP_GLU || halves);
    if (!tile && !(last >> k & 1)) continue;
    if (able && (tile || is_whole(w, op->t[k])))
      w->fresh |= 1u << k;
    else
      w->functions->clear(w,
                          walk_gradient(w, oplist_tensor(w->list, tile ? op->t[k] : oplist_whole(w->list, op->t[k]))));
  }
}

static void backward(struct walk *w, const struct op *op) {
  const struct walk_functions *f = w->functions;
  switch (op->kind) {
  case OP_EMBED: f->embed(w, &op->embed); break;
  case OP_NORM: f->norm(w, &op->norm); break;
  case OP_LINEAR: linear(w, &op->linear); break;
  case OP_ADD: add(w, &op->add); break;
  case OP_CONV: f->conv(w, &op->conv); break;
  case OP_GLU: f->glu(w, &op->glu); break;
  case OP_DELTA_INPUTS: f->delta_inputs(w, &op->delta_inputs); break;
  case OP_DELTA_RULE: f->delta_rule(w, &op->delta_rule); break;
  case OP_MAMBA2_INPUTS: f->mamba2_inputs(w, &op->mamba2_inputs); break;
  case OP_MAMBA2: f->mamba2(w, &op->mamba2); break;
  case OP_GATED_NORM: f->gated_norm(w, &op->gated_norm); break;
  case OP_ROPE_APPEND: f->rope_append(w, &op->rope_append); break;
  case OP_ATTENTION: f->attention(w, &op->attention); break;
  case OP_COPY: break; // from memory that is no value: it has no gradient
  default: w->status = fail(DELTAIC_UNSUPPORTED, "mixtures of experts have no gradients");
  }
}

deltaic_status walk_back(struct walk *w) {
  w->status = w->list->status;
  for (size_t i = w->list->count; i-- > 0 && !w->status;) {
    const struct op op = oplist_op(w->list, (uint32_t)i);
    walk_begin(w);
    w->at = (uint32_t)i;
    begin_gradients(w, w->at);
    if (!w->status) backward(w, &op);
  }
  return w->status;
}
