// method: holds the table of pruning methods and checks the arguments before a method runs.
#include "method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct prune_method prune_random, prune_l1, prune_wanda, prune_grad, prune_rrqr, prune_pca;

static const struct prune_method *const methods[] = {&prune_random, &prune_l1,   &prune_wanda,
                                                     &prune_grad,   &prune_rrqr, &prune_pca};
enum { METHODS = sizeof methods / sizeof *methods };

const struct prune_method *prune_method_at(int i) { return i >= 0 && i < METHODS ? methods[i] : NULL; }

const struct prune_method *prune_method_find(const char *name) {
  for (int i = 0; i < METHODS; i++)
    if (!strcmp(methods[i]->name, name)) return methods[i];
  return NULL;
}

// ---------------------------------------------------------------- argument checks

static deltaic_status check_sizes(const struct prune_head *head, int keep) {
  if (head->d < 1 || head->d > MATRIX_MAX)
    return fail(DELTAIC_INVALID_ARGUMENT, "a head of %d channels (1 to %d)", head->d, MATRIX_MAX);
  if (keep < 1 || keep > head->d) return fail(DELTAIC_INVALID_ARGUMENT, "cannot keep %d of %d channels", keep, head->d);
  if (head->d % head->blocks || keep % head->blocks)
    return fail(DELTAIC_INVALID_ARGUMENT, "%d of %d channels cannot be shared out evenly over %d blocks", keep, head->d,
                head->blocks);
  return DELTAIC_OK;
}

static deltaic_status check_options(const struct prune_options *o) {
  if (o->side < PRUNE_BOTH || o->side > PRUNE_QUERIES) return fail(DELTAIC_INVALID_ARGUMENT, "no such side");
  if (o->tolerance != 0 && !(o->tolerance >= 1 && isfinite(o->tolerance)))
    return fail(DELTAIC_INVALID_ARGUMENT, "a swap tolerance of %g (1 or more)", o->tolerance);
  return o->swap_limit < 0 ? fail(DELTAIC_INVALID_ARGUMENT, "a swap limit of %d", o->swap_limit) : DELTAIC_OK;
}

static bool has_moments(const struct prune_moments *m) { return m->gram && m->rows > 0; }
static bool has_rows(const struct matrix_rows *x) { return x->data && x->rows > 0; }

static deltaic_status check_needs(const struct prune_method *method, const struct prune_head *h,
                                  const struct prune_options *o) {
  bool q = o->side != PRUNE_KEYS, k = o->side != PRUNE_QUERIES;
  const char *missing = NULL;
  if (method->needs & PRUNE_NEEDS_WEIGHTS && ((q && !h->wq) || (k && (!h->wk || h->steps < 1)) || h->hidden < 1))
    missing = "the projections' weights";
  if (method->needs & PRUNE_NEEDS_INPUTS && !h->input_squares) missing = "the inputs' squares";
  if (method->needs & PRUNE_NEEDS_GRADIENTS && ((q && !h->q_saliency) || (k && !h->k_saliency)))
    missing = "gradients of the projections' weights";
  if (method->needs & PRUNE_NEEDS_UNIT_MOMENTS && ((q && !has_moments(&h->q_unit)) || (k && !has_moments(&h->k_unit))))
    missing = "second moments of the normalized keys and queries";
  if (method->needs & PRUNE_NEEDS_ACTIVATIONS && o->route == PRUNE_GRAM &&
      ((q && !has_moments(&h->q)) || (k && !has_moments(&h->k))))
    missing = "Gram matrices of the activations";
  if (method->needs & PRUNE_NEEDS_ACTIVATIONS && o->route == PRUNE_ROWS &&
      ((q && !has_rows(&h->q_rows)) || (k && !has_rows(&h->k_rows))))
    missing = "activations";
  return missing ? fail(DELTAIC_INVALID_ARGUMENT, "%s needs %s", method->name, missing) : DELTAIC_OK;
}

// ---------------------------------------------------------------- selection

static deltaic_status result_create(struct prune_result *out, int d, int keep) {
  *out = (struct prune_result){.d = d, .keep = keep, .settled = true};
  out->kept = calloc((size_t)keep, sizeof *out->kept);
  out->order = calloc((size_t)keep, sizeof *out->order);
  if (!out->kept || !out->order) return fail_memory("a selection", 2 * (uint64_t)keep * sizeof *out->kept);
  return matrix_create(d, 1, "scores", &out->scores);
}

void prune_result_free(struct prune_result *result) {
  free(result->kept);
  free(result->order);
  free(result->projection);
  free(result->scores);
  free(result->swaps);
  *result = (struct prune_result){0};
}

static int ascending(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

deltaic_status prune_select(const struct prune_method *method, const struct prune_head *head, int keep,
                            const struct prune_options *options, struct prune_result *out) {
  struct prune_options o = options ? *options : (struct prune_options){0};
  struct prune_head h = *head;
  if (h.blocks < 1) h.blocks = 1;
  *out = (struct prune_result){0};
  deltaic_status status = check_sizes(&h, keep);
  if (!status) status = check_options(&o);
  if (!status) status = check_needs(method, &h, &o);
  if (!status) status = result_create(out, h.d, keep);
  if (!status) status = method->select(&h, keep, &o, out);
  if (status) {
    prune_result_free(out);
    return status;
  }
  if (out->projection) {
    free(out->kept);
    free(out->order);
    out->kept = out->order = NULL;
    return DELTAIC_OK;
  }
  memcpy(out->kept, out->order, sizeof *out->kept * (size_t)keep);
  qsort(out->kept, (size_t)keep, sizeof *out->kept, ascending);
  return DELTAIC_OK;
}

deltaic_status prune_target(int d, double ratio, int blocks, int *keep) {
  if (!(ratio >= 0 && ratio < 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "a share of %g to remove (0 or more, below 1)", ratio);
  int n = (int)floor(d * (1 - ratio));
  if (blocks < 1) blocks = 1;
  n -= n % blocks;
  *keep = n < blocks ? blocks : n;
  return DELTAIC_OK;
}
