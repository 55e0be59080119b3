// checkpoint_writer.h: writes a folder that deltaic_model_open() loads: config.json, model.safetensors, tokenizer.json.
#ifndef CHECKPOINT_WRITER_H
#define CHECKPOINT_WRITER_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CHECKPOINT_TENSORS = 32 };

struct checkpoint_tensor {
  char name[64];
  uint32_t rank, shape[3];
  size_t count;
  float *data;
};

struct checkpoint {
  struct checkpoint_tensor tensors[CHECKPOINT_TENSORS];
  size_t count;
  bool bf16; // store weights as bfloat16, rounded to nearest even, instead of float32
};

// Adds a zero tensor for the caller to fill: a vector if cols is 0, a convolution's kernels [rows, 1, cols] if conv.
float *checkpoint_add(struct checkpoint *c, const char *name, uint32_t rows, uint32_t cols);
float *checkpoint_add_conv(struct checkpoint *c, const char *name, uint32_t channels, uint32_t taps);
void checkpoint_free(struct checkpoint *c);

// Creates the folder if needed; refuses one that holds a checkpoint unless `force`. Returns an exit code.
int checkpoint_place(const char *folder, bool force);
// Writes the files into the folder; each file is written completely or not at all. It takes over `config`. tokens:
// names of ids 0 ... count - 1 without white space, which separates them; token 0 begins a sequence. It returns an
// exit code and prints a message on failure.
int checkpoint_write(const struct checkpoint *c, const char *folder, json_t *config, const char *const *tokens,
                     size_t count);
// The same for tokenizer.json alone.
int checkpoint_write_tokenizer(const char *folder, const char *const *tokens, size_t count);
// Deletes the files that checkpoint_write wrote, and the folder if it is then empty.
void checkpoint_delete(const char *folder);
// Creates a temporary folder and returns its name, which the caller frees. On failure it complains and returns NULL.
char *temporary_folder(void);

// One layer over tokens that are unit vectors of a residual stream of `width`, a power of four, so that the norm's
// factor and the projections' scale are exact. Column t of a projection, divided by sqrt(width), is the projection of
// token t. The layer's `features` outputs follow the tokens in the stream; the MLP adds zero.
struct one_layer {
  uint32_t tokens, features, width;
  float scale;    // 1 / sqrt(width)
  float *lm_head; // (tokens, width)
};
struct one_layer one_layer_begin(struct checkpoint *c, uint32_t tokens, uint32_t features);
// Sets row `row` of the projection of token t to `value`.
void one_layer_set(const struct one_layer *m, float *projection, uint32_t row, uint32_t token, double value);
// Sets the weight of a feature in a token's logit: logit = sum weight * feature, with the final norm's factor undone.
void one_layer_read(const struct one_layer *m, uint32_t token, uint32_t feature, double weight);
// Returns the part of the config that both demos share.
json_t *one_layer_config(const struct one_layer *m, const char *model_type, uint32_t heads);

// Returns x with silu(x) = y. y must be above the minimum of silu, -0.278.
double silu_inverse(double y);
// Computes projections with silu(projection) = s * target, for the largest s that keeps s * target within [-0.27, 8].
// The layer's L2 norm removes s; the larger s is, the less the norm's eps matters.
void reach_direction(const double *target, uint32_t n, double *projection);
#endif
