// plan_delta: chooses the sizes of the chunkwise delta rule's kernels on cooperative matrices.
#include "plan_delta.h"

#include "numbers.h"

#include <string.h>

// ---------------------------------------------------------------- shared memory: the shaders' variables

static uint64_t queries(const struct plan_delta_matrix *d, uint32_t n) { return round_up32(d->C / n, 16); }

// Rows of K that Head-in-Head's kernels stage besides those of the tokens: HH_MATRIX_ALONE.
static uint64_t alone(const struct plan_delta_matrix *d) {
  return d->C / d->r % 16 == 0 && d->block % 16 == 0 ? 0 : d->C;
}

static uint64_t hh_prepare_bytes(const struct plan_delta_matrix *d) {
  uint64_t tokens = d->C / d->r, lefts = 2 * queries(d, d->r), r4 = (d->r + 3) / 4, pairs = tokens * tokens * r4;
  uint64_t staged = (lefts + alone(d)) * (d->slab / 8 + 1), masks = 2 * tokens * d->r * r4;
  return 16 * ((staged > pairs ? staged : pairs) + lefts * (d->C / 4 + 1) + masks) + 2 * round_up(4 * tokens, 16);
}

uint64_t plan_delta_matrix_prepare_bytes(const struct plan_delta_matrix *d, uint32_t n) {
  if (d->r > 1) return hh_prepare_bytes(d);
  uint64_t rows = d->C + queries(d, n), staged = rows * (d->slab / 8 + 1), half = d->C / 8 + 1;
  uint64_t later = d->C * (d->C / 4 + 1) + (d->C > 16 ? 2 * d->C * (half + 3) : queries(d, n) * half);
  return 16 * (staged > later ? staged : later) + 8ull * d->C + 8 * (d->C + rows);
}

uint64_t plan_delta_matrix_scan_bytes(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t n,
                                      bool edges) {
  const bool blocks = d->r > 1;
  uint64_t tokens = queries(d, n), buffers = d->stagers + d->ahead ? 2 : 1;
  uint64_t keys = (blocks && !alone(d) ? d->C / n : d->C) + tokens, factors = d->C + (blocks ? 2 : 1) * tokens;
  uint64_t values = !blocks ? d->C : d->conversions ? tokens : d->C + tokens;
  uint64_t pitch = d->computers * d->tiles * plan->matrix_n / 8 + 1;
  uint64_t staged = 16 * keys * (d->Dk / 8 + 1) + 16 * factors * (d->C / 8 + 1) + 4 * (2 * d->C + tokens);
  uint64_t corner = edges ? 4ull * d->computers * plan->matrix_m * plan->matrix_n : 16;
  uint64_t copy = d->conversions ? 0 : 2 * buffers * d->C + 16 * d->Dk * pitch;
  return buffers * staged + 16 * values * pitch + corner + copy;
}

uint64_t plan_delta_matrix_join_bytes(const struct plan *plan, const struct plan_delta_matrix *d) {
  return 32ull * d->Dk * (d->join_tiles * plan->matrix_n / 8 + 1);
}

uint64_t plan_delta_matrix_reach_bytes(const struct plan *plan, const struct plan_delta_matrix *d) {
  const uint64_t columns = d->computers * d->tiles * plan->matrix_n, rows = 32; // DELTA_MATRIX_REACH_ROWS
  const uint64_t state = d->Dk * (columns / 8 + 1), both = rows * (d->Dk / 8 + 1 + columns / 4 + 1);
  return 16 * (both > state ? both : state);
}

// ---------------------------------------------------------------- shapes

// Workgroups of scan that run at the same time if they take all registers: two per processor of an H200.
static uint32_t scan_groups(const struct plan *plan) { return 2 * plan->processors; }

struct shape {
  uint32_t C, computers, tiles, stagers;
};

// Shapes from wide to narrow. A wide workgroup covers the whole value dimension and reads K and Q once. With few heads
// the chain of chunks is the limit, so narrow shapes follow: first more subgroups with one tile each, then fewer and
// longer chunks, with subgroups that only stage. H200, docs/speed/log.md.
static const struct shape in_registers[] = {{16, 4, 2, 0}, {16, 4, 1, 0}, {32, 1, 1, 3}, {16, 1, 1, 3}, {16, 1, 1, 0}};
static const struct shape through_memory[] = {{16, 4, 1, 0}, {16, 2, 1, 0}, {16, 1, 1, 0}};
// Software drivers need seconds to compile unrolled loops.
static const struct shape in_software[] = {{16, 2, 1, 0}, {32, 1, 1, 1}};

enum { SHORT_STEPS = 8 }; // householder steps per token; two such tokens still share a chunk of 16

