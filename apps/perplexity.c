// perplexity: computes the mean negative log-likelihood of a text's tokens, each predicted from its window.
//   NLL = mean of -log p(token);   perplexity = exp(NLL)
#include "command.h"
#include "common.h"
#include "engine.h"
#include "eval_text.h" // split_words
#include "likelihood.h"
#include "platform.h"
#include "positions.h"
#include "print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "perplexity",
    .arguments = "[options] [MODEL...] FILE",
    .summary = "Measures how well a model predicts a text: the mean negative log-likelihood of its tokens, and the "
               "perplexity, which is its exponential. Lower is better. FILE - is standard input.",
    .text =
        "The text is cut into windows of --window tokens, each read from a fresh state. A window's first token has "
        "nothing before it and is not scored, unless --bos puts the begin token there. With --stride below --window, "
        "windows overlap: each starts --stride tokens after the one before and scores only the tokens that no window "
        "has scored yet, so that every score has at least window - stride tokens before it. --window 0 reads the whole "
        "text in one go, its state carried along: what recurrent models are made for.\n\n"
        "Several models read the text one after the other. --by-position and --plot show how the loss depends on the "
        "position in the window: what comes of a text longer than those a model was trained on.\n\n"
        "Ctrl-C prints the result so far; the exit code is then 130.",
    .examples = "  deltaic perplexity models/novelist book.txt\n"
                "  deltaic perplexity book.txt --window 512 --stride 256\n"
                "  deltaic perplexity book.txt --window 0              one text, one state\n"
                "  deltaic perplexity book.txt --windows 4 --json | jq .nll\n"
                "  deltaic perplexity big small book.txt --window 16384 --plot length.png\n",
    .most_arguments = ARGUMENTS_CAPACITY,
};

struct request {
  struct engine_options engine;
  const char *file, *by_position, *plot;
  uint32_t window, stride, windows;
  bool bos, as_json;
};

struct score {
  struct engine engine;
  deltaic_session *session;
  struct progress progress;
  int32_t *ids; // tokens of the text; ids[-1] is reserved for the begin token
  size_t count;
  size_t window, stride, windows; // resolved; windows: number of windows
  struct likelihood likelihood;
  struct positions *positions; // NULL: not requested
  size_t first_id;             // 1 if ids[0] is the begin token
  uint64_t words, bytes;       // of the text
  uint64_t evaluated, total;
  size_t windows_done;
  double seconds;
};

// ---------------------------------------------------------------- windows

// A window: tokens [begin, end) are evaluated from a zero state, and [scored, end) are scored.
struct window {
  size_t begin, scored, end;
};

static struct window window_at(const struct score *s, size_t index, bool bos) {
  struct window w = {.begin = index * s->stride};
  w.end = s->count - w.begin < s->window ? s->count : w.begin + s->window;
  w.scored = index ? w.begin + s->window - s->stride : 0;
  if (w.scored == w.begin && !bos) ++w.scored;
  return w;
}

// Returns the number of windows that score every token; a last window without a prediction is omitted.
static size_t count_windows(const struct score *s, bool bos) {
  size_t first = s->count < s->window ? s->count : s->window;
  size_t windows = 1 + (s->count - first + s->stride - 1) / s->stride;
  struct window last = window_at(s, windows - 1, bos);
  return last.scored < last.end ? windows : windows - 1;
}

static int lay_out(struct score *s, const struct request *r) {
  if (s->count < (r->bos ? 1 : 2)) return complain(EXIT_FAILED, "%s: too short: there is nothing to predict", r->file);
  s->window = r->window ? r->window : s->count;
  s->stride = r->stride ? r->stride : s->window;
  s->windows = count_windows(s, r->bos);
  if (r->windows && r->windows < s->windows) s->windows = r->windows;
  for (size_t i = 0; i < s->windows; ++i) {
    struct window w = window_at(s, i, r->bos);
    s->total += w.end - w.begin - !r->bos;
  }
  return EXIT_OK;
}

