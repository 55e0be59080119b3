// oplist: records a list of operations, finds the readers of its values, and places the values (oplist.h).
#include "oplist.h"

#include "list.h"

#include <stdlib.h>

const struct op_shape op_shapes[OP_KINDS] = {
#define X(NAME, member, writes, updates, reads) [OP_##NAME] = {#member, writes, updates, reads},
    OPS(X)
#undef X
};

#define X(NAME, member, writes, updates, reads)                                                                        \
  static_assert(sizeof(struct member) >= (writes + updates + reads) * sizeof(struct tensor), #member);
OPS(X)
#undef X

// ---------------------------------------------------------------- recording

void oplist_begin(struct oplist *l) {
  l->count = l->value_count = l->scope_count = 0;
  l->scope = 0;
  l->status = list_room(&l->scopes, 0, &l->scope_capacity, sizeof *l->scopes, "the scopes of a list");
  if (!l->status) l->scopes[l->scope_count++] = (struct scope){0};
}

void oplist_free(struct oplist *l) {
  free(l->ops);
  free(l->values);
  free(l->scopes);
  *l = (struct oplist){0};
}

void oplist_scope_begin(struct oplist *l) {
  if (l->keep) return;
  if (!l->status)
    l->status = list_room(&l->scopes, l->scope_count, &l->scope_capacity, sizeof *l->scopes, "the scopes of a list");
  if (l->status) return;
  l->scopes[l->scope_count] = (struct scope){.parent = l->scope};
  l->scope = (uint32_t)l->scope_count++;
}

void oplist_scope_end(struct oplist *l) {
  if (!l->status && !l->keep) l->scope = l->scopes[l->scope].parent;
}

struct tensor oplist_value(struct oplist *l, uint32_t rows, uint32_t cols) {
  struct tensor t = {.dtype = DTYPE_F32, .rows = rows, .cols = cols, .stride = cols};
  if (!l->status)
    l->status = list_room(&l->values, l->value_count, &l->value_capacity, sizeof *l->values, "the values of a list");
  if (l->status) return t;
  const uint32_t index = (uint32_t)l->value_count++;
  l->values[index] = (struct value){.rows = rows, .cols = cols, .scope = l->scope};
  t.value = index + 1;
  return t;
}

void oplist_bind(struct oplist *l, struct tensor t, struct tensor at) {
  if (!l->status) l->values[t.value - 1].bound = at;
}

static struct op *append(struct oplist *l, enum op_kind kind) {
  static _Thread_local struct op nowhere; // written to after a failure
  if (!l->status) l->status = list_room(&l->ops, l->count, &l->capacity, sizeof *l->ops, "a list of operations");
  struct op *op = l->status ? &nowhere : &l->ops[l->count++];
  op->kind = kind;
  op->scope = l->scope;
  return op;
}

void op_mark(struct oplist *l, struct tensor seen, struct tensor tokens, struct tensor sequences) {
  append(l, OP_MARK)->mark = (struct mark){seen, tokens, sequences};
}

void op_norm(struct oplist *l, struct tensor y, struct tensor x, struct tensor weight, struct tensor last, float eps) {
  append(l, OP_NORM)->norm = (struct norm){y, x, weight, last, eps};
}

static void product(struct oplist *l, struct tensor y, struct tensor x, struct tensor w, struct tensor bias) {
  w.low = NULL;
  append(l, OP_LINEAR)->linear = (struct linear){y, x, w, bias};
}

// y = x w^T + bias + (x A^T) B^T. The products with A and w do not wait for each other. One token's product with w is
// the bias of the last product, so that backends join that product to the operation after it. Else the sum is an
// op_add(), which they join to the last product.
static void adapted_product(struct oplist *l, struct tensor y, struct tensor x, struct tensor w, struct tensor bias) {
  const struct low_factors *low = w.low;
  const bool half = l->matrices && low->A_half.rows && !low->A_half.wide && !low->B_half.wide;
  const struct tensor A = half ? low->A_half : low->A, B = half ? low->B_half : low->B, none = {0};
  if (!y.value) oplist_scope_begin(l); // lists of several such products need no more memory than one
  const struct tensor inner = oplist_value(l, y.rows, A.rows);
  const struct tensor base = y.value || y.rows == 1 ? oplist_value(l, y.rows, y.cols) : y;
  product(l, inner, x, A, none);
  product(l, base, x, w, bias);
  if (y.rows == 1) {
    product(l, y, inner, B, base);
  } else {
    const struct tensor more = oplist_value(l, y.rows, y.cols);
    product(l, more, inner, B, none);
    op_add(l, y, base, more);
  }
  if (!y.value) oplist_scope_end(l);
}

void op_linear(struct oplist *l, struct tensor y, struct tensor x, struct tensor w, struct tensor bias) {
  if (w.low)
    adapted_product(l, y, x, w, bias);
  else
    product(l, y, x, w, bias);
}

void op_add(struct oplist *l, struct tensor y, struct tensor x, struct tensor z) {
  append(l, OP_ADD)->add = (struct add){y, x, z};
}

static void embed(struct oplist *l, struct tensor x, struct tensor table, struct tensor tokens) {
  table.low = NULL;
  append(l, OP_EMBED)->embed = (struct embed){x, table, tokens};
}

void op_embed(struct oplist *l, struct tensor x, struct tensor table, struct tensor tokens) {
  const struct low_factors *low = table.low;
  if (!low) {
    embed(l, x, table, tokens);
    return;
  }
  const struct tensor base = oplist_value(l, x.rows, x.cols), none = {0}; // x takes its memory
  oplist_scope_begin(l);
  const struct tensor inner = oplist_value(l, x.rows, low->B.cols), more = oplist_value(l, x.rows, x.cols);
  embed(l, base, table, tokens);
  embed(l, inner, low->B, tokens);
  product(l, more, inner, low->A_turned, none);
  op_add(l, x, base, more);
  oplist_scope_end(l);
}

void op_conv(struct oplist *l, const struct conv *conv) { append(l, OP_CONV)->conv = *conv; }

void op_glu(struct oplist *l, struct tensor y, struct tensor gate, struct tensor x, enum activation activation) {
  append(l, OP_GLU)->glu = (struct glu){y, gate, x, activation};
}

void op_delta_inputs(struct oplist *l, const struct delta_inputs *inputs) {
  append(l, OP_DELTA_INPUTS)->delta_inputs = *inputs;
}

void op_delta_rule(struct oplist *l, const struct delta_rule *rule) { append(l, OP_DELTA_RULE)->delta_rule = *rule; }

void op_mamba2_inputs(struct oplist *l, const struct mamba2_inputs *inputs) {
  append(l, OP_MAMBA2_INPUTS)->mamba2_inputs = *inputs;
}

void op_mamba2(struct oplist *l, const struct mamba2 *rule) { append(l, OP_MAMBA2)->mamba2 = *rule; }

void op_gated_norm(struct oplist *l, const struct gated_norm *norm) { append(l, OP_GATED_NORM)->gated_norm = *norm; }

void op_rope_append(struct oplist *l, const struct rope_append *rope) {
  append(l, OP_ROPE_APPEND)->rope_append = *rope;
}

void op_attention(struct oplist *l, const struct attention *attention) {
  append(l, OP_ATTENTION)->attention = *attention;
}

void op_route(struct oplist *l, const struct route *route) { append(l, OP_ROUTE)->route = *route; }

void op_group(struct oplist *l, struct tensor order, struct tensor starts, struct tensor ids) {
  append(l, OP_GROUP)->group = (struct group){order, starts, ids};
}

void op_experts(struct oplist *l, const struct experts *experts) { append(l, OP_EXPERTS)->experts = *experts; }

void op_mix(struct oplist *l, const struct mix *mix) { append(l, OP_MIX)->mix = *mix; }

void op_sample(struct oplist *l, const struct sample *sample) { append(l, OP_SAMPLE)->sample = *sample; }

void op_copy(struct oplist *l, struct tensor to, struct tensor from) {
  append(l, OP_COPY)->copy = (struct copy){to, from};
}

void op_scatter(struct oplist *l, struct tensor to, struct tensor from, struct tensor sequences) {
  append(l, OP_SCATTER)->scatter = (struct scatter){to, from, sequences};
}

void op_score(struct oplist *l, struct tensor scores, struct tensor logits, struct tensor targets, uint32_t first) {
  append(l, OP_SCORE)->score = (struct score){scores, logits, targets, first};
}

void op_probe(struct oplist *l, deltaic_probe_kind kind, struct tensor t, size_t rows, size_t cols,
              const deltaic_probed *layer) {
  if (!(l->kinds & kind) || !tensor_present(t)) return;
  deltaic_probed what = *layer;
  what.kind = kind;
  what.rows = rows;
  what.cols = cols;
  append(l, OP_PROBE)->probed = (struct probed){t, what};
}

// ---------------------------------------------------------------- readers

// Whether t is all of its value, not a view of it.
static bool is_whole(const struct oplist *l, struct tensor t) {
  const struct value *v = &l->values[t.value - 1];
  return !t.offset && t.rows == v->rows && t.cols == v->cols;
}

uint32_t oplist_reader(const struct oplist *l, struct tensor t, uint32_t after) {
  uint32_t reader = 0;
  for (uint32_t i = after + 1; t.value && i < l->count && i <= l->values[t.value - 1].last_read; i++)
    for (uint32_t k = op_shapes[l->ops[i].kind].writes; k < op_tensors(l->ops[i].kind); k++) {
      if (!same_value(l->ops[i].t[k], t)) continue;
      if (reader || !is_whole(l, l->ops[i].t[k])) return 0;
      reader = i;
    }
  return reader;
}

uint32_t oplist_last_reads(const struct oplist *l, uint32_t i) {
  const struct op *op = &l->ops[i];
  uint32_t bits = 0;
  for (uint32_t k = op_shapes[op->kind].writes; k < op_tensors(op->kind); k++) {
    bool found = op->t[k].value && l->values[op->t[k].value - 1].last_read == i;
    for (uint32_t j = op_shapes[op->kind].writes; j < k; j++) found &= !same_value(op->t[j], op->t[k]);
    if (found) bits |= 1u << k;
  }
  return bits;
}

static bool is_tiled(const struct oplist *l, struct tensor t) {
  enum { MOST = 8 };
  const struct value *v = &l->values[t.value - 1];
  struct {
    uint64_t first, end;
  } parts[MOST];
  uint64_t cols = 0;
  for (uint32_t i = 0, n = 0; i <= v->last_read; i++)
    for (uint32_t k = op_shapes[l->ops[i].kind].writes; k < op_tensors(l->ops[i].kind); k++) {
      const struct tensor part = l->ops[i].t[k];
      const uint64_t first = part.offset / sizeof(float), end = first + part.cols;
      if (!same_value(part, t)) continue;
      if (n == MOST || part.rows != v->rows) return false;
      for (uint32_t j = 0; j < n; j++)
        if (first < parts[j].end && parts[j].first < end) return false;
      parts[n].first = first;
      parts[n++].end = end;
      cols += part.cols;
    }
  return cols == v->cols;
}

uint32_t oplist_tiles(const struct oplist *l, uint32_t i) {
  const struct op *op = &l->ops[i];
  uint32_t bits = 0;
  for (uint32_t k = op_shapes[op->kind].writes; k < op_tensors(op->kind); k++)
    if (op->t[k].value && is_tiled(l, op->t[k])) bits |= 1u << k;
  return bits;
}

bool oplist_is_own_term(const struct oplist *l, uint32_t i, struct tensor t, struct tensor other) {
  bool written = false;
  while (i-- > 0 && !written) {
    const struct op *op = &l->ops[i];
    if (op->kind == OP_ADD) return false;
    for (uint32_t k = 0; k < op_tensors(op->kind); k++) {
      if (same_value(op->t[k], other)) return false;
      if (!same_value(op->t[k], t)) continue;
      if (k >= op_shapes[op->kind].writes) return false;
      written = true;
    }
  }
  return written;
}

struct tensor oplist_whole(const struct oplist *l, struct tensor t) {
  const struct value *v = &l->values[t.value - 1];
  return (struct tensor){.dtype = v->dtype, .rows = v->rows, .cols = v->cols, .stride = v->stored, .value = t.value};
}

static void find_last_reads(struct oplist *l) {
  for (uint32_t i = 0; i < l->value_count; i++) {
    struct value *v = &l->values[i];
    v->last_read = 0;
    v->place = i;
    v->dtype = DTYPE_F32;
    v->stored = v->cols;
  }
  for (uint32_t i = 0; i < l->count; i++)
    for (uint32_t k = op_shapes[l->ops[i].kind].writes; k < op_tensors(l->ops[i].kind); k++)
      if (l->ops[i].t[k].value) l->values[l->ops[i].t[k].value - 1].last_read = i;
}

// ---------------------------------------------------------------- memory of values

// The input whose memory the operation's first output may reuse: kernels read each of its elements before they write
// it.
static struct tensor replaced(const struct op *op) {
  switch (op->kind) {
  case OP_ADD: return op->add.x;
  case OP_DELTA_INPUTS: return op->delta_inputs.x;
  case OP_GATED_NORM: return op->gated_norm.x;
  case OP_ROPE_APPEND: return op->rope_append.x;
  default: return (struct tensor){0};
  }
}

static struct value *place_of(const struct oplist *l, struct tensor t) {
  struct value *v = &l->values[t.value - 1];
  while (v->place != v - l->values) v = &l->values[v->place];
  return v;
}

// Lets an output reuse its input's memory if nothing reads the input afterwards.
static void share_places(struct oplist *l) {
  for (uint32_t i = 0; i < l->count; i++) {
    const struct tensor from = replaced(&l->ops[i]), to = l->ops[i].t[0];
    if (!from.value || !to.value || !is_whole(l, from) || l->values[from.value - 1].last_read != i) continue;
    const struct value *a = &l->values[from.value - 1], *b = &l->values[to.value - 1];
    if (a->rows != b->rows || a->cols != b->cols) continue;
    struct value *place = place_of(l, from);
    l->values[to.value - 1].place = (uint32_t)(place - l->values);
    if (b->bound.buffer) place->bound = b->bound;
  }
}

// Places the values of a scope after those of the enclosing scopes, which are placed first. Returns the largest size.
static uint64_t place_scope(struct oplist *l, uint32_t scope) {
  uint64_t used = scope ? l->scopes[l->scopes[scope].parent].used : 0, largest = 0;
  for (uint32_t i = 0; i < l->value_count; i++) {
    struct value *v = &l->values[i];
    if (v->scope != scope || v->place != i || v->bound.buffer) continue;
    uint64_t bytes = (uint64_t)v->rows * v->cols * sizeof(float);
    if (v->room > bytes) bytes = v->room;
    if (bytes > largest) largest = bytes;
    v->offset = used;
    used += round_up(bytes ? bytes : 1, TENSOR_ALIGN);
  }
  l->scopes[scope].used = used;
  return largest;
}

uint64_t oplist_plan(struct oplist *l, const struct backend *b, oplist_bytes own_bytes, uint64_t *largest) {
  uint64_t most = 0;
  *largest = 0;
  if (l->status) return 0;
  find_last_reads(l);
  if (!l->keep) share_places(l);
  for (uint32_t s = 0; s < l->scope_count; s++) {
    const uint64_t bytes = place_scope(l, s);
    if (bytes > *largest) *largest = bytes;
    if (l->scopes[s].used > most) most = l->scopes[s].used;
  }
  for (uint32_t i = 0; i < l->count; i++) {
    const uint64_t bytes = own_bytes(b, l, &l->ops[i]), end = l->scopes[l->ops[i].scope].used + bytes;
    if (bytes > *largest) *largest = bytes;
    if (end > most) most = end;
  }
  return round_up(most, TENSOR_ALIGN);
}

deltaic_status oplist_check(const struct oplist *l, uint64_t bytes) {
  if (l->status) return l->status;
  const uint64_t have = l->scratch.buffer ? tensor_bytes(&l->scratch) : 0;
  if (bytes <= have) return DELTAIC_OK;
  return fail(DELTAIC_INTERNAL, "a list of operations needs %llu bytes of scratch but has %llu",
              (unsigned long long)bytes, (unsigned long long)have);
}

struct tensor oplist_tensor(const struct oplist *l, struct tensor t) {
  if (!t.value) return t;
  const struct value *v = &l->values[t.value - 1], *place = place_of(l, t);
  const struct tensor at = place->bound.buffer ? place->bound : l->scratch;
  t.value = 0;
  t.buffer = at.buffer;
  if (v->dtype != DTYPE_F32) { // t is the whole value: a value with views stays f32
    t.cols = t.stride = v->stored;
    t = tensor_as(t, v->dtype);
  }
  t.offset += at.offset + (place->bound.buffer ? 0 : place->offset);
  return t;
}

struct op oplist_op(const struct oplist *l, uint32_t i) {
  struct op op = l->ops[i];
  for (uint32_t k = 0; k < op_tensors(op.kind); k++) op.t[k] = oplist_tensor(l, op.t[k]);
  return op;
}

struct tensor oplist_own_scratch(const struct oplist *l, uint32_t i, uint64_t bytes) {
  if (!bytes) return (struct tensor){0};
  struct tensor t = l->scratch;
  t.offset += l->scopes[l->ops[i].scope].used;
  t.rows = 1;
  t.cols = t.stride = (uint32_t)((bytes + 3) / 4);
  return t;
}
