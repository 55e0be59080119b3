// lower: runs a list of operations on Vulkan. lower_values plans which values are f16 and how much scratch is needed.
// Then vulkan_lower() walks the list from its first operation and joins neighbours into kernels; it shows which rule
// comes first. A joining rule matches operations only in the order in which our layers record them. An operation that
// no rule matches gets a dispatch of its own, with the same result. The joining rules:
//
//   [norm] linear                  the matrix product normalizes its input, or finishes a norm whose sums of squares
//                                  the previous product left
//   norm, several products         the products, linear and experts, of one token each compute the norm of their input
//   [norm] linear conv [inputs]    the convolution of the product's outputs, then the norms of the keys and the gates
//   [norm] linear glu              the activation of one half of the product, times the other half
//   experts glu                    the same for the chosen experts
//   mix add                        the sum over experts adds to the residual stream
//   linear add [norm]              the product adds to the residual stream and prepares the next norm
//   linear linear add add          both products add to the residual stream (an adapter's, of several tokens)
//   delta_inputs delta_rule [gated_norm]        for single tokens
//   mamba2_inputs mamba2 [gated_norm [linear]]  token by token; the step gates, and the product computes the norm if
//                                               there is one
//   [norm of heads] rope_append attention [glu] for single tokens
#include "lower_values.h"
#include "match.h"

struct lowering {
  struct recorder *c;
  const struct oplist *l;
  uint32_t i;              // the next operation
  struct norm_ahead ahead; // what the last product has prepared for the next norm
  uint32_t left;           // one more than the index of the norm that its readers compute; 0: none
};

// ---------------------------------------------------------------- products and the operations around them

// The norm of operation i as the input of the product after it.
static struct linear_input norm_input(struct lowering *w, uint32_t i) {
  const struct norm norm = oplist_op(w->l, i).norm;
  return (struct linear_input){.x = norm.x, .weight = norm.weight, .h = norm.y, .eps = norm.eps, .ahead = &w->ahead};
}

// Whether norm i gets no kernel, because all its readers are products of one token that can compute it. Its input must
// live as long as they need it.
static bool is_left_to_readers(const struct lowering *w, uint32_t i) {
  const struct oplist *l = w->l;
  const struct norm *n = &l->ops[i].norm;
  if (l->plain || !is_kind(l, i, OP_NORM) || tensor_present(n->last) || n->y.rows != 1 || !n->y.value || !n->x.value)
    return false;
  const uint32_t last = l->values[n->y.value - 1].last_read;
  if (l->values[n->x.value - 1].last_read <= last) return false;
  for (uint32_t k = i + 1; k <= last; k++) {
    const struct op *op = &l->ops[k];
    const bool linear =
                   op->kind == OP_LINEAR && same_value(op->linear.x, n->y) && vulkan_linear_norms(w->c, op->linear.w),
               experts =
                   op->kind == OP_EXPERTS && same_value(op->experts.x, n->y) && vulkan_experts_norm(w->c, &op->experts);
    if (op_reads(op, n->y) && !linear && !experts) return false;
  }
  return true;
}

// A product's input t, in memory at `at`. If t's norm got no kernel, the input is what is normed, and its weights.
static struct linear_input input_of(struct lowering *w, struct tensor t, struct tensor at) {
  if (!w->left || !same_value(t, w->l->ops[w->left - 1].norm.y)) return (struct linear_input){.x = at};
  struct linear_input in = norm_input(w, w->left - 1);
  in.ahead = NULL;
  return in;
}

// The input of product i.
static struct linear_input plain_input(struct lowering *w, uint32_t i) {
  const struct linear p = oplist_op(w->l, i).linear;
  const uint64_t bytes = lower_scratch(w->c, &w->l->ops[i], w->c->backend->max_binding_bytes);
  struct linear_input in = input_of(w, w->l->ops[i].linear.x, p.x);
  if (!bytes) return in;
  in.h = oplist_own_scratch(w->l, i, round_up(bytes, 4));
  in.h.dtype = DTYPE_F16;
  in.h.rows = p.x.rows;
  in.h.cols = p.x.cols;
  in.h.stride = (uint32_t)round_up(p.x.cols, 8);
  return in;
}

