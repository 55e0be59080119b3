// test_refit: the refit's matrices against a plain solution of their definition (pruning/refit.c) in float64, from
// evaluations of whole models.
#define _GNU_SOURCE // nftw, mkdtemp
#include "checkpoint.h"
#include "deltaic_tune.h"

#include "prune_folder.h"

#include <math.h>

#define MODEL TESTS_DIR "/vectors/models/tiny_gated_deltanet_h1" // layers 0 and 2: delta rule; 1 and 3: attention
#define MIXED TESTS_DIR "/vectors/models/tiny_gated_deltanet_h2" // layers 1 and 4: delta rule; 0 and 3: Mamba-2
enum { TOKENS = 108, WINDOW = 40, LAYERS = 6, MOST = 128 };      // the last window is short

static int32_t tokens[TOKENS];

static void make_text(void) {
  uint32_t x = 7;
  for (int i = 0; i < TOKENS; i++) tokens[i] = 3 + (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % 256;
}

// ---------------------------------------------------------------- activations

struct activations {
  double residual[LAYERS][TOKENS][MOST], mixer[LAYERS][TOKENS][MOST], heads[LAYERS][TOKENS][MOST];
  size_t at;           // the window's first token
  size_t D, n[LAYERS]; // of the residual stream, of the heads' outputs
};

static bool on_probe(void *user, const deltaic_probed *p) {
  struct activations *a = user;
  double(*to)[MOST] = p->kind == DELTAIC_PROBE_RESIDUAL ? a->residual[p->layer]
                      : p->kind == DELTAIC_PROBE_HEADS  ? a->heads[p->layer]
                                                        : a->mixer[p->layer];
  assert_true(p->cols <= MOST && p->layer < LAYERS);
  *(p->kind == DELTAIC_PROBE_HEADS ? &a->n[p->layer] : &a->D) = p->cols;
  for (size_t t = 0; t < p->rows; t++)
    for (size_t i = 0; i < p->cols; i++) to[a->at + p->position + t][i] = p->data[t * p->cols + i];
  return true;
}

static void evaluate(const char *path, struct activations *a) {
  deltaic_model *model = open_model(cpu, path);
  deltaic_session *session = open_session(model, &exact);
  const uint32_t kinds = DELTAIC_PROBE_RESIDUAL | DELTAIC_PROBE_MIXER_OUTPUT | DELTAIC_PROBE_HEADS;
  assert_ok(deltaic_session_probe(session, kinds, on_probe, a));
  for (a->at = 0; a->at < TOKENS; a->at += WINDOW) {
    assert_ok(deltaic_session_reset(session));
    assert_ok(deltaic_session_eval(session, tokens + a->at, TOKENS - a->at < WINDOW ? TOKENS - a->at : WINDOW,
                                   DELTAIC_LOGITS_NONE, NULL));
  }
  close_session(session, model);
}

// ---------------------------------------------------------------- the definition

// Solves A x = b in place, by elimination; A is positive definite. b (n, columns).
static void eliminate(double A[MOST][MOST], double b[MOST][MOST], size_t n, size_t columns) {
  for (size_t p = 0; p < n; p++)
    for (size_t i = 0; i < n; i++) {
      const double f = A[i][p] / A[p][p];
      if (i == p) continue;
      for (size_t k = p; k < n; k++) A[i][k] -= f * A[p][k];
      for (size_t k = 0; k < columns; k++) b[i][k] -= f * b[p][k];
    }
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < columns; k++) b[i][k] /= A[i][i];
}

// W^T (n, D) from W0 (D, n).
static void define(const struct activations *whole, const struct activations *small, int last, int layer,
                   const float *W0, double W[MOST][MOST]) {
  static double G[MOST][MOST];
  const size_t n = small->n[layer], D = small->D;
  double lambda = 0;
  memset(G, 0, sizeof G);
  memset(W, 0, sizeof G);
  for (size_t t = 0; t < TOKENS; t++) {
    double squares = 0;
    for (size_t i = 0; i < D; i++)
      squares += pow(whole->residual[last][t][i] + whole->mixer[last][t][i], 2) / (double)D;
    const double *x = small->heads[layer][t], weight = 1 / (squares + 1e-6);
    for (size_t i = 0; i < n; i++) lambda += weight * x[i] * x[i] / TOKENS;
    for (size_t k = 0; k < D; k++) {
      double error = whole->residual[layer][t][k] + whole->mixer[layer][t][k] - small->residual[layer][t][k];
      for (size_t i = 0; i < n; i++) error -= W0[k * n + i] * x[i];
      for (size_t i = 0; i < n; i++) W[i][k] += weight * x[i] * error;
    }
    for (size_t i = 0; i < n; i++)
      for (size_t j = 0; j < n; j++) G[i][j] += weight * x[i] * x[j];
  }
  for (size_t i = 0; i < n; i++) G[i][i] += lambda;
  eliminate(G, W, n, D);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < D; k++) W[i][k] += W0[k * n + i];
}

static void read_matrix(const char *path, const char *name, int layer, float *W, size_t count) {
  struct checkpoint *c;
  assert_ok(checkpoint_open_folder(path, &c));
  const struct file_tensor *t = checkpoint_findf(c, "model.layers.%d.%s.weight", layer, name);
  assert_int_equal(t->shape[0] * t->shape[1], count);
  file_tensor_f32(t, 0, count, W);
  checkpoint_close(c);
}

static void read_output(const char *path, int layer, float *W, size_t count) {
  read_matrix(path, "attn.o_proj", layer, W, count);
}

// ---------------------------------------------------------------- tests

static deltaic_pruning *prune(const char *path) {
  deltaic_selection *selection = select_cut(path, NULL, "l1", 0.5);
  deltaic_pruning *p;
  assert_ok(deltaic_pruning_begin(path, selection, place("pruned"), NULL, &p));
  deltaic_selection_free(selection);
  return p;
}

