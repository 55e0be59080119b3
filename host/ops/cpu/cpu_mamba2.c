// cpu_mamba2: Mamba-2's step sizes, its recurrence, its chunkwise form (SSD), and its gated norm (Dao and Gu 2024;
// docs/mixers.md).
//
// Per head, S (N, P); a token t has a log decay g_t, a step size dt_t, x_t (P), and B_t and C_t (N) of the head's
// group:
//   S <- e^g S + B^T (dt x);  y = C S + D x
// Heads are independent, so (sequence, head) is the unit of parallel work.
#include "cpu_backend.h"

// ---------------------------------------------------------------- inputs

static float softplus(float z) { return z > 20 ? z : log1pf(expf(z)); }

static void inputs_row(void *context, uint64_t t, uint32_t worker) {
  const struct mamba2_inputs *v = context;
  (void)worker;
  const float *raw = f32_row(&v->raw, t), *A_log = f32_row(&v->A_log, 0), *dt_bias = f32_row(&v->dt_bias, 0);
  float *dt = f32_row(&v->dt, t), *g = f32_row(&v->g, t);
  for (uint32_t j = 0; j < v->dt.cols; j++) {
    dt[j] = fminf(fmaxf(softplus(raw[j] + dt_bias[j]), v->low), v->high);
    g[j] = -expf(A_log[j]) * dt[j];
  }
}

void cpu_mamba2_inputs(struct recorder *c, const struct mamba2_inputs *in) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)in->dt.rows * in->dt.cols;
  cpu_parallel(c, in->dt.rows, 20 * n, inputs_row, (void *)in);
  cpu_end(c, "mamba2_inputs", NULL, 12 * n, 20 * n);
}

// ---------------------------------------------------------------- the recurrence

enum {
  CHUNK = 64,      // tokens of one chunk
  CHUNK_FROM = 16, // AUTO: the chunkwise form is faster from so many tokens on
  COLUMNS = 64,    // columns of S that a recurrent step keeps in registers
};

struct mamba2_call {
  struct recorder *c;
  struct mamba2 rule;
  struct tensor scratch;
  enum delta_form form;
};

// One task: head `head` of sequence q.
struct mamba2_task {
  const struct mamba2_call *m;
  const struct sequence *q;
  uint32_t head, group;
  float *S; // (N, P)
  float *B; // (N, tokens) scratch: B of a chunk, transposed
  float *V; // (tokens, P) scratch: dt x of a chunk
};

static const float *input(const struct mamba2_task *k, uint32_t t) {
  return f32_row(&k->m->rule.xBC, k->q->row + t) + (uint64_t)k->head * k->m->rule.a.P;
}
static const float *write_key(const struct mamba2_task *k, uint32_t t) {
  const struct mamba2_args *a = &k->m->rule.a;
  return f32_row(&k->m->rule.xBC, k->q->row + t) + (uint64_t)a->heads * a->P + (uint64_t)k->group * a->N;
}
static const float *read_key(const struct mamba2_task *k, uint32_t t) {
  return write_key(k, t) + (uint64_t)k->m->rule.a.groups * k->m->rule.a.N;
}
static float step_size(const struct mamba2_task *k, uint32_t t) {
  return f32_row(&k->m->rule.dt, k->q->row + t)[k->head];
}
static float log_decay(const struct mamba2_task *k, uint32_t t) {
  return f32_row(&k->m->rule.g, k->q->row + t)[k->head];
}
static float *output(const struct mamba2_task *k, uint32_t t) {
  return f32_row(&k->m->rule.y, k->q->row + t) + (uint64_t)k->head * k->m->rule.a.P;
}

// y += D x
static void add_skip(const struct mamba2_task *k, uint32_t t) {
  const struct mamba2_args *a = &k->m->rule.a;
  const float *D = f32_row(&k->m->rule.D, 0), *x = input(k, t);
  float *y = output(k, t);
  for (uint32_t p = 0; p < a->P; p++) y[p] += D[a->D_per_element ? k->head * a->P + p : k->head] * x[p];
}

// S <- decay S + B^T u, and y = C S in the same pass. u and y have `width` columns.
struct rule_step {
  const float *B, *C, *x;
  float dt, decay;
};

