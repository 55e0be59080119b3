// choose: runs a pruning method on all heads. Heads run in parallel; the weights of one layer are read at a time.
#include "choose.h"

#include "pool.h"

#include <cblas.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static deltaic_status create(const struct source *source, const struct deltaic_statistics *s, const char *method,
                             struct deltaic_selection **out) {
  struct deltaic_selection *x = calloc(1, sizeof *x);
  if (!x) return fail_memory("a selection", sizeof *x);
  snprintf(x->method, sizeof x->method, "%s", method);
  x->fingerprint = source->fingerprint;
  x->measured = s && s->done;
  x->text_hash = s ? s->hash : 0;
  x->text_tokens = s ? s->done : 0;
  x->layers = calloc((size_t)source->count, sizeof *x->layers);
  bool room = x->layers != NULL;
  for (int i = 0; room && i < source->count; i++) {
    struct chosen_layer *l = &x->layers[x->count++];
    l->from = source->layers[i];
    l->heads = calloc((size_t)l->from.H, sizeof *l->heads);
    l->before = calloc((size_t)l->from.H, sizeof *l->before);
    l->after = calloc((size_t)l->from.H, sizeof *l->after);
    room = l->heads && l->before && l->after;
  }
  *out = x;
  return room ? DELTAIC_OK : fail_memory("a selection", 0);
}

void selection_free(struct deltaic_selection *s) {
  if (!s) return;
  for (int i = 0; i < s->count; i++) {
    struct chosen_layer *l = &s->layers[i];
    for (int h = 0; l->heads && h < l->from.H; h++) prune_result_free(&l->heads[h]);
    free(l->heads);
    free(l->before);
    free(l->after);
  }
  free(s->layers);
  free(s);
}

// ---------------------------------------------------------------- Gram matrices of the selected side

static deltaic_status side_gram(const struct prune_head *h, deltaic_prune_side side, double **out, int64_t *rows) {
  deltaic_status status = matrix_create(h->d, h->d, "a Gram matrix", out);
  *rows = 0;
  if (status) return status;
  if (side != DELTAIC_PRUNE_KEYS) cblas_daxpy(h->d * h->d, 1.0, h->q.gram, 1, *out, 1);
  if (side != DELTAIC_PRUNE_QUERIES) cblas_daxpy(h->d * h->d, 1.0, h->k.gram, 1, *out, 1);
  if (side != DELTAIC_PRUNE_KEYS) *rows += h->q.rows;
  if (side != DELTAIC_PRUNE_QUERIES) *rows += h->k.rows;
  return DELTAIC_OK;
}

// Computes gram' = T gram T^T for a projection T (keep, d), row-major.
static deltaic_status measure_projected(const double *gram, const struct prune_result *r, int64_t rows,
                                        struct rank_measures *out) {
  double *half = NULL, *whole = NULL;
  deltaic_status status = matrix_create(r->keep, r->d, "a Gram matrix", &half);
  if (!status) status = matrix_create(r->keep, r->keep, "a Gram matrix", &whole);
  if (!status) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, r->keep, r->d, r->d, 1, r->projection, r->d, gram, r->d, 0,
                half, r->d);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, r->keep, r->keep, r->d, 1, half, r->d, r->projection, r->d, 0,
                whole, r->keep);
    status = rank_of_gram(whole, r->keep, rows, out);
  }
  free(half);
  free(whole);
  return status;
}

static deltaic_status measure(const struct prune_head *h, deltaic_prune_side side, const struct prune_result *r,
                              struct rank_measures *before, struct rank_measures *after) {
  double *gram = NULL;
  int64_t rows;
  deltaic_status status = side_gram(h, side, &gram, &rows);
  if (!status) status = rank_of_gram(gram, h->d, rows, before);
  if (!status && r->projection)
    status = measure_projected(gram, r, rows, after);
  else if (!status)
    status = rank_of_kept(gram, h->d, r->kept, r->keep, rows, after);
  free(gram);
  return status;
}

