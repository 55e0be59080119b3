// backward_delta: backward pass of the delta rule, token by token from the last to the first. For one householder step
// (docs/mixers.md), with S~ the state before it, already decayed, r blocks of keys, M the mask (1 if r = 1):
//
//   forward   y_b = k_b S~_b,  e_a = v - sum_b M_ab y_b,  u_a = beta e_a,  S_a = S~_a + k_a^T u_a,  o = scale q S
//   backward  dq = scale S do,  dS += scale q^T do                                   (the token's last step)
//             du_a = k_a dS_a,  dv = beta sum_a du_a,  dbeta = sum_a du_a e_a,  dM_ab = -beta du_a y_b
//             dy_b = -beta sum_a M_ab du_a,  dk_b = dS_b u_b + S~_b dy_b,  dS_b += k_b^T dy_b
//             dg = sum dS S~,  dS <- e^g dS                                          (the token's first step)
//
// S~ cannot be computed backwards, so states are kept.
#include "backward_steps.h"

struct rule_call {
  struct delta_rule o;
  struct tensor before, dstate, d_o, dqkv, dbeta, dg;
  float *dM;            // (T, Hv * r * r)
  float *room;          // of all workers
  uint64_t room_floats; // of one
  struct back_steps steps;
  uint32_t r; // blocks
};

// One value head of a sequence.
struct head {
  const struct rule_call *v;
  const struct sequence *q;
  uint32_t key, value;
  float *S, *dS;     // (Dk, Dv)
  float *y, *e, *du; // (r, Dv) each
  float M[HH_MOST * HH_MOST];
};

static const float one[1] = {1};

static const float *mask_of(struct head *h, uint32_t t) {
  const struct delta_rule *o = &h->v->o;
  const uint32_t r = h->v->r;
  if (r == 1) return one;
  const float *z = f32_row(&o->mask, o->a.fixed_mask ? 0 : h->q->row + t) + (uint64_t)h->value * r * r;
  hh_mask(h->M, z, r, o->a.nonneg);
  return h->M;
}

// Step s of the sequence: householder step s % n of token s / n.
struct step {
  uint32_t t, m;
  uint64_t row, q_at, k_at, v_at, beta_at;
  const float *k, *v, *M;
  float beta, decay; // decay: of the token, in its first step; else 1
};

static struct step step_at(struct head *h, uint32_t s) {
  const struct delta_rule *o = &h->v->o;
  const struct delta_args *a = &o->a;
  struct step p = {.t = s / a->n, .m = s % a->n, .decay = 1};
  p.row = h->q->row + p.t;
  p.q_at = (uint64_t)h->key * a->Dk;
  p.k_at = (uint64_t)a->H * a->Dk * (1 + p.m) + p.q_at;
  p.v_at = (uint64_t)a->H * a->Dk * (1 + a->n) + ((uint64_t)p.m * a->Hv + h->value) * a->Dv;
  p.beta_at = p.m * a->Hv + h->value;
  p.k = f32_row(&o->qkv, p.row) + p.k_at;
  p.v = f32_row(&o->qkv, p.row) + p.v_at;
  p.beta = f32_row(&o->beta, p.row)[p.beta_at];
  if (a->gated && !p.m) p.decay = expf(f32_row(&o->g, p.row)[h->value]);
  p.M = mask_of(h, p.t);
  return p;
}

// y and e of a step, of S~.
static inline __attribute__((always_inline)) void read_errors(const struct head *h, const struct step *p,
                                                              const float *restrict S) {
  const uint32_t r = h->v->r, Dv = h->v->o.a.Dv, d = h->v->o.a.Dk / r;
  memset(h->y, 0, (uint64_t)r * Dv * sizeof(float));
  for (uint32_t i = 0; i < r * d; i++) {
    float *restrict y = h->y + (uint64_t)(i / d) * Dv;
    for (uint32_t j = 0; j < Dv; j++) y[j] += p->k[i] * S[(uint64_t)i * Dv + j];
  }
  for (uint32_t a = 0; a < r; a++) {
    float *restrict e = h->e + (uint64_t)a * Dv;
    memcpy(e, p->v, Dv * sizeof(float));
    for (uint32_t b = 0; b < r; b++)
      for (uint32_t j = 0; j < Dv; j++) e[j] -= p->M[a * r + b] * h->y[(uint64_t)b * Dv + j];
  }
}

