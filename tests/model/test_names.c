// Roles whose rows lie among others' or in another order (host/names, host/weights): what is uploaded is what a
// checkpoint with a tensor for each role gives.
#include "mixer_delta.h"
#include "weights.h"

#include "maker.h"

enum { HK = 3, HV = 6, DK = 4, DV = 2, SHARE = HV / HK, D = 24, W = 4 };
enum { KEY = HK * DK, VALUE = HV * DV, ROWS = 2 * KEY + 2 * VALUE };

// ---------------------------------------------------------------- two families

// As Qwen3-Next has it: for every key head the rows of q, k, then of v and z of its value heads.
enum { GROUP = 2 * DK + 2 * SHARE * DV };

static uint64_t fused_count(const struct layer_spec *layer) {
  const struct delta_spec *s = layer->spec;
  return 2ull * s->H * s->Dk + 2ull * s->Hv * s->Dv;
}

static uint64_t q_at(const struct layer_spec *layer, uint32_t row) { return row / DK * GROUP + row % DK; }

static uint64_t k_at(const struct layer_spec *layer, uint32_t row) { return q_at(layer, row) + DK; }

static uint64_t v_at(const struct layer_spec *layer, uint32_t row) {
  return row / (SHARE * DV) * GROUP + 2 * DK + row % (SHARE * DV);
}

static uint64_t z_at(const struct layer_spec *layer, uint32_t row) { return v_at(layer, row) + SHARE * DV; }

// As GGUF has it: value head (key head h, i) stands at i * HK + h.
static uint64_t tiled_count(const struct layer_spec *layer) { return ((const struct delta_spec *)layer->spec)->Hv; }

static uint64_t tiled_at(const struct layer_spec *layer, uint32_t row) { return row % SHARE * HK + row / SHARE; }

// One convolution: channels of q, k, v.
static uint64_t channel_count(const struct layer_spec *layer) { return 2 * KEY + VALUE; }

static uint64_t k_channel(const struct layer_spec *layer, uint32_t row) { return KEY + row; }

static const struct row_map q_rows = {fused_count, q_at}, k_rows = {fused_count, k_at}, v_rows = {fused_count, v_at},
                            z_rows = {fused_count, z_at}, tiled = {tiled_count, tiled_at},
                            k_channels = {channel_count, k_channel};

static const struct tensor_name plain_tensors[] = {NAMED(Q, "*layers.#.q"),
                                                   NAMED(K, "*layers.#.k"),
                                                   NAMED(V, "*layers.#.v"),
                                                   NAMED(GATE, "*layers.#.z"),
                                                   NAMED(A_LOG, "*layers.#.A"),
                                                   NAMED(K_CONV, "*layers.#.c"),
                                                   {0}};
static const struct tensor_name fused_tensors[] = {MAPPED(Q, "*layers.#.qkvz", &q_rows),
                                                   MAPPED(K, "*layers.#.qkvz", &k_rows),
                                                   MAPPED(V, "*layers.#.qkvz", &v_rows),
                                                   MAPPED(GATE, "*layers.#.qkvz", &z_rows),
                                                   MAPPED(A_LOG, "*layers.#.A_tiled", &tiled),
                                                   MAPPED(K_CONV, "*layers.#.conv", &k_channels),
                                                   {0}};
static const struct names plain = {.prefixes = {"model."}, .tensors = plain_tensors};
static const struct names fused = {.prefixes = {"model.language_model.", "model."}, .tensors = fused_tensors};

// ---------------------------------------------------------------- one checkpoint of both

static uint16_t *numbers(struct checkpoint *c, const char *name) {
  struct file_tensor *t = checkpoint_find(c, name);
  assert_non_null(t);
  return (uint16_t *)(uintptr_t)t->data;
}

// Rows `first` ... of a role, from both tensors' rows on; distinct numbers everywhere.
static void add_rows(uint16_t *to, uint16_t *from, uint32_t rows, uint32_t cols) {
  static uint16_t next = 1;
  for (uint32_t i = 0; i < rows * cols; i++) to[i] = from[i] = next++;
}

