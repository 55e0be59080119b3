// devices_work: what is done with one device: every kernel that it would run against the CPU, and times of what no
// table can know. Right results are one line; of each wrong one it names the kernel.
#include "devices.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct result {
  char name[128], kernels[256];
  double error, limit, worst, worst_limit;
  bool right;
};

struct timing {
  char name[128];
  double seconds;
};

struct results {
  struct result *of;
  struct timing *timed;
  size_t count, wrong, times;
  double check_seconds, time_seconds;
  bool checked, chosen, forgotten; // chosen: choices were timed
  char choices[320];               // that were timed
  struct progress progress;
};

static bool note_check(void *user, const deltaic_check *check) {
  struct results *r = user;
  r->of = must_resize(r->of, (r->count + 1) * sizeof *r->of);
  struct result *to = &r->of[r->count++];
  snprintf(to->name, sizeof to->name, "%s", check->name);
  snprintf(to->kernels, sizeof to->kernels, "%s", check->kernels);
  to->error = check->error;
  to->limit = check->limit;
  to->worst = check->worst;
  to->worst_limit = check->worst_limit;
  to->right = check->right;
  r->wrong += !check->right;
  progress_count(&r->progress, r->count);
  return !interrupted();
}

static bool note_timing(void *user, const deltaic_timing *timing) {
  struct results *r = user;
  r->timed = must_resize(r->timed, (r->times + 1) * sizeof *r->timed);
  struct timing *to = &r->timed[r->times++];
  snprintf(to->name, sizeof to->name, "%s", timing->name);
  to->seconds = timing->seconds;
  progress_count(&r->progress, r->times);
  return !interrupted();
}

char *devices_describe(deltaic_context *context, int32_t index) {
  size_t needed = 0;
  deltaic_status status = deltaic_device_describe(context, index, NULL, 0, &needed);
  if (status && status != DELTAIC_BUFFER_TOO_SMALL) return complain_status(status), NULL;
  char *text = must_resize(NULL, needed);
  status = deltaic_device_describe(context, index, text, needed, NULL);
  if (!status) return text;
  free(text);
  return complain_status(status), NULL;
}

// The choices that were timed, as the device's description has them.
static void find_choices(const struct engine *engine, char *choices, size_t capacity) {
  static const char line[] = "\ntimed ";
  char *text = devices_describe(engine->context, engine->device_info.index);
  const char *found = text ? strstr(text, line) : NULL;
  choices[0] = 0;
  if (found) {
    found += sizeof line - 1;
    found += strspn(found, " ");
    snprintf(choices, capacity, "%.*s", (int)strcspn(found, "\n"), found);
  }
  free(text);
}

static struct text text_ms(double seconds) {
  struct text out;
  snprintf(out.text, sizeof out.text, "%.3f", 1e3 * seconds);
  return out;
}

static void print(const struct results *r, const char *device) {
  struct table table;
  if (r->chosen) {
    table_begin(&table, "lr");
    table_row(&table, "timed", "ms");
    for (size_t i = 0; i < r->times; i++) table_row(&table, r->timed[i].name, text_ms(r->timed[i].seconds).text);
    table_end(&table, 0);
    printf("%s: %zu times in %.1f s: %s\n", device, r->times, r->time_seconds, r->choices);
  }
  if (r->checked && !r->wrong) printf("%s: all right, %zu comparisons in %.1f s\n", device, r->count, r->check_seconds);
  for (size_t i = 0; i < r->count; i++)
    if (!r->of[i].right)
      printf("%s: wrong: %s (%s; off by %.1e, limit %.0e; an element by %.1e, limit %.0e)\n", device,
             *r->of[i].kernels ? r->of[i].kernels : "a kernel", r->of[i].name, r->of[i].error, r->of[i].limit,
             r->of[i].worst, r->of[i].worst_limit);
  if (r->forgotten) printf("%s: what was timed is forgotten\n", device);
}

