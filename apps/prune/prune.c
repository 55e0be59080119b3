// prune: implements `deltaic prune`: writes a checkpoint with fewer key channels per head (include/deltaic_prune.h).
#include "prune.h"
#include "command.h"
#include "common.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "prune",
    .arguments = "[options] CHECKPOINT OUT",
    .summary = "Writes a smaller checkpoint: each head keeps its best key channels, so that the state, its memory and "
               "the time of every token shrink. With --sweep there is no OUT: all methods are compared.",
    .text =
        "Methods: drrqr keeps the channels whose activations are best conditioned. l1 keeps those with the largest "
        "weights, "
        "and s-wanda those with the largest weights times inputs. grad keeps those whose weights times the loss's "
        "gradients are largest. random keeps channels at random. pca, for comparison, projects "
        "onto the directions of most variance. drrqr, s-wanda, grad and pca need a calibration text. l1 and random "
        "read "
        "one only for --refit, --plot or --keep auto.\n\n"
        "--refit then computes each layer's output projection again from the same text, which recovers a good part of "
        "the loss. --recover then trains the smaller model on another text (LoRA, merged), which recovers more. "
        "Without --text, the text of --recover is the calibration text too. Without --eval, the last tenth of the text "
        "of --recover is the evaluation text, and is held back from the calibration and the recovery.\n\n"
        "How much: --cut 0.5 removes half of the channels. --keep 64 keeps 64. --keep 64,64,32 has a number for every "
        "delta-rule layer. --keep auto keeps as many as the entropy rank of the activations, rounded up (stable: the "
        "stable rank, rank: the numerical rank). --volume-lost 0.1 keeps as few as possible while at most a tenth of "
        "the activations' length is lost. If layers keep different numbers (--per-layer, or a list), only Deltaic "
        "loads the checkpoint; fla and transformers load all others.\n\n"
        "With --adapter the adapters are merged into a temporary copy of CHECKPOINT beside OUT (--sweep: in the folder "
        "for temporary files). The command prunes this merged model and compares OUT with it. OUT is a whole "
        "checkpoint "
        "without adapters.\n\n"
        "A text is a file of plain text, JSONL with a field \"text\" (.jsonl), or token ids (.safetensors, the tensor "
        "\"tokens\").\n\n"
        "OUT appears only when it is complete. If Ctrl-C stops the recovery, OUT is the pruned model without the "
        "recovery; to repeat the recovery, add --force. --statistics FILE keeps the measurements of the calibration, "
        "also after Ctrl-C during the calibration. The same command then continues the calibration. Other methods and "
        "targets need no second calibration.",
    .examples = "  deltaic prune models/mine models/half --cut 0.5 --text book.txt\n"
                "  deltaic prune models/mine models/half --cut 0.5 --text book.txt --refit --eval other.txt\n"
                "  deltaic prune models/mine models/small --cut 0.75 --refit --recover books.txt\n"
                "  deltaic prune models/mine models/small --keep auto --statistics mine.statistics --text book.txt\n"
                "  deltaic prune models/mine models/half --method l1 --cut 0.5\n"
                "  deltaic prune models/mine models/half --adapter adapters --cut 0.5 --text book.txt --refit\n"
                "  deltaic prune --sweep models/mine --text book.txt --eval other.txt --plot sweep.png\n",
    .most_arguments = 2,
};

// ---------------------------------------------------------------- the command line

static bool read_number(const char *text, double *out) {
  char *end;
  errno = 0;
  *out = strtod(text, &end);
  return *text && !*end && !errno && isfinite(*out);
}

static int parse_share(const char *option, const char *text, double *out) {
  if (read_number(text, out) && *out >= 0 && *out < 1) return EXIT_OK;
  return complain(EXIT_USAGE, "--%s must be a number from 0 to below 1, not \"%s\"", option, text);
}

static int parse_list(struct prune_request *r) {
  const char *at = r->keep;
  while (r->select.keep_count < PRUNE_LAYERS) {
    char *end;
    unsigned long value = strtoul(at, &end, 10);
    if (*at < '0' || *at > '9' || (*end && *end != ',') || value < 1 || value > 1u << 14) break;
    r->keeps[r->select.keep_count++] = (uint32_t)value;
    if (!*end) return EXIT_OK;
    at = end + 1;
  }
  return complain(EXIT_USAGE, "--keep must be a number of at least 1, a list of them, auto, stable or rank, not \"%s\"",
                  r->keep);
}

