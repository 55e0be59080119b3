// plan_matmul: chooses the sizes of the product kernels for many tokens and on cooperative matrices; plan_matvec.c: for
// one token and a few.
#include "plan_matmul.h"

#include "numbers.h"

#include <stdio.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

// ---------------------------------------------------------------- starting values

// H200, 1.37 B parameters, a prompt of 2,048 tokens: 36,000 tokens/s in slices of 512, 48,700 in one. Without matrix
// units a product of 2,048 x 2,048 runs at 36 TFLOP/s with 512 rows, and at 42 with 2,048.
static uint32_t plan_batch(const struct device_caps *caps, const struct plan *device) {
  const uint64_t large = (uint64_t)16 << 30;
  const bool card = caps->device_type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  return card && device->device_bytes >= large ? 2048 : 512;
}

static void fit(const struct plan *device, struct plan_products *plan) {
  const uint32_t most = device->most_lanes;
  while (plan->matvec_lanes > most) plan->matvec_lanes /= 2;
  while (plan->matvec_most_lanes > most) plan->matvec_most_lanes /= 2;
  // Some of a subgroup's lanes would idle if it were wider than its workgroup: 64 lanes on some AMD, 128 on some
  // phones.
  while (plan->matvec_lanes < device->matrix_lanes && plan->matvec_lanes * 2 <= most) plan->matvec_lanes *= 2;
  while (plan->matvec_sets * plan->matvec_lanes > most) plan->matvec_sets /= 2;
}

// Bytes of shared memory: of the numbers that a step reads, and of the sums at the end, which take their place.
static uint64_t tile_steps(const struct plan_tile *tile) {
  return sizeof(float) * (uint64_t)(tile->tile_t + tile->tile_n) * tile->tile_k * tile->buffers;
}

static uint64_t tile_sums(const struct plan_tile *tile) {
  return sizeof(float) * (uint64_t)(tile->slices / 2) * tile->tile_t * tile->tile_n;
}

// Smaller where the device has fewer invocations or less shared memory. Slices keep more lanes busy where a product has
// few tiles, so they give way only where it is their sums that do not fit.
static struct plan_tile fit_tile(const struct plan *device, struct plan_tile tile) {
  while (plan_matmul_lanes(&tile) > device->most_lanes && tile.slices > 1) tile.slices /= 2;
  while (plan_matmul_lanes(&tile) > device->most_lanes) tile.sub_t *= 2;
  while (tile_sums(&tile) > device->shared_bytes) tile.slices /= 2;
  while (tile_steps(&tile) > device->shared_bytes && tile.buffers > 1) tile.buffers /= 2;
  while (tile_steps(&tile) > device->shared_bytes) tile.tile_k /= 2;
  while (tile.slices > 1 && tile.slices > tile.tile_k / 4) tile.slices /= 2;
  while (tile.unroll > tile.tile_k / 4 / tile.slices) tile.unroll /= 2;
  return tile;
}

const struct plan_tile plan_tiles[PLAN_TILES] = {{64, 128, 32, 8, 8, 1, 1, 8},
                                                 {128, 128, 16, 8, 8, 1, 2, 4},
                                                 {64, 64, 32, 4, 4, 1, 1, 1},
                                                 {32, 64, 32, 8, 8, 1, 1, 1}};

bool plan_has_tile(const struct plan_products *plan, const struct plan_tile *tile) {
  const struct plan_tile *own = &plan->tile;
  return own->tile_t == tile->tile_t && own->tile_n == tile->tile_n && own->tile_k == tile->tile_k &&
         own->sub_t == tile->sub_t && own->sub_n == tile->sub_n && own->slices == tile->slices &&
         own->buffers == tile->buffers && own->unroll == tile->unroll;
}

