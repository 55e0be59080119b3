// bench_tiles: speed of matmul.comp, the product of many rows without matrix units, over shapes and sizes of its tiles,
// on the first Vulkan device. The plan's sizes are from it (plan_matmul.c). No test: it only prints TFLOP/s, a line a
// shape. Run it with DELTAIC_NO_MATRICES=1. usage: bench_tiles [SHAPES [TILES]], lists with commas: a shape is rows x
// outputs x inputs, such as 2048x2048x5632; tiles are tokens/outputs/step/tokens of a lane/outputs of a lane.
#include "bench_first.h"
#include "device_handle.h"
#include "vulkan_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const usual_shapes = "512x2048x2048,2048x2048x2048,2048x6272x2048,2048x11264x2048,2048x2048x5632";
static const char *const usual_tiles =
    "128/128/32/8/8,128/128/16/8/8,64/128/32/8/8,64/64/32/8/8,128/64/32/8/8,128/256/16/8/16,256/128/16/16/8,"
    "128/128/32/8/16,128/128/32/16/8,128/128/16/16/8,64/128/32/8/16,256/128/32/8/8,128/128/32/8/4";

static void measure(deltaic_device *device, deltaic_matmul o, const char *tiles) {
  struct plan_products *plan = &((struct vulkan_backend *)device->backend)->products;
  const struct plan_products usual = *plan;
  printf("%u x %u x %u\n", o.rows, o.outputs, o.inputs);
  for (const char *at = tiles; *at; at += strcspn(at, ","), at += *at == ',') {
    deltaic_matmul_result r;
    if (sscanf(at, "%u/%u/%u/%u/%u", &plan->matmul_tile_t, &plan->matmul_tile_n, &plan->matmul_tile_k,
               &plan->matmul_sub_t, &plan->matmul_sub_n) != 5)
      exit(fprintf(stderr, "not the sizes of a tile: %s\n", at));
    printf("  %-20.*s", (int)strcspn(at, ","), at);
    if (plan_matmul_lanes(plan) > plan->device->most_lanes ||
        plan_matmul_shared_bytes(plan) > plan->device->shared_bytes)
      printf("  too large\n");
    else if (deltaic_device_measure_matmul(device, &o, &r))
      printf("  %s\n", deltaic_last_error());
    else
      printf("  %6.2f TFLOP/s, error %.1e\n", 2e-12 * o.rows * o.outputs * o.inputs / r.seconds, r.error);
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
    o.repeat = 5;
    if (sscanf(at, "%ux%ux%u", &o.rows, &o.outputs, &o.inputs) != 3) exit(fprintf(stderr, "not a shape: %s\n", at));
    measure(device, o, tiles);
  }
  deltaic_device_close(device);
  deltaic_context_free(context);
  return 0;
}
