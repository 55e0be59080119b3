// bench_tiles: speed of matmul.comp, the product of many rows without matrix units, over shapes and sizes of its tiles,
// on the first Vulkan device. The plan's sizes are from it (plan_matmul.c). No test: it only prints TFLOP/s, a line a
// tile. Run it with DELTAIC_NO_MATRICES=1. usage: bench_tiles [SHAPES [TILES]], lists with commas: a shape is rows x
// outputs x inputs, such as 2048x2048x5632; tiles are the numbers of struct plan_tile with slashes.
#include "bench_first.h"
#include "device_handle.h"
#include "vulkan_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual_shapes = "512x2048x2048,2048x2048x2048,2048x6272x2048,2048x11264x2048,2048x2048x5632";
static const char *const usual_tiles =
    "128/128/16/8/8/1/2/4,128/128/32/8/8/1/1/4,64/128/16/8/8/1/2/4,64/128/32/8/8/1/1/8,64/64/32/8/8/1/1/1,"
    "64/64/32/8/8/1/1/8,64/128/32/8/8/2/1/2,64/64/32/8/4/2/1/4,64/64/64/8/8/4/1/4,32/32/64/4/4/4/1/4";

// silent: only compiles.
static void measure(deltaic_device *device, deltaic_matmul o, const char *tiles, bool silent) {
  struct plan_products *plan = &((struct vulkan_backend *)device->backend)->products;
  const struct plan_products usual = *plan;
  if (!silent) printf("%u x %u x %u\n", o.rows, o.outputs, o.inputs);
  for (const char *at = tiles; *at; at += strcspn(at, ","), at += *at == ',') {
    deltaic_matmul_result r;
    uint32_t v[8];
    if (sscanf(at, "%u/%u/%u/%u/%u/%u/%u/%u", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]) != 8)
      exit(fprintf(stderr, "not the sizes of a tile: %s\n", at));
    const struct plan_tile t = {(uint16_t)v[0], (uint16_t)v[1], (uint16_t)v[2], (uint8_t)v[3],
                                (uint8_t)v[4],  (uint8_t)v[5],  (uint8_t)v[6],  (uint8_t)v[7]};
    plan->tile = plan->some = plan->few = t;
    char text[256] = "";
    if (plan_matmul_lanes(&t) > plan->device->most_lanes || plan_matmul_shared_bytes(&t) > plan->device->shared_bytes)
      snprintf(text, sizeof text, "too large");
    else if (deltaic_device_measure_matmul(device, &o, &r))
      snprintf(text, sizeof text, "%s", deltaic_last_error());
    else
      snprintf(text, sizeof text, "%8.4f TFLOP/s, error %.1e", 2e-12 * o.rows * o.outputs * o.inputs / r.seconds,
               r.error);
    if (!silent) printf("  %-24.*s  %s\n", (int)strcspn(at, ","), at, text);
    fflush(stdout);
  }
  *plan = usual;
}

int main(int argc, char **argv) {
  const char *shapes = argc > 1 ? argv[1] : usual_shapes, *tiles = argc > 2 ? argv[2] : usual_tiles;
  deltaic_context *context;
  deltaic_device *device;
  if (!bench_first(&context, &device)) return 1;
  for (const char *at = shapes; *at; at += strcspn(at, ","), at += *at == ',') {
    deltaic_matmul o = DELTAIC_INIT(deltaic_matmul);
    if (sscanf(at, "%ux%ux%u", &o.rows, &o.outputs, &o.inputs) != 3) exit(fprintf(stderr, "not a shape: %s\n", at));
    device->awake = true;
    o.repeat = 1;
    measure(device, o, tiles, true);
    o.repeat = 5;
    measure(device, o, tiles, false);
  }
  deltaic_device_close(device);
  deltaic_context_free(context);
  return 0;
}
