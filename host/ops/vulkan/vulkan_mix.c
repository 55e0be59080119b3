// vulkan_mix: convolution and the delta rule by chunks. A recording is replayed with other sequences: the host knows
// how many rows a call has and how long its longest sequence can be, but not which rows belong to which sequence. So
// grids have the largest possible size, and workgroups without work end at once.
#include "vulkan_backend.h"

#include "conv_inputs.h"
#include "delta_chunk_prepare.h"
#include "delta_chunk_scan.h"
#include "delta_inputs.h"
#include "short_conv.h"

static_assert(NORM_NONE == KEY_NORM_NONE && NORM_L2 == KEY_NORM_L2 && NORM_SUM == KEY_NORM_SUM &&
                  NORM_L1 == KEY_NORM_L1,
              "shaders and host number the norms alike");

void vulkan_conv(struct recorder *c, const struct conv *v) {
  const struct tensor y = v->y, x = v->x;
  const struct conv_args a = v->a;
  // Tokens of one invocation. Each run reads W - 1 inputs again. Only the first run may read the history, which it also
  // replaces. Runs of 8 fill a GPU from some hundred tokens on.
  const uint32_t run = a.W > 9 ? a.W - 1 : 8;
  const uint32_t lanes = vulkan_plan(c)->block_lanes;
  const uint32_t spec[SHORT_CONV_SPECS] = {
      [SHORT_CONV_SPEC_LANES] = lanes, [SHORT_CONV_SPEC_W] = a.W, [SHORT_CONV_SPEC_RUN] = run};
  const struct binding bindings[SHORT_CONV_BINDINGS] = {[SHORT_CONV_Y] = vulkan_bind(y, y),
                                                        [SHORT_CONV_X] = vulkan_bind(x, y),
                                                        [SHORT_CONV_WEIGHT] = vulkan_bind(v->weight, x),
                                                        [SHORT_CONV_BIAS] = vulkan_bind(v->bias, x),
                                                        [SHORT_CONV_HISTORY] = vulkan_bind(a.W > 1 ? v->history : y, y),
                                                        [SHORT_CONV_SEQUENCES] = vulkan_bind(v->sequences, x)};
  const struct short_conv_args args = {.C = a.C,
                                       .silu_from = a.silu_from,
                                       .y_stride = y.stride,
                                       .x_stride = x.stride,
                                       .weight_stride = v->weight.stride,
                                       .history_stride = v->history.stride,
                                       .has_bias = v->bias.buffer != NULL,
                                       .keys = a.heads,
                                       .Dk = a.heads ? a.Dk : 1,
                                       .pitch = a.heads ? key_pitch(y.dtype, a.Dk) : 1};
  vulkan_dispatch(c, kernel_variant(FAMILY_short_conv, y.dtype), spec, bindings, &args,
                  (struct grid){divide_up(a.C, lanes), divide_up(vulkan_longest(c, x), run), v->sequences.rows},
                  2ull * x.rows * a.C * a.W);
}

