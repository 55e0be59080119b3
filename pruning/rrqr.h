// rrqr.h: declares strong rank-revealing QR (Gu and Eisenstat 1996) of the activations M (rows, n) of one head:
//
//   M P = Q R,   R = [A B; 0 C],   A (k, k)              P: column order, the first k columns are kept
//   U = A^-1 B,  gamma_j = |C_j|,  1 / omega_i = |row i of A^-1|
//   rho_ij^2 = U_ij^2 + (gamma_j / omega_i)^2
//
// rho_ij is the factor by which swapping kept column i with dropped column j multiplies the volume |det A|. All values
// depend on M only through M^T M, so R may come from a Gram matrix (pivoted Cholesky) or from the rows (QR by LAPACK);
// the later steps are the same. A Gram matrix squares the condition number, so it is reliable only for condition
// numbers up to about 1e6; the rows are reliable for more.
#ifndef RRQR_H
#define RRQR_H
#include "matrix.h"

struct rrqr {
  int n, k;
  int blocks;             // each of these equal blocks keeps k / blocks columns; swaps stay inside a block
  int rank;               // number of independent pivots; if it is below k, A is singular and nothing is swapped
  int dead;               // number of zero columns
  int *order;             // (n) the kept columns, then the dropped ones
  double *length2;        // (n) squared norms of the columns, by original column number
  double *r;              // (n, n) upper triangular, columns in the order of `order`
  double *u;              // (k, n - k)
  double *inverse_omega2; // (k) 1 / omega_i^2
  double *gamma2;         // (n - k)
  double *work;           // (3 n)
};

// Both routes follow this pivot rule exactly. A column's residual is its part outside the span of the chosen columns.
// The pivot has the largest residual; if residuals agree up to RRQR_TIE, the lowest index wins. A column is dependent
// if its squared residual is at most RRQR_DEPENDENT times its squared norm. Dependent columns come last, longest first.
#define RRQR_TIE 1e-9
#define RRQR_DEPENDENT 1e-12

// 1 <= k <= n, and blocks divides n and k. Call rrqr_free() even after a failure.
deltaic_status rrqr_from_gram(struct rrqr *s, const double *gram, int n, int k, int blocks);
deltaic_status rrqr_from_rows(struct rrqr *s, const struct matrix_rows *parts, int count, int n, int k, int blocks);
void rrqr_free(struct rrqr *s);

// Recomputes U, omega and gamma from R in O(k^2 n). It does nothing if A is singular.
deltaic_status rrqr_measure(struct rrqr *s);
// Returns the largest rho and its pair; ties go to the lowest column numbers. It returns 0 if no swap is possible.
double rrqr_worst(const struct rrqr *s, int *i, int *j);
// Swaps kept position i with dropped position j in O(n^2): R by Givens rotations, and U, omega and gamma by Gu and
// Eisenstat's formulas. A new factorization would take O(k^2 n). rho_ij must not be 0.
void rrqr_swap(struct rrqr *s, int i, int j);
// Returns ln |det A|, or -infinity if A is singular.
double rrqr_log_volume(const struct rrqr *s);
#endif
