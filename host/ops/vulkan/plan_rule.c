// plan_rule: chooses the sizes of the delta rule's kernels without cooperative matrices: chunks and single tokens.
// plan_delta.c has the others.
#include "plan_rule.h"

#include "numbers.h"

#include <stdio.h>

// ---------------------------------------------------------------- starting values

static bool full_chunks(const struct plan_rules *plan, uint32_t Dk) {
  struct plan_delta d;
  return plan_chunk_sizes(plan, Dk, 128, 1, 1, &d) && d.C == plan->chunk;
}

uint32_t plan_chunk_key(const struct plan_rules *plan) {
  enum { MOST_DK = 65536 }; // limit of the search
  uint32_t key = 0;
  while (key < MOST_DK && full_chunks(plan, key + 1)) key++;
  return key;
}

// Registers hold a lane's part of the state, half as many elements of q and k, and the results. Intel has registers for
// 64 elements per lane, which is too few.
static void plan_step_registers(const struct device_caps *caps, struct plan_rules *plan) {
  if (!caps->subgroup_shuffle || caps->vendor_id == VENDOR_INTEL) return;
  plan->step_width = plan->device->subgroup_width;
  plan->step_rows = 16;
  plan->step_most_rows = caps->vendor_id == VENDOR_NVIDIA || plan->device->software ? 32 : 16;
  plan->fours_most_rows = plan->device->software ? 0 : plan->step_most_rows; // by columns is faster on lavapipe
  plan->fours_least_rows = 8;
  plan->fours_ahead_rows = 16;
  plan->fours_lanes = 64;
}

// From sweeps on an H200 and on lavapipe.
void plan_rules_make(const struct device_caps *caps, const struct plan *device, struct plan_rules *plan) {
  enum { USUAL_DK = 64 }; // chunks of the planned length must fit keys this long
  const bool software = device->software;
  *plan = (struct plan_rules){.device = device,
                              .chunk = software ? 16 : 32,
                              .chunk_lanes = software ? 8 : 128,
                              .chunk_columns = software ? 32 : 16,
                              .chunk_ahead = caps->vendor_id == VENDOR_INTEL ? 0 : 16, // few registers
                              .rule_columns = 32,
                              .rule_rows = software ? 128 : 32,
                              .step_lanes = software ? 256 : 1024};
  plan_step_registers(caps, plan);
  plan->chunk_from = 4 * plan->chunk;
  while (plan->chunk_lanes > device->most_lanes) plan->chunk_lanes /= 2;
  while (plan->step_lanes > device->most_lanes) plan->step_lanes /= 2;
  while (plan->chunk > PLAN_LEAST_CHUNK && !full_chunks(plan, USUAL_DK)) plan->chunk /= 2;
}

int plan_rules_describe(const struct plan_rules *plan, char *text, uint64_t capacity) {
  return snprintf(text, capacity,
                  "delta rule        chunks of %u from %u tokens for keys up to %u, at most %u lanes and %u columns\n"
                  "                  else shorter chunks or recurrent, %u columns, %u rows a lane; single tokens with up to %u lanes\n",
                  plan->chunk, plan->chunk_from, plan_chunk_key(plan), plan->chunk_lanes, plan->chunk_columns,
                  plan->rule_columns, plan->rule_rows, plan->step_lanes);
}

// ---------------------------------------------------------------- chunks

// The longest sequence decides: a short one takes as long in one chunk as step by step, and both read and write its
// state (docs/speed/log.md).
bool plan_chunks(const struct plan_rules *plan, uint64_t T, uint32_t B, uint64_t longest) {
  return (longest ? longest : T / B) >= plan->chunk_from;
}

// The shared variables of delta_chunk_prepare.comp and delta_chunk_scan.comp; test_plan compares this with the modules.
uint64_t plan_prepare_shared_bytes(const struct plan_delta *d) {
  return 4ull * (2 * d->C * (d->slab + 4) + d->C * (d->C + 5));
}

