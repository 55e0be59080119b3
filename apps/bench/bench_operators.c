// bench_operators: measures single kernels of the delta rule and single matrix products (bench_matmuls.c), and prints
// each time with its floor and the error of the result.
#include "bench.h"
#include "common.h"
#include "print.h"

#include <stdio.h>
#include <string.h>

static const double most_error = 1e-3; // twice the usual error of 16-bit operands

#define GATED .gated = true
#define PROMPT .rule = DELTAIC_RULE_AUTO // as --rule says
#define STEP .rule = DELTAIC_RULE_RECURRENT
#define ROW(text, B, T, H, K, V, ...)                                                                                  \
  {                                                                                                                    \
    .name = text, .o = {.sequences = B, .tokens = T, .heads = H, .key = K, .value = V, __VA_ARGS__ }                   \
  }
#define AGAINST(text, B, T, H, K, V, ...)                                                                              \
  { .name = text, .o = {.sequences = B, .tokens = T, .heads = H, .key = K, .value = V, __VA_ARGS__}, .against = true }
static const struct shape {
  const char *name;
  deltaic_operator o;
  bool against; // also measure the recurrent kernel
} table[] =
    {
        ROW("gated delta", 32, 2048, 16, 128, 128, GATED, PROMPT),
        ROW("plain matrices", 32, 2048, 16, 128, 128, .plain = true, GATED, PROMPT),
        ROW("gated delta", 32, 2048, 16, 64, 128, GATED, PROMPT),
        ROW("gated delta", 32, 2048, 16, 32, 128, GATED, PROMPT),
        ROW("gated delta", 32, 2048, 16, 96, 128, GATED, PROMPT),
        ROW("gated delta", 32, 2048, 16, 76, 128, GATED, PROMPT),
        ROW("gated delta", 32, 2048, 16, 49, 128, GATED, PROMPT),
        ROW("plain matrices", 32, 2048, 16, 76, 128, .plain = true, GATED, PROMPT),
        ROW("delta", 32, 2048, 16, 128, 128, PROMPT),
        ROW("gated delta", 1, 2048, 16, 128, 128, GATED, PROMPT),
        ROW("gated delta", 1, 8192, 16, 128, 128, GATED, PROMPT),
        ROW("gated delta", 1, 32768, 16, 128, 128, GATED, PROMPT),
        ROW("gated delta", 1, 8192, 6, 256, 512, GATED, PROMPT),
        ROW("product of 2", 32, 2048, 16, 128, 128, .steps = 2, GATED, PROMPT),
        ROW("product of 3", 32, 2048, 16, 128, 128, .steps = 3, GATED, PROMPT),
        ROW("head-in-head 2", 32, 2048, 16, 128, 128, .blocks = 2, GATED, PROMPT),
        ROW("head-in-head 4", 32, 2048, 16, 128, 128, .blocks = 4, GATED, PROMPT),
        ROW("head-in-head 8", 32, 2048, 16, 128, 128, .blocks = 8, GATED, PROMPT),
        ROW("plain matrices", 32, 2048, 16, 128, 128, .blocks = 4, .plain = true, GATED, PROMPT),
        ROW("head-in-head 4", 1, 2048, 16, 128, 128, .blocks = 4, GATED, PROMPT),
        ROW("head-in-head 4", 1, 32768, 16, 128, 128, .blocks = 4, GATED, PROMPT),
        // heads and lengths of "Parallelizing Linear Transformers with the Delta Rule", table 1; it states no batch
        AGAINST("delta", 8, 2048, 32, 64, 64, PROMPT),
        AGAINST("delta", 8, 2048, 16, 128, 128, PROMPT),
        AGAINST("delta", 8, 2048, 8, 256, 256, PROMPT),
        AGAINST("delta", 8, 4096, 32, 64, 64, PROMPT),
        AGAINST("delta", 8, 4096, 16, 128, 128, PROMPT),
        AGAINST("delta", 8, 8192, 32, 64, 64, PROMPT),
        AGAINST("delta", 1, 2048, 32, 64, 64, PROMPT),
        AGAINST("delta", 1, 2048, 16, 128, 128, PROMPT),
        AGAINST("delta", 1, 2048, 8, 256, 256, PROMPT),
        AGAINST("delta", 1, 4096, 32, 64, 64, PROMPT),
        AGAINST("delta", 1, 4096, 16, 128, 128, PROMPT),
        AGAINST("delta", 1, 8192, 32, 64, 64, PROMPT),
        ROW("recurrent", 32, 2048, 16, 128, 128, GATED, STEP),
        ROW("one token", 32, 1, 16, 128, 128, GATED, STEP),
},
  small[] = {
      // for software devices
      AGAINST("gated delta", 2, 64, 2, 16, 16, GATED, PROMPT),
      ROW("recurrent", 2, 64, 2, 16, 16, GATED, STEP),
      ROW("one token", 2, 1, 2, 16, 16, GATED, STEP),
};

