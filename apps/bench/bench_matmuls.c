// bench_matmuls: measures single matrix products for bench --operators.
#include "bench.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

// Products of prompts, of a 1.37 B model that decodes 32 sequences and one sequence, and large products. The largest is
// last, because an H200 reaches its power limit there, which slows the next measurements.
static const deltaic_matmul table[] =
    {{.rows = 2048, .outputs = 8192, .inputs = 2048}, {.rows = 4096, .outputs = 11264, .inputs = 2048},
     {.rows = 32, .outputs = 6272, .inputs = 2048},   {.rows = 32, .outputs = 2048, .inputs = 2048},
     {.rows = 32, .outputs = 11264, .inputs = 2048},  {.rows = 32, .outputs = 2048, .inputs = 5632},
     {.rows = 32, .outputs = 32000, .inputs = 2048},  {.rows = 1, .outputs = 2048, .inputs = 2048},
     {.rows = 1, .outputs = 6144, .inputs = 2048},    {.rows = 1, .outputs = 11264, .inputs = 2048},
     {.rows = 1, .outputs = 2048, .inputs = 5632},    {.rows = 1, .outputs = 32000, .inputs = 2048},
     {.rows = 4096, .outputs = 4096, .inputs = 4096}, {.rows = 8192, .outputs = 8192, .inputs = 8192}},
                            small[] = { // for software devices
                                {.rows = 48, .outputs = 64, .inputs = 96},
                                {.rows = 16, .outputs = 48, .inputs = 64},
                                {.rows = 1, .outputs = 48, .inputs = 64}};

static_assert(sizeof table / sizeof *table <= BENCH_MATMULS, "room for every row");

static struct text shape_text(const deltaic_matmul *m) {
  struct text t;
  snprintf(t.text, sizeof t.text, "%u x %u x %u", m->rows, m->outputs, m->inputs);
  return t;
}

// Whether `only` is part of the row's text, e.g. "matrix product, 32 x 6272 x 2048".
static bool wanted(const deltaic_matmul *m, const char *only) {
  char text[128];
  snprintf(text, sizeof text, "matrix product, %s", shape_text(m).text);
  return !only || strstr(text, only);
}

static const deltaic_matmul *shapes_for(const struct engine *engine, size_t *count) {
  const bool software = bench_software(engine);
  *count = software ? sizeof small / sizeof *small : sizeof table / sizeof *table;
  return software ? small : table;
}

bool bench_matmuls_any(const struct engine *engine, const char *only) {
  size_t count;
  const deltaic_matmul *shapes = shapes_for(engine, &count);
  for (size_t i = 0; i < count; i++)
    if (wanted(&shapes[i], only)) return true;
  return false;
}

deltaic_status bench_matmuls_measure(struct bench_matmuls *b, struct engine *engine, deltaic_precision precision,
                                     const char *only, uint32_t repeat, struct progress *progress) {
  size_t count;
  const deltaic_matmul *shapes = shapes_for(engine, &count);
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < count && !status; i++) {
    deltaic_matmul *m = &b->rows[b->count].m;
    if (!wanted(&shapes[i], only)) continue;
    *m = shapes[i];
    m->size = sizeof *m;
    m->precision = precision;
    m->repeat = repeat;
    status = deltaic_device_measure_matmul(engine->device, m, &b->rows[b->count].r);
    b->count += !status;
    progress_show(progress, (uint32_t)i + 1, (uint32_t)count);
  }
  return status;
}

static double floor_of(const struct bench_matmuls *b, const deltaic_matmul_result *r) {
  return bench_floor(&b->rates, r->bytes, r->operations);
}

static struct text micro_text(double seconds) {
  struct text t;
  snprintf(t.text, sizeof t.text, "%.1f us", 1e6 * seconds);
  return t;
}

void bench_matmuls_print(const struct bench_matmuls *b) {
  struct table rows;
  if (!b->count) return;
  table_begin(&rows, "lrrrrrrrl");
  table_row(&rows, "operator", "rows x outputs x inputs", "time", "floor", "ratio", "GB/s", "GFLOP/s", "error",
            "kernel");
  for (size_t i = 0; i < b->count; i++) {
    const deltaic_matmul_result *r = &b->rows[i].r;
    struct text ratio, error;
    snprintf(ratio.text, sizeof ratio.text, "%.2f", r->seconds / floor_of(b, r));
    snprintf(error.text, sizeof error.text, "%.1e", r->error);
    table_row(&rows, "matrix product", shape_text(&b->rows[i].m).text, micro_text(r->seconds).text,
              micro_text(floor_of(b, r)).text, ratio.text, text_giga((double)r->bytes / r->seconds).text,
              text_giga((double)r->operations / r->seconds).text, error.text, r->kernel);
  }
  table_end(&rows, 0);
}

json_t *bench_matmuls_json(const struct bench_matmuls *b) {
  json_t *rows = json_array();
  for (size_t i = 0; i < b->count; i++) {
    const deltaic_matmul *m = &b->rows[i].m;
    const deltaic_matmul_result *r = &b->rows[i].r;
    json_array_append_new(rows, json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:s}", "rows",
                                          (int)m->rows, "outputs", (int)m->outputs, "inputs", (int)m->inputs, "seconds",
                                          number_json(r->seconds), "least", number_json(r->least), "most",
                                          number_json(r->most), "floor", number_json(floor_of(b, r)), "error",
                                          number_json(r->error), "bytes", (json_int_t)r->bytes, "operations",
                                          (json_int_t)r->operations, "kernel", r->kernel));
  }
  return rows;
}

bool bench_matmuls_right(const struct bench_matmuls *b, double most_error) {
  for (size_t i = 0; i < b->count; i++)
    if (!(b->rows[i].r.error < most_error)) return false;
  return true;
}
