// eval: `deltaic eval`: the papers' tests on any checkpoints: reads the task, runs it on each, prints one table.
#include "eval.h"
#include "commands.h"
#include "eval_text.h"

#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "eval",
    .arguments = "[options] CHECKPOINT...",
    .summary = "Runs a test on one or more checkpoints and prints one table: accuracy, perplexity per word and byte, "
               "recall, with standard errors and the number of cases.",
    .text =
        "--task is a data set, whose file --data names, or a file of cases. A file of cases is JSONL, one object a "
        "line: {\"context\": ..., \"choices\": [...], \"gold\": 0} asks which choice is the likeliest; {\"context\": "
        "..., \"target\": ...} how likely a text is; {\"context\": ..., \"contains\": ...} whether the greedy "
        "continuation contains one; {\"document\": ...} how likely a document is per word. In place of a text there "
        "may "
        "be a list of token ids. Scores are computed by the rules of EleutherAI's lm-evaluation-harness; docs/eval.md "
        "states them.\n\n"
        "Texts that begin alike are read once. With --log every finished case is written down, and a run that was "
        "interrupted goes on where it stopped.",
    .examples = "  deltaic eval models/novelist --task lambada --data lambada_test.jsonl\n"
                "  deltaic eval models/novelist --task wikitext --data wiki.test.raw --json > before.json\n"
                "  deltaic eval big small --task hellaswag --data hellaswag_val.jsonl --log run.jsonl\n"
                "  deltaic eval models/novelist --task my_cases.jsonl --limit 100\n",
    .most_arguments = ARGUMENTS_CAPACITY,
};

struct request_line {
  struct eval_options options;
  const char *task, *data, *log;
  bool as_json;
};

static int run_all(const struct request_line *r, const struct eval_task *task, const struct arguments *arguments) {
  struct eval_result results[ARGUMENTS_CAPACITY] = {{0}};
  size_t ran = 0;
  int code = EXIT_OK, written = EXIT_OK;
  while (ran < arguments->count && !code) {
    results[ran].checkpoint = arguments->items[ran];
    code = eval_run(task, &r->options, r->log, &results[ran]);
    ran += !code || (code == EXIT_INTERRUPTED && results[ran].done);
  }
  if (ran && (!code || code == EXIT_INTERRUPTED)) {
    if (r->as_json)
      written = eval_print_json(task, &r->options, results, ran);
    else
      eval_print(task, results, ran);
  }
  for (size_t i = 0; i < arguments->count; ++i) eval_result_free(task, &results[i]);
  return written ? written : code;
}

static int check(const struct request_line *r, struct arguments *arguments) {
  if (!r->task) return complain(EXIT_USAGE, "no --task; --help lists them");
  if (eval_is_data_set(r->task) && !r->data)
    return complain(EXIT_USAGE, "--task %s needs its file: --data FILE", r->task);
  if (!arguments->count && !r->options.engine.model) {
    const char *model = model_path(NULL);
    if (!model) return EXIT_USAGE;
    arguments->items[arguments->count++] = model;
  }
  if (r->options.engine.model) {
    if (arguments->count == ARGUMENTS_CAPACITY) return complain(EXIT_USAGE, "too many checkpoints");
    arguments->items[arguments->count++] = r->options.engine.model;
  }
  return EXIT_OK;
}

int command_eval(int argc, char **argv) {
  struct request_line r = {.options = {.engine = ENGINE_DEFAULTS, .new_tokens = 48}};
  struct arguments arguments;
  int code;
  char *sets = eval_data_sets(), help[1600];
  snprintf(help, sizeof help, "what to run: a file of cases (JSONL), or a data set:\n%s", sets);
  free(sets);
  const struct option options[] = {
      HEADING("the task"),
      TEXT('T', "task", "TASK", &r.task, help),
      TEXT(0, "data", "FILE", &r.data, "the data set's file"),
      COUNT('n', "limit", "N", &r.options.limit, 0, 0, "only the first N cases; 0: all"),
      COUNT(0, "new", "N", &r.options.new_tokens, 1, 4096, "most new tokens where the continuation is judged"),
      COUNT(0, "max-length", "N", &r.options.max_length, 0, INT32_MAX,
            "tokens of the longest text: more are cut off at its beginning, documents are read in windows; 0: what "
            "config.json says, else 2048"),
      FLAG(0, "no-bos", &r.options.no_bos,
           "leave out the special tokens that the tokenizer puts before a text, as the harness did by default until "
           "0.4.9.1"),
      FLAG(0, "skip-bad", &r.options.skip_bad, "leave malformed lines out, each with a sentence, instead of stopping"),
      ATTENTION_WINDOW_OPTION(&r.options.engine),
      HEADING("output"),
      TEXT(0, "log", "FILE", &r.log,
           "append every finished case to FILE, and do not repeat those that it has of this task, checkpoint and "
           "options"),
      FLAG('q', "quiet", &r.options.engine.quiet, "no progress"),
      FLAG(0, "json", &r.as_json, "print one JSON object, with every case's score"),
      ENGINE_OPTIONS(&r.options.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  code = check(&r, &arguments);
  struct eval_task task = {0};
  if (!code) code = eval_task_read(r.task, r.data, &r.options, &task);
  if (!code) code = run_all(&r, &task, &arguments);
  eval_task_free(&task);
  return code;
}
