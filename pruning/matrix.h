// matrix.h: the dense linear algebra that pruning needs, over LAPACK and BLAS. Matrices are double and column-major, a
// matrix (m, n) lies without gaps, and n is a head's channels: tens to hundreds. Every failure is a deltaic_status.
// Thread-safety: no state; different matrices may be worked on by different threads.
#ifndef MATRIX_H
#define MATRIX_H
#include "status.h"

enum { MATRIX_MAX = 8192 }; // columns that are accepted

// Rows of activations as they were captured: row t begins at data + t * stride and has as many channels as its user
// says.
struct matrix_rows {
  const float *data;
  int64_t rows;
  int64_t stride; // floats from one row to the next
};

// Tells OpenBLAS, for the whole process, to use the calling thread only: matrices of a head are too small for several,
// and heads are the parallel work (ten times slower otherwise on two busy cores). To be called before threads are
// started.
void matrix_use_one_thread(void);

// Zeros, (m, n); free() them. what: for the message.
deltaic_status matrix_create(int64_t m, int64_t n, const char *what, double **out);
bool matrix_finite(const double *a, int64_t count);
// The (n, n) part of a square matrix of size d in rows and columns `index`.
void matrix_principal(const double *a, int d, const int *index, int n, double *out);

// gram (n, n) += X^T X and, unless NULL, sum (n) += column sums of X (rows, n). Both triangles are kept. Values that
// are not finite are refused. Any number of calls: the accumulators are float64 and so are the products.
deltaic_status matrix_add_gram(struct matrix_rows x, int n, double *gram, double *sum);
// r (n, n), upper triangular with r^T r = X1^T X1 + X2^T X2 + ...: QR of the stacked parts in blocks that fit a cache,
// so that no digits are lost to squaring and nothing but one block is held as double.
deltaic_status matrix_rows_qr(const struct matrix_rows *parts, int count, int n, double *r);

// QR of a (m, n), m >= n, in place: the upper triangle is R, below it zeros.
deltaic_status matrix_qr(int m, int n, double *a);
// QR with column pivoting (dgeqp3): the first `fixed` columns stay in front, in order; then each time the column with
// the largest rest. a becomes R; order[c] is the original number of column c.
deltaic_status matrix_qr_pivoted(int m, int n, int fixed, double *a, int *order);
// out (k, k) = inverse of the leading (k, k) block of the upper triangular r (n, n).
deltaic_status matrix_invert_upper(const double *r, int n, int k, double *out);
// Singular values of a (m, n), min(m, n) of them, descending; a is destroyed.
deltaic_status matrix_singular_values(double *a, int m, int n, double *values);
// Eigenvalues of the symmetric a (n, n), ascending; with vectors, a becomes them, one per column, each with its largest
// entry positive so that a result can be compared.
deltaic_status matrix_eigen(double *a, int n, bool vectors, double *values);
#endif
