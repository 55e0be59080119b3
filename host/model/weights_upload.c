// weights_upload: copies the declared tensors from the checkpoint to the device. All threads convert rows of matrices
// directly into the memory that the device copies from. All other tensors pass through a staging buffer.
#include "fingerprint.h"
#include "pool.h"
#include "weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define F16_MOST 65504.0f
enum { STAGE_BYTES = 1 << 20, REPORTED_BYTES = 16 << 20 };

// The range of some values. REACH_INFINITE: infinities and NaNs, which would spoil every later token; every float
// format has them at an exponent of ones. REACH_WIDE: values that are infinite as f16.
enum reach { REACH_F16, REACH_WIDE, REACH_INFINITE };

static enum reach reach_of(enum dtype dtype, const void *row, uint64_t n) {
  if (dtype == DTYPE_F32) {
    const float *f = row;
    float most = 0;
    for (uint64_t i = 0; i < n; i++) {
      if (!isfinite(f[i])) return REACH_INFINITE;
      most = fabsf(f[i]) > most ? fabsf(f[i]) : most;
    }
    return most > F16_MOST ? REACH_WIDE : REACH_F16;
  }
  if (dtype_is_blocks(dtype)) {
    const float bound = dtype_blocks_bound(dtype, row, n / formats[dtype].elements);
    return !isfinite(bound) ? REACH_INFINITE : bound > F16_MOST ? REACH_WIDE : REACH_F16;
  }
  const int16_t *h = row, ones = dtype == DTYPE_F16 ? 0x7c00 : 0x7f80, bf16_65536 = 0x4780;
  int16_t most = 0; // floats without a sign compare like integers
  for (uint64_t i = 0; i < n; i++) {
    const int16_t size = h[i] & 0x7fff;
    most = size > most ? size : most;
  }
  if (most >= ones) return REACH_INFINITE;
  return dtype == DTYPE_BF16 && most >= bf16_65536 ? REACH_WIDE : REACH_F16;
}

// ---------------------------------------------------------------- the staging buffer

struct upload {
  struct weights *w;
  const struct tensor *out;
  struct pool *pool;
  char *stage;
  uint64_t staged, written; // bytes of the tensor in the staging buffer, and already on the device
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
    deltaic_status status =
        b->functions->buffer_write(b, u->out->buffer, u->out->offset + u->written, u->stage, u->staged);
    if (status != DELTAIC_OK) return status;
  }
  u->written += u->staged;
  u->done += u->staged;
  u->staged = 0;
  return upload_report(u, u->done);
}

// Memory for one row of the tensor, zeroed; NULL with *status set on failure.
static void *upload_row(struct upload *u, deltaic_status *status) {
  uint64_t bytes = dtype_bytes(u->out->dtype, u->out->stride);
  if (u->staged && u->staged + bytes > STAGE_BYTES) {
    *status = upload_flush(u);
    if (*status != DELTAIC_OK) return NULL;
  }
  void *row = u->stage + u->staged;
  memset(row, 0, bytes);
  u->staged += bytes;
  return row;
}

static deltaic_status fail_number(const struct file_tensor *t) {
  return fail(DELTAIC_BAD_FILE, "%s: tensor %s has a value that is not finite (NaN or infinity)", t->input->name,
              t->name);
}

// ---------------------------------------------------------------- one tensor

// Converts elements first ... first + n - 1 of a part; blocks and tiles by whole rows. `to` is only written.
static enum reach copy_elements(const struct upload *u, const struct weight_part *p, uint64_t first, void *to,
                                uint64_t n) {
  const struct file_tensor *t = p->source;
  const enum dtype kept = u->out->dtype, dtype = dtype_untiled(kept);
  enum { SOME = 1024 }; // four tiles
  float some[SOME];
  enum reach reach = REACH_F16;
  for (uint64_t i = 0, count; i < n; i += count) {
    count = SOME < n - i ? SOME : n - i;
    const uint64_t bytes = dtype_bytes(dtype, count);
    char *into = (char *)to + dtype_bytes(kept, i);
    if (dtype == DTYPE_F32)
      file_tensor_f32(t, first + i, count, some);
    else
      memcpy(some, (const char *)t->data + dtype_bytes(dtype, first + i), bytes);
    const enum reach here = reach_of(dtype, some, count);
    if (here > reach) reach = here;
    if (kept == dtype)
      memcpy(into, some, bytes);
    else
      dtype_tile(dtype, some, count, into);
  }
  return reach;
}

