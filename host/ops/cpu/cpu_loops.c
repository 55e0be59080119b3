// cpu_loops: what the operations share: their beginning and end, the profile, and loops on all threads.
#include "cpu_backend.h"
#include "platform.h"

#include <stdio.h>

static double now(void) { return 1e-9 * (double)platform_clock_ns(); }

bool cpu_cancelled(const struct recorder *c) {
  const struct cpu_recorder *r = (const struct cpu_recorder *)c;
  return r->cancel && atomic_load_explicit(r->cancel, memory_order_relaxed);
}

bool cpu_begin(struct recorder *c) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  if (!r->status && cpu_cancelled(c)) r->status = DELTAIC_CANCELLED;
  if (r->status) return false;
  r->counters.dispatches++;
  if (r->profile) r->started = now();
  return true;
}

static deltaic_kernel_time *kernel_of_profile(struct cpu_recorder *r, const char *name, const char *suffix) {
  char full[sizeof r->times[0].name];
  snprintf(full, sizeof full, "%s%s%s", name, suffix ? "_" : "", suffix ? suffix : "");
  for (size_t i = 0; i < r->kernels; i++)
    if (!strcmp(r->times[i].name, full)) return &r->times[i];
  assert(r->kernels < CPU_KERNELS);
  deltaic_kernel_time *kernel = &r->times[r->kernels++];
  *kernel = (deltaic_kernel_time){0};
  memcpy(kernel->name, full, sizeof full);
  return kernel;
}

void cpu_end(struct recorder *c, const char *name, const char *suffix, uint64_t bytes, uint64_t operations) {
  struct cpu_recorder *r = (struct cpu_recorder *)c;
  if (cpu_cancelled(c)) r->status = DELTAIC_CANCELLED; // its loops may have stopped early
  if (!r->profile) return;
  deltaic_kernel_time *kernel = kernel_of_profile(r, name, suffix);
  kernel->dispatches++;
  kernel->seconds += now() - r->started;
  kernel->bytes += bytes;
  kernel->operations += operations;
}

struct loop {
  const struct recorder *c;
  pool_task task;
  void *context;
};

static void loop_task(void *context, uint64_t index, uint32_t worker) {
  const struct loop *loop = context;
  if (!cpu_cancelled(loop->c)) loop->task(loop->context, index, worker);
}

void cpu_parallel(struct recorder *c, uint64_t n, uint64_t operations, pool_task task, void *context) {
  enum { WORTH = 30000 }; // about 10 us of one thread
  struct loop loop = {c, task, context};
  if (operations < WORTH)
    for (uint64_t i = 0; i < n; i++) loop_task(&loop, i, 0);
  else
    pool_run(((struct cpu_backend *)c->backend)->pool, n, loop_task, &loop);
}

uint32_t cpu_threads(const struct backend *b) { return pool_threads(((const struct cpu_backend *)b)->pool); }

uint64_t cpu_count_rows(const struct tensor *sequences, uint32_t *longest) {
  uint64_t rows = 0;
  *longest = 0;
  for (uint32_t s = 0; s < sequences->rows; s++) {
    const uint32_t T = sequence_at(sequences, s)->T;
    rows += T;
    if (T > *longest) *longest = T;
  }
  return rows;
}

uint32_t cpu_task_columns(const struct recorder *c, uint64_t heads, uint32_t Dv, uint32_t unit) {
  const uint64_t wanted = 2ull * cpu_threads(c->backend), blocks = heads >= wanted ? 1 : (wanted + heads - 1) / heads;
  return (uint32_t)round_up((Dv + blocks - 1) / blocks, unit);
}
