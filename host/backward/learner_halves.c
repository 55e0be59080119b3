// learner_halves: copies of matrices in f16, for cooperative matrices. The weights stay in f32, since training changes
// them by less than f16 resolves.
#include "learner_inside.h"

#include <stdlib.h>

static bool is_rounded(struct tensor m) { return m.buffer && m.dtype == DTYPE_F32 && !m.wide && !m.mixed; }

// Adds a copy at a byte offset.
static deltaic_status add(struct learner *l, struct tensor m, uint64_t *offset) {
  if (l->walk.half_count == l->half_capacity) {
    const size_t capacity = 2 * l->half_capacity + 8;
    struct weight_half *grown = realloc(l->half, capacity * sizeof *grown);
    if (!grown) return fail_memory("matrices in f16", capacity * sizeof *grown);
    l->walk.halves = l->half = grown;
    l->half_capacity = capacity;
  }
  struct tensor half = m;
  half.dtype = DTYPE_F16;
  half.stride = (uint32_t)round_up(m.cols, 8);
  half.buffer = &l->halves;
  half.offset = *offset;
  *offset += round_up((uint64_t)half.rows * half.stride * 2, TENSOR_ALIGN);
  l->half[l->walk.half_count++] = (struct weight_half){half, m};
  return DELTAIC_OK;
}

deltaic_status learner_halves_choose(struct learner *l) {
  uint64_t bytes = 0;
  deltaic_status status = DELTAIC_OK;
  l->walk.half_count = 0;
  for (size_t i = 0; l->fast && i < l->list.count && !status; i++) {
    struct op *op = &l->list.ops[i];
    // A forward pass on cooperative matrices adds most of a fast gradient's error (docs/backward.md).
    if (op->kind == OP_DELTA_RULE && l->pass != PASS_WALK) l->list.form = DELTA_F32;
    if (op->kind != OP_LINEAR || !is_rounded(op->linear.w)) continue;
    status = add(l, op->linear.w, &bytes);
    if (!status) op->linear.w = l->half[l->walk.half_count - 1].half;
  }
  return status ? status : learner_room(l, &l->halves, bytes, "matrices in f16");
}

void learner_halves_make(struct learner *l) {
  for (size_t i = 0; i < l->walk.half_count; i++) l->walk.functions->round(&l->walk, l->half[i].half, l->half[i].from);
}

struct tensor learner_halved(struct learner *of, struct walk *w, struct tensor m) {
  uint64_t bytes = 0;
  of->walk.half_count = 0;
  if (w->status || !of->fast || !is_rounded(m)) return m;
  w->status = add(of, m, &bytes);
  if (!w->status) w->status = learner_room(of, &of->halves, bytes, "matrices in f16");
  if (w->status) return m;
  w->functions->round(w, of->half[0].half, m);
  return of->half[0].half;
}
