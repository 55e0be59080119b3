// engine: opens the context, device, model and session that a command's options request.
#include "engine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char default_model[] = "models/novelist";

const char *model_path(const char *option) {
  if (option) return option;
  if (file_there("models/novelist/config.json")) return default_model;
  complain(EXIT_USAGE, "no checkpoint: name its folder with --model (the default, %s, is not here)", default_model);
  return NULL;
}

// ---------------------------------------------------------------- context

static void log_error(void *user, deltaic_log_level level, const char *line) {
  (void)user;
  if (level != DELTAIC_LOG_ERROR) return;
  progress_clear();
  fprintf(stderr, "deltaic: %s\n", line);
}

static void log_warning(void *user, deltaic_log_level level, const char *line) {
  log_error(user, level, line);
  if (level != DELTAIC_LOG_WARNING) return;
  progress_clear();
  fprintf(stderr, "deltaic: warning: %s\n", line);
}

int context_open(const struct engine_options *options, deltaic_context **out) {
  deltaic_context_options o = DELTAIC_INIT(deltaic_context_options);
  o.log = options->quiet ? log_error : log_warning;
  o.validate = options->validate;
  o.cache_dir = options->cache_dir;
  return complain_status(deltaic_context_create(&o, out));
}

// ---------------------------------------------------------------- devices

const char *device_kind_text(deltaic_device_kind kind) {
  switch (kind) {
  case DELTAIC_DEVICE_DISCRETE: return "discrete GPU";
  case DELTAIC_DEVICE_INTEGRATED: return "integrated GPU";
  case DELTAIC_DEVICE_VIRTUAL: return "virtual GPU";
  case DELTAIC_DEVICE_SOFTWARE: return "software";
  case DELTAIC_DEVICE_CPU: return "CPU";
  }
  return "unknown";
}

struct text uuid_text(const uint8_t uuid[16]) {
  struct text out;
  for (size_t i = 0; i < 16; ++i) snprintf(out.text + 2 * i, 3, "%02x", uuid[i]);
  return out;
}

static bool contains(const char *text, const char *part) {
  size_t length = strlen(part);
  for (; *text; ++text) {
    size_t i = 0;
    while (i < length && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i])) ++i;
    if (i == length) return true;
  }
  return false;
}

// Returns the first, and so the best, device whose name, driver or kind contains `part`, or whose UUID it is.
static bool find_part(const deltaic_device_info *infos, size_t count, const char *part, int32_t *index) {
  if (!strcmp(part, "lavapipe")) part = "llvmpipe"; // lavapipe reports this name
  for (size_t i = 0; i < count; ++i) {
    const deltaic_device_info *d = &infos[i];
    if (!contains(d->name, part) && !contains(d->driver, part) && !contains(device_kind_text(d->kind), part) &&
        strcmp(uuid_text(d->uuid).text, part) != 0)
      continue;
    *index = d->index;
    return true;
  }
  return false;
}

static bool find_number(const deltaic_device_info *infos, size_t count, const char *digits, int32_t *index) {
  char *end;
  long number = strtol(digits, &end, 10);
  for (size_t i = 0; i < count && !*end; ++i)
    if (infos[i].index == number) {
      *index = infos[i].index;
      return true;
    }
  return false;
}

static int device_index(deltaic_context *context, const char *which, int32_t *index) {
  enum { MOST = 64 };
  deltaic_device_info infos[MOST];
  size_t count;
  *index = DELTAIC_DEVICE_BEST;
  if (!strcmp(which, "best")) return EXIT_OK;
  *index = DELTAIC_DEVICE_INDEX_CPU;
  if (!strcmp(which, "cpu")) return EXIT_OK;
  deltaic_status status = deltaic_devices(context, infos, MOST, &count);
  if (status) return complain_status(status);
  if (count > MOST) count = MOST;
  bool number = strlen(which) < 10 && which[strspn(which, "0123456789")] == 0;
  if (*which && (number ? find_number : find_part)(infos, count, which, index)) return EXIT_OK;
  return complain(EXIT_DEVICE, "there is no device \"%s\"; 'deltaic devices' lists them", which);
}

static bool show_compiling(void *user, uint64_t done, uint64_t total) {
  struct engine *engine = user;
  (void)total;
  progress_count(&engine->compiling, done);
  return engine->keeps_on || !interrupted();
}

struct moment engine_now(const struct engine *engine) {
  return (struct moment){time_now(), deltaic_device_compile_seconds(engine->device)};
}

double engine_seconds(const struct engine *engine, struct moment since) {
  const struct moment now = engine_now(engine);
  progress_clear();
  return now.at - since.at - (now.compiled - since.compiled);
}

int engine_open_device(const struct engine_options *options, struct engine *engine) {
  deltaic_device_options o = DELTAIC_INIT(deltaic_device_options);
  o.threads = options->threads;
  o.background = options->background;
  o.compiling = show_compiling;
  o.compiling_user = engine;
  progress_begin(&engine->compiling, "compiling for this device:", "pipelines", options->quiet);
  int code = device_index(engine->context, options->device, &o.index);
  if (code) return code;
  code = complain_status(deltaic_device_open(engine->context, &o, &engine->device));
  if (!code) deltaic_device_get_info(engine->device, &engine->device_info);
  return code;
}

