// hh_case: see hh_case.h.
#include "hh_case.h"

uint32_t hh_cols(enum dtype dtype, struct delta_args a) { return 2 * a.H * key_pitch(dtype, a.Dk) + a.Hv * a.Dv; }

static double reference_nonneg(double z, enum hh_nonneg nonneg) {
  if (nonneg == HH_NONNEG_SOFTPLUS) return z > 20 ? z : log1p(exp(z));
  return nonneg == HH_NONNEG_SIGMOID ? 1 / (1 + exp(-z)) : exp(z);
}

void reference_mask(double *M, const double *z, uint32_t r, enum hh_nonneg nonneg) {
  double N[HH_MOST * HH_MOST];
  for (uint32_t a = 0; a < r && nonneg != HH_NONNEG_GIVEN; a++) {
    double sum = 1e-6;
    for (uint32_t b = 0; b < r; b++) {
      N[a * r + b] = reference_nonneg(z[a * r + b], nonneg);
      sum += N[a * r + b] * N[a * r + b];
    }
    for (uint32_t b = 0; b < r; b++) N[a * r + b] /= sqrt(sum);
  }
  for (uint32_t i = 0; i < r * r; i++) {
    M[i] = nonneg == HH_NONNEG_GIVEN ? z[i] : 0;
    for (uint32_t c = 0; c < r && nonneg != HH_NONNEG_GIVEN; c++) M[i] += N[i / r * r + c] * N[i % r * r + c];
  }
}

double *random_masks(size_t count, uint32_t r, enum hh_nonneg nonneg) {
  double *z = normals(count * r * r);
  for (size_t i = 0; i < count && nonneg == HH_NONNEG_GIVEN; i++) {
    double M[HH_MOST * HH_MOST];
    reference_mask(M, z + i * r * r, r, HH_NONNEG_EXP);
    memcpy(z + i * r * r, M, r * r * sizeof *M);
  }
  return z;
}

struct hh_case hh_random_in(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                            double beta_max) {
  struct hh_case c = {.a = a, .B = B};
  c.rows = place_sequences(c.s, T, B);
  uint32_t rows = c.rows + DELTA_PADDING, cols = hh_cols(dtype, a), masks = a.fixed_mask ? 1 : rows,
           n = a.Hv * a.r * a.r;
  double *qkv = normals((size_t)rows * cols), *g = uniforms((size_t)rows * a.Hv, log(1e-3), log(5));
  for (uint32_t t = 0; t < rows; t++)
    for (uint32_t h = 0; h < 2 * a.H; h++) normalise_key(dtype, qkv + (size_t)t * cols, h, a.Dk);
  for (size_t i = 0; i < (size_t)rows * a.Hv; i++) g[i] = -exp(g[i]);
  for (size_t i = (size_t)c.rows * cols; i < (size_t)rows * cols; i++) qkv[i] = NAN;
  c.qkv = activations_in(dtype, rows, cols, cols + gap, qkv);
  c.beta = activations(rows, a.Hv, DENSE, uniforms((size_t)rows * a.Hv, 0, beta_max));
  c.g = activations(rows, a.Hv, a.Hv + 1, g);
  c.mask = activations(masks, n, n + 3, random_masks((size_t)masks * a.Hv, a.r, a.nonneg));
  c.state = activations(B + 1, a.Hv * a.Dk * a.Dv, DENSE, normals((size_t)(B + 1) * a.Hv * a.Dk * a.Dv));
  c.o = activations_in(dtype, rows, a.Hv * a.Dv, a.Hv * a.Dv + 3 * gap, uniforms((size_t)rows * a.Hv * a.Dv, 7, 8));
  return c;
}

void hh_rewind(struct hh_case *c) {
  rewind_array(&c->state);
  rewind_array(&c->o);
}

// The definition in float64, one column of S (rows Dv apart) after another:
//   S <- e^g (S - beta (k^T k * expand(M)) S) + beta k^T v
static void reference_column(double *o, double *S, const struct hh_case *c, const struct sequence *s, uint32_t head,
                             uint32_t column) {
  const struct delta_args *a = &c->a;
  const uint32_t pitch = key_pitch(c->qkv.t.dtype, a->Dk), cols = hh_cols(c->qkv.t.dtype, *a);
  const uint32_t qk = head / (a->Hv / a->H) * pitch, d = a->Dk / a->r, masks = a->r * a->r;
  double M[HH_MOST * HH_MOST], y[HH_MOST];
  for (uint32_t t = s->row; t < s->row + s->T; t++) {
    const double *q = c->qkv.v + (size_t)t * cols + qk, *k = q + a->H * pitch;
    double v = c->qkv.v[(size_t)t * cols + 2 * a->H * pitch + head * a->Dv + column];
    double decay = a->gated ? exp(c->g.v[t * a->Hv + head]) : 1, beta = c->beta.v[t * a->Hv + head], sum = 0;
    reference_mask(M, c->mask.v + ((a->fixed_mask ? 0 : (size_t)t * a->Hv) + head) * masks, a->r, a->nonneg);
    for (uint32_t b = 0; b < a->r; b++) {
      y[b] = 0;
      for (uint32_t i = b * d; i < (b + 1) * d; i++) y[b] += k[i] * S[(size_t)i * a->Dv];
    }
    for (uint32_t i = 0; i < a->Dk; i++) {
      double erased = 0;
      for (uint32_t b = 0; b < a->r; b++) erased += M[i / d * a->r + b] * y[b];
      S[(size_t)i * a->Dv] = decay * (S[(size_t)i * a->Dv] - beta * k[i] * erased) + beta * k[i] * v;
      sum += a->scale * q[i] * S[(size_t)i * a->Dv];
    }
    o[(size_t)t * a->Hv * a->Dv + head * a->Dv + column] = sum;
  }
}

void reference_hh(double *o, double *state, const struct hh_case *c) {
  const struct delta_args *a = &c->a;
  memcpy(o, c->o.v, (size_t)c->o.t.rows * c->o.t.cols * sizeof *o);
  memcpy(state, c->state.v, (size_t)c->state.t.rows * c->state.t.cols * sizeof *state);
  for (uint32_t i = 0; i < c->B; i++)
    for (uint32_t h = 0; h < a->Hv; h++)
      for (uint32_t j = 0; j < a->Dv; j++) {
        double *S = state + (size_t)c->s[i].slot * c->state.t.cols + (size_t)h * a->Dk * a->Dv + j;
        reference_column(o, S, c, &c->s[i], h, j);
      }
}
