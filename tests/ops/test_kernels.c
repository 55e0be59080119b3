// test_kernels: every compiled kernel against its contract header, without a device: bindings, push constants,
// specialization constants. What a kernel declares that it reads and writes, from which barriers are derived, is what
// its instructions do.
#include "backward_kernels.h"
#include "kernels.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <string.h>

#include "test_add.spv.h"
#include "test_packed.h"

static struct reflection reflected(const char *name, const uint32_t *words, size_t bytes) {
  struct reflection r;
  if (reflect(name, words, bytes / 4, &r)) fail_msg("%s", deltaic_last_error());
  return r;
}

static uint32_t *unpacked(const struct shader *s, uint64_t *count) {
  uint32_t *words;
  if (shader_unpack(s, &words, count)) fail_msg("%s", deltaic_last_error());
  return words;
}

static void check_contract(const struct shader *s, uint32_t specs) {
  uint64_t count;
  uint32_t *words = unpacked(s, &count);
  struct reflection r = reflected(s->name, words, 4 * count);
  free(words);
  if (r.bindings != s->bindings || r.push_bytes != s->push_bytes || r.spec_count != specs)
    fail_msg("%s: %u bindings, %u bytes pushed, %u constants", s->name, r.bindings, r.push_bytes, r.spec_count);
  for (uint32_t i = 0; i < r.spec_count; i++) assert_int_equal(r.spec_id[i], i);
  assert_true(r.spec_workgroup);
}

static void modules_match_their_contracts(void **state) {
  for (int id = 0; id < KERNEL_COUNT; id++)
    if (kernel_built(id)) check_contract(&kernels[id], kernel_specs[id]);
  for (int id = 0; id < BACKWARD_KERNEL_COUNT; id++) check_contract(&backward_kernels[id], backward_kernel_specs[id]);
}

// The callers of these ask the device's limit, and go another way.
static const char *const wide[] = {"matvec_conv_", "matvec_dot_", "matmul_narrow_conv_",
                                   "conv_inputs_", "delta_step_",      "mamba2_step_"};

static void kernels_without_another_way_bind_what_every_device_allows(void **state) {
  for (int id = 0; id < KERNEL_COUNT; id++) {
    bool other = false;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
      other |= !strncmp(kernels[id].name, wide[i], strlen(wide[i]));
    if (other != (kernels[id].bindings > PLAN_STORAGE_BUFFERS))
      fail_msg("%s: %u bindings", kernels[id].name, kernels[id].bindings);
  }
  for (int id = 0; id < BACKWARD_KERNEL_COUNT; id++)
    if (backward_kernels[id].bindings > PLAN_STORAGE_BUFFERS)
      fail_msg("%s: %u bindings", backward_kernels[id].name, backward_kernels[id].bindings);
}

// ---------------------------------------------------------------- what is read and written

struct access {
  bool reads[REFLECT_BINDINGS], writes[REFLECT_BINDINGS];
};

enum { // numbers of the SPIR-V specification
  OP_LOAD = 61,
  OP_STORE = 62,
  OP_ACCESS_CHAIN = 65,
  OP_IN_BOUNDS_ACCESS_CHAIN = 66,
  OP_DECORATE = 71,
  OP_MEMBER_DECORATE = 72,
  OP_ATOMIC_LOAD = 227,
  OP_ATOMIC_STORE = 228,
  OP_ATOMIC_EXCHANGE = 229,
  OP_ATOMIC_XOR = 242, // the last of the atomics that read and write
  OP_MATRIX_LOAD = 4457,
  OP_MATRIX_STORE = 4458,
  DECORATION_NON_WRITABLE = 24,
  DECORATION_BINDING = 33,
};

// What the instructions do to each binding. A buffer is reached through its variable or an access chain of it, which is
// an operand of nothing else but loads, stores and atomics: glslang hands none to a function.
static struct access accesses(const uint32_t *words, size_t bytes) {
  struct access a = {0};
  uint8_t *binding = calloc(words[3], 1); // of each id that points into a buffer, from 1 on
  assert_non_null(binding);
  for (const uint32_t *w = words + 5; w < words + bytes / 4; w += w[0] >> 16) {
    const uint32_t op = w[0] & 0xffff;
    if (op == OP_DECORATE && w[2] == DECORATION_BINDING) binding[w[1]] = (uint8_t)(w[3] + 1);
    if (op == OP_ACCESS_CHAIN || op == OP_IN_BOUNDS_ACCESS_CHAIN) binding[w[2]] = binding[w[3]];
    const bool updates = op >= OP_ATOMIC_EXCHANGE && op <= OP_ATOMIC_XOR;
    if (op == OP_LOAD || op == OP_ATOMIC_LOAD || op == OP_MATRIX_LOAD || updates)
      if (binding[w[3]]) a.reads[binding[w[3]] - 1] = true;
    const uint32_t to = updates ? w[3] : op == OP_STORE || op == OP_ATOMIC_STORE || op == OP_MATRIX_STORE ? w[1] : 0;
    if (binding[to]) a.writes[binding[to] - 1] = true;
  }
  free(binding);
  return a;
}

