// tuning_plan: what a training will need. A loss is measured and one step taken on a backend that computes nothing and
// has no memory.
#include "device_handle.h"
#include "learner_memory.h"
#include "option_structs.h"
#include "tuning.h"

#include <stdio.h>
#include <stdlib.h>

void deltaic_tune_get_memory(const deltaic_tune *tune, deltaic_tune_memory *memory) {
  if (!memory) return;
  *memory = (deltaic_tune_memory){0};
  if (!tune) return;
  const struct learner_memory l = learner_memory(trainer_learner(tune->trainer));
  const struct trainer_memory t = trainer_memory(tune->trainer);
  *memory = (deltaic_tune_memory){.weights = l.weights,
                                  .gradients = l.gradients,
                                  .moments = t.moments,
                                  .adapters = t.adapters,
                                  .streams = l.streams,
                                  .layer = l.values,
                                  .kept = l.kept,
                                  .states = l.states,
                                  .scratch = l.scratch};
  if (tune->d.teacher) {
    const struct learner_memory d = learner_memory(tune->d.teacher);
    memory->teacher = d.weights + d.gradients + d.streams + d.values + d.states + d.scratch;
  }
  memory->total = memory->weights + memory->gradients + memory->moments + memory->adapters + memory->streams +
                  memory->layer + memory->kept + memory->states + memory->scratch + memory->teacher;
}

// ---------------------------------------------------------------- an imagined step
//
// The host reads zeros from the imagined memory: losses and the gradient's norm are 0, which a step takes for finite.
// Values that pass through the host become zeros, and what is computed of them is written nowhere. One size depends on
// values: a matrix with some beyond f16's range has no copy in f16. The plan has room for it.

struct shape {
  const char *path;
  const deltaic_tune_options *options;
  uint32_t rows, length;
};

static deltaic_status step(deltaic_tune *tune, const struct shape *s) {
  int32_t *tokens = calloc((size_t)s->rows * (s->length + 1ull), sizeof *tokens);
  if (!tokens) return fail_memory("a batch", s->rows * (s->length + 1ull) * sizeof *tokens);
  const struct learner_batch batch = {tokens, s->rows, s->length, NULL};
  struct learner_loss loss;
  double norm;
  deltaic_status status = learner_measure(trainer_learner(tune->trainer), &batch, &tune->d, &loss);
  if (!status) status = learner_add(trainer_learner(tune->trainer), &batch, &tune->d, 1, &loss);
  if (!status) status = trainer_step(tune->trainer, 0, &norm);
  free(tokens);
  return status;
}

// OUT_OF_MEMORY: a tensor of the step is too large for the device; *memory is what the step has by then.
static deltaic_status imagine(const struct shape *s, const struct backend *of, deltaic_tune_memory *memory) {
  struct backend *on;
  deltaic_tune *tune = NULL;
  deltaic_status status = of->functions->imagine(of, &on);
  if (status) return status;
  status = tuning_create(s->path, s->options, on, &tune);
  if (!status) status = step(tune, s);
  if (!status || status == DELTAIC_OUT_OF_MEMORY) deltaic_tune_get_memory(tune, memory);
  deltaic_tune_free(tune);
  on->functions->close(on);
  return status;
}

// ---------------------------------------------------------------- whether it fits

struct size_text {
  char text[24];
};

static struct size_text size_of(uint64_t bytes) {
  struct size_text t;
  const double value = (double)bytes / (1 << 30);
  snprintf(t.text, sizeof t.text, value < 1 ? "%.3f GiB" : "%.1f GiB", value);
  return t;
}

// What would need at most `room`: adapters, fewer texts, shorter ones. m: what the batch itself needs.
static void advise(struct shape s, const struct backend *of, deltaic_tune_memory m, uint64_t room, char *text,
                   size_t capacity) {
  deltaic_tune_options o = *s.options;
  deltaic_tune_memory adapters;
  *text = 0;
  o.everything = false;
  if (s.options->everything && !imagine(&(struct shape){s.path, &o, s.rows, s.length}, of, &adapters) &&
      adapters.total <= room) {
    snprintf(text, capacity, "; with adapters it would take %s", size_of(adapters.total).text);
    return;
  }
  while (s.rows > 1 || s.length > 32) {
    if (s.rows > 1)
      s.rows /= 2;
    else
      s.length /= 2;
    const deltaic_status status = imagine(&s, of, &m);
    if (status && status != DELTAIC_OUT_OF_MEMORY) return;
    if (status || m.total > room) continue;
    snprintf(text, capacity, "; a batch of %u text%s of %u tokens would take %s", s.rows, s.rows > 1 ? "s" : "",
             s.length, size_of(m.total).text);
    return;
  }
  snprintf(text, capacity, "; the model and what is trained alone take %s",
           size_of(m.weights + m.gradients + m.moments + m.adapters + m.teacher).text);
}

