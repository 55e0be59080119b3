// learner_inside.h: what the files of a learner share.
#ifndef LEARNER_INSIDE_H
#define LEARNER_INSIDE_H
#include "backward.h"
#include "learner.h"

enum learner_pass {
  PASS_FORWARD, // makes the stream behind the layer
  PASS_KEEP,    // the same, with values that a walk reads later
  PASS_WALK,    // computes the values unless they were kept, then walks the list in reverse
};

struct learner {
  struct backend *backend;
  bool owns_backend;
  bool fast; // products round to f16
  struct recorder *recorder;
  bool recording; // it has a recording that learner_run() ends
  struct deltaic_model model;
  struct weight_gradient *weights; // of model.weights.requests
  struct arena gradients;          // of weights, `unit` times
  double unit;                     // 0: not chosen yet
  struct oplist list;
  struct walk walk;
  enum learner_pass pass; // of the list
  struct buffer values, value_gradients; // of the list's values
  struct buffer parts;                   // oplist.parts
  struct buffer halves;                  // the list's matrices in f16
  struct weight_half *half;              // which they are, walk.half_count
  size_t half_capacity;
  struct buffer *kept;             // (L) for values that the forward pass keeps
  bool *is_kept;                   // (L) whether the last forward pass kept the layer's
  uint64_t keep_bytes, kept_bytes; // the most bytes of `kept`, and how many there are
  // Of the batch's size:
  uint32_t rows, T;
  struct arena states;           // of all layers
  struct buffer state_gradients; // at the same places
  void **mixer_states;           // L
  struct buffer streams;         // (L + 2, rows * T, D): at the entry of every layer, at the end, and its gradient
  struct buffer sequences, tokens, targets, losses; // losses: (N, 2)
  float *host;                                      // a tensor on its way to the host or back
  uint64_t host_bytes;
  struct buffer unused; // without memory: the states before a text are zeros
};

// rows x cols at a byte offset.
static inline struct tensor learner_tensor(struct buffer *b, uint64_t offset, uint32_t rows, uint32_t cols) {
  return (struct tensor){.dtype = DTYPE_F32, .rows = rows, .cols = cols, .stride = cols, .buffer = b, .offset = offset};
}

// learner_room.c: opens a recording unless one is open. Passes follow each other in it, so the device computes one while
// the next is recorded. learner_run() runs it to its end, and waits, before the host reads a result or frees memory.
void learner_record(struct learner *l);
deltaic_status learner_run(struct learner *l);

// Memory of at least so many bytes; what it held is lost if it grows.
deltaic_status learner_room(struct learner *l, struct buffer *b, uint64_t bytes, const char *what);
// *out: memory for the values of layer i; NULL if they are not to be kept. If it cannot be allocated, all kept memory is
// freed, and no layer is kept from then on.
deltaic_status learner_kept_room(struct learner *l, uint32_t i, uint64_t bytes, struct buffer **out);
void learner_kept_free(struct learner *l);

// learner_batch.c: memory for a batch, which receives its tokens.
deltaic_status learner_batch_take(struct learner *l, const struct learner_batch *batch);
void learner_batch_free(struct learner *l);

// learner_halves.c, in a fast learner: the list's matrices become copies in f16, which learner_halves_make() makes, in
// the recording before the list. A matrix with values beyond f16's range stays.
deltaic_status learner_halves_choose(struct learner *l);
void learner_halves_make(struct learner *l);
// The same for one matrix of a learner, which another one's walk may read; m itself if `of` is not fast.
struct tensor learner_halved(struct learner *of, struct walk *w, struct tensor m);

// Cross entropy of the hidden states, and with d->teacher, whose hidden states are `taught`, distillation. Adds scale
// times its gradient to those of hidden and of the head; scale 0: computes no gradients.
deltaic_status learner_head(struct learner *l, const struct learner_batch *batch, struct tensor hidden,
                            struct tensor taught, const struct distillation *d, double scale,
                            struct learner_loss *loss);
#endif