// ---------------------------------------------------------------- number of kept channels

static deltaic_status head_needs(const struct deltaic_statistics *s, const struct source_layer *l, int i, int head,
                                 const deltaic_select_options *o, int *keep) {
  struct prune_head h = {.d = l->d};
  double *gram;
  int64_t rows;
  statistics_fill(s, i, head, &h);
  deltaic_status status = side_gram(&h, o->side, &gram, &rows);
  if (status) return status;
  if (o->rule == DELTAIC_KEEP_VOLUME)
    status = rank_keep_by_volume(gram, l->d, o->volume_lost, keep);
  else
    status = rank_keep_by_rank(gram, l->d,
                               o->rule == DELTAIC_KEEP_STABLE ? RANK_STABLE
                               : o->rule == DELTAIC_KEEP_RANK ? RANK_NUMERICAL
                                                              : RANK_ENTROPY,
                               keep);
  free(gram);
  return status;
}

static deltaic_status keep_by_rule(const struct deltaic_statistics *s, const deltaic_select_options *o,
                                   struct deltaic_selection *x) {
  int most = 1;
  if (!s || !s->done)
    return fail(DELTAIC_INVALID_ARGUMENT, "how many channels to keep is to be found out: that needs a text");
  for (int i = 0; i < x->count; i++) {
    struct chosen_layer *l = &x->layers[i];
    for (int h = 0; h < l->from.H; h++) {
      int keep;
      deltaic_status status = head_needs(s, &l->from, i, h, o, &keep);
      if (status) return status;
      if (keep > l->keep) l->keep = keep;
    }
    l->keep = (l->keep + l->from.blocks - 1) / l->from.blocks * l->from.blocks;
    if (l->keep > most) most = l->keep;
  }
  for (int i = 0; i < x->count && !o->per_layer; i++)
    x->layers[i].keep = most < x->layers[i].from.d ? most : x->layers[i].from.d;
  return DELTAIC_OK;
}

static deltaic_status keep_given(const struct source *source, const deltaic_select_options *o,
                                 struct deltaic_selection *x) {
  if (o->keep_count != 1 && o->keep_count != (size_t)x->count)
    return fail(DELTAIC_INVALID_ARGUMENT, "%zu numbers of channels to keep, but %s has %d delta-rule layers",
                o->keep_count, source->path, x->count);
  for (int i = 0; i < x->count; i++) {
    struct chosen_layer *l = &x->layers[i];
    uint32_t keep = o->keep[o->keep_count == 1 ? 0 : i];
    if (keep < 1 || keep > (uint32_t)l->from.d)
      return fail(DELTAIC_INVALID_ARGUMENT, "cannot keep %u of the %d channels of layer %u", keep, l->from.d,
                  l->from.layer);
    if (keep % (uint32_t)l->from.blocks)
      return fail(DELTAIC_INVALID_ARGUMENT, "%u channels cannot be shared out evenly over the %d blocks of a head",
                  keep, l->from.blocks);
    l->keep = (int)keep;
  }
  return DELTAIC_OK;
}

static deltaic_status set_targets(const struct source *source, const struct deltaic_statistics *s,
                                  const deltaic_select_options *o, struct deltaic_selection *x) {
  deltaic_status status = DELTAIC_OK;
  if (o->rule < DELTAIC_KEEP_GIVEN || o->rule > DELTAIC_KEEP_VOLUME)
    return fail(DELTAIC_INVALID_ARGUMENT, "no such rule for what to keep");
  if (o->rule != DELTAIC_KEEP_GIVEN) return keep_by_rule(s, o, x);
  if (o->keep_count) return keep_given(source, o, x);
  for (int i = 0; i < x->count && !status; i++)
    status = prune_target(x->layers[i].from.d, o->cut, x->layers[i].from.blocks, &x->layers[i].keep);
  return status;
}

