// vulkan_delta_matrix: the chunkwise delta rule, and Head-in-Head, on cooperative matrices.
#include "delta_matrix_join.h"
#include "delta_matrix_prepare.h"
#include "delta_matrix_reach.h"
#include "delta_matrix_scan.h"
#include "hh_matrix_prepare.h"
#include "vulkan_backend.h"

// A kernel that loads single f16 elements reads them in words of two.
static struct binding bind_words(struct tensor t) {
  struct binding b = vulkan_bind(t, t);
  b.bytes = round_up(b.bytes, 4);
  return b;
}

// The most elements of one load: a and b must be multiples of it.
static uint32_t unit_of(uint32_t a, uint32_t b) { return (a | b) % 8 == 0 ? 8 : (a | b) % 4 == 0 ? 4 : 1; }

static uint64_t record_bytes(const struct plan_delta_matrix *p, const struct delta_args *a) {
  return 16ull * a->Hv * (p->r > 1 ? HH_MATRIX_RECORD(p->C, p->r) : DELTA_MATRIX_RECORD(p->C, a->n));
}

static uint32_t tokens_of(const struct plan_delta_matrix *p, const struct delta_args *a) {
  return p->C / (a->n * p->r);
}

// The most chunks that T tokens of B sequences can make.
static uint32_t most_chunks(const struct plan_delta_matrix *p, uint32_t T, uint32_t B, const struct delta_args *a) {
  return divide_up(T, tokens_of(p, a)) + B;
}

bool vulkan_delta_matrix_plan(const struct recorder *c, uint32_t T, uint32_t B, const struct delta_args *a,
                              struct plan_delta_matrix *p) {
  const struct device *device = vulkan_device(c->backend);
  const enum matrices matrices = vulkan_list(c)->matrices;
  struct plan plan = device->plan;
  const uint32_t r = max32(a->r, 1);
  if (!matrices || vulkan_list(c)->form == DELTA_F32) return false;
  if (!kernel_built(r > 1 ? KERNEL_hh_matrix_prepare_f16 : KERNEL_delta_matrix_prepare_f16)) return false;
  if (!vulkan_chunked(c, T, B, a->n)) return false;
  if (matrices == MATRICES_PLAIN) plan.matrix_conversions = false;
  if (!plan_delta_matrix(&plan, a->Dk, a->Dv, a->n, r, B * a->Hv, T / B, p)) return false;
  return !p->conversions || kernel_built(KERNEL_delta_matrix_scan_f16);
}

// Value columns of a workgroup of scan, which are also columns of a map.
static uint32_t columns_of(const struct plan *plan, const struct plan_delta_matrix *p) {
  return p->computers * p->tiles * plan->matrix_n;
}

static uint32_t padded_values(const struct plan *plan, const struct plan_delta_matrix *p, const struct delta_args *a) {
  return divide_up(a->Dv, columns_of(plan, p)) * columns_of(plan, p);
}

static uint64_t maps_bytes(const struct plan *plan, const struct plan_delta_matrix *p, uint32_t B,
                           const struct delta_args *a) {
  if (p->segments == 1) return 0;
  return 4ull * B * p->segments * a->Hv * DELTA_MATRIX_MAP(p->Dk, padded_values(plan, p, a));
}

// Bytes of the factors that carry the state before a segment to the outputs of T tokens.
static uint64_t reach_bytes(const struct plan_delta_matrix *p, uint32_t T, const struct delta_args *a) {
  return p->segments == 1 ? 0 : round_up(2ull * T * a->Hv * p->Dk, TENSOR_ALIGN);
}

// Scratch holds maps, then reach, then records. Calls with fewer tokens may use chunks of another length.
uint64_t vulkan_delta_matrix_bytes(const struct device *device, const struct plan_delta_matrix *p, uint32_t T,
                                   uint32_t B, const struct delta_args *a) {
  uint64_t most = 0;
  struct plan_delta_matrix other = *p;
  for (other.C = 16; other.C <= 64; other.C += 16) {
    if (other.C != p->C && (a->n * p->r > 1 || other.C > 32)) continue;
    uint64_t bytes = most_chunks(&other, T, B, a) * record_bytes(&other, a);
    if (bytes > most) most = bytes;
  }
  return most + maps_bytes(&device->plan, p, B, a) + reach_bytes(p, T, a);
}