enum { MOST = sizeof table / sizeof *table };

struct operators {
  struct engine engine;
  struct bench_rates rates;
  struct {
    deltaic_operator o;
    const char *name;
    deltaic_operator_result r;
    double floor, recurrent; // recurrent: seconds of the recurrent kernel; 0: not measured
  } rows[MOST];
  size_t count;
  struct bench_matmuls matmuls;
};

static struct text shape_text(const deltaic_operator *o) {
  struct text t;
  snprintf(t.text, sizeof t.text, "%u x %u, %u x %u, %u", o->sequences, o->tokens, o->key, o->value, o->heads);
  return t;
}

// Whether `only` is part of the row's text, e.g. "gated delta, 32 x 2048, 128 x 128, 16".
static bool wanted(const struct shape *s, const char *only) {
  char text[128];
  snprintf(text, sizeof text, "%s, %s", s->name, shape_text(&s->o).text);
  return !only || strstr(text, only);
}

static const struct shape *shapes_for(const struct engine *engine, size_t *count) {
  const bool software = bench_software(engine);
  *count = software ? sizeof small / sizeof *small : MOST;
  return software ? small : table;
}

static bool any_wanted(const struct engine *engine, const char *only) {
  size_t count;
  const struct shape *shapes = shapes_for(engine, &count);
  for (size_t i = 0; i < count; i++)
    if (wanted(&shapes[i], only)) return true;
  return bench_matmuls_any(engine, only);
}

// Whether the row was computed by chunks: the names of their kernels say so.
static bool by_chunks(const struct operators *b, size_t i) {
  const char *kernel = b->rows[i].r.kernels[0].name;
  return strstr(kernel, "chunk") || strstr(kernel, "matrix");
}

// The reference is the recurrence in float32, with which the CPU's recurrent kernel is identical.
static bool has_error(const struct operators *b, size_t i) {
  return b->engine.device_info.kind != DELTAIC_DEVICE_CPU || by_chunks(b, i);
}

static deltaic_status measure_row(struct operators *b, const struct shape *s, size_t i,
                                  const struct engine_options *options, uint32_t repeat) {
  deltaic_operator *o = &b->rows[i].o;
  *o = s->o;
  o->size = sizeof *o;
  o->repeat = repeat;
  if (o->rule == DELTAIC_RULE_AUTO) o->rule = engine_rule(options);
  o->precision = engine_precision(options);
  b->rows[i].name = s->name;
  deltaic_status status = deltaic_device_measure_operator(b->engine.device, o, &b->rows[i].r);
  b->rows[i].floor = bench_floor(&b->rates, b->rows[i].r.bytes, b->rows[i].r.operations);
  if (!s->against || status) return status;
  deltaic_operator other = *o;
  deltaic_operator_result r;
  other.rule = DELTAIC_RULE_RECURRENT;
  status = deltaic_device_measure_operator(b->engine.device, &other, &r);
  b->rows[i].recurrent = r.seconds;
  return status;
}

static deltaic_status measure(struct operators *b, const struct engine_options *options, const char *only,
                              uint32_t repeat) {
  size_t count;
  const struct shape *shapes = shapes_for(&b->engine, &count);
  struct progress progress;
  deltaic_status status = deltaic_device_copy_bandwidth(b->engine.device, &b->rates.copy);
  if (!status) status = deltaic_device_matrix_rate(b->engine.device, &b->rates.matrices);
  progress_begin(&progress, "measuring", NULL, false);
  for (size_t i = 0; i < count && !status; i++) {
    if (!wanted(&shapes[i], only)) continue;
    status = measure_row(b, &shapes[i], b->count, options, repeat);
    b->count += !status;
    progress_show(&progress, i + 1, count);
  }
  b->matmuls.rates = b->rates;
  if (!status)
    status = bench_matmuls_measure(&b->matmuls, &b->engine, engine_precision(options), only, repeat, &progress);
  progress_clear();
  return status;
}

static struct text error_text(const struct operators *b, size_t i, double error) {
  struct text t = {"-"};
  if (has_error(b, i)) snprintf(t.text, sizeof t.text, "%.1e", error);
  return t;
}

