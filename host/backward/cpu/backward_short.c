// backward_short: backward passes of the operations that are short loops over rows (cpu_short.c).
#include "backward_cpu.h"

float activation_slope(enum activation activation, float z) {
  const float s = sigmoid(z), root = sqrtf(z);
  switch (activation) {
  case ACTIVATION_IDENTITY: return 1;
  case ACTIVATION_SILU: return s * (1 + z * (1 - s));
  case ACTIVATION_RELU: return z > 0;
  case ACTIVATION_ELU1: return z > 0 ? 1 : expf(z);
  case ACTIVATION_POWLU: // z^p sigmoid(z) with p = 3 / (sqrt z + 1)
    if (!(z > 0)) return s * (1 + z * (1 - s));
    return powf(z, 3 / (root + 1)) * s *
           (3 / ((root + 1) * z) - 1.5f * logf(z) / (root * (root + 1) * (root + 1)) + 1 - s);
  case ACTIVATION_SIGMOID: return s * (1 - s);
  }
  return 1;
}

// ---------------------------------------------------------------- embedding

struct embed_call {
  struct tensor dx, dtable;
  const int32_t *ids;
};

// A block of columns, for all tokens in order.
static void embed_columns(void *context, uint64_t index, uint32_t worker) {
  enum { COLUMNS = 16 };
  const struct embed_call *e = context;
  (void)worker;
  const uint32_t first = (uint32_t)index * COLUMNS, end = e->dx.cols - first < COLUMNS ? e->dx.cols : first + COLUMNS;
  for (uint32_t t = 0; t < e->dx.rows; t++)
    for (uint32_t i = first; i < end; i++) f32_row(&e->dtable, (uint32_t)e->ids[t])[i] += f32_row(&e->dx, t)[i];
}

void backward_embed(struct walk *w, const struct embed *op) {
  struct embed_call e = {walk_gradient(w, op->x), walk_gradient(w, op->table),
                         (const int32_t *)(const void *)f32_row(&op->tokens, 0)};
  if (e.dtable.buffer) cpu_parallel(w->c, (e.dx.cols + 15) / 16, (uint64_t)e.dx.rows * e.dx.cols, embed_columns, &e);
}

// ---------------------------------------------------------------- norm
// With r = (mean x^2 + eps)^-1/2, n = x r, dn = dy weight:  dx = r (dn - n mean(dn n)),  dweight = sum dy n

struct norm_call {
  struct norm o;
  struct tensor dy, dx;
  float *parts; // (T, D): dy n, which are summed over the tokens afterwards
};

static void norm_row(void *context, uint64_t t, uint32_t worker) {
  const struct norm_call *n = context;
  (void)worker;
  const uint32_t D = n->o.x.cols;
  const float *x = f32_row(&n->o.x, t), *weight = f32_row(&n->o.weight, 0), *dy = f32_row(&n->dy, t);
  float *dx = f32_row(&n->dx, t), *parts = n->parts + t * D;
  double squares = 0, dot = 0;
  for (uint32_t i = 0; i < D; i++) squares += (double)x[i] * x[i];
  const double r = 1 / sqrt(squares / D + n->o.eps);
  for (uint32_t i = 0; i < D; i++) {
    parts[i] = (float)(dy[i] * (x[i] * r));
    dot += (double)parts[i] * weight[i];
  }
  for (uint32_t i = 0; i < D; i++) dx[i] += (float)(r * ((double)dy[i] * weight[i] - x[i] * r * (dot / D)));
}

void backward_norm(struct walk *w, const struct norm *op) {
  assert(!op->last.buffer);
  const uint64_t T = op->x.rows, D = op->x.cols;
  struct norm_call n = {*op, walk_gradient(w, op->y), walk_gradient(w, op->x), back_room(w, T * D)};
  if (!n.parts) return;
  cpu_parallel(w->c, T, 10 * T * D, norm_row, &n);
  back_add_rows(w, walk_gradient(w, op->weight), n.parts, T, D);
}

// ---------------------------------------------------------------- gated unit

struct glu_call {
  struct glu o;
  struct tensor dy, dgate, dx;
};

static void glu_row(void *context, uint64_t t, uint32_t worker) {
  const struct glu_call *g = context;
  (void)worker;
  const float *gate = f32_row(&g->o.gate, t), *x = f32_row(&g->o.x, t), *dy = f32_row(&g->dy, t);
  float *dgate = f32_row(&g->dgate, t), *dx = f32_row(&g->dx, t);
  for (uint32_t i = 0; i < g->dy.cols; i++) {
    dgate[i] += dy[i] * x[i] * activation_slope(g->o.activation, gate[i]);
    dx[i] += dy[i] * cpu_activate(g->o.activation, gate[i]);
  }
}

void backward_glu(struct walk *w, const struct glu *op) {
  struct glu_call g = {*op, walk_gradient(w, op->y), walk_gradient(w, op->gate), walk_gradient(w, op->x)};
  cpu_parallel(w->c, g.dy.rows, 30ull * g.dy.rows * g.dy.cols, glu_row, &g);
}