// Length of a chunk. With several householder steps per token chunks stay short, although their tokens then leave a
// part of the tile of queries empty: the cost of a chunk's inverse grows faster. Blocks make a chunk longer by the
// number of their unknowns, but not in software, where that code is too large.
static uint32_t steps_of(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t C, uint32_t n) {
  if (d->r == 1 && n > 1) return n <= SHORT_STEPS ? 16 : 64;
  if (plan->software && d->r > 2) return 16;
  return n == 1 ? C : n < 4 ? 16 * n : 64;
}

static bool has_edges(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t Dv) {
  return d->block * d->r != d->Dk || Dv % (d->computers * d->tiles * plan->matrix_n) != 0;
}

static bool fits(const struct plan *plan, const struct plan_delta_matrix *d, uint32_t Dv, uint32_t n) {
  // Registers of an invocation for its part of S. If accumulators pass through shared memory, long chunks of blocks, or
  // of many steps per token, need additional registers.
  const bool large = n > 2 && (d->r > 1 || d->C > 16);
  const uint32_t most = plan->matrix_sums * 8 / (large && !d->conversions ? 2 : 1);
  uint32_t sums = d->tiles * (d->Dk / plan->matrix_m) * (plan->matrix_m * plan->matrix_n / plan->matrix_lanes);
  if (plan->matrix_sums < 16) { // RDNA3's compiler spills here: the fewer subgroups, the more each must stage
    const bool full = sums >= most, edges = has_edges(plan, d, Dv);
    const uint32_t least = (full && (n > 1 || edges)) || (d->r > 1 && 2 * sums > most) ? 4 : 2;
    if (large || d->computers < least || (full && edges && d->r > 1)) return false;
  }
  return sums <= most && (d->computers + d->stagers) * plan->matrix_lanes <= plan->most_lanes &&
         plan_delta_matrix_scan_bytes(plan, d, n, true) <= plan->shared_bytes;
}

static bool plan_scan(const struct plan *plan, uint32_t Dv, uint32_t n, uint32_t heads, struct plan_delta_matrix *d) {
  const struct shape *shapes = plan->software ? in_software : d->conversions ? in_registers : through_memory;
  uint32_t count = plan->software   ? sizeof in_software / sizeof *shapes
                   : d->conversions ? sizeof in_registers / sizeof *shapes
                                    : sizeof through_memory / sizeof *shapes;
  bool found = false;
  for (uint32_t i = 0; i < count; i++) {
    struct plan_delta_matrix s = *d;
    s.C = steps_of(plan, d, shapes[i].C, n);
    // Twice the subgroups with one tile each are faster with short keys and with long chunks. Long keys leave no
    // registers for a second tile or a second workgroup.
    const bool narrow = (d->Dk <= 32 || d->Dk > 128 || s.C > 16) && shapes[i].tiles > 1;
    const uint32_t places = d->Dk > 128 ? scan_groups(plan) / 2 : scan_groups(plan);
    s.tiles = narrow ? 1 : shapes[i].tiles;
    s.stagers = d->conversions ? shapes[i].stagers : 0;
    uint32_t width = s.tiles * plan->matrix_n;
    s.computers = min32(narrow ? 2 * shapes[i].computers : shapes[i].computers, round_up32(Dv, width) / width);
    if (!fits(plan, &s, Dv, n)) continue;
    width *= s.computers;
    const uint32_t groups = heads * (round_up32(Dv, width) / width);
    // A lone subgroup waits too often, unless other subgroups stage for it and there is a processor for each workgroup.
    const uint32_t most = d->Dk > 128 ? scan_groups(plan) : scan_groups(plan) / 2;
    if (found && shapes == in_registers && shapes[i].computers == 1 && (!s.stagers || groups > most)) continue;
    *d = s;
    found = true;
    // Enough workgroups to fill the device? With more than one tile per subgroup, the number of subgroups counts.
    if (s.tiles > 1 ? groups * s.computers >= 3 * places : 4 * groups >= 3 * places) break;
    if (s.stagers) break; // there is no narrower shape
  }
  return found;
}

