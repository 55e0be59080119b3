// cpu_hh: the (gated) Head-in-Head delta rule, token by token (docs/mixers.md). By chunks it was 15 times slower here.
//
// Per value head, S (Dk, Dv) is r blocks of d = Dk / r rows, and k and q are cut likewise. M_t (r, r) is the token's
// mask:
//   S <- e^g S;  y_b = k_b S_b;  u_a = beta (v - sum_b M_ab y_b);  S_a <- S_a + k_a^T u_a;  o = scale q S
// Columns of S are independent, so (sequence, head, block of columns) is the unit of parallel work.
#include "cpu_backend.h"
#include "cpu_state.h"

enum { COLUMNS = 64 }; // columns of S in a step

// One task: columns first ... first + width - 1 of value head `head` of sequence q.
struct hh_task {
  const struct delta_call *h;
  const struct sequence *q;
  uint32_t head, first, width, d;
  float *S; // (Dk, width), rows Dv apart
};

static const float *query(const struct hh_task *k, uint32_t t) {
  const struct delta_args *a = &k->h->rule.a;
  return f32_row(&k->h->rule.qkv, k->q->row + t) + (uint64_t)k->head / (a->Hv / a->H) * a->Dk;
}
static const float *key(const struct hh_task *k, uint32_t t) {
  return query(k, t) + (uint64_t)k->h->rule.a.H * k->h->rule.a.Dk;
}
static const float *value(const struct hh_task *k, uint32_t t) {
  const struct delta_args *a = &k->h->rule.a;
  return f32_row(&k->h->rule.qkv, k->q->row + t) + 2ull * a->H * a->Dk + (uint64_t)k->head * a->Dv + k->first;
}
static float strength(const struct hh_task *k, uint32_t t) { return f32_row(&k->h->rule.beta, k->q->row + t)[k->head]; }
static float log_decay(const struct hh_task *k, uint32_t t) {
  return k->h->rule.a.gated ? f32_row(&k->h->rule.g, k->q->row + t)[k->head] : 0;
}
static float *output(const struct hh_task *k, uint32_t t) {
  return f32_row(&k->h->rule.o, k->q->row + t) + (uint64_t)k->head * k->h->rule.a.Dv + k->first;
}
static void token_mask(float *M, const struct hh_task *k, uint32_t t) {
  const struct delta_args *a = &k->h->rule.a;
  uint64_t row = a->fixed_mask ? 0 : k->q->row + t;
  hh_mask(M, f32_row(&k->h->rule.mask, row) + (uint64_t)k->head * a->r * a->r, a->r, a->nonneg);
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
  const struct delta_args *a = &k->h->rule.a;
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

// ---------------------------------------------------------------- the operation

void cpu_hh_task(void *context, uint64_t index, uint32_t worker) {
  const struct delta_call *h = context;
  (void)worker;
  struct hh_task k = {.h = h, .d = h->rule.a.Dk / h->rule.a.r};
  k.first = (uint32_t)(index % h->blocks) * h->width;
  k.head = (uint32_t)(index / h->blocks % h->rule.a.Hv);
  k.q = sequence_at(&h->rule.sequences, (uint32_t)(index / h->blocks / h->rule.a.Hv));
  if (!k.q->T) return;
  k.width = h->rule.a.Dv - k.first < h->width ? h->rule.a.Dv - k.first : h->width;
  k.S = f32_row(&h->rule.state, k.q->slot) + (uint64_t)k.head * h->rule.a.Dk * h->rule.a.Dv + k.first;
  hh_recurrent(&k);
}
