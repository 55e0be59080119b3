// ops_vulkan_hh: the Head-in-Head delta rule on Vulkan: recurrent in one kernel, chunkwise in two, on
// cooperative matrices those of the delta rule (ops_vulkan_delta_matrix.c).
#include "ops_vulkan.h"

#include "hh_chunk_prepare.h"
#include "hh_chunk_scan.h"
#include "hh_rule.h"

static_assert(HH_GIVEN == HH_NONNEG_GIVEN && HH_SOFTPLUS == HH_NONNEG_SOFTPLUS && HH_SIGMOID == HH_NONNEG_SIGMOID &&
                  HH_EXP == HH_NONNEG_EXP,
              "shaders and host number what makes masks non-negative alike");

struct hh_call {
  struct tensor o, qkv, beta, g, mask, state, sequences, scratch;
  struct hh_args a;
  uint32_t d, aligned; // rows of a block
};

// ---------------------------------------------------------------- recurrent

// How blocks of rows are dealt to invocations: blocks are cut into `sub` pieces, an invocation keeps `per` of them.
struct deal {
  uint32_t columns, sub, per;
};

static uint32_t split_of(const struct deal *p, uint32_t r) { return r * p->sub / p->per; }

// About plan->rule_rows rows an invocation, no more invocations than the plan allows a workgroup. Either sub or per
// is 1.
static struct deal deal_rows(const struct plan_rules *plan, const struct hh_args *a) {
  uint32_t d = a->Dk / a->r, most = max32(plan->device->lanes, 128);
  struct deal p = {plan->rule_columns, divide_up(d, plan->rule_rows), 1};
  while (p.columns > 8 && p.columns / 2 >= a->Dv) p.columns /= 2;
  for (uint32_t per = 2; per <= a->r && per * d <= plan->rule_rows; per++)
    if (a->r % per == 0) p.per = per;
  while (p.sub > 1 && split_of(&p, a->r) * p.columns > most) p.sub--;
  while (p.per < a->r && split_of(&p, a->r) * p.columns > most) {
    do p.per++;
    while (a->r % p.per);
  }
  return p;
}

static void recurrent(struct recorder *c, const struct hh_call *h) {
  enum { STAGED = 2048 }; // numbers of q, k and masks in shared memory, 8 KiB, when a token needs no more
  const struct hh_args *a = &h->a;
  struct deal p = deal_rows(vulkan_rules(c->backend), a);
  uint32_t token = a->r * (2 * divide_up(divide_up(h->d, p.sub), 4) * 4 * p.sub + a->r + divide_up(a->r, 4) * 4);
  const uint32_t spec[HH_RULE_SPECS] = {[HH_RULE_SPEC_LANES] = p.columns * split_of(&p, a->r),
                                        [HH_RULE_SPEC_D] = h->d,
                                        [HH_RULE_SPEC_R] = a->r,
                                        [HH_RULE_SPEC_COLUMNS] = p.columns,
                                        [HH_RULE_SPEC_SUB] = p.sub,
                                        [HH_RULE_SPEC_PER] = p.per,
                                        [HH_RULE_SPEC_BLOCK] = max32(min32(STAGED / token, 16), 1),
                                        [HH_RULE_SPEC_ALIGNED] = h->aligned,
                                        [HH_RULE_SPEC_NONNEG] = a->nonneg};
  const struct binding qkv = vulkan_bind(h->qkv, h->qkv);
  const struct binding bindings[HH_RULE_BINDINGS] = {[HH_RULE_O] = vulkan_bind(h->o, h->o),
                                                     [HH_RULE_QKV] = qkv,
                                                     [HH_RULE_QKV4] = qkv,
                                                     [HH_RULE_BETA] = vulkan_bind(h->beta, h->qkv),
                                                     [HH_RULE_G] = vulkan_bind(h->g, h->qkv),
                                                     [HH_RULE_MASK] = vulkan_bind(h->mask, h->qkv),
                                                     [HH_RULE_STATE] = vulkan_bind(h->state, h->o),
                                                     [HH_RULE_SEQUENCES] = vulkan_bind(h->sequences, h->qkv)};
  const struct hh_rule_args args = {.H = a->H,
                                    .Hv = a->Hv,
                                    .Dv = a->Dv,
                                    .gated = a->gated,
                                    .scale = a->scale,
                                    .o_stride = h->o.stride,
                                    .qkv_stride = h->qkv.stride,
                                    .beta_stride = h->beta.stride,
                                    .g_stride = h->g.stride,
                                    .mask_stride = a->fixed_mask ? 0 : h->mask.stride,
                                    .state_stride = h->state.stride};
  uint64_t operations = 2ull * h->qkv.rows * a->Hv * a->Dv * (3 * a->Dk + a->r * a->r);
  vulkan_dispatch(c, KERNEL_hh_rule, spec, bindings, &args, divide_up(a->Dv, p.columns), a->Hv, h->sequences.rows,
                  operations);
}

