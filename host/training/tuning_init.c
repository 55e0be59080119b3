// tuning_init: writes a new model of a config, with first values as flash-linear-attention gives them: normal with the
// config's initializer_range (0.02) for embeddings, projections and convolutions; norms 1, biases 0; A_log the
// logarithm of a number in (0, 16); dt_bias the inverse softplus of a step in (0.001, 0.1), uniform in its logarithm;
// the masks of Head-in-Head in (0, 1). Tensors are f32.
#include "arch.h"
#include "ffn_dense.h"
#include "file.h"
#include "folder.h"
#include "mixer.h"
#include "mixer_attention.h"
#include "mixer_delta.h"
#include "tensor_file.h"
#include "tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum first { FIRST_NORMAL, FIRST_ONE, FIRST_ZERO, FIRST_UNIFORM, FIRST_A_LOG, FIRST_STEP };

struct new_tensor {
  char name[96];
  int rank;
  uint64_t shape[3], n; // n: of all elements
  enum first first;
};

struct new_model {
  struct model_spec spec;
  struct new_tensor *tensors;
  size_t count;
  double range;
  uint64_t seed;
  deltaic_status status;
};

// ---------------------------------------------------------------- the tensors

// Tensor `name` of shape (rows) if cols is 0, (rows, cols) if `middle` is 0, or (rows, middle, cols).
static void add_shape(struct new_model *m, const char *name, const uint64_t shape[3], enum first first) {
  const uint64_t rows = shape[0], middle = shape[1], cols = shape[2];
  struct new_tensor *grown = m->status ? NULL : realloc(m->tensors, (m->count + 1) * sizeof *grown);
  if (!grown) {
    if (!m->status) m->status = fail_memory("a list of tensors", (m->count + 1) * sizeof *grown);
    return;
  }
  m->tensors = grown;
  struct new_tensor *t = &m->tensors[m->count++];
  *t = (struct new_tensor){.rank = !cols    ? 1
                                   : middle ? 3
                                            : 2,
                           .shape = {rows, middle ? middle : cols, cols},
                           .first = first};
  if (!size_mul(rows, (middle ? middle : 1) * (cols ? cols : 1), &t->n) || t->n > (uint64_t)1 << 40)
    m->status = fail(DELTAIC_UNSUPPORTED, "tensor %s would be too large", name);
  snprintf(t->name, sizeof t->name, "%s", name);
}

static void add(struct new_model *m, const char *name, uint64_t rows, uint64_t cols, enum first first) {
  add_shape(m, name, (const uint64_t[]){rows, 0, cols}, first);
}

// Tensor `name` of a layer.
static void add_in(struct new_model *m, uint32_t layer, const char *name, uint64_t rows, uint64_t cols,
                   enum first first) {
  char whole[96];
  snprintf(whole, sizeof whole, "model.layers.%u.%s", layer, name);
  add(m, whole, rows, cols, first);
}

static void add_conv(struct new_model *m, uint32_t layer, const char *name, uint64_t channels, uint32_t taps) {
  char whole[96];
  if (!taps) return;
  snprintf(whole, sizeof whole, "model.layers.%u.%s", layer, name);
  add_shape(m, whole, (const uint64_t[]){channels, 1, taps}, FIRST_NORMAL);
}

static void add_mask(struct new_model *m, uint32_t layer, const struct delta_spec *s) {
  char whole[96];
  snprintf(whole, sizeof whole, "model.layers.%u.attn.M_org", layer);
  add_shape(m, whole, (const uint64_t[]){s->Hv, s->r, s->r}, FIRST_UNIFORM);
}

