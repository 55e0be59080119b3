// quant_write: see quant_write.h. The rows of a tensor are read, brought into the file's order and form, and encoded by
// all threads, some megabytes at a time.
#include "quant_write.h"

#include "format_encode.h"
#include "pool.h"
#include "quant_keys.h"
#include "quant_qwen.h"

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 22, TASK = 1 << 14 }; // elements at a time, and of a thread

struct writing {
  const struct quant *q;
  struct gguf_writer file;
  struct pool *pool;
  deltaic_progress progress;
  void *user;
};

// Rows of a tensor that are encoded together.
struct encoding {
  const struct quant *q;
  const struct quant_tensor *t;
  const struct quant_row *sources; // NULL: the rows are those of t->source
  uint64_t columns, row_bytes;
  uint64_t first, rows, each; // each: rows of a task
  char *out;
  float *scratch; // of every thread, two rows
  atomic_bool not_finite, too_large;
};

static void read_row(const struct encoding *e, uint64_t row, float *x) {
  if (!e->sources) {
    file_tensor_f32(e->t->source, row * e->columns, e->columns, x);
    return;
  }
  const uint64_t pieces = e->t->rank == 1 ? e->columns : 1, n = e->columns / pieces;
  for (uint64_t i = 0; i < pieces; i++) {
    const struct quant_row *from = &e->sources[row * pieces + i];
    file_tensor_f32(from->tensor, from->row * n, n, x + i * n);
  }
}

static float largest_of(enum dtype dtype) {
  return dtype == DTYPE_F32 ? FLT_MAX : dtype == DTYPE_BF16 ? bf16_to_f32(0x7f7f) : ENCODE_MOST;
}

// The row in the file's form. `other` has room for a row.
static const float *form_row(struct encoding *e, uint64_t row, float *x, float *other) {
  const struct quant_tensor *t = e->t;
  const float most = largest_of(t->dtype);
  read_row(e, row, x);
  const struct layer_spec *l = &e->q->spec.layers[t->layer];
  for (uint64_t i = 0; t->column_order && i < e->columns; i++) other[i] = x[t->column_order->at(l, (uint32_t)i)];
  float *to = t->column_order ? other : x;
  for (uint64_t i = 0; t->plus && i < e->columns; i++) to[i] += t->plus;
  for (uint64_t i = 0; t->minus_exp && i < e->columns; i++) to[i] = -expf(to[i]);
  for (uint64_t i = 0; i < e->columns; i++) {
    if (fabsf(to[i]) <= most) continue;
    atomic_store(isfinite(to[i]) ? &e->too_large : &e->not_finite, true);
    to[i] = 0;
  }
  return to;
}

static void encode_task(void *context, uint64_t index, uint32_t worker) {
  struct encoding *e = context;
  float *x = e->scratch + 2 * worker * e->columns;
  const uint64_t begin = index * e->each, end = begin + e->each < e->rows ? begin + e->each : e->rows;
  for (uint64_t i = begin; i < end; i++)
    dtype_encode(e->t->dtype, form_row(e, e->first + i, x, x + e->columns), e->columns, e->out + i * e->row_bytes);
}

static deltaic_status append(struct writing *w, const void *data, uint64_t bytes) {
  gguf_append(&w->file, data, bytes);
  if (!w->file.status && w->progress && !w->progress(w->user, w->file.written, w->file.bytes))
    w->file.status = fail(DELTAIC_CANCELLED, "writing was stopped");
  return w->file.status;
}

static deltaic_status fail_number(const struct encoding *e) {
  const struct quant_tensor *t = e->t;
  if (atomic_load(&e->not_finite))
    return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s has a value that is not finite (NaN or infinity)", e->q->path,
                t->source ? t->source->name : t->name);
  return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has a value above %g, which %s cannot store; bf16 and f32 can",
              e->q->path, t->source ? t->source->name : t->name, (double)largest_of(t->dtype), dtype_name(t->dtype));
}

static deltaic_status encode(struct writing *w, struct encoding *e) {
  const uint64_t rows = quant_rows(e->t), at_once = e->rows;
  for (e->first = 0; e->first < rows; e->first += e->rows) {
    e->rows = rows - e->first < at_once ? rows - e->first : at_once;
    pool_run(w->pool, (e->rows + e->each - 1) / e->each, encode_task, e);
    if (atomic_load(&e->not_finite) || atomic_load(&e->too_large)) return fail_number(e);
    deltaic_status status = append(w, e->out, e->rows * e->row_bytes);
    if (status) return status;
  }
  return DELTAIC_OK;
}

