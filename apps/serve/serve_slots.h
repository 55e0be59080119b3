// serve_slots.h: the sequences of the session, of which each slot has one.
#ifndef SERVE_SLOTS_H
#define SERVE_SLOTS_H
#include "serve_batch.h"
#include "serve_wake.h"

enum { MOST_SLOTS = 256, LOGIT_ROWS = 32, LEAST_SLICE = 32 };

struct batch;

// The state that a free slot has.
struct resident {
  char key[STORE_KEY]; // that it was saved under; "": none
  uint64_t used;       // the value of b->stayed then
  struct task *holder; // the running text whose state behind its question this is; it is not saved yet
};

// A state that moves between a slot and host memory. Meanwhile the slot computes nothing and is not free.
typedef void move_end(struct batch *b, uint32_t slot, struct blob *state); // state NULL: it did not arrive
struct move {
  move_end *done;        // NULL: no state moves
  struct blob *state;    // of a save: NULL until its first piece moves
  char after[STORE_KEY]; // of a save: the key of the state that this one continues; "": none
  uint64_t position;     // of that state
  uint64_t order;        // rises with each move that begins
  size_t at;             // bytes that have moved
  bool in;               // into the slot
  bool given_up;         // ends with its next piece, and the state does not arrive
};

// Clients that are looked at together: whether they have gone.
struct watch {
  struct call **calls;
  struct pollfd *polls;
  size_t room;
};

struct batch {
  struct server *server;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t work;

  // Under the lock.
  struct call *calls;         // those that have unfinished texts
  struct task *first, *last;  // the queue
  size_t queued, most_queued; // most: of one client, where no other waits
  struct check *checks;       // the oldest first
  bool checking;              // one that is no longer in the list
  double task_seconds;        // how long a text occupies a slot
  double deadline;
  bool draining, stop;
  int code;                              // exit code if the device was lost
  struct resident residents[MOST_SLOTS]; // changed by the thread alone, but for `used`
  uint64_t stayed;                       // counter for `used`: rises when a state stays in a slot or is used

  // The thread's.
  deltaic_session *session;
  struct task *tasks[MOST_SLOTS];
  uint32_t slots, group; // group: sequences of every step (--reproducible); 0: those that there are
  uint32_t tokens;       // of a slice at most
  uint64_t context;
  uint32_t turn; // the slot that reads first
  struct move moves[MOST_SLOTS];
  uint32_t moving;      // the number of active moves
  uint64_t moves_begun; // counter for the order
  bool moved_in;        // the last piece was one of a load
  struct check *check;  // whose state moves into check_slot; NULL: none
  uint32_t check_slot;
  struct watch watch;
  struct waker *waker;
  double rate;    // tokens of prompts a second
  double slice;   // tokens that --stall is enough for, as measured
  double stepped; // when the last step ended
  float *logits;  // (LOGIT_ROWS, vocabulary)
  float *drawn;   // (drawn_rows, vocabulary)
  size_t drawn_rows;
};

// serve_resident.c: states that stay in free slots.
bool resident_continues(const struct resident *resident, const struct task *t); // the text goes on from this state
// A free slot for the text, or any free one if it is NULL: the one that has its state, else one without a state, else
// the one whose state was used least recently, else one that another text holds. b->slots: none is free.
uint32_t slot_free(struct batch *b, const struct task *t);
void resident_set(struct batch *b, uint32_t slot, struct resident resident);
// Under the lock: a text of the call relies on a state that its slot no longer has.
bool resident_missed(struct batch *b, const struct call *call);
// Under the lock: the state that the text relies on is being copied to memory, for this text too.
bool resident_copied(struct batch *b, const struct task *t);
bool resident_wanted(struct batch *b, uint32_t slot); // texts of the queue rely on it
// The state leaves the slot. Those texts get the copy, which may be NULL.
void resident_leave(struct batch *b, uint32_t slot, struct blob *copy);

// serve_move.c: states in and out of slots, piece by piece. `done` is called when the last piece moves.
void move_in(struct batch *b, uint32_t slot, struct blob *state, move_end *done);
// after: NULL, or the key of the state behind `position` tokens that this one continues; the blocks that both have are
// not copied again.
void move_out(struct batch *b, uint32_t slot, const char *after, uint64_t position, move_end *done);
bool move_active(const struct batch *b, uint32_t slot);
void move_drop(struct batch *b, uint32_t slot);    // ends the move at once, without `done`
void move_give_up(struct batch *b, uint32_t slot); // nobody wants the state: the move is next, and ends without it
// States may move for half of --stall between two steps; then running texts come first.
bool moves_may_run(const struct batch *b);
void moves_run(struct batch *b);                  // at least one piece, whatever the time
void moves_finish(struct batch *b, double until); // moves all states; those that are late do not arrive

// serve_slot.c: one slot.
// The text occupies the slot. It begins to read when the slot's earlier state is kept and its own state is in the slot.
void slot_begin(struct batch *b, uint32_t slot, struct task *t);
// The text has read so many more tokens of its prompt. Behind the last one, those that wait for it may begin, and a
// text of no tokens ends.
void slot_has_read(struct batch *b, struct task *t, size_t count);
// Saves what is to be kept of a text that is due, then ends it.
void slot_finish(struct batch *b, struct task *t);
void slot_check(struct batch *b, struct check *check); // a slot is free, and no check runs
void check_end(struct batch *b, struct check *check);
deltaic_status fill_spares(struct batch *b); // gives the spare sequences something to continue
void fail_texts(struct batch *b, struct task *const *tasks, size_t n, deltaic_status status);
void fill_note(struct note *note, const float *logits, int32_t n, int wanted);

// serve_slots.c, serve_step.c: all slots.
int slots_open(struct batch *b);
void slots_read(struct batch *b); // a slice of the prompts
void slots_step(struct batch *b); // a token of every text whose prompt is read; then begins to end complete texts

// serve_speed.c: measures, with a store. Prints a message and returns an exit code.
int speed_measure(struct batch *b);

// serve_queue.c. queue_take() is called under the lock.
struct task *queue_take(struct batch *b); // the text that gets the next slot; NULL: none
void queue_end_lost(struct batch *b);     // ends the texts whose clients have gone, but for those that are due
void batch_end(struct batch *b, struct task *t, enum ending ending);
// Fails all texts of the call: the others may wait for the one that failed.
void queue_fail(struct batch *b, struct call *call, int status, const char *text);
#endif
