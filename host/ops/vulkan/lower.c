// lower: runs a list of operations on Vulkan. It first plans which values are f16 and how much scratch is needed. Then
// it walks the list from its first operation and joins neighbours into kernels; vulkan_lower() shows which rule comes
// first. A joining rule matches operations only in the order in which our layers record them. An operation that no rule
// matches gets a dispatch of its own, with the same result. The joining rules:
//
//   [norm] linear                  the matrix product normalizes its input, or finishes a norm whose sums of squares
//                                  the previous product left
//   [norm] linear conv [inputs]    the convolution of the product's outputs, then the norms of the keys and the gates
//   [norm] linear glu              the activation of one half of the product, times the other half
//   experts glu                    the same for the chosen experts
//   linear add [norm]              the product adds to the residual stream and prepares the next norm
//   delta_inputs delta_rule [gated_norm]        for single tokens
//   mamba2_inputs mamba2 [gated_norm [linear]]  token by token; the step gates, and the product computes the norm if
//                                               there is one
//   [norm of heads] rope_append attention [glu] for single tokens
#include "match.h"
#include "vulkan_backend.h"

struct lowering {
  struct recorder *c;
  const struct oplist *l;
  uint32_t i;              // the next operation
  struct norm_ahead ahead; // what the last product has prepared for the next norm
};

// ---------------------------------------------------------------- which values are f16

static void set_dtype(struct oplist *l, struct tensor t, enum dtype dtype) {
  if (t.value) l->values[t.value - 1].dtype = dtype;
}

// The best dtype for operation i's output: the product's input dtype if one product is its only reader, else f32. A
// gated norm keeps its input's dtype, and so does a glu whose x the output is, so the product after them decides.
static enum dtype wanted_dtype(const struct recorder *c, const struct oplist *l, uint32_t i) {
  const struct tensor t = l->ops[i].t[0];
  const uint32_t reader = oplist_reader(l, t, i);
  if (!reader) return DTYPE_F32;
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

static void plan_dtypes(const struct recorder *c, struct oplist *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    const struct op *op = &l->ops[i];
    if (op->kind == OP_GLU || op->kind == OP_ATTENTION) set_dtype(l, op->t[0], wanted_dtype(c, l, i));
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
  if (!vulkan_list(c)->keep || vulkan_input_dtype(c, p->w, p->x.rows) != DTYPE_F16) return 0;
  return 2ull * p->x.rows * round_up(p->x.cols, 8);
}

static uint64_t scratch_within(const struct recorder *c, const struct op *op, uint64_t limit) {
  switch (op->kind) {
  case OP_LINEAR: return input_bytes(c, &op->linear) <= limit ? input_bytes(c, &op->linear) : 0;
  case OP_DELTA_RULE: return vulkan_plan_delta(c, &op->delta_rule, limit).bytes;
  case OP_MAMBA2: return vulkan_mamba2_bytes(c, &op->mamba2, limit);
  case OP_ROPE_APPEND: return vulkan_attention_bytes(c->backend, op->rope_append.sequences.rows, &op->rope_append.a);
  case OP_ATTENTION: return vulkan_attention_bytes(c->backend, op->attention.sequences.rows, &op->attention.a);
  default: return 0;
  }
}

// The scratch of one operation, when a list is planned but not run. It may exceed what a descriptor can bind, because a
// run with fewer tokens may still fit.
static uint64_t planned_scratch(const struct backend *b, const struct oplist *l, const struct op *op) {
  const struct vulkan_recorder r = {.base = {.backend = (struct backend *)b}, .list = l};
  return scratch_within(&r.base, op, UINT64_MAX);
}

static uint64_t bound_scratch(const struct backend *b, const struct oplist *l, const struct op *op) {
  const struct vulkan_recorder r = {.base = {.backend = (struct backend *)b}, .list = l};
  return scratch_within(&r.base, op, b->max_binding_bytes);
}

// Reserves memory for the padding of keys, since their dtype is not known yet.
static void reserve_padding(struct oplist *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    const struct conv *conv = &l->ops[i].conv;
    if (l->ops[i].kind != OP_CONV || !conv->y.value || !conv->a.keys) continue;
    const uint64_t padding = conv->a.keys * (uint64_t)(key_pitch(DTYPE_F16, conv->a.Dk) - conv->a.Dk);
    l->values[conv->y.value - 1].room = 2 * conv->y.rows * round_up(conv->a.C + padding, 8);
  }
}