// Bytes that need no change.
static deltaic_status copy(struct writing *w, const struct quant_tensor *t) {
  const enum dtype dtype = file_dtype_kept(t->source->dtype);
  const char *data = t->source->data;
  deltaic_status status = DELTAIC_OK;
  for (uint64_t at = 0, n; at < t->source->bytes && !status; at += n) {
    n = (uint64_t)formats[dtype].bytes << 16;
    if (n > t->source->bytes - at) n = t->source->bytes - at;
    if (!t->raw && !isfinite(dtype_blocks_bound(dtype, data + at, n / formats[dtype].bytes)))
      return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s has a value that is not finite (NaN or infinity)", w->q->path,
                  t->source->name);
    status = append(w, data + at, n);
  }
  return status;
}

static bool is_copied(const struct quant_tensor *t) {
  return t->raw || (t->source && file_dtype_is_blocks(t->source->dtype) &&
                    file_dtype_kept(t->source->dtype) == t->dtype && !t->plus && !t->minus_exp && !t->column_order);
}

// Reads the tensors that an adapter changes; all others are in memory. sources: `rows` of them, or NULL.
static deltaic_status load(const struct quant_tensor *t, const struct quant_row *sources, uint64_t rows) {
  deltaic_status status = t->source ? file_tensor_load(t->source) : DELTAIC_OK;
  for (uint64_t i = 0; i < rows && sources && !status; i++) status = file_tensor_load(sources[i].tensor);
  return status;
}

static void unload(const struct quant_tensor *t, const struct quant_row *sources, uint64_t rows) {
  if (t->source) file_tensor_unload(t->source);
  for (uint64_t i = 0; i < rows && sources; i++)
    if (sources[i].tensor) file_tensor_unload(sources[i].tensor);
}

static deltaic_status write_tensor(struct writing *w, const struct quant_tensor *t) {
  if (is_copied(t)) return copy(w, t);
  const uint64_t columns = quant_columns(t), rows = quant_rows(t), threads = pool_threads(w->pool);
  struct encoding e = {.q = w->q, .t = t, .columns = columns, .row_bytes = dtype_bytes(t->dtype, columns)};
  e.rows = columns < CHUNK ? CHUNK / columns : 1;
  if (e.rows > rows) e.rows = rows;
  e.each = columns < TASK ? TASK / columns : 1;
  const uint64_t source_rows = t->rank == 1 ? columns : rows;
  struct quant_row *sources = t->source ? NULL : calloc(source_rows, sizeof *sources);
  e.out = malloc(e.rows * e.row_bytes);
  e.scratch = malloc(2 * threads * columns * sizeof *e.scratch);
  deltaic_status status = DELTAIC_OK;
  if (!e.out || !e.scratch || (!t->source && !sources))
    status = fail_memory("the rows of a tensor", e.rows * e.row_bytes + 2 * threads * columns * sizeof *e.scratch);
  if (!status && sources) status = quant_find_rows(w->q, t, sources);
  e.sources = sources;
  if (!status) status = load(t, sources, source_rows);
  if (!status) status = encode(w, &e);
  unload(t, sources, source_rows);
  free(sources);
  free(e.out);
  free(e.scratch);
  return status;
}

deltaic_status quant_write(const struct quant *q, const char *out, uint32_t threads, deltaic_progress progress,
                           void *user) {
  struct writing w = {.q = q, .progress = progress, .user = user};
  deltaic_status status = pool_create(threads, &w.pool);
  if (status) return status;
  gguf_writer_begin(&w.file, out);
  if (!w.file.status) w.file.status = quant_write_keys(q, &w.file);
  for (size_t i = 0; i < q->count; i++) {
    const struct quant_tensor *t = &q->tensors[i];
    gguf_declare(&w.file, t->name, t->rank, t->shape, quant_tensor_type(t), quant_tensor_bytes(t));
  }
  gguf_write_header(&w.file);
  for (size_t i = 0; i < q->count && !w.file.status; i++) {
    w.file.status = write_tensor(&w, &q->tensors[i]);
    gguf_tensor_end(&w.file);
  }
  pool_free(w.pool);
  return gguf_writer_end(&w.file);
}
