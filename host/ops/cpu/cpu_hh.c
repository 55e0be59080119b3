// cpu_hh: the (gated) Head-in-Head delta rule, recurrent and chunkwise (docs/mixers.md).
//
// Per value head, S (Dk, Dv) is r blocks of d = Dk / r rows, and k and q are cut likewise. M_t (r, r) is the token's
// mask:
//   S <- e^g S;  y_b = k_b S_b;  u_a = beta (v - sum_b M_ab y_b);  S_a <- S_a + k_a^T u_a;  o = scale q S
// Columns of S are independent, so (sequence, head, block of columns) is the unit of parallel work.
#include "cpu_backend.h"
#include "cpu_state.h"

enum {
  ROWS = 64,       // unknowns of a chunk: tokens * r
  CHUNK_FROM = 16, // chunks are faster from so many tokens on
  COLUMNS = 64,    // columns of S in a recurrent task
};

// One task: columns first ... first + width - 1 of value head `head` of sequence q.
struct hh_task {
  const struct delta_call *h;
  const struct sequence *q;
  uint32_t head, first, width, d;
  float *S; // (Dk, width), rows Dv apart
  float *U; // (ROWS, width) scratch: the u of a chunk
  float *Y; // (ROWS, width) scratch: K_b S_b of a chunk
};

static const float *query(const struct hh_task *k, uint32_t t) {
  const struct delta_args *a = &k->h->a;
  return f32_row(&k->h->qkv, k->q->row + t) + (uint64_t)k->head / (a->Hv / a->H) * a->Dk;
}
static const float *key(const struct hh_task *k, uint32_t t) { return query(k, t) + (uint64_t)k->h->a.H * k->h->a.Dk; }
static const float *value(const struct hh_task *k, uint32_t t) {
  const struct delta_args *a = &k->h->a;
  return f32_row(&k->h->qkv, k->q->row + t) + 2ull * a->H * a->Dk + (uint64_t)k->head * a->Dv + k->first;
}
static float strength(const struct hh_task *k, uint32_t t) { return f32_row(&k->h->beta, k->q->row + t)[k->head]; }
static float log_decay(const struct hh_task *k, uint32_t t) {
  return k->h->a.gated ? f32_row(&k->h->g, k->q->row + t)[k->head] : 0;
}
static float *output(const struct hh_task *k, uint32_t t) {
  return f32_row(&k->h->o, k->q->row + t) + (uint64_t)k->head * k->h->a.Dv + k->first;
}
static void token_mask(float *M, const struct hh_task *k, uint32_t t) {
  const struct delta_args *a = &k->h->a;
  uint64_t row = a->fixed_mask ? 0 : k->q->row + t;
  hh_mask(M, f32_row(&k->h->mask, row) + (uint64_t)k->head * a->r * a->r, a->r, a->nonneg);
}

// ---------------------------------------------------------------- recurrent

struct hh_step {
  const float *q, *k, *v, *M;
  float beta, decay, scale;
  uint32_t r, d, Dv;
};

