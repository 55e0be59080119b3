// ranks.h: what the parts of `deltaic rank` share: measures of states over a text, for one or more checkpoints.
#ifndef RANKS_H
#define RANKS_H
#include "engine.h"
#include "print.h"

enum { RANK_CHECKPOINTS = ARGUMENTS_CAPACITY, RANK_BINS = 36, RANK_STEPS = 8 };
// Singular values below this part of the first are rounding of f32 states.
#define RANK_ZERO 1e-6
#define SPECTRUM_LEAST (-6.0) // log10(RANK_ZERO): where the bins begin

struct sample { // one head's state at one token
  deltaic_rank rank;
  double similarity; // cosine with the state recorded before; NaN: there is none, or one of them is zero
};

struct mask { // Head-in-Head: of the mean over the text where it depends on the input
  int32_t heads, r;
  char nonneg;    // how M_org is made positive: 's'oftplus, si'g'moid, 'e'xp
  double *values; // (heads, r, r); NULL: the layer has none
  uint64_t tokens;
  float *weight, *bias; // of the projection; NULL: static
};

struct layer_ranks {
  int32_t layer, heads, key_size, value_size, steps; // heads: of values, that is states
  struct sample *samples;                            // (times, heads)
  float *before;                                     // the states recorded last, (heads, key_size, value_size)
  double *beta;                                      // (steps, tokens), means over heads; NULL: none
  double *decay;                                     // (tokens), means over heads of exp(g); NULL: none
};

struct measured { // one checkpoint
  const char *path;
  char name[64]; // the folder's
  char device[256];
  struct layer_ranks *layers; // the linear-attention ones
  size_t layer_count;
  struct mask *masks; // one for each of the model's layers
  int32_t model_layers;
  size_t tokens, times; // of the text; recorded states
  double *at;           // (times) tokens read by then
  double *marks;        // where documents begin, after the first
  size_t mark_count;
  double spectrum[RANK_BINS]; // shares of singular values by log10(s_i / s_1)
  double zeros;               // share of those below RANK_ZERO
  double seconds;
};

struct rank_request {
  struct engine_options engine;
  const char *text, *separator, *csv, *plot;
  uint32_t tokens, every;
  struct count_list layers;
  bool heads, as_json;
};

struct means { // over the samples of a layer, a head or all
  double stable_rank, utilization, entropy_rank, condition, similarity;
  double last;       // utilization at the end
  uint64_t count, n; // samples; those with a similarity
};

// ranks_run: an exit code.
int measure_checkpoint(struct measured *m, const struct rank_request *request);
void measured_free(struct measured *m);
// ranks_weights: filters and masks.
int masks_open(struct measured *m, int32_t layers, int32_t width);
void masks_free(struct measured *m);
void mask_add(struct mask *mask, const float *rows, size_t count, size_t width); // inputs of the layer
int plot_filters(const struct measured *m, const struct rank_request *request);
int plot_masks(const struct measured *m, const struct rank_request *request);

// Of one layer. head < 0: all.
struct means means_of(const struct measured *m, const struct layer_ranks *l, int32_t head);
struct means means_of_all(const struct measured *m);
// The histogram of all similarities over [-1, 1]; false: there are none.
bool similarity_shares(const struct measured *m, double *shares, int bins);
// Normalized entropy of all similarities' histogram: 0 when all are alike, 1 when they are spread evenly over [-1, 1].
double similarity_entropy(const struct measured *m);

void ranks_print(const struct measured *m, size_t count, const struct rank_request *request);
int ranks_json(const struct measured *m, size_t count);
int ranks_csv(const struct measured *m, size_t count, const char *path);

// The layers to draw: those asked for, or a few from the first to the last.
struct count_list layers_to_draw(const struct measured *m, const struct count_list *asked, size_t most);
struct layer_ranks *find_layer(const struct measured *m, uint32_t layer); // NULL: no linear attention
// "DIR/filters-NAME.png"
struct file_name {
  char text[1024];
};
struct file_name plot_name(const char *folder, const char *kind, const struct measured *m); // m NULL: of all
int ranks_plot(const struct measured *m, size_t count, const struct rank_request *request);
#endif