bool vulkan_conv_inputs(struct recorder *c, const struct linear_conv *lc) {
  enum { LANES = 128, RUN = 4, MOST_TAPS = 9, MOST_GROUPS = 4 }; // runs of 8 and 16 were slower (H200)
  const struct plan *plan = vulkan_plan(c);
  const struct conv *conv = lc->conv;
  const struct conv_args *a = &conv->a;
  const struct delta_inputs *in = lc->inputs;
  const struct tensor y = in->y, x = conv->x;
  const uint32_t pitch = key_pitch(y.dtype, a->Dk), values = a->C - a->heads * a->Dk, four = 4 * plan->subgroup_width;
  if (!four || a->heads != in->a.heads || a->W > MOST_TAPS || pitch > MOST_GROUPS * four ||
      vulkan_device(c->backend)->caps.max_storage_buffers < CONV_INPUTS_BINDINGS)
    return false;
  const uint32_t run = max32(a->W - 1, RUN);
  const bool fours = values % 4 == 0 && y.stride % 4 == 0;
  const uint32_t lanes = max32(min32(LANES, plan->block_lanes), plan->subgroup_width);
  const uint32_t groups = divide_up(pitch, four), blocks = a->heads + divide_up(values, groups * four) + 1;
  const uint32_t spec[CONV_INPUTS_SPECS] = {
      [CONV_INPUTS_SPEC_LANES] = lanes,
      [CONV_INPUTS_SPEC_W] = a->W,
      [CONV_INPUTS_SPEC_RUN] = run,
      [CONV_INPUTS_SPEC_GROUPS] = groups,
      [CONV_INPUTS_SPEC_READ4] = a->Dk % 4 == 0 && values % 4 == 0 && x.stride % 4 == 0 && conv->weight.stride % 4 == 0,
      [CONV_INPUTS_SPEC_WRITE4] = pitch % 4 == 0 && fours,
      [CONV_INPUTS_SPEC_ACTIVATION] = in->a.activation,
      [CONV_INPUTS_SPEC_NORM] = in->a.norm};
  const struct binding to = vulkan_bind(y, y), from = vulkan_bind(x, x), by = vulkan_bind(conv->weight, x);
  const struct binding bindings[CONV_INPUTS_BINDINGS] = {[CONV_INPUTS_Y] = to,
                                                         [CONV_INPUTS_X] = from,
                                                         [CONV_INPUTS_WEIGHT] = by,
                                                         [CONV_INPUTS_BIAS] = vulkan_bind(conv->bias, x),
                                                         [CONV_INPUTS_HISTORY] =
                                                             vulkan_bind(a->W > 1 ? conv->history : y, y),
                                                         [CONV_INPUTS_SEQUENCES] = vulkan_bind(conv->sequences, x),
                                                         [CONV_INPUTS_BETA] = vulkan_bind(in->beta, y),
                                                         [CONV_INPUTS_G] = vulkan_bind(in->g, y),
                                                         [CONV_INPUTS_BA] = vulkan_bind(in->ba, x),
                                                         [CONV_INPUTS_A_LOG] = vulkan_bind(in->A_log, x),
                                                         [CONV_INPUTS_DT_BIAS] = vulkan_bind(in->dt_bias, x)};
  const struct conv_inputs_args args = {.C = a->C,
                                        .silu_from = a->silu_from,
                                        .keys = a->heads,
                                        .Dk = a->Dk,
                                        .pitch = pitch,
                                        .y_stride = y.stride,
                                        .x_stride = x.stride,
                                        .weight_stride = conv->weight.stride,
                                        .history_stride = conv->history.stride,
                                        .has_bias = conv->bias.buffer != NULL,
                                        .betas = in->a.betas,
                                        .decays = in->a.decays,
                                        .has_beta = in->a.has_beta,
                                        .gated = in->a.gated,
                                        .beta_scale = in->a.beta_scale,
                                        .beta_stride = in->beta.stride,
                                        .g_stride = in->g.stride,
                                        .ba_stride = in->ba.stride};
  vulkan_dispatch(c, kernel_variant(FAMILY_conv_inputs, y.dtype), spec, bindings, &args,
                  (struct grid){divide_up(blocks, lanes / plan->subgroup_width), divide_up(vulkan_longest(c, x), run),
                                conv->sequences.rows},
                  2ull * x.rows * a->C * a->W + 6ull * x.rows * a->heads * a->Dk);
  return true;
}

// ---------------------------------------------------------------- delta rule

void vulkan_delta_inputs(struct recorder *c, const struct delta_inputs *in) {
  const struct delta_input_args *a = &in->a;
  const struct tensor qk = in->y;
  const uint32_t lanes = vulkan_plan(c)->lanes, pitch = key_pitch(qk.dtype, a->Dk);
  const uint64_t numbers = (uint64_t)qk.rows * a->heads * pitch;
  const struct binding bindings[DELTA_INPUTS_BINDINGS] = {[DELTA_INPUTS_X] = vulkan_bind_some(in->x, qk, numbers),
                                                          [DELTA_INPUTS_QK] = vulkan_bind_some(qk, qk, numbers),
                                                          [DELTA_INPUTS_BETA] = vulkan_bind(in->beta, qk),
                                                          [DELTA_INPUTS_G] = vulkan_bind(in->g, qk),
                                                          [DELTA_INPUTS_BA] = vulkan_bind(in->ba, qk),
                                                          [DELTA_INPUTS_A_LOG] = vulkan_bind(in->A_log, qk),
                                                          [DELTA_INPUTS_DT_BIAS] = vulkan_bind(in->dt_bias, qk)};
  const struct delta_inputs_args args = {.heads = a->heads,
                                         .Dk = a->Dk,
                                         .pitch = pitch,
                                         .activation = a->activation,
                                         .norm = a->norm,
                                         .betas = a->betas,
                                         .decays = a->decays,
                                         .has_beta = a->has_beta,
                                         .gated = a->gated,
                                         .beta_scale = a->beta_scale,
                                         .x_stride = in->x.stride,
                                         .qk_stride = qk.stride,
                                         .beta_stride = in->beta.stride,
                                         .g_stride = in->g.stride,
                                         .ba_stride = in->ba.stride};
  vulkan_dispatch(c, kernel_variant(FAMILY_delta_inputs, qk.dtype), &lanes, bindings, &args,
                  (struct grid){qk.rows, vulkan_head_groups(c, a->heads + 1), 1}, 6ull * qk.rows * a->heads * a->Dk);
}