// Rows of PARTS_UNDER, which the pool's threads copy in groups.
struct fill {
  const struct upload *u;
  const struct weight_request *r;
  uint64_t pitch;
  uint32_t begin;       // row of the tensor at which this write begins
  uint32_t first, rows; // rows of the tensor that are at `to`
  uint32_t each;        // rows of a group
  char *to;
  _Atomic(const struct file_tensor *) bad; // a tensor with a value that is not finite
  atomic_bool wide;
};

static uint32_t part_end(const struct weight_part *p, uint32_t begin) { return begin + p->rows + p->zeros; }

static void fill_group(void *context, uint64_t index, uint32_t worker) {
  (void)worker;
  struct fill *f = context;
  const struct upload *u = f->u;
  const uint32_t from = f->first + (uint32_t)index * f->each, stop = f->first + f->rows;
  const struct weight_part *p = u->w->parts + f->r->first_part;
  uint32_t begin = 0;
  for (uint32_t row = from; row < stop && row < from + f->each; row++) {
    while (row >= part_end(p, begin)) begin = part_end(p++, begin);
    char *to = f->to + (row - f->first) * f->pitch;
    uint64_t used = row - begin < p->rows ? dtype_bytes(u->out->dtype, u->out->cols) : 0;
    memset(to + used, 0, f->pitch - used);
    if (!used) continue;
    const enum reach reach = copy_elements(u, p, weight_part_row(p, row - begin) * u->out->cols, to, u->out->cols);
    if (reach == REACH_INFINITE) f->bad = p->source;
    if (reach == REACH_WIDE) f->wide = true;
  }
}

static deltaic_status fill_rows(void *context, uint64_t at, uint64_t bytes, void *to) {
  struct fill *f = context;
  f->first = f->begin + (uint32_t)(at / f->pitch);
  f->rows = (uint32_t)(bytes / f->pitch);
  f->to = to;
  pool_run(f->u->pool, (f->rows + f->each - 1) / f->each, fill_group, f);
  return f->bad ? fail_number(f->bad) : DELTAIC_OK;
}

static deltaic_status upload_parts(struct upload *u, const struct weight_request *r) {
  enum { GROUP_BYTES = 256 << 10 }; // enough work to wake a thread for
  struct backend *b = u->w->backend;
  const uint64_t pitch = dtype_bytes(u->out->dtype, u->out->stride);
  const uint64_t most = pitch < REPORTED_BYTES ? REPORTED_BYTES / pitch : 1;
  struct fill f = {.u = u, .r = r, .pitch = pitch, .each = pitch < GROUP_BYTES ? (uint32_t)(GROUP_BYTES / pitch) : 1};
  deltaic_status status = DELTAIC_OK;
  while (f.begin < u->out->rows && !status) {
    const uint64_t left = u->out->rows - f.begin, rows = left < most ? left : most;
    status = b->functions->buffer_write_by(b, u->out->buffer, u->out->offset + f.begin * pitch, rows * pitch, pitch,
                                           fill_rows, &f);
    u->done += rows * pitch;
    if (!status) status = upload_report(u, u->done);
    f.begin += (uint32_t)rows;
  }
  r->out->wide = f.wide;
  return status;
}

