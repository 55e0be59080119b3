// tune: the command line of `deltaic tune`, which trains a checkpoint, or a new model, on texts or on a task
// (include/deltaic_tune.h).
#include "tune.h"
#include "command.h"
#include "recall.h"

#include <string.h>

static const struct usage usage = {
    .name = "tune",
    .arguments = "[options] CHECKPOINT OUT",
    .summary = "Trains a checkpoint on texts and writes it to OUT in the same files and formats. With --from-config it "
               "trains a new model, and there is no CHECKPOINT. With --task it trains on a task instead of texts.",
    .text =
        "By default LoRA trains the projections of queries, keys and values, and convolutions, norms and biases are "
        "trained themselves; --targets and --whole name others, by a part of the tensors' names. --everything "
        "trains all weights. Adapters are merged into OUT; --adapter-out writes them in PEFT's format, which "
        "--adapter of this and other commands reads.\n\n"
        "With --adapter the adapters are merged into a temporary copy of CHECKPOINT beside OUT, and the training "
        "begins "
        "from this copy. OUT is a whole checkpoint without adapters. With neither --text nor --task nothing is "
        "trained: "
        "OUT is CHECKPOINT with the adapters merged.\n\n"
        "Texts are read in windows, each from a fresh state, in another order each time (--in-order: as they "
        "stand). A file is plain text, JSONL with a field \"text\" (.jsonl), or token ids (.safetensors, the tensor "
        "\"tokens\"). All texts are one, cut at every window; with --separate each line or record is read by "
        "itself, with the model's end token.\n\n"
        "The rate rises over --warm-up steps and then falls to a tenth along a cosine. OUT appears only when "
        "everything is done. After Ctrl-C, --stop-at or a failure, the state of the training is in "
        "OUT.state (or --state). The same command with --resume continues. On the same device it gives the same bits "
        "as an uninterrupted run if it keeps the same layers (--keep). The texts and all options that change the "
        "result, except --rate, --keep and --device, must stay the same. A smaller --rate may avoid a loss that is "
        "not finite.\n\n"
        "--task group trains the product so far after each element of a sequence; 'deltaic eval --task group' tests "
        "it. --task recall trains the values of keys that are repeated after --pairs of a key and a value; 'deltaic "
        "eval --task mqar' tests it. A new model gets the task's words as tokens. A checkpoint must have these words "
        "under the same ids.",
    .examples =
        "  deltaic tune models/mine models/tuned --text book.txt --held-out other.txt\n"
        "  deltaic tune models/mine models/tuned --text notes.jsonl --separate --epochs 3 --lora 16 --rate 0.0005\n"
        "  deltaic tune models/half models/repaired --text books.txt --teacher models/whole --plot loss.png\n"
        "  deltaic tune models/mine --adapter-out adapters --text book.txt\n"
        "  deltaic tune models/mine models/merged --adapter adapters\n"
        "  deltaic tune --from-config config.json models/s3 --task group --group S3 -w 128 --steps 2000\n",
    .most_arguments = 2,
};

// ---------------------------------------------------------------- the command line

static int check_contrary(const struct tune_request *r, const struct arguments *a) {
  static const char *const of_lora[] = {"lora", "alpha", "targets", "whole", "adapter-out", NULL},
                           *const of_texts[] = {"text", "epochs", "separate", "in-order", "tokens", "held-out", NULL};
  const char *lora = option_given_of(a, of_lora), *text = option_given_of(a, of_texts);
  if (r->adapter && r->config) return complain(EXIT_USAGE, "--from-config begins anew: it takes no --adapter");
  if (r->adapter && r->adapter_out)
    return complain(EXIT_USAGE,
                    "--adapter-out cannot be used with --adapter: new adapters would fit the merged weights, "
                    "not CHECKPOINT");
  if (r->everything && lora) return complain(EXIT_USAGE, "--everything has no adapters: it takes no --%s", lora);
  if (r->config && lora) return complain(EXIT_USAGE, "--from-config trains everything: it takes no --%s", lora);
  if (r->task && text) return complain(EXIT_USAGE, "--task makes its own rows: it takes no --%s", text);
  if (r->tokenizer && !r->config) return complain(EXIT_USAGE, "--tokenizer goes with --from-config");
  if (r->task && r->tokenizer) return complain(EXIT_USAGE, "--task has its own tokens: it takes no --tokenizer");
  if (!r->teacher && option_given(a, "weight")) return complain(EXIT_USAGE, "--weight goes with --teacher");
  if (!r->teacher && option_given(a, "temperature")) return complain(EXIT_USAGE, "--temperature goes with --teacher");
  if (option_given(a, "steps") && option_given(a, "epochs"))
    return complain(EXIT_USAGE, "give --steps or --epochs, not both");
  return EXIT_OK;
}

