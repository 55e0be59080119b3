// choice: resolves the sampling: given options first, then the model's recommendation, then the program's defaults.
#include "choice.h"
#include "common.h"
#include "platform.h"

#include <stdio.h>
#include <time.h>

static const char *const names[] = {"temperature", "top-k", "top-p", "min-p", "repetition-penalty", NULL};
enum { TEMPERATURE, TOP_K, TOP_P, MIN_P, PENALTY };

int choice_read(struct choice *c, const struct arguments *arguments) {
  const char *chance = option_given_of(arguments, names);
  c->seed_given = option_given(arguments, "seed");
  for (int i = 0; names[i]; ++i) c->given[i] = option_given(arguments, names[i]);
  if (c->greedy && chance) return complain(EXIT_USAGE, "--greedy takes the likeliest token: it has no --%s", chance);
  return EXIT_OK;
}

// Returns splitmix64 of the time and the process id, below 10^9 so that it is easy to type.
static uint64_t random_seed(void) {
  uint64_t z = (uint64_t)time(NULL) * 1000000000u + platform_clock_ns() + ((uint64_t)platform_process() << 40);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % 1000000000u;
}

deltaic_sampling choice_sampling(const struct choice *c, const deltaic_model *model) {
  const deltaic_sampling *given = &c->sampling;
  deltaic_sampling s = DELTAIC_INIT(deltaic_sampling);
  if (c->greedy) return s;
  if (!deltaic_model_sampling(model, &s)) {
    s = *given;
    s.size = sizeof s;
  }
  if (c->given[TEMPERATURE]) s.temperature = given->temperature;
  if (c->given[TOP_K]) s.top_k = given->top_k;
  if (c->given[TOP_P]) s.top_p = given->top_p;
  if (c->given[MIN_P]) s.min_p = given->min_p;
  if (c->given[PENALTY]) s.repetition_penalty = given->repetition_penalty;
  s.seed = c->seed_given ? given->seed : random_seed();
  return s;
}

void choice_print(const char *head, const deltaic_sampling *s) {
  fprintf(stderr, "%s", head);
  if (s->temperature > 0)
    fprintf(stderr, "seed %llu, temperature %g", (unsigned long long)s->seed, s->temperature);
  else
    fprintf(stderr, "the likeliest token each time");
  if (s->temperature > 0 && s->top_k) fprintf(stderr, ", top-k %u", s->top_k);
  if (s->temperature > 0 && s->top_p > 0 && s->top_p < 1) fprintf(stderr, ", top-p %g", s->top_p);
  if (s->temperature > 0 && s->min_p > 0) fprintf(stderr, ", min-p %g", s->min_p);
  if (s->repetition_penalty > 0 && s->repetition_penalty != 1)
    fprintf(stderr, ", repetition penalty %g", s->repetition_penalty);
  fprintf(stderr, "\n");
}
