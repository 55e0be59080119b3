// console_posix: console.h for POSIX systems.
#include "console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

void console_start(int *argc, char ***argv) {
  (void)argc, (void)argv;
  signal(SIGPIPE, SIG_DFL); // a closed pipe ends the program silently, whatever the parent has set
}

bool console_is_terminal(FILE *stream) { return isatty(fileno(stream)); }

ptrdiff_t console_line(char **line, size_t *room) { return getline(line, room, stdin); }

// ---------------------------------------------------------------- signals

static void (*on_stop)(int code);
static int wake[2] = {-1, -1}; // a byte for each signal, which ends a wait for input

static void on_signal(int number) {
  const int error = errno;
  on_stop(128 + number);
  if (wake[1] >= 0 && write(wake[1], "", 1) < 0) errno = 0; // the pipe is full: there are others
  errno = error;
}

static void catch_signal(int number, int flags) {
  struct sigaction old, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | flags};
  sigaction(number, NULL, &old);
  if (old.sa_handler != SIG_IGN) sigaction(number, &action, NULL); // a script's background jobs ignore SIGINT
}

void console_catch(void (*stop)(int code), bool always) {
  on_stop = stop;
  catch_signal(SIGINT, always ? 0 : SA_RESETHAND);
  catch_signal(SIGTERM, SA_RESETHAND);
  catch_signal(SIGHUP, SA_RESETHAND);
}

const char *console_stop_name(int code) {
  return code == 128 + SIGTERM ? "SIGTERM" : code == 128 + SIGHUP ? "SIGHUP" : "Ctrl-C";
}

int console_prepare(void) {
  if (pipe(wake)) return errno;
  for (int i = 0; i < 2; ++i) fcntl(wake[i], F_SETFL, O_NONBLOCK);
  return 0;
}

void console_wait(void) {
  struct pollfd either[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = wake[0], .events = POLLIN}};
  while (poll(either, 2, -1) < 0 && errno == EINTR) {
  }
}

void console_forget(void) {
  char bytes[64];
  while (read(wake[0], bytes, sizeof bytes) > 0) {
  }
}
