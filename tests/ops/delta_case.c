// delta_case: see delta_case.h.
#include "delta_case.h"

void normalise(double *x, uint32_t n) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
  for (uint32_t i = 0; i < n && sum > 0; i++) x[i] /= sqrt(sum);
}

uint32_t delta_cols(enum dtype dtype, struct delta_args a) {
  return (1 + a.n) * a.H * key_pitch(dtype, a.Dk) + a.n * a.Hv * a.Dv;
}

void normalise_key(enum dtype dtype, double *row, uint32_t h, uint32_t Dk) {
  const uint32_t pitch = key_pitch(dtype, Dk);
  normalise(row + h * pitch, Dk);
  for (uint32_t i = Dk; i < pitch; i++) row[h * pitch + i] = 0;
}

struct delta_case delta_random_in(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                                  double beta_max) {
  struct delta_case c = {.a = a, .B = B};
  c.rows = place_sequences(c.s, T, B);
  uint32_t rows = c.rows + DELTA_PADDING, cols = delta_cols(dtype, a);
  double *qkv = normals((size_t)rows * cols), *g = uniforms((size_t)rows * a.Hv, log(1e-3), log(5));
  for (uint32_t t = 0; t < rows; t++)
    for (uint32_t h = 0; h < (1 + a.n) * a.H; h++) normalise_key(dtype, qkv + (size_t)t * cols, h, a.Dk);
  for (size_t i = 0; i < (size_t)rows * a.Hv; i++) g[i] = -exp(g[i]);
  for (size_t i = (size_t)c.rows * cols; i < (size_t)rows * cols; i++) qkv[i] = NAN;
  c.qkv = activations_in(dtype, rows, cols, cols + gap, qkv);
  c.beta = activations(rows, a.n * a.Hv, DENSE, uniforms((size_t)rows * a.n * a.Hv, 0, beta_max));
  c.g = activations(rows, a.Hv, a.Hv + 1, g);
  c.state = activations(B + 1, a.Hv * a.Dk * a.Dv, DENSE, normals((size_t)(B + 1) * a.Hv * a.Dk * a.Dv));
  c.o = activations_in(dtype, rows, a.Hv * a.Dv, a.Hv * a.Dv + 3 * gap, uniforms((size_t)rows * a.Hv * a.Dv, 7, 8));
  return c;
}

// Keys up to this long fit 32 KiB of shared memory in chunks; longer ones are walked token by token where they do not.
enum { ALWAYS_CHUNKED = 128 };

bool delta_case_run(const struct delta_case *c, const struct sequence *s, uint32_t B, enum delta_form form) {
  list->form = form;
  begin();
  op_delta_rule(list, &(struct delta_rule){.o = c->o.t,
                                           .state = c->state.t,
                                           .qkv = c->qkv.t,
                                           .beta = c->beta.t,
                                           .g = c->a.gated ? c->g.t : ABSENT,
                                           .sequences = sequences_of(s, B).t,
                                           .a = c->a});
  run();
  const bool chunks = tensor_present(list->scratch);
  if (form == DELTA_CHUNK && c->a.Dk <= ALWAYS_CHUNKED) assert_true(chunks); // else both forms would be one
  return chunks;
}

void delta_rewind(struct delta_case *c) {
  rewind_array(&c->state);
  rewind_array(&c->o);
}

// The recurrence in float64, one column of S after another.
static void reference_column(double *o, double *S, const struct delta_case *c, const struct sequence *s, uint32_t head,
                             uint32_t column) {
  const struct delta_args *a = &c->a;
  const uint32_t pitch = key_pitch(c->qkv.t.dtype, a->Dk), cols = delta_cols(c->qkv.t.dtype, *a);
  const uint32_t qk = head / (a->Hv / a->H) * pitch;
  for (uint32_t t = s->row; t < s->row + s->T; t++) {
    const double *row = c->qkv.v + (size_t)t * cols, *v = row + (1 + a->n) * a->H * pitch + head * a->Dv + column;
    double decay = a->gated ? exp(c->g.v[t * a->Hv + head]) : 1, sum = 0;
    for (uint32_t i = 0; i < a->Dk; i++) S[i * a->Dv] *= decay;
    for (uint32_t m = 0; m < a->n; m++) {
      const double *k = row + (1 + m) * a->H * pitch + qk;
      double u = v[m * a->Hv * a->Dv];
      for (uint32_t i = 0; i < a->Dk; i++) u -= k[i] * S[i * a->Dv];
      u *= c->beta.v[(t * a->n + m) * a->Hv + head];
      for (uint32_t i = 0; i < a->Dk; i++) S[i * a->Dv] += k[i] * u;
    }
    for (uint32_t i = 0; i < a->Dk; i++) sum += a->scale * row[qk + i] * S[i * a->Dv];
    o[(size_t)t * a->Hv * a->Dv + head * a->Dv + column] = sum;
  }
}

