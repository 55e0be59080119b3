// backward_inputs: backward passes of what precedes the recurrences: norms of keys, gates, rotary positions.
#include "backward_cpu.h"

struct inputs_call {
  struct delta_inputs o;
  struct tensor dy, dbeta, dg, dx, dba;
  float *decay; // (T, 2 * decays): contributions to dA_log, then to ddt_bias
};

// One head. y = norm(act(x)); with y, not x, in the bracket, the L2 norm's epsilon needs no term.
static void head_back(const struct delta_input_args *a, const float *x, const float *y, const float *dy, float *dx) {
  double dot = 0, sum = 0, factor = 1;
  for (uint32_t i = 0; i < a->Dk; i++) {
    const double z = cpu_activate(a->activation, x[i]);
    sum += a->norm == KEY_NORM_L2 ? z * z : a->norm == KEY_NORM_L1 ? fabs(z) : z;
    dot += (double)dy[i] * y[i];
  }
  if (a->norm == KEY_NORM_L2) factor = 1 / sqrt(sum + 1e-6);
  if (a->norm == KEY_NORM_SUM || a->norm == KEY_NORM_L1) factor = sum != 0 ? 1 / sum : 0;
  for (uint32_t i = 0; i < a->Dk; i++) {
    double d = dy[i];
    if (a->norm == KEY_NORM_L2) d -= y[i] * dot;
    if (a->norm == KEY_NORM_SUM) d -= dot;
    if (a->norm == KEY_NORM_L1) d -= y[i] > 0 ? dot : y[i] < 0 ? -dot : 0;
    dx[i] += (float)(factor * d * activation_slope(a->activation, x[i]));
  }
}

static void gates_back(const struct inputs_call *in, uint64_t t) {
  const struct delta_input_args *a = &in->o.a;
  const float *beta = f32_row(&in->o.beta, t), *dbeta = f32_row(&in->dbeta, t);
  float *dba = in->dba.buffer ? f32_row(&in->dba, t) : NULL;
  for (uint32_t j = 0; a->has_beta && j < a->betas; j++) dba[j] += dbeta[j] * beta[j] * (1 - beta[j] / a->beta_scale);
  if (!a->gated) return;
  const float *ba = f32_row(&in->o.ba, t), *g = f32_row(&in->o.g, t), *dg = f32_row(&in->dg, t);
  const float *A_log = f32_row(&in->o.A_log, 0), *dt_bias = f32_row(&in->o.dt_bias, 0);
  const uint32_t from = a->has_beta ? a->betas : 0;
  float *decay = in->decay + t * 2 * a->decays;
  for (uint32_t j = 0; j < a->decays; j++) {
    const float d = -expf(A_log[j]) * sigmoid(ba[from + j] + dt_bias[j]) * dg[j];
    dba[from + j] += d;
    decay[j] = dg[j] * g[j];
    decay[a->decays + j] = d;
  }
}

static void inputs_row(void *context, uint64_t t, uint32_t worker) {
  const struct inputs_call *in = context;
  (void)worker;
  const struct delta_input_args *a = &in->o.a;
  const float *x = f32_row(&in->o.x, t), *y = f32_row(&in->o.y, t), *dy = f32_row(&in->dy, t);
  float *dx = f32_row(&in->dx, t);
  const uint32_t keys = a->heads * a->Dk;
  for (uint32_t c = 0; c < keys; c += a->Dk) head_back(a, x + c, y + c, dy + c, dx + c);
  for (uint32_t c = keys; c < in->dx.cols; c++) dx[c] += dy[c];
  gates_back(in, t);
}

