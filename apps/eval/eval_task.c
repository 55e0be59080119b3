// eval_task: builds and frees lists of cases.
#include "common.h"
#include "eval.h"
#include "eval_text.h"

#include <stdlib.h>
#include <string.h>

struct eval_text eval_text_of(const char *text, size_t bytes) {
  return (struct eval_text){.text = text_copy(text, bytes), .count = bytes};
}

struct eval_case *eval_task_add(struct eval_task *task, size_t line, size_t choices) {
  if (task->count == task->capacity) {
    task->capacity = 2 * task->capacity + 64;
    task->cases = must_resize(task->cases, task->capacity * sizeof *task->cases);
  }
  struct eval_case *c = &task->cases[task->count++];
  *c = (struct eval_case){.line = line, .choices = choices};
  c->choice = must_resize(NULL, choices * sizeof *c->choice);
  memset(c->choice, 0, choices * sizeof *c->choice);
  return c;
}

static void text_free(struct eval_text *t) {
  free(t->text);
  free(t->ids);
}

void eval_case_free(struct eval_case *c) {
  text_free(&c->context);
  for (size_t i = 0; i < c->choices; ++i) {
    text_free(&c->choice[i].context);
    text_free(&c->choice[i].text);
  }
  for (size_t i = 0; i < c->answer_count; ++i) free(c->answers[i]);
  free(c->answers);
  free(c->choice);
  free(c->until);
}

void eval_task_limit(struct eval_task *task, uint32_t limit) {
  while (limit && task->count > limit) eval_case_free(&task->cases[--task->count]);
}

void eval_task_free(struct eval_task *task) {
  for (size_t i = 0; i < task->count; ++i) eval_case_free(&task->cases[i]);
  free(task->cases);
  json_decref(task->recipe);
  *task = (struct eval_task){0};
}
