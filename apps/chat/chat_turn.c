// chat_turn: one question and its answer. The question is evaluated behind the state that the last turn left. What the
// template makes of an answer once another question follows may differ from what the model said: without its thinking,
// or cut at a stop string. Then the state before the answer is kept, and the answer as the template has it is evaluated
// with the next question.
#include "chat.h"
#include "common.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAIN, SPARE }; // sequences

struct ids {
  int32_t *items;
  size_t count;
};

struct turn {
  struct chat *chat;
  struct node *before;
  struct bytes question;
  deltaic_message *messages; // before the turn, then the question, then the answer
  size_t count;              // of messages before the turn
  void *asked;               // the state after the question, unless sequence SPARE has it
  size_t asked_bytes;
  struct ids opening; // tokens of the answer's beginning
  struct bytes opening_text;
  int32_t *made;
  uint32_t made_count, made_room;
  const char *end; // why the answer ends: "eos", "stop", "tokens", "interrupt", "error"
  size_t read;     // tokens evaluated before the answer
  double read_seconds, made_seconds;
};

// ---------------------------------------------------------------- tokens

static int encode(const struct turn *t, size_t n, deltaic_render_options options, struct ids *out) {
  const struct chat *c = t->chat;
  deltaic_ids to = {NULL, 0, &out->count};
  options.size = sizeof options;
  options.thinking = c->thinking;
  deltaic_status status = deltaic_template_encode(c->template, c->tokenizer, t->messages, n, &options, &to);
  if (status) return complain_status(status);
  out->items = must_resize(NULL, out->count * sizeof *out->items);
  to = (deltaic_ids){out->items, out->count, &out->count};
  status = deltaic_template_encode(c->template, c->tokenizer, t->messages, n, &options, &to);
  if (status) {
    free(out->items);
    *out = (struct ids){NULL, 0};
  }
  return complain_status(status);
}

// A node without a state starts from nothing: everything up to it is pending.
static int count_pending(struct turn *t) {
  struct ids all;
  if (t->before->counted) return EXIT_OK;
  int code = encode(t, t->count, (deltaic_render_options){.earlier = true}, &all);
  if (code) return code;
  if (!t->chat->request->engine.quiet)
    fprintf(stderr, "the state of this turn is not there: %zu tokens are evaluated again\n", all.count);
  node_set_pending(t->before, all.items, all.count);
  free(all.items);
  return EXIT_OK;
}

// The answer's beginning as text: what the template adds to info.answer.
static int opening_text(struct turn *t) {
  const struct chat *c = t->chat;
  deltaic_render_options o = DELTAIC_INIT(deltaic_render_options);
  size_t bytes = 0, head = strlen(c->info.answer);
  o.first = t->count + 1;
  o.answer = true;
  o.thinking = c->thinking;
  deltaic_status status = deltaic_template_render(c->template, t->messages, t->count + 1, &o, NULL, 0, &bytes);
  char *text = must_resize(NULL, bytes + 1);
  if (!status) status = deltaic_template_render(c->template, t->messages, t->count + 1, &o, text, bytes, &bytes);
  if (!status) bytes_add(&t->opening_text, text + head, bytes - head);
  free(text);
  return complain_status(status);
}

// ---------------------------------------------------------------- the question

static deltaic_status evaluate(struct turn *t, const int32_t *ids, size_t count) {
  size_t piece = t->chat->request->engine.batch ? t->chat->request->engine.batch : 512;
  deltaic_status status = DELTAIC_OK;
  for (size_t at = 0; at < count && !status && !interrupted(); at += piece)
    status = deltaic_session_eval(t->chat->session, ids + at, count - at < piece ? count - at : piece,
                                  DELTAIC_LOGITS_NONE, NULL);
  t->read += count;
  return status;
}

static int load_state(struct turn *t) {
  struct chat *c = t->chat;
  if (c->loaded == t->before) return EXIT_OK;
  c->loaded = NULL;
  int code = complain_status(deltaic_session_reset(c->session)); // this also forgets a Ctrl-C that came too late
  if (code || !t->before->state) return code;
  return complain_status(deltaic_session_load(c->session, t->before->state, t->before->state_bytes));
}

static int save_state(const struct chat *c, uint32_t sequence, void **state, size_t *bytes) {
  deltaic_status status = deltaic_sequence_state_size(c->session, sequence, bytes);
  if (status) return complain_status(status);
  *state = must_resize(NULL, *bytes);
  return complain_status(deltaic_sequence_save(c->session, sequence, *state, *bytes, bytes));
}