uint64_t vulkan_list_bytes(struct backend *b, struct oplist *l, uint64_t *largest) {
  const struct vulkan_recorder r = {.base = {.backend = b}, .list = l};
  reserve_padding(l);
  const uint64_t bytes = oplist_plan(l, b, planned_scratch, largest);
  if (!l->status && !l->keep) plan_dtypes(&r.base, l);
  return bytes;
}

// ---------------------------------------------------------------- products and the operations around them

// The norm of operation i as the input of the product after it.
static struct linear_input norm_input(struct lowering *w, uint32_t i) {
  const struct norm norm = oplist_op(w->l, i).norm;
  return (struct linear_input){.x = norm.x, .weight = norm.weight, .h = norm.y, .eps = norm.eps, .ahead = &w->ahead};
}

// The input of product i.
static struct linear_input plain_input(const struct lowering *w, uint32_t i) {
  const struct linear p = oplist_op(w->l, i).linear;
  const uint64_t bytes = scratch_within(w->c, &w->l->ops[i], w->c->backend->max_binding_bytes);
  struct linear_input in = {.x = p.x};
  if (!bytes) return in;
  in.h = oplist_own_scratch(w->l, i, round_up(bytes, 4));
  in.h.dtype = DTYPE_F16;
  in.h.rows = p.x.rows;
  in.h.cols = p.x.cols;
  in.h.stride = (uint32_t)round_up(p.x.cols, 8);
  return in;
}

// Records product i and the operations that its kernel can join. Returns how many operations it recorded.
static uint32_t lower_product(struct lowering *w, uint32_t i, const struct linear_input *in) {
  const struct oplist *l = w->l;
  const struct linear p = oplist_op(l, i).linear;
  const struct op *next = &l->ops[i + 1];
  if (l->plain || i + 1 >= l->count || !l->ops[i].linear.y.value) {
    vulkan_linear(w->c, p.y, in, &p, false);
    return 1;
  }
  if (next->kind == OP_CONV && same_value(next->conv.x, l->ops[i].linear.y)) {
    const struct conv conv = oplist_op(l, i + 1).conv;
    const struct delta_inputs inputs = oplist_op(l, is_kind(l, i + 2, OP_DELTA_INPUTS) ? i + 2 : i).delta_inputs;
    const bool joined = l->longest != 1 && is_kind(l, i + 2, OP_DELTA_INPUTS) && only_for(l, i + 1, i + 2) &&
                        same_value(l->ops[i + 2].delta_inputs.x, next->conv.y);
    const struct linear_conv v = {
        .conv = &conv, .from = (uint32_t)(next->conv.x.offset / sizeof(float)), .inputs = joined ? &inputs : NULL};
    return vulkan_linear_conv(w->c, in, &p, &v) ? 3 : 2;
  }
  if (next->kind == OP_GLU && !tensor_present(p.bias) && gates_halves(l, i)) {
    const struct glu glu = oplist_op(l, i + 1).glu;
    vulkan_linear_glu(w->c, in, &p, &glu);
    return 2;
  }
  if (next->kind == OP_ADD && same_value(next->add.z, l->ops[i].linear.y) && only_for(l, i, i + 1)) {
    const struct add add = oplist_op(l, i + 1).add;
    if (same_place(add.x, add.y)) {
      const bool ahead = is_input_norm(l, i + 2) && same_value(l->ops[i + 2].norm.x, next->add.y);
      struct linear_input after = {0};
      if (ahead) after = norm_input(w, i + 2);
      if (!ahead || !same_place(after.h, w->ahead.h)) w->ahead = (struct norm_ahead){0};
      vulkan_linear_residual(w->c, add.y, in, &p, ahead ? &after : NULL);
      return 2;
    }
  }
  vulkan_linear(w->c, p.y, in, &p, false);
  return 1;
}

