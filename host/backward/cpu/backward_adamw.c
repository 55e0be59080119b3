// backward_adamw: what a trainer computes with gradients and weights: sums of squares, steps of AdamW, and sums of
// numbers that lie anywhere.
#include "backward_cpu.h"

enum { SOME = 1 << 14 }; // numbers of a task

static float *place(const struct walk_grid *g, uint32_t cols, uint64_t e) {
  return (float *)g->buffer->mapped + g->at + e / cols * g->row + e % cols * g->col;
}

// ---------------------------------------------------------------- squares

struct squares_call {
  struct tensor sums;
  const struct walk_squares *s;
};

// A sum in f64, as its f32 and what this lacks.
static void sum_block(void *context, uint64_t index, uint32_t worker) {
  const struct squares_call *c = context;
  const struct walk_squares *s = c->s;
  const uint64_t n = (uint64_t)s->rows * s->cols, begin = index * WALK_SQUARES;
  double sum = 0;
  (void)worker;
  for (uint64_t e = begin; e < n && e < begin + WALK_SQUARES; e++) {
    const double x = s->factor * *place(&s->from, s->cols, e);
    sum += x * x;
  }
  float *to = f32_row(&c->sums, s->first + index);
  to[0] = (float)sum;
  to[1] = isfinite(to[0]) ? (float)(sum - to[0]) : 0;
}

void backward_squares(struct walk *w, struct tensor sums, const struct walk_squares *s) {
  const uint64_t n = (uint64_t)s->rows * s->cols;
  if (!w->status) cpu_parallel(w->c, walk_square_sums(n), 2 * n, sum_block, &(struct squares_call){sums, s});
}

// ---------------------------------------------------------------- AdamW

static void step_some(void *context, uint64_t index, uint32_t worker) {
  const struct walk_adamw *a = context;
  const uint64_t n = (uint64_t)a->rows * a->cols, begin = index * SOME;
  (void)worker;
  for (uint64_t e = begin; e < n && e < begin + SOME; e++) {
    float *p = place(&a->p, a->cols, e), *m = place(&a->m, a->cols, e), *v = place(&a->v, a->cols, e);
    const double g = a->factor * *place(&a->g, a->cols, e);
    const double first = a->beta1 * *m + (1 - a->beta1) * g, second = a->beta2 * *v + (1 - a->beta2) * g * g;
    *m = (float)first;
    *v = (float)second;
    *p = (float)(*p * (1 - a->decay) - a->rate * first / (sqrt(second) * a->second + a->eps));
  }
}

void backward_adamw(struct walk *w, const struct walk_adamw *a) {
  const uint64_t n = (uint64_t)a->rows * a->cols;
  if (!w->status) cpu_parallel(w->c, (n + SOME - 1) / SOME, 20 * n, step_some, (void *)a);
}

// ---------------------------------------------------------------- sums

static void blend_some(void *context, uint64_t index, uint32_t worker) {
  const struct walk_blend *b = context;
  const uint64_t n = (uint64_t)b->rows * b->cols, begin = index * SOME;
  (void)worker;
  for (uint64_t e = begin; e < n && e < begin + SOME; e++) {
    float sum = *place(&b->x, b->cols, e) + b->plus;
    if (b->y.buffer) sum += b->factor * *place(&b->y, b->cols, e);
    *place(&b->to, b->cols, e) = sum;
  }
}

void backward_blend(struct walk *w, const struct walk_blend *b) {
  const uint64_t n = (uint64_t)b->rows * b->cols;
  if (!w->status) cpu_parallel(w->c, (n + SOME - 1) / SOME, 3 * n, blend_some, (void *)b);
}
