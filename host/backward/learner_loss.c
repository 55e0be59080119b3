// learner_loss: the head, cross entropy and distillation, in slices of rows, so that not all logits exist at once.
// N predictions that count, z their logits, c their targets, t the teacher's logits, tau a temperature:
//
//   CE = mean (logsumexp z - z_c),                       dz  = (softmax z - onehot c) / N
//   KD = tau^2 mean KL(softmax t/tau || softmax z/tau),  dz += weight tau (softmax z/tau - softmax t/tau) / N
#include "learner_inside.h"

#include <math.h>
#include <stdlib.h>

// Rows of a slice. Cooperative matrices need many.
enum { SLICE = 256, FAST_SLICE = 2048 };

static struct tensor rows_from(struct tensor t, uint32_t first, uint32_t n) {
  t.offset += (uint64_t)first * t.stride * sizeof(float);
  t.rows = n;
  return t;
}

// The head's product for some hidden states.
static struct tensor logits(struct learner *l, struct tensor head, struct tensor hidden) {
  const struct tensor z = walk_tensor(&l->walk, hidden.rows, head.rows, head.rows);
  if (z.buffer) l->walk.functions->linear(&l->walk, z, hidden, head);
  return z;
}

static void head_back(struct learner *l, struct tensor head, struct tensor dz, struct tensor hidden) {
  struct walk *w = &l->walk;
  const struct tensor dhead = walk_gradient(w, l->model.head);
  w->functions->times(w, walk_gradient(w, hidden), dz, head, false);
  if (dhead.buffer) w->functions->add_outer(w, dhead, dz, hidden);
}

// The number of predictions that count.
static uint32_t count_targets(const struct learner_batch *batch) {
  const uint32_t rows = batch->rows * batch->T;
  uint32_t n = 0;
  for (uint32_t t = 0; t < rows; t++) n += !batch->targets || batch->targets[t] >= 0;
  return n;
}

static deltaic_status sum_losses(struct learner *l, uint32_t rows, uint32_t N, struct learner_loss *loss) {
  const uint64_t bytes = 2ull * rows * sizeof(float);
  float *losses = malloc(bytes);
  if (!losses) return fail_memory("the losses of a batch", bytes);
  const deltaic_status status = l->backend->functions->buffer_read(l->backend, &l->losses, 0, losses, bytes);
  for (uint32_t t = 0; t < rows && !status; t++) {
    loss->ce += losses[2 * t] / N;
    loss->kd += losses[2 * t + 1] / N;
  }
  free(losses);
  return status;
}

// The power of two that makes share, the gradient's factor of each prediction, 16 to 32: gradients of values are then
// neither below nor above f16's range (gradients by the sum of the losses are 1e-5 to 1e2).
static double choose_unit(const struct learner *l, double share) {
  int exponent;
  if (!l->fast || !(share > 0 && isfinite(share))) return 1;
  frexp(share, &exponent);
  return ldexp(1, 5 - exponent);
}

double learner_unit(const struct learner *l) { return l->unit > 0 ? l->unit : 1; }

deltaic_status learner_head(struct learner *l, const struct learner_batch *batch, struct tensor hidden,
                            struct tensor taught, const struct distillation *d, double scale,
                            struct learner_loss *loss) {
  const uint32_t rows = batch->rows * batch->T, N = count_targets(batch);
  const uint64_t bindable = l->backend->max_binding_bytes / sizeof(float) / l->model.head.rows;
  const uint32_t slice = l->fast && bindable >= FAST_SLICE ? FAST_SLICE : SLICE;
  struct walk *w = &l->walk;
  if (scale != 0 && !(l->unit > 0)) l->unit = choose_unit(l, scale / N);
  struct loss_rows r = {.targets = learner_tensor(&l->targets, 0, 1, rows),
                        .losses = learner_tensor(&l->losses, 0, rows, 2),
                        .tau = taught.buffer ? d->temperature : 1,
                        .factor = learner_unit(l) * scale / N};
  r.targets.dtype = DTYPE_I32;
  if (taught.buffer) r.kd_factor = r.factor * d->weight * r.tau;
  loss->ce = loss->kd = 0;
  if (!N) return fail(DELTAIC_INVALID_ARGUMENT, "a batch in which nothing is to be predicted");
  learner_record(l);
  const struct tensor head = learner_halved(l, w, l->model.head);
  const struct tensor theirs = taught.buffer ? learner_halved(d->teacher, w, d->teacher->model.head) : head;
  for (; r.first < rows && !w->status; r.first += slice) {
    const uint32_t n = rows - r.first < slice ? rows - r.first : slice;
    const struct tensor h = rows_from(hidden, r.first, n);
    walk_begin(w);
    r.z = logits(l, head, h);
    if (taught.buffer) r.taught = logits(l, theirs, rows_from(taught, r.first, n));
    if (w->status) break;
    w->functions->loss(w, &r);
    if (scale != 0) head_back(l, head, r.z, h);
  }
  if (!w->status) w->status = learner_run(l);
  if (!w->status) w->status = sum_losses(l, rows, N, loss);
  return w->status;
}
