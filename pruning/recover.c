// recover: trains a pruned checkpoint by LoRA on a text, with the unpruned model as its teacher ("The Key to State
// Reduction in Linear Attention", recovery fine-tuning). The loss is cross entropy plus distillation. Trained are
// adapters of the projections of queries, keys and values, which are merged, and, themselves, all tensors whose name
// contains conv1d, norm or bias, as in the published code. AdamW with betas 0.9 and 0.95 and no decay, gradients
// clipped to norm 1: all of these are the defaults of deltaic_tune.h. The rate rises over the first twentieth of the
// steps and then falls to a tenth along a cosine.
#include "option_structs.h"
#include "product.h"
#include "tuning.h"

#include <math.h>

struct recovery {
  deltaic_recover_options o;
  deltaic_tune *tune;
  const int32_t *tokens;
  uint64_t steps, per_step; // tokens
};

static deltaic_status train(struct recovery *r, deltaic_progress progress, void *user) {
  const uint64_t total = r->steps * r->per_step;
  const deltaic_tune_schedule schedule = {.size = sizeof schedule,
                                          .rate = r->o.rate,
                                          .least = 0.1,
                                          .steps = r->steps,
                                          .warm_up = (uint64_t)fmax(1, floor(0.05 * (double)r->steps))};
  deltaic_status status = DELTAIC_OK;
  for (uint64_t step = 0; step < r->steps && !status; step++) {
    const deltaic_tune_batch batch = {
        .size = sizeof batch, .tokens = r->tokens + step * r->per_step, .rows = r->o.batch, .length = r->o.window - 1};
    if (progress && !progress(user, step * r->per_step, total))
      return fail(DELTAIC_CANCELLED, "the recovery was stopped");
    status = deltaic_tune_add(r->tune, &batch, 1, NULL);
    if (!status) status = deltaic_tune_step(r->tune, deltaic_tune_rate(&schedule, step), NULL);
  }
  if (!status && progress) progress(user, total, total);
  return status;
}

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
  if (!p || !tokens)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_recover: %s is NULL", !p ? "pruning" : "tokens");
  if (!p->folder) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_pruning_recover: the pruning is committed");
  struct recovery r = {.tokens = tokens};
  deltaic_status status = read_options(&r, options, count);
  if (status) return status;
  deltaic_tune_options o = DELTAIC_INIT(deltaic_tune_options);
  o.rank = r.o.rank;
  o.teacher = p->source.path;
  o.seed = r.o.seed;
  o.threads = r.o.threads;
  o.device = r.o.device;
  o.precision = r.o.precision;
  o.keep_bytes = UINT64_MAX;
  deltaic_tune_memory memory;
  status = deltaic_tune_plan(p->folder, &o, r.o.batch, r.o.window - 1, &memory);
  o.keep_bytes = memory.kept;
  if (!status) status = deltaic_tune_create(p->folder, &o, &r.tune);
  if (!status) status = train(&r, progress, user);
  if (!status) status = trainer_finish(r.tune->trainer);
  if (!status) status = tuning_write(r.tune->trainer, p->folder);
  if (r.tune) deltaic_tune_free(r.tune);
  return status;
}
