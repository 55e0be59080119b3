// statistics: stores the measurements of calibration, samples rows, and saves and loads the statistics file.
#include "statistics.h"

#include "tensor_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static deltaic_status create_layer(struct stat_layer *out, const struct source_layer *l, bool unit, uint32_t D) {
  *out = (struct stat_layer){.layer = l->layer, .H = l->H, .d = l->d, .steps = l->steps};
  deltaic_status status = matrix_create(D, 1, "squares of inputs", &out->squares);
  for (int g = 0; g < STAT_GRAMS && !status; g++) {
    bool of_unit = g == STAT_Q_UNIT || g == STAT_K_UNIT;
    if (of_unit && !unit) continue;
    status = matrix_create((int64_t)l->H * l->d, l->d, "Gram matrices", &out->gram[g]);
    if (!status && of_unit) status = matrix_create(l->H, l->d, "sums", &out->sum[g]);
  }
  return status;
}

deltaic_status statistics_create(const struct source *source, const deltaic_calibration_options *o,
                                 struct deltaic_statistics **out) {
  struct deltaic_statistics *s = calloc(1, sizeof *s);
  if (!s) return fail_memory("statistics", sizeof *s);
  s->fingerprint = source->fingerprint;
  s->D = source->spec.D;
  s->window = o->window ? o->window : 512;
  s->unit = o->unit;
  s->rows = o->rows;
  s->row_seed = o->seed;
  s->rows_together = o->rows_together;
  s->hash = HASH_START;
  s->layers = calloc((size_t)source->count, sizeof *s->layers);
  deltaic_status status = s->layers ? DELTAIC_OK : fail_memory("statistics", 0);
  for (int i = 0; i < source->count && !status; i++) {
    status = create_layer(&s->layers[i], &source->layers[i], s->unit, s->D);
    s->count = i + 1;
  }
  if (status)
    statistics_free(s);
  else
    *out = s;
  return status;
}

void statistics_free(struct deltaic_statistics *s) {
  if (!s) return;
  for (int i = 0; i < s->count; i++) {
    struct stat_layer *l = &s->layers[i];
    for (int g = 0; g < STAT_GRAMS; g++) {
      free(l->gram[g]);
      free(l->sum[g]);
    }
    free(l->saliency[STAT_Q]);
    free(l->saliency[STAT_K]);
    free(l->squares);
    free(l->rows);
    free(l->picks);
  }
  free(s->layers);
  free(s);
}

// ---------------------------------------------------------------- sampled rows

static uint64_t population(const struct deltaic_statistics *s, const struct stat_layer *l) {
  return s->total * (uint64_t)(1 + l->steps);
}

int statistics_rows(const struct deltaic_statistics *s, const struct stat_layer *l) {
  uint64_t all = population(s, l);
  if (s->rows_together) return (int)(s->rows < all ? s->rows : all);
  uint64_t half = s->rows / 2, keys = s->total * (uint64_t)l->steps;
  return (int)((half < s->total ? half : s->total) + (half < keys ? half : keys));
}

