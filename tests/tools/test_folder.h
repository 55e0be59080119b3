// test_folder.h: a folder for each test of files, below the current one, and what the last message must say.
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H
#include "status.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Last: it needs some of the headers above, and its macro fail() must not meet the declaration of ours.
#include <cmocka.h>

static char folder[64];

static inline int make_folder(void **state) {
  (void)state;
  strcpy(folder, "test_folder.XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static inline const char *in_folder(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static inline int remove_folder(void **state) {
  (void)state;
  DIR *d = opendir(folder);
  struct dirent *e;
  while (d && (e = readdir(d)))
    if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && remove(in_folder(e->d_name))) return -1;
  if (d) closedir(d);
  return rmdir(folder);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

// The last message holds every one of these texts.
#define ASSERT_MESSAGE(...) assert_message((const char *[]){__VA_ARGS__, NULL})
static inline void assert_message(const char *const *parts) {
  for (; *parts; parts++)
    if (!strstr(deltaic_last_error(), *parts)) fail_msg("\"%s\" does not say \"%s\"", deltaic_last_error(), *parts);
}
#endif
