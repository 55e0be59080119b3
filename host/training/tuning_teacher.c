// tuning_teacher: compares a teacher's tokens with those of the model that it teaches.
#include "deltaic_tune.h"
#include "file.h"

#include <stdlib.h>
#include <string.h>

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

// The first id whose tokens differ, or -1.
static int32_t first_other(const deltaic_tokenizer *ours, const deltaic_tokenizer *theirs) {
  const int32_t a = deltaic_tokenizer_size(ours), b = deltaic_tokenizer_size(theirs);
  struct token x, y;
  for (int32_t id = 0; id < a && id < b; id++) {
    read_token(&x, ours, id);
    read_token(&y, theirs, id);
    if (x.status != y.status || x.count != y.count || (!x.status && memcmp(x.bytes, y.bytes, x.count))) return id;
  }
  return -1;
}

// Training needs ids only: a tokenizer that this library cannot read is left to whoever reads texts.
static deltaic_status open_readable(const char *model, deltaic_tokenizer **out) {
  const deltaic_status status = deltaic_tokenizer_open(model, out);
  return status == DELTAIC_UNSUPPORTED || status == DELTAIC_BAD_FILE ? DELTAIC_OK : status;
}

static deltaic_status has_tokenizer(const char *model, bool *has) {
  char *path = path_join(model, "tokenizer.json");
  *has = path && file_exists(path);
  free(path);
  return path ? DELTAIC_OK : DELTAIC_OUT_OF_MEMORY;
}

deltaic_status deltaic_tune_check_teacher(const char *path, const char *teacher) {
  if (!path || !teacher)
    return fail(DELTAIC_INVALID_ARGUMENT, "deltaic_tune_check_teacher: %s is NULL", !path ? "path" : "teacher");
  deltaic_tokenizer *ours = NULL, *theirs = NULL;
  bool mine = false, its = false;
  deltaic_status status = has_tokenizer(path, &mine);
  if (!status) status = has_tokenizer(teacher, &its);
  if (status || !mine || !its) return status;
  status = open_readable(path, &ours);
  if (!status) status = open_readable(teacher, &theirs);
  const int32_t other = status || !ours || !theirs ? -1 : first_other(ours, theirs);
  if (other >= 0)
    status = fail(DELTAIC_INVALID_ARGUMENT,
                  "%s: has other tokens than %s, the first of them %d; a teacher needs the same", teacher, path, other);
  deltaic_tokenizer_close(ours);
  deltaic_tokenizer_close(theirs);
  return status;
}
