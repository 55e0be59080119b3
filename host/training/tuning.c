// tuning: implements deltaic_tune.h except for files: creates a training, takes steps, measures.
#include "tuning.h"
#include "device_handle.h"
#include "option_structs.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ADAPT "q_proj,k_proj,v_proj" // by default

// ---------------------------------------------------------------- what is trained

static deltaic_status parts_read(struct name_parts *p, const char *list) {
  p->text = strdup(list);
  if (!p->text) return fail_memory("a list of names", strlen(list) + 1);
  p->count = *list != 0;
  for (char *c = p->text; *c; c++)
    if (*c == ',') {
      *c = 0;
      p->count++;
    }
  const char *part = p->text;
  for (size_t i = 0; i < p->count; i++, part += strlen(part) + 1)
    if (!*part) return fail(DELTAIC_INVALID_ARGUMENT, "\"%s\": a list of names has an empty one", list);
  return DELTAIC_OK;
}

static bool parts_match(const struct name_parts *p, const char *name) {
  const char *part = p->text;
  for (size_t i = 0; i < p->count; i++, part += strlen(part) + 1)
    if (strstr(name, part)) return true;
  return false;
}

static bool is_trainable(const struct file_tensor *t) { return t->used && t->dtype <= FILE_BF16; }

static enum training kind(void *user, const struct file_tensor *t) {
  const struct deltaic_tune *tune = user;
  if (!is_trainable(t)) return TRAIN_NOT; // no layer has it, or it has no floats
  if (tune->o.everything || parts_match(&tune->whole, t->name)) return TRAIN_WHOLE;
  return t->rank == 2 && parts_match(&tune->adapt, t->name) ? TRAIN_LORA : TRAIN_NOT;
}

void tuning_list(char *list, size_t capacity, const char *name, size_t length) {
  const size_t used = strlen(list);
  for (const char *at = list; *at; at += strspn(at, ", ")) {
    const size_t n = strcspn(at, ",");
    if (n == length && !memcmp(at, name, n)) return;
    at += n;
  }
  if (used + strlen(", ") + length < capacity)
    snprintf(list + used, capacity - used, "%s%.*s", used ? ", " : "", (int)length, name);
}

// The last parts of the names of all matrices of layers.
static void list_matrices(const struct deltaic_tune *tune, char *text, size_t capacity) {
  struct checkpoint *c = learner_checkpoint(trainer_learner(tune->trainer));
  *text = 0;
  for (uint64_t k = 0; k < checkpoint_count(c); k++) {
    const struct file_tensor *t = checkpoint_at(c, k);
    const int stem = (int)strlen(t->name) - (int)strlen(".weight");
    int from = stem;
    if (!is_trainable(t) || t->rank != 2 || stem <= 0 || strcmp(t->name + stem, ".weight")) continue;
    while (from > 0 && t->name[from - 1] != '.') from--;
    tuning_list(text, capacity, t->name + from, (size_t)(stem - from));
  }
}

static deltaic_status no_matrix(const struct deltaic_tune *tune, const char *part) {
  char names[400];
  list_matrices(tune, names, sizeof names);
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: has no matrix with \"%s\" in its name; its matrices are %s", tune->path,
              part, names);
}

// Adapters are wanted, and some matrix must have one.
static deltaic_status check_adapted(const struct deltaic_tune *tune) {
  bool any = !tune->adapt.count;
  for (size_t i = 0; i < trainer_count(tune->trainer) && !any; i++) any = trainer_at(tune->trainer, i)->lora;
  return any ? DELTAIC_OK : no_matrix(tune, ADAPT);
}

// A matrix that both lists name is trained itself, so that a part may have no adapter.
static deltaic_status check_lora(const struct deltaic_tune *tune, const char *part) {
  for (size_t i = 0; i < trainer_count(tune->trainer); i++)
    if (trainer_at(tune->trainer, i)->lora && strstr(trainer_at(tune->trainer, i)->name, part)) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT,
              "%s: every matrix with \"%s\" in its name is to be trained itself too, and would have no adapter",
              tune->path, part);
}

