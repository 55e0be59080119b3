// engine.h: opens a model on a device as the command's options say.
#ifndef ENGINE_H
#define ENGINE_H
#include "common.h"
#include "options.h" // the kinds in ENGINE_OPTIONS
#include "print_numbers.h"

// Options of every command that uses a model; add ENGINE_OPTIONS(e) to its table.
struct engine_options {
  const char *model, *device, *cache_dir, *adapter;
  const char *rule; // bench: the algorithm of the delta rule for prompts
  const char *precision;
  uint32_t threads, context, batch;
  uint32_t attention_window; // eval, perplexity; 0: the config's value
  uint32_t sequences;        // bench, eval, info: number of sequences; 0: 1, or for eval the largest useful number
  bool quiet, validate, background;
};
#define ENGINE_DEFAULTS                                                                                                \
  { .device = "best", .rule = "auto", .precision = "fast" }
// Defaults of commands that compare numbers.
#define ENGINE_EXACT                                                                                                   \
  { .device = "best", .rule = "auto", .precision = "float32" }
#define ENGINE_FOLDER "folder with config.json, model.safetensors and tokenizer.json"
#define ENGINE_MODEL ENGINE_FOLDER ", or a GGUF file"
#define ENGINE_DEFAULT_MODEL "; without it, models/novelist below the current folder"
#define ENGINE_OPTIONS(e) ENGINE_OPTIONS_MODEL(e, ENGINE_MODEL ENGINE_DEFAULT_MODEL), ADAPTER_OPTION(e)
#define ENGINE_OPTIONS_MODEL(e, what)                                                                               \
  HEADING("model and device"),                                                                                         \
      TEXT('m', "model", "DIR", &(e)->model, what),                                                                    \
      TEXT('d', "device", "WHICH", &(e)->device,                                                                       \
           "best, cpu, or a number, a part of a name or a UUID from 'deltaic devices'"),                               \
      COUNT('t', "threads", "N", &(e)->threads, 0, 1024, "threads of the CPU; 0: all cores"),                          \
      COUNT(0, "batch", "N", &(e)->batch, 0, 4096,                                                                     \
            "most tokens computed at once in a prompt; 0: chosen for the device"),                                     \
      TEXT(0, "precision", "WHICH", &(e)->precision,                                                                   \
           "arithmetic: float32, or fast (rounds prompts to 16 bits where the device has matrix units, and the "       \
           "inputs of "                                                                                                \
           "quantized weights to integers)"),                                                                          \
      TEXT(0, "cache-dir", "DIR", &(e)->cache_dir,                                                                     \
           "folder for compiled pipelines; \"\": none; without it, deltaic in $XDG_CACHE_HOME or ~/.cache"),           \
      FLAG(0, "background", &(e)->background, "let other programs use the device first, if its driver allows that"),   \
      FLAG(0, "validate", &(e)->validate,                                                                              \
           "run under the Vulkan validation layer, if it is installed; its errors make the exit code 1")

#define ADAPTER_OPTION(e)                                                                                              \
  ONCE(0, "adapter", "DIR", &(e)->adapter,                                                                             \
       "folder with LoRA adapters in PEFT's format; the model may be a folder or a GGUF file")

#define ATTENTION_WINDOW_OPTION(e)                                                                                     \
  COUNT(0, "attention-window", "N", &(e)->attention_window, 0, INT32_MAX,                                              \
        "softmax-attention layers see the last N tokens only; 0: as the config says")

struct engine {
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_device_info device_info;
  deltaic_model_info model_info;
  struct progress compiling;
  bool keeps_on; // Ctrl-C does not stop the compiling of pipelines: work that has begun goes on
};

// Each returns an exit code and prints a message if it is not EXIT_OK. engine_close accepts a partly opened engine and
// turns EXIT_OK into EXIT_FAILED if the validation layer found errors. model_check checks a checkpoint without a
// device.
int model_check(const char *path);
int context_open(const struct engine_options *options, deltaic_context **out);
int engine_open(const struct engine_options *options, struct engine *out);
int precision_check(const struct engine_options *options);
deltaic_precision engine_precision(const struct engine_options *options);
deltaic_rule engine_rule(const struct engine_options *options);
int engine_close(struct engine *engine, int code);
// Opens only the device of an engine whose context is open.
int engine_open_device(const struct engine_options *options, struct engine *engine);
// And the model, on its device.
int engine_open_model(const struct engine_options *options, const char *path, struct engine *engine);
deltaic_session_options session_options(const struct engine_options *options);
int session_create(const struct engine *engine, const struct engine_options *options, deltaic_session **out);
int tokenizer_open(const char *model, deltaic_tokenizer **out);
// Sets *ids, which the caller frees. A NUL is an ordinary character. where: the text's file for a message, or NULL.
int text_encode(const deltaic_tokenizer *tokenizer, const char *text, size_t bytes, const char *where, bool special,
                int32_t **ids, size_t *count);

// Returns the folder of the option, or the default one. It prints a message and returns NULL if there is none.
const char *model_path(const char *option);
struct text uuid_text(const uint8_t uuid[16]); // 32 digits, as 'deltaic devices' prints them
const char *device_kind_text(deltaic_device_kind kind);
// A point in time, and the seconds that the device has spent on compiling by then.
struct moment {
  double at, compiled;
};
struct moment engine_now(const struct engine *engine);
// Seconds since then, without those of compiling. Clears the progress line.
double engine_seconds(const struct engine *engine, struct moment since);
// Returns e.g. "CPU (2 threads)" or "llvmpipe (LLVM 15.0.6, 256 bits), llvmpipe Mesa 22.3.6".
const char *engine_device_text(const struct engine *engine);
#endif
