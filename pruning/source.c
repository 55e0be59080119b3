// source: reads a checkpoint for pruning, its prunable layers and their weights.
#include "source.h"

#include "mixer.h"

#include <stdlib.h>
#include <string.h>

uint64_t hash_add(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *p = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

// ---------------------------------------------------------------- prunable layers

static deltaic_status fail_shape(const struct source *s, uint32_t layer, enum role role) {
  char name[96];
  names_write(layer_names(&s->spec, layer), layer, role, name, sizeof name);
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %.200s is missing or has another shape than its layer", s->path, name);
}

static deltaic_status check_projection(const struct source *s, const struct file_tensor *t, uint64_t rows,
                                       uint32_t layer, enum role role) {
  bool floats = t && (t->dtype == FILE_F64 || t->dtype == FILE_F32 || t->dtype == FILE_F16 || t->dtype == FILE_BF16);
  if (!floats || t->rank != 2 || t->shape[0] != rows || t->shape[1] != s->spec.D) return fail_shape(s, layer, role);
  return DELTAIC_OK;
}

static struct file_tensor *tensor_of(const struct source *s, uint32_t layer, enum role role) {
  return names_find(layer_names(&s->spec, layer), s->checkpoint, layer, role).tensor;
}

struct file_tensor *source_queries(const struct source *s, const struct source_layer *l) {
  return tensor_of(s, l->layer, ROLE_Q);
}

// Older checkpoints have a tensor per step.
struct file_tensor *source_keys(const struct source *s, const struct source_layer *l, int m, uint64_t *first) {
  struct file_tensor *t = tensor_of(s, l->layer, ROLE_K);
  *first = t ? (uint64_t)m * (uint64_t)(l->H * l->d) : 0;
  return t ? t : names_item(layer_names(&s->spec, l->layer), s->checkpoint, l->layer, ROLE_K, (uint32_t)m).tensor;
}

static deltaic_status count_steps(const struct source *s, struct source_layer *l) {
  uint64_t rows = (uint64_t)(l->H * l->d), first;
  struct file_tensor *k = tensor_of(s, l->layer, ROLE_K);
  if (k) {
    uint64_t steps = k->shape[0] / rows;
    if (k->rank != 2 || !steps || steps > 1024) return fail_shape(s, l->layer, ROLE_K);
    l->steps = (int)steps;
    return check_projection(s, k, rows * steps, l->layer, ROLE_K);
  }
  deltaic_status status = DELTAIC_OK;
  while (!status && source_keys(s, l, l->steps, &first) && l->steps < 1024)
    status = check_projection(s, source_keys(s, l, l->steps++, &first), rows, l->layer, ROLE_K);
  return l->steps ? status : fail_shape(s, l->layer, ROLE_K);
}

static deltaic_status read_layer(struct source *s, uint32_t i, int blocks) {
  const struct layer_spec *spec = &s->spec.layers[i];
  const struct named_tensor found = names_find(layer_names(&s->spec, i), s->checkpoint, i, ROLE_Q);
  struct file_tensor *q = found.tensor;
  struct mixer_sizes z;
  if (!spec->mixer->sizes || !q) return DELTAIC_OK;
  if (found.rows)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s holds more than queries; such layers cannot be pruned", s->path,
                q->name);
  spec->mixer->sizes(spec->spec, &z);
  struct source_layer *l = &s->layers[s->count++];
  *l = (struct source_layer){.layer = i,
                             .H = (int)z.heads,
                             .d = (int)z.key_size,
                             .Hv = (int)z.value_heads,
                             .Dv = (int)z.value_size,
                             .blocks = blocks};
  deltaic_status status = check_projection(s, q, (uint64_t)(l->H * l->d), i, ROLE_Q);
  if (!status) status = count_steps(s, l);
  if (!status && l->d % l->blocks)
    status = fail(DELTAIC_BAD_SHAPE, "%s: layer %u: %d channels do not split into %d blocks", s->path, i, l->d, blocks);
  return status;
}

static deltaic_status read_layers(struct source *s) {
  struct json_reader r = {.file = s->path};
  int blocks = (int)json_int(&r, s->config, "hh_r", 1, 1, 1 << 14);
  if (r.status) return r.status;
  s->layers = calloc(s->spec.L, sizeof *s->layers);
  if (!s->layers) return fail_memory("a list of layers", s->spec.L * sizeof *s->layers);
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 0; i < s->spec.L && !status; i++) status = read_layer(s, i, blocks);
  if (!status && !s->count)
    status = fail(DELTAIC_UNSUPPORTED, "%s: a %s without delta-rule layers: there is nothing to prune", s->path,
                  s->spec.architecture);
  return status;
}

