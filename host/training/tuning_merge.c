// tuning_merge: writes a checkpoint with adapters merged.
#include "adapter.h"
#include "tensor_file.h"
#include "tuning.h"

#include <math.h>
#include <stdlib.h>

struct merge {
  const char *path, *adapter;
  struct deltaic_model model; // its checkpoint's tensors are read as the adapters change them
  struct weight_files files;
  deltaic_progress progress;
  void *user;
  uint64_t done, total; // bytes of merged tensors
};

// Rounded to the tensor's format a sum may be infinite.
static deltaic_status check_finite(const struct merge *m, const struct file_tensor *t) {
  enum { SOME = 1024 };
  float some[SOME];
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  for (uint64_t i = 0, count; i < n; i += count) {
    count = SOME < n - i ? SOME : n - i;
    file_tensor_f32(t, i, count, some);
    for (uint64_t k = 0; k < count; k++)
      if (!isfinite(some[k]))
        return fail(DELTAIC_BAD_FILE, "%s: tensor %.200s is not finite (NaN or infinity) with %s merged", m->path,
                    t->name, m->adapter);
  }
  return DELTAIC_OK;
}

static deltaic_status merge_tensor(const struct merge *m, struct file_tensor *t, const char *folder) {
  char *path = path_join(folder, t->input->name + platform_folder(t->input->name));
  deltaic_status status = path ? file_tensor_load(t) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = check_finite(m, t);
  if (!status) status = tensor_write_at(path, t->at, t->data, t->bytes);
  file_tensor_unload(t);
  free(path);
  return status;
}

static deltaic_status report(const struct merge *m) {
  if (!m->progress || m->progress(m->user, m->done, m->total)) return DELTAIC_OK;
  return fail(DELTAIC_CANCELLED, "%s: cancelled while adapters were merged", m->path);
}

static deltaic_status fill_merged(void *user, const char *folder) {
  struct merge *m = user;
  struct checkpoint *c = m->model.checkpoint;
  for (uint64_t i = 0; i < checkpoint_count(c); i++)
    if (checkpoint_at(c, i)->change) m->total += checkpoint_at(c, i)->bytes;
  deltaic_status status = report(m);
  if (!status) status = weight_files_copy(&m->files, m->path, folder);
  for (uint64_t i = 0; i < checkpoint_count(c) && !status; i++) {
    struct file_tensor *t = checkpoint_at(c, i);
    if (!t->change) continue;
    status = report(m);
    if (!status) status = merge_tensor(m, t, folder);
    m->done += t->bytes;
  }
  return status ? status : report(m);
}

// Opening the model checks that every tensor of the adapters has a place in it.
deltaic_status deltaic_tune_merge(const char *path, const char *adapter, const char *out, bool force,
                                  deltaic_progress progress, void *user) {
  if (!path || !adapter || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_merge: %s is NULL",
                !path      ? "path"
                : !adapter ? "adapter"
                           : "out");
  struct merge m = {.path = path, .adapter = adapter, .progress = progress, .user = user};
  const deltaic_model_options o = {.size = sizeof o, .adapter = adapter};
  deltaic_status status = adapter_check_merged(path);
  if (!status) status = model_declare(&m.model, NULL, path, &o);
  if (!status) status = weight_files_list(m.model.checkpoint, &m.files);
  if (!status) status = tuning_write_folder(path, out, TUNING_CHECKPOINT_MARKER, force, fill_merged, &m);
  model_clear(&m.model);
  weight_files_free(&m.files);
  return status;
}
