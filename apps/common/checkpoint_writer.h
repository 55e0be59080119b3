// checkpoint_writer: a folder that deltaic_model_open() loads: config.json, model.safetensors, tokenizer.json.
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
  bool bf16; // store the weights in bfloat16, rounded to nearest even, and not in float32
};

// A tensor of zeros to fill: a vector where cols is 0, a convolution's kernels [rows, 1, cols] where conv says so.
float *checkpoint_add(struct checkpoint *c, const char *name, uint32_t rows, uint32_t cols);
float *checkpoint_add_conv(struct checkpoint *c, const char *name, uint32_t channels, uint32_t taps);
void checkpoint_free(struct checkpoint *c);

// Makes the folder where it is missing; refuses one that has files of a checkpoint unless forced. An exit code.
int checkpoint_place(const char *folder, bool force);
// Writes the files into the folder, each in whole or not at all. config: taken over.
// tokens: names of ids 0 ... count - 1 without white space, which separates them in a text; 0 begins a text.
// An exit code, after a complaint.
int checkpoint_write(const struct checkpoint *c, const char *folder, json_t *config, const char *const *tokens,
                     size_t count);
// Deletes what checkpoint_write wrote, and the folder when nothing else is in it.
void checkpoint_delete(const char *folder);
// A new empty folder for what is not to be kept; NULL after a complaint. To free().
char *temporary_folder(void);

// One layer over tokens that are the unit vectors of a residual stream of `width`, a power of four, so that the norm's
// factor and the projections' scale are exact: column t of a projection, divided by sqrt(width), is what token t
// projects to. The layer's `features` outputs lie behind the tokens in the stream; the MLP adds nothing.
struct one_layer {
  uint32_t tokens, features, width;
  float scale;    // 1 / sqrt(width)
  float *lm_head; // (tokens, width)
};
struct one_layer one_layer_begin(struct checkpoint *c, uint32_t tokens, uint32_t features);
// Makes token t project to `value` in row `row` of a projection.
void one_layer_set(const struct one_layer *m, float *projection, uint32_t row, uint32_t token, double value);
// Weight of a feature in a token's logit, the final norm's factor undone: logit = sum weight * feature.
void one_layer_read(const struct one_layer *m, uint32_t token, uint32_t feature, double weight);
// What both demos' configs have.
json_t *one_layer_config(const struct one_layer *m, const char *model_type, uint32_t heads);

// x with silu(x) = y; y above silu's least value, -0.278.
double silu_inverse(double y);
// Projections whose silu is s * target, for the largest s that keeps the result between -0.27 and 8: the layer's L2
// norm takes s away, and its eps matters the less the larger s is.
void reach_direction(const double *target, uint32_t n, double *projection);
#endif