// The pending tokens and the question in one evaluation, then the answer's beginning. The state between is kept: on the
// device, which takes no time, if there is memory for it.
static int ask(struct turn *t) {
  struct chat *c = t->chat;
  struct ids question = {0}, all = {0};
  const struct moment start = engine_now(&c->engine);
  int code = count_pending(t);
  if (!code) code = load_state(t);
  if (!code)
    code = encode(t, t->count + 1, (deltaic_render_options){.first = t->before->parent ? t->count : 0}, &question);
  if (!code)
    code = encode(t, t->count + 1, (deltaic_render_options){.first = t->count + 1, .answer = true}, &t->opening);
  if (code) goto done;
  all.count = t->before->pending_count + question.count;
  all.items = must_resize(NULL, all.count * sizeof *all.items);
  if (t->before->pending_count) memcpy(all.items, t->before->pending, t->before->pending_count * sizeof *all.items);
  if (question.count) memcpy(all.items + t->before->pending_count, question.items, question.count * sizeof *all.items);
  c->loaded = NULL;
  interrupt_watch(c->session);
  code = complain_work(evaluate(t, all.items, all.count));
  if (!code && c->spare) code = complain_status(deltaic_sequence_copy(c->session, SPARE, MAIN));
  if (!code && !c->spare) code = save_state(c, MAIN, &t->asked, &t->asked_bytes);
  if (!code) code = complain_work(evaluate(t, t->opening.items, t->opening.count));
  interrupt_watch(NULL);
done:
  t->read_seconds = engine_seconds(&c->engine, start);
  free(question.items);
  free(all.items);
  return code;
}

// ---------------------------------------------------------------- the answer

static int say_token(struct turn *t, deltaic_decoder *decoder, int32_t token) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_push(decoder, token, &text, &bytes);
  return status ? complain_status(status) : voice_say(t->chat->voice, text, bytes);
}

static int say_rest(struct turn *t, deltaic_decoder *decoder) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_finish(decoder, &text, &bytes);
  int code = status ? complain_status(status) : voice_say(t->chat->voice, text, bytes);
  return code ? code : voice_finish(t->chat->voice);
}

// *status: a failure of the session, after which the text so far is still an answer.
static int draw(struct turn *t, deltaic_decoder *decoder, deltaic_status *status) {
  struct chat *c = t->chat;
  deltaic_sampling sampling = c->sampling;
  const int32_t end = deltaic_tokenizer_find(c->tokenizer, c->info.end); // which not every config names
  sampling.seed += t->before->asked++;
  t->end = "tokens";
  while (t->made_count < c->request->tokens) {
    int32_t token;
    if (interrupted()) {
      t->end = "interrupt";
      return EXIT_OK;
    }
    *status = deltaic_session_next(c->session, &sampling, &token, NULL);
    if (*status == DELTAIC_CANCELLED && interrupted()) { // while its kernels were compiled; nothing was drawn
      *status = DELTAIC_OK;
      continue;
    }
    if (*status) {
      t->end = "error";
      return EXIT_OK;
    }
    if (t->made_count == t->made_room)
      t->made = must_resize(t->made, (t->made_room = 2 * t->made_room + 64) * sizeof *t->made);
    t->made[t->made_count++] = token;
    if (token == end || deltaic_model_is_end(c->engine.model, token)) {
      t->end = "eos";
      return EXIT_OK;
    }
    int code = say_token(t, decoder, token);
    if (code) return code;
    if (voice_stopped(c->voice)) {
      t->end = "stop";
      return EXIT_OK;
    }
  }
  return EXIT_OK;
}

static int answer(struct turn *t, deltaic_status *status) {
  struct chat *c = t->chat;
  deltaic_decoder *decoder = NULL;
  const char *text;
  size_t bytes;
  int code = opening_text(t);
  *status = DELTAIC_OK;
  if (!code) code = complain_status(deltaic_decoder_create(c->tokenizer, true, &decoder));
  for (size_t i = 0; i < t->opening.count && !code; ++i)
    code = complain_status(deltaic_decoder_push(decoder, t->opening.items[i], &text, &bytes));
  if (!code) code = voice_start(c->voice, t->opening_text.data, c->info.thinking_on);
  const struct moment start = engine_now(&c->engine);
  if (!code) code = draw(t, decoder, status);
  t->made_seconds = engine_seconds(&c->engine, start);
  if (!code) code = say_rest(t, decoder);
  if (!code && voice_stopped(c->voice)) t->end = "stop";
  deltaic_decoder_free(decoder);
  return code;
}