// A vector is one row that consists of several parts.
static deltaic_status upload_vector(struct upload *u, const struct weight_request *r) {
  deltaic_status status = DELTAIC_OK;
  float *row = upload_row(u, &status);
  if (!row) return status;
  const struct weight_part *parts = u->w->parts + r->first_part;
  for (int p = 0; p < r->count; p++)
    for (uint32_t i = 0; i < parts[p].rows; i++, row++) {
      if (copy_elements(u, &parts[p], weight_part_row(&parts[p], i), row, 1) == REACH_INFINITE)
        return fail_number(parts[p].source);
      *row = parts[p].minus_exp ? logf(-*row) : *row + parts[p].plus;
      if (!isfinite(*row)) return fail_number(parts[p].source);
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
        file_tensor_f32(parts[p].source, weight_part_row(&parts[p], j) * u->out->rows + i, 1, &row[j]);
      if (reach_of(DTYPE_F32, row, parts[p].rows) == REACH_INFINITE) return fail_number(parts[p].source);
      row += parts[p].rows;
    }
  }
  return upload_flush(u);
}

// The row's tensors, which are small, stay in memory. numbers: room for a row in f32; NULL: the tensor is f32.
static deltaic_status upload_rows(struct upload *u, const struct weight_request *r, float *numbers) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 0; i < u->out->rows; i++) {
    void *to = upload_row(u, &status);
    float *row = numbers ? numbers : to;
    if (!to) return status;
    r->row(r->context.bytes, i, u->out->cols, row);
    status = checkpoint_status(u->w->checkpoint);
    if (status) return status;
    for (uint32_t k = 0; numbers && k < u->out->cols; k++) ((uint16_t *)to)[k] = f32_to_f16(row[k]);
    const enum reach reach = reach_of(DTYPE_F32, row, u->out->cols);
    if (reach == REACH_INFINITE)
      return fail(DELTAIC_BAD_FILE, "%s: a computed weight is not finite (NaN or infinity)",
                  r->file ? r->file : checkpoint_path(u->w->checkpoint));
    r->out->wide |= reach == REACH_WIDE;
  }
  return upload_flush(u);
}

static deltaic_status upload_computed(struct upload *u, const struct weight_request *r) {
  if (u->out->dtype == DTYPE_F32) return upload_rows(u, r, NULL);
  float *numbers = malloc(u->out->cols * sizeof *numbers);
  const deltaic_status status =
      numbers ? upload_rows(u, r, numbers) : fail_memory("a row of weights", u->out->cols * sizeof *numbers);
  free(numbers);
  return status;
}

// The parts have been uploaded.
static void upload_mixed(const struct weight_request *r) {
  const uint32_t rows = r->out->rows;
  const struct low_factors *low = r->out->low;
  *r->out = r->mixed[0];
  for (uint32_t i = 0, first = 0; first < rows; first += r->mixed[i++].rows) r->out->wide |= r->mixed[i].wide;
  r->out->rows = rows;
  r->out->mixed = r->mixed;
  r->out->low = low;
}

static deltaic_status upload_request(struct upload *u, const struct weight_request *r) {
  if (r->same) {
    *r->out = *r->same;
    return DELTAIC_OK;
  }
  if (r->mixed) {
    upload_mixed(r);
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
    uint64_t row = dtype_bytes(w->requests[i].out->dtype, w->requests[i].out->stride);
    if (row > most) most = row;
  }
  return most;
}

// ---------------------------------------------------------------- tensors of a caller's source

// Holds the tensors of request i. Of those of the one before it, it keeps what both need.
static deltaic_status hold_tensors(struct weights *w, size_t i) {
  const struct weight_request *r = &w->requests[i], *before = i ? r - 1 : NULL;
  const struct weight_part *parts = w->parts + r->first_part;
  deltaic_status status = DELTAIC_OK;
  for (int p = 0; p < r->count; p++) parts[p].source->turn = i + 1;
  for (int p = 0; before && p < before->count; p++) {
    struct file_tensor *t = w->parts[before->first_part + (uint64_t)p].source;
    if (t->turn != i + 1) file_tensor_unload(t);
  }
  for (int p = 0; p < r->count && !status; p++) status = fingerprint_load(parts[p].source);
  return status;
}

