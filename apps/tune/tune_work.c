// tune_work: does what `deltaic tune` was asked for: reads the rows, plans the steps, opens the training, and writes.
#include "platform.h"
#include "print_numbers.h"
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- what is trained on

static int read_rows(struct tune_work *w) {
  const struct tune_request *r = w->r;
  const struct tune_reading reading = {{w->model, r->tokens, r->separate}, r->window};
  w->rows.seed = r->seed;
  w->rows.in_order = r->in_order;
  int code = r->task ? EXIT_OK : rows_read(&w->rows, &reading, r->texts.items, r->texts.count);
  if (!code && r->held_out) {
    const struct tune_reading held = {{w->model, 0, r->separate}, r->window};
    w->held.in_order = true;
    code = rows_read(&w->held, &held, &r->held_out, 1);
  }
  return code;
}

// A step reads no row twice.
static int check_rows(const struct tune_work *w, uint64_t each) {
  const struct tune_request *r = w->r;
  const size_t rows = w->rows.piece_count;
  const char *name = input_name(r->texts.items[0]);
  if (rows >= each) return EXIT_OK;
  if (rows == 1)
    return complain(EXIT_FAILED, "%s: too short: it has one row of %u tokens, and a step reads %llu rows; use -b 1%s",
                    name, w->rows.length, (unsigned long long)each, r->accumulate > 1 ? " --accumulate 1" : "");
  return complain(
      EXIT_FAILED,
      "%s: too short: it has %zu rows of at most %u tokens, and a step reads %llu rows; use a smaller --batch%s", name,
      rows, w->rows.length, (unsigned long long)each, r->accumulate > 1 ? " or --accumulate" : "");
}

// The number of steps, from --steps or --epochs.
static int plan(struct tune_work *w, struct tune_request *r) {
  const uint64_t each = (uint64_t)r->batch * r->accumulate;
  const int code = w->rows.task ? EXIT_OK : check_rows(w, each);
  if (code) return code;
  const double all = floor((double)r->epochs * (double)w->rows.piece_count + 0.5), steps = ceil(all / (double)each);
  if (!r->steps && !(steps >= 1 && steps <= UINT32_MAX))
    return complain(EXIT_USAGE, "--epochs %g gives %.0f steps; at least 1 and at most 4294967295 are possible",
                    r->epochs, steps);
  w->steps = r->steps ? r->steps : (uint64_t)steps;
  w->all_rows = r->steps ? r->steps * each : (uint64_t)all;
  if (r->warm_up > w->steps)
    return complain(EXIT_USAGE, "--warm-up %u is longer than the training of %llu step%s", r->warm_up,
                    (unsigned long long)w->steps, w->steps > 1 ? "s" : "");
  if (!r->warm_up) r->warm_up = w->steps >= 20 ? (uint32_t)(w->steps / 20) : 1;
  w->losses = must_resize(NULL, w->steps * sizeof *w->losses);
  w->norms = must_resize(NULL, w->steps * sizeof *w->norms);
  return EXIT_OK;
}

// ---------------------------------------------------------------- the work

// No output replaces the teacher.
static int check_teacher(const struct tune_request *r) {
  const char *const outputs[] = {r->out, r->adapter_out};
  for (int i = 0; i < 2; ++i)
    if (outputs[i] && same_file(r->teacher, outputs[i]))
      return complain(EXIT_FAILED, "%s: is the folder of --teacher; choose another output", outputs[i]);
  return EXIT_OK;
}

static int place_state(struct tune_work *w) {
  const struct tune_request *r = w->r;
  const char *path = r->state ? r->state : r->out ? r->out : r->adapter_out;
  size_t length = strlen(path);
  while (!r->state && length > 1 && platform_separator(path[length - 1])) --length;
  w->state = must_resize(NULL, length + sizeof ".state");
  sprintf(w->state, "%.*s%s", (int)length, path, r->state ? "" : ".state");
  if (r->resume && !file_there(w->state))
    return complain(EXIT_FAILED, "%s: no such file or folder; there is nothing to resume", w->state);
  if (!r->resume && !r->force && file_there(w->state))
    return complain(EXIT_FAILED, "%s: is there already: --resume goes on from it, --force begins anew", w->state);
  return output_check(w->state);
}

// Tokens of the longest row that a step or a measurement reads.
static uint32_t longest_row(const struct tune_work *w) {
  return w->held.length > w->rows.length ? w->held.length : w->rows.length;
}

// Plans the memory, opens the training, and reads the state with --resume.
static int create(struct tune_work *w, deltaic_tune_options o) {
  char *note = NULL;
  deltaic_tune_free(w->tune);
  w->tune = NULL;
  deltaic_status status = deltaic_tune_plan(w->model, &o, w->r->batch, longest_row(w) - 1, &w->planned);
  o.keep_bytes = w->planned.kept;
  if (!status) status = deltaic_tune_create(w->model, &o, &w->tune);
  if (!status && w->r->resume) status = deltaic_tune_load_state(w->tune, w->state, &note);
  int code = complain_status(status);
  if (!code && w->r->resume) code = tune_note_read(w, note);
  free(note);
  return code;
}