static json_t *check_json(const struct result *r) {
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "name", text_json(r->name), "kernels", text_json(r->kernels),
                   "error", number_json(r->error), "limit", number_json(r->limit), "worst", number_json(r->worst),
                   "worst_limit", number_json(r->worst_limit), "right", r->right);
}

static json_t *checks_json(const struct results *r) {
  json_t *checks = json_array();
  for (size_t i = 0; i < r->count; i++) json_array_append_new(checks, check_json(&r->of[i]));
  return json_pack("{s:b, s:o, s:o}", "right", !r->wrong, "seconds", number_json(r->check_seconds), "checks", checks);
}

static json_t *times_json(const struct results *r) {
  json_t *times = json_array();
  for (size_t i = 0; i < r->times; i++)
    json_array_append_new(times, json_pack("{s:o, s:o}", "name", text_json(r->timed[i].name), "seconds",
                                           number_json(r->timed[i].seconds)));
  return json_pack("{s:o, s:o, s:o}", "choices", text_json(r->choices), "time_seconds", number_json(r->time_seconds),
                   "times", times);
}

static int print_json(const struct results *r, const char *device) {
  json_t *out = json_pack("{s:o}", "device", text_json(device));
  json_t *parts[] = {r->checked ? checks_json(r) : NULL, r->chosen ? times_json(r) : NULL,
                     r->forgotten ? json_pack("{s:b}", "forgotten", true) : NULL};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    json_object_update(out, parts[i]);
    json_decref(parts[i]);
  }
  return json_finish(out);
}

// The choices hold once the device is opened again.
static int time_choices(const struct engine_options *options, struct engine *engine, struct results *r) {
  const double start = time_now();
  progress_begin(&r->progress, "timing", NULL, options->quiet);
  int code = complain_work(deltaic_device_time_choices(engine->device, note_timing, r));
  progress_clear();
  if (code) return code;
  r->time_seconds = time_now() - start;
  r->chosen = true;
  find_choices(engine, r->choices, sizeof r->choices);
  deltaic_device_close(engine->device);
  engine->device = NULL;
  return engine_open_device(options, engine);
}

static int check(const struct engine_options *options, struct engine *engine, struct results *r) {
  const double start = time_now();
  progress_begin(&r->progress, "checking", NULL, options->quiet);
  const int code = complain_work(deltaic_device_check(engine->device, note_check, r));
  progress_clear();
  r->check_seconds = time_now() - start;
  r->checked = !code;
  return code;
}

// Whether the check also times: not software, where a table does, and only where choices can be kept.
static bool times_too(const struct engine_options *options, const struct engine *engine) {
  const deltaic_device_kind kind = engine->device_info.kind;
  const bool kept = !options->cache_dir || options->cache_dir[0];
  return kept && kind != DELTAIC_DEVICE_CPU && kind != DELTAIC_DEVICE_SOFTWARE;
}

int devices_work(const struct engine_options *options, const struct devices_work *work, bool as_json) {
  struct engine engine = {0};
  struct results r = {0};
  int code = context_open(options, &engine.context);
  if (!code) code = engine_open_device(options, &engine);
  if (!code && (work->time || (work->check && times_too(options, &engine)))) code = time_choices(options, &engine, &r);
  // A check goes on without times that nobody asked for: the cache folder may be one that cannot be written.
  if (code && !work->time && engine.device && !interrupted()) code = EXIT_SUCCESS;
  if (!code && work->check) code = check(options, &engine, &r);
  const bool forget = work->forget || (r.wrong && r.chosen); // the old choices are gone, the new ones are wrong
  if (!code && forget) code = complain_status(deltaic_device_forget_choices(engine.device));
  r.forgotten = !code && forget;
  if (!code && as_json) code = print_json(&r, engine_device_text(&engine));
  if (!code && !as_json) print(&r, engine_device_text(&engine));
  if (!code && r.wrong) code = EXIT_FAILED;
  free(r.of);
  free(r.timed);
  return engine_close(&engine, code);
}
