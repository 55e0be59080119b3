// plan_rule.h: sizes of the delta rule's kernels that need no cooperative matrices.
#ifndef PLAN_RULE_H
#define PLAN_RULE_H
#include "plan.h"

// What the delta rule starts from on a device, and in part Head-in-Head and Mamba-2.
struct plan_rules {
  const struct plan *device;

  uint32_t chunk;                     // C, tokens of a chunk in the chunkwise delta rule
  uint32_t chunk_lanes;               // most invocations of a workgroup in the pass over chunks
  uint32_t chunk_columns;             // most value columns of it; fewer where shared memory is short
  uint32_t chunk_from;                // when the longest text has at least this many tokens: chunkwise, else recurrent
  uint32_t rule_columns;              // value columns of a workgroup in the recurrent kernel
  uint32_t rule_rows;                 // most rows of the state that one of its invocations keeps in registers
  uint32_t step_lanes;                // most invocations of a workgroup in the kernels of single tokens
  uint32_t step_width;                // lanes that share columns where each has four of them; 0: not for this device
  uint32_t step_rows, step_most_rows; // of the state that such a lane keeps, and at most, where few lanes hold a head
};
void plan_rules_make(const struct device_caps *caps, const struct plan *device, struct plan_rules *out);
// Readable text, as plan_describe.
int plan_rules_describe(const struct plan_rules *plan, char *text, uint64_t capacity);
// The longest key (d_k) of which chunks of the planned length fit, with one step a token.
uint32_t plan_chunk_key(const struct plan_rules *plan);

// Whether B texts of T steps in all, at most `longest` in one (0: all have alike), are walked in chunks.
bool plan_chunks(const struct plan_rules *plan, uint64_t T, uint32_t B, uint64_t longest);

enum { PLAN_LEAST_CHUNK = 16 }; // that delta_chunk_prepare.comp can do
// Sizes of the two kernels of the chunkwise delta rule for one shape of heads: keys of Dk numbers, n of them a token.
struct plan_delta {
  uint32_t C;                                    // steps of a chunk
  uint32_t sub, slab;                            // of prepare
  uint32_t columns, sub_t, sub_c, sub_k, groups; // of scan
};
// False when no chunk fits: keys too long for the device's shared memory, or more steps a token than a chunk has.
bool plan_delta(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, struct plan_delta *out);
uint64_t plan_prepare_shared_bytes(const struct plan_delta *d);
uint64_t plan_scan_shared_bytes(const struct plan_delta *d, uint32_t Dk, uint32_t n);
// Sizes of delta_step.comp: heads of Dk x Dv in r blocks, n steps a token.
struct plan_step {
  uint32_t columns, sub;
  bool whole; // a workgroup has all columns of a head
};
bool plan_step(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, struct plan_step *out);
uint64_t plan_step_shared_bytes(const struct plan_step *s, uint32_t Dk, uint32_t n, uint32_t r);
// Of delta_step_fours.comp. False: such heads are not for it. heads: of all texts; norm: all columns in a workgroup, if
// they fit.
struct plan_step_fours {
  uint32_t groups, lanes;
  bool whole;
};
bool plan_step_fours(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t heads, bool norm,
                     struct plan_step_fours *out);
#endif