// What both kernels of prepare bind; of qkv they read only q and k.
static void bind_prepare(const struct delta_rule *r, struct binding prepared, struct binding *bindings) {
  struct binding keys = bind_words(r->qkv);
  keys.touched =
      dtype_bytes(r->qkv.dtype, (uint64_t)r->qkv.rows * r->a.H * (1 + r->a.n) * key_pitch(r->qkv.dtype, r->a.Dk));
  bindings[DELTA_MATRIX_PREPARE_PREPARED] = prepared;
  bindings[DELTA_MATRIX_PREPARE_QKV] = keys;
  bindings[DELTA_MATRIX_PREPARE_BETA] = vulkan_bind(r->beta, r->qkv);
  bindings[DELTA_MATRIX_PREPARE_G] = vulkan_bind(r->g, r->qkv);
  bindings[DELTA_MATRIX_PREPARE_SEQUENCES] = vulkan_bind(r->sequences, r->qkv);
}

static struct delta_matrix_prepare_args prepare_args(const struct delta_rule *r) {
  const struct delta_args *a = &r->a;
  return (struct delta_matrix_prepare_args){.B = r->sequences.rows,
                                            .H = a->H,
                                            .Hv = a->Hv,
                                            .share = delta_share(a),
                                            .pitch = key_pitch(r->qkv.dtype, a->Dk),
                                            .gated = a->gated,
                                            .scale = a->scale,
                                            .qkv_stride = r->qkv.stride,
                                            .beta_stride = r->beta.stride,
                                            .g_stride = r->g.stride,
                                            .mask_stride = a->fixed_mask ? 0 : r->mask.stride};
}

void vulkan_delta_prepare(struct recorder *c, const struct delta_rule *r, const struct plan_delta_matrix *p,
                          struct binding prepared, uint32_t chunks) {
  const struct delta_args *a = &r->a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t pitch = key_pitch(r->qkv.dtype, a->Dk);
  const uint32_t spec[DELTA_MATRIX_PREPARE_SPECS] = {
      [DELTA_MATRIX_PREPARE_SPEC_LANES] = p->prepare_lanes,
      [DELTA_MATRIX_PREPARE_SPEC_SUBGROUP] = plan->matrix_lanes,
      [DELTA_MATRIX_PREPARE_SPEC_TILE_M] = plan->matrix_m,
      [DELTA_MATRIX_PREPARE_SPEC_TILE_N] = plan->matrix_n,
      [DELTA_MATRIX_PREPARE_SPEC_TILE_K] = plan->matrix_k,
      [DELTA_MATRIX_PREPARE_SPEC_C] = p->C,
      [DELTA_MATRIX_PREPARE_SPEC_DK] = p->Dk,
      [DELTA_MATRIX_PREPARE_SPEC_N] = a->n,
      [DELTA_MATRIX_PREPARE_SPEC_SLAB] = p->slab,
      [DELTA_MATRIX_PREPARE_SPEC_UNIT] = unit_of(pitch, r->qkv.stride),
      [DELTA_MATRIX_PREPARE_SPEC_EDGES] = pitch != p->Dk || p->Dk % p->slab != 0};
  struct binding bindings[DELTA_MATRIX_PREPARE_BINDINGS];
  bind_prepare(r, prepared, bindings);
  const struct delta_matrix_prepare_args args = prepare_args(r);
  enum kernel_id id = kernel_variant(FAMILY_delta_matrix_prepare, r->qkv.dtype);
  vulkan_dispatch(c, id, spec, bindings, &args, (struct grid){a->Hv, chunks, 1},
                  2ull * r->qkv.rows * a->Hv * p->C * ((a->n + 1) * a->Dk + a->n * p->C / 6));
}

