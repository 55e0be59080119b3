// spirv: reads a SPIR-V module instruction by instruction and evaluates its constants.
#include "spirv.h"

#include <stdlib.h>

deltaic_status spirv_malformed(struct spirv *m, const char *why) {
  return fail(DELTAIC_INTERNAL, "shader %s: %s", m->name, why);
}

// Returns which word of the instruction is the result id; 0: none that we need. least: the minimum number of words.
static uint32_t result_word(uint32_t op, uint32_t *least) {
  switch (op) {
  case OP_TYPE_BOOL:
  case OP_TYPE_STRUCT: return *least = 2, 1;
  case OP_TYPE_FLOAT:
  case OP_TYPE_RUNTIME_ARRAY: return *least = 3, 1;
  case OP_TYPE_INT:
  case OP_TYPE_VECTOR:
  case OP_TYPE_MATRIX:
  case OP_TYPE_ARRAY:
  case OP_TYPE_POINTER: return *least = 4, 1;
  case OP_CONSTANT_TRUE:
  case OP_CONSTANT_FALSE:
  case OP_CONSTANT_COMPOSITE:
  case OP_SPEC_CONSTANT_TRUE:
  case OP_SPEC_CONSTANT_FALSE:
  case OP_SPEC_CONSTANT_COMPOSITE: return *least = 3, 2;
  case OP_CONSTANT:
  case OP_SPEC_CONSTANT:
  case OP_SPEC_CONSTANT_OP:
  case OP_VARIABLE: return *least = 4, 2;
  case OP_DECORATE:
  case OP_ENTRY_POINT: return *least = op == OP_DECORATE ? 3 : 4, 0;
  case OP_MEMBER_DECORATE: return *least = 4, 0;
  case OP_EXECUTION_MODE:
  case OP_EXECUTION_MODE_ID: return *least = 3, 0;
  default: return *least = 1, 0;
  }
}

static deltaic_status index_definitions(struct spirv *m) {
  m->declarations = m->count;
  for (uint64_t at = 5; at < m->count;) {
    const uint32_t *w = m->words + at;
    uint32_t least, word = result_word(spirv_opcode(w), &least);
    if (spirv_length(w) == 0 || spirv_length(w) > m->count - at)
      return spirv_malformed(m, "an instruction passes the end of the module");
    if (spirv_length(w) < least) return spirv_malformed(m, "an instruction is too short");
    if (spirv_opcode(w) == OP_FUNCTION && m->declarations == m->count) m->declarations = at;
    if (word && m->declarations == m->count) {
      if (w[word] == 0 || w[word] >= m->bound) return spirv_malformed(m, "an id is out of bounds");
      if (m->definition[w[word]]) return spirv_malformed(m, "an id is defined twice");
      m->definition[w[word]] = (uint32_t)at;
    }
    at += spirv_length(w);
  }
  return DELTAIC_OK;
}

deltaic_status spirv_open(struct spirv *m, const char *name, const uint32_t *words, uint64_t count) {
  *m = (struct spirv){.name = name, .words = words, .count = count};
  if (!words || count < 5 || words[0] != MAGIC) return spirv_malformed(m, "this is not SPIR-V");
  if (count > UINT32_MAX) return spirv_malformed(m, "the module is too large");
  m->bound = words[3];
  // An instruction of at least two words defines each id, so there are fewer ids than words.
  if (m->bound < 2 || m->bound > count) return spirv_malformed(m, "the bound of ids does not fit the module");
  m->definition = calloc(m->bound, sizeof *m->definition);
  if (!m->definition) return fail_memory("a shader's ids", m->bound * sizeof *m->definition);
  return index_definitions(m);
}

void spirv_close(struct spirv *m) { free(m->definition); }

const uint32_t *spirv_define(struct spirv *m, uint32_t id) {
  return id < m->bound && m->definition[id] ? m->words + m->definition[id] : NULL;
}

const uint32_t *spirv_next(struct spirv *m, uint64_t *at, uint32_t op) {
  while (*at < m->declarations) {
    const uint32_t *w = m->words + *at;
    *at += spirv_length(w);
    if (spirv_opcode(w) == op) return w;
  }
  return NULL;
}

bool spirv_decorated(struct spirv *m, uint32_t id, uint32_t decoration, uint32_t *value) {
  uint64_t at = 5;
  for (const uint32_t *w; (w = spirv_next(m, &at, OP_DECORATE));) {
    if (w[1] != id || w[2] != decoration || (value && spirv_length(w) < 4)) continue;
    if (value) *value = w[3];
    return true;
  }
  return false;
}

