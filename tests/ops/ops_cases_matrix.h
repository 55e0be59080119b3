// ops_cases_matrix.h: groups of test_matrices.
#ifndef OPS_CASES_MATRIX_H
#define OPS_CASES_MATRIX_H
#include "vulkan_backend.h"

// Runs the rule by chunks; the kernels must be those of matrices.
void run_rule_on_matrices(const struct delta_rule *rule, enum matrices matrices);

// Each returns how many failed.
int ops_cases_delta_matrix(void);
int ops_cases_attention_matrix(void);
int ops_cases_hh_matrix(void);
int ops_cases_mamba2_matrix(void);
#endif
