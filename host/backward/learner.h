// learner.h: a model with the gradients of its weights (docs/backward.md). It has the weights in f32, whatever the
// checkpoint's format is. It computes in f32 throughout, or, if it is fast and the device has cooperative matrices, the
// products with operands that are rounded to f16.
//
// Forward, it keeps the residual stream at the entry of every layer. Backward, it records each layer again, runs it
// with values that keep their memory, and walks it in reverse. So memory grows by one stream a layer. A layer whose
// values were kept by the forward pass (learner_keep()) does not run again.
#ifndef LEARNER_H
#define LEARNER_H
#include "model.h"

struct learner;

// Whether the gradient of a tensor of the checkpoint is wanted.
typedef bool (*learner_wants)(void *user, const struct file_tensor *t);

// path: a folder. UNSUPPORTED for GGUF files and mixtures of experts. on: what computes, which outlives the learner;
// NULL: the CPU with so many threads, 0: all cores. wants: NULL: no gradients (a teacher). After a failure *out is
// NULL.
deltaic_status learner_open(const char *path, struct backend *on, uint32_t threads, bool fast, learner_wants wants,
                            void *user, struct learner **out);
void learner_close(struct learner *l); // accepts NULL
struct checkpoint *learner_checkpoint(const struct learner *l);
uint64_t learner_fingerprint(const struct learner *l); // of the checkpoint's tensors and config
uint32_t learner_vocabulary(const struct learner *l);
bool learner_embeds(const struct learner *l, const struct file_tensor *t); // whether it is the embedding
// From the next batch on, the forward pass keeps the values of each layer, in order, that still fits within `bytes`.
// The backward pass recomputes the other layers. By default no layer is kept. The choice may change the last bits of
// gradients.
void learner_keep(struct learner *l, uint64_t bytes);
bool learner_is_fast(const struct learner *l); // whether it rounds to f16

// rows texts of T + 1 tokens, each from a fresh state. Row r predicts its tokens 1 ... T, or the targets.
struct learner_batch {
  const int32_t *tokens; // (rows, T + 1)
  uint32_t rows, T;
  const int32_t *targets; // (rows, T): what follows each token; below 0: not counted. NULL: the next tokens
};

// The loss is CE + weight KD: the mean cross entropy of all predictions, and, with a teacher, the mean of
// temperature^2 KL(teacher || student) at that temperature.
struct distillation {
  struct learner *teacher; // NULL: none. Of the same vocabulary, on the same device
  double weight, temperature;
};
struct learner_loss {
  double ce, kd;
};

// Adds `scale` times the gradient of the batch's loss to the gradients.
deltaic_status learner_add(struct learner *l, const struct learner_batch *batch, const struct distillation *d,
                           double scale, struct learner_loss *loss);
// The batch's loss alone.
deltaic_status learner_measure(struct learner *l, const struct learner_batch *batch, const struct distillation *d,
                               struct learner_loss *loss);
deltaic_status learner_clear(struct learner *l); // all gradients become 0
// On the device, gradients are so many times those of learner_gradient(): a power of two that keeps those of values
// within f16's range. It changes only while the gradients are 0.
double learner_unit(const struct learner *l);
// out: the gradient of a tensor of the checkpoint, in its shape. Zeros if it was not wanted.
deltaic_status learner_gradient(struct learner *l, const struct file_tensor *t, float *out);
// Gives a tensor of the learner's checkpoint other values, in its shape; the caller keeps them as long as the learner.
deltaic_status learner_set(struct learner *l, struct file_tensor *t, const float *values);
#endif