void backward_delta_inputs(struct walk *w, const struct delta_inputs *op) {
  const uint64_t T = op->x.rows, decays = op->a.decays;
  struct inputs_call in = {.o = *op,
                           .dy = walk_gradient(w, op->y),
                           .dbeta = walk_gradient(w, op->beta),
                           .dg = walk_gradient(w, op->g),
                           .dx = walk_gradient(w, op->x),
                           .dba = walk_gradient(w, op->ba),
                           .decay = back_room(w, T * 2 * decays)};
  if (!in.decay) return;
  cpu_parallel(w->c, T, 8 * T * op->x.cols, inputs_row, &in);
  back_add_rows(w, walk_gradient(w, op->A_log), in.decay, T, 2 * decays);
  back_add_rows(w, walk_gradient(w, op->dt_bias), in.decay + decays, T, 2 * decays);
}

// ---------------------------------------------------------------- Mamba-2
// dt = clamp(softplus(raw + dt_bias)), g = -e^A_log dt:  ddt -= e^A_log dg,  dA_log = sum dg g

void backward_mamba2_inputs(struct walk *w, const struct mamba2_inputs *op) {
  const uint64_t T = op->dt.rows;
  const uint32_t n = op->dt.cols;
  const struct tensor ddt = walk_gradient(w, op->dt), dg = walk_gradient(w, op->g), draw = walk_gradient(w, op->raw);
  float *parts = back_room(w, T * 2 * n);
  if (!parts) return;
  const float *A_log = f32_row(&op->A_log, 0), *dt_bias = f32_row(&op->dt_bias, 0);
  for (uint64_t t = 0; t < T; t++)
    for (uint32_t j = 0; j < n; j++) {
      const float z = f32_row(&op->raw, t)[j] + dt_bias[j], soft = z > 20 ? z : log1pf(expf(z));
      const bool clamped = soft < op->low || soft > op->high;
      const float d = f32_row(&ddt, t)[j] - expf(A_log[j]) * f32_row(&dg, t)[j], dz = clamped ? 0 : d * sigmoid(z);
      f32_row(&draw, t)[j] += dz;
      parts[t * 2 * n + j] = f32_row(&dg, t)[j] * f32_row(&op->g, t)[j];
      parts[t * 2 * n + n + j] = dz;
    }
  back_add_rows(w, walk_gradient(w, op->A_log), parts, T, 2 * n);
  back_add_rows(w, walk_gradient(w, op->dt_bias), parts + n, T, 2 * n);
}

// ---------------------------------------------------------------- rotary positions

// x rotated by minus the position, which is the transpose of the rotation (cpu_attention.c).
static void rotate_back(float *x, const struct tensor *table, uint32_t position) {
  const uint32_t half = table->cols / 2;
  for (uint32_t level = 0; half && level < 4; level++) {
    const uint32_t byte = position >> 8 * level & 255;
    if (!byte) continue;
    const float *cosine = f32_row(table, level * 256 + byte), *sine = cosine + (table->cols - half);
    for (uint32_t j = 0; j < half; j++) {
      const float a = x[j], b = x[j + half];
      x[j] = a * cosine[j] + b * sine[j];
      x[j + half] = b * cosine[j] - a * sine[j];
    }
  }
}

// The gradients of the cached keys and values are those of y's columns: backward_attention() adds them there.
struct rope_call {
  const struct rope_append *o;
  struct tensor dy;
};

static void rotate_sequence(void *context, uint64_t s, uint32_t worker) {
  const struct rope_call *r = context;
  const struct sequence *q = walk_sequence(&r->o->sequences, (uint32_t)s);
  const uint32_t heads = r->o->a.heads + r->o->a.kv_heads, d = r->o->a.d;
  (void)worker;
  for (uint32_t t = 0; t < q->T; t++)
    for (uint32_t h = 0; h < heads; h++) rotate_back(f32_row(&r->dy, q->row + t) + h * d, &r->o->table, q->pos + t);
}

void backward_rope_append(struct walk *w, const struct rope_append *op) {
  const struct tensor dy = walk_gradient(w, op->y), dx = walk_gradient(w, op->x);
  cpu_parallel(w->c, op->sequences.rows, (uint64_t)dy.rows * dy.cols, rotate_sequence, &(struct rope_call){op, dy});
  back_add(w, dx, dy);
}