static int parse_target(struct prune_request *r) {
  int given = (r->cut != NULL) + (r->keep != NULL) + (r->volume != NULL);
  if (given > 1) return complain(EXIT_USAGE, "--cut, --keep and --volume-lost say the same: give one");
  if (!given) return complain(EXIT_USAGE, "how much? --cut 0.5, --keep N, --keep auto or --volume-lost 0.1");
  if (r->cut) return parse_share("cut", r->cut, &r->select.cut);
  if (r->volume) {
    r->select.rule = DELTAIC_KEEP_VOLUME;
    return parse_share("volume-lost", r->volume, &r->select.volume_lost);
  }
  r->select.rule = !strcmp(r->keep, "auto")     ? DELTAIC_KEEP_ENTROPY
                   : !strcmp(r->keep, "stable") ? DELTAIC_KEEP_STABLE
                   : !strcmp(r->keep, "rank")   ? DELTAIC_KEEP_RANK
                                                : DELTAIC_KEEP_GIVEN;
  r->select.keep = r->keeps;
  return r->select.rule ? EXIT_OK : parse_list(r);
}

static int parse_method(struct prune_request *r) {
  if (deltaic_prune_method_find(r->method, &r->about)) return EXIT_OK;
  char names[256] = "";
  deltaic_prune_method m;
  for (int32_t i = 0; deltaic_prune_method_at(i, &m); ++i)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", m.name);
  return complain(EXIT_USAGE, "there is no method \"%s\"; there are %s", r->method, names);
}

static int parse_side(struct prune_request *r) {
  static const char *const sides[] = {"joint", "keys", "queries"};
  for (int i = 0; i < 3; ++i)
    if (!strcmp(r->side, sides[i])) {
      r->select.side = (deltaic_prune_side)i;
      return EXIT_OK;
    }
  return complain(EXIT_USAGE, "--side must be joint, keys or queries, not \"%s\"", r->side);
}

// Without --text, the text of --recover is the calibration text too, if one is needed.
static void default_text(struct prune_request *r) {
  const bool measures = r->about.text || r->select.rule != DELTAIC_KEEP_GIVEN || r->plot || r->statistics;
  r->text_of_recover = !r->text && r->recover && (r->refit || measures);
  if (r->text_of_recover) r->text = r->recover;
}

static int check_request(struct prune_request *r) {
  bool finds = r->select.rule != DELTAIC_KEEP_GIVEN;
  if ((r->about.text || finds) && !r->text && !r->statistics)
    return complain(EXIT_USAGE, "%s needs a calibration text: --text FILE, or --statistics FILE of an earlier run",
                    finds ? "finding out how much to keep" : r->about.name);
  if (r->plot && !r->text && !r->statistics)
    return complain(EXIT_USAGE, "--plot draws what a text shows: --text FILE, or --statistics FILE of an earlier run");
  if (r->refit && !r->text) return complain(EXIT_USAGE, "--refit needs the text itself: --text FILE");
  if (r->tolerance != 0 && !(r->tolerance >= 1))
    return complain(EXIT_USAGE, "--tolerance must be 1 or more, not %g", (double)r->tolerance);
  if (r->ridge < 0) return complain(EXIT_USAGE, "--ridge must be more than 0, not %g", (double)r->ridge);
  return EXIT_OK;
}

// Refuses options that would have no effect.
static int check_given(const struct prune_request *r, const struct arguments *arguments) {
  static const struct {
    const char *option, *method;
  } own[] = {{"tolerance", "drrqr"}, {"swaps", "drrqr"}, {"rows", "drrqr"}, {"adversarial", "pca"}};
  static const char *const of_one[] = {"method", "cut", "keep", "volume-lost", "per-layer", "force", "recover", NULL};
  const char *given = option_given_of(arguments, of_one);
  if (r->sweep && given) return complain(EXIT_USAGE, "--sweep tries all methods and shares: it takes no --%s", given);
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
    if (!r->sweep && strcmp(own[i].method, r->method) && option_given(arguments, own[i].option))
      return complain(EXIT_USAGE, "--method %s takes no --%s, which is for %s", r->method, own[i].option,
                      own[i].method);
  if (r->per_layer && r->select.rule == DELTAIC_KEEP_GIVEN)
    return complain(EXIT_USAGE, "--per-layer is for what is found out: --keep auto, stable, rank or --volume-lost");
  if (!r->recover && option_given(arguments, "rate")) return complain(EXIT_USAGE, "--rate goes with --recover");
  if (!r->refit && option_given(arguments, "ridge")) return complain(EXIT_USAGE, "--ridge goes with --refit");
  return EXIT_OK;
}

