// demo_recall: implements `deltaic demo recall`: compares a DeltaNet that stores pairs with an additive state.
#include "checkpoint_writer.h"
#include "common.h"
#include "demo.h"
#include "demo_recaller.h"
#include "plot.h"
#include "print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct usage usage = {
    .name = "demo recall",
    .arguments = "[options]",
    .summary = "Builds a one-layer DeltaNet that stores pairs of a key and a value and predicts the value after a key. "
               "Asks for every key after all pairs were read (multi-query associative recall), with keys written "
               "once and again with new values, and with more and more pairs.",
    .text = "Beside it runs the same checkpoint with beta 1.5e-8 in place of 1. In float32 1 - beta is then 1: nothing "
            "is erased, and the state is the sum of all pairs, as in linear attention. Overwritten keys have unit "
            "vectors for keys, "
            "which do not disturb each other. Capacity is measured with random keys as the layer's SiLU leaves them, "
            "which all point to the same side. docs/demos.md has the equations.",
    .examples = "  deltaic demo recall\n"
                "  deltaic demo recall --key-size 32,64 --plot recall.png\n"
                "  deltaic demo recall --out pairs\n"
                "  deltaic generate pairs --prompt 'k1 v4 k2 v7 k1 v9 k2 k1' -n 1 --greedy      v9\n",
};

enum { VALUES = 32, OVERWRITES = 4, LOADS = 8, RULES = 2, PIECE = 512, MOST_LOAD = 3 };
static const double loads[LOADS] = {0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, MOST_LOAD}; // pairs / d_k
static const char *const rules[RULES] = {"delta rule", "additive"};

struct request {
  struct engine_options engine;
  struct count_list key_sizes;
  const char *out, *plot;
  uint32_t texts, pairs;
  uint64_t seed;
  bool as_json, additive, force;
};

struct demo {
  const struct request *r;
  struct engine engine; // its model is the current one
  struct progress progress;
  uint32_t key_size;                            // d_k of the overwriting test: the largest requested
  double overwritten[OVERWRITES][RULES];        // accuracy after 1, 2, ... writes of each key
  double accuracy[LIST_CAPACITY][LOADS][RULES]; // accuracy with random keys
  double capacity[LIST_CAPACITY][RULES];        // pairs at which the accuracy falls below 90%
  uint64_t done, total;                         // sequences
};

// ---------------------------------------------------------------- a sequence

struct text_of_pairs {
  int32_t *tokens;
  size_t written, count; // tokens of the pairs; all tokens
  uint32_t *expected;    // (pairs) expected value of each query
};

static void shuffle(uint32_t *items, uint32_t count, uint64_t *seed) {
  for (uint32_t i = count; i > 1; --i) {
    uint32_t j = random_below(seed, i), kept = items[i - 1];
    items[i - 1] = items[j];
    items[j] = kept;
  }
}

// Returns <s>, then all pairs `writes` times with new values in a new order, then the keys alone in another order.
static struct text_of_pairs make_text(const struct recaller *r, uint32_t pairs, uint32_t writes, uint64_t *seed) {
  struct text_of_pairs t = {.written = 1 + 2 * (size_t)pairs * writes, .count = 1 + (2 * (size_t)writes + 1) * pairs};
  uint32_t *keys = must_resize(NULL, r->keys * sizeof *keys), *latest = must_resize(NULL, r->keys * sizeof *latest);
  int32_t *next = t.tokens = must_resize(NULL, t.count * sizeof *t.tokens);
  t.expected = must_resize(NULL, pairs * sizeof *t.expected);
  for (uint32_t i = 0; i < r->keys; ++i) keys[i] = i;
  shuffle(keys, r->keys, seed); // only the first `pairs` keys are used
  *next++ = 0;
  for (uint32_t w = 0; w < writes; ++w) {
    shuffle(keys, pairs, seed);
    for (uint32_t i = 0; i < pairs; ++i) {
      latest[keys[i]] = random_below(seed, r->values);
      *next++ = recaller_key(keys[i]);
      *next++ = recaller_value(r, latest[keys[i]]);
    }
  }
  shuffle(keys, pairs, seed);
  for (uint32_t i = 0; i < pairs; ++i) {
    *next++ = recaller_key(keys[i]);
    t.expected[i] = latest[keys[i]];
  }
  free(latest);
  free(keys);
  return t;
}

static bool is_right(const struct recaller *r, const float *logits, uint32_t value) {
  int32_t best = 0, V = 1 + (int32_t)(r->keys + r->values);
  for (int32_t v = 1; v < V; ++v)
    if (logits[v] > logits[best]) best = v;
  return best == recaller_value(r, value);
}

