// precision: see precision.h.
#include "precision.h"

#include <math.h>
#include <string.h>

const struct precision_row precision_rows[PRECISION_UNKNOWN + 1] = {
    {"float64", 5e-6, 1e-4, 1e-3, false}, {"float32", 1e-5, 1e-4, 1e-3, false}, {"tf32", 1e-3, 1e-3, 0.05, true},
    {"float16", 1e-3, 1e-3, 0.05, true},  {"bfloat16", 6e-3, 5e-3, 0.25, true}, {"unknown", 5e-6, 1e-4, 1e-3, false}};

enum precision precision_of(const char *text) {
  static const struct {
    const char *word;
    enum precision precision;
  } words[] = {{"float64", PRECISION_F64}, {"fp64", PRECISION_F64},      {"f64", PRECISION_F64},
               {"float32", PRECISION_F32}, {"fp32", PRECISION_F32},      {"f32", PRECISION_F32},
               {"tf32", PRECISION_TF32},   {"bfloat16", PRECISION_BF16}, {"bf16", PRECISION_BF16},
               {"float16", PRECISION_F16}, {"fp16", PRECISION_F16},      {"f16", PRECISION_F16}};
  enum precision found = PRECISION_UNKNOWN;
  const char *first = NULL;
  for (size_t i = 0; text && i < sizeof words / sizeof *words; ++i) {
    const char *at = strstr(text, words[i].word);
    if (!at || (first && at >= first)) continue;
    first = at;
    found = words[i].precision;
  }
  return found;
}

double precision_limit(enum precision precision, int32_t layers) {
  const struct precision_row *row = &precision_rows[precision];
  return row->relative * (row->grows ? sqrt(fmax(1, layers / 4.0)) : 1);
}
