// weights: declare, measure, convert, upload.
#include "weights.h"

#include "hash.h"
#include "pool.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT_BYTES = 96, STAGE_BYTES = 16 << 20 };

struct weight_request {
  struct tensor *out;
  uint64_t first_part; // in weights.parts
  int count;
  enum { PARTS_UNDER, PARTS_ALONG, PARTS_TRANSPOSED } layout; // under each other, in one row, side by side
  weight_row row;                                             // NULL: the parts are copied
  const struct tensor *same;                                  // an earlier request's tensor that serves this one too
  union {
    char bytes[CONTEXT_BYTES];
    void *aligned;
  } context;
};

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
    keep(w, fail(DELTAIC_UNSUPPORTED, "%s: tensor %s has dtype %s, which is not a supported float", path, t->name,
                 file_dtype_name(t->dtype)));
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
  if (w->count == w->capacity) {
    uint64_t capacity = w->capacity ? 2 * w->capacity : 64;
    struct weight_request *grown = realloc(w->requests, capacity * sizeof *grown);
    if (!grown) {
      keep(w, fail_memory("the list of weights", capacity * sizeof *grown));
      return NULL;
    }
    w->requests = grown;
    w->capacity = capacity;
  }
  struct weight_request *r = &w->requests[w->count++];
  memset(r, 0, sizeof *r);
  r->out = out;
  r->first_part = w->part_count;
  return r;
}