// ---------------------------------------------------------------- gated norm
// Per group of n columns, a the normalized numbers (x, or x silu(gate) if OF_GATED):
//   FIRST: y = a r weight silu(gate);  OF_GATED: y = a r weight;  ABSENT: y = x silu(gate)

struct gated_norm_call {
  struct gated_norm o;
  struct tensor dy, dx, dgate;
  float *parts; // (T, groups * n): contributions to dweight
};

static void gated_group(const struct gated_norm_call *g, uint64_t t, uint32_t h) {
  const struct gated_norm *o = &g->o;
  const uint32_t n = o->group_cols, at = o->from + h * n;
  const bool gated = o->gate.buffer != NULL, of_gated = o->place == NORM_OF_GATED, absent = o->place == NORM_ABSENT;
  const float *x = f32_row(&o->x, t) + at, *dy = f32_row(&g->dy, t) + at;
  const float *gate = gated ? f32_row(&o->gate, t) + h * n : NULL;
  const float *weight = absent ? NULL : f32_row(&o->weight, 0) + (o->weight.cols == n ? 0 : h * n);
  float *dx = f32_row(&g->dx, t) + at, *dgate = gated ? f32_row(&g->dgate, t) + h * n : NULL;
  float *parts = g->parts + t * o->groups * n + h * n;
  double squares = 0, dot = 0;
  for (uint32_t i = 0; i < n; i++) {
    const double a = of_gated ? (double)x[i] * silu(gate[i]) : x[i];
    squares += a * a;
  }
  const double r = absent ? 1 : 1 / sqrt(squares / n + o->eps);
  for (uint32_t i = 0; i < n && !absent; i++) { // parts: dy n [silu(gate)]
    const double s = gated ? silu(gate[i]) : 1, a = x[i] * (of_gated ? s : 1) * r;
    parts[i] = (float)(dy[i] * a * (of_gated ? 1 : s));
    dot += (double)parts[i] * weight[i];
  }
  for (uint32_t i = 0; i < n; i++) {
    const double s = gated ? silu(gate[i]) : 1, slope = gated ? activation_slope(ACTIVATION_SILU, gate[i]) : 0;
    const double weighted = absent ? dy[i] : (double)dy[i] * weight[i]; // gradient of n s, or of n
    if (absent) {
      dx[i] += (float)(weighted * s);
      if (gated) dgate[i] += (float)(weighted * x[i] * slope);
    } else if (of_gated) {
      const double da = r * (weighted - x[i] * s * r * (dot / n));
      dx[i] += (float)(da * s);
      dgate[i] += (float)(da * x[i] * slope);
    } else {
      dx[i] += (float)(r * (weighted * s - x[i] * r * (dot / n)));
      if (gated) dgate[i] += (float)(weighted * x[i] * r * slope);
    }
  }
}

static void gated_norm_row(void *context, uint64_t t, uint32_t worker) {
  const struct gated_norm_call *g = context;
  (void)worker;
  const float *dy = f32_row(&g->dy, t);
  float *dx = f32_row(&g->dx, t);
  for (uint32_t h = 0; h < g->o.groups; h++) gated_group(g, t, h);
  for (uint32_t i = 0; i < g->dx.cols; i++) // the other columns were copied
    if (i < g->o.from || i >= g->o.from + g->o.groups * g->o.group_cols) dx[i] += dy[i];
}

void backward_gated_norm(struct walk *w, const struct gated_norm *op) {
  const uint64_t T = op->x.rows, width = (uint64_t)op->groups * op->group_cols;
  struct gated_norm_call g = {*op, walk_gradient(w, op->y), walk_gradient(w, op->x), walk_gradient(w, op->gate),
                              back_room(w, T * width)};
  if (!g.parts) return;
  cpu_parallel(w->c, T, 40 * T * width, gated_norm_row, &g);
  const struct tensor dweight = walk_gradient(w, op->weight);
  if (!dweight.buffer || op->place == NORM_ABSENT) return;
  // One weight for all groups: a row for each token and group.
  back_add_rows(w, dweight, g.parts, T * width / dweight.cols, dweight.cols);
}

// ---------------------------------------------------------------- convolution
// d = dy act'(sum before the activation), which is computed again; then the same filter in reverse, looking ahead.

struct conv_call {
  struct conv o;
  const struct sequence *q;
  struct tensor before, dhistory, dy, dx;
  float *d; // (T of all sequences, C)
};

// The input of the call's token t; t < 0: of the history before the call, NULL where that is zero.
static const float *conv_input(const struct conv_call *v, int64_t t) {
  if (t >= 0) return f32_row(&v->o.x, v->q->row + (uint64_t)t);
  if (!v->before.buffer) return NULL;
  return f32_row(&v->before, v->q->slot) + (uint64_t)(t + v->o.a.W - 1) * v->o.a.C;
}

