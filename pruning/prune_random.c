// random: keeps a random subset of channels. It depends only on the seed and the head's number.
#include "method.h"

// splitmix64 (Steele, Lea and Flood 2014).
static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Keeps the best of random scores, like a shuffle: 53-bit scores almost never tie, and this also handles blocks.
static deltaic_status select_random(const struct prune_head *head, int keep, const struct prune_options *options,
                                    struct prune_result *out) {
  uint64_t state = options->seed;
  state = next(&state) ^ head->id;
  for (int j = 0; j < head->d; j++) out->scores[j] = (double)(next(&state) >> 11) * 0x1p-53;
  prune_take_best(head, keep, out);
  return DELTAIC_OK;
}

const struct prune_method prune_random = {
    .name = "random",
    .about = "a random subset of every head's channels",
    .select = select_random,
};