// Adds the number of correct answers to *right.
static deltaic_status run_text(deltaic_session *session, const struct recaller *r, const struct text_of_pairs *t,
                               float *logits, uint64_t *right) {
  size_t V = 1 + r->keys + r->values;
  deltaic_status status = deltaic_session_reset(session);
  if (!status) status = deltaic_session_eval(session, t->tokens, t->written, DELTAIC_LOGITS_NONE, NULL);
  for (size_t at = t->written, n; at < t->count && !status; at += n) {
    n = t->count - at < PIECE ? t->count - at : PIECE;
    status = deltaic_session_eval(session, t->tokens + at, n, DELTAIC_LOGITS_ALL, logits);
    for (size_t i = 0; i < n && !status; ++i) *right += is_right(r, logits + i * V, t->expected[at - t->written + i]);
  }
  return status;
}

// Computes the share of correct answers over the sequences. Both rules read the same sequences.
static deltaic_status run_texts(struct demo *d, deltaic_session *session, const struct recaller *r, uint32_t pairs,
                                uint32_t writes, double *accuracy) {
  float *logits = must_resize(NULL, sizeof(float) * PIECE * (1 + r->keys + r->values));
  uint64_t seed = d->r->seed * 1000003 + pairs * 101 + writes, right = 0;
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 0; i < d->r->texts && !status && !interrupted(); ++i) {
    struct text_of_pairs t = make_text(r, pairs, writes, &seed);
    status = run_text(session, r, &t, logits, &right);
    free(t.expected);
    free(t.tokens);
    progress_show(&d->progress, ++d->done, d->total);
  }
  free(logits);
  *accuracy = (double)right / ((double)pairs * d->r->texts);
  return status;
}

// ---------------------------------------------------------------- a model

// Writes a model, opens it and creates a session. The files are deleted before it returns.
static int open_model(struct demo *d, const struct recaller *r, deltaic_session **session) {
  char *folder = temporary_folder();
  if (!folder) return EXIT_FAILED;
  deltaic_session_options options = session_options(&d->r->engine);
  int code = recaller_write(r, folder);
  deltaic_model_close(d->engine.model);
  d->engine.model = NULL;
  if (!code) code = complain_status(deltaic_model_open(d->engine.device, folder, NULL, &d->engine.model));
  if (!code) code = complain_status(deltaic_session_create(d->engine.model, &options, session));
  checkpoint_delete(folder);
  free(folder);
  return code;
}

static int close_session(deltaic_session *session, deltaic_status status) {
  int code = complain_work(status);
  interrupt_watch(NULL);
  deltaic_session_free(session);
  return code;
}

static int measure_overwrites(struct demo *d, int rule) {
  struct recaller r = {d->key_size, d->key_size, VALUES, true, rule == 1, d->r->seed};
  deltaic_session *session = NULL;
  deltaic_status status = DELTAIC_OK;
  int code = open_model(d, &r, &session);
  if (code) return code;
  interrupt_watch(session);
  for (uint32_t w = 0; w < OVERWRITES && !status; ++w)
    status = run_texts(d, session, &r, d->r->pairs, w + 1, &d->overwritten[w][rule]);
  return close_session(session, status);
}

static uint32_t pairs_at(uint32_t key_size, int load) { return (uint32_t)fmax(1, loads[load] * key_size); }

// Interpolates linearly where the accuracy falls below 90%. Returns NAN if that is not between two loads.
static double capacity_of(const struct demo *d, size_t size, int rule) {
  uint32_t Dk = d->r->key_sizes.values[size];
  for (int i = 1; i < LOADS; ++i) {
    double before = d->accuracy[size][i - 1][rule], here = d->accuracy[size][i][rule];
    if (before < 0.9) break;
    if (here >= 0.9) continue;
    return pairs_at(Dk, i - 1) + (before - 0.9) / (before - here) * (pairs_at(Dk, i) - pairs_at(Dk, i - 1));
  }
  return NAN;
}

static int measure_capacity(struct demo *d, size_t size, int rule) {
  uint32_t Dk = d->r->key_sizes.values[size];
  struct recaller r = {Dk, MOST_LOAD * Dk, VALUES, false, rule == 1, d->r->seed};
  deltaic_session *session = NULL;
  deltaic_status status = DELTAIC_OK;
  int code = open_model(d, &r, &session);
  if (code) return code;
  interrupt_watch(session);
  for (int i = 0; i < LOADS && !status; ++i)
    status = run_texts(d, session, &r, pairs_at(Dk, i), 1, &d->accuracy[size][i][rule]);
  d->capacity[size][rule] = capacity_of(d, size, rule);
  return close_session(session, status);
}

