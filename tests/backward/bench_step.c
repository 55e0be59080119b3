// bench_step: the gradients of one training step on the first Vulkan device, without AdamW. No test: it prints seconds,
// tokens/s and the device's busy share, then the times of all kernels in one more step.
//
//   bench_step FOLDER lora|everything fast|float32 ROWS T STEPS KEEP
//
// lora: gradients of the projections of q, k and v, and of convolutions, norms and biases. Tokens are random. KEEP: GiB
// for values of layers that are kept for the backward pass.
#include "../ops/bench_first.h"
#include "device_handle.h"
#include "learner_inside.h"
#include "learner_memory.h"
#include "platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 64 };

static void ok(deltaic_status status) {
  if (status) exit(fprintf(stderr, "%s\n", deltaic_last_error()));
}

static bool wanted(void *everything, const struct file_tensor *t) {
  static const char *const lora[] = {"q_proj", "k_proj", "v_proj", "conv1d", "norm", "bias"};
  bool found = *(const bool *)everything && t->used;
  for (size_t i = 0; i < sizeof lora / sizeof *lora; i++) found |= strstr(t->name, lora[i]) != NULL;
  return found;
}

static int by_time(const void *a, const void *b) {
  const deltaic_kernel_time *x = a, *y = b;
  return x->seconds < y->seconds ? 1 : -1;
}

static double step(struct learner *l, const struct learner_batch *batch, struct learner_loss *loss) {
  const uint64_t begin = platform_clock_ns();
  ok(learner_add(l, batch, NULL, 1, loss));
  ok(learner_clear(l));
  return (double)(platform_clock_ns() - begin) * 1e-9;
}

static double busy(struct learner *l, const struct learner_batch *batch) {
  const struct backend_functions *f = l->backend->functions;
  deltaic_kernel_time times[KERNELS];
  struct learner_loss loss;
  ok(f->recorder_busy(l->recorder, true));
  const double all = step(l, batch, &loss);
  const size_t n = f->recorder_times(l->recorder, times, KERNELS);
  ok(f->recorder_busy(l->recorder, false));
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += times[i].seconds;
  return sum / all;
}

static void profile(struct learner *l, const struct learner_batch *batch) {
  const struct backend_functions *f = l->backend->functions;
  deltaic_kernel_time times[KERNELS];
  struct learner_loss loss;
  ok(f->recorder_profile(l->recorder, true));
  step(l, batch, &loss);
  const size_t n = f->recorder_times(l->recorder, times, KERNELS);
  ok(f->recorder_profile(l->recorder, false));
  double sum = 0;
  qsort(times, n, sizeof *times, by_time);
  for (size_t i = 0; i < n; i++) sum += times[i].seconds;
  for (size_t i = 0; i < n; i++)
    printf("  %-32s %5llu %9.3f ms %5.1f %% %7.0f GB/s %7.1f TFLOP/s\n", times[i].name,
           (unsigned long long)times[i].dispatches, 1e3 * times[i].seconds, 100 * times[i].seconds / sum,
           1e-9 * (double)times[i].bytes / times[i].seconds, 1e-12 * (double)times[i].operations / times[i].seconds);
  printf("  %-32s       %9.3f ms\n", "sum", 1e3 * sum);
}

int main(int argc, char **argv) {
  if (argc != 8)
    return fprintf(stderr, "usage: bench_step FOLDER lora|everything fast|float32 ROWS T STEPS KEEP\n"), 2;
  bool everything = !strcmp(argv[2], "everything");
  const bool fast = !strcmp(argv[3], "fast");
  const uint32_t rows = (uint32_t)atoi(argv[4]), T = (uint32_t)atoi(argv[5]);
  deltaic_context *context;
  deltaic_device *device;
  if (!bench_first(&context, &device)) return 1;
  struct learner *l;
  struct learner_loss loss;
  ok(learner_open(argv[1], device->backend, 0, fast, wanted, &everything, &l));
  learner_keep(l, (uint64_t)(1024 * atof(argv[7])) << 20);
  int32_t *tokens = malloc((size_t)rows * (T + 1) * sizeof *tokens);
  uint32_t seed = 1;
  for (uint32_t i = 0; i < rows * (T + 1); i++) {
    seed = seed * 1664525 + 1013904223;
    tokens[i] = (int32_t)((seed >> 8) % learner_vocabulary(l));
  }
  const struct learner_batch batch = {tokens, rows, T, NULL};
  double best = 1e30;
  for (int i = 0; i < atoi(argv[6]); i++) {
    const double seconds = step(l, &batch, &loss);
    printf("%s%.3f", i ? ", " : "seconds ", seconds);
    fflush(stdout);
    if (seconds < best) best = seconds;
  }
  printf("; loss %.4f\n%s, %s, %s, %u x %u: best %.4f s, %.0f tokens/s, busy %.3f\n", loss.ce, argv[1], argv[2],
         argv[3], rows, T, best, rows * T / best, busy(l, &batch));
  uint32_t kept = 0;
  for (uint32_t i = 0; i < l->model.spec.L; i++) kept += l->is_kept[i];
  printf("%u of %u layers kept, in %.1f GiB\n", kept, l->model.spec.L, (double)learner_memory(l).kept / (1 << 30));
  fflush(stdout);
  profile(l, &batch);
  learner_close(l);
  free(tokens);
  deltaic_device_close(device);
  deltaic_context_free(context);
  return 0;
}