// Every part that the caller has named must be in some name. matrices: of a matrix with an adapter.
static deltaic_status check_parts(const struct deltaic_tune *tune, const struct name_parts *p, bool matrices) {
  struct checkpoint *c = learner_checkpoint(trainer_learner(tune->trainer));
  const char *part = p->text;
  for (size_t i = 0; i < p->count; i++, part += strlen(part) + 1) {
    bool found = false;
    for (uint64_t k = 0; k < checkpoint_count(c) && !found; k++) {
      const struct file_tensor *t = checkpoint_at(c, k);
      found = is_trainable(t) && (!matrices || t->rank == 2) && strstr(t->name, part);
    }
    if (!found && matrices) return no_matrix(tune, part);
    const deltaic_status status = matrices ? check_lora(tune, part) : DELTAIC_OK;
    if (status) return status;
    if (!found) return fail(DELTAIC_INVALID_ARGUMENT, "%s: has no tensor with \"%s\" in its name", tune->path, part);
  }
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- opening

static void set_default(double *x, double value) {
  if (*x == 0) *x = value;
}

static deltaic_status read_options(struct deltaic_tune *tune, const deltaic_tune_options *options) {
  deltaic_tune_options *o = &tune->o;
  deltaic_status status = options_read(o, sizeof *o, options, "deltaic_tune_options");
  if (status) return status;
  if (!o->rank) o->rank = 32;
  set_default(&o->alpha, 2.0 * o->rank);
  set_default(&o->beta1, 0.9);
  set_default(&o->beta2, 0.95);
  set_default(&o->eps, 1e-8);
  set_default(&o->clip, 1);
  set_default(&o->weight, 1);
  set_default(&o->temperature, 2);
  if (o->rank > 1 << 12 || !(o->alpha > 0 && isfinite(o->alpha)))
    return fail(DELTAIC_INVALID_ARGUMENT, "adapters of rank %u with alpha %g: the rank is 1 to 4096, alpha above 0",
                o->rank, o->alpha);
  // Devices take numbers below FLT_MIN for 0.
  if (!(o->beta1 > 0 && o->beta1 < 1) || !(o->beta2 > 0 && o->beta2 < 1) || !(o->eps >= FLT_MIN && o->eps <= FLT_MAX))
    return fail(DELTAIC_INVALID_ARGUMENT,
                "AdamW with betas %g and %g and eps %g: betas are below 1, eps is %.3g to %.3g", o->beta1, o->beta2,
                o->eps, (double)FLT_MIN, (double)FLT_MAX);
  if (!(o->decay >= 0 && o->decay <= 1e3) || !(o->clip > 0))
    return fail(DELTAIC_INVALID_ARGUMENT, "a decay of %g and a clip of %g: a decay is 0 to 1000, a clip above 0",
                o->decay, o->clip);
  if (!(o->weight > 0 && isfinite(o->weight)) || !(o->temperature > 0 && isfinite(o->temperature)))
    return fail(DELTAIC_INVALID_ARGUMENT, "a distillation of weight %g at temperature %g: both must be above 0",
                o->weight, o->temperature);
  if ((unsigned)o->precision > DELTAIC_PRECISION_FLOAT32)
    return fail(DELTAIC_INVALID_ARGUMENT, "a precision of %u", (unsigned)o->precision);
  status = parts_read(&tune->adapt, o->adapt ? o->adapt : ADAPT);
  return status ? status : parts_read(&tune->whole, o->whole ? o->whole : "conv1d,norm,bias");
}

static deltaic_status open_trainer(struct deltaic_tune *tune, struct backend *on) {
  const deltaic_tune_options *o = &tune->o;
  const bool fast = o->precision == DELTAIC_PRECISION_FAST;
  const struct trainer_options options = {o->rank,  o->alpha, o->beta1, o->beta2, o->eps,
                                          o->decay, o->clip,  o->seed,  fast};
  deltaic_status status = trainer_open(tune->path, on, o->threads, kind, tune, &options, &tune->trainer);
  if (!status && o->adapt && !o->everything) status = check_parts(tune, &tune->adapt, true);
  if (!status && !o->adapt && !o->everything) status = check_adapted(tune);
  if (!status && o->whole && !o->everything) status = check_parts(tune, &tune->whole, false);
  if (!status) status = weight_files_list(learner_checkpoint(trainer_learner(tune->trainer)), &tune->files);
  if (status) return status;
  tune->fingerprint = learner_fingerprint(trainer_learner(tune->trainer));
  learner_keep(trainer_learner(tune->trainer), o->keep_bytes);
  tune->d = (struct distillation){NULL, o->weight, o->temperature};
  return o->teacher ? learner_open(o->teacher, on, o->threads, fast, NULL, NULL, &tune->d.teacher) : DELTAIC_OK;
}

deltaic_status tuning_create(const char *path, const deltaic_tune_options *options, struct backend *on,
                             deltaic_tune **out) {
  struct deltaic_tune *tune = calloc(1, sizeof *tune);
  if (!tune) return fail_memory("a training", sizeof *tune);
  deltaic_status status = read_options(tune, options);
  if (!status && !(tune->path = strdup(path))) status = fail_memory("a file name", strlen(path) + 1);
  if (!status) status = open_trainer(tune, on);
  tune->o.adapt = tune->o.whole = tune->o.teacher = NULL; // the caller's
  if (status)
    deltaic_tune_free(tune);
  else
    *out = tune;
  return status;
}

deltaic_status deltaic_tune_create(const char *path, const deltaic_tune_options *options, deltaic_tune **out) {
  deltaic_tune_options o;
  if (!path || !out) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_create: %s is NULL", !path ? "path" : "out");
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_tune_options");
  if (!status && o.teacher) status = deltaic_tune_check_teacher(path, o.teacher);
  return status ? status : tuning_create(path, options, o.device ? o.device->backend : NULL, out);
}

void deltaic_tune_free(deltaic_tune *tune) {
  if (!tune) return;
  trainer_close(tune->trainer);
  learner_close(tune->d.teacher);
  weight_files_free(&tune->files);
  free(tune->kept);
  free(tune->adapt.text);
  free(tune->whole.text);
  free(tune->path);
  free(tune);
}

void deltaic_tune_get_info(const deltaic_tune *tune, deltaic_tune_info *info) {
  if (!info) return;
  *info = (deltaic_tune_info){0};
  if (!tune) return;
  info->steps = trainer_steps(tune->trainer);
  info->tensors = (uint32_t)trainer_count(tune->trainer);
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    info->trained += x->n;
    info->adapted += x->lora;
  }
  info->fast = learner_is_fast(trainer_learner(tune->trainer));
  info->vocabulary = (int32_t)learner_vocabulary(trainer_learner(tune->trainer));
}

