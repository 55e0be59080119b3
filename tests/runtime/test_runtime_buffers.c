// test_runtime_buffers: memory and what moves in and out of it.
#include "test_runtime.h"

#include <stdlib.h>

static unsigned char *pattern(size_t bytes, unsigned seed) {
  unsigned char *data = malloc(bytes ? bytes : 1);
  assert_non_null(data);
  for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)((i * 2654435761u + seed) >> 13);
  return data;
}

// staged: the buffer's mapping is hidden, so that transfers take the way they take on a card without one.
static void round_trip(struct device *device, uint64_t size, uint64_t offset, uint64_t bytes, bool staged) {
  struct buffer buffer;
  ok(buffer_create(device, MEMORY_DEVICE, size, "a test", &buffer));
  if (staged) buffer.mapped = NULL;
  unsigned char *all = pattern(size, 1), *part = pattern(bytes, 2), *read = malloc(size);
  assert_non_null(read);
  ok(buffer_write(device, &buffer, 0, all, size));
  ok(buffer_write(device, &buffer, offset, part, bytes));
  memcpy(all + offset, part, bytes);
  ok(buffer_read(device, &buffer, 0, read, size));
  assert_memory_equal(read, all, size);
  memset(read, 0, bytes);
  ok(buffer_read(device, &buffer, offset, read, bytes));
  assert_memory_equal(read, part, bytes);
  ok(buffer_zero(device, &buffer, offset, bytes));
  memset(all + offset, 0, bytes);
  ok(buffer_read(device, &buffer, 0, read, size));
  assert_memory_equal(read, all, size);
  free(all);
  free(part);
  free(read);
  buffer_free(device, &buffer);
}

static void transfers_round_trip_at_odd_sizes_and_offsets(void **state) {
  static const uint64_t cases[][3] = {{1, 0, 1},
                                      {7, 3, 2},
                                      {13, 5, 8},
                                      {4096, 0, 4096},
                                      {5000, 1, 4997},
                                      {65537, 65536, 1},
                                      {3 << 20, 3, (3 << 20) - 7}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int staged = 0; staged < 2; staged++)
      round_trip(device_of(state), cases[i][0], cases[i][1], cases[i][2], staged);
}

static void transfers_larger_than_staging_round_trip(void **state) {
  round_trip(device_of(state), (70u << 20) + 5, 11, (66u << 20) + 1, true);
}

// What fill writes: every byte is its place in the transfer, in units of UNIT.
enum { UNIT = 7 * 1024 };

static deltaic_status places(void *context, uint64_t first, uint64_t n, void *to) {
  uint64_t *next = context;
  assert_int_equal(first, *next);
  assert_int_equal(first % UNIT, 0);
  assert_int_equal(n % UNIT, 0);
  *next += n;
  for (uint64_t i = 0; i < n; i++) ((unsigned char *)to)[i] = (unsigned char)((first + i) % 251);
  return *next > 2000 * UNIT ? DELTAIC_BAD_FILE : DELTAIC_OK;
}

static void units_are_written_in_place(void **state) {
  struct device *device = device_of(state);
  const uint64_t bytes = 1500 * UNIT;
  unsigned char *read = malloc(bytes);
  assert_non_null(read);
  for (int staged = 0; staged < 2; staged++) {
    struct buffer buffer;
    uint64_t next = 0;
    ok(buffer_create(device, MEMORY_DEVICE, 3000 * UNIT, "a test", &buffer));
    if (staged) buffer.mapped = NULL;
    ok(buffer_write_by(device, &buffer, 5 * UNIT, bytes, UNIT, places, &next));
    assert_int_equal(next, bytes);
    ok(buffer_read(device, &buffer, 5 * UNIT, read, bytes));
    for (uint64_t i = 0; i < bytes; i++) assert_int_equal(read[i], i % 251);
    next = 0;
    assert_int_equal(buffer_write_by(device, &buffer, 0, 3000 * UNIT, UNIT, places, &next), DELTAIC_BAD_FILE);
    buffer_free(device, &buffer);
  }
  free(read);
}

