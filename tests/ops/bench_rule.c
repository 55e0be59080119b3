// bench_rule: times of the delta rule over its shapes on the first Vulkan device: by chunks, token by token in columns
// (delta_rule.comp), and in fours (delta_rule_fours.comp) with rows a lane, lanes a workgroup and, +, loads ahead. The
// plan's choices are fitted to it (plan_rule.c). No test: it only prints milliseconds, a line a shape; -1: it failed,
// -2: the result is wrong. Chunks are on matrix units unless DELTAIC_NO_MATRICES is set. usage: bench_rule [HEADS
// [TOKENS [D [STEPS [FORMS [SECONDS]]]]]], lists with commas, such as 16,512 2048 128 1 columns,16/128,16/128+;
// SECONDS: no shape begins after them.
#include "bench_first.h"
#include "backend.h"
#include "device_handle.h"
#include "measure.h"
#include "vulkan_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32, HEADS = 16 };

struct numbers {
  uint32_t count, of[MOST];
};

static struct numbers numbers(int argc, char **argv, int i, const char *usual) {
  struct numbers n = {0};
  const char *text = argc > i ? argv[i] : usual;
  while (*text && n.count < MOST) {
    char *end;
    n.of[n.count++] = (uint32_t)strtoul(text, &end, 10);
    text = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') exit(fprintf(stderr, "not a list of numbers: %s\n", text));
  }
  return n;
}

// Milliseconds; negative: it failed.
static double time_of(deltaic_device *device, deltaic_operator o) {
  deltaic_operator_result r;
  o.repeat = 5;
  if (deltaic_device_measure_operator(device, &o, &r)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return -1;
  }
  if (!(r.error_output < 1e-3 && r.error_state < 1e-3)) return -2;
  return 1e3 * r.seconds;
}

static void shape(deltaic_device *device, uint32_t heads, uint32_t T, uint32_t d, uint32_t n, const char *forms) {
  struct plan_rules *rules = &((struct vulkan_backend *)device->backend)->rules;
  const struct plan_rules usual = *rules;
  deltaic_operator o = DELTAIC_INIT(deltaic_operator);
  o.heads = heads < HEADS ? heads : HEADS;
  o.sequences = heads / o.heads;
  o.tokens = T, o.key = o.value = d, o.steps = n, o.gated = true;
  o.rule = DELTAIC_RULE_CHUNK;
  printf("%5u %6u %4u %2u  chunks %8.3f", heads, T, d, n, time_of(device, o));
  o.rule = DELTAIC_RULE_RECURRENT;
  for (const char *form = forms; *form; form += strcspn(form, ","), form += *form == ',') {
    const int length = (int)strcspn(form, ",");
    unsigned rows = 0, lanes = 0;
    char plus = 0;
    sscanf(form, "%u/%u%c", &rows, &lanes, &plus);
    *rules = usual;
    rules->fours_most_rows = rules->fours_least_rows = rows; // 0: in columns
    rules->fours_lanes = lanes;
    rules->fours_ahead_rows = plus == '+' ? rows : 0;
    if (!strncmp(form, "plan", 4)) *rules = usual;
    printf("  %.*s %8.3f", length, form, time_of(device, o));
  }
  *rules = usual;
  printf("\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  const struct numbers heads = numbers(argc, argv, 1, "1,4,16,64,128,256,512");
  const struct numbers tokens = numbers(argc, argv, 2, "64,256,1024,2048,8192");
  const struct numbers sizes = numbers(argc, argv, 3, "64,128,256"), steps = numbers(argc, argv, 4, "1");
  const double seconds = argc > 6 ? strtod(argv[6], NULL) : 1e9, start = measure_now();
  const char *forms = argc > 5 ? argv[5] : "columns,8/128+,16/128+";
  const double most_rows = 4e9; // elements of q, k and v, a limit of the host's time and memory
  deltaic_context *context;
  deltaic_device *device;
  if (!bench_first(&context, &device)) return 1;
  for (uint32_t i = 0; i < sizes.count; i++)
    for (uint32_t h = 0; h < heads.count; h++)
      for (uint32_t t = 0; t < tokens.count; t++)
        for (uint32_t n = 0; n < steps.count; n++) {
          const double elements = (double)heads.of[h] * tokens.of[t] * sizes.of[i] * (1 + 2.0 * steps.of[n]);
          if (elements < most_rows && measure_now() - start < seconds)
            shape(device, heads.of[h], tokens.of[t], sizes.of[i], steps.of[n], forms);
        }
  deltaic_device_close(device);
  deltaic_context_free(context);
  return 0;
}
