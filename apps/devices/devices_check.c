// devices_check: every kernel that a device would run, against the CPU. Right results are one line; of each wrong one
// it names the kernel.
#include "devices.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct result {
  char name[128], kernels[256];
  double error, limit;
  bool right;
};

struct results {
  struct result *of;
  size_t count, wrong;
  struct progress progress;
};

static bool note(void *user, const deltaic_check *check) {
  struct results *r = user;
  r->of = must_resize(r->of, (r->count + 1) * sizeof *r->of);
  struct result *to = &r->of[r->count++];
  snprintf(to->name, sizeof to->name, "%s", check->name);
  snprintf(to->kernels, sizeof to->kernels, "%s", check->kernels);
  to->error = check->error;
  to->limit = check->limit;
  to->right = check->right;
  r->wrong += !check->right;
  progress_count(&r->progress, r->count);
  return !interrupted();
}

static void print(const struct results *r, const char *device, double seconds) {
  if (!r->wrong) printf("%s: all right, %zu comparisons in %.1f s\n", device, r->count, seconds);
  for (size_t i = 0; i < r->count; i++)
    if (!r->of[i].right)
      printf("%s: wrong: %s (%s; off by %.1e, limit %.0e)\n", device, *r->of[i].kernels ? r->of[i].kernels : "a kernel",
             r->of[i].name, r->of[i].error, r->of[i].limit);
}

static int print_json(const struct results *r, const char *device, double seconds) {
  json_t *checks = json_array();
  for (size_t i = 0; i < r->count; i++)
    json_array_append_new(checks, json_pack("{s:o, s:o, s:o, s:o, s:b}", "name", text_json(r->of[i].name), "kernels",
                                            text_json(r->of[i].kernels), "error", number_json(r->of[i].error), "limit",
                                            number_json(r->of[i].limit), "right", r->of[i].right));
  return json_finish(json_pack("{s:o, s:b, s:o, s:o}", "device", text_json(device), "right", !r->wrong, "seconds",
                               number_json(seconds), "checks", checks));
}

int devices_check(struct engine_options *options, bool as_json) {
  struct engine engine = {0};
  struct results r = {0};
  int code = context_open(options, &engine.context);
  if (!code) code = engine_open_device(options, &engine);
  if (!code) {
    const double start = time_now();
    progress_begin(&r.progress, "checking", NULL, options->quiet);
    code = complain_work(deltaic_device_check(engine.device, note, &r));
    progress_clear();
    const double seconds = time_now() - start;
    if (!code && as_json) code = print_json(&r, engine_device_text(&engine), seconds);
    if (!code && !as_json) print(&r, engine_device_text(&engine), seconds);
    if (!code && r.wrong) code = EXIT_FAILED;
  }
  free(r.of);
  return engine_close(&engine, code);
}
