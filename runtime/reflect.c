// reflect: reads a SPIR-V module word by word. Modules come from our own build, but a driver crashes on a damaged one,
// so everything is checked: ids against the bound, lengths against the module, sizes for overflow, nesting for depth.
#include "reflect.h"

#include <stdlib.h>
#include <string.h>

// The part of the SPIR-V specification that we read; numbers as there.
enum {
  MAGIC = 0x07230203,
  OP_ENTRY_POINT = 15,
  OP_EXECUTION_MODE = 16,
  OP_TYPE_BOOL = 20,
  OP_TYPE_INT = 21,
  OP_TYPE_FLOAT = 22,
  OP_TYPE_VECTOR = 23,
  OP_TYPE_MATRIX = 24,
  OP_TYPE_ARRAY = 28,
  OP_TYPE_RUNTIME_ARRAY = 29,
  OP_TYPE_STRUCT = 30,
  OP_TYPE_POINTER = 32,
  OP_CONSTANT_TRUE = 41,
  OP_CONSTANT_FALSE = 42,
  OP_CONSTANT = 43,
  OP_CONSTANT_COMPOSITE = 44,
  OP_SPEC_CONSTANT_TRUE = 48,
  OP_SPEC_CONSTANT_FALSE = 49,
  OP_SPEC_CONSTANT = 50,
  OP_SPEC_CONSTANT_COMPOSITE = 51,
  OP_SPEC_CONSTANT_OP = 52,
  OP_FUNCTION = 54,
  OP_VARIABLE = 59,
  OP_DECORATE = 71,
  OP_MEMBER_DECORATE = 72,
  OP_EXECUTION_MODE_ID = 331,

  MODEL_COMPUTE = 5,
  MODE_LOCAL_SIZE = 17,
  MODE_LOCAL_SIZE_ID = 38,

  CLASS_UNIFORM_CONSTANT = 0,
  CLASS_UNIFORM = 2,
  CLASS_WORKGROUP = 4,
  CLASS_PUSH_CONSTANT = 9,
  CLASS_STORAGE_BUFFER = 12,

  DECORATION_SPEC_ID = 1,
  DECORATION_ARRAY_STRIDE = 6,
  DECORATION_MATRIX_STRIDE = 7,
  DECORATION_BUILT_IN = 11,
  DECORATION_NON_WRITABLE = 24,
  DECORATION_NON_READABLE = 25,
  DECORATION_BINDING = 33,
  DECORATION_DESCRIPTOR_SET = 34,
  DECORATION_OFFSET = 35,
  BUILT_IN_WORKGROUP_SIZE = 25,

  MAX_DEPTH = 16,      // of nested types and of constant expressions
  MAX_BYTES = 1 << 30, // of any one type: larger ones are mistakes
  MAX_STEPS = 1 << 16,
  MAX_PUSH_BYTES = 4096,
};

struct module {
  const char *name;
  const uint32_t *words;
  uint64_t count, declarations; // declarations: words before the first function
  uint32_t bound;
  uint32_t *definition; // (bound): word where the instruction that makes this id begins, 0: none among declarations
  const uint32_t *spec; // values by id, or NULL: the module's own defaults
  uint32_t spec_count;
  uint32_t steps; // types and constants looked at so far: nesting must not multiply into hours
};

static deltaic_status malformed(struct module *m, const char *why) {
  return fail(DELTAIC_INTERNAL, "shader %s: %s", m->name, why);
}

static uint32_t opcode(const uint32_t *at) { return at[0] & 0xffff; }
static uint32_t length(const uint32_t *at) { return at[0] >> 16; }

// ---------------------------------------------------------------- walking

// Which word of the instruction is its result, 0 when we do not follow it; least: words that it must have.
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

static deltaic_status index_definitions(struct module *m) {
  m->declarations = m->count;
  for (uint64_t at = 5; at < m->count;) {
    const uint32_t *w = m->words + at;
    uint32_t least, word = result_word(opcode(w), &least);
    if (length(w) == 0 || length(w) > m->count - at) return malformed(m, "an instruction passes the end of the module");
    if (length(w) < least) return malformed(m, "an instruction is too short");
    if (opcode(w) == OP_FUNCTION && m->declarations == m->count) m->declarations = at;
    if (word && m->declarations == m->count) {
      if (w[word] == 0 || w[word] >= m->bound) return malformed(m, "an id is out of bounds");
      if (m->definition[w[word]]) return malformed(m, "an id is defined twice");
      m->definition[w[word]] = (uint32_t)at;
    }
    at += length(w);
  }
  return DELTAIC_OK;
}

