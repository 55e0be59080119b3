// ops_cpu_short: the ops of the CPU backend that are short loops over rows.
#include "ops_cpu.h"

float cpu_activate(enum activation activation, float z) {
  switch (activation) {
  case ACTIVATION_IDENTITY: return z;
  case ACTIVATION_SILU: return silu(z);
  case ACTIVATION_RELU: return z > 0 ? z : 0;
  case ACTIVATION_ELU1: return z > 0 ? z + 1 : expf(z);
  case ACTIVATION_POWLU: return z > 0 ? powf(z, 3 / (sqrtf(z) + 1)) * sigmoid(z) : silu(z);
  }
  return z;
}

struct embed_call {
  struct tensor x, table, tokens;
};

static void embed_row(void *context, uint64_t t, uint32_t worker) {
  const struct embed_call *e = context;
  (void)worker;
  uint32_t id = (uint32_t)((const int32_t *)tensor_row(&e->tokens, 0))[t];
  assert(id < e->table.rows);
  dtype_decode(e->table.dtype, tensor_row(&e->table, id), 0, e->x.cols, f32_row(&e->x, t));
}

void cpu_embed(struct recorder *c, struct tensor x, struct tensor table, struct tensor tokens) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)x.rows * x.cols;
  cpu_parallel(c, x.rows, n, embed_row, &(struct embed_call){x, table, tokens});
  cpu_end(c, "embed", dtype_name(table.dtype), 4 * n + dtype_bytes(table.dtype, n), 0);
}

void cpu_mark(struct recorder *c, struct tensor seen, struct tensor tokens, struct tensor sequences) {
  if (!cpu_begin(c)) return;
  const int32_t *ids = tensor_row(&tokens, 0);
  uint64_t n = 0;
  for (uint32_t s = 0; s < sequences.rows; s++) {
    const struct sequence *q = sequence_at(&sequences, s);
    uint32_t *bits = tensor_row(&seen, q->slot);
    for (uint32_t t = q->row; t < q->row + q->T; t++) bits[ids[t] / 32] |= 1u << ids[t] % 32;
    n += q->T;
  }
  cpu_end(c, "mark", NULL, 12 * n, 0);
}

struct rmsnorm_call {
  struct tensor y, x, weight, last;
  float eps;
};