// S <- the state after a step; S~ goes to `kept` if that is not NULL.
CPU_CLONES static void step_forward(const struct head *h, const struct step *p, float *kept) {
  const uint32_t Dk = h->v->o.a.Dk, Dv = h->v->o.a.Dv, d = Dk / h->v->r;
  const uint64_t size = (uint64_t)Dk * Dv;
  float *restrict S = h->S;
  for (uint64_t i = 0; i < size; i++) S[i] *= p->decay;
  if (kept) memcpy(kept, S, size * sizeof(float));
  read_errors(h, p, S);
  for (uint32_t i = 0; i < Dk; i++) {
    const float *restrict e = h->e + (uint64_t)(i / d) * Dv, factor = p->k[i] * p->beta;
    for (uint32_t j = 0; j < Dv; j++) S[(uint64_t)i * Dv + j] += factor * e[j];
  }
}

// Of the token's last step: dq and what it adds to dS. S~ and e are of this step.
static inline __attribute__((always_inline)) void query_back(const struct head *h, const struct step *p,
                                                             const float *S) {
  const struct delta_rule *o = &h->v->o;
  const uint32_t Dv = o->a.Dv, d = o->a.Dk / h->v->r;
  const float *q = f32_row(&o->qkv, p->row) + p->q_at, *restrict d_o = f32_row(&h->v->d_o, p->row) + h->value * Dv;
  float *dq = f32_row(&h->v->dqkv, p->row) + p->q_at, written = 0;
  for (uint32_t i = 0; i < o->a.Dk; i++) {
    float *restrict dS = h->dS + (uint64_t)i * Dv, factor = o->a.scale * q[i];
    if (i % d == 0) written = p->beta * lanes_dot(h->e + (uint64_t)(i / d) * Dv, d_o, Dv);
    dq[i] += o->a.scale * (lanes_dot(S + (uint64_t)i * Dv, d_o, Dv) + p->k[i] * written);
    for (uint32_t j = 0; j < Dv; j++) dS[j] += factor * d_o[j];
  }
}

// du, and what follows from it: dv, dbeta, dM; dy then replaces y.
static inline __attribute__((always_inline)) void update_back(const struct head *h, const struct step *p) {
  const struct rule_call *v = h->v;
  const uint32_t r = v->r, Dv = v->o.a.Dv, d = v->o.a.Dk / r;
  float *dv = f32_row(&v->dqkv, p->row) + p->v_at, dbeta = 0;
  float *dM = v->dM ? v->dM + (p->row * v->o.a.Hv + h->value) * r * r : NULL;
  memset(h->du, 0, (uint64_t)r * Dv * sizeof(float));
  for (uint32_t i = 0; i < r * d; i++) {
    float *restrict du = h->du + (uint64_t)(i / d) * Dv;
    for (uint32_t j = 0; j < Dv; j++) du[j] += p->k[i] * h->dS[(uint64_t)i * Dv + j];
  }
  for (uint32_t a = 0; a < r; a++) {
    const float *restrict du = h->du + (uint64_t)a * Dv;
    for (uint32_t j = 0; j < Dv; j++) dv[j] += p->beta * du[j];
    dbeta += lanes_dot(du, h->e + (uint64_t)a * Dv, Dv);
    for (uint32_t b = 0; dM && b < r; b++) dM[a * r + b] = -p->beta * lanes_dot(du, h->y + (uint64_t)b * Dv, Dv);
  }
  f32_row(&v->dbeta, p->row)[p->beta_at] += dbeta;
  memset(h->y, 0, (uint64_t)r * Dv * sizeof(float));
  for (uint32_t a = 0; a < r; a++)
    for (uint32_t b = 0; b < r; b++)
      for (uint32_t j = 0; j < Dv; j++)
        h->y[(uint64_t)b * Dv + j] -= p->beta * p->M[a * r + b] * h->du[(uint64_t)a * Dv + j];
}

CPU_CLONES static void step_back(const struct head *h, const struct step *p, const float *S) {
  const struct rule_call *v = h->v;
  const uint32_t Dk = v->o.a.Dk, Dv = v->o.a.Dv, d = Dk / v->r;
  float *dk = f32_row(&v->dqkv, p->row) + p->k_at;
  double dg = 0;
  read_errors(h, p, S);
  if (p->m == v->o.a.n - 1) query_back(h, p, S);
  update_back(h, p);
  for (uint32_t i = 0; i < Dk; i++) {
    float *restrict dS = h->dS + (uint64_t)i * Dv;
    const float *restrict dy = h->y + (uint64_t)(i / d) * Dv, *row = S + (uint64_t)i * Dv;
    dk[i] += p->beta * lanes_dot(dS, h->e + (uint64_t)(i / d) * Dv, Dv) + lanes_dot(row, dy, Dv);
    for (uint32_t j = 0; j < Dv; j++) dS[j] += p->k[i] * dy[j];
    if (!v->o.a.gated || p->m) continue;
    dg += lanes_dot(dS, row, Dv);
    for (uint32_t j = 0; j < Dv; j++) dS[j] *= p->decay;
  }
  if (v->o.a.gated && !p->m) f32_row(&v->dg, p->row)[h->value] += (float)dg;
}

