// serve_speed: with a store, how fast prompts are read and states are fetched is measured before the server listens.
// Otherwise a replica that was just started would fetch what it computes sooner.
#include "common.h"
#include "platform.h"
#include "serve_slots.h"

#include <stdio.h>
#include <stdlib.h>

// Tokens a second that one sequence reads; 0: not known.
static double read_tokens(struct batch *b, const int32_t *tokens, size_t count) {
  const deltaic_piece piece = {.sequence = 0, .tokens = tokens, .count = count};
  const struct moment start = engine_now(&b->server->engine);
  if (deltaic_session_eval_batch(b->session, &piece, 1)) return 0;
  const double seconds = engine_seconds(&b->server->engine, start);
  return seconds > 0 ? (double)count / seconds : 0;
}

// Measures the prompt speed. The first slice is short and may include warm-up. Its speed sets the length of a second
// slice of about 0.3 s. Token counters exclude both slices.
static double prompt_rate(struct batch *b, int32_t *tokens) {
  const double most = 0.3;
  const size_t room = b->context - LEAST_SLICE < b->tokens ? (size_t)(b->context - LEAST_SLICE) : b->tokens;
  for (uint32_t i = 0; i < b->tokens; ++i)
    tokens[i] = (int32_t)(i * 7919 % (uint32_t)b->server->engine.model_info.vocabulary);
  const double first = read_tokens(b, tokens, LEAST_SLICE);
  size_t count = first * most < (double)room ? (size_t)(first * most) : room;
  if (count < LEAST_SLICE) count = LEAST_SLICE;
  const double second = interrupted() ? 0 : read_tokens(b, tokens, count);
  return second > 0 ? second : first;
}

// Counters of the store have this state, as any other.
static void measure_store(struct batch *b) {
  char key[STORE_KEY]; // no other replica's
  snprintf(key, sizeof key, "measured-%llx", (unsigned long long)platform_clock_ns());
  size_t bytes = 0;
  deltaic_status status = deltaic_sequence_state_size(b->session, 0, &bytes);
  struct blob *state = status ? NULL : blob_create(bytes);
  if (state && !deltaic_sequence_save(b->session, 0, state->bytes, bytes, NULL))
    store_measure(b->server->store, key, state);
  blob_drop(state);
}

int speed_measure(struct batch *b) {
  if (!store_outlives(b->server->store) || b->tokens < LEAST_SLICE || b->context < 2 * LEAST_SLICE) return EXIT_OK;
  int32_t *tokens = malloc(b->tokens * sizeof *tokens);
  if (!tokens) return complain(EXIT_FAILED, "out of memory");
  b->rate = prompt_rate(b, tokens);
  free(tokens);
  metrics_set(&b->server->metrics, METRIC_PROMPT_RATE, (int64_t)b->rate);
  if (!interrupted()) measure_store(b);
  return complain_status(deltaic_sequence_reset(b->session, 0));
}
