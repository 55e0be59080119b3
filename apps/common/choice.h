// choice.h: declares the sampling options, whose defaults the model's recommendation replaces.
#ifndef CHOICE_H
#define CHOICE_H
#include "deltaic.h"
#include "options.h"

struct choice {
  deltaic_sampling sampling; // values of the options; if the model recommends values, only the given options apply
  bool greedy, seed_given;
  bool given[5]; // temperature, top-k, top-p, min-p, repetition-penalty
};
#define CHOICE_DEFAULTS                                                                                                \
  {                                                                                                                    \
    .sampling = {.temperature = 0.8f, .top_p = 0.95f, .repetition_penalty = 1.1f }                                     \
  }

// Options of every command that draws tokens; add CHOICE_OPTIONS(c) to its table.
#define CHOICE_OPTIONS(c)                                                                                              \
  HEADING("choice of tokens; a model's generation_config.json replaces these defaults"),                               \
      COUNT64('s', "seed", "N", &(c)->sampling.seed,                                                                   \
              "of the random choice; without it, a new seed, which is printed"),                                       \
      FLAG('g', "greedy", &(c)->greedy, "take the likeliest token; no temperature, no penalty"),                       \
      NUMBER(0, "temperature", "X", &(c)->sampling.temperature, 100,                                                   \
             "low: predictable; high: adventurous; 0: the likeliest token"),                                           \
      COUNT(0, "top-k", "N", &(c)->sampling.top_k, 0, 0, "choose among the N likeliest tokens; 0: all"),               \
      NUMBER(0, "top-p", "X", &(c)->sampling.top_p, 1,                                                                 \
             "among the likeliest that together have this probability; 1: all"),                                       \
      NUMBER(0, "min-p", "X", &(c)->sampling.min_p, 1,                                                                 \
             "among those at least this likely, relative to the likeliest; 0: all"),                                   \
      NUMBER(0, "repetition-penalty", "X", &(c)->sampling.repetition_penalty, 100,                                     \
             "makes tokens that are already in the text less likely; 1: off")

// Records which options were given. It returns an exit code and prints a message if they contradict each other.
int choice_read(struct choice *choice, const struct arguments *arguments);
// Returns the sampling for a model, with a seed.
deltaic_sampling choice_sampling(const struct choice *choice, const deltaic_model *model);
// Prints "text    seed 7, temperature 0.8, top-p 0.95" on standard error.
void choice_print(const char *head, const deltaic_sampling *sampling);
#endif
