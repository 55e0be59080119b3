// cpu_short: the operations of the CPU backend that are short loops over rows.
#include "cpu_backend.h"

float cpu_activate(enum activation activation, float z) {
  switch (activation) {
  case ACTIVATION_IDENTITY: return z;
  case ACTIVATION_SILU: return silu(z);
  case ACTIVATION_RELU: return z > 0 ? z : 0;
  case ACTIVATION_ELU1: return z > 0 ? z + 1 : expf(z);
  case ACTIVATION_POWLU: return z > 0 ? powf(z, 3 / (sqrtf(z) + 1)) * sigmoid(z) : silu(z);
  case ACTIVATION_SIGMOID: return sigmoid(z);
  }
  return z;
}

// Products go to an array that nothing else shares: only then the loop becomes one of vectors when y is z or x.
CPU_CLONES static void silu_times(float *y, const float *z, const float *x, uint32_t n) {
  float products[256];
  for (uint32_t first = 0; first < n; first += 256) {
    const uint32_t end = n - first < 256 ? n - first : 256;
    for (uint32_t i = 0; i < end; i++) products[i] = silu(z[first + i]) * x[first + i];
    memcpy(y + first, products, end * sizeof(float));
  }
}

void cpu_silu(float *y, const float *z, const float *x, uint32_t n) { silu_times(y, z, x, n); }

static void embed_row(void *context, uint64_t t, uint32_t worker) {
  const struct embed *e = context;
  (void)worker;
  uint32_t id = (uint32_t)((const int32_t *)tensor_row(&e->tokens, 0))[t];
  assert(id < e->table.rows);
  dtype_decode(e->table.dtype, tensor_row(&e->table, id), 0, e->x.cols, f32_row(&e->x, t));
}

void cpu_embed(struct recorder *c, const struct embed *e) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)e->x.rows * e->x.cols;
  cpu_parallel(c, e->x.rows, n, embed_row, (void *)e);
  cpu_end(c, "embed", dtype_name(e->table.dtype), 4 * n + dtype_bytes(e->table.dtype, n), 0);
}

void cpu_mark(struct recorder *c, const struct mark *m) {
  if (!cpu_begin(c)) return;
  const int32_t *ids = tensor_row(&m->tokens, 0);
  uint64_t n = 0;
  for (uint32_t s = 0; s < m->sequences.rows; s++) {
    const struct sequence *q = sequence_at(&m->sequences, s);
    uint32_t *bits = tensor_row(&m->seen, q->slot);
    for (uint32_t t = q->row; t < q->row + q->T; t++) bits[ids[t] / 32] |= 1u << ids[t] % 32;
    n += q->T;
  }
  cpu_end(c, "mark", NULL, 12 * n, 0);
}

static void norm_row(void *context, uint64_t t, uint32_t worker) {
  const struct norm *n = context;
  (void)worker;
  uint64_t from = t;
  if (n->last.buffer) {
    const struct sequence *q = sequence_at(&n->last, (uint32_t)t);
    if (!q->T) return;
    from = q->row + q->T - 1;
  }
  uint32_t D = n->x.cols;
  const float *x = f32_row(&n->x, from), *weight = f32_row(&n->weight, 0);
  float *y = f32_row(&n->y, t);
  float r = 1 / sqrtf(cpu_dot(x, x, D) / (float)D + n->eps);
  for (uint32_t i = 0; i < D; i++) y[i] = x[i] * r * weight[i];
}

void cpu_norm(struct recorder *c, const struct norm *norm) {
  if (!cpu_begin(c)) return;
  uint64_t rows = norm->last.buffer ? norm->last.rows : norm->x.rows, n = rows * norm->x.cols;
  cpu_parallel(c, rows, 4 * n, norm_row, (void *)norm);
  cpu_end(c, "norm", NULL, 8 * n + 4 * (uint64_t)norm->x.cols, 4 * n);
}

