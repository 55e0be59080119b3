// tuning_adapter: writes adapters in PEFT's format. PEFT knows modules: A and B belong to one that is adapted, and a
// module in modules_to_save is stored with its weight and its bias. Other biases that are trained are stored by
// themselves ("bias": "all"); that of an adapted module is its base layer's.
#include "folder.h"
#include "tensor_file.h"
#include "tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "base_model.model."
enum { NAME = 512, LONGEST = 400 };

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length > tail && !strcmp(name + length - tail, end);
}

// The length of a tensor's name without ".weight" or ".bias", its module; 0: it is no module's.
static int module_length(const char *name) {
  if (!ends_with(name, ".weight") && !ends_with(name, ".bias")) return 0;
  return (int)(strrchr(name, '.') - name);
}

static const struct trained *find_trained(const deltaic_tune *tune, const char *module, int length, const char *end) {
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    if (!strncmp(x->name, module, (size_t)length) && !strcmp(x->name + length, end)) return x;
  }
  return NULL;
}

// The weight that is trained of a bias's module, or NULL.
static const struct trained *weight_of(const deltaic_tune *tune, const struct trained *x) {
  const int length = module_length(x->name);
  return length && ends_with(x->name, ".bias") ? find_trained(tune, x->name, length, ".weight") : NULL;
}

static bool saves_module(const struct trained *x) { return !x->lora && ends_with(x->name, ".weight"); }

// ---------------------------------------------------------------- adapter_config.json

static void add_once(json_t *list, const char *text, int length) {
  size_t k = 0;
  char name[NAME];
  snprintf(name, sizeof name, "%.*s", length, text);
  while (k < json_array_size(list) && strcmp(json_string_value(json_array_get(list, k)), name)) k++;
  if (k == json_array_size(list)) json_array_append_new(list, json_string(name));
}

// Of "model.layers.0.attn.q_proj" "q_proj".
static json_t *list_targets(const deltaic_tune *tune) {
  json_t *list = json_array();
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    int end = module_length(x->name), from = end;
    while (from > 0 && x->name[from - 1] != '.') from--;
    if (x->lora) add_once(list, x->name + from, end - from);
  }
  return list;
}

// By their whole names: PEFT takes each module whose name ends in one of these.
static json_t *list_saved(const deltaic_tune *tune) {
  json_t *list = json_array();
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    if (saves_module(x)) add_once(list, x->name, module_length(x->name));
  }
  return list;
}

static bool has_other_biases(const deltaic_tune *tune) {
  bool any = false;
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i), *weight = weight_of(tune, x);
    any |= ends_with(x->name, ".bias") && !(weight && saves_module(weight));
  }
  return any;
}

static deltaic_status write_config(const deltaic_tune *tune, const char *folder) {
  json_t *config =
      json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:s, s:b, s:b, s:o, s:o}", "peft_type", "LORA", "task_type",
                "CAUSAL_LM", "base_model_name_or_path", tune->path, "r", (int)tune->o.rank, "lora_alpha", tune->o.alpha,
                "lora_dropout", 0.0, "bias", has_other_biases(tune) ? "all" : "none", "fan_in_fan_out", 0,
                "inference_mode", 1, "target_modules", list_targets(tune), "modules_to_save", list_saved(tune));
  char *text = config ? json_dumps(config, JSON_INDENT(2)) : NULL, *path = path_join(folder, "adapter_config.json");
  deltaic_status status = text && path ? folder_write(path, text, strlen(text)) : fail_memory("adapter_config.json", 0);
  json_decref(config);
  free(text);
  free(path);
  return status;
}

// ---------------------------------------------------------------- adapter_model.safetensors

static bool embeds(const deltaic_tune *tune, const struct trained *x) {
  return learner_embeds(trainer_learner(tune->trainer), x->tensor);
}

// For embeddings PEFT has W = W0 + s (B A)^T, with A (rank, V) and B (D, rank): its A is the transpose of our B, its B
// that of our A.
static void declare_adapter(struct tensor_file *file, const deltaic_tune *tune, const struct trained *x) {
  const bool swapped = embeds(tune, x);
  const uint64_t rank = tune->o.rank, in = swapped ? x->rows : x->cols, out = swapped ? x->cols : x->rows;
  const int module = module_length(x->name);
  char name[NAME];
  snprintf(name, sizeof name, PREFIX "%.*s.%s", module, x->name, swapped ? "lora_embedding_A" : "lora_A.weight");
  tensor_file_declare(file, name, "F32", 2, (const uint64_t[]){rank, in}, rank * in * sizeof(float));
  snprintf(name, sizeof name, PREFIX "%.*s.%s", module, x->name, swapped ? "lora_embedding_B" : "lora_B.weight");
  tensor_file_declare(file, name, "F32", 2, (const uint64_t[]){out, rank}, rank * out * sizeof(float));
}

