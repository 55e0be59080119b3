// rrqr: computes the factor R with pivoted columns from a Gram matrix or from rows, and swaps columns (rrqr.h).
#include "rrqr.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(s, i, j) ((s)->r[(i) + (size_t)(j) * (s)->n])

// ---------------------------------------------------------------- pivot rule

// The state of the pivoting. While the first k are chosen, each block gives at most k / blocks columns.
struct choice {
  int n, k, blocks;
  const double *length2; // (n) squared norms of the columns
  bool *taken;           // (n) whether the column has been chosen
  int *given;            // (blocks) columns chosen per block
  int count;             // number of chosen columns
};

static int block_of(const struct choice *c, int column) { return column / (c->n / c->blocks); }

static bool may_take(const struct choice *c, int column) {
  return !c->taken[column] && (c->count >= c->k || c->given[block_of(c, column)] < c->k / c->blocks);
}

static void take(struct choice *c, int column) {
  c->taken[column] = true;
  c->given[block_of(c, column)]++;
  c->count++;
}

static bool is_dependent(const struct choice *c, const double *rest2, int column) {
  return !(rest2[column] > RRQR_DEPENDENT * c->length2[column]);
}

// Returns the pivot by the rule, or -1 if all remaining columns are dependent. rest2 (n) is indexed by column.
static int next_pivot(const struct choice *c, const double *rest2) {
  double best = 0;
  for (int j = 0; j < c->n; j++)
    if (may_take(c, j) && !is_dependent(c, rest2, j) && rest2[j] > best) best = rest2[j];
  for (int j = 0; j < c->n; j++)
    if (may_take(c, j) && !is_dependent(c, rest2, j) && rest2[j] >= best * (1 - RRQR_TIE)) return j;
  return -1;
}

// Returns the remaining column with the largest norm; zero columns come last.
static int next_filler(const struct choice *c) {
  int best = -1;
  for (int j = 0; j < c->n; j++)
    if (may_take(c, j) && (best < 0 || c->length2[j] > c->length2[best])) best = j;
  return best;
}

static deltaic_status choice_create(struct choice *c, int n, int k, int blocks, const double *length2) {
  *c = (struct choice){.n = n, .k = k, .blocks = blocks, .length2 = length2};
  c->taken = calloc((size_t)n, sizeof *c->taken);
  c->given = calloc((size_t)blocks, sizeof *c->given);
  return c->taken && c->given ? DELTAIC_OK : fail_memory("column pivoting", (uint64_t)n * sizeof *c->given);
}

static void choice_free(struct choice *c) {
  free(c->taken);
  free(c->given);
}

// ---------------------------------------------------------------- R

static deltaic_status create(struct rrqr *s, int n, int k, int blocks) {
  *s = (struct rrqr){.n = n, .k = k, .blocks = blocks};
  s->order = calloc((size_t)n, sizeof *s->order);
  deltaic_status status = s->order ? DELTAIC_OK : fail_memory("an order of columns", sizeof *s->order * (size_t)n);
  if (!status) status = matrix_create(n, 1, "column norms", &s->length2);
  if (!status) status = matrix_create(n, n, "a triangular factor", &s->r);
  if (!status) status = matrix_create(k, n - k, "the coefficients of dropped channels", &s->u);
  if (!status) status = matrix_create(k, 1, "row norms", &s->inverse_omega2);
  if (!status) status = matrix_create(n - k, 1, "column norms", &s->gamma2);
  return status ? status : matrix_create(3, n, "scratch of a factorization", &s->work);
}

void rrqr_free(struct rrqr *s) {
  free(s->order);
  free(s->length2);
  free(s->r);
  free(s->u);
  free(s->inverse_omega2);
  free(s->gamma2);
  free(s->work);
  *s = (struct rrqr){0};
}

