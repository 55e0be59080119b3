// plan_back_rule.h: chooses the sizes of the delta rule's backward pass by chunks on cooperative matrices
// (rule_matrix.h).
#ifndef PLAN_BACK_RULE_H
#define PLAN_BACK_RULE_H
#include "plan_delta.h"

struct plan_back_rule {
  struct plan_delta_matrix prepare; // of delta_matrix_prepare
  bool conversions;                 // accumulators become operands in registers; false: through shared memory
  bool lockstep;                    // a subgroup runs in lockstep and needs no subgroup barrier
  uint32_t Dk, Dv;                  // rounded up to a multiple of 16
  uint32_t block;                   // steps between two states that are kept, and of grads: 16, 32, 48 or 64
  uint32_t width;                   // value columns of a subgroup of states and reverse: 16 or 32
  uint32_t states, reverse, grads;  // subgroups of a workgroup of each kernel
  uint32_t split;                   // grads: parts of a block's steps, each with subgroups of its own
  uint32_t own;                     // grads: tiles of columns of a subgroup
};
// heads: value heads of all sequences. False: the device has no coopmats, or none that suit.
bool plan_back_rule(const struct plan *plan, uint32_t Dk, uint32_t Dv, uint32_t heads, bool conversions,
                    struct plan_back_rule *out);
// The shared memory of grads that several things take in turn, in units of 16 bytes: where scores begin, and all of it.
struct plan_back_pool {
  uint32_t scores, all;
};
struct plan_back_pool plan_back_pool(const struct plan *plan, const struct plan_back_rule *p);
// Bytes of shared memory.
uint64_t plan_back_scan_bytes(const struct plan *plan, const struct plan_back_rule *p, bool reverse);
uint64_t plan_back_grads_bytes(const struct plan *plan, const struct plan_back_rule *p);
#endif
