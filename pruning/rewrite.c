// rewrite: writes the pruned tensors and config. A tensor's rows are grouped by step, then by head. Slicing commutes
// with every operation before the recurrence (Proposition 3.3), so it is enough to remove rows.
#include "rewrite.h"

#include "pca.h"
#include "tensor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN = 1 << 24 }; // bytes between two checks for cancellation

struct rewrite {
  const struct source *source;
  const struct deltaic_selection *selection;
  const struct rewrite_options *options;
  struct tensor_file file;
  uint64_t done;
};

static const struct chosen_layer *cut_of(const struct rewrite *w, const char *name, bool *filters) {
  const struct source_layer *l = source_cut_layer(w->source, name, filters);
  return l ? &w->selection->layers[l - w->source->layers] : NULL;
}

// ---------------------------------------------------------------- header

static deltaic_status check_rows(const struct rewrite *w, const struct file_tensor *t, const struct chosen_layer *l) {
  uint64_t rows = (uint64_t)(l->from.H * l->from.d);
  bool floats = t->dtype == FILE_F64 || t->dtype == FILE_F32 || t->dtype == FILE_F16 || t->dtype == FILE_BF16;
  if (floats && t->rank && t->shape[0] && t->shape[0] % rows == 0) return DELTAIC_OK;
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %.200s does not have %llu rows for every step", w->source->path, t->name,
              (unsigned long long)rows);
}

static void declare(struct rewrite *w, struct file_tensor *t) {
  bool filters;
  const struct chosen_layer *l = cut_of(w, t->name, &filters);
  uint64_t shape[FILE_RANK], bytes = t->bytes;
  memcpy(shape, t->shape, sizeof shape);
  if (l && !w->file.status) w->file.status = check_rows(w, t, l);
  if (l && !w->file.status) {
    shape[0] = t->shape[0] / (uint64_t)l->from.d * (uint64_t)l->keep;
    bytes = t->bytes / t->shape[0] * shape[0];
  }
  tensor_file_declare(&w->file, t->name, t->dtype_name, t->rank, shape, bytes);
}

static json_t *text_of(const char *format, unsigned long long x) {
  char text[32];
  snprintf(text, sizeof text, format, x);
  return json_string(text);
}

static json_t *metadata_of(const struct rewrite *w) {
  static const char *const sides[] = {"joint", "keys", "queries"};
  const struct deltaic_selection *s = w->selection;
  const char *format = checkpoint_metadata(w->source->checkpoint, "format");
  char cut[32];
  snprintf(cut, sizeof cut, "%.6g", s->cut);
  json_t *m = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "format", format ? format : "pt", "deltaic.version",
                        DELTAIC_VERSION, "deltaic.method", s->method, "deltaic.side", sides[s->side], "deltaic.cut",
                        cut, "deltaic.source", text_of("%016llx", s->fingerprint));
  if (m && s->text_tokens) {
    json_object_set_new(m, "deltaic.calibration", text_of("%016llx", s->text_hash));
    json_object_set_new(m, "deltaic.calibration_tokens", text_of("%llu", s->text_tokens));
  }
  if (m && w->options->refit) json_object_set_new(m, "deltaic.refit", json_string(w->options->refit));
  return m;
}

// ---------------------------------------------------------------- tensor data

static void append(struct rewrite *w, const void *data, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes && !w->file.status; at += SPAN) {
    uint64_t n = bytes - at < SPAN ? bytes - at : SPAN;
    tensor_file_append(&w->file, (const char *)data + at, n);
    w->done += n;
    if (w->options->progress && !w->options->progress(w->options->user, w->done, w->file.bytes))
      w->file.status = fail(DELTAIC_CANCELLED, "writing was stopped");
  }
}

static void append_floats(struct rewrite *w, enum file_dtype dtype, const float *x, uint64_t count, void *room) {
  for (uint64_t i = 0; i < count; i++) {
    if (dtype == FILE_F64) ((double *)room)[i] = x[i];
    if (dtype == FILE_F32) ((float *)room)[i] = x[i];
    if (dtype == FILE_F16) ((uint16_t *)room)[i] = f32_to_f16(x[i]);
    if (dtype == FILE_BF16) ((uint16_t *)room)[i] = f32_to_bf16(x[i]);
  }
  append(w, room, count * (dtype == FILE_F64 ? 8 : dtype == FILE_F32 ? 4 : 2));
}

// Appends the rows of each head times T, or its filters times T * T.
static void append_projected(struct rewrite *w, const struct file_tensor *t, const struct chosen_layer *l,
                             bool filters) {
  uint64_t d = (uint64_t)l->from.d, cols = 1, groups = t->shape[0] / d;
  for (int i = 1; i < t->rank; i++) cols *= t->shape[i];
  float *in = malloc(d * cols * sizeof *in), *out = malloc(d * cols * sizeof *out);
  void *room = malloc(d * cols * sizeof(double));
  if (!in || !out || !room) w->file.status = fail_memory("rotated weights", d * cols * sizeof(double));
  for (uint64_t g = 0; g < groups && !w->file.status; g++) {
    const double *T = l->heads[g % (uint64_t)l->from.H].projection;
    file_tensor_f32(t, g * d * cols, d * cols, in);
    if (filters)
      pca_filters(T, l->keep, l->from.d, in, (int)cols, out);
    else
      pca_rows(T, l->keep, l->from.d, in, (int)cols, out);
    append_floats(w, t->dtype, out, (uint64_t)l->keep * cols, room);
  }
  free(in);
  free(out);
  free(room);
}

