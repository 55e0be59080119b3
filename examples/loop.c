// loop: the smallest program that writes with a model, as it streams: loop MODEL PROMPT [TOKENS]
#include <deltaic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(deltaic_status status) {
  if (!status) return;
  fprintf(stderr, "loop: %s\n", deltaic_last_error());
  exit(1);
}

int main(int argc, char **argv) {
  if (argc < 3) return fputs("usage: loop MODEL PROMPT [TOKENS]\n", stderr), 2;
  int limit = argc > 3 ? atoi(argv[3]) : 64;
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_session *session;
  deltaic_tokenizer *tokenizer;
  deltaic_decoder *decoder;
  must(deltaic_context_create(NULL, &context));
  must(deltaic_device_open(context, NULL, &device)); // a GPU, else the CPU
  must(deltaic_model_open(device, argv[1], NULL, &model));
  must(deltaic_session_create(model, NULL, &session));
  must(deltaic_tokenizer_open(argv[1], &tokenizer));
  must(deltaic_decoder_create(tokenizer, true, &decoder));

  int32_t ids[4096];
  size_t count, bytes;
  const char *text;
  must(deltaic_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), true, ids, 4096, &count));
  must(deltaic_session_eval(session, ids, count, DELTAIC_LOGITS_NONE, NULL));
  for (size_t i = 0; i < count; ++i) must(deltaic_decoder_push(decoder, ids[i], &text, &bytes));
  for (int i = 0; i < limit; ++i) {
    int32_t token;
    must(deltaic_session_next(session, NULL, &token, NULL)); // NULL: the likeliest
    if (deltaic_model_is_end(model, token)) break;
    must(deltaic_decoder_push(decoder, token, &text, &bytes));
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
  }
  must(deltaic_decoder_finish(decoder, &text, &bytes));
  printf("%.*s\n", (int)bytes, text);

  deltaic_decoder_free(decoder);
  deltaic_tokenizer_close(tokenizer);
  deltaic_session_free(session);
  deltaic_model_close(model);
  deltaic_device_close(device);
  deltaic_context_free(context);
}
