// eval_cost.h: measures the cost of a sequence by length: time of prefill and of decoding, memory of its state.
#ifndef EVAL_COST_H
#define EVAL_COST_H
#include "eval.h"

// Measures and prints a table or JSON. plot: a PNG file, or NULL. It returns an exit code.
int eval_cost(const struct engine_options *options, const struct count_list *lengths, const struct arguments *arguments,
              bool as_json, const char *plot);
#endif
