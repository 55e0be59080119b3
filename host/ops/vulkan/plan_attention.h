// plan_attention.h: sizes of the kernels of attention.
#ifndef PLAN_ATTENTION_H
#define PLAN_ATTENTION_H
#include "plan.h"

// Sizes of attention_step.comp: a token of each text against its cache.
struct plan_attention_step {
  uint32_t lanes, queries; // queries: heads of a workgroup
  uint32_t across;         // workgroups of a part, for all heads of a text
  uint32_t parts;          // of a cache, at the most
};
// heads, kv_heads, d: of a text; B texts; seen: the most positions that a token sees.
void plan_attention_step(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                         uint32_t seen, struct plan_attention_step *out);
uint64_t plan_attention_step_bytes(const struct plan_attention_step *s, uint32_t d); // of shared memory

// Sizes of attention_matrix.comp: T tokens of each of B texts.
struct plan_attention_matrix {
  uint32_t lanes, keys;   // keys: staged at a time
  uint32_t group, across; // heads of a workgroup; workgroups that have the same tokens of a text
  uint32_t tokens;        // of a workgroup
  bool ahead, lockstep;   // it fetches ahead; a subgroup needs no barrier of its own
};
// False where the plan has no matrices, or the device no room for such heads.
bool plan_attention_matrix(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                           uint32_t T, struct plan_attention_matrix *out);
uint64_t plan_attention_matrix_bytes(const struct plan *plan, const struct plan_attention_matrix *m, uint32_t d);
#endif
