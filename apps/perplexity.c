// perplexity: computes the mean negative log-likelihood of a text's tokens, each predicted from its window.
//   NLL = mean of -log p(token);   perplexity = exp(NLL)
#include "command.h"
#include "platform.h"
#include "print.h"
#include "score_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "perplexity",
    .arguments = "[options] [MODEL...] FILE",
    .summary = "Measures how well a model predicts a text: the mean negative log-likelihood of its tokens, and the "
               "perplexity, which is its exponential. Lower is better. FILE is plain text, JSONL with a field "
               "\"text\" (.jsonl), or token ids (.safetensors, the tensor \"tokens\"); - is plain text "
               "from standard input.",
    .text =
        "The records of JSONL are joined to one text, each with its begin and end tokens. "
        "The text is cut into windows of --window tokens. Each window starts from a zero state. Its first token has "
        "nothing "
        "before it and is not scored, unless --bos puts the begin token there. With --stride below --window, windows "
        "overlap: each starts --stride tokens after the one before, and scores only the tokens that no earlier window "
        "has scored. So every score has at least window - stride tokens before it. --window 0 reads the whole text as "
        "one sequence, for which recurrent models are made.\n\n"
        "With several models, one after the other reads the text. --by-position and --plot show how the loss depends "
        "on "
        "the position in the window, for instance beyond the length of the training sequences.\n\n"
        "Ctrl-C prints the result so far; the exit code is then 130.",
    .examples = "  deltaic perplexity models/novelist book.txt\n"
                "  deltaic perplexity book.txt --window 512 --stride 256\n"
                "  deltaic perplexity book.txt --window 0              one text, one state\n"
                "  deltaic perplexity book.txt --windows 4 --json | jq .nll\n"
                "  deltaic perplexity big small book.txt --window 16384 --plot length.png\n",
    .most_arguments = ARGUMENTS_CAPACITY,
};

struct request {
  struct score_options score;
  const char *by_position, *plot;
  bool as_json;
};

// ---------------------------------------------------------------- reports

// Loss per word and per byte exists only if the file has text, and every token but the first was predicted.
static bool is_whole(const struct score *s, bool complete) {
  return complete && s->bytes && s->likelihood.predictions + 1 >= s->count;
}

static void report(const struct score *s, const struct request *r, bool whole) {
  double nll = s->likelihood.nll / (double)s->likelihood.predictions;
  printf("text         %s, %s tokens\n", r->score.file, text_count(s->count).text);
  printf("model        %s\n", r->score.engine.model);
  printf("device       %s\n", engine_device_text(&s->engine));
  if (r->score.window)
    printf("windows      %s of %zu tokens, stride %zu%s\n", text_count(s->windows_done).text, s->window, s->stride,
           r->score.bos ? ", after the begin token" : "");
  else
    printf("windows      the whole text in one\n");
  if (!whole)
    printf("stopped      by %s, after %s of %zu windows\n", interrupt_name(), text_count(s->windows_done).text,
           s->windows);
  printf("predictions  %s\n", text_count(s->likelihood.predictions).text);
  printf("mean NLL     %.6f nats (%.4f bits)\n", nll, nll / log(2));
  printf("perplexity   %.4f\n", exp(nll));
  if (is_whole(s, whole))
    printf("             %.4f per word, %.6f per byte\n", exp(s->likelihood.nll / (double)s->words),
           exp(s->likelihood.nll / (double)s->bytes));
  printf("time         %s, %s tokens/s\n", text_seconds(s->seconds).text,
         text_rate((double)s->evaluated / s->seconds).text);
}

static json_t *report_json(const struct score *s, const struct request *r, bool whole) {
  double nll = s->likelihood.nll / (double)s->likelihood.predictions;
  bool all = is_whole(s, whole);
  return json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:b, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "file",
                   text_json(r->score.file), "model", text_json(r->score.engine.model), "device",
                   text_json(engine_device_text(&s->engine)), "tokens", (json_int_t)s->count, "window",
                   (json_int_t)s->window, "stride", (json_int_t)s->stride, "windows", (json_int_t)s->windows_done,
                   "bos", r->score.bos, "complete", whole, "predictions", (json_int_t)s->likelihood.predictions, "nll",
                   number_json(nll), "perplexity", number_json(exp(nll)), "seconds", number_json(s->seconds),
                   "tokens_per_second", number_json((double)s->evaluated / s->seconds), "word_perplexity",
                   number_json(all ? exp(s->likelihood.nll / (double)s->words) : NAN), "byte_perplexity",
                   number_json(all ? exp(s->likelihood.nll / (double)s->bytes) : NAN));
}

