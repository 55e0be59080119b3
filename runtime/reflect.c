// reflect: reads a SPIR-V module. Our build makes the modules, but drivers crash on damaged ones, so it checks
// everything: ids against the bound, lengths against the module (spirv.c), sizes for overflow, depth of nesting.
#include "reflect.h"

#include "spirv.h"

#include <string.h>

enum {
  MAX_BYTES = 1 << 30, // of one type; larger ones are errors
  MAX_PUSH_BYTES = 4096,
};

// ---------------------------------------------------------------- types

// Computes the bytes of a type; false if it has no fixed size or is too large. explicit: with the offsets and strides
// of a block; otherwise packed, for shared memory.
static bool type_bytes(struct spirv *m, uint32_t id, bool explicit, int depth, uint64_t *bytes);

static bool array_bytes(struct spirv *m, const uint32_t *w, bool explicit, int depth, uint64_t *bytes) {
  uint64_t element;
  uint32_t count, stride = 0;
  if (!spirv_evaluate(m, w[3], 0, &count) || !type_bytes(m, w[2], explicit, depth + 1, &element)) return false;
  if (explicit && !spirv_decorated(m, w[1], DECORATION_ARRAY_STRIDE, &stride)) return false;
  return size_mul(explicit ? stride : element, count, bytes) && *bytes <= MAX_BYTES;
}

static bool matrix_bytes(struct spirv *m, const uint32_t *w, int depth, uint64_t *bytes) {
  uint64_t column;
  if (!type_bytes(m, w[2], false, depth + 1, &column)) return false;
  return size_mul(column, w[3], bytes) && *bytes <= MAX_BYTES;
}

static bool struct_bytes(struct spirv *m, const uint32_t *w, bool explicit, int depth, uint64_t *bytes) {
  *bytes = 0;
  for (uint32_t i = 0; i + 2 < spirv_length(w); i++) {
    uint64_t member, end;
    uint32_t offset = 0, stride = 0;
    if (!type_bytes(m, w[2 + i], explicit, depth + 1, &member)) return false;
    if (explicit && !spirv_member_decorated(m, w[1], i, DECORATION_OFFSET, &offset)) return false;
    const uint32_t *type = spirv_define(m, w[2 + i]);
    if (explicit && type && spirv_opcode(type) == OP_TYPE_MATRIX &&
        spirv_member_decorated(m, w[1], i, DECORATION_MATRIX_STRIDE, &stride))
      member = (uint64_t)stride * type[3];
    end = explicit ? offset + member : *bytes + member;
    if (end > MAX_BYTES) return false;
    if (end > *bytes) *bytes = end;
  }
  return true;
}

