// quant_types: the table of types, and the format that a type gives to each tensor. The mixtures are those of the files
// that people share: names that end in _m give more bits to tensors whose errors cost most.
#include "quantize.h"

#include <string.h>
#include <strings.h>

#define ALL(name, about, dtype, number)                                                                                \
  { name, about, dtype, dtype, dtype, number }
#define HEAD_Q6_K(name, about, dtype, number)                                                                          \
  { name, about, dtype, dtype, DTYPE_Q6_K, number }
static const struct quant_type types[] = {
    ALL("f32", "32 bits: exact", DTYPE_F32, 0),
    ALL("f16", "16 bits, 11 of precision", DTYPE_F16, 1),
    ALL("bf16", "16 bits, 8 of precision and the range of f32: exact for most models as published", DTYPE_BF16, 32),
    ALL("q8_0", "8.5 bits: next to no loss", DTYPE_Q8_0, 7),
    ALL("q6_k", "6.6 bits", DTYPE_Q6_K, 18),
    {"q5_k_m", "5.7 bits: q5_k, with q6_k where errors cost most", DTYPE_Q5_K, DTYPE_Q6_K, DTYPE_Q6_K, 17},
    HEAD_Q6_K("q5_k", "5.5 bits, the output head in q6_k", DTYPE_Q5_K, 16),
    HEAD_Q6_K("q5_0", "5.5 bits, simpler blocks; the output head in q6_k", DTYPE_Q5_0, 8),
    {"q4_k_m", "4.8 bits: q4_k, with q6_k where errors cost most; what most people use", DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q6_K,
     15},
    HEAD_Q6_K("q4_k", "4.5 bits, the output head in q6_k", DTYPE_Q4_K, 14),
    HEAD_Q6_K("q4_0", "4.5 bits, simpler blocks; the output head in q6_k", DTYPE_Q4_0, 2),
    HEAD_Q6_K("iq4_nl", "4.5 bits, from a table of values; the output head in q6_k", DTYPE_IQ4_NL, 25),
    HEAD_Q6_K("iq4_xs", "4.25 bits, from the same table; the output head in q6_k", DTYPE_IQ4_XS, 30),
};

const struct quant_type *quant_type_at(size_t i) { return i < sizeof types / sizeof *types ? &types[i] : NULL; }

const struct quant_type *quant_type_find(const char *name) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcasecmp(types[i].name, name)) return &types[i];
  return NULL;
}

// ---------------------------------------------------------------- one tensor

// Whether more bits go to the tensor with this index among `count` of its kind: the first and the last eighth, and
// every third between them.
static bool has_more(size_t index, size_t count) {
  return index < count / 8 || index >= 7 * count / 8 || (index - count / 8) % 3 == 2;
}

// The roles of which some layers have more, and what was found for the last layer: a layer may have hundreds of
// experts.
static const enum role roles_with_more[] = {ROLE_V, ROLE_FFN_DOWN, ROLE_EXPERTS_DOWN, ROLE_SHARED_DOWN};
enum { ROLES_WITH_MORE = sizeof roles_with_more / sizeof *roles_with_more };
struct last_choice {
  bool made, more;
  uint32_t layer;
};

// A tensor that has queries, keys and values counts as values.
static enum role role_of(const struct quant_tensor *t) {
  const char *end = "attn_qkv.weight";
  const size_t length = strlen(t->name), tail = strlen(end);
  return length >= tail && !strcmp(t->name + length - tail, end) ? ROLE_V : t->role;
}

static bool has_more_of_layer(const struct quant *q, const struct quant_tensor *t) {
  const enum role role = role_of(t);
  size_t index = 0, count = 0;
  int64_t before = -1;
  for (size_t i = 0; i < q->count; i++) { // a layer's experts may be a list of tensors, one after the other
    const struct quant_tensor *other = &q->tensors[i];
    if (!other->known || role_of(other) != role || other->layer == before) continue;
    before = other->layer;
    index += other->layer < t->layer;
    count++;
  }
  return has_more(index, count);
}

static bool chosen_for_more(const struct quant *q, const struct quant_tensor *t, struct last_choice *choices) {
  int i = 0;
  while (i < ROLES_WITH_MORE && roles_with_more[i] != role_of(t)) i++;
  if (i == ROLES_WITH_MORE) return false;
  struct last_choice *last = &choices[i];
  if (!last->made || last->layer != t->layer) *last = (struct last_choice){true, has_more_of_layer(q, t), t->layer};
  return last->more;
}

// Projections to one number a head: few bytes, and the recurrence depends on them.
static bool is_small(enum role role) {
  return role == ROLE_BETA || role == ROLE_DECAY || role == ROLE_MASK || role == ROLE_DT;
}

static bool is_matrix(enum role role) {
  switch (role) {
  case ROLE_EMBEDDING:
  case ROLE_EXPERTS_GATE_UP:
  case ROLE_EXPERTS_GATE:
  case ROLE_EXPERTS_UP:
  case ROLE_EXPERTS_DOWN: return true;
  case ROLE_ROUTER:
  case ROLE_SHARED_SCALE: return false;
  default: return role_is_projection(role);
  }
}

static enum dtype wanted_of(const struct quant *q, const struct quant_tensor *t, struct last_choice *choices) {
  const struct quant_type *type = q->type;
  if (!t->known || t->rank < 2 || !is_matrix(t->role)) return DTYPE_F32;
  if (t->role == ROLE_HEAD || (t->role == ROLE_EMBEDDING && q->spec.tied)) return type->head;
  if (is_small(t->role) && dtype_is_blocks(type->usual)) return DTYPE_Q8_0;
  return chosen_for_more(q, t, choices) ? type->more : type->usual;
}

// The narrowest wider format whose blocks fit into rows of n.
static enum dtype fitting(enum dtype dtype, uint64_t n) {
  if (n % formats[dtype].elements == 0) return dtype;
  if (n % formats[DTYPE_Q8_0].elements) return DTYPE_F16;
  return dtype == DTYPE_Q4_K ? DTYPE_Q5_0 : dtype == DTYPE_IQ4_XS ? DTYPE_IQ4_NL : DTYPE_Q8_0;
}

void quant_choose(struct quant *q) {
  struct last_choice choices[ROLES_WITH_MORE] = {0};
  for (size_t i = 0; i < q->count; i++) {
    struct quant_tensor *t = &q->tensors[i];
    t->wanted = wanted_of(q, t, choices);
    t->dtype = fitting(t->wanted, quant_columns(t));
  }
}