// S <- decay S + B^T u,  y = C S on the way. u and y are of `width` columns.
static inline __attribute__((always_inline)) void step(float *restrict y, float *restrict S, struct rule_step s,
                                                       const float *restrict u, uint32_t N, uint32_t P,
                                                       uint32_t width) {
  for (uint32_t j = 0; j < width; j++) y[j] = 0;
  for (uint32_t i = 0; i < N; i++)
    for (uint32_t j = 0; j < width; j++) {
      float new = s.decay *S[(uint64_t)i * P + j] + s.B[i] * u[j];
      S[(uint64_t)i * P + j] = new;
      y[j] += s.C[i] * new;
    }
}

// For all COLUMNS the width is a constant, so that u and y stay in registers.
CPU_CLONES static void recurrent_step(float *to, float *S, struct rule_step s, uint32_t N, uint32_t P, uint32_t width) {
  float u[COLUMNS], y[COLUMNS];
  for (uint32_t j = 0; j < width; j++) u[j] = s.dt * s.x[j];
  if (width == COLUMNS)
    step(y, S, s, u, N, P, COLUMNS);
  else
    step(y, S, s, u, N, P, width);
  memcpy(to, y, width * sizeof(float));
}

static void mamba2_recurrent(const struct mamba2_task *k) {
  const struct mamba2_args *a = &k->m->rule.a;
  for (uint32_t t = 0; t < k->q->T; t++) {
    struct rule_step s = {write_key(k, t), read_key(k, t), input(k, t), step_size(k, t), expf(log_decay(k, t))};
    for (uint32_t p = 0; p < a->P; p += COLUMNS, s.x += COLUMNS)
      recurrent_step(output(k, t) + p, k->S + p, s, a->N, a->P, a->P - p < COLUMNS ? a->P - p : COLUMNS);
    add_skip(k, t);
  }
}

// ---------------------------------------------------------------- chunkwise
// With G_t the sum of g over the chunk's tokens up to t, V the rows dt_t x_t, and S the state before the chunk:
//   y_t = e^G_t C_t S + sum_{s <= t} (C_t . B_s) e^(G_t - G_s) V_s + D x_t
//   S  <- e^G_last S + sum_s e^(G_last - G_s) B_s^T V_s
// Exponents are differences of sums in double, and only exponents <= 0 are used (as in cpu_delta.c).

struct chunk {
  uint32_t first, tokens;
  double G[CHUNK];
  float M[CHUNK * CHUNK]; // (tokens, tokens): (C_t . B_s) e^(G_t - G_s), lower triangle
};

static void chunk_load(const struct mamba2_task *k, struct chunk *c) {
  const struct mamba2_args *a = &k->m->rule.a;
  double sum = 0;
  for (uint32_t t = 0; t < c->tokens; t++) {
    const float *x = input(k, c->first + t), *B = write_key(k, c->first + t);
    float dt = step_size(k, c->first + t);
    for (uint32_t i = 0; i < a->N; i++) k->B[i * c->tokens + t] = B[i];
    for (uint32_t p = 0; p < a->P; p++) k->V[(uint64_t)t * a->P + p] = dt * x[p];
    sum += fmax(log_decay(k, c->first + t), -1e6); // differences of -inf would be NaN; e^-1e6 is 0 as well
    c->G[t] = sum;
  }
}

static void chunk_output(const struct mamba2_task *k, struct chunk *c) {
  enum { ROWS = 8 }; // rows of M that are computed and used up to the same column
  const struct mamba2_args *a = &k->m->rule.a;
  uint32_t T = c->tokens;
  size_t stride = k->m->rule.y.stride, C_stride = k->m->rule.xBC.stride;
  float *y = output(k, c->first);
  const float *C = read_key(k, c->first);
  for (uint32_t t = 0; t < T; t++) memset(y + t * stride, 0, a->P * sizeof(float));
  memset(c->M, 0, sizeof c->M);
  cpu_product(y, stride, (struct cpu_view){C, C_stride, 1, T, a->N}, k->S, a->P, a->P);
  for (uint32_t t = 0; t < T; t += ROWS) {
    uint32_t end = T - t < ROWS ? T : t + ROWS, cols = (uint32_t)round_up(end, 2 * LANES);
    cpu_product(c->M + t * T, T, (struct cpu_view){C + t * C_stride, C_stride, 1, end - t, a->N}, k->B, T,
                cols < T ? cols : T);
  }
  for (uint32_t t = 0; t < T; t++) {
    float decay = expf((float)c->G[t]);
    for (uint32_t p = 0; p < a->P; p++) y[t * stride + p] *= decay;
    for (uint32_t s = 0; s < T; s++) c->M[t * T + s] = s <= t ? c->M[t * T + s] * expf((float)(c->G[t] - c->G[s])) : 0;
  }
  for (uint32_t t = 0; t < T; t += ROWS) {
    uint32_t end = T - t < ROWS ? T : t + ROWS;
    cpu_product(y + t * stride, stride, (struct cpu_view){c->M + t * T, T, 1, end - t, end}, k->V, a->P, a->P);
  }
  for (uint32_t t = 0; t < T; t++) add_skip(k, c->first + t);
}

