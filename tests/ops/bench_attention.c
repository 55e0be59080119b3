// bench_attention: softmax attention by itself over positions and tokens, on every usable Vulkan GPU (or on what
// DELTAIC_TEST_DEVICE names). Dispatches wait for each other and take turns over caches that L2 does not hold. No test:
// it only prints. usage: bench_attention [MIB = 2200 [HEADS = 8 [KV_HEADS = 8 [D = 128]]]]
#include "bench_tools.h"
#include "platform.h"

enum { RUNS = 5, TOKENS = 4096 };

static struct buffer caches, activations, control;
static uint64_t cache_bytes;
static uint32_t heads, kv_heads, size;

// Microseconds of T tokens of one text that come after `pos`, the least of some runs; 0: the caches do not fit.
static double time_attention(uint32_t T, uint32_t pos, uint32_t window, uint32_t dispatches) {
  const uint32_t row = kv_heads * size;
  const struct attention_args a = {heads, kv_heads, size, window, pos + T};
  const uint64_t bytes = round_up(4ull * row * a.capacity, TENSOR_ALIGN), copies = cache_bytes / bytes / 2;
  uint64_t at = 0;
  struct tensor qkv = bench_view(&activations, DTYPE_F32, &at, T, heads * size + 2 * row);
  struct tensor o = bench_view(&activations, DTYPE_F32, &at, T, heads * size);
  struct tensor table = bench_view(&activations, DTYPE_F32, &at, ROPE_ROWS, size);
  struct tensor sequences = {.dtype = DTYPE_I32, .rows = 1, .cols = 4, .stride = 4, .buffer = &control};
  if (!copies) return 0;
  if (T > 1) o.dtype = DTYPE_F16;
  oplist_begin(&list);
  list.matrices = T > 1 ? MATRICES_BEST : MATRICES_NONE;
  list.longest = T;
  *(struct sequence *)control.mapped = (struct sequence){0, T, pos, 0};
  double least = 1e30;
  for (uint32_t i = 0; i < dispatches; i++) {
    uint64_t in_caches = i % copies * 2 * bytes;
    struct tensor k = bench_view(&caches, DTYPE_F32, &in_caches, 1, row * a.capacity);
    struct tensor v = bench_view(&caches, DTYPE_F32, &in_caches, 1, row * a.capacity);
    if (T == 1) op_rope_append(&list, &(struct rope_append){qkv, k, v, qkv, table, sequences, a});
    op_attention(&list, &(struct attention){o, qkv, k, v, sequences, a});
  }
  uint64_t largest, scratch = backend->functions->list_bytes(backend, &list, &largest) / sizeof(float);
  list.scratch = bench_view(&activations, DTYPE_F32, &at, 1, (uint32_t)scratch + 1);
  recorder->functions->recorder_begin(recorder, true, NULL);
  recorder->functions->recorder_list(recorder, &list);
  for (int i = 0; i <= RUNS; i++) { // the first warms up
    uint64_t start = platform_clock_ns();
    check(backend->functions->recorder_run(recorder));
    double us = 1e-3 * (double)(platform_clock_ns() - start) / dispatches;
    if (i && us < least) least = us;
  }
  return least;
}

static int bench_device(struct instance *instance, VkPhysicalDevice handle, const struct device_caps *caps,
                        const struct plan *own) {
  static const uint32_t positions[] = {64, 144, 300, 1000, 4000, 16000, 128000};
  static const uint32_t tokens[][3] = {{2048, 0, 0},        {2048, 0, 512},  {2048, 6144, 0}, {2048, 62000, 0},
                                       {2048, 62000, 2048}, {4096, 4096, 0}, {200, 4096, 0},  {512, 0, 0},
                                       {32, 1000, 0},       {32, 8000, 0},   {32, 32000, 0},  {128, 32000, 0},
                                       {32, 32000, 2048}};
  bench_open(instance, handle, caps, own);
  caches = bench_buffer(cache_bytes, "caches");
  activations = bench_buffer(16ull * TOKENS * (heads + kv_heads) * size + (8 << 20), "activations");
  check(backend->functions->buffer_create(backend, MEMORY_SHARED, sizeof(struct sequence), "sequences", &control));
  printf("%s, %s, %u heads, %u of keys, of %u\n", caps->name, caps->driver, heads, kv_heads, size);
  time_attention(1, 4000, 0, 5000); // wakes the card
  for (int i = 0; i < 7; i++) {
    double us = time_attention(1, positions[i], 0, positions[i] < 10000 ? 200 : 32);
    printf("one token after %6u: %9.2f us with rope_append, %5.0f GB/s\n", positions[i], us,
           8e-3 * kv_heads * size * positions[i] / us);
  }
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    const uint32_t T = tokens[i][0], pos = tokens[i][1], w = tokens[i][2];
    double us = time_attention(T, pos, w, 8), keys = 0;
    for (uint32_t t = 0; t < T; t++) keys += w && w < pos + t + 1 ? w : pos + t + 1;
    printf("%4u tokens after %6u, window %4u: %9.1f us, %6.1f TFLOP/s\n", T, pos, w, us,
           4e-6 * keys * heads * size / us);
  }
  backend->functions->buffer_free(backend, &caches);
  backend->functions->buffer_free(backend, &activations);
  backend->functions->buffer_free(backend, &control);
  bench_close();
  return 0;
}

static uint32_t argument(int argc, char **argv, int i, uint32_t otherwise) {
  return argc > i ? (uint32_t)strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv) {
  cache_bytes = (uint64_t)argument(argc, argv, 1, 2200) << 20;
  heads = argument(argc, argv, 2, 8), kv_heads = argument(argc, argv, 3, 8), size = argument(argc, argv, 4, 128);
  if (!cache_bytes || !size || !kv_heads || heads < kv_heads || heads % kv_heads) {
    fprintf(stderr, "usage: bench_attention [MIB [HEADS [KV_HEADS [D]]]]\n");
    return 2;
  }
  return bench_vulkan_devices(bench_device);
}