static void check_layer(const char *path, const char *refitted, int last, int layer) {
  static struct activations whole, small;
  static double want[MOST][MOST];
  static float W0[MOST * MOST], W[MOST * MOST];
  double change = 0, size = 0;
  evaluate(path, &whole);
  evaluate(refitted, &small);
  const size_t n = small.n[layer], D = small.D;
  read_output(path, layer, W0, n * D);
  read_output(refitted, layer, W, n * D);
  define(&whole, &small, last, layer, W0, want);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < D; k++) {
      const double w = want[i][k], got = W[k * n + i];
      if (!(fabs(got - w) <= 0x1p-8 * fabs(w) + 1e-5)) // the file has bf16
        fail_msg("layer %d: o_proj[%zu, %zu] is %g, expected %g", layer, k, i, got, w);
      change += pow(w - W0[k * n + i], 2);
      size += w * w;
    }
  assert_true(sqrt(change) > 0.05 * sqrt(size));
}

static deltaic_pruning *refit(deltaic_device *device, const char *path) {
  deltaic_refit_options o = {.size = sizeof o, .window = WINDOW};
  deltaic_pruning *p = prune(path);
  deltaic_model *model = open_model(device, path);
  assert_ok(deltaic_pruning_refit(p, device, model, tokens, TOKENS, &o, NULL, NULL));
  deltaic_model_close(model);
  return p;
}

// Layers first and first + step of a model of `layers` are pruned.
static void check_model(deltaic_device *device, const char *path, int layers, int first, int step) {
  deltaic_pruning *p = refit(device, path);
  for (int i = 0; i < 2; i++) check_layer(path, deltaic_pruning_path(p), layers - 1, first + i * step);
  deltaic_pruning_free(p);
}

static void matrices_are_those_of_the_definition(deltaic_device *device) { check_model(device, MODEL, 4, 0, 2); }

// MIXED with heads in its Mamba-2 layers that are together as wide as those of its delta-rule layers.
static const char *write_equal_widths(void) {
  static char config[4096];
  FILE *f = fopen(MIXED "/config.json", "rb");
  assert_non_null(f);
  config[fread(config, 1, sizeof config - 1, f)] = 0;
  fclose(f);
  char *expand = strstr(config, "\"expand\": 2");
  assert_non_null(expand);
  expand[strlen("\"expand\": ")] = '1';
  assert_non_null(f = fopen(place("config.json"), "wb"));
  assert_true(fputs(config, f) >= 0 && !fclose(f));
  assert_int_equal(mkdir(place("equal"), 0755), 0);
  assert_ok(deltaic_tune_initialize(place("config.json"), 1, place("equal")));
  return place("equal");
}

static void mamba2_layers_stay(void **state) {
  enum { COUNT = 64 * 64 };
  static float before[COUNT], after[COUNT];
  const char *path = write_equal_widths();
  check_model(cpu, MIXED, 6, 1, 3);
  check_model(cpu, path, 6, 1, 3);
  deltaic_pruning *p = refit(cpu, path);
  for (int layer = 0; layer < 6; layer += 3) {
    read_matrix(path, "mixer.out_proj", layer, before, COUNT);
    read_matrix(deltaic_pruning_path(p), "mixer.out_proj", layer, after, COUNT);
    assert_memory_equal(before, after, sizeof before);
  }
  deltaic_pruning_free(p);
}

static deltaic_status refit_within(uint64_t memory, float *W, size_t count) {
  deltaic_refit_options o = {.size = sizeof o, .window = WINDOW, .memory = memory};
  deltaic_pruning *p = prune(MODEL);
  deltaic_model *model = open_model(cpu, MODEL);
  deltaic_status status = deltaic_pruning_refit(p, cpu, model, tokens, TOKENS, &o, NULL, NULL);
  for (int i = 0; i < 2 && !status; i++) read_output(deltaic_pruning_path(p), 2 * i, W + (size_t)i * count, count);
  deltaic_model_close(model);
  deltaic_pruning_free(p);
  return status;
}

static void little_memory_gives_the_same_bits(void **state) {
  static float all[2 * MOST * MOST], few[2 * MOST * MOST];
  deltaic_model *model = open_model(cpu, MODEL);
  const deltaic_model_info info = info_of(model);
  const size_t D = (size_t)info.width, n = (size_t)(info.value_heads * info.value_size);
  const uint64_t least = TOKENS * (2 * D + n) * sizeof(float);
  deltaic_model_close(model);
  assert_ok(refit_within(0, all, n * D));
  assert_ok(refit_within(least, few, n * D));
  assert_memory_equal(all, few, sizeof all);
  assert_int_equal(refit_within(least - 1, few, n * D), DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "the residual streams of 108 tokens take"));
}

static void another_model_is_refused(void **state) {
  deltaic_refit_options o = {.size = sizeof o, .window = WINDOW};
  deltaic_pruning *p = prune(MODEL);
  deltaic_model *model = open_model(cpu, MIXED);
  assert_int_equal(deltaic_pruning_refit(p, cpu, model, tokens, TOKENS, &o, NULL, NULL), DELTAIC_BAD_SHAPE);
  assert_non_null(strstr(deltaic_last_error(), "not the one that was pruned"));
  deltaic_model_close(model);
  deltaic_pruning_free(p);
}

int main(void) {
  make_text();
  const struct CMUnitTest tests[] = {
      device_test(matrices_are_those_of_the_definition), cmocka_unit_test(mamba2_layers_stay),
      cmocka_unit_test(little_memory_gives_the_same_bits), cmocka_unit_test(another_model_is_refused)};
  return cmocka_run_group_tests(tests, begin, end);
}
