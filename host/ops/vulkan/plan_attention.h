// plan_attention.h: chooses the sizes of the attention kernels.
#ifndef PLAN_ATTENTION_H
#define PLAN_ATTENTION_H
#include "plan.h"

// Sizes of attention_step.comp: one token of each sequence against its cache.
struct plan_attention_step {
  uint32_t lanes, queries; // queries: query heads of a workgroup
  uint32_t batch;          // loads in flight
  uint32_t across;         // workgroups for one part of the cache and all heads of a sequence
  uint32_t parts;          // most parts of a cache
  uint32_t single;         // workgroups that share a part's heads while parts are few: at most one a processor
};
// B: sequences; seen: the most positions that a token can see.
void plan_attention_step(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                         uint32_t seen, struct plan_attention_step *out);
uint64_t plan_attention_step_bytes(const struct plan_attention_step *s, uint32_t d); // bytes of shared memory

// Sizes of attention_matrix.comp: T tokens of each of B sequences. Coopmat: cooperative matrices.
struct plan_attention_matrix {
  uint32_t lanes, keys;   // keys: keys that are staged at once
  uint32_t group, across; // heads of a workgroup; workgroups with the same tokens of a sequence
  uint32_t tokens, rows;  // tokens of a workgroup; its rows, each of a token and a head
  bool ahead, lockstep;   // it fetches ahead; a subgroup runs in lockstep and needs no subgroup barrier
};
// False: the device has no coopmat, or not enough memory for such heads.
bool plan_attention_matrix(const struct plan *plan, uint32_t heads, uint32_t kv_heads, uint32_t d, uint32_t B,
                           uint32_t T, struct plan_attention_matrix *out);
uint64_t plan_attention_matrix_bytes(const struct plan_attention_matrix *m, uint32_t d);
// How many parts the keys are cut into at most, where `groups` workgroups would be too few to fill the device. 1: they are
// not cut. seen: the most positions that a token can see.
uint32_t plan_attention_parts(const struct plan *plan, const struct plan_attention_matrix *m, uint64_t groups,
                              uint32_t seen);
// Bytes of the records of all parts, for any number of tokens and sequences; 0 if keys are never cut.
uint64_t plan_attention_records(const struct plan *plan, uint32_t d, uint32_t seen);
#endif
