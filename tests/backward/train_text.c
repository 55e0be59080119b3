// train_text: trains every tensor of a small checkpoint on windows of a text, and writes them in the file's own
// formats. The checkpoints tiny_delta_net_2* of tests/vectors/models were made with it (their README). Run by hand.
//
//   train_text FOLDER TOKENS STEPS BATCH RATE
//
// TOKENS: a safetensors file with "tokens" (windows, T + 1), read in order, again from the beginning at its end. The
// rate rises over the first twentieth of the steps and falls to a tenth along a cosine.
#include "deltaic.h"
#include "tensor_file.h"
#include "trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void ok(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", deltaic_last_error());
  exit(1);
}

static enum training whole(void *user, const struct file_tensor *t) {
  (void)user;
  return t->used ? TRAIN_WHOLE : TRAIN_NOT;
}

static double rate_at(double most, uint64_t step, uint64_t steps) {
  const double warm = (double)steps / 20 + 1, at = (double)step;
  if (at < warm) return most * (at + 1) / warm;
  return most * (0.1 + 0.45 * (1 + cos(acos(-1) * (at - warm) / ((double)steps - warm))));
}

// All tensors are trained, so the trainer's are the file's.
static deltaic_status write_back(const char *path, struct trainer *t) {
  struct tensor_file f;
  const size_t count = trainer_count(t);
  tensor_file_begin(&f, path, NULL);
  for (size_t i = 0; i < count; i++) {
    const struct file_tensor *from = trainer_at(t, i)->tensor;
    tensor_file_declare(&f, from->name, from->dtype_name, from->rank, from->shape, from->bytes);
  }
  tensor_file_write_header(&f);
  for (size_t i = 0; i < count; i++) {
    const struct trained *x = trainer_at(t, i);
    double *numbers = malloc(x->n * sizeof *numbers);
    char *bytes = malloc(x->n * sizeof *numbers);
    float *values = malloc(x->n * sizeof *values);
    ok(trainer_values(t, i, values));
    for (uint64_t k = 0; k < x->n; k++) numbers[k] = values[k];
    free(values);
    tensor_file_append(&f, bytes, tensor_convert(x->dtype, numbers, x->n, bytes));
    free(numbers);
    free(bytes);
  }
  return tensor_file_end(&f);
}

int main(int argc, char **argv) {
  if (argc != 6) return fprintf(stderr, "usage: train_text FOLDER TOKENS STEPS BATCH RATE\n"), 2;
  const uint64_t steps = strtoull(argv[3], NULL, 10), batch = strtoull(argv[4], NULL, 10);
  const double rate = atof(argv[5]);
  const struct trainer_options o = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
  deltaic_tensors *file;
  deltaic_tensor_info info;
  struct trainer *t;
  char path[512];
  ok(deltaic_tensors_open(argv[2], &file));
  if (!deltaic_tensors_find(file, "tokens", &info)) return fprintf(stderr, "%s: no tokens\n", argv[2]), 1;
  const uint64_t windows = info.shape[0], T = info.shape[1];
  int32_t *tokens = malloc(info.count * sizeof *tokens);
  ok(deltaic_tensors_read_integers(file, "tokens", 0, info.count, tokens));
  ok(trainer_open(argv[1], NULL, 1, whole, NULL, &o, &t));
  double mean = 0;
  for (uint64_t step = 0; step < steps; step++) {
    const uint64_t first = step * batch % (windows - batch + 1);
    struct learner_loss loss;
    double norm;
    const struct learner_batch rows = {tokens + first * T, (uint32_t)batch, (uint32_t)T - 1, NULL};
    ok(learner_add(trainer_learner(t), &rows, NULL, 1, &loss));
    ok(trainer_step(t, rate_at(rate, step, steps), &norm));
    mean += loss.ce;
    if (step % 100 == 99) {
      printf("step %llu: mean loss of 100 steps %.4f\n", (unsigned long long)step + 1, mean / 100);
      fflush(stdout);
      mean = 0;
    }
  }
  snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
  ok(write_back(path, t));
  trainer_close(t);
  deltaic_tensors_close(file);
  free(tokens);
  return 0;
}
