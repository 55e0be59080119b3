// reflect.h: reads a SPIR-V module's interface from its words. Kernel creation checks it against the contract, and it
// determines which bindings each dispatch reads and writes.
#ifndef REFLECT_H
#define REFLECT_H
#include "status.h"

enum { REFLECT_BINDINGS = 16, REFLECT_SPEC = 24 };

struct reflection {
  uint32_t bindings;              // number of bindings; they must be 0 ... bindings - 1 of set 0
  bool reads[REFLECT_BINDINGS];   // not decorated NonReadable
  bool writes[REFLECT_BINDINGS];  // not decorated NonWritable
  uint32_t push_bytes;            // size of the push constant block, 0: there is none
  uint32_t spec_count;            // number of specialization constants
  uint32_t spec_id[REFLECT_SPEC]; // their ids, ascending
  bool spec_workgroup;            // the workgroup size comes from specialization constants
};

// words: a SPIR-V module. It refuses a malformed module with `name` in the message and never reads out of bounds.
deltaic_status reflect(const char *name, const uint32_t *words, uint64_t count, struct reflection *out);

// Workgroup size and shared memory of the module if constant id i has the value spec[i]. The caller compares them with
// the device's limits, which Vulkan does not check. shared_bytes: the sum of the shared variables' sizes.
struct reflected_size {
  uint32_t workgroup[3];
  uint64_t shared_bytes;
};
deltaic_status reflect_size(const char *name, const uint32_t *words, uint64_t count, const uint32_t *spec,
                            uint32_t spec_count, struct reflected_size *out);
#endif
