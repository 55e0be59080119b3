/* deltaic_tune.h: trains a checkpoint on tokens. The conventions of deltaic.h apply. These functions are in
 * libdeltaic_prune. Training has its weights, gradients and AdamW's numbers in f32 on a device, whatever the
 * checkpoint's format is. deltaic_tune_plan() tells how much memory that is. GGUF files and mixtures of experts cannot
 * be trained.
 *
 *   deltaic_tune_create(path, &options, &tune);
 *   for each step:
 *     deltaic_tune_add(tune, &batch, 1, &loss);
 *     deltaic_tune_step(tune, rate, &norm);
 *   deltaic_tune_save(tune, out, false);
 *
 * The same calls give the same bits on one device, with any number of threads. The whole header is experimental. */
#ifndef DELTAIC_TUNE_H
#define DELTAIC_TUNE_H

#include "deltaic_prune.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct deltaic_tune deltaic_tune;

/* What is trained: tensors whose name contains one of several texts. Matrices in `adapt` are trained by LoRA: W = W0 +
 * alpha / rank B A, where only A (rank, in) and B (out, rank) are trained. Tensors in `whole` are trained themselves;
 * so is a tensor in both lists. Each text of `adapt` must match at least one matrix that is not in `whole`. Texts are
 * separated by commas; "" is an empty list.
 *
 * The loss is CE + weight KD: the mean cross entropy, and with a teacher the mean of temperature^2 KL(teacher ||
 * model) at that temperature. */
typedef struct deltaic_tune_options {
  size_t size;
  bool everything;            /* all weights are trained themselves; adapt and whole are ignored */
  const char *adapt;          /* NULL: "q_proj,k_proj,v_proj" */
  const char *whole;          /* NULL: "conv1d,norm,bias" */
  uint32_t rank;              /* 0: 32 */
  double alpha;               /* 0: twice the rank */
  double beta1, beta2;        /* of AdamW; 0: 0.9 and 0.95 */
  double eps;                 /* 0: 1e-8; at least FLT_MIN */
  double decay;               /* of AdamW, times the learning rate */
  double clip;                /* the largest norm of a gradient; 0: 1 */
  const char *teacher;        /* a checkpoint of the same vocabulary (deltaic_tune_check_teacher()), or NULL */
  double weight, temperature; /* of the distillation; 0: 1 and 2 */
  uint64_t seed;              /* of A, which begins with random values; B begins with zeros */
  uint32_t threads;           /* of the CPU, without a device; 0: all cores */
  deltaic_device *device;     /* computes; NULL: the CPU */
  /* FAST: on a device with cooperative matrices, products round their operands to f16, and gradients are off by about
   * 1e-3 of their norm. */
  deltaic_precision precision;
  /* The most memory for values of layers that the forward pass keeps for the backward pass. Layers that do not fit are
   * computed again, as all are with 0. A gradient's last bits depend on which are kept. */
  uint64_t keep_bytes;
} deltaic_tune_options;

/* Writes config.json and model.safetensors (f32) into a folder that is there: a new model, with first values as
 * flash-linear-attention draws them. config: a config.json of any family, without mixtures of experts. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_initialize(const char *config, uint64_t seed, const char *folder);

/* path: a folder. options: NULL for defaults. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_create(const char *path, const deltaic_tune_options *options,
                                                     deltaic_tune **out);
DELTAIC_PRUNE_API void deltaic_tune_free(deltaic_tune *tune); /* accepts NULL */

typedef struct deltaic_tune_info {
  uint64_t steps;            /* so far */
  uint64_t trained;          /* numbers that are trained */
  uint32_t tensors, adapted; /* tensors that are trained, and how many of them by LoRA */
  int32_t vocabulary;
  bool fast; /* products round to f16 */
} deltaic_tune_info;
DELTAIC_PRUNE_API void deltaic_tune_get_info(const deltaic_tune *tune, deltaic_tune_info *info);

/* What a training has on its device, in bytes. */
typedef struct deltaic_tune_memory {
  uint64_t weights;   /* of the model, in f32 */
  uint64_t gradients; /* of the weights that are trained */
  uint64_t moments;   /* AdamW's */
  uint64_t adapters;  /* A, B, their gradients, and first values of matrices that they are added to */
  uint64_t streams;   /* the residual stream before every layer */
  uint64_t layer;     /* the values of one layer, and their gradients */
  uint64_t kept;      /* the values of layers that are kept */
  uint64_t states;    /* recurrent states, and their gradients */
  uint64_t scratch;   /* of the largest operation; logits */
  uint64_t teacher;   /* everything of the teacher */
  uint64_t total;
} deltaic_tune_memory;
/* What steps and measurements with batches of rows texts of length tokens (and the one that follows) will need. It
 * allocates nothing on the device. Layers are kept within keep_bytes, and only while the total stays within nine tenths
 * of the free memory of a discrete GPU, or half of it on other devices. Give memory->kept to deltaic_tune_create() as
 * keep_bytes. OUT_OF_MEMORY has two causes. Either the device has less free memory than a training without kept layers
 * takes; *memory is then complete. Or the batch is too large for one buffer; *memory is then what was counted before
 * that was found. The message says what would fit. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_plan(const char *path, const deltaic_tune_options *options, uint32_t rows,
                                                   uint32_t length, deltaic_tune_memory *memory);
/* What it has so far: after the first step and the first measurement, all of it. */
DELTAIC_PRUNE_API void deltaic_tune_get_memory(const deltaic_tune *tune, deltaic_tune_memory *memory);

