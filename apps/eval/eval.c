// eval: implements `deltaic eval`: reads a task, runs it on each checkpoint and prints one table.
#include "eval.h"
#include "command.h"
#include "eval_cost.h"
#include "eval_made.h"
#include "eval_text.h"
#include "recall.h"

#include <stdlib.h>
#include <string.h>

static const char about[] =
    "--task is a data set, whose file --data names, or a file of cases. A file of cases is JSONL, one object a line. "
    "{\"context\": ..., \"choices\": [...], \"gold\": 0} asks which choice is the likeliest. {\"context\": ..., "
    "\"target\": ...} asks how likely a text is. {\"context\": ..., \"contains\": ...} asks whether the greedy "
    "continuation contains a text. {\"document\": ...} asks how likely a document is per word. A list of token ids may "
    "replace any text. Scores are computed by the rules of EleutherAI's lm-evaluation-harness; docs/eval.md has "
    "them.\n\n"
    "A beginning that several texts share is read once. With --log every finished case is written to a file, and the "
    "same command continues an interrupted run.";

static const struct usage usage = {
    .name = "eval",
    .arguments = "[options] CHECKPOINT...",
    .summary = "Runs a test on one or more checkpoints and prints one table: accuracy, perplexity per word and byte, "
               "recall, with standard errors and the number of cases.",
    .examples = "  deltaic eval models/novelist --task lambada --data lambada_test.jsonl\n"
                "  deltaic eval models/novelist --task wikitext --data wiki.test.raw --json > before.json\n"
                "  deltaic eval big small --task hellaswag --data hellaswag_val.jsonl --log run.jsonl\n"
                "  deltaic eval models/novelist --task my_cases.jsonl --limit 100\n"
                "  deltaic eval --compare before.json after.json\n"
                "  deltaic eval s5 --task group --group S5 --length 100,1000,10000\n"
                "  deltaic eval recurrent transformer --task cost --plot cost.png\n"
                "  deltaic eval big small --task niah-2 --data book.txt --length 1024,8192\n"
                "  deltaic eval --task modular --length 40 --cases 1000 --write modular.jsonl\n",
    .most_arguments = ARGUMENTS_CAPACITY,
};

enum { DEFAULT_NEW = 48 };

struct request_line {
  struct eval_options options;
  struct made_options made;
  const char *task, *data, *log, *write, *plot;
  bool as_json, compare;
};

static bool is_cost(const struct request_line *r) { return !strcmp(r->task, "cost"); }

// Without a checkpoint the JSON describes only the task.
static int run_all(const struct request_line *r, const struct eval_task *task, const struct arguments *arguments) {
  struct eval_result results[ARGUMENTS_CAPACITY] = {{0}};
  size_t ran = 0;
  int code = EXIT_OK, written = EXIT_OK;
  struct text names[ARGUMENTS_CAPACITY];
  text_names(names, arguments->items, arguments->count);
  while (ran < arguments->count && !code) {
    results[ran].checkpoint = arguments->items[ran];
    results[ran].name = names[ran];
    code = eval_run(task, &r->options, r->log, &results[ran]);
    ran += !code || (code == EXIT_INTERRUPTED && results[ran].done);
  }
  if (ran || !arguments->count) { // a later failure does not discard earlier results
    if (r->as_json)
      written = eval_print_json(task, &r->options, results, ran);
    else
      eval_print(task, results, ran);
    if (!written && ran && r->plot) written = eval_plot(task, results, ran, r->plot);
  }
  for (size_t i = 0; i < arguments->count; ++i) eval_result_free(task, &results[i]);
  return written ? written : code;
}

// A name that is neither a task nor like a file name is treated as a mistyped task.
static int check_name(const char *task) {
  const char *names[64];
  size_t count = 0;
  if (file_there(task) || strpbrk(task, "./") || !strcmp(task, "-")) return EXIT_OK;
  for (size_t i = 0; count < 64 && eval_data_set(i); ++i) names[count++] = eval_data_set(i);
  for (size_t i = 0; count < 63 && made_at(i); ++i) names[count++] = made_at(i)->name;
  names[count++] = "cost";
  const char *near = nearest_name(task, names, count);
  if (near) return complain(EXIT_USAGE, "there is no task \"%s\"; did you mean %s?", task, near);
  return complain(EXIT_USAGE, "there is no task \"%s\" and no file of this name; --help lists the tasks", task);
}

