// vulkan_compile: the kernels of lists, collected before the lists are recorded, and compiled on all cores.
#include "list.h"
#include "pool.h"
#include "vulkan_backend.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

deltaic_status vulkan_choose(struct device *device, struct kernel_choices *choices, const struct dispatched *d) {
  const uint64_t bytes = d->count * sizeof *d->spec;
  for (size_t i = 0; i < choices->count; i++) {
    const struct kernel_choice *c = &choices->of[i];
    if (c->shader != d->shader || c->count != d->count) continue;
    if (!bytes || !memcmp(c->spec, d->spec, bytes)) return DELTAIC_OK;
  }
  if (d->count > REFLECT_SPEC)
    return fail(DELTAIC_INTERNAL, "%s: %u specialization constants are too many", d->shader->name, d->count);
  if (kernel_is_known(device, d->shader, d->spec, d->count)) return DELTAIC_OK;
  const deltaic_status status =
      list_room(&choices->of, choices->count, &choices->capacity, sizeof *choices->of, "kernels of lists");
  if (status) return status;
  struct kernel_choice *c = &choices->of[choices->count++];
  *c = (struct kernel_choice){.shader = d->shader, .count = d->count};
  if (d->count) memcpy(c->spec, d->spec, bytes);
  return DELTAIC_OK;
}

struct compiling {
  struct device *device;
  const struct kernel_choice *of;
  atomic_bool cancelled;
};

// The caller's thread, worker 0, asks the device's owner; the others see what it said.
static void compile(void *context, uint64_t i, uint32_t worker) {
  struct compiling *c = context;
  const struct kernel_choice *k = &c->of[i];
  const struct kernel *kernel;
  if (atomic_load(&c->cancelled)) return;
  const deltaic_status status =
      (worker ? kernel_compile : kernel_get)(c->device, k->shader, k->spec, k->count, &kernel);
  if (status == DELTAIC_CANCELLED) atomic_store(&c->cancelled, true);
}

static int by_size(const void *a, const void *b) {
  const uint64_t x = ((const struct kernel_choice *)a)->shader->units,
                 y = ((const struct kernel_choice *)b)->shader->units;
  return (x < y) - (x > y);
}

// Largest modules first: they take longest to compile, and a late start would leave one core working alone.
static deltaic_status compile_all(struct device *device, struct kernel_choices *choices) {
  struct compiling c = {.device = device, .of = choices->of};
  struct pool *pool;
  const deltaic_status status = pool_create(0, &pool);
  if (status) return status;
  atomic_init(&c.cancelled, false);
  if (choices->count) qsort(choices->of, choices->count, sizeof *choices->of, by_size);
  if (choices->count) compile(&c, choices->count - 1, 0); // the owner is asked at least once
  pool_run(pool, choices->count, compile, &c);
  pool_free(pool);
  return atomic_load(&c.cancelled) ? DELTAIC_CANCELLED : DELTAIC_OK; // kernel_get() has set the message
}

deltaic_status vulkan_compile(struct backend *b, void (*lists)(struct recorder *c, void *context), void *context) {
  struct kernel_choices choices = {0};
  struct recorder *c;
  deltaic_status status = b->functions->recorder_create(b, &c);
  if (status) return status;
  ((struct vulkan_recorder *)c)->choices = &choices;
  lists(c, context);
  status = commands_status(((struct vulkan_recorder *)c)->commands);
  if (!status) status = compile_all(vulkan_device(b), &choices);
  b->functions->recorder_free(c);
  free(choices.of);
  return status;
}