static bool type_bytes(struct spirv *m, uint32_t id, bool explicit, int depth, uint64_t *bytes) {
  const uint32_t *w = depth < MAX_DEPTH && m->steps++ < MAX_STEPS ? spirv_define(m, id) : NULL;
  if (!w) return false;
  switch (spirv_opcode(w)) {
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

// Returns the type that a variable's pointer points to, or NULL.
static const uint32_t *pointee(struct spirv *m, const uint32_t *variable) {
  const uint32_t *pointer = spirv_define(m, variable[1]);
  if (!pointer || spirv_opcode(pointer) != OP_TYPE_POINTER) return NULL;
  return spirv_define(m, pointer[3]);
}

// ---------------------------------------------------------------- bindings

// Whether the decoration denies access. glslang decorates the members of a block, other compilers the variable.
static bool denies(struct spirv *m, uint32_t variable, const uint32_t *block, uint32_t decoration) {
  if (spirv_decorated(m, variable, decoration, NULL)) return true;
  for (uint32_t i = 0; i + 2 < spirv_length(block); i++)
    if (!spirv_member_decorated(m, block[1], i, decoration, NULL)) return false;
  return spirv_length(block) > 2;
}

static deltaic_status add_buffer(struct spirv *m, const uint32_t *variable, uint32_t *seen, struct reflection *out) {
  const uint32_t *block = pointee(m, variable);
  uint32_t set, binding;
  if (!block || spirv_opcode(block) != OP_TYPE_STRUCT) return spirv_malformed(m, "a buffer is not one block");
  if (!spirv_decorated(m, variable[2], DECORATION_DESCRIPTOR_SET, &set) ||
      !spirv_decorated(m, variable[2], DECORATION_BINDING, &binding))
    return spirv_malformed(m, "a buffer has no set or no binding");
  if (set != 0) return spirv_malformed(m, "only descriptor set 0 is bound");
  if (binding >= REFLECT_BINDINGS) return spirv_malformed(m, "a binding is beyond the 16 that are supported");
  // Several variables may share a binding, e.g. as uint and as vec4.
  out->reads[binding] |= !denies(m, variable[2], block, DECORATION_NON_READABLE);
  out->writes[binding] |= !denies(m, variable[2], block, DECORATION_NON_WRITABLE);
  *seen |= 1u << binding;
  return DELTAIC_OK;
}

static deltaic_status add_push(struct spirv *m, const uint32_t *variable, struct reflection *out) {
  const uint32_t *block = pointee(m, variable);
  uint64_t bytes;
  if (!block || spirv_opcode(block) != OP_TYPE_STRUCT || !type_bytes(m, block[1], true, 0, &bytes))
    return spirv_malformed(m, "the push constants have no fixed size");
  if (bytes > MAX_PUSH_BYTES || out->push_bytes)
    return spirv_malformed(m, "the push constants are too large or twice there");
  out->push_bytes = (uint32_t)bytes;
  return DELTAIC_OK;
}

static deltaic_status add_variables(struct spirv *m, struct reflection *out) {
  uint64_t at = 5;
  uint32_t seen = 0;
  deltaic_status status = DELTAIC_OK;
  for (const uint32_t *w; !status && (w = spirv_next(m, &at, OP_VARIABLE));) {
    switch (w[3]) {
    case CLASS_STORAGE_BUFFER: status = add_buffer(m, w, &seen, out); break;
    case CLASS_PUSH_CONSTANT: status = add_push(m, w, out); break;
    case CLASS_UNIFORM:
    case CLASS_UNIFORM_CONSTANT: return spirv_malformed(m, "it binds something other than storage buffers");
    default: break;
    }
  }
  if (status) return status;
  while (seen >> out->bindings & 1) out->bindings++;
  if (seen >> out->bindings) return spirv_malformed(m, "its bindings have a gap");
  return DELTAIC_OK;
}

static deltaic_status add_spec(struct spirv *m, uint32_t id, struct reflection *out) {
  uint32_t at = 0;
  while (at < out->spec_count && out->spec_id[at] < id) at++;
  if (at < out->spec_count && out->spec_id[at] == id) return DELTAIC_OK; // decorated twice, e.g. the workgroup size
  if (out->spec_count == REFLECT_SPEC) return spirv_malformed(m, "it has more than 24 specialization constants");
  memmove(&out->spec_id[at + 1], &out->spec_id[at], (out->spec_count - at) * sizeof out->spec_id[0]);
  out->spec_id[at] = id;
  out->spec_count++;
  return DELTAIC_OK;
}

static deltaic_status add_specs(struct spirv *m, struct reflection *out) {
  uint64_t at = 5;
  deltaic_status status = DELTAIC_OK;
  for (const uint32_t *w; !status && (w = spirv_next(m, &at, OP_DECORATE));) {
    if (w[2] != DECORATION_SPEC_ID) continue;
    const uint32_t *constant = spirv_define(m, w[1]);
    if (spirv_length(w) < 4 || !constant) return spirv_malformed(m, "a specialization constant is not defined");
    uint32_t op = spirv_opcode(constant);
    bool word = op == OP_SPEC_CONSTANT && spirv_length(constant) == 4;
    if (!word && op != OP_SPEC_CONSTANT_TRUE && op != OP_SPEC_CONSTANT_FALSE)
      return spirv_malformed(m, "a specialization constant does not have 32 bits");
    status = add_spec(m, w[3], out);
  }
  return status;
}

// ---------------------------------------------------------------- workgroup

// Finds the ids of the three constants of the workgroup size; false if the size is given as numbers.
static bool workgroup_ids(struct spirv *m, uint32_t ids[3]) {
  uint64_t at = 5;
  for (const uint32_t *w;
       (w = spirv_next(m, &at, OP_DECORATE));) { // BuiltIn WorkgroupSize overrides the execution mode
    if (spirv_length(w) < 4 || w[2] != DECORATION_BUILT_IN || w[3] != BUILT_IN_WORKGROUP_SIZE) continue;
    const uint32_t *c = spirv_define(m, w[1]);
    if (!c || spirv_length(c) != 6 ||
        (spirv_opcode(c) != OP_SPEC_CONSTANT_COMPOSITE && spirv_opcode(c) != OP_CONSTANT_COMPOSITE))
      return false;
    memcpy(ids, c + 3, 3 * sizeof *ids);
    return true;
  }
  at = 5;
  for (const uint32_t *w; (w = spirv_next(m, &at, OP_EXECUTION_MODE_ID));) {
    if (w[2] != MODE_LOCAL_SIZE_ID || spirv_length(w) != 6) continue;
    memcpy(ids, w + 3, 3 * sizeof *ids);
    return true;
  }
  return false;
}

static bool is_spec(struct spirv *m, uint32_t id) {
  const uint32_t *w = spirv_define(m, id);
  return w && spirv_opcode(w) >= OP_SPEC_CONSTANT_TRUE && spirv_opcode(w) <= OP_SPEC_CONSTANT_OP;
}

static bool workgroup_size(struct spirv *m, uint32_t size[3]) {
  uint32_t ids[3];
  if (workgroup_ids(m, ids)) {
    for (int i = 0; i < 3; i++)
      if (!spirv_evaluate(m, ids[i], 0, &size[i])) return false;
    return true;
  }
  uint64_t at = 5;
  for (const uint32_t *w; (w = spirv_next(m, &at, OP_EXECUTION_MODE));) {
    if (w[2] != MODE_LOCAL_SIZE || spirv_length(w) != 6) continue;
    memcpy(size, w + 3, 3 * sizeof *size);
    return true;
  }
  return false;
}

static deltaic_status check_entry(struct spirv *m) {
  uint64_t at = 5;
  const uint32_t *w = spirv_next(m, &at, OP_ENTRY_POINT);
  const char main_name[8] = "main"; // with its NUL, padded to two words
  if (!w || spirv_length(w) < 5 || w[1] != MODEL_COMPUTE || memcmp(w + 3, main_name, sizeof main_name))
    return spirv_malformed(m, "it has no compute entry point called main");
  if (spirv_next(m, &at, OP_ENTRY_POINT)) return spirv_malformed(m, "it has more than one entry point");
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- interface

deltaic_status reflect(const char *name, const uint32_t *words, uint64_t count, struct reflection *out) {
  struct reflection found = {0};
  struct spirv m;
  uint32_t ids[3], size[3];
  deltaic_status status = spirv_open(&m, name, words, count);
  if (!status) status = check_entry(&m);
  if (!status) status = add_variables(&m, &found);
  if (!status) status = add_specs(&m, &found);
  if (!status && !workgroup_size(&m, size)) status = spirv_malformed(&m, "its workgroup has no size");
  if (!status && workgroup_ids(&m, ids))
    found.spec_workgroup = is_spec(&m, ids[0]) || is_spec(&m, ids[1]) || is_spec(&m, ids[2]);
  spirv_close(&m);
  if (!status) *out = found;
  return status;
}

static deltaic_status add_shared(struct spirv *m, uint64_t *total) {
  uint64_t at = 5, bytes;
  *total = 0;
  for (const uint32_t *w; (w = spirv_next(m, &at, OP_VARIABLE));) {
    if (w[3] != CLASS_WORKGROUP) continue;
    const uint32_t *type = pointee(m, w);
    if (!type || !type_bytes(m, type[1], false, 0, &bytes) || !size_add(*total, (bytes + 15) & ~(uint64_t)15, total))
      return spirv_malformed(m, "a shared variable's size cannot be told");
  }
  return DELTAIC_OK;
}

deltaic_status reflect_size(const char *name, const uint32_t *words, uint64_t count, const uint32_t *spec,
                            uint32_t spec_count, struct reflected_size *out) {
  struct reflected_size found = {0};
  struct spirv m;
  deltaic_status status = spirv_open(&m, name, words, count);
  m.spec = spec;
  m.spec_count = spec_count;
  if (!status && !workgroup_size(&m, found.workgroup)) status = spirv_malformed(&m, "its workgroup has no size");
  if (!status) status = add_shared(&m, &found.shared_bytes);
  spirv_close(&m);
  if (!status) *out = found;
  return status;
}
