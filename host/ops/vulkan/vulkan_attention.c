// vulkan_attention: rotary positions and softmax attention. Single tokens, which mostly read the cache, use
// attention_step.comp, which can also compute what is around attention. Prompts use attention_matrix.comp if operands
// may be rounded to f16, else attention.comp.
#include "vulkan_backend.h"

#include "attention.h"
#include "attention_join.h"
#include "attention_matrix.h"
#include "attention_step.h"
#include "rope_append.h"

#include <math.h>

// The most positions that a token can see.
static uint32_t seen(const struct attention_args *a) {
  return a->window && a->window < a->capacity ? a->window : a->capacity;
}

static struct plan_attention_step step_plan(const struct plan *plan, uint32_t B, const struct attention_args *a) {
  struct plan_attention_step s;
  plan_attention_step(plan, a->heads, a->kv_heads, a->d, B, seen(a), &s);
  return s;
}

// Scratch holds a counter for each head, then the partial results of every head.
uint64_t vulkan_attention_bytes(const struct backend *b, uint32_t B, const struct attention_args *a) {
  const struct plan_attention_step s = step_plan(&vulkan_device(b)->plan, B, a);
  const uint64_t records = s.parts > 1 ? (uint64_t)a->heads * s.parts * ATTENTION_STEP_RECORD(a->d) : 0;
  return 4 * B * (a->heads + records);
}

static bool matrices_built(void) {
  return kernel_built(KERNEL_attention_matrix) && kernel_built(KERNEL_attention_join);
}

// As many for any number of tokens and sequences, so that a call needs no more than the session's longest one.
uint64_t vulkan_attention_scratch(const struct recorder *c, const struct attention *op, uint64_t limit) {
  const struct attention_args *a = &op->a;
  const struct oplist *l = vulkan_list(c);
  const uint64_t step = vulkan_attention_bytes(c->backend, op->sequences.rows, a);
  const uint64_t records = plan_attention_records(vulkan_plan(c), a->d, seen(a));
  const bool cut = l->matrices && !l->keep && l->longest != 1 && matrices_built() && vulkan_plan(c)->matrix_mixers;
  return cut && records > step && records <= limit ? records : step;
}

void vulkan_rope_append(struct recorder *c, const struct rope_append *rope, struct tensor scratch) {
  const struct tensor qkv = rope->y, cache_k = rope->cache_k, table = rope->table, sequences = rope->sequences;
  const struct attention_args *a = &rope->a;
  const uint32_t lanes = vulkan_plan(c)->block_lanes, longest = vulkan_longest(c, qkv);
  const uint32_t counters = longest == 1 ? a->heads : 0;
  const uint64_t appended = (uint64_t)qkv.rows * a->kv_heads * a->d;
  const struct binding bindings[ROPE_APPEND_BINDINGS] = {
      [ROPE_APPEND_QKV] = vulkan_bind(qkv, qkv),
      [ROPE_APPEND_CACHE_K] = vulkan_bind_some(cache_k, qkv, appended),
      [ROPE_APPEND_CACHE_V] = vulkan_bind_some(rope->cache_v, qkv, appended),
      [ROPE_APPEND_TABLE] = vulkan_bind_some(table, sequences, (uint64_t)qkv.rows * table.cols),
      [ROPE_APPEND_SEQUENCES] = vulkan_bind(sequences, qkv),
      [ROPE_APPEND_PARTS] = vulkan_bind_some(scratch, qkv, counters ? (uint64_t)sequences.rows * counters : 1)};
  const struct rope_append_args args = {.heads = a->heads,
                                        .kv_heads = a->kv_heads,
                                        .d = a->d,
                                        .capacity = a->capacity,
                                        .qkv_stride = qkv.stride,
                                        .cache_stride = cache_k.stride,
                                        .table_stride = table.stride,
                                        .counters = counters,
                                        .rotary = table.cols};
  uint32_t heads = a->heads + 2 * a->kv_heads;
  vulkan_dispatch(c, KERNEL_rope_append, &lanes, bindings, &args,
                  (struct grid){divide_up(heads * divide_up(a->d, 2), lanes), longest, sequences.rows},
                  6ull * qkv.rows * heads * a->d);
}