static void declare_trained(struct tensor_file *file, const deltaic_tune *tune, const struct trained *x) {
  const struct trained *weight = weight_of(tune, x);
  const int module = module_length(x->name);
  char name[NAME];
  if (x->lora) {
    declare_adapter(file, tune, x);
    return;
  }
  snprintf(name, sizeof name, PREFIX "%.*s%s%s", module, x->name, weight && weight->lora ? ".base_layer" : "",
           x->name + module);
  tensor_file_declare(file, name, "F32", x->tensor->rank, x->tensor->shape, x->n * sizeof(float));
}

static void transpose(float *to, const float *from, uint64_t rows, uint64_t cols) {
  for (uint64_t i = 0; i < rows; i++)
    for (uint64_t k = 0; k < cols; k++) to[k * rows + i] = from[i * cols + k];
}

static void append_trained(struct tensor_file *file, const deltaic_tune *tune, size_t i) {
  const struct trained *x = trainer_at(tune->trainer, i);
  const uint64_t n = x->n, rank = tune->o.rank, a = rank * x->cols;
  const bool swapped = x->lora && embeds(tune, x);
  float *p = malloc((swapped ? 2 : 1) * n * sizeof *p), *out = p;
  file->status = p ? trainer_read(tune->trainer, i, TRAINED_P, p) : fail_memory("adapters", n * sizeof *p);
  if (swapped && !file->status) {
    out = p + n;
    transpose(out, p + a, x->rows, rank);
    transpose(out + n - a, p, rank, x->cols);
  }
  tensor_file_append(file, out, n * sizeof *p);
  free(p);
}

// The bias of a saved module that is not trained itself, or NULL.
static const struct file_tensor *still_bias(const deltaic_tune *tune, const struct trained *x) {
  struct checkpoint *c = learner_checkpoint(trainer_learner(tune->trainer));
  const int module = module_length(x->name);
  char name[NAME];
  if (!saves_module(x) || find_trained(tune, x->name, module, ".bias")) return NULL;
  snprintf(name, sizeof name, "%.*s.bias", module, x->name);
  const struct file_tensor *t = checkpoint_find(c, name);
  return t && t->dtype <= FILE_BF16 ? t : NULL;
}

static uint64_t elements(const struct file_tensor *t) {
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  return n;
}

static void declare_still(struct tensor_file *file, const struct file_tensor *t) {
  char name[NAME];
  snprintf(name, sizeof name, PREFIX "%s", t->name);
  tensor_file_declare(file, name, "F32", t->rank, t->shape, elements(t) * sizeof(float));
}

static void append_still(struct tensor_file *file, const struct file_tensor *t) {
  const uint64_t n = elements(t);
  float *values = malloc(n * sizeof *values);
  if (values) file_tensor_f32(t, 0, n, values);
  if (!values) file->status = fail_memory("adapters", n * sizeof *values);
  tensor_file_append(file, values, n * sizeof *values);
  free(values);
}

static deltaic_status write_tensors(const deltaic_tune *tune, const char *path) {
  const size_t count = trainer_count(tune->trainer);
  json_t *metadata = json_pack("{s:s}", "format", "pt");
  struct tensor_file file;
  const struct file_tensor *still;
  tensor_file_begin(&file, path, metadata);
  json_decref(metadata);
  for (size_t i = 0; i < count; i++) declare_trained(&file, tune, trainer_at(tune->trainer, i));
  for (size_t i = 0; i < count; i++)
    if ((still = still_bias(tune, trainer_at(tune->trainer, i)))) declare_still(&file, still);
  tensor_file_write_header(&file);
  for (size_t i = 0; i < count && !file.status; i++) append_trained(&file, tune, i);
  for (size_t i = 0; i < count && !file.status; i++)
    if ((still = still_bias(tune, trainer_at(tune->trainer, i)))) append_still(&file, still);
  return tensor_file_end(&file);
}

static deltaic_status fill_adapter(void *user, const char *folder) {
  const deltaic_tune *tune = user;
  char *path = path_join(folder, "adapter_model.safetensors");
  deltaic_status status = path ? write_tensors(tune, path) : DELTAIC_OUT_OF_MEMORY;
  if (!status) status = write_config(tune, folder);
  free(path);
  return status;
}

deltaic_status deltaic_tune_save_adapter(deltaic_tune *tune, const char *out, bool force) {
  if (!tune || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_save_adapter: %s is NULL", !tune ? "tune" : "out");
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    if (strlen(x->name) > LONGEST || (x->lora && !ends_with(x->name, ".weight")))
      return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s has no name that adapters can have", tune->path, x->name);
  }
  return tuning_write_folder(tune->path, out, TUNING_ADAPTER_MARKER, force, fill_adapter, tune);
}