uint64_t plan_scan_shared_bytes(const struct plan_delta *d, uint32_t Dk, uint32_t n) {
  uint64_t rows = round_up(Dk, d->sub_k), queries = d->C / d->sub_t * ((d->sub_t + n - 1) / n);
  return 4 * ((rows + 2 * d->C) * d->columns + (d->C + queries) * (rows + 4) + 2 * d->C);
}

static uint64_t scan_groups(uint32_t heads, uint32_t Dv, uint32_t columns) {
  return (uint64_t)heads * (round_up(Dv, columns) / columns);
}

// Elements that an invocation of scan computes, with as many invocations as the plan allows. With n steps a token, one
// step each would be one token each, so n times the rows of Q.
static void scan_tiles(const struct plan_rules *plan, uint32_t n, struct plan_delta *d) {
  uint32_t elements = d->C * d->columns;
  d->groups = plan->chunk_lanes < elements / 8 ? 1 : 2;
  d->sub_t = plan->chunk_lanes < elements / 16 ? 8 : plan->chunk_lanes < elements / 4 ? 4 : 2;
  if (plan->chunk_lanes >= elements / 2 && n == 1) d->sub_t = 1;
  d->sub_c = d->sub_k = plan->chunk_lanes < elements / 32 ? 8 : 4;
}

// K and Q of a chunk and S must fit in shared memory. Fewer columns are better than a shorter chunk.
static bool scan_fits(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, struct plan_delta *d) {
  uint32_t columns = min32(plan->chunk_columns, (uint32_t)round_up(Dv, 8));
  for (d->C = plan->chunk; d->C >= PLAN_LEAST_CHUNK; d->C /= 2)
    for (d->columns = columns; d->columns >= 8; d->columns = d->columns / 2 / 8 * 8) {
      scan_tiles(plan, n, d);
      if (plan_scan_shared_bytes(d, Dk, n) <= plan->device->shared_bytes) return d->C >= n;
    }
  return false;
}

// Where each processor has at most one workgroup, two of half the columns wait for memory in turn (H200, T 2,048, 16
// heads of 128, ms: 0.349 with 16 columns, 0.325 with 8; 64 heads 0.975, 1.261).
static void scan_spread(const struct plan_rules *plan, uint32_t Dv, uint32_t n, uint32_t heads, struct plan_delta *d) {
  d->usual_columns = d->columns;
  const uint64_t groups = scan_groups(heads, Dv, d->columns);
  if (plan->device->software || d->columns % 16 || groups > plan->device->processors) return;
  d->columns /= 2;
  scan_tiles(plan, n, d);
}

bool plan_chunk_sizes(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t heads,
                      struct plan_delta *d) {
  enum { MIN_SLAB = 16 };
  if (!scan_fits(plan, Dk, Dv, n, d)) return false;
  scan_spread(plan, Dv, n, heads, d);
  d->sub = d->sub_c;
  d->slab = (uint32_t)round_up(Dk, 4);
  if (d->slab < MIN_SLAB) d->slab = MIN_SLAB;
  d->slab = min32(d->slab, d->C <= 32 ? 64 : MIN_SLAB);
  while (d->slab > MIN_SLAB && plan_prepare_shared_bytes(d) > plan->device->shared_bytes) {
    d->slab = d->slab / 8 * 4;
    if (d->slab < MIN_SLAB) d->slab = MIN_SLAB;
  }
  return true;
}

// ---------------------------------------------------------------- token by token

// Groups of four columns per subgroup: the most that leave each lane at most `rows` rows. At least four lanes share a
// group, since each stores one column's output. 0: even one group is too many.
static uint32_t fours_groups(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t rows) {
  uint32_t groups = 0;
  for (uint32_t g = 1; g <= plan->step_width / 4 && (g == 1 || g < Dv / 2); g *= 2)
    if (round_up(Dk, 4 * plan->step_width / g) / (plan->step_width / g) <= rows) groups = g;
  return groups;
}

static uint32_t fours_columns(const struct plan_rules *plan, const struct plan_rule_fours *f) {
  return f->lanes / plan->step_width * 4 * f->groups;
}

