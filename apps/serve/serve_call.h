// serve_call.h: a request's texts while they wait, are computed, and are sent.
//
// A call has one task for each text: every prompt n times. Its connection's thread makes it; the batcher computes it;
// the connection's thread sends what is there. What both use is under the call's lock.
#ifndef SERVE_CALL_H
#define SERVE_CALL_H
#include "serve.h"
#include "serve_request.h"
#include "serve_turn.h"

#include <pthread.h>

enum { TURN_ID = 64 }; // bytes of the longest id of a turn with its NUL

// What is told about a token when its probability is wanted.
struct likely {
  int32_t token;
  float log_probability;
};
struct note {
  int32_t token;
  float log_probability; // NAN: a text's first token has none
  size_t text_at;        // where its text begins in the task's text, in characters
  int count;
  struct likely likely[REQUEST_LIKELY]; // the likeliest first
};

enum ending {
  END_NONE,
  END_EOS,       // the model ended the text
  END_STOP,      // a stop string
  END_LENGTH,    // most tokens, or a full context
  END_SHUTDOWN,  // the server ends
  END_CANCELLED, // the client went away
  END_FAILED,    // call->problem says why
};

enum voice_phase { VOICE_BEGIN, VOICE_THINKING, VOICE_ANSWER };

struct bytes {
  char *data; // ended by a NUL; NULL: empty
  size_t size, room;
};

struct task {
  struct call *call;
  uint32_t index;      // the choice's number
  struct task *next;   // in the queue
  struct task *leader; // reads the prompt for this one; NULL: itself

  // The batcher's, from when it is queued.
  int32_t *tokens; // read, then drawn
  size_t count, room, prompt_count;
  size_t at;          // tokens that the sequence has read
  struct blob *state; // behind the first `cached` tokens, or NULL
  size_t cached;
  size_t base_count; // tokens of the turn that it goes on from, and the key of the state behind them
  char base_key[STORE_KEY];
  bool in_slot; // a slot had that state when the request came, so it was not fetched
  bool there;   // its slot already had that state when the text began in it
  size_t own;   // where the request's own tokens begin, behind those of an earlier turn
  size_t asked; // chat: where the answer's opening begins
  size_t mark;  // save the state here too; 0: nowhere
  bool marked;
  uint32_t *spans; // how the tokens were computed, as a turn has it
  size_t span_count, span_room;
  bool chat;  // the template's text
  bool score; // tokens of the prompt get notes
  deltaic_sampling sampling;
  uint32_t most, made;
  uint32_t thought_tokens; // of `made`: the thinking, with the marks around it
  int slot;                // -1: none
  int aside;               // a slot that has its state behind the question until that is saved; -1: none
  enum ending due;         // its last token is drawn; the state is still to be saved
  bool finishing;          // that has begun
  deltaic_decoder *decoder;
  deltaic_stops *stops, *thought;
  bool may_think;
  enum voice_phase phase;
  struct bytes begin, all;                      // chat: text whose phase is not clear yet; the answer with its thinking
  double queued, begun, last_read, first, last; // times; first, last: of tokens; 0: not yet
  size_t state_bytes;

  // Under the call's lock.
  struct bytes text, thinking;
  size_t counted, characters; // bytes of the text whose characters are counted, and these
  struct note *notes;
  size_t note_count, note_room;
  enum ending ending;
  char id[TURN_ID]; // of its turn

  // The connection's.
  size_t sent_text, sent_thinking, sent_notes;
  bool sent_begin, sent_end;
};

enum output { OUTPUT_NONE, OUTPUT_THINKING, OUTPUT_MESSAGE };

struct call {
  pthread_mutex_t lock;
  unsigned holders;
  struct server *server;
  struct request request;
  uint64_t client; // whose share of the slots it uses
  struct task *tasks;
  size_t task_count;
  char id[TURN_ID];
  int64_t created;
  double arrived;                      // when its request was complete
  size_t prompt_tokens, cached_tokens; // of all prompts
  size_t taken;                        // of the memory for requests
  struct call *newer, *older;          // of the batcher's list

  // Under the lock.
  size_t unfinished;
  bool gone; // the client is
  struct problem problem;
  void *connection; // MHD's, while it is suspended; NULL
  int socket;

  // The connection's.
  struct bytes out; // of a stream: what is to be sent
  size_t out_sent;
  uint64_t events;
  enum output output; // of /v1/responses: the item that is being sent
  bool begun, ended;
};

bool bytes_add(struct bytes *to, const char *data, size_t size); // false: no memory

// Makes the tasks of a request, which the call owns from then on, as it does *taken bytes of the memory for requests.
// NULL: *problem says why.
struct call *call_create(struct server *server, struct request *request, size_t *taken, struct problem *problem);
// Takes more. False: *problem says why.
bool call_take(struct call *call, size_t bytes, struct problem *problem);
void call_make_id(const char *prefix, char id[TURN_ID]); // prefix and 32 random digits
struct call *call_hold(struct call *call);
void call_drop(struct call *call);
void call_fetch_states(struct call *call);                                 // fetches the states expected in slots
void task_set_state(struct task *task, struct blob *state, size_t tokens); // behind so many tokens; holds the state
void task_set_base_state(struct task *task, struct blob *state); // behind the turn that it continues, and counts those
void task_count_cached(const struct task *task);       // counts the tokens of the earlier turn as cached
bool task_add_token(struct task *task, int32_t token); // false: no memory
size_t task_characters(struct task *task);             // of its text so far; under the lock
// The tokens from the end of the last span to `end` were read, or drawn.
bool task_add_span(struct task *task, size_t end, bool drawn); // false: no memory
// Wakes the connection if it is suspended; under the lock.
void call_wake(struct call *call);

// Text of a task: serve_voice.c. Under the lock; the token is among those of `made`. A status that is not DELTAIC_OK
// ends the task.
deltaic_status voice_token(struct task *task, int32_t token);
deltaic_status voice_finish(struct task *task);
bool voice_stopped(const struct task *task);
deltaic_status voice_start(struct task *task, const char *opening);

// What remains of a finished task: serve_keep.c.
void keep_state(struct task *task, bool asked, struct blob *state); // asked: that behind the question
// The key of the state that the text continued, if the caches of that state are the beginning of the text's own. NULL:
// there is none.
const char *keep_before(const struct task *task);
void keep_state_key(const struct task *task, bool asked, char key[STORE_KEY]);
void keep_turn(struct task *task, enum ending ending);              // after its text is complete
void keep_response_key(const char *id, char key[STORE_KEY]);        // of the answer of /v1/responses
bool keep_needs_state(const struct task *task, enum ending ending); // the state at the end
// The key of a conversation that a client sends again to a server with the same template.
void keep_key(const struct server *server, const struct message *messages, size_t count, const char *answer,
              char key[STORE_KEY]);
#endif
