// bench_device: prints the measured device and its limits.
#include "bench.h"

bool bench_software(const struct engine *engine) {
  deltaic_device_kind kind = engine->device_info.kind;
  return kind == DELTAIC_DEVICE_CPU || kind == DELTAIC_DEVICE_SOFTWARE;
}

double bench_floor(const struct bench_rates *rates, uint64_t bytes, uint64_t operations) {
  if (!(rates->copy > 0 && rates->matrices > 0)) return 0;
  const double moving = (double)bytes / rates->copy, computing = (double)operations / rates->matrices;
  return moving > computing ? moving : computing;
}

json_t *bench_device_json(const struct engine *engine) {
  const deltaic_device_info *d = &engine->device_info;
  return json_pack("{s:o, s:o, s:i}", "name", text_json(d->name), "driver", text_json(d->driver), "index", d->index);
}
