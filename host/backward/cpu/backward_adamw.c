// backward_adamw: what a trainer computes with gradients and weights: sums of squares, steps of AdamW, and sums of
// numbers that lie anywhere.
#include "backward_cpu.h"

enum { SOME = 1 << 14 }; // numbers of a task

// Numbers e ... e + n - 1 of a grid of `cols` columns, which are in one row: its elements, `step` apart.
struct run {
  float *at;
  size_t step;
};

static struct run run_at(const struct walk_grid *g, uint32_t cols, uint64_t e) {
  const uint64_t row = e / cols, at = g->at + row * g->row + (e - row * cols) * g->col;
  return (struct run){g->buffer ? (float *)g->buffer->mapped + at : NULL, g->col};
}

// As many numbers from e on as are in its row and before `end`.
static uint32_t run_length(uint32_t cols, uint64_t e, uint64_t end) {
  const uint64_t left = cols - e % cols;
  return (uint32_t)(left < end - e ? left : end - e);
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
  const uint64_t all = (uint64_t)s->rows * s->cols, begin = index * WALK_SQUARES;
  const uint64_t end = all < begin + WALK_SQUARES ? all : begin + WALK_SQUARES;
  double sum = 0;
  (void)worker;
  for (uint64_t e = begin, n; e < end; e += n) {
    const struct run from = run_at(&s->from, s->cols, e);
    n = run_length(s->cols, e, end);
    for (uint64_t i = 0; i < n; i++) {
      const double x = s->factor * (double)from.at[i * from.step];
      sum += x * x;
    }
  }
  float *to = f32_row(&c->sums, s->first + index);
  to[0] = (float)sum;
  to[1] = isfinite(to[0]) ? (float)(sum - (double)to[0]) : 0;
}

void backward_squares(struct walk *w, struct tensor sums, const struct walk_squares *s) {
  const uint64_t n = (uint64_t)s->rows * s->cols;
  if (!w->status) cpu_parallel(w->c, walk_square_sums(n), 2 * n, sum_block, &(struct squares_call){sums, s});
}

// ---------------------------------------------------------------- AdamW

static inline void step_one(const struct walk_adamw *a, float *p, float gradient, float *m, float *v) {
  const double g = a->factor * (double)gradient;
  const double first = a->beta1 * (double)*m + (1 - a->beta1) * g;
  const double second = a->beta2 * (double)*v + (1 - a->beta2) * g * g;
  *m = (float)first;
  *v = (float)second;
  *p = (float)((double)*p * (1 - a->decay) - a->rate * first / (sqrt(second) * a->second + a->eps));
}

static void step_some(void *context, uint64_t index, uint32_t worker) {
  const struct walk_adamw *a = context;
  const uint64_t all = (uint64_t)a->rows * a->cols, begin = index * SOME;
  const uint64_t end = all < begin + SOME ? all : begin + SOME;
  (void)worker;
  for (uint64_t e = begin, n; e < end; e += n) {
    const struct run p = run_at(&a->p, a->cols, e), g = run_at(&a->g, a->cols, e), m = run_at(&a->m, a->cols, e),
                     v = run_at(&a->v, a->cols, e);
    n = run_length(a->cols, e, end);
    if (p.step == 1 && g.step == 1 && m.step == 1 && v.step == 1)
      for (uint64_t i = 0; i < n; i++) step_one(a, p.at + i, g.at[i], m.at + i, v.at + i);
    else
      for (uint64_t i = 0; i < n; i++)
        step_one(a, p.at + i * p.step, g.at[i * g.step], m.at + i * m.step, v.at + i * v.step);
  }
}

void backward_adamw(struct walk *w, const struct walk_adamw *a) {
  const uint64_t n = (uint64_t)a->rows * a->cols;
  if (!w->status) cpu_parallel(w->c, (n + SOME - 1) / SOME, 20 * n, step_some, (void *)a);
}

// ---------------------------------------------------------------- sums

static void blend_some(void *context, uint64_t index, uint32_t worker) {
  const struct walk_blend *b = context;
  const uint64_t all = (uint64_t)b->rows * b->cols, begin = index * SOME;
  const uint64_t end = all < begin + SOME ? all : begin + SOME;
  (void)worker;
  for (uint64_t e = begin, n; e < end; e += n) {
    const struct run to = run_at(&b->to, b->cols, e), x = run_at(&b->x, b->cols, e), y = run_at(&b->y, b->cols, e);
    n = run_length(b->cols, e, end);
    for (uint64_t i = 0; i < n; i++) {
      const float sum = x.at[i * x.step] + b->plus;
      to.at[i * to.step] = y.at ? sum + b->factor * y.at[i * y.step] : sum;
    }
  }
}

void backward_blend(struct walk *w, const struct walk_blend *b) {
  const uint64_t n = (uint64_t)b->rows * b->cols;
  if (!w->status) cpu_parallel(w->c, (n + SOME - 1) / SOME, 3 * n, blend_some, (void *)b);
}