static int resolve(struct prune_request *r, const struct arguments *arguments) {
  r->select.size = sizeof r->select;
  int code = parse_method(r);
  if (!code) code = parse_side(r);
  if (!code && !r->sweep) code = parse_target(r);
  if (!code) code = check_given(r, arguments);
  if (!code) default_text(r);
  if (!code) code = check_request(r);
  if (!code && r->sweep && (!r->text || !r->eval))
    code = complain(EXIT_USAGE, "--sweep needs --text to calibrate on and --eval to compare on");
  r->select.method = r->method;
  r->select.per_layer = r->per_layer;
  r->select.seed = r->seed;
  r->select.tolerance = (double)r->tolerance;
  r->select.swap_limit = r->swap_limit;
  r->select.adversarial = r->adversarial;
  r->select.like_reference = r->like_reference;
  return code;
}

// ---------------------------------------------------------------- the work

static int select_channels(struct prune_work *w) {
  deltaic_select_options o = w->r->select;
  o.rows = prune_from_rows(w, w->r->method);
  double start = time_now();
  int code = complain_status(deltaic_select(w->model, w->statistics, &o, &w->selection));
  w->seconds_selection = time_now() - start;
  return code;
}

static int write_checkpoint(struct prune_work *w) {
  struct progress progress;
  deltaic_refit_options refit = {.size = sizeof refit, .ridge = (double)w->r->ridge};
  deltaic_prune_write_options o = DELTAIC_INIT(deltaic_prune_write_options);
  o.force = w->r->force;
  o.refit = w->r->refit ? &refit : NULL;
  o.progress = prune_show;
  o.progress_user = &progress;
  progress_begin(&progress, "writing", "B", w->r->engine.quiet);
  deltaic_status status = deltaic_pruning_begin(w->model, w->selection, w->r->out, &o, &w->pruning);
  progress_clear();
  return complain_work(status);
}

static int look_at_result(struct prune_work *w) {
  const char *path = deltaic_pruning_path(w->pruning);
  int code = complain_status(deltaic_model_inspect(NULL, w->model, NULL, &w->info, &w->before));
  if (!code) code = complain_status(deltaic_model_inspect(NULL, path, NULL, &w->info_after, &w->after));
  const bool eval = w->eval.count;
  if (!code && eval) code = prune_nll_of(w, path, "evaluating again", &w->nll_after);
  if (!code && w->r->refit) code = prune_refit(w);
  if (!code && w->r->refit && eval) code = prune_nll_of(w, path, "evaluating again", &w->nll_refit);
  if (!code && w->r->recover) code = prune_recover(w);
  if (!code && w->r->recover && eval) code = prune_nll_of(w, path, "evaluating again", &w->nll_recover);
  return code;
}

static int report(const struct prune_work *w) {
  if (w->r->as_json) return prune_json(w);
  prune_print(w);
  return EXIT_OK;
}

// If the recovery is stopped, the work before it is kept. Returns the exit code.
static int keep_unrecovered(struct prune_work *w, int code) {
  int failed = complain_status(deltaic_pruning_commit(w->pruning));
  if (!failed) failed = report(w);
  if (failed) return failed;
  return complain(code, "%s: has the pruned%s model; the recovery was stopped", w->r->out,
                  w->r->refit ? " and refitted" : "");
}

static int prune_once(struct prune_work *w) {
  const struct prune_request *r = w->r;
  int code = prune_measure(w);
  if (!code) code = select_channels(w);
  if (!code) code = prune_measure_whole(w);
  if (!code) code = write_checkpoint(w);
  if (!code) code = look_at_result(w);
  if (w->unrecovered) return keep_unrecovered(w, code);
  if (!code && interrupted()) code = EXIT_INTERRUPTED;
  if (!code) code = complain_status(deltaic_pruning_commit(w->pruning));
  if (!code) code = report(w);
  return code || !r->plot ? code : prune_plot(w, r->plot);
}

// Checks OUT, reads the texts, and merges adapters beside OUT.
static int prepare(struct prune_work *w) {
  const struct prune_request *r = w->r;
  int code = r->out ? complain_status(deltaic_pruning_check(r->engine.model, r->out, r->force)) : EXIT_OK;
  if (!code && r->adapter && r->out) code = merged_check(r->adapter, r->out);
  if (!code) code = prune_read_texts(w);
  w->model = r->engine.model;
  if (code || !r->adapter) return code;
  code = merged_make(&w->merged, r->engine.model, r->adapter, r->out, r->engine.quiet);
  w->model = w->merged.folder;
  return code;
}