// As many layers are kept as before the state was saved, which gives the same bits; fewer if memory is short now.
static int resume(struct tune_work *w, deltaic_tune_options o) {
  int code = EXIT_OK;
  if (w->kept < w->planned.kept) {
    o.keep_bytes = w->kept;
    code = create(w, o);
  }
  if (!code && w->kept != w->planned.kept && !w->r->quiet)
    fprintf(stderr, "kept layers: %s now, %s before the state was saved; the last bits of the result may differ\n",
            text_bytes(w->planned.kept).text, text_bytes(w->kept).text);
  return code;
}

static int open_training(struct tune_work *w) {
  const struct tune_request *r = w->r;
  deltaic_tune_options o = DELTAIC_INIT(deltaic_tune_options);
  o.everything = r->everything || r->config;
  o.adapt = r->targets;
  o.whole = r->whole;
  o.rank = r->rank;
  o.alpha = (double)r->alpha;
  o.beta1 = (double)r->beta1;
  o.beta2 = (double)r->beta2;
  o.decay = (double)r->decay;
  o.clip = (double)r->clip;
  o.teacher = r->teacher;
  o.weight = (double)r->weight;
  o.temperature = (double)r->temperature;
  o.seed = r->seed;
  o.precision = engine_precision(&r->engine);
  int code = context_open(&r->engine, &w->engine.context);
  if (!code) code = engine_open_device(&r->engine, &w->engine);
  o.device = w->engine.device;
  o.keep_bytes = (uint64_t)r->keep_mib << 20;
  if (!code) code = create(w, o);
  return code || !r->resume ? code : resume(w, o);
}

static int write_result(struct tune_work *w) {
  const struct tune_request *r = w->r;
  deltaic_status status = DELTAIC_OK;
  if (r->out) status = deltaic_tune_save(w->tune, r->out, r->force);
  if (!status && r->adapter_out) status = deltaic_tune_save_adapter(w->tune, r->adapter_out, r->force);
  if (status) return tune_keep(w, status);
  if (file_there(w->state)) remove(w->state);
  return EXIT_OK;
}

// The report and the plot, after Ctrl-C too.
static int show(const struct tune_work *w, int code) {
  const struct tune_request *r = w->r;
  int shown = EXIT_OK;
  if (!w->tune) return code;
  if (r->as_json)
    shown = tune_json(w);
  else
    tune_print(w);
  if (!shown && r->plot && w->done) shown = tune_plot(w, r->plot);
  return shown ? shown : code;
}

static int merge(struct tune_work *w) {
  const int code = merged_make(&w->merged, w->r->model, w->r->adapter, w->r->out, w->r->quiet);
  w->model = w->merged.folder;
  return code;
}

static int train(struct tune_work *w, struct tune_request *r) {
  int code = r->teacher ? check_teacher(r) : EXIT_OK;
  if (!code && r->adapter) code = merged_check(r->adapter, r->out);
  if (!code) code = tune_start(w);
  if (!code && r->teacher) code = complain_status(deltaic_tune_check_teacher(w->model, r->teacher));
  if (r->out && !code) code = complain_status(deltaic_tune_check(w->model, r->out, r->force));
  if (r->adapter_out && !code) code = complain_status(deltaic_tune_check_adapter(w->model, r->adapter_out, r->force));
  if (!code) code = place_state(w);
  if (!code) code = read_rows(w);
  if (!code) code = plan(w, r);
  if (!code && r->adapter) code = merge(w);
  if (!code) code = open_training(w);
  if (!code) tune_print_plan(w);
  if (!code) code = tune_run(w);
  if (!code && !tune_stopped(w)) code = write_result(w);
  return code && code != EXIT_INTERRUPTED ? code : show(w, code);
}

int tune_merge(const struct tune_request *r) {
  interrupt_catch();
  int code = merged_check(r->adapter, r->out);
  if (!code) code = merged_write(r->model, r->adapter, r->out, r->force, r->quiet);
  return code ? code : tune_merged(r);
}

int tune_train(struct tune_request *r) {
  struct tune_work w = {.r = r, .model = r->model};
  interrupt_catch();
  int code = train(&w, r);
  deltaic_tune_free(w.tune);
  code = engine_close(&w.engine, code);
  merged_delete(&w.merged);
  rows_free(&w.rows);
  rows_free(&w.held);
  tune_start_end(&w);
  free(w.losses);
  free(w.norms);
  free(w.measured);
  free(w.state);
  return code;
}