bool spirv_member_decorated(struct spirv *m, uint32_t id, uint32_t member, uint32_t decoration, uint32_t *value) {
  uint64_t at = 5;
  for (const uint32_t *w; (w = spirv_next(m, &at, OP_MEMBER_DECORATE));) {
    if (w[1] != id || w[2] != member || w[3] != decoration || (value && spirv_length(w) < 5)) continue;
    if (value) *value = w[4];
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- constants

// Evaluates w, an OpSpecConstantOp. x: the values of its n <= 3 operands.
static bool evaluate_op(const uint32_t *w, const uint32_t *x, uint32_t n, uint32_t *value) {
  uint32_t a = x[0], b = x[1];
  int32_t sa = (int32_t)a, sb = (int32_t)b;
  bool divides = b && !(a == 0x80000000 && b == UINT32_MAX);
  bool unary = w[3] < 128 || w[3] == 168 || w[3] == 200, select = w[3] == 169;
  if (n != (unary ? 1 : select ? 3 : 2)) return false;
  switch (w[3]) {
  case 113: // OpUConvert, OpSConvert, OpBitcast: all our integers have 32 bits
  case 114:
  case 124: return *value = a, true;
  case 126: return *value = 0 - a, true;                            // OpSNegate
  case 128: return *value = a + b, true;                            // OpIAdd
  case 130: return *value = a - b, true;                            // OpISub
  case 132: return *value = a * b, true;                            // OpIMul
  case 134: return b && (*value = a / b, true);                     // OpUDiv
  case 135: return divides && (*value = (uint32_t)(sa / sb), true); // OpSDiv
  case 137: return b && (*value = a % b, true);                     // OpUMod
  case 138: return divides && (*value = (uint32_t)(sa % sb), true); // OpSRem
  case 164: return *value = !a == !b, true;                         // OpLogicalEqual
  case 165: return *value = !a != !b, true;                         // OpLogicalNotEqual
  case 166: return *value = a || b, true;                           // OpLogicalOr
  case 167: return *value = a && b, true;                           // OpLogicalAnd
  case 168: return *value = !a, true;                               // OpLogicalNot
  case 169: return *value = a ? b : x[2], true;                     // OpSelect
  case 170: return *value = a == b, true;                           // OpIEqual
  case 171: return *value = a != b, true;                           // OpINotEqual
  case 172: return *value = a > b, true;                            // OpUGreaterThan
  case 173: return *value = sa > sb, true;                          // OpSGreaterThan
  case 174: return *value = a >= b, true;                           // OpUGreaterThanEqual
  case 175: return *value = sa >= sb, true;                         // OpSGreaterThanEqual
  case 176: return *value = a < b, true;                            // OpULessThan
  case 177: return *value = sa < sb, true;                          // OpSLessThan
  case 178: return *value = a <= b, true;                           // OpULessThanEqual
  case 179: return *value = sa <= sb, true;                         // OpSLessThanEqual
  case 194: return b < 32 && (*value = a >> b, true);               // OpShiftRightLogical
  case 196: return b < 32 && (*value = a << b, true);               // OpShiftLeftLogical
  case 197: return *value = a | b, true;                            // OpBitwiseOr
  case 198: return *value = a ^ b, true;                            // OpBitwiseXor
  case 199: return *value = a & b, true;                            // OpBitwiseAnd
  case 200: return *value = ~a, true;                               // OpNot
  default: return false;
  }
}

// Evaluates an element of a composite, e.g. gl_WorkGroupSize.x.
static bool evaluate_extract(struct spirv *m, const uint32_t *w, int depth, uint32_t *value) {
  if (spirv_length(w) != 6) return false;
  const uint32_t *composite = spirv_define(m, w[4]);
  if (!composite ||
      (spirv_opcode(composite) != OP_CONSTANT_COMPOSITE && spirv_opcode(composite) != OP_SPEC_CONSTANT_COMPOSITE))
    return false;
  return w[5] < spirv_length(composite) - 3 && spirv_evaluate(m, composite[3 + w[5]], depth + 1, value);
}

static bool evaluate_operation(struct spirv *m, const uint32_t *w, int depth, uint32_t *value) {
  enum { OP_COMPOSITE_EXTRACT = 81 };
  if (w[3] == OP_COMPOSITE_EXTRACT) return evaluate_extract(m, w, depth, value);
  uint32_t n = spirv_length(w) - 4, x[3] = {0};
  if (n < 1 || n > 3) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!spirv_evaluate(m, w[4 + i], depth + 1, &x[i])) return false;
  return evaluate_op(w, x, n, value);
}

bool spirv_evaluate(struct spirv *m, uint32_t id, int depth, uint32_t *value) {
  const uint32_t *w = depth < MAX_DEPTH && m->steps++ < MAX_STEPS ? spirv_define(m, id) : NULL;
  uint32_t spec_id;
  if (!w) return false;
  bool given = m->spec && spirv_decorated(m, id, DECORATION_SPEC_ID, &spec_id) && spec_id < m->spec_count;
  switch (spirv_opcode(w)) {
  case OP_CONSTANT_TRUE: return *value = 1, true;
  case OP_CONSTANT_FALSE: return *value = 0, true;
  case OP_SPEC_CONSTANT_TRUE: return *value = given ? m->spec[spec_id] : 1, true;
  case OP_SPEC_CONSTANT_FALSE: return *value = given ? m->spec[spec_id] : 0, true;
  case OP_CONSTANT: return *value = w[3], spirv_length(w) == 4;
  case OP_SPEC_CONSTANT: return *value = given ? m->spec[spec_id] : w[3], spirv_length(w) == 4;
  case OP_SPEC_CONSTANT_OP: return evaluate_operation(m, w, depth, value);
  default: return false;
  }
}