static int measure(struct demo *d) {
  int code = EXIT_OK;
  d->total = (uint64_t)d->r->texts * RULES * (OVERWRITES + LOADS * d->r->key_sizes.count);
  progress_begin(&d->progress, "recalling", NULL, d->r->engine.quiet);
  for (int rule = 0; rule < RULES && !code; ++rule) {
    code = measure_overwrites(d, rule);
    for (size_t i = 0; i < d->r->key_sizes.count && !code; ++i) code = measure_capacity(d, i, rule);
  }
  progress_clear();
  return code;
}

// ---------------------------------------------------------------- output

static struct text number(double value) {
  struct text out;
  snprintf(out.text, sizeof out.text, "%g", value);
  return out;
}

static struct text whole(double value) {
  struct text out;
  snprintf(out.text, sizeof out.text, isnan(value) ? "-" : "%.0f", value);
  return out;
}

static struct text percent(double part) {
  struct text out;
  snprintf(out.text, sizeof out.text, "%.1f%%", 100 * part);
  return out;
}

static void print_overwrites(const struct demo *d) {
  struct table table;
  printf("overwritten keys: %u pairs, unit vectors of %u for keys, each written again with a new value\n", d->r->pairs,
         d->key_size);
  table_begin(&table, "rrr");
  table_row(&table, "writes", rules[0], rules[1]);
  for (int w = 0; w < OVERWRITES; ++w)
    table_row(&table, number(w + 1).text, percent(d->overwritten[w][0]).text, percent(d->overwritten[w][1]).text);
  table_end(&table, 2);
}

static void print_capacity(const struct demo *d) {
  struct table table;
  printf("\ncapacity: random keys after SiLU, %d values; right answers with each load, in pairs per number of a key\n",
         VALUES);
  table_begin(&table, "rlrrrrrrrrr");
  table_row(&table, "d_k", "rule", number(loads[0]).text, number(loads[1]).text, number(loads[2]).text,
            number(loads[3]).text, number(loads[4]).text, number(loads[5]).text, number(loads[6]).text,
            number(loads[7]).text, "90% up to");
  for (size_t i = 0; i < d->r->key_sizes.count; ++i)
    for (int rule = 0; rule < RULES; ++rule) {
      struct text cells[LOADS];
      for (int l = 0; l < LOADS; ++l) cells[l] = percent(d->accuracy[i][l][rule]);
      table_row(&table, number(d->r->key_sizes.values[i]).text, rules[rule], cells[0].text, cells[1].text,
                cells[2].text, cells[3].text, cells[4].text, cells[5].text, cells[6].text, cells[7].text,
                whole(d->capacity[i][rule]).text);
    }
  table_end(&table, 2);
}

static int print_json(const struct demo *d) {
  json_t *overwritten = json_array(), *capacity = json_array();
  for (int w = 0; w < OVERWRITES; ++w)
    json_array_append_new(overwritten, json_pack("{s:i, s:f, s:f}", "writes", w + 1, "delta", d->overwritten[w][0],
                                                 "additive", d->overwritten[w][1]));
  for (size_t i = 0; i < d->r->key_sizes.count; ++i)
    for (int l = 0; l < LOADS; ++l)
      json_array_append_new(capacity, json_pack("{s:i, s:i, s:f, s:f}", "key_size", (int)d->r->key_sizes.values[i],
                                                "pairs", (int)pairs_at(d->r->key_sizes.values[i], l), "delta",
                                                d->accuracy[i][l][0], "additive", d->accuracy[i][l][1]));
  return json_finish(json_pack("{s:s, s:i, s:i, s:i, s:I, s:o, s:o}", "device", engine_device_text(&d->engine),
                               "values", VALUES, "pairs", (int)d->r->pairs, "texts", (int)d->r->texts, "seed",
                               (json_int_t)d->r->seed, "overwritten", overwritten, "capacity", capacity));
}

// ---------------------------------------------------------------- the plot

