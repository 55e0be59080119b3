// generate_prepare: what one text and many have in common: tokens of a prompt, the choice of tokens, the report's head.
#define _POSIX_C_SOURCE 200809L // clock_gettime, getpid
#include "common.h"
#include "generate.h"
#include "print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int generate_encode(const struct generate_request *request, const deltaic_tokenizer *tokenizer, const char *prompt,
                    size_t bytes, const char *where, int32_t **ids, size_t *count) {
  deltaic_model_info model;
  int code = text_encode(tokenizer, prompt, bytes, request->file, !request->no_bos, ids, count);
  if (code || *count) return code;
  code = complain_status(deltaic_model_inspect(NULL, model_path(request->engine.model), NULL, &model, NULL));
  if (code) return code;
  if (request->no_bos || model.bos_token < 0)
    return complain(EXIT_FAILED, "%sthe prompt is empty and the text has no token to begin with", where);
  *ids = must_resize(*ids, sizeof **ids);
  (*ids)[(*count)++] = model.bos_token;
  return EXIT_OK;
}

deltaic_status generate_finite(deltaic_session *session, uint32_t sequence, const struct engine *engine, bool *finite) {
  const int32_t n = engine->model_info.vocabulary;
  float *logits = must_resize(NULL, (size_t)n * sizeof *logits);
  deltaic_status status = deltaic_sequence_logits(session, sequence, logits);
  int32_t i = 0;
  while (!status && i < n && !isfinite(logits[i])) i++;
  free(logits);
  *finite = i < n;
  return status;
}

// splitmix64 of time and process, short enough to type.
static uint64_t random_seed(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t z = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % 1000000000u;
}

deltaic_sampling generate_sampling(const struct generate_request *request) {
  deltaic_sampling sampling = request->sampling;
  sampling.size = sizeof sampling;
  if (request->greedy)
    sampling = DELTAIC_INIT(deltaic_sampling);
  else if (!request->seed_given)
    sampling.seed = random_seed();
  return sampling;
}

void generate_announce(const struct generate_request *request, const struct engine *engine, const deltaic_sampling *s) {
  const deltaic_model_info *m = &engine->model_info;
  const char *model = request->engine.model;
  if (request->engine.quiet) return;
  fprintf(stderr, "model   %s%s: %s, %s parameters\n", model_path(model), model ? "" : " (the default)",
          m->architecture, text_short((double)m->parameters).text);
  fprintf(stderr, "device  %s\n", engine_device_text(engine));
  fprintf(stderr, "text    ");
  if (s->temperature > 0)
    fprintf(stderr, "seed %llu, temperature %g", (unsigned long long)s->seed, s->temperature);
  else
    fprintf(stderr, "the likeliest token each time");
  if (s->temperature > 0 && s->top_k) fprintf(stderr, ", top-k %u", s->top_k);
  if (s->temperature > 0 && s->top_p > 0 && s->top_p < 1) fprintf(stderr, ", top-p %g", s->top_p);
  if (s->temperature > 0 && s->min_p > 0) fprintf(stderr, ", min-p %g", s->min_p);
  if (s->repetition_penalty > 0 && s->repetition_penalty != 1)
    fprintf(stderr, ", repetition penalty %g", s->repetition_penalty);
  fprintf(stderr, "\n\n");
}
