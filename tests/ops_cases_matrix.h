// ops_cases_matrix.h: groups of test_matrices.
#ifndef OPS_CASES_MATRIX_H
#define OPS_CASES_MATRIX_H
int ops_cases_delta_matrix(void); // returns how many failed
#endif
