// validate_gradients: compares a model's gradients with those of a reference file, for `deltaic validate`. The file has
// tokens (rows, T + 1), each row read from a fresh state, and for tensors of the checkpoint grad.NAME, the gradient of
// the mean cross entropy, or of that and distillation from --teacher. It is in the plugin of the commands that need
// libdeltaic_prune.
#include "command.h"
#include "common.h"
#include "deltaic_tune.h"
#include "engine.h"
#include "options.h"
#include "precision.h"
#include "print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Limits of all gradients together and of each, as shares of their 2-norms, in float32 and fast.
static const struct limits {
  double whole, each; // each: times whole
} limits[2] = {{1e-5, 10}, {2e-3, 5}};
enum { WORST = 5 };

static const struct usage usage = {
    .name = "validate",
    .arguments = "[options] CHECKPOINT REFERENCE.safetensors",
    .summary = "Compares gradients with a reference's.",
    .examples = "",
    .most_arguments = 2,
};

struct row {
  const char *name; // of the tensor
  double error, size;
};

struct gradients {
  const char *checkpoint, *file, *teacher;
  double weight, temperature;
  double limit; // 0: by both precisions
  double each;  // times limit
  bool fast;
  struct engine engine;
  deltaic_tensors *tensors;
  deltaic_tune *tune;
  struct row *rows; // the largest relative error first
  size_t count;
  double loss, error, size; // error, size: 2-norms of all tensors together
};

static double relative(double error, double size) { return size > 0 ? error / size : error > 0 ? INFINITY : 0; }

// ---------------------------------------------------------------- the comparison

static int add_gradient(struct gradients *g) {
  deltaic_tensor_info info;
  deltaic_tune_batch batch = DELTAIC_INIT(deltaic_tune_batch);
  deltaic_tune_loss loss;
  if (!deltaic_tensors_find(g->tensors, "tokens", &info) || info.rank != 2 || info.shape[1] < 2)
    return complain(EXIT_FAILED, "%s: gradients need tokens (rows, T + 1)", g->file);
  int32_t *tokens = must_resize(NULL, info.count * sizeof *tokens);
  int code = complain_status(deltaic_tensors_read_integers(g->tensors, "tokens", 0, info.count, tokens));
  batch.tokens = tokens;
  batch.rows = (uint32_t)info.shape[0];
  batch.length = (uint32_t)info.shape[1] - 1;
  if (!code) code = complain_status(deltaic_tune_add(g->tune, &batch, 1, &loss));
  g->loss = code ? NAN : loss.ce + (g->teacher ? g->weight * loss.kd : 0);
  free(tokens);
  return code;
}

static int compare(struct gradients *g, const deltaic_tensor_info *info) {
  const size_t n = info->count;
  float *ours = must_resize(NULL, 2 * n * sizeof *ours), *theirs = ours + n;
  double error = 0, size = 0;
  const char *name = info->name + strlen("grad.");
  int code = complain_status(deltaic_tune_gradient(g->tune, name, ours, n));
  if (!code) code = complain_status(deltaic_tensors_read(g->tensors, info->name, 0, n, theirs));
  for (size_t i = 0; i < n && !code; ++i) {
    const double difference = (double)ours[i] - (double)theirs[i];
    error += difference * difference;
    size += (double)theirs[i] * (double)theirs[i];
  }
  free(ours);
  if (code) return code;
  g->rows[g->count++] = (struct row){name, sqrt(error), sqrt(size)};
  g->error = sqrt(g->error * g->error + error);
  g->size = sqrt(g->size * g->size + size);
  return EXIT_OK;
}

static int by_error(const void *a, const void *b) {
  const struct row *x = a, *y = b;
  const double p = relative(x->error, x->size), q = relative(y->error, y->size);
  return p > q ? -1 : p < q ? 1 : strcmp(x->name, y->name);
}

