// validate_file: reads a reference file: its sources, their precision and their tensors (docs/validate.md).
#include "common.h"
#include "validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  uint32_t probe;
} kinds[] = {{"residual", DELTAIC_PROBE_RESIDUAL},
             {"mixer_input", DELTAIC_PROBE_MIXER_INPUT},
             {"qkv", DELTAIC_PROBE_QKV},
             {"beta", DELTAIC_PROBE_BETA},
             {"decay", DELTAIC_PROBE_DECAY},
             {"state", DELTAIC_PROBE_STATE},
             {"heads", DELTAIC_PROBE_HEADS},
             {"mixer_output", DELTAIC_PROBE_MIXER_OUTPUT},
             {"logits", 0}};
enum { KINDS = sizeof kinds / sizeof *kinds };

// ---------------------------------------------------------------- sources

static const struct source *find_source(const struct validation *v, const char *name, size_t length) {
  for (size_t i = 0; i < v->source_count; ++i)
    if (strlen(v->sources[i].name) == length && !memcmp(v->sources[i].name, name, length)) return &v->sources[i];
  return NULL;
}

static const char *source_metadata(const struct validation *v, const char *name, const char *key) {
  char text[2 * NAME_CAPACITY];
  snprintf(text, sizeof text, *name ? "%s_%s" : "%s%s", name, key);
  return deltaic_tensors_metadata(v->tensors, text);
}

// Its precision: NAME_precision of the metadata, else its name's, else that of the words about it.
static int add_source(struct validation *v, const char *name, size_t length) {
  if (find_source(v, name, length)) return EXIT_OK;
  if (v->source_count == SOURCES || length >= NAME_CAPACITY)
    return complain(EXIT_FAILED, "%s: has more than %d sources of numbers, or one with a long name", v->file, SOURCES);
  struct source *s = &v->sources[v->source_count++];
  *s = (struct source){.precision = PRECISION_UNKNOWN};
  memcpy(s->name, name, length);
  s->text = deltaic_tensors_metadata(v->tensors, *s->name ? s->name : "computed");
  const char *texts[] = {source_metadata(v, s->name, "precision"), s->name, s->text};
  for (size_t i = 0; i < 3 && s->precision == PRECISION_UNKNOWN; ++i) s->precision = precision_of(texts[i]);
  return EXIT_OK;
}

// The kind that a tensor's name ends with, "mixer_output" or "mixer_output.3", and where it begins; -1: none.
static int kind_of(const char *name, size_t *begin) {
  for (int k = 0; k < KINDS; ++k) {
    const char *at = strstr(name, kinds[k].name);
    if (!at || (at > name && at[-1] != '.')) continue;
    const char *rest = at + strlen(kinds[k].name);
    if (*rest && (*rest != '.' || !rest[1] || rest[1 + strspn(rest + 1, "0123456789")])) continue;
    *begin = (size_t)(at - name);
    return k;
  }
  return -1;
}

static int find_sources(struct validation *v) {
  int code = add_source(v, "", 0); // first: greedy tokens and the NLL's limit are its
  for (uint64_t i = 0; !code && i < deltaic_tensors_count(v->tensors); ++i) {
    deltaic_tensor_info info;
    size_t begin;
    code = complain_status(deltaic_tensors_at(v->tensors, i, &info));
    if (!code && kind_of(info.name, &begin) >= 0) code = add_source(v, info.name, begin ? begin - 1 : 0);
  }
  return code;
}

// ---------------------------------------------------------------- tensors

struct tensor_name tensor_of(const struct source *source, const char *kind) {
  struct tensor_name name;
  snprintf(name.text, sizeof name.text, *source->name ? "%s.%s" : "%s%s", source->name, kind);
  return name;
}

// As one tensor, or one for each layer.
static bool has_kind(const struct validation *v, const struct source *source, const char *kind) {
  struct tensor_name name = tensor_of(source, kind);
  if (deltaic_tensors_find(v->tensors, name.text, NULL)) return true;
  size_t length = strlen(name.text);
  for (int32_t layer = 0; layer < v->layers; ++layer) {
    snprintf(name.text + length, sizeof name.text - length, ".%d", layer);
    if (deltaic_tensors_find(v->tensors, name.text, NULL)) return true;
  }
  return false;
}

static const struct source *find_truth(const struct validation *v, const struct source *source, const char *kind) {
  const struct source *best = source;
  for (size_t i = 0; i < v->source_count; ++i)
    if (v->sources[i].precision < best->precision && has_kind(v, &v->sources[i], kind)) best = &v->sources[i];
  return best == source ? NULL : best;
}

