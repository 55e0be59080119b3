// block: see block.h. Old checkpoints keep gate and up in one matrix [2F, D]: the same rows as ours.
#include "block.h"

struct tensor scratch_take_bytes(struct scratch *s, uint64_t bytes) {
  struct tensor t = {.dtype = DTYPE_F32, .rows = 1, .buffer = s->buffer, .offset = s->used};
  t.cols = t.stride = (uint32_t)((bytes + 3) / 4);
  s->used += round_up(bytes ? bytes : 1, TENSOR_ALIGN);
  if (bytes > s->largest) s->largest = bytes;
  return t;
}

struct tensor scratch_take(struct scratch *s, uint32_t rows, uint32_t cols) {
  struct tensor t = scratch_take_bytes(s, (uint64_t)rows * cols * sizeof(float));
  t.rows = rows;
  t.cols = t.stride = cols;
  return t;
}

void state_add(struct arena *arena, struct tensor *out, enum dtype dtype, const struct state_shape *shape,
               uint64_t cols) {
  arena_add(arena, out, dtype, shape->sequences, cols, round_up(cols, TENSOR_ALIGN / dtype_bytes(dtype)));
}

void block_bind(const struct model_spec *m, uint32_t layer, struct weights *w, struct block_weights *b) {
  struct weight_part norm = {weights_get(w, layer, m->names->mixer_norm, m->D, 0), 0, m->D, 0};
  weights_vector(w, &b->mixer_norm, &norm, 1);
  if (!m->F) return;
  norm.source = weights_get(w, layer, "mlp_norm.weight", m->D, 0);
  weights_vector(w, &b->mlp_norm, &norm, 1);
  struct weight_part mlp[2] = {{0}};
  if (weights_find(w, layer, "mlp.up_proj.weight")) {
    mlp[0] = (struct weight_part){weights_get(w, layer, "mlp.gate_proj.weight", m->F, m->D), 0, m->F, 0};
    mlp[1] = (struct weight_part){weights_get(w, layer, "mlp.up_proj.weight", m->F, m->D), 0, m->F, 0};
  } else {
    mlp[0] = (struct weight_part){weights_get(w, layer, "mlp.gate_proj.weight", 2ull * m->F, m->D), 0, 2 * m->F, 0};
  }
  weights_matrix(w, &b->gate_up, m->D, mlp, 2);
  struct weight_part down = {weights_get(w, layer, "mlp.down_proj.weight", m->D, m->F), 0, m->D, 0};
  weights_matrix(w, &b->down, m->F, &down, 1);
}

struct block_scratch {
  struct tensor gate_up, act; // (T, 2F), (T, F)
};

static struct block_scratch take_mlp(const struct model_spec *m, struct scratch *s, uint32_t T) {
  struct block_scratch b;
  b.gate_up = scratch_take(s, T, 2 * m->F);
  b.act = scratch_take(s, T, m->F);
  return b;
}

void block_scratch(const struct model_spec *m, const struct layer_spec *layer, const void *mixer_weights,
                   struct backend *b, struct scratch *measure, uint32_t T, uint32_t B) {
  struct scratch mlp = *measure;
  layer->mixer->scratch(layer->spec, mixer_weights, b, measure, T, B);
  if (m->F) take_mlp(m, &mlp, T); // in the same place
  if (mlp.used > measure->used) measure->used = mlp.used;
  if (mlp.largest > measure->largest) measure->largest = mlp.largest;
}

struct linear_input block_norm(struct call *call, struct tensor x, struct tensor weight, float eps) {
  return (struct linear_input){.x = x, .weight = weight, .h = call->h, .eps = eps, .ahead = &call->ahead};
}

void block_forward(const struct model_spec *m, const struct layer_spec *layer, const struct block_weights *b,
                   const void *mixer_weights, const void *state, struct call *call, struct tensor x,
                   const struct linear_input *after) {
  struct recorder *c = call->c;
  const struct ops *op = c->ops;
  const struct tensor none = {0};
  const uint64_t before = call->scratch.used;

  struct linear_input in = block_norm(call, x, b->mixer_norm, m->norm_eps);
  const struct linear_input mlp = block_norm(call, x, b->mlp_norm, m->mlp_norm_eps);
  call->next = call->probe ? NULL : m->F ? &mlp : after;
  if (call->probe) { // who looks sees the norm and finds x without the mixer's part
    op->rmsnorm(c, call->h, x, b->mixer_norm, none, m->norm_eps);
    in = (struct linear_input){.x = call->h};
    probe_tensor(call->probe, c, DELTAIC_PROBE_RESIDUAL, x, x.rows, x.cols);
    probe_tensor(call->probe, c, DELTAIC_PROBE_MIXER_INPUT, call->h, x.rows, x.cols);
    probe_output_begin(call->probe, c, x);
  }
  layer->mixer->forward(layer->spec, mixer_weights, state, call, x, in);
  if (call->probe) probe_output_end(call->probe, c, x);
  call->scratch.used = before;
  if (!m->F) return;

  struct block_scratch s = take_mlp(m, &call->scratch, call->T);
  s.act = tensor_as(s.act, op->input_dtype(c, b->down, call->T));
  op->linear_gated(c, s.act, s.gate_up, mlp, b->gate_up, m->mlp);
  op->linear_residual(c, x, (struct linear_input){.x = s.act}, b->down, none, call->probe ? NULL : after);
  call->scratch.used = before;
}
