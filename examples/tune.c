// tune: the smallest program that trains a model: tune MODEL OUT <TEXT
#include <deltaic_tune.h>
#include <stdio.h>
#include <stdlib.h>

static void must(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "tune: %s\n", deltaic_last_error());
  exit(1);
}

int main(int argc, char **argv) {
  enum { STEPS = 8, ROWS = 2, LENGTH = 32, TOKENS = STEPS * ROWS * (LENGTH + 1) };
  static char text[1 << 16];
  static int32_t ids[1 << 16];
  deltaic_tokenizer *tokenizer;
  deltaic_tune *tune;
  size_t count;
  if (argc != 3) return fputs("usage: tune MODEL OUT <TEXT\n", stderr), 2;
  must(deltaic_tokenizer_open(argv[1], &tokenizer));
  must(deltaic_tokenizer_encode(tokenizer, text, fread(text, 1, sizeof text, stdin), false, ids, 1 << 16, &count));
  deltaic_tokenizer_close(tokenizer);
  if (count < TOKENS) return fprintf(stderr, "tune: the text has fewer than %d tokens\n", TOKENS), 1;

  must(deltaic_tune_create(argv[1], NULL, &tune)); // NULL: LoRA
  for (int32_t step = 0, *at = ids; step < STEPS; ++step, at += ROWS * (LENGTH + 1)) {
    const deltaic_tune_batch batch = {.size = sizeof batch, .tokens = at, .rows = ROWS, .length = LENGTH};
    deltaic_tune_loss loss;
    must(deltaic_tune_add(tune, &batch, 1, &loss));
    must(deltaic_tune_step(tune, 1e-3, NULL));
    printf("step %d: %.3f\n", step + 1, loss.ce);
  }
  must(deltaic_tune_save(tune, argv[2], false));
  deltaic_tune_free(tune);
}