// ---------------------------------------------------------------- opening

static deltaic_status read_config(struct source *s) {
  struct file_view view = {0};
  char *path = path_join(s->path, "config.json");
  if (!path) return DELTAIC_OUT_OF_MEMORY;
  deltaic_status status = file_map(path, &view);
  char *text = status ? NULL : config_without_infinity(view.data, view.bytes);
  if (!status) status = text ? json_parse(path, text, view.bytes, &s->config) : fail_memory("a config", view.bytes);
  file_unmap(&view);
  free(text);
  free(path);
  return status;
}

static uint64_t fingerprint(struct checkpoint *c) {
  enum { SPAN = 4096 };
  uint64_t hash = HASH_START;
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    const struct file_tensor *t = checkpoint_at(c, i);
    uint64_t span = t->bytes < SPAN ? t->bytes : SPAN;
    hash = hash_add(hash, t->name, strlen(t->name) + 1);
    hash = hash_add(hash, t->shape, sizeof t->shape);
    hash = hash_add(hash, t->data, span);
    hash = hash_add(hash, (const char *)t->data + t->bytes - span, span);
  }
  return hash;
}

deltaic_status source_open(const char *path, struct source *out) {
  *out = (struct source){.path = strdup(path)};
  if (!out->path) return fail_memory("a file name", strlen(path) + 1);
  deltaic_status status = checkpoint_open_folder(path, &out->checkpoint);
  if (!status && checkpoint_keys(out->checkpoint))
    status = fail(DELTAIC_UNSUPPORTED, "%s: is a GGUF file; give the model's folder instead", path);
  if (!status) status = model_spec_read(path, out->checkpoint, &out->spec);
  if (!status) status = read_config(out);
  if (!status) status = read_layers(out);
  if (!status) out->fingerprint = fingerprint(out->checkpoint);
  return status;
}

void source_close(struct source *s) {
  if (s->spec.layers) model_spec_free(&s->spec);
  checkpoint_close(s->checkpoint);
  json_decref(s->config);
  free(s->layers);
  free(s->path);
  *s = (struct source){0};
}

int source_find(const struct source *s, uint32_t layer) {
  for (int i = 0; i < s->count; i++)
    if (s->layers[i].layer == layer) return i;
  return -1;
}

// ---------------------------------------------------------------- weights

deltaic_status source_read_weights(const struct source *s, int i, struct source_weights *out) {
  const struct source_layer *l = &s->layers[i];
  uint64_t D = s->spec.D, count = (uint64_t)(l->H * l->d) * D, steps = (uint64_t)l->steps;
  *out = (struct source_weights){.q = malloc(count * sizeof(float)), .k = malloc(steps * count * sizeof(float))};
  if (!out->q || !out->k) return fail_memory("a layer's projections", (1 + steps) * count * sizeof(float));
  file_tensor_f32(tensor_of(s, l->layer, ROLE_Q), 0, count, out->q);
  for (int m = 0; m < l->steps; m++) {
    uint64_t first;
    struct file_tensor *t = source_keys(s, l, m, &first);
    file_tensor_f32(t, first * D, count, out->k + (uint64_t)m * count);
  }
  return DELTAIC_OK;
}

void source_free_weights(struct source_weights *w) {
  free(w->q);
  free(w->k);
  *w = (struct source_weights){0};
}

const struct source_layer *source_cut_layer(const struct source *s, const char *name, bool *filters) {
  static const enum role cut[] = {ROLE_Q,      ROLE_K,      ROLE_Q_BIAS,      ROLE_K_BIAS,
                                  ROLE_Q_CONV, ROLE_K_CONV, ROLE_Q_CONV_BIAS, ROLE_K_CONV_BIAS};
  enum role role;
  uint32_t layer;
  for (int i = 0; i < s->count; i++) {
    const struct source_layer *l = &s->layers[i];
    const struct names *names = layer_names(&s->spec, l->layer);
    if (!names_match(names, name, cut, sizeof cut / sizeof *cut, &role, &layer) || layer != l->layer) continue;
    *filters = role == ROLE_Q_CONV || role == ROLE_K_CONV;
    // Filters that channels share stay.
    return *filters && names_find(names, s->checkpoint, layer, role).rows ? NULL : l;
  }
  return NULL;
}

struct file_tensor *source_output(const struct source *s, const struct source_layer *l) {
  return tensor_of(s, l->layer, ROLE_OUTPUT);
}
