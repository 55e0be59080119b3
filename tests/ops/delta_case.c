// delta_case: see delta_case.h.
#include "delta_case.h"
#include "fixture.h"

void normalise(double *x, uint32_t n) {
  double sum = 0;
  for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
  for (uint32_t i = 0; i < n && sum > 0; i++) x[i] /= sqrt(sum);
}

uint32_t delta_cols(enum dtype dtype, struct delta_args a) {
  return (1 + a.n) * a.H * key_pitch(dtype, a.Dk) + a.n * a.Hv * a.Dv;
}

// Of head h; zeros in its padding.
static void normalise_key(enum dtype dtype, double *row, uint32_t h, uint32_t Dk) {
  const uint32_t pitch = key_pitch(dtype, Dk);
  normalise(row + h * pitch, Dk);
  for (uint32_t i = Dk; i < pitch; i++) row[h * pitch + i] = 0;
}

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

struct delta_case delta_random_in(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                                  double beta_max) {
  struct delta_case c = {.a = a, .B = B};
  c.rows = place_sequences(c.s, T, B);
  uint32_t rows = c.rows + DELTA_PADDING, cols = delta_cols(dtype, a), masks = a.fixed_mask ? 1 : rows,
           n = a.Hv * a.r * a.r;
  double *qkv = normals((size_t)rows * cols), *g = uniforms((size_t)rows * a.Hv, log(1e-3), log(5));
  for (uint32_t t = 0; t < rows; t++)
    for (uint32_t h = 0; h < (1 + a.n) * a.H; h++) normalise_key(dtype, qkv + (size_t)t * cols, h, a.Dk);
  for (size_t i = 0; i < (size_t)rows * a.Hv; i++) g[i] = -exp(g[i]);
  for (size_t i = (size_t)c.rows * cols; i < (size_t)rows * cols; i++) qkv[i] = NAN;
  c.qkv = activations_in(dtype, rows, cols, cols + gap, qkv);
  c.beta = activations(rows, a.n * a.Hv, DENSE, uniforms((size_t)rows * a.n * a.Hv, 0, beta_max));
  c.g = activations(rows, a.Hv, a.Hv + 1, g);
  if (a.r > 1) c.mask = activations(masks, n, n + 3, random_masks((size_t)masks * a.Hv, a.r, a.nonneg));
  c.state = activations(B + 1, a.Hv * a.Dk * a.Dv, DENSE, normals((size_t)(B + 1) * a.Hv * a.Dk * a.Dv));
  c.o = activations_in(dtype, rows, a.Hv * a.Dv, a.Hv * a.Dv + 3 * gap, uniforms((size_t)rows * a.Hv * a.Dv, 7, 8));
  return c;
}

// Keys up to this long fit 32 KiB of shared memory in chunks; longer ones are walked token by token where they do not.
enum { ALWAYS_CHUNKED = 128 };

struct delta_rule delta_rule_of(const struct delta_case *c, const struct sequence *s, uint32_t B) {
  return (struct delta_rule){.o = c->o.t,
                             .state = c->state.t,
                             .qkv = c->qkv.t,
                             .beta = c->beta.t,
                             .g = c->a.gated ? c->g.t : ABSENT,
                             .mask = c->a.r > 1 ? c->mask.t : ABSENT,
                             .sequences = sequences_of(s, B).t,
                             .a = c->a};
}

bool delta_case_run(const struct delta_case *c, const struct sequence *s, uint32_t B, enum delta_form form) {
  const struct delta_rule rule = delta_rule_of(c, s, B);
  list->form = form;
  RUN(op_delta_rule(list, &rule));
  const bool chunks = tensor_present(list->scratch);
  if (form == DELTA_CHUNK && c->a.Dk <= ALWAYS_CHUNKED && c->a.r <= 1) assert_true(chunks); // else both would be one
  return chunks;
}

void delta_rewind(struct delta_case *c) {
  rewind_array(&c->state);
  rewind_array(&c->o);
}

