// delta_case.h: inputs of the delta rule, and what it must make of them in float64.
#ifndef DELTA_CASE_H
#define DELTA_CASE_H
#include "fixture.h"
#include "ops_tools.h"

enum { DELTA_PADDING = 2 };            // rows of no sequence
enum { DELTA_DK = 20, DELTA_DV = 24 }; // what most cases have, so that a kernel is compiled once for all of them

// f32 throughout gives about 1e-7, 1e-6 after a hard decay; the rest is left for other orders of summation.
static const double DELTA_CLOSE = 5e-6;

struct delta_case {
  struct delta_args a;
  struct sequence s[3];
  uint32_t B, rows; // rows: the sequences', then DELTA_PADDING more
  struct array qkv, beta, g, state, o;
};

void normalise(double *x, uint32_t n);
void normalise_key(enum dtype dtype, double *row, uint32_t h, uint32_t Dk); // of head h; zeros in its padding
uint32_t delta_cols(enum dtype dtype, struct delta_args a);                 // of qkv

// Unit q and k, normal v and state, beta in (0, beta_max), g log-uniform in -(0.001, 5); slot 0 is nobody's. qkv and o
// are of dtype, and have `gap` numbers between rows.
struct delta_case delta_random_in(enum dtype dtype, uint32_t gap, struct delta_args a, const uint32_t *T, uint32_t B,
                                  double beta_max);
// Runs the case in the form; returns whether chunks were taken.
bool delta_case_run(const struct delta_case *c, const struct sequence *s, uint32_t B, enum delta_form form);
void delta_rewind(struct delta_case *c); // both outputs back to what they were

// o and state after the case, the recurrence in float64; both start as copies of what the case starts with.
void reference_delta(double *o, double *state, const struct delta_case *c);

// Case `name` of vectors/ops/delta.safetensors, one of its tensors; NULL: it has none such.
double *fixture_of(const struct fixture *f, const char *name, const char *key, size_t count);
struct delta_case fixture_delta(const struct fixture *f, const char *name);
#endif
