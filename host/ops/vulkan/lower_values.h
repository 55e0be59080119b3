// lower_values: what lower.c plans before it records a list: which values are f16, and how much scratch operations need.
#ifndef LOWER_VALUES_H
#define LOWER_VALUES_H
#include "vulkan_backend.h"

// Sets the dtypes of the list's values.
void lower_dtypes(const struct recorder *c, struct oplist *l);
// Reserves memory for the padding of keys, while their dtype is not known.
void lower_reserve(struct oplist *l);
// Bytes of scratch of an operation, at most `limit`.
uint64_t lower_scratch(const struct recorder *c, const struct op *op, uint64_t limit);
// The same for oplist_plan(), at most what a descriptor can bind.
uint64_t lower_bound_scratch(const struct backend *b, const struct oplist *l, const struct op *op);
#endif
