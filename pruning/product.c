// product: builds the pruned checkpoint in a temporary folder and renames it when complete.
#include "product.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Calls `each` for every entry of a folder until a call fails.
struct walk {
  const char *folder;
  deltaic_status (*each)(void *user, const char *path, const char *name);
  void *user;
  deltaic_status status;
};

static int walk_entry(void *user, const char *name) {
  struct walk *w = user;
  char *path = path_join(w->folder, name);
  w->status = path ? w->each(w->user, path, name) : DELTAIC_OUT_OF_MEMORY;
  free(path);
  return w->status ? ECANCELED : 0;
}

static deltaic_status each_entry(const char *folder,
                                 deltaic_status (*each)(void *user, const char *path, const char *name), void *user) {
  struct walk w = {folder, each, user, DELTAIC_OK};
  int code = platform_list(folder, walk_entry, &w);
  return w.status || !code ? w.status : fail_errno(folder, "read", code);
}

static deltaic_status remove_entry(void *user, const char *path, const char *name) {
  (void)user, (void)name;
  int code = platform_remove(path);
  return code ? fail_errno(path, "removed", code) : DELTAIC_OK;
}

// Removes a folder that contains only files: a temporary folder, or a checkpoint that product_check() has accepted.
static deltaic_status remove_folder(const char *folder) {
  deltaic_status status = each_entry(folder, remove_entry, NULL);
  int code = status ? 0 : platform_remove_folder(folder);
  return code ? fail_errno(folder, "removed", code) : status;
}

// ---------------------------------------------------------------- output path

static deltaic_status refuse_folder(void *user, const char *path, const char *name) {
  struct path_facts about;
  (void)user, (void)name;
  if (!platform_facts(path, false, &about) && about.kind == PATH_FOLDER)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is a folder in what would be replaced: not touched", path);
  return DELTAIC_OK;
}

// Checks that the parent folder of `out` is writable. It runs first, so that long work does not fail at its end.
static deltaic_status check_parent(const char *out) {
  char *name = strdup(out);
  if (!name) return fail_memory("a file name", strlen(out) + 1);
  for (size_t length = strlen(name); length > 1 && platform_separator(name[length - 1]);) name[--length] = 0;
  char *folder = path_parent(name);
  int code = folder ? platform_writable(folder) : ENOMEM;
  deltaic_status status = code ? fail_errno(folder ? folder : name, "written", code) : DELTAIC_OK;
  free(folder);
  free(name);
  return status;
}

deltaic_status product_check(const char *source, const char *out, bool force) {
  struct path_facts there, from;
  if (!*out) return fail(DELTAIC_INVALID_ARGUMENT, "no name for the pruned checkpoint");
  int code = platform_facts(out, false, &there);
  if (code) return code == ENOENT ? check_parent(out) : fail_errno(out, "written", code);
  if (!platform_facts(source, true, &from) && from.volume == there.volume && from.index == there.index)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is the checkpoint that is to be pruned", out);
  if (!force) return fail(DELTAIC_INVALID_ARGUMENT, "%s: is there already (force replaces a checkpoint)", out);
  char *config = path_join(out, "config.json");
  bool checkpoint = config && there.kind == PATH_FOLDER && file_exists(config);
  free(config);
  if (!checkpoint) return fail(DELTAIC_INVALID_ARGUMENT, "%s: is no checkpoint, so it is not replaced", out);
  return each_entry(out, refuse_folder, NULL);
}

// Returns a unique temporary name beside `out`, which the caller frees.
static char *temporary_name(const char *out) {
  char *name = name_beside(out);
  if (!name) fail_memory("a file name", strlen(out));
  return name;
}

// ---------------------------------------------------------------- files

static deltaic_status write_text(const char *path, const void *text, size_t bytes) {
  FILE *f = platform_open(path, "wbx");
  if (!f) return fail_errno(path, "written", errno);
  int code = fwrite(text, 1, bytes, f) != bytes ? errno : platform_sync(f);
  if (fclose(f) && !code) code = errno;
  return code ? fail_errno(path, "written", code) : DELTAIC_OK;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && !strcmp(text + length - tail, end);
}

// Whether the file holds weights. Such files are not copied, because they hold the unpruned model.
static bool is_weights(const char *name) {
  static const char *const ends[] = {
      ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (ends_with(name, ends[i])) return true;
  return false;
}

static deltaic_status copy_entry(void *user, const char *path, const char *name) {
  const struct deltaic_pruning *p = user;
  struct file_view view = {0};
  if (!platform_is(path, PATH_FILE) || is_weights(name) || !strcmp(name, "config.json")) return DELTAIC_OK;
  char *to = path_join(p->folder, name);
  deltaic_status status = to ? file_map(path, &view) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = write_text(to, view.data, view.bytes);
  file_unmap(&view);
  free(to);
  return status;
}

static deltaic_status write_config(const struct deltaic_pruning *p, const struct deltaic_selection *selection) {
  char *text = NULL, *path = path_join(p->folder, "config.json");
  deltaic_status status = path ? rewrite_config(&p->source, selection, &text) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = write_text(path, text, strlen(text));
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
  if (!status) status = each_entry(p->source.path, copy_entry, p);
  return status;
}

deltaic_status product_begin(const char *path, const struct deltaic_selection *selection, const char *out,
                             const deltaic_prune_write_options *options, struct deltaic_pruning **pruning) {
  deltaic_status status = product_check(path, out, options->force);
  if (status) return status;
  struct deltaic_pruning *p = calloc(1, sizeof *p);
  if (!p) return fail_memory("a pruned checkpoint", sizeof *p);
  p->force = options->force;
  status = source_open(path, &p->source);
  if (!status && p->source.fingerprint != selection->fingerprint)
    status = fail(DELTAIC_INVALID_ARGUMENT, "%s: not the model whose channels were selected", path);
  if (!status) {
    p->out = strdup(out);
    p->folder = temporary_name(out);
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
  char *old = NULL;
  deltaic_status status = product_check(p->source.path, p->out, p->force);
  if (status) return status;
  if (file_exists(p->out)) {
    old = temporary_name(p->out);
    if (!old) return DELTAIC_OUT_OF_MEMORY;
    int code = platform_rename(p->out, old);
    if (code) status = fail_errno(p->out, "replaced", code);
  }
  int code = status ? 0 : platform_rename(p->folder, p->out);
  if (code) {
    status = fail_errno(p->out, "written", code);
    if (old && platform_rename(old, p->out)) status = fail(DELTAIC_IO, "%s: was moved to %s", p->out, old);
  } else if (!status) {
    free(p->folder);
    p->folder = NULL;
    if (old) status = remove_folder(old);
  }
  free(old);
  return status;
}

void product_free(struct deltaic_pruning *p) {
  if (!p) return;
  if (p->folder) remove_folder(p->folder);
  source_close(&p->source);
  free(p->out);
  free(p->folder);
  free(p->tensors);
  free(p->o_offsets);
  free(p);
}
