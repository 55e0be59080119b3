// status: holds the texts of deltaic_status and the calling thread's last message.
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[1024];

const char *deltaic_last_error(void) { return message; }

// Replaces control characters, since messages contain names from files and terminals obey control characters.
static void keep(const char *text) {
  size_t i = 0;
  for (; text[i]; i++) message[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
  message[i] = 0;
}

deltaic_status fail(deltaic_status status, const char *format, ...) {
  char text[sizeof message]; // the arguments may point into `message`
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  keep(text);
  return status;
}

deltaic_status fail_memory(const char *what, uint64_t bytes) {
  return fail(DELTAIC_OUT_OF_MEMORY, "out of memory: %llu bytes for %s", (unsigned long long)bytes, what);
}

bool null_pointer(const char *function, const char *names, const void *const *pointers, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const size_t length = strcspn(names, ",");
    if (!pointers[i]) return fail(DELTAIC_INVALID_ARGUMENT, "%s: %.*s is NULL", function, (int)length, names);
    names += length + (names[length] == ',');
  }
  return false;
}

const char *deltaic_version(void) { return DELTAIC_VERSION; }

const char *deltaic_status_name(deltaic_status status) {
  switch (status) {
#define NAME(name, value, text)                                                                                        \
  case value: return "DELTAIC_" #name;
    DELTAIC_STATUS_MAP(NAME)
  }
  return "unknown status";
}

const char *deltaic_status_text(deltaic_status status) {
  switch (status) {
#define TEXT(name, value, text)                                                                                        \
  case value: return text;
    DELTAIC_STATUS_MAP(TEXT)
  }
  return "unknown status";
}
