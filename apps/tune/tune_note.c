// tune_note: the note of a saved state: the options that the steps depend on, and what was measured so far.
#include "print.h"
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What the library's check does not see.
static void recipe_of(const struct tune_work *w, char *text, size_t capacity) {
  const struct tune_request *r = w->r;
  snprintf(text, capacity,
           "steps %llu, rows of all %llu, batch %u, accumulate %u, warm-up %u, schedule %s, in order %d, seed %llu, "
           "rows %016llx, "
           "held out %016llx",
           (unsigned long long)w->steps, (unsigned long long)w->all_rows, r->batch, r->accumulate, r->warm_up,
           r->schedule, r->in_order, (unsigned long long)r->seed, (unsigned long long)rows_hash(&w->rows),
           (unsigned long long)(w->held.piece_count ? rows_hash(&w->held) : 0));
}

char *tune_note(const struct tune_work *w) {
  char recipe[256];
  json_t *losses = json_array(), *norms = json_array(), *measured = json_array();
  recipe_of(w, recipe, sizeof recipe);
  for (uint64_t i = 0; i < w->done; ++i) {
    json_array_append_new(losses, json_real(w->losses[i]));
    json_array_append_new(norms, json_real(w->norms[i]));
  }
  for (size_t i = 0; i < w->measured_count; ++i)
    json_array_append_new(measured, json_pack("[I, f]", (json_int_t)w->measured[i].step, w->measured[i].nll));
  json_t *note = json_pack("{s:s, s:f, s:I, s:o, s:o, s:o}", "recipe", recipe, "rate", (double)w->r->rate, "kept",
                           (json_int_t)w->planned.kept, "losses", losses, "norms", norms, "measured", measured);
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
  char recipe[256];
  deltaic_tune_info info;
  json_t *note = json_loads(text, 0, NULL);
  const json_t *losses = json_object_get(note, "losses"), *norms = json_object_get(note, "norms"),
               *measured = json_object_get(note, "measured");
  const char *theirs = json_string_value(json_object_get(note, "recipe"));
  recipe_of(w, recipe, sizeof recipe);
  deltaic_tune_get_info(w->tune, &info);
  int code = EXIT_OK;
  if (!theirs || json_array_size(losses) != info.steps || json_array_size(norms) != info.steps || info.steps > w->steps)
    code = complain(EXIT_FAILED, "%s: was not saved by this command", w->state);
  else if (strcmp(theirs, recipe))
    code = complain(EXIT_FAILED, "%s: is of another run: %s; this one has %s", w->state, theirs, recipe);
  else {
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