// With too few heads for a wide workgroup on every processor, a long sequence is cut into as many segments as run at
// once. Every segment but the first also computes the columns of its map.
static void plan_segments(const struct plan *plan, uint32_t Dv, uint32_t n, uint32_t heads, uint32_t T,
                          struct plan_delta_matrix *d) {
  enum { LEAST_CHUNKS = 16 };
  // join would spill registers, and its identity matrix needs square tiles.
  if (plan->matrix_sums < 16 || plan->matrix_m != plan->matrix_n) return;
  const uint32_t least = n == 1 && d->Dk <= 128 ? 8 : 4;                           // fewer are slower with their maps
  const uint32_t places = d->Dk <= 64 ? 2 * scan_groups(plan) : scan_groups(plan); // short keys need fewer registers
  struct plan_delta_matrix wide = *d;
  wide.C = steps_of(plan, d, 16, n);
  wide.stagers = 0;
  for (wide.tiles = d->r > 1 ? 1 : 2; wide.tiles > 0; wide.tiles--) {
    uint32_t width = wide.tiles * plan->matrix_n;
    wide.computers = min32(4, round_up32(Dv, width) / width);
    if (!fits(plan, &wide, Dv, n)) continue;
    width *= wide.computers;
    const uint32_t values = round_up32(Dv, width) / width, keys = round_up32(wide.Dk, width) / width,
                   chunks = T / (wide.C / n);
    const uint32_t segments = min32((places + heads * keys) / (heads * (values + keys)), chunks / LEAST_CHUNKS);
    wide.join_tiles = wide.Dk > 128 && wide.computers * wide.tiles % 2 == 0 ? 2 : 1;
    bool joins = wide.Dk / plan->matrix_m * plan->matrix_lanes <= plan->most_lanes &&
                 plan_delta_matrix_join_bytes(plan, &wide) <= plan->shared_bytes &&
                 plan_delta_matrix_reach_bytes(plan, &wide) <= plan->shared_bytes;
    if (segments < least || !joins) return;
    *d = wide;
    // If segments would be short, half as many take less time to join. Long keys then also run faster, with one
    // workgroup per processor.
    const uint32_t half = (scan_groups(plan) / 2 + heads * keys) / (heads * (values + keys));
    d->segments = d->Dk > 64 && half >= 4 && half < segments && chunks < 24 * segments ? half : segments;
    return;
  }
}

// Fetches chunks ahead, where that is faster (H200, docs/speed/log.md). Registers that a subgroup's columns of S leave
// free can hold two chunks in flight. Software has both forms, for the tests.
static void plan_ahead(const struct plan *plan, uint32_t Dv, uint32_t n, struct plan_delta_matrix *d) {
  if (!d->conversions || d->stagers || d->r > 1 || d->C > 16) return;
  const bool edge = d->block != d->Dk && d->Dk > 32 && d->segments == 1; // rows of the state pass through shared memory
  d->ahead = plan->software && n > 1 ? 1 : d->Dk * d->tiles <= 128 && !edge ? 2 : 0;
  if (d->Dk > 128 || (d->Dk == 128 && d->segments > 1)) d->ahead = 1;
  if (plan_delta_matrix_scan_bytes(plan, d, n, has_edges(plan, d, Dv)) > plan->shared_bytes) d->ahead = 0;
}

// Columns that prepare stages at once.
static uint32_t slab_of(uint32_t Dk, uint32_t most) {
  if (Dk <= most) return Dk;
  return Dk % 64 == 0 ? 64 : 48;
}

void plan_delta_prepare(const struct plan *plan, uint32_t n, struct plan_delta_matrix *d) {
  d->slab = 1;
  while (d->C > 16 && d->C - 16 >= n && plan_delta_matrix_prepare_bytes(d, n) > plan->shared_bytes) d->C -= 16;
  // One subgroup per row of tiles: if one takes several in turn, the H200's compiler keeps them in memory.
  const uint32_t rows = (d->C + (uint32_t)queries(d, n)) / plan->matrix_m, least = 4;
  d->prepare_lanes = d->C >= 32 ? min32(rows > least ? rows : least, plan->most_lanes / plan->matrix_lanes) : 1;
  d->prepare_lanes *= plan->matrix_lanes;
  if (d->r > 1)
    d->prepare_lanes = round_up32(min32(d->C / n * (d->r + 1), 128), plan->matrix_lanes); // one lane per column
  d->slab = slab_of(d->Dk, d->r > 1 ? 128 : 112);
  while (d->slab > 16 && plan_delta_matrix_prepare_bytes(d, n) > plan->shared_bytes)
    d->slab = round_up32(d->slab / 2, 16);
}

bool plan_delta_matrix(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, uint32_t heads,
                       uint32_t T, struct plan_delta_matrix *d) {
  enum { MOST_UNKNOWNS = 64, MOST_DK = 1024 };
  const uint32_t unknowns = n * r;
  memset(d, 0, sizeof *d);
  if (!plan->matrix_mixers || unknowns > MOST_UNKNOWNS || Dk > MOST_DK) return false;
  bool square = plan->matrix_m == plan->matrix_n && plan->matrix_n == plan->matrix_k;
  d->r = r;
  d->block = Dk / r;
  d->conversions = plan->matrix_conversions && square;
  d->lockstep = plan->software;
  d->Dk = round_up32(Dk, 16);
  d->segments = 1;
  if (!plan_scan(plan, Dv, unknowns, heads, d)) return false;
  plan_segments(plan, Dv, unknowns, heads, T, d);
  plan_delta_prepare(plan, unknowns, d);
  if (!fits(plan, d, Dv, unknowns)) return false;
  plan_ahead(plan, Dv, unknowns, d);
  return plan_delta_matrix_prepare_bytes(d, unknowns) <= plan->shared_bytes;
}
