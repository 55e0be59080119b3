// bench_first.h: the first device that `deltaic devices` lists.
#ifndef BENCH_FIRST_H
#define BENCH_FIRST_H
#include "deltaic.h"

#include <stdio.h>

static inline bool bench_first(deltaic_context **context, deltaic_device **device) {
  deltaic_device_options options = DELTAIC_INIT(deltaic_device_options);
  options.index = 1;
  if (!deltaic_context_create(NULL, context) && !deltaic_device_open(*context, &options, device)) return true;
  fprintf(stderr, "%s\n", deltaic_last_error());
  return false;
}
#endif