// ---------------------------------------------------------------- chunkwise

// Shapes of both chunk kernels.
struct chunk_shape {
  uint32_t C, chunks; // chunks: the most that T tokens of B sequences can make
  uint32_t lanes, columns;
};

static uint64_t prepare_shared_bytes(uint32_t C, uint32_t r) {
  return 4ull * (C * r * (C * r + 1) + 2 * C * r * r + 4 * C);
}

static uint64_t scan_shared_bytes(const struct chunk_shape *s, const struct hh_args *a) {
  uint64_t rows = (uint64_t)a->r * divide_up(a->Dk / a->r, 4) * 4;
  return 4 * (rows + 2 * s->C * a->r + s->C) * s->columns;
}

// False when the chunk kernels cannot do it: a state too tall for shared memory.
static bool chunk_shape(const struct plan_rules *plan, uint32_t T, uint32_t B, const struct hh_args *a,
                        struct chunk_shape *s) {
  enum { UNKNOWNS = 64 }; // C * r
  const uint32_t shared = plan->device->shared_bytes;
  *s = (struct chunk_shape){.C = max32(UNKNOWNS / a->r / 4 * 4, 4), .lanes = plan->chunk_lanes};
  while (s->C > 4 && prepare_shared_bytes(s->C, a->r) > shared) s->C -= 4;
  s->chunks = divide_up(T, s->C) + B;
  s->columns = min32(plan->chunk_columns / 4 * 4, divide_up(a->Dv, 4) * 4);
  while (s->columns > 4 && scan_shared_bytes(s, a) > shared) s->columns -= 4;
  return scan_shared_bytes(s, a) <= shared && prepare_shared_bytes(s->C, a->r) <= shared;
}

// What prepare hands to scan for one chunk, all heads.
static uint64_t record_bytes(const struct chunk_shape *s, const struct hh_args *a) {
  return 4ull * a->Hv * HH_CHUNK_RECORD(s->C, a->r);
}

static uint64_t chunk_scratch_bytes(const struct chunk_shape *s, const struct hh_args *a) {
  return s->chunks * record_bytes(s, a);
}

// Whether a descriptor holds the records is not asked here: who measures may call with fewer tokens.
static bool wants_chunks(const struct plan_rules *plan, uint32_t T, uint32_t B, const struct hh_args *a,
                         struct chunk_shape *s) {
  return vulkan_chunked(plan, a->form, T, B, a->longest) && chunk_shape(plan, T, B, a, s);
}

// The delta rule that has the same chunks.
static struct delta_args delta_of(const struct hh_args *a) {
  return (struct delta_args){.H = a->H,
                             .Hv = a->Hv,
                             .Dk = a->Dk,
                             .Dv = a->Dv,
                             .n = 1,
                             .scale = a->scale,
                             .gated = a->gated,
                             .form = a->form,
                             .matrices = a->matrices,
                             .longest = a->longest};
}

static bool plan_matrices(const struct backend *b, uint32_t T, uint32_t B, const struct hh_args *a,
                          struct plan_delta_matrix *p) {
  const struct delta_args delta = delta_of(a);
  return a->r > 1 && kernel_built(KERNEL_hh_matrix_prepare_f16) && vulkan_delta_matrix_plan(b, T, B, &delta, a->r, p);
}