static inline __attribute__((always_inline)) void step_columns(float *o, float *S, const struct hh_step *s,
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
CPU_CLONES static void recurrent_step(float *o, float *S, const struct hh_step *s, uint32_t width) {
  if (width == COLUMNS)
    step_columns(o, S, s, COLUMNS);
  else
    step_columns(o, S, s, width);
}

static void hh_recurrent(const struct hh_task *k) {
  const struct delta_args *a = &k->h->a;
  float M[HH_MOST * HH_MOST];
  for (uint32_t t = 0; t < k->q->T; t++) {
    if (t == 0 || !a->fixed_mask) token_mask(M, k, t);
    for (uint32_t first = 0; first < k->width; first += COLUMNS) {
      struct hh_step s = {
          query(k, t), key(k, t), value(k, t) + first, M, strength(k, t), expf(log_decay(k, t)), a->scale, a->r,
          k->d,        a->Dv};
      recurrent_step(output(k, t) + first, k->S + first, &s, k->width - first < COLUMNS ? k->width - first : COLUMNS);
    }
  }
}

// ---------------------------------------------------------------- chunkwise
// With G_n the sum of g over the chunk's tokens up to n, S the state before the chunk, and the unknowns u ordered by
// token, then block, (n,a) = n r + a:
//   Y_b = K_b S_b
//   A[(n,a),(i,b)] = beta_n M^n_ab (k^n_b . k^i_b) e^(G_n - G_i),  i < n
//   U   = (I + A)^-1 ( rows beta_n (v_n - e^G_n sum_b M^n_ab Y_b[n]) )
//   o_n = scale sum_b ( e^G_n q^n_b S_b + sum_{i<=n} (q^n_b . k^i_b) e^(G_n - G_i) U_(i,b) )
//   S_b <- e^G_last S_b + sum_i e^(G_last - G_i) k^i_b^T U_(i,b)
// The blocks of A within one token are zero, so substitution proceeds by r rows. Exponents are differences of sums in
// double. Only exponents <= 0 are used: they cannot overflow, and a strong decay costs later tokens no precision.

struct hh_chunk {
  uint32_t first, tokens, rows;
  double G[ROWS];              // (tokens)
  float decay[ROWS][ROWS];     // e^(G_n - G_i), i <= n < tokens
  float beta[ROWS];            // (tokens)
  float masks[ROWS * HH_MOST]; // (tokens, r, r)
  float A[ROWS * ROWS];        // (rows, rows), negated, so that rows are added
  float P[ROWS * ROWS];        // (tokens, rows): the weights of U in o
};

static void chunk_gates(const struct hh_task *k, struct hh_chunk *c) {
  double sum = 0;
  uint32_t r = k->h->a.r;
  for (uint32_t n = 0; n < c->tokens; n++) {
    sum += fmax(log_decay(k, c->first + n), -1e6); // differences of -inf would be NaN; e^-1e6 is 0 as well
    c->G[n] = sum;
    for (uint32_t i = 0; i <= n; i++) c->decay[n][i] = expf((float)(sum - c->G[i]));
    c->beta[n] = strength(k, c->first + n);
    token_mask(c->masks + n * r * r, k, c->first + n);
  }
}

// Computes -A and P, one block of keys after another.
static void chunk_products(const struct hh_task *k, struct hh_chunk *c) {
  uint32_t r = k->h->a.r, R = c->rows, d = k->d;
  for (uint32_t n = 0; n < c->tokens; n++)
    for (uint32_t i = 0; i <= n; i++)
      for (uint32_t b = 0; b < r; b++) {
        const float *from = key(k, c->first + i) + b * d;
        c->P[n * R + i * r + b] = k->h->a.scale * c->decay[n][i] * cpu_dot(query(k, c->first + n) + b * d, from, d);
        if (i == n) continue;
        float product = -c->beta[n] * c->decay[n][i] * cpu_dot(key(k, c->first + n) + b * d, from, d);
        for (uint32_t a = 0; a < r; a++) c->A[(n * r + a) * R + i * r + b] = product * c->masks[(n * r + a) * r + b];
      }
}

// U <- beta (v - e^G M Y)
static void chunk_load(const struct hh_task *k, const struct hh_chunk *c) {
  uint32_t r = k->h->a.r, width = k->width;
  size_t stride = k->h->qkv.stride;
  memset(k->Y, 0, (uint64_t)c->rows * width * sizeof(float));
  for (uint32_t b = 0; b < r; b++)
    cpu_product(k->Y + b * width, (size_t)r * width,
                (struct cpu_view){key(k, c->first) + b * k->d, stride, 1, c->tokens, k->d},
                k->S + (uint64_t)b * k->d * k->h->a.Dv, k->h->a.Dv, width);
  for (uint32_t n = 0; n < c->tokens; n++) {
    const float *v = value(k, c->first + n), *y = k->Y + (uint64_t)n * r * width;
    float decay = expf((float)c->G[n]);
    for (uint32_t a = 0; a < r; a++) {
      float *restrict u = k->U + (uint64_t)(n * r + a) * width;
      for (uint32_t j = 0; j < width; j++) u[j] = v[j];
      for (uint32_t b = 0; b < r; b++) {
        float weight = decay * c->masks[(n * r + a) * r + b];
        for (uint32_t j = 0; j < width; j++) u[j] -= weight * y[b * width + j];
      }
      for (uint32_t j = 0; j < width; j++) u[j] *= c->beta[n];
    }
  }
}

static void chunk_solve(const struct hh_task *k, const struct hh_chunk *c) {
  uint32_t r = k->h->a.r, width = k->width;
  for (uint32_t n = 1; n < c->tokens; n++)
    cpu_product(k->U + (uint64_t)n * r * width, width, (struct cpu_view){c->A + n * r * c->rows, c->rows, 1, r, n * r},
                k->U, width, width);
}

static void chunk_output(const struct hh_task *k, const struct hh_chunk *c) {
  uint32_t r = k->h->a.r, Dk = k->h->a.Dk, width = k->width;
  size_t stride = k->h->o.stride;
  float *o = output(k, c->first);
  for (uint32_t n = 0; n < c->tokens; n++) memset(o + n * stride, 0, width * sizeof(float));
  cpu_product(o, stride, (struct cpu_view){query(k, c->first), k->h->qkv.stride, 1, c->tokens, Dk}, k->S, k->h->a.Dv,
              width);
  for (uint32_t n = 0; n < c->tokens; n++) {
    float decay = k->h->a.scale * expf((float)c->G[n]);
    for (uint32_t j = 0; j < width; j++) o[n * stride + j] *= decay;
    cpu_product(o + n * stride, stride, (struct cpu_view){c->P + n * c->rows, c->rows, 1, 1, (n + 1) * r}, k->U, width,
                width);
  }
}

static void chunk_state(const struct hh_task *k, const struct hh_chunk *c) {
  uint32_t r = k->h->a.r, Dk = k->h->a.Dk, Dv = k->h->a.Dv, width = k->width, last = c->tokens - 1;
  float decay = expf((float)c->G[last]);
  for (uint32_t i = 0; i < c->rows; i++)
    for (uint32_t j = 0; j < width; j++) k->U[(uint64_t)i * width + j] *= c->decay[last][i / r];
  for (uint32_t i = 0; i < Dk; i++)
    for (uint32_t j = 0; j < width; j++) k->S[(uint64_t)i * Dv + j] *= decay;
  for (uint32_t b = 0; b < r; b++)
    cpu_product(k->S + (uint64_t)b * k->d * Dv, Dv,
                (struct cpu_view){key(k, c->first) + b * k->d, 1, k->h->qkv.stride, k->d, c->tokens}, k->U + b * width,
                (size_t)r * width, width);
}

static void hh_chunks(const struct hh_task *k) {
  struct hh_chunk c;
  uint32_t tokens = ROWS / k->h->a.r;
  for (c.first = 0; c.first < k->q->T && !cpu_cancelled(k->h->c); c.first += c.tokens) {
    c.tokens = k->q->T - c.first < tokens ? k->q->T - c.first : tokens;
    c.rows = c.tokens * k->h->a.r;
    chunk_gates(k, &c);
    chunk_products(k, &c);
    chunk_load(k, &c);
    chunk_solve(k, &c);
    chunk_output(k, &c);
    chunk_state(k, &c);
  }
}

// ---------------------------------------------------------------- the operation

bool cpu_hh_chunks(enum delta_form form, uint32_t T) {
  return form == DELTA_CHUNK || (form == DELTA_AUTO && T >= CHUNK_FROM);
}

uint64_t cpu_hh_scratch(const struct delta_args *a) { return 2ull * ROWS * a->Dv; }

void cpu_hh_task(void *context, uint64_t index, uint32_t worker) {
  const struct delta_call *h = context;
  struct hh_task k = {.h = h, .d = h->a.Dk / h->a.r};
  k.first = (uint32_t)(index % h->blocks) * h->width;
  k.head = (uint32_t)(index / h->blocks % h->a.Hv);
  k.q = sequence_at(&h->sequences, (uint32_t)(index / h->blocks / h->a.Hv));
  if (!k.q->T) return;
  k.width = h->a.Dv - k.first < h->width ? h->a.Dv - k.first : h->width;
  k.S = f32_row(&h->state, k.q->slot) + (uint64_t)k.head * h->a.Dk * h->a.Dv + k.first;
  if (!cpu_hh_chunks(h->form, k.q->T)) {
    hh_recurrent(&k);
    return;
  }
  k.U = f32_row(&h->scratch, 0) + worker * cpu_hh_scratch(&h->a);
  k.Y = k.U + (uint64_t)ROWS * h->a.Dv;
  hh_chunks(&k);
}