// The library takes 0 for its default.
static int check_zeros(const struct tune_request *r) {
  const struct {
    const char *name;
    float value;
  } all[] = {{"rate", r->rate}, {"weight", r->weight}, {"temperature", r->temperature},
             {"clip", r->clip}, {"beta1", r->beta1},   {"beta2", r->beta2}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
    if (!(all[i].value > 0)) return complain(EXIT_USAGE, "--%s must be above 0", all[i].name);
  return EXIT_OK;
}

// With an adapter and neither text nor task, nothing but merging is done.
static bool only_merges(const struct tune_request *r) { return r->adapter && !r->texts.count && !r->task; }

static int check_merging(const struct arguments *a) {
  static const char *const taken[] = {"adapter", "force", "quiet", "json"};
  for (size_t i = 0; i < a->given_count; ++i) {
    bool known = false;
    for (size_t k = 0; k < sizeof taken / sizeof *taken; ++k) known |= !strcmp(a->given[i], taken[k]);
    if (!known)
      return complain(EXIT_USAGE,
                      "--adapter without --text or --task only merges: it takes no --%s; to train, give --text "
                      "or --task",
                      a->given[i]);
  }
  return EXIT_OK;
}

static uint32_t reads_input(const struct tune_request *r) {
  uint32_t n = r->held_out && !strcmp(r->held_out, "-");
  for (size_t i = 0; i < r->texts.count; ++i) n += !strcmp(r->texts.items[i], "-");
  return n;
}

static int check_request(const struct tune_request *r) {
  if (!r->task && !r->texts.count) return complain(EXIT_USAGE, "give --text FILE");
  if (reads_input(r) > 1) return complain(EXIT_USAGE, "standard input can be read only once");
  if (r->task && strcmp(r->task, "group") && strcmp(r->task, "recall"))
    return complain(EXIT_USAGE, "--task takes group or recall, not \"%s\"", r->task);
  if (r->task && !r->steps) return complain(EXIT_USAGE, "--task needs --steps");
  if (r->config && !r->task && !r->tokenizer)
    return complain(EXIT_USAGE, "texts need --tokenizer, a folder with tokenizer.json");
  if (strcmp(r->schedule, "cosine") && strcmp(r->schedule, "constant"))
    return complain(EXIT_USAGE, "--schedule takes cosine or constant, not \"%s\"", r->schedule);
  if (!r->out && !r->adapter_out) return complain(EXIT_USAGE, "give OUT or --adapter-out DIR");
  if (r->out && r->adapter_out && !strcmp(r->out, r->adapter_out))
    return complain(EXIT_USAGE, "OUT and --adapter-out are the same folder");
  return check_zeros(r);
}

static int take_arguments(struct tune_request *r, const struct arguments *a) {
  const size_t models = r->config ? 0 : 1;
  if (a->count < models || a->count > models + 1)
    return complain(EXIT_USAGE, r->config ? "--from-config takes OUT alone" : "give CHECKPOINT and OUT");
  if (models) r->model = a->items[0];
  if (a->count > models) r->out = a->items[models];
  if (only_merges(r) && !r->config) return r->out ? check_merging(a) : complain(EXIT_USAGE, "give CHECKPOINT and OUT");
  int code = check_contrary(r, a);
  if (!code) code = precision_check(&r->engine);
  return code ? code : check_request(r);
}

int command_tune(int argc, char **argv) {
  struct tune_request r = {.engine = {.device = "best", .rule = "auto", .precision = "fast"},
                           .window = 512,
                           .batch = 2,
                           .accumulate = 1,
                           .keep_mib = UINT32_MAX,
                           .epochs = 1,
                           .rate = 1e-3f,
                           .schedule = "cosine",
                           .rank = 32,
                           .clip = 1,
                           .beta1 = 0.9f,
                           .beta2 = 0.95f,
                           .weight = 1,
                           .temperature = 2,
                           .group = "S3",
                           .pairs = RECALL_PAIRS,
                           .keys = RECALL_KEYS,
                           .values = RECALL_VALUES};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("texts"),
      TEXTS('f', "text", "FILE", &r.texts, "to train on; may be repeated; - is standard input"),
      COUNT('w', "window", "N", &r.window, 2, 1 << 20, "tokens read from a fresh state; of --task its elements"),
      FLAG(0, "separate", &r.separate, "every line or record is a text of its own"),
      FLAG(0, "in-order", &r.in_order, "read the windows as they stand"),
      COUNT('n', "tokens", "N", &r.tokens, 0, 0, "only the first N; 0: all"),
      TEXT('e', "held-out", "FILE", &r.held_out, "a text to measure the loss on, before, after and on the way"),
      COUNT(0, "every", "N", &r.every, 0, 0, "measure and report after every N steps; 0: only before and after"),
      HEADING("steps"),
      COUNT(0, "steps", "N", &r.steps, 0, 0, "number of steps; 0: by --epochs"),
      NUMBER(0, "epochs", "X", &r.epochs, 1e6, "how often the texts are read"),
      COUNT('b', "batch", "N", &r.batch, 1, 1 << 16, "windows computed together"),
      COUNT(0, "accumulate", "N", &r.accumulate, 1, 1 << 16, "batches of a step"),
      NUMBER(0, "rate", "X", &r.rate, 1, "the largest learning rate"),
      COUNT(0, "warm-up", "N", &r.warm_up, 0, 0, "steps over which the rate rises; 0: a twentieth of all"),
      TEXT(0, "schedule", "NAME", &r.schedule, "rate after the warm-up: cosine (falls to a tenth) or constant"),
      NUMBER(0, "clip", "X", &r.clip, 1e9, "largest norm of a gradient"),
      NUMBER(0, "decay", "X", &r.decay, 1000, "weight decay, multiplied by the rate"),
      NUMBER(0, "beta1", "X", &r.beta1, 1, "of AdamW"),
      NUMBER(0, "beta2", "X", &r.beta2, 1, "of AdamW"),
      COUNT64(0, "seed", "N", &r.seed, "of adapters, of the windows' order, and of a new model"),
      HEADING("what is trained"),
      MERGED_OPTION(&r.adapter, ". Without --text and --task the command only merges"),
      COUNT(0, "lora", "RANK", &r.rank, 1, 4096, "rank of the adapters"),
      NUMBER(0, "alpha", "X", &r.alpha, 1e6, "of the adapters; 0: twice the rank"),
      TEXT(0, "targets", "NAME,...", &r.targets, "matrices with adapters; without it, q_proj,k_proj,v_proj"),
      TEXT(0, "whole", "NAME,...", &r.whole, "tensors trained themselves; \"\": none; without it, conv1d,norm,bias"),
      FLAG(0, "everything", &r.everything, "all weights themselves, without adapters"),
      HEADING("teacher"),
      TEXT(0, "teacher", "DIR", &r.teacher, "a model whose predictions are learned too"),
      NUMBER(0, "weight", "X", &r.weight, 1e6, "weight of the teacher's part of the loss"),
      NUMBER(0, "temperature", "X", &r.temperature, 1e6, "of both models' predictions in it"),
      HEADING("from nothing"),
      TEXT(0, "from-config", "FILE", &r.config, "train a new model of this config.json"),
      TEXT(0, "tokenizer", "DIR", &r.tokenizer, "folder whose tokenizer it has"),
      HEADING("a task instead of texts"),
      TEXT(0, "task", "NAME", &r.task, "group or recall"),
      TEXT(0, "group", "NAME", &r.group, "of --task group: S2 to S6, A5, Z2 to Z1024, D3 to D512"),
      COUNT(0, "pairs", "N", &r.pairs, 1, 1 << 16, "of --task recall"),
      COUNT(0, "keys", "N", &r.keys, 1, 1 << 20, "of --task recall: different keys"),
      COUNT(0, "values", "N", &r.values, 1, 1 << 20, "of --task recall: different values"),
      HEADING("output"),
      TEXT(0, "adapter-out", "DIR", &r.adapter_out, "write the adapters in PEFT's format"),
      FLAG(0, "force", &r.force, "replace existing output: OUT, --adapter-out and the state"),
      TEXT(0, "state", "FILE", &r.state, "where the state of the training is kept; without it, OUT.state"),
      FLAG(0, "resume", &r.resume, "go on from the state"),
      COUNT(0, "save-every", "N", &r.save_every, 0, 0,
            "save the state after every N steps, once the next loss is known to be finite; 0: only when stopped"),
      COUNT(0, "stop-at", "N", &r.stop_at, 0, 0, "stop after step N and save the state; 0: no"),
      OUTPUT('p', "plot", "FILE", &r.plot, "draw the loss as PNG"),
      FLAG('q', "quiet", &r.quiet, "no progress"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      HEADING("device"),
      TEXT('d', "device", "WHICH", &r.engine.device,
           "best, cpu, or a number, a part of a name or a UUID from 'deltaic devices'"),
      COUNT('t', "threads", "N", &r.engine.threads, 0, 1024, "threads of the CPU; 0: all cores"),
      COUNT(0, "keep", "MIB", &r.keep_mib, 0, 0,
            "most memory for keeping layers' values from the forward pass, so that they are not recomputed; 0: none; "
            "default: as much as fits"),
      TEXT(0, "precision", "WHICH", &r.engine.precision,
           "arithmetic: float32, or fast (rounds operands of products to 16 bits where the device has matrix units)"),
      TEXT(0, "cache-dir", "DIR", &r.engine.cache_dir,
           "folder for compiled pipelines; \"\": none; without it, deltaic in $XDG_CACHE_HOME or ~/.cache"),
      FLAG(0, "validate", &r.engine.validate,
           "run under the Vulkan validation layer, if it is installed; its errors make the exit code 1"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  code = take_arguments(&r, &arguments);
  if (code) return code;
  return only_merges(&r) ? tune_merge(&r) : tune_train(&r);
}