// The first binding whose declaration says otherwise than the instructions, -1: none. A variant may leave an input
// alone.
static int misdeclared(const char *name, const uint32_t *words, size_t bytes) {
  const struct reflection r = reflected(name, words, bytes);
  const struct access a = accesses(words, bytes);
  for (uint32_t i = 0; i < r.bindings; i++) {
    const bool unused = !a.reads[i] && !a.writes[i];
    if (r.writes[i] != a.writes[i] || (r.reads[i] != a.reads[i] && !unused)) return (int)i;
  }
  return -1;
}

static int count_misdeclared(const struct shader *s) {
  uint64_t count;
  uint32_t *words = unpacked(s, &count);
  const int binding = misdeclared(s->name, words, 4 * count);
  free(words);
  if (binding >= 0) print_error("%s, binding %d: declared otherwise than it is used\n", s->name, binding);
  return binding >= 0;
}

static void reads_and_writes_are_declared(void **state) {
  int wrong = 0;
  for (int id = 0; id < KERNEL_COUNT; id++)
    if (kernel_built(id)) wrong += count_misdeclared(&kernels[id]);
  for (int id = 0; id < BACKWARD_KERNEL_COUNT; id++) wrong += count_misdeclared(&backward_kernels[id]);
  assert_int_equal(wrong, 0);
}

// Every kind of word survives packing.
static void packed_modules_are_the_compiled_ones(void **state) {
  const struct shader shader = {.name = "add", .packed = packed_test_add, .units = sizeof packed_test_add / 2};
  uint64_t count;
  uint32_t *words = unpacked(&shader, &count);
  assert_int_equal(4 * count, sizeof spv_test_add);
  assert_memory_equal(words, spv_test_add, sizeof spv_test_add);
  free(words);
}

// Inputs that are no longer declared readonly.
static void a_missing_readonly_is_found(void **state) {
  enum { WORDS = sizeof spv_test_add / 4, RELAXED_PRECISION = 0 };
  uint32_t copy[WORDS];
  assert_int_equal(misdeclared("add", spv_test_add, sizeof spv_test_add), -1);
  memcpy(copy, spv_test_add, sizeof copy);
  for (uint32_t *w = copy + 5; w < copy + WORDS; w += w[0] >> 16) {
    const uint32_t op = w[0] & 0xffff, at = op == OP_DECORATE ? 2 : op == OP_MEMBER_DECORATE ? 3 : 0;
    if (at && w[at] == DECORATION_NON_WRITABLE) w[at] = RELAXED_PRECISION;
  }
  assert_int_equal(misdeclared("add", copy, sizeof copy), 0);
}

// ---------------------------------------------------------------- variants

static void variants_are_of_their_family_and_format(void **state) {
  static const char *const families[] = {
#define X(family) #family,
      KERNEL_FAMILIES(X)
#undef X
  };
  int found = 0;
  for (int family = 0; family < FAMILY_COUNT; family++)
    for (int dtype = 0; dtype < DTYPE_TILES; dtype++) {
      char name[64];
      const enum kernel_id id = kernel_variant(family, dtype);
      if (dtype > DTYPE_BLOCKS) {
        assert_int_equal(id, kernel_variant(family, DTYPE_BLOCKS));
        continue;
      }
      snprintf(name, sizeof name, "%s_%s", families[family], dtype < DTYPE_BLOCKS ? dtype_name(dtype) : "blocks");
      if (id != KERNEL_NONE) assert_string_equal(kernels[id].name, name);
      found += id != KERNEL_NONE;
    }
  assert_in_range(found, FAMILY_COUNT, KERNEL_COUNT);
  assert_int_equal(kernel_variant(FAMILY_matvec, DTYPE_BF16), KERNEL_matvec_bf16);
  assert_int_equal(kernel_variant(FAMILY_matmul_narrow, DTYPE_F32), KERNEL_NONE);
  assert_false(kernel_built(KERNEL_NONE));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(modules_match_their_contracts),
      cmocka_unit_test(kernels_without_another_way_bind_what_every_device_allows),
      cmocka_unit_test(reads_and_writes_are_declared),
      cmocka_unit_test(packed_modules_are_the_compiled_ones),
      cmocka_unit_test(a_missing_readonly_is_found),
      cmocka_unit_test(variants_are_of_their_family_and_format),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