// Tiles of products that prepare computes: the lower triangle of A, and the part of P that the chunk's C / n tokens
// see.
static uint32_t prepare_jobs(const struct plan_delta *p, uint32_t n) {
  uint32_t blocks = p->C / p->sub, slope = blocks / n, rows = divide_up(p->C / n, p->sub);
  return blocks * (blocks + 1) / 2 + slope * (slope + 1) / 2 * n + (rows - slope) * blocks;
}

// False: the chunk kernels do not support it.
static bool plan_delta_chunks(const struct recorder *c, uint32_t T, uint32_t B, const struct delta_args *a,
                              struct delta_chunks *s) {
  if (!plan_chunk_sizes(vulkan_rules(c), a->Dk, a->Dv, a->n, a->Hv * B, &s->p)) return false;
  s->chunks = divide_up(T, s->p.C / a->n) + B;
  s->prepare_lanes = min32(divide_up(prepare_jobs(&s->p, a->n), 8) * 8, vulkan_plan(c)->most_lanes);
  return true;
}

// Bytes that prepare passes to scan for all chunks and heads.
static uint64_t chunk_bytes(const struct delta_chunks *s, const struct delta_args *a) {
  return s->chunks * 4ull * a->Hv * DELTA_CHUNK_RECORD(s->p.C);
}

// Blocks (r > 1) leave coopmat only for token by token: scalar chunks of them were no faster (H200, r = 4, heads of
// 128: 6.5 ms against 6.2). AUTO: if heads fill the device, token by token is faster.
struct delta_plan vulkan_plan_delta(const struct recorder *c, const struct delta_rule *rule, uint64_t limit) {
  const struct delta_args *a = &rule->a;
  const uint32_t T = rule->o.rows, B = rule->sequences.rows;
  struct delta_plan p = {.way = DELTA_BY_TOKENS};
  if (vulkan_delta_matrix_plan(c, T, B, a, &p.matrix)) {
    p.way = DELTA_ON_MATRICES;
    p.bytes = vulkan_delta_matrix_bytes(vulkan_device(c->backend), &p.matrix, T, B, a);
    if (p.bytes <= limit) return p;
  }
  const bool chunks = a->r <= 1 && vulkan_chunked(c, T, B, a->n) && plan_delta_chunks(c, T, B, a, &p.delta) &&
                      (vulkan_list(c)->form == DELTA_CHUNK ||
                       plan_chunks_pay(vulkan_rules(c), &p.delta.p, a->Dk, a->Dv, a->n, a->Hv * B));
  p.bytes = chunks ? chunk_bytes(&p.delta, a) : 0;
  p.way = chunks && p.bytes <= limit ? DELTA_BY_CHUNKS : DELTA_BY_TOKENS;
  if (p.way == DELTA_BY_TOKENS) p.bytes = 0;
  return p;
}

static void chunk_prepare(struct recorder *c, const struct delta_call *d, const struct delta_chunks *s,
                          struct binding prepared) {
  const struct delta_args *a = &d->rule.a;
  const uint32_t spec[DELTA_CHUNK_PREPARE_SPECS] = {[DELTA_CHUNK_PREPARE_SPEC_LANES] = s->prepare_lanes,
                                                    [DELTA_CHUNK_PREPARE_SPEC_C] = s->p.C,
                                                    [DELTA_CHUNK_PREPARE_SPEC_DK] = a->Dk,
                                                    [DELTA_CHUNK_PREPARE_SPEC_SUB] = s->p.sub,
                                                    [DELTA_CHUNK_PREPARE_SPEC_SLAB] = s->p.slab,
                                                    [DELTA_CHUNK_PREPARE_SPEC_ALIGNED] = d->aligned,
                                                    [DELTA_CHUNK_PREPARE_SPEC_N] = a->n};
  const struct binding qkv = vulkan_bind(d->rule.qkv, d->rule.qkv);
  const struct binding bindings[DELTA_CHUNK_PREPARE_BINDINGS] = {
      [DELTA_CHUNK_PREPARE_PREPARED] = prepared,
      [DELTA_CHUNK_PREPARE_QKV] = qkv,
      [DELTA_CHUNK_PREPARE_BETA] = vulkan_bind(d->rule.beta, d->rule.qkv),
      [DELTA_CHUNK_PREPARE_G] = vulkan_bind(d->rule.g, d->rule.qkv),
      [DELTA_CHUNK_PREPARE_SEQUENCES] = vulkan_bind(d->rule.sequences, d->rule.qkv)};
  const struct delta_chunk_prepare_args args = {.B = d->rule.sequences.rows,
                                                .H = a->H,
                                                .Hv = a->Hv,
                                                .share = delta_share(a),
                                                .gated = a->gated,
                                                .scale = a->scale,
                                                .qkv_stride = d->rule.qkv.stride,
                                                .beta_stride = d->rule.beta.stride,
                                                .g_stride = d->rule.g.stride};
  vulkan_dispatch(c, KERNEL_delta_chunk_prepare, spec, bindings, &args, (struct grid){s->chunks, a->Hv, 1},
                  2ull * d->rule.qkv.rows * a->n * a->Hv * s->p.C * (a->Dk + s->p.C / 6));
}

