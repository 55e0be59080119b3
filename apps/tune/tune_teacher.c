// tune_teacher: checks before any work that no output replaces the teacher, and that its tokens are the model's.
#include "tune.h"

#include <stdio.h>
#include <string.h>

static int check_place(const struct tune_request *r, const char *out) {
  if (!out || !same_file(r->teacher, out)) return EXIT_OK;
  return complain(EXIT_FAILED, "%s: is the teacher, and would be replaced", out);
}

int tune_check_teacher(const struct tune_request *r) {
  int code = r->teacher ? check_place(r, r->out) : EXIT_OK;
  if (r->teacher && !code) code = check_place(r, r->adapter_out);
  return code;
}

enum { LONGEST = 1024 }; // of longer tokens only the lengths are compared

struct token {
  deltaic_status status; // a failure: the id has no token, or a longer one
  char bytes[LONGEST];
  size_t count;
};

static void read_token(struct token *t, const deltaic_tokenizer *tokenizer, int32_t id) {
  t->count = 0;
  t->status = deltaic_tokenizer_token_bytes(tokenizer, id, t->bytes, sizeof t->bytes, &t->count);
}

// Compares the tokens of ids that both have.
static int compare(const struct tune_work *w, const deltaic_tokenizer *ours, const deltaic_tokenizer *theirs) {
  const int32_t a = deltaic_tokenizer_size(ours), b = deltaic_tokenizer_size(theirs);
  struct token x, y;
  for (int32_t id = 0; id < a && id < b; ++id) {
    read_token(&x, ours, id);
    read_token(&y, theirs, id);
    if (x.status != y.status || x.count != y.count || (!x.status && memcmp(x.bytes, y.bytes, x.count)))
      return complain(EXIT_FAILED, "%s: has other tokens than %s, the first of them %d; a teacher needs the same",
                      w->r->teacher, w->model, id);
  }
  return EXIT_OK;
}

static bool has_tokenizer(const char *model) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tokenizer.json", model);
  return file_there(path);
}

int tune_compare_tokens(const struct tune_work *w) {
  deltaic_tokenizer *ours = NULL, *theirs = NULL;
  if (!w->r->teacher || !has_tokenizer(w->model) || !has_tokenizer(w->r->teacher)) return EXIT_OK;
  int code = complain_status(deltaic_tokenizer_open(w->model, &ours));
  if (!code) code = complain_status(deltaic_tokenizer_open(w->r->teacher, &theirs));
  if (!code) code = compare(w, ours, theirs);
  deltaic_tokenizer_close(ours);
  deltaic_tokenizer_close(theirs);
  return code;
}
