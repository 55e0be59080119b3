// trainer_items: see trainer_items.h.
#include "trainer_items.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- memory

// Whether kernels can bind some rows of the place.
static bool fits(const struct learner_place *p) {
  return (uint64_t)(p->cols - 1) * p->gradient.col < WALK_SPAN / 2 && p->cols <= WALK_SPAN / LORA_ROWS;
}

static deltaic_status find_places(struct item *x, const struct learner *l) {
  deltaic_status status = learner_places(l, x->x.tensor, &x->places, &x->count);
  bool direct = x->count > 0;
  for (size_t i = 0; i < x->count; i++) {
    direct &= fits(&x->places[i]) || x->places[i].rows == 1;
    if (x->x.lora) direct &= x->places[i].plus == 0 && x->places[i].cols == x->x.cols;
  }
  if (status || direct) return status;
  free(x->places);
  x->passes = true;
  x->count = 1;
  x->places = calloc(1, sizeof *x->places);
  return x->places ? DELTAIC_OK : fail_memory("what is trained", sizeof *x->places);
}

static bool has_plus(const struct item *x) {
  bool any = false;
  for (size_t i = 0; i < x->count; i++) any |= x->places[i].plus != 0;
  return any;
}

static void declare(struct arena *arena, struct tensor *t, uint64_t rows, uint64_t cols, uint64_t stride) {
  arena_add(arena, t, DTYPE_F32, rows, cols, stride);
}

deltaic_status item_declare(struct item *x, struct learner *l, struct arena *arena, uint32_t rank) {
  const uint64_t n = x->x.n, rows = x->x.rows, cols = x->x.cols;
  const deltaic_status status = find_places(x, l);
  if (status) return status;
  declare(arena, &x->m, 1, n, n);
  declare(arena, &x->v, 1, n, n);
  if (x->passes) declare(arena, &x->gradient, 1, x->values_count, x->values_count);
  if (!x->x.lora) {
    if (x->passes || has_plus(x)) declare(arena, &x->p, 1, n, n);
    return arena->status;
  }
  declare(arena, &x->A, rank, cols, round_up(cols, 8)); // products read whole groups of 8
  declare(arena, &x->B, rows, rank, rank);
  declare(arena, &x->dA, rank, cols, cols);
  declare(arena, &x->dB, rows, rank, rank);
  declare(arena, &x->base, rows, cols, cols);
  if (x->passes) declare(arena, &x->weight, 1, x->values_count, x->values_count);
  return arena->status;
}

void item_free(struct item *x) {
  free(x->x.name);
  free(x->x.file);
  free(x->places);
  free(x->start);
  free(x->values);
}

// ---------------------------------------------------------------- first values

static deltaic_status take(struct learner *l, struct tensor t, const float *from, uint64_t n) {
  struct backend *b = learner_backend(l);
  return b->functions->buffer_write(b, t.buffer, t.offset, from, n * sizeof *from);
}

static deltaic_status begin_host(struct item *x, struct learner *l) {
  const uint64_t n = x->values_count;
  const struct tensor weight = x->x.lora ? x->weight : x->p;
  const uint32_t cols = (uint32_t)(x->x.lora ? x->x.cols : n), rows = (uint32_t)(n / cols);
  *x->places = (struct learner_place){0, rows, cols, grid_at(weight, 0, cols), grid_at(x->gradient, 0, cols), 0};
  x->values = malloc(n * sizeof *x->values);
  if (x->x.lora) x->start = malloc(n * sizeof *x->start);
  if (!x->values || (x->x.lora && !x->start)) return fail_memory("what is trained", n * sizeof *x->values);
  file_tensor_f32(x->x.tensor, 0, n, x->values);
  if (!x->x.lora) return DELTAIC_OK;
  memcpy(x->start, x->values, n * sizeof *x->start);
  return take(l, x->base, x->start, n);
}