static void hh_prepare(struct recorder *c, const struct delta_rule *r, const struct plan_delta_matrix *p,
                       struct binding prepared, uint32_t chunks) {
  const struct delta_args *a = &r->a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t pitch = key_pitch(r->qkv.dtype, a->Dk);
  const uint32_t spec[HH_MATRIX_PREPARE_SPECS] = {[HH_MATRIX_PREPARE_SPEC_LANES] = p->prepare_lanes,
                                                  [HH_MATRIX_PREPARE_SPEC_SUBGROUP] = plan->matrix_lanes,
                                                  [HH_MATRIX_PREPARE_SPEC_TILE_M] = plan->matrix_m,
                                                  [HH_MATRIX_PREPARE_SPEC_TILE_N] = plan->matrix_n,
                                                  [HH_MATRIX_PREPARE_SPEC_TILE_K] = plan->matrix_k,
                                                  [HH_MATRIX_PREPARE_SPEC_C] = p->C,
                                                  [HH_MATRIX_PREPARE_SPEC_DK] = p->Dk,
                                                  [HH_MATRIX_PREPARE_SPEC_R] = p->r,
                                                  [HH_MATRIX_PREPARE_SPEC_D] = p->block,
                                                  [HH_MATRIX_PREPARE_SPEC_SLAB] = p->slab,
                                                  [HH_MATRIX_PREPARE_SPEC_UNIT] = unit_of(pitch, r->qkv.stride),
                                                  [HH_MATRIX_PREPARE_SPEC_NONNEG] = a->nonneg};
  struct binding bindings[HH_MATRIX_PREPARE_BINDINGS];
  bind_prepare(r, prepared, bindings);
  bindings[HH_MATRIX_PREPARE_MASK] = vulkan_bind(r->mask, r->qkv);
  const struct delta_matrix_prepare_args args = prepare_args(r);
  enum kernel_id id = kernel_variant(FAMILY_hh_matrix_prepare, r->qkv.dtype);
  vulkan_dispatch(c, id, spec, bindings, &args, (struct grid){a->Hv, chunks, 1},
                  2ull * r->qkv.rows * a->Hv * tokens_of(p, a) * (2 * a->Dk + p->C * (p->r + 1) / 2));
}

static void scan(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *p,
                 struct binding prepared, struct binding maps, struct binding reach) {
  const struct delta_args *a = &d->rule.a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t columns = columns_of(plan, p);
  const bool segments = p->segments > 1;
  const uint32_t pitch = key_pitch(d->rule.qkv.dtype, a->Dk);
  const uint32_t edges = (pitch != p->Dk ? DELTA_MATRIX_EDGE_KEYS : 0) | (a->Dk != p->Dk ? DELTA_MATRIX_EDGE_ROWS : 0) |
                         (a->Dv % columns ? DELTA_MATRIX_EDGE_COLUMNS : 0);
  const uint32_t spec[DELTA_MATRIX_SCAN_SPECS] = {
      [DELTA_MATRIX_SCAN_SPEC_LANES] = (p->computers + p->stagers) * plan->matrix_lanes,
      [DELTA_MATRIX_SCAN_SPEC_SUBGROUP] = plan->matrix_lanes,
      [DELTA_MATRIX_SCAN_SPEC_TILE_M] = plan->matrix_m,
      [DELTA_MATRIX_SCAN_SPEC_TILE_N] = plan->matrix_n,
      [DELTA_MATRIX_SCAN_SPEC_TILE_K] = plan->matrix_k,
      [DELTA_MATRIX_SCAN_SPEC_C] = p->C,
      [DELTA_MATRIX_SCAN_SPEC_DK] = p->Dk,
      [DELTA_MATRIX_SCAN_SPEC_N] = a->n,
      [DELTA_MATRIX_SCAN_SPEC_COMPUTERS] = p->computers,
      [DELTA_MATRIX_SCAN_SPEC_TILES] = p->tiles,
      [DELTA_MATRIX_SCAN_SPEC_STAGERS] = p->stagers,
      [DELTA_MATRIX_SCAN_SPEC_UNIT_K] = unit_of(pitch, d->rule.qkv.stride),
      [DELTA_MATRIX_SCAN_SPEC_UNIT_V] = unit_of((1 + a->n) * a->H * pitch | a->Dv, d->rule.qkv.stride),
      [DELTA_MATRIX_SCAN_SPEC_UNIT_O] = unit_of(a->Dv, d->rule.o.stride),
      [DELTA_MATRIX_SCAN_SPEC_EDGES] = edges,
      [DELTA_MATRIX_SCAN_SPEC_LOCKSTEP] = p->lockstep,
      [DELTA_MATRIX_SCAN_SPEC_MODE] = segments ? DELTA_MATRIX_SEGMENTS : DELTA_MATRIX_WHOLE,
      [DELTA_MATRIX_SCAN_SPEC_R] = p->r,
      [DELTA_MATRIX_SCAN_SPEC_D] = p->block,
      [DELTA_MATRIX_SCAN_SPEC_AHEAD] = p->ahead};
  const struct binding qkv = bind_words(d->rule.qkv), o = vulkan_bind(d->rule.o, d->rule.o);
  const struct binding bindings[DELTA_MATRIX_SCAN_BINDINGS] = {
      [DELTA_MATRIX_SCAN_O] = o,
      [DELTA_MATRIX_SCAN_QKV] = qkv,
      [DELTA_MATRIX_SCAN_PREPARED] = prepared,
      [DELTA_MATRIX_SCAN_STATE] = vulkan_bind(d->rule.state, d->rule.o),
      [DELTA_MATRIX_SCAN_SEQUENCES] = vulkan_bind(d->rule.sequences, d->rule.qkv),
      [DELTA_MATRIX_SCAN_MAPS] = maps,
      [DELTA_MATRIX_SCAN_REACH] = reach};
  const struct delta_matrix_scan_args args = {.H = a->H,
                                              .Hv = a->Hv,
                                              .share = delta_share(a),
                                              .Dk = a->Dk,
                                              .pitch = pitch,
                                              .Dv = a->Dv,
                                              .o_stride = d->rule.o.stride,
                                              .qkv_stride = d->rule.qkv.stride,
                                              .state_stride = d->rule.state.stride,
                                              .segments = p->segments};
  enum kernel_id id =
      kernel_variant(p->conversions ? FAMILY_delta_matrix_scan : FAMILY_delta_matrix_scan_khr, d->rule.qkv.dtype);
  // With segments, scan also computes the map's columns, one per element of the key.
  const uint32_t across = divide_up(a->Dv, columns) + (segments ? divide_up(p->Dk, columns) : 0);
  const uint64_t products = (2 * a->n + 1) * a->Dk + (a->n + 1) * p->r * p->C / 2;
  vulkan_dispatch(c, id, spec, bindings, &args,
                  (struct grid){across, a->Hv, (uint64_t)d->rule.sequences.rows * p->segments},
                  2ull * d->rule.qkv.rows * a->Hv * (segments ? a->Dv + a->Dk : a->Dv) * products);
}

