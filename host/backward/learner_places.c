// learner_places: see learner_places.h.
#include "learner_places.h"

#include "learner_inside.h"

#include <stdlib.h>

struct places {
  const struct file_tensor *t;
  struct learner_place *items;
  size_t count, capacity;
  bool other; // the tensor is elsewhere too, but not as it is
  deltaic_status status;
};

static struct walk_grid grid_of(struct tensor t, uint64_t at, uint32_t row, uint32_t col) {
  return (struct walk_grid){t.buffer, t.offset / sizeof(float) + at, row, col};
}

static void add(struct places *p, struct learner_place place) {
  if (p->count == p->capacity) {
    const size_t capacity = 2 * p->capacity + 4;
    struct learner_place *grown = realloc(p->items, capacity * sizeof *grown);
    if (!grown) p->status = fail_memory("a tensor's places", capacity * sizeof *grown);
    if (!grown) return;
    p->items = grown;
    p->capacity = capacity;
  }
  p->items[p->count++] = place;
}

// Rows i ... i + n - 1 of a part, which begins at row, or column, `at`.
static struct learner_place place_of(const struct weight_request *r, const struct weight_part *part, struct tensor g,
                                     uint32_t at, uint32_t i, uint32_t n) {
  const struct tensor w = *r->out;
  const uint64_t row = weight_part_row(part, i);
  at += i;
  if (r->layout == PARTS_ALONG)
    return (struct learner_place){row, 1, n, grid_of(w, at, n, 1), grid_of(g, at, n, 1), part->plus};
  if (r->layout == PARTS_TRANSPOSED)
    return (struct learner_place){row * w.rows, n, w.rows, grid_of(w, at, 1, w.stride), grid_of(g, at, 1, g.stride), 0};
  const struct walk_grid weight = grid_of(w, (uint64_t)at * w.stride, w.stride, 1);
  const struct walk_grid gradient = grid_of(g, (uint64_t)at * g.stride, g.stride, 1);
  return (struct learner_place){row * w.cols, n, w.cols, weight, gradient, part->plus};
}

// Adds the part's rows, as many at once as follow each other in the tensor.
static void add_part(struct places *p, const struct weight_request *r, const struct weight_part *part, struct tensor g,
                     uint32_t at) {
  p->other |= part->minus_exp;
  for (uint32_t i = 0, n; i < part->rows && !p->status; i += n) {
    const uint64_t first = weight_part_row(part, i);
    for (n = 1; i + n < part->rows && weight_part_row(part, i + n) == first + n;) n++;
    add(p, place_of(r, part, g, at, i, n));
  }
}

static void see_part(void *user, const struct weight_part *part, uint32_t cols, const float *d) {
  struct places *p = user;
  (void)cols, (void)d;
  p->other |= part->source == p->t;
}

// Whether the request's computed rows depend on the tensor.
static void see_rows(struct places *p, const struct weight_request *r) {
  float *zeros = calloc(r->out->cols, sizeof *zeros);
  if (!zeros) p->status = fail_memory("a tensor's places", r->out->cols * sizeof *zeros);
  if (zeros) r->back(r->context.bytes, r->out->cols, zeros, see_part, p);
  free(zeros);
}

static void add_request(struct places *p, const struct learner *l, size_t index) {
  const struct weight_request *r = &l->model.weights.requests[index];
  const struct tensor g = l->weights[index].gradient;
  uint32_t at = 0;
  if (r->mixed || r->same) return;
  if (r->back) see_rows(p, r);
  for (int i = 0; i < r->count && !p->status; i++) {
    const struct weight_part *part = &l->model.weights.parts[r->first_part + (uint64_t)i];
    if (part->source == p->t && g.buffer) add_part(p, r, part, g, at);
    p->other |= part->source == p->t && !g.buffer;
    at += part->rows + part->zeros;
  }
}

static int by_first(const void *a, const void *b) {
  const struct learner_place *x = a, *y = b;
  return x->first < y->first ? -1 : x->first > y->first;
}

static bool have_all(const struct places *p) {
  uint64_t n = 1, end = 0;
  for (int i = 0; i < p->t->rank; i++) n *= p->t->shape[i];
  for (size_t i = 0; i < p->count; i++) {
    if (p->items[i].first != end) return false;
    end += (uint64_t)p->items[i].rows * p->items[i].cols;
  }
  return end == n && !p->other;
}

deltaic_status learner_places(const struct learner *l, const struct file_tensor *t, struct learner_place **places,
                              size_t *count) {
  struct places p = {.t = t};
  for (size_t i = 0; i < l->model.weights.count && !p.status; i++) add_request(&p, l, i);
  if (p.count) qsort(p.items, p.count, sizeof *p.items, by_first);
  const bool all = !p.status && have_all(&p);
  *places = all ? p.items : NULL;
  *count = all ? p.count : 0;
  if (!all) free(p.items);
  return p.status;
}

struct backend *learner_backend(const struct learner *l) {
  return l->backend;
}

// An empty list tells kernels to compute in f32.
struct walk *learner_begin(struct learner *l) {
  l->list.keep = l->list.plain = true;
  l->list.matrices = MATRICES_NONE;
  oplist_begin(&l->list);
  walk_begin(&l->walk);
  l->walk.status = l->list.status;
  l->recorder->functions->recorder_begin(l->recorder, false, NULL);
  l->recorder->functions->recorder_list(l->recorder, &l->list);
  return &l->walk;
}

deltaic_status learner_end(struct learner *l) {
  const deltaic_status status = l->walk.status;
  if (!status) return l->recorder->functions->recorder_run(l->recorder);
  l->recorder->functions->recorder_begin(l->recorder, false, NULL); // waits for what runs
  return status;
}