struct attention_call {
  struct tensor o, qkv, cache_k, cache_v, sequences;
  struct attention_args a;
  bool aligned;
  uint64_t operations; // an upper bound, for pacing: the positions are only known when the recording runs
};

// Of the caches, the profile counts the call's own positions: how many there are before is not known here.
static void bind(const struct attention_call *v, struct binding *bindings) {
  const uint64_t own = (uint64_t)v->qkv.rows * v->a.kv_heads * v->a.d;
  bindings[ATTENTION_O] = vulkan_bind(v->o, v->o);
  bindings[ATTENTION_QKV] = vulkan_bind(v->qkv, v->qkv);
  bindings[ATTENTION_CACHE_K] = vulkan_bind_some(v->cache_k, v->qkv, own);
  bindings[ATTENTION_CACHE_V] = vulkan_bind_some(v->cache_v, v->qkv, own);
  bindings[ATTENTION_SEQUENCES] = vulkan_bind(v->sequences, v->qkv);
}

static struct attention_push push_of(const struct attention_call *v) {
  const struct attention_args *a = &v->a;
  return (struct attention_push){.heads = a->heads,
                                 .kv_heads = a->kv_heads,
                                 .window = a->window,
                                 .capacity = a->capacity,
                                 .scale = 1 / sqrtf((float)a->d),
                                 .o_stride = v->o.stride,
                                 .qkv_stride = v->qkv.stride,
                                 .cache_stride = v->cache_k.stride};
}

// joined: the operations around v's attention that the kernel does too; NULL: none.
static void attention_step(struct recorder *c, const struct attention_call *v, const struct attention_joined *joined,
                           struct tensor scratch) {
  const struct attention_args *a = &v->a;
  const struct gated_norm *norm = joined ? joined->norm : NULL;
  const struct glu *gate = joined ? joined->gate : NULL;
  const struct tensor none = {0}, table = joined ? joined->rope->table : none, weight = norm ? norm->weight : none;
  const struct plan_attention_step s = step_plan(vulkan_plan(c), v->sequences.rows, a);
  const uint64_t parts = vulkan_attention_bytes(c->backend, v->sequences.rows, a) / sizeof(uint32_t);
  const uint32_t spec[ATTENTION_STEP_SPECS] = {
      [ATTENTION_STEP_SPEC_LANES] = s.lanes,         [ATTENTION_STEP_SPEC_D] = a->d,
      [ATTENTION_STEP_SPEC_QUERIES] = s.queries,     [ATTENTION_STEP_SPEC_ALIGNED] = v->aligned,
      [ATTENTION_STEP_SPEC_JOINED] = joined != NULL, [ATTENTION_STEP_SPEC_NORM] = norm != NULL,
      [ATTENTION_STEP_SPEC_BATCH] = s.batch,         [ATTENTION_STEP_SPEC_ACTIVATION] = gate ? gate->activation : 0,
      [ATTENTION_STEP_SPEC_LONE] = v->qkv.rows == 1 && v->sequences.rows == 1 && v->cache_k.rows == 1};
  struct binding bindings[ATTENTION_STEP_BINDINGS] = {
      [ATTENTION_STEP_PARTS] = vulkan_bind_some(scratch, v->o, parts),
      [ATTENTION_STEP_TABLE] = vulkan_bind_some(table, v->sequences, (uint64_t)v->qkv.rows * table.cols),
      [ATTENTION_STEP_WEIGHT] = vulkan_bind(weight, v->sequences)};
  bind(v, bindings);
  struct attention_push args = push_of(v);
  args.parts = s.parts;
  args.single = s.single;
  args.table_stride = table.stride;
  args.rotary = table.cols;
  args.weight_step = weight.cols == a->d ? 0 : a->d;
  args.eps = norm ? norm->eps : 0;
  args.gate = gate ? (uint32_t)((gate->gate.offset - v->qkv.offset) / sizeof(float)) : 0;
  const struct tensor counters = tensor_cols(scratch, 0, v->sequences.rows * a->heads);
  if (joined && s.parts > 1) vulkan_copy(c, &(struct copy){.to = counters});
  vulkan_dispatch(c, kernel_variant(FAMILY_attention_step, v->o.dtype), spec, bindings, &args,
                  (struct grid){s.across, max32(s.parts, s.single), v->sequences.rows}, v->operations);
}

