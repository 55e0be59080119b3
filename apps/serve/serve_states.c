// serve_states: states as resources. A state's bytes are a head of three words, the turn, and what the session saved.
#include "serve_batch.h"
#include "serve_reply.h"

#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x31535244 }; // "DRS1"

struct head {
  uint32_t magic, turn_bytes;
  uint64_t state_bytes;
};

static struct reply refuse(int status, const char *param, const char *code, const char *text) {
  struct problem problem = {0};
  problem_set(&problem, status, param, code, "%s", text);
  return reply_refuse(&problem);
}

static bool id_valid(const char *id) { return store_key_valid(id) && strlen(id) < TURN_ID; }

// No status: the id is right.
static struct reply check_id(const char *id) {
  if (id_valid(id)) return (struct reply){0};
  return refuse(400, "", "", "a state's id has at most 63 letters, digits, _ and -");
}

static bool unpack(const struct server *s, const struct blob *blob, struct turn *turn) {
  return turn_unpack(blob, s->engine.model_info.vocabulary, turn);
}

// The answer is a copy, which a client may take slowly.
static struct reply get(struct server *s, const struct blob *turn_blob, size_t *taken) {
  struct problem problem = {0};
  struct turn turn;
  struct blob *state = NULL;
  enum store_found found = STORE_ABSENT;
  if (unpack(s, turn_blob, &turn) && turn.count) found = store_get(s->store, STORE_STATE, turn.state, &state);
  if (found == STORE_DOWN) return refuse(503, "", "", store_down);
  if (!state)
    return refuse(404, "", "state_not_found",
                  "the state has left the memory; the next turn computes it again from its tokens");
  const struct head head = {MAGIC, (uint32_t)turn_blob->size, state->size};
  struct reply out = {200, "application/octet-stream", NULL, sizeof head + turn_blob->size + state->size, 0};
  if (out.bytes > working_most(s))
    problem_set(&problem, 413, "", "request_too_large", "the state has %zu bytes, and the memory for requests has %zu",
                out.bytes, working_most(s));
  else if (!working_take(s, taken, out.bytes))
    problem_set(&problem, 429, "", "memory_full", "%s", working_full);
  out.body = problem.status ? NULL : malloc(out.bytes);
  if (out.body) {
    memcpy(out.body, &head, sizeof head);
    memcpy(out.body + sizeof head, turn_blob->bytes, turn_blob->size);
    char *to = (char *)out.body + sizeof head + turn_blob->size;
    blob_copy(state, 0, state->size, to);
    deltaic_state_seal(to, state->size);
  }
  blob_drop(state);
  if (!out.body) problem_set(&problem, 500, "", "", "out of memory");
  return out.body ? out : reply_refuse(&problem);
}

// Takes over the JSON.
static struct reply json_reply(json_t *json) {
  char *text = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  return reply_json(200, text);
}

static struct reply saved(const char *id, const struct turn *turn) {
  return json_reply(json_pack("{s:s, s:s, s:I}", "id", id, "object", "state", "tokens", (json_int_t)turn->count));
}

static struct blob *copy(const char *bytes, size_t size) {
  struct blob *blob = blob_create(size);
  if (blob && size) memcpy(blob->bytes, bytes, size);
  return blob;
}

static const char no_state[] = "these bytes are no state of this server";

// Whether the checksum of the state is right. Loading in pieces does not check it.
static bool whole(char *state, size_t size) {
  enum { MOST_HEAD = 64 };
  char before[MOST_HEAD];
  const size_t bytes = size < sizeof before ? size : sizeof before;
  memcpy(before, state, bytes);
  return !deltaic_state_seal(state, size) && !memcmp(before, state, bytes);
}

// The state in the form in which the server keeps states. *fits: its size is right for its position.
static struct blob *in_blocks(const struct server *s, const char *state, size_t size, bool *fits) {
  uint64_t position;
  bool logits;
  *fits = !deltaic_state_position(state, size, &position) && state_fits(&s->layout, position, size, &logits);
  struct blob *blob = *fits ? state_create(&s->layout, position, size, NULL) : NULL;
  if (blob) blob_fill(blob, 0, size, state);
  return blob;
}