static deltaic_status module_open(struct module *m, const char *name, const uint32_t *words, uint64_t count) {
  *m = (struct module){.name = name, .words = words, .count = count};
  if (!words || count < 5 || words[0] != MAGIC) return malformed(m, "this is not SPIR-V");
  if (count > UINT32_MAX) return malformed(m, "the module is too large");
  m->bound = words[3];
  // An id takes an instruction of at least two words to define.
  if (m->bound < 2 || m->bound > count) return malformed(m, "the bound of ids does not fit the module");
  m->definition = calloc(m->bound, sizeof *m->definition);
  if (!m->definition) return fail_memory("a shader's ids", m->bound * sizeof *m->definition);
  return index_definitions(m);
}

static void module_close(struct module *m) { free(m->definition); }

// The instruction that defines an id, NULL when it is none that we follow.
static const uint32_t *define(struct module *m, uint32_t id) {
  return id < m->bound && m->definition[id] ? m->words + m->definition[id] : NULL;
}

// The next declaration with this opcode at or after *at, which is then moved past it; NULL at the end.
static const uint32_t *next(struct module *m, uint64_t *at, uint32_t op) {
  while (*at < m->declarations) {
    const uint32_t *w = m->words + *at;
    *at += length(w);
    if (opcode(w) == op) return w;
  }
  return NULL;
}

// Is `id` decorated so? Its first operand goes to *value, which may be NULL where the decoration has none.
static bool decorated(struct module *m, uint32_t id, uint32_t decoration, uint32_t *value) {
  uint64_t at = 5;
  for (const uint32_t *w; (w = next(m, &at, OP_DECORATE));) {
    if (w[1] != id || w[2] != decoration || (value && length(w) < 4)) continue;
    if (value) *value = w[3];
    return true;
  }
  return false;
}