// ---------------------------------------------------------------- the turn in the tree

// Index behind the last of these ids that is `id`; 0: none is.
static size_t behind_last(const struct ids *ids, int32_t id) {
  size_t at = ids->count;
  while (at && ids->items[at - 1] != id) --at;
  return at;
}

// The state that the session has now is that of the conversation if the answer stays as it was said, up to what ends
// it.
static int keep_turn(struct turn *t, struct node *node) {
  struct chat *c = t->chat;
  struct ids history;
  t->messages[t->count + 1] = (deltaic_message){DELTAIC_ROLE_ASSISTANT, node->answer.data, node->answer.size};
  int code = encode(t, t->count + 2, (deltaic_render_options){.first = t->count + 1, .earlier = true}, &history);
  if (code) return code;
  const int32_t end = deltaic_tokenizer_find(c->tokenizer, c->info.end);
  const size_t behind = end < 0 ? 0 : behind_last(&history, end);
  const bool ended = !strcmp(t->end, "eos"), proper = ended && t->made[t->made_count - 1] == end;
  const bool whole =
      !c->info.drops_thinking && behind && (ended ? proper : !!strcmp(t->end, "stop")) && strcmp(t->end, "error") != 0;
  void *state = t->asked;
  size_t bytes = t->asked_bytes, from = 0;
  if (whole) from = proper ? behind : behind - 1;
  if (whole || c->spare) {
    state = NULL;
    code = save_state(c, whole ? MAIN : SPARE, &state, &bytes);
    free(t->asked);
  }
  t->asked = NULL;
  if (!code) node_set_pending(node, history.items + from, history.count - from);
  if (code)
    free(state);
  else
    node_keep(c, node, state, bytes);
  c->loaded = whole && !code && !interrupted() ? node : NULL;
  free(history.items);
  return code;
}

static json_t *phase(size_t tokens, double seconds) {
  return json_pack("{s:I, s:o}", "tokens", (json_int_t)tokens, "seconds", number_json(seconds));
}

static json_t *string(const struct bytes *text) { return json_stringn(text->data, text->size); }

static int report(const struct turn *t) {
  const struct chat *c = t->chat;
  json_t *ids = json_array();
  for (uint32_t i = 0; i < t->made_count; ++i) json_array_append_new(ids, json_integer(t->made[i]));
  json_t *line =
      json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:I, s:o, s:o}", "question", string(&t->question), "thinking",
                string(&c->voice->thinking), "answer", string(&c->voice->answer), "tokens", ids, "end", t->end, "stop",
                c->voice->stop ? text_json(c->voice->stop) : json_null(), "branch", (json_int_t)c->branch + 1,
                "prefill", phase(t->read, t->read_seconds), "decode", phase(t->made_count, t->made_seconds));
  bool good = line && !json_dumpf(line, stdout, JSON_COMPACT) && putchar('\n') != EOF && !fflush(stdout);
  json_decref(line);
  return good ? EXIT_OK : complain_output();
}

int chat_ask(struct chat *c, const char *question, size_t bytes) {
  struct turn t = {.chat = c, .before = chat_leaf(c)};
  deltaic_status status = DELTAIC_OK;
  bytes_add(&t.question, question, bytes);
  t.messages = node_messages(t.before, &t.count);
  t.messages[t.count] = (deltaic_message){DELTAIC_ROLE_USER, t.question.data, t.question.size};
  int code = ask(&t);
  if (!code) code = answer(&t, &status);
  if (!code) {
    struct node *node = node_after(t.before, &t.question, &c->voice->all);
    code = keep_turn(&t, node);
    chat_move(c, node);
  }
  if (!code && c->request->as_json) code = report(&t);
  if (!code && status) code = complain_status(status);
  if (!code && !strcmp(t.end, "interrupt")) code = EXIT_INTERRUPTED;
  free(t.question.data);
  free(t.messages);
  free(t.asked);
  free(t.opening.items);
  free(t.opening_text.data);
  free(t.made);
  return code;
}
