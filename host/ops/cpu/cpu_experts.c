// cpu_experts: mixtures of experts: the choice of each token's experts, the products of the chosen rows, and their sum.
#include "cpu_blocks.h"

static int32_t *i32_row(const struct tensor *t, uint64_t row) { return (int32_t *)f32_row(t, row); }

// NaNs are never larger, so that ids stay valid whatever the logits are.
static void route_row(void *context, uint64_t t, uint32_t worker) {
  const struct route *r = context;
  const float *z = f32_row(&r->logits, t);
  int32_t *ids = i32_row(&r->ids, t);
  float *weights = f32_row(&r->weights, t);
  const uint32_t k = r->ids.cols;
  (void)worker;
  for (uint32_t j = 0; j < k; j++) {
    int32_t best = -1;
    for (uint32_t e = 0; e < r->experts; e++) {
      bool taken = false;
      for (uint32_t i = 0; i < j; i++) taken |= ids[i] == (int32_t)e;
      if (!taken && (best < 0 || z[e] > z[best])) best = (int32_t)e;
    }
    ids[j] = best;
  }
  float all = 0, chosen = 0;
  for (uint32_t e = 0; e < r->experts; e++) all += expf(z[e] - z[ids[0]]);
  for (uint32_t j = 0; j < k; j++) chosen += weights[j] = expf(z[ids[j]] - z[ids[0]]);
  for (uint32_t j = 0; j < k; j++) weights[j] /= r->normalized ? chosen : all;
}

void cpu_route(struct recorder *c, const struct route *route) {
  if (!cpu_begin(c)) return;
  assert(route->ids.cols <= route->experts && route->experts <= route->logits.cols);
  const uint64_t T = route->logits.rows, operations = T * route->experts * (route->ids.cols + 8);
  cpu_parallel(c, T, operations, route_row, (void *)route);
  cpu_end(c, "route", NULL, 4 * T * (route->experts + 2ull * route->ids.cols), operations);
}

void cpu_group(struct recorder *c, const struct group *g) {
  if (!cpu_begin(c)) return;
  const uint32_t T = g->ids.rows, k = g->ids.cols, E = g->starts.cols - 1;
  int32_t *starts = i32_row(&g->starts, 0), *order = i32_row(&g->order, 0);
  memset(starts, 0, g->starts.cols * sizeof *starts);
  for (uint32_t i = 0; i < T * k; i++) starts[i32_row(&g->ids, i / k)[i % k] + 1]++;
  for (uint32_t e = 0; e < E; e++) starts[e + 1] += starts[e];
  for (uint32_t i = 0; i < T * k; i++) order[starts[i32_row(&g->ids, i / k)[i % k]]++] = (int32_t)i;
  memmove(starts + 1, starts, E * sizeof *starts); // each has moved to the next one's place
  starts[0] = 0;
  cpu_end(c, "group", NULL, 12ull * T * k, 2ull * T * k);
}

// Rows of x and of y, in the order of their experts.
static uint64_t gathered_bytes(const struct experts *e) {
  return round_up(sizeof(float) * (uint64_t)e->y.rows * (e->x.cols + (uint64_t)e->y.cols), TENSOR_ALIGN);
}

// And what a product needs, of at most all of these rows.
uint64_t cpu_experts_bytes(const struct oplist *l, const struct experts *e) {
  return gathered_bytes(e) + cpu_blocks_bytes(l, e->w.dtype, e->y.rows, e->x.cols);
}

struct experts_call {
  const struct experts *e;
  struct tensor x, y;
};

static void gather_row(void *context, uint64_t i, uint32_t worker) {
  const struct experts_call *v = context;
  const uint32_t from = (uint32_t)i32_row(&v->e->order, 0)[i], share = v->e->y.rows / v->e->x.rows;
  (void)worker;
  memcpy(f32_row(&v->x, i), f32_row(&v->e->x, from / share), v->x.cols * sizeof(float));
}

static void scatter_row(void *context, uint64_t i, uint32_t worker) {
  const struct experts_call *v = context;
  (void)worker;
  memcpy(f32_row(&v->e->y, (uint64_t)i32_row(&v->e->order, 0)[i]), f32_row(&v->y, i), v->y.cols * sizeof(float));
}

// Rows first ... first + rows - 1 of a tensor without padding.
static struct tensor rows_of(struct tensor t, uint32_t first, uint32_t rows) {
  t.offset += dtype_bytes(t.dtype, (uint64_t)first * t.stride);
  t.rows = rows;
  return t;
}

void cpu_experts(struct recorder *c, const struct experts *e, struct tensor scratch) {
  if (!cpu_begin(c)) return;
  const uint32_t R = e->y.rows, K = e->x.cols, N = e->y.cols, E = e->starts.cols - 1;
  const int32_t *starts = i32_row(&e->starts, 0);
  struct experts_call v = {.e = e, .x = scratch, .y = scratch};
  struct tensor own = scratch; // of the products
  uint64_t read = 0;
  assert(e->w.rows == (uint64_t)E * N && e->w.cols == K && R % e->x.rows == 0);
  v.x.rows = v.y.rows = R;
  v.x.cols = v.x.stride = K;
  v.y.cols = v.y.stride = N;
  v.y.offset += sizeof(float) * (uint64_t)R * K;
  own.offset += gathered_bytes(e);
  cpu_parallel(c, R, (uint64_t)R * K, gather_row, &v);
  for (uint32_t i = 0; i < E; i++) {
    const uint32_t first = (uint32_t)starts[i], rows = (uint32_t)starts[i + 1] - first;
    if (!rows) continue;
    cpu_multiply(
        c,
        &(struct linear){.y = rows_of(v.y, first, rows), .x = rows_of(v.x, first, rows), .w = rows_of(e->w, i * N, N)},
        own);
    read += N;
  }
  cpu_parallel(c, R, (uint64_t)R * N, scatter_row, &v);
  cpu_end(c, "experts", dtype_name(e->w.dtype), dtype_bytes(e->w.dtype, read * K) + 4ull * R * (K + N),
          2ull * R * K * N);
}

static void mix_row(void *context, uint64_t t, uint32_t worker) {
  const struct mix *m = context;
  const uint32_t k = m->weights.cols, D = m->y.cols;
  const float *weights = f32_row(&m->weights, t);
  float *y = f32_row(&m->y, t);
  (void)worker;
  memset(y, 0, D * sizeof *y);
  for (uint32_t j = 0; j < k; j++) {
    const float *x = f32_row(&m->x, t * k + j);
    for (uint32_t i = 0; i < D; i++) y[i] += weights[j] * x[i];
  }
  if (!m->shared.buffer) return;
  const float gate = sigmoid(f32_row(&m->logits, t)[m->gate_col]), *shared = f32_row(&m->shared, t);
  for (uint32_t i = 0; i < D; i++) y[i] += gate * shared[i];
}

void cpu_mix(struct recorder *c, const struct mix *m) {
  if (!cpu_begin(c)) return;
  const uint64_t n = (uint64_t)m->x.rows * m->x.cols;
  cpu_parallel(c, m->y.rows, 2 * n, mix_row, (void *)m);
  cpu_end(c, "mix", NULL, 4 * (n + 2ull * m->y.rows * m->y.cols), 2 * n);
}
