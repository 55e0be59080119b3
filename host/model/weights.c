// weights: finds, checks, declares and measures a model's tensors. weights_upload.c fills them.
#include "weights.h"

#include "list.h"
#include "low_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static deltaic_status keep(struct weights *w, deltaic_status status) {
  if (w->status == DELTAIC_OK) w->status = status;
  return w->status;
}

deltaic_status weights_status(const struct weights *w) { return w->status != DELTAIC_OK ? w->status : w->arena.status; }

// ---------------------------------------------------------------- finding

// Biases of convolutions are in the families' tables, but only some checkpoints have them, and new models do not.
static bool is_conv_bias(enum role role) {
  return role == ROLE_Q_CONV_BIAS || role == ROLE_K_CONV_BIAS || role == ROLE_V_CONV_BIAS;
}

bool weights_has(const struct weights *w, uint32_t layer, enum role role) {
  const struct names *names = layer_names(w->model, layer);
  if (w->made) return names_usual(names, role) && !is_conv_bias(role);
  return names_find(names, w->checkpoint, layer, role).tensor != NULL;
}

static struct weight_part ask(struct weights *w, uint32_t layer, enum role role, uint32_t rows, uint32_t cols) {
  const struct names *names = layer_names(w->model, layer);
  const struct tensor_name *usual = names_usual(names, role);
  const struct layer_spec *l = &w->model->layers[layer];
  assert(usual);
  struct new_tensor t = {.layer = layer, .role = role, .cols = cols, .plus = usual->plus};
  t.rows = usual->rows ? usual->rows->count(l) : rows;
  names_write(names, layer, role, t.name, sizeof t.name);
  w->made->ask(w->made->user, &t);
  return (struct weight_part){.source = &w->made->source, .rows = rows, .map = usual->rows, .layer = l};
}

static void shape_text(const struct file_tensor *t, char *text, size_t capacity) {
  size_t n = 0;
  for (int i = 0; i < t->rank && n < capacity; i++)
    n += (size_t)snprintf(text + n, capacity - n, "%s%llu", i ? ", " : "", (unsigned long long)t->shape[i]);
}

// Gives the part what an adapter has for it: a tensor that replaces its source, a pair. item: of a role that is a list;
// else -1.
static void adapt(struct weights *w, uint32_t layer, enum role role, int64_t item, const struct named_tensor *base,
                  uint32_t cols, struct weight_part *part) {
  struct named_tensor whole;
  const struct adapter_ask ask = {.base = base,
                                  .names = layer_names(w->model, layer),
                                  .spec = part->layer,
                                  .layer = layer,
                                  .role = role,
                                  .item = item,
                                  .rows = part->rows,
                                  .cols = cols};
  if (!w->adapter || keep(w, adapter_find(w->adapter, &ask, &whole, &part->pair))) return;
  if (!whole.tensor) return;
  part->source = whole.tensor;
  part->map = whole.rows;
  part->order = whole.row_order;
  part->plus = whole.plus;
  part->minus_exp = whole.minus_exp;
}