// Records the product of experts i, with the glu after it. Returns how many operations it recorded.
static uint32_t lower_experts(struct lowering *w, uint32_t i) {
  const struct oplist *l = w->l;
  const struct experts e = oplist_op(l, i).experts;
  const bool gated = !l->plain && is_kind(l, i + 1, OP_GLU) && l->ops[i].experts.y.value && gates_halves(l, i);
  const struct glu glu = oplist_op(l, gated ? i + 1 : i).glu;
  vulkan_experts(w->c, &e, gated ? &glu : NULL);
  return gated ? 2 : 1;
}

// Whether something reads what operation i, a group, sorts.
static bool is_sorted_for(const struct recorder *c, const struct oplist *l, uint32_t i) {
  const struct tensor order = l->ops[i].group.order;
  bool wanted = !order.value; // the caller's memory
  for (uint32_t k = i + 1; k < l->count && !wanted; k++)
    wanted = is_kind(l, k, OP_EXPERTS) && same_value(l->ops[k].experts.order, order) &&
             vulkan_experts_sorted(c, &l->ops[k].experts);
  return wanted;
}

// ---------------------------------------------------------------- single tokens

static uint32_t lower_delta_step(struct lowering *w) {
  const uint32_t i = w->i, n = match_delta_step(w->l, i);
  if (!n) return 0;
  const struct delta_inputs inputs = oplist_op(w->l, i).delta_inputs;
  const struct delta_rule rule = oplist_op(w->l, i + 1).delta_rule;
  const struct gated_norm norm = oplist_op(w->l, n == 3 ? i + 2 : i).gated_norm;
  const struct delta_step s = {
      .o = n == 3 ? norm.y : rule.o, .inputs = &inputs, .rule = &rule, .norm = n == 3 ? &norm : NULL};
  struct delta_step_plan p;
  if (!vulkan_plan_delta_step(w->c, &s, &p)) return 0;
  vulkan_delta_step(w->c, &s, &p);
  return n;
}

static uint32_t lower_attention_step(struct lowering *w) {
  const struct oplist *l = w->l;
  const struct attention_match m = match_attention_step(l, w->i);
  if (!m.count) return 0;
  const uint32_t rope = w->i + m.norm, last = w->i + m.count - 1;
  const struct op ops[] = {oplist_op(l, w->i), oplist_op(l, rope), oplist_op(l, rope + 1), oplist_op(l, last)};
  const struct attention_joined joined = {.norm = m.norm ? &ops[0].gated_norm : NULL,
                                          .rope = &ops[1].rope_append,
                                          .attention = &ops[2].attention,
                                          .gate = m.gate ? &ops[3].glu : NULL};
  const uint64_t bytes = scratch_within(w->c, &l->ops[rope + 1], w->c->backend->max_binding_bytes);
  return vulkan_attention_joined(w->c, &joined, oplist_own_scratch(l, rope + 1, bytes)) ? m.count : 0;
}

// If the norm covers a whole token, and the product that reads it takes f32, the step computes the gating and the
// product the norm. Without a norm, the step computes the gating.
static uint32_t lower_mamba2_step(struct lowering *w) {
  const struct oplist *l = w->l;
  const uint32_t i = w->i, n = match_mamba2_step(l, i);
  if (!n) return 0;
  const struct mamba2_inputs inputs = oplist_op(l, i).mamba2_inputs;
  const struct mamba2 rule = oplist_op(l, i + 1).mamba2;
  if (!vulkan_steps_mamba2(w->c, &rule)) return 0;
  struct mamba2_step s = {.y = rule.y, .inputs = &inputs, .rule = &rule};
  const struct gated_norm norm = oplist_op(l, n == 3 ? i + 2 : i).gated_norm;
  const bool normed = n == 3 && norm.place == NORM_OF_GATED,
             product = is_kind(l, i + 3, OP_LINEAR) && only_for(l, i + 2, i + 3);
  if (n < 3 || rule.y.dtype != DTYPE_F32 || norm.place == NORM_FIRST || (normed && (norm.groups > 1 || !product)) ||
      !same_place(norm.x, norm.y)) {
    vulkan_mamba2_step(w->c, &s);
    return 2;
  }
  s.gate = norm.gate;
  vulkan_mamba2_step(w->c, &s);
  if (!normed) return 3;
  const struct linear_input in = {.x = norm.y, .weight = norm.weight, .h = norm.gate, .eps = norm.eps};
  return 3 + lower_product(w, i + 3, &in);
}

// ---------------------------------------------------------------- operations that are not joined