static int prune(const struct prune_request *r) {
  struct prune_work w = {.r = r, .nll_before = NAN, .nll_after = NAN, .nll_refit = NAN, .nll_recover = NAN};
  interrupt_catch();
  int code = prepare(&w);
  if (!code) code = r->sweep ? prune_sweep(&w) : prune_once(&w);
  prune_work_free(&w);
  if (w.open) code = engine_close(&w.engine, code);
  merged_delete(&w.merged);
  return code;
}

int command_prune(int argc, char **argv) {
  struct prune_request r = {.engine = ENGINE_EXACT, .method = "drrqr", .side = "joint", .window = 512};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("what to keep"),
      TEXT('x', "method", "NAME", &r.method, "drrqr, l1, s-wanda, grad, random, pca"),
      TEXT('c', "cut", "SHARE", &r.cut, "share of the key channels to remove: 0.5"),
      TEXT('k', "keep", "N", &r.keep,
           "channels to keep in each head; N,N,...: by layer; auto, stable, rank: computed from the activations"),
      TEXT(0, "volume-lost", "SHARE", &r.volume, "keep as few channels as possible while at most this share is lost"),
      FLAG(0, "per-layer", &r.per_layer, "with auto, stable, rank or --volume-lost: choose the number for each layer"),
      TEXT(0, "side", "SIDE", &r.side, "select by keys, by queries or by both: keys, queries, joint"),
      COUNT64(0, "seed", "N", &r.seed, "seed of random, and of sampled activations"),
      NUMBER(0, "tolerance", "F", &r.tolerance, 0,
             "drrqr: swap channels while a swap multiplies the volume by more than this; 0: 1.5"),
      COUNT(0, "swaps", "N", &r.swap_limit, 0, 1 << 20, "drrqr: the most swaps of a head; 0: no limit"),
      COUNT(0, "rows", "N", &r.rows, 0, DELTAIC_CALIBRATION_ROWS,
            "drrqr: use N sampled activations of a head; 0: Gram matrices of all activations"),
      FLAG(0, "adversarial", &r.adversarial, "pca: keep the directions of least variance"),
      FLAG(0, "like-reference", &r.like_reference,
           "follow the published code: 5,000 activations of queries and keys together, 20 swaps, centred pca"),
      HEADING("texts"),
      TEXT('f', "text", "FILE", &r.text,
           "the text to calibrate on; - is standard input; without it, that of --recover"),
      COUNT('n', "tokens", "N", &r.tokens, 0, 0, "only the first N tokens of --text and of --recover; 0: all"),
      COUNT('w', "window", "N", &r.window, 2, 1 << 20, "tokens of a window; each window starts from a zero state"),
      TEXT('s', "statistics", "FILE", &r.statistics, "file of what was measured: read if it exists, otherwise written"),
      TEXT('e', "eval", "FILE", &r.eval,
           "a text to measure the loss on, before and after; without it, the last tenth of the text of --recover, held "
           "back"),
      HEADING("refit"),
      FLAG('r', "refit", &r.refit, "compute the output projections again"),
      NUMBER(0, "ridge", "X", &r.ridge, 1e6, "lambda over the mean diagonal; 0: by the text's length"),
      HEADING("recovery"),
      TEXT(0, "recover", "FILE", &r.recover,
           "train the smaller model on this text, with the original as its teacher; in fast arithmetic, if --precision "
           "does "
           "not say otherwise"),
      NUMBER(0, "rate", "X", &r.rate, 1, "the largest learning rate; 0: 0.001"),
      HEADING("output"),
      FLAG(0, "force", &r.force, "replace an existing checkpoint at OUT"),
      FLAG(0, "sweep", &r.sweep, "compare all methods at 30, 40, 50, 75 and 87.5 % removed; writes no checkpoint"),
      OUTPUT('p', "plot", "FILE", &r.plot, "draw the report as PNG"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS_MODEL(&r.engine, ENGINE_FOLDER ", in place of CHECKPOINT"),
      MERGED_OPTION(&r.adapter, ""),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  size_t wanted = (r.engine.model ? 0 : 1) + (r.sweep ? 0 : 1);
  if (arguments.count != wanted)
    return complain(EXIT_USAGE,
                    r.sweep ? "--sweep takes one CHECKPOINT" : "give CHECKPOINT and OUT, or OUT alone with --model");
  if (!r.engine.model) r.engine.model = arguments.items[0];
  if (!r.sweep) r.out = arguments.items[arguments.count - 1];
  r.recover_precision = option_given(&arguments, "precision") ? engine_precision(&r.engine) : DELTAIC_PRECISION_FAST;
  code = resolve(&r, &arguments);
  return code ? code : prune(&r);
}
