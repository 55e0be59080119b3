// walk: memory and gradients of a walk in reverse.
#include "backward.h"

void walk_free(struct walk *w) {
  for (uint32_t i = 0; w->c && i < WALK_ROOMS; i++) w->c->functions->buffer_free(w->c->backend, &w->rooms[i]);
}

// What is recorded so far may use the room that grows, so it runs first.
static void grow(struct walk *w, struct buffer *room, uint64_t bytes) {
  const struct backend_functions *f = w->c->functions;
  if (room->bytes) {
    w->status = f->recorder_run(w->c);
    f->recorder_begin(w->c, false, NULL);
  }
  f->buffer_free(w->c->backend, room);
  if (!w->status) w->status = f->buffer_create(w->c->backend, MEMORY_DEVICE, bytes, "a backward pass", room);
}

// Rooms keep their memory, so that equal layers allocate once.
struct buffer *walk_room(struct walk *w, uint64_t floats) {
  if (w->status) return NULL;
  assert(w->used < WALK_ROOMS);
  struct buffer *room = &w->rooms[w->used++];
  if (floats > SIZE_MAX / sizeof(float) - 1)
    w->status = fail_memory("a backward pass", floats);
  else if (room->bytes < (floats + 1) * sizeof(float))
    grow(w, room, (floats + 1) * sizeof(float));
  return w->status ? NULL : room;
}

struct tensor walk_tensor(struct walk *w, uint64_t rows, uint64_t cols, uint64_t stride) {
  const struct tensor none = {0};
  uint64_t elements;
  if (w->status) return none;
  if (rows > UINT32_MAX || stride > UINT32_MAX || !size_mul(rows, stride, &elements) || elements > UINT32_MAX ||
      elements * sizeof(float) > w->c->backend->max_binding_bytes) {
    w->status =
        fail(DELTAIC_OUT_OF_MEMORY, "the backward pass of a batch needs a tensor of %llu x %llu, too large for %s",
             (unsigned long long)rows, (unsigned long long)stride, w->c->backend->info.name);
    return none;
  }
  struct buffer *b = walk_room(w, elements);
  return (struct tensor){
      .dtype = DTYPE_F32, .rows = (uint32_t)rows, .cols = (uint32_t)cols, .stride = (uint32_t)stride, .buffer = b};
}

struct tensor walk_half(struct walk *w, uint64_t rows, uint64_t cols) {
  const uint64_t stride = round_up(cols, 8);
  struct tensor t = walk_tensor(w, rows, stride / 2, stride / 2);
  t.dtype = DTYPE_F16;
  t.cols = (uint32_t)cols;
  t.stride = (uint32_t)stride;
  return t;
}

// A gradient is f32, and where its value is f16 there is room for it (lower_values.c).
static struct tensor moved(struct tensor t, struct buffer *to) {
  if (t.dtype == DTYPE_F16) t.stride = t.cols;
  t.dtype = DTYPE_F32;
  t.buffer = to->bytes ? to : NULL;
  return t;
}

static bool same_place(struct tensor a, struct tensor b) { return a.buffer == b.buffer && a.offset == b.offset; }

static struct tensor of_weight(const struct walk *w, struct tensor t) {
  const struct tensor none = {0};
  for (size_t i = 0; i < w->weight_count; i++)
    if (same_place(*w->weights[i].weight, t)) return w->weights[i].gradient;
  return none;
}

struct tensor walk_unrounded(const struct walk *w, struct tensor weight) {
  for (size_t i = 0; i < w->half_count; i++)
    if (same_place(w->halves[i].half, weight)) return w->halves[i].from;
  return weight;
}

bool walk_place(struct walk *w, struct tensor value, struct tensor gradient) {
  uint32_t i = 0;
  if (value.stride != gradient.stride) return false;
  while (i < w->place_count && !same_place(w->places[i].value, value)) i++;
  if (i == WALK_PLACES) return false;
  w->places[i] = (struct walk_place){value, gradient};
  if (i == w->place_count) w->place_count++;
  return true;
}

// Of a value, or of a view of it.
static bool find_place(const struct walk *w, struct tensor *t) {
  for (uint32_t i = 0; i < w->place_count; i++) {
    const struct tensor value = w->places[i].value, gradient = w->places[i].gradient;
    const uint64_t bytes = (uint64_t)value.rows * value.stride * sizeof(float);
    if (t->buffer != value.buffer || t->offset - value.offset >= bytes) continue;
    t->offset = gradient.offset + (t->offset - value.offset) / (gradient.dtype == DTYPE_F16 ? 2 : 1);
    t->buffer = gradient.buffer;
    t->dtype = gradient.dtype;
    return true;
  }
  return false;
}

struct tensor walk_gradient(const struct walk *w, struct tensor t) {
  const struct tensor none = {0};
  if (!t.buffer) return none;
  if (find_place(w, &t)) return t;
  if (t.buffer == w->values) return moved(t, w->gradients);
  if (t.buffer == w->states) return moved(t, w->state_gradients);
  return of_weight(w, walk_unrounded(w, t));
}

bool walk_product(const struct walk *w, struct tensor value, struct linear *out) {
  for (uint32_t i = 0; i < w->at; i++) {
    const struct op op = oplist_op(w->list, i);
    if (!same_place(op.t[0], value)) continue;
    *out = op.linear;
    return op.kind == OP_LINEAR && op.t[0].cols == value.cols && !op.linear.bias.buffer;
  }
  return false;
}

struct tensor walk_before(const struct walk *w, struct tensor t) {
  assert(t.buffer == w->states);
  return moved(t, w->before);
}
