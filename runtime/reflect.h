// reflect.h: what a SPIR-V module binds, read from its words: checked against the contract when a kernel is made, and
// the source of every dispatch's reads and writes.
#ifndef REFLECT_H
#define REFLECT_H
#include "status.h"

enum { REFLECT_BINDINGS = 16, REFLECT_SPEC = 24 };

struct reflection {
  uint32_t bindings;              // number of bindings; they must be 0 ... bindings - 1 of set 0
  bool reads[REFLECT_BINDINGS];   // not decorated NonReadable
  bool writes[REFLECT_BINDINGS];  // not decorated NonWritable
  uint32_t push_bytes;            // size of the push constant block, 0 when there is none
  uint32_t spec_count;            // number of specialization constants
  uint32_t spec_id[REFLECT_SPEC]; // their ids, ascending
  bool spec_workgroup;            // the workgroup size comes from specialization constants
};

// words: a SPIR-V module. Refuses anything malformed, with `name` in the sentence; never reads outside.
deltaic_status reflect(const char *name, const uint32_t *words, uint64_t count, struct reflection *out);

// What the module takes when value i is given to the constant with id i: Vulkan leaves it to us to compare with the
// device's limits. shared_bytes: the sum of its shared variables.
struct reflected_size {
  uint32_t workgroup[3];
  uint64_t shared_bytes;
};
deltaic_status reflect_size(const char *name, const uint32_t *words, uint64_t count, const uint32_t *spec,
                            uint32_t spec_count, struct reflected_size *out);
#endif