// Everything in the bytes is somebody else's: sizes, tokens, and the state, which the batcher tries to load.
bool states_put(struct server *s, const char *id, const struct bytes *body, struct check *check, struct reply *out) {
  struct head head = {0};
  struct turn turn;
  *out = check_id(id);
  if (out->status) return false;
  if (body->size >= sizeof head) memcpy(&head, body->data, sizeof head);
  const uint64_t rest = body->size - sizeof head;
  bool good = head.magic == MAGIC && head.turn_bytes <= rest && head.state_bytes == rest - head.turn_bytes;
  char *state = good ? body->data + sizeof head + head.turn_bytes : NULL;
  if (good) good = whole(state, head.state_bytes);
  if (good) check->state = in_blocks(s, state, head.state_bytes, &good);
  if (good) check->turn = copy(body->data + sizeof head, head.turn_bytes);
  const bool copied = check->turn && check->state;
  if (copied && unpack(s, check->turn, &turn) && turn.count) return true;
  *out = good && !copied ? refuse(500, "", "", "out of memory") : refuse(400, "", "", no_state);
  return false;
}

struct reply states_put_checked(struct server *s, const char *id, struct check *check) {
  struct turn turn;
  unpack(s, check->turn, &turn); // states_put() did it before
  if (!check->good) return refuse(400, "", "", check->text);
  if (check->tokens != turn.count) {
    snprintf(check->text, sizeof check->text, "the state has read %llu tokens, its turn has %zu",
             (unsigned long long)check->tokens, turn.count);
    return refuse(400, "", "", check->text);
  }
  // A key of its own: these bytes must not replace the state of another turn.
  char key[TURN_ID];
  call_make_id("put_", key);
  turn.state = key;
  turn.alias = ""; // nor remove what another client has
  struct blob *named = turn_pack(&turn);
  if (!named) return refuse(500, "", "", "out of memory");
  store_put(s->store, STORE_STATE, key, check->state);
  store_put(s->store, STORE_TURN, id, named);
  blob_drop(named);
  return saved(id, &turn);
}

// A fork is the same turn under another name: states are shared.
static struct reply fork_turn(struct server *s, const struct bytes *body) {
  struct problem problem = {0};
  struct turn turn;
  char id[TURN_ID];
  json_t *root = request_json(body->data ? body->data : "", body->size, &problem);
  const char *from = json_string_value(json_object_get(root, "from"));
  struct blob *blob = NULL;
  enum store_found found = STORE_ABSENT;
  if (from && store_key_valid(from)) found = store_get(s->store, STORE_TURN, from, &blob);
  if (!from) problem_set(&problem, 400, "from", "", "\"from\" takes the id of a response or state");
  if (found == STORE_DOWN) problem_set(&problem, 503, "", "", "%s", store_down);
  if (!blob) problem_set(&problem, 404, "from", "state_not_found", "there is no such state, or it has expired");
  struct reply out = {0};
  if (blob && !unpack(s, blob, &turn)) problem_set(&problem, 404, "from", "state_not_found", "the state is damaged");
  if (!problem.status) {
    call_make_id("state_", id);
    turn.alias = ""; // the copy is the other turn's: a fork that is deleted leaves it
    struct blob *named = turn_pack(&turn);
    if (named) store_put(s->store, STORE_TURN, id, named);
    out = named ? saved(id, &turn) : refuse(500, "", "", "out of memory");
    blob_drop(named);
  }
  blob_drop(blob);
  json_decref(root);
  return out.status ? out : reply_refuse(&problem);
}

// The same turn for a client that sends the conversation again, and its state where that is another one of this turn.
static void drop_alias(struct server *s, const char *id, const char *alias) {
  struct turn turn;
  struct blob *blob;
  store_get(s->store, STORE_TURN, alias, &blob);
  if (blob && unpack(s, blob, &turn) && !strncmp(turn.state, id, strlen(id)))
    store_drop(s->store, STORE_STATE, turn.state);
  store_drop(s->store, STORE_TURN, alias);
  blob_drop(blob);
}