static void add_row(void *context, uint64_t t, uint32_t worker) {
  const struct add *a = context;
  (void)worker;
  const float *x = f32_row(&a->x, t), *z = f32_row(&a->z, t);
  float *y = f32_row(&a->y, t);
  for (uint32_t i = 0; i < a->y.cols; i++) y[i] = x[i] + z[i];
}

void cpu_add(struct recorder *c, const struct add *a) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)a->y.rows * a->y.cols;
  cpu_parallel(c, a->y.rows, n, add_row, (void *)a);
  cpu_end(c, "add", NULL, 12 * n, n);
}

struct conv_call {
  struct conv o;
  const struct sequence *q;
};

// Input of the token that comes `back` tokens before the call's token t, from the call or from the history.
static const float *conv_input(const struct conv_call *v, uint32_t t, uint32_t back) {
  uint32_t old = v->o.a.W - 1;
  if (back <= t) return f32_row(&v->o.x, v->q->row + t - back);
  return f32_row(&v->o.history, v->q->slot) + (uint64_t)(old + t - back) * v->o.a.C;
}

CPU_CLONES static void add_products(float *restrict y, const float *restrict weight, const float *restrict x,
                                    uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] += weight[i] * x[i];
}

CPU_CLONES static void silu_all(float *y, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) y[i] = silu(y[i]);
}

static void conv_row(void *context, uint64_t t, uint32_t worker) {
  enum { BLOCK = 1024 }; // columns that stay in the first cache
  const struct conv_call *v = context;
  (void)worker;
  uint32_t W = v->o.a.W, C = v->o.a.C;
  float *y = f32_row(&v->o.y, v->q->row + t);
  const float *bias = v->o.bias.buffer ? f32_row(&v->o.bias, 0) : NULL;
  for (uint32_t c = 0; c < C; c += BLOCK) {
    const uint32_t n = C - c < BLOCK ? C - c : BLOCK, from = v->o.a.silu_from > c ? v->o.a.silu_from - c : 0;
    for (uint32_t i = c; i < c + n; i++) y[i] = bias ? bias[i] : 0;
    for (uint32_t w = 0; w < W; w++)
      add_products(y + c, f32_row(&v->o.weight, w) + c, conv_input(v, (uint32_t)t, W - 1 - w) + c, n);
    if (from < n) silu_all(y + c + from, n - from);
  }
}

// Replaces the history by the last W-1 inputs: row i is the input W-1-i before the end. If T < W-1, rows move towards
// 0; this order reads each row before it is overwritten.
static void conv_history(const struct conv_call *v) {
  uint32_t W = v->o.a.W, T = v->q->T;
  if (!T) return;
  float *history = W > 1 ? f32_row(&v->o.history, v->q->slot) : NULL;
  for (uint32_t i = 0; i + 1 < W; i++)
    memmove(history + (uint64_t)i * v->o.a.C, conv_input(v, T - 1, W - 2 - i), v->o.a.C * sizeof(float));
}

void cpu_conv(struct recorder *c, const struct conv *conv) {
  if (!cpu_begin(c)) return;
  const struct conv_args *a = &conv->a;
  uint64_t rows = 0;
  for (uint32_t s = 0; s < conv->sequences.rows; s++) {
    struct conv_call v = {*conv, sequence_at(&conv->sequences, s)};
    cpu_parallel(c, v.q->T, 2ull * v.q->T * a->W * a->C, conv_row, &v);
    conv_history(&v);
    rows += v.q->T;
  }
  uint64_t bytes = 4 * (2 * rows * a->C + (uint64_t)a->W * a->C + 2ull * conv->sequences.rows * (a->W - 1) * a->C);
  cpu_end(c, "short_conv", NULL, bytes, 2 * rows * a->W * a->C);
}

