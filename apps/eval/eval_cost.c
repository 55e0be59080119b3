// eval_cost: extends one sequence to each length in turn, records the time so far and generates some tokens there.
// Recurrent states cost the same at every length; attention caches grow.
#include "eval_cost.h"
#include "common.h"
#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WARM_SECONDS 0.4
#define DRAW_SECONDS 0.2 // in a shorter measurement a single delay would be a large part of the time
enum { LEAST_DRAWN = 32, MOST_DRAWN = 512, WARM_UP = 2048, MOST_ROWS = ARGUMENTS_CAPACITY * LIST_CAPACITY };

struct cost_row {
  const char *checkpoint;
  struct text name; // name of the checkpoint
  uint32_t length;
  bool measured;          // false: its session does not fit
  double prefill, decode; // tokens per second: over the whole sequence; at its end
  uint32_t drawn;         // tokens measured for `decode`
  uint64_t state, cache;  // bytes
};

struct cost {
  const struct engine_options *options;
  const struct count_list *lengths;
  struct engine engine;
  deltaic_session *session;
  struct progress progress;
  uint64_t done, total; // tokens of the sequence
  uint64_t random;
  int32_t *tokens; // (the longest length)
  double seconds;  // prefill time so far
  uint64_t read;   // tokens that `seconds` covers
  char device[600];
  struct cost_row rows[MOST_ROWS];
  size_t count;
};

// ---------------------------------------------------------------- one sequence

// Evaluates in pieces, so that progress is shown.
static deltaic_status read_tokens(struct cost *c, size_t count) {
  enum { PIECE = 8192 };
  deltaic_status status = DELTAIC_OK;
  for (size_t n; count && !status && !interrupted(); count -= n) {
    n = count < PIECE ? count : PIECE;
    double start = time_now();
    status = deltaic_session_eval(c->session, c->tokens, n, DELTAIC_LOGITS_NONE, NULL);
    c->seconds += time_now() - start;
    c->read += n;
    c->done += n;
    progress_show(&c->progress, c->done, c->total);
  }
  return status;
}

// Generates at least LEAST_DRAWN tokens, then more until DRAW_SECONDS have passed or there are `most` tokens.
static deltaic_status draw_tokens(struct cost *c, struct cost_row *row, uint64_t most) {
  deltaic_status status = DELTAIC_OK;
  int32_t token;
  double start = time_now(), seconds = 0;
  for (row->drawn = 0; row->drawn < LEAST_DRAWN || (row->drawn < most && seconds < DRAW_SECONDS);) {
    status = deltaic_session_next(c->session, NULL, &token, NULL);
    if (status) break;
    seconds = time_now() - start;
    ++row->drawn;
  }
  row->decode = row->drawn / seconds;
  c->done += row->drawn;
  return status;
}

// Warms up, so that compilation, recording and the time until the device reaches its full clock are not measured.
// WARM_UP tokens include the largest slices that GPUs take.
static deltaic_status warm_up(struct cost *c, uint32_t length) {
  struct cost_row ignored;
  double start = time_now();
  deltaic_status status;
  c->total = length < WARM_UP ? length : WARM_UP;
  progress_begin(&c->progress, "warming up", "tokens", c->options->quiet);
  do {
    c->done = 0;
    status = read_tokens(c, length < WARM_UP ? length : WARM_UP);
    if (!status) status = draw_tokens(c, &ignored, MOST_DRAWN);
    if (!status) status = deltaic_session_reset(c->session);
  } while (!status && !interrupted() && time_now() - start < WARM_SECONDS);
  c->seconds = 0;
  c->read = 0;
  return status;
}