// From sweeps on an H200 and on lavapipe. A GPU needs large tiles; software has small workgroups.
void plan_products_make(const struct device_caps *caps, const struct plan *device, struct plan_products *plan) {
  const bool software = device->software;
  // Partial sums go to another workgroup in vectors of four. A CPU has no memory latency to hide.
  const bool fours = device->matrix_m && device->matrix_m * device->matrix_n / device->matrix_lanes % 4 == 0;
  *plan = (struct plan_products){
      .device = device,
      .matvec_lanes = software ? 8 : 32,
      .matvec_most_lanes = software ? 8 : 256,
      .matvec_rows = software ? 16 : 1,
      .matvec_most_rows = software ? 16 : 4,
      .matvec_unroll = software ? 1 : 4,
      .matvec_sets = software || !device->subgroup_width ? 1 : 16,
      .dots = caps->integer_dot_fast && caps->subgroup_shuffle,
      .dot_lanes = 1024,
      .dot_ahead = 2,
      .matvec_below = software ? 17 : 33,
      .matrix_step = software ? 16 : 64, // LLVM needs a minute to compile 64
      .matrix_parts = fours && !software ? 8 : 1,
      .narrow_parts = software ? 4 : 0,
      .narrow_from = 2,
      .narrow_tokens = software ? 16 : 32, // LLVM compiles more tokens too slowly
      .batch = plan_batch(caps, device),
  };
  fit(device, plan);
  const uint32_t usual = device->timed.tile ? device->timed.tile - 1 : software ? PLAN_TILES - 1 : 0;
  static const struct plan_tile some = {64, 64, 32, 8, 8, 1, 1, 4}, few = {32, 64, 64, 4, 8, 4, 1, 4};
  plan->tile = fit_tile(device, plan_tiles[usual]);
  plan->some = usual ? plan->tile : fit_tile(device, some);
  plan->few = usual ? plan->tile : fit_tile(device, few);
}

int plan_products_describe(const struct plan_products *plan, char *text, uint64_t capacity) {
  return snprintf(
      text, capacity,
      "matvec            %u to %u lanes, %u to %u rows, %u loads at once, below %u tokens (%u on matrices)\n"
      "quantized         a token's products %s\n"
      "matmul            tile %u x %u x %u, %u x %u a lane, %u lanes, %llu bytes shared\n"
      "prompts           %u tokens at once\n",
      plan->matvec_lanes, plan->matvec_most_lanes, plan->matvec_rows, plan->matvec_most_rows, plan->matvec_unroll,
      plan->matvec_below, plan->narrow_from, plan->dots ? "in integers" : "in f32", plan->tile.tile_t,
      plan->tile.tile_n, plan->tile.tile_k, plan->tile.sub_t, plan->tile.sub_n, plan_matmul_lanes(&plan->tile),
      (unsigned long long)plan_matmul_shared_bytes(&plan->tile), plan->batch);
}

// ---------------------------------------------------------------- many tokens

uint64_t plan_matmul_shared_bytes(const struct plan_tile *tile) {
  const uint64_t steps = tile_steps(tile), sums = tile_sums(tile);
  return steps > sums ? steps : sums;
}

uint32_t plan_matmul_lanes(const struct plan_tile *tile) {
  return (uint32_t)tile->tile_t / tile->sub_t * (tile->tile_n / tile->sub_n) * tile->slices;
}

// The fastest on an H100 of 132 processors, TFLOP/s of tile, some, few: 2048 x 2048 x 2048 44, 40; 512 x 6144 33, 40;
// 512 x 2048 22, 36; 256 x 2048 few 27; 128 x 2048 few 21. A long loop needs many workgroups, which hide its fetching.
const struct plan_tile *plan_matmul_tile(const struct plan_products *plan, uint32_t T, uint32_t N) {
  enum { SIDE = 64 };
  const uint32_t P = plan->device->processors, groups = divide_up(T, SIDE) * divide_up(N, SIDE);
  return groups < P + P / 2 ? &plan->few : groups < 6 * P ? &plan->some : &plan->tile;
}

// ---------------------------------------------------------------- on cooperative matrices

uint64_t plan_matmul_matrix_shared_bytes(const struct plan_matmul *m) {
  return 2ull * (m->tile_t + m->tile_n) * (m->tile_k + 8); // f16, eight elements of padding per row
}

// Most partial sums in the buffer: two workgroups of the largest tile per processor, since no more run at the same
// time.
static uint64_t most_sums(const struct plan_products *plan) { return 2ull * plan->device->processors * 128 * 128; }
static uint32_t most_shared(const struct plan_products *plan) {
  return 64 * plan->device->processors;
} // tiles; always enough