static void drop(struct server *s, const char *id, const struct blob *blob) {
  struct turn turn;
  char response[STORE_KEY];
  const bool good = unpack(s, blob, &turn);
  keep_response_key(id, response);
  if (good && turn.count) store_drop(s->store, STORE_STATE, turn.state); // a fork computes it again
  if (good && *turn.alias) drop_alias(s, id, turn.alias);
  store_drop(s->store, STORE_TURN, response);
  store_drop(s->store, STORE_TURN, id);
}

// After drops, which a store of other processes does by and by: a GET that follows must not read the value again.
static struct reply dropped(struct server *s, const char *id, const char *object) {
  enum { WAIT_MS = 1000 };
  store_settle(s->store, STORE_TURN, WAIT_MS);
  return json_reply(json_pack("{s:s, s:s, s:b}", "id", id, "object", object, "deleted", 1));
}

struct reply states_answer(struct server *s, const char *method, const char *id, const struct bytes *body,
                           size_t *taken) {
  if (!id) return fork_turn(s, body);
  struct blob *blob;
  const struct reply wrong = check_id(id);
  if (wrong.status) return wrong;
  if (store_get(s->store, STORE_TURN, id, &blob) == STORE_DOWN) return refuse(503, "", "", store_down);
  if (!blob) return refuse(404, "", "state_not_found", "there is no such state, or it has expired");
  const bool gets = !strcmp(method, "GET");
  if (!gets) drop(s, id, blob);
  const struct reply out = gets ? get(s, blob, taken) : dropped(s, id, "state");
  blob_drop(blob);
  return out;
}

static const char no_response[] = "there is no such response, or it has expired";

// What a client put under its key is none.
static bool is_answer(const struct blob *blob) { return blob && blob->size && blob->bytes[0] == '{'; }

// The answer as it was given.
static struct reply get_response(struct server *s, const char *id, size_t *taken) {
  char key[STORE_KEY];
  struct blob *blob;
  keep_response_key(id, key);
  if (store_get(s->store, STORE_TURN, key, &blob) == STORE_DOWN) return refuse(503, "", "", store_down);
  struct reply out = {0};
  struct problem large = {0};
  if (!is_answer(blob)) {
    out = refuse(404, "", "response_not_found", no_response);
  } else if (blob->size > working_most(s)) {
    problem_set(&large, 413, "", "request_too_large", "the response has %zu bytes, and the memory for requests has %zu",
                blob->size, working_most(s));
    out = reply_refuse(&large);
  } else if (!working_take(s, taken, blob->size)) {
    out = refuse(429, "", "memory_full", working_full);
  } else {
    out = reply_json(200, strndup((const char *)blob->bytes, blob->size));
  }
  blob_drop(blob);
  return out;
}

// Either the turn or the answer may have left the memory before the other.
static struct reply drop_response(struct server *s, const char *id) {
  char key[STORE_KEY];
  struct blob *turn_blob = NULL, *answer = NULL;
  struct turn turn;
  keep_response_key(id, key);
  const bool down = store_get(s->store, STORE_TURN, id, &turn_blob) == STORE_DOWN ||
                    store_get(s->store, STORE_TURN, key, &answer) == STORE_DOWN;
  const bool has_turn = turn_blob && unpack(s, turn_blob, &turn), has_answer = is_answer(answer);
  if (!down && has_turn) drop(s, id, turn_blob);
  if (!down && has_answer) store_drop(s->store, STORE_TURN, key);
  blob_drop(turn_blob);
  blob_drop(answer);
  if (down) return refuse(503, "", "", store_down);
  return has_turn || has_answer ? dropped(s, id, "response") : refuse(404, "", "response_not_found", no_response);
}

struct reply responses_answer(struct server *s, const char *method, const char *id, size_t *taken) {
  if (strncmp(id, "resp_", 5) != 0 || !id_valid(id)) return refuse(404, "", "response_not_found", no_response);
  return !strcmp(method, "GET") ? get_response(s, id, taken) : drop_response(s, id);
}
