// merged: see merged.h.
#include "merged.h"
#include "common.h"
#include "deltaic_tune.h"
#include "platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int merged_check(const char *adapter, const char *out) {
  if (!same_file(adapter, out)) return EXIT_OK;
  return complain(EXIT_FAILED, "%s: is the folder of --adapter; choose another OUT", out);
}

static bool on_merged(void *user, uint64_t done, uint64_t total) {
  progress_show(user, done, total);
  return !interrupted();
}

int merged_write(const char *model, const char *adapter, const char *out, bool force, bool quiet) {
  struct progress progress;
  progress_begin(&progress, "merging", "B", quiet);
  const deltaic_status status = deltaic_tune_merge(model, adapter, out, force, on_merged, &progress);
  progress_clear();
  return complain_status(status);
}

static char *temporary_name(const char *out) {
  char *top = out ? NULL : platform_temporary_folder(), *path = NULL;
  if (top) {
    path = must_resize(NULL, strlen(top) + sizeof "/deltaic-merged");
    sprintf(path, "%s/deltaic-merged", top);
  }
  char *name = out || path ? name_beside(out ? out : path) : NULL;
  free(path);
  free(top);
  return name;
}

int merged_make(struct merged *m, const char *model, const char *adapter, const char *out, bool quiet) {
  m->folder = temporary_name(out);
  m->name = must_resize(NULL, strlen(model) + strlen(adapter) + sizeof " with ");
  if (!m->folder) return complain(EXIT_FAILED, "out of memory: the name of a folder");
  sprintf(m->name, "%s with %s", model, adapter);
  complain_rename(m->folder, m->name);
  return merged_write(model, adapter, m->folder, false, quiet);
}

static int delete_file(void *user, const char *name) {
  const char *folder = user;
  char *path = must_resize(NULL, strlen(folder) + strlen(name) + 2);
  sprintf(path, "%s/%s", folder, name);
  const int code = platform_remove(path);
  free(path);
  return code;
}

void merged_delete(struct merged *m) {
  complain_rename(NULL, NULL);
  if (m->folder && file_there(m->folder) && !platform_list(m->folder, delete_file, m->folder))
    platform_remove_folder(m->folder);
  free(m->folder);
  free(m->name);
}