static void join(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *p,
                 struct binding maps) {
  const struct delta_args *a = &d->rule.a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t DVP = padded_values(plan, p, a);
  const uint32_t spec[DELTA_MATRIX_JOIN_SPECS] = {[DELTA_MATRIX_JOIN_SPEC_LANES] =
                                                      p->Dk / plan->matrix_m * plan->matrix_lanes,
                                                  [DELTA_MATRIX_JOIN_SPEC_SUBGROUP] = plan->matrix_lanes,
                                                  [DELTA_MATRIX_JOIN_SPEC_TILE_M] = plan->matrix_m,
                                                  [DELTA_MATRIX_JOIN_SPEC_TILE_N] = plan->matrix_n,
                                                  [DELTA_MATRIX_JOIN_SPEC_TILE_K] = plan->matrix_k,
                                                  [DELTA_MATRIX_JOIN_SPEC_DK] = p->Dk,
                                                  [DELTA_MATRIX_JOIN_SPEC_TILES] = p->join_tiles};
  const struct binding bindings[DELTA_MATRIX_JOIN_BINDINGS] = {
      [DELTA_MATRIX_JOIN_MAPS] = maps,
      [DELTA_MATRIX_JOIN_STATE] = vulkan_bind(d->rule.state, d->rule.o),
      [DELTA_MATRIX_JOIN_SEQUENCES] = vulkan_bind(d->rule.sequences, d->rule.qkv)};
  const struct delta_matrix_join_args args = {.Hv = a->Hv,
                                              .Dk = a->Dk,
                                              .Dv = a->Dv,
                                              .DVP = DVP,
                                              .state_stride = d->rule.state.stride,
                                              .segments = p->segments,
                                              .tokens = tokens_of(p, a)};
  vulkan_dispatch(c, KERNEL_delta_matrix_join, spec, bindings, &args,
                  (struct grid){DVP / (plan->matrix_n * p->join_tiles), a->Hv, d->rule.sequences.rows},
                  6ull * d->rule.sequences.rows * a->Hv * p->segments * p->Dk * p->Dk * DVP);
}