static void chunk_state(const struct mamba2_task *k, const struct chunk *c) {
  const struct mamba2_args *a = &k->m->rule.a;
  double last = c->G[c->tokens - 1];
  float decay = expf((float)last);
  for (uint32_t t = 0; t < c->tokens; t++) {
    float fade = expf((float)(last - c->G[t]));
    for (uint32_t p = 0; p < a->P; p++) k->V[(uint64_t)t * a->P + p] *= fade;
  }
  for (uint64_t i = 0; i < (uint64_t)a->N * a->P; i++) k->S[i] *= decay;
  cpu_product(k->S, a->P, (struct cpu_view){k->B, c->tokens, 1, a->N, c->tokens}, k->V, a->P, a->P);
}

static void mamba2_chunks(const struct mamba2_task *k) {
  struct chunk c;
  for (c.first = 0; c.first < k->q->T && !cpu_cancelled(k->m->c); c.first += c.tokens) {
    c.tokens = k->q->T - c.first < CHUNK ? k->q->T - c.first : CHUNK;
    chunk_load(k, &c);
    chunk_output(k, &c);
    chunk_state(k, &c);
  }
}

// ---------------------------------------------------------------- the operation

static bool use_chunks(enum delta_form form, uint32_t T) {
  return form == DELTA_CHUNK || (form == DELTA_AUTO && T >= CHUNK_FROM);
}

// Floats of scratch per thread.
static uint64_t worker_scratch(const struct mamba2_args *a) { return CHUNK * ((uint64_t)a->N + a->P); }

uint64_t cpu_mamba2_bytes(const struct backend *b, const struct oplist *l, const struct mamba2 *rule) {
  return use_chunks(l->form, rule->y.rows) ? cpu_threads(b) * worker_scratch(&rule->a) * sizeof(float) : 0;
}

static void mamba2_task(void *context, uint64_t index, uint32_t worker) {
  const struct mamba2_call *m = context;
  struct mamba2_task k = {.m = m, .head = (uint32_t)(index % m->rule.a.heads)};
  k.q = sequence_at(&m->rule.sequences, (uint32_t)(index / m->rule.a.heads));
  k.group = k.head / (m->rule.a.heads / m->rule.a.groups);
  k.S = f32_row(&m->rule.state, k.q->slot) + (uint64_t)k.head * m->rule.a.N * m->rule.a.P;
  if (!use_chunks(m->form, k.q->T)) {
    mamba2_recurrent(&k);
    return;
  }
  k.B = f32_row(&m->scratch, 0) + worker * worker_scratch(&m->rule.a);
  k.V = k.B + CHUNK * (uint64_t)m->rule.a.N;
  mamba2_chunks(&k);
}

void cpu_mamba2(struct recorder *c, const struct mamba2 *rule, struct tensor scratch) {
  if (!cpu_begin(c)) return;
  const struct mamba2_args *a = &rule->a;
  uint32_t longest;
  const uint64_t B = rule->sequences.rows, rows = cpu_count_rows(&rule->sequences, &longest);
  struct mamba2_call m = {.c = c,
                          .rule = *rule,
                          .scratch = scratch,

                          .form = cpu_list(c)->form};
  uint64_t size = (uint64_t)a->heads * a->N * a->P, operations = 5 * size * rows;
  cpu_parallel(c, B * a->heads, operations, mamba2_task, &m);
  cpu_end(c, use_chunks(m.form, longest) ? "mamba2_chunk" : "mamba2", NULL,
          4 * rows * (rule->xBC.cols + rule->y.cols + 2ull * a->heads) + 8 * size * B, operations);
}
