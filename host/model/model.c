// model: opens a checkpoint, declares every layer's weights and uploads them. arch.c reads its description.
#include "model.h"

#include "adapter.h"
#include "device_handle.h"
#include "hash.h"
#include "option_structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void limit_attention(struct model_spec *s, uint32_t window) {
  for (uint32_t i = 0; i < s->L && window; i++)
    if (s->layers[i].mixer->limit) s->layers[i].mixer->limit(s->layers[i].spec, window);
}

static void bind_layers(struct deltaic_model *m) {
  const struct model_spec *s = &m->spec;
  for (uint32_t i = 0; i < s->L; i++) {
    block_bind(s, i, &m->weights, &m->blocks[i]);
    s->layers[i].mixer->bind(s->layers[i].spec, i, s->D, &m->weights, m->mixers[i]);
  }
}

static void bind_outside(struct deltaic_model *m) {
  const struct model_spec *s = &m->spec;
  struct weights *w = &m->weights;
  weights_bind_matrix(w, &m->embedding, 0, ROLE_EMBEDDING, s->V, s->D);
  weights_bind_vector(w, &m->norm, 0, ROLE_FINAL_NORM, s->D);
  if (!s->tied) weights_bind_matrix(w, &m->head, 0, ROLE_HEAD, s->V, s->D);
}

static deltaic_status allocate_layers(struct deltaic_model *m) {
  const struct model_spec *s = &m->spec;
  m->blocks = calloc(s->L, sizeof *m->blocks);
  m->mixers = calloc(s->L, sizeof *m->mixers);
  if (!m->blocks || !m->mixers) return fail_memory("the list of layers", s->L * sizeof *m->blocks);
  for (uint32_t i = 0; i < s->L; i++) {
    m->mixers[i] = calloc(1, s->layers[i].mixer->weights_bytes);
    if (!m->mixers[i]) return fail_memory("a layer", s->layers[i].mixer->weights_bytes);
    if (!s->layers[i].ffn) continue;
    m->blocks[i].ffn = calloc(1, s->layers[i].ffn->weights_bytes);
    if (!m->blocks[i].ffn) return fail_memory("a layer", s->layers[i].ffn->weights_bytes);
  }
  return DELTAIC_OK;
}

bool model_grows(const struct model_spec *s) {
  for (uint32_t i = 0; i < s->L; i++)
    if (s->layers[i].mixer->grows(s->layers[i].spec)) return true;
  return false;
}

// The smallest and largest key size of all layers, since pruned layers may differ; both 0 if no layer has keys.
static void key_sizes(const struct model_spec *s, uint32_t *least, uint32_t *most) {
  *least = *most = 0;
  for (uint32_t i = 0; i < s->L; i++) {
    struct mixer_sizes z = {0};
    if (!s->layers[i].mixer->sizes) continue;
    s->layers[i].mixer->sizes(s->layers[i].spec, &z);
    if (!*most || z.key_size < *least) *least = z.key_size;
    if (z.key_size > *most) *most = z.key_size;
  }
}

// Writes, for example, "4 gated_deltanet, 2 attention (window 48)", with kinds in the order of their first layer.
static void describe_layers(const struct model_spec *s, char *text, size_t capacity) {
  char kinds[8][96];
  uint32_t counts[8] = {0};
  int n = 0;
  for (uint32_t i = 0; i < s->L; i++) {
    char detail[48], kind[96];
    s->layers[i].mixer->describe(s->layers[i].spec, detail, sizeof detail);
    snprintf(kind, sizeof kind, detail[0] ? "%s (%s)" : "%s", s->layers[i].mixer->name, detail);
    int k = 0;
    while (k < n && strcmp(kinds[k], kind)) k++;
    if (k == n && n < 8) strcpy(kinds[n++], kind);
    if (k < 8) counts[k]++;
  }
  size_t used = 0;
  text[0] = 0;
  for (int k = 0; k < n && used < capacity; k++)
    used += (size_t)snprintf(text + used, capacity - used, "%s%u %s", k ? ", " : "", counts[k], kinds[k]);
  uint32_t least, most;
  key_sizes(s, &least, &most);
  if (least != most && used < capacity) snprintf(text + used, capacity - used, "; keys of %u to %u", least, most);
}