static void append_kept(struct rewrite *w, const struct file_tensor *t, const struct chosen_layer *l) {
  uint64_t row = t->bytes / t->shape[0], d = (uint64_t)l->from.d, groups = t->shape[0] / d;
  for (uint64_t g = 0; g < groups; g++) {
    const struct prune_result *r = &l->heads[g % (uint64_t)l->from.H];
    for (int j = 0; j < l->keep; j++) append(w, (const char *)t->data + (g * d + (uint64_t)r->kept[j]) * row, row);
  }
}

static void append_tensor(struct rewrite *w, const struct file_tensor *t) {
  bool filters = false;
  const struct chosen_layer *l = w->file.status ? NULL : cut_of(w, t->name, &filters);
  if (!l)
    append(w, t->data, t->bytes);
  else if (l->heads[0].projection)
    append_projected(w, t, l, filters);
  else
    append_kept(w, t, l);
}

deltaic_status rewrite_tensors(const struct source *source, const struct deltaic_selection *selection, const char *file,
                               const struct rewrite_options *options, uint64_t *o_offsets) {
  struct rewrite w = {.source = source, .selection = selection, .options = options};
  struct checkpoint *c = source->checkpoint;
  json_t *metadata = metadata_of(&w);
  tensor_file_begin(&w.file, file, metadata);
  json_decref(metadata);
  for (uint64_t i = 0; i < checkpoint_count(c); i++) {
    uint64_t begin = w.file.bytes;
    struct file_tensor *t = checkpoint_at(c, i);
    declare(&w, t);
    for (int n = 0; n < source->count; n++)
      if (t == source_output(source, &source->layers[n])) o_offsets[n] = begin;
  }
  tensor_file_write_header(&w.file);
  for (int n = 0; n < source->count; n++) o_offsets[n] += w.file.data;
  for (uint64_t i = 0; i < checkpoint_count(c); i++) append_tensor(&w, checkpoint_at(c, i));
  return tensor_file_end(&w.file);
}

// ---------------------------------------------------------------- config

double rewrite_ratio(int num, int den) {
  double x = (double)num / den;
  return trunc(den * x) == num ? x : nextafter(x, INFINITY);
}

static int set(json_t *config, const char *key, json_t *value) { return json_object_set_new(config, key, value); }

static bool is_uniform(const struct deltaic_selection *s) {
  for (int i = 1; i < s->count; i++)
    if (s->layers[i].keep != s->layers[0].keep) return false;
  return true;
}

// Lists d_k of every layer (null for a layer without keys) if the values differ, because fla's configs cannot express
// that. Deltaic itself reads the tensors; the list is for people and other programs.
static int set_list(json_t *config, const struct source *source, const struct deltaic_selection *s) {
  if (is_uniform(s)) {
    json_object_del(config, "key_sizes");
    return 0;
  }
  json_t *list = json_array();
  for (uint32_t layer = 0; layer < source->spec.L; layer++) {
    int i = source_find(source, layer);
    if (json_array_append_new(list, i < 0 ? json_null() : json_integer(s->layers[i].keep))) break;
  }
  return set(config, "key_sizes", list);
}

static double key_ratio(const struct source *source, const struct chosen_layer *l) {
  return rewrite_ratio(l->from.H * l->keep, (int)source->spec.D);
}

// delta_net_2: an object with the ratio of each layer, by its number, if they differ.
static int set_expand_k(json_t *config, const struct source *source, const struct deltaic_selection *s) {
  const bool each = !is_uniform(s) && !strcmp(source->spec.architecture, "delta_net_2");
  json_t *ratios = each ? json_object() : json_real(key_ratio(source, &s->layers[0]));
  for (int i = 0; each && i < s->count; i++) {
    char number[16];
    snprintf(number, sizeof number, "%u", s->layers[i].from.layer);
    if (set(ratios, number, json_real(key_ratio(source, &s->layers[i])))) break;
  }
  return set(config, "expand_k", ratios);
}

deltaic_status rewrite_config(const struct source *source, const struct deltaic_selection *s, char **text) {
  const struct chosen_layer *l = &s->layers[0];
  json_t *config = json_deep_copy(source->config);
  bool bad = !config;
  if (!bad && !strncmp(source->spec.architecture, "delta_net", strlen("delta_net"))) {
    bad = set_expand_k(config, source, s);
    if (json_present(config, "head_dim")) bad |= set(config, "head_dim", json_integer(l->keep));
  } else if (!bad && !strcmp(source->spec.architecture, "olmo_hybrid")) {
    bad = set(config, "linear_key_head_dim", json_integer(l->keep));
    bad |= set(config, "linear_value_head_dim", json_integer(l->from.Dv));
  } else if (!bad) {
    bad = set(config, "head_dim", json_integer(l->keep));
    bad |= set(config, "expand_v", json_real(rewrite_ratio(l->from.Dv, l->keep)));
  }
  bad = bad || set_list(config, source, s);
  *text = bad ? NULL : json_dumps(config, JSON_INDENT(2));
  json_decref(config);
  return *text ? DELTAIC_OK : fail_memory("a config", 0);
}
