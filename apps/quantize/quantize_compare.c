// quantize_compare: the perplexity of a text by the model before and after.
#include "quantize.h"

int quantize_compare(const struct quantize_request *r, const char *model, const char *adapter,
                     struct quantize_score *out) {
  struct score_options o = r->score;
  struct score s = {0};
  deltaic_memory memory;
  o.engine.model = model;
  o.engine.adapter = adapter;
  int code = score_open(&s, &o);
  // A GPU stores blocks in tiles; the CPU's are those of the file.
  if (!code) code = complain_status(deltaic_model_inspect(NULL, model, NULL, NULL, &memory));
  if (!code) code = score_run(&s, &o);
  if (!code && s.likelihood.predictions)
    *out = (struct quantize_score){.known = true,
                                   .nll = s.likelihood.nll / (double)s.likelihood.predictions,
                                   .bits = 8 * (double)memory.weights_bytes / (double)s.engine.model_info.parameters,
                                   .predictions = s.likelihood.predictions};
  return score_close(&s, code);
}