// Parts of two buffers, out of order, some of them empty, together larger than staging.
static void parts_are_read_at_once(void **state) {
  enum { MIB = 1 << 20, SIZE = 24 * MIB };
  struct device *device = device_of(state);
  unsigned char *data = malloc(2 * SIZE), *read = malloc(2 * SIZE);
  assert_non_null(data);
  assert_non_null(read);
  for (int i = 0; i < 2 * SIZE; i++) data[i] = (unsigned char)(i % 253 + i / 65536);
  for (int staged = 0; staged < 2; staged++) {
    struct buffer b[2];
    for (int i = 0; i < 2; i++) {
      ok(buffer_create(device, MEMORY_DEVICE, SIZE, "a test", &b[i]));
      if (staged) b[i].mapped = NULL;
      ok(buffer_write(device, &b[i], 0, data + i * SIZE, SIZE));
    }
    const struct buffer_part parts[] = {{&b[1], 5, 17 * MIB + 3, read + SIZE + 5},
                                        {&b[0], 7, 0, NULL},
                                        {&b[0], 4096, 33, read + 4096},
                                        {&b[0], MIB, 19 * MIB, read + MIB},
                                        {&b[1], SIZE - 9, 9, read + 2 * SIZE - 9},
                                        {&b[1], 0, 0, NULL}};
    memset(read, 0, 2 * SIZE);
    ok(buffer_read_parts(device, parts, sizeof parts / sizeof *parts));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
      if (parts[i].bytes)
        assert_memory_equal(parts[i].data, data + ((unsigned char *)parts[i].data - read), parts[i].bytes);
    assert_int_equal(read[4095] | read[4096 + 33] | read[MIB - 1] | read[20 * MIB] | read[SIZE + 4], 0);
    const struct buffer_part outside[] = {{&b[0], 0, 1, read}, {&b[1], SIZE, 1, read}};
    assert_int_equal(buffer_read_parts(device, outside, 2), DELTAIC_INTERNAL);
    for (int i = 0; i < 2; i++) buffer_free(device, &b[i]);
  }
  free(read);
  free(data);
}

static void transfers_outside_a_buffer_are_refused(void **state) {
  struct device *device = device_of(state);
  struct buffer buffer;
  char data[64] = {0};
  ok(buffer_create(device, MEMORY_DEVICE, 32, "a test", &buffer));
  assert_int_equal(buffer_write(device, &buffer, 1, data, 32), DELTAIC_INTERNAL);
  assert_int_equal(buffer_read(device, &buffer, UINT64_MAX, data, 2), DELTAIC_INTERNAL);
  assert_int_equal(buffer_zero(device, &buffer, 33, 0), DELTAIC_INTERNAL);
  ok(buffer_write(device, &buffer, 32, data, 0));
  buffer_free(device, &buffer);
  buffer_free(device, &buffer); // a zeroed buffer is accepted
}

static void more_than_a_buffer_holds_is_out_of_memory(void **state) {
  struct device *device = device_of(state);
  struct buffer buffer;
  assert_int_equal(buffer_create(device, MEMORY_DEVICE, UINT64_MAX, "the whole world", &buffer), DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "the whole world"));
}

static VKAPI_ATTR VkResult VKAPI_CALL no_memory(VkDevice device, const VkMemoryAllocateInfo *info,
                                                const VkAllocationCallbacks *allocator, VkDeviceMemory *memory) {
  return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

static void a_failed_allocation_names_what_and_how_much(void **state) {
  struct device *device = device_of(state);
  struct buffer buffer;
  PFN_vkAllocateMemory real = device->vk.vkAllocateMemory;
  device->vk.vkAllocateMemory = no_memory;
  assert_int_equal(buffer_create(device, MEMORY_DEVICE, 12345, "weights", &buffer), DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "weights"));
  assert_non_null(strstr(deltaic_last_error(), "12345"));
  assert_int_equal(buffer_create(device, MEMORY_SHARED, 8, "control", &buffer), DELTAIC_OUT_OF_MEMORY);
  device->vk.vkAllocateMemory = real;
  ok(buffer_create(device, MEMORY_DEVICE, 12345, "weights", &buffer));
  buffer.mapped = NULL;
  device->vk.vkAllocateMemory = no_memory; // for staging
  char byte = 0;
  assert_int_equal(buffer_write(device, &buffer, 0, &byte, 1), DELTAIC_OUT_OF_MEMORY);
  assert_non_null(strstr(deltaic_last_error(), "staging"));
  device->vk.vkAllocateMemory = real;
  ok(buffer_write(device, &buffer, 0, &byte, 1));
  buffer_free(device, &buffer);
}

static void *transfer_often(void *argument) {
  struct device *device = argument;
  for (int i = 0; i < 20; i++) round_trip(device, 40000 + 17 * (uint64_t)i, 3, 30001, true);
  return NULL;
}

static void threads_may_transfer_at_the_same_time(void **state) {
  pthread_t thread[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&thread[i], NULL, transfer_often, device_of(state)), 0);
  for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
}

int test_buffers(void) {
  const struct CMUnitTest tests[] = {
      ON_DEVICE(transfers_round_trip_at_odd_sizes_and_offsets),
      ON_DEVICE(transfers_larger_than_staging_round_trip),
      ON_DEVICE(units_are_written_in_place),
      ON_DEVICE(parts_are_read_at_once),
      ON_DEVICE(transfers_outside_a_buffer_are_refused),
      ON_DEVICE(more_than_a_buffer_holds_is_out_of_memory),
      ON_DEVICE(a_failed_allocation_names_what_and_how_much),
      ON_DEVICE(threads_may_transfer_at_the_same_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
