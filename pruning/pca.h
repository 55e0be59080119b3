// pca.h: applies a projection T (keep, d) of a head's channels to its weights. Projections become T W; convolution
// filters become the best diagonal filters (Proposition B.1). Matrices are row-major, as in a checkpoint.
#ifndef PCA_H
#define PCA_H
#include <stdbool.h>

// Whether all channels have the same filter. Such a convolution commutes with any projection and is kept (Lemma B.2).
bool pca_filters_shared(const float *filters, int d, int width); // (d, width)
// out (keep, width) = (T * T) W, where T * T is the elementwise square; a shared filter is copied exactly.
void pca_filters(const double *projection, int keep, int d, const float *filters, int width, float *out);
// out (keep, cols) = T W. W (d, cols) is one head's rows of a projection, or its bias with cols = 1.
void pca_rows(const double *projection, int keep, int d, const float *rows, int cols, float *out);
#endif