// results: receives the JSON, unless it is NULL.
static int measure(const struct request *r, struct positions *positions, json_t *results) {
  struct score s = {.positions = positions};
  int code = score_open(&s, &r->score);
  if (!code) code = score_run(&s, &r->score);
  if ((!code || code == EXIT_INTERRUPTED) && s.likelihood.predictions) {
    if (results)
      json_array_append_new(results, report_json(&s, r, !code));
    else
      report(&s, r, !code);
  }
  return score_close(&s, code);
}

// Prints one object for one model, or a list for several.
static int finish_json(json_t *results) {
  if (!results || !json_array_size(results)) return EXIT_OK;
  json_t *object =
      json_array_size(results) == 1 ? json_incref(json_array_get(results, 0)) : json_pack("{s:O}", "results", results);
  return json_finish(object);
}

static int measure_all(struct request *r, const struct arguments *arguments) {
  struct positions curves[ARGUMENTS_CAPACITY];
  json_t *results = r->as_json ? json_array() : NULL;
  size_t count = arguments->count > 1 ? arguments->count - 1 : 1, ran = 0;
  memset(curves, 0, sizeof curves);
  struct text names[ARGUMENTS_CAPACITY];
  text_names(names, arguments->items, count);
  int code = EXIT_OK, written;
  for (size_t i = 0; i < count && arguments->count > 1 && !code; ++i) code = model_check(arguments->items[i]);
  for (; ran < count && !code; ++ran) {
    if (arguments->count > 1) r->score.engine.model = arguments->items[ran];
    struct text name = arguments->count > 1 ? names[ran] : text_name(r->score.engine.model);
    snprintf(curves[ran].name, sizeof curves[ran].name, "%s", name.text);
    if (ran && !results) printf("\n");
    code = measure(r, r->by_position || r->plot ? &curves[ran] : NULL, results);
  }
  written = finish_json(results);
  if (!written && r->by_position && curves[0].count) written = positions_write(curves, ran, r->by_position);
  if (!written && r->plot && curves[0].count) written = positions_draw(curves, ran, r->plot);
  for (size_t i = 0; i < count; ++i) positions_free(&curves[i]);
  json_decref(results);
  return written ? written : code;
}

int command_perplexity(int argc, char **argv) {
  struct request r = {.score = {.engine = ENGINE_DEFAULTS, .window = 512}};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("windows"),
      COUNT('w', "window", "N", &r.score.window, 0, 0, "tokens of a window; 0: the whole text"),
      COUNT('s', "stride", "N", &r.score.stride, 0, 0,
            "tokens from one window's start to the next; 0: as many as the window"),
      COUNT(0, "windows", "N", &r.score.windows, 0, 0, "only the first N windows; 0: all"),
      FLAG(0, "bos", &r.score.bos, "begin every window with the begin token"),
      ATTENTION_WINDOW_OPTION(&r.score.engine),
      HEADING("output"),
      OUTPUT(0, "by-position", "FILE", &r.by_position,
             "write the mean NLL at each position of the windows as CSV, and its moving average over 501 tokens"),
      OUTPUT(0, "plot", "FILE", &r.plot,
             "draw the perplexity over the position, averaged the same way, into this PNG file"),
      FLAG('q', "quiet", &r.score.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS(&r.score.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (arguments.count > 1 && r.score.engine.model)
    return complain(EXIT_USAGE, "give models as arguments or with --model, not both: \"%s\" and \"%s\"",
                    arguments.items[0], r.score.engine.model);
  if (!arguments.count) return complain(EXIT_USAGE, "no FILE; - is standard input");
  r.score.file = arguments.items[arguments.count - 1];
  if (platform_is(r.score.file, PATH_FOLDER))
    return complain(EXIT_USAGE, "no FILE with a text after %s, which is a folder; - is standard input", r.score.file);
  if (r.score.window == 1 && !r.score.bos) return complain(EXIT_USAGE, "--window 1 predicts nothing without --bos");
  if (r.score.window && r.score.stride > r.score.window)
    return complain(EXIT_USAGE, "--stride %u is more than --window %u: tokens would be left out", r.score.stride,
                    r.score.window);
  if (!r.score.window && r.score.stride) return complain(EXIT_USAGE, "--window 0 is one window: it has no --stride");
  if (arguments.count == 1 && !(r.score.engine.model = model_path(r.score.engine.model))) return EXIT_USAGE;
  return measure_all(&r, &arguments);
}
