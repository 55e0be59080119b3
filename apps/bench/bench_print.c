// bench_print: prints bench's tables and JSON.
#include "bench.h"
#include "print.h"

#include <stdio.h>

static double per(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

static const char *phase(const struct row *row) { return row->decode ? "decode" : "prefill"; }

// Returns the number of tokens of all sequences together.
static double tokens_of(const struct bench *b, const struct row *row) { return (double)row->tokens * b->sequences; }

static void print_head(const struct bench *b) {
  const deltaic_model_info *m = &b->engine.model_info;
  printf("device   %s\n", b->engine.device_info.name);
  if (*b->engine.device_info.driver) printf("driver   %s\n", b->engine.device_info.driver);
  printf("model    %s: %s, %s parameters\n", b->model, m->layers_text, text_short((double)m->parameters).text);
  printf("memory   %s weights, %s state, %s scratch\n", text_bytes(b->memory.weights_bytes).text,
         text_bytes(b->memory.state_bytes).text, text_bytes(b->memory.scratch_bytes).text);
  printf("copy     %s GB/s, read and written\n", text_giga(b->rates.copy).text);
  if (b->kernels) printf("products %s GFLOP/s\n", text_giga(b->rates.matrices).text);
  if (b->sequences > 1) printf("texts    %u at once\n", b->sequences);
  printf("\n");
}

static void print_rows(const struct bench *b) {
  struct table table;
  table_begin(&table, "lrrrrrrrrr");
  table_row(&table, "phase", "tokens", "runs", "tokens/s", "slowest", "fastest", "per token", "GB/s", "of copy",
            "GFLOP/s");
  for (size_t i = 0; i < b->row_count; ++i) {
    const struct row *r = &b->rows[i];
    table_row(&table, phase(r), text_count(r->tokens).text, text_count(r->runs).text,
              text_rate(per(tokens_of(b, r), r->median)).text, text_rate(per(tokens_of(b, r), r->most)).text,
              text_rate(per(tokens_of(b, r), r->least)).text, text_seconds(r->median / tokens_of(b, r)).text,
              text_giga(per((double)r->bytes, r->median)).text,
              text_percent(per((double)r->bytes, r->median) / b->rates.copy).text,
              text_giga(per((double)r->operations, r->median)).text);
  }
  table_end(&table, 0);
}

static struct text milliseconds(double seconds, int decimals) {
  struct text t;
  snprintf(t.text, sizeof t.text, "%.*f", decimals, 1e3 * seconds);
  return t;
}

static void print_kernel(struct table *table, const struct bench *b, const deltaic_kernel_time *k, double floor,
                         const char *dispatches, const char *share) {
  struct text least = {"-"}, ratio = {"-"};
  if (floor > 0) {
    least = milliseconds(floor, 4);
    snprintf(ratio.text, sizeof ratio.text, "%.2f", k->seconds / floor);
  }
  table_row(table, k->name, dispatches, milliseconds(k->seconds, 3).text, least.text, ratio.text, share,
            text_giga(per((double)k->bytes, k->seconds)).text,
            text_percent(per((double)k->bytes, k->seconds) / b->rates.copy).text,
            text_giga(per((double)k->operations, k->seconds)).text);
}

static void print_kernels(const struct bench *b, const struct row *row) {
  struct table table;
  double floors = 0; // sum over the kernels, which run one after the other
  printf("\nkernels of %s, %s tokens\n", phase(row), text_count(row->tokens).text);
  table_begin(&table, "lrrrrrrrr");
  table_row(&table, "kernel", "dispatches", "ms", "floor ms", "ratio", "share", "GB/s", "of copy", "GFLOP/s");
  for (size_t i = 0; i < row->kernel_count; ++i) {
    const deltaic_kernel_time *k = &row->kernels[i];
    const double floor = bench_floor(&b->rates, k->bytes, k->operations);
    print_kernel(&table, b, k, floor, text_count(k->dispatches).text,
                 text_percent(k->seconds / row->kernel_seconds).text);
    floors += floor;
  }
  const deltaic_kernel_time all = {
      .name = "all", .seconds = row->kernel_seconds, .bytes = row->bytes, .operations = row->operations};
  print_kernel(&table, b, &all, floors, "", "");
  table_end(&table, 2);
}

void bench_print(const struct bench *b) {
  print_head(b);
  print_rows(b);
  for (size_t i = 0; b->kernels && i < b->row_count; ++i) print_kernels(b, &b->rows[i]);
  if (b->experts_count) bench_experts_print(b);
}

// ---------------------------------------------------------------- JSON

static json_t *kernels_json(const struct bench *b, const struct row *row) {
  json_t *out = json_array();
  for (size_t i = 0; i < row->kernel_count; ++i) {
    const deltaic_kernel_time *k = &row->kernels[i];
    const double floor = bench_floor(&b->rates, k->bytes, k->operations);
    json_array_append_new(out, json_pack("{s:o, s:I, s:o, s:o, s:I, s:I}", "name", text_json(k->name), "dispatches",
                                         (json_int_t)k->dispatches, "seconds", number_json(k->seconds), "floor",
                                         floor > 0 ? number_json(floor) : json_null(), "bytes", (json_int_t)k->bytes,
                                         "operations", (json_int_t)k->operations));
  }
  return out;
}

static json_t *row_json(const struct bench *b, const struct row *r) {
  json_t *seconds = json_pack("{s:o, s:o, s:o}", "median", number_json(r->median), "least", number_json(r->least),
                              "most", number_json(r->most));
  double bytes = per((double)r->bytes, r->median);
  return json_pack("{s:s, s:I, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "phase", phase(r), "tokens",
                   (json_int_t)r->tokens, "runs", (json_int_t)r->runs, "seconds", seconds, "tokens_per_second",
                   number_json(per(tokens_of(b, r), r->median)), "bytes", (json_int_t)r->bytes, "operations",
                   (json_int_t)r->operations, "bytes_per_second", number_json(bytes), "share_of_copy",
                   number_json(bytes / b->rates.copy), "operations_per_second",
                   number_json(per((double)r->operations, r->median)), "kernels", kernels_json(b, r));
}

int bench_print_json(const struct bench *b) {
  const deltaic_model_info *m = &b->engine.model_info;
  json_t *rows = json_array();
  for (size_t i = 0; i < b->row_count; ++i) json_array_append_new(rows, row_json(b, &b->rows[i]));
  json_t *model =
      json_pack("{s:o, s:o, s:I, s:I}", "path", text_json(b->model), "architecture", text_json(m->architecture),
                "parameters", (json_int_t)m->parameters, "weights_bytes", (json_int_t)b->memory.weights_bytes);
  json_t *products = b->kernels ? number_json(b->rates.matrices) : json_null();
  return json_finish(json_pack("{s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "version", deltaic_version(),
                               "complete", b->complete, "sequences", (json_int_t)b->sequences, "device",
                               bench_device_json(&b->engine), "model", model, "copy_bytes_per_second",
                               number_json(b->rates.copy), "products_per_second", products, "rows", rows, "experts",
                               bench_experts_json(b)));
}
