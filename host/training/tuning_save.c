// tuning_save: writes what a training gives: a whole checkpoint, or adapters in PEFT's format.
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
#define ADAPTER_MARKER "adapter_config.json"

// Has `fill` write the files of `out`, which appears when they are complete.
static deltaic_status write_folder(deltaic_tune *tune, const char *out, const char *marker, bool force,
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
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check: path and out are required");
  return folder_check(path, out, CHECKPOINT_MARKER, force);
}

deltaic_status deltaic_tune_check_adapter(const char *path, const char *out, bool force) {
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check_adapter: path and out are required");
  return folder_check(path, out, ADAPTER_MARKER, force);
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
  if (!tune || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_save: a training and out are required");
  return write_folder(tune, out, CHECKPOINT_MARKER, force, fill_checkpoint);
}

// ---------------------------------------------------------------- adapters

// "q_proj" of "model.layers.0.attn.q_proj.weight", in `text`; an empty text where there is no such part.
static const char *module_of(const char *name, char *text, size_t capacity) {
  const char *last = strrchr(name, '.'), *from = last;
  text[0] = 0;
  if (!last || (strcmp(last, ".weight") && strcmp(last, ".bias"))) return text;
  while (from > name && from[-1] != '.') from--;
  if ((size_t)(last - from) < capacity) {
    memcpy(text, from, (size_t)(last - from));
    text[last - from] = 0;
  }
  return text;
}

// The modules of the tensors that are trained by LoRA, or of the others, each once.
static json_t *list_modules(const deltaic_tune *tune, bool lora) {
  json_t *list = json_array();
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    char text[128];
    const char *module = module_of(x->name, text, sizeof text);
    size_t k = 0;
    while (k < json_array_size(list) && strcmp(json_string_value(json_array_get(list, k)), module)) k++;
    if (x->lora == lora && *module && k == json_array_size(list)) json_array_append_new(list, json_string(module));
  }
  return list;
}

static deltaic_status write_adapter_config(const deltaic_tune *tune, const char *folder) {
  json_t *config =
      json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:s, s:b, s:b, s:o, s:o}", "peft_type", "LORA", "task_type",
                "CAUSAL_LM", "base_model_name_or_path", tune->path, "r", (int)tune->o.rank, "lora_alpha", tune->o.alpha,
                "lora_dropout", 0.0, "bias", "none", "fan_in_fan_out", 0, "inference_mode", 1, "target_modules",
                list_modules(tune, true), "modules_to_save", list_modules(tune, false));
  char *text = config ? json_dumps(config, JSON_INDENT(2)) : NULL, *path = path_join(folder, "adapter_config.json");
  deltaic_status status = text && path ? folder_write(path, text, strlen(text)) : fail_memory("adapter_config.json", 0);
  json_decref(config);
  free(text);
  free(path);
  return status;
}

// The tensors of item x in PEFT's file: A and B, or the tensor itself. Returns their number.
struct stored {
  char name[512];
  int rank;
  uint64_t shape[FILE_RANK], n; // n: of numbers, which follow each other in what is trained
};

static int stored_of(const deltaic_tune *tune, const struct trained *x, struct stored out[2]) {
  const uint64_t rank = tune->o.rank;
  const int stem = (int)(strlen(x->name) - strlen(".weight"));
  if (!x->lora) {
    snprintf(out->name, sizeof out->name, "base_model.model.%s", x->name);
    out->rank = x->tensor->rank;
    memcpy(out->shape, x->tensor->shape, sizeof out->shape);
    out->n = x->n;
    return 1;
  }
  snprintf(out[0].name, sizeof out->name, "base_model.model.%.*s.lora_A.weight", stem, x->name);
  snprintf(out[1].name, sizeof out->name, "base_model.model.%.*s.lora_B.weight", stem, x->name);
  out[0].shape[0] = out[1].shape[1] = rank;
  out[0].shape[1] = x->cols;
  out[1].shape[0] = x->rows;
  out[0].n = rank * x->cols;
  out[1].n = rank * x->rows;
  out[0].rank = out[1].rank = 2;
  return 2;
}

static void append_trained(struct tensor_file *file, struct trainer *trainer, size_t i) {
  const uint64_t n = trainer_at(trainer, i)->n;
  float *p = malloc(n * sizeof *p);
  file->status = p ? trainer_read(trainer, i, TRAINED_P, p) : fail_memory("adapters", n * sizeof *p);
  tensor_file_append(file, p, n * sizeof *p);
  free(p);
}

static deltaic_status write_adapter_tensors(const deltaic_tune *tune, const char *path) {
  const size_t count = trainer_count(tune->trainer);
  json_t *metadata = json_pack("{s:s}", "format", "pt");
  struct tensor_file file;
  struct stored s[2];
  tensor_file_begin(&file, path, metadata);
  json_decref(metadata);
  for (size_t i = 0; i < count; i++) {
    const int n = stored_of(tune, trainer_at(tune->trainer, i), s);
    for (int k = 0; k < n; k++)
      tensor_file_declare(&file, s[k].name, "F32", s[k].rank, s[k].shape, s[k].n * sizeof(float));
  }
  tensor_file_write_header(&file);
  for (size_t i = 0; i < count && !file.status; i++) append_trained(&file, tune->trainer, i);
  return tensor_file_end(&file);
}

static deltaic_status fill_adapter(deltaic_tune *tune, const char *folder) {
  char *path = path_join(folder, "adapter_model.safetensors");
  deltaic_status status = path ? write_adapter_tensors(tune, path) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = write_adapter_config(tune, folder);
  free(path);
  return status;
}

deltaic_status deltaic_tune_save_adapter(deltaic_tune *tune, const char *out, bool force) {
  if (!tune || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_save_adapter: a training and out are required");
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    const size_t length = strlen(x->name);
    if (length > 400 || (x->lora && (length < 8 || strcmp(x->name + length - 7, ".weight"))))
      return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has no name that adapters can have", tune->path, x->name);
  }
  return write_folder(tune, out, ADAPTER_MARKER, force, fill_adapter);
}
