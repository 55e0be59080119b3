// trainer_items.h: the memory of what is trained: A, B, moments and gradients on the device.
#ifndef TRAINER_ITEMS_H
#define TRAINER_ITEMS_H
#include "learner_places.h"
#include "trainer.h"

struct item {
  struct trained x;
  uint64_t values_count;        // of the tensor
  struct learner_place *places; // of the tensor; one, in `weight` and `gradient`, if it passes through the host
  size_t count;
  bool passes;
  struct tensor m, v;             // (1, n)
  struct tensor p;                // (1, n): trained whole; absent if the weight on the device is p
  struct tensor A, B, dA, dB;     // LoRA: (rank, cols), (rows, rank)
  struct tensor base;             // LoRA: W0 (rows, cols)
  struct tensor weight, gradient; // passes through the host: (1, values); weight absent if p is it
  float *start;                   // LoRA that passes through the host: W0
  float *values;                  // passes through the host, or after trainer_finish(): the tensor's
};

// Declares and finds the item's memory in the arena; its tensors get theirs when that is allocated.
deltaic_status item_declare(struct item *x, struct learner *l, struct arena *arena, uint32_t rank);
// Fills it with first values; the arena is zeros. seed: of A.
deltaic_status item_begin(struct item *x, struct learner *l, uint64_t seed);
void item_free(struct item *x);

// Numbers that are trained alike, at most WALK_SPAN: (rows, cols) from `first` on. p and g may have other strides.
struct strip {
  uint64_t first;
  uint32_t rows, cols;
  struct walk_grid p, g, m, v;
};
typedef void (*strip_use)(void *user, const struct strip *s);
void item_strips(const struct item *x, strip_use use, void *user);

// Rows of W that are computed at once, at least one, `first` being the first of n: `use` is called for each part of
// them that lies together on the device, with its row among the n, and its place.
enum { LORA_ROWS = 64 }; // pieces are multiples of it
uint32_t item_piece(const struct item *x, uint64_t first);
typedef void (*place_use)(void *user, uint32_t row, const struct learner_place *part);
void item_places(const struct item *x, uint64_t first, uint32_t n, place_use use, void *user);

deltaic_status item_read(const struct item *x, struct learner *l, enum trained_array which, float *out);
deltaic_status item_write(const struct item *x, struct learner *l, enum trained_array which, const float *in);

static inline struct walk_grid grid_at(struct tensor t, uint64_t first, uint32_t row) {
  return (struct walk_grid){t.buffer, t.offset / sizeof(float) + first, row, 1};
}
#endif