static struct weight_part part_of(struct weights *w, uint32_t layer, enum role role, int64_t item,
                                  struct named_tensor found, uint32_t rows, uint32_t cols) {
  const struct weight_part none = {0};
  const char *path = checkpoint_path(w->checkpoint);
  struct file_tensor *t = found.tensor;
  if (w->status != DELTAIC_OK) return none;
  if (!t) {
    char name[96];
    names_write(layer_names(w->model, layer), layer, role, name, sizeof name);
    keep(w, fail(DELTAIC_BAD_FILE, "%s: tensor %s is missing", path, name));
    return none;
  }
  t->used = true;
  const struct layer_spec *l = &w->model->layers[layer];
  const uint64_t all = found.rows ? found.rows->count(l) : rows;
  if (!file_tensor_is(t, all, cols)) {
    char shape[160] = "", want[64];
    shape_text(t, shape, sizeof shape);
    snprintf(want, sizeof want, cols ? "%llu, %u" : "%llu", (unsigned long long)all, cols);
    keep(w, fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has shape [%s], expected [%s]", path, t->name, shape, want));
    return none;
  }
  if (t->dtype > FILE_BLOCKS_LAST) {
    keep(w, fail(DELTAIC_UNSUPPORTED, "%s: tensor %s has dtype %.40s, which is not supported for weights", path,
                 t->name, t->dtype_name));
    return none;
  }
  struct weight_part part = {
      .source = t, .rows = rows, .map = found.rows, .layer = l, .plus = found.plus, .minus_exp = found.minus_exp};
  adapt(w, layer, role, item, &found, cols, &part);
  return part;
}

struct weight_part weights_part(struct weights *w, uint32_t layer, enum role role, uint32_t rows, uint32_t cols) {
  if (w->made) return ask(w, layer, role, rows, cols);
  return part_of(w, layer, role, -1, names_find(layer_names(w->model, layer), w->checkpoint, layer, role), rows, cols);
}

bool weights_lists(const struct weights *w, uint32_t layer, enum role role) {
  return names_item(layer_names(w->model, layer), w->checkpoint, layer, role, 0).tensor != NULL;
}

struct weight_part weights_item(struct weights *w, uint32_t layer, enum role role, uint32_t m, uint32_t rows,
                                uint32_t cols) {
  return part_of(w, layer, role, m, names_item(layer_names(w->model, layer), w->checkpoint, layer, role, m), rows,
                 cols);
}

int weights_list(struct weights *w, uint32_t layer, enum role role, uint32_t items, uint32_t rows, uint32_t cols,
                 struct weight_part *parts) {
  if (!weights_lists(w, layer, role)) {
    parts[0] = weights_part(w, layer, role, items * rows, cols);
    return 1;
  }
  for (uint32_t m = 0; m < items; m++) parts[m] = weights_item(w, layer, role, m, rows, cols);
  return (int)items;
}

void weight_part_read(const struct weight_part *p, uint32_t first, uint32_t rows, uint32_t cols, float *out) {
  if (file_tensor_load(p->source)) {
    memset(out, 0, (uint64_t)rows * cols * sizeof *out);
    return;
  }
  for (uint32_t i = 0; i < rows; i++)
    file_tensor_f32(p->source, weight_part_row(p, first + i) * cols, cols, out + (uint64_t)i * cols);
  for (uint64_t i = 0; p->plus && i < (uint64_t)rows * cols; i++) out[i] += p->plus;
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

// Declares out (rows, cols) of `count` parts as one tensor of this format, of which backends may want tiles.
static void add_matrix(struct weights *w, struct tensor *out, enum dtype dtype, uint32_t cols,
                       const struct weight_part *parts, int count) {
  struct weight_request *r = request_add(w, out);
  uint64_t rows = 0;
  if (w->backend && w->backend->tiles) dtype = dtype_tiled(dtype);
  for (int i = 0; r && i < count; i++) {
    part_add(w, r, &parts[i]);
    rows += parts[i].rows + parts[i].zeros;
  }
  if (r) arena_add(&w->arena, out, dtype, rows, cols, weight_stride(dtype, cols));
}

// The number of parts from the first on that have the same format.
static int same_format(const struct weight_part *parts, int count) {
  int n = 1;
  while (n < count && parts[n].source->dtype == parts[0].source->dtype) n++;
  return n;
}

static void add_mixed(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                      int count) {
  if (keep(w, list_room(&w->mixed, w->mixed_count, &w->mixed_capacity, sizeof *w->mixed, "the list of weights")))
    return;
  struct tensor *mixed = w->mixed[w->mixed_count] = calloc((size_t)count, sizeof *mixed);
  if (!mixed) {
    keep(w, fail_memory("the list of weights", (uint64_t)count * sizeof *mixed));
    return;
  }
  w->mixed_count++;
  uint32_t rows = 0;
  for (int i = 0, n; i < count && w->status == DELTAIC_OK; i += n) {
    n = same_format(parts + i, count - i);
    add_matrix(w, mixed, file_dtype_kept(parts[i].source->dtype), cols, parts + i, n);
    rows += mixed++->rows;
  }
  struct weight_request *r = w->status == DELTAIC_OK ? request_add(w, out) : NULL;
  if (!r) return;
  r->mixed = w->mixed[w->mixed_count - 1];
  *out = *r->mixed;
  out->rows = rows;
  out->mixed = r->mixed;
}

// The parts that are there, with the rows of zeros that their alignment adds; the caller frees them.
static struct weight_part *present_parts(struct weights *w, uint32_t cols, const struct weight_part *parts,
                                         int *count) {
  struct weight_part *found = calloc((size_t)*count + 1, sizeof *found);
  uint64_t rows = 0;
  int n = 0;
  if (!found) keep(w, fail_memory("the list of weights", (uint64_t)*count * sizeof *found));
  for (int i = 0; found && i < *count; i++) {
    if (!parts[i].source) continue;
    struct weight_part *p = &found[n++];
    *p = parts[i];
    rows += p->rows;
    p->zeros = p->align ? (uint32_t)(round_up(rows, p->align) - rows) : 0;
    rows += p->zeros;
    w->parameters += (uint64_t)p->rows * cols;
  }
  *count = n;
  return found;
}

// Finds an earlier request with the same function and context, such as the rotation table of all attention layers.
static const struct weight_request *find_equal(const struct weights *w, enum dtype dtype, uint32_t rows, uint32_t cols,
                                               weight_row row, const void *context, uint64_t bytes) {
  for (uint64_t i = 0; i < w->count; i++) {
    const struct weight_request *r = &w->requests[i];
    if (r->row == row && !r->same && r->out->dtype == dtype && r->out->rows == rows && r->out->cols == cols &&
        !memcmp(r->context.bytes, context, bytes))
      return r;
  }
  return NULL;
}

static void add_rows(struct weights *w, struct tensor *out, enum dtype dtype, uint32_t rows, uint32_t cols,
                     uint64_t stride, weight_row row, const void *context, uint64_t bytes) {
  if (w->status != DELTAIC_OK) return;
  assert(bytes <= WEIGHT_CONTEXT);
  struct weight_request *r = request_add(w, out);
  if (!r) return;
  const struct weight_request *equal = find_equal(w, dtype, rows, cols, row, context, bytes);
  r->row = row;
  if (equal) {
    *out = *equal->out;
    r->same = equal->out;
    return;
  }
  memcpy(r->context.bytes, context, bytes);
  arena_add(&w->arena, out, dtype, rows, cols, stride);
}

// Declares A (R, cols) or B (rows, R) of an adapter in this file.
static void add_factor(struct weights *w, struct tensor *out, enum dtype dtype, uint32_t rows, uint32_t cols,
                       weight_row row, const struct low_rank *low, const char *file) {
  add_rows(w, out, dtype, rows, cols, weight_stride(dtype, cols), row, &low, sizeof low);
  if (w->status == DELTAIC_OK) w->requests[w->count - 1].file = file;
}

// Declares what adapters add to the matrix of these parts, which are all there.
static void add_low_rank(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                         int count) {
  const struct file_tensor *any = NULL;
  struct low_rank *low;
  for (int i = 0; i < count && !any; i++) any = parts[i].pair.A;
  if (!any || keep(w, list_room(&w->low, w->low_count, &w->low_capacity, sizeof *w->low, "the list of weights")))
    return;
  const uint64_t ranks = low_rank_create(parts, count, &low);
  if (!low) keep(w, fail_memory("the list of weights", 0));
  if (low) w->low[w->low_count++] = low;
  if (ranks > INT32_MAX)
    keep(w, fail(DELTAIC_UNSUPPORTED, "%s: adapters of rank %llu are more than supported",
                 checkpoint_path(w->checkpoint), (unsigned long long)ranks));
  if (w->status != DELTAIC_OK) return;
  struct low_factors *f = low_rank_factors(low);
  const uint32_t R = (uint32_t)ranks, rows = out->rows;
  const char *file = any->input->name;
  add_factor(w, &f->A, DTYPE_F32, R, cols, low_rank_row_A, low, file);
  add_factor(w, &f->B, DTYPE_F32, rows, R, low_rank_row_B, low, file);
  out->low = f;
  if (parts->pair.swapped) add_factor(w, &f->A_turned, DTYPE_F32, cols, R, low_rank_row_A_turned, low, file);
  if (!w->backend || !w->backend->rounds || (parts->pair.swapped && !w->model->tied)) return;
  add_factor(w, &f->A_half, DTYPE_F16, R, cols, low_rank_row_A, low, file);
  add_factor(w, &f->B_half, DTYPE_F16, rows, R, low_rank_row_B, low, file);
}

static void add_parts(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts, int count,
                      bool f32) {
  if (w->status != DELTAIC_OK) return;
  struct weight_part *found = present_parts(w, cols, parts, &count);
  bool blocks = false;
  for (int i = 0; i < count; i++) blocks |= file_dtype_is_blocks(found[i].source->dtype);
  const bool same = count && same_format(found, count) == count;
  f32 |= w->f32;
  if (w->status == DELTAIC_OK && blocks && !same && !f32)
    add_mixed(w, out, cols, found, count);
  else if (w->status == DELTAIC_OK)
    add_matrix(w, out, same && !f32 ? file_dtype_kept(found[0].source->dtype) : DTYPE_F32, cols, found, count);
  if (w->status == DELTAIC_OK) add_low_rank(w, out, cols, found, count);
  free(found);
}

void weights_matrix(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts, int count) {
  add_parts(w, out, cols, parts, count, false);
}

void weights_matrix_f32(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                        int count) {
  add_parts(w, out, cols, parts, count, true);
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

void weights_bind_matrix(struct weights *w, struct tensor *out, uint32_t layer, enum role role, uint32_t rows,
                         uint32_t cols) {
  const struct weight_part part = weights_part(w, layer, role, rows, cols);
  weights_matrix(w, out, cols, &part, 1);
}

void weights_bind_vector(struct weights *w, struct tensor *out, uint32_t layer, enum role role, uint32_t n) {
  const struct weight_part part = weights_part(w, layer, role, n, 0);
  weights_vector(w, out, &part, 1);
}

void weights_transposed(struct weights *w, struct tensor *out, uint32_t cols, const struct weight_part *parts,
                        int count) {
  if (w->status != DELTAIC_OK) return;
  struct weight_request *r = request_add(w, out);
  if (!r) return;
  r->layout = PARTS_TRANSPOSED;
  uint64_t rows = 0;
  for (int i = 0; i < count; i++) {
    const struct weight_part *p = &parts[i];
    const uint64_t stored = p->map ? p->map->count(p->layer) : p->rows; // fewer if rows are used several times
    part_add(w, r, p);
    rows += p->rows;
    w->parameters += (stored < p->rows ? stored : p->rows) * cols;
  }
  arena_add(&w->arena, out, DTYPE_F32, cols, rows, rows);
}

void weights_rows(struct weights *w, struct tensor *out, uint32_t rows, uint32_t cols, weight_row row,
                  const void *context, uint64_t bytes) {
  add_rows(w, out, DTYPE_F32, rows, cols, cols, row, context, bytes);
}

void weights_rows_back(struct weights *w, weight_back back) {
  if (w->status == DELTAIC_OK) w->requests[w->count - 1].back = back;
}

void weights_bytes(const struct weights *w, uint64_t bytes[DTYPE_I32]) {
  memset(bytes, 0, DTYPE_I32 * sizeof *bytes);
  for (size_t i = 0; i < w->count; i++) {
    const struct tensor *t = w->requests[i].out;
    if (!w->requests[i].mixed && !w->requests[i].same)
      bytes[t->dtype] += dtype_bytes(t->dtype, (uint64_t)t->rows * t->stride);
  }
}

void weights_free(struct weights *w) {
  if (w->backend) arena_free(&w->arena, w->backend);
  free(w->arena.entries);
  free(w->requests);
  free(w->parts);
  for (size_t i = 0; i < w->mixed_count; i++) free(w->mixed[i]);
  free(w->mixed);
  for (size_t i = 0; i < w->low_count; i++) free(w->low[i]);
  free(w->low);
  memset(w, 0, sizeof *w);
}
