// rrqr.h: strong rank-revealing QR (Gu and Eisenstat 1996) of the activations M (rows, n) of one head:
//
//   M P = Q R,   R = [A B; 0 C],   A (k, k)              P: column order, the first k columns are kept
//   U = A^-1 B,  gamma_j = |C_j|,  1 / omega_i = |row i of A^-1|
//   rho_ij^2 = U_ij^2 + (gamma_j / omega_i)^2
//
// rho_ij is the factor by which swapping kept column i with dropped column j multiplies the volume |det A|. All depends
// on M only through M^T M, so R may come from a Gram matrix (pivoted Cholesky) or from the rows (QR by LAPACK); from
// there on the two routes are one. A Gram matrix squares the condition number: it decides reliably for condition
// numbers up to about 1e6, the rows for more.
#ifndef RRQR_H
#define RRQR_H
#include "matrix.h"

struct rrqr {
  int n, k;
  int blocks;             // as many columns are kept in each of so many equal blocks; swaps stay inside a block
  int rank;               // pivots found before the rest was dependent; below k: A is singular, and nothing is swapped
  int dead;               // columns that are zero
  int *order;             // (n) kept columns, then the others
  double *length2;        // (n) squared lengths of the columns, by their own numbers
  double *r;              // (n, n) upper triangular, its columns in that order
  double *u;              // (k, n - k)
  double *inverse_omega2; // (k) 1 / omega_i^2
  double *gamma2;         // (n - k)
  double *work;           // (3 n)
};

// Column pivoting by a rule that both routes follow to the letter: the largest rest of a column outside the span of
// those before it, the lowest index among rests that agree to RRQR_TIE. A column is dependent when its rest, squared,
// is at most RRQR_DEPENDENT of its own length squared. When only such are left, the kept ones are completed by the
// longest columns, dead ones last.
#define RRQR_TIE 1e-9
#define RRQR_DEPENDENT 1e-12

// 1 <= k <= n; blocks divides n and k. s is to be freed in any case.
deltaic_status rrqr_from_gram(struct rrqr *s, const double *gram, int n, int k, int blocks);
deltaic_status rrqr_from_rows(struct rrqr *s, const struct matrix_rows *parts, int count, int n, int k, int blocks);
void rrqr_free(struct rrqr *s);

// U, omega and gamma afresh from R, in O(k^2 n); does nothing when A is singular.
deltaic_status rrqr_measure(struct rrqr *s);
// The pair of largest rho (lowest column numbers among equals), and that rho; 0 when there is nothing to swap.
double rrqr_worst(const struct rrqr *s, int *i, int *j);
// Swaps kept position i with dropped position j: R by Givens rotations and U, omega, gamma by Gu and Eisenstat's
// formulas, in O(n^2), of which O(k (n - k)) for U, in place of O(k^2 n) for a new factorization. rho_ij must not be 0.
void rrqr_swap(struct rrqr *s, int i, int j);
// ln |det A|; -infinity when A is singular.
double rrqr_log_volume(const struct rrqr *s);
#endif
