// serve_metrics: counters, gauges and histograms, and their text for Prometheus.
#include "serve_metrics.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
  const char *kind, *text, *help;
} rows[METRICS] = {
#define METRIC_ROW(name, kind, text, help) {#kind, text, help},
    METRICS_MAP(METRIC_ROW)
#undef METRIC_ROW
};

static const struct {
  const char *text, *help;
} time_rows[METRIC_TIMES] = {
    {"time_to_first_token_seconds", "from the request to its first token"},
    {"time_between_tokens_seconds", "between two tokens of a text"},
    {"queue_seconds", "from the request to its slot"},
};

static const double bounds[METRIC_BUCKETS] = {0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.02, 0.03, 0.05,
                                              0.1,   0.2,   0.3,   0.5,   1,     2,    5,    10,   60};

void metrics_add(struct metrics *metrics, enum metric metric, int64_t more) {
  atomic_fetch_add_explicit(&metrics->values[metric], more, memory_order_relaxed);
}

void metrics_set(struct metrics *metrics, enum metric metric, int64_t value) {
  atomic_store_explicit(&metrics->values[metric], value, memory_order_relaxed);
}

int64_t metrics_get(struct metrics *metrics, enum metric metric) {
  return atomic_load_explicit(&metrics->values[metric], memory_order_relaxed);
}

void metrics_time(struct metrics *metrics, enum metric_time time, double seconds) {
  int bucket = 0;
  while (bucket < METRIC_BUCKETS && seconds > bounds[bucket]) ++bucket;
  atomic_fetch_add_explicit(&metrics->times[time].buckets[bucket], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&metrics->times[time].nanoseconds, (uint64_t)(seconds * 1e9), memory_order_relaxed);
}

static void print_time(struct metrics *metrics, int time, FILE *out) {
  const char *name = time_rows[time].text;
  uint64_t sum = 0;
  fprintf(out, "# HELP deltaic_%s %s\n# TYPE deltaic_%s histogram\n", name, time_rows[time].help, name);
  for (int i = 0; i <= METRIC_BUCKETS; ++i) {
    sum += atomic_load_explicit(&metrics->times[time].buckets[i], memory_order_relaxed);
    if (i < METRIC_BUCKETS)
      fprintf(out, "deltaic_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], (unsigned long long)sum);
  }
  fprintf(out, "deltaic_%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)sum);
  fprintf(out, "deltaic_%s_sum %.9f\n", name,
          1e-9 * (double)atomic_load_explicit(&metrics->times[time].nanoseconds, memory_order_relaxed));
  fprintf(out, "deltaic_%s_count %llu\n", name, (unsigned long long)sum);
}

char *metrics_text(struct metrics *metrics, size_t *bytes) {
  char *text = NULL;
  FILE *out = open_memstream(&text, bytes);
  if (!out) return NULL;
  for (int i = 0; i < METRICS; ++i)
    fprintf(out, "# HELP deltaic_%s %s\n# TYPE deltaic_%s %s\ndeltaic_%s %lld\n", rows[i].text, rows[i].help,
            rows[i].text, rows[i].kind, rows[i].text, (long long)metrics_get(metrics, (enum metric)i));
  for (int i = 0; i < METRIC_TIMES; ++i) print_time(metrics, i, out);
  if (!fclose(out)) return text;
  free(text);
  return NULL;
}