static void sum_up(struct deltaic_selection *x) {
  double before = 0, after = 0;
  for (int i = 0; i < x->count; i++) {
    before += (double)x->layers[i].from.d * x->layers[i].from.H;
    after += (double)x->layers[i].keep * x->layers[i].from.H;
  }
  x->cut = 1 - after / before;
}

// ---------------------------------------------------------------- one layer

struct layer_work {
  const struct source *source;
  const struct deltaic_statistics *s; // may be NULL
  bool measured;                      // activations, not only gradients
  const struct prune_method *method;  // NULL: the channels are given and are only measured
  struct prune_options options;
  int i;
  struct chosen_layer *l;
  const struct source_weights *weights;
  const float **wk; // (H, steps): the key projections of each step
  _Atomic int status;
  char message[512]; // error message of the head that failed
};

static void choose_head(void *context, uint64_t index, uint32_t worker) {
  struct layer_work *w = context;
  const struct source_layer *from = &w->l->from;
  size_t D = w->source->spec.D, rows = (size_t)from->d * D, step = (size_t)from->H * rows;
  struct prune_head h = {.d = from->d,
                         .blocks = from->blocks,
                         .id = (uint64_t)from->layer * (uint64_t)from->H + index,
                         .steps = from->steps,
                         .hidden = (int)D};
  (void)worker;
  deltaic_status status = DELTAIC_OK;
  struct prune_result *out = &w->l->heads[index];
  if (w->s) statistics_fill(w->s, w->i, (int)index, &h);
  if (w->method) {
    const float **wk = w->wk + index * (size_t)from->steps;
    for (int m = 0; m < from->steps; m++) wk[m] = w->weights->k + (size_t)m * step + index * rows;
    h.wq = w->weights->q + index * rows;
    h.wk = wk;
    status = prune_select(w->method, &h, w->l->keep, &w->options, out);
  }
  if (!status && w->measured)
    status = measure(&h, (deltaic_prune_side)w->options.side, out, &w->l->before[index], &w->l->after[index]);
  int none = DELTAIC_OK;
  if (status && atomic_compare_exchange_strong(&w->status, &none, (int)status))
    snprintf(w->message, sizeof w->message, "layer %u, head %d: %s", from->layer, (int)index, deltaic_last_error());
}

static deltaic_status choose_layer(struct layer_work *w, struct pool *pool, struct chosen_layer *l, int i) {
  struct source_weights weights = {0};
  deltaic_status status = DELTAIC_OK;
  w->l = l;
  w->i = i;
  w->weights = &weights;
  if (w->method) {
    w->wk = malloc((size_t)(l->from.H * l->from.steps) * sizeof *w->wk);
    status = w->wk ? source_read_weights(w->source, i, &weights) : fail_memory("a selection", 0);
  }
  if (!status) pool_run(pool, (uint64_t)l->from.H, choose_head, w);
  source_free_weights(&weights);
  free(w->wk);
  w->wk = NULL;
  if (!status && w->status) status = fail((deltaic_status)w->status, "%s", w->message);
  return status;
}

static deltaic_status choose_layers(struct layer_work *w, struct deltaic_selection *x) {
  struct pool *pool = NULL;
  deltaic_status status = pool_create(0, &pool);
  matrix_use_one_thread();
  for (int i = 0; i < x->count && !status; i++) status = choose_layer(w, pool, &x->layers[i], i);
  pool_free(pool);
  sum_up(x);
  return status;
}

// ---------------------------------------------------------------- all layers

static struct prune_options method_options(const deltaic_select_options *o) {
  return (struct prune_options){.side = (enum prune_side)o->side,
                                .seed = o->seed,
                                .route = o->rows ? PRUNE_ROWS : PRUNE_GRAM,
                                .tolerance = o->tolerance,
                                .swap_limit = (int)o->swap_limit,
                                .adversarial = o->adversarial,
                                .like_reference = o->like_reference};
}

