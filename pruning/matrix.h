// matrix.h: declares the dense linear algebra that pruning needs, over LAPACK and BLAS. Matrices are double,
// column-major and contiguous. n is the number of a head's channels: tens to hundreds. Every failure is a
// deltaic_status. Thread-safety: no state; threads may work on different matrices at the same time.
#ifndef MATRIX_H
#define MATRIX_H
#include "status.h"

enum { MATRIX_MAX = 8192 }; // the largest accepted number of columns

// Captured rows of activations. Row t begins at data + t * stride. The caller knows the number of channels.
struct matrix_rows {
  const float *data;
  int64_t rows;
  int64_t stride; // floats from one row to the next
};

// Makes OpenBLAS use only the calling thread, for the whole process. A head's matrices are too small for several
// threads, and heads run in parallel (with OpenBLAS threads, two busy cores were ten times slower). Call it before
// starting threads.
void matrix_use_one_thread(void);

// Allocates a zero matrix (m, n), which the caller frees. `what` names it for the message.
deltaic_status matrix_create(int64_t m, int64_t n, const char *what, double **out);
bool matrix_finite(const double *a, int64_t count);
// Copies the (n, n) submatrix with the rows and columns `index` of a square matrix of size d.
void matrix_principal(const double *a, int d, const int *index, int n, double *out);

// Adds X^T X to gram (n, n) and, unless sum is NULL, the column sums of X (rows, n) to sum (n). Both triangles are
// stored. Values that are not finite are refused. It may be called repeatedly; products and sums are float64.
deltaic_status matrix_add_gram(struct matrix_rows x, int n, double *gram, double *sum);
// Computes the upper triangular r (n, n) with r^T r = X1^T X1 + X2^T X2 + ... by QR of the stacked parts. It works in
// blocks that fit a cache: no digits are lost to squaring, and only one block is stored as double.
deltaic_status matrix_rows_qr(const struct matrix_rows *parts, int count, int n, double *r);

// Computes the QR of a (m, n), m >= n, in place: the upper triangle becomes R, and the rest becomes zero.
deltaic_status matrix_qr(int m, int n, double *a);
// QR with column pivoting (dgeqp3). The first `fixed` columns stay in front, in order; then each pivot is the column
// with the largest residual. a becomes R; order[c] is the original number of column c.
deltaic_status matrix_qr_pivoted(int m, int n, int fixed, double *a, int *order);
// Writes to out (k, k) the inverse of the leading (k, k) block of the upper triangular r (n, n).
deltaic_status matrix_invert_upper(const double *r, int n, int k, double *out);
// Computes the min(m, n) singular values of a (m, n) in descending order; a is overwritten.
deltaic_status matrix_singular_values(double *a, int m, int n, double *values);
// Computes the eigenvalues of the symmetric a (n, n) in ascending order. If `vectors`, a becomes the eigenvectors, one
// per column; the largest entry of each is positive, so that results can be compared.
deltaic_status matrix_eigen(double *a, int n, bool vectors, double *values);
#endif
