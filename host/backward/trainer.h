// trainer.h: trains tensors of a checkpoint by their gradients (learner.h), with AdamW. A matrix is trained whole, or
// by LoRA: W = W0 + alpha / rank B A, where only A (rank, in) and B (out, rank) are trained. The learner computes with
// W itself, so that a step costs the products of the matrix and no others: dA = alpha / rank B^T dW, dB = alpha / rank
// dW A^T.
//
// All of this is on the learner's device: a step reads only the gradient's norm. Where a tensor on the device is
// computed from the checkpoint's (masks of Head-in-Head, joined norms), its gradient and values pass through the host.
#ifndef TRAINER_H
#define TRAINER_H
#include "learner.h"

enum training { TRAIN_NOT, TRAIN_WHOLE, TRAIN_LORA };
// How a tensor is trained. LORA is for matrices (rank 2).
typedef enum training (*trainer_kind)(void *user, const struct file_tensor *t);

// A step with the gradient g of all trained numbers p together, whose 2-norm is |g|:
//   g *= min(1, clip / (|g| + 1e-6))
//   p *= 1 - rate decay
//   m = beta1 m + (1 - beta1) g
//   v = beta2 v + (1 - beta2) g^2
//   p -= rate (m / (1 - beta1^n)) / (sqrt(v / (1 - beta2^n)) + eps)
// n is the step's number, from 1.
struct trainer_options {
  uint32_t rank;
  double alpha, beta1, beta2, eps, decay, clip;
  uint64_t seed; // of A, which is uniform in (-1, 1) / sqrt(in); B is 0
  bool fast;     // of learner_open()
};

struct trained {
  struct file_tensor *tensor; // of the learner's checkpoint; NULL after trainer_finish()
  char *name;
  char *file;            // of the checkpoint's folder
  uint64_t at;           // where it is in the file
  enum file_dtype dtype; // in the file
  bool lora;
  uint64_t n;          // numbers that are trained: the tensor's values, or A, then B
  uint64_t rows, cols; // LoRA: of the matrix
};

struct trainer;
// on, threads: as of learner_open(). UNSUPPORTED if nothing is to be trained. After a failure *out is NULL.
deltaic_status trainer_open(const char *path, struct backend *on, uint32_t threads, trainer_kind kind, void *user,
                            const struct trainer_options *options, struct trainer **out);
void trainer_close(struct trainer *t); // accepts NULL
struct learner *trainer_learner(struct trainer *t);
// Closes the learner, and with it the checkpoint's files; the tensors' values stay.
deltaic_status trainer_finish(struct trainer *t);
// The number of steps so far, to be set where training goes on, with p, m and v, from a file.
uint64_t trainer_steps(const struct trainer *t);
void trainer_set_steps(struct trainer *t, uint64_t steps);
size_t trainer_count(const struct trainer *t);
const struct trained *trainer_at(const struct trainer *t, size_t i);
// What is trained, and AdamW's moments: n numbers each. A step, a write or a refresh that failed on the way has left
// the model half updated: reads, writes and steps then fail with a sentence that says so.
enum trained_array { TRAINED_P, TRAINED_M, TRAINED_V, TRAINED_ARRAYS };
deltaic_status trainer_read(struct trainer *t, size_t i, enum trained_array which, float *out);
// After p was written, trainer_refresh() passes it on to the learner.
deltaic_status trainer_write(struct trainer *t, size_t i, enum trained_array which, const float *in);
deltaic_status trainer_refresh(struct trainer *t);
// The tensor's values: p, or W, whose sum adapter_add() computes, as whoever reads adapters does.
deltaic_status trainer_values(struct trainer *t, size_t i, float *out);
// A step by the gradients that learner_add() has collected, which are then cleared. norm: the gradient's. A norm that
// is not finite is INVALID_ARGUMENT and changes nothing.
deltaic_status trainer_step(struct trainer *t, double rate, double *norm);
// The two parts of a step. *norm is written if it is not finite too.
deltaic_status trainer_norm(struct trainer *t, double *norm);
deltaic_status trainer_update(struct trainer *t, double rate, double norm);
#endif