uint64_t plan_matmul_tickets_bytes(const struct plan_products *plan) { return sizeof(uint32_t) * most_shared(plan); }

uint64_t plan_matmul_parts_bytes(const struct plan_products *plan) {
  if (!plan->device->matrix_products || plan->matrix_parts < 2) return 0;
  return plan_matmul_tickets_bytes(plan) + sizeof(float) * most_sums(plan);
}

// Times of a tile on an H200, in hundredths of a microsecond. Other devices are assumed to have the same ratios.
enum {
  SHARED = 100,       // a split tile: its workgroups write partial sums and the last one adds them up
  SHARED_EACH = 50,   // of each workgroup, in turn
  SHARED_AREA = 4500, // elements to memory and back in one unit of time
  RESIDENT = 6,       // largest `resident` below
  EVEN = 8            // after so many rounds of all processors their ends even out
};
struct tile {
  uint32_t across_t, across_n, sub_t, sub_n; // subgroups along a tile's sides, matrices along a subgroup's
  uint32_t steps;                            // steps of the plan's length that one step of this tile covers
  uint32_t alone, beside;                    // time of a step: alone on a processor; for each that shares it
  uint32_t resident;                         // workgroups that a processor runs at the same time
};

// Simulates one processor: it starts workgroups until it is full, then a new one whenever one ends.
static uint64_t matrix_time(const struct plan_products *plan, const struct tile *tile, const struct plan_matmul *m,
                            uint32_t tiles, uint32_t steps) {
  const uint32_t P = plan->device->processors, shared = (tiles - m->whole) * m->parts,
                 of_part = divide_up(steps, m->parts);
  const uint32_t whole = divide_up(m->whole, P), all = whole + divide_up(shared, P);
  uint32_t left[RESIDENT] = {0}, next = 0, running;
  uint64_t time = shared ? SHARED + SHARED_EACH * m->parts + (uint64_t)shared * m->tile_t * m->tile_n / SHARED_AREA : 0;
  do {
    uint32_t least = UINT32_MAX;
    running = 0;
    for (uint32_t i = 0; i < tile->resident; i++) {
      if (!left[i] && next < all) left[i] = next++ < whole ? steps : of_part;
      if (left[i]) running++, least = min32(least, left[i]);
    }
    for (uint32_t i = 0; i < tile->resident; i++)
      if (left[i]) left[i] -= least;
    if (running)
      time += (uint64_t)least * (running * tile->beside > tile->alone ? running * tile->beside : tile->alone);
  } while (running);
  return time;
}

// Compares: all tiles whole; a whole number of tiles per processor, the rest split; all tiles split.
static uint64_t choose_parts(const struct plan_products *plan, const struct tile *tile, uint32_t tiles, uint32_t steps,
                             uint32_t most_parts, struct plan_matmul *m) {
  const uint32_t P = plan->device->processors, turn = P * tile->resident;
  const uint32_t whole[] = {tiles / turn * turn, tiles / P * P, 0};
  struct plan_matmul best = *m;
  best.whole = best.groups = tiles;
  best.parts = 1;
  uint64_t least = matrix_time(plan, tile, &best, tiles, steps);
  for (m->parts = 2; m->parts <= most_parts && 2 * m->parts <= steps && tiles <= EVEN * P; m->parts++)
    for (int i = 0; i < 3; i++) {
      m->whole = whole[i];
      m->groups = m->whole + (tiles - m->whole) * m->parts;
      if (m->whole == tiles || (i && m->whole == whole[i - 1]) || tiles - m->whole > most_shared(plan) ||
          (uint64_t)(m->groups - m->whole) * m->tile_t * m->tile_n > most_sums(plan))
        continue;
      uint64_t time = matrix_time(plan, tile, m, tiles, steps);
      if (time >= least) continue;
      least = time;
      best = *m;
    }
  *m = best;
  return least;
}