static void rmsnorm_row(void *context, uint64_t t, uint32_t worker) {
  const struct rmsnorm_call *n = context;
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

void cpu_rmsnorm(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor last,
                 float eps) {
  if (!cpu_begin(c)) return;
  uint64_t rows = last.buffer ? last.rows : x.rows, n = rows * x.cols;
  cpu_parallel(c, rows, 4 * n, rmsnorm_row, &(struct rmsnorm_call){y, x, weight, last, eps});
  cpu_end(c, "rmsnorm", NULL, 8 * n + 4 * (uint64_t)x.cols, 4 * n);
}

struct conv_call {
  struct tensor y, x, weight, bias, history;
  struct conv_args a;
  const struct sequence *q;
};

// Input of the token `back` before the call's token t, from the call or from the history.
static const float *conv_input(const struct conv_call *v, uint32_t t, uint32_t back) {
  uint32_t old = v->a.W - 1;
  if (back <= t) return f32_row(&v->x, v->q->row + t - back);
  return f32_row(&v->history, v->q->slot) + (uint64_t)(old + t - back) * v->a.C;
}

static void conv_row(void *context, uint64_t t, uint32_t worker) {
  const struct conv_call *v = context;
  (void)worker;
  uint32_t W = v->a.W, C = v->a.C;
  float *restrict y = f32_row(&v->y, v->q->row + t);
  const float *bias = v->bias.buffer ? f32_row(&v->bias, 0) : NULL;
  for (uint32_t c = 0; c < C; c++) y[c] = bias ? bias[c] : 0;
  for (uint32_t w = 0; w < W; w++) {
    const float *restrict weight = f32_row(&v->weight, w), *restrict x = conv_input(v, (uint32_t)t, W - 1 - w);
    for (uint32_t c = 0; c < C; c++) y[c] += weight[c] * x[c];
  }
  for (uint32_t c = v->a.silu_from; c < C; c++) y[c] = silu(y[c]);
}

// The last W-1 inputs become the history. Row i of it is the input W-1-i before the end, so with T < W-1 rows move
// towards 0: in this order none is read after it was written.
static void conv_history(const struct conv_call *v) {
  uint32_t W = v->a.W, T = v->q->T;
  if (!T) return;
  float *history = W > 1 ? f32_row(&v->history, v->q->slot) : NULL;
  for (uint32_t i = 0; i + 1 < W; i++)
    memmove(history + (uint64_t)i * v->a.C, conv_input(v, T - 1, W - 2 - i), v->a.C * sizeof(float));
}

void cpu_short_conv(struct recorder *c, struct tensor y, struct tensor x, struct tensor weight, struct tensor bias,
                    struct tensor history, struct tensor sequences, struct conv_args a) {
  if (!cpu_begin(c)) return;
  uint64_t rows = 0;
  for (uint32_t s = 0; s < sequences.rows; s++) {
    struct conv_call v = {y, x, weight, bias, history, a, sequence_at(&sequences, s)};
    cpu_parallel(c, v.q->T, 2ull * v.q->T * a.W * a.C, conv_row, &v);
    conv_history(&v);
    rows += v.q->T;
  }
  uint64_t bytes = 4 * (2 * rows * a.C + (uint64_t)a.W * a.C + 2ull * sequences.rows * (a.W - 1) * a.C);
  cpu_end(c, "short_conv", NULL, bytes, 2 * rows * a.W * a.C);
}

struct output_norm_call {
  struct tensor o, gate, weight;
  uint32_t heads, Dv;
  float eps;
};

static void output_norm_row(void *context, uint64_t t, uint32_t worker) {
  const struct output_norm_call *n = context;
  (void)worker;
  const float *weight = n->weight.buffer ? f32_row(&n->weight, 0) : NULL;
  uint32_t step = n->weight.cols == n->Dv ? 0 : n->Dv;
  for (uint32_t h = 0; h < n->heads; h++) {
    float *o = f32_row(&n->o, t) + (uint64_t)h * n->Dv;
    const float *gate = n->gate.buffer ? f32_row(&n->gate, t) + (uint64_t)h * n->Dv : NULL;
    float r = 1 / sqrtf(cpu_dot(o, o, n->Dv) / (float)n->Dv + n->eps);
    for (uint32_t i = 0; weight && i < n->Dv; i++) o[i] = o[i] * r * weight[h * step + i];
    for (uint32_t i = 0; gate && i < n->Dv; i++) o[i] *= silu(gate[i]);
  }
}

void cpu_output_norm(struct recorder *c, struct tensor o, struct tensor gate, struct tensor weight, uint32_t heads,
                     float eps) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)o.rows * o.cols;
  cpu_parallel(c, o.rows, 8 * n, output_norm_row,
               &(struct output_norm_call){o, gate, weight, heads, o.cols / heads, eps});
  cpu_end(c, "output_norm", NULL, (gate.buffer ? 12 : 8) * n, (gate.buffer ? 8 : 4) * n);
}

struct swiglu_call {
  struct tensor y, gate_up;
  enum activation activation;
};

static void swiglu_row(void *context, uint64_t t, uint32_t worker) {
  const struct swiglu_call *g = context;
  (void)worker;
  uint32_t F = g->y.cols;
  float *y = f32_row(&g->y, t);
  const float *gate = f32_row(&g->gate_up, t), *up = gate + F;
  for (uint32_t i = 0; i < F; i++) y[i] = cpu_activate(g->activation, gate[i]) * up[i];
}

void cpu_swiglu(struct recorder *c, struct tensor y, struct tensor gate_up, enum activation activation) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)y.rows * y.cols;
  cpu_parallel(c, y.rows, 5 * n, swiglu_row, &(struct swiglu_call){y, gate_up, activation});
  cpu_end(c, "swiglu", NULL, 12 * n, 5 * n);
}

struct copy_call {
  struct tensor to, from;
  uint64_t block; // numbers of a row in one task
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

void cpu_copy(struct recorder *c, struct tensor to, struct tensor from) {
  enum { BLOCK = 1 << 16 };
  if (!cpu_begin(c)) return;
  assert(!from.buffer || (to.rows == from.rows && to.cols == from.cols));
  uint64_t n = (uint64_t)to.rows * to.cols, blocks = (to.cols + BLOCK - 1) / BLOCK;
  cpu_parallel(c, to.rows * blocks, n, copy_block, &(struct copy_call){to, from, BLOCK, blocks});
  cpu_end(c, "copy", NULL, 8 * n, 0);
}

void cpu_scatter(struct recorder *c, struct tensor to, struct tensor from, struct tensor sequences) {
  if (!cpu_begin(c)) return;
  for (uint32_t s = 0; s < sequences.rows; s++)
    memcpy(f32_row(&to, sequence_at(&sequences, s)->slot), f32_row(&from, s), from.cols * sizeof(float));
  cpu_end(c, "scatter", NULL, 8ull * sequences.rows * from.cols, 0);
}
