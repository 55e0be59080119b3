// pool.h: threads that share the indices 0 ... n-1 of a loop. Which thread takes which index is left to chance, so a
// task may depend on its index alone; `worker` only names scratch that no other running task uses.
#ifndef POOL_H
#define POOL_H
#include "status.h"

struct pool;
typedef void (*pool_task)(void *context, uint64_t index, uint32_t worker); // worker < pool_threads()

uint32_t pool_threads_for(uint32_t threads); // how many pool_create() would have
// threads: 0 for one per core. Threads that cannot be started are done without.
deltaic_status pool_create(uint32_t threads, struct pool **out);
void pool_free(struct pool *pool);              // no pool_run() may be in progress; accepts NULL
uint32_t pool_threads(const struct pool *pool); // the caller of pool_run() included
// Calls task for every index and returns when all have returned. Calls from several threads take turns.
void pool_run(struct pool *pool, uint64_t n, pool_task task, void *context);
#endif