static double uniform(uint64_t *state) { // splitmix64
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// A is uniform in (-1, 1) / sqrt(in), and B is 0.
static deltaic_status begin_lora(struct item *x, struct learner *l, uint64_t seed) {
  const uint64_t n = x->A.rows * x->x.cols;
  float *p = calloc(x->x.n, sizeof *p);
  if (!p) return fail_memory("what is trained", x->x.n * sizeof *p);
  for (uint64_t i = 0; i < n; i++) p[i] = (float)((2 * uniform(&seed) - 1) / sqrt((double)x->x.cols));
  const deltaic_status status = item_write(x, l, TRAINED_P, p);
  free(p);
  return status;
}

struct keep {
  struct walk *w;
  struct tensor base;
  uint32_t first;
};

static void keep_part(void *user, uint32_t row, const struct learner_place *part) {
  const struct keep *k = user;
  const struct walk_grid to = grid_at(k->base, (uint64_t)(k->first + row) * part->cols, part->cols);
  k->w->functions->blend(k->w, &(struct walk_blend){part->rows, part->cols, to, part->weight, {0}, 0, 0});
}

static deltaic_status keep_base(struct item *x, struct learner *l) {
  struct keep k = {learner_begin(l), x->base, 0};
  for (uint32_t n; k.first < x->x.rows; k.first += n) {
    n = item_piece(x, k.first);
    item_places(x, k.first, n, keep_part, &k);
  }
  return learner_end(l);
}

static deltaic_status begin_own(struct item *x, struct learner *l) {
  float *p = malloc(x->x.n * sizeof *p);
  if (!p) return fail_memory("what is trained", x->x.n * sizeof *p);
  file_tensor_f32(x->x.tensor, 0, x->x.n, p);
  const deltaic_status status = take(l, x->p, p, x->x.n);
  free(p);
  return status;
}

deltaic_status item_begin(struct item *x, struct learner *l, uint64_t seed) {
  deltaic_status status = x->passes ? begin_host(x, l) : DELTAIC_OK;
  if (!status && x->x.lora && !x->passes) status = keep_base(x, l);
  if (!status && x->x.lora) status = begin_lora(x, l, seed);
  return status || !x->p.buffer ? status : begin_own(x, l);
}

// ---------------------------------------------------------------- strips

static struct walk_grid part_from(struct walk_grid g, uint32_t row, uint32_t col) {
  g.at += (uint64_t)row * g.row + (uint64_t)col * g.col;
  return g;
}

// Rows row ... row + rows - 1 of a strip, or, if that is one, cols columns of it from col on.
static struct strip piece_of(const struct strip *s, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols) {
  return (struct strip){.first = s->first + (uint64_t)row * s->cols + col,
                        .rows = rows,
                        .cols = cols,
                        .p = part_from(s->p, row, col),
                        .g = part_from(s->g, row, col),
                        .m = part_from(s->m, row, col),
                        .v = part_from(s->v, row, col)};
}

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// Passes on a strip in pieces of at most WALK_SPAN: some rows, or a part of a row.
static void cut(const struct strip *s, strip_use use, void *user) {
  const uint32_t step = larger(s->cols, larger(s->p.row, s->g.row));
  const uint32_t wide = larger(WALK_SPAN / 2 / larger(s->p.col, s->g.col), 1);
  const uint32_t most = s->cols <= wide ? larger(WALK_SPAN / 2 / step, 1) : 1;
  for (uint32_t row = 0, rows; row < s->rows; row += rows) {
    rows = s->rows - row < most ? s->rows - row : most;
    for (uint32_t col = 0, cols; col < s->cols; col += cols) {
      cols = s->cols - col < wide ? s->cols - col : wide;
      const struct strip piece = piece_of(s, row, rows, col, cols);
      use(user, &piece);
    }
  }
}

void item_strips(const struct item *x, strip_use use, void *user) {
  const uint32_t rows = (uint32_t)x->x.rows, cols = (uint32_t)x->x.cols, rank = x->A.rows;
  for (size_t i = 0; i < x->count && !x->x.lora; i++) {
    const struct learner_place *p = &x->places[i];
    const struct walk_grid own = grid_at(x->p, p->first, p->cols);
    cut(&(struct strip){p->first, p->rows, p->cols, x->p.buffer ? own : p->weight, p->gradient,
                        grid_at(x->m, p->first, p->cols), grid_at(x->v, p->first, p->cols)},
        use, user);
  }
  if (!x->x.lora) return;
  const uint64_t after = (uint64_t)rank * cols;
  cut(&(struct strip){0, rank, cols, grid_at(x->A, 0, x->A.stride), grid_at(x->dA, 0, cols), grid_at(x->m, 0, cols),
                      grid_at(x->v, 0, cols)},
      use, user);
  cut(&(struct strip){after, rows, rank, grid_at(x->B, 0, rank), grid_at(x->dB, 0, rank), grid_at(x->m, after, rank),
                      grid_at(x->v, after, rank)},
      use, user);
}

// ---------------------------------------------------------------- rows of a matrix

uint32_t item_piece(const struct item *x, uint64_t first) {
  const uint64_t fit = WALK_SPAN / x->x.cols / LORA_ROWS * LORA_ROWS, left = x->x.rows - first;
  const uint64_t most = fit ? fit : LORA_ROWS; // walk_tensor() refuses rows that are too long for a device
  return (uint32_t)(left < most ? left : most);
}

void item_places(const struct item *x, uint64_t first, uint32_t n, place_use use, void *user) {
  for (size_t i = 0; i < x->count; i++) {
    struct learner_place part = x->places[i];
    const uint64_t begin = part.first / part.cols, end = begin + part.rows;
    const uint64_t from = begin > first ? begin : first, to = end < first + n ? end : first + n;
    if (from >= to) continue;
    part.rows = (uint32_t)(to - from);
    part.weight = part_from(part.weight, (uint32_t)(from - begin), 0);
    part.gradient = part_from(part.gradient, (uint32_t)(from - begin), 0);
    use(user, (uint32_t)(from - first), &part);
  }
}

// ---------------------------------------------------------------- to the host and back

struct transfer {
  struct learner *l;
  float *host;
  bool write;
  deltaic_status status;
};

static deltaic_status move(struct learner *l, struct buffer *b, uint64_t offset, float *host, uint64_t n, bool write) {
  struct backend *on = learner_backend(l);
  if (write) return on->functions->buffer_write(on, b, offset, host, n * sizeof *host);
  return on->functions->buffer_read(on, b, offset, host, n * sizeof *host);
}

// Numbers that do not lie together pass through the walk's memory.
static deltaic_status move_scattered(struct transfer *t, const struct strip *s, float *host) {
  struct walk *w = learner_begin(t->l);
  const struct tensor room = walk_tensor(w, s->rows, s->cols, s->cols);
  const uint64_t n = (uint64_t)s->rows * s->cols;
  struct walk_blend b = {s->rows, s->cols, s->p, {0}, {0}, 0, 0};
  if (!w->status && t->write) w->status = move(t->l, room.buffer, 0, host, n, true);
  if (!w->status) {
    b.x = grid_at(room, 0, s->cols);
    if (!t->write) {
      b.x = s->p;
      b.to = grid_at(room, 0, s->cols);
    }
    w->functions->blend(w, &b);
  }
  const deltaic_status status = learner_end(t->l);
  return status || t->write ? status : move(t->l, room.buffer, 0, host, n, false);
}

static void move_strip(void *user, const struct strip *s) {
  struct transfer *t = user;
  const bool together = s->p.col == 1 && (s->p.row == s->cols || s->rows == 1);
  const uint64_t n = (uint64_t)s->rows * s->cols;
  if (t->status) return;
  t->status = together ? move(t->l, s->p.buffer, s->p.at * sizeof(float), t->host + s->first, n, t->write)
                       : move_scattered(t, s, t->host + s->first);
}

static deltaic_status item_move(const struct item *x, struct learner *l, enum trained_array which, float *host,
                                bool write) {
  struct transfer t = {l, host, write, DELTAIC_OK};
  const struct tensor from = which == TRAINED_M ? x->m : x->v;
  if (which != TRAINED_P) return move(l, from.buffer, from.offset, host, x->x.n, write);
  item_strips(x, move_strip, &t);
  return t.status;
}

deltaic_status item_read(const struct item *x, struct learner *l, enum trained_array which, float *out) {
  return item_move(x, l, which, out, false);
}

deltaic_status item_write(const struct item *x, struct learner *l, enum trained_array which, const float *in) {
  return item_move(x, l, which, (float *)in, true);
}
