// prune.h: declares what the parts of `deltaic prune` share.
#ifndef PRUNE_H
#define PRUNE_H
#include "corpus.h"
#include "deltaic_prune.h"
#include "engine.h"
#include "merged.h"
#include "print.h"

enum { PRUNE_LAYERS = 512 };

struct prune_request {
  struct engine_options engine; // its model is CHECKPOINT
  const char *adapter, *out, *method, *cut, *keep, *side, *volume, *text, *eval, *statistics, *plot, *recover;
  uint32_t tokens, window, swap_limit, rows;
  uint64_t seed;
  float tolerance, ridge, rate;
  deltaic_precision recover_precision;
  bool per_layer, adversarial, like_reference, refit, force, sweep, as_json;
  // Resolved:
  bool text_of_recover; // text was not given: it is the one of --recover
  deltaic_prune_method about;
  deltaic_select_options select;
  uint32_t keeps[PRUNE_LAYERS];
};

struct prune_work {
  const struct prune_request *r;
  const char *model; // the folder that is pruned: CHECKPOINT, or with --adapter that of `merged`
  struct merged merged;
  struct engine engine;
  bool open; // whether the engine is open
  deltaic_statistics *statistics;
  deltaic_selection *selection;
  deltaic_pruning *pruning;
  struct corpus text, eval, recover;
  bool unrecovered; // the recovery was stopped; the pruned model is as it was before
  bool held_back;   // eval is the end of the text to recover on, and was removed from it
  double nll_before, nll_after, nll_refit, nll_recover; // NaN: not measured
  uint64_t predictions;
  deltaic_memory before, after;
  deltaic_model_info info, info_after;
  double seconds_gradients, seconds_calibration, seconds_selection, seconds_refit, seconds_recover;
};

// prune_run.c: the parts of the work. Each returns an exit code and prints a message if it is not EXIT_OK.
int prune_measure(struct prune_work *w);       // loads the statistics, or measures what is needed on the text
int prune_measure_whole(struct prune_work *w); // the unpruned model's NLL, if there is an evaluation text
// Measures the NLL of the checkpoint in a folder, on the device.
int prune_nll_of(struct prune_work *w, const char *path, const char *label, double *nll);
int prune_refit(struct prune_work *w);
// Reads the texts to evaluate and to recover on. Without --eval, holds the end of the latter back.
int prune_read_texts(struct prune_work *w);
int prune_recover(struct prune_work *w);
bool prune_show(void *progress, uint64_t done, uint64_t total); // returns false after Ctrl-C
void prune_work_free(struct prune_work *w);
// Whether the method uses sampled activations: it supports them, they were requested, and they are available.
bool prune_from_rows(const struct prune_work *w, const char *method);

// prune_report.c
void prune_print(const struct prune_work *w);
int prune_json(const struct prune_work *w);
int prune_plot(const struct prune_work *w, const char *path);
// prune_sweep.c
int prune_sweep(struct prune_work *w);
#endif
