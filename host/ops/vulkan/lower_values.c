// lower_values: see lower_values.h.
#include "lower_values.h"

#include "match.h"

// ---------------------------------------------------------------- which values are f16

static void set_dtype(struct oplist *l, struct tensor t, enum dtype dtype) {
  if (t.value) l->values[t.value - 1].dtype = dtype;
}

// Whether product `op` reads t, in f16, and nothing else of it.
static bool reads_half(const struct recorder *c, const struct oplist *l, const struct op *op, struct tensor t) {
  const struct value *v = &l->values[t.value - 1];
  for (uint32_t k = op_shapes[op->kind].writes; k < op_tensors(op->kind); k++)
    if (same_value(op->t[k], t) && (op->kind != OP_LINEAR || k != 1)) return false;
  return op->linear.x.rows == v->rows && op->linear.x.cols == v->cols &&
         vulkan_input_dtype(c, op->linear.w, v->rows) == DTYPE_F16;
}

// Whether products, and nothing else, read t after operation i, and all take f16. Rows of f16 take multiples of 8
// elements, for which f32's memory has room from 4 columns on.
static bool only_products_read_half(const struct recorder *c, const struct oplist *l, struct tensor t, uint32_t i) {
  bool found = false;
  if (!t.value || t.cols < 4 || l->values[t.value - 1].bound.buffer) return false;
  for (i++; i < l->count && i <= l->values[t.value - 1].last_read; i++)
    if (op_reads(&l->ops[i], t)) {
      found = true;
      if (!reads_half(c, l, &l->ops[i], t)) return false;
    }
  return found;
}

// The best dtype for operation i's output: the products' input dtype if only products read it, else f32. A gated norm
// keeps its input's dtype, and so does a glu whose x the output is, so the product after them decides. What is bound to
// the caller's memory stays f32.
static enum dtype wanted_dtype(const struct recorder *c, const struct oplist *l, uint32_t i) {
  const struct tensor t = l->ops[i].t[0];
  if (t.value && l->values[t.value - 1].bound.buffer) return DTYPE_F32;
  const uint32_t reader = oplist_reader(l, t, i);
  if (!reader) return only_products_read_half(c, l, t, i) ? DTYPE_F16 : DTYPE_F32;
  const struct op *op = &l->ops[reader];
  if (op->kind == OP_GATED_NORM || (op->kind == OP_GLU && same_value(op->glu.x, t))) return wanted_dtype(c, l, reader);
  if (op->kind == OP_EXPERTS && same_value(op->experts.x, t)) return vulkan_experts_dtype(c, &op->experts);
  return op->kind == OP_LINEAR && same_value(op->linear.x, t) ? vulkan_input_dtype(c, op->linear.w, t.rows) : DTYPE_F32;
}

static void set_output_dtype(struct oplist *l, uint32_t i, enum dtype dtype) {
  set_dtype(l, l->ops[i].t[0], dtype);
  const uint32_t reader = oplist_reader(l, l->ops[i].t[0], i);
  if (is_kind(l, reader, OP_GATED_NORM)) set_output_dtype(l, reader, dtype);
}

// The operation before i that writes t as its first tensor; i if there is none.
static uint32_t writer_of(const struct oplist *l, struct tensor t, uint32_t i) {
  for (uint32_t k = i; k-- > 0;)
    if (op_shapes[l->ops[k].kind].writes && same_value(l->ops[k].t[0], t)) return k;
  return i;
}

// Makes qkv f16. In f16, every key is followed by padding.
static void narrow_qkv(struct oplist *l, struct tensor qkv, const struct delta_args *a) {
  struct value *v = &l->values[qkv.value - 1];
  v->dtype = DTYPE_F16;
  v->stored = (1 + a->n) * a->H * key_pitch(DTYPE_F16, a->Dk) + a->n * a->Hv * a->Dv;
}

static void plan_rule_dtypes(const struct recorder *c, struct oplist *l, uint32_t i) {
  const struct delta_rule *rule = &l->ops[i].delta_rule;
  const uint32_t inputs = writer_of(l, rule->qkv, i);
  if (match_delta_step(l, i ? i - 1 : 0) && inputs == i - 1) {
    const uint32_t n = match_delta_step(l, inputs);
    const struct delta_step s = {.o = rule->o,
                                 .inputs = &l->ops[inputs].delta_inputs,
                                 .rule = rule,
                                 .norm = n == 3 ? &l->ops[i + 1].gated_norm : NULL};
    struct delta_step_plan p;
    if (vulkan_plan_delta_step(c, &s, &p)) set_output_dtype(l, i, wanted_dtype(c, l, i));
    return;
  }
  if (!rule->qkv.value || !rule->o.value || l->longest == 1 || wanted_dtype(c, l, i) != DTYPE_F16) return;
  if (vulkan_plan_delta(c, rule, c->backend->max_binding_bytes).way != DELTA_ON_MATRICES) return;
  if (inputs < i) { // else the caller owns q, k and v
    const struct tensor x = l->ops[inputs].delta_inputs.x;
    const uint32_t conv = writer_of(l, x, inputs);
    if (!is_kind(l, inputs, OP_DELTA_INPUTS) || !is_kind(l, conv, OP_CONV) || !only_for(l, conv, inputs) ||
        !only_for(l, inputs, i))
      return;
    narrow_qkv(l, x, &rule->a);
  }
  narrow_qkv(l, rule->qkv, &rule->a);
  set_output_dtype(l, i, DTYPE_F16);
}