static void copy_to_output(struct recorder *c, struct tensor y, struct tensor x) {
  if (!same_place(y, x)) vulkan_copy(c, &(struct copy){y, x});
}

static void lower_op(struct lowering *w) {
  struct recorder *c = w->c;
  const struct op op = oplist_op(w->l, w->i);
  const struct tensor scratch =
      oplist_own_scratch(w->l, w->i, scratch_within(c, &w->l->ops[w->i], c->backend->max_binding_bytes));
  const struct tensor none = {0};
  switch (op.kind) {
  case OP_EMBED: vulkan_embed(c, &op.embed); break;
  case OP_MARK: vulkan_mark(c, &op.mark); break;
  case OP_NORM:
    vulkan_norm(c, &op.norm, none);
    w->ahead = (struct norm_ahead){0}; // y may overwrite what a product prepared
    break;
  case OP_LINEAR: break; // lower_product()
  case OP_ADD: vulkan_add(c, &op.add); break;
  case OP_CONV: vulkan_conv(c, &op.conv); break;
  case OP_GLU: vulkan_glu(c, &op.glu); break;
  case OP_DELTA_INPUTS:
    copy_to_output(c, op.delta_inputs.y, op.delta_inputs.x);
    vulkan_delta_inputs(c, &op.delta_inputs);
    break;
  case OP_DELTA_RULE: vulkan_delta_rule(c, &op.delta_rule, scratch); break;
  case OP_MAMBA2_INPUTS: vulkan_mamba2_inputs(c, &op.mamba2_inputs); break;
  case OP_MAMBA2: vulkan_mamba2(c, &op.mamba2, scratch); break;
  case OP_GATED_NORM:
    copy_to_output(c, op.gated_norm.y, op.gated_norm.x);
    vulkan_gated_norm(c, &op.gated_norm);
    break;
  case OP_ROPE_APPEND:
    copy_to_output(c, op.rope_append.y, op.rope_append.x);
    vulkan_rope_append(c, &op.rope_append, scratch);
    break;
  case OP_ATTENTION: vulkan_attention(c, &op.attention, scratch); break;
  case OP_ROUTE: vulkan_route(c, &op.route); break;
  case OP_GROUP:
    if (is_sorted_for(c, w->l, w->i)) vulkan_group(c, &op.group);
    break;
  case OP_EXPERTS: break; // lower_experts()
  case OP_MIX: vulkan_mix(c, &op.mix); break;
  case OP_SAMPLE: vulkan_sample(c, &op.sample); break;
  case OP_COPY: vulkan_copy(c, &op.copy); break;
  case OP_SCATTER: vulkan_scatter(c, &op.scatter); break;
  case OP_SCORE: vulkan_score(c, &op.score); break;
  case OP_PROBE: w->l->look(w->l->look_context, c, &op.probed); break;
  case OP_KINDS: break;
  }
}

void vulkan_lower(struct recorder *c, struct oplist *l) {
  struct vulkan_recorder *r = (struct vulkan_recorder *)c;
  struct lowering w = {.c = c, .l = l};
  uint64_t largest;
  r->list = l;
  reserve_padding(l);
  const uint64_t bytes = oplist_plan(l, c->backend, bound_scratch, &largest);
  const deltaic_status status = oplist_check(l, bytes);
  if (status) {
    if (r->commands) commands_fail(r->commands, status);
    return;
  }
  if (!l->keep) plan_dtypes(c, l);
  for (uint32_t n; w.i < l->count; w.i += n) {
    n = 1;
    if (!l->plain && is_input_norm(l, w.i)) {
      const struct linear_input in = norm_input(&w, w.i);
      if (!same_place(in.h, w.ahead.h)) w.ahead = (struct norm_ahead){0};
      n = 1 + lower_product(&w, w.i + 1, &in);
    } else if (is_kind(l, w.i, OP_LINEAR)) {
      const struct linear_input in = plain_input(&w, w.i);
      n = lower_product(&w, w.i, &in);
    } else if (is_kind(l, w.i, OP_EXPERTS)) {
      n = lower_experts(&w, w.i);
    } else if (!(n = lower_delta_step(&w)) && !(n = lower_mamba2_step(&w)) && !(n = lower_attention_step(&w))) {
      lower_op(&w);
      n = 1;
    }
  }
}
