// backward: goes over a list in reverse and calls the backward pass of each operation.
#include "backward.h"

#include <string.h>

const struct walk_functions *walk_functions(const struct backend *b) {
  return strcmp(b->functions->name, "vulkan") ? &backward_on_cpu : &backward_on_vulkan;
}

static void linear(struct walk *w, const struct linear *op) {
  const struct tensor dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x), dw = walk_gradient(w, op->w);
  if (dx.buffer) w->functions->add_times(w, dx, dy, op->w);
  if (dw.buffer) w->functions->add_outer(w, dw, dy, op->x);
  w->functions->add_rows(w, walk_gradient(w, op->bias), dy);
}

static void add(struct walk *w, const struct add *op) {
  const struct tensor dy = walk_gradient(w, op->y);
  w->functions->add(w, walk_gradient(w, op->x), dy);
  w->functions->add(w, walk_gradient(w, op->z), dy);
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
  default: w->status = fail(DELTAIC_UNSUPPORTED, "mixtures of experts have no gradients yet");
  }
}

deltaic_status walk_back(struct walk *w) {
  w->status = w->list->status;
  for (size_t i = w->list->count; i-- > 0 && !w->status;) {
    const struct op op = oplist_op(w->list, (uint32_t)i);
    w->used = 0;
    backward(w, &op);
  }
  return w->status;
}
