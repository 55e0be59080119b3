// common: prints messages, reads and writes files, shows progress and handles Ctrl-C.
#include "common.h"
#include "console.h"
#include "platform.h"
#include "print_numbers.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- messages

static const char *command_name, *renamed, *renamed_to;

void complain_as(const char *command) { command_name = command; }

void complain_rename(const char *folder, const char *name) {
  renamed = folder;
  renamed_to = name;
}

char *text_clean(char *text) {
  for (char *c = text; *c; ++c)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return text;
}

// A file in the renamed folder keeps its path.
static void print_renamed(const char *text) {
  const size_t length = renamed ? strlen(renamed) : 0;
  for (const char *at; length && (at = strstr(text, renamed)); text = at + length) {
    const bool inside = platform_separator(at[length]);
    fprintf(stderr, "%.*s%s", (int)(at - text), text, inside ? renamed : renamed_to);
  }
  fprintf(stderr, "%s\n", text);
}

int complain(int code, const char *format, ...) {
  char text[8192];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  progress_clear();
  fflush(stdout); // so that a terminal shows both in order
  fprintf(stderr, "deltaic%s%s: ", command_name ? " " : "", command_name ? command_name : "");
  print_renamed(text_clean(text));
  return code;
}

int complain_status(deltaic_status status) {
  if (status == DELTAIC_OK) return EXIT_OK;
  if (status == DELTAIC_CANCELLED && interrupted())
    return complain(EXIT_INTERRUPTED, "stopped by %s", interrupt_name());
  const char *sentence = deltaic_last_error();
  const char *force = strstr(sentence, "(force replaces"); // the library's name of the program's option
  if (force) return complain(EXIT_FAILED, "%.*s(--%s", (int)(force - sentence), sentence, force + 1);
  bool device = status == DELTAIC_NO_DEVICE || status == DELTAIC_DEVICE_LOST;
  return complain(device ? EXIT_DEVICE : EXIT_FAILED, "%s", *sentence ? sentence : deltaic_status_text(status));
}

int complain_work(deltaic_status status) {
  bool between = status == DELTAIC_OK && interrupted(); // the signal arrived between two calls
  return complain_status(between ? DELTAIC_CANCELLED : status);
}

const char *errno_text(int code) {
  switch (code) {
  case ENOENT: return "no such file or folder";
  case EISDIR: return "is a folder, not a file";
  case ENOTDIR: return "part of its path is a file, not a folder";
  }
  return strerror(code);
}

int complain_output(void) { return complain(EXIT_FAILED, "standard output: %s", errno_text(errno)); }

// ---------------------------------------------------------------- memory and files

void *must_resize(void *memory, size_t bytes) {
  void *out = realloc(memory, bytes ? bytes : 1);
  if (out) return out;
  complain(EXIT_FAILED, "out of memory: %zu bytes", bytes);
  exit(EXIT_FAILED);
}

// NULL: the stream is longer than the longest text, as a device may be.
static char *read_stream(FILE *stream, size_t *bytes) {
  enum { LONGEST = 1 << 30 };
  size_t capacity = 1 << 16, used = 0, got;
  char *text = must_resize(NULL, capacity);
  while ((got = fread(text + used, 1, capacity - used - 1, stream))) {
    used += got;
    if (capacity - used >= 2) continue;
    if (capacity == LONGEST) {
      free(text);
      return NULL;
    }
    text = must_resize(text, capacity *= 2);
  }
  text[used] = 0;
  *bytes = used;
  return text;
}

const char *input_name(const char *path) { return !strcmp(path, "-") ? "standard input" : *path ? path : "\"\""; }

char *file_read(const char *path, size_t *bytes) {
  bool standard = !strcmp(path, "-");
  const char *name = input_name(path);
  errno = 0;
  FILE *stream = standard ? stdin : platform_open(path, "rb");
  char *text = NULL;
  if (stream) text = read_stream(stream, bytes);
  if (!stream || ferror(stream) || !text) {
    if (stream && !ferror(stream))
      complain(EXIT_FAILED, "%s: is longer than 1 GiB, which no text may be", name);
    else
      complain(EXIT_FAILED, "%s: %s", name, errno_text(errno));
    free(text);
    text = NULL;
  }
  if (stream && !standard) fclose(stream);
  return text;
}

int output_check(const char *path) {
  struct path_facts facts;
  int before = (int)platform_folder(path);
  char *folder = must_resize(NULL, (size_t)before + 2);
  sprintf(folder, "%.*s.", before, path);
  int code = platform_facts(path, true, &facts);
  bool there = !code;
  if (there) code = facts.kind == PATH_FOLDER ? EISDIR : platform_writable(path);
  bool beside = there ? facts.kind == PATH_FILE : code == ENOENT && *path; // output_begin() makes a file there
  if (beside && (!there || !code)) code = platform_writable(folder);
  free(folder);
  return code ? complain_file(path, code) : EXIT_OK;
}

