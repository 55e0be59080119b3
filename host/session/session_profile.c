// session_profile: counts a session's submissions and dispatches, and measures the time of every kernel.
#include "session.h"

#include <string.h>

static deltaic_status add_counters(struct recorder *c, void *context) {
  deltaic_counters *sum = context, n = c->functions->recorder_counters(c);
  sum->submits += n.submits;
  sum->recordings += n.recordings;
  sum->dispatches += n.dispatches;
  return DELTAIC_OK;
}

void deltaic_session_get_counters(const deltaic_session *s, deltaic_counters *counters) {
  if (!counters) return;
  *counters = (deltaic_counters){0};
  if (!s) return;
  session_recorders(s, add_counters, counters);
}

static deltaic_status profile_recorder(struct recorder *c, void *on) {
  return c->functions->recorder_profile(c, *(const bool *)on);
}

static deltaic_status watch_recorder(struct recorder *c, void *on) {
  return c->functions->recorder_busy(c, *(const bool *)on);
}

// Time stamps are part of a recording, so existing recordings are discarded.
static deltaic_status set_profile(struct deltaic_session *s, bool kernels, bool submissions) {
  s->profiled = kernels;
  s->watched = submissions;
  for (uint32_t n = 0; n < s->shape.sequences; n++) s->steps[n].recorded = s->next[n].recorded = false;
  // Switches on last, since the CPU has one switch for both.
  deltaic_status status =
      kernels ? session_recorders(s, watch_recorder, &submissions) : session_recorders(s, profile_recorder, &kernels);
  if (!status)
    status =
        kernels ? session_recorders(s, profile_recorder, &kernels) : session_recorders(s, watch_recorder, &submissions);
  if (status) s->profiled = s->watched = false;
  return status;
}

deltaic_status deltaic_session_profile_begin(deltaic_session *s) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_profile_begin: session is NULL");
  return set_profile(s, true, false);
}

deltaic_status deltaic_session_busy_begin(deltaic_session *s) {
  if (!s) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_busy_begin: session is NULL");
  return set_profile(s, false, true);
}

enum { KERNELS = 64 };
struct times {
  deltaic_kernel_time all[KERNELS];
  size_t count;
};

static deltaic_status add_times(struct recorder *c, void *context) {
  struct times *t = context;
  deltaic_kernel_time more[KERNELS];
  size_t n = c->functions->recorder_times(c, more, KERNELS);
  for (size_t i = 0; i < n && i < KERNELS; i++) {
    size_t k = 0;
    while (k < t->count && strcmp(t->all[k].name, more[i].name)) k++;
    if (k == KERNELS) continue;
    if (k == t->count) {
      t->all[t->count++] = more[i];
      continue;
    }
    t->all[k].dispatches += more[i].dispatches;
    t->all[k].seconds += more[i].seconds;
    t->all[k].bytes += more[i].bytes;
    t->all[k].operations += more[i].operations;
  }
  return DELTAIC_OK;
}

deltaic_status deltaic_session_busy_end(deltaic_session *s, double *seconds) {
  if (!s || !seconds)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_busy_end: %s is NULL", !s ? "session" : "seconds");
  struct times t = {.count = 0};
  session_recorders(s, add_times, &t);
  *seconds = 0;
  for (size_t i = 0; i < t.count; i++) *seconds += t.all[i].seconds;
  return set_profile(s, false, false);
}

deltaic_status deltaic_session_profile_end(deltaic_session *s, deltaic_kernel_time *times, size_t capacity,
                                           size_t *count) {
  if (!s || !count || (capacity && !times))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_session_profile_end: %s is NULL",
                !s       ? "session"
                : !count ? "count"
                         : "times");
  struct times t = {.count = 0};
  session_recorders(s, add_times, &t);
  for (size_t i = 0; i < t.count && i < capacity; i++) times[i] = t.all[i];
  *count = t.count;
  return set_profile(s, false, false);
}