static uint64_t room_of(const struct backend *b) { // UINT64_MAX: not known
  const uint64_t all = b->info.memory_bytes, left = b->functions->free_bytes(b);
  const uint64_t room = left && left < all ? left : all;
  return room ? room : UINT64_MAX;
}

static struct size_text trained_size(const deltaic_tune_memory *m) {
  return size_of(m->gradients + m->moments + m->adapters);
}

static deltaic_status check_room(const struct shape *s, const struct backend *b, const deltaic_tune_memory *m) {
  const uint64_t room = room_of(b);
  char advice[160];
  if (m->total <= room) return DELTAIC_OK;
  advise(*s, b, *m, room, advice, sizeof advice);
  return fail(
      DELTAIC_OUT_OF_MEMORY,
      "%s: training on %u text%s of %u tokens takes %s (weights %s, what is trained %s, the batch %s), and %s has "
      "%s free of %s%s",
      s->path, s->rows, s->rows > 1 ? "s" : "", s->length, size_of(m->total).text,
      size_of(m->weights + m->teacher).text, trained_size(m).text,
      size_of(m->streams + m->layer + m->states + m->scratch).text, b->info.name, size_of(room).text,
      size_of(b->info.memory_bytes).text, advice);
}

// What a training may have if it keeps layers: of the free memory nine tenths, or half where it is the host's, since
// other programs need some too.
static uint64_t room_kept(const struct backend *b) {
  const uint64_t room = room_of(b);
  if (room == UINT64_MAX) return 0;
  return b->info.kind == DELTAIC_DEVICE_DISCRETE ? room / 10 * 9 : room / 2;
}

// Again, with layers that are kept.
static deltaic_status plan_kept(struct shape s, const struct backend *b, uint64_t most, deltaic_tune_memory *memory) {
  deltaic_tune_options o = *s.options;
  const uint64_t room = room_kept(b), left = room > memory->total ? room - memory->total : 0;
  o.keep_bytes = most < left ? most : left;
  s.options = &o;
  return o.keep_bytes ? imagine(&s, b, memory) : DELTAIC_OK;
}

// After imagine() found that a tensor is too large, which the last error says.
static deltaic_status too_large(const struct shape *s, const struct backend *b, const deltaic_tune_memory *m) {
  char reason[256], advice[160];
  snprintf(reason, sizeof reason, "%s", deltaic_last_error());
  advise(*s, b, *m, room_of(b), advice, sizeof advice);
  return fail(
      DELTAIC_OUT_OF_MEMORY,
      "%s: training on %u text%s of %u tokens: %s (before it, weights take %s, what is trained %s, the batch %s)%s",
      s->path, s->rows, s->rows > 1 ? "s" : "", s->length, reason, size_of(m->weights + m->teacher).text,
      trained_size(m).text, size_of(m->streams + m->layer + m->states + m->scratch).text, advice);
}

deltaic_status deltaic_tune_plan(const char *path, const deltaic_tune_options *options, uint32_t rows, uint32_t length,
                                 deltaic_tune_memory *memory) {
  deltaic_tune_options o;
  if (!path || !memory)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_plan: %s is NULL", !path ? "path" : "memory");
  if (!rows || !length)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_plan: a batch of %u rows of %u tokens: both must be above 0",
                rows, length);
  *memory = (deltaic_tune_memory){0};
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_tune_options");
  o.size = sizeof o;
  struct backend *cpu = NULL;
  if (!status && !o.device) status = backend_open_cpu(o.threads, &cpu);
  if (status) return status;
  const uint64_t keep_bytes = o.keep_bytes;
  o.keep_bytes = 0;
  const struct shape s = {path, &o, rows, length};
  const struct backend *on = o.device ? o.device->backend : cpu;
  status = imagine(&s, on, memory);
  if (status == DELTAIC_OUT_OF_MEMORY && memory->total)
    status = too_large(&s, on, memory);
  else if (!status)
    status = check_room(&s, on, memory);
  if (!status) status = plan_kept(s, on, keep_bytes, memory);
  if (cpu) cpu->functions->close(cpu);
  return status;
}
