// tuning_save: writes what a training gives: a whole checkpoint, and the folders of it and of adapters.
#include "folder.h"
#include "tensor_file.h"
#include "tuning.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- tensors in place

static deltaic_status write_tensor(struct trainer *trainer, size_t i, const char *path) {
  const struct trained *x = trainer_at(trainer, i);
  const uint64_t n = x->lora ? x->rows * x->cols : x->n;
  float *values = malloc(n * sizeof *values);
  double *numbers = malloc(n * sizeof *numbers);
  char *out = malloc(n * sizeof *numbers);
  const bool room = values && numbers && out;
  deltaic_status status = room ? trainer_values(trainer, i, values) : fail_memory("a tensor", 2 * n * sizeof *numbers);
  if (!status) {
    for (uint64_t k = 0; k < n; k++) numbers[k] = values[k];
    status = tensor_write_at(path, x->at, out, tensor_convert(x->dtype, numbers, n, out));
  }
  free(values);
  free(numbers);
  free(out);
  return status;
}

deltaic_status tuning_write(struct trainer *trainer, const char *folder) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < trainer_count(trainer) && !status; i++) {
    char *path = path_join(folder, trainer_at(trainer, i)->file);
    status = path ? write_tensor(trainer, i, path) : DELTAIC_OUT_OF_MEMORY;
    free(path);
  }
  return status;
}

// ---------------------------------------------------------------- a new folder

static deltaic_status make_folder(const char *folder) {
  int code = platform_make_folder(folder, false);
  return code ? fail_errno(folder, "made", code) : DELTAIC_OK;
}

// What tells that a folder is what is written, and may be replaced by force.
#define CHECKPOINT_MARKER "config.json"

deltaic_status tuning_write_folder(deltaic_tune *tune, const char *out, const char *marker, bool force,
                                   deltaic_status (*fill)(deltaic_tune *tune, const char *folder)) {
  deltaic_status status = folder_check(tune->path, out, marker, force);
  char *folder = status ? NULL : folder_beside(out);
  if (!folder) return status ? status : DELTAIC_OUT_OF_MEMORY;
  status = make_folder(folder);
  if (!status) {
    status = fill(tune, folder);
    if (!status) status = folder_rename(folder, out);
    if (file_exists(folder)) folder_remove(folder);
  }
  free(folder);
  return status;
}

deltaic_status deltaic_tune_check(const char *path, const char *out, bool force) {
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check: %s is NULL", !path ? "path" : "out");
  return folder_check(path, out, CHECKPOINT_MARKER, force);
}

deltaic_status deltaic_tune_check_adapter(const char *path, const char *out, bool force) {
  if (!path || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check_adapter: %s is NULL", !path ? "path" : "out");
  return folder_check(path, out, TUNING_ADAPTER_MARKER, force);
}

// Other weights than the model's are left out, and the index of shards where there are none.
static bool is_copied(const void *user, const char *name) {
  const deltaic_tune *tune = user;
  bool own = !folder_weights(name), single = false;
  for (size_t i = 0; i < tune->file_count; i++) {
    own |= !strcmp(name, tune->files[i]);
    single |= !strcmp(tune->files[i], "model.safetensors");
  }
  return own || (!single && !strcmp(name, "model.safetensors.index.json"));
}

static deltaic_status fill_checkpoint(deltaic_tune *tune, const char *folder) {
  deltaic_status status = folder_copy(tune->path, folder, is_copied, tune);
  return status ? status : tuning_write(tune->trainer, folder);
}

deltaic_status deltaic_tune_save(deltaic_tune *tune, const char *out, bool force) {
  if (!tune || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_save: %s is NULL", !tune ? "tune" : "out");
  return tuning_write_folder(tune, out, CHECKPOINT_MARKER, force, fill_checkpoint);
}