const char *engine_device_text(const struct engine *engine) {
  static char text[520];
  const deltaic_device_info *d = &engine->device_info;
  snprintf(text, sizeof text, *d->driver ? "%s, %s" : "%s", d->name, d->driver);
  return text;
}

// ---------------------------------------------------------------- model

static bool show_upload(void *user, uint64_t done, uint64_t total) {
  progress_show(user, done, total);
  return !interrupted();
}

deltaic_precision engine_precision(const struct engine_options *options) {
  return strcmp(options->precision, "float32") ? DELTAIC_PRECISION_FAST : DELTAIC_PRECISION_FLOAT32;
}

deltaic_rule engine_rule(const struct engine_options *options) {
  if (!strcmp(options->rule, "recurrent")) return DELTAIC_RULE_RECURRENT;
  return strcmp(options->rule, "chunk") ? DELTAIC_RULE_AUTO : DELTAIC_RULE_CHUNK;
}

deltaic_session_options session_options(const struct engine_options *options) {
  deltaic_session_options out = DELTAIC_INIT(deltaic_session_options);
  out.context = options->context;
  out.batch = options->batch;
  out.sequences = options->sequences;
  out.rule = engine_rule(options);
  out.precision = engine_precision(options);
  return out;
}

int engine_open_model(const struct engine_options *options, const char *path, struct engine *engine) {
  struct progress progress;
  deltaic_model_options o = DELTAIC_INIT(deltaic_model_options);
  progress_begin(&progress, "loading", "B", options->quiet);
  o.progress = show_upload;
  o.progress_user = &progress;
  o.attention_window = options->attention_window;
  o.adapter = options->adapter;
  deltaic_status status = deltaic_model_open(engine->device, path, &o, &engine->model);
  progress_clear();
  if (!status) deltaic_model_get_info(engine->model, &engine->model_info);
  return complain_status(status);
}

int precision_check(const struct engine_options *options) {
  if (!strcmp(options->precision, "fast") || !strcmp(options->precision, "float32")) return EXIT_OK;
  return complain(EXIT_USAGE, "--precision takes fast or float32, not \"%s\"", options->precision);
}

// The model that was last inspected. A command checks a model, its tokenizer, and then opens it, and a GGUF file's keys
// can take a tenth of a second to read.
static struct {
  char path[1024];
  deltaic_model_info info;
} inspected;

int model_check(const char *path) {
  if (inspected.path[0] && !strcmp(path, inspected.path)) return EXIT_OK;
  inspected.path[0] = 0;
  const int code = complain_status(deltaic_model_inspect(NULL, path, NULL, &inspected.info, NULL));
  if (!code && strlen(path) < sizeof inspected.path) strcpy(inspected.path, path);
  return code;
}

int engine_open(const struct engine_options *options, struct engine *engine) {
  const char *path = model_path(options->model);
  *engine = (struct engine){0};
  if (!path) return EXIT_USAGE;
  if (precision_check(options)) return EXIT_USAGE;
  interrupt_catch();
  int code = model_check(path);
  if (!code) code = context_open(options, &engine->context);
  if (!code) code = engine_open_device(options, engine);
  if (!code) code = engine_open_model(options, path, engine);
  return code;
}

int engine_close(struct engine *engine, int code) {
  uint64_t errors = engine->context ? deltaic_context_validation_errors(engine->context) : 0;
  interrupt_watch(NULL);
  deltaic_model_close(engine->model);
  deltaic_device_close(engine->device);
  deltaic_context_free(engine->context);
  *engine = (struct engine){0};
  if (code || !errors) return code;
  return complain(EXIT_FAILED, "the validation layer reported %llu errors", (unsigned long long)errors);
}

int session_create(const struct engine *engine, const struct engine_options *options, deltaic_session **out) {
  deltaic_session_options o = session_options(options);
  return complain_status(deltaic_session_create(engine->model, &o, out));
}

// ---------------------------------------------------------------- tokenizer

int tokenizer_open(const char *model, deltaic_tokenizer **out) {
  int code = complain_status(deltaic_tokenizer_open(model, out));
  if (!code) code = model_check(model);
  if (code || deltaic_tokenizer_size(*out) <= inspected.info.vocabulary) return code;
  return complain(EXIT_FAILED, "%s: the tokenizer has ids up to %d, but the model's vocabulary has %d tokens", model,
                  deltaic_tokenizer_size(*out) - 1, inspected.info.vocabulary);
}

static int complain_text(deltaic_status status, const char *where) {
  if (status != DELTAIC_INVALID_ARGUMENT || !where) return complain_status(status);
  return complain(EXIT_FAILED, "%s: %s", where, deltaic_last_error());
}

int text_encode(const deltaic_tokenizer *tokenizer, const char *text, size_t bytes, const char *where, bool special,
                int32_t **ids, size_t *count) {
  size_t needed = 0;
  deltaic_status status = deltaic_tokenizer_encode(tokenizer, text, bytes, special, NULL, 0, &needed);
  if (status) return complain_text(status, where);
  int32_t *out = must_resize(NULL, needed * sizeof *out);
  status = deltaic_tokenizer_encode(tokenizer, text, bytes, special, out, needed, count);
  if (status)
    free(out);
  else
    *ids = out;
  return complain_text(status, where);
}