static void part_add(struct weights *w, struct weight_request *r, const struct weight_part *part) {
  if (w->part_count == w->part_capacity) {
    uint64_t capacity = w->part_capacity ? 2 * w->part_capacity : 64;
    struct weight_part *grown = realloc(w->parts, capacity * sizeof *grown);
    if (!grown) {
      keep(w, fail_memory("the list of weights", capacity * sizeof *grown));
      return;
    }
    w->parts = grown;
    w->part_capacity = capacity;
  }
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
  assert(bytes <= CONTEXT_BYTES);
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

// ---------------------------------------------------------------- uploading

// Infinities and NaNs have an exponent of ones in every float format: they would poison every later token.
static bool row_is_finite(enum dtype dtype, const void *row, uint64_t n) {
  if (dtype == DTYPE_F32) {
    const float *f = row;
    for (uint64_t i = 0; i < n; i++)
      if (!isfinite(f[i])) return false;
    return true;
  }
  const uint16_t *h = row, ones = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80;
  unsigned bad = 0;
  for (uint64_t i = 0; i < n; i++) bad |= (h[i] & ones) == ones;
  return !bad;
}

struct upload {
  struct weights *w;
  const struct tensor *out;
  struct pool *pool;
  char *stage;
  uint64_t staged, written; // bytes of the tensor in the stage, and already on the device
  uint64_t done;            // bytes of all tensors
  deltaic_progress progress;
  void *user;
};

static deltaic_status upload_report(const struct upload *u, uint64_t done) {
  if (u->progress && !u->progress(u->user, done, u->w->arena.bytes))
    return fail(DELTAIC_CANCELLED, "loading %s was cancelled", checkpoint_path(u->w->checkpoint));
  return DELTAIC_OK;
}

static deltaic_status upload_flush(struct upload *u) {
  struct backend *b = u->w->backend;
  if (u->staged) {
    deltaic_status status = b->ops->buffer_write(b, u->out->buffer, u->out->offset + u->written, u->stage, u->staged);
    if (status != DELTAIC_OK) return status;
  }
  u->written += u->staged;
  u->done += u->staged;
  u->staged = 0;
  return upload_report(u, u->done);
}

// Room for one row of the tensor, zeroed; NULL with *status set on failure.
static void *upload_row(struct upload *u, deltaic_status *status) {
  uint64_t bytes = u->out->stride * dtype_bytes(u->out->dtype);
  if (u->staged && u->staged + bytes > STAGE_BYTES) {
    *status = upload_flush(u);
    if (*status != DELTAIC_OK) return NULL;
  }
  void *row = u->stage + u->staged;
  memset(row, 0, bytes);
  u->staged += bytes;
  return row;
}

static deltaic_status fail_number(const struct upload *u, const struct file_tensor *t) {
  return fail(DELTAIC_BAD_FILE, "%s: tensor %s holds a number that is not finite (NaN or infinity)",
              checkpoint_path(u->w->checkpoint), t->name);
}

// Numbers first ... first + n - 1 of a part; false: one is not finite.
static bool copy_numbers(const struct upload *u, const struct weight_part *p, uint64_t first, void *to, uint64_t n) {
  const struct file_tensor *t = p->source;
  if (u->out->dtype == DTYPE_F32)
    file_tensor_f32(t, first, n, to);
  else
    memcpy(to, (const char *)t->data + first * 2, n * 2);
  return row_is_finite(u->out->dtype, to, n);
}

// Rows of PARTS_UNDER in the stage, which the pool's threads fill, each a group of them.
struct fill {
  const struct upload *u;
  const struct weight_request *r;
  uint32_t first, rows, each;             // of the tensor; in the stage; of a group
  _Atomic(const struct file_tensor *) bad; // one with a number that is not finite
};

static uint32_t part_end(const struct weight_part *p, uint32_t begin) {
  uint32_t end = begin + p->rows;
  return p->align ? (uint32_t)round_up(end, p->align) : end;
}

static void fill_group(void *context, uint64_t index, uint32_t worker) {
  (void)worker;
  struct fill *f = context;
  const struct upload *u = f->u;
  const uint64_t pitch = u->out->stride * dtype_bytes(u->out->dtype);
  const uint32_t from = f->first + (uint32_t)index * f->each, stop = f->first + f->rows;
  const struct weight_part *p = u->w->parts + f->r->first_part;
  uint32_t begin = 0;
  for (uint32_t row = from; row < stop && row < from + f->each; row++) {
    while (row >= part_end(p, begin)) begin = part_end(p++, begin);
    char *to = u->stage + (row - f->first) * pitch;
    uint64_t used = row - begin < p->rows ? u->out->cols * dtype_bytes(u->out->dtype) : 0;
    memset(to + used, 0, pitch - used);
    if (!used) continue;
    if (!copy_numbers(u, p, (p->first + row - begin) * (uint64_t)u->out->cols, to, u->out->cols)) f->bad = p->source;
  }
}

static deltaic_status upload_parts(struct upload *u, const struct weight_request *r) {
  enum { GROUP_BYTES = 256 << 10 }; // worth waking a thread for
  const uint64_t pitch = u->out->stride * dtype_bytes(u->out->dtype), most = STAGE_BYTES / pitch;
  struct fill f = {.u = u, .r = r, .each = pitch < GROUP_BYTES ? (uint32_t)(GROUP_BYTES / pitch) : 1};
  deltaic_status status = DELTAIC_OK;
  for (; f.first < u->out->rows && !status; f.first += f.rows) {
    f.rows = u->out->rows - f.first;
    if (f.rows > most) f.rows = most ? (uint32_t)most : 1;
    pool_run(u->pool, (f.rows + f.each - 1) / f.each, fill_group, &f);
    u->staged = f.rows * pitch;
    status = f.bad ? fail_number(u, f.bad) : upload_flush(u);
  }
  return status;
}

// A vector is one row made of several parts.
static deltaic_status upload_vector(struct upload *u, const struct weight_request *r) {
  deltaic_status status = DELTAIC_OK;
  float *row = upload_row(u, &status);
  if (!row) return status;
  const struct weight_part *parts = u->w->parts + r->first_part;
  for (int p = 0; p < r->count; p++) {
    if (!copy_numbers(u, &parts[p], (uint64_t)parts[p].first * parts[p].rows, row, parts[p].rows))
      return fail_number(u, parts[p].source);
    row += parts[p].rows;
  }
  return upload_flush(u);
}

// Row i of the result is column i of every part.
static deltaic_status upload_transposed(struct upload *u, const struct weight_request *r) {
  deltaic_status status = DELTAIC_OK;
  const struct weight_part *parts = u->w->parts + r->first_part;
  for (uint32_t i = 0; i < u->out->rows; i++) {
    float *row = upload_row(u, &status);
    if (!row) return status;
    for (int p = 0; p < r->count; p++) {
      for (uint32_t j = 0; j < parts[p].rows; j++)
        file_tensor_f32(parts[p].source, (uint64_t)(parts[p].first + j) * u->out->rows + i, 1, &row[j]);
      if (!row_is_finite(DTYPE_F32, row, parts[p].rows)) return fail_number(u, parts[p].source);
      row += parts[p].rows;
    }
  }
  return upload_flush(u);
}

static deltaic_status upload_computed(struct upload *u, const struct weight_request *r) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 0; i < u->out->rows; i++) {
    float *row = upload_row(u, &status);
    if (!row) return status;
    r->row(r->context.bytes, i, u->out->cols, row);
    if (!row_is_finite(DTYPE_F32, row, u->out->cols))
      return fail(DELTAIC_BAD_FILE, "%s: a computed weight is not finite (NaN or infinity)",
                  checkpoint_path(u->w->checkpoint));
  }
  return upload_flush(u);
}

