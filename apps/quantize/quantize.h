// quantize.h: declares what the parts of `deltaic quantize` share.
#ifndef QUANTIZE_COMMAND_H
#define QUANTIZE_COMMAND_H
#include "score_text.h"

struct quantize_request {
  struct score_options score; // its model is the one that is read; file: the text of --compare, or NULL
  const char *out, *type;
  bool force, dry_run, tensors, as_json;
};

// A model's perplexity on the text.
struct quantize_score {
  bool known;
  double nll, bits; // bits: per weight, on the device
  uint64_t predictions;
};

struct quantize_result {
  const struct quantize_request *request;
  deltaic_quantization *report;
  double seconds; // of writing
  struct quantize_score before, after;
};

// quantize_compare.c: scores a model, with an adapter or NULL. Returns an exit code, after a message.
int quantize_compare(const struct quantize_request *request, const char *model, const char *adapter,
                     struct quantize_score *score);
// quantize_print.c
void quantize_print(const struct quantize_result *result);
int quantize_print_json(const struct quantize_result *result);
#endif
