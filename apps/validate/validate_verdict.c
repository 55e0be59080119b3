// validate_verdict: checks the comparisons against their limits and finds the first failure.
#include "validate.h"

#include <math.h>
#include <stdio.h>

static bool within(const struct distance *d, double limit) { return !d->count || distance_relative(d) <= limit; }

int32_t first_layer_over(const struct comparison *c, int32_t layers) {
  for (int32_t i = 0; i < layers; ++i)
    if (!within(&c->ours.layers[i], c->limit)) return i;
  return -1;
}

// A source with a truth is no judge of ours: it is shown beside our own distance from that truth.
bool comparison_passes(const struct comparison *c, int32_t layers) {
  return c->truth || (within(&c->ours.all, c->limit) && first_layer_over(c, layers) < 0);
}

const struct comparison *against_truth(const struct validation *v, const struct comparison *c) {
  for (size_t i = 0; i < v->count && c->truth; ++i) {
    const struct comparison *other = &v->comparisons[i];
    if (other->source == c->truth && other->kind == c->kind && other->piece == c->piece) return other;
  }
  return NULL;
}

double nll_limit(const struct validation *v, size_t source) { return limits_of(v, &v->sources[source])->nll; }

bool nll_passes(const struct validation *v) {
  for (size_t i = 0; v->nll.there && i < v->source_count; ++i) {
    double reference = v->nll.reference[i];
    if (!isnan(reference) && !(fabs(v->nll.ours - reference) <= nll_limit(v, i))) return false;
  }
  return true;
}

// The lowest layer counts, then the order in the file; intermediate tensors come before the logits.
static const struct comparison *first_over(const struct validation *v) {
  const struct comparison *first = NULL;
  for (size_t i = 0; i < v->count; ++i) {
    const struct comparison *c = &v->comparisons[i];
    if (comparison_passes(c, v->layers)) continue;
    int32_t layer = first_layer_over(c, v->layers), least = first ? first_layer_over(first, v->layers) : -1;
    if (!first || (layer >= 0 && (least < 0 || layer < least))) first = c;
  }
  return first;
}

bool first_failure(const struct validation *v, char *text, size_t capacity) {
  const struct comparison *c = first_over(v);
  int32_t layer = c ? first_layer_over(c, v->layers) : -1;
  double relative = c ? distance_relative(layer >= 0 ? &c->ours.layers[layer] : &c->ours.all) : 0;
  char where[64] = "";
  if (layer >= 0) snprintf(where, sizeof where, "layer %d is the first over the limit: ", layer);
  if (c && !isfinite(relative))
    snprintf(text, capacity, "%s%s%s is not finite", where, layer >= 0 ? "its " : "", c->kind);
  else if (c)
    snprintf(text, capacity, "%srelative RMS %.1e of %s%s, limit %.1e", where, relative, layer >= 0 ? "its " : "",
             c->kind, c->limit);
  else if (v->greedy.wrong)
    snprintf(text, capacity, "greedy token %zu is %d, not %d, with a margin of %g", v->greedy.first_wrong,
             v->greedy.got, v->greedy.expected, v->greedy.margin);
  else if (!nll_passes(v))
    snprintf(text, capacity, "mean NLL %.6f is further from the reference's than its limit", v->nll.ours);
  else
    return false;
  return true;
}
