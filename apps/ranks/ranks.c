// ranks: implements `deltaic rank`: measures the ranks of the states over a text (include/deltaic_prune.h).
#include "ranks.h"
#include "command.h"
#include "common.h"
#include "corpus.h"
#include "platform.h"
#include "print.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "rank",
    .arguments = "[options] CHECKPOINT... --text FILE",
    .summary = "Reads a text and measures how much of each head's recurrent state is used: stable (effective) rank, "
               "rank utilization, entropy rank, condition.",
    .text = "States are those of the model's own recurrence, decay and doubled beta included, recorded after every "
            "--every tokens. Rank utilization is the stable rank over min(key size, value size). The condition leaves "
            "out singular values below 1e-6 of the first, which are rounding. Several checkpoints share one table and "
            "one plot of each kind, for instance before and after pruning.\n\n"
            "--plot DIR draws: utilization.png (over tokens, and by layer), spectrum.png (singular values), "
            "similarity.png (of consecutive recorded states). For each checkpoint it draws layers-, beta-, filters- "
            "and, for Head-in-Head, masks-NAME.png.",
    .examples = "  deltaic rank models/mine --text book.txt\n"
                "  deltaic rank models/mine models/pruned --text book.txt --plot plots --csv ranks.csv\n"
                "  deltaic rank models/mine --text documents.txt --separator '<|end|>' --every 1 --tokens 400\n",
    .most_arguments = RANK_CHECKPOINTS,
};

// Sets the names: the folder names, numbered if several checkpoints share one.
static void name_checkpoints(struct measured *m, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    size_t same = 0;
    struct text name = text_name(m[i].path);
    for (size_t j = 0; j < i; ++j) same += !strcmp(text_name(m[j].path).text, name.text);
    snprintf(m[i].name, sizeof m[i].name, "%s", name.text);
    for (char *c = m[i].name; *c; ++c)
      if (platform_separator(*c)) *c = '_';
    size_t length = strlen(m[i].name);
    if (same) snprintf(m[i].name + length, sizeof m[i].name - length, "-%zu", same + 1);
  }
}

// Checks before any work that files can be written into the folder.
static int check_folder(const char *path) {
  char inside[1024];
  snprintf(inside, sizeof inside, "%.1000s/.", path);
  int code = platform_writable(inside);
  return code ? complain_file(path, code) : EXIT_OK;
}

static int measure_all(struct measured *m, size_t count, const struct rank_request *r) {
  int code = EXIT_OK, written = EXIT_OK;
  for (size_t i = 0; i < count && !code; ++i) code = measure_checkpoint(&m[i], r);
  if (code) return code;
  if (r->as_json)
    written = ranks_json(m, count);
  else
    ranks_print(m, count, r);
  if (!written && r->csv) written = ranks_csv(m, count, r->csv);
  if (!written && r->plot) written = ranks_plot(m, count, r);
  return written;
}

int command_rank(int argc, char **argv) {
  struct rank_request r = {.engine = ENGINE_EXACT, .tokens = 1024, .every = 16};
  struct measured measured[RANK_CHECKPOINTS] = {0};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("text"),
      TEXT('f', "text", "FILE", &r.text,
           "plain text, JSONL (.jsonl; each record is a document) or token ids (.safetensors) to read; - is plain text "
           "from standard input"),
      COUNT('n', "tokens", "N", &r.tokens, 0, 0, "only the first N tokens; 0: all"),
      COUNT('e', "every", "N", &r.every, 1, 4096, "record states after every N tokens"),
      TEXT(0, "separator", "TEXT", &r.separator,
           "the text between documents of plain text; each is read after a begin token, and plots mark its beginning"),
      HEADING("output"),
      FLAG(0, "heads", &r.heads, "a row for each head"),
      OUTPUT(0, "csv", "FILE", &r.csv, "write every measure of every recorded state"),
      TEXT(0, "plot", "DIR", &r.plot, "draw plots into this folder, which must exist"),
      LIST('l', "layers", "N,N,...", &r.layers, 0, 0, "layers to draw; without it, some from the first to the last"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS(&r.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (!r.text) return complain(EXIT_USAGE, "no text: name a file with --text");
  if (r.separator && !corpus_is_plain(r.text))
    return complain(EXIT_USAGE, "%s: --separator goes with plain text", r.text);
  if (arguments.count > 1 && !strcmp(r.text, "-"))
    return complain(EXIT_USAGE, "several checkpoints cannot all read standard input");
  if (arguments.count > 1 && r.engine.adapter) return complain(EXIT_USAGE, "--adapter goes with one checkpoint");
  if (r.plot && r.engine.adapter)
    return complain(EXIT_USAGE, "--plot draws the checkpoint's own weights: it takes no --adapter");
  if (r.layers.count && !r.plot) return complain(EXIT_USAGE, "--layers chooses what --plot draws");
  if (arguments.count && r.engine.model)
    return complain(EXIT_USAGE, "give models as arguments or with --model, not both: \"%s\" and \"%s\"",
                    arguments.items[0], r.engine.model);
  size_t count = arguments.count ? arguments.count : 1;
  for (size_t i = 0; i < count; ++i) {
    measured[i].path = arguments.count ? arguments.items[i] : model_path(r.engine.model);
    if (!measured[i].path) return EXIT_USAGE;
  }
  name_checkpoints(measured, count);
  code = r.plot ? check_folder(r.plot) : EXIT_OK;
  for (size_t i = 0; i < count && !code; ++i) code = model_check(measured[i].path);
  if (!code) code = measure_all(measured, count, &r);
  for (size_t i = 0; i < count; ++i) measured_free(&measured[i]);
  return code;
}