// Computes the next row of R, the pivot's coefficients on every column: r_cj = (g_pj - sum_{i<c} r_ip r_ij) / r_cc.
// Column j of R stays at index j until the order is known.
static void cholesky_row(struct rrqr *s, const struct choice *c, const double *gram, int row, int pivot,
                         double *rest2) {
  double diagonal = sqrt(rest2[pivot]);
  AT(s, row, pivot) = diagonal;
  for (int j = 0; j < s->n; j++) {
    if (c->taken[j]) continue;
    double dot = cblas_ddot(row, &AT(s, 0, pivot), 1, &AT(s, 0, j), 1);
    AT(s, row, j) = (gram[pivot + (size_t)j * s->n] - dot) / diagonal;
    rest2[j] -= AT(s, row, j) * AT(s, row, j);
  }
}

static deltaic_status order_columns(struct rrqr *s) {
  double *sorted;
  deltaic_status status = matrix_create(s->n, s->n, "a triangular factor", &sorted);
  if (status) return status;
  for (int j = 0; j < s->n; j++)
    memcpy(sorted + (size_t)j * s->n, &AT(s, 0, s->order[j]), sizeof *sorted * (size_t)s->n);
  free(s->r);
  s->r = sorted;
  return DELTAIC_OK;
}

// Does Cholesky of the Gram matrix with the pivots of QR, then appends the dependent columns.
static void cholesky_pivoted(struct rrqr *s, struct choice *c, const double *gram, double *rest2) {
  bool independent = true;
  for (int row = 0; row < s->n; row++) {
    int pivot = independent ? next_pivot(c, rest2) : -1;
    if (pivot < 0 && independent) {
      independent = false;
      s->rank = row;
    }
    if (pivot < 0) pivot = next_filler(c);
    take(c, pivot);
    s->order[row] = pivot;
    if (independent) cholesky_row(s, c, gram, row, pivot, rest2);
  }
  if (independent) s->rank = s->n;
}

static deltaic_status check_gram(const double *gram, int n) {
  if (!matrix_finite(gram, (int64_t)n * n))
    return fail(DELTAIC_INVALID_ARGUMENT, "a Gram matrix holds a value that is not finite");
  for (int j = 0; j < n; j++)
    if (gram[j + (size_t)j * n] < 0)
      return fail(DELTAIC_INVALID_ARGUMENT, "a Gram matrix has a negative diagonal entry (channel %d)", j);
  return DELTAIC_OK;
}

static deltaic_status finish(struct rrqr *s) {
  for (int j = 0; j < s->n; j++) s->dead += s->length2[j] == 0;
  return rrqr_measure(s);
}

deltaic_status rrqr_from_gram(struct rrqr *s, const double *gram, int n, int k, int blocks) {
  struct choice c = {0};
  double *rest2 = NULL;
  deltaic_status status = create(s, n, k, blocks);
  if (!status) status = check_gram(gram, n);
  if (!status) status = matrix_create(n, 1, "column norms", &rest2);
  if (!status) status = choice_create(&c, n, k, blocks, s->length2);
  if (!status) {
    for (int j = 0; j < n; j++) s->length2[j] = rest2[j] = gram[j + (size_t)j * n];
    cholesky_pivoted(s, &c, gram, rest2);
    status = order_columns(s);
  }
  choice_free(&c);
  free(rest2);
  return status ? status : finish(s);
}

// Copies the columns of `from` that are already ordered, then those that may still be chosen; returns the count.
static int candidates(const struct rrqr *s, const struct choice *c, const double *from, double *to, int *column) {
  int count = 0;
  for (; count < c->count; count++) column[count] = s->order[count];
  for (int j = 0; j < s->n; j++)
    if (may_take(c, j)) column[count++] = j;
  for (int j = 0; j < count; j++)
    memcpy(to + (size_t)j * s->n, from + (size_t)column[j] * s->n, sizeof *to * (size_t)s->n);
  return count;
}