enum dtype vulkan_hh_dtype(const struct recorder *c, uint32_t T, uint32_t B, struct tensor scratch, struct hh_args a) {
  struct plan_delta_matrix p;
  bool matrices = plan_matrices(c->backend, T, B, &a, &p) && tensor_bytes(&scratch) <= c->backend->max_binding_bytes;
  return matrices ? DTYPE_F16 : DTYPE_F32;
}

uint64_t vulkan_hh_scratch_bytes(const struct backend *b, uint32_t T, uint32_t B, struct hh_args a) {
  struct chunk_shape s;
  struct plan_delta_matrix p;
  const struct delta_args delta = delta_of(&a);
  if (plan_matrices(b, T, B, &a, &p)) return vulkan_delta_matrix_bytes(vulkan_device(b), &p, T, B, &delta);
  return wants_chunks(vulkan_rules(b), T, B, &a, &s) ? chunk_scratch_bytes(&s, &a) : 0;
}

static void chunk_prepare(struct recorder *c, const struct hh_call *h, const struct chunk_shape *s,
                          struct binding prepared) {
  const struct hh_args *a = &h->a;
  const uint32_t spec[HH_CHUNK_PREPARE_SPECS] = {[HH_CHUNK_PREPARE_SPEC_LANES] = s->lanes,
                                                 [HH_CHUNK_PREPARE_SPEC_C] = s->C,
                                                 [HH_CHUNK_PREPARE_SPEC_D] = h->d,
                                                 [HH_CHUNK_PREPARE_SPEC_R] = a->r,
                                                 [HH_CHUNK_PREPARE_SPEC_ALIGNED] = h->aligned,
                                                 [HH_CHUNK_PREPARE_SPEC_NONNEG] = a->nonneg};
  const struct binding qkv = vulkan_bind(h->qkv, h->qkv);
  const struct binding bindings[HH_CHUNK_PREPARE_BINDINGS] = {[HH_CHUNK_PREPARE_PREPARED] = prepared,
                                                              [HH_CHUNK_PREPARE_QKV] = qkv,
                                                              [HH_CHUNK_PREPARE_QKV4] = qkv,
                                                              [HH_CHUNK_PREPARE_BETA] = vulkan_bind(h->beta, h->qkv),
                                                              [HH_CHUNK_PREPARE_G] = vulkan_bind(h->g, h->qkv),
                                                              [HH_CHUNK_PREPARE_MASK] = vulkan_bind(h->mask, h->qkv),
                                                              [HH_CHUNK_PREPARE_SEQUENCES] =
                                                                  vulkan_bind(h->sequences, h->qkv)};
  const struct hh_chunk_prepare_args args = {.B = h->sequences.rows,
                                             .H = a->H,
                                             .Hv = a->Hv,
                                             .gated = a->gated,
                                             .scale = a->scale,
                                             .qkv_stride = h->qkv.stride,
                                             .beta_stride = h->beta.stride,
                                             .g_stride = h->g.stride,
                                             .mask_stride = a->fixed_mask ? 0 : h->mask.stride};
  vulkan_dispatch(c, KERNEL_hh_chunk_prepare, spec, bindings, &args, s->chunks, a->Hv, 1,
                  2ull * h->qkv.rows * a->Hv * s->C * (a->Dk + s->C * a->r * a->r * a->r / 6));
}

