// serve_voice: tokens into text. A chat's text is divided into thinking and answer; text that may begin a stop string
// or a mark waits.
#include "serve_call.h"

#include <string.h>

static const char open_mark[] = "<think>", close_mark[] = "</think>";

static deltaic_status add(struct bytes *to, const char *text, size_t bytes) {
  return bytes_add(to, text, bytes) ? DELTAIC_OK : DELTAIC_OUT_OF_MEMORY;
}

bool voice_stopped(const struct task *t) { return deltaic_stops_found(t->stops) >= 0; }

// Adds to a part of a chat, which does not begin with line ends.
static deltaic_status add_part(struct task *t, struct bytes *part, const char *text, size_t bytes) {
  deltaic_status status = t->chat ? add(&t->all, text, bytes) : DELTAIC_OK;
  while (t->chat && !part->size && bytes && *text == '\n') {
    ++text;
    --bytes;
  }
  return status || !bytes ? status : add(part, text, bytes);
}

static deltaic_status say_answer(struct task *t, const char *text, size_t bytes) {
  deltaic_status status = deltaic_stops_push(t->stops, text, bytes, &text, &bytes);
  return status ? status : add_part(t, &t->text, text, bytes);
}

static deltaic_status say_thinking(struct task *t, const char *text, size_t bytes) {
  deltaic_status status = deltaic_stops_push(t->thought, text, bytes, &text, &bytes);
  if (!status) status = add_part(t, &t->thinking, text, bytes);
  if (status || deltaic_stops_found(t->thought) < 0) return status;
  status = add(&t->all, close_mark, sizeof close_mark - 1);
  t->phase = VOICE_ANSWER;
  text = deltaic_stops_rest(t->thought, &bytes);
  return status ? status : say_answer(t, text, bytes);
}

// Waits until it is clear whether the answer begins with thinking. final: no more text comes.
static deltaic_status say_begin(struct task *t, const char *text, size_t bytes, bool final) {
  const size_t mark = sizeof open_mark - 1;
  if (add(&t->begin, text, bytes)) return DELTAIC_OUT_OF_MEMORY;
  const size_t blank = strspn(t->begin.data, " \n"), rest = t->begin.size - blank;
  const char *begin = t->begin.data + blank;
  const bool same = t->may_think && !strncmp(begin, open_mark, rest < mark ? rest : mark);
  if (same && rest < mark && !final) return DELTAIC_OK;
  t->phase = same && rest >= mark ? VOICE_THINKING : VOICE_ANSWER;
  if (t->phase == VOICE_ANSWER) return say_answer(t, t->begin.data, t->begin.size);
  deltaic_status status = add(&t->all, t->begin.data, blank + mark);
  return status ? status : say_thinking(t, begin + mark, rest - mark);
}

static deltaic_status say(struct task *t, const char *text, size_t bytes) {
  if (!bytes || voice_stopped(t)) return DELTAIC_OK;
  switch (t->phase) {
  case VOICE_BEGIN: return say_begin(t, text, bytes, false);
  case VOICE_THINKING: return say_thinking(t, text, bytes);
  default: return say_answer(t, text, bytes);
  }
}

deltaic_status voice_start(struct task *t, const char *opening) {
  static const char *const close[] = {close_mark};
  t->phase = VOICE_ANSWER;
  if (!t->chat) return DELTAIC_OK;
  if (strstr(opening, close_mark)) return add(&t->all, opening, strlen(opening)); // thinking is turned off
  t->phase = VOICE_BEGIN;
  deltaic_status status = deltaic_stops_create(close, 1, &t->thought);
  return status ? status : say(t, opening, strlen(opening));
}

deltaic_status voice_token(struct task *t, int32_t token) {
  const char *text;
  size_t bytes;
  const bool thinking = t->phase == VOICE_THINKING;
  deltaic_status status = deltaic_decoder_push(t->decoder, token, &text, &bytes);
  if (!status) status = say(t, text, bytes);
  if (thinking || t->phase == VOICE_THINKING) t->thought_tokens = t->made; // it is the answer's beginning
  return status;
}

deltaic_status voice_finish(struct task *t) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_finish(t->decoder, &text, &bytes);
  if (!status) status = say(t, text, bytes);
  if (!status && t->phase == VOICE_BEGIN) status = say_begin(t, "", 0, true);
  const bool thinking = t->phase == VOICE_THINKING;
  if (!status) status = deltaic_stops_finish(thinking ? t->thought : t->stops, &text, &bytes);
  if (!status && bytes) status = add_part(t, thinking ? &t->thinking : &t->text, text, bytes);
  return status;
}
