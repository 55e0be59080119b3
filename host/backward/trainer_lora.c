// trainer_lora: see trainer_lora.h. A matrix is computed in pieces, some rows at once.
#include "trainer_lora.h"

// Some rows of W, or of its gradient.
struct rows {
  struct walk *w;
  const struct item *x;
  uint32_t first, n;
  float s;
  struct tensor together; // (n, cols)
};

static struct tensor rows_of(struct tensor t, uint32_t first, uint32_t n) {
  t.offset += (uint64_t)first * t.stride * sizeof(float);
  t.rows = n;
  return t;
}

static void gather_part(void *user, uint32_t row, const struct learner_place *part) {
  const struct rows *r = user;
  const struct walk_grid to = grid_at(r->together, (uint64_t)row * part->cols, part->cols);
  r->w->functions->blend(r->w, &(struct walk_blend){part->rows, part->cols, to, part->gradient, {0}, 0, 0});
}

// The gradient's rows, as they are if products can read them there.
static struct tensor gradient_rows(struct rows *r) {
  const struct learner_place *p = r->x->places;
  const uint32_t cols = (uint32_t)r->x->x.cols;
  const uint64_t offset = (p->gradient.at + (uint64_t)r->first * p->gradient.row) * sizeof(float);
  if (r->x->count == 1 && p->gradient.col == 1 && p->gradient.row == cols && offset % TENSOR_ALIGN == 0)
    return (struct tensor){
        .dtype = DTYPE_F32, .rows = r->n, .cols = cols, .stride = cols, .buffer = p->gradient.buffer, .offset = offset};
  r->together = walk_tensor(r->w, r->n, cols, cols);
  if (!r->w->status) item_places(r->x, r->first, r->n, gather_part, r);
  return r->together;
}

void lora_split(struct walk *w, const struct item *x) {
  struct rows r = {.w = w, .x = x};
  w->functions->clear(w, x->dA);
  for (; r.first < x->x.rows && !w->status; r.first += r.n) {
    walk_begin(w);
    r.n = item_piece(x, r.first);
    const struct tensor dW = gradient_rows(&r);
    if (w->status) return;
    w->functions->linear(w, rows_of(x->dB, r.first, r.n), dW, x->A);
    w->functions->add_outer(w, x->dA, rows_of(x->B, r.first, r.n), dW);
  }
}

static void merge_part(void *user, uint32_t row, const struct learner_place *part) {
  const struct rows *r = user;
  const uint64_t at = (uint64_t)row * part->cols;
  const struct walk_grid base = grid_at(r->x->base, (uint64_t)r->first * part->cols + at, part->cols);
  const struct walk_grid sum = grid_at(r->together, at, part->cols);
  r->w->functions->blend(r->w, &(struct walk_blend){part->rows, part->cols, part->weight, base, sum, r->s, 0});
}

void lora_merge(struct walk *w, const struct item *x, float s) {
  struct rows r = {.w = w, .x = x, .s = s};
  for (; r.first < x->x.rows && !w->status; r.first += r.n) {
    walk_begin(w);
    r.n = item_piece(x, r.first);
    r.together = walk_tensor(w, r.n, x->x.cols, x->x.cols);
    if (w->status) return;
    w->functions->times(w, r.together, rows_of(x->B, r.first, r.n), x->A, false);
    item_places(x, r.first, r.n, merge_part, &r);
  }
}
