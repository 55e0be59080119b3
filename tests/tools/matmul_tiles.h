// matmul_tiles.h: devices on which tests plan the tiles of matmul_matrix.comp, and that kernel's constants.
#ifndef MATMUL_TILES_H
#define MATMUL_TILES_H
#include "caps_devices.h"
#include "matmul_matrix.h"
#include "plan_matmul.h"

enum { TILE_DEVICES = 4 };

// The last one has the least shared memory and the fewest invocations that Vulkan allows.
static inline struct device_caps tile_device(int i) {
  const struct device_caps *const devices[] = {&caps_h200, &caps_geforce_bar, &caps_rdna3_radv, &caps_h200};
  struct device_caps caps = *devices[i];
  if (i == TILE_DEVICES - 1) caps.shared_bytes = 16384, caps.max_invocations = caps.max_workgroup[0] = 128;
  return caps;
}

static inline void tile_spec(const struct plan *p, const struct plan_matmul *m, uint32_t *spec) {
  spec[MATMUL_MATRIX_SPEC_LANES] = m->lanes;
  spec[MATMUL_MATRIX_SPEC_TILE_T] = m->tile_t;
  spec[MATMUL_MATRIX_SPEC_TILE_N] = m->tile_n;
  spec[MATMUL_MATRIX_SPEC_TILE_K] = m->tile_k;
  spec[MATMUL_MATRIX_SPEC_ACROSS_T] = m->across_t;
  spec[MATMUL_MATRIX_SPEC_ACROSS_N] = m->across_n;
  spec[MATMUL_MATRIX_SPEC_M] = p->matrix_m;
  spec[MATMUL_MATRIX_SPEC_N] = p->matrix_n;
  spec[MATMUL_MATRIX_SPEC_K] = p->matrix_k;
}
#endif
