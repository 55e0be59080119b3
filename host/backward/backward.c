// backward: goes over a list in reverse and calls the backward pass of each operation.
#include "backward.h"

static void backward(struct walk *w, const struct op *op) {
  switch (op->kind) {
  case OP_EMBED: backward_embed(w, &op->embed); break;
  case OP_NORM: backward_norm(w, &op->norm); break;
  case OP_LINEAR: backward_linear(w, &op->linear); break;
  case OP_ADD:
    walk_add(w, walk_gradient(w, op->add.x), walk_gradient(w, op->add.y));
    walk_add(w, walk_gradient(w, op->add.z), walk_gradient(w, op->add.y));
    break;
  case OP_CONV: backward_conv(w, &op->conv); break;
  case OP_GLU: backward_glu(w, &op->glu); break;
  case OP_DELTA_INPUTS: backward_delta_inputs(w, &op->delta_inputs); break;
  case OP_DELTA_RULE: backward_delta_rule(w, &op->delta_rule); break;
  case OP_MAMBA2_INPUTS: backward_mamba2_inputs(w, &op->mamba2_inputs); break;
  case OP_MAMBA2: backward_mamba2(w, &op->mamba2); break;
  case OP_GATED_NORM: backward_gated_norm(w, &op->gated_norm); break;
  case OP_ROPE_APPEND: backward_rope_append(w, &op->rope_append); break;
  case OP_ATTENTION: backward_attention(w, &op->attention); break;
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