int complain_file(const char *path, int code) {
  return complain(EXIT_FAILED, "%s: %s", *path ? path : "\"\"", errno_text(code));
}

int output_begin(struct new_file *file, const char *path) {
  int code = new_file_begin(file, path);
  return code ? complain_file(path, code) : EXIT_OK;
}

int output_end(struct new_file *file, const char *path, int code) {
  int error = new_file_end(file, code ? ECANCELED : 0);
  return !code && error ? complain_file(path, error) : code;
}

bool file_there(const char *path) {
  struct path_facts facts;
  return !platform_facts(path, true, &facts);
}

bool same_file(const char *a, const char *b) {
  struct path_facts x, y;
  return !platform_facts(a, true, &x) && !platform_facts(b, true, &y) && x.volume == y.volume && x.index == y.index;
}

uint64_t file_size(const char *path) {
  struct path_facts facts;
  return platform_facts(path, true, &facts) ? 0 : facts.bytes;
}

// ---------------------------------------------------------------- random numbers

uint32_t random_below(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 32) * below >> 32);
}

// ---------------------------------------------------------------- time and progress

double time_now(void) { return 1e-9 * (double)platform_clock_ns(); }

static atomic_bool line_shown; // several threads of the server print

void progress_begin(struct progress *progress, const char *label, const char *unit, bool quiet) {
  double now = time_now();
  *progress = (struct progress){
      .label = label, .unit = unit, .quiet = quiet || !console_is_terminal(stderr), .start = now, .shown = now};
}

void progress_show(struct progress *progress, uint64_t done, uint64_t total) {
  enum { WIDTH = 30 };
  static const char full[] = "##############################", rest[] = "..............................";
  double now = time_now(), elapsed = now - progress->start;
  if (progress->quiet || !total || !done || done > total || now - progress->shown < 0.1 || elapsed < 0.3) return;
  double part = (double)done / (double)total;
  int marks = (int)(part * WIDTH);
  fprintf(stderr, "\r%s [%.*s%.*s] %3d%%", progress->label, marks, full, WIDTH - marks, rest, (int)(part * 100));
  if (progress->unit) fprintf(stderr, "  %s %s/s", text_short((double)done / elapsed).text, progress->unit);
  fprintf(stderr, "  %s left\033[K", text_seconds(elapsed * (1 - part) / part).text);
  fflush(stderr);
  progress->shown = now;
  line_shown = true;
}

void progress_count(struct progress *progress, uint64_t done) {
  const double now = time_now();
  if (progress->quiet || now - progress->shown < 0.1 || now - progress->start < 0.3) return;
  fprintf(stderr, "\r%s %s %s\033[K", progress->label, text_count(done).text, progress->unit);
  fflush(stderr);
  progress->shown = now;
  line_shown = true;
}

void progress_clear(void) {
  if (atomic_exchange(&line_shown, false)) fputs("\r\033[K", stderr);
}

// ---------------------------------------------------------------- Ctrl-C

static volatile sig_atomic_t interrupt_seen; // the exit code of the signal that came; 0: none
static _Atomic(deltaic_session *) interrupt_session;

static void on_interrupt(int code) {
  if (!interrupt_seen || code != EXIT_INTERRUPTED) interrupt_seen = code;
  deltaic_session *session = atomic_load(&interrupt_session);
  if (session) deltaic_session_cancel(session);
}

void interrupt_catch(void) { console_catch(on_interrupt, false); }

int interrupt_prepare(bool always) {
  int code = console_prepare();
  if (code) return complain(EXIT_FAILED, "no pipe for Ctrl-C: %s", strerror(code));
  if (always) console_catch(on_interrupt, true);
  return EXIT_OK;
}

bool interrupt_input(void) {
  if (!interrupted()) console_wait();
  return !interrupted();
}

void interrupt_forget(void) {
  if (interrupt_final()) return;
  interrupt_seen = 0;
  console_forget();
}

bool interrupted(void) { return interrupt_seen; }

bool interrupt_final(void) { return interrupt_seen && interrupt_seen != EXIT_INTERRUPTED; }

const char *interrupt_name(void) { return console_stop_name(interrupt_seen); }

int interrupt_code(int code) { return code == EXIT_INTERRUPTED && interrupt_seen ? interrupt_seen : code; }

void interrupt_watch(deltaic_session *session) { atomic_store(&interrupt_session, session); }
