// lines.h: a file line by line, with a bound on memory and a sentence for what is no text.
#ifndef LINES_H
#define LINES_H
#include "sha256.h"

#include <stdbool.h>
#include <stdio.h>

enum { LINE_MOST = 16 << 20 }; // bytes; S-NIAH's longest are below 1 MB

struct lines {
  const char *path;
  FILE *stream;
  struct sha256 hash; // of all bytes read
  char *text;         // the line, without its end and the file's byte order mark; followed by a NUL
  size_t length, capacity;
  size_t number;     // from 1
  char problem[120]; // what is wrong with the line; "": nothing
  char buffer[1 << 16];
  size_t at, filled;
};
// "-" is standard input. An exit code. The struct is large: not for the stack of small threads.
int lines_open(struct lines *l, const char *path);
// false: the end. A line with a problem has no text.
bool lines_next(struct lines *l);
// An exit code: whether reading failed.
int lines_close(struct lines *l);
#endif
