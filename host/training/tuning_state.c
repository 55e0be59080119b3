// tuning_state: saves and loads the state of a training, a safetensors file: of every trained tensor the numbers and
// AdamW's moments.
#include "checkpoint.h"
#include "hash.h"
#include "tensor_file.h"
#include "tuning.h"

#include <stdlib.h>
#include <string.h>

#define VERSION "deltaic training 3"
enum { ARRAYS = TRAINED_ARRAYS, TEXT = 512 };
static const char *const arrays[ARRAYS] = {[TRAINED_P] = "p", [TRAINED_M] = "m", [TRAINED_V] = "v"};

// What a state belongs to, as text.
struct identity {
  char model[20], teacher[20], options[TEXT];
};

// Which tensors are trained, and which of them by adapters.
static uint64_t kinds_hash(const deltaic_tune *tune) {
  uint64_t h = HASH_BEGIN;
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    h = hash_word(hash_bytes(h, x->name, strlen(x->name)), x->lora);
  }
  return h;
}

static struct identity identity_of(const deltaic_tune *tune) {
  const deltaic_tune_options *o = &tune->o;
  struct identity id;
  snprintf(id.model, sizeof id.model, "%016llx", (unsigned long long)tune->fingerprint);
  snprintf(id.teacher, sizeof id.teacher, "%016llx",
           tune->d.teacher ? (unsigned long long)learner_fingerprint(tune->d.teacher) : 0);
  snprintf(id.options, sizeof id.options,
           "rank %u, alpha %.17g, beta1 %.17g, beta2 %.17g, eps %.17g, decay %.17g, clip %.17g, weight %.17g, "
           "temperature %.17g, precision %s, trained %016llx",
           o->rank, o->alpha, o->beta1, o->beta2, o->eps, o->decay, o->clip, o->weight, o->temperature,
           o->precision == DELTAIC_PRECISION_FAST ? "fast" : "float32", (unsigned long long)kinds_hash(tune));
  return id;
}

// ---------------------------------------------------------------- saving

static json_t *describe(const deltaic_tune *tune, const char *note) {
  const struct identity id = identity_of(tune);
  char steps[24];
  snprintf(steps, sizeof steps, "%llu", (unsigned long long)trainer_steps(tune->trainer));
  return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "format", VERSION, "model", id.model, "teacher", id.teacher,
                   "options", id.options, "steps", steps, "note", note ? note : "");
}

static void append_array(struct tensor_file *file, struct trainer *trainer, size_t i, enum trained_array which) {
  const uint64_t n = trainer_at(trainer, i)->n;
  float *numbers = malloc(n * sizeof *numbers);
  file->status = numbers ? trainer_read(trainer, i, which, numbers) : fail_memory("a state", n * sizeof *numbers);
  tensor_file_append(file, numbers, n * sizeof *numbers);
  free(numbers);
}

deltaic_status deltaic_tune_save_state(const deltaic_tune *tune, const char *path, const char *note) {
  if (!tune || !path)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_save_state: %s is NULL", !tune ? "tune" : "file");
  json_t *metadata = describe(tune, note);
  if (!metadata) return fail(DELTAIC_INVALID_ARGUMENT, "%s: the note is not UTF-8", path);
  struct tensor_file file;
  tensor_file_begin(&file, path, metadata);
  json_decref(metadata);
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    char name[TEXT];
    for (int k = 0; k < ARRAYS; k++) {
      snprintf(name, sizeof name, "%s.%s", arrays[k], x->name);
      tensor_file_declare(&file, name, "F32", 1, &x->n, x->n * sizeof(float));
    }
  }
  tensor_file_write_header(&file);
  for (size_t i = 0; i < trainer_count(tune->trainer); i++)
    for (int k = 0; k < ARRAYS && !file.status; k++) append_array(&file, tune->trainer, i, (enum trained_array)k);
  return tensor_file_end(&file);
}

// ---------------------------------------------------------------- in main memory

static uint64_t count_numbers(const deltaic_tune *tune) {
  uint64_t n = 0;
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) n += ARRAYS * trainer_at(tune->trainer, i)->n;
  return n;
}

static deltaic_status read_kept(deltaic_tune *tune) {
  float *to = tune->kept;
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < trainer_count(tune->trainer) && !status; i++)
    for (int k = 0; k < ARRAYS && !status; k++, to += trainer_at(tune->trainer, i)->n)
      status = trainer_read(tune->trainer, i, (enum trained_array)k, to);
  return status;
}

static void forget(deltaic_tune *tune) {
  free(tune->kept);
  tune->kept = NULL;
}

deltaic_status deltaic_tune_keep_state(deltaic_tune *tune) {
  if (!tune) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_keep_state: tune is NULL");
  const uint64_t bytes = count_numbers(tune) * sizeof(float), room = platform_free_memory();
  if (!tune->kept && (!room || bytes <= room / 2)) tune->kept = malloc(bytes);
  if (!tune->kept) return fail_memory("a copy of what is trained", bytes);
  const deltaic_status status = read_kept(tune);
  tune->kept_steps = trainer_steps(tune->trainer);
  if (status) forget(tune);
  return status;
}