static void chunk_scan(struct recorder *c, const struct delta_call *d, const struct delta_chunks *s,
                       struct binding prepared) {
  const struct delta_args *a = &d->rule.a;
  const uint32_t spec[DELTA_CHUNK_SCAN_SPECS] = {
      [DELTA_CHUNK_SCAN_SPEC_LANES] = s->p.C / s->p.sub_t * (s->p.columns / s->p.sub_c) * s->p.groups,
      [DELTA_CHUNK_SCAN_SPEC_C] = s->p.C,
      [DELTA_CHUNK_SCAN_SPEC_DK] = a->Dk,
      [DELTA_CHUNK_SCAN_SPEC_COLUMNS] = s->p.columns,
      [DELTA_CHUNK_SCAN_SPEC_SUB_T] = s->p.sub_t,
      [DELTA_CHUNK_SCAN_SPEC_SUB_C] = s->p.sub_c,
      [DELTA_CHUNK_SCAN_SPEC_SUB_K] = s->p.sub_k,
      [DELTA_CHUNK_SCAN_SPEC_GROUPS] = s->p.groups,
      [DELTA_CHUNK_SCAN_SPEC_ALIGNED] =
          d->aligned && a->Dv % 4 == 0 && d->rule.o.stride % 4 == 0 && d->rule.state.stride % 4 == 0,
      [DELTA_CHUNK_SCAN_SPEC_N] = a->n,
      [DELTA_CHUNK_SCAN_SPEC_KEPT] = vulkan_rules(c)->chunk_ahead};
  const struct binding qkv = vulkan_bind(d->rule.qkv, d->rule.qkv), o = vulkan_bind(d->rule.o, d->rule.o);
  const struct binding state = vulkan_bind(d->rule.state, d->rule.o);
  const struct binding bindings[DELTA_CHUNK_SCAN_BINDINGS] = {[DELTA_CHUNK_SCAN_O] = o,
                                                              [DELTA_CHUNK_SCAN_QKV] = qkv,
                                                              [DELTA_CHUNK_SCAN_PREPARED] = prepared,
                                                              [DELTA_CHUNK_SCAN_STATE] = state,
                                                              [DELTA_CHUNK_SCAN_SEQUENCES] =
                                                                  vulkan_bind(d->rule.sequences, d->rule.qkv)};
  const struct delta_chunk_scan_args args = {.H = a->H,
                                             .Hv = a->Hv,
                                             .share = delta_share(a),
                                             .Dv = a->Dv,
                                             .scale = a->scale,
                                             .o_stride = d->rule.o.stride,
                                             .qkv_stride = d->rule.qkv.stride,
                                             .state_stride = d->rule.state.stride};
  vulkan_dispatch(c, KERNEL_delta_chunk_scan, spec, bindings, &args,
                  (struct grid){divide_up(a->Dv, s->p.columns), a->Hv, d->rule.sequences.rows},
                  2ull * d->rule.qkv.rows * a->Hv * a->Dv * ((2 * a->n + 1) * a->Dk + a->n * s->p.C));
}

void vulkan_delta_rule(struct recorder *c, const struct delta_rule *rule, struct tensor scratch) {
  const struct delta_args *a = &rule->a;
  const struct delta_call d = {
      .rule = *rule, .scratch = scratch, .aligned = a->Dk / max32(a->r, 1) % 4 == 0 && rule->qkv.stride % 4 == 0};
  const struct delta_plan p = vulkan_plan_delta(c, rule, tensor_bytes(&scratch));
  assert(a->r <= 1 || (a->n == 1 && a->r <= HH_MOST && a->Dk % a->r == 0));
  assert(p.way == DELTA_ON_MATRICES || (d.rule.qkv.dtype == DTYPE_F32 && d.rule.o.dtype == DTYPE_F32));
  if (p.way == DELTA_ON_MATRICES) {
    vulkan_delta_matrix(c, &d, &p.matrix);
  } else if (p.way == DELTA_BY_TOKENS) {
    vulkan_delta_tokens(c, &d);
  } else {
    struct binding prepared = vulkan_bind(scratch, rule->o);
    prepared.bytes = prepared.touched = p.bytes;
    chunk_prepare(c, &d, &p.delta, prepared);
    chunk_scan(c, &d, &p.delta, prepared);
  }
}
