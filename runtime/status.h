// status.h: the message behind a deltaic_status, one per thread.
#ifndef STATUS_H
#define STATUS_H
#include "deltaic.h"

// INSIDE(name) ends the declaration of a function that libdeltaic_prune uses too. The shared library exports it, under
// a name that clashes with nobody's; it may change with every version.
#define INSIDE_PREFIX_(prefix) #prefix
#define INSIDE_PREFIX(prefix) INSIDE_PREFIX_(prefix)
#ifdef _WIN32 // as DELTAIC_API
#ifdef DELTAIC_BUILD
#define INSIDE_EXPORTED __declspec(dllexport)
#else
#define INSIDE_EXPORTED
#endif
#else
#define INSIDE_EXPORTED __attribute__((visibility("default")))
#endif
#define INSIDE(name) __asm__(INSIDE_PREFIX(__USER_LABEL_PREFIX__) "deltaic_inside_" #name) INSIDE_EXPORTED

// Stores the sentence for deltaic_last_error() and returns `status`: return fail(DELTAIC_BAD_FILE, "%s: ...", path);
// The format may name the previous message (deltaic_last_error()) as an argument.
__attribute__((format(printf, 2, 3))) deltaic_status fail(deltaic_status status, const char *format, ...) INSIDE(fail);
// fail(DELTAIC_OUT_OF_MEMORY, ...) with the number of bytes and what they were for.
deltaic_status fail_memory(const char *what, uint64_t bytes) INSIDE(fail_memory);

// The check of a public function's pointers: whether one is NULL, the first of which the message then names. names: of
// the pointers, with commas between them.
#define refuse_null(function, names, ...)                                                                              \
  null_pointer(function, names, (const void *const[]){__VA_ARGS__},                                                    \
               sizeof((const void *const[]){__VA_ARGS__}) / sizeof(const void *))
bool null_pointer(const char *function, const char *names, const void *const *pointers, size_t count);
// A pointer to n things, which may be NULL if there are none.
#define FILLED(pointer, n) ((pointer) || !(n) ? "" : NULL)

// Compute a * b and a + b; return false on overflow, since sizes come from files.
static inline bool size_mul(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool size_add(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }
#endif