// ---------------------------------------------------------------- steps

static deltaic_status read_batch(const char *function, const deltaic_tune *tune, const deltaic_tune_batch *batch,
                                 struct learner_batch *out) {
  deltaic_tune_batch b;
  if (!tune || !batch) return fail(DELTAIC_INVALID_ARGUMENT, "%s: %s is NULL", function, !tune ? "tune" : "batch");
  deltaic_status status = options_read(&b, sizeof b, batch, "deltaic_tune_batch");
  if (!status && !b.tokens) status = fail(DELTAIC_INVALID_ARGUMENT, "%s: the batch has no tokens", function);
  *out = (struct learner_batch){b.tokens, b.rows, b.length, b.targets};
  return status;
}

static deltaic_status take_loss(const struct deltaic_tune *tune, const struct learner_loss *from,
                                deltaic_tune_loss *to) {
  if (to) *to = (deltaic_tune_loss){from->ce, from->kd};
  if (isfinite(from->ce + from->kd)) return DELTAIC_OK;
  const uint64_t steps = trainer_steps(tune->trainer);
  if (!steps)
    return fail(DELTAIC_INVALID_ARGUMENT,
                "%s: the loss is not finite before the first step: the model's numbers%s overflow, or are not finite",
                tune->path, tune->d.teacher ? " or the teacher's" : "");
  return fail(DELTAIC_INVALID_ARGUMENT, "the loss is not finite after step %llu: the learning rate may be too high",
              (unsigned long long)steps);
}

deltaic_status tuning_clear(deltaic_tune *tune) {
  tune->added = tune->normed = false;
  return learner_clear(trainer_learner(tune->trainer));
}

