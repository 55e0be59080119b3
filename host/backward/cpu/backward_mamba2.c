// backward_mamba2: backward pass of Mamba-2, token by token from the last to the first. With S~ = e^g S, u = dt x:
//
//   forward   S = S~ + B^T u,  y = C S + D x
//   backward  dC = S dy,  dS += C^T dy,  dB = dS u,  du = B dS,  dg = sum dS S~,  dS <- e^g dS
//             dx = dt du + D dy,  ddt = du x,  dD = sum over tokens (and elements) of dy x
//
// S~ may have lost S (e^g = 0), so states are kept.
#include "backward_steps.h"

struct mamba2_call {
  struct mamba2 o;
  struct tensor before, dstate, dy, dxBC, ddt, dg;
  float *dD;   // (T, columns of D)
  float *room; // of all workers
  uint64_t room_floats;
  struct back_steps steps;
};

struct head {
  const struct mamba2_call *v;
  const struct sequence *q;
  uint32_t head, group;
  float *S, *dS; // (N, P)
  float *u;      // (P)
};

struct step {
  uint64_t row, x_at, B_at, C_at;
  const float *x, *B, *C;
  float dt, decay;
};

static struct step step_at(const struct head *h, uint32_t t) {
  const struct mamba2 *o = &h->v->o;
  struct step p = {.row = h->q->row + (uint64_t)t};
  p.x_at = (uint64_t)h->head * o->a.P;
  p.B_at = (uint64_t)o->a.heads * o->a.P + (uint64_t)h->group * o->a.N;
  p.C_at = p.B_at + (uint64_t)o->a.groups * o->a.N;
  const float *row = f32_row(&o->xBC, p.row);
  p.x = row + p.x_at;
  p.B = row + p.B_at;
  p.C = row + p.C_at;
  p.dt = f32_row(&o->dt, p.row)[h->head];
  p.decay = expf(f32_row(&o->g, p.row)[h->head]);
  return p;
}

// S <- the state after the step; S~ goes to `kept` if that is not NULL.
CPU_CLONES static void step_forward(const struct head *h, const struct step *p, float *kept) {
  const uint32_t N = h->v->o.a.N, P = h->v->o.a.P;
  float *restrict S = h->S;
  for (uint64_t i = 0; i < (uint64_t)N * P; i++) S[i] *= p->decay;
  if (kept) memcpy(kept, S, (uint64_t)N * P * sizeof(float));
  for (uint32_t i = 0; i < N; i++) {
    const float factor = p->B[i] * p->dt;
    for (uint32_t j = 0; j < P; j++) S[(uint64_t)i * P + j] += factor * p->x[j];
  }
}

CPU_CLONES static void step_back(const struct head *h, const struct step *p, const float *S) {
  const struct mamba2_call *v = h->v;
  const struct mamba2_args *a = &v->o.a;
  const uint32_t N = a->N, P = a->P;
  const float *restrict dy = f32_row(&v->dy, p->row) + p->x_at, *D = f32_row(&v->o.D, 0);
  float *d = f32_row(&v->dxBC, p->row), *dB = d + p->B_at, *dC = d + p->C_at, *dx = d + p->x_at;
  float *dD = v->dD + p->row * v->o.D.cols, *restrict du = h->u;
  const float through = p->dt * lanes_dot(p->x, dy, P); // u dy
  double dg = 0;
  memset(du, 0, P * sizeof(float));
  for (uint32_t i = 0; i < N; i++) {
    float *restrict dS = h->dS + (uint64_t)i * P;
    dC[i] += lanes_dot(S + (uint64_t)i * P, dy, P) + p->B[i] * through;
    for (uint32_t j = 0; j < P; j++) dS[j] += p->C[i] * dy[j];
    for (uint32_t j = 0; j < P; j++) du[j] += p->B[i] * dS[j];
    dB[i] += p->dt * lanes_dot(dS, p->x, P);
    dg += lanes_dot(dS, S + (uint64_t)i * P, P);
    for (uint32_t j = 0; j < P; j++) dS[j] *= p->decay;
  }
  for (uint32_t j = 0; j < P; j++) {
    const uint32_t at = a->D_per_element ? h->head * P + j : h->head;
    dx[j] += p->dt * du[j] + D[at] * dy[j];
    if (a->D_per_element) dD[at] = dy[j] * p->x[j];
  }
  if (!a->D_per_element) dD[h->head] = lanes_dot(dy, p->x, P);
  f32_row(&v->ddt, p->row)[h->head] += lanes_dot(du, p->x, P);
  f32_row(&v->dg, p->row)[h->head] += (float)dg;
}

static void forward(void *head, uint32_t t, float *kept) {
  const struct head *h = head;
  const struct step p = step_at(h, t);
  step_forward(h, &p, kept);
}

static void back(void *head, uint32_t t, float *S) {
  const struct head *h = head;
  const struct step p = step_at(h, t);
  step_back(h, &p, S);
}

static void head_back(struct head *h) {
  const struct mamba2_call *v = h->v;
  const uint64_t at = h->head * v->steps.size;
  const float *start = v->before.buffer ? f32_row(&v->before, h->q->slot) + at : NULL;
  h->dS = f32_row(&v->dstate, h->q->slot) + at;
  back_steps(&v->steps, h->S, start, h->q->T, h, forward, back);
}

// One sequence and group, with all heads of it: no other task adds to its dB and dC.
static void group_back(void *context, uint64_t index, uint32_t worker) {
  const struct mamba2_call *v = context;
  const struct mamba2_args *a = &v->o.a;
  struct head h = {.v = v, .group = (uint32_t)(index % a->groups), .S = v->room + worker * v->room_floats};
  const uint32_t share = a->heads / a->groups;
  h.q = walk_sequence(&v->o.sequences, (uint32_t)(index / a->groups));
  h.u = h.S + v->steps.floats;
  for (h.head = h.group * share; h.head < (h.group + 1) * share; h.head++) head_back(&h);
}

void backward_mamba2(struct walk *w, const struct mamba2 *op) {
  const struct mamba2_args *a = &op->a;
  struct mamba2_call v = {.o = *op,
                          .before = walk_before(w, op->state),
                          .dstate = walk_gradient(w, op->state),
                          .dy = walk_gradient(w, op->y),
                          .dxBC = walk_gradient(w, op->xBC),
                          .ddt = walk_gradient(w, op->dt),
                          .dg = walk_gradient(w, op->g)};
  uint64_t longest = 0, size = (uint64_t)a->N * a->P;
  for (uint32_t s = 0; s < op->sequences.rows; s++)
    if (walk_sequence(&op->sequences, s)->T > longest) longest = walk_sequence(&op->sequences, s)->T;
  v.steps = back_steps_plan(longest, size);
  v.room_floats = v.steps.floats + a->P;
  v.room = back_room(w, v.room_floats * cpu_threads(w->c->backend));
  v.dD = back_room(w, (uint64_t)op->y.rows * op->D.cols);
  if (w->status) return;
  cpu_parallel(w->c, (uint64_t)op->sequences.rows * a->groups, 15ull * op->y.rows * a->heads * size, group_back, &v);
  back_add_rows(w, walk_gradient(w, op->D), v.dD, op->y.rows, op->D.cols);
}
