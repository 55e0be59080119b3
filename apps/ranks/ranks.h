// ranks.h: declares what the parts of `deltaic rank` share: measures of the states over a text for several checkpoints.
#ifndef RANKS_H
#define RANKS_H
#include "deltaic_prune.h"
#include "engine.h"
#include "print.h"

enum { RANK_CHECKPOINTS = ARGUMENTS_CAPACITY, RANK_BINS = 36, RANK_STEPS = 8 };
// Singular values below this fraction of the first are rounding errors of float32 states.
#define RANK_ZERO 1e-6
#define SPECTRUM_LEAST (-6.0) // log10(RANK_ZERO): the lower end of the bins

struct sample { // state of one head at one token
  deltaic_rank rank;
  double similarity; // cosine with the previously recorded state; NaN: there is none, or one of them is zero
};

struct mask { // mask of Head-in-Head, averaged over the text if it depends on the input
  int32_t heads, r;
  char nonneg;    // how M_org is made positive: 's' softplus, 'g' sigmoid, 'e' exp
  double *values; // (heads, r, r); NULL: the layer has no mask
  uint64_t tokens;
  float *weight, *bias; // of the mask's projection; NULL: the mask is static
};

struct layer_ranks {
  int32_t layer, heads, key_size, value_size, steps; // heads: value heads, one state each
  struct sample *samples;                            // (times, heads)
  float *before;                                     // the previously recorded states (heads, key_size, value_size)
  double *beta;                                      // (steps, tokens), means over heads; NULL: none
  double *decay;                                     // (tokens), means over heads of exp(g); NULL: none
};

struct measured { // results of one checkpoint
  const char *path;
  char name[64]; // name of the folder
  char device[256];
  struct layer_ranks *layers; // the linear-attention layers
  size_t layer_count;
  struct mask *masks; // one per layer of the model
  int32_t model_layers;
  size_t tokens, times; // tokens of the text; number of recorded states
  double *at;           // (times) tokens read before each recorded state
  double *marks;        // where documents begin, except the first
  size_t mark_count;
  double spectrum[RANK_BINS]; // fractions of singular values by log10(s_i / s_1)
  double zeros;               // fraction of singular values below RANK_ZERO
  double seconds;
};

struct rank_request {
  struct engine_options engine;
  const char *text, *separator, *csv, *plot;
  uint32_t tokens, every;
  struct count_list layers;
  bool heads, as_json;
};

struct means { // means over the samples of a layer, of a head or of all
  double stable_rank, utilization, entropy_rank, condition, similarity;
  double last;       // utilization of the last sample
  uint64_t count, n; // number of samples; number of samples with a similarity
};

// ranks_run.c: measures a checkpoint and returns an exit code.
int measure_checkpoint(struct measured *m, const struct rank_request *request);
void measured_free(struct measured *m);
// ranks_weights.c: filters and masks.
int masks_open(struct measured *m, int32_t layers, int32_t width);
void masks_free(struct measured *m);
void mask_add(struct mask *mask, const float *rows, size_t count, size_t width); // rows: inputs of the layer
int plot_filters(const struct measured *m, const struct rank_request *request);
int plot_masks(const struct measured *m, const struct rank_request *request);

// Returns the means over one layer's samples of a head; head < 0: all heads.
struct means means_of(const struct measured *m, const struct layer_ranks *l, int32_t head);
struct means means_of_all(const struct measured *m);
// Computes the histogram of all similarities over [-1, 1]. It returns false if there are no similarities.
bool similarity_shares(const struct measured *m, double *shares, int bins);
// Returns the normalized entropy of that histogram: 0 if all are in one bin, 1 if they are uniform over [-1, 1].
double similarity_entropy(const struct measured *m);

void ranks_print(const struct measured *m, size_t count, const struct rank_request *request);
int ranks_json(const struct measured *m, size_t count);
int ranks_csv(const struct measured *m, size_t count, const char *path);

// Returns the layers to draw: the requested ones, or a few that are spread from the first to the last.
struct count_list layers_to_draw(const struct measured *m, const struct count_list *asked, size_t most);
struct layer_ranks *find_layer(const struct measured *m, uint32_t layer); // NULL: the layer has no linear attention
// A file name such as "DIR/filters-NAME.png".
struct file_name {
  char text[1024];
};
struct file_name plot_name(const char *folder, const char *kind, const struct measured *m); // NULL: all
int ranks_plot(const struct measured *m, size_t count, const struct rank_request *request);
#endif