// The shared variables of delta_rule_fours.comp, each aligned to 16 bytes; test_plan compares this with the module.
uint64_t plan_rule_fours_shared_bytes(const struct plan_rules *plan, const struct plan_rule_fours *f, uint32_t Dk,
                                      uint32_t n) {
  const uint64_t key = round_up(Dk, 4 * plan->step_width / f->groups);
  const uint64_t token = (n + 1) * key + n * (uint64_t)fours_columns(plan, f);
  return 4 * f->block * token + round_up(4ull * f->block * n, 16) + round_up(4ull * f->block, 16);
}

// Many rows a lane need fewer shuffles; few rows make the chain of tokens shorter, and more lanes share the work. So
// the most rows that leave three subgroups to each processor. H200, T 2,048, ms with 8, 16 and 32 rows: 16 heads of 128
// 0.80, 0.89, 1.28; 64 heads 0.97, 0.90, 1.30; 512 heads 5.3, 4.3, 3.9; 8 heads of 256 1.06, 1.14, 1.59; 64 heads 3.3,
// 2.8, 2.3. Loads ahead take 4 % off up to 16 rows, and cost 2 to 7 % with 32: registers.
bool plan_rule_fours(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t heads,
                     struct plan_rule_fours *f) {
  enum { MOST_BLOCK = 16, STAGED = 12 << 10, EACH = 3 }; // STAGED: bytes of a block of tokens, unless one needs more
  const uint32_t width = plan->step_width;
  *f = (struct plan_rule_fours){0};
  if (!width || Dk % 4 || Dv % 4) return false;
  for (uint32_t rows = plan->fours_most_rows; rows && rows >= plan->fours_least_rows; rows /= 2) {
    const uint32_t groups = fours_groups(plan, Dk, Dv, rows);
    if (!groups) break;
    f->groups = groups;
    f->ahead = round_up(Dk, 4 * width / groups) / (width / groups) <= plan->fours_ahead_rows;
    if (heads * (round_up(Dv, 4 * groups) / (4 * groups)) >= (uint64_t)EACH * plan->device->processors) break;
  }
  if (!f->groups) return false;
  f->lanes = width * (uint32_t)(round_up(Dv, 4 * f->groups) / (4 * f->groups));
  f->lanes = min32(f->lanes, max32(plan->fours_lanes / width, 1) * width);
  f->block = min32(MOST_BLOCK, f->lanes / n);
  while (f->block > 1 && plan_rule_fours_shared_bytes(plan, f, Dk, n) > STAGED) f->block /= 2;
  return f->block && plan_rule_fours_shared_bytes(plan, f, Dk, n) <= plan->device->shared_bytes;
}

// What the times of the pass over chunks and of the recurrence have in common is the work per workgroup of the pass: on
// an H200 chunks are slower from about 2.5 of them for each processor (by columns: 3.75), and with n steps a token from
// an n-th of that. T 2,048, ms by chunks, by fours, by columns: 16 heads of 128 0.60, 0.80, 1.11; 64 heads 1.45, 0.90,
// 1.33; 512 heads 11.3, 3.9, 8.7; 16 heads of 64 0.35, 0.59, 0.74; 256 heads 1.91, 0.79, 1.20; n = 2, 16 heads of 128
// 1.11, 1.29, 2.05; n = 3 1.77, 1.67, 2.70. The pass takes 25 to 40 % less than then. Shorter chunks, of long keys, pay
// from there too, as measured with 48 KiB of shared memory only: 8 heads of 256 0.86, 1.06, 2.23.
uint64_t plan_chunk_percent(const struct plan_rules *plan, const struct plan_delta *d, uint32_t Dk, uint32_t Dv,
                            uint32_t n, uint32_t heads) {
  struct plan_rule_fours f;
  const bool fours = plan_rule_fours(plan, Dk, Dv, n, heads, &f);
  const uint64_t groups = n * scan_groups(heads, Dv, d->usual_columns);
  return 400 * groups / ((fours ? 10ull : 15ull) * plan->device->processors);
}