// Writes the formats' parts of the weights' bytes, the largest first; those below half a percent are left out.
static void describe_formats(const struct weights *w, char *text, size_t capacity) {
  uint64_t bytes[DTYPE_I32], all = 0;
  size_t used = 0;
  weights_bytes(w, bytes);
  for (int d = 0; d < DTYPE_I32; d++) all += bytes[d];
  text[0] = 0;
  for (int n = 0; n < DTYPE_I32 && used < capacity; n++) {
    int most = 0;
    for (int d = 1; d < DTYPE_I32; d++)
      if (bytes[d] > bytes[most]) most = d;
    const double percent = all ? 100.0 * (double)bytes[most] / (double)all : 0;
    if (percent < 0.5) return;
    used += (size_t)snprintf(text + used, capacity - used, "%s%.0f %% %s", n ? ", " : "", percent,
                             dtype_name((enum dtype)most));
    bytes[most] = 0;
  }
}

// Takes the sizes of the first layer with an FFN, and of the first with a fixed-size state (not attention).
static void fill_info(struct deltaic_model *m) {
  const struct model_spec *s = &m->spec;
  deltaic_model_info *i = &m->info;
  memcpy(i->architecture, s->architecture, sizeof i->architecture);
  describe_layers(s, i->layers_text, sizeof i->layers_text);
  i->vocabulary = (int32_t)s->V;
  i->width = (int32_t)s->D;
  i->layers = (int32_t)s->L;
  i->parameters = i->active_parameters = m->weights.parameters;
  describe_formats(&m->weights, i->formats, sizeof i->formats);
  i->context = (int32_t)s->context;
  i->grows = model_grows(s);
  i->bos_token = s->bos;
  i->eos_token = s->eos;
  for (uint32_t l = 0; l < s->L; l++) {
    const struct ffn *ffn = s->layers[l].ffn;
    if (ffn && ffn->describe) ffn->describe(s->layers[l].ffn_spec, m->blocks[l].ffn, s->D, i);
  }
  for (uint32_t l = 0; l < s->L && !i->mlp_width; l++)
    if (s->layers[l].ffn) i->mlp_width = (int32_t)s->layers[l].ffn->width(s->layers[l].ffn_spec);
  for (uint32_t l = 0; l < s->L; l++) {
    struct mixer_sizes z = {0};
    if (!s->layers[l].mixer->sizes) continue;
    s->layers[l].mixer->sizes(s->layers[l].spec, &z);
    i->heads = (int32_t)z.heads;
    i->value_heads = (int32_t)z.value_heads;
    i->key_size = (int32_t)z.key_size;
    i->value_size = (int32_t)z.value_size;
    break;
  }
}

static deltaic_status bind(struct deltaic_model *m) {
  const deltaic_status status = allocate_layers(m);
  if (status != DELTAIC_OK) return status;
  m->weights.model = &m->spec;
  bind_outside(m);
  bind_layers(m);
  return weights_status(&m->weights);
}

deltaic_status model_declare_new(struct deltaic_model *m, struct new_tensors *made) {
  m->weights.made = made;
  return bind(m);
}

deltaic_status model_declare(struct deltaic_model *m, struct backend *backend, const char *path,
                             const deltaic_model_options *options) {
  m->backend = backend;
  deltaic_status status = checkpoint_open_from(options ? options->source : NULL, path, &m->checkpoint);
  if (status != DELTAIC_OK) return status;
  status = model_spec_read(path, m->checkpoint, &m->spec);
  if (status != DELTAIC_OK) return status;
  limit_attention(&m->spec, options ? options->attention_window : 0);
  if (options && options->adapter) status = adapter_open(options->adapter, m->checkpoint, &m->adapter);
  if (status != DELTAIC_OK) return status;
  m->weights.checkpoint = m->checkpoint;
  m->weights.adapter = m->adapter;
  m->weights.backend = backend;
  status = bind(m);
  if (status == DELTAIC_OK) status = model_leftovers(m->checkpoint, &m->spec);
  if (status == DELTAIC_OK && m->adapter) status = adapter_leftovers(m->adapter);
  if (status == DELTAIC_OK) fill_info(m);
  return status;
}

// Closes what is needed only until the weights are uploaded.
static void close_files(struct deltaic_model *m) {
  adapter_close(m->adapter);
  checkpoint_close(m->checkpoint);
  m->adapter = m->weights.adapter = NULL;
  m->checkpoint = m->weights.checkpoint = NULL;
}

void model_clear(struct deltaic_model *m) {
  close_files(m);
  weights_free(&m->weights);
  for (uint32_t i = 0; m->mixers && i < m->spec.L; i++) free(m->mixers[i]);
  for (uint32_t i = 0; m->blocks && i < m->spec.L; i++) free(m->blocks[i].ffn);
  free(m->mixers);
  free(m->blocks);
  model_spec_free(&m->spec);
}

