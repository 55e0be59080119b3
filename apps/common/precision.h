// precision.h: the precision of a reference's computation, and the limits of a comparison with it.
#ifndef PRECISION_H
#define PRECISION_H
#include <stdbool.h>
#include <stdint.h>

// The precision of the reference's computation, highest first.
enum precision { PRECISION_F64, PRECISION_F32, PRECISION_TF32, PRECISION_F16, PRECISION_BF16, PRECISION_UNKNOWN };
struct precision_row {
  const char *name;   // "bfloat16"
  double relative;    // limit of the relative RMS
  double nll, margin; // limit of the NLL difference; greedy tokens may differ below this margin
  bool grows;         // the limit grows with the number of layers, because values are rounded between layers
};
extern const struct precision_row precision_rows[PRECISION_UNKNOWN + 1];

// The precision that a text names first: "float64, from the bf16 weights" is float64. text: or NULL.
enum precision precision_of(const char *text);
// The limit of the relative RMS. Roundings of a residual stream add up as a random walk does; four layers are what the
// limits were measured with.
double precision_limit(enum precision precision, int32_t layers);
#endif