bool plan_chunks_pay(const struct plan_rules *plan, const struct plan_delta *d, uint32_t Dk, uint32_t Dv, uint32_t n,
                     uint32_t heads) {
  enum { MEASURED_SHARED = 48 << 10 };
  const uint32_t limit = plan->device->timed.chunk_percent;
  if (limit == PLAN_CHUNKS_NEVER) return false;
  if (plan->device->software && !limit) return true;
  if (d->C < plan->chunk && plan->device->shared_bytes < MEASURED_SHARED) return false;
  return plan_chunk_percent(plan, d, Dk, Dv, n, heads) < (limit ? limit : 100);
}

// ---------------------------------------------------------------- single tokens

// The shared variables of delta_step.comp, each aligned to 16 bytes; test_plan compares this with the module.
uint64_t plan_step_shared_bytes(const struct plan_step *s, uint32_t Dk, uint32_t n, uint32_t r) {
  uint64_t split = (uint64_t)r * s->sub, lanes = split * s->columns, rows = (Dk / r + s->sub - 1) / s->sub;
  uint64_t heads = (n + 1) * split * round_up(rows, 4), slots = round_up((n + 1) * (lanes / 4 + 1), 4);
  return 4 * (heads + round_up(2 * lanes, 4) + slots + round_up((uint64_t)r * r, 4) + round_up(lanes, 4));
}

// A whole head in one workgroup saves the dispatch of the norm (H200: 2 us), which is more than spreading it would
// save.
bool plan_step(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, struct plan_step *s) {
  s->columns = plan->rule_columns;
  s->sub = (Dk / r + plan->rule_rows - 1) / plan->rule_rows;
  uint32_t split = r * s->sub, most = plan->step_lanes;
  while (s->columns > 8 && s->columns / 2 >= Dv) s->columns /= 2;
  uint64_t all = round_up(Dv, s->columns);
  s->whole = all * split <= most;
  if (s->whole) s->columns = (uint32_t)all;
  while (s->columns > 4 && s->columns * split > most) s->columns /= 2;
  return s->columns * split <= most && plan_step_shared_bytes(s, Dk, n, r) <= plan->device->shared_bytes;
}

// Groups of four columns per subgroup: the most that leave each lane at most `rows` rows, since longer runs of rows
// need fewer shuffles. 0: even one group is too many.
static uint32_t column_groups(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t rows) {
  uint32_t groups = 0;
  for (uint32_t g = 1; g <= plan->step_width && g < Dv / 2; g *= 2)
    if (round_up(Dk, 4 * plan->step_width / g) / (plan->step_width / g) <= rows) groups = g;
  return groups;
}

// With many heads with a norm, each head is best held by few lanes with many rows each. With few heads, it is best held
// by more lanes, whose code is shorter: in a model, a kernel of microseconds waits for its code (H200: 1.5 us less).
// Other heads are best in small workgroups, whose subgroups can drift apart. With many heads, many rows per
// lane are better than reads of less than 64 bytes.
bool plan_step_fours(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t heads, bool norm,
                     struct plan_step_fours *s) {
  const uint32_t width = plan->step_width, rows[2] = {plan->step_most_rows, plan->step_rows};
  const uint32_t lanes[2] = {128, min32(512, plan->step_lanes)};
  const bool few = heads <= 64;
  *s = (struct plan_step_fours){0};
  if (!width || Dk % 4 || Dv % 4) return false;
  for (int i = few; i < 2 && norm && !s->whole; i++) {
    s->groups = column_groups(plan, Dk, Dv, rows[i]);
    if (!s->groups) continue;
    s->lanes = width * (uint32_t)(round_up(Dv, 4 * s->groups) / (4 * s->groups));
    s->whole = s->lanes <= lanes[i];
  }
  if (s->whole) return true;
  s->groups = column_groups(plan, Dk, Dv, plan->step_rows);
  if (!s->groups || (s->groups < 4 && !few)) s->groups = column_groups(plan, Dk, Dv, plan->step_most_rows);
  s->lanes = width > 64 ? width : 64;
  return s->groups > 0;
}
