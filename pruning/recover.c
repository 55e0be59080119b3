// recover: trains a pruned checkpoint by LoRA on a text, with the unpruned model as its teacher ("The Key to State
// Reduction in Linear Attention", recovery fine-tuning). The loss is cross entropy plus distillation. Trained are
// adapters of the projections of queries, keys and values, which are merged, and, themselves, all tensors whose name
// contains conv1d, norm or bias, as in the published code. AdamW with betas 0.9 and 0.95 and no decay, gradients
// clipped to norm 1; the rate rises over the first twentieth of the steps and then falls to a tenth along a cosine.
// Computes in f32 on the CPU.
#include "option_structs.h"
#include "product.h"
#include "tensor_file.h"
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct recovery {
  struct deltaic_pruning *p;
  deltaic_recover_options o;
  struct trainer *trainer;
  struct distillation d;
  const int32_t *tokens;
  uint64_t steps, per_step; // tokens
};

static enum training kind(void *user, const struct file_tensor *t) {
  static const char *const adapted[] = {"q_proj", "k_proj", "v_proj"}, *const whole[] = {"conv1d", "norm", "bias"};
  (void)user;
  if (!t->used || t->dtype > FILE_BF16) return TRAIN_NOT; // no layer has it, or it has no floats
  for (int i = 0; i < 3; i++)
    if (strstr(t->name, whole[i])) return TRAIN_WHOLE;
  for (int i = 0; i < 3; i++)
    if (t->rank == 2 && strstr(t->name, adapted[i])) return TRAIN_LORA;
  return TRAIN_NOT;
}

static double rate_at(const struct recovery *r, uint64_t step) {
  const double warm = fmax(1, floor(0.05 * (double)r->steps)), at = (double)step;
  if (at < warm) return r->o.rate * (at + 1) / warm;
  return r->o.rate * (0.1 + 0.45 * (1 + cos(acos(-1) * (at - warm) / fmax(1, (double)r->steps - warm))));
}

static deltaic_status train(struct recovery *r, deltaic_progress progress, void *user) {
  const uint64_t total = r->steps * r->per_step;
  deltaic_status status = DELTAIC_OK;
  for (uint64_t step = 0; step < r->steps && !status; step++) {
    const struct learner_batch batch = {r->tokens + step * r->per_step, r->o.batch, r->o.window - 1};
    struct learner_loss loss = {0};
    double norm;
    if (progress && !progress(user, step * r->per_step, total))
      return fail(DELTAIC_CANCELLED, "the recovery was stopped");
    status = learner_add(trainer_learner(r->trainer), &batch, &r->d, 1, &loss);
    if (!status && !isfinite(loss.ce + loss.kd))
      status = fail(DELTAIC_INVALID_ARGUMENT, "the loss is not finite in step %llu: the rate %g is too high",
                    (unsigned long long)step + 1, r->o.rate);
    if (!status) status = trainer_step(r->trainer, rate_at(r, step), &norm);
  }
  if (!status && progress) progress(user, total, total);
  return status;
}

// ---------------------------------------------------------------- writing

// Where a tensor's data are in the file.
static bool find_offset(const struct file_view *file, const json_t *header, const char *name, uint64_t *offset) {
  uint64_t bytes;
  memcpy(&bytes, file->data, sizeof bytes);
  const json_t *from = json_array_get(json_object_get(json_object_get(header, name), "data_offsets"), 0);
  *offset = sizeof bytes + bytes + (uint64_t)json_integer_value(from);
  return json_is_integer(from);
}

static deltaic_status write_tensor(const struct recovery *r, const struct trained *x, uint64_t offset) {
  const uint64_t n = x->lora ? x->rows * x->cols : x->n;
  double *numbers = malloc(n * sizeof *numbers);
  char *out = malloc(n * sizeof *numbers);
  deltaic_status status = numbers && out ? DELTAIC_OK : fail_memory("a tensor", 2 * n * sizeof *numbers);
  if (!status) {
    for (uint64_t i = 0; i < n; i++) numbers[i] = x->values[i];
    status = tensor_write_at(r->p->tensors, offset, out, tensor_convert(x->dtype, numbers, n, out));
  }
  free(numbers);
  free(out);
  return status;
}

// The file is ours: it was written by product_begin().
static deltaic_status write_tensors(struct recovery *r) {
  struct file_view file;
  json_t *header = NULL;
  uint64_t bytes;
  deltaic_status status = file_map(r->p->tensors, &file);
  if (status) return status;
  memcpy(&bytes, file.data, sizeof bytes);
  status = json_parse(r->p->tensors, file.data + sizeof bytes, bytes, &header);
  const size_t count = trainer_count(r->trainer);
  uint64_t *offsets = calloc(count, sizeof *offsets);
  if (!status && !offsets) status = fail_memory("a list of tensors", count * sizeof *offsets);
  for (size_t i = 0; i < count && !status; i++)
    if (!find_offset(&file, header, trainer_at(r->trainer, i)->name, &offsets[i]))
      status = fail(DELTAIC_INTERNAL, "%s: has no tensor %s", r->p->tensors, trainer_at(r->trainer, i)->name);
  file_unmap(&file);
  json_decref(header);
  for (size_t i = 0; i < count && !status; i++) status = write_tensor(r, trainer_at(r->trainer, i), offsets[i]);
  free(offsets);
  return status;
}

// ---------------------------------------------------------------- the call

static deltaic_status read_options(struct recovery *r, const deltaic_recover_options *options, uint64_t count) {
  deltaic_recover_options *o = &r->o;
  deltaic_status status = options_read(o, sizeof *o, options, "deltaic_recover_options");
  if (status) return status;
  if (!o->window) o->window = 512;
  if (!o->batch) o->batch = 2;
  if (!o->rank) o->rank = 32;
  if (o->rate == 0) o->rate = 1e-3;
  if (o->window < 2 || o->window > 1 << 20 || o->batch > 1 << 16 || o->rank > 1 << 12 || !(o->rate > 0 && o->rate <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_recover: a window of %u, %u windows, rank %u, rate %g",
                o->window, o->batch, o->rank, o->rate);
  r->per_step = (uint64_t)o->window * o->batch;
  r->steps = count / r->per_step;
  if (!r->steps)
    return fail(DELTAIC_INVALID_ARGUMENT, "the text to recover on has %llu tokens, and one step needs %llu",
                (unsigned long long)count, (unsigned long long)r->per_step);
  return DELTAIC_OK;
}

deltaic_status deltaic_pruning_recover(deltaic_pruning *p, const int32_t *tokens, size_t count,
                                       const deltaic_recover_options *options, deltaic_progress progress, void *user) {
  if (!p || !p->folder || !tokens)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_recover: pruning and tokens are required");
  struct recovery r = {.p = p, .tokens = tokens, .d = {.weight = 1, .temperature = 2}};
  deltaic_status status = read_options(&r, options, count);
  if (status) return status;
  const struct trainer_options o = {
      .rank = r.o.rank, .alpha = 2.0 * r.o.rank, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1, .seed = r.o.seed};
  status = learner_open(p->source.path, r.o.threads, NULL, NULL, &r.d.teacher);
  if (!status) status = trainer_open(p->folder, r.o.threads, kind, NULL, &o, &r.trainer);
  if (!status) status = train(&r, progress, user);
  learner_close(r.d.teacher);
  if (!status) {
    trainer_finish(r.trainer);
    status = write_tensors(&r);
  }
  trainer_close(r.trainer);
  return status;
}
