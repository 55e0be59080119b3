// rank.h: declares rank measures, computed from the singular values s_1 >= s_2 >= ... of states, activations or their
// Gram matrices.
//
//   stable rank (the papers' effective rank)  sum s_i^2 / s_1^2
//   rank utilization                          stable rank / min(m, n)
//   entropy rank                              exp(- sum p_i ln p_i), p_i = s_i / sum s
//   condition number                          s_1 / s_min, s_min the smallest above rounding
//   volume                                    product of all s_i
//
// For the zero matrix, all measures are 0 and ln volume is -infinity. A singular value counts as zero below 1e-6 of s_1
// if it comes from a Gram matrix (whose eigenvalues are the squares), and below `zero` of s_1 if from a matrix.
#ifndef RANK_H
#define RANK_H
#include "matrix.h"

struct rank_measures {
  double stable_rank, utilization, entropy_rank, condition;
  double log_volume; // ln of the volume; -infinity when the rank is below n
  int rank;          // number of nonzero singular values
};

// s (count): singular values in descending order of a matrix with n columns; a value counts if it is above zero * s_1.
void rank_of_values(const double *s, int count, int n, double zero, struct rank_measures *out);
// a (m, n) is not changed. values receives the min(m, n) singular values, unless it is NULL.
deltaic_status rank_of_matrix(const double *a, int m, int n, double zero, double *values, struct rank_measures *out);
// gram (n, n) = A^T A of a matrix A with `rows` rows.
deltaic_status rank_of_gram(const double *gram, int n, int64_t rows, struct rank_measures *out);
// Measures only the kept columns of A.
deltaic_status rank_of_kept(const double *gram, int d, const int *kept, int keep, int64_t rows,
                            struct rank_measures *out);

// These compute how many channels to keep from the Gram matrix of a head's activations. The result is at least 1.
enum rank_kind { RANK_ENTROPY, RANK_STABLE, RANK_NUMERICAL };
// Sets *keep to the rank, rounded up.
deltaic_status rank_keep_by_rank(const double *gram, int d, enum rank_kind kind, int *keep);
// Sets *keep to the smallest number of pivots (rrqr.h) with |C|_F / |M|_F at most `limit`: the fraction of the
// activations' norm outside the span of the kept channels. 0 <= limit < 1; 0 keeps all independent channels.
deltaic_status rank_keep_by_volume(const double *gram, int d, double limit, int *keep);
#endif