// Accepts LAPACK's pivots while they agree with the rule. They can differ because LAPACK breaks ties by rounding and
// ignores blocks and the dependence test. r (n, count) is R of the pivoted candidates `column`. Returns false if no
// independent column remains.
static bool follow_pivots(struct rrqr *s, struct choice *c, const double *r, const int *column, int count,
                          double *rest2) {
  for (bool agree = true; agree && c->count < count;) {
    int row = c->count;
    for (int j = row; j < count; j++) {
      const double *tail = r + row + (size_t)j * s->n;
      rest2[column[j]] = cblas_ddot(s->n - row, tail, 1, tail, 1);
    }
    int pivot = next_pivot(c, rest2);
    if (pivot < 0) return false;
    s->order[row] = pivot;
    take(c, pivot);
    bool closed = c->blocks > 1 && c->count <= c->k && c->given[block_of(c, pivot)] == c->k / c->blocks;
    agree = pivot == column[row] && !closed;
  }
  return true;
}

// Computes the order of the rule by LAPACK's pivoted QR of the rows' triangular factor, whose columns have the same
// norms and angles. Whenever the two disagree, QR restarts after the columns that are already ordered.
static deltaic_status pivot_rows(struct rrqr *s, struct choice *c, const double *from, double *rest2) {
  double *r = NULL;
  int *column = malloc(2 * sizeof *column * (size_t)s->n), *order = column ? column + s->n : NULL;
  deltaic_status status = column ? DELTAIC_OK : fail_memory("column pivoting", 2 * sizeof *column * (size_t)s->n);
  if (!status) status = matrix_create(s->n, s->n, "a triangular factor", &r);
  bool independent = true;
  while (!status && independent && c->count < s->n) {
    int count = candidates(s, c, from, r, column);
    status = matrix_qr_pivoted(s->n, count, c->count, r, order);
    for (int j = 0; !status && j < count; j++) order[j] = column[order[j]];
    if (!status) independent = follow_pivots(s, c, r, order, count, rest2);
  }
  s->rank = c->count;
  while (!status && c->count < s->n) {
    int filler = next_filler(c);
    s->order[c->count] = filler;
    take(c, filler);
  }
  free(r);
  free(column);
  return status;
}

// Computes R of the ordered columns. Entries outside the span of the pivots are rounding errors and are set to zero.
static deltaic_status factor_ordered(struct rrqr *s, const double *from) {
  memcpy(s->r, from, sizeof *from * (size_t)s->n * s->n);
  deltaic_status status = order_columns(s);
  if (!status) status = matrix_qr(s->n, s->n, s->r);
  for (int j = s->rank; j < s->n; j++)
    for (int i = s->rank; i <= j; i++) AT(s, i, j) = 0;
  return status;
}

deltaic_status rrqr_from_rows(struct rrqr *s, const struct matrix_rows *parts, int count, int n, int k, int blocks) {
  struct choice c = {0};
  double *from = NULL, *rest2 = NULL;
  deltaic_status status = create(s, n, k, blocks);
  if (!status) status = matrix_create(n, n, "a triangular factor", &from);
  if (!status) status = matrix_create(n, 1, "column norms", &rest2);
  if (!status) status = choice_create(&c, n, k, blocks, s->length2);
  if (!status) status = matrix_rows_qr(parts, count, n, from);
  if (!status) {
    for (int j = 0; j < n; j++) s->length2[j] = cblas_ddot(n, from + (size_t)j * n, 1, from + (size_t)j * n, 1);
    status = pivot_rows(s, &c, from, rest2);
  }
  if (!status) status = factor_ordered(s, from);
  choice_free(&c);
  free(from);
  free(rest2);
  return status ? status : finish(s);
}

// ---------------------------------------------------------------- U, omega and gamma

