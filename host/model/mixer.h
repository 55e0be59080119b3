// mixer.h: what mixes tokens in a layer. A mixer is a table of functions over its own spec (sizes, from arch), weights
// (tensors on the device) and state (tensors of one session); block.c never asks which one it has.
#ifndef MIXER_H
#define MIXER_H
#include "oplist.h"
#include "weights.h"

// A tensor of a session's state. Caches hold positions: row b of sequence b, position p at slot p % capacity.
struct state_entry {
  struct tensor *tensor;
  uint32_t position_cols; // numbers per position; 0: not a cache, saved whole
  uint32_t window;        // positions that can still be read; 0: all
};
enum { MIXER_STATES = 2 };

struct state_list {
  struct state_entry entries[MIXER_STATES];
  int count;
};

// What a session asks of a mixer's state.
struct state_shape {
  uint32_t sequences; // slots: rows of every tensor
  uint32_t context;   // positions that a global cache holds
  uint32_t batch;     // most tokens in one call
};

// Declares a tensor of a row for every slot, each beginning where a view may.
void state_add(struct arena *arena, struct tensor *out, enum dtype dtype, const struct state_shape *shape,
               uint64_t cols);

// One call of the layers: a list that they record into, for T rows of B sequences.
struct call {
  struct oplist *l;
  struct tensor sequences; // (B, 4) i32: struct sequence each, of slots in any order, with a row or more
  uint32_t T;
  deltaic_probed layer; // of the present one, for who looks
};

struct mixer_sizes {
  uint32_t heads, value_heads, key_size, value_size, steps;
};

struct mixer {
  const char *name;                  // "gated_deltanet", as the user sees it
  size_t weights_bytes, state_bytes; // of the structs below
  // Text that tells layers of this kind apart, as "window 48"; "" when there is nothing to say.
  void (*describe)(const void *spec, char *text, size_t capacity);
  bool (*grows)(const void *spec);                            // state grows with the text
  void (*sizes)(const void *spec, struct mixer_sizes *sizes); // of a matrix-valued state; NULL: it has none
  void (*see)(void *spec, uint32_t window); // limits it to the last `window` positions; NULL: it has no such limit
  // Declares what the layer needs of the checkpoint. D: the model's width.
  void (*bind)(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights);
  // Declares the state's tensors in the arena and lists them.
  void (*state)(const void *spec, const struct state_shape *shape, struct arena *arena, void *state,
                struct state_list *list);
  // y (T, D) = mixer(h), h (T, D)
  void (*forward)(const void *spec, const void *weights, const void *state, const struct call *call, struct tensor y,
                  struct tensor h);
};
#endif
