// cpu_delta: inputs of the delta rule, its recurrence, also with blocks, and its chunkwise form (docs/mixers.md; Yang
// et al. 2024).
//
// Per value head, S (Dk, Dv); a token t has a log decay g_t and n householder steps, each with key k, value v, strength
// beta:
//   S <- e^g S;  n times: u = beta (v - k S), S <- S + k^T u;  o = scale q S
// Columns of S are independent, so (sequence, head, block of columns) is the unit of parallel work.
#include "cpu_backend.h"
#include "cpu_state.h"

static void normalise(float *x, uint32_t n, enum key_norm norm) {
  float sum = 0;
  switch (norm) {
  case KEY_NORM_NONE: return;
  case KEY_NORM_L2: sum = sqrtf(cpu_dot(x, x, n) + 1e-6f); break;
  case KEY_NORM_SUM:
    for (uint32_t i = 0; i < n; i++) sum += x[i];
    break;
  case KEY_NORM_L1:
    for (uint32_t i = 0; i < n; i++) sum += fabsf(x[i]);
    break;
  }
  for (uint32_t i = 0; i < n; i++) x[i] = sum != 0 ? x[i] / sum : 0;
}

static float softplus(float z) { return z > 20 ? z : log1pf(expf(z)); }

static void delta_inputs_row(void *context, uint64_t t, uint32_t worker) {
  const struct delta_inputs *in = context;
  const struct delta_input_args *a = &in->a;
  (void)worker;
  for (uint32_t h = 0; h < a->heads; h++) {
    float *x = f32_row(&in->y, t) + (uint64_t)h * a->Dk;
    if (a->activation != ACTIVATION_IDENTITY)
      for (uint32_t i = 0; i < a->Dk; i++) x[i] = cpu_activate(a->activation, x[i]);
    normalise(x, a->Dk, a->norm);
  }
  const float *ba = in->ba.buffer ? f32_row(&in->ba, t) : NULL;
  float *beta = f32_row(&in->beta, t);
  for (uint32_t j = 0; j < a->betas; j++) beta[j] = a->has_beta ? a->beta_scale * sigmoid(ba[j]) : a->beta_scale;
  if (!a->gated) return;
  const float *A_log = f32_row(&in->A_log, 0), *dt_bias = f32_row(&in->dt_bias, 0);
  const float *decay = ba + (a->has_beta ? a->betas : 0);
  float *g = f32_row(&in->g, t);
  for (uint32_t j = 0; j < a->decays; j++) g[j] = -expf(A_log[j]) * softplus(decay[j] + dt_bias[j]);
}

void cpu_delta_inputs(struct recorder *c, const struct delta_inputs *in) {
  cpu_copy_to_output(c, in->y, in->x);
  if (!cpu_begin(c)) return;
  const struct delta_input_args *a = &in->a;
  const uint64_t rows = in->y.rows, n = rows * a->heads * a->Dk, gates = a->betas + (a->gated ? a->decays : 0u);
  cpu_parallel(c, rows, 4 * n, delta_inputs_row, (void *)in);
  cpu_end(c, "delta_inputs", NULL, 8 * (n + rows * gates), 4 * n);
}

// ---------------------------------------------------------------- the rule

// One call.
struct delta_call {
  struct recorder *c;
  struct delta_rule rule;
  struct tensor scratch;
  enum delta_form form;
  uint32_t width, blocks; // columns of S in a task; tasks per head
};

enum {
  CHUNK = 64,     // householder steps of one chunk: tokens * n
  CHUNK_FROM = 4, // AUTO: the chunkwise form is faster from so many tokens on, if
  CHUNK_DK = 65,  // Dk is at least this: with Dk <= 64 the recurrence keeps its part of S in the L1 cache
  COLUMNS = 64,   // columns of S in a recurrent task
  SOLVE_ROWS = 8, // rows of the triangular system that are solved one by one between two products
};

// One task: columns first ... first + width - 1 of value head `head` of sequence q.
struct delta_task {
  const struct delta_call *d;
  const struct sequence *q;
  uint32_t head, first, width;
  float *S; // (Dk, width), rows Dv apart
  float *K; // (Dk, rows) scratch: the keys of a chunk, transposed
  float *V; // (CHUNK, width) scratch: the u of a chunk
  float scale;
};