static struct checkpoint *make(void) {
  struct maker *k = maker_begin();
  maker_add(k, "model.layers.0.q", KEY, D, 0);
  maker_add(k, "model.layers.0.k", KEY, D, 0);
  maker_add(k, "model.layers.0.v", VALUE, D, 0);
  maker_add(k, "model.layers.0.z", VALUE, D, 0);
  maker_add(k, "model.layers.0.A", HV, 0, 0);
  maker_add(k, "model.layers.0.c", KEY, 1, W);
  maker_add(k, "model.language_model.layers.0.qkvz", ROWS, D, 0);
  maker_add(k, "model.language_model.layers.0.A_tiled", HV, 0, 0);
  maker_add(k, "model.layers.0.conv", 2 * KEY + VALUE, 1, W);
  struct checkpoint *c = maker_end(k);
  uint16_t *q = numbers(c, "model.layers.0.q"), *key = numbers(c, "model.layers.0.k");
  uint16_t *v = numbers(c, "model.layers.0.v"), *z = numbers(c, "model.layers.0.z");
  uint16_t *row = numbers(c, "model.language_model.layers.0.qkvz");
  for (uint32_t h = 0; h < HK; h++) {
    const uint32_t keys = DK * D, values = SHARE * DV * D;
    add_rows(row, q + h * keys, DK, D), row += keys;
    add_rows(row, key + h * keys, DK, D), row += keys;
    add_rows(row, v + h * values, SHARE * DV, D), row += values;
    add_rows(row, z + h * values, SHARE * DV, D), row += values;
  }
  uint16_t *A = numbers(c, "model.layers.0.A"), *A_tiled = numbers(c, "model.language_model.layers.0.A_tiled");
  for (uint32_t i = 0; i < SHARE; i++)
    for (uint32_t h = 0; h < HK; h++) add_rows(A_tiled++, A + h * SHARE + i, 1, 1);
  add_rows(numbers(c, "model.layers.0.conv") + KEY * W, numbers(c, "model.layers.0.c"), KEY, W);
  return c;
}

// ---------------------------------------------------------------- uploaded twice

static struct delta_spec spec = {.H = HK, .Hv = HV, .Dk = DK, .Dv = DV, .W = W};
static struct layer_spec layers[1] = {{.spec = &spec}};

struct bound {
  struct model_spec model;
  struct weights w;
  struct tensor in, A, conv;
};

static void bind(struct bound *b, struct backend *backend, struct checkpoint *c, const struct names *names) {
  *b = (struct bound){.model = {.names = names, .D = D, .L = 1, .layers = layers},
                      .w = {.checkpoint = c, .backend = backend}};
  b->w.model = &b->model;
  struct weight_part in[4] = {weights_part(&b->w, 0, ROLE_Q, KEY, D), weights_part(&b->w, 0, ROLE_K, KEY, D),
                              weights_part(&b->w, 0, ROLE_V, VALUE, D), weights_part(&b->w, 0, ROLE_GATE, VALUE, D)};
  in[2].align = 64; // zeros before z
  weights_matrix(&b->w, &b->in, D, in, 4);
  weights_bind_vector(&b->w, &b->A, 0, ROLE_A_LOG, HV);
  const struct weight_part conv = weights_part(&b->w, 0, ROLE_K_CONV, KEY, W);
  weights_transposed(&b->w, &b->conv, W, &conv, 1);
  if (weights_upload(&b->w, NULL, NULL)) fail_msg("%s", deltaic_last_error());
}

static void equal(const struct tensor *a, const struct tensor *b) {
  assert_true(a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols && tensor_bytes(a) == tensor_bytes(b));
  assert_memory_equal(tensor_row(a, 0), tensor_row(b, 0), tensor_bytes(a));
}

static void gathered_rows_are_the_plain_ones(void **state) {
  struct backend *cpu;
  assert_int_equal(backend_open_cpu(1, &cpu), DELTAIC_OK);
  struct checkpoint *c = make();
  struct bound a, b;
  bind(&a, cpu, c, &plain);
  bind(&b, cpu, c, &fused);
  equal(&a.in, &b.in);
  equal(&a.A, &b.A);
  equal(&a.conv, &b.conv);
  assert_int_equal(a.w.parameters, b.w.parameters);
  assert_true(*(uint16_t *)tensor_row(&a.in, a.in.rows - 1) != 0); // they were not all zeros
  for (uint64_t i = 0; i < checkpoint_count(c); i++) assert_true(checkpoint_at(c, i)->used);
  weights_free(&a.w);
  weights_free(&b.w);
  checkpoint_close(c);
  cpu->functions->close(cpu);
}

static void a_fused_tensor_of_other_rows_is_refused(void **state) {
  struct checkpoint *c = make();
  struct delta_spec other = spec;
  other.Hv = 2 * HV;
  struct layer_spec layer = {.spec = &other};
  struct model_spec model = {.names = &fused, .layers = &layer, .L = 1};
  struct weights w = {.checkpoint = c, .model = &model};
  weights_part(&w, 0, ROLE_Q, KEY, D);
  assert_int_equal(weights_status(&w), DELTAIC_BAD_SHAPE);
  assert_non_null(
      strstr(deltaic_last_error(), "model.language_model.layers.0.qkvz has shape [48, 24], expected [72, 24]"));
  checkpoint_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathered_rows_are_the_plain_ones),
      cmocka_unit_test(a_fused_tensor_of_other_rows_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
