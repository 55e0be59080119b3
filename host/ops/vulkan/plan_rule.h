// plan_rule.h: chooses the sizes of the delta rule's kernels that need no cooperative matrices.
#ifndef PLAN_RULE_H
#define PLAN_RULE_H
#include "plan.h"

// Starting values of the delta rule on a device; Head-in-Head and Mamba-2 use some of them.
struct plan_rules {
  const struct plan *device;

  uint32_t chunk;                     // C, tokens of a chunk in the chunkwise delta rule
  uint32_t chunk_lanes;               // most invocations of a workgroup in the pass over chunks
  uint32_t chunk_columns;             // most value columns of such a workgroup; fewer if shared memory is small
  uint32_t chunk_ahead;               // most vec4 of K and Q, or of Tm or P, that such an invocation loads ahead
  uint32_t chunk_from;                // chunks if the longest sequence has at least so many tokens, else recurrent
  uint32_t rule_columns;              // value columns of a workgroup in the recurrent kernel
  uint32_t rule_rows;                 // most rows of the state that an invocation of it keeps in registers
  uint32_t fours_most_rows;           // rows of the state of a lane of delta_rule_fours.comp: the most; 0: not used
  uint32_t fours_least_rows;          // and the fewest, if heads are few
  uint32_t fours_ahead_rows;          // with at most so many, it loads tokens while it computes those before them
  uint32_t fours_lanes;               // most invocations of its workgroups
  uint32_t step_lanes;                // most invocations of a workgroup in the kernels of single tokens
  uint32_t step_width;                // lanes that share columns in delta_step_fours.comp; 0: not used
  uint32_t step_rows, step_most_rows; // rows of the state that such a lane keeps, and the most if few lanes hold a head
};
void plan_rules_make(const struct device_caps *caps, const struct plan *device, struct plan_rules *out);
// Readable text, like plan_describe().
int plan_rules_describe(const struct plan_rules *plan, char *text, uint64_t capacity);
// The longest key (d_k) for which chunks of the planned length fit, with one householder step per token.
uint32_t plan_chunk_key(const struct plan_rules *plan);

// Whether B sequences, with T steps in all and at most `longest` in one (0: all equal), run by chunks.
bool plan_chunks(const struct plan_rules *plan, uint64_t T, uint32_t B, uint64_t longest);

enum { PLAN_LEAST_CHUNK = 16 }; // shortest chunk of delta_chunk_prepare.comp
// Sizes of the chunkwise delta rule's two kernels for keys of Dk elements, n of them per token.
struct plan_delta {
  uint32_t C;                                    // steps of a chunk
  uint32_t sub, slab;                            // of prepare
  uint32_t columns, sub_t, sub_c, sub_k, groups; // of scan
  uint32_t usual_columns;                        // with many heads
};
// heads: of all sequences. False: no chunk fits, because keys are too long for shared memory or a token has more steps
// than a chunk.
bool plan_chunk_sizes(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t heads,
                      struct plan_delta *out);
uint64_t plan_prepare_shared_bytes(const struct plan_delta *d);
uint64_t plan_scan_shared_bytes(const struct plan_delta *d, uint32_t Dk, uint32_t n);
// Sizes of delta_rule_fours.comp. heads: of all sequences. False: such heads do not suit it.
struct plan_rule_fours {
  uint32_t groups, lanes, block;
  bool ahead;
};
bool plan_rule_fours(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t heads,
                     struct plan_rule_fours *out);
uint64_t plan_rule_fours_shared_bytes(const struct plan_rules *plan, const struct plan_rule_fours *f, uint32_t Dk,
                                      uint32_t n);
// Whether chunks of these sizes take less time than token by token, for so many heads of all sequences. They read the
// keys less often and their chain is shorter, but they compute more.
bool plan_chunks_pay(const struct plan_rules *plan, const struct plan_delta *d, uint32_t Dk, uint32_t Dv, uint32_t n,
                     uint32_t heads);
// The work in flight of so many heads, as a part of that from which token by token takes less time by the plan.
uint64_t plan_chunk_percent(const struct plan_rules *plan, const struct plan_delta *d, uint32_t Dk, uint32_t Dv,
                            uint32_t n, uint32_t heads);
// Sizes of delta_step.comp for heads of Dk x Dv in r blocks and n householder steps per token.
struct plan_step {
  uint32_t columns, sub;
  bool whole; // a workgroup has all columns of a head
};
bool plan_step(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t n, uint32_t r, struct plan_step *out);
uint64_t plan_step_shared_bytes(const struct plan_step *s, uint32_t Dk, uint32_t n, uint32_t r);
// Sizes of delta_step_fours.comp. heads: of all sequences. norm: a workgroup should have all columns. False: such heads
// do not suit it.
struct plan_step_fours {
  uint32_t groups, lanes;
  bool whole;
};
bool plan_step_fours(const struct plan_rules *plan, uint32_t Dk, uint32_t Dv, uint32_t heads, bool norm,
                     struct plan_step_fours *out);
#endif
