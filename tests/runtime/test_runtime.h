// test_runtime.h: what the files of test_runtime share: a device under validation, and a small scene to compute in.
#ifndef TEST_RUNTIME_H
#define TEST_RUNTIME_H
#include "caps.h"
#include "commands.h"
#include "open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#undef fail // cmocka's; ours is meant

struct fixture {
  struct instance instance;
  struct device *device;
};

// Of every test: opens the device, and closes it; fails when the validation layer has found something, and where there
// is no layer, unless DELTAIC_TEST_NO_LAYER=1 says so.
int runtime_setup(void **state);
int runtime_teardown(void **state);
static inline struct device *device_of(void **state) { return ((struct fixture *)*state)->device; }

void ok(deltaic_status status); // asserts success, telling the sentence

#define ON_DEVICE(test) cmocka_unit_test_setup_teardown(test, runtime_setup, runtime_teardown)

// The kernel y = a + scale b and four buffers of N numbers: a counts from 1, b from 2, y and z from 0.
enum { LANES = 32, N = 1000 };
struct add_args {
  uint32_t n;
  float scale;
};
struct scene {
  struct device *device;
  const struct kernel *kernel;
  struct commands *c;
  struct buffer a, b, y, z;
};
struct scene scene_open(struct device *device);
void scene_close(struct scene *s);
void add(struct commands *c, const struct kernel *kernel, struct binding y, struct binding a, struct binding b,
         float scale, uint64_t operations);
static inline struct binding part(const struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  return (struct binding){.buffer = buffer, .offset = offset, .bytes = bytes};
}
static inline struct binding whole(const struct buffer *buffer) { return part(buffer, 0, buffer->bytes); }
float number(struct device *device, struct buffer *buffer, uint32_t i);

// The device that the tests run on, of this instance.
struct device *open_device(struct instance *instance, const char *cache_dir);

int test_buffers(void);  // runs the tests of test_runtime_buffers.c; returns how many failed
int test_commands(void); // of test_runtime_commands.c
int test_lost(void);     // of test_runtime_lost.c
#endif
