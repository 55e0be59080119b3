// vulkan_dispatch: what the operations share: bindings, dispatches, and the choice of kernels that a list may use.
#include "vulkan_backend.h"

struct binding vulkan_bind(struct tensor t, struct tensor or) {
  if (!t.buffer) t = or ;
  return (struct binding){.buffer = t.buffer,
                          .offset = t.offset,
                          .bytes = tensor_bytes(&t),
                          .touched = dtype_bytes(t.dtype, (uint64_t)t.rows * t.cols)};
}

struct binding vulkan_bind_some(struct tensor t, struct tensor or, uint64_t elements) {
  struct binding b = vulkan_bind(t, or);
  b.touched = dtype_bytes(t.dtype, elements);
  return b;
}

struct binding vulkan_bind_output(struct tensor y, bool add) {
  struct binding b = vulkan_bind(y, y);
  b.overwritten = !add;
  return b;
}

struct binding vulkan_bind_weights(struct tensor w) {
  const uint64_t bytes = dtype_bytes(w.dtype, (uint64_t)w.rows * w.stride);
  return (struct binding){.buffer = w.buffer, .offset = w.offset, .bytes = round_up(bytes, 4)};
}

void vulkan_dispatch_shader(struct recorder *c, const struct dispatched *d, struct grid grid, uint64_t operations) {
  struct commands *commands = ((const struct vulkan_recorder *)c)->commands;
  struct kernel_choices *choices = ((const struct vulkan_recorder *)c)->choices;
  const struct kernel *kernel;
  if (choices) {
    commands_fail(commands, vulkan_choose(vulkan_device(c->backend), choices, d));
    return;
  }
  if (!commands || !commands_going(commands)) return; // compiling a kernel may take seconds
  if (grid.x > MAX_GROUPS || grid.y > MAX_GROUPS || grid.z > MAX_GROUPS) {
    commands_fail(commands,
                  fail(DELTAIC_INTERNAL, "%s: a grid of %llu x %llu x %llu workgroups is too large", d->shader->name,
                       (unsigned long long)grid.x, (unsigned long long)grid.y, (unsigned long long)grid.z));
    return;
  }
  deltaic_status status = kernel_get(vulkan_device(c->backend), d->shader, d->spec, d->count, &kernel);
  if (status)
    commands_fail(commands, status);
  else
    commands_dispatch(commands, kernel, d->bindings, d->push,
                      (uint32_t[3]){(uint32_t)grid.x, (uint32_t)grid.y, (uint32_t)grid.z}, operations);
}

void vulkan_dispatch(struct recorder *c, enum kernel_id id, const uint32_t *spec, const struct binding *bindings,
                     const void *push, struct grid grid, uint64_t operations) {
  vulkan_dispatch_shader(c, &(struct dispatched){&kernels[id], spec, kernel_specs[id], bindings, push}, grid,
                         operations);
}

bool vulkan_can_round(const struct backend *b) {
  return vulkan_device(b)->plan.matrix_products && kernel_built(KERNEL_matmul_matrix_x32_f16);
}

bool vulkan_has_matrices(const struct recorder *c) { return vulkan_list(c)->matrices && vulkan_can_round(c->backend); }

bool vulkan_takes_f16(const struct recorder *c, struct tensor w) {
  for (uint32_t i = 0, first = 0; w.mixed && first < w.rows; first += w.mixed[i++].rows)
    if (!vulkan_takes_f16(c, w.mixed[i])) return false;
  return !w.wide && vulkan_has_matrices(c) && kernel_built(kernel_variant(FAMILY_matmul_matrix_x16, w.dtype));
}

bool vulkan_chunked(const struct recorder *c, uint32_t T, uint32_t B, uint32_t n) {
  const struct oplist *l = vulkan_list(c);
  return l->form == DELTA_CHUNK ||
         (l->form != DELTA_RECURRENT && plan_chunks(vulkan_rules(c), (uint64_t)T * n, B, (uint64_t)l->longest * n));
}