static const float *query(const struct delta_task *k, uint32_t t) {
  const struct delta_args *a = &k->d->rule.a;
  return f32_row(&k->d->rule.qkv, k->q->row + t) + (uint64_t)(k->head / delta_share(a) % a->H) * a->Dk;
}
static const float *key(const struct delta_task *k, uint32_t t, uint32_t m) {
  return query(k, t) + (uint64_t)(1 + m) * k->d->rule.a.H * k->d->rule.a.Dk;
}
static const float *value(const struct delta_task *k, uint32_t t, uint32_t m) {
  const struct delta_args *a = &k->d->rule.a;
  uint64_t column = (uint64_t)(1 + a->n) * a->H * a->Dk + ((uint64_t)m * a->Hv + k->head) * a->Dv + k->first;
  return f32_row(&k->d->rule.qkv, k->q->row + t) + column;
}
static float strength(const struct delta_task *k, uint32_t t, uint32_t m) {
  return f32_row(&k->d->rule.beta, k->q->row + t)[m * k->d->rule.a.Hv + k->head];
}
static float log_decay(const struct delta_task *k, uint32_t t) {
  return k->d->rule.a.gated ? f32_row(&k->d->rule.g, k->q->row + t)[k->head] : 0;
}
static float *output(const struct delta_task *k, uint32_t t) {
  return f32_row(&k->d->rule.o, k->q->row + t) + (uint64_t)k->head * k->d->rule.a.Dv + k->first;
}

// What one step of one token does to S.
struct rule_step {
  const float *q, *k, *v;
  float beta, decay;
};

static inline __attribute__((always_inline)) void step_columns(float *o, float *S, struct rule_step s, uint32_t Dk,
                                                               uint32_t Dv, uint32_t width) {
  float u[COLUMNS], out[COLUMNS];
  read_state(u, S, s.k, s.decay, Dk, Dv, width);
  for (uint32_t j = 0; j < width; j++) u[j] = s.beta * (s.v[j] - u[j]);
  for (uint32_t j = 0; j < width; j++) out[j] = 0;
  write_state(out, S, s.k, s.q, u, Dk, Dv, width);
  memcpy(o, out, width * sizeof(float));
}

// One householder step. For all COLUMNS the width is a constant, so that y, u and o stay in registers.
CPU_CLONES static void recurrent_step(float *o, float *S, struct rule_step s, uint32_t Dk, uint32_t Dv,
                                      uint32_t width) {
  if (width == COLUMNS)
    step_columns(o, S, s, Dk, Dv, COLUMNS);
  else
    step_columns(o, S, s, Dk, Dv, width);
}

static void delta_recurrent(const struct delta_task *k) {
  const struct delta_args *a = &k->d->rule.a;
  for (uint32_t first = 0; first < k->width; first += COLUMNS) {
    uint32_t width = k->width - first < COLUMNS ? k->width - first : COLUMNS;
    for (uint32_t t = 0; t < k->q->T; t++) {
      float *o = output(k, t) + first;
      for (uint32_t m = 0; m < a->n; m++) {
        const struct rule_step s = {query(k, t), key(k, t, m), value(k, t, m) + first, strength(k, t, m),
                                    m ? 1 : expf(log_decay(k, t))};
        recurrent_step(o, k->S + first, s, a->Dk, a->Dv, width);
      }
      for (uint32_t j = 0; j < width; j++) o[j] *= k->scale;
    }
  }
}

// ---------------------------------------------------------------- blocks (Head-in-Head), token by token
// S is r blocks of d = Dk / r rows, k and q are cut likewise, and M (r, r) is the token's mask:
//   S <- e^g S;  y_b = k_b S_b;  u_a = beta (v - sum_b M_ab y_b);  S_a <- S_a + k_a^T u_a;  o = scale q S
// By chunks this was 15 times slower here (docs/speed/log.md).

struct block_step {
  const float *q, *k, *v, *M;
  float beta, decay, scale;
  uint32_t r, d, Dv;
};

static inline __attribute__((always_inline)) void block_columns(float *o, float *S, const struct block_step *s,
                                                                uint32_t width) {
  float y[HH_MOST][COLUMNS], u[COLUMNS], out[COLUMNS] = {0};
  uint64_t block = (uint64_t)s->d * s->Dv;
  for (uint32_t b = 0; b < s->r; b++) read_state(y[b], S + b * block, s->k + b * s->d, s->decay, s->d, s->Dv, width);
  for (uint32_t a = 0; a < s->r; a++) {
    for (uint32_t j = 0; j < width; j++) u[j] = s->v[j];
    for (uint32_t b = 0; b < s->r; b++)
      for (uint32_t j = 0; j < width; j++) u[j] -= s->M[a * s->r + b] * y[b][j];
    for (uint32_t j = 0; j < width; j++) u[j] *= s->beta;
    write_state(out, S + a * block, s->k + a * s->d, s->q + a * s->d, u, s->d, s->Dv, width);
  }
  for (uint32_t j = 0; j < width; j++) o[j] = s->scale * out[j];
}

