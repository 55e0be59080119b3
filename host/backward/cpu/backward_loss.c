// backward_loss: cross entropy and distillation of a slice of predictions, and their gradient.
#include "backward_cpu.h"

#include <string.h>

// Returns logsumexp(z / tau).
static double log_sum(const float *z, uint32_t V, double tau) {
  float most = z[0];
  double sum = 0;
  for (uint32_t i = 1; i < V; i++) most = fmaxf(most, z[i]);
  for (uint32_t i = 0; i < V; i++) sum += expf((z[i] - most) / (float)tau);
  return most / tau + log(sum);
}

static void predict(void *context, uint64_t t, uint32_t worker) {
  const struct loss_rows *r = context;
  (void)worker;
  const uint64_t at = r->first + t;
  const uint32_t V = r->z.cols;
  const int32_t target = ((const int32_t *)(const void *)f32_row(&r->targets, 0))[at];
  float *z = f32_row(&r->z, t), *losses = f32_row(&r->losses, at);
  losses[0] = losses[1] = 0;
  if (target < 0) {
    memset(z, 0, V * sizeof *z);
    return;
  }
  const bool teaches = r->taught.buffer != NULL;
  const float *taught = teaches ? f32_row(&r->taught, t) : NULL;
  const double whole = log_sum(z, V, 1), tau = r->tau;
  const double mine = teaches ? log_sum(z, V, tau) : 0, theirs = teaches ? log_sum(taught, V, tau) : 0;
  double kd = 0;
  losses[0] = (float)(whole - z[target]);
  for (uint32_t i = 0; i < V; i++) {
    double dz = r->factor * expf((float)(z[i] - whole));
    if (teaches) {
      const double p = expf((float)(z[i] / tau - mine)), q = expf((float)(taught[i] / tau - theirs));
      kd += q * ((taught[i] / tau - theirs) - (z[i] / tau - mine));
      dz += r->kd_factor * (p - q);
    }
    z[i] = (float)dz;
  }
  losses[1] = (float)(kd * tau * tau);
  z[target] -= (float)r->factor;
}

void backward_loss(struct walk *w, const struct loss_rows *rows) {
  struct loss_rows r = *rows;
  cpu_parallel(w->c, r.z.rows, 20ull * r.z.rows * r.z.cols, predict, &r);
}
