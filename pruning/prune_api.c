// prune_api: implements the functions of deltaic_prune.h, except those in calibrate.c and refit.c, by calling the
// internal pruning functions.
#include "choose.h"
#include "folder.h"
#include "option_structs.h"
#include "product.h"

#include <stdlib.h>

// ---------------------------------------------------------------- methods

static void describe(const struct prune_method *from, deltaic_prune_method *to) {
  *to = (deltaic_prune_method){.name = from->name,
                               .about = from->about,
                               .text = from->needs & (PRUNE_NEEDS_MEASUREMENTS | PRUNE_NEEDS_GRADIENTS),
                               .gradients = from->needs & PRUNE_NEEDS_GRADIENTS,
                               .unit = from->needs & PRUNE_NEEDS_UNIT_MOMENTS,
                               .rows = from->needs & PRUNE_NEEDS_ACTIVATIONS};
}

bool deltaic_prune_method_at(int32_t i, deltaic_prune_method *method) {
  const struct prune_method *found = prune_method_at(i);
  if (found && method) describe(found, method);
  return found != NULL;
}

bool deltaic_prune_method_find(const char *name, deltaic_prune_method *method) {
  const struct prune_method *found = name ? prune_method_find(name) : NULL;
  if (found && method) describe(found, method);
  return found != NULL;
}

// ---------------------------------------------------------------- statistics

deltaic_status deltaic_statistics_create(const char *path, const deltaic_calibration_options *options,
                                         deltaic_statistics **out) {
  deltaic_calibration_options o;
  struct source source;
  if (!path || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_statistics_create: %s is NULL", !path ? "path" : "out");
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_calibration_options");
  if (status) return status;
  if (o.rows > DELTAIC_CALIBRATION_ROWS) return fail(DELTAIC_INVALID_ARGUMENT, "%u activations of a head", o.rows);
  status = source_open(path, &source);
  if (!status) status = statistics_create(&source, &o, out);
  source_close(&source);
  return status;
}

deltaic_status deltaic_statistics_load(const char *path, const char *file, deltaic_statistics **out) {
  struct source source;
  if (!path || !file || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_statistics_load: %s is NULL",
                !path   ? "path"
                : !file ? "file"
                        : "out");
  deltaic_status status = source_open(path, &source);
  if (!status) status = statistics_load(&source, file, out);
  source_close(&source);
  return status;
}

deltaic_status deltaic_statistics_save(const deltaic_statistics *s, const char *file) {
  if (!s || !file)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_statistics_save: %s is NULL", !s ? "statistics" : "file");
  if (s->broken) return fail(DELTAIC_BAD_STATE, "these statistics were spoilt by a failure: begin anew");
  return statistics_save(s, file);
}

void deltaic_statistics_free(deltaic_statistics *s) { statistics_free(s); }

void deltaic_statistics_get_info(const deltaic_statistics *s, deltaic_statistics_info *info) {
  if (!info) return;
  *info = (deltaic_statistics_info){0};
  if (!s) return;
  *info = (deltaic_statistics_info){.tokens = s->done,
                                    .hash = s->hash,
                                    .gradient_tokens = s->gradient_tokens,
                                    .gradient_hash = s->gradient_hash,
                                    .window = s->window,
                                    .rows = (uint32_t)s->rows,
                                    .unit = s->unit,
                                    .rows_together = s->rows_together};
}

// ---------------------------------------------------------------- selection

deltaic_status deltaic_select(const char *path, const deltaic_statistics *s, const deltaic_select_options *options,
                              deltaic_selection **out) {
  deltaic_select_options o;
  struct source source;
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_select: %s is NULL", !path ? "path" : "out");
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_select_options");
  if (status) return status;
  if (o.keep_count && !o.keep)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_select_options: keep is NULL, and keep_count is not 0");
  status = source_open(path, &source);
  if (!status) status = choose(&source, s, &o, out);
  source_close(&source);
  return status;
}

deltaic_status deltaic_select_given(const char *path, const deltaic_statistics *s, const char *name, uint32_t keep,
                                    const int32_t *kept, size_t count, deltaic_selection **out) {
  struct source source;
  if (!path || !name || !kept || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_select_given: %s is NULL",
                !path   ? "path"
                : !name ? "name"
                : !kept ? "kept"
                        : "out");
  deltaic_status status = source_open(path, &source);
  if (!status) status = choose_given(&source, s, name, keep, kept, count, out);
  source_close(&source);
  return status;
}

void deltaic_selection_free(deltaic_selection *s) { selection_free(s); }

size_t deltaic_selection_count(const deltaic_selection *s) {
  size_t count = 0;
  for (int i = 0; s && i < s->count; i++) count += (size_t)s->layers[i].from.H;
  return count;
}

static const struct chosen_layer *find_head(const deltaic_selection *s, size_t *i) {
  for (int n = 0; s && n < s->count; n++) {
    size_t heads = (size_t)s->layers[n].from.H;
    if (*i < heads) return &s->layers[n];
    *i -= heads;
  }
  return NULL;
}

static deltaic_head_measures measures_of(const struct rank_measures *m) {
  return (deltaic_head_measures){m->condition, m->utilization, m->log_volume};
}

deltaic_status deltaic_selection_at(const deltaic_selection *s, size_t i, deltaic_selected_head *head) {
  const struct chosen_layer *l = find_head(s, &i);
  if (!l || !head) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_selection_at: there is no such head");
  const struct prune_result *r = &l->heads[i];
  *head = (deltaic_selected_head){.layer = (int32_t)l->from.layer,
                                  .head = (int32_t)i,
                                  .size = l->from.d,
                                  .keep = l->keep,
                                  .kept = r->kept,
                                  .measured = s->measured,
                                  .dead = r->dead,
                                  .rank = r->rank,
                                  .swaps = r->swap_count,
                                  .rho = r->rho,
                                  .settled = r->settled};
  if (s->measured) {
    head->before = measures_of(&l->before[i]);
    head->after = measures_of(&l->after[i]);
  }
  return DELTAIC_OK;
}

deltaic_status deltaic_selection_swap(const deltaic_selection *s, size_t i, int32_t n, int32_t *dropped, int32_t *taken,
                                      double *gain) {
  const struct chosen_layer *l = find_head(s, &i);
  if (!l || n < 0 || n >= l->heads[i].swap_count || !dropped || !taken || !gain)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_selection_swap: there is no such swap");
  const struct prune_swap *swap = &l->heads[i].swaps[n];
  *dropped = swap->dropped;
  *taken = swap->taken;
  *gain = swap->gain;
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- pruned checkpoint

deltaic_status deltaic_pruning_check(const char *path, const char *out, bool force) {
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_check: %s is NULL", !path ? "path" : "out");
  return folder_check(path, out, "config.json", force);
}

deltaic_status deltaic_pruning_begin(const char *path, const deltaic_selection *selection, const char *out,
                                     const deltaic_prune_write_options *options, deltaic_pruning **pruning) {
  deltaic_prune_write_options o;
  if (!path || !selection || !out || !pruning)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_begin: %s is NULL",
                !path        ? "path"
                : !selection ? "selection"
                : !out       ? "out"
                             : "pruning");
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_prune_write_options");
  return status ? status : product_begin(path, selection, out, &o, pruning);
}

const char *deltaic_pruning_path(const deltaic_pruning *p) { return p ? p->folder : NULL; }

deltaic_status deltaic_pruning_commit(deltaic_pruning *p) {
  if (!p || !p->folder) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_commit: nothing is left to commit");
  return product_commit(p);
}

void deltaic_pruning_free(deltaic_pruning *p) { product_free(p); }
