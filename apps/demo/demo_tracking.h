// demo_tracking.h: declares the request and the results of `deltaic demo state-tracking`.
#ifndef DEMO_TRACKING_H
#define DEMO_TRACKING_H
#include "common.h"
#include "demo_tracker.h"
#include "engine.h"

enum { DECADES = 8, COMPARED = 1000 };

struct tracking_request {
  struct engine_options engine;
  struct tracker_options tracker;
  const char *group, *out, *repeat;
  uint32_t length, words;
  uint64_t seed;
  bool swaps, alone, force, as_json;
};

struct tracking_sample { // a sample of the first word
  uint64_t step;
  struct state_error error;
  double lead; // smallest lead of the correct element's logit since the previous sample; the exact construction has 1
};

struct tracking_result {
  uint64_t right[DECADES], total[DECADES]; // steps 1 to 10, 11 to 100, ...
  struct tracking_sample samples[DECADES + 1];
  size_t sample_count;
  double seconds;
};

struct tracking {
  const struct tracking_request *r;
  struct group group;
  struct tracker tracker;
  struct engine engine; // its model is the current one
  uint32_t *words;      // (words, length) elements
  struct progress progress;
};

struct tracking_variant {
  uint32_t steps;
  bool no_negatives;
  struct tracking_result result;
};

// These print to standard output. tracking_json returns an exit code.
void tracking_print(const struct tracking *d, const struct tracking_result *results,
                    const struct tracking_variant *variants, size_t count);
int tracking_json(const struct tracking *d, const struct tracking_result *results,
                  const struct tracking_variant *variants, size_t count);
#endif
