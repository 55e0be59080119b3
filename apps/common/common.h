// common.h: declares what the commands share: exit codes, messages, files, progress and Ctrl-C.
#ifndef COMMON_H
#define COMMON_H
#include "deltaic.h"
#include "new_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// X(name, value, text): the program's exit codes, which `deltaic help exit-codes` prints.
#define EXIT_MAP(X)                                                                                                    \
  X(OK, 0, "success")                                                                                                  \
  X(FAILED, 1, "the work failed: a missing or malformed file, memory, a full context, output that cannot be written")  \
  X(USAGE, 2, "the command line is wrong; nothing was done")                                                           \
  X(DEVICE, 3, "there is no such device, it cannot be used, or it was lost")                                           \
  X(HUNG_UP, 129, "stopped as by Ctrl-C, by SIGHUP: the terminal was closed")                                          \
  X(INTERRUPTED, 130, "stopped by Ctrl-C (SIGINT); generate, perplexity, eval and bench write what they have by then") \
  X(TERMINATED, 143, "stopped as by Ctrl-C, by SIGTERM")
enum exit_code {
#define EXIT_ENUM(name, value, text) EXIT_##name = value,
  EXIT_MAP(EXIT_ENUM)
#undef EXIT_ENUM
};

// These print one line on standard error, "deltaic generate: ...". complain returns `code`. complain_status prints the
// library's message and returns its exit code. complain_work does so for work that Ctrl-C may have stopped between two
// calls. complain_output reports that writing standard output failed (errno).
void complain_as(const char *command);
__attribute__((format(printf, 2, 3))) int complain(int code, const char *format, ...);
int complain_status(deltaic_status status);
int complain_work(deltaic_status status);
int complain_output(void);
int complain_file(const char *path, int code); // code: an errno
// From now on messages show `name` in place of the temporary folder `folder`. NULL, NULL ends this.
void complain_rename(const char *folder, const char *name);
const char *errno_text(int code); // in the library's wording
// Replaces control characters of files and names by ?, like the library's messages, because terminals interpret them.
char *text_clean(char *text);

// Reallocates memory of modest size. The program exits if the allocation fails.
void *must_resize(void *memory, size_t bytes);
// What messages call an input: its path, or "standard input" for "-".
const char *input_name(const char *path);
// Reads a whole file ("-": standard input) and appends a NUL. It prints a message and returns NULL on failure.
char *file_read(const char *path, size_t *bytes);

// Returns a number 0 ... below - 1 that depends only on the state.
uint32_t random_below(uint64_t *state, uint32_t below);

// Writes a file whole or not at all (new_file.h): output_end() keeps the old file if `code`, an exit code, is not 0 or
// something could not be written. Both print a message and return the exit code.
int output_begin(struct new_file *file, const char *path);
int output_end(struct new_file *file, const char *path, int code);
// Checks before the work whether a file can probably be written, and prints a message if not.
int output_check(const char *path);
bool file_there(const char *path);
bool same_file(const char *a, const char *b); // both exist, and are the same file or folder
uint64_t file_size(const char *path);         // 0: the file does not exist

double time_now(void); // seconds of a monotonic clock

// A progress line on standard error. It is shown only on a terminal and only after a delay.
struct progress {
  const char *label, *unit; // "loading", "B"; unit NULL: no rate
  bool quiet;
  double start, shown;
};
void progress_begin(struct progress *progress, const char *label, const char *unit, bool quiet);
void progress_show(struct progress *progress, uint64_t done, uint64_t total);
void progress_count(struct progress *progress, uint64_t done); // where the total is not known
void progress_clear(void);                                     // clears the line if it is shown

// Handles Ctrl-C, SIGTERM and SIGHUP, in all of which commands end with EXIT_INTERRUPTED. The first one is recorded and
// cancels the watched session; the second one kills the program.
void interrupt_catch(void);
bool interrupted(void);
bool interrupt_final(void); // whether it was not Ctrl-C; then nothing forgets it
const char *interrupt_name(void);
int interrupt_code(int code); // the program's exit code: of the signal that came where `code` is EXIT_INTERRUPTED
// Before interrupt_input(). always: every Ctrl-C is recorded, none kills the program.
int interrupt_prepare(bool always);
bool interrupt_input(void); // waits until standard input can be read; false: Ctrl-C came first, or was not forgotten
void interrupt_forget(void);
void interrupt_watch(deltaic_session *session); // NULL: none
#endif
