// learner_loss: the head, cross entropy and distillation, in slices of rows, so that not all logits exist at once.
// N predictions, z their logits, c their targets, t the teacher's logits, tau a temperature:
//
//   CE = mean (logsumexp z - z_c),                       dz  = (softmax z - onehot c) / N
//   KD = tau^2 mean KL(softmax t/tau || softmax z/tau),  dz += weight tau (softmax z/tau - softmax t/tau) / N
#include "learner_inside.h"

enum { SLICE = 256 };

struct head_call {
  const struct learner_batch *batch;
  const struct distillation *d; // NULL: none
  struct tensor z, taught;      // logits; z becomes its gradient
  uint64_t first;               // prediction
  double factor;                // scale / N
  double *ce, *kd;              // (SLICE) of each prediction
};

// Returns logsumexp(z / tau).
static double log_sum(const float *z, uint32_t V, double tau) {
  float most = z[0];
  double sum = 0;
  for (uint32_t i = 1; i < V; i++) most = fmaxf(most, z[i]);
  for (uint32_t i = 0; i < V; i++) sum += expf((z[i] - most) / (float)tau);
  return most / tau + log(sum);
}

static void predict(void *context, uint64_t t, uint32_t worker) {
  const struct head_call *h = context;
  (void)worker;
  const uint64_t at = h->first + t, row = at / h->batch->T;
  const uint32_t V = h->z.cols, target = (uint32_t)h->batch->tokens[at + row + 1];
  float *z = f32_row(&h->z, t);
  const double whole = log_sum(z, V, 1), tau = h->d ? h->d->temperature : 1;
  h->ce[t] = whole - z[target];
  h->kd[t] = 0;
  const float *taught = h->d ? f32_row(&h->taught, t) : NULL;
  const double mine = h->d ? log_sum(z, V, tau) : 0, theirs = h->d ? log_sum(taught, V, tau) : 0;
  const double factor = h->factor, kd_factor = h->d ? h->factor * h->d->weight * tau : 0;
  for (uint32_t i = 0; i < V; i++) {
    double dz = factor * expf((float)(z[i] - whole));
    if (h->d) {
      const double p = expf((float)(z[i] / tau - mine)), q = expf((float)(taught[i] / tau - theirs));
      h->kd[t] += q * ((taught[i] / tau - theirs) - (z[i] / tau - mine));
      dz += kd_factor * (p - q);
    }
    z[i] = (float)dz;
  }
  h->kd[t] *= tau * tau;
  z[target] -= (float)factor;
}

// The head's product for rows first ... of the hidden states.
static struct tensor logits(struct learner *l, const struct learner *of, struct tensor hidden, uint32_t first,
                            uint32_t n) {
  const struct tensor none = {0}, head = of->model.head;
  const struct tensor z = walk_tensor(&l->walk, n, head.rows, head.rows);
  hidden.offset += (uint64_t)first * hidden.stride * sizeof(float);
  hidden.rows = n;
  if (z.buffer) cpu_linear(l->recorder, &(struct linear){z, hidden, head, none}, none);
  return z;
}

static void head_back(struct learner *l, struct tensor dz, struct tensor hidden, uint32_t first) {
  struct walk *w = &l->walk;
  struct tensor d = walk_gradient(w, hidden);
  const struct tensor dhead = walk_gradient(w, l->model.head);
  const uint64_t skip = (uint64_t)first * hidden.stride * sizeof(float);
  hidden.offset += skip;
  d.offset += skip;
  hidden.rows = d.rows = dz.rows;
  walk_add(w, d, walk_times(w, dz, l->model.head));
  if (dhead.buffer) walk_add(w, dhead, walk_outer(w, dz, hidden));
}

deltaic_status learner_head(struct learner *l, const struct learner_batch *batch, struct tensor hidden,
                            struct tensor taught, const struct distillation *d, double scale,
                            struct learner_loss *loss) {
  double ce[SLICE], kd[SLICE];
  const uint32_t N = batch->rows * batch->T;
  struct head_call h = {.batch = batch, .d = taught.buffer ? d : NULL, .factor = scale / N, .ce = ce, .kd = kd};
  loss->ce = loss->kd = 0;
  for (uint32_t first = 0; first < N && !l->walk.status; first += SLICE) {
    const uint32_t n = N - first < SLICE ? N - first : SLICE;
    l->walk.used = 0;
    h.first = first;
    h.z = logits(l, l, hidden, first, n);
    if (h.d) h.taught = logits(l, d->teacher, taught, first, n);
    if (l->walk.status) break;
    cpu_parallel(l->recorder, n, 20ull * n * h.z.cols, predict, &h);
    for (uint32_t t = 0; t < n; t++) {
      loss->ce += ce[t] / N;
      loss->kd += kd[t] / N;
    }
    head_back(l, h.z, hidden, first);
  }
  return l->walk.status;
}