// For all COLUMNS the width is a constant, so that u and o stay in registers.
CPU_CLONES static void blocks_step(float *o, float *S, const struct block_step *s, uint32_t width) {
  if (width == COLUMNS)
    block_columns(o, S, s, COLUMNS);
  else
    block_columns(o, S, s, width);
}

static void token_mask(float *M, const struct delta_task *k, uint32_t t) {
  const struct delta_args *a = &k->d->rule.a;
  const uint64_t row = a->fixed_mask ? 0 : k->q->row + t;
  hh_mask(M, f32_row(&k->d->rule.mask, row) + (uint64_t)k->head * a->r * a->r, a->r, a->nonneg);
}

static void blocks_recurrent(const struct delta_task *k) {
  const struct delta_args *a = &k->d->rule.a;
  float M[HH_MOST * HH_MOST];
  for (uint32_t t = 0; t < k->q->T; t++) {
    if (t == 0 || !a->fixed_mask) token_mask(M, k, t);
    for (uint32_t first = 0; first < k->width; first += COLUMNS) {
      struct block_step s = {.q = query(k, t),
                             .k = key(k, t, 0),
                             .v = value(k, t, 0) + first,
                             .M = M,
                             .beta = strength(k, t, 0),
                             .decay = expf(log_decay(k, t)),
                             .scale = a->scale,
                             .r = a->r,
                             .d = a->Dk / a->r,
                             .Dv = a->Dv};
      blocks_step(output(k, t) + first, k->S + first, &s, k->width - first < COLUMNS ? k->width - first : COLUMNS);
    }
  }
}

// ---------------------------------------------------------------- chunkwise
// A chunk has `tokens` tokens with R = tokens * n steps, which are the rows r = t * n + m of K (R, Dk) and V (R,
// width). With G_t the sum of g over the chunk's tokens up to t, and S the state before the chunk:
//   A[r,s]  = beta_r (k_r . k_s) e^(G_t(r) - G_t(s)),  s < r
//   V'      = (I + A)^-1 diag(beta) (V - e^G (K S))            the rows are the u of the recurrence
//   o_t     = scale ( e^G_t q_t S + sum_{s: t(s) <= t} (q_t . k_s) e^(G_t - G_t(s)) V'_s )
//   S      <- e^G_last S + sum_s e^(G_last - G_t(s)) k_s^T V'_s
// Exponents are differences of sums in double. Only exponents <= 0 are used: they cannot overflow, and a strong decay
// costs later tokens no precision. Forward substitution gives V'; (I + A)^-1 itself is not needed.

struct chunk {
  uint32_t first, tokens, rows;
  double G[CHUNK];           // (tokens)
  float beta[CHUNK];         // (rows)
  float decay[CHUNK][CHUNK]; // e^(G_t - G_s), s <= t < tokens
  float A[CHUNK * CHUNK];    // (rows, rows), then (tokens, rows)
};

static void chunk_gates(const struct delta_task *k, struct chunk *c) {
  double sum = 0;
  for (uint32_t t = 0; t < c->tokens; t++) {
    sum += fmax(log_decay(k, c->first + t), -1e6); // differences of -inf would be NaN; e^-1e6 is 0 as well
    c->G[t] = sum;
    for (uint32_t s = 0; s <= t; s++) c->decay[t][s] = k->d->rule.a.gated ? expf((float)(sum - c->G[s])) : 1;
  }
}

// K and beta of the chunk, and V = diag(beta) (V - e^G (K S)).
static void chunk_load(const struct delta_task *k, struct chunk *c) {
  uint32_t n = k->d->rule.a.n, Dk = k->d->rule.a.Dk, width = k->width;
  for (uint32_t r = 0; r < c->rows; r++) {
    const float *from = key(k, c->first + r / n, r % n);
    for (uint32_t i = 0; i < Dk; i++) k->K[i * c->rows + r] = from[i];
    c->beta[r] = strength(k, c->first + r / n, r % n);
  }
  memset(k->V, 0, (uint64_t)c->rows * width * sizeof(float));
  cpu_product(k->V, width, (struct cpu_view){k->K, 1, c->rows, c->rows, Dk}, k->S, k->d->rule.a.Dv, width);
  for (uint32_t r = 0; r < c->rows; r++) {
    const float *restrict v = value(k, c->first + r / n, r % n);
    float *restrict u = k->V + (uint64_t)r * width, decay = expf((float)c->G[r / n]), beta = c->beta[r];
    for (uint32_t j = 0; j < width; j++) u[j] = beta * (v[j] - decay * u[j]);
  }
}