void reference_key(double *x, const struct delta_input_args *a) {
  double square = 1e-6, sum = 0, absolute = 0;
  for (uint32_t i = 0; i < a->Dk; i++) {
    x[i] = reference_activation(a->activation, x[i]);
    square += x[i] * x[i], sum += x[i], absolute += fabs(x[i]);
  }
  double by = a->norm == KEY_NORM_L2 ? sqrt(square) : a->norm == KEY_NORM_SUM ? sum : absolute;
  for (uint32_t i = 0; i < a->Dk && a->norm != KEY_NORM_NONE; i++) x[i] /= by;
}

void reference_update(double *S, const struct delta_args *a, const double *M, const double *k, double beta, double v) {
  const uint32_t r = a->r > 1 ? a->r : 1, d = a->Dk / r;
  double y[HH_MOST] = {0};
  for (uint32_t i = 0; i < a->Dk; i++) y[i / d] += k[i] * S[i * a->Dv];
  for (uint32_t i = 0; i < a->Dk; i++) {
    double u = v;
    for (uint32_t b = 0; b < r; b++) u -= M[i / d * r + b] * y[b];
    S[i * a->Dv] += k[i] * beta * u;
  }
}

// The definition in float64, one column of S after another.
static void reference_column(double *o, double *S, const struct delta_case *c, const struct sequence *s, uint32_t head,
                             uint32_t column) {
  const struct delta_args *a = &c->a;
  const uint32_t pitch = key_pitch(c->qkv.t.dtype, a->Dk), cols = delta_cols(c->qkv.t.dtype, *a);
  const uint32_t qk = (a->tiled ? head % a->H : head / (a->Hv / a->H)) * pitch, masks = a->r * a->r;
  double M[HH_MOST * HH_MOST] = {1};
  for (uint32_t t = s->row; t < s->row + s->T; t++) {
    const double *row = c->qkv.v + (size_t)t * cols, *v = row + (1 + a->n) * a->H * pitch + head * a->Dv + column;
    double decay = a->gated ? exp(c->g.v[t * a->Hv + head]) : 1, sum = 0;
    if (a->r > 1)
      reference_mask(M, c->mask.v + ((a->fixed_mask ? 0 : (size_t)t * a->Hv) + head) * masks, a->r, a->nonneg);
    for (uint32_t i = 0; i < a->Dk; i++) S[i * a->Dv] *= decay;
    for (uint32_t m = 0; m < a->n; m++) {
      const double *k = row + (1 + m) * a->H * pitch + qk, beta = c->beta.v[(t * a->n + m) * a->Hv + head];
      reference_update(S, a, M, k, beta, v[m * a->Hv * a->Dv]);
    }
    for (uint32_t i = 0; i < a->Dk; i++) sum += a->scale * row[qk + i] * S[i * a->Dv];
    o[(size_t)t * a->Hv * a->Dv + head * a->Dv + column] = sum;
  }
}

// Both start as copies of what the case starts with.
static void reference_delta(double *o, double *state, const struct delta_case *c) {
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

// ---------------------------------------------------------------- checks

// Blocks know one form without matrices, AUTO.
static int first_form(struct delta_args a) { return a.r > 1 ? FORMS - 1 : 0; }

void expect_delta(const char *const what[], const struct delta_case *c, double limit) {
  double *o = zeros((size_t)c->o.t.rows * c->o.t.cols), *state = zeros((size_t)c->state.t.rows * c->state.t.cols);
  reference_delta(o, state, c);
  expect_rows(what[0], &c->o, c->rows, o, limit);
  expect_state(what[1], &c->state, state, limit);
}

void expect_forms(const char *const what[], struct delta_case *c) {
  for (int f = first_form(c->a); f < FORMS; f++) {
    delta_rewind(c);
    delta_case_run(c, c->s, c->B, forms[f]);
    expect_delta(what, c, DELTA_CLOSE);
  }
}

void check_delta(const char *const what[], uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                 double beta_max) {
  struct delta_case c = delta_random_in(DTYPE_F32, gap, a, T, B, beta_max);
  expect_forms(what, &c);
  tools_teardown(NULL);
}

void check_splits(const char *const what[], struct delta_args a) {
  const uint32_t T = CUT_TOKENS;
  struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 2);
  for (int i = 0; i < CUTS; i++)
    for (int form = first_form(a); form < FORMS; form++) {
      delta_rewind(&c);
      struct sequence s = {0, 0, 0, c.s[0].slot};
      for (int j = 0; j < 4 && s.row < T; j++, s.row += s.T) {
        s.T = text_cuts[i][j];
        delta_case_run(&c, &s, 1, forms[form]);
      }
      expect_delta(what, &c, DELTA_CLOSE);
    }
}