static void attention(struct recorder *c, const struct attention_call *v) {
  const struct attention_args *a = &v->a;
  const struct plan *plan = vulkan_plan(c);
  const uint32_t lanes = min32(plan->lanes, 128);
  uint32_t queries = 8;
  while (queries > 1 && 16 * queries * divide_up(a->d, 4) + 8 * queries * lanes > plan->shared_bytes) queries /= 2;
  const uint32_t spec[ATTENTION_SPECS] = {[ATTENTION_SPEC_LANES] = lanes,
                                          [ATTENTION_SPEC_D] = a->d,
                                          [ATTENTION_SPEC_QUERIES] = queries,
                                          [ATTENTION_SPEC_ALIGNED] = v->aligned};
  struct binding bindings[ATTENTION_BINDINGS];
  bind(v, bindings);
  const struct attention_push args = push_of(v);
  vulkan_dispatch(c, kernel_variant(FAMILY_attention, v->o.dtype), spec, bindings, &args,
                  (struct grid){divide_up(vulkan_longest(c, v->qkv), queries), a->heads, v->sequences.rows},
                  v->operations);
}

// Joins the parts that attention_matrix() left in `records`, with its push constants and `blocks` blocks of tokens.
static void attention_join(struct recorder *c, const struct attention_call *v, const struct plan_attention_matrix *m,
                           const struct attention_push *args, uint32_t blocks, struct binding records) {
  const uint32_t spec[ATTENTION_JOIN_SPECS] = {[ATTENTION_JOIN_SPEC_LANES] =
                                                   min32(vulkan_plan(c)->lanes, divide_up(v->a.d, 4)),
                                               [ATTENTION_JOIN_SPEC_D] = v->a.d,
                                               [ATTENTION_JOIN_SPEC_KEYS] = m->keys,
                                               [ATTENTION_JOIN_SPEC_GROUP] = m->group,
                                               [ATTENTION_JOIN_SPEC_ROWS] = m->rows};
  const struct binding bindings[ATTENTION_JOIN_BINDINGS] = {[ATTENTION_JOIN_O] = vulkan_bind(v->o, v->o),
                                                            [ATTENTION_JOIN_RECORDS] = records,
                                                            [ATTENTION_JOIN_SEQUENCES] =
                                                                vulkan_bind(v->sequences, v->qkv)};
  vulkan_dispatch(c, KERNEL_attention_join, spec, bindings, args,
                  (struct grid){m->across * m->tokens * m->group, blocks, v->sequences.rows},
                  4ull * args->parts * v->qkv.rows * v->a.heads * v->a.d);
}