// Draws the accuracy over the pairs, and the capacity over d_k. Orthogonal unit vectors have a capacity of d_k.
static int draw(const struct demo *d) {
  size_t sizes = d->r->key_sizes.count;
  static double x[LIST_CAPACITY][LOADS], y[LIST_CAPACITY][RULES][LOADS], most[RULES + 1][LIST_CAPACITY];
  static double Dk[LIST_CAPACITY];
  static char names[LIST_CAPACITY][RULES][48];
  struct series curves[LIST_CAPACITY * RULES], lines[RULES + 1];
  for (size_t i = 0; i < sizes; ++i) {
    Dk[i] = most[RULES][i] = d->r->key_sizes.values[i];
    for (int rule = 0; rule < RULES; ++rule) {
      most[rule][i] = d->capacity[i][rule];
      snprintf(names[i][rule], sizeof names[i][rule], "d_k %u, %s", d->r->key_sizes.values[i], rules[rule]);
      for (int l = 0; l < LOADS; ++l) {
        x[i][l] = pairs_at(d->r->key_sizes.values[i], l);
        y[i][rule][l] = 100 * d->accuracy[i][l][rule];
      }
      curves[i * RULES + (size_t)rule] = (struct series){
          names[i][rule], x[i], y[i][rule], LOADS, rule ? SERIES_DASHED : SERIES_LINE, (int)i % PLOT_COLORS};
    }
  }
  for (int rule = 0; rule < RULES; ++rule)
    lines[rule] = (struct series){rules[rule], Dk, most[rule], sizes, rule ? SERIES_DASHED : SERIES_LINE, rule};
  lines[RULES] = (struct series){"unit vectors (d_k)", Dk, most[RULES], sizes, SERIES_LINE, PLOT_GREY};
  struct plot *plot = plot_create("Associative recall of one DeltaNet head, random keys after SiLU");
  plot_chart(plot, plot_area(plot, 2, 1, 0, 0),
             &(struct chart){.title = "right answers",
                             .x = {.title = "pairs in the state", .log = true},
                             .y = {.title = "right (%)", .least = 0, .most = 105},
                             .series = curves,
                             .count = sizes * RULES});
  plot_chart(plot, plot_area(plot, 2, 1, 1, 0),
             &(struct chart){.title = "capacity",
                             .x = {.title = "d_k", .log = true},
                             .y = {.title = "pairs with 90% right", .log = true},
                             .series = lines,
                             .count = RULES + 1});
  return plot_finish(plot, d->r->plot);
}

// ---------------------------------------------------------------- the command

static int recall(const struct request *r) {
  struct demo d = {.r = r};
  for (size_t i = 0; i < r->key_sizes.count; ++i)
    if (r->key_sizes.values[i] > d.key_size) d.key_size = r->key_sizes.values[i];
  if (r->pairs > d.key_size)
    return complain(EXIT_USAGE, "--pairs %u: only %u unit vectors of --key-size", r->pairs, d.key_size);
  interrupt_catch();
  int code = EXIT_OK;
  if (r->out) {
    struct recaller kept = {d.key_size, d.key_size, VALUES, true, r->additive, r->seed};
    code = checkpoint_place(r->out, r->force);
    if (!code) code = recaller_write(&kept, r->out);
  }
  if (!code) code = context_open(&r->engine, &d.engine.context);
  if (!code) code = engine_open_device(&r->engine, &d.engine);
  if (!code) code = measure(&d);
  if (!code && r->plot) code = draw(&d);
  if (!code && r->as_json) code = print_json(&d);
  if (!code && !r->as_json) {
    print_overwrites(&d);
    print_capacity(&d);
  }
  return engine_close(&d.engine, code);
}

int demo_recall(int argc, char **argv) {
  struct request r = {.engine = ENGINE_EXACT,
                      .key_sizes = {.values = {16, 32, 64, 128}, .count = 4},
                      .texts = 16,
                      .pairs = 16,
                      .seed = 1};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("the models"),
      LIST('k', "key-size", "LIST", &r.key_sizes, 4, 512, "d_k of the models; overwriting uses the largest"),
      TEXT('o', "out", "DIR", &r.out, "keep a checkpoint with unit vectors for keys there, for generate and others"),
      FLAG(0, "additive", &r.additive, "of --out: keep the additive one in place of the delta rule's"),
      FLAG(0, "force", &r.force, "of --out: replace a checkpoint that is there"),
      HEADING("the texts"),
      COUNT('n', "pairs", "N", &r.pairs, 1, 512, "pairs whose keys are overwritten"),
      COUNT(0, "texts", "N", &r.texts, 1, 10000, "random texts behind every number"),
      COUNT64('s', "seed", "N", &r.seed, "of keys and texts"),
      HEADING("output"),
      OUTPUT(0, "plot", "FILE", &r.plot, "draw right answers and capacity into this PNG file"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      DEMO_DEVICE_OPTIONS(&r.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (!r.out && (r.additive || r.force))
    return complain(EXIT_USAGE, "--%s goes with --out", r.additive ? "additive" : "force");
  return recall(&r);
}
