// serve_turn.h: a finished turn: the tokens that a state has read, and what a next turn needs besides.
#ifndef SERVE_TURN_H
#define SERVE_TURN_H
#include "serve_store.h"

#include <stddef.h>
#include <stdint.h>

struct turn {
  const int32_t *tokens; // that the state has read
  size_t count;
  const int32_t *pending; // to be read before a next turn's: what the template adds behind an answer
  size_t pending_count;
  const char *state;    // the key of the state behind `tokens`; "" where there are none
  const char *messages; // the conversation as JSON, [{"role": ..., "content": ...}]; "" for plain text
  size_t messages_bytes;
  const char *alias; // the key of the same turn for a client that sends the conversation again; "": there is none
  // How the tokens were computed: ranges that end at TURN_SPAN_END(span), each read as a prompt or drawn in steps.
  // --reproducible computes a lost state again in the same way, as another way rounds otherwise.
  const uint32_t *spans;
  size_t span_count;
  const char *template; // of the conversation, by name; "" for plain text
};
#define TURN_SPAN(end, drawn) ((uint32_t)(end) << 1 | (uint32_t)(drawn))
#define TURN_SPAN_END(span) ((span) >> 1)
#define TURN_SPAN_DRAWN(span) ((span)&1)

// The turn as bytes for the store. NULL: no memory.
struct blob *turn_pack(const struct turn *turn);
// Checks every count and token. The turn's pointers lead into the blob. False: these bytes are no turn of a model with
// this vocabulary, and *turn is as it was.
bool turn_unpack(const struct blob *blob, int32_t vocabulary, struct turn *turn);
#endif