static void attention_matrix(struct recorder *c, const struct attention_call *v, const struct plan_attention_matrix *m,
                             struct tensor scratch) {
  const struct attention_args *a = &v->a;
  const struct plan *plan = vulkan_plan(c);
  const struct tensor none = {0};
  const uint32_t blocks = divide_up(vulkan_longest(c, v->qkv), m->tokens), B = v->sequences.rows;
  const uint64_t groups = (uint64_t)m->across * blocks * B;
  struct attention_push args = push_of(v);
  args.parts = plan_attention_parts(plan, m, groups, seen(a));
  if (4ull * scratch.cols < plan_attention_records(plan, a->d, seen(a))) args.parts = 1;
  const uint64_t elements = args.parts * groups * m->rows * 4 * ATTENTION_MATRIX_RECORD(a->d);
  const struct binding records = vulkan_bind_some(args.parts > 1 ? scratch : none, v->o, elements);
  const uint32_t spec[ATTENTION_MATRIX_SPECS] = {[ATTENTION_MATRIX_SPEC_LANES] = m->lanes,
                                                 [ATTENTION_MATRIX_SPEC_SUBGROUP] = plan->matrix_lanes,
                                                 [ATTENTION_MATRIX_SPEC_TILE_M] = plan->matrix_m,
                                                 [ATTENTION_MATRIX_SPEC_TILE_N] = plan->matrix_n,
                                                 [ATTENTION_MATRIX_SPEC_TILE_K] = plan->matrix_k,
                                                 [ATTENTION_MATRIX_SPEC_D] = a->d,
                                                 [ATTENTION_MATRIX_SPEC_KEYS] = m->keys,
                                                 [ATTENTION_MATRIX_SPEC_GROUP] = m->group,
                                                 [ATTENTION_MATRIX_SPEC_AHEAD] = m->ahead,
                                                 [ATTENTION_MATRIX_SPEC_ALIGNED] = v->aligned,
                                                 [ATTENTION_MATRIX_SPEC_O_ALIGNED] =
                                                     a->d % 8 == 0 && v->o.stride % 8 == 0,
                                                 [ATTENTION_MATRIX_SPEC_LOCKSTEP] = m->lockstep,
                                                 [ATTENTION_MATRIX_SPEC_SPLIT] = args.parts > 1};
  struct binding bindings[ATTENTION_MATRIX_BINDINGS] = {[ATTENTION_MATRIX_RECORDS] = records};
  bind(v, bindings);
  vulkan_dispatch(c, KERNEL_attention_matrix, spec, bindings, &args, (struct grid){m->across, args.parts * blocks, B},
                  v->operations);
  if (args.parts > 1) attention_join(c, v, m, &args, blocks, records);
}

bool vulkan_attention_matrix_plan(const struct recorder *c, enum dtype o, uint32_t T, uint32_t B,
                                  const struct attention_args *a, struct plan_attention_matrix *m) {
  return o == DTYPE_F16 && vulkan_list(c)->matrices && matrices_built() &&
         plan_attention_matrix(vulkan_plan(c), a->heads, a->kv_heads, a->d, B, divide_up(T, B), m);
}

static struct attention_call call_of(const struct attention *op) {
  const struct attention_args *a = &op->a;
  return (struct attention_call){.o = op->o,
                                 .qkv = op->qkv,
                                 .cache_k = op->cache_k,
                                 .cache_v = op->cache_v,
                                 .sequences = op->sequences,
                                 .a = *a,
                                 .aligned = a->d % 4 == 0 && op->cache_k.stride % 4 == 0,
                                 .operations = 4ull * seen(a) * op->qkv.rows * a->heads * a->d};
}

void vulkan_attention(struct recorder *c, const struct attention *op, struct tensor scratch) {
  const struct attention_call v = call_of(op);
  struct plan_attention_matrix m;
  if (vulkan_longest(c, op->qkv) == 1)
    attention_step(c, &v, NULL, scratch);
  else if (vulkan_attention_matrix_plan(c, op->o.dtype, op->qkv.rows, op->sequences.rows, &op->a, &m))
    attention_matrix(c, &v, &m, scratch);
  else
    attention(c, &v);
}

bool vulkan_attention_joined(struct recorder *c, const struct attention_joined *joined, struct tensor scratch) {
  const struct plan_attention_step s = step_plan(vulkan_plan(c), joined->rope->sequences.rows, &joined->rope->a);
  const uint32_t room = s.queries * s.lanes; // of the kernel's shared arrays
  if ((s.queries + 1) * divide_up(joined->rope->a.d, 4) > 4 * room || joined->rope->table.cols > room) return false;
  struct attention_call v = call_of(joined->attention);
  v.qkv = joined->norm ? joined->norm->x : joined->rope->x;
  if (joined->gate) {
    const struct tensor gate = joined->gate->gate;
    v.o = joined->gate->y;
    v.qkv.cols = (uint32_t)((gate.offset - v.qkv.offset) / sizeof(float)) + gate.cols;
  }
  attention_step(c, &v, joined, scratch);
  return true;
}
