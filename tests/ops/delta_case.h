// delta_case.h: inputs of the delta rule, with or without blocks, and what it must make of them in float64.
#ifndef DELTA_CASE_H
#define DELTA_CASE_H
#include "ops_tools.h"

enum { DELTA_PADDING = 2 };            // rows of no sequence
enum { DELTA_DK = 20, DELTA_DV = 24 }; // what most cases have, so that a kernel is compiled once for all of them

// f32 throughout gives about 1e-7, 1e-6 after a hard decay; the rest is left for other orders of summation.
static const double DELTA_CLOSE = 5e-6;

struct delta_case {
  struct delta_args a;
  struct sequence s[3];
  uint32_t B, rows;                          // rows: the sequences', then DELTA_PADDING more
  struct array qkv, beta, g, mask, state, o; // mask: only with blocks
};

void normalise(double *x, uint32_t n);
uint32_t delta_cols(enum dtype dtype, struct delta_args a); // of qkv

// M (r, r) of the logits z (or z itself), as docs/mixers.md has it.
void reference_mask(double *M, const double *z, uint32_t r, enum hh_nonneg nonneg);
// Logits, or masks of random logits where the rule is given masks; `count` of them.
double *random_masks(size_t count, uint32_t r, enum hh_nonneg nonneg);

void reference_key(double *x, const struct delta_input_args *a); // of one head
// One step on a column of S, rows Dv apart, with a key as the rule takes it; without blocks M is 1.
void reference_update(double *S, const struct delta_args *a, const double *M, const double *k, double beta, double v);

// Unit q and k, normal v and state, beta in (0, beta_max), g log-uniform in -(0.001, 5); slot 0 is nobody's. qkv and o
// are of dtype, and have `gap` numbers between rows.
struct delta_case delta_random_in(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                                  double beta_max);
struct delta_rule delta_rule_of(const struct delta_case *c, const struct sequence *s, uint32_t B);
// Runs the case in the form; returns whether chunks were taken.
bool delta_case_run(const struct delta_case *c, const struct sequence *s, uint32_t B, enum delta_form form);
void delta_rewind(struct delta_case *c); // both outputs back to what they were

// The outputs that the case has now, against float64; rows of no sequence and states of no slot keep their values.
void expect_delta(const char *const what[], const struct delta_case *c, double limit);
// Every form against float64: of the case, of a random case, of one sequence in pieces.
void expect_forms(const char *const what[], struct delta_case *c);
void check_delta(const char *const what[], uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                 double beta_max);
void check_splits(const char *const what[], struct delta_args a);
// Gated rules of one head: nothing is left after a hard decay, and the tokens after it lose no digits.
void check_forgetting(const char *const what[], struct delta_args a);
void check_digits_after_a_decay(const char *const what[], struct delta_args a);
// Every form and case of a file of fixtures: fla's inputs, truths, and the errors of fla's CUDA kernels, which ours
// must beat; with blocks there are no such kernels. Returns the number of cases.
size_t check_truths(const char *const what[], const char *path, bool blocks);
#endif
