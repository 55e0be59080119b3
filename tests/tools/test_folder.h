// test_folder.h: a folder for each test of files, below the current one, and what the last message must say.
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H
#include "platform.h"
#include "status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Last: it needs some of the headers above, and its macro fail() must not meet the declaration of ours.
#include <cmocka.h>

static char folder[64];

static inline int make_folder(void **state) {
  (void)state;
  static int serial;
  snprintf(folder, sizeof folder, "test_folder.%u-%d", platform_process(), serial++);
  return platform_make_folder(folder, true);
}

static inline const char *in_folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static inline int remove_in_folder(void *unused, const char *name) {
  (void)unused;
  return remove(in_folder(name));
}

static inline int remove_folder(void **state) {
  (void)state;
  int code = platform_list(folder, remove_in_folder, NULL);
  return code ? code : platform_remove_folder(folder);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

// The last message holds every one of these texts.
#define ASSERT_MESSAGE(...) assert_message((const char *[]){__VA_ARGS__, NULL})
static inline void assert_message(const char *const *parts) {
  for (; *parts; parts++)
    if (!strstr(deltaic_last_error(), *parts)) fail_msg("\"%s\" does not say \"%s\"", deltaic_last_error(), *parts);
}
#endif
