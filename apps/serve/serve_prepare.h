// serve_prepare.h: what makes the tasks of a request.
#ifndef SERVE_PREPARE_H
#define SERVE_PREPARE_H
#include "serve_call.h"

// serve_ids.c. Each returns false when there is a problem.
struct ids {
  int32_t *items;
  size_t count;
};
bool ids_add(struct ids *to, const int32_t *ids, size_t count, struct problem *p);
bool ids_add_text(const struct server *s, struct ids *to, const char *text, size_t bytes, bool special,
                  struct problem *p);
bool ids_add_tokens(const struct server *s, struct ids *to, const json_t *tokens, struct problem *p);
bool prepare_failed(struct problem *p, deltaic_status status); // true: the problem is set
void prepare_no_memory(struct problem *p);

// serve_history.c: the turn that the tasks of a request go on from.
struct base {
  struct blob *turn_blob, *state; // state: that behind the turn, or NULL
  struct turn turn;
  bool in_slot; // a slot has the state
};
// Finds the turn. Unless it is found, `base` has none.
enum store_found base_find(const struct server *s, const char *key, struct base *base);
void base_state(const struct server *s, struct base *base); // finds the state behind the turn
void base_free(struct base *base);
// The tokens of a conversation and of the answer's beginning, whose text is *opening.
bool prepare_chat(struct server *s, struct call *call, struct base *base, struct ids *ids, struct task *t,
                  char **opening, struct problem *p);
#endif