// Both products of adapted_product() (oplist.c) add to a residual stream. Returns how many operations it recorded; 0:
// none, they are others.
static uint32_t lower_adapted_residual(struct lowering *w, uint32_t i, const struct linear_input *in) {
  const struct oplist *l = w->l;
  if (!sums_products(l, i)) return 0;
  const struct linear base = oplist_op(l, i).linear, more = oplist_op(l, i + 1).linear;
  const struct add add = oplist_op(l, i + 3).add;
  if (!same_place(add.x, add.y)) return 0;
  const struct linear_input inner = plain_input(w, i + 1);
  w->ahead = (struct norm_ahead){0};
  vulkan_linear(w->c, add.y, in, &base, true);
  vulkan_linear(w->c, add.y, &inner, &more, true);
  return 4;
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
  if (next->kind == OP_GLU && gates_halves(l, i)) {
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
  const uint32_t sums = lower_adapted_residual(w, i, in);
  if (sums) return sums;
  vulkan_linear(w->c, p.y, in, &p, false);
  return 1;
}

// Records the product of experts i, with the glu after it. Returns how many operations it recorded.
static uint32_t lower_experts(struct lowering *w, uint32_t i) {
  const struct oplist *l = w->l;
  const struct experts e = oplist_op(l, i).experts;
  const bool gated = !l->plain && is_kind(l, i + 1, OP_GLU) && l->ops[i].experts.y.value && gates_halves(l, i);
  const struct glu glu = oplist_op(l, gated ? i + 1 : i).glu;
  const struct linear_input in = input_of(w, l->ops[i].experts.x, e.x);
  vulkan_experts(w->c, &e, &in, gated ? &glu : NULL);
  return gated ? 2 : 1;
}

// Records mix i and the add after it, in place. Returns how many operations it recorded.
static uint32_t lower_mix(struct lowering *w, uint32_t i) {
  const struct oplist *l = w->l;
  const struct mix m = oplist_op(l, i).mix;
  const bool next = !l->plain && is_kind(l, i + 1, OP_ADD) && same_value(l->ops[i + 1].add.z, l->ops[i].mix.y);
  const struct add add = oplist_op(l, next ? i + 1 : i).add;
  const bool joined = next && only_for(l, i, i + 1) && same_place(add.x, add.y);
  vulkan_mix(w->c, &m, joined ? add.y : m.y, joined);
  return joined ? 2 : 1;
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
  const uint64_t bytes = lower_scratch(w->c, &l->ops[rope + 1], w->c->backend->max_binding_bytes);
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

// The columns of x behind the first `done`, which a kernel writes. Kernels bind multiples of TENSOR_ALIGN.
static void copy_rest(struct recorder *c, struct tensor y, struct tensor x, uint32_t done) {
  const uint32_t first = y.dtype == DTYPE_F32 && done * sizeof(float) % TENSOR_ALIGN == 0 ? done : 0;
  if (done < y.cols) copy_to_output(c, tensor_cols(y, first, y.cols - first), tensor_cols(x, first, x.cols - first));
}

static void lower_op(struct lowering *w) {
  struct recorder *c = w->c;
  const struct op op = oplist_op(w->l, w->i);
  const struct tensor scratch =
      oplist_own_scratch(w->l, w->i, lower_scratch(c, &w->l->ops[w->i], c->backend->max_binding_bytes));
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
    copy_rest(c, op.delta_inputs.y, op.delta_inputs.x, op.delta_inputs.a.heads * op.delta_inputs.a.Dk);
    vulkan_delta_inputs(c, &op.delta_inputs);
    break;
  case OP_DELTA_RULE: vulkan_delta_rule(c, &op.delta_rule, scratch); break;
  case OP_MAMBA2_INPUTS: vulkan_mamba2_inputs(c, &op.mamba2_inputs); break;
  case OP_MAMBA2: vulkan_mamba2(c, &op.mamba2, scratch); break;
  case OP_GATED_NORM:
    copy_rest(c, op.gated_norm.y, op.gated_norm.x,
              op.gated_norm.from ? 0 : op.gated_norm.groups * op.gated_norm.group_cols);
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
  case OP_MIX: break;     // lower_mix()
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
  lower_reserve(l);
  const uint64_t bytes = oplist_plan(l, c->backend, lower_bound_scratch, &largest);
  const deltaic_status status = oplist_check(l, bytes);
  if (status) {
    if (r->commands) commands_fail(r->commands, status);
    return;
  }
  lower_dtypes(c, l);
  for (uint32_t n; w.i < l->count; w.i += n) {
    n = 1;
    if (!l->plain && is_input_norm(l, w.i)) {
      const struct linear_input in = norm_input(&w, w.i);
      if (!same_place(in.h, w.ahead.h)) w.ahead = (struct norm_ahead){0};
      n = 1 + lower_product(&w, w.i + 1, &in);
    } else if (is_left_to_readers(&w, w.i)) {
      w.left = w.i + 1;
    } else if (is_kind(l, w.i, OP_LINEAR)) {
      const struct linear_input in = plain_input(&w, w.i);
      n = lower_product(&w, w.i, &in);
    } else if (is_kind(l, w.i, OP_EXPERTS)) {
      n = lower_experts(&w, w.i);
    } else if (is_kind(l, w.i, OP_MIX)) {
      n = lower_mix(&w, w.i);
    } else if (!(n = lower_delta_step(&w)) && !(n = lower_mamba2_step(&w)) && !(n = lower_attention_step(&w))) {
      lower_op(&w);
      n = 1;
    }
  }
}