void check_forgetting(const char *const what[], struct delta_args a) {
  const uint32_t T = 130, cols = 2 * a.Dk + a.Dv;
  const double gates[] = {-100, -1e5, -3e38};
  for (int i = 0; i < 3; i++)
    for (int form = first_form(a); form < FORMS; form++) {
      struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 1);
      double *want = zeros(T * a.Dv);
      for (uint32_t t = 0; t < T; t++) memcpy(c.qkv.v + t * cols, c.qkv.v + t * cols + a.Dk, a.Dk * sizeof *want);
      for (uint32_t j = 0; j < T * a.Dv; j++) // nothing is left of the past; q k = 1
        want[j] = c.beta.v[j / a.Dv] * c.qkv.v[j / a.Dv * cols + 2 * a.Dk + j % a.Dv];
      c.qkv = activations(T + DELTA_PADDING, cols, DENSE, c.qkv.v);
      c.g = activations(T + DELTA_PADDING, 1, DENSE, uniforms(T + DELTA_PADDING, gates[i], gates[i]));
      delta_case_run(&c, c.s, 1, forms[form]);
      expect_close(what[0], read_values(&c.o), want, T * a.Dv, 1e-6);
      double *S = read_values(&c.state);
      for (uint32_t j = 0; j < 2 * a.Dk * a.Dv; j++) assert_true(isfinite(S[j]));
    }
}

void check_digits_after_a_decay(const char *const what[], struct delta_args a) {
  const uint32_t T = 64;
  struct delta_case c = delta_random_in(DTYPE_F32, 4, a, &T, 1, 1);
  for (uint32_t t = 0; t < T; t++) c.g.v[t] = t == 3 ? -30000 : -0.01;
  c.g = activations(T + DELTA_PADDING, 1, DENSE, c.g.v);
  expect_forms(what, &c);
}

// ---------------------------------------------------------------- fixtures

// A tensor of case `name`; NULL: it has none such.
static double *fixture_of(const struct fixture *f, const char *name, const char *key, size_t count) {
  char tensor[128];
  snprintf(tensor, sizeof tensor, "%s.%s", name, key);
  return fixture_has(f, tensor) ? fixture_values(f, tensor, count) : NULL;
}

