// prune_folder.h: what tests of pruned files share: a folder below the current one that goes at the end, the CPU,
// measuring and selecting.
#ifndef PRUNE_FOLDER_H
#define PRUNE_FOLDER_H
#include "deltaic_prune.h"
#include "devices.h"
#include <ftw.h>
#include <jansson.h>

static char folder[] = "pruned.XXXXXX"; // of this run
static deltaic_context *context;
static deltaic_device *cpu;

// The path of a name in the folder, good until eight more were asked for.
static const char *place(const char *name) {
  static char paths[8][256];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static int begin(void **state) {
  deltaic_device_options o = {.size = sizeof o, .index = DELTAIC_DEVICE_INDEX_CPU};
  (void)state;
  if (!mkdtemp(folder)) return -1;
  context = test_context();
  return deltaic_device_open(context, &o, &cpu);
}

// Writes a tokenizer.json in which two letters have each other's ids, the smaller of which is 123 in the tiny models.
static inline void swap_tokens(const char *from, const char *to) {
  json_t *tokenizer = json_load_file(from, 0, NULL),
         *vocabulary = json_object_get(json_object_get(tokenizer, "model"), "vocab");
  json_t *x = json_incref(json_object_get(vocabulary, "x"));
  assert_true(x && json_integer_value(x) == 123);
  json_object_set(vocabulary, "x", json_object_get(vocabulary, "y"));
  json_object_set_new(vocabulary, "y", x);
  assert_int_equal(json_dump_file(tokenizer, to, 0), 0);
  json_decref(tokenizer);
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where) {
  (void)about, (void)type, (void)where;
  return remove(path);
}

static int end(void **state) {
  (void)state;
  deltaic_device_close(cpu);
  deltaic_context_free(context);
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline deltaic_statistics *measure(const char *path, const int32_t *tokens, size_t count, uint32_t window) {
  deltaic_calibration_options o = {.size = sizeof o, .window = window, .unit = true};
  deltaic_statistics *s;
  deltaic_model *model = open_model(cpu, path);
  assert_ok(deltaic_statistics_create(path, &o, &s));
  assert_ok(deltaic_calibrate(s, model, tokens, count, NULL, NULL));
  deltaic_model_close(model);
  return s;
}

static inline deltaic_selection *select_cut(const char *path, const deltaic_statistics *s, const char *method,
                                            double cut) {
  deltaic_select_options o = {.size = sizeof o, .method = method, .cut = cut};
  deltaic_selection *selection;
  assert_ok(deltaic_select(path, s, &o, &selection));
  return selection;
}
#endif
