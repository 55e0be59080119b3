// mixer.h: the interface of a mixer, the part of a layer that mixes tokens. A mixer is a table of functions over its
// own spec (sizes, from arch), weights (tensors on the device) and state (tensors of one session). block.c never asks
// which mixer it has.
#ifndef MIXER_H
#define MIXER_H
#include "oplist.h"
#include "weights.h"

// A tensor of a session's state, with one row per slot. In a cache, position p is at index p % capacity.
struct state_entry {
  struct tensor *tensor;
  uint32_t position_cols; // elements per position; 0: not a cache, saved whole
  uint32_t window;        // positions that can still be read; 0: all
};
enum { MIXER_STATES = 2 };

struct state_list {
  struct state_entry entries[MIXER_STATES];
  int count;
};

// Sizes that a session wants for a mixer's state.
struct state_shape {
  uint32_t sequences; // each has a slot: a row of every tensor
  uint32_t context;   // positions that a global cache holds
  uint32_t batch;     // most tokens in one call
};

// Declares a tensor with one row per slot. Rows are aligned so that a view can begin at each.
void state_add(struct arena *arena, struct tensor *out, enum dtype dtype, const struct state_shape *shape,
               uint64_t cols);

// One call of the layers: T rows, one for each token. The tokens of B sequences follow one another.
struct call {
  struct oplist *l;        // the list that the layers record into
  struct tensor sequences; // (B, 4) i32: a struct sequence each (control.h: which rows, which slot of the state). Slots
                           // may be in any order; each sequence has at least one row
  uint32_t T;
  deltaic_probed probed_layer; // the current layer, as probes describe it to the caller
};

struct mixer_sizes {
  uint32_t heads, value_heads, key_size, value_size, steps;
};

struct mixer {
  const char *name;                  // as users see it: "gated_deltanet"
  size_t weights_bytes, state_bytes; // of the structs below
  // Writes what distinguishes layers of this kind, such as "window 48"; "" if nothing does.
  void (*describe)(const void *spec, char *text, size_t capacity);
  bool (*grows)(const void *spec);                            // whether the state grows with the sequence
  void (*sizes)(const void *spec, struct mixer_sizes *sizes); // of a matrix-valued state; NULL: it has none
  void (*limit)(void *spec, uint32_t window); // lets it see only the last `window` positions; NULL: has no such limit
  // Declares the weights that the layer needs from the checkpoint. D: the model's width.
  void (*bind)(const void *spec, uint32_t layer, uint32_t D, struct weights *w, void *weights);
  // Declares the state's tensors in the arena and lists them.
  void (*state)(const void *spec, const struct state_shape *shape, struct arena *arena, void *state,
                struct state_list *list);
  // Records output = mixer(input), both (T, D). As in every operation, what is written stands before what is read.
  void (*forward)(const void *layer_spec, const void *layer_weights, const void *layer_state, const struct call *call,
                  struct tensor output, struct tensor input);
};
#endif
