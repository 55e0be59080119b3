// tune_report: reports a training as text, JSON and a plot.
#include "plot.h"
#include "print.h"
#include "tune.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

// The mean of the last tenth of the steps, as single batches differ.
static double last_loss(const struct tune_work *w) {
  const uint64_t n = w->done / 10 ? w->done / 10 : 1;
  double sum = 0;
  for (uint64_t i = w->done - n; i < w->done; ++i) sum += w->losses[i];
  return sum / (double)n;
}

static const struct {
  const char *name;
  size_t at;
} sizes[] = {
    {"weights", offsetof(deltaic_tune_memory, weights)}, {"gradients", offsetof(deltaic_tune_memory, gradients)},
    {"moments", offsetof(deltaic_tune_memory, moments)}, {"adapters", offsetof(deltaic_tune_memory, adapters)},
    {"streams", offsetof(deltaic_tune_memory, streams)}, {"layer", offsetof(deltaic_tune_memory, layer)},
    {"kept", offsetof(deltaic_tune_memory, kept)},       {"states", offsetof(deltaic_tune_memory, states)},
    {"scratch", offsetof(deltaic_tune_memory, scratch)}, {"teacher", offsetof(deltaic_tune_memory, teacher)},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static uint64_t size_at(const deltaic_tune_memory *m, int i) {
  return *(const uint64_t *)(const void *)((const char *)m + sizes[i].at);
}

void tune_print_plan(const struct tune_work *w) {
  if (w->r->quiet) return;
  fprintf(stderr, "memory of a step: %s", text_bytes(w->planned.total).text);
  for (int i = 0; i < SIZES; ++i)
    if (size_at(&w->planned, i))
      fprintf(stderr, "%s %s %s", i ? "," : ":", sizes[i].name, text_bytes(size_at(&w->planned, i)).text);
  fprintf(stderr, "\n");
}

static json_t *memory_json(const deltaic_tune_memory *m) {
  json_t *object = json_pack("{s:I}", "total", (json_int_t)m->total);
  for (int i = 0; i < SIZES; ++i) json_object_set_new(object, sizes[i].name, json_integer((json_int_t)size_at(m, i)));
  return object;
}

void tune_print(const struct tune_work *w) {
  deltaic_tune_info info;
  deltaic_tune_get_info(w->tune, &info);
  printf("trained      %s numbers of %u tensors", text_short((double)info.trained).text, info.tensors);
  if (info.adapted) printf(", %u of them by adapters of rank %u", info.adapted, w->r->rank);
  printf("\nsteps        %llu", (unsigned long long)w->done);
  if (tune_stopped(w)) printf(" of %llu", (unsigned long long)w->steps);
  printf(", %s tokens\n", text_count(tune_tokens(w, w->done)).text);
  if (w->done > w->seconds_from)
    printf("time         %s, %s tokens/s\n", text_seconds(w->seconds).text, text_rate(tune_tokens_per_second(w)).text);
  deltaic_tune_memory used;
  deltaic_tune_get_memory(w->tune, &used);
  printf("memory       %s planned, %s used\n", text_bytes(w->planned.total).text, text_bytes(used.total).text);
  if (w->done) printf("loss         %.4f first, %.4f last\n", w->losses[0], last_loss(w));
  if (w->measured_count > 1) {
    const struct tune_measured last = w->measured[w->measured_count - 1];
    const double before = w->measured[0].nll, after = last.nll;
    printf("held out     %.4f before, %.4f after", before, after);
    if (last.step < w->done) printf(" step %llu", (unsigned long long)last.step); // Ctrl-C came since then
    printf(" (perplexity %.2f, %.2f)\n", exp(before), exp(after));
  }
  if (tune_stopped(w)) {
    printf("state        %s\n", w->state);
    return;
  }
  if (w->r->adapter) printf("adapter      %s, merged\n", w->r->adapter);
  if (w->r->out) printf("written      %s\n", w->r->out);
  if (w->r->adapter_out) printf("adapters     %s\n", w->r->adapter_out);
}

int tune_json(const struct tune_work *w) {
  deltaic_tune_info info;
  deltaic_tune_get_info(w->tune, &info);
  deltaic_tune_memory used;
  deltaic_tune_get_memory(w->tune, &used);
  json_t *losses = json_array(), *norms = json_array(), *measured = json_array();
  for (uint64_t i = 0; i < w->done; ++i) {
    json_array_append_new(losses, number_json(w->losses[i]));
    json_array_append_new(norms, number_json(w->norms[i]));
  }
  for (size_t i = 0; i < w->measured_count; ++i)
    json_array_append_new(measured, json_pack("{s:I, s:o}", "step", (json_int_t)w->measured[i].step, "nll",
                                              number_json(w->measured[i].nll)));
  return json_finish(json_pack(
      "{s:o, s:o, s:o, s:o, s:I, s:i, s:i, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o}}", "checkpoint",
      text_json(w->r->model ? w->r->model : w->r->config), "adapter",
      w->r->adapter ? text_json(w->r->adapter) : json_null(), "out", w->r->out ? text_json(w->r->out) : json_null(),
      "adapter_out", w->r->adapter_out ? text_json(w->r->adapter_out) : json_null(), "trained",
      (json_int_t)info.trained, "tensors", (int)info.tensors, "adapted", (int)info.adapted, "steps",
      (json_int_t)w->steps, "done", (json_int_t)w->done, "tokens", (json_int_t)tune_tokens(w, w->done), "seconds",
      number_json(w->seconds), "tokens_per_second", number_json(tune_tokens_per_second(w)), "losses", losses, "norms",
      norms, "held_out", measured, "memory", "planned", memory_json(&w->planned), "used", memory_json(&used)));
}

int tune_merged(const struct tune_request *r) {
  if (r->as_json)
    return json_finish(json_pack("{s:o, s:o, s:o}", "checkpoint", text_json(r->model), "adapter", text_json(r->adapter),
                                 "out", text_json(r->out)));
  printf("adapter      %s, merged\nwritten      %s\n", r->adapter, r->out);
  return EXIT_OK;
}

int tune_plot(const struct tune_work *w, const char *path) {
  const size_t n = w->done, m = w->measured_count;
  double *x = must_resize(NULL, (n + 2 * m) * sizeof *x), *held_x = x + n, *held_y = held_x + m;
  for (size_t i = 0; i < n; ++i) x[i] = (double)i + 1;
  for (size_t i = 0; i < m; ++i) {
    held_x[i] = (double)w->measured[i].step;
    held_y[i] = w->measured[i].nll;
  }
  const struct series losses[] = {{"batches", x, w->losses, n, SERIES_LINE, 0},
                                  {"held out", held_x, held_y, m, SERIES_LINE, 1}};
  const struct series norms = {NULL, x, w->norms, n, SERIES_LINE, 2};
  struct plot *plot = plot_create("training");
  const struct chart charts[] = {{.title = "loss",
                                  .x = {.title = "step", .whole = true},
                                  .y = {.title = "nats"},
                                  .series = losses,
                                  .count = m ? 2 : 1},
                                 {.title = "norm of the gradient",
                                  .x = {.title = "step", .whole = true},
                                  .y = {.title = "norm", .log = true},
                                  .series = &norms,
                                  .count = 1}};
  for (int i = 0; i < 2; ++i) plot_chart(plot, plot_area(plot, 2, 1, i, 0), &charts[i]);
  int code = plot_finish(plot, path);
  free(x);
  return code;
}