// A (M, rows) = x (M, Dk) K. Row i of x needs only the columns before (i + 1) * n; not all others are computed.
static void chunk_dots(struct chunk *c, struct cpu_view x, const float *K, uint32_t n) {
  uint32_t R = c->rows, M = x.rows;
  memset(c->A, 0, M * R * sizeof(float));
  for (uint32_t i = 0; i < M; i += SOLVE_ROWS, x.x += SOLVE_ROWS * x.row) {
    uint32_t end = M - i < SOLVE_ROWS ? M : i + SOLVE_ROWS, columns = (uint32_t)round_up(end * n, 2 * LANES);
    x.rows = end - i;
    cpu_product(c->A + i * R, R, x, K, R, columns < R ? columns : R);
  }
}

// V <- (I + A)^-1 V. A is stored negated, so that rows are added.
static void chunk_solve(const struct delta_task *k, struct chunk *c) {
  uint32_t n = k->d->rule.a.n, Dk = k->d->rule.a.Dk, R = c->rows, width = k->width;
  chunk_dots(c, (struct cpu_view){k->K, 1, R, R, Dk}, k->K, 1);
  for (uint32_t r = 0; r < R; r++)
    for (uint32_t s = 0; s < r; s++) c->A[r * R + s] *= -c->beta[r] * c->decay[r / n][s / n];
  for (uint32_t r0 = 0; r0 < R; r0 += SOLVE_ROWS) {
    uint32_t end = R - r0 < SOLVE_ROWS ? R : r0 + SOLVE_ROWS;
    float *block = k->V + (uint64_t)r0 * width;
    cpu_product(block, width, (struct cpu_view){c->A + r0 * R, R, 1, end - r0, r0}, k->V, width, width);
    for (uint32_t r = r0 + 1; r < end; r++)
      cpu_product(k->V + (uint64_t)r * width, width, (struct cpu_view){c->A + r * R + r0, R, 1, 1, r - r0}, block,
                  width, width);
  }
}

static void chunk_output(const struct delta_task *k, struct chunk *c) {
  uint32_t n = k->d->rule.a.n, Dk = k->d->rule.a.Dk, R = c->rows, width = k->width;
  size_t stride = k->d->rule.o.stride;
  float *o = output(k, c->first);
  const struct cpu_view q = {query(k, c->first), k->d->rule.qkv.stride, 1, c->tokens, Dk};
  for (uint32_t t = 0; t < c->tokens; t++) memset(o + t * stride, 0, width * sizeof(float));
  cpu_product(o, stride, q, k->S, k->d->rule.a.Dv, width);
  chunk_dots(c, q, k->K, n);
  for (uint32_t t = 0; t < c->tokens; t++) {
    float decay = k->scale * expf((float)c->G[t]);
    for (uint32_t j = 0; j < width; j++) o[t * stride + j] *= decay;
    for (uint32_t s = 0; s < R; s++) c->A[t * R + s] *= s / n <= t ? k->scale * c->decay[t][s / n] : 0;
  }
  for (uint32_t t = 0; t < c->tokens; t += SOLVE_ROWS) { // only as far as the last token of these rows sees
    uint32_t end = c->tokens - t < SOLVE_ROWS ? c->tokens : t + SOLVE_ROWS;
    cpu_product(o + t * stride, stride, (struct cpu_view){c->A + t * R, R, 1, end - t, end * n}, k->V, width, width);
  }
}

static void chunk_state(const struct delta_task *k, const struct chunk *c) {
  uint32_t n = k->d->rule.a.n, Dk = k->d->rule.a.Dk, Dv = k->d->rule.a.Dv, width = k->width, last = c->tokens - 1;
  if (k->d->rule.a.gated) {
    for (uint32_t r = 0; r < c->rows; r++)
      for (uint32_t j = 0; j < width; j++) k->V[(uint64_t)r * width + j] *= c->decay[last][r / n];
    float decay = expf((float)c->G[last]);
    for (uint32_t i = 0; i < Dk; i++)
      for (uint32_t j = 0; j < width; j++) k->S[(uint64_t)i * Dv + j] *= decay;
  }
  cpu_product(k->S, Dv, (struct cpu_view){k->K, c->rows, 1, Dk, c->rows}, k->V, width, width);
}