static void add_delta(struct new_model *m, uint32_t i, const struct delta_spec *s) {
  const uint64_t D = m->spec.D, q = (uint64_t)s->H * s->Dk, v = (uint64_t)s->Hv * s->Dv, n = s->n, Hv = s->Hv;
  add_in(m, i, "attn.q_proj.weight", q, D, FIRST_NORMAL);
  add_in(m, i, "attn.k_proj.weight", n * q, D, FIRST_NORMAL);
  add_in(m, i, "attn.v_proj.weight", n * v, D, FIRST_NORMAL);
  add_conv(m, i, "attn.q_conv1d.weight", q, s->W);
  add_conv(m, i, "attn.k_conv1d.weight", n * q, s->W);
  add_conv(m, i, "attn.v_conv1d.weight", n * v, s->W);
  if (s->has_beta) add_in(m, i, "attn.b_proj.weight", n * Hv, D, FIRST_NORMAL);
  if (s->gated) add_in(m, i, "attn.a_proj.weight", Hv, D, FIRST_NORMAL);
  if (s->gated) add_in(m, i, "attn.A_log", Hv, 0, FIRST_A_LOG);
  if (s->gated) add_in(m, i, "attn.dt_bias", Hv, 0, FIRST_STEP);
  if (s->output_gate) add_in(m, i, "attn.g_proj.weight", v, D, FIRST_NORMAL);
  if (s->r > 1 && s->mask_input) {
    add_in(m, i, "attn.m_proj.weight", Hv * s->r * s->r, D, FIRST_NORMAL);
    add_in(m, i, "attn.m_proj.bias", Hv * s->r * s->r, 0, FIRST_ZERO);
  }
  if (s->r > 1 && !s->mask_input) add_mask(m, i, s);
  if (s->output_norm) add_in(m, i, "attn.o_norm.weight", s->Dv, 0, FIRST_ONE);
  add_in(m, i, "attn.o_proj.weight", D, v, FIRST_NORMAL);
}

static void add_attention(struct new_model *m, uint32_t i, const struct attention_spec *s) {
  const uint64_t D = m->spec.D, q = (uint64_t)s->heads * s->d, kv = (uint64_t)s->kv_heads * s->d;
  static const char *const names[] = {"q", "k", "v"};
  char name[32];
  for (int p = 0; p < 3; p++) {
    snprintf(name, sizeof name, "attn.%s_proj.weight", names[p]);
    add_in(m, i, name, p ? kv : q, D, FIRST_NORMAL);
    snprintf(name, sizeof name, "attn.%s_proj.bias", names[p]);
    if (s->bias) add_in(m, i, name, p ? kv : q, 0, FIRST_ZERO);
    snprintf(name, sizeof name, "attn.%s_norm.weight", names[p]);
    if (s->qk_norm && p < 2) add_in(m, i, name, s->d, 0, FIRST_ONE);
  }
  add_in(m, i, "attn.o_proj.weight", D, q, FIRST_NORMAL);
}

static void add_layer(struct new_model *m, uint32_t i) {
  const struct layer_spec *l = &m->spec.layers[i];
  const uint64_t D = m->spec.D;
  add_in(m, i, "attn_norm.weight", D, 0, FIRST_ONE);
  if (!strcmp(l->mixer->name, "attention"))
    add_attention(m, i, l->spec);
  else if (strstr(l->mixer->name, "delta"))
    add_delta(m, i, l->spec);
  else if (!m->status)
    m->status = fail(DELTAIC_UNSUPPORTED, "a new model cannot have layers of %s", l->mixer->name);
  if (!l->ffn) return;
  const uint64_t F = ((const struct dense_spec *)l->ffn_spec)->F;
  add_in(m, i, "mlp_norm.weight", D, 0, FIRST_ONE);
  add_in(m, i, "mlp.gate_proj.weight", F, D, FIRST_NORMAL);
  add_in(m, i, "mlp.up_proj.weight", F, D, FIRST_NORMAL);
  add_in(m, i, "mlp.down_proj.weight", D, F, FIRST_NORMAL);
}

static void add_all(struct new_model *m) {
  static const char *const families[] = {"delta_net", "gated_deltanet", "gated_deltaproduct"};
  const struct model_spec *s = &m->spec;
  bool known = false;
  for (int i = 0; i < 3; i++) known |= !strcmp(s->architecture, families[i]);
  if (!known) {
    m->status = fail(DELTAIC_UNSUPPORTED,
                     "a new model can be delta_net, gated_deltanet or gated_deltaproduct, not %.60s", s->architecture);
    return;
  }
  add(m, "model.embeddings.weight", s->V, s->D, FIRST_NORMAL);
  for (uint32_t i = 0; i < s->L; i++) add_layer(m, i);
  add(m, "model.norm.weight", s->D, 0, FIRST_ONE);
  if (!s->tied) add(m, "lm_head.weight", s->V, s->D, FIRST_NORMAL);
}