static void add_reach(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *p,
                      struct binding maps, struct binding reach) {
  enum { TOKENS = 256 }; // about as many per workgroup, since each first loads a head's state
  const struct delta_args *a = &d->rule.a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t DVP = padded_values(plan, p, a), B = d->rule.sequences.rows;
  const uint32_t spec[DELTA_MATRIX_REACH_SPECS] = {[DELTA_MATRIX_REACH_SPEC_LANES] = p->computers * plan->matrix_lanes,
                                                   [DELTA_MATRIX_REACH_SPEC_SUBGROUP] = plan->matrix_lanes,
                                                   [DELTA_MATRIX_REACH_SPEC_TILE_M] = plan->matrix_m,
                                                   [DELTA_MATRIX_REACH_SPEC_TILE_N] = plan->matrix_n,
                                                   [DELTA_MATRIX_REACH_SPEC_TILE_K] = plan->matrix_k,
                                                   [DELTA_MATRIX_REACH_SPEC_DK] = p->Dk,
                                                   [DELTA_MATRIX_REACH_SPEC_COMPUTERS] = p->computers,
                                                   [DELTA_MATRIX_REACH_SPEC_TILES] = p->tiles,
                                                   [DELTA_MATRIX_REACH_SPEC_UNIT_O] = unit_of(a->Dv, d->rule.o.stride)};
  const struct binding o = vulkan_bind(d->rule.o, d->rule.o);
  const struct binding bindings[DELTA_MATRIX_REACH_BINDINGS] = {[DELTA_MATRIX_REACH_O] = o,
                                                                [DELTA_MATRIX_REACH_REACH] = reach,
                                                                [DELTA_MATRIX_REACH_MAPS] = maps,
                                                                [DELTA_MATRIX_REACH_SEQUENCES] =
                                                                    vulkan_bind(d->rule.sequences, d->rule.o)};
  const struct delta_matrix_reach_args args = {.Hv = a->Hv,
                                               .Dv = a->Dv,
                                               .DVP = DVP,
                                               .o_stride = d->rule.o.stride,
                                               .segments = p->segments,
                                               .tokens = tokens_of(p, a)};
  const uint32_t parts = divide_up(d->rule.qkv.rows, B * p->segments * TOKENS), least = 2;
  enum kernel_id id = kernel_variant(FAMILY_delta_matrix_reach, d->rule.o.dtype);
  vulkan_dispatch(c, id, spec, bindings, &args,
                  (struct grid){(uint64_t)(parts < least ? least : parts) * (DVP / columns_of(plan, p)), a->Hv,
                                (uint64_t)B * p->segments},
                  2ull * d->rule.qkv.rows * a->Hv * p->Dk * a->Dv);
}

void vulkan_delta_matrix(struct recorder *c, const struct delta_call *d, const struct plan_delta_matrix *planned) {
  assert(d->rule.qkv.dtype == d->rule.o.dtype);
  // The tensors may have more rows than the tokens for which scratch was measured. Then the call falls back to one
  // segment.
  struct plan_delta_matrix p = *planned;
  const struct device *device = vulkan_device(c->backend);
  const uint32_t B = d->rule.sequences.rows;
  const uint64_t scratch = tensor_bytes(&d->scratch);
  if (vulkan_delta_matrix_bytes(device, &p, d->rule.qkv.rows, B, &d->rule.a) > scratch) p.segments = 1;
  const uint64_t map = maps_bytes(&device->plan, &p, B, &d->rule.a),
                 reaches = reach_bytes(&p, d->rule.qkv.rows, &d->rule.a);
  const uint64_t before = map + reaches, record = record_bytes(&p, &d->rule.a);
  const uint64_t chunks = min64(most_chunks(&p, d->rule.qkv.rows, B, &d->rule.a), (scratch - before) / record);
  struct binding maps = {.buffer = d->scratch.buffer, .offset = d->scratch.offset, .bytes = map};
  struct binding reach = {.buffer = maps.buffer, .offset = maps.offset + map, .bytes = reaches};
  struct binding prepared = {.buffer = maps.buffer, .offset = maps.offset + before, .bytes = chunks * record};
  (p.r > 1 ? hh_prepare : vulkan_delta_prepare)(c, &d->rule, &p, prepared, (uint32_t)chunks);
  if (p.segments == 1) maps = reach = vulkan_bind(d->rule.state, d->rule.o); // unused by the kernel; any buffer will do
  scan(c, d, &p, prepared, maps, reach);
  if (p.segments == 1) return;
  join(c, d, &p, maps);
  add_reach(c, d, &p, maps, reach);
}