deltaic_status model_options_read(const deltaic_model_options *given, deltaic_model_options *o, deltaic_source *source,
                                  const char *function) {
  deltaic_status status = options_read(o, sizeof *o, given, "deltaic_model_options");
  if (!status && o->attention_window > INT32_MAX)
    status = fail(DELTAIC_INVALID_ARGUMENT, "%s: attention_window %u exceeds 2^31 - 1", function, o->attention_window);
  if (status || !o->source) return status;
  status = input_source(source, o->source, function);
  o->source = source;
  return status;
}

deltaic_status deltaic_model_open(deltaic_device *device, const char *path, const deltaic_model_options *options,
                                  deltaic_model **out) {
  if (refuse_null("deltaic_model_open", "device,path,out", device, path, out)) return DELTAIC_INVALID_ARGUMENT;
  struct deltaic_model *m = calloc(1, sizeof *m);
  if (!m) return fail_memory("a model", sizeof *m);
  deltaic_model_options o;
  deltaic_source source;
  deltaic_status status = model_options_read(options, &o, &source, "deltaic_model_open");
  if (status == DELTAIC_OK) status = model_declare(m, device->backend, path, &o);
  if (status == DELTAIC_OK) status = weights_upload(&m->weights, o.progress, o.progress_user);
  if (status == DELTAIC_OK && m->adapter) status = adapter_fingerprint(m->adapter, &m->weights.fingerprint);
  m->weights.fingerprint = hash_word(m->weights.fingerprint, m->spec.config_hash);
  m->info.fingerprint = m->weights.fingerprint;
  // States that were saved with another window do not fit.
  if (o.attention_window) m->weights.fingerprint = hash_word(m->weights.fingerprint, o.attention_window);
  if (status != DELTAIC_OK) {
    deltaic_model_close(m);
    return status;
  }
  if (m->spec.tied) m->head = m->embedding;
  close_files(m);
  *out = m;
  return DELTAIC_OK;
}

void deltaic_model_close(deltaic_model *m) {
  if (!m) return;
  model_clear(m);
  free(m);
}

static deltaic_status copy_ends(const struct ends *ends, int32_t *ids, size_t capacity, size_t *count) {
  if (count) *count = ends->count;
  if (ids && ends->count > capacity)
    return fail(DELTAIC_BUFFER_TOO_SMALL, "the model has %u end tokens, the buffer room for %zu", ends->count,
                capacity);
  if (ids) memcpy(ids, ends->ids, ends->count * sizeof *ids);
  return DELTAIC_OK;
}

deltaic_status deltaic_model_ends(const deltaic_model *m, int32_t *ids, size_t capacity, size_t *count) {
  if (refuse_null("deltaic_model_ends", "model,ids", m, FILLED(ids, capacity))) return DELTAIC_INVALID_ARGUMENT;
  return copy_ends(&m->spec.generation.ends, ids, capacity, count);
}

deltaic_status deltaic_model_inspect_ends(const char *path, int32_t *ids, size_t capacity, size_t *count) {
  if (refuse_null("deltaic_model_inspect_ends", "path,ids", path, FILLED(ids, capacity)))
    return DELTAIC_INVALID_ARGUMENT;
  struct checkpoint *checkpoint;
  struct model_spec spec;
  deltaic_status status = checkpoint_open_folder(path, &checkpoint);
  if (status) return status;
  status = model_spec_read(path, checkpoint, &spec);
  checkpoint_close(checkpoint);
  if (status) return status;
  status = copy_ends(&spec.generation.ends, ids, capacity, count);
  model_spec_free(&spec);
  return status;
}

bool deltaic_model_is_end(const deltaic_model *m, int32_t token) {
  return m && ends_have(&m->spec.generation.ends, token);
}

bool deltaic_model_sampling(const deltaic_model *m, deltaic_sampling *sampling) {
  if (!m || !sampling || sampling->size < sizeof sampling->size || !m->spec.generation.has_sampling) return false;
  deltaic_sampling s = m->spec.generation.sampling;
  const size_t size = s.size = sampling->size;
  memset(sampling, 0, size);
  memcpy(sampling, &s, size < sizeof s ? size : sizeof s);
  return true;
}

void deltaic_model_get_info(const deltaic_model *m, deltaic_model_info *info) {
  if (info) *info = m ? m->info : (deltaic_model_info){0};
}
