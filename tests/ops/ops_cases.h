// ops_cases.h: the tests of the operators, the same for every backend. Truth is float64, evaluated here from the
// definitions in ops.h, or read from vectors/ops.
#ifndef OPS_CASES_H
#define OPS_CASES_H
#include "backend.h"

// Runs every case on the backend and reports the worst errors; returns how many failed.
int ops_cases_run(struct backend *b);

// The groups of it.
int ops_cases_inputs(void);
int ops_cases_delta(void);
int ops_cases_delta_properties(void);
int ops_cases_step(void);
int ops_cases_experts(void);
int ops_cases_mamba2(void);
int ops_cases_hh(void);
int ops_cases_attention(void);
int ops_cases_sample(void);
int ops_cases_lists(void);
#endif
