// validate: runs the tokens of a reference file through a model and compares every number that the file has.
#include "validate.h"
#include "command.h"
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "validate",
    .arguments = "[options] CHECKPOINT REFERENCE.safetensors",
    .summary = "Runs a reference's tokens through a model and compares everything that the reference holds: logits, "
               "mixer outputs and other activations of each layer, greedy choices, likelihood.",
    .text =
        "The limits follow from the precision of the reference, which its metadata name: a relative RMS of 5e-6 for "
        "float64, 1e-5 for float32, 1e-3 for float16 and 6e-3 for bfloat16. With --precision fast it is 2e-3 instead "
        "of the first two. If the file has both a precise reference and another program's numbers, for example fla's "
        "on CUDA, the table shows both distances from the precise one, and ours must be the smaller.\n\n"
        "If the file has gradients (grad.NAME for tensors of the checkpoint), they are compared with those that "
        "--device computes, by default the CPU. The limits are relative to the norm: 1e-5 for all together and ten "
        "times that for each; with --precision fast on matrix units, 2e-3 and 1e-2. If the reference's precision has "
        "a larger limit, that is the limit for all together, and five times that for each. With --teacher the loss "
        "includes distillation.\n\n"
        "docs/validate.md describes the file; tests/vectors/dump_fla.py makes one from any fla checkpoint.\n\n"
        "The exit code is 0 if everything is within its limit. Otherwise it is 1, and a sentence names the first "
        "tensor "
        "that is not.",
    .examples = "  deltaic validate models/mine reference.safetensors\n"
                "  deltaic validate models/mine reference.safetensors --device lavapipe --pieces 0,1,64\n"
                "  deltaic validate models/mine reference.safetensors --layers --plot error.png\n"
                "  deltaic validate models/mine reference.safetensors --json | jq .verdict\n",
    .most_arguments = 2,
};

struct request {
  struct engine_options engine;
  const char *plot;
  struct count_list pieces;
  const char *teacher; // of gradients, as weight and temperature
  float limit, weight, temperature;
  bool layers, as_json;
};

// ---------------------------------------------------------------- the command

static int compare(struct validation *v, const struct request *r) {
  int code = complain_status(deltaic_tensors_open(v->file, &v->tensors));
  if (!code) code = engine_open(&r->engine, &v->engine);
  if (code) return code;
  v->layers = v->engine.model_info.layers;
  v->vocabulary = v->engine.model_info.vocabulary;
  code = reference_open(v, &r->pieces);
  struct engine_options options = r->engine;
  if (!code) code = run_tensors(v, &options);
  if (!code) code = run_greedy(v, &options);
  if (!code) code = run_nll(v, &options);
  if (!code && !v->count && !v->greedy.count && !v->nll.there)
    code = complain(EXIT_FAILED, "%s: holds nothing that could be compared", v->file);
  return code;
}

static bool has_gradients(const char *file) {
  deltaic_tensors *tensors = NULL;
  deltaic_tensor_info info;
  bool found = false;
  if (deltaic_tensors_open(file, &tensors)) return false; // whose message comes when it is opened again
  for (uint64_t i = 0; !found && i < deltaic_tensors_count(tensors); ++i)
    found = !deltaic_tensors_at(tensors, i, &info) && !strncmp(info.name, "grad.", 5);
  deltaic_tensors_close(tensors);
  return found;
}

// A file of gradients: other options than these would have no effect.
static int compare_gradients(const struct arguments *arguments, int argc, char **argv) {
  static const char *const taken[] = {"layers",    "limit",     "threads",  "model",   "quiet",  "json",       "device",
                                      "precision", "cache-dir", "validate", "teacher", "weight", "temperature"};
  for (size_t i = 0; i < arguments->given_count; ++i) {
    bool known = false;
    for (size_t k = 0; k < sizeof taken / sizeof *taken; ++k) known |= !strcmp(arguments->given[i], taken[k]);
    if (!known)
      return complain(EXIT_USAGE, "%s: holds gradients: it takes no --%s", arguments->items[arguments->count - 1],
                      arguments->given[i]);
  }
  return command_validate_gradients(argc, argv);
}

static int report(const struct validation *v, const struct request *r) {
  char text[200];
  int code = r->as_json ? validation_json(v) : EXIT_OK;
  if (!r->as_json) validation_print(v, r->layers);
  if (!code && r->plot) code = validation_plot(v, r->plot);
  if (!code && first_failure(v, text, sizeof text)) code = complain(EXIT_FAILED, "%s: %s", v->path, text);
  return code;
}

int command_validate(int argc, char **argv) {
  struct request r = {.engine = ENGINE_EXACT, .pieces = {.values = {0}, .count = 1}, .weight = 1, .temperature = 2};
  static const char *const of_gradients[] = {"teacher", "weight", "temperature", NULL};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("comparison"),
      LIST('p', "pieces", "N,N,...", &r.pieces, 0, 0, "tokens evaluated at once; one run for each N; 0: all"),
      NUMBER(0, "limit", "X", &r.limit, 0, "largest relative RMS that passes; 0: by the reference's precision"),
      HEADING("gradients"),
      TEXT(0, "teacher", "DIR", &r.teacher, "the teacher model in the reference's loss"),
      NUMBER(0, "weight", "X", &r.weight, 1e6, "weight of the teacher's part of the loss"),
      NUMBER(0, "temperature", "X", &r.temperature, 1e6, "temperature of both models' predictions in that part"),
      HEADING("output"),
      FLAG('l', "layers", &r.layers, "a row for each layer"),
      OUTPUT(0, "plot", "FILE.png", &r.plot, "draw the error over layers and positions"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS_MODEL(&r.engine, ENGINE_MODEL ", in place of CHECKPOINT"),
      ADAPTER_OPTION(&r.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (arguments.count + (r.engine.model != NULL) != 2)
    return complain(EXIT_USAGE, "a checkpoint and a reference are needed: deltaic %s %s", usage.name, usage.arguments);
  if (!r.engine.model) r.engine.model = arguments.items[0];
  if (has_gradients(arguments.items[arguments.count - 1])) return compare_gradients(&arguments, argc, argv);
  const char *given = option_given_of(&arguments, of_gradients);
  if (given)
    return complain(EXIT_USAGE, "%s: holds no gradients: it takes no --%s", arguments.items[arguments.count - 1],
                    given);
  struct validation v = {.path = r.engine.model, .file = arguments.items[arguments.count - 1], .limit = r.limit};
  v.fast = engine_precision(&r.engine) == DELTAIC_PRECISION_FAST;
  code = compare(&v, &r);
  if (!code) code = report(&v, &r);
  code = engine_close(&v.engine, code);
  reference_close(&v);
  return code;
}