// ---------------------------------------------------------------- room on the device

struct size_text {
  char text[24];
};

static struct size_text size_text(uint64_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  struct size_text out;
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  snprintf(out.text, sizeof out.text, "%.*f %s", unit ? 1 : 0, value, units[unit]);
  return out;
}

// What all weights would take if the matrices that are larger in their own format had this one.
static uint64_t bytes_as(const struct weights *w, enum dtype dtype) {
  const enum dtype stored = w->backend->tiles ? dtype_tiled(dtype) : dtype;
  uint64_t bytes = w->arena.bytes;
  for (uint64_t i = 0; i < w->count; i++) {
    const struct weight_request *r = &w->requests[i];
    const uint64_t now = r->out->rows * dtype_bytes(r->out->dtype, r->out->stride);
    const uint64_t then = r->out->rows * dtype_bytes(stored, weight_stride(stored, r->out->cols));
    if (!r->mixed && !r->same && !r->row && r->layout == PARTS_UNDER && then < now) bytes -= now - then;
  }
  return bytes;
}

static deltaic_status check_room(const struct weights *w) {
  static const enum dtype smaller[] = {DTYPE_F16, DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q5_K, DTYPE_Q4_K};
  const struct backend *b = w->backend;
  const uint64_t all = b->info.memory_bytes, left = b->functions->free_bytes(b); // 0: not known
  const uint64_t room = left && left < all ? left : all;
  char advice[64] = "";
  if (!room || w->arena.bytes <= room) return DELTAIC_OK;
  for (size_t i = 0; i < sizeof smaller / sizeof *smaller && !advice[0]; i++)
    if (bytes_as(w, smaller[i]) <= room)
      snprintf(advice, sizeof advice, "; in %s they would take %s", dtype_name(smaller[i]),
               size_text(bytes_as(w, smaller[i])).text);
  return fail(DELTAIC_OUT_OF_MEMORY, "%s: its weights take %s, and %s has %s free of %s%s",
              checkpoint_path(w->checkpoint), size_text(w->arena.bytes).text, b->info.name, size_text(room).text,
              size_text(all).text, advice);
}

// ---------------------------------------------------------------- all of them

static deltaic_status upload_all(struct upload *u) {
  struct weights *w = u->w;
  deltaic_status status = DELTAIC_OK;
  for (uint64_t i = 0; i < w->count && !status; i++) {
    u->out = w->requests[i].out;
    u->written = 0;
    status = hold_tensors(w, i);
    if (!status) status = upload_request(u, &w->requests[i]);
  }
  if (!status) status = upload_report(u, w->arena.bytes); // the gaps between tensors count too
  return status;
}

deltaic_status weights_upload(struct weights *w, deltaic_progress progress, void *user) {
  enum { MOST_THREADS = 16 }; // more were not measured
  const uint32_t all = pool_threads_for(w->backend->threads), threads = all < MOST_THREADS ? all : MOST_THREADS;
  struct upload u = {.w = w, .progress = progress, .user = user};
  struct fingerprint fingerprint = {0};
  deltaic_status status = weights_status(w);
  if (!status && w->backend->imagined) return arena_allocate(&w->arena, w->backend, MEMORY_DEVICE, "the weights");
  if (!status) status = check_room(w);
  if (!status) status = arena_allocate(&w->arena, w->backend, MEMORY_DEVICE, "the weights");
  if (!status) status = pool_create(threads, &u.pool);
  if (!status && !(u.stage = malloc(stage_bytes(w)))) status = fail_memory("staging of the weights", stage_bytes(w));
  if (!status) status = fingerprint_begin(&fingerprint, w->checkpoint, threads);
  if (!status) status = upload_all(&u);
  if (!status) status = fingerprint_find(&fingerprint, &w->fingerprint);
  fingerprint_end(&fingerprint);
  free(u.stage);
  pool_free(u.pool);
  return status;
}