void reference_delta(double *o, double *state, const struct delta_case *c) {
  const struct delta_args *a = &c->a;
  memcpy(o, c->o.v, (size_t)c->o.t.rows * c->o.t.cols * sizeof *o);
  memcpy(state, c->state.v, (size_t)c->state.t.rows * c->state.t.cols * sizeof *state);
  for (uint32_t i = 0; i < c->B; i++)
    for (uint32_t h = 0; h < a->Hv; h++)
      for (uint32_t j = 0; j < a->Dv; j++) {
        double *S = state + (size_t)c->s[i].slot * c->state.t.cols + h * a->Dk * a->Dv + j;
        reference_column(o, S, c, &c->s[i], h, j);
      }
}

double *fixture_of(const struct fixture *f, const char *name, const char *key, size_t count) {
  char tensor[128];
  snprintf(tensor, sizeof tensor, "%s.%s", name, key);
  return fixture_has(f, tensor) ? fixture_values(f, tensor, count) : NULL;
}

struct delta_case fixture_delta(const struct fixture *f, const char *name) {
  struct delta_args a = {.n = (uint32_t)fixture_number(f, name, "nh"),
                         .scale = (float)fixture_number(f, name, "scale")};
  a.H = a.Hv = (uint32_t)fixture_number(f, name, "H");
  a.Dk = (uint32_t)fixture_number(f, name, "K");
  a.Dv = (uint32_t)fixture_number(f, name, "V");
  a.gated = fixture_number(f, name, "gated") != 0;
  uint32_t T = (uint32_t)fixture_number(f, name, "T"), cols = delta_cols(DTYPE_F32, a);
  struct delta_case c = {.a = a, .B = 1, .rows = T, .s = {{0, T, 0, 0}}};
  size_t keys = (size_t)T * a.H * a.Dk, values = (size_t)T * a.H * a.Dv, gates = (size_t)T * a.H;
  double *q = fixture_of(f, name, "q", keys), *k = fixture_of(f, name, "k", a.n * keys);
  double *v = fixture_of(f, name, "v", a.n * values), *beta = fixture_of(f, name, "beta", a.n * gates);
  double *g = fixture_of(f, name, "g", gates), *S0 = fixture_of(f, name, "S0", (size_t)a.H * a.Dk * a.Dv);
  double *qkv = zeros((size_t)T * cols);
  uint32_t qs = a.H * a.Dk, vs = a.H * a.Dv; // one token's, step after step in the file as in the row
  for (uint32_t t = 0; t < T; t++) {
    memcpy(qkv + (size_t)t * cols, q + t * qs, qs * sizeof *q);
    memcpy(qkv + (size_t)t * cols + qs, k + t * a.n * qs, a.n * qs * sizeof *k);
    memcpy(qkv + (size_t)t * cols + (1 + a.n) * qs, v + t * a.n * vs, a.n * vs * sizeof *v);
  }
  c.qkv = activations(T, cols, DENSE, qkv);
  c.beta = activations(T, a.n * a.H, DENSE, beta);
  c.g = activations(T, a.H, DENSE, g);
  c.state = activations(1, a.H * a.Dk * a.Dv, DENSE, S0);
  c.o = activations(T, a.H * a.Dv, DENSE, NULL);
  free(q), free(k), free(v), free(beta), free(g), free(S0);
  return c;
}