static struct distances make_distances(const struct validation *v) {
  struct distances d = {.layers = must_resize(NULL, (size_t)v->layers * sizeof *d.layers),
                        .positions = must_resize(NULL, v->n * sizeof *d.positions)};
  memset(d.layers, 0, (size_t)v->layers * sizeof *d.layers);
  memset(d.positions, 0, v->n * sizeof *d.positions);
  return d;
}

// With --precision fast the roundings are ours, not the reference's, unless it has coarser ones.
const struct precision_row *limits_of(const struct validation *v, const struct source *source) {
  static const struct precision_row fast = {"fast", 2e-3, 2e-3, 0.05, false};
  const struct precision_row *row = &precision_rows[source->precision];
  return v->fast && !row->grows ? &fast : row;
}

// Inside a layer fla's bf16 numbers lie 7.6e-3 to 9.8e-3 from float64, its logits 2.7e-3 to 4.0e-3 (docs/validate.md):
// hence 2.
static double limit_of(const struct validation *v, const struct source *source, const char *kind) {
  const struct precision_row *row = limits_of(v, source);
  if (v->limit > 0) return v->limit;
  if (!row->grows) return row->relative;
  return precision_limit(source->precision, v->layers) * (strcmp(kind, "logits") ? 2 : 1);
}

static void add_comparisons(struct validation *v, const struct source *source, const struct count_list *pieces) {
  for (int k = 0; k < KINDS; ++k) {
    if (!has_kind(v, source, kinds[k].name)) continue;
    for (size_t p = 0; p < pieces->count; ++p) {
      v->comparisons = must_resize(v->comparisons, (v->count + 1) * sizeof *v->comparisons);
      v->comparisons[v->count++] = (struct comparison){.source = source,
                                                       .truth = find_truth(v, source, kinds[k].name),
                                                       .kind = kinds[k].name,
                                                       .probe = kinds[k].probe,
                                                       .piece = pieces->values[p],
                                                       .limit = limit_of(v, source, kinds[k].name),
                                                       .ours = make_distances(v),
                                                       .theirs = make_distances(v)};
    }
  }
}

int read_integers(const struct validation *v, const char *name, int32_t **out, size_t *count) {
  deltaic_tensor_info info = {.count = 0};
  deltaic_tensors_find(v->tensors, name, &info);
  *count = (size_t)info.count;
  *out = must_resize(NULL, *count * sizeof **out);
  return complain_status(deltaic_tensors_read_integers(v->tensors, name, 0, info.count, *out));
}

static int read_positions(struct validation *v) {
  if (deltaic_tensors_find(v->tensors, "positions", NULL)) {
    int code = read_integers(v, "positions", &v->positions, &v->rows);
    for (size_t i = 0; !code && i < v->rows; ++i)
      if (v->positions[i] < 0 || (size_t)v->positions[i] >= v->n)
        code = complain(EXIT_FAILED, "%s: position %d is outside of the text's %zu tokens", v->file, v->positions[i],
                        v->n);
    return code;
  }
  v->rows = v->n;
  v->positions = must_resize(NULL, v->rows * sizeof *v->positions);
  for (size_t i = 0; i < v->rows; ++i) v->positions[i] = (int32_t)i;
  return EXIT_OK;
}

static int check_logits(const struct validation *v) {
  for (size_t i = 0; i < v->source_count; ++i) {
    struct tensor_name name = tensor_of(&v->sources[i], "logits");
    deltaic_tensor_info info;
    if (!deltaic_tensors_find(v->tensors, name.text, &info)) continue;
    if (info.count != (uint64_t)v->rows * (uint64_t)v->vocabulary)
      return complain(EXIT_FAILED, "%s: %s has %llu numbers, not %zu positions x %d tokens of the vocabulary", v->file,
                      name.text, (unsigned long long)info.count, v->rows, v->vocabulary);
  }
  return EXIT_OK;
}

int reference_open(struct validation *v, const struct count_list *pieces) {
  int code = read_integers(v, "input_ids", &v->ids, &v->n);
  if (!code && !v->n) code = complain(EXIT_FAILED, "%s: input_ids is empty", v->file);
  if (!code) code = read_positions(v);
  if (!code) code = find_sources(v);
  if (!code) code = check_logits(v);
  for (size_t i = 0; !code && i < v->source_count; ++i) add_comparisons(v, &v->sources[i], pieces);
  return code;
}

void reference_close(struct validation *v) {
  for (size_t i = 0; i < v->count; ++i) {
    free(v->comparisons[i].ours.layers);
    free(v->comparisons[i].ours.positions);
    free(v->comparisons[i].theirs.layers);
    free(v->comparisons[i].theirs.positions);
  }
  free(v->comparisons);
  free(v->positions);
  free(v->ids);
  deltaic_tensors_close(v->tensors);
}
