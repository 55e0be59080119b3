// tune_note: the note of a saved state: the options that the steps depend on, and what was measured so far.
#include "print.h"
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What the library's check does not see, in the order in which differences are told.
struct setting {
  const char *name;
  bool hash; // of a text
  char value[32];
};
enum { SETTINGS = 12 };

static void settings_of(const struct tune_work *w, struct setting s[SETTINGS]) {
  const struct tune_request *r = w->r;
  const struct {
    const char *name;
    bool hash;
    uint64_t value;
  } all[SETTINGS - 1] = {{"--window", false, r->window},
                         {"--separate", false, r->separate},
                         {"--batch", false, r->batch},
                         {"--accumulate", false, r->accumulate},
                         {"--in-order", false, r->in_order},
                         {"--seed", false, r->seed},
                         {"text or task", true, rows_hash(&w->rows)},
                         {"held-out text, or none", true, w->held.piece_count ? rows_hash(&w->held) : 0},
                         {"the number of steps", false, w->steps},
                         {"the number of rows", false, w->all_rows},
                         {"--warm-up", false, r->warm_up}};
  for (size_t i = 0; i + 1 < SETTINGS; ++i) {
    s[i] = (struct setting){.name = all[i].name, .hash = all[i].hash};
    snprintf(s[i].value, sizeof s[i].value, all[i].hash ? "%016llx" : "%llu", (unsigned long long)all[i].value);
  }
  s[SETTINGS - 1] = (struct setting){.name = "--schedule"};
  snprintf(s[SETTINGS - 1].value, sizeof s->value, "%s", r->schedule);
}

static json_t *settings_json(const struct tune_work *w) {
  struct setting s[SETTINGS];
  json_t *object = json_object();
  settings_of(w, s);
  for (int i = 0; i < SETTINGS; ++i) json_object_set_new(object, s[i].name, json_string(s[i].value));
  return object;
}

// Names the first setting that differs.
static int compare_settings(const struct tune_work *w, const json_t *saved) {
  struct setting s[SETTINGS];
  settings_of(w, s);
  for (int i = 0; i < SETTINGS; ++i) {
    const char *before = json_string_value(json_object_get(saved, s[i].name));
    if (!before)
      return complain(EXIT_FAILED, "%s: is not a state of 'deltaic tune', or another version saved it", w->state);
    if (!strcmp(before, s[i].value)) continue;
    if (s[i].hash)
      return complain(EXIT_FAILED, "%s: the state has a different %s; resume with the same one", w->state, s[i].name);
    return complain(EXIT_FAILED, "%s: %s is %.31s in the state and %s now; --resume needs the same value", w->state,
                    s[i].name, before, s[i].value);
  }
  return EXIT_OK;
}

char *tune_note(const struct tune_work *w) {
  json_t *losses = json_array(), *norms = json_array(), *measured = json_array();
  for (uint64_t i = 0; i < w->done; ++i) {
    json_array_append_new(losses, json_real(w->losses[i]));
    json_array_append_new(norms, json_real(w->norms[i]));
  }
  for (size_t i = 0; i < w->measured_count; ++i)
    json_array_append_new(measured, json_pack("[I, f]", (json_int_t)w->measured[i].step, w->measured[i].nll));
  json_t *note = json_pack("{s:o, s:f, s:I, s:o, s:o, s:o}", "settings", settings_json(w), "rate", (double)w->r->rate,
                           "kept", (json_int_t)w->planned.kept, "losses", losses, "norms", norms, "measured", measured);
  char *text = note ? json_dumps(note, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
  json_decref(note);
  return text;
}

// A resumed run may use another rate, for example after a loss that is not finite.
static void compare_rates(const struct tune_work *w, double before) {
  const double now = (double)w->r->rate;
  if (now == before || w->r->quiet) return;
  fprintf(stderr, "the largest rate was %.3g up to step %llu and is %.3g from there on\n", before,
          (unsigned long long)w->done, now);
}

int tune_note_read(struct tune_work *w, const char *text) {
  deltaic_tune_info info;
  json_t *note = json_loads(text, 0, NULL);
  const json_t *losses = json_object_get(note, "losses"), *norms = json_object_get(note, "norms"),
               *measured = json_object_get(note, "measured");
  deltaic_tune_get_info(w->tune, &info);
  int code = compare_settings(w, json_object_get(note, "settings"));
  if (!code && (json_array_size(losses) != info.steps || json_array_size(norms) != info.steps || info.steps > w->steps))
    code = complain(EXIT_FAILED, "%s: is not a state of 'deltaic tune', or another version saved it", w->state);
  if (!code) {
    w->done = w->saved = w->seconds_from = info.steps;
    w->has_state = true;
    w->kept = (uint64_t)json_integer_value(json_object_get(note, "kept"));
    for (uint64_t i = 0; i < w->done; ++i) {
      w->losses[i] = json_number_value(json_array_get(losses, i));
      w->norms[i] = json_number_value(json_array_get(norms, i));
    }
    compare_rates(w, json_number_value(json_object_get(note, "rate")));
    w->measured_count = json_array_size(measured);
    w->measured = must_resize(w->measured, w->measured_count * sizeof *w->measured);
    for (size_t i = 0; i < w->measured_count; ++i) {
      const json_t *pair = json_array_get(measured, i);
      w->measured[i].step = (uint64_t)json_integer_value(json_array_get(pair, 0));
      w->measured[i].nll = json_number_value(json_array_get(pair, 1));
    }
  }
  json_decref(note);
  return code;
}