/* Texts, each from a fresh state. */
typedef struct deltaic_tune_batch {
  size_t size;
  const int32_t *tokens;  /* (rows, length + 1) */
  uint32_t rows, length;  /* */
  const int32_t *targets; /* (rows, length): what is to follow each token; below 0: nothing. NULL: the next tokens */
} deltaic_tune_batch;

typedef struct deltaic_tune_loss {
  double ce, kd; /* nats; kd is 0 without a teacher */
} deltaic_tune_loss;

/* Adds share times the gradient of the batch's loss to the gradient. The loss is a mean over the batch's predictions.
 * For a step over several batches, share is a batch's part of the predictions in all these batches; the gradient is
 * then that of one large batch. A loss that is not finite is INVALID_ARGUMENT; it discards the gradient and changes
 * nothing else. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_add(deltaic_tune *tune, const deltaic_tune_batch *batch, double share,
                                                  deltaic_tune_loss *loss);
/* The gradient so far by a tensor of the checkpoint that is trained itself or by LoRA, in its shape: count numbers. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_gradient(const deltaic_tune *tune, const char *name, float *out,
                                                       size_t count);
/* Computes the norm of the gradient so far, which the next step uses. A norm that is not finite is INVALID_ARGUMENT; it
 * is written too, and the gradient is discarded. So a program can check that the gradient from the current weights is
 * finite before a step changes them. norm may be NULL. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_norm(deltaic_tune *tune, double *norm);
/* Takes a step of AdamW, which uses up the gradient. Without a gradient it is INVALID_ARGUMENT. norm: that of the
 * gradient, or NULL. A gradient that is not finite is INVALID_ARGUMENT; it is discarded, and nothing else changes.
 * Another failure may leave the model half updated: then every later step and save fails and says so. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_step(deltaic_tune *tune, double rate, double *norm);
/* The loss of a batch, without a gradient. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_measure(deltaic_tune *tune, const deltaic_tune_batch *batch,
                                                      deltaic_tune_loss *loss);

/* The learning rate rises linearly over the first `warm_up` steps and then falls along a half cosine. */
typedef struct deltaic_tune_schedule {
  size_t size;
  double rate;    /* the largest */
  double least;   /* at the end, as a share of the largest; 1: the rate stays */
  uint64_t steps; /* */
  uint64_t warm_up;
} deltaic_tune_schedule;
/* The rate of a step, from 0. */
DELTAIC_PRUNE_API double deltaic_tune_rate(const deltaic_tune_schedule *schedule, uint64_t step);

/* Writes a whole checkpoint: the files of the one that is trained, with the trained tensors in their places and
 * formats, adapters merged. It appears at `out` only when it is complete. force: replace a checkpoint that is there. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_save(deltaic_tune *tune, const char *out, bool force);
/* Writes adapter_config.json and adapter_model.safetensors, PEFT's format, which deltaic_model_options reads. Tensors
 * that are trained themselves are stored whole. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_save_adapter(deltaic_tune *tune, const char *out, bool force);
/* Writes a copy of the checkpoint folder `path` with the adapters merged. Changed tensors keep their places and formats.
 * A model opened with the same adapters has the same bits. deltaic_tune_create() and the functions of deltaic_prune.h
 * take no adapters: give them this copy. adapter: a folder as in deltaic_model_options. out, force: as in
 * deltaic_tune_save(). progress: counts bytes of changed tensors; may be NULL. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_merge(const char *path, const char *adapter, const char *out, bool force,
                                                    deltaic_progress progress, void *user);
/* Check, before long work, whether these would accept the arguments. path: the checkpoint that is to be trained. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_check(const char *path, const char *out, bool force);
DELTAIC_PRUNE_API deltaic_status deltaic_tune_check_adapter(const char *path, const char *out, bool force);
/* If both folders have a tokenizer that this library reads, checks that every id that both have stands for the same
 * token. INVALID_ARGUMENT: one does not; the message has the first such id. deltaic_tune_create() calls it too. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_check_teacher(const char *path, const char *teacher);

/* Saves what the next steps depend on, without any gradient that has been added. note: a text of the caller that is
 * saved too, or NULL. An interrupted save leaves an existing file intact. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_save_state(const deltaic_tune *tune, const char *file, const char *note);
/* Continues from a saved state, and discards any gradient that has been added. The next steps give the bits that they
 * would have given without the pause. The training must have been created from the same checkpoint with the same
 * options. note: the text that was saved, or NULL; the caller frees it with free(). */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_load_state(deltaic_tune *tune, const char *file, char **note);
/* Keeps a copy of the state in main memory: the trained numbers and AdamW's moments, 12 bytes for each trained number.
 * It replaces an earlier copy. OUT_OF_MEMORY: the copy would take more than half of the free memory. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_keep_state(deltaic_tune *tune);
/* Goes back to that copy, and discards any gradient that has been added. NOT_FOUND: there is no copy. Then nothing
 * changes. */
DELTAIC_PRUNE_API deltaic_status deltaic_tune_return(deltaic_tune *tune);

#ifdef __cplusplus
}
#endif
#endif
