// pool.h: threads that share the indices 0 ... n-1 of a loop. Any thread may take any index, so results must depend on
// the index alone; `worker` only selects scratch that no other running task uses.
#ifndef POOL_H
#define POOL_H
#include "status.h"

struct pool;
typedef void (*pool_task)(void *context, uint64_t index, uint32_t worker); // worker < pool_threads()

uint32_t pool_threads_for(uint32_t threads); // the number of threads that pool_create() would have
// threads: 0 for one per core. Continues with fewer if some cannot be started.
deltaic_status pool_create(uint32_t threads, struct pool **out) INSIDE(pool_create);
void pool_free(struct pool *pool) INSIDE(pool_free);                 // no pool_run() may be in progress; accepts NULL
uint32_t pool_threads(const struct pool *pool) INSIDE(pool_threads); // including the caller of pool_run()
// Calls task for every index and returns when all calls have returned. Concurrent callers take turns.
void pool_run(struct pool *pool, uint64_t n, pool_task task, void *context) INSIDE(pool_run);
#endif