// Picks the tile with the least estimated time. Tiles are counted in coopmats, so that every shape of coopmat divides
// them.
bool plan_matmul_matrix(const struct plan_products *plan, uint32_t T, uint32_t N, uint32_t K, bool split,
                        struct plan_matmul *out) {
  const struct plan *device = plan->device;
  static const struct tile tiles[] = {{2, 2, 4, 4, 1, 138, 100, 2}, {2, 2, 4, 2, 1, 101, 62, 2},
                                      {2, 2, 2, 2, 2, 107, 76, 2},  {1, 2, 2, 2, 1, 87, 24, 6},
                                      {1, 1, 2, 2, 1, 87, 22, 6},   {1, 1, 1, 1, 1, 87, 20, 6}};
  uint64_t least = UINT64_MAX;
  memset(out, 0, sizeof *out);
  if (!device->matrix_products) return false;
  for (uint32_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    const struct tile *t = &tiles[i];
    struct plan_matmul m = {.across_t = t->across_t, .across_n = t->across_n};
    m.tile_t = m.across_t * t->sub_t * device->matrix_m;
    m.tile_n = m.across_n * t->sub_n * device->matrix_n;
    m.lanes = m.across_t * m.across_n * device->matrix_lanes;
    m.tile_k = plan->matrix_step * (device->software ? 1 : t->steps);
    while (m.tile_k > 16 && plan_matmul_matrix_shared_bytes(&m) > device->shared_bytes) m.tile_k /= 2;
    if (t->sub_t * t->sub_n > device->matrix_sums || m.lanes > device->most_lanes ||
        plan_matmul_matrix_shared_bytes(&m) > device->shared_bytes)
      continue;
    const uint32_t count = divide_up(T, m.tile_t) * divide_up(N, m.tile_n);
    const uint32_t steps = divide_up(K, plan->matrix_step * t->steps); // steps of the table's length
    uint64_t time = choose_parts(plan, t, count, steps, split ? plan->matrix_parts : 1, &m);
    if (time < least) {
      least = time;
      *out = m;
    }
    if (m.tile_t <= 2 * device->matrix_m || count > EVEN * device->processors) break; // too many reads
  }
  return out->lanes != 0;
}

uint64_t plan_matmul_turned_bytes(const struct plan_matmul *m, bool turn_x) {
  const uint64_t x = turn_x ? m->tile_k * (m->tile_t + 8) : m->tile_t * (m->tile_k + 8);
  return 2 * (x + m->tile_k * (m->tile_n + 8));
}

bool plan_matmul_turns(const struct plan_products *plan, const struct plan_matmul *m, bool turn_x) {
  // A matrix of each subgroup waits where w was, when y is not stored directly.
  const uint64_t staged = 4ull * m->across_t * m->across_n * plan->device->matrix_m * plan->device->matrix_n;
  return plan_matmul_turned_bytes(m, turn_x) <= plan->device->shared_bytes &&
         staged <= 2ull * m->tile_k * (m->tile_n + 8);
}

// The shared variables of matmul_narrow.comp with a convolution; test_plan compares this with the module.
uint64_t plan_matmul_narrow_shared_bytes(const struct plan_products *plan, const struct plan_narrow *m) {
  const struct plan *device = plan->device;
  uint64_t side = device->matrix_m > device->matrix_n ? device->matrix_m : device->matrix_n;
  uint64_t steps = 2 * m->parts * side * (m->step + 8);
  uint64_t sums = 4ull * ((m->parts + 1) / 2) * m->tiles_t * m->tiles_n * device->matrix_m * device->matrix_n;
  return (steps > sums ? steps : sums) + 2 * 4 * m->tiles_t * device->matrix_m;
}

// The fastest sizes on an H200. All subgroups should run at the same time, in many workgroups rather than large ones.
// If there is at most one workgroup per processor, it gets many subgroups.
static void narrow_start(const struct plan_products *plan, uint32_t N, uint32_t K, struct plan_narrow *m) {
  const struct plan *device = plan->device;
  static const struct { uint32_t tiles, parts; } alone[] = {{1, 16}, {2, 8}, {3, 8}};
  // Workgroups with many subgroups that run at the same time.
  const uint32_t groups = device->software ? 16 : device->processors;
  enum { LONG = 4096 }; // rows of weights this long are worth reading fewer inputs for
  const uint32_t blocks = m->passes * (uint32_t)(round_up(N, 2 * device->matrix_n) / device->matrix_n / 2);
  m->tiles_n = 2;
  m->parts = 4;
  m->step = plan->matrix_step;
  for (int i = 0; i < 3 && m->passes == 1; i++)
    if (round_up(N, alone[i].tiles * device->matrix_n) / device->matrix_n / alone[i].tiles <= groups) {
      m->tiles_n = alone[i].tiles;
      m->parts = alone[i].parts;
      break;
    }
  if (m->passes > 1 && blocks <= groups) {
    m->tiles_n = K < LONG ? 1 : 2;
    m->parts = 8;
  } else if (m->passes > 1 && blocks > 4 * groups) {
    m->parts = 2;
  }
  if (plan->narrow_tiles) m->tiles_n = plan->narrow_tiles;
  if (plan->narrow_parts) m->parts = plan->narrow_parts;
  if (plan->narrow_step) m->step = plan->narrow_step;
  while (m->tiles_n > 1 && m->tiles_t * m->tiles_n > device->matrix_sums) m->tiles_n--;
}

