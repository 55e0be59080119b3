// vulkan_compile: the kernels of lists, collected before the lists are recorded, and compiled on all cores.
#include "list.h"
#include "pool.h"
#include "vulkan_backend.h"

#include <string.h>

deltaic_status vulkan_choose(struct kernel_choices *choices, const struct dispatched *d) {
  const uint64_t bytes = d->count * sizeof *d->spec;
  for (size_t i = 0; i < choices->count; i++) {
    const struct kernel_choice *c = &choices->of[i];
    if (c->shader != d->shader || c->count != d->count) continue;
    if (!bytes || !memcmp(c->spec, d->spec, bytes)) return DELTAIC_OK;
  }
  if (d->count > REFLECT_SPEC)
    return fail(DELTAIC_INTERNAL, "%s: %u specialization constants are too many", d->shader->name, d->count);
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
};

static void compile(void *context, uint64_t i, uint32_t worker) {
  const struct compiling *c = context;
  const struct kernel *kernel;
  (void)worker;
  (void)kernel_compile(c->device, c->of[i].shader, c->of[i].spec, c->of[i].count, &kernel);
}

// A few for each thread at a time. The first of these is compiled alone, since its owner is asked by this thread.
deltaic_status vulkan_compile(struct backend *b, const struct kernel_choices *choices) {
  enum { EACH = 4 };
  struct compiling c = {.device = vulkan_device(b)};
  struct pool *pool;
  deltaic_status status = pool_create(0, &pool);
  if (status) return status;
  const size_t most = (size_t)EACH * pool_threads(pool);
  for (size_t i = 0, n; i < choices->count && status != DELTAIC_CANCELLED; i += n) {
    const struct kernel *kernel;
    c.of = &choices->of[i];
    n = choices->count - i < most ? choices->count - i : most;
    status = kernel_get(c.device, c.of->shader, c.of->spec, c.of->count, &kernel);
    if (status != DELTAIC_CANCELLED) pool_run(pool, n, compile, &c);
  }
  pool_free(pool);
  return status == DELTAIC_CANCELLED ? status : DELTAIC_OK;
}
