// fixture.h: reads the safetensors files under vectors/, which are ours: a malformed one fails the test.
#ifndef FIXTURE_H
#define FIXTURE_H
#include <stdbool.h>
#include <stddef.h>

struct fixture;

// path: below tests/.
struct fixture *fixture_open(const char *path);
void fixture_close(struct fixture *f);
bool fixture_has(const struct fixture *f, const char *tensor);
// Values of an F32 or BF16 tensor, `count` of them; the caller frees.
double *fixture_values(const struct fixture *f, const char *tensor, size_t count);
// The i-th case: a key of __metadata__, in alphabetical order; NULL when there are no more.
const char *fixture_case(const struct fixture *f, size_t i);
// A number (or boolean) of a case's JSON object.
double fixture_number(const struct fixture *f, const char *name, const char *key);
#endif