// In a list that keeps its values: whether t is f16. It is, if a norm or a gated unit writes it and only products read
// it, which would round it anyway. No other operation's backward pass reads such an output.
static bool is_kept_half(const struct recorder *c, const struct oplist *l, struct tensor t) {
  const uint32_t writer = writer_of(l, t, (uint32_t)l->count);
  if (!is_kind(l, writer, OP_GLU) && (!is_kind(l, writer, OP_NORM) || tensor_present(l->ops[writer].norm.last)))
    return false;
  return only_products_read_half(c, l, t, writer);
}

static void lower_kept(const struct recorder *c, struct oplist *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    const struct tensor t = l->ops[i].t[0];
    if (op_shapes[l->ops[i].kind].writes && is_kept_half(c, l, t)) set_dtype(l, t, DTYPE_F16);
  }
}

void lower_dtypes(const struct recorder *c, struct oplist *l) {
  if (l->keep) {
    lower_kept(c, l);
    return;
  }
  for (uint32_t i = 0; i < l->count; i++) {
    const struct op *op = &l->ops[i];
    const bool norm = op->kind == OP_NORM && !tensor_present(op->norm.last) && !is_input_norm(l, i);
    if (norm || op->kind == OP_GLU || op->kind == OP_ATTENTION) set_dtype(l, op->t[0], wanted_dtype(c, l, i));
    if (op->kind == OP_DELTA_RULE) plan_rule_dtypes(c, l, i);
    if (op->kind != OP_MAMBA2) continue;
    const bool step = i && match_mamba2_step(l, i - 1) && vulkan_steps_mamba2(c, &op->mamba2);
    if (wanted_dtype(c, l, i) == DTYPE_F16)
      set_output_dtype(l, i, step ? DTYPE_F16 : vulkan_mamba2_dtype(c, &op->mamba2));
  }
}

// ---------------------------------------------------------------- scratch

// An f16 copy of a product's input, where that stays f32 for a walk in reverse.
static uint64_t input_bytes(const struct recorder *c, const struct linear *p) {
  const struct oplist *l = vulkan_list(c);
  if (!l->keep || vulkan_input_dtype(c, p->w, p->x.rows) != DTYPE_F16 || is_kept_half(c, l, p->x)) return 0;
  return 2ull * p->x.rows * round_up(p->x.cols, 8);
}

uint64_t lower_scratch(const struct recorder *c, const struct op *op, uint64_t limit) {
  switch (op->kind) {
  case OP_LINEAR: return input_bytes(c, &op->linear) <= limit ? input_bytes(c, &op->linear) : 0;
  case OP_DELTA_RULE: return vulkan_plan_delta(c, &op->delta_rule, limit).bytes;
  case OP_MAMBA2: return vulkan_mamba2_bytes(c, &op->mamba2, limit);
  case OP_ROPE_APPEND: return vulkan_attention_bytes(c->backend, op->rope_append.sequences.rows, &op->rope_append.a);
  case OP_ATTENTION: return vulkan_attention_scratch(c, &op->attention, limit);
  default: return 0;
  }
}

// The scratch of one operation, when a list is planned but not run. It may exceed what a descriptor can bind, because a
// run with fewer tokens may still fit.
static uint64_t planned_scratch(const struct backend *b, const struct oplist *l, const struct op *op) {
  const struct vulkan_recorder r = {.base = {.backend = (struct backend *)b}, .list = l};
  return lower_scratch(&r.base, op, UINT64_MAX);
}

uint64_t lower_bound_scratch(const struct backend *b, const struct oplist *l, const struct op *op) {
  const struct vulkan_recorder r = {.base = {.backend = (struct backend *)b}, .list = l};
  return lower_scratch(&r.base, op, b->max_binding_bytes);
}

void lower_reserve(struct oplist *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    const struct conv *conv = &l->ops[i].conv;
    if (l->ops[i].kind != OP_CONV || !conv->y.value || !conv->a.heads) continue;
    const uint64_t padding = conv->a.heads * (uint64_t)(key_pitch(DTYPE_F16, conv->a.Dk) - conv->a.Dk);
    l->values[conv->y.value - 1].room = 2 * conv->y.rows * round_up(conv->a.C + padding, 8);
  }
}

uint64_t vulkan_list_bytes(struct backend *b, struct oplist *l, uint64_t *largest) {
  const struct vulkan_recorder r = {.base = {.backend = b}, .list = l};
  lower_reserve(l);
  const uint64_t bytes = oplist_plan(l, b, planned_scratch, largest);
  if (!l->status) lower_dtypes(&r.base, l);
  return bytes;
}