deltaic_status deltaic_tune_return(deltaic_tune *tune) {
  if (!tune) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_return: tune is NULL");
  if (!tune->kept) return fail(DELTAIC_NOT_FOUND, "deltaic_tune_return: no state was kept");
  const float *from = tune->kept;
  deltaic_status status = tuning_clear(tune);
  for (size_t i = 0; i < trainer_count(tune->trainer) && !status; i++)
    for (int k = 0; k < ARRAYS && !status; k++, from += trainer_at(tune->trainer, i)->n)
      status = trainer_write(tune->trainer, i, (enum trained_array)k, from);
  if (status) return status;
  trainer_set_steps(tune->trainer, tune->kept_steps);
  return trainer_refresh(tune->trainer);
}

// ---------------------------------------------------------------- loading

static bool has(const struct checkpoint *c, const char *key, const char *value) {
  const char *text = checkpoint_metadata(c, key);
  return text && !strcmp(text, value);
}

// Names the first of the options that differs.
static deltaic_status fail_options(const char *path, const char *theirs, const char *ours) {
  size_t from = 0;
  for (size_t i = 0; theirs && ours[i] && theirs[i] == ours[i]; i++)
    if (ours[i] == ' ' && i && ours[i - 1] == ',') from = i + 1;
  if (!theirs || !strncmp(ours + from, "trained", strlen("trained")))
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is a training of other tensors, or of adapters for others", path);
  theirs += from;
  ours += from;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: was trained with %.*s, and this training has %.*s", path,
              (int)strcspn(theirs, ","), theirs, (int)strcspn(ours, ","), ours);
}

static deltaic_status check_identity(const deltaic_tune *tune, const struct checkpoint *c, const char *path) {
  const struct identity id = identity_of(tune);
  if (!has(c, "format", VERSION))
    return fail(DELTAIC_BAD_FILE, "%s: is no state of a training that this version can continue", path);
  if (!has(c, "model", id.model))
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is the training of another model than %s", path, tune->path);
  if (!has(c, "teacher", id.teacher))
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is a training with another teacher, or with none", path);
  if (has(c, "options", id.options)) return DELTAIC_OK;
  return fail_options(path, checkpoint_metadata(c, "options"), id.options);
}

static deltaic_status find_steps(const struct checkpoint *c, const char *path, uint64_t *steps) {
  const char *text = checkpoint_metadata(c, "steps");
  char *end;
  *steps = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : UINT64_MAX;
  if (*steps > 1ull << 53 || *end) return fail(DELTAIC_BAD_FILE, "%s: has no number of steps", path);
  return DELTAIC_OK;
}

static struct file_tensor *find_array(struct checkpoint *c, const struct trained *x, int which) {
  char name[TEXT];
  snprintf(name, sizeof name, "%s.%s", arrays[which], x->name);
  struct file_tensor *t = checkpoint_find(c, name);
  return t && t->dtype == FILE_F32 && t->rank == 1 && t->shape[0] == x->n ? t : NULL;
}

static deltaic_status check_arrays(const deltaic_tune *tune, struct checkpoint *c, const char *path) {
  const size_t count = trainer_count(tune->trainer);
  for (size_t i = 0; i < count; i++)
    for (int k = 0; k < ARRAYS; k++)
      if (!find_array(c, trainer_at(tune->trainer, i), k))
        return fail(DELTAIC_INVALID_ARGUMENT, "%s: does not train tensor %.200s in the same way", path,
                    trainer_at(tune->trainer, i)->name);
  if (checkpoint_count(c) == count * ARRAYS) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: trains %llu tensors, not %zu", path,
              (unsigned long long)checkpoint_count(c) / ARRAYS, count);
}

static deltaic_status read_array(struct trainer *trainer, size_t i, struct checkpoint *c, enum trained_array which) {
  const struct trained *x = trainer_at(trainer, i);
  float *numbers = malloc(x->n * sizeof *numbers);
  if (!numbers) return fail_memory("a state", x->n * sizeof *numbers);
  file_tensor_f32(find_array(c, x, which), 0, x->n, numbers);
  const deltaic_status status = trainer_write(trainer, i, which, numbers);
  free(numbers);
  return status;
}

static deltaic_status read_state(deltaic_tune *tune, struct checkpoint *c, const char *path, char **note) {
  uint64_t steps = 0;
  deltaic_status status = check_identity(tune, c, path);
  if (!status) status = find_steps(c, path, &steps);
  if (!status) status = check_arrays(tune, c, path);
  const char *text = checkpoint_metadata(c, "note");
  if (!status && note && !(*note = strdup(text ? text : ""))) status = fail_memory("the note", 0);
  if (!status) status = tuning_clear(tune);
  if (status) return status;
  for (size_t i = 0; i < trainer_count(tune->trainer) && !status; i++)
    for (int k = 0; k < ARRAYS && !status; k++) status = read_array(tune->trainer, i, c, (enum trained_array)k);
  if (status) return status;
  trainer_set_steps(tune->trainer, steps);
  return trainer_refresh(tune->trainer);
}

deltaic_status deltaic_tune_load_state(deltaic_tune *tune, const char *path, char **note) {
  if (!tune || !path)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_load_state: %s is NULL", !tune ? "tune" : "file");
  struct checkpoint *c;
  deltaic_status status = checkpoint_open(path, &c);
  if (status) return status;
  status = read_state(tune, c, path, note);
  checkpoint_close(c);
  return status;
}
