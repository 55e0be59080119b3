// chat_voice: what the model says, divided into thinking and answer. Both are shown as they come; text that may be the
// beginning of a stop string or of a mark waits.
#include "chat.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char open_mark[] = "<think>", close_mark[] = "</think>";

int voice_open(struct voice *v, const struct chat *c) {
  const char *thought[2] = {close_mark}, *answer[LIST_CAPACITY + 1];
  size_t thoughts = 1, answers = 0;
  const struct chat_request *r = c->request;
  *v = (struct voice){.show = !r->as_json, .hide_thinking = r->hide_thinking, .terminal = c->terminal};
  v->stops = &r->stops;
  for (size_t i = 0; i < r->stops.count; ++i) answer[answers++] = r->stops.items[i];
  if (deltaic_tokenizer_find(c->tokenizer, c->info.end) < 0) {
    v->end_text = c->info.end;
    thought[thoughts++] = answer[answers++] = v->end_text;
  }
  int code = complain_status(deltaic_stops_create(thought, thoughts, &v->thought_stops));
  return code ? code : complain_status(deltaic_stops_create(answer, answers, &v->answer_stops));
}

void voice_close(struct voice *v) {
  deltaic_stops_free(v->thought_stops);
  deltaic_stops_free(v->answer_stops);
  free(v->begin.data);
  free(v->thinking.data);
  free(v->answer.data);
  free(v->all.data);
}

// ---------------------------------------------------------------- showing

static int put(struct voice *v, const char *text, size_t bytes) {
  if (!bytes || !v->show) return EXIT_OK;
  v->last = text[bytes - 1];
  return fwrite(text, 1, bytes, stdout) == bytes && !fflush(stdout) ? EXIT_OK : complain_output();
}

static int put_text(struct voice *v, const char *text) { return put(v, text, strlen(text)); }

// Drops the line ends before the first other character of a part.
static void skip_lines(const struct voice *v, const char **text, size_t *bytes) {
  while (!v->wrote && *bytes && **text == '\n') {
    ++*text;
    --*bytes;
  }
}

static int show_thinking(struct voice *v, const char *text, size_t bytes) {
  bytes_add(&v->all, text, bytes);
  skip_lines(v, &text, &bytes);
  if (!bytes) return EXIT_OK;
  bytes_add(&v->thinking, text, bytes);
  if (v->hide_thinking) {
    v->wrote = true;
    return EXIT_OK;
  }
  int code = v->wrote ? EXIT_OK : put_text(v, v->terminal ? "\033[2m" : "<think>\n");
  v->dim = v->wrote = true;
  return code ? code : put(v, text, bytes);
}

static int end_thinking(struct voice *v) {
  while (v->thinking.size && v->thinking.data[v->thinking.size - 1] == '\n') v->thinking.data[--v->thinking.size] = 0;
  if (!v->dim) return EXIT_OK;
  v->dim = false;
  int code = v->last == '\n' ? EXIT_OK : put_text(v, "\n");
  return code ? code : put_text(v, v->terminal ? "\033[0m\n" : "</think>\n\n");
}

static int show_answer(struct voice *v, const char *text, size_t bytes) {
  bytes_add(&v->all, text, bytes);
  skip_lines(v, &text, &bytes);
  if (!bytes) return EXIT_OK;
  v->wrote = true;
  bytes_add(&v->answer, text, bytes);
  return put(v, text, bytes);
}

// ---------------------------------------------------------------- dividing

static void enter(struct voice *v, enum voice_phase phase) {
  v->phase = phase;
  v->wrote = false;
}

static int say_answer(struct voice *v, const char *text, size_t bytes) {
  deltaic_status status = deltaic_stops_push(v->answer_stops, text, bytes, &text, &bytes);
  if (status) return complain_status(status);
  const int32_t found = deltaic_stops_found(v->answer_stops);
  if (found >= 0) v->stop = (size_t)found < v->stops->count ? v->stops->items[found] : v->end_text;
  return show_answer(v, text, bytes);
}

static int say_thinking(struct voice *v, const char *text, size_t bytes) {
  deltaic_status status = deltaic_stops_push(v->thought_stops, text, bytes, &text, &bytes);
  if (status) return complain_status(status);
  int code = show_thinking(v, text, bytes);
  const int32_t found = deltaic_stops_found(v->thought_stops);
  if (code || found < 0) return code;
  if (found == 1) {
    v->stop = v->end_text;
    return end_thinking(v);
  }
  bytes_add(&v->all, close_mark, sizeof close_mark - 1);
  code = end_thinking(v);
  enter(v, VOICE_ANSWER);
  text = deltaic_stops_rest(v->thought_stops, &bytes);
  return code ? code : say_answer(v, text, bytes);
}

// Waits until it is clear whether the model begins to think. final: no more text comes.
static int say_begin(struct voice *v, const char *text, size_t bytes, bool final) {
  bytes_add(&v->begin, text, bytes);
  const size_t blank = strspn(v->begin.data, " \n"), rest = v->begin.size - blank, mark = sizeof open_mark - 1;
  const char *begin = v->begin.data + blank;
  const bool same = v->may_think && !strncmp(begin, open_mark, rest < mark ? rest : mark);
  if (same && rest < mark && !final) return EXIT_OK;
  if (same && rest >= mark) {
    bytes_add(&v->all, v->begin.data, blank + mark);
    enter(v, VOICE_THINKING);
    return say_thinking(v, begin + mark, rest - mark);
  }
  enter(v, VOICE_ANSWER);
  return say_answer(v, v->begin.data, v->begin.size);
}

int voice_say(struct voice *v, const char *text, size_t bytes) {
  if (!bytes || voice_stopped(v)) return EXIT_OK;
  if (v->phase == VOICE_BEGIN) return say_begin(v, text, bytes, false);
  return v->phase == VOICE_THINKING ? say_thinking(v, text, bytes) : say_answer(v, text, bytes);
}

int voice_start(struct voice *v, const char *opening, bool may_think) {
  v->begin.size = v->thinking.size = v->answer.size = v->all.size = 0;
  bytes_add(&v->begin, "", 0);
  bytes_add(&v->thinking, "", 0);
  bytes_add(&v->answer, "", 0);
  bytes_add(&v->all, "", 0);
  v->stop = NULL;
  v->last = 0;
  v->dim = false;
  v->may_think = may_think;
  deltaic_stops_reset(v->thought_stops);
  deltaic_stops_reset(v->answer_stops);
  enter(v, VOICE_BEGIN);
  if (strstr(opening, close_mark)) { // thinking is turned off
    bytes_add(&v->all, opening, strlen(opening));
    enter(v, VOICE_ANSWER);
    return EXIT_OK;
  }
  return voice_say(v, opening, strlen(opening));
}

int voice_finish(struct voice *v) {
  const char *text;
  size_t bytes;
  int code = v->phase == VOICE_BEGIN ? say_begin(v, "", 0, true) : EXIT_OK;
  const bool thinking = v->phase == VOICE_THINKING;
  deltaic_status status = deltaic_stops_finish(thinking ? v->thought_stops : v->answer_stops, &text, &bytes);
  if (!code) code = complain_status(status);
  if (!code) code = thinking ? show_thinking(v, text, bytes) : show_answer(v, text, bytes);
  if (!code && thinking) code = end_thinking(v);
  if (!code && v->show && v->last != '\n') code = put_text(v, "\n");
  return code;
}

bool voice_stopped(const struct voice *v) { return v->stop != NULL; }
