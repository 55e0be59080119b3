// generate_prepare: what one text and many have in common: tokens of a prompt and the report's head.
#include "common.h"
#include "generate.h"
#include "print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

json_t *generate_stop_json(const struct generate_request *request, const deltaic_stops *stops) {
  int32_t found = deltaic_stops_found(stops);
  return found < 0 ? json_null() : text_json(request->stops.items[found]);
}

void generate_announce(const struct generate_request *request, const struct engine *engine, const deltaic_sampling *s) {
  const deltaic_model_info *m = &engine->model_info;
  const char *model = request->engine.model;
  if (request->engine.quiet) return;
  fprintf(stderr, "model   %s%s: %s, %s parameters\n", model_path(model), model ? "" : " (the default)",
          m->architecture, text_short((double)m->parameters).text);
  fprintf(stderr, "device  %s\n", engine_device_text(engine));
  choice_print("text    ", s);
  fprintf(stderr, "\n");
}