static void delta_chunks(const struct delta_task *k) {
  struct chunk c;
  uint32_t tokens = CHUNK / k->d->rule.a.n;
  for (c.first = 0; c.first < k->q->T && !cpu_cancelled(k->d->c); c.first += c.tokens) {
    c.tokens = k->q->T - c.first < tokens ? k->q->T - c.first : tokens;
    c.rows = c.tokens * k->d->rule.a.n;
    chunk_gates(k, &c);
    chunk_load(k, &c);
    chunk_solve(k, &c);
    chunk_output(k, &c);
    chunk_state(k, &c);
  }
}

// ---------------------------------------------------------------- the operation

static bool use_chunks(const struct delta_args *a, enum delta_form form, uint32_t T) {
  if (form == DELTA_RECURRENT || a->n > CHUNK || a->r > 1) return false;
  return form == DELTA_CHUNK || (T >= CHUNK_FROM && a->Dk >= CHUNK_DK);
}

// Floats of scratch per thread.
static uint64_t worker_scratch(const struct delta_args *a) { return CHUNK * ((uint64_t)a->Dk + a->Dv); }

uint64_t cpu_delta_bytes(const struct backend *b, const struct oplist *l, const struct delta_rule *rule) {
  if (!use_chunks(&rule->a, l->form, rule->o.rows)) return 0;
  return cpu_threads(b) * worker_scratch(&rule->a) * sizeof(float);
}

static void delta_task(void *context, uint64_t index, uint32_t worker) {
  const struct delta_call *d = context;
  struct delta_task k = {.d = d, .scale = d->rule.a.scale};
  k.first = (uint32_t)(index % d->blocks) * d->width;
  k.head = (uint32_t)(index / d->blocks % d->rule.a.Hv);
  k.q = sequence_at(&d->rule.sequences, (uint32_t)(index / d->blocks / d->rule.a.Hv));
  if (!k.q->T) return;
  k.width = d->rule.a.Dv - k.first < d->width ? d->rule.a.Dv - k.first : d->width;
  k.S = f32_row(&d->rule.state, k.q->slot) + (uint64_t)k.head * d->rule.a.Dk * d->rule.a.Dv + k.first;
  if (!use_chunks(&d->rule.a, d->form, k.q->T)) {
    if (d->rule.a.r > 1)
      blocks_recurrent(&k);
    else
      delta_recurrent(&k);
    return;
  }
  k.K = f32_row(&d->scratch, 0) + worker * worker_scratch(&d->rule.a);
  k.V = k.K + CHUNK * (uint64_t)d->rule.a.Dk;
  delta_chunks(&k);
}

void cpu_delta_rule(struct recorder *c, const struct delta_rule *rule, struct tensor scratch) {
  if (!cpu_begin(c)) return;
  const struct delta_args *a = &rule->a;
  uint32_t longest;
  const uint64_t B = rule->sequences.rows, rows = cpu_count_rows(&rule->sequences, &longest);
  struct delta_call d = {.c = c, .rule = *rule, .scratch = scratch, .form = cpu_list(c)->form, .width = COLUMNS};
  const bool chunks = use_chunks(a, d.form, longest), hh = a->r > 1;
  assert(!hh || (a->r <= HH_MOST && a->Dk % a->r == 0 && a->n == 1));
  // Every chunk task computes the products of keys again, so tasks are as wide as possible.
  if (chunks) d.width = cpu_task_columns(c, B * a->Hv, a->Dv, COLUMNS);
  d.blocks = (a->Dv + d.width - 1) / d.width;
  const uint64_t size = (uint64_t)a->Hv * a->Dk * a->Dv, masks = hh ? (uint64_t)a->Hv * a->r * a->r : 0;
  const uint64_t operations = ((4ull * a->n + 3) * size + 2 * masks * a->Dv) * rows;
  cpu_parallel(c, B * a->Hv * d.blocks, operations, delta_task, &d);
  const uint64_t row_bytes = 4ull * (rule->qkv.cols + (a->n + (a->gated ? 1u : 0u)) * a->Hv + a->Hv * a->Dv + masks);
  cpu_end(c, hh ? "hh_rule" : "delta_rule", chunks ? "chunk" : NULL, rows * row_bytes + 8 * size * B, operations);
}