static struct delta_case fixture_delta(const struct fixture *f, const char *name, bool blocks) {
  struct delta_args a = {.n = 1, .nonneg = HH_NONNEG_GIVEN, .scale = (float)fixture_number(f, name, "scale")};
  if (blocks)
    a.r = (uint32_t)fixture_number(f, name, "r"), a.fixed_mask = fixture_number(f, name, "static") != 0;
  else
    a.n = (uint32_t)fixture_number(f, name, "nh");
  a.H = a.Hv = (uint32_t)fixture_number(f, name, "H");
  a.Dk = (uint32_t)fixture_number(f, name, "K");
  a.Dv = (uint32_t)fixture_number(f, name, "V");
  a.gated = fixture_number(f, name, "gated") != 0;
  uint32_t T = (uint32_t)fixture_number(f, name, "T"), cols = delta_cols(DTYPE_F32, a);
  uint32_t masks = a.fixed_mask ? 1 : T, n = a.H * a.r * a.r;
  struct delta_case c = {.a = a, .B = 1, .rows = T, .s = {{0, T, 0, 0}}};
  size_t keys = (size_t)T * a.H * a.Dk, values = (size_t)T * a.H * a.Dv, gates = (size_t)T * a.H;
  double *q = fixture_of(f, name, "q", keys), *k = fixture_of(f, name, "k", a.n * keys);
  double *v = fixture_of(f, name, "v", a.n * values), *beta = fixture_of(f, name, "beta", a.n * gates);
  double *g = fixture_of(f, name, "g", gates), *S0 = fixture_of(f, name, "S0", (size_t)a.H * a.Dk * a.Dv);
  double *M = blocks ? fixture_of(f, name, "M", (size_t)masks * n) : NULL, *qkv = zeros((size_t)T * cols);
  uint32_t qs = a.H * a.Dk, vs = a.H * a.Dv; // one token's, step after step in the file as in the row
  for (uint32_t t = 0; t < T; t++) {
    memcpy(qkv + (size_t)t * cols, q + t * qs, qs * sizeof *q);
    memcpy(qkv + (size_t)t * cols + qs, k + t * a.n * qs, a.n * qs * sizeof *k);
    memcpy(qkv + (size_t)t * cols + (1 + a.n) * qs, v + t * a.n * vs, a.n * vs * sizeof *v);
  }
  c.qkv = activations(T, cols, DENSE, qkv);
  c.beta = activations(T, a.n * a.H, DENSE, beta);
  c.g = activations(T, a.H, DENSE, g);
  if (blocks) c.mask = activations(masks, n, DENSE, M);
  c.state = activations(1, a.H * a.Dk * a.Dv, DENSE, S0);
  c.o = activations(T, a.H * a.Dv, DENSE, NULL);
  free(q), free(k), free(v), free(beta), free(g), free(S0), free(M);
  return c;
}

// The columns of which the fixture has the truth.
static double *every(const double *values, size_t n, size_t step) {
  double *kept = zeros(n / step);
  for (size_t i = 0; i < n / step; i++) kept[i] = values[i * step];
  return kept;
}

size_t check_truths(const char *const what[], const char *path, bool blocks) {
  struct fixture *f = fixture_open(path);
  size_t cases = 0;
  for (const char *name; (name = fixture_case(f, cases)); cases++)
    for (int form = blocks ? FORMS - 1 : 0; form < FORMS; form++) {
      struct delta_case c = fixture_delta(f, name, blocks);
      bool chunks = delta_case_run(&c, c.s, 1, forms[form]);
      size_t step = (size_t)fixture_number(f, name, "columns"), n = (size_t)c.rows * c.o.t.cols / step;
      size_t states = c.state.t.cols / step;
      double *truth = fixture_of(f, name, "truth_o", n), *truth_s = fixture_of(f, name, "truth_s", states);
      double *o = every(read_values(&c.o), n * step, step), *S = every(read_values(&c.state), states * step, step);
      double error = rms_error(o, truth, n), error_s = rms_error(S, truth_s, states);
      double cuda = blocks ? INFINITY : fixture_number(f, name, "cuda_o");
      double cuda_s = blocks ? INFINITY : fixture_number(f, name, "cuda_s");
      print_message("  %-20s %-9s o %.1e (CUDA %.1e)  state %.1e (CUDA %.1e)\n", name, chunks ? "chunk" : "recurrent",
                    error, cuda, error_s, cuda_s);
      expect_close(what[0], o, truth, n, DELTA_CLOSE);
      expect_close(what[1], S, truth_s, states, DELTA_CLOSE);
      assert_true(error < cuda && error_s < cuda_s);
      free(truth), free(truth_s);
      tools_teardown(NULL);
    }
  fixture_close(f);
  return cases;
}
