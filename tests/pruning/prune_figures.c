// prune_figures: what pruning costs, on tokens from files: the figures of docs/pruning.md. Run by hand.
//
//   prune_figures MODEL EVAL[:TENSOR] CALIBRATION[:TENSOR] WHAT...
//
// The tensors (windows, tokens) are read as they are, each window from a fresh state. WHAT, each prints a line:
//   none                     the model as it is
//   METHOD RATIO[+OPTION]... options: refit, ridge=X, keys, queries, like, adversarial, recover
//                            (on the tokens of the file that RECOVER names), rate=X, steps=N, seed=N
//   set:FILE:TENSOR NAME     published channels, counted over all heads: (layers, heads * keep)
#include "deltaic_prune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static deltaic_pruning *pruning; // NULL: none

static void remove_pruned(void) { // also when the program ends by exit()
  deltaic_pruning_free(pruning);
  pruning = NULL;
}

static void ok(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", deltaic_last_error());
  exit(1);
}

struct windows {
  int32_t *tokens;
  size_t count, length;
};

static int32_t *read_tensor(const char *file, const char *tensor, deltaic_tensor_info *info) {
  deltaic_tensors *t;
  ok(deltaic_tensors_open(file, &t));
  if (!deltaic_tensors_find(t, tensor, info)) fprintf(stderr, "%s: no %s\n", file, tensor), exit(1);
  int32_t *out = malloc(info->count * sizeof *out);
  ok(deltaic_tensors_read_integers(t, tensor, 0, info->count, out));
  deltaic_tensors_close(t);
  return out;
}

static struct windows read_windows(const char *name, const char *tensor) {
  char file[512];
  deltaic_tensor_info info;
  snprintf(file, sizeof file, "%s", name);
  char *colon = strrchr(file, ':');
  if (colon) *colon = 0, tensor = name + (colon - file) + 1;
  struct windows w = {.tokens = read_tensor(file, tensor, &info)};
  w.count = info.shape[0];
  w.length = info.shape[1];
  return w;
}

static double nll(deltaic_device *device, const char *path, const struct windows *w) {
  deltaic_model *model;
  deltaic_model_info info;
  deltaic_session *session;
  double sum = 0;
  ok(deltaic_model_open(device, path, NULL, &model));
  deltaic_model_get_info(model, &info);
  ok(deltaic_session_create(model, NULL, &session));
  size_t V = (size_t)info.vocabulary;
  float *logits = malloc(w->length * V * sizeof *logits);
  for (size_t i = 0; i < w->count; i++) {
    const int32_t *tokens = w->tokens + i * w->length;
    ok(deltaic_session_reset(session));
    ok(deltaic_session_eval(session, tokens, w->length - 1, DELTAIC_LOGITS_ALL, logits));
    for (size_t t = 0; t + 1 < w->length; t++) {
      double most = -INFINITY, all = 0;
      for (size_t v = 0; v < V; v++) most = fmax(most, logits[t * V + v]);
      for (size_t v = 0; v < V; v++) all += exp(logits[t * V + v] - most);
      sum += most + log(all) - logits[t * V + (size_t)tokens[t + 1]];
    }
  }
  free(logits);
  deltaic_session_free(session);
  deltaic_model_close(model);
  return sum / (double)(w->count * (w->length - 1));
}

struct figures {
  const char *path;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_statistics *statistics;
  struct windows eval, text;
};

static deltaic_selection *select_one(struct figures *f, const char *method, const char *what) {
  deltaic_select_options o = DELTAIC_INIT(deltaic_select_options);
  deltaic_selection *s;
  deltaic_prune_method found;
  o.method = method;
  o.cut = atof(what);
  if (strstr(what, "+keys")) o.side = DELTAIC_PRUNE_KEYS;
  if (strstr(what, "+queries")) o.side = DELTAIC_PRUNE_QUERIES;
  o.like_reference = strstr(what, "+like");
  o.adversarial = strstr(what, "+adversarial");
  o.rows = o.like_reference && deltaic_prune_method_find(method, &found) && found.rows;
  ok(deltaic_select(f->path, f->statistics, &o, &s));
  return s;
}

