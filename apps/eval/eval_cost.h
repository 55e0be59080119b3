// eval_cost.h: what a text of a given length costs: time of reading and of continuing it, memory of its state.
#ifndef EVAL_COST_H
#define EVAL_COST_H
#include "eval.h"

// Measures, and prints a table or JSON; plot: a PNG file or NULL. An exit code.
int eval_cost(const struct engine_options *options, const struct count_list *lengths, const struct arguments *arguments,
              bool as_json, const char *plot);
#endif
