// spirv.h: finds a SPIR-V module's declarations and evaluates its constants.
#ifndef SPIRV_H
#define SPIRV_H
#include "status.h"

// The part of the SPIR-V specification that we need, with its numbers.
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

  MAX_DEPTH = 16, // of nested types and of constant expressions
  MAX_STEPS = 1 << 16,
};

struct spirv {
  const char *name;
  const uint32_t *words;
  uint64_t count, declarations; // declarations: words before the first function
  uint32_t bound;
  uint32_t *definition; // (bound): first word of the instruction that defines the id; 0: no declaration does
  const uint32_t *spec; // (spec_count) values by constant id; NULL: the module's defaults
  uint32_t spec_count;
  uint32_t steps; // types and constants visited; at most MAX_STEPS, because nesting can multiply the work
};

static inline uint32_t spirv_opcode(const uint32_t *at) { return at[0] & 0xffff; }
static inline uint32_t spirv_length(const uint32_t *at) { return at[0] >> 16; }

deltaic_status spirv_malformed(struct spirv *m, const char *why); // always returns a failure

// Call spirv_close() even after a failure.
deltaic_status spirv_open(struct spirv *m, const char *name, const uint32_t *words, uint64_t count);
void spirv_close(struct spirv *m);
// Returns the instruction that defines an id, or NULL if no supported declaration does.
const uint32_t *spirv_define(struct spirv *m, uint32_t id);
// Returns the next declaration with this opcode at or after *at and moves *at past it; NULL at the end.
const uint32_t *spirv_next(struct spirv *m, uint64_t *at, uint32_t op);
// Whether `id` has the decoration. *value receives its first operand; value may be NULL.
bool spirv_decorated(struct spirv *m, uint32_t id, uint32_t decoration, uint32_t *value);
bool spirv_member_decorated(struct spirv *m, uint32_t id, uint32_t member, uint32_t decoration, uint32_t *value);
// Evaluates a 32-bit or boolean constant; false if it is not one or uses an unsupported operation.
bool spirv_evaluate(struct spirv *m, uint32_t id, int depth, uint32_t *value);
#endif
