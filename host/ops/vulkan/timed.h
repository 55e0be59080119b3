// timed.h: makes choices of the times that were measured on a device (host/session/time_choices.c), and keeps them in a
// file for each device and driver. The file is not trusted: what is wrong with it is a sentence, and the plan stays as
// it is.
#ifndef TIMED_H
#define TIMED_H
#include "plan_matmul.h"
#include "status.h"

enum { TIMED_WORKS = 8 };

// Seconds; 0: not timed.
struct timed_pair {
  double matrices, scalar;
};
struct timed_times {
  struct timed_pair product, mixer;
  uint32_t works; // amounts of work in flight, increasing
  struct {
    uint64_t percent; // plan_chunk_percent()
    double chunks, tokens;
  } work[TIMED_WORKS];
  double tile[PLAN_TILES], usual_tile; // usual: of the plan
};
struct timed_choices timed_choose(const struct timed_times *times);

// Writes readable text, like plan_describe(): "products on matrices, ...", or "nothing".
int timed_describe(const struct timed_choices *timed, char *text, uint64_t capacity);

// The file of a device in the folder `dir`; the caller frees it. NULL: there is no folder, or no memory.
char *timed_path(const char *dir, const struct device_caps *caps);
// Zeros, and DELTAIC_OK, where there is no file. On failure zeros, too.
deltaic_status timed_load(const char *path, const struct device_caps *caps, struct timed_choices *out);
deltaic_status timed_store(const char *path, const struct device_caps *caps, const struct timed_choices *timed);
#endif
