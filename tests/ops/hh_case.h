// hh_case.h: inputs of the Head-in-Head rule, and what it must make of them in float64.
#ifndef HH_CASE_H
#define HH_CASE_H
#include "delta_case.h"

struct hh_case {
  struct delta_args a;
  struct sequence s[3];
  uint32_t B, rows; // rows: the sequences', then DELTA_PADDING more
  struct array qkv, beta, g, mask, state, o;
};

uint32_t hh_cols(enum dtype dtype, struct delta_args a); // of qkv

// M (r, r) of the logits z (or z itself), as docs/mixers.md has it.
void reference_mask(double *M, const double *z, uint32_t r, enum hh_nonneg nonneg);
// Logits, or masks of random logits where the rule is given masks; `count` of them.
double *random_masks(size_t count, uint32_t r, enum hh_nonneg nonneg);

// Unit q and k, normal v and state, beta in (0, beta_max), g log-uniform in -(0.001, 5); slot 0 is nobody's. qkv and o
// are of dtype, and have `gap` numbers between rows.
struct hh_case hh_random_in(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                            double beta_max);
void hh_rewind(struct hh_case *c); // both outputs back to what they were

// o and state after the case, the recurrence in float64; both start as copies of what the case starts with.
void reference_hh(double *o, double *state, const struct hh_case *c);
#endif