static deltaic_status upload_request(struct upload *u, const struct weight_request *r) {
  if (r->same) {
    *r->out = *r->same;
    return DELTAIC_OK;
  }
  if (r->row) return upload_computed(u, r);
  switch (r->layout) {
  case PARTS_ALONG: return upload_vector(u, r);
  case PARTS_TRANSPOSED: return upload_transposed(u, r);
  default: return upload_parts(u, r);
  }
}

static uint64_t stage_bytes(const struct weights *w) {
  uint64_t most = STAGE_BYTES;
  for (uint64_t i = 0; i < w->count; i++) {
    uint64_t row = w->requests[i].out->stride * dtype_bytes(w->requests[i].out->dtype);
    if (row > most) most = row;
  }
  return most;
}

struct digest {
  struct checkpoint *checkpoint;
  uint64_t *of; // each tensor
};

static void digest_tensor(void *context, uint64_t index, uint32_t worker) {
  (void)worker;
  struct digest *d = context;
  const struct file_tensor *t = checkpoint_at(d->checkpoint, index);
  uint64_t h = hash_bytes(HASH_BEGIN, t->name, strlen(t->name));
  h = hash_bytes(h, t->shape, (uint64_t)t->rank * sizeof t->shape[0]);
  d->of[index] = hash_bytes(h, t->data, t->bytes);
}

static deltaic_status find_fingerprint(struct weights *w, struct pool *pool) {
  const uint64_t count = checkpoint_count(w->checkpoint);
  struct digest d = {w->checkpoint, calloc(count, sizeof *d.of)};
  if (!d.of) return fail_memory("the tensors' checksums", count * sizeof *d.of);
  pool_run(pool, count, digest_tensor, &d);
  w->fingerprint = hash_bytes(HASH_BEGIN, d.of, count * sizeof *d.of);
  free(d.of);
  return DELTAIC_OK;
}

static deltaic_status upload_all(struct upload *u) {
  struct weights *w = u->w;
  deltaic_status status = DELTAIC_OK;
  for (uint64_t i = 0; i < w->count && !status; i++) {
    u->out = w->requests[i].out;
    u->written = 0;
    status = upload_request(u, &w->requests[i]);
  }
  if (!status) status = upload_report(u, w->arena.bytes); // the gaps between tensors are done too
  return status ? status : find_fingerprint(w, u->pool);
}

deltaic_status weights_upload(struct weights *w, deltaic_progress progress, void *user) {
  enum { MOST_THREADS = 8 }; // they wait for memory
  const uint32_t threads = pool_threads_for(w->backend->threads);
  struct upload u = {.w = w, .progress = progress, .user = user};
  deltaic_status status = weights_status(w);
  if (!status) status = arena_allocate(&w->arena, w->backend, MEMORY_DEVICE, "the weights");
  if (!status) status = pool_create(threads < MOST_THREADS ? threads : MOST_THREADS, &u.pool);
  if (!status && !(u.stage = malloc(stage_bytes(w)))) status = fail_memory("staging of the weights", stage_bytes(w));
  if (!status) status = upload_all(&u);
  free(u.stage);
  pool_free(u.pool);
  return status;
}

void weights_free(struct weights *w) {
  if (w->backend) arena_free(&w->arena, w->backend);
  free(w->arena.entries);
  free(w->requests);
  free(w->parts);
  memset(w, 0, sizeof *w);
}