static int check(const struct request_line *r, struct arguments *arguments) {
  if (!r->task) return complain(EXIT_USAGE, "no --task; --help lists them");
  const struct made *made = made_find(r->task);
  bool is_file = !made && !is_cost(r) && !eval_is_data_set(r->task);
  int code = is_file ? check_name(r->task) : EXIT_OK;
  if (!code) code = eval_options_check(r->task, arguments);
  if (code) return code;
  if (made && made->own && strstr(made->own, "data") && !r->data)
    return complain(EXIT_USAGE, "--task %s hides its needle in a real text: name its file with --data", r->task);
  if (eval_is_data_set(r->task) && !r->data)
    return complain(EXIT_USAGE, "--task %s needs its file: --data FILE", r->task);
  if (!arguments->count && !r->options.engine.model && !r->write) {
    const char *model = model_path(NULL);
    if (!model) return EXIT_USAGE;
    arguments->items[arguments->count++] = model;
  }
  if (r->options.engine.model) {
    if (arguments->count)
      return complain(EXIT_USAGE, "give models as arguments or with --model, not both: \"%s\" and \"%s\"",
                      arguments->items[0], r->options.engine.model);
    arguments->items[arguments->count++] = r->options.engine.model;
  }
  for (size_t i = 0; i < arguments->count && !code; ++i) code = model_check(arguments->items[i]);
  return code;
}

static void add_line(char **text, const char *line) {
  size_t used = strlen(*text), bytes = used + strlen(line) + 2;
  *text = must_resize(*text, bytes);
  snprintf(*text + used, bytes - used, "%s\n", line);
}

// Returns the help text with one line per task; the caller frees it.
static char *help_text(void) {
  char *text = text_copy(about, strlen(about)), *sets = eval_data_sets();
  const struct made *made;
  char line[256];
  add_line(&text, "\n\ntasks on data sets, --data their file:");
  add_line(&text, sets);
  add_line(&text, "\ntasks computed now:");
  for (size_t i = 0; (made = made_at(i)); ++i) {
    snprintf(line, sizeof line, "  %s: %s", made->name, made->about);
    add_line(&text, line);
  }
  add_line(&text, "  cost: tokens/s of reading and continuing a text of each --length, and the memory of its state");
  text[strlen(text) - 1] = 0; // print_wrapped ends the last line
  free(sets);
  return text;
}

static int read_task(struct request_line *r, const struct arguments *arguments, struct eval_task *task) {
  const struct made *made = made_find(r->task);
  bool asks_new = r->options.new_tokens;
  if (!r->options.new_tokens) r->options.new_tokens = made && made->new_tokens ? made->new_tokens : DEFAULT_NEW;
  if (!made) {
    int code = eval_task_read(r->task, r->data, &r->options, task);
    if (code || !asks_new || task->kind == EVAL_RECALL) return code;
    return complain(EXIT_USAGE, "--task %s takes no --new: no text of it is continued", r->task);
  }
  r->made.haystack = r->data;
  r->made.checkpoint = arguments->count ? arguments->items[0] : NULL;
  int code = made_task(made, &r->made, r->write, task);
  if (!code) eval_task_limit(task, r->options.limit);
  return code;
}

