// tuning_init: writes a new model of a config, with first values as flash-linear-attention gives them: normal with the
// config's initializer_range (0.02) for embeddings, projections and convolutions; norms 1, biases 0; A_log the
// logarithm of a number in (0, 16), of Mamba-2 in (1, 16), and its skip 1; dt_bias the inverse softplus of a step in
// (0.001, 0.1), uniform in its logarithm; the masks of Head-in-Head in (0, 1). Tensors are f32. Which there are, their
// names and their shapes follow from binding the layers without a checkpoint (weights.h).
#include "file.h"
#include "folder.h"
#include "list.h"
#include "model.h"
#include "tensor_file.h"
#include "tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum first { FIRST_NORMAL, FIRST_ONE, FIRST_ZERO, FIRST_UNIFORM, FIRST_A_LOG, FIRST_STEP };

// A file's tensors have this order within a layer. Values depend on it: the seed of a tensor follows from its place.
static const struct kind {
  enum role role;
  enum first first;
} kinds[] = {
    {ROLE_EMBEDDING, FIRST_NORMAL}, {ROLE_MIXER_NORM, FIRST_ONE},     {ROLE_Q, FIRST_NORMAL},
    {ROLE_Q_BIAS, FIRST_ZERO},      {ROLE_Q_NORM, FIRST_ONE},         {ROLE_K, FIRST_NORMAL},
    {ROLE_K_BIAS, FIRST_ZERO},      {ROLE_K_NORM, FIRST_ONE},         {ROLE_V, FIRST_NORMAL},
    {ROLE_V_BIAS, FIRST_ZERO},      {ROLE_Z, FIRST_NORMAL},           {ROLE_Z_BIAS, FIRST_ZERO},
    {ROLE_Q_CONV, FIRST_NORMAL},    {ROLE_K_CONV, FIRST_NORMAL},      {ROLE_V_CONV, FIRST_NORMAL},
    {ROLE_CONV, FIRST_NORMAL},      {ROLE_CONV_BIAS, FIRST_ZERO},     {ROLE_BETA, FIRST_NORMAL},
    {ROLE_DECAY, FIRST_NORMAL},     {ROLE_A_LOG, FIRST_A_LOG},        {ROLE_STEP_BIAS, FIRST_STEP},
    {ROLE_SKIP, FIRST_ONE},         {ROLE_GATE, FIRST_NORMAL},        {ROLE_MASK, FIRST_NORMAL},
    {ROLE_MASK_BIAS, FIRST_ZERO},   {ROLE_MASK_FIXED, FIRST_UNIFORM}, {ROLE_OUTPUT_NORM, FIRST_ONE},
    {ROLE_OUTPUT, FIRST_NORMAL},    {ROLE_OUTPUT_BIAS, FIRST_ZERO},   {ROLE_FFN_NORM, FIRST_ONE},
    {ROLE_FFN_GATE, FIRST_NORMAL},  {ROLE_FFN_UP, FIRST_NORMAL},      {ROLE_FFN_DOWN, FIRST_NORMAL},
    {ROLE_FINAL_NORM, FIRST_ONE},   {ROLE_HEAD, FIRST_NORMAL},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct made_tensor {
  struct new_tensor t;
  size_t kind; // in kinds
  int rank;
  uint64_t shape[3], n; // n: of all elements
};

struct new_model {
  struct deltaic_model model;
  struct new_tensors made;
  struct made_tensor *tensors;
  size_t count, capacity;
  double range;
  uint64_t seed;
  deltaic_status status;
};

// ---------------------------------------------------------------- the tensors

static bool is_conv(enum role role) {
  return role == ROLE_Q_CONV || role == ROLE_K_CONV || role == ROLE_V_CONV || role == ROLE_CONV;
}

// A convolution's filters are (channels, 1, taps), a fixed mask is (heads, r, r).
static void set_shape(struct new_model *m, struct made_tensor *x) {
  const struct new_tensor *t = &x->t;
  const uint64_t side = t->role == ROLE_MASK_FIXED ? (uint64_t)lround(sqrt((double)t->cols)) : 1;
  const bool middle = is_conv(t->role) || t->role == ROLE_MASK_FIXED;
  x->rank = middle ? 3 : t->cols ? 2 : 1;
  x->shape[0] = t->rows;
  x->shape[1] = middle ? side : t->cols;
  x->shape[2] = t->cols / side;
  if (!size_mul(t->rows, t->cols ? t->cols : 1, &x->n) || x->n > (uint64_t)1 << 40)
    m->status = fail(DELTAIC_UNSUPPORTED, "tensor %s would be too large", t->name);
}

// Adds the tensor, unless it is there: several roles may share one.
static void add(void *user, const struct new_tensor *t) {
  struct new_model *m = user;
  size_t kind = 0;
  for (size_t i = m->count; i && m->tensors[i - 1].t.layer == t->layer; i--)
    if (!strcmp(m->tensors[i - 1].t.name, t->name)) return;
  while (kind < KINDS && kinds[kind].role != t->role) kind++;
  if (!m->status && kind == KINDS) m->status = fail(DELTAIC_INTERNAL, "no initial values for tensor %s", t->name);
  if (!m->status) m->status = list_room(&m->tensors, m->count, &m->capacity, sizeof *m->tensors, "a list of tensors");
  if (m->status) return;
  struct made_tensor *x = &m->tensors[m->count++];
  *x = (struct made_tensor){.t = *t, .kind = kind};
  set_shape(m, x);
}

// The embedding comes first, what follows the layers last.
static uint64_t place(const struct made_tensor *x) {
  const bool last = x->t.role == ROLE_FINAL_NORM || x->t.role == ROLE_HEAD;
  return (last ? UINT32_MAX : x->t.layer) * (uint64_t)KINDS + x->kind;
}

static int by_place(const void *a, const void *b) {
  const uint64_t p = place(a), q = place(b);
  return (p > q) - (p < q);
}

static deltaic_status declare(struct new_model *m, const char *config) {
  const struct model_spec *s = &m->model.spec;
  for (uint32_t i = 0; i < s->L; i++)
    if (s->layers[i].ffn && s->layers[i].ffn->describe)
      return fail(DELTAIC_UNSUPPORTED, "%s: layer %u has a mixture of experts, which cannot be trained", config, i);
  m->made = (struct new_tensors){.ask = add, .user = m};
  deltaic_status status = model_declare_new(&m->model, &m->made);
  if (!status) status = m->status;
  if (status) return fail(status, "%s: %s", config, deltaic_last_error());
  qsort(m->tensors, m->count, sizeof *m->tensors, by_place);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- their values

static double uniform(uint64_t *state) { // splitmix64, in (0, 1)
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return ((double)((x ^ (x >> 31)) >> 12) + 0.5) * 0x1p-52;
}

// least: the smallest exp(A_log).
static double draw(enum first first, double range, double least, uint64_t *state) {
  const double a = first == FIRST_ONE || first == FIRST_ZERO ? 0 : uniform(state);
  switch (first) {
  case FIRST_NORMAL: return range * sqrt(-2 * log(a)) * cos(2 * acos(-1) * uniform(state));
  case FIRST_ONE: return 1;
  case FIRST_ZERO: return 0;
  case FIRST_UNIFORM: return a;
  case FIRST_A_LOG: return log(least + (16 - least) * a);
  case FIRST_STEP: break;
  }
  const double step = exp(log(1e-3) + a * (log(1e-1) - log(1e-3)));
  return step + log(-expm1(-step));
}

static void write_values(struct new_model *m, size_t i, struct tensor_file *file) {
  enum { SOME = 4096 };
  const struct made_tensor *x = &m->tensors[i];
  const enum first first = kinds[x->kind].first;
  const double least = strcmp(m->model.spec.layers[x->t.layer].mixer->name, "mamba2") ? 0 : 1;
  float some[SOME];
  uint64_t state = m->seed ^ (i + 1) * 0xd1342543de82ef95u, left = x->n;
  while (left) {
    const uint64_t n = left < SOME ? left : SOME;
    for (uint64_t k = 0; k < n; k++) some[k] = (float)draw(first, m->range, least, &state) - x->t.plus;
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
    const struct made_tensor *x = &m->tensors[i];
    tensor_file_declare(&file, x->t.name, "F32", x->rank, x->shape, x->n * sizeof(float));
  }
  tensor_file_write_header(&file);
  for (size_t i = 0; i < m->count && !file.status; i++) write_values(m, i, &file);
  return tensor_file_end(&file);
}

// ---------------------------------------------------------------- the call

// Of a model that also reads images, that of its text part.
static deltaic_status read_range(struct new_model *m, const char *config, const json_t *root) {
  const json_t *text = json_object_get(root, "text_config");
  struct json_reader r = {.file = config};
  m->range = json_number(&r, json_is_object(text) ? text : root, "initializer_range", 0.02, 0, 1e3);
  if (r.status || m->range > 0) return r.status;
  return fail(DELTAIC_BAD_FILE, "%s: initializer_range must be above 0", config);
}

static deltaic_status read_config(struct new_model *m, const char *config, const struct file_view *view) {
  json_t *root = NULL;
  char *text = config_without_infinity(view->data, view->bytes);
  deltaic_status status = text ? json_parse(config, text, view->bytes, &root) : fail_memory("a config", view->bytes);
  if (!status) status = read_range(m, config, root);
  if (!status) status = model_spec_parse(config, view->data, view->bytes, NULL, &m->model.spec);
  free(text);
  json_decref(root);
  return status;
}

deltaic_status deltaic_tune_initialize(const char *config, uint64_t seed, const char *folder) {
  if (!config || !folder)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_initialize: %s is NULL", !config ? "config" : "folder");
  struct new_model m = {.seed = seed};
  struct file_view view = {0};
  char *to = path_join(folder, "config.json"), *tensors = path_join(folder, "model.safetensors");
  deltaic_status status = to && tensors ? file_map(config, &view) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = read_config(&m, config, &view);
  if (!status) status = declare(&m, config);
  if (!status) status = folder_write(to, view.data, view.bytes);
  if (!status) status = write_tensors(&m, tensors);
  model_clear(&m.model);
  file_unmap(&view);
  free(m.tensors);
  free(to);
  free(tensors);
  return status;
}