static deltaic_status check(const struct source *source, const struct deltaic_statistics *s,
                            const struct prune_method *m, const deltaic_select_options *o) {
  if (!m) return fail(DELTAIC_INVALID_ARGUMENT, "there is no pruning method \"%s\"", o->method);
  if (o->side < DELTAIC_PRUNE_JOINT || o->side > DELTAIC_PRUNE_QUERIES)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_select_options: side is %d", (int)o->side);
  if (o->swap_limit > 1u << 30)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_select_options: swap_limit is %u; the limit is %u", o->swap_limit,
                1u << 30);
  if ((m->needs & PRUNE_NEEDS_MEASUREMENTS && (!s || !s->done)) ||
      (m->needs & PRUNE_NEEDS_GRADIENTS && (!s || !s->gradient_tokens)))
    return fail(DELTAIC_INVALID_ARGUMENT, "the method %s needs a calibration text", m->name);
  return s ? statistics_check(s, source, "the statistics") : DELTAIC_OK;
}

deltaic_status choose(const struct source *source, const struct deltaic_statistics *s, const deltaic_select_options *o,
                      struct deltaic_selection **out) {
  const struct prune_method *method = prune_method_find(o->method ? o->method : "drrqr");
  struct deltaic_selection *x = NULL;
  deltaic_status status = check(source, s, method, o);
  if (!status) status = create(source, s, method->name, &x);
  if (!status) status = set_targets(source, s, o, x);
  if (!status) {
    struct layer_work w = {
        .source = source, .s = s, .measured = s && s->done, .method = method, .options = method_options(o)};
    x->side = o->side;
    if (method->needs & PRUNE_NEEDS_GRADIENTS) {
      x->text_hash = s->gradient_hash;
      x->text_tokens = s->gradient_tokens;
    }
    status = choose_layers(&w, x);
  }
  if (status)
    selection_free(x);
  else
    *out = x;
  return status;
}

static deltaic_status take_set(struct prune_result *r, const struct source_layer *l, int keep, const int32_t *kept) {
  *r = (struct prune_result){.d = l->d, .keep = keep, .settled = true, .kept = malloc((size_t)keep * sizeof *r->kept)};
  if (!r->kept) return fail_memory("a selection", (uint64_t)keep * sizeof *r->kept);
  for (int j = 0; j < keep; j++) {
    if (kept[j] < 0 || kept[j] >= l->d || (j && kept[j] <= kept[j - 1]))
      return fail(DELTAIC_INVALID_ARGUMENT, "layer %u: channels must be ascending and below %d", l->layer, l->d);
    r->kept[j] = kept[j];
  }
  return DELTAIC_OK;
}

deltaic_status choose_given(const struct source *source, const struct deltaic_statistics *s, const char *name,
                            uint32_t keep, const int32_t *kept, size_t count, struct deltaic_selection **out) {
  deltaic_select_options o = {.keep = &keep, .keep_count = 1};
  struct deltaic_selection *x = NULL;
  size_t used = 0;
  if (s && !s->done) s = NULL;
  deltaic_status status = s ? statistics_check(s, source, "the statistics") : DELTAIC_OK;
  if (!status) status = create(source, s, name, &x);
  if (!status) status = keep_given(source, &o, x);
  for (int i = 0; !status && i < x->count; i++)
    for (int h = 0; !status && h < x->layers[i].from.H; h++, used += keep)
      status = used + keep > count ? fail(DELTAIC_INVALID_ARGUMENT, "there are too few channels for all heads")
                                   : take_set(&x->layers[i].heads[h], &x->layers[i].from, (int)keep, kept + used);
  if (!status) {
    struct layer_work w = {.source = source, .s = s, .measured = s != NULL};
    status = choose_layers(&w, x);
  }
  if (status)
    selection_free(x);
  else
    *out = x;
  return status;
}
