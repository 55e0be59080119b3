// common: prints messages, reads files, shows progress and handles Ctrl-C.
#define _POSIX_C_SOURCE 200809L // clock_gettime, isatty, sigaction
#include "common.h"
#include "print_numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// ---------------------------------------------------------------- messages

static const char *command_name;

void complain_as(const char *command) { command_name = command; }

char *text_clean(char *text) {
  for (char *c = text; *c; ++c)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return text;
}

int complain(int code, const char *format, ...) {
  char text[8192];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  progress_clear();
  fflush(stdout); // so that a terminal shows both in order
  fprintf(stderr, "deltaic%s%s: %s\n", command_name ? " " : "", command_name ? command_name : "", text_clean(text));
  return code;
}

int complain_status(deltaic_status status) {
  if (status == DELTAIC_OK) return EXIT_OK;
  if (status == DELTAIC_CANCELLED && interrupted()) return complain(EXIT_INTERRUPTED, "stopped by Ctrl-C");
  const char *sentence = deltaic_last_error();
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

static char *read_stream(FILE *stream, size_t *bytes) {
  size_t capacity = 1 << 16, used = 0, got;
  char *text = must_resize(NULL, capacity);
  while ((got = fread(text + used, 1, capacity - used - 1, stream))) {
    used += got;
    if (capacity - used < 2) text = must_resize(text, capacity *= 2);
  }
  text[used] = 0;
  *bytes = used;
  return text;
}

char *file_read(const char *path, size_t *bytes) {
  bool standard = !strcmp(path, "-");
  errno = 0;
  FILE *stream = standard ? stdin : fopen(path, "rb");
  char *text = NULL;
  if (stream) text = read_stream(stream, bytes);
  if (!stream || ferror(stream)) {
    complain(EXIT_FAILED, "%s: %s", standard ? "standard input" : *path ? path : "\"\"", errno_text(errno));
    free(text);
    text = NULL;
  }
  if (stream && !standard) fclose(stream);
  return text;
}

int output_check(const char *path) {
  struct stat about;
  const char *slash = strrchr(path, '/');
  int before = slash ? (int)(slash + 1 - path) : 0;
  char *folder = must_resize(NULL, (size_t)before + 2);
  sprintf(folder, "%.*s.", before, path);
  int code = stat(path, &about) ? errno : S_ISDIR(about.st_mode) ? EISDIR : access(path, W_OK) ? errno : 0;
  if (code == ENOENT && *path) code = access(folder, W_OK | X_OK) ? errno : 0;
  free(folder);
  return code ? complain(EXIT_FAILED, "%s: %s", *path ? path : "\"\"", errno_text(code)) : EXIT_OK;
}

uint64_t file_size(const char *path) {
  FILE *stream = fopen(path, "rb");
  long bytes = stream && !fseek(stream, 0, SEEK_END) ? ftell(stream) : 0;
  if (stream) fclose(stream);
  return bytes > 0 ? (uint64_t)bytes : 0;
}

// ---------------------------------------------------------------- random numbers

uint32_t random_below(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 32) * below >> 32);
}

// ---------------------------------------------------------------- time and progress

double time_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool line_shown;

void progress_begin(struct progress *progress, const char *label, const char *unit, bool quiet) {
  double now = time_now();
  *progress = (struct progress){
      .label = label, .unit = unit, .quiet = quiet || !isatty(STDERR_FILENO), .start = now, .shown = now};
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
  if (line_shown) fputs("\r\033[K", stderr);
  line_shown = false;
}

// ---------------------------------------------------------------- Ctrl-C

static volatile sig_atomic_t interrupt_seen;
static _Atomic(deltaic_session *) interrupt_session;
static int interrupt_pipe[2] = {-1, -1}; // a byte for each Ctrl-C, which ends a wait for input

static void on_interrupt(int signal_number) {
  const int error = errno;
  (void)signal_number;
  interrupt_seen = 1;
  deltaic_session *session = atomic_load(&interrupt_session);
  if (session) deltaic_session_cancel(session);
  if (interrupt_pipe[1] >= 0 && write(interrupt_pipe[1], "", 1) < 0) errno = 0; // the pipe is full: there are others
  errno = error;
}

static void catch_signal(int flags) {
  struct sigaction old, action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART | flags};
  sigaction(SIGINT, NULL, &old);
  if (old.sa_handler != SIG_IGN) sigaction(SIGINT, &action, NULL); // background jobs of a script ignore SIGINT
}

void interrupt_catch(void) { catch_signal(SA_RESETHAND); }

int interrupt_prepare(bool always) {
  if (pipe(interrupt_pipe)) return complain(EXIT_FAILED, "no pipe for Ctrl-C: %s", strerror(errno));
  for (int i = 0; i < 2; ++i) fcntl(interrupt_pipe[i], F_SETFL, O_NONBLOCK);
  if (always) catch_signal(0);
  return EXIT_OK;
}

bool interrupt_input(void) {
  struct pollfd either[] = {{.fd = 0, .events = POLLIN}, {.fd = interrupt_pipe[0], .events = POLLIN}};
  while (!interrupted() && poll(either, 2, -1) < 0 && errno == EINTR) {
  }
  return !interrupted();
}

void interrupt_forget(void) {
  char bytes[64];
  interrupt_seen = 0;
  while (read(interrupt_pipe[0], bytes, sizeof bytes) > 0) {
  }
}

bool interrupted(void) { return interrupt_seen; }

void interrupt_watch(deltaic_session *session) { atomic_store(&interrupt_session, session); }
