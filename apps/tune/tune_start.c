// tune_start: a new model of a config in a temporary folder, with a tokenizer: a folder's, or the words of a task.
#include "checkpoint_writer.h"
#include "platform.h"
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy_file(const char *from, const char *folder, const char *name) {
  char path[4096], source[4096];
  size_t bytes;
  struct new_file file;
  snprintf(source, sizeof source, "%s/%s", from, name);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  char *text = file_read(source, &bytes);
  int code = text ? output_begin(&file, path) : EXIT_FAILED;
  if (!code) {
    fwrite(text, 1, bytes, file.stream);
    code = output_end(&file, path, EXIT_OK);
  }
  free(text);
  return code;
}

static int write_words(struct tune_work *w) {
  size_t count;
  deltaic_model_info info;
  char **words = rows_words(&w->rows, &count);
  int code = complain_status(deltaic_model_inspect(NULL, w->made, NULL, &info, NULL));
  if (!code && (size_t)info.vocabulary < count)
    code = complain(EXIT_FAILED, "%s: vocab_size is %d, and the task has %zu tokens", w->r->config, info.vocabulary,
                    count);
  const int32_t begin = info.bos_token >= 0 ? info.bos_token : info.eos_token; // as 'deltaic eval' begins texts
  if (!code && begin)
    code =
        complain(EXIT_FAILED, "%s: bos_token_id must be 0, as a task's texts begin with it; they would begin with %d",
                 w->r->config, begin);
  if (!code) code = checkpoint_write_tokenizer(w->made, (const char *const *)words, count);
  for (size_t i = 0; i < count; ++i) free(words[i]);
  free(words);
  return code;
}

int tune_start(struct tune_work *w) {
  const struct tune_request *r = w->r;
  struct tune_rows *rows = &w->rows;
  int code = EXIT_OK;
  rows->pairs = r->pairs;
  rows->keys = r->keys;
  rows->values = r->values;
  if (r->task) code = r->task[0] == 'g' ? rows_of_group(rows, r->group, r->window) : rows_of_recall(rows, r->window);
  if (!code && !(w->made = temporary_folder())) code = EXIT_FAILED;
  if (!code) code = complain_status(deltaic_tune_initialize(r->config, r->seed, w->made));
  if (code) return code;
  w->model = w->made;
  return r->task ? write_words(w) : copy_file(r->tokenizer, w->made, "tokenizer.json");
}

void tune_start_end(struct tune_work *w) {
  if (w->made) checkpoint_delete(w->made);
  free(w->made);
}
