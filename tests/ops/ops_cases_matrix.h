// ops_cases_matrix.h: groups of test_matrices.
#ifndef OPS_CASES_MATRIX_H
#define OPS_CASES_MATRIX_H
#include "delta_case.h"
#include "vulkan_backend.h"

// Runs the case by chunks, which must be those of matrices, and holds it against float64.
void expect_on_matrices(const char *const what[], const struct delta_case *c, enum matrices matrices);

// Each returns how many failed.
int ops_cases_delta_matrix(void);
int ops_cases_attention_matrix(void);
int ops_cases_experts_matrix(void);
int ops_cases_hh_matrix(void);
int ops_cases_mamba2_matrix(void);
#endif