static void chunk_scan(struct recorder *c, const struct hh_call *h, const struct chunk_shape *s,
                       struct binding prepared) {
  const struct hh_args *a = &h->a;
  const uint32_t spec[HH_CHUNK_SCAN_SPECS] = {
      [HH_CHUNK_SCAN_SPEC_LANES] = s->lanes,
      [HH_CHUNK_SCAN_SPEC_C] = s->C,
      [HH_CHUNK_SCAN_SPEC_D] = h->d,
      [HH_CHUNK_SCAN_SPEC_R] = a->r,
      [HH_CHUNK_SCAN_SPEC_COLUMNS] = s->columns,
      [HH_CHUNK_SCAN_SPEC_ALIGNED] = h->aligned && a->Dv % 4 == 0 && h->o.stride % 4 == 0 && h->state.stride % 4 == 0};
  const struct binding qkv = vulkan_bind(h->qkv, h->qkv), o = vulkan_bind(h->o, h->o);
  const struct binding state = vulkan_bind(h->state, h->o);
  const struct binding bindings[HH_CHUNK_SCAN_BINDINGS] = {[HH_CHUNK_SCAN_O] = o,
                                                           [HH_CHUNK_SCAN_O4] = o,
                                                           [HH_CHUNK_SCAN_QKV] = qkv,
                                                           [HH_CHUNK_SCAN_QKV4] = qkv,
                                                           [HH_CHUNK_SCAN_PREPARED] = prepared,
                                                           [HH_CHUNK_SCAN_PREPARED4] = prepared,
                                                           [HH_CHUNK_SCAN_STATE] = state,
                                                           [HH_CHUNK_SCAN_STATE4] = state,
                                                           [HH_CHUNK_SCAN_SEQUENCES] =
                                                               vulkan_bind(h->sequences, h->qkv)};
  const struct hh_chunk_scan_args args = {.H = a->H,
                                          .Hv = a->Hv,
                                          .Dv = a->Dv,
                                          .scale = a->scale,
                                          .o_stride = h->o.stride,
                                          .qkv_stride = h->qkv.stride,
                                          .state_stride = h->state.stride};
  vulkan_dispatch(c, KERNEL_hh_chunk_scan, spec, bindings, &args, divide_up(a->Dv, s->columns), a->Hv,
                  h->sequences.rows, 2ull * h->qkv.rows * a->Hv * a->Dv * (3 * a->Dk + s->C * a->r * a->r / 2));
}

void vulkan_hh_rule(struct recorder *c, struct tensor o, struct tensor qkv, struct tensor beta, struct tensor g,
                    struct tensor mask, struct tensor state, struct tensor sequences, struct tensor scratch,
                    struct hh_args a) {
  uint32_t d = a.Dk / a.r;
  struct hh_call h = {o, qkv, beta, g, mask, state, sequences, scratch, a, d, d % 4 == 0 && qkv.stride % 4 == 0};
  struct chunk_shape s;
  struct plan_delta_matrix p;
  assert(a.r <= HH_MOST && a.Dk % a.r == 0);
  if (plan_matrices(c->backend, qkv.rows, sequences.rows, &a, &p) &&
      tensor_bytes(&scratch) <= c->backend->max_binding_bytes) {
    const struct delta_call call = {.o = o,
                                    .qkv = qkv,
                                    .beta = beta,
                                    .g = g,
                                    .state = state,
                                    .sequences = sequences,
                                    .scratch = scratch,
                                    .a = delta_of(&a),
                                    .mask = mask,
                                    .fixed_mask = a.fixed_mask,
                                    .nonneg = a.nonneg};
    vulkan_delta_matrix(c, &call, &p);
    return;
  }
  assert(qkv.dtype == DTYPE_F32 && o.dtype == DTYPE_F32);
  // The tensors may have more rows than the call has tokens, for which scratch was measured.
  bool chunks = wants_chunks(vulkan_rules(c->backend), qkv.rows, sequences.rows, &a, &s);
  chunks = chunks && tensor_bytes(&scratch) <= c->backend->max_binding_bytes;
  if (chunks) s.chunks = (uint32_t)(min64(chunk_scratch_bytes(&s, &a), tensor_bytes(&scratch)) / record_bytes(&s, &a));
  if (!chunks || !s.chunks) {
    recurrent(c, &h);
    return;
  }
  struct binding prepared = vulkan_bind(scratch, scratch);
  prepared.bytes = chunk_scratch_bytes(&s, &a);
  chunk_prepare(c, &h, &s, prepared);
  chunk_scan(c, &h, &s, prepared);
}