static bool member_decorated(struct module *m, uint32_t id, uint32_t member, uint32_t decoration, uint32_t *value) {
  uint64_t at = 5;
  for (const uint32_t *w; (w = next(m, &at, OP_MEMBER_DECORATE));) {
    if (w[1] != id || w[2] != member || w[3] != decoration || (value && length(w) < 5)) continue;
    if (value) *value = w[4];
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- constants

static bool evaluate(struct module *m, uint32_t id, int depth, uint32_t *value);

// w: OpSpecConstantOp; x: its operands' values, n of them (3 at most).
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

// gl_WorkGroupSize.x in a constant expression.
static bool evaluate_extract(struct module *m, const uint32_t *w, int depth, uint32_t *value) {
  if (length(w) != 6) return false;
  const uint32_t *composite = define(m, w[4]);
  if (!composite || (opcode(composite) != OP_CONSTANT_COMPOSITE && opcode(composite) != OP_SPEC_CONSTANT_COMPOSITE))
    return false;
  return w[5] < length(composite) - 3 && evaluate(m, composite[3 + w[5]], depth + 1, value);
}

static bool evaluate_operation(struct module *m, const uint32_t *w, int depth, uint32_t *value) {
  enum { OP_COMPOSITE_EXTRACT = 81 };
  if (w[3] == OP_COMPOSITE_EXTRACT) return evaluate_extract(m, w, depth, value);
  uint32_t n = length(w) - 4, x[3] = {0};
  if (n < 1 || n > 3) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!evaluate(m, w[4 + i], depth + 1, &x[i])) return false;
  return evaluate_op(w, x, n, value);
}

// The value of a 32-bit or boolean constant, false when it is none or is computed in a way we do not follow.
static bool evaluate(struct module *m, uint32_t id, int depth, uint32_t *value) {
  const uint32_t *w = depth < MAX_DEPTH && m->steps++ < MAX_STEPS ? define(m, id) : NULL;
  uint32_t spec_id;
  if (!w) return false;
  bool given = m->spec && decorated(m, id, DECORATION_SPEC_ID, &spec_id) && spec_id < m->spec_count;
  switch (opcode(w)) {
  case OP_CONSTANT_TRUE: return *value = 1, true;
  case OP_CONSTANT_FALSE: return *value = 0, true;
  case OP_SPEC_CONSTANT_TRUE: return *value = given ? m->spec[spec_id] : 1, true;
  case OP_SPEC_CONSTANT_FALSE: return *value = given ? m->spec[spec_id] : 0, true;
  case OP_CONSTANT: return *value = w[3], length(w) == 4;
  case OP_SPEC_CONSTANT: return *value = given ? m->spec[spec_id] : w[3], length(w) == 4;
  case OP_SPEC_CONSTANT_OP: return evaluate_operation(m, w, depth, value);
  default: return false;
  }
}

// ---------------------------------------------------------------- types

// Bytes of a type, false when it has no fixed size or none that fits. explicit: as a block lays it out, by the offsets
// and strides that decorate it; else packed, for shared memory.
static bool type_bytes(struct module *m, uint32_t id, bool explicit, int depth, uint64_t *bytes);

static bool array_bytes(struct module *m, const uint32_t *w, bool explicit, int depth, uint64_t *bytes) {
  uint64_t element;
  uint32_t count, stride = 0;
  if (!evaluate(m, w[3], 0, &count) || !type_bytes(m, w[2], explicit, depth + 1, &element)) return false;
  if (explicit && !decorated(m, w[1], DECORATION_ARRAY_STRIDE, &stride)) return false;
  return size_mul(explicit ? stride : element, count, bytes) && *bytes <= MAX_BYTES;
}

static bool matrix_bytes(struct module *m, const uint32_t *w, int depth, uint64_t *bytes) {
  uint64_t column;
  if (!type_bytes(m, w[2], false, depth + 1, &column)) return false;
  return size_mul(column, w[3], bytes) && *bytes <= MAX_BYTES;
}

static bool struct_bytes(struct module *m, const uint32_t *w, bool explicit, int depth, uint64_t *bytes) {
  *bytes = 0;
  for (uint32_t i = 0; i + 2 < length(w); i++) {
    uint64_t member, end;
    uint32_t offset = 0, stride = 0;
    if (!type_bytes(m, w[2 + i], explicit, depth + 1, &member)) return false;
    if (explicit && !member_decorated(m, w[1], i, DECORATION_OFFSET, &offset)) return false;
    const uint32_t *type = define(m, w[2 + i]);
    if (explicit && type && opcode(type) == OP_TYPE_MATRIX &&
        member_decorated(m, w[1], i, DECORATION_MATRIX_STRIDE, &stride))
      member = (uint64_t)stride * type[3];
    end = explicit ? offset + member : *bytes + member;
    if (end > MAX_BYTES) return false;
    if (end > *bytes) *bytes = end;
  }
  return true;
}

static bool type_bytes(struct module *m, uint32_t id, bool explicit, int depth, uint64_t *bytes) {
  const uint32_t *w = depth < MAX_DEPTH && m->steps++ < MAX_STEPS ? define(m, id) : NULL;
  if (!w) return false;
  switch (opcode(w)) {
  case OP_TYPE_BOOL: return *bytes = 4, true;
  case OP_TYPE_INT:
  case OP_TYPE_FLOAT: return *bytes = w[2] / 8, w[2] >= 8 && w[2] <= 64;
  case OP_TYPE_VECTOR:
    return w[3] >= 2 && w[3] <= 4 && type_bytes(m, w[2], explicit, depth + 1, bytes) && (*bytes *= w[3], true);
  case OP_TYPE_MATRIX: return matrix_bytes(m, w, depth, bytes);
  case OP_TYPE_ARRAY: return array_bytes(m, w, explicit, depth, bytes);
  case OP_TYPE_STRUCT: return struct_bytes(m, w, explicit, depth, bytes);
  default: return false;
  }
}

// The type that a variable's pointer points to.
static const uint32_t *pointee(struct module *m, const uint32_t *variable) {
  const uint32_t *pointer = define(m, variable[1]);
  if (!pointer || opcode(pointer) != OP_TYPE_POINTER) return NULL;
  return define(m, pointer[3]);
}

// ---------------------------------------------------------------- what is bound

// glslang decorates the members of a `readonly buffer`, other compilers the variable.
static bool denies(struct module *m, uint32_t variable, const uint32_t *block, uint32_t decoration) {
  if (decorated(m, variable, decoration, NULL)) return true;
  for (uint32_t i = 0; i + 2 < length(block); i++)
    if (!member_decorated(m, block[1], i, decoration, NULL)) return false;
  return length(block) > 2;
}

static deltaic_status add_buffer(struct module *m, const uint32_t *variable, uint32_t *seen, struct reflection *out) {
  const uint32_t *block = pointee(m, variable);
  uint32_t set, binding;
  if (!block || opcode(block) != OP_TYPE_STRUCT) return malformed(m, "a buffer is not one block");
  if (!decorated(m, variable[2], DECORATION_DESCRIPTOR_SET, &set) ||
      !decorated(m, variable[2], DECORATION_BINDING, &binding))
    return malformed(m, "a buffer has no set or no binding");
  if (set != 0) return malformed(m, "only descriptor set 0 is bound");
  if (binding >= REFLECT_BINDINGS) return malformed(m, "a binding is beyond the 16 that are supported");
  // Two views of one binding, as uint and as vec4 say, share it.
  out->reads[binding] |= !denies(m, variable[2], block, DECORATION_NON_READABLE);
  out->writes[binding] |= !denies(m, variable[2], block, DECORATION_NON_WRITABLE);
  *seen |= 1u << binding;
  return DELTAIC_OK;
}

static deltaic_status add_push(struct module *m, const uint32_t *variable, struct reflection *out) {
  const uint32_t *block = pointee(m, variable);
  uint64_t bytes;
  if (!block || opcode(block) != OP_TYPE_STRUCT || !type_bytes(m, block[1], true, 0, &bytes))
    return malformed(m, "the push constants have no fixed size");
  if (bytes > MAX_PUSH_BYTES || out->push_bytes) return malformed(m, "the push constants are too large or twice there");
  out->push_bytes = (uint32_t)bytes;
  return DELTAIC_OK;
}

static deltaic_status add_variables(struct module *m, struct reflection *out) {
  uint64_t at = 5;
  uint32_t seen = 0;
  deltaic_status status = DELTAIC_OK;
  for (const uint32_t *w; !status && (w = next(m, &at, OP_VARIABLE));) {
    switch (w[3]) {
    case CLASS_STORAGE_BUFFER: status = add_buffer(m, w, &seen, out); break;
    case CLASS_PUSH_CONSTANT: status = add_push(m, w, out); break;
    case CLASS_UNIFORM:
    case CLASS_UNIFORM_CONSTANT: return malformed(m, "it binds something other than storage buffers");
    default: break;
    }
  }
  if (status) return status;
  while (seen >> out->bindings & 1) out->bindings++;
  if (seen >> out->bindings) return malformed(m, "its bindings have a gap");
  return DELTAIC_OK;
}

static deltaic_status add_spec(struct module *m, uint32_t id, struct reflection *out) {
  uint32_t at = 0;
  while (at < out->spec_count && out->spec_id[at] < id) at++;
  if (at < out->spec_count && out->spec_id[at] == id) return DELTAIC_OK; // the workgroup size, and a copy of it
  if (out->spec_count == REFLECT_SPEC) return malformed(m, "it has more than 24 specialization constants");
  memmove(&out->spec_id[at + 1], &out->spec_id[at], (out->spec_count - at) * sizeof out->spec_id[0]);
  out->spec_id[at] = id;
  out->spec_count++;
  return DELTAIC_OK;
}

static deltaic_status add_specs(struct module *m, struct reflection *out) {
  uint64_t at = 5;
  deltaic_status status = DELTAIC_OK;
  for (const uint32_t *w; !status && (w = next(m, &at, OP_DECORATE));) {
    if (w[2] != DECORATION_SPEC_ID) continue;
    const uint32_t *constant = define(m, w[1]);
    if (length(w) < 4 || !constant) return malformed(m, "a specialization constant is not defined");
    uint32_t op = opcode(constant);
    bool word = op == OP_SPEC_CONSTANT && length(constant) == 4;
    if (!word && op != OP_SPEC_CONSTANT_TRUE && op != OP_SPEC_CONSTANT_FALSE)
      return malformed(m, "a specialization constant does not have 32 bits");
    status = add_spec(m, w[3], out);
  }
  return status;
}

// ---------------------------------------------------------------- workgroup

// Ids of the three constants that make the workgroup's size; false when it is given by numbers (then in numbers).
static bool workgroup_ids(struct module *m, uint32_t ids[3]) {
  uint64_t at = 5;
  for (const uint32_t *w; (w = next(m, &at, OP_DECORATE));) { // BuiltIn WorkgroupSize goes before the execution mode
    if (length(w) < 4 || w[2] != DECORATION_BUILT_IN || w[3] != BUILT_IN_WORKGROUP_SIZE) continue;
    const uint32_t *c = define(m, w[1]);
    if (!c || length(c) != 6 || (opcode(c) != OP_SPEC_CONSTANT_COMPOSITE && opcode(c) != OP_CONSTANT_COMPOSITE))
      return false;
    memcpy(ids, c + 3, 3 * sizeof *ids);
    return true;
  }
  at = 5;
  for (const uint32_t *w; (w = next(m, &at, OP_EXECUTION_MODE_ID));) {
    if (w[2] != MODE_LOCAL_SIZE_ID || length(w) != 6) continue;
    memcpy(ids, w + 3, 3 * sizeof *ids);
    return true;
  }
  return false;
}

static bool is_spec(struct module *m, uint32_t id) {
  const uint32_t *w = define(m, id);
  return w && opcode(w) >= OP_SPEC_CONSTANT_TRUE && opcode(w) <= OP_SPEC_CONSTANT_OP;
}

static bool workgroup_size(struct module *m, uint32_t size[3]) {
  uint32_t ids[3];
  if (workgroup_ids(m, ids)) {
    for (int i = 0; i < 3; i++)
      if (!evaluate(m, ids[i], 0, &size[i])) return false;
    return true;
  }
  uint64_t at = 5;
  for (const uint32_t *w; (w = next(m, &at, OP_EXECUTION_MODE));) {
    if (w[2] != MODE_LOCAL_SIZE || length(w) != 6) continue;
    memcpy(size, w + 3, 3 * sizeof *size);
    return true;
  }
  return false;
}

static deltaic_status check_entry(struct module *m) {
  uint64_t at = 5;
  const uint32_t *w = next(m, &at, OP_ENTRY_POINT);
  const char main_name[8] = "main"; // and its NUL, in two words
  if (!w || length(w) < 5 || w[1] != MODEL_COMPUTE || memcmp(w + 3, main_name, sizeof main_name))
    return malformed(m, "it has no compute entry point called main");
  if (next(m, &at, OP_ENTRY_POINT)) return malformed(m, "it has more than one entry point");
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- interface

deltaic_status reflect(const char *name, const uint32_t *words, uint64_t count, struct reflection *out) {
  struct reflection found = {0};
  struct module m;
  uint32_t ids[3], size[3];
  deltaic_status status = module_open(&m, name, words, count);
  if (!status) status = check_entry(&m);
  if (!status) status = add_variables(&m, &found);
  if (!status) status = add_specs(&m, &found);
  if (!status && !workgroup_size(&m, size)) status = malformed(&m, "its workgroup has no size");
  if (!status && workgroup_ids(&m, ids))
    found.spec_workgroup = is_spec(&m, ids[0]) || is_spec(&m, ids[1]) || is_spec(&m, ids[2]);
  module_close(&m);
  if (!status) *out = found;
  return status;
}

static deltaic_status add_shared(struct module *m, uint64_t *total) {
  uint64_t at = 5, bytes;
  *total = 0;
  for (const uint32_t *w; (w = next(m, &at, OP_VARIABLE));) {
    if (w[3] != CLASS_WORKGROUP) continue;
    const uint32_t *type = pointee(m, w);
    if (!type || !type_bytes(m, type[1], false, 0, &bytes) || !size_add(*total, (bytes + 15) & ~(uint64_t)15, total))
      return malformed(m, "a shared variable's size cannot be told");
  }
  return DELTAIC_OK;
}

deltaic_status reflect_size(const char *name, const uint32_t *words, uint64_t count, const uint32_t *spec,
                            uint32_t spec_count, struct reflected_size *out) {
  struct reflected_size found = {0};
  struct module m;
  deltaic_status status = module_open(&m, name, words, count);
  m.spec = spec;
  m.spec_count = spec_count;
  if (!status && !workgroup_size(&m, found.workgroup)) status = malformed(&m, "its workgroup has no size");
  if (!status) status = add_shared(&m, &found.shared_bytes);
  module_close(&m);
  if (!status) *out = found;
  return status;
}