// The generated tokens become part of the sequence; evaluation continues after them to the next length.
static deltaic_status measure_length(struct cost *c, struct cost_row *row, uint32_t next) {
  uint64_t at = deltaic_session_position(c->session);
  deltaic_status status = read_tokens(c, row->length > at ? row->length - at : 1);
  at = deltaic_session_position(c->session);
  const uint64_t room = next > at ? next - at - 1 : 0;
  if (!status && !interrupted()) status = draw_tokens(c, row, room < MOST_DRAWN ? room : MOST_DRAWN);
  if (status || interrupted()) return status;
  row->prefill = (double)c->read / c->seconds;
  row->measured = true;
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- one checkpoint

static deltaic_session_options session_for(const struct cost *c, uint32_t length) {
  struct engine_options o = *c->options;
  // The tokens generated at earlier lengths add to the context.
  o.context = length + (uint32_t)c->lengths->count * (LEAST_DRAWN + 1) + MOST_DRAWN;
  return session_options(&o);
}

static int add_rows(struct cost *c, const char *checkpoint, struct text name) {
  for (size_t i = 0; i < c->lengths->count; ++i) {
    deltaic_session_options o = session_for(c, c->lengths->values[i]);
    struct cost_row *row = &c->rows[c->count + i];
    deltaic_memory memory;
    int code = complain_status(deltaic_model_get_memory(c->engine.model, &o, &memory));
    if (code) return code;
    *row = (struct cost_row){.checkpoint = checkpoint, .name = name, .length = c->lengths->values[i]};
    row->cache = memory.cache_per_token * row->length;
    row->state = memory.state_bytes - memory.cache_per_token * o.context;
  }
  return EXIT_OK;
}

// Measures as many lengths as fit into the memory; the others remain unmeasured.
static int open_session(struct cost *c, size_t *fit) {
  deltaic_status status = DELTAIC_OUT_OF_MEMORY;
  for (*fit = c->lengths->count; *fit && status; *fit -= status != DELTAIC_OK) {
    deltaic_session_options o = session_for(c, c->lengths->values[*fit - 1]);
    status = deltaic_session_create(c->engine.model, &o, &c->session);
    if (status && status != DELTAIC_OUT_OF_MEMORY && status != DELTAIC_UNSUPPORTED) return complain_status(status);
  }
  return EXIT_OK;
}

static int measure_checkpoint(struct cost *c, const char *checkpoint, struct text name) {
  struct engine_options o = *c->options;
  size_t fit = 0;
  o.model = checkpoint;
  int code = engine_open(&o, &c->engine);
  if (!code) snprintf(c->device, sizeof c->device, "%s", engine_device_text(&c->engine));
  if (!code) code = add_rows(c, checkpoint, name);
  if (!code) code = open_session(c, &fit);
  uint32_t longest = c->lengths->values[c->lengths->count - 1];
  for (uint32_t i = 0; i < longest + WARM_UP && !code; ++i)
    c->tokens[i] = (int32_t)random_below(&c->random, (uint32_t)c->engine.model_info.vocabulary);
  interrupt_watch(c->session);
  if (!code && fit) code = complain_work(warm_up(c, c->lengths->values[fit - 1]));
  c->done = 0;
  c->total = fit ? c->lengths->values[fit - 1] : 0;
  progress_begin(&c->progress, "reading", "tokens", c->options->quiet);
  for (size_t i = 0; i < fit && !code; ++i) {
    uint32_t next = i + 1 < fit ? c->lengths->values[i + 1] : UINT32_MAX;
    code = complain_work(measure_length(c, &c->rows[c->count + i], next));
  }
  interrupt_watch(NULL);
  progress_clear();
  if (!code || code == EXIT_INTERRUPTED) c->count += c->lengths->count;
  deltaic_session_free(c->session);
  c->session = NULL;
  return engine_close(&c->engine, code);
}

// ---------------------------------------------------------------- reports

static void print(const struct cost *c) {
  struct table table;
  printf("device  %s\n", c->device);
  if (c->options->attention_window)
    printf("window  softmax attention sees %s tokens\n", text_count(c->options->attention_window).text);
  printf("\n");
  table_begin(&table, "lrrrrr");
  table_row(&table, "checkpoint", "tokens", "prefill tokens/s", "decode tokens/s", "state", "cache");
  for (size_t i = 0; i < c->count; ++i) {
    const struct cost_row *r = &c->rows[i];
    table_row(&table, r->name.text, text_count(r->length).text, r->measured ? text_rate(r->prefill).text : "-",
              r->measured ? text_rate(r->decode).text : "-", text_bytes(r->state).text,
              r->cache ? text_bytes(r->cache).text : "none");
  }
  table_end(&table, 0);
  printf("\nprefill: of all tokens up to there; decode: of the %d to %d tokens from there on; state and cache: of one "
         "text.\n",
         LEAST_DRAWN, MOST_DRAWN);
}

static int print_json(const struct cost *c) {
  json_t *rows = json_array();
  for (size_t i = 0; i < c->count; ++i) {
    const struct cost_row *r = &c->rows[i];
    json_array_append_new(
        rows, json_pack("{s:o, s:I, s:o, s:o, s:I, s:I, s:I}", "checkpoint", text_json(r->checkpoint), "tokens",
                        (json_int_t)r->length, "prefill", number_json(r->measured ? r->prefill : NAN), "decode",
                        number_json(r->measured ? r->decode : NAN), "drawn", (json_int_t)(r->measured ? r->drawn : 0),
                        "state_bytes", (json_int_t)r->state, "cache_bytes", (json_int_t)r->cache));
  }
  return json_finish(json_pack("{s:s, s:s, s:o, s:s, s:I, s:o}", "deltaic", deltaic_version(), "task", "cost", "device",
                               text_json(c->device), "precision", c->options->precision, "attention_window",
                               (json_int_t)c->options->attention_window, "rows", rows));
}

// Returns the value of a row on each panel's y axis.
static double panel_value(const struct cost_row *r, int panel) {
  if (panel == 3) return (double)(r->state + r->cache) / (1 << 20);
  if (!r->measured) return NAN;
  return panel == 0 ? r->prefill : panel == 1 ? r->decode : r->length / r->prefill;
}

static int draw(const struct cost *c, const char *path) {
  static const char *const titles[] = {"Reading a text", "Continuing it", "Time to the first new token",
                                       "Memory of the text"},
                           *const units[] = {"prefill, tokens/s", "decode, tokens/s", "seconds",
                                             "state and cache, MiB"};
  size_t n = c->lengths->count, checkpoints = c->count / n;
  double *x = must_resize(NULL, 2 * c->count * sizeof *x), *y = x + c->count;
  struct series series[ARGUMENTS_CAPACITY];
  struct plot *plot = plot_create("Cost over length");
  for (int panel = 0; panel < 4; ++panel) {
    for (size_t i = 0; i < c->count; ++i) {
      x[i] = c->rows[i].length;
      y[i] = panel_value(&c->rows[i], panel);
    }
    for (size_t s = 0; s < checkpoints; ++s) {
      series[s] = (struct series){.name = c->rows[s * n].name.text,
                                  .x = x + s * n,
                                  .y = y + s * n,
                                  .count = n,
                                  .style = s < PLOT_COLORS ? SERIES_LINE : SERIES_DASHED,
                                  .color = (int)(s % PLOT_COLORS)};
    }
    struct chart chart = {.title = titles[panel],
                          .x = {.title = "tokens in the text", .log = true},
                          .y = {.title = units[panel], .log = true},
                          .series = series,
                          .count = checkpoints};
    plot_chart(plot, plot_area(plot, 2, 2, panel % 2, panel / 2), &chart);
  }
  int code = plot_finish(plot, path);
  free(x);
  return code;
}

// ---------------------------------------------------------------- all checkpoints

static int by_size(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

int eval_cost(const struct engine_options *options, const struct count_list *lengths, const struct arguments *arguments,
              bool as_json, const char *plot) {
  struct count_list sorted = *lengths;
  struct cost *c = must_resize(NULL, sizeof *c);
  memset(c, 0, sizeof *c);
  if (!sorted.count)
    sorted = (struct count_list){.values = {1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000}, .count = 8};
  qsort(sorted.values, sorted.count, sizeof *sorted.values, by_size);
  c->options = options;
  c->lengths = &sorted;
  uint32_t longest = sorted.values[sorted.count - 1];
  c->tokens = must_resize(NULL, ((size_t)longest + WARM_UP) * sizeof *c->tokens);
  int code = EXIT_OK, written = EXIT_OK;
  struct text names[ARGUMENTS_CAPACITY];
  text_names(names, arguments->items, arguments->count);
  for (size_t i = 0; i < arguments->count && !code; ++i) code = measure_checkpoint(c, arguments->items[i], names[i]);
  if (c->count && (!code || code == EXIT_INTERRUPTED)) {
    if (as_json)
      written = print_json(c);
    else
      print(c);
    if (!written && plot) written = draw(c, plot);
  }
  free(c->tokens);
  free(c);
  return written ? written : code;
}
