// product: builds the pruned checkpoint in a temporary folder and renames it when complete (POSIX).
#define _POSIX_C_SOURCE 200809L
#include "product.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Calls `each` for every entry of the folder except . and .., until one call fails.
static deltaic_status each_entry(const char *folder,
                                 deltaic_status (*each)(void *user, const char *path, const char *name), void *user) {
  DIR *dir = opendir(folder);
  if (!dir) return fail_errno(folder, "read", errno);
  deltaic_status status = DELTAIC_OK;
  for (struct dirent *e; !status && (e = readdir(dir));) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    char *path = path_join(folder, e->d_name);
    status = path ? each(user, path, e->d_name) : DELTAIC_OUT_OF_MEMORY;
    free(path);
  }
  closedir(dir);
  return status;
}

static deltaic_status remove_entry(void *user, const char *path, const char *name) {
  (void)user, (void)name;
  return unlink(path) ? fail_errno(path, "removed", errno) : DELTAIC_OK;
}

// Removes a folder that contains only files: a temporary folder, or a checkpoint that product_check() has accepted.
static deltaic_status remove_folder(const char *folder) {
  deltaic_status status = each_entry(folder, remove_entry, NULL);
  return !status && rmdir(folder) ? fail_errno(folder, "removed", errno) : status;
}

// ---------------------------------------------------------------- output path

static deltaic_status refuse_folder(void *user, const char *path, const char *name) {
  struct stat about;
  (void)user, (void)name;
  if (lstat(path, &about) == 0 && S_ISDIR(about.st_mode))
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is a folder in what would be replaced: not touched", path);
  return DELTAIC_OK;
}

// Checks that the parent folder of `out` is writable. It runs first, so that long work does not fail at its end.
static deltaic_status check_parent(const char *out) {
  char *parent = strdup(out);
  if (!parent) return fail_memory("a file name", strlen(out) + 1);
  size_t length = strlen(parent);
  while (length > 1 && parent[length - 1] == '/') parent[--length] = 0;
  char *slash = strrchr(parent, '/');
  if (slash) slash[slash == parent] = 0;
  const char *folder = slash ? parent : ".";
  deltaic_status status = access(folder, W_OK) ? fail_errno(folder, "written", errno) : DELTAIC_OK;
  free(parent);
  return status;
}

deltaic_status product_check(const char *source, const char *out, bool force) {
  struct stat there, from;
  if (!*out) return fail(DELTAIC_INVALID_ARGUMENT, "no name for the pruned checkpoint");
  if (lstat(out, &there)) return errno == ENOENT ? check_parent(out) : fail_errno(out, "written", errno);
  if (stat(source, &from) == 0 && from.st_dev == there.st_dev && from.st_ino == there.st_ino)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is the checkpoint that is to be pruned", out);
  if (!force) return fail(DELTAIC_INVALID_ARGUMENT, "%s: is there already (force replaces a checkpoint)", out);
  char *config = path_join(out, "config.json");
  bool checkpoint = config && S_ISDIR(there.st_mode) && access(config, F_OK) == 0;
  free(config);
  if (!checkpoint) return fail(DELTAIC_INVALID_ARGUMENT, "%s: is no checkpoint, so it is not replaced", out);
  return each_entry(out, refuse_folder, NULL);
}

// Returns a unique temporary name beside `out`, which the caller frees.
static char *name_beside(const char *out) {
  static atomic_uint serial;
  size_t length = strlen(out), capacity = length + 48;
  char *name = malloc(capacity);
  while (length > 1 && out[length - 1] == '/') length--;
  if (name)
    snprintf(name, capacity, "%.*s.%ld-%u.tmp", (int)length, out, (long)getpid(), atomic_fetch_add(&serial, 1));
  else
    fail_memory("a file name", capacity);
  return name;
}

// ---------------------------------------------------------------- files

static deltaic_status write_text(const char *path, const void *text, size_t bytes) {
  FILE *f = fopen(path, "wbx");
  if (!f) return fail_errno(path, "written", errno);
  bool bad = fwrite(text, 1, bytes, f) != bytes;
  bad |= fflush(f) || fsync(fileno(f));
  deltaic_status status = bad ? fail_errno(path, "written", errno) : DELTAIC_OK;
  if (fclose(f) && !status) status = fail_errno(path, "written", errno);
  return status;
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
  struct stat about;
  if (stat(path, &about) || !S_ISREG(about.st_mode) || is_weights(name) || !strcmp(name, "config.json"))
    return DELTAIC_OK;
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
  if (mkdir(p->folder, 0777)) {
    deltaic_status status = fail_errno(p->folder, "made", errno);
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
    p->folder = name_beside(out);
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
    old = name_beside(p->out);
    if (!old) return DELTAIC_OUT_OF_MEMORY;
    if (rename(p->out, old)) status = fail_errno(p->out, "replaced", errno);
  }
  if (!status && rename(p->folder, p->out)) {
    status = fail_errno(p->out, "written", errno);
    if (old && rename(old, p->out)) status = fail(DELTAIC_IO, "%s: was moved to %s", p->out, old);
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