static deltaic_selection *select_set(struct figures *f, const char *set) {
  char file[512];
  deltaic_tensor_info info;
  deltaic_selection *s;
  deltaic_model_info m;
  deltaic_model_get_info(f->model, &m);
  snprintf(file, sizeof file, "%s", set + 4);
  char *tensor = strrchr(file, ':');
  *tensor++ = 0;
  int32_t *kept = read_tensor(file, tensor, &info);
  int32_t keep = (int32_t)info.shape[1] / m.heads;
  for (size_t i = 0; i < info.count; i++) kept[i] -= (int32_t)(i / (size_t)keep) % m.heads * m.key_size;
  for (size_t i = 0; i < info.count; i += (size_t)keep) // ascending within a head
    for (int32_t a = 1; a < keep; a++)
      for (int32_t b = a; b > 0 && kept[i + b] < kept[i + b - 1]; b--) {
        int32_t swap = kept[i + b];
        kept[i + b] = kept[i + b - 1];
        kept[i + b - 1] = swap;
      }
  ok(deltaic_select_given(f->path, NULL, "given", (uint32_t)keep, kept, info.count, &s));
  free(kept);
  return s;
}

static void refit(struct figures *f, const char *what) {
  deltaic_refit_options o = DELTAIC_INIT(deltaic_refit_options);
  const char *ridge = strstr(what, "+ridge=");
  if (ridge) o.ridge = atof(ridge + 7);
  o.window = (uint32_t)f->text.length;
  ok(deltaic_pruning_refit(pruning, f->device, f->model, f->text.tokens, f->text.count * f->text.length, &o, NULL,
                           NULL));
}

// RECOVER names a file of tokens (steps, texts, tokens); it is the variable's, for two more arguments would be in the
// way.
static void recover(const char *what) {
  deltaic_recover_options o = DELTAIC_INIT(deltaic_recover_options);
  deltaic_tensor_info info;
  const char *file = getenv("RECOVER"), *rate = strstr(what, "+rate="), *steps = strstr(what, "+steps="),
             *seed = strstr(what, "+seed=");
  int32_t *tokens = read_tensor(file ? file : "(RECOVER is not set)", "tokens", &info);
  o.batch = (uint32_t)info.shape[1];
  o.window = (uint32_t)info.shape[2];
  if (rate) o.rate = atof(rate + 6);
  if (seed) o.seed = strtoull(seed + 6, NULL, 10);
  const size_t count = (steps ? strtoull(steps + 7, NULL, 10) : info.shape[0]) * o.batch * o.window;
  ok(deltaic_pruning_recover(pruning, tokens, count < info.count ? count : info.count, &o, NULL, NULL));
  free(tokens);
}

static void figure(struct figures *f, const char *method, const char *what) {
  deltaic_selection *s = strncmp(method, "set:", 4) ? select_one(f, method, what) : select_set(f, method);
  char out[64];
  snprintf(out, sizeof out, "prune_figures-%ld", (long)getpid());
  ok(deltaic_pruning_begin(f->path, s, out, NULL, &pruning));
  if (strstr(what, "+refit")) refit(f, what);
  if (strstr(what, "+recover")) recover(what);
  printf("%-10s %-40s %.6f\n", strncmp(method, "set:", 4) ? method : strrchr(method, ':') + 1, what,
         nll(f->device, deltaic_pruning_path(pruning), &f->eval));
  fflush(stdout);
  remove_pruned();
  deltaic_selection_free(s);
}

int main(int argc, char **argv) {
  deltaic_context *context;
  deltaic_device_options cpu = DELTAIC_INIT(deltaic_device_options);
  deltaic_calibration_options c = DELTAIC_INIT(deltaic_calibration_options);
  struct figures f = {0};
  if (argc < 5) return fprintf(stderr, "usage: prune_figures MODEL EVAL CALIBRATION WHAT...\n"), 2;
  f.path = argv[1];
  f.eval = read_windows(argv[2], "eval_tokens");
  f.text = read_windows(argv[3], "tokens");
  atexit(remove_pruned);
  cpu.index = DELTAIC_DEVICE_INDEX_CPU;
  ok(deltaic_context_create(NULL, &context));
  ok(deltaic_device_open(context, &cpu, &f.device));
  ok(deltaic_model_open(f.device, f.path, NULL, &f.model));
  c.window = (uint32_t)f.text.length;
  c.unit = true;
  c.rows = 5000;
  c.rows_together = true;
  ok(deltaic_statistics_create(f.path, &c, &f.statistics));
  ok(deltaic_calibrate(f.statistics, f.model, f.text.tokens, f.text.count * f.text.length, NULL, NULL));
  for (int i = 4; i < argc; i += strcmp(argv[i], "none") ? 2 : 1) {
    if (!strcmp(argv[i], "none"))
      printf("%-10s %-40s %.6f\n", "none", "", nll(f.device, f.path, &f.eval));
    else if (i + 1 < argc)
      figure(&f, argv[i], argv[i + 1]);
  }
  deltaic_statistics_free(f.statistics);
  deltaic_model_close(f.model);
  deltaic_device_close(f.device);
  deltaic_context_free(context);
  free(f.eval.tokens);
  free(f.text.tokens);
  return 0;
}