deltaic_status rrqr_measure(struct rrqr *s) {
  int n = s->n, k = s->k, rest = n - k;
  double *inverse;
  if (s->rank < k) return DELTAIC_OK;
  deltaic_status status = matrix_create(k, k, "an inverse", &inverse);
  if (!status) status = matrix_invert_upper(s->r, n, k, inverse);
  if (!status) {
    for (int i = 0; i < k; i++) s->inverse_omega2[i] = cblas_ddot(k, inverse + i, k, inverse + i, k);
    for (int j = 0; j < rest; j++) {
      memcpy(s->u + (size_t)j * k, &AT(s, 0, k + j), sizeof *s->u * (size_t)k);
      s->gamma2[j] = cblas_ddot(rest, &AT(s, k, k + j), 1, &AT(s, k, k + j), 1);
    }
    if (rest)
      cblas_dtrsm(CblasColMajor, CblasLeft, CblasUpper, CblasNoTrans, CblasNonUnit, k, rest, 1.0, s->r, n, s->u, k);
  }
  free(inverse);
  return status;
}

static double rho2(const struct rrqr *s, int i, int j) {
  double u = s->u[i + (size_t)j * s->k];
  return u * u + s->inverse_omega2[i] * s->gamma2[j];
}

static bool may_swap(const struct rrqr *s, int i, int j) {
  int size = s->n / s->blocks;
  return s->order[i] / size == s->order[s->k + j] / size;
}

static bool comes_before(const struct rrqr *s, int i, int j, int i2, int j2) {
  if (s->order[i] != s->order[i2]) return s->order[i] < s->order[i2];
  return s->order[s->k + j] < s->order[s->k + j2];
}

double rrqr_worst(const struct rrqr *s, int *i, int *j) {
  double best = 0;
  *i = *j = -1;
  if (s->rank < s->k) return 0;
  for (int b = 0; b < s->n - s->k; b++)
    for (int a = 0; a < s->k; a++)
      if (may_swap(s, a, b) && rho2(s, a, b) > best) best = rho2(s, a, b);
  for (int b = 0; best > 0 && b < s->n - s->k; b++)
    for (int a = 0; a < s->k; a++) {
      if (!may_swap(s, a, b) || rho2(s, a, b) < best * (1 - RRQR_TIE)) continue;
      if (*i < 0 || comes_before(s, a, b, *i, *j)) *i = a, *j = b;
    }
  return sqrt(best);
}

double rrqr_log_volume(const struct rrqr *s) {
  double sum = 0;
  if (s->rank < s->k) return -INFINITY;
  for (int i = 0; i < s->k; i++) sum += log(fabs(AT(s, i, i)));
  return sum;
}

// ---------------------------------------------------------------- swaps

// Moves element `from` of an array to index `to`; the elements between move by one.
#define ROTATE(type, array, from, to, step)                                                                            \
  do {                                                                                                                 \
    type moved_ = (array)[(size_t)(from) * (step)];                                                                    \
    for (int p_ = (from); p_ != (to);) {                                                                               \
      int next_ = p_ < (to) ? p_ + 1 : p_ - 1;                                                                         \
      (array)[(size_t)p_ * (step)] = (array)[(size_t)next_ * (step)];                                                  \
      p_ = next_;                                                                                                      \
    }                                                                                                                  \
    (array)[(size_t)(to) * (step)] = moved_;                                                                           \
  } while (0)

// Applies a Givens rotation to rows `row` and row + 1 of R, columns first ... n - 1. It makes the entry (row + 1, zero)
// zero.
static void rotate_rows(struct rrqr *s, int row, int zero, int first) {
  double a = AT(s, row, zero), b = AT(s, row + 1, zero), cosine, sine;
  if (b == 0) return;
  cblas_drotg(&a, &b, &cosine, &sine);
  cblas_drot(s->n - first, &AT(s, row, first), s->n, &AT(s, row + 1, first), s->n, cosine, sine);
  AT(s, row + 1, zero) = 0;
}

