// chat.h: declares a conversation in the terminal: a tree of turns with the model's state after each.
#ifndef CHAT_H
#define CHAT_H
#include "choice.h"
#include "engine.h"

struct chat_request {
  struct engine_options engine;
  struct choice choice;
  const char *template, *system, *thinking, *history;
  uint32_t tokens, keep;
  struct text_list stops;
  bool hide_thinking, as_json;
};

struct bytes {
  char *data; // ended by a NUL that is not counted
  size_t size;
};
void bytes_add(struct bytes *bytes, const char *data, size_t size);

// The conversation up to and including an answer. The first node of a conversation has its system text, if any.
struct node {
  struct node *parent; // NULL: the first one
  uint32_t uses;       // children and branches
  uint32_t asked;      // questions asked after it
  bool has_system;
  struct bytes question, answer; // question: of the first node its system text; answer: with its thinking
  // The model's state is that of the conversation after `state` and then `pending` have been evaluated.
  void *state; // NULL: the state at the beginning; all tokens are pending
  size_t state_bytes;
  int32_t *pending;
  size_t pending_count;
  bool counted; // `pending` is known, which it need not be without a state
  uint64_t age; // grows with each state that is kept
};

enum { BRANCHES = 64 };

struct chat {
  const struct chat_request *request;
  struct engine engine;
  deltaic_tokenizer *tokenizer;
  deltaic_session *session;
  const deltaic_template *template;
  deltaic_template_info info;
  deltaic_sampling sampling;
  deltaic_thinking thinking;
  struct voice *voice;
  struct node *branches[BRANCHES]; // the last node of each branch
  uint32_t branch_count, branch;   // branch: the current one
  uint32_t file_branch;            // the branch that the file of --history holds
  struct node *loaded;             // whose state the session has; NULL: none
  struct node **kept;              // nodes with a state
  size_t kept_count;
  uint64_t kept_bytes, most_bytes; // of these states, and the most there may be
  uint64_t ages;
  bool spare;    // the session has a second sequence for the state after a question
  bool terminal; // of standard input and output
  bool ended;    // by /quit
};

// ---- chat_tree.c
struct node *chat_leaf(const struct chat *c);
struct node *node_first(const char *system, size_t bytes); // system: NULL for none
struct node *node_after(struct node *parent, const struct bytes *question, const struct bytes *answer);
void node_use(struct node *node);
void node_drop(struct chat *c, struct node *node); // one use less; frees what nothing uses
// Keeps a state, which the node then owns; forgets the oldest ones beyond --keep and most_bytes.
void node_keep(struct chat *c, struct node *node, void *state, size_t bytes);
void node_set_pending(struct node *node, const int32_t *ids, size_t count);
// Makes `node` the end of the current branch.
void chat_move(struct chat *c, struct node *node);
// Opens a branch that ends with `node` and makes it the current one. False: there is no room, as a message has said.
bool chat_open_branch(struct chat *c, struct node *node);
uint32_t node_turns(const struct node *node);
// The messages up to the node, with room for two more; the caller frees them.
deltaic_message *node_messages(const struct node *node, size_t *count);

// ---- chat_voice.c
// Divides what the model says into thinking and answer, shows both and collects them.
struct voice {
  deltaic_stops *thought_stops, *answer_stops;
  enum voice_phase { VOICE_BEGIN, VOICE_THINKING, VOICE_ANSWER } phase;
  bool show, hide_thinking, terminal;        // show: on standard output
  bool may_think, dim, wrote;                // dim: the terminal's letters are; wrote: part of this phase
  struct bytes begin, thinking, answer, all; // all: everything since the answer's start, without stop strings
  const char *stop;                          // the stop string that was found
  const struct text_list *stops;
  const char *end_text; // of the template, if the tokenizer has no such token; NULL otherwise
  char last;
};
int voice_open(struct voice *v, const struct chat *c);
void voice_close(struct voice *v);
// opening: what the template writes before the model goes on, such as "<think>\n".
int voice_start(struct voice *v, const char *opening, bool may_think);
int voice_say(struct voice *v, const char *text, size_t bytes);
int voice_finish(struct voice *v);
bool voice_stopped(const struct voice *v);

// ---- chat_turn.c
// Asks, shows the answer and appends the turn to the current branch; exit code. EXIT_INTERRUPTED: Ctrl-C, before or in
// the answer, which is then a turn like others.
int chat_ask(struct chat *c, const char *question, size_t bytes);

// ---- chat_file.c
int chat_save(struct chat *c, const char *path);
// Opens a branch with the file's conversation.
int chat_load(struct chat *c, const char *path);

// ---- chat_commands.c
// A line that begins with one slash.
int chat_command(struct chat *c, const char *line);
#endif
