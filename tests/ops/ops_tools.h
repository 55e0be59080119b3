// ops_tools.h: what the cases of test_ops share: tensors with a float64 copy of what they hold, on any backend.
#ifndef OPS_TOOLS_H
#define OPS_TOOLS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "backend.h"
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The backend under test and a recorder of it; begin() and run() bracket the ops of a case.
extern struct backend *backend;
extern struct recorder *recorder;
extern struct oplist *list;
// What list->matrices is before a case: NONE, unless the program says otherwise.
extern enum matrices case_matrices;
void list_defaults(void); // what the list is before a case; what a case sets stays from begin() to begin()
void begin(void);
void run(void);               // fails the test when the run fails
deltaic_status try_run(void); // the same, but returns what the run does
#define RUN(op) (begin(), (op), run())

// Between the two, kernels are counted by name; whether one ran whose name contains this.
void profile_begin(void);
bool profile_end(const char *name);

// A tensor and its values, rows * cols of them without gaps, exactly as stored. Everything is freed by
// tools_teardown().
struct array {
  struct tensor t;
  double *v;
};
int tools_setup(void **state); // of every case
int tools_teardown(void **state);
#define OPS_CASE(f) cmocka_unit_test_setup_teardown(f, tools_setup, tools_teardown)

enum { DENSE = 0 }; // as a stride: cols
// What lies between cols and stride: NaN in activations, so that reading it shows; weights promise zeros.
struct array activations_in(enum dtype dtype, uint32_t rows, uint32_t cols, uint32_t stride, const double *values);
struct array activations(uint32_t rows, uint32_t cols, uint32_t stride, const double *values); // NULL: zeros
struct array weights(enum dtype dtype, uint32_t rows, uint32_t cols, uint32_t stride, const double *values);
struct array integers(uint32_t rows, uint32_t cols, const void *values); // i32; v is not set
struct array sequences_of(const struct sequence *sequences, uint32_t B);
extern const struct tensor ABSENT;

double *read_values(const struct array *a); // f32 or f16, what the backend holds now; freed by tools_teardown()
void *read_words(const struct array *a);    // i32, the same

// Repeatable numbers: seed once per test.
void seed(uint64_t value);
double uniform(double low, double high);
double normal(void);
double *uniforms(size_t n, double low, double high); // freed by tools_teardown()
double *normals(size_t n);
double *zeros(size_t n);

double rms_error(const double *got, const double *want, size_t n); // rms(got - want) / rms(want); NaN is infinite
// Fails the test unless rms_error() is at most the limit; remembers the worst by name for the report.
void expect_close(const char *what, const double *got, const double *want, size_t n, double limit);
// The first `rows` rows of a are close to want, the others as they were.
void expect_rows(const char *what, const struct array *a, uint32_t rows, const double *want, double limit);
// All of a is close to want; rows that want leaves as they were are so to the bit.
void expect_state(const char *what, const struct array *a, const double *want, double limit);
void report_worst(void);
// What the outputs of a rule with a state are called there.
#define OUTPUTS(what) ((const char *const[]){what ": output", what ": state"})

// Whether cases go through all of their shapes: on the CPU, and with DELTAIC_TEST_ALL=1. Vulkan devices compile each
// shape, software for seconds: else they have the first few, which run every kernel and every branch that a shape can
// take wrong.
bool all_shapes(void);
uint32_t shapes(uint32_t all, uint32_t few);

enum { LENGTHS = 10 };
extern const uint32_t lengths[LENGTHS]; // 1, 2, 3, 15, 16, 17, 63, 64, 65, 200

// What the cases of rules with a state share.
enum { FORMS = 3, CUTS = 5, CUT_TOKENS = 150 };
extern const enum delta_form forms[FORMS]; // recurrent, chunk, auto
extern const uint32_t text_cuts[CUTS][4];  // CUT_TOKENS tokens in up to four pieces
// Sequences one after the other, of T tokens each, whose slots are B ... 1; returns their rows.
uint32_t place_sequences(struct sequence *sequences, const uint32_t *T, uint32_t B);
void rewind_array(struct array *a); // a new tensor with the values that it had at first

// Begins and runs the convolution, whose x is columns `from` ... of a product: of conv->x with a matrix that copies.
void convolve(const struct conv *conv, uint32_t from);
// A matrix of `rows` rows that copies its inputs to rows `from` ... of its outputs; the others are 0.
struct array copying_weights(uint32_t rows, uint32_t from, uint32_t cols);

double reference_activation(enum activation activation, double z);
#endif