static void gated_norm_row(void *context, uint64_t t, uint32_t worker) {
  const struct gated_norm *v = context;
  (void)worker;
  const float *weight = v->weight.buffer ? f32_row(&v->weight, 0) : NULL;
  const uint32_t n = v->group_cols, step = v->weight.cols == n ? 0 : n;
  for (uint32_t h = 0; h < v->groups; h++) {
    float *y = f32_row(&v->y, t) + v->from + (uint64_t)h * n;
    const float *gate = v->gate.buffer ? f32_row(&v->gate, t) + (uint64_t)h * n : NULL;
    if (v->place == NORM_OF_GATED) cpu_silu(y, gate, y, n);
    float r = 1 / sqrtf(cpu_dot(y, y, n) / (float)n + v->eps);
    for (uint32_t i = 0; v->place != NORM_ABSENT && i < n; i++) y[i] = y[i] * r * weight[h * step + i];
    if (v->place != NORM_OF_GATED && gate) cpu_silu(y, gate, y, n);
  }
}

void cpu_gated_norm(struct recorder *c, const struct gated_norm *norm) {
  cpu_copy_to_output(c, norm->y, norm->x);
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)norm->y.rows * norm->groups * norm->group_cols;
  cpu_parallel(c, norm->y.rows, 8 * n, gated_norm_row, (void *)norm);
  cpu_end(c, "gated_norm", NULL, (norm->gate.buffer ? 12 : 8) * n, (norm->gate.buffer ? 8 : 4) * n);
}

static void glu_row(void *context, uint64_t t, uint32_t worker) {
  const struct glu *g = context;
  (void)worker;
  float *y = f32_row(&g->y, t);
  const float *gate = f32_row(&g->gate, t), *x = f32_row(&g->x, t);
  if (g->activation == ACTIVATION_SILU)
    cpu_silu(y, gate, x, g->y.cols);
  else
    for (uint32_t i = 0; i < g->y.cols; i++) y[i] = cpu_activate(g->activation, gate[i]) * x[i];
}

void cpu_glu(struct recorder *c, const struct glu *g) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)g->y.rows * g->y.cols;
  cpu_parallel(c, g->y.rows, 5 * n, glu_row, (void *)g);
  cpu_end(c, "glu", NULL, 12 * n, 5 * n);
}

struct copy_call {
  struct tensor to, from;
  uint64_t block; // elements of a row in one task
  uint64_t blocks;
};

static void copy_block(void *context, uint64_t index, uint32_t worker) {
  const struct copy_call *p = context;
  (void)worker;
  uint64_t row = index / p->blocks, first = index % p->blocks * p->block;
  uint64_t n = p->to.cols - first < p->block ? p->to.cols - first : p->block;
  if (p->from.buffer)
    memcpy(f32_row(&p->to, row) + first, f32_row(&p->from, row) + first, n * sizeof(float));
  else
    memset(f32_row(&p->to, row) + first, 0, n * sizeof(float));
}

void cpu_copy(struct recorder *c, const struct copy *copy) {
  enum { BLOCK = 1 << 16 };
  const struct tensor to = copy->to, from = copy->from;
  if (!cpu_begin(c)) return;
  assert(!from.buffer || (to.rows == from.rows && to.cols == from.cols));
  uint64_t n = (uint64_t)to.rows * to.cols, blocks = (to.cols + BLOCK - 1) / BLOCK;
  cpu_parallel(c, to.rows * blocks, n, copy_block, &(struct copy_call){to, from, BLOCK, blocks});
  cpu_end(c, "copy", NULL, 8 * n, 0);
}

void cpu_copy_to_output(struct recorder *c, struct tensor y, struct tensor x) {
  if (y.buffer != x.buffer || y.offset != x.offset) cpu_copy(c, &(struct copy){y, x});
}

void cpu_scatter(struct recorder *c, const struct scatter *s) {
  if (!cpu_begin(c)) return;
  for (uint32_t i = 0; i < s->sequences.rows; i++)
    memcpy(f32_row(&s->to, sequence_at(&s->sequences, i)->slot), f32_row(&s->from, i), s->from.cols * sizeof(float));
  cpu_end(c, "scatter", NULL, 8ull * s->sequences.rows * s->from.cols, 0);
}
