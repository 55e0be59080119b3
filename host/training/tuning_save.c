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

deltaic_status tuning_write_folder(const char *from, const char *out, const char *marker, bool force,
                                   deltaic_status (*fill)(void *user, const char *folder), void *user) {
  deltaic_status status = folder_check(from, out, marker, force);
  char *folder = status ? NULL : folder_beside(out);
  if (!folder) return status ? status : DELTAIC_OUT_OF_MEMORY;
  status = make_folder(folder);
  if (!status) {
    status = fill(user, folder);
    if (!status) status = folder_rename(folder, out);
    if (file_exists(folder)) folder_remove(folder);
  }
  free(folder);
  return status;
}

deltaic_status deltaic_tune_check(const char *path, const char *out, bool force) {
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check: %s is NULL", !path ? "path" : "out");
  return folder_check(path, out, TUNING_CHECKPOINT_MARKER, force);
}

deltaic_status deltaic_tune_check_adapter(const char *path, const char *out, bool force) {
  if (!path || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check_adapter: %s is NULL", !path ? "path" : "out");
  return folder_check(path, out, TUNING_ADAPTER_MARKER, force);
}

// ---------------------------------------------------------------- a checkpoint's files

static deltaic_status add_file(struct weight_files *files, const char *path) {
  const char *name = path + platform_folder(path);
  for (size_t i = 0; i < files->count; i++)
    if (!strcmp(files->names[i], name)) return DELTAIC_OK;
  char **grown = realloc(files->names, (files->count + 1) * sizeof *grown);
  if (!grown) return fail_memory("a list of files", (files->count + 1) * sizeof *grown);
  files->names = grown;
  if (!(files->names[files->count] = strdup(name))) return fail_memory("a file name", strlen(name) + 1);
  files->count++;
  return DELTAIC_OK;
}

deltaic_status weight_files_list(struct checkpoint *c, struct weight_files *out) {
  deltaic_status status = DELTAIC_OK;
  for (uint64_t i = 0; i < checkpoint_count(c) && !status; i++)
    status = add_file(out, checkpoint_at(c, i)->input->name);
  return status;
}

void weight_files_free(struct weight_files *files) {
  for (size_t i = 0; i < files->count; i++) free(files->names[i]);
  free(files->names);
}

// The index of shards is left out where there are none.
static bool is_copied(const void *user, const char *name) {
  const struct weight_files *files = user;
  bool own = !folder_weights(name), single = false;
  for (size_t i = 0; i < files->count; i++) {
    own |= !strcmp(name, files->names[i]);
    single |= !strcmp(files->names[i], "model.safetensors");
  }
  return own || (!single && !strcmp(name, "model.safetensors.index.json"));
}

deltaic_status weight_files_copy(const struct weight_files *files, const char *from, const char *to) {
  return folder_copy(from, to, is_copied, files);
}

static deltaic_status fill_checkpoint(void *user, const char *folder) {
  const deltaic_tune *tune = user;
  deltaic_status status = weight_files_copy(&tune->files, tune->path, folder);
  return status ? status : tuning_write(tune->trainer, folder);
}

deltaic_status deltaic_tune_save(deltaic_tune *tune, const char *out, bool force) {
  if (!tune || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_save: %s is NULL", !tune ? "tune" : "out");
  return tuning_write_folder(tune->path, out, TUNING_CHECKPOINT_MARKER, force, fill_checkpoint, tune);
}