bool plan_matmul_narrow(const struct plan_products *plan, uint32_t T, uint32_t N, uint32_t K, struct plan_narrow *out) {
  const struct plan *device = plan->device;
  enum { MOST = 64 };
  if (!device->matrix_products || T > MOST) return false;
  const uint32_t tiles = (uint32_t)(round_up(T, device->matrix_m) / device->matrix_m);
  const uint32_t most = plan->narrow_tokens / device->matrix_m;
  struct plan_narrow m = {.passes = (tiles + most - 1) / most};
  m.tiles_t = (tiles + m.passes - 1) / m.passes;
  narrow_start(plan, N, K, &m);
  const uint32_t most_step = m.step;
  for (; m.parts; m.parts /= 2)
    for (m.step = most_step; m.step >= device->matrix_k; m.step /= 2) {
      m.lanes = m.parts * device->matrix_lanes;
      uint32_t w = device->matrix_n * m.step / 8, x = device->matrix_m * m.step / 8; // loads of a coopmat's rows
      if (K % m.step || m.parts * m.step > K || w % device->matrix_lanes || x % device->matrix_lanes ||
          m.lanes > device->most_lanes || plan_matmul_narrow_shared_bytes(plan, &m) > device->shared_bytes)
        continue;
      *out = m;
      return true;
    }
  return false;
}

// ---------------------------------------------------------------- rows of experts

// With fewer rows most experts have none or one, and reading each row's weights by itself costs no more.
bool plan_experts_sorted(uint32_t R, uint32_t E) { return R >= 16 && R >= 2 * E; }

uint32_t plan_experts_tiles(uint32_t R, uint32_t E, uint32_t tile_t) { return min32(R / tile_t + E, R); }

// The largest tile that the average expert fills; every tile reads its expert's weights.
bool plan_matmul_experts(const struct plan_products *plan, uint32_t R, uint32_t E, uint32_t N,
                         struct plan_matmul *out) {
  static const struct {
    uint32_t across_t, across_n, sub_t, sub_n;
  } tiles[] = {{2, 2, 4, 4}, {2, 2, 2, 2}, {1, 2, 2, 2}, {1, 2, 1, 2}};
  const struct plan *device = plan->device;
  const uint32_t count = sizeof tiles / sizeof *tiles;
  if (!device->matrix_products) return false;
  for (uint32_t i = 0; i < count; i++) {
    struct plan_matmul m = {.across_t = tiles[i].across_t, .across_n = tiles[i].across_n, .parts = 1};
    m.tile_t = m.across_t * tiles[i].sub_t * device->matrix_m;
    m.tile_n = m.across_n * tiles[i].sub_n * device->matrix_n;
    m.lanes = m.across_t * m.across_n * device->matrix_lanes;
    m.tile_k = plan->matrix_step;
    while (m.tile_k > 16 && plan_matmul_matrix_shared_bytes(&m) > device->shared_bytes) m.tile_k /= 2;
    if (tiles[i].sub_t * tiles[i].sub_n > device->matrix_sums || m.lanes > device->most_lanes ||
        plan_matmul_matrix_shared_bytes(&m) > device->shared_bytes || (i + 1 < count && R / E < m.tile_t))
      continue;
    m.whole = m.groups = plan_experts_tiles(R, E, m.tile_t) * divide_up(N, m.tile_n);
    *out = m;
    return true;
  }
  return false;
}
