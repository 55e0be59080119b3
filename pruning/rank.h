// rank.h: how much of a matrix is used: singular values s_1 >= s_2 >= ... of states, activations or their Gram
// matrices.
//
//   stable rank (the papers' effective rank)  sum s_i^2 / s_1^2
//   rank utilization                          stable rank / min(m, n)
//   entropy rank                              exp(- sum p_i ln p_i), p_i = s_i / sum s
//   condition number                          s_1 / s_min, s_min the smallest above rounding
//   volume                                    product of all s_i
//
// The zero matrix has none of these: 0, and ln volume -infinity. From a Gram matrix, whose eigenvalues are the squares,
// what is below 1e-6 of s_1 counts as zero; from a matrix, below `zero`.
#ifndef RANK_H
#define RANK_H
#include "matrix.h"

struct rank_measures {
  double stable_rank, utilization, entropy_rank, condition;
  double log_volume; // ln of the volume; -infinity when the rank is below n
  int rank;          // singular values that are not zero
};

// s (count): singular values, descending, of a matrix with n columns; those above zero * s_1 count.
void rank_of_values(const double *s, int count, int n, double zero, struct rank_measures *out);
// a (m, n): left as it is. values: min(m, n) singular values, or NULL.
deltaic_status rank_of_matrix(const double *a, int m, int n, double zero, double *values, struct rank_measures *out);
// gram (n, n) = A^T A of a matrix A with `rows` rows.
deltaic_status rank_of_gram(const double *gram, int n, int64_t rows, struct rank_measures *out);
// The same for the kept columns of A alone.
deltaic_status rank_of_kept(const double *gram, int d, const int *kept, int keep, int64_t rows,
                            struct rank_measures *out);

// How many channels to keep, from the Gram matrix of a head's activations. All return at least 1.
enum rank_kind { RANK_ENTROPY, RANK_STABLE, RANK_NUMERICAL };
// The rank, rounded up.
deltaic_status rank_keep_by_rank(const double *gram, int d, enum rank_kind kind, int *keep);
// The smallest count whose first pivots (rrqr.h) lose at most `limit` of the volume: |C|_F / |M|_F, the share of the
// activations' length that lies outside the span of the kept channels. 0 <= limit < 1; 0: all independent channels.
deltaic_status rank_keep_by_volume(const double *gram, int d, double limit, int *keep);
#endif