// The limit is the larger of those of our precision and of the reference's.
static int find_limit(struct gradients *g) {
  const char *texts[] = {deltaic_tensors_metadata(g->tensors, "precision"),
                         deltaic_tensors_metadata(g->tensors, "computed")};
  enum precision precision = precision_of(texts[0]);
  deltaic_model_info info;
  if (precision == PRECISION_UNKNOWN) precision = precision_of(texts[1]);
  const int code = complain_status(deltaic_model_inspect(NULL, g->checkpoint, NULL, &info, NULL));
  if (code) return code;
  const double theirs = precision_limit(precision, info.layers);
  g->limit = fmax(limits[g->fast].whole, theirs);
  if (g->limit > limits[0].whole) g->each = limits[1].each;
  return EXIT_OK;
}

// Refuses tensors that would not be compared.
static int check_tensors(const struct gradients *g) {
  for (uint64_t i = 0; i < deltaic_tensors_count(g->tensors); ++i) {
    deltaic_tensor_info info;
    const int code = complain_status(deltaic_tensors_at(g->tensors, i, &info));
    if (code) return code;
    if (strncmp(info.name, "grad.", 5) && strcmp(info.name, "tokens"))
      return complain(EXIT_FAILED, "%s: holds gradients, so it must not hold tensor %s", g->file, info.name);
  }
  return EXIT_OK;
}

static int open_all(struct gradients *g, const struct engine_options *options) {
  deltaic_tune_options o = DELTAIC_INIT(deltaic_tune_options);
  deltaic_tune_info info;
  int code = precision_check(options);
  if (!code) code = context_open(options, &g->engine.context);
  if (!code) code = engine_open_device(options, &g->engine);
  if (code) return code;
  o.everything = true;
  o.teacher = g->teacher;
  o.weight = g->weight;
  o.temperature = g->temperature;
  o.threads = options->threads;
  o.device = g->engine.device;
  o.precision = engine_precision(options);
  code = complain_status(deltaic_tune_create(g->checkpoint, &o, &g->tune));
  if (code) return code;
  deltaic_tune_get_info(g->tune, &info);
  g->fast = info.fast;
  g->each = limits[info.fast].each;
  return g->limit > 0 ? EXIT_OK : find_limit(g);
}

static int compare_all(struct gradients *g, const struct engine_options *options) {
  int code = complain_status(deltaic_tensors_open(g->file, &g->tensors));
  if (!code) code = check_tensors(g);
  if (!code) code = open_all(g, options);
  if (!code) code = add_gradient(g);
  if (code) return code;
  const uint64_t all = deltaic_tensors_count(g->tensors);
  g->rows = must_resize(NULL, all * sizeof *g->rows);
  for (uint64_t i = 0; i < all && !code; ++i) {
    deltaic_tensor_info info;
    code = complain_status(deltaic_tensors_at(g->tensors, i, &info));
    if (!code && !strncmp(info.name, "grad.", 5)) code = compare(g, &info);
  }
  qsort(g->rows, g->count, sizeof *g->rows, by_error);
  return code;
}

// ---------------------------------------------------------------- the report

static struct text number(double x) {
  struct text out;
  snprintf(out.text, sizeof out.text, "%.1e", x);
  return out;
}

static void print(const struct gradients *g, bool whole) {
  struct table t;
  table_begin(&t, "lrr");
  table_row(&t, "gradient", "relative error", "limit");
  for (size_t i = 0; i < g->count && (whole || i < WORST); ++i)
    table_row(&t, g->rows[i].name, number(relative(g->rows[i].error, g->rows[i].size)).text,
              number(g->each * g->limit).text);
  table_row(&t, "all together", number(relative(g->error, g->size)).text, number(g->limit).text);
  table_end(&t, 0);
  printf("\nloss         %.6f\ncompared     %zu tensors\ndevice       %s, %s\n", g->loss, g->count,
         g->engine.device_info.name, g->fast ? "fast: products of f16" : "float32");
}