// ---------------------------------------------------------------- their values

static double uniform(uint64_t *state) { // splitmix64, in (0, 1)
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return ((double)((x ^ (x >> 31)) >> 12) + 0.5) * 0x1p-52;
}

static double draw(const struct new_model *m, enum first first, uint64_t *state) {
  const double a = first == FIRST_ONE || first == FIRST_ZERO ? 0 : uniform(state);
  switch (first) {
  case FIRST_NORMAL: return m->range * sqrt(-2 * log(a)) * cos(2 * acos(-1) * uniform(state));
  case FIRST_ONE: return 1;
  case FIRST_ZERO: return 0;
  case FIRST_UNIFORM: return a;
  case FIRST_A_LOG: return log(16 * a);
  case FIRST_STEP: break;
  }
  const double step = exp(log(1e-3) + a * (log(1e-1) - log(1e-3)));
  return step + log(-expm1(-step));
}

static void write_values(struct new_model *m, size_t i, struct tensor_file *file) {
  enum { SOME = 4096 };
  const struct new_tensor *t = &m->tensors[i];
  float some[SOME];
  uint64_t state = m->seed ^ (i + 1) * 0xd1342543de82ef95u, left = t->n;
  while (left) {
    const uint64_t n = left < SOME ? left : SOME;
    for (uint64_t k = 0; k < n; k++) some[k] = (float)draw(m, t->first, &state);
    tensor_file_append(file, some, n * sizeof *some);
    left -= n;
  }
}

static deltaic_status write_tensors(struct new_model *m, const char *path) {
  json_t *metadata = json_pack("{s:s}", "format", "pt");
  struct tensor_file file;
  tensor_file_begin(&file, path, metadata);
  json_decref(metadata);
  for (size_t i = 0; i < m->count; i++) {
    const struct new_tensor *t = &m->tensors[i];
    tensor_file_declare(&file, t->name, "F32", t->rank, t->shape, t->n * sizeof(float));
  }
  tensor_file_write_header(&file);
  for (size_t i = 0; i < m->count && !file.status; i++) write_values(m, i, &file);
  return tensor_file_end(&file);
}

// ---------------------------------------------------------------- the call

static deltaic_status copy_config(struct new_model *m, const char *config, const char *to) {
  struct file_view view;
  json_t *root = NULL;
  deltaic_status status = file_map(config, &view);
  char *text = status ? NULL : config_without_infinity(view.data, view.bytes);
  if (!status) status = text ? json_parse(config, text, view.bytes, &root) : fail_memory("a config", view.bytes);
  if (!status) status = folder_write(to, view.data, view.bytes);
  const json_t *range = json_object_get(root, "initializer_range");
  m->range = json_is_number(range) ? json_number_value(range) : 0.02;
  if (!status && !(m->range > 0 && m->range < 1e3))
    status = fail(DELTAIC_BAD_FILE, "%s: initializer_range must be above 0", config);
  free(text);
  json_decref(root);
  file_unmap(&view);
  return status;
}

deltaic_status deltaic_tune_initialize(const char *config, uint64_t seed, const char *folder) {
  if (!config || !folder)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_initialize: %s is NULL", !config ? "config" : "folder");
  struct new_model m = {.seed = seed};
  char *to = path_join(folder, "config.json"), *tensors = path_join(folder, "model.safetensors");
  deltaic_status status = to && tensors ? copy_config(&m, config, to) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = model_spec_read(folder, NULL, &m.spec);
  if (!status) {
    add_all(&m);
    status = m.status ? fail(m.status, "%s: %s", config, deltaic_last_error()) : write_tensors(&m, tensors);
    model_spec_free(&m.spec);
  }
  free(m.tensors);
  free(to);
  free(tensors);
  return status;
}
