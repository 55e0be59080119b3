// Files that are replaced, and values of JSON objects (host/file, host/json).
#include "file.h"
#include "json.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test_folder.h"

// ---------------------------------------------------------------- replacing files

static void assert_file(const char *name, const char *text) {
  struct file_view view;
  assert_int_equal(file_map(in_folder(name), &view), DELTAIC_OK);
  assert_int_equal(view.bytes, strlen(text));
  if (view.bytes) assert_memory_equal(view.data, text, view.bytes);
  file_unmap(&view);
  assert_null(view.data);
}

static int count_files(void) {
  DIR *d = opendir(folder);
  int count = 0;
  while (readdir(d)) count++;
  closedir(d);
  return count - 2;
}

static void files_are_replaced_whole_and_keep_their_mode(void **state) {
  struct stat about;
  assert_false(file_exists(in_folder("f")));
  assert_int_equal(file_replace(in_folder("f"), "one", 3), DELTAIC_OK);
  assert_file("f", "one");
  assert_int_equal(chmod(in_folder("f"), 0600), 0);
  assert_int_equal(file_replace(in_folder("f"), "", 0), DELTAIC_OK);
  assert_file("f", "");
  assert_int_equal(stat(in_folder("f"), &about), 0);
  assert_int_equal(about.st_mode & 0777, 0600);
  assert_true(file_exists(in_folder("f")));
  assert_int_equal(count_files(), 1);
}

static void failed_replacements_leave_nothing_behind(void **state) {
  assert_int_equal(file_replace(in_folder("no/f"), "one", 3), DELTAIC_NOT_FOUND);
  ASSERT_MESSAGE("no/f", "no such file or folder");
  assert_int_equal(mkdir(in_folder("d"), 0777), 0);
  assert_int_equal(file_replace(in_folder("d"), "one", 3), DELTAIC_IO);
  ASSERT_MESSAGE("/d", "cannot be written");
  assert_int_equal(count_files(), 1);
}

static void links_stay_and_what_they_name_is_replaced(void **state) {
  struct stat about;
  assert_int_equal(mkdir(in_folder("there"), 0777), 0);
  assert_int_equal(symlink("there/f", in_folder("link")), 0);
  for (int i = 0; i < 2; i++) { // made, then replaced
    const char *text = i ? "two" : "one";
    assert_int_equal(file_replace(in_folder("link"), text, 3), DELTAIC_OK);
    assert_int_equal(lstat(in_folder("link"), &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_file("there/f", text);
  }
  assert_int_equal(count_files(), 2);
  assert_int_equal(remove(in_folder("there/f")), 0);
}

static void what_is_no_file_is_written_straight_into(void **state) {
  struct stat about;
  char text[8] = "";
  assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
  int reader = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK);
  assert_int_equal(file_replace(in_folder("pipe"), "one", 3), DELTAIC_OK);
  assert_int_equal(read(reader, text, sizeof text), 3);
  assert_string_equal(text, "one");
  close(reader);
  assert_int_equal(stat(in_folder("pipe"), &about), 0);
  assert_true(S_ISFIFO(about.st_mode));
  assert_int_equal(count_files(), 1);
}

// ---------------------------------------------------------------- json getters

static void getters_take_defaults_for_missing_and_null(void **state) {
  json_t *o;
  struct json_reader r = {.file = "c.json"};
  const char *text = "{\"n\":null,\"i\":7,\"whole\":2.0,\"x\":0.5,\"t\":\"word\",\"b\":true}";
  assert_int_equal(json_parse("c.json", text, strlen(text), &o), DELTAIC_OK);
  assert_int_equal(json_int(&r, o, "none", 3, 0, 9), 3);
  assert_int_equal(json_int(&r, o, "n", 3, 0, 9), 3);
  assert_int_equal(json_int(&r, o, "i", 3, 0, 9), 7);
  assert_int_equal(json_int(&r, o, "whole", 3, 0, 9), 2);
  assert_true(json_number(&r, o, "i", 1, 0, 9) == 7);
  assert_true(json_number(&r, o, "x", 1, 0, 9) == 0.5);
  assert_true(json_number(&r, o, "n", 1, 0, 9) == 1);
  assert_true(json_bool(&r, o, "b", false));
  assert_true(json_bool(&r, o, "n", true));
  assert_string_equal(json_text(&r, o, "t", "x"), "word");
  assert_null(json_text(&r, o, "n", NULL));
  assert_true(json_present(o, "i"));
  assert_false(json_present(o, "n") || json_present(o, "none"));
  assert_int_equal(r.status, DELTAIC_OK);
  json_decref(o);
}

static void wrong_values_are_named_and_the_first_is_kept(void **state) {
  json_t *o;
  struct json_reader r = {.file = "c.json"};
  const char *text = "{\"s\":\"x\",\"i\":10,\"x\":2.5,\"huge\":1e300}";
  assert_int_equal(json_parse("c.json", text, strlen(text), &o), DELTAIC_OK);
#define FIRST(call, ...)                                                                                               \
  r.status = DELTAIC_OK;                                                                                               \
  (void)(call);                                                                                                        \
  assert_int_equal(r.status, DELTAIC_BAD_FILE);                                                                        \
  ASSERT_MESSAGE("c.json", __VA_ARGS__)
  FIRST(json_bool(&r, o, "i", true), "i must be true or false, not an integer");
  FIRST(json_int(&r, o, "i", 1, 0, 9), "i is 10 and must be from 0 to 9");
  FIRST(json_int(&r, o, "huge", 1, 0, 9), "huge must be an integer, not a number with a fraction");
  FIRST(json_int(&r, o, "x", 1, 0, 9), "x must be an integer, not a number with a fraction");
  FIRST(json_number(&r, o, "s", 1, 0, 9), "s must be a number, not a string");
  FIRST(json_number(&r, o, "x", 1, 0, 2), "x is 2.5 and must be from 0 to 2");
  FIRST(json_text(&r, o, "x", ""), "x must be a string");
  json_bool(&r, o, "s", false);
  ASSERT_MESSAGE("x must be a string");
#undef FIRST
  json_decref(o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_FOLDER(files_are_replaced_whole_and_keep_their_mode),
      IN_FOLDER(links_stay_and_what_they_name_is_replaced),
      IN_FOLDER(what_is_no_file_is_written_straight_into),
      IN_FOLDER(failed_replacements_leave_nothing_behind),
      cmocka_unit_test(getters_take_defaults_for_missing_and_null),
      cmocka_unit_test(wrong_values_are_named_and_the_first_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