static uint64_t random_next(uint64_t *state) { // splitmix64
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Draws `count` of the numbers first ... first + n - 1, ascending; all subsets are equally likely (Knuth's S).
static void sample(uint64_t *state, uint64_t first, uint64_t n, uint64_t count, int64_t *out) {
  for (uint64_t i = 0, taken = 0; i < n && taken < count; i++)
    if ((double)(random_next(state) >> 11) * 0x1p-53 * (double)(n - i) < (double)(count - taken))
      out[taken++] = (int64_t)(first + i);
}

static void sample_head(const struct deltaic_statistics *s, const struct stat_layer *l, int head, int64_t *out) {
  uint64_t state = s->row_seed ^ ((uint64_t)l->layer << 32 | (uint64_t)head) * 0xd1342543de82ef95u;
  uint64_t count = (uint64_t)statistics_rows(s, l), keys = s->total * (uint64_t)l->steps;
  if (s->rows_together) {
    sample(&state, 0, population(s, l), count, out);
    return;
  }
  uint64_t queries = s->rows / 2 < s->total ? s->rows / 2 : s->total;
  sample(&state, 0, s->total, queries, out);
  sample(&state, s->total, keys, count - queries, out + queries);
}

deltaic_status statistics_sample(struct deltaic_statistics *s, uint64_t total) {
  if (!s->rows || s->total) return DELTAIC_OK;
  s->total = total;
  for (int i = 0; i < s->count; i++) {
    struct stat_layer *l = &s->layers[i];
    size_t rows = (size_t)statistics_rows(s, l) * (size_t)l->H;
    l->rows = calloc(rows * (size_t)l->d, sizeof *l->rows);
    l->picks = calloc(rows, sizeof *l->picks);
    if (!l->rows || !l->picks) return fail_memory("sampled activations", rows * (size_t)l->d * sizeof *l->rows);
    for (int h = 0; h < l->H; h++) sample_head(s, l, h, l->picks + (size_t)h * (size_t)statistics_rows(s, l));
  }
  return DELTAIC_OK;
}

deltaic_status statistics_make_saliency(struct deltaic_statistics *s) {
  deltaic_status status = DELTAIC_OK;
  for (int i = 0; i < s->count; i++)
    for (int side = STAT_Q; side <= STAT_K && !status; side++) {
      free(s->layers[i].saliency[side]);
      s->layers[i].saliency[side] = NULL;
      status = matrix_create(s->layers[i].H, s->layers[i].d, "saliencies", &s->layers[i].saliency[side]);
    }
  return status;
}

// ---------------------------------------------------------------- input of the methods

static struct prune_moments moments(const struct deltaic_statistics *s, const struct stat_layer *l, int g, int head) {
  if (!l->gram[g]) return (struct prune_moments){0};
  bool keys = g == STAT_K || g == STAT_K_UNIT;
  size_t d = (size_t)l->d;
  return (struct prune_moments){.rows = (int64_t)s->done * (keys ? l->steps : 1),
                                .gram = l->gram[g] + (size_t)head * d * d,
                                .sum = l->sum[g] ? l->sum[g] + (size_t)head * d : NULL};
}

void statistics_fill(const struct deltaic_statistics *s, int layer, int head, struct prune_head *out) {
  const struct stat_layer *l = &s->layers[layer];
  out->q = moments(s, l, STAT_Q, head);
  out->k = moments(s, l, STAT_K, head);
  out->q_unit = moments(s, l, STAT_Q_UNIT, head);
  out->k_unit = moments(s, l, STAT_K_UNIT, head);
  out->input_squares = l->squares;
  if (s->gradient_tokens) {
    out->q_saliency = l->saliency[STAT_Q] + head * l->d;
    out->k_saliency = l->saliency[STAT_K] + head * l->d;
  }
  if (!l->rows) return;
  int64_t count = statistics_rows(s, l), queries = 0;
  const int64_t *picks = l->picks + (size_t)head * (size_t)count;
  const float *rows = l->rows + (size_t)head * (size_t)count * (size_t)l->d;
  while (queries < count && picks[queries] < (int64_t)s->total) queries++;
  out->q_rows = (struct matrix_rows){rows, queries, l->d};
  out->k_rows = (struct matrix_rows){rows + queries * l->d, count - queries, l->d};
}

deltaic_status statistics_check(const struct deltaic_statistics *s, const struct source *source, const char *what) {
  if (s->fingerprint == source->fingerprint && s->count == source->count) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: measured on another model than %s", what, source->path);
}

// ---------------------------------------------------------------- statistics file

static const char *const gram_names[STAT_GRAMS] = {"gram.q", "gram.k", "unit_gram.q", "unit_gram.k"};
static const char *const sum_names[STAT_GRAMS] = {NULL, NULL, "unit_sum.q", "unit_sum.k"};

// An array of a layer. Writing and reading list the arrays in the same order.
struct stat_array {
  char name[64];
  enum file_dtype dtype;
  uint64_t shape[3];
  void *data;
  uint64_t bytes;
};
enum { STAT_ARRAYS = 2 * STAT_GRAMS + 4 };

// Adds `array` to the list. Its name and size in bytes are set here.
static void list_array(struct stat_array *a, int *n, const struct stat_layer *l, const char *name,
                       struct stat_array array) {
  if (!array.data) return;
  array.bytes = array.shape[0] * array.shape[1] * array.shape[2] * (array.dtype == FILE_F64 ? 8 : 4);
  snprintf(array.name, sizeof array.name, "layer.%u.%s", l->layer, name);
  a[(*n)++] = array;
}

static int list_arrays(const struct deltaic_statistics *s, const struct stat_layer *l, struct stat_array *a) {
  uint64_t H = (uint64_t)l->H, d = (uint64_t)l->d, rows = l->rows ? (uint64_t)statistics_rows(s, l) : 0;
  int n = 0;
  for (int g = 0; g < STAT_GRAMS; g++) {
    list_array(a, &n, l, gram_names[g], (struct stat_array){.data = l->gram[g], .dtype = FILE_F64, .shape = {H, d, d}});
    list_array(a, &n, l, sum_names[g], (struct stat_array){.data = l->sum[g], .dtype = FILE_F64, .shape = {H, d, 1}});
  }
  for (int side = STAT_Q; s->gradient_tokens && side <= STAT_K; side++)
    list_array(a, &n, l, side == STAT_Q ? "saliency.q" : "saliency.k",
               (struct stat_array){.data = l->saliency[side], .dtype = FILE_F64, .shape = {1, H, d}});
  list_array(a, &n, l, "squares", (struct stat_array){.data = l->squares, .dtype = FILE_F64, .shape = {1, s->D, 1}});
  list_array(a, &n, l, "rows", (struct stat_array){.data = l->rows, .dtype = FILE_F32, .shape = {H, rows, d}});
  return n;
}

// Writes 64-bit numbers as text, because JSON readers keep fewer bits.
static json_t *number_text(uint64_t x) {
  char text[32];
  snprintf(text, sizeof text, "%llu", (unsigned long long)x);
  return json_string(text);
}

static json_t *metadata_of(const struct deltaic_statistics *s) {
  return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "what", "deltaic calibration 1",
                   "fingerprint", number_text(s->fingerprint), "window", number_text(s->window), "unit",
                   number_text(s->unit), "rows", number_text(s->rows), "row_seed", number_text(s->row_seed),
                   "rows_together", number_text(s->rows_together), "total", number_text(s->total), "done",
                   number_text(s->done), "hash", number_text(s->hash), "gradient_tokens",
                   number_text(s->gradient_tokens), "gradient_hash", number_text(s->gradient_hash));
}

deltaic_status statistics_save(const struct deltaic_statistics *s, const char *path) {
  struct stat_array a[STAT_ARRAYS];
  struct tensor_file f;
  json_t *metadata = metadata_of(s);
  if (!metadata) return fail_memory("statistics", 0);
  tensor_file_begin(&f, path, metadata);
  for (int i = 0; i < s->count; i++)
    for (int n = list_arrays(s, &s->layers[i], a), j = 0; j < n; j++)
      tensor_file_declare(&f, a[j].name, a[j].dtype == FILE_F64 ? "F64" : "F32", 3, a[j].shape, a[j].bytes);
  tensor_file_write_header(&f);
  for (int i = 0; i < s->count; i++)
    for (int n = list_arrays(s, &s->layers[i], a), j = 0; j < n; j++) tensor_file_append(&f, a[j].data, a[j].bytes);
  json_decref(metadata);
  return tensor_file_end(&f);
}

static bool metadata_number(struct checkpoint *c, const char *key, uint64_t *out) {
  const char *text = checkpoint_metadata(c, key);
  char *end = NULL;
  if (text) *out = strtoull(text, &end, 10);
  return text && *text && !*end;
}

static deltaic_status read_metadata(struct checkpoint *c, const char *path, deltaic_calibration_options *o,
                                    struct deltaic_statistics *s) {
  uint64_t window, unit, together;
  const char *what = checkpoint_metadata(c, "what");
  if (!what || strcmp(what, "deltaic calibration 1") || !metadata_number(c, "fingerprint", &s->fingerprint) ||
      !metadata_number(c, "window", &window) || !metadata_number(c, "unit", &unit) ||
      !metadata_number(c, "rows", &s->rows) || !metadata_number(c, "row_seed", &s->row_seed) ||
      !metadata_number(c, "rows_together", &together) || !metadata_number(c, "total", &s->total) ||
      !metadata_number(c, "done", &s->done) || !metadata_number(c, "hash", &s->hash) || !window ||
      window > UINT32_MAX || s->rows > DELTAIC_CALIBRATION_ROWS || s->total > INT64_MAX / 2048 ||
      s->done > INT64_MAX / 2048)
    return fail(DELTAIC_BAD_FILE, "%s: is no file of calibration statistics", path);
  if (!metadata_number(c, "gradient_tokens", &s->gradient_tokens) ||
      !metadata_number(c, "gradient_hash", &s->gradient_hash))
    s->gradient_tokens = s->gradient_hash = 0; // a file of an earlier version
  *o = (deltaic_calibration_options){.size = sizeof *o,
                                     .window = (uint32_t)window,
                                     .unit = unit != 0,
                                     .rows = (uint32_t)s->rows,
                                     .rows_together = together != 0,
                                     .seed = s->row_seed};
  return DELTAIC_OK;
}

static deltaic_status read_layer(struct checkpoint *c, const char *path, const struct deltaic_statistics *s,
                                 const struct stat_layer *l) {
  struct stat_array a[STAT_ARRAYS];
  for (int n = list_arrays(s, l, a), j = 0; j < n; j++) {
    struct file_tensor *t = checkpoint_find(c, a[j].name);
    if (!t || t->dtype != a[j].dtype || t->rank != 3 || memcmp(t->shape, a[j].shape, sizeof a[j].shape))
      return fail(DELTAIC_BAD_FILE, "%s: tensor %s is missing or has another shape", path, a[j].name);
    memcpy(a[j].data, t->data, a[j].bytes);
  }
  return DELTAIC_OK;
}

deltaic_status statistics_load(const struct source *source, const char *path, struct deltaic_statistics **out) {
  struct checkpoint *c = NULL;
  struct deltaic_statistics *s = NULL, read = {0};
  deltaic_calibration_options o;
  deltaic_status status = checkpoint_open(path, &c);
  if (!status) status = read_metadata(c, path, &o, &read);
  if (!status && read.fingerprint != source->fingerprint)
    status = fail(DELTAIC_INVALID_ARGUMENT, "%s: measured on another model than %s", path, source->path);
  if (!status) status = statistics_create(source, &o, &s);
  if (!status && read.total) status = statistics_sample(s, read.total);
  if (!status && read.gradient_tokens) {
    s->gradient_tokens = read.gradient_tokens;
    s->gradient_hash = read.gradient_hash;
    status = statistics_make_saliency(s);
  }
  for (int i = 0; !status && i < s->count; i++) status = read_layer(c, path, s, &s->layers[i]);
  checkpoint_close(c);
  if (status) {
    statistics_free(s);
    return status;
  }
  s->done = read.done;
  s->hash = read.hash;
  *out = s;
  return DELTAIC_OK;
}
