// validate: holds a model against a reference file: the same tokens through it, every number the file has compared.
#include "validate.h"
#include "command.h"
#include "common.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct usage usage = {
    .name = "validate",
    .arguments = "[options] CHECKPOINT REFERENCE.safetensors",
    .summary = "Runs a reference's tokens through a model and compares everything that the reference holds: logits, "
               "mixer outputs and other activations of each layer, greedy choices, likelihood.",
    .text =
        "The limits follow from how the reference was computed, which its metadata say: a relative RMS of 5e-6 from "
        "float64, 1e-5 from float32, 1e-3 from float16, 6e-3 from bfloat16. Where the file has both a precise "
        "reference and another program's numbers, say fla's on CUDA, both distances from the precise one stand side by "
        "side, and ours must be the smaller. docs/validate.md describes the file; tests/vectors/dump_fla.py makes one "
        "from any fla checkpoint.\n\n"
        "The exit code is 0 when everything is within its limit, else 1, and a sentence names the first that is not.",
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
  float limit;
  bool layers, as_json;
};

// ---------------------------------------------------------------- verdicts

static bool within(const struct distance *d, double limit) { return !d->count || distance_relative(d) <= limit; }

int32_t first_layer_over(const struct comparison *c, int32_t layers) {
  for (int32_t i = 0; i < layers; ++i)
    if (!within(&c->ours.layers[i], c->limit)) return i;
  return -1;
}

// A source with a truth is no judge of ours: it is shown beside our own distance from that truth.
bool comparison_passes(const struct comparison *c, int32_t layers) {
  return c->truth || (within(&c->ours.all, c->limit) && first_layer_over(c, layers) < 0);
}

const struct comparison *against_truth(const struct validation *v, const struct comparison *c) {
  for (size_t i = 0; i < v->count && c->truth; ++i) {
    const struct comparison *other = &v->comparisons[i];
    if (other->source == c->truth && other->kind == c->kind && other->piece == c->piece) return other;
  }
  return NULL;
}

double nll_limit(const struct validation *v, size_t source) { return precision_rows[v->sources[source].precision].nll; }

bool nll_passes(const struct validation *v) {
  for (size_t i = 0; v->nll.there && i < v->source_count; ++i) {
    double reference = v->nll.reference[i];
    if (!isnan(reference) && !(fabs(v->nll.ours - reference) <= nll_limit(v, i))) return false;
  }
  return true;
}

// The lowest layer counts, then the order in the file; intermediate tensors come before the logits.
static const struct comparison *first_over(const struct validation *v) {
  const struct comparison *first = NULL;
  for (size_t i = 0; i < v->count; ++i) {
    const struct comparison *c = &v->comparisons[i];
    if (comparison_passes(c, v->layers)) continue;
    int32_t layer = first_layer_over(c, v->layers), least = first ? first_layer_over(first, v->layers) : -1;
    if (!first || (layer >= 0 && (least < 0 || layer < least))) first = c;
  }
  return first;
}

bool first_failure(const struct validation *v, char *text, size_t capacity) {
  const struct comparison *c = first_over(v);
  int32_t layer = c ? first_layer_over(c, v->layers) : -1;
  double relative = c ? distance_relative(layer >= 0 ? &c->ours.layers[layer] : &c->ours.all) : 0;
  char where[64] = "";
  if (layer >= 0) snprintf(where, sizeof where, "layer %d is the first over the limit: ", layer);
  if (c && !isfinite(relative))
    snprintf(text, capacity, "%s%s%s is not finite", where, layer >= 0 ? "its " : "", c->kind);
  else if (c)
    snprintf(text, capacity, "%srelative RMS %.1e of %s%s, limit %.1e", where, relative, layer >= 0 ? "its " : "",
             c->kind, c->limit);
  else if (v->greedy.wrong)
    snprintf(text, capacity, "greedy token %zu is %d, not %d, with a margin of %g", v->greedy.first_wrong,
             v->greedy.got, v->greedy.expected, v->greedy.margin);
  else if (!nll_passes(v))
    snprintf(text, capacity, "mean NLL %.6f is further from the reference's than its limit", v->nll.ours);
  else
    return false;
  return true;
}

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

static int report(const struct validation *v, const struct request *r) {
  char text[200];
  int code = r->as_json ? validation_json(v) : EXIT_OK;
  if (!r->as_json) validation_print(v, r->layers);
  if (!code && r->plot) code = validation_plot(v, r->plot);
  if (!code && first_failure(v, text, sizeof text)) code = complain(EXIT_FAILED, "%s: %s", v->path, text);
  return code;
}

int command_validate(int argc, char **argv) {
  struct request r = {.engine = ENGINE_EXACT, .pieces = {.values = {0}, .count = 1}};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("comparison"),
      LIST('p', "pieces", "N,N,...", &r.pieces, 0, 0, "tokens evaluated at once, each N a run; 0: all"),
      NUMBER(0, "limit", "X", &r.limit, 0, "relative RMS that passes; 0: by the reference's precision"),
      HEADING("output"),
      FLAG('l', "layers", &r.layers, "a row for each layer"),
      OUTPUT(0, "plot", "FILE.png", &r.plot, "draw the error over layers and positions"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS_MODEL(&r.engine, ", in place of CHECKPOINT"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (arguments.count + (r.engine.model != NULL) != 2)
    return complain(EXIT_USAGE, "a checkpoint and a reference are needed: deltaic %s %s", usage.name, usage.arguments);
  if (!r.engine.model) r.engine.model = arguments.items[0];
  struct validation v = {.path = r.engine.model, .file = arguments.items[arguments.count - 1], .limit = r.limit};
  code = compare(&v, &r);
  if (!code) code = report(&v, &r);
  code = engine_close(&v.engine, code);
  reference_close(&v);
  return code;
}
