// pca.h: applies a projection T (keep, d) of a head's channels to its weights: projections become T W, and convolution
// filters become the best diagonal ones (Proposition B.1). All matrices are row-major, as in a checkpoint.
#ifndef PCA_H
#define PCA_H
#include <stdbool.h>

// All channels have the same filter: its convolution commutes with every projection, and the filter stays (Lemma B.2).
bool pca_filters_shared(const float *filters, int d, int width); // (d, width)
// out (keep, width) = (T * T) W with the elementwise square of T; a shared filter is copied to the bit.
void pca_filters(const double *projection, int keep, int d, const float *filters, int width, float *out);
// out (keep, cols) = T W, W (d, cols): a projection's rows of one head, or its bias with cols = 1.
void pca_rows(const double *projection, int keep, int d, const float *rows, int cols, float *out);
#endif
