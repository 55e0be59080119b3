// score_text.h: the negative log-likelihood of a text's tokens, read in windows. Each window is read from a fresh
// state.
#ifndef SCORE_TEXT_H
#define SCORE_TEXT_H
#include "common.h"
#include "engine.h"
#include "likelihood.h"
#include "positions.h"

struct score_options {
  struct engine_options engine;
  const char *file;
  uint32_t window, stride, windows; // tokens; 0: the whole text; as many as the window; all windows
  bool bos;                         // the begin token stands before every window
};

struct score {
  struct engine engine;
  deltaic_session *session;
  struct progress progress;
  int32_t *ids; // tokens of the text; ids[-1] is reserved for the begin token
  size_t count;
  size_t window, stride, windows; // resolved; windows: number of windows
  struct likelihood likelihood;
  struct positions *positions; // NULL: not requested
  size_t first_id;             // 1 if ids[0] is the begin token
  uint64_t words, bytes;       // of the text; 0: the file has token ids
  uint64_t evaluated, total;
  size_t windows_done;
  double seconds;
};

// Each returns an exit code, after a message. score: zeroed, but for `positions`. score_close() accepts a partly opened
// one and returns `code`, or what closing fails with.
int score_open(struct score *score, const struct score_options *options);
// Stops at Ctrl-C with EXIT_INTERRUPTED and what was scored until then.
int score_run(struct score *score, const struct score_options *options);
int score_close(struct score *score, int code);
#endif