// After a failure there is no gradient.
static deltaic_status after(struct deltaic_tune *tune, deltaic_status status) {
  if (status) (void)tuning_clear(tune); // the first error is reported
  return status;
}

deltaic_status deltaic_tune_add(deltaic_tune *tune, const deltaic_tune_batch *batch, double share,
                                deltaic_tune_loss *loss) {
  struct learner_batch b;
  struct learner_loss l = {0};
  deltaic_status status = read_batch("deltaic_tune_add", tune, batch, &b);
  if (status) return status;
  if (!(share > 0 && isfinite(share)))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_add: a share of %g, which must be above 0", share);
  status = learner_add(trainer_learner(tune->trainer), &b, &tune->d, share, &l);
  if (!status) status = take_loss(tune, &l, loss);
  tune->added = true;
  tune->normed = false;
  return after(tune, status);
}

deltaic_status deltaic_tune_gradient(const deltaic_tune *tune, const char *name, float *out, size_t count) {
  if (!tune || !name || !out)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_gradient: %s is NULL", !tune ? "tune" : !name ? "name" : "out");
  for (size_t i = 0; i < trainer_count(tune->trainer); i++) {
    const struct trained *x = trainer_at(tune->trainer, i);
    if (strcmp(x->name, name)) continue;
    const uint64_t n = x->lora ? x->rows * x->cols : x->n;
    if (n == count) return learner_gradient(trainer_learner(tune->trainer), x->tensor, out);
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: tensor %s has %llu numbers, not %zu", tune->path, name,
                (unsigned long long)n, count);
  }
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: has no tensor %.200s that is trained", tune->path, name);
}

static deltaic_status find_norm(struct deltaic_tune *tune, double *norm) {
  deltaic_status status = DELTAIC_OK;
  if (!tune->normed) status = trainer_norm(tune->trainer, &tune->norm);
  if (norm) *norm = tune->norm;
  tune->normed = true;
  return after(tune, status);
}

static deltaic_status check_added(const char *function, const deltaic_tune *tune) {
  if (tune->added) return DELTAIC_OK;
  return fail(DELTAIC_INVALID_ARGUMENT, "%s: there is no gradient: deltaic_tune_add() comes first", function);
}

deltaic_status deltaic_tune_norm(deltaic_tune *tune, double *norm) {
  if (!tune) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_norm: tune is NULL");
  const deltaic_status status = check_added("deltaic_tune_norm", tune);
  return status ? status : find_norm(tune, norm);
}

deltaic_status deltaic_tune_step(deltaic_tune *tune, double rate, double *norm) {
  if (!tune) return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_step: tune is NULL");
  if (!(rate >= 0 && rate <= 1))
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_step: a learning rate of %g, which must be 0 to 1", rate);
  deltaic_status status = check_added("deltaic_tune_step", tune);
  if (!status) status = find_norm(tune, norm);
  if (status) return status;
  status = trainer_update(tune->trainer, rate, tune->norm);
  tune->added = tune->normed = false;
  return after(tune, status);
}

deltaic_status deltaic_tune_measure(deltaic_tune *tune, const deltaic_tune_batch *batch, deltaic_tune_loss *loss) {
  struct learner_batch b;
  struct learner_loss l = {0};
  deltaic_status status = read_batch("deltaic_tune_measure", tune, batch, &b);
  if (!status) status = learner_measure(trainer_learner(tune->trainer), &b, &tune->d, &l);
  return status ? status : take_loss(tune, &l, loss);
}

double deltaic_tune_rate(const deltaic_tune_schedule *schedule, uint64_t step) {
  deltaic_tune_schedule s;
  if (!schedule || options_read(&s, sizeof s, schedule, "deltaic_tune_schedule")) return 0;
  const double warm = (double)s.warm_up, at = fmin((double)step, (double)s.steps);
  if (at < warm) return s.rate * (at + 1) / warm;
  const double angle = acos(-1) * (at - warm) / fmax(1, (double)s.steps - warm);
  return s.rate * (s.least + (1 - s.least) / 2 * (1 + cos(angle)));
}
