// common.h: what the commands share: exit codes, messages, files, progress, Ctrl-C.
#ifndef COMMON_H
#define COMMON_H
#include "deltaic.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// X(name, value, text): the program's exit codes; `deltaic help exit-codes` prints them.
#define EXIT_MAP(X)                                                                                                    \
  X(OK, 0, "success")                                                                                                  \
  X(FAILED, 1, "the work failed: a missing or malformed file, memory, a full context, output that cannot be written")  \
  X(USAGE, 2, "the command line is wrong; nothing was done")                                                           \
  X(DEVICE, 3, "there is no such device, it cannot be used, or it was lost")                                           \
  X(INTERRUPTED, 130, "stopped by Ctrl-C (SIGINT); generate, perplexity, eval and bench write what they have by then")
enum exit_code {
#define EXIT_ENUM(name, value, text) EXIT_##name = value,
  EXIT_MAP(EXIT_ENUM)
#undef EXIT_ENUM
};

// One line on standard error, "deltaic generate: ...". complain returns `code`; complain_status prints the library's
// sentence and returns the status's exit code; complain_work is the same for work that Ctrl-C may have ended between
// two calls; complain_output is for standard output that failed (errno).
void complain_as(const char *command);
__attribute__((format(printf, 2, 3))) int complain(int code, const char *format, ...);
int complain_status(deltaic_status status);
int complain_work(deltaic_status status);
int complain_output(void);
const char *errno_text(int code); // in the library's words
// Control characters out of files and names become ?, as in the library's sentences: terminals obey them.
char *text_clean(char *text);

// Memory of a command line's size: the program ends when there is none.
void *must_resize(void *memory, size_t bytes);
// A whole file, "-" is standard input; NULL after a complaint. The bytes are followed by a NUL.
char *file_read(const char *path, size_t *bytes);

// Numbers 0 ... below - 1, the same ones for the same state.
uint32_t random_below(uint64_t *state, uint32_t below);

// Whether a file can be written there, as far as one can tell before; a complaint where not.
int output_check(const char *path);
uint64_t file_size(const char *path); // 0: there is none

double time_now(void); // seconds of a clock that never jumps

// A line on standard error while long work goes on: only on a terminal, only after a moment.
struct progress {
  const char *label, *unit; // "loading", "B"; unit NULL: no rate
  bool quiet;
  double start, shown;
};
void progress_begin(struct progress *progress, const char *label, const char *unit, bool quiet);
void progress_show(struct progress *progress, uint64_t done, uint64_t total);
void progress_clear(void); // wipes the line, if there is one

// Ctrl-C. The first one is remembered and cancels the watched session; the second one kills.
void interrupt_catch(void);
bool interrupted(void);
void interrupt_watch(deltaic_session *session); // NULL: none
#endif
