// learner_places.h: where on the device the tensors of a learner's checkpoint are, for a trainer that computes there.
#ifndef LEARNER_PLACES_H
#define LEARNER_PLACES_H
#include "backward.h"
#include "learner.h"

// Elements first ... first + rows * cols - 1 of a checkpoint's tensor. On the device a weight is the tensor's number
// plus `plus`; gradients are learner_unit() times the tensor's.
struct learner_place {
  uint64_t first;
  uint32_t rows, cols;
  struct walk_grid weight, gradient;
  float plus;
};

// The places of a tensor whose gradient is wanted, which have every element once and in order; the caller frees them.
// *count 0: there are none, as others are computed from the tensor, or have parts of it several times: its gradient and
// new values pass through the host (learner_gradient(), learner_set()).
deltaic_status learner_places(const struct learner *l, const struct file_tensor *t, struct learner_place **places,
                              size_t *count);
// The backend and a walk for sums and products, in f32, of what is on the device. learner_begin() begins a recording,
// and learner_end() runs it.
struct backend *learner_backend(const struct learner *l);
struct walk *learner_begin(struct learner *l);
deltaic_status learner_end(struct learner *l);
#endif
