// lines.h: reads a file line by line with bounded memory and reports lines that are not text.
#ifndef LINES_H
#define LINES_H
#include "sha256.h"

#include <stdbool.h>
#include <stdio.h>

enum { LINE_MOST = 16 << 20 }; // bytes; the longest lines of S-NIAH are below 1 MB

struct lines {
  const char *path;
  FILE *stream;
  struct sha256 hash; // of all bytes read
  char *text;         // the line without its end and without the file's byte order mark; NUL-terminated
  size_t length, capacity;
  size_t number;     // from 1
  char problem[120]; // the error in the line; "": none
  char buffer[1 << 16];
  size_t at, filled;
  bool inside;  // a line that is too long: its rest is to be skipped
  bool endless; // and has no end within 1 GiB
};
// Opens a file ("-": standard input) and returns an exit code. The struct is too large for the stack of small threads.
int lines_open(struct lines *l, const char *path);
// Reads the next line. It returns false at the end of the file. A line with a problem has no text. Of a line that is too
// long, the rest is read by the next call, which gives up after 1 GiB: a device may never end.
bool lines_next(struct lines *l);
// Returns an exit code that says whether reading failed.
int lines_close(struct lines *l);
#endif
