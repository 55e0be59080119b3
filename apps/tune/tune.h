// tune.h: declares what the parts of `deltaic tune` share.
#ifndef TUNE_H
#define TUNE_H
#include "common.h"
#include "deltaic_tune.h"
#include "engine.h"
#include "merged.h"
#include "options.h"
#include "tune_rows.h"

struct tune_request {
  const char *model, *adapter, *out, *adapter_out, *state, *held_out, *plot;
  const char *config, *tokenizer, *task, *group; // from nothing
  const char *targets, *whole, *schedule, *teacher;
  struct text_list texts;
  uint32_t tokens, window, batch, accumulate, keep_mib, steps, stop_at, warm_up, every, save_every, rank;
  struct engine_options engine;
  uint32_t pairs, keys, values;
  uint64_t seed;
  float epochs, rate, decay, clip, beta1, beta2, alpha, weight, temperature;
  bool separate, in_order, everything, resume, force, quiet, as_json;
};

struct tune_measured { // the held-out text after a number of steps
  uint64_t step;
  double nll;
};

struct tune_work {
  const struct tune_request *r;
  const char *model;    // the folder that is trained
  char *made;           // the same where it was made from a config: a temporary folder
  struct merged merged; // the same with --adapter
  char *state;          // file
  struct engine engine;
  deltaic_tune *tune;
  struct tune_rows rows, held;
  uint64_t steps, done; // steps of the run, and finished ones
  uint64_t all_rows;    // that the run reads: the last step has fewer if --epochs are no whole number of steps
  bool has_state;       // the file `state` has the state after step `saved`
  uint64_t saved;
  bool infinite;         // a loss or a gradient of the current weights is not finite
  double kept_at, pause; // when the library last copied the state to main memory, and how long to wait before the next
  double *losses;        // of every step, with distillation
  double *norms;         // of the gradients
  struct tune_measured *measured;
  size_t measured_count;
  uint64_t predictions; // of the held-out text
  double seconds;       // of this run's steps
  deltaic_tune_memory planned;
  uint64_t kept;         // bytes of layers' values that were kept when the state was saved
  uint64_t seconds_from; // the step that this run began with
};

// Each returns an exit code, and prints a message if it is not EXIT_OK.
int tune_train(struct tune_request *r);       // tune_work.c: everything from the request to the report
int tune_merge(const struct tune_request *r); // tune_work.c: with an adapter and nothing to train on
// tune_start.c: a task's rows; from nothing: makes w->made, with a tokenizer.
int tune_start(struct tune_work *w);
void tune_start_end(struct tune_work *w);
uint64_t tune_tokens(const struct tune_work *w, uint64_t steps); // tune_run.c: positions in the first `steps` steps
double tune_tokens_per_second(const struct tune_work *w);        // of this run's steps
int tune_run(struct tune_work *w); // tune_run.c: all steps; EXIT_INTERRUPTED after Ctrl-C, when the state is saved
// After a failure: saves the state of the finished steps; after a loss or gradient that is not finite, saves the last
// good state instead. Says what failed and where the state is.
int tune_keep(struct tune_work *w, deltaic_status status);
bool tune_stopped(const struct tune_work *w); // before the last step, by --stop-at or Ctrl-C
// tune_note.c: what a state has besides the library's: the options that steps depend on, and what was measured so far.
char *tune_note(const struct tune_work *w);                // the caller frees it
int tune_note_read(struct tune_work *w, const char *note); // refuses another run's
void tune_print_plan(const struct tune_work *w);           // tune_report.c: the memory that the steps will need
void tune_print(const struct tune_work *w);
int tune_json(const struct tune_work *w);      // standard output
int tune_merged(const struct tune_request *r); // reports what was only merged
int tune_plot(const struct tune_work *w, const char *path);
#endif