// ---------------------------------------------------------------- scores

static bool on_read(void *user, size_t tokens) {
  struct score *s = user;
  s->evaluated += tokens;
  progress_show(&s->progress, s->evaluated, s->total);
  return !interrupted();
}

static void on_scored(void *user, size_t index, double nll) {
  struct score *s = user;
  if (s->positions) positions_add(s->positions, index - s->first_id, nll);
}

static deltaic_status score_window(struct score *s, struct window w, bool bos) {
  int32_t *ids = s->ids + w.begin, before = ids[-1];
  if (bos) *--ids = s->engine.model_info.bos_token;
  deltaic_status status = deltaic_session_reset(s->session);
  if (!status)
    status = likelihood_read(&s->likelihood, s->session, ids, w.end - w.begin + bos, w.scored - w.begin + bos);
  s->ids[(ptrdiff_t)w.begin - 1] = before;
  return status;
}

static int score_text(struct score *s, const struct request *r) {
  deltaic_status status = DELTAIC_OK;
  const struct moment start = engine_now(&s->engine);
  progress_begin(&s->progress, "reading the text", "tokens", r->engine.quiet);
  interrupt_watch(s->session);
  for (size_t i = 0; i < s->windows && !status && !interrupted(); ++i) {
    status = score_window(s, window_at(s, i, r->bos), r->bos);
    if (!status && !interrupted()) ++s->windows_done;
  }
  interrupt_watch(NULL);
  progress_clear();
  s->seconds = engine_seconds(&s->engine, start);
  return complain_work(status);
}

// ---------------------------------------------------------------- opening

static int read_text(struct score *s, const struct request *r, const char *model) {
  deltaic_tokenizer *tokenizer = NULL;
  int32_t *ids = NULL;
  size_t bytes;
  char *text = file_read(r->file, &bytes);
  if (!text) return EXIT_FAILED;
  s->words = split_words(text, bytes);
  s->bytes = bytes;
  int code = tokenizer_open(model, &tokenizer);
  if (!code) code = text_encode(tokenizer, text, bytes, r->file, false, &ids, &s->count);
  if (!code) {
    s->ids = must_resize(NULL, (s->count + 1) * sizeof *s->ids);
    *s->ids++ = 0;
    for (size_t i = 0; i < s->count; ++i) s->ids[i] = ids[i];
  }
  deltaic_tokenizer_close(tokenizer);
  free(ids);
  free(text);
  return code;
}

static int open_score(struct score *s, const struct request *r) {
  int code = read_text(s, r, r->engine.model);
  if (!code) code = lay_out(s, r);
  if (!code) code = engine_open(&r->engine, &s->engine);
  if (code) return code;
  if (r->bos && s->engine.model_info.bos_token < 0)
    return complain(EXIT_FAILED, "%s: has no begin token for --bos", r->engine.model);
  struct engine_options options = r->engine;
  size_t longest = s->window < s->count ? s->window : s->count;
  if (!options.context) options.context = longest < UINT32_MAX ? (uint32_t)longest + 1 : UINT32_MAX;
  likelihood_begin(&s->likelihood, r->engine.batch);
  s->likelihood.user = s;
  s->likelihood.read = on_read;
  s->likelihood.scored = on_scored;
  s->first_id = r->bos;
  return session_create(&s->engine, &options, &s->session);
}

// ---------------------------------------------------------------- reports

// Loss per word and per byte exists only if every token except the text's first one was predicted.
static bool is_whole(const struct score *s, bool complete) {
  return complete && s->likelihood.predictions + 1 >= s->count;
}