int command_eval(int argc, char **argv) {
  struct request_line r = {.options = {.engine = ENGINE_DEFAULTS},
                           .made = {.cases = 20,
                                    .seed = 1,
                                    .pairs = RECALL_PAIRS,
                                    .keys = RECALL_KEYS,
                                    .values = RECALL_VALUES,
                                    .writes = 1,
                                    .modulus = 5,
                                    .group = "S5"}};
  struct arguments arguments;
  int code;
  char *text = help_text();
  struct usage with_tasks = usage;
  with_tasks.text = text;
  const struct option options[] = {
      HEADING("the task"),
      TEXT('T', "task", "TASK", &r.task, "one of the tasks above, or a file of cases"),
      TEXT(0, "data", "FILE", &r.data, "the data set's file, or the text to hide a needle in"),
      COUNT('n', "limit", "N", &r.options.limit, 0, 0, "only the first N cases; 0: all"),
      COUNT(0, "new", "N", &r.options.new_tokens, 0, 4096,
            "most new tokens of a continuation that is checked; 0: 48, or 128 for niah"),
      COUNT(0, "max-length", "N", &r.options.max_length, 0, INT32_MAX,
            "most tokens of a text: longer texts lose their beginning, documents are read in windows; 0: the length "
            "in the model's config, or 2048"),
      FLAG(0, "no-bos", &r.options.no_bos,
           "leave out the special tokens that the tokenizer puts before a text; the harness did so by default until "
           "0.4.9.1"),
      COUNT(0, "sequences", "N", &r.options.engine.sequences, 0, 256,
            "texts computed at once; 0: 64 on a GPU, 8 on the CPU, fewer where their states would fill the memory"),
      FLAG(0, "skip-bad", &r.options.skip_bad, "leave malformed lines out, each with a sentence, instead of stopping"),
      ATTENTION_WINDOW_OPTION(&r.options.engine),
      HEADING("tasks computed now"),
      LIST('l', "length", "LIST", &r.made.lengths, 1, 16777216,
           "lengths of the texts in tokens; for niah they include the answer's 128 and count the first checkpoint's "
           "tokens; without it, the task's own lengths"),
      COUNT('c', "cases", "N", &r.made.cases, 1, 1000000, "texts of each length"),
      COUNT64('s', "seed", "N", &r.made.seed, "seed of the texts"),
      COUNT(0, "pairs", "N", &r.made.pairs, 1, 1000000, "mqar: pairs in a text"),
      COUNT(0, "keys", "N", &r.made.keys, 1, 1000000, "mqar: different keys, k0, k1, ..."),
      COUNT(0, "values", "N", &r.made.values, 1, 1000000, "mqar: different values, v0, v1, ..."),
      COUNT(0, "writes", "N", &r.made.writes, 1, 1000, "mqar: how often each key gets a new value"),
      TEXT('g', "group", "G", &r.made.group, "group: S2 to S6, A5, Z2 to Z1024, D3 to D512"),
      COUNT(0, "modulus", "N", &r.made.modulus, 2, 1000000, "modular: the modulus of the arithmetic"),
      TEXT('w', "write", "FILE", &r.write, "write the cases as JSONL too; without a checkpoint, do nothing else"),
      HEADING("output"),
      OUTPUT(0, "log", "FILE", &r.log,
             "append every finished case to FILE, and skip cases that FILE already has for this task, checkpoint and "
             "options"),
      OUTPUT(0, "plot", "FILE", &r.plot, "draw the first metric over the lengths, or the costs, into this PNG file"),
      FLAG(0, "compare", &r.compare,
           "compare two results of --json, given as FIRST SECOND in place of checkpoints: print the differences, and "
           "whether they exceed their errors"),
      FLAG(0, "busy", &r.options.busy,
           "print the share of time in which the device had work, from time stamps around each submission"),
      FLAG('q', "quiet", &r.options.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object, with every case's score"),
      ENGINE_OPTIONS(&r.options.engine),
      OPTIONS_END,
  };
  bool parsed = options_parse(&with_tasks, options, argc, argv, &arguments, &code);
  free(text);
  if (!parsed) return code;
  if (r.compare) {
    if (arguments.count != 2) return complain(EXIT_USAGE, "--compare takes two files written by eval --json");
    for (size_t i = 0; i < arguments.given_count; ++i) {
      const char *given = arguments.given[i];
      if (strcmp(given, "compare") && strcmp(given, "json") && strcmp(given, "quiet"))
        return complain(EXIT_USAGE, "--compare runs nothing: it takes no --%s", given);
    }
    return eval_compare(arguments.items[0], arguments.items[1], r.as_json);
  }
  code = check(&r, &arguments);
  struct eval_task task = {0};
  if (!code && is_cost(&r)) return eval_cost(&r.options.engine, &r.made.lengths, &arguments, r.as_json, r.plot);
  if (!code) code = read_task(&r, &arguments, &task);
  if (!code && r.plot) code = eval_plot_check(&task);
  if (!code && (arguments.count || r.as_json)) code = run_all(&r, &task, &arguments);
  eval_task_free(&task);
  return code;
}
