// weights: finds, checks, declares and measures. weights_upload.c fills.
#include "weights.h"

#include "list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static deltaic_status keep(struct weights *w, deltaic_status status) {
  if (w->status == DELTAIC_OK) w->status = status;
  return w->status;
}

deltaic_status weights_status(const struct weights *w) { return w->status != DELTAIC_OK ? w->status : w->arena.status; }

// ---------------------------------------------------------------- finding

struct file_tensor *weights_find(struct weights *w, uint32_t layer, const char *name) {
  return model_tensor(w->checkpoint, layer, name);
}

static bool shape_is(const struct file_tensor *t, uint64_t rows, uint64_t cols) {
  if (!cols) return t->rank == 1 && t->shape[0] == rows;
  if (t->rank == 3) return t->shape[0] == rows && t->shape[1] * t->shape[2] == cols;
  return t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols;
}

static void shape_text(const struct file_tensor *t, char *text, size_t capacity) {
  size_t n = 0;
  for (int i = 0; i < t->rank && n < capacity; i++)
    n += (size_t)snprintf(text + n, capacity - n, "%s%llu", i ? ", " : "", (unsigned long long)t->shape[i]);
}

struct file_tensor *weights_get(struct weights *w, int64_t layer, const char *name, uint64_t rows, uint64_t cols) {
  if (w->status != DELTAIC_OK) return NULL;
  const char *path = checkpoint_path(w->checkpoint);
  struct file_tensor *t = layer < 0 ? checkpoint_find(w->checkpoint, name) : weights_find(w, (uint32_t)layer, name);
  if (!t) {
    if (layer < 0)
      keep(w, fail(DELTAIC_BAD_FILE, "%s: tensor %s is missing", path, name));
    else
      keep(w,
           fail(DELTAIC_BAD_FILE, "%s: tensor %s.%lld.%s is missing", path, w->names->layers, (long long)layer, name));
    return NULL;
  }
  t->used = true;
  if (!shape_is(t, rows, cols)) {
    char shape[160] = "", want[64];
    shape_text(t, shape, sizeof shape);
    snprintf(want, sizeof want, cols ? "%llu, %llu" : "%llu", (unsigned long long)rows, (unsigned long long)cols);
    keep(w, fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has shape [%s], expected [%s]", path, t->name, shape, want));
    return NULL;
  }
  if (t->dtype > FILE_BF16) {
    keep(w, fail(DELTAIC_UNSUPPORTED, "%s: tensor %s has dtype %.40s, which is not a supported float", path, t->name,
                 t->dtype_name));
    return NULL;
  }
  return t;
}

int weights_list(struct weights *w, uint32_t layer, const char *name, uint32_t steps, uint32_t rows, uint32_t cols,
                 struct weight_part *parts) {
  char item[64];
  model_list_name(item, sizeof item, name, 0);
  if (!weights_find(w, layer, item)) {
    parts[0] = (struct weight_part){weights_get(w, layer, name, steps * rows, cols), 0, steps * rows, 0};
    return 1;
  }
  for (uint32_t m = 0; m < steps; m++) {
    model_list_name(item, sizeof item, name, m);
    parts[m] = (struct weight_part){weights_get(w, layer, item, rows, cols), 0, rows, 0};
  }
  return (int)steps;
}

// ---------------------------------------------------------------- declaring

static struct weight_request *request_add(struct weights *w, struct tensor *out) {
  if (keep(w, list_room(&w->requests, w->count, &w->capacity, sizeof *w->requests, "the list of weights"))) return NULL;
  struct weight_request *r = &w->requests[w->count++];
  memset(r, 0, sizeof *r);
  r->out = out;
  r->first_part = w->part_count;
  return r;
}

static void part_add(struct weights *w, struct weight_request *r, const struct weight_part *part) {
  if (keep(w, list_room(&w->parts, w->part_count, &w->part_capacity, sizeof *w->parts, "the list of weights"))) return;
  w->parts[w->part_count++] = *part;
  r->count++;
}

void weights_matrix(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts, int count) {
  if (w->status != DELTAIC_OK) return;
  struct weight_request *r = request_add(w, out);
  if (!r) return;
  uint64_t rows = 0;
  int dtype = -1;
  for (int i = 0; i < count; i++) {
    if (!parts[i].source) continue;
    part_add(w, r, &parts[i]);
    rows += parts[i].rows;
    if (parts[i].align) rows = round_up(rows, parts[i].align);
    dtype = dtype < 0 || dtype == (int)parts[i].source->dtype ? (int)parts[i].source->dtype : (int)FILE_F32;
    w->parameters += (uint64_t)parts[i].rows * cols;
  }
  enum dtype device = dtype == FILE_F16 ? DTYPE_F16 : dtype == FILE_BF16 ? DTYPE_BF16 : DTYPE_F32;
  arena_add(&w->arena, out, device, rows, cols, round_up(cols, 8));
}

void weights_vector(struct weights *w, struct tensor *out, const struct weight_part *parts, int count) {
  if (w->status != DELTAIC_OK) return;
  struct weight_request *r = request_add(w, out);
  if (!r) return;
  r->layout = PARTS_ALONG;
  uint64_t n = 0;
  for (int i = 0; i < count; i++) {
    if (!parts[i].source) continue;
    part_add(w, r, &parts[i]);
    n += parts[i].rows;
  }
  w->parameters += n;
  arena_add(&w->arena, out, DTYPE_F32, 1, n, n);
}

void weights_transposed(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                        int count) {
  if (w->status != DELTAIC_OK) return;
  struct weight_request *r = request_add(w, out);
  if (!r) return;
  r->layout = PARTS_TRANSPOSED;
  uint64_t rows = 0;
  for (int i = 0; i < count; i++) {
    part_add(w, r, &parts[i]);
    rows += parts[i].rows;
  }
  w->parameters += rows * cols;
  arena_add(&w->arena, out, DTYPE_F32, cols, rows, rows);
}

// Rows of equal context are equal: rotation tables, which every attention layer asks for.
static const struct weight_request *find_equal(const struct weights *w, uint32_t rows, uint32_t cols, weight_row row,
                                               const void *context, uint64_t bytes) {
  for (uint64_t i = 0; i < w->count; i++) {
    const struct weight_request *r = &w->requests[i];
    if (r->row == row && !r->same && r->out->rows == rows && r->out->cols == cols &&
        !memcmp(r->context.bytes, context, bytes))
      return r;
  }
  return NULL;
}

void weights_rows(struct weights *w, struct tensor *out, uint32_t rows, uint32_t cols, weight_row row,
                  const void *context, uint64_t bytes) {
  if (w->status != DELTAIC_OK) return;
  assert(bytes <= WEIGHT_CONTEXT);
  struct weight_request *r = request_add(w, out);
  if (!r) return;
  const struct weight_request *equal = find_equal(w, rows, cols, row, context, bytes);
  r->row = row;
  if (equal) {
    *out = *equal->out;
    r->same = equal->out;
    return;
  }
  memcpy(r->context.bytes, context, bytes);
  arena_add(&w->arena, out, DTYPE_F32, rows, cols, cols);
}

void weights_free(struct weights *w) {
  if (w->backend) arena_free(&w->arena, w->backend);
  free(w->arena.entries);
  free(w->requests);
  free(w->parts);
  memset(w, 0, sizeof *w);
}
