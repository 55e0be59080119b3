// vulkan_hh: Head-in-Head (the delta rule with r > 1 blocks) by chunks without cooperative matrices.
#include "vulkan_backend.h"

#include "hh_chunk_prepare.h"
#include "hh_chunk_scan.h"

static uint64_t prepare_shared_bytes(uint32_t C, uint32_t r) {
  return 4ull * (C * r * (C * r + 1) + 2 * C * r * r + 4 * C);
}

static uint64_t scan_shared_bytes(const struct hh_chunks *s, const struct delta_args *a) {
  uint64_t rows = (uint64_t)a->r * divide_up(a->Dk / a->r, 4) * 4;
  return 4 * (rows + 2 * s->C * a->r + s->C) * s->columns;
}

bool vulkan_hh_plan(const struct plan_rules *plan, uint32_t T, uint32_t B, const struct delta_args *a,
                    struct hh_chunks *s) {
  enum { UNKNOWNS = 64 }; // C * r
  const uint32_t shared = plan->device->shared_bytes;
  *s = (struct hh_chunks){.C = max32(UNKNOWNS / a->r / 4 * 4, 4), .lanes = plan->chunk_lanes};
  while (s->C > 4 && prepare_shared_bytes(s->C, a->r) > shared) s->C -= 4;
  s->chunks = divide_up(T, s->C) + B;
  s->columns = min32(plan->chunk_columns / 4 * 4, divide_up(a->Dv, 4) * 4);
  while (s->columns > 4 && scan_shared_bytes(s, a) > shared) s->columns -= 4;
  return scan_shared_bytes(s, a) <= shared && prepare_shared_bytes(s->C, a->r) <= shared;
}

// Bytes that prepare passes to scan for all chunks and heads.
uint64_t vulkan_hh_bytes(const struct hh_chunks *s, const struct delta_args *a) {
  return s->chunks * 4ull * a->Hv * HH_CHUNK_RECORD(s->C, a->r);
}

static void chunk_prepare(struct recorder *c, const struct delta_call *d, const struct hh_chunks *s,
                          struct binding prepared) {
  const struct delta_args *a = &d->a;
  const uint32_t spec[HH_CHUNK_PREPARE_SPECS] = {
      [HH_CHUNK_PREPARE_SPEC_LANES] = s->lanes,     [HH_CHUNK_PREPARE_SPEC_C] = s->C,
      [HH_CHUNK_PREPARE_SPEC_D] = a->Dk / a->r,     [HH_CHUNK_PREPARE_SPEC_R] = a->r,
      [HH_CHUNK_PREPARE_SPEC_ALIGNED] = d->aligned, [HH_CHUNK_PREPARE_SPEC_NONNEG] = a->nonneg};
  const struct binding qkv = vulkan_bind(d->qkv, d->qkv);
  const struct binding bindings[HH_CHUNK_PREPARE_BINDINGS] = {[HH_CHUNK_PREPARE_PREPARED] = prepared,
                                                              [HH_CHUNK_PREPARE_QKV] = qkv,
                                                              [HH_CHUNK_PREPARE_BETA] = vulkan_bind(d->beta, d->qkv),
                                                              [HH_CHUNK_PREPARE_G] = vulkan_bind(d->g, d->qkv),
                                                              [HH_CHUNK_PREPARE_MASK] = vulkan_bind(d->mask, d->qkv),
                                                              [HH_CHUNK_PREPARE_SEQUENCES] =
                                                                  vulkan_bind(d->sequences, d->qkv)};
  const struct hh_chunk_prepare_args args = {.B = d->sequences.rows,
                                             .H = a->H,
                                             .Hv = a->Hv,
                                             .gated = a->gated,
                                             .scale = a->scale,
                                             .qkv_stride = d->qkv.stride,
                                             .beta_stride = d->beta.stride,
                                             .g_stride = d->g.stride,
                                             .mask_stride = a->fixed_mask ? 0 : d->mask.stride};
  vulkan_dispatch(c, KERNEL_hh_chunk_prepare, spec, bindings, &args, (struct grid){s->chunks, a->Hv, 1},
                  2ull * d->qkv.rows * a->Hv * s->C * (a->Dk + s->C * a->r * a->r * a->r / 6));
}

static void chunk_scan(struct recorder *c, const struct delta_call *d, const struct hh_chunks *s,
                       struct binding prepared) {
  const struct delta_args *a = &d->a;
  const uint32_t spec[HH_CHUNK_SCAN_SPECS] = {
      [HH_CHUNK_SCAN_SPEC_LANES] = s->lanes,
      [HH_CHUNK_SCAN_SPEC_C] = s->C,
      [HH_CHUNK_SCAN_SPEC_D] = a->Dk / a->r,
      [HH_CHUNK_SCAN_SPEC_R] = a->r,
      [HH_CHUNK_SCAN_SPEC_COLUMNS] = s->columns,
      [HH_CHUNK_SCAN_SPEC_ALIGNED] = d->aligned && a->Dv % 4 == 0 && d->o.stride % 4 == 0 && d->state.stride % 4 == 0};
  const struct binding qkv = vulkan_bind(d->qkv, d->qkv), o = vulkan_bind(d->o, d->o);
  const struct binding state = vulkan_bind(d->state, d->o);
  const struct binding bindings[HH_CHUNK_SCAN_BINDINGS] = {[HH_CHUNK_SCAN_O] = o,
                                                           [HH_CHUNK_SCAN_QKV] = qkv,
                                                           [HH_CHUNK_SCAN_PREPARED] = prepared,
                                                           [HH_CHUNK_SCAN_STATE] = state,
                                                           [HH_CHUNK_SCAN_SEQUENCES] =
                                                               vulkan_bind(d->sequences, d->qkv)};
  const struct hh_chunk_scan_args args = {.H = a->H,
                                          .Hv = a->Hv,
                                          .Dv = a->Dv,
                                          .scale = a->scale,
                                          .o_stride = d->o.stride,
                                          .qkv_stride = d->qkv.stride,
                                          .state_stride = d->state.stride};
  vulkan_dispatch(c, KERNEL_hh_chunk_scan, spec, bindings, &args,
                  (struct grid){divide_up(a->Dv, s->columns), a->Hv, d->sequences.rows},
                  2ull * d->qkv.rows * a->Hv * a->Dv * (3 * a->Dk + s->C * a->r * a->r / 2));
}

void vulkan_hh_chunks(struct recorder *c, const struct delta_call *d, const struct hh_chunks *s) {
  struct binding prepared = vulkan_bind(d->scratch, d->scratch);
  prepared.bytes = vulkan_hh_bytes(s, &d->a);
  chunk_prepare(c, d, s, prepared);
  chunk_scan(c, d, s, prepared);
}
