// product: builds the pruned checkpoint in a temporary folder and renames it when complete.
#include "product.h"

#include "folder.h"

#include <stdlib.h>
#include <string.h>

// Files with weights are not copied, because they hold the unpruned model.
static bool is_copied(const void *user, const char *name) {
  (void)user;
  return !folder_weights(name) && strcmp(name, "config.json");
}

static deltaic_status write_config(const struct deltaic_pruning *p, const struct deltaic_selection *selection) {
  char *text = NULL, *path = path_join(p->folder, "config.json");
  deltaic_status status = path ? rewrite_config(&p->source, selection, &text) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = folder_write(path, text, strlen(text));
  free(text);
  free(path);
  return status;
}

// ---------------------------------------------------------------- begin, commit

static const char *refit_note(const deltaic_refit_options *o, char *text, size_t capacity) {
  if (!o) return NULL;
  if (!(o->ridge > 0)) return "ridge of one token";
  snprintf(text, capacity, "ridge %g of the mean diagonal", o->ridge);
  return text;
}

static deltaic_status write_all(struct deltaic_pruning *p, const struct deltaic_selection *selection,
                                const deltaic_prune_write_options *o) {
  char note[128];
  struct rewrite_options options = {o->progress, o->progress_user, refit_note(o->refit, note, sizeof note)};
  int code = platform_make_folder(p->folder, false);
  if (code) {
    deltaic_status status = fail_errno(p->folder, "made", code);
    free(p->folder);
    p->folder = NULL; // the folder was not created here, so it must not be removed
    return status;
  }
  deltaic_status status = rewrite_tensors(&p->source, selection, p->tensors, &options, p->o_offsets);
  if (!status) status = write_config(p, selection);
  if (!status) status = folder_copy(p->source.path, p->folder, is_copied, p);
  return status;
}

deltaic_status product_begin(const char *path, const struct deltaic_selection *selection, const char *out,
                             const deltaic_prune_write_options *options, struct deltaic_pruning **pruning) {
  deltaic_status status = folder_check(path, out, "config.json", options->force);
  if (status) return status;
  struct deltaic_pruning *p = calloc(1, sizeof *p);
  if (!p) return fail_memory("a pruned checkpoint", sizeof *p);
  p->force = options->force;
  status = source_open(path, &p->source);
  if (!status && p->source.fingerprint != selection->fingerprint)
    status = fail(DELTAIC_INVALID_ARGUMENT, "%s: not the model whose channels were selected", path);
  if (!status) {
    p->out = strdup(out);
    p->folder = folder_beside(out);
    p->tensors = p->folder ? path_join(p->folder, "model.safetensors") : NULL;
    p->o_offsets = calloc((size_t)p->source.count, sizeof *p->o_offsets);
    if (!p->out || !p->folder || !p->tensors || !p->o_offsets) {
      free(p->folder);
      p->folder = NULL;
      status = fail_memory("a pruned checkpoint", 0);
    }
  }
  if (!status) status = write_all(p, selection, options);
  if (status)
    product_free(p);
  else
    *pruning = p;
  return status;
}

deltaic_status product_commit(struct deltaic_pruning *p) {
  deltaic_status status = folder_check(p->source.path, p->out, "config.json", p->force);
  if (!status) status = folder_rename(p->folder, p->out);
  if (file_exists(p->folder)) return status;
  free(p->folder);
  p->folder = NULL;
  return status;
}

void product_free(struct deltaic_pruning *p) {
  if (!p) return;
  if (p->folder) folder_remove(p->folder);
  source_close(&p->source);
  free(p->out);
  free(p->folder);
  free(p->tensors);
  free(p->o_offsets);
  free(p);
}
