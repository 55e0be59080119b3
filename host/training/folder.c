// folder: see folder.h.
#include "folder.h"

#include "file.h"

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

deltaic_status folder_remove(const char *folder) {
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

deltaic_status folder_check(const char *source, const char *out, const char *marker, bool force) {
  struct path_facts there, from;
  if (!*out) return fail(DELTAIC_INVALID_ARGUMENT, "no name for the new checkpoint");
  int code = platform_facts(out, false, &there);
  if (code) return code == ENOENT ? check_parent(out) : fail_errno(out, "written", code);
  if (!platform_facts(source, true, &from) && from.volume == there.volume && from.index == there.index)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is the checkpoint that is read", out);
  if (!force) return fail(DELTAIC_INVALID_ARGUMENT, "%s: is there already (force replaces a checkpoint)", out);
  char *file = path_join(out, marker);
  bool ours = file && there.kind == PATH_FOLDER && file_exists(file);
  free(file);
  if (!ours)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: has no %s: it is no checkpoint of this kind, and is not replaced", out,
                marker);
  return each_entry(out, refuse_folder, NULL);
}

char *folder_beside(const char *out) {
  char *name = name_beside(out);
  if (!name) fail_memory("a file name", strlen(out));
  return name;
}

// ---------------------------------------------------------------- files

deltaic_status folder_write(const char *path, const void *text, size_t bytes) {
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

bool folder_weights(const char *name) {
  static const char *const ends[] = {
      ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (ends_with(name, ends[i])) return true;
  return false;
}

struct copying {
  const char *to;
  bool (*wanted)(const void *user, const char *name);
  const void *user;
};

static deltaic_status copy_entry(void *user, const char *path, const char *name) {
  const struct copying *c = user;
  struct file_view view = {0};
  if (!platform_is(path, PATH_FILE) || !c->wanted(c->user, name)) return DELTAIC_OK;
  char *to = path_join(c->to, name);
  deltaic_status status = to ? file_map(path, &view) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = folder_write(to, view.data, view.bytes);
  file_unmap(&view);
  free(to);
  return status;
}

deltaic_status folder_copy(const char *from, const char *to, bool (*wanted)(const void *user, const char *name),
                           const void *user) {
  struct copying c = {to, wanted, user};
  return each_entry(from, copy_entry, &c);
}

deltaic_status folder_rename(const char *folder, const char *out) {
  char *old = NULL;
  deltaic_status status = DELTAIC_OK;
  if (file_exists(out)) {
    old = folder_beside(out);
    if (!old) return DELTAIC_OUT_OF_MEMORY;
    int code = platform_rename(out, old);
    if (code) status = fail_errno(out, "replaced", code);
  }
  int code = status ? 0 : platform_rename(folder, out);
  if (code) {
    status = fail_errno(out, "written", code);
    if (old && platform_rename(old, out)) status = fail(DELTAIC_IO, "%s: was moved to %s", out, old);
  } else if (!status && old)
    status = folder_remove(old);
  free(old);
  return status;
}
