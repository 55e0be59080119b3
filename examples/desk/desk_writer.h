// desk_writer.h: declares the thread that owns the model. The page asks it to continue a text, and collects what it has
// written once a frame. Nothing here waits for the model but desk_writer_free().
#ifndef DESK_WRITER_H
#define DESK_WRITER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ALTERNATIVES = 3 };

struct desk_writer;

enum desk_phase {
  DESK_OPENING, // the model
  DESK_IDLE,
  DESK_READING, // the text before the cursor
  DESK_WRITING
};

struct desk_news {
  enum desk_phase phase;
  uint32_t done;             // continuations that have ended
  char *text[ALTERNATIVES];  // all that each has, since the last desk_writer_start(); g_free() it. NULL: no change
  uint32_t read, remembered; // tokens of the text before the cursor: evaluated now, and taken from a state
  uint32_t written;          // tokens of each alternative
  uint32_t kernels;          // compiled so far, or taken from the cache
  double read_seconds, write_seconds;
  char failure[512]; // a sentence, until the next desk_writer_start(); "" when there is none
};

// Opens the model in the thread. device: as deltaic_device_options.index; tokens: the most of a continuation.
struct desk_writer *desk_writer_new(const char *model, int32_t device, uint32_t tokens);
void desk_writer_free(struct desk_writer *writer);

// Continues `text`. A continuation in progress must have ended.
void desk_writer_start(struct desk_writer *writer, const char *text, uint64_t seed);
// Ends the continuation after the step in progress; what is written stays.
void desk_writer_stop(struct desk_writer *writer);
// What has happened since the last call. Returns false, with nothing, where this would have to wait.
bool desk_writer_collect(struct desk_writer *writer, struct desk_news *news);
#endif