static void print(const struct operators *b) {
  struct table rows;
  printf("device    %s\n", b->engine.device_info.name);
  if (*b->engine.device_info.driver) printf("driver    %s\n", b->engine.device_info.driver);
  printf("copy      %s GB/s, read and written\n", text_giga(b->rates.copy).text);
  printf("products  %s GFLOP/s\n\n", text_giga(b->rates.matrices).text);
  if (!b->count) return;
  table_begin(&rows, "lrlrrrrrrl");
  table_row(&rows, "operator", "texts x tokens, d_k x d_v, heads", "by", "time", "floor", "ratio", "recurrent",
            "error of o", "of S", "kernels, microseconds");
  for (size_t i = 0; i < b->count; i++) {
    const deltaic_operator_result *r = &b->rows[i].r;
    struct text ratio, recurrent = {""};
    char kernels[TABLE_CELL] = "";
    snprintf(ratio.text, sizeof ratio.text, "%.2f", r->seconds / b->rows[i].floor);
    if (b->rows[i].recurrent > 0)
      snprintf(recurrent.text, sizeof recurrent.text, "%.2f x", b->rows[i].recurrent / r->seconds);
    for (size_t k = 0, used = 0; k < r->kernel_count && used < sizeof kernels; k++)
      used += (size_t)snprintf(kernels + used, sizeof kernels - used, "%s%.1f", k ? " + " : "",
                               1e6 * r->kernels[k].seconds / b->rows[i].o.repeat);
    table_row(&rows, b->rows[i].name, shape_text(&b->rows[i].o).text, by_chunks(b, i) ? "chunks" : "tokens",
              text_seconds(r->seconds).text, text_seconds(b->rows[i].floor).text, ratio.text, recurrent.text,
              error_text(b, i, r->error_output).text, error_text(b, i, r->error_state).text, kernels);
  }
  table_end(&rows, 0);
}

static json_t *number_or_null(bool there, double number) { return there ? number_json(number) : json_null(); }

static json_t *row_json(const struct operators *b, size_t i) {
  const deltaic_operator *o = &b->rows[i].o;
  const deltaic_operator_result *r = &b->rows[i].r;
  json_t *kernels = json_object();
  for (size_t k = 0; k < r->kernel_count; k++)
    json_object_set_new(kernels, r->kernels[k].name, number_json(r->kernels[k].seconds / o->repeat));
  return json_pack(
      "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o}",
      "operator", b->rows[i].name, "sequences", (int)o->sequences, "tokens", (int)o->tokens, "heads", (int)o->heads,
      "key", (int)o->key, "value", (int)o->value, "steps", (int)(o->steps ? o->steps : 1), "blocks",
      (int)(o->blocks ? o->blocks : 1), "gated", o->gated, "plain", o->plain, "recurrent",
      o->rule == DELTAIC_RULE_RECURRENT, "chunks", by_chunks(b, i), "seconds", number_json(r->seconds), "least",
      number_json(r->least), "most", number_json(r->most), "floor", number_json(b->rows[i].floor), "seconds_recurrent",
      number_or_null(b->rows[i].recurrent > 0, b->rows[i].recurrent), "error_output",
      number_or_null(has_error(b, i), r->error_output), "error_state", number_or_null(has_error(b, i), r->error_state),
      "bytes", (json_int_t)r->bytes, "operations", (json_int_t)r->operations, "kernels", kernels);
}

static int print_json(const struct operators *b) {
  json_t *rows = json_array();
  for (size_t i = 0; i < b->count; i++) json_array_append_new(rows, row_json(b, i));
  return json_finish(json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "version", deltaic_version(), "device",
                               bench_device_json(&b->engine), "copy_bytes_per_second", number_json(b->rates.copy),
                               "products_per_second", number_json(b->rates.matrices), "operators", rows, "products",
                               bench_matmuls_json(&b->matmuls)));
}

static bool right(const struct operators *b) {
  for (size_t i = 0; i < b->count; i++)
    if (!(b->rows[i].r.error_output < most_error && b->rows[i].r.error_state < most_error)) return false;
  return true;
}

int bench_operators(struct engine_options *options, const char *only, uint32_t repeat, bool as_json) {
  static struct operators b;
  if (precision_check(options)) return EXIT_USAGE;
  int code = context_open(options, &b.engine.context);
  if (!code) code = engine_open_device(options, &b.engine);
  if (!code && !any_wanted(&b.engine, only)) code = complain(EXIT_USAGE, "no row of --operators has \"%s\"", only);
  if (!code) {
    code = complain_work(measure(&b, options, only, repeat));
    const bool any = b.count || b.matmuls.count;
    if (any && as_json) {
      code = print_json(&b) ? EXIT_FAILED : code;
    } else if (any) {
      print(&b);
      if (b.count && b.matmuls.count) printf("\n");
      bench_matmuls_print(&b.matmuls);
    }
    if (!code && !(right(&b) && bench_matmuls_right(&b.matmuls, most_error)))
      code = complain(EXIT_FAILED, "an operator's results are further off than %g", most_error);
  }
  return engine_close(&b.engine, code);
}