static int print_json(const struct gradients *g, bool passes) {
  json_t *rows = json_array();
  for (size_t i = 0; i < g->count; ++i)
    json_array_append_new(rows, json_pack("{s:s, s:o}", "name", g->rows[i].name, "relative_error",
                                          number_json(relative(g->rows[i].error, g->rows[i].size))));
  return json_finish(json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "checkpoint", text_json(g->checkpoint),
                               "reference", text_json(g->file), "loss", number_json(g->loss), "relative_error",
                               number_json(relative(g->error, g->size)), "limit", number_json(g->limit), "gradients",
                               rows, "verdict", passes ? "pass" : "fail"));
}

static int report(const struct gradients *g, bool whole, bool as_json) {
  const struct row *worst = &g->rows[0];
  const double one = relative(worst->error, worst->size), all = relative(g->error, g->size);
  const bool first = one <= g->each * g->limit, passes = first && all <= g->limit;
  int code = as_json ? print_json(g, passes) : EXIT_OK;
  if (!as_json) print(g, whole);
  if (code || passes) return code;
  if (!first)
    return complain(EXIT_FAILED, "%s: the gradient of %s is off by %.1e of its norm, limit %.1e", g->checkpoint,
                    worst->name, one, g->each * g->limit);
  return complain(EXIT_FAILED, "%s: all gradients together are off by %.1e of their norm, limit %.1e", g->checkpoint,
                  all, g->limit);
}

int command_validate_gradients(int argc, char **argv) {
  struct engine_options engine = {.device = "cpu", .rule = "auto", .precision = "float32"};
  bool whole = false, as_json = false;
  const char *teacher = NULL;
  float limit = 0, weight = 1, temperature = 2;
  struct arguments arguments;
  int code;
  const struct option options[] = {
      FLAG('l', "layers", &whole, "a row for each tensor"),
      NUMBER(0, "limit", "X", &limit, 0, "limit of all gradients together; 0: by both precisions"),
      TEXT(0, "teacher", "DIR", &teacher, "the teacher model in the reference's loss"),
      NUMBER(0, "weight", "X", &weight, 1e6, "weight of the teacher's part of the loss"),
      NUMBER(0, "temperature", "X", &temperature, 1e6, "temperature of both models' predictions in that part"),
      TEXT('m', "model", "DIR", &engine.model, "the checkpoint"),
      TEXT('d', "device", "WHICH", &engine.device, "cpu, best, or one from 'deltaic devices'"),
      COUNT('t', "threads", "N", &engine.threads, 0, 1024, "threads of the CPU; 0: all cores"),
      TEXT(0, "precision", "WHICH", &engine.precision, "arithmetic: float32 or fast"),
      TEXT(0, "cache-dir", "DIR", &engine.cache_dir, "folder for compiled pipelines"),
      FLAG(0, "validate", &engine.validate, "run under the Vulkan validation layer"),
      FLAG('q', "quiet", &engine.quiet, "no progress"),
      FLAG(0, "json", &as_json, "print one JSON object"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (!teacher && option_given(&arguments, "weight")) return complain(EXIT_USAGE, "--weight goes with --teacher");
  if (!teacher && option_given(&arguments, "temperature"))
    return complain(EXIT_USAGE, "--temperature goes with --teacher");
  if (!(weight > 0)) return complain(EXIT_USAGE, "--weight must be above 0"); // the library takes 0 for its default
  if (!(temperature > 0)) return complain(EXIT_USAGE, "--temperature must be above 0");
  struct gradients g = {.checkpoint = engine.model ? engine.model : arguments.items[0],
                        .file = arguments.items[arguments.count - 1],
                        .teacher = teacher,
                        .weight = (double)weight,
                        .temperature = (double)temperature,
                        .limit = (double)limit};
  code = compare_all(&g, &engine);
  if (!code) code = report(&g, whole, as_json);
  deltaic_tune_free(g.tune);
  deltaic_tensors_close(g.tensors);
  code = engine_close(&g.engine, code);
  free(g.rows);
  return code;
}