static void forward(void *head, uint32_t s, float *kept) {
  struct head *h = head;
  const struct step p = step_at(h, s);
  step_forward(h, &p, kept);
}

static void back(void *head, uint32_t s, float *S) {
  struct head *h = head;
  const struct step p = step_at(h, s);
  step_back(h, &p, S);
}

static void head_back(struct head *h) {
  const struct rule_call *v = h->v;
  const uint64_t at = h->value * v->steps.size;
  const float *start = v->before.buffer ? f32_row(&v->before, h->q->slot) + at : NULL;
  h->dS = f32_row(&v->dstate, h->q->slot) + at;
  back_steps(&v->steps, h->S, start, h->q->T * v->o.a.n, h, forward, back);
}

// One sequence and key head, with all value heads that use it: no other task adds to its dq and dk.
static void key_head(void *context, uint64_t index, uint32_t worker) {
  const struct rule_call *v = context;
  const struct delta_args *a = &v->o.a;
  const uint64_t errors = (uint64_t)v->r * a->Dv;
  struct head h = {.v = v, .key = (uint32_t)(index % a->H), .S = v->room + worker * v->room_floats};
  h.q = walk_sequence(&v->o.sequences, (uint32_t)(index / a->H));
  h.y = h.S + v->steps.floats;
  h.e = h.y + errors;
  h.du = h.e + errors;
  for (h.value = 0; h.value < a->Hv; h.value++)
    if (h.value / delta_share(a) % a->H == h.key) head_back(&h);
}

// The mask's gradient: summed over the tokens, or of every token's logits.
static void masks_back(struct walk *w, const struct rule_call *v) {
  const uint32_t size = v->r * v->r, cols = v->o.a.Hv * size;
  const struct tensor dmask = walk_gradient(w, v->o.mask);
  if (!dmask.buffer || !v->dM) return;
  if (v->o.a.fixed_mask) {
    back_add_rows(w, dmask, v->dM, v->d_o.rows, cols);
    return;
  }
  for (uint64_t t = 0; t < v->d_o.rows; t++)
    for (uint32_t c = 0; c < cols; c += size) {
      float dz[HH_MOST * HH_MOST];
      hh_mask_back(dz, v->dM + t * cols + c, f32_row(&v->o.mask, t) + c, v->r, v->o.a.nonneg);
      for (uint32_t i = 0; i < size; i++) f32_row(&dmask, t)[c + i] += dz[i];
    }
}

void backward_delta_rule(struct walk *w, const struct delta_rule *op) {
  const struct delta_args *a = &op->a;
  struct rule_call v = {.o = *op,
                        .before = walk_before(w, op->state),
                        .dstate = walk_gradient(w, op->state),
                        .d_o = walk_gradient(w, op->o),
                        .dqkv = walk_gradient(w, op->qkv),
                        .dbeta = walk_gradient(w, op->beta),
                        .dg = walk_gradient(w, op->g),
                        .r = a->r ? a->r : 1};
  uint64_t longest = 0, rows = 0, size = (uint64_t)a->Dk * a->Dv;
  for (uint32_t s = 0; s < op->sequences.rows; s++) {
    const uint32_t T = walk_sequence(&op->sequences, s)->T;
    if (T * a->n > longest) longest = T * a->n;
    rows += T;
  }
  v.steps = back_steps_plan(longest, size);
  v.room_floats = v.steps.floats + 3ull * v.r * a->Dv;
  v.room = back_room(w, v.room_floats * cpu_threads(w->c->backend));
  if (v.r > 1) v.dM = back_room(w, op->o.rows * (uint64_t)a->Hv * v.r * v.r);
  if (w->status) return;
  cpu_parallel(w->c, (uint64_t)op->sequences.rows * a->H, 18 * rows * a->n * a->Hv * size, key_head, &v);
  masks_back(w, &v);
}