// Moves kept position i to the last kept position. A becomes Hessenberg and is made triangular again. The norms of the
// rows of A^-1 and the rows of U are only permuted, because a rotation from the left cancels in A^-1 B.
static void move_kept_last(struct rrqr *s, int i) {
  int last = s->k - 1;
  ROTATE(int, s->order, i, last, 1);
  ROTATE(double, s->inverse_omega2, i, last, 1);
  for (int j = 0; j < s->n - s->k; j++) ROTATE(double, s->u + (size_t)j * s->k, i, last, 1);
  for (int row = 0; row < s->k; row++) ROTATE(double, &AT(s, row, 0), i, last, s->n);
  for (int row = i; row < last; row++) rotate_rows(s, row, row, row);
}

// Moves dropped position j to the first dropped position. C is made triangular again from the bottom row up.
static void move_dropped_first(struct rrqr *s, int j) {
  int k = s->k;
  ROTATE(int, s->order + k, j, 0, 1);
  ROTATE(double, s->gamma2, j, 0, 1);
  for (int row = 0; row < k; row++) ROTATE(double, s->u + row, j, 0, k);
  for (int row = 0; row <= k + j; row++) ROTATE(double, &AT(s, row, k), j, 0, s->n);
  for (int row = k + j - 1; row >= k; row--) rotate_rows(s, row, k, k);
}

// Swaps columns k - 1 and k (Gu and Eisenstat, section 4) in
//   [A' b1   b2      B]       u1 = A'^-1 b1, w = A'^-1 b2 - mu u1 (the first column of U above its last entry)
//   [   g  g mu   c1^T]       rho^2 = mu^2 + nu^2, the new diagonal entry is g rho
//   [      g nu   c2^T]       c1' = (mu c1 + nu c2) / rho, c2' = (mu c2 - nu c1) / rho
static void swap_adjacent(struct rrqr *s) {
  int n = s->n, k = s->k, top = k - 1, rest = n - k;
  double g = AT(s, top, top), mu = AT(s, top, k) / g, nu = AT(s, k, k) / g, rho = hypot(mu, nu), diagonal = g * rho;
  double *u1 = s->work, *w = s->work + n, *c2 = s->work + 2 * n;
  cblas_dcopy(top, &AT(s, 0, top), 1, u1, 1);
  if (top) cblas_dtrsv(CblasColMajor, CblasUpper, CblasNoTrans, CblasNonUnit, top, s->r, n, u1, 1);
  cblas_dcopy(top, s->u, 1, w, 1);
  cblas_dcopy(rest, &AT(s, k, k), n, c2, 1);

  cblas_dswap(k + 1, &AT(s, 0, top), 1, &AT(s, 0, k), 1);
  cblas_drot(rest, &AT(s, top, k), n, &AT(s, k, k), n, mu / rho, nu / rho);
  AT(s, top, top) = diagonal;
  AT(s, k, top) = 0;
  int kept = s->order[top];
  s->order[top] = s->order[k];
  s->order[k] = kept;

  for (int i = 0; i < top; i++) {
    double u2 = w[i] + mu * u1[i], gained = u2 / diagonal, lost = u1[i] / g;
    s->u[i] = nu * nu / (rho * rho) * u1[i] - mu / (rho * rho) * w[i];
    s->inverse_omega2[i] = fmax(s->inverse_omega2[i] - lost * lost, 0) + gained * gained;
  }
  s->u[top] = mu / (rho * rho);
  s->inverse_omega2[top] = 1 / (diagonal * diagonal);
  s->gamma2[0] = AT(s, k, k) * AT(s, k, k);
  for (int j = 1; j < rest; j++) {
    double new1 = AT(s, top, k + j), new2 = AT(s, k, k + j), *u = s->u + (size_t)j * k;
    for (int i = 0; i < top; i++) u[i] -= (nu * u1[i] * new2 + w[i] * new1) / diagonal;
    u[top] = new1 / diagonal;
    s->gamma2[j] = fmax(s->gamma2[j] - c2[j] * c2[j], 0) + new2 * new2;
  }
}

void rrqr_swap(struct rrqr *s, int i, int j) {
  move_kept_last(s, i);
  move_dropped_first(s, j);
  swap_adjacent(s);
}
