// quantize: implements `deltaic quantize`: writes a model as a GGUF file with smaller weights.
#include "quantize.h"
#include "command.h"

#include <string.h>
#include <strings.h>

static const struct usage usage = {
    .name = "quantize",
    .arguments = "[options] MODEL OUT.gguf",
    .summary = "Writes a model as one GGUF file whose weights take 16, 8, 6, 5 or 4 bits, so that it needs less memory "
               "and answers faster. MODEL is a folder, pruned ones included, or a GGUF file.",
    .text =
        "Which type: most people use q4_k_m. It has about a third of the size of f16, and its loss is rarely noticed. "
        "q8_0 "
        "is nearly exact and has half the size of f16. q5_k_m and q6_k lie between. If in doubt, take the largest type "
        "that fits the device: 'deltaic info OUT.gguf' prints the memory that a file needs. --compare measures the "
        "loss on a text: the model reads it before and after.\n\n"
        "Types of 8 bits and fewer store 32 or 256 numbers of a row as a block. Rows that are not whole blocks get a "
        "wider "
        "type, and the table shows it. Norms, convolutions and other small tensors stay f32. Quantizing a quantized "
        "model adds to its loss, so start from the original if you have it.\n\n"
        "Qwen3.5, its mixtures of experts and Qwen3-Next are written as llama.cpp reads them. llama.cpp cannot run "
        "the other families: their files keep the folder's config and names, and only Deltaic reads them. Tokenizer, "
        "chat template and end tokens are in the file; nothing else is needed to run it.\n\n"
        "OUT appears only when everything is written: Ctrl-C and failures leave no part of it.",
    .examples = "  deltaic quantize models/Qwen3.5-4B qwen-4b.gguf\n"
                "  deltaic quantize models/Qwen3.5-4B qwen-4b-q8.gguf --type q8_0\n"
                "  deltaic quantize models/half half.gguf --type q5_k_m --compare book.txt\n"
                "  deltaic quantize model-f16.gguf model-q6.gguf --type q6_k --json | jq .bits_per_weight\n"
                "  deltaic quantize models/mine mine.gguf --dry-run --tensors        what would be written\n",
    .most_arguments = 2,
};

static bool on_written(void *user, uint64_t done, uint64_t total) {
  progress_show(user, done, total);
  return !interrupted();
}

static deltaic_quantize_options options_of(const struct quantize_request *r) {
  deltaic_quantize_options o = DELTAIC_INIT(deltaic_quantize_options);
  o.type = r->type;
  o.force = r->force;
  o.adapter = r->score.engine.adapter;
  return o;
}

static int write_model(const struct quantize_request *r, struct quantize_result *result) {
  struct progress progress;
  deltaic_quantize_options o = options_of(r);
  o.plan_only = r->dry_run;
  o.threads = r->score.engine.threads;
  o.progress = on_written;
  o.progress_user = &progress;
  const double start = time_now();
  progress_begin(&progress, "writing", "B", r->score.engine.quiet);
  deltaic_status status = deltaic_quantize(r->score.engine.model, r->out, &o, &result->report);
  progress_clear();
  result->seconds = time_now() - start;
  return complain_work(status);
}

// What can be refused is, before the model is read for a comparison.
static int check(const struct quantize_request *r) {
  deltaic_quantize_options o = options_of(r);
  o.plan_only = true;
  return complain_status(deltaic_quantize(r->score.engine.model, r->out, &o, NULL));
}

static int quantize(const struct quantize_request *r) {
  struct quantize_result result = {.request = r};
  const bool compare = r->score.file != NULL;
  interrupt_catch();
  int code = compare ? check(r) : EXIT_OK;
  if (!code && compare) code = quantize_compare(r, r->score.engine.model, r->score.engine.adapter, &result.before);
  if (!code) code = write_model(r, &result);
  if (!code && compare) code = quantize_compare(r, r->out, NULL, &result.after);
  if (result.report && r->as_json) {
    const int printed = quantize_print_json(&result);
    code = code ? code : printed;
  } else if (result.report)
    quantize_print(&result);
  deltaic_quantization_free(result.report);
  return code;
}

static int complain_type(const char *name) {
  const char *names[64];
  size_t count = 0;
  deltaic_quantize_type type;
  while (count < 64 && deltaic_quantize_type_at((int32_t)count, &type)) {
    if (!strcasecmp(type.name, name)) return EXIT_OK;
    names[count++] = type.name;
  }
  const char *meant = nearest_name(name, names, count);
  return complain(EXIT_USAGE, "there is no type \"%s\"%s%s; 'deltaic quantize --help' lists them", name,
                  meant ? "; did you mean " : "", meant ? meant : "");
}

int command_quantize(int argc, char **argv) {
  struct quantize_request r = {.score = {.engine = ENGINE_DEFAULTS, .window = 512}, .type = "q4_k_m"};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("what is written"),
      TEXT('T', "type", "TYPE", &r.type,
           "f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k, q5_0, q4_k_m, q4_k, q4_0, iq4_nl or iq4_xs; of names that end in "
           "_m, the tensors whose errors cost most get more bits"),
      FLAG('f', "force", &r.force, "replace OUT if it exists"),
      FLAG(0, "dry-run", &r.dry_run, "write nothing; the table says what would be written"),
      HEADING("what is lost"),
      TEXT('c', "compare", "TEXT", &r.score.file, "the perplexity of this text, by the model as it was and by OUT"),
      COUNT('w', "window", "N", &r.score.window, 0, 0, "tokens of a window; 0: the whole text"),
      COUNT(0, "windows", "N", &r.score.windows, 0, 0, "only the first N windows; 0: all"),
      HEADING("output"),
      FLAG(0, "tensors", &r.tensors, "list every tensor"),
      FLAG('q', "quiet", &r.score.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS_MODEL(&r.score.engine, ENGINE_MODEL "; or the first argument"),
      ONCE(0, "adapter", "DIR", &r.score.engine.adapter,
           "folder with LoRA adapters in PEFT's format, merged first; MODEL must be a folder"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  const size_t needed = r.score.engine.model ? 1 : 2;
  if (arguments.count != needed)
    return complain(EXIT_USAGE, arguments.count < needed ? "which MODEL, and which OUT.gguf? Both are needed"
                                                         : "a model is given twice: with --model and as an argument");
  if (!r.score.engine.model) r.score.engine.model = arguments.items[0];
  r.out = arguments.items[needed - 1];
  if (r.score.file && !strcmp(r.score.file, "-"))
    return complain(EXIT_USAGE, "--compare reads the text twice: it must be a file");
  if (r.score.file && r.dry_run) return complain(EXIT_USAGE, "--dry-run writes nothing that could be compared");
  static const char *const of_compare[] = {"window", "windows", NULL};
  const char *given = option_given_of(&arguments, of_compare);
  if (given && !r.score.file) return complain(EXIT_USAGE, "--%s needs --compare", given);
  if (r.score.window == 1) return complain(EXIT_USAGE, "--window 1 predicts nothing");
  code = complain_type(r.type);
  return code ? code : quantize(&r);
}
