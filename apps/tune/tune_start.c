// tune_start: a task's rows, whose words are the model's tokens; a new model of a config in a temporary folder, with a
// tokenizer: a folder's, or the words of a task.
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

static int check_size(const struct tune_work *w, size_t count) {
  deltaic_model_info info;
  const int code = complain_status(deltaic_model_inspect(NULL, w->model, NULL, &info, NULL));
  if (code) return code;
  if ((size_t)info.vocabulary < count)
    return complain(EXIT_FAILED, "%s: vocab_size is %d, but --task needs at least %zu", w->model, info.vocabulary,
                    count);
  const int32_t begin = info.bos_token >= 0 ? info.bos_token : info.eos_token; // as 'deltaic eval' begins texts
  if (!begin) return EXIT_OK;
  return complain(EXIT_FAILED, "%s: bos_token_id must be 0 for --task; with this config texts begin with token %d",
                  w->model, begin);
}

// A checkpoint's tokens must be those of the task.
static int compare_words(const struct tune_work *w, char **words, size_t count) {
  deltaic_tokenizer *tokenizer = NULL;
  int code = complain_status(deltaic_tokenizer_open(w->model, &tokenizer));
  for (size_t i = 0; i < count && !code; ++i) {
    const int32_t id = deltaic_tokenizer_find(tokenizer, words[i]);
    if (id < 0)
      code = complain(EXIT_FAILED, "%s: has no token \"%s\", which --task %s needs", w->model, words[i], w->r->task);
    else if ((size_t)id != i)
      code = complain(EXIT_FAILED,
                      "%s: token \"%s\" has id %d, but --task %s needs id %zu; give the --keys, --values or "
                      "--group that the model was trained with",
                      w->model, words[i], id, w->r->task, i);
  }
  deltaic_tokenizer_close(tokenizer);
  return code;
}

// A new model gets the task's words as tokens.
static int set_words(const struct tune_work *w) {
  size_t count;
  char **words = rows_words(&w->rows, &count);
  int code = check_size(w, count);
  if (!code && w->made) code = checkpoint_write_tokenizer(w->made, (const char *const *)words, count);
  if (!code && !w->made) code = compare_words(w, words, count);
  for (size_t i = 0; i < count; ++i) free(words[i]);
  free(words);
  return code;
}

static int make_model(struct tune_work *w) {
  if (!(w->made = temporary_folder())) return EXIT_FAILED;
  w->model = w->made;
  complain_rename(w->made, w->r->config);
  return complain_status(deltaic_tune_initialize(w->r->config, w->r->seed, w->made));
}

int tune_start(struct tune_work *w) {
  const struct tune_request *r = w->r;
  struct tune_rows *rows = &w->rows;
  int code = EXIT_OK;
  rows->pairs = r->pairs;
  rows->keys = r->keys;
  rows->values = r->values;
  if (r->task) code = r->task[0] == 'g' ? rows_of_group(rows, r->group, r->window) : rows_of_recall(rows, r->window);
  if (!code && r->config) code = make_model(w);
  if (code) return code;
  if (r->task) return set_words(w);
  return r->config ? copy_file(r->tokenizer, w->made, "tokenizer.json") : EXIT_OK;
}

void tune_start_end(struct tune_work *w) {
  complain_rename(NULL, NULL);
  if (w->made) checkpoint_delete(w->made);
  free(w->made);
}