static void report(const struct score *s, const struct request *r, bool whole) {
  double nll = s->likelihood.nll / (double)s->likelihood.predictions;
  printf("text         %s, %s tokens\n", r->file, text_count(s->count).text);
  printf("model        %s\n", r->engine.model);
  printf("device       %s\n", engine_device_text(&s->engine));
  if (r->window)
    printf("windows      %s of %zu tokens, stride %zu%s\n", text_count(s->windows_done).text, s->window, s->stride,
           r->bos ? ", after the begin token" : "");
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
                   text_json(r->file), "model", text_json(r->engine.model), "device",
                   text_json(engine_device_text(&s->engine)), "tokens", (json_int_t)s->count, "window",
                   (json_int_t)s->window, "stride", (json_int_t)s->stride, "windows", (json_int_t)s->windows_done,
                   "bos", r->bos, "complete", whole, "predictions", (json_int_t)s->likelihood.predictions, "nll",
                   number_json(nll), "perplexity", number_json(exp(nll)), "seconds", number_json(s->seconds),
                   "tokens_per_second", number_json((double)s->evaluated / s->seconds), "word_perplexity",
                   number_json(all ? exp(s->likelihood.nll / (double)s->words) : NAN), "byte_perplexity",
                   number_json(all ? exp(s->likelihood.nll / (double)s->bytes) : NAN));
}

// results: receives the JSON, unless it is NULL.
static int measure(const struct request *r, struct positions *positions, json_t *results) {
  struct score s = {.positions = positions};
  int code = open_score(&s, r);
  if (!code) code = score_text(&s, r);
  if (!code && !isfinite(s.likelihood.nll))
    code = complain(EXIT_FAILED, "%s: its logits are not finite: numbers overflow", r->engine.model);
  if ((!code || code == EXIT_INTERRUPTED) && s.likelihood.predictions) {
    if (results)
      json_array_append_new(results, report_json(&s, r, !code));
    else
      report(&s, r, !code);
  }
  deltaic_session_free(s.session);
  likelihood_end(&s.likelihood);
  if (s.ids) free(s.ids - 1);
  return engine_close(&s.engine, code);
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
    if (arguments->count > 1) r->engine.model = arguments->items[ran];
    struct text name = arguments->count > 1 ? names[ran] : text_name(r->engine.model);
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
  struct request r = {.engine = ENGINE_DEFAULTS, .window = 512};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("windows"),
      COUNT('w', "window", "N", &r.window, 0, 0, "tokens of a window; 0: the whole text"),
      COUNT('s', "stride", "N", &r.stride, 0, 0,
            "tokens from one window's start to the next; 0: as many as the window"),
      COUNT(0, "windows", "N", &r.windows, 0, 0, "only the first N windows; 0: all"),
      FLAG(0, "bos", &r.bos, "begin every window with the begin token"),
      ATTENTION_WINDOW_OPTION(&r.engine),
      HEADING("output"),
      OUTPUT(0, "by-position", "FILE", &r.by_position,
             "write the mean NLL at each position of the windows as CSV, and its moving average over 501 tokens"),
      OUTPUT(0, "plot", "FILE", &r.plot,
             "draw the perplexity over the position, averaged the same way, into this PNG file"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      ENGINE_OPTIONS(&r.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (arguments.count > 1 && r.engine.model)
    return complain(EXIT_USAGE, "give models as arguments or with --model, not both: \"%s\" and \"%s\"",
                    arguments.items[0], r.engine.model);
  if (!arguments.count) return complain(EXIT_USAGE, "no FILE; - is standard input");
  r.file = arguments.items[arguments.count - 1];
  if (platform_is(r.file, PATH_FOLDER))
    return complain(EXIT_USAGE, "no FILE with a text after %s, which is a folder; - is standard input", r.file);
  if (r.window == 1 && !r.bos) return complain(EXIT_USAGE, "--window 1 predicts nothing without --bos");
  if (r.window && r.stride > r.window)
    return complain(EXIT_USAGE, "--stride %u is more than --window %u: tokens would be left out", r.stride, r.window);
  if (!r.window && r.stride) return complain(EXIT_USAGE, "--window 0 is one window: it has no --stride");
  if (arguments.count == 1 && !(r.engine.model = model_path(r.engine.model))) return EXIT_USAGE;
  return measure_all(&r, &arguments);
}