static void conv_slopes(void *context, uint64_t t, uint32_t worker) {
  const struct conv_call *v = context;
  (void)worker;
  const uint32_t W = v->o.a.W, C = v->o.a.C;
  const float *dy = f32_row(&v->dy, v->q->row + t), *bias = v->o.bias.buffer ? f32_row(&v->o.bias, 0) : NULL;
  float *restrict d = v->d + (v->q->row + t) * C;
  for (uint32_t c = 0; c < C; c++) d[c] = bias ? bias[c] : 0;
  for (uint32_t j = 0; j < W; j++) {
    const float *restrict x = conv_input(v, (int64_t)t - (W - 1) + j), *restrict weight = f32_row(&v->o.weight, j);
    for (uint32_t c = 0; x && c < C; c++) d[c] += weight[c] * x[c];
  }
  for (uint32_t c = 0; c < C; c++)
    d[c] = c < v->o.a.silu_from ? dy[c] : dy[c] * activation_slope(ACTIVATION_SILU, d[c]);
}

// to += the gradient of the input of token s; s < 0: of the history before the call.
static void conv_ahead(const struct conv_call *v, int64_t s, float *restrict to) {
  const uint32_t W = v->o.a.W, C = v->o.a.C;
  for (uint32_t j = 0; j < W; j++) {
    const int64_t t = s + W - 1 - j;
    if (t < 0 || t >= v->q->T) continue;
    const float *restrict d = v->d + (v->q->row + (uint64_t)t) * C, *restrict weight = f32_row(&v->o.weight, j);
    for (uint32_t c = 0; c < C; c++) to[c] += weight[c] * d[c];
  }
}

static void conv_row(void *context, uint64_t t, uint32_t worker) {
  const struct conv_call *v = context;
  (void)worker;
  float *dx = f32_row(&v->dx, v->q->row + t);
  conv_ahead(v, (int64_t)t, dx);
  const int64_t kept = (int64_t)t - v->q->T + (v->o.a.W - 1); // its row in the history after the call
  const float *after = v->dhistory.buffer ? f32_row(&v->dhistory, v->q->slot) : NULL;
  for (uint32_t c = 0; after && kept >= 0 && c < v->o.a.C; c++) dx[c] += after[(uint64_t)kept * v->o.a.C + c];
}

// The gradient of the history before the call: of its taps, and, where the call is shorter, of the rows that stayed.
static void conv_history(const struct conv_call *v) {
  const uint32_t old = v->o.a.W - 1, C = v->o.a.C, T = v->q->T;
  if (!v->dhistory.buffer || !old || !T) return;
  float *history = f32_row(&v->dhistory, v->q->slot);
  for (uint32_t i = old; i-- > 0;) {
    if (i >= T)
      memmove(history + (uint64_t)i * C, history + (uint64_t)(i - T) * C, C * sizeof(float));
    else
      memset(history + (uint64_t)i * C, 0, C * sizeof(float));
    conv_ahead(v, (int64_t)i - old, history + (uint64_t)i * C);
  }
}

// dweight[j] += sum over the sequence's tokens of d_t x_{t - (W-1) + j}, for a block of channels.
static void conv_weight(void *context, uint64_t index, uint32_t worker) {
  enum { COLUMNS = 64 };
  const struct conv_call *v = ((void **)context)[0];
  const struct tensor *dweight = ((void **)context)[1];
  (void)worker;
  const uint32_t W = v->o.a.W, C = v->o.a.C, first = (uint32_t)index * COLUMNS;
  const uint32_t n = C - first < COLUMNS ? C - first : COLUMNS;
  for (uint32_t j = 0; j < W; j++) {
    double sum[COLUMNS] = {0};
    for (uint32_t t = 0; t < v->q->T; t++) {
      const float *x = conv_input(v, (int64_t)t - (W - 1) + j), *d = v->d + (v->q->row + (uint64_t)t) * C + first;
      for (uint32_t c = 0; x && c < n; c++) sum[c] += (double)d[c] * x[first + c];
    }
    for (uint32_t c = 0; c < n; c++) f32_row(dweight, j)[first + c] += (float)sum[c];
  }
}

void backward_conv(struct walk *w, const struct conv *op) {
  const uint64_t T = op->x.rows, C = op->a.C;
  struct tensor dweight = walk_gradient(w, op->weight);
  struct conv_call v = {
      .o = *op, .dy = walk_gradient(w, op->y), .dx = walk_gradient(w, op->x), .d = back_room(w, T * C)};
  if (!v.d) return;
  if (op->history.buffer) {
    v.before = walk_before(w, op->history);
    v.dhistory = walk_gradient(w, op->history);
  }
  for (uint32_t s = 0; s < op->sequences.rows; s++) {
    v.q = walk_sequence(&op->sequences, s);
    const uint64_t operations = (uint64_t)v.q->T * C * (2 * op->a.W + 10);
    cpu_parallel(w->c, v.q->T, operations, conv_slopes, &v);
    cpu_parallel(w->c, v.q->T, operations, conv_row, &v);
    conv_history(&v);
    if (dweight.buffer) cpu_parallel(w->c, (C + 63) / 64, operations, conv_weight, (void *[]){&v, &dweight});
  }
  back_add_rows(w, walk_gradient(w, op->bias), v.d, T, C);
}
