// chat: a conversation in the terminal, or over pipes: a line is a question or a command.
#include "chat.h"
#include "command.h"
#include "common.h"
#include "console.h"
#include "platform.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "chat",
    .arguments = "[options] [MODEL]",
    .summary = "Talks with a model by its chat template. Each line of standard input is a question; answers go to "
               "standard output as they come.",
    .text =
        "In the conversation, lines that begin with a slash are commands: /undo, /retry, /fork, /branches, /switch, "
        "/system, /new, /save, /load, /thinking, /quit. /help explains them. The program keeps the model's state after "
        "every turn, so taking turns back, branching and loading compute nothing again. Ctrl-C stops an answer, not "
        "the "
        "program.\n\n"
        "When input or output is a pipe, no prompts are printed, and the first failure or Ctrl-C ends the program. "
        "Thinking is written between <think> and </think>, unless --hide-thinking is given.",
    .examples = "  deltaic chat model.gguf\n"
                "  deltaic chat some/model --system \"Answer in one sentence.\" --thinking off\n"
                "  deltaic chat some/model --history talk.chat         continues where it ended\n"
                "  printf 'What is 2 + 2?\\n/undo\\nAnd 3 + 3?\\n' | deltaic chat some/model -q --json\n"
                "  deltaic chat models/novelist --template chatml -n 60   a model without a template\n",
    .most_arguments = 1,
};

// ---------------------------------------------------------------- opening

static int choose_template(struct chat *c, const char *path) {
  char names[512];
  size_t used = 0;
  if (c->request->template) {
    int code = complain_status(deltaic_template_find(c->request->template, &c->template));
    if (!code) deltaic_template_get_info(c->template, &c->info);
    return code;
  }
  if (deltaic_template_read(path, &c->template) == DELTAIC_OK) {
    deltaic_template_get_info(c->template, &c->info);
    return EXIT_OK;
  }
  for (size_t i = 0; deltaic_template_at(i) && used < sizeof names; ++i) {
    deltaic_template_info info;
    deltaic_template_get_info(deltaic_template_at(i), &info);
    used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", info.name);
  }
  return complain(EXIT_FAILED, "%s; --template NAME chooses one: %s", deltaic_last_error(), names);
}

static int choose_thinking(struct chat *c) {
  const char *wish = c->request->thinking;
  if (!wish) return EXIT_OK;
  const bool on = !strcmp(wish, "on");
  if (!on && strcmp(wish, "off") != 0) return complain(EXIT_USAGE, "--thinking takes on or off, not \"%s\"", wish);
  c->thinking = on ? DELTAIC_THINKING_ON : DELTAIC_THINKING_OFF;
  if (on ? c->info.thinking_on : c->info.thinking_off) return EXIT_OK;
  return complain(EXIT_USAGE, "--thinking %s: the template %s cannot turn thinking %s", wish, c->info.name, wish);
}

// Without --context, a model whose state grows gets room for a long conversation. Without memory for a second sequence
// the state after a question goes to main memory.
static int create_session(struct chat *c) {
  struct engine_options options = c->request->engine;
  if (!options.context && c->engine.model_info.grows) options.context = 16384;
  options.sequences = 2;
  deltaic_session_options both = session_options(&options);
  deltaic_status status = deltaic_session_create(c->engine.model, &both, &c->session);
  c->spare = !status;
  if (status != DELTAIC_OUT_OF_MEMORY && status != DELTAIC_UNSUPPORTED) return complain_status(status);
  options.sequences = 1;
  return session_create(&c->engine, &options, &c->session);
}

// A quarter of main memory.
static uint64_t memory_for_states(void) {
  const uint64_t bytes = platform_memory();
  return bytes ? bytes / 4 : UINT64_MAX;
}

static int open_chat(struct chat *c) {
  const struct chat_request *r = c->request;
  const char *path = model_path(r->engine.model);
  if (!path) return EXIT_USAGE;
  int code = model_check(path);
  if (!code) code = choose_template(c, path);
  if (!code) code = choose_thinking(c);
  if (!code && r->history) code = output_check(r->history);
  const bool goes_on = !code && r->history && file_there(r->history);
  if (goes_on && r->system)
    code = complain(EXIT_USAGE, "--system: %s has a conversation already; /system TEXT begins another", r->history);
  if (!code) code = tokenizer_open(path, &c->tokenizer);
  if (!code) code = voice_open(c->voice, c);
  if (!code) code = engine_open(&r->engine, &c->engine);
  if (!code) code = create_session(c);
  if (code) return code;
  c->sampling = choice_sampling(&r->choice, c->engine.model);
  if (goes_on) return chat_load(c, r->history);
  return chat_open_branch(c, node_first(r->system, r->system ? strlen(r->system) : 0)) ? EXIT_OK : EXIT_FAILED;
}

static int close_chat(struct chat *c, int code) {
  interrupt_watch(NULL);
  for (uint32_t i = 0; i < c->branch_count; ++i) node_drop(c, c->branches[i]);
  free(c->kept);
  voice_close(c->voice);
  deltaic_session_free(c->session);
  deltaic_tokenizer_close(c->tokenizer);
  return engine_close(&c->engine, code);
}

static void announce(const struct chat *c) {
  if (c->request->engine.quiet) return;
  fprintf(stderr, "model   %s: %s, template %s\n", model_path(c->request->engine.model),
          c->engine.model_info.architecture, c->info.name);
  fprintf(stderr, "device  %s\n", engine_device_text(&c->engine));
  choice_print("text    ", &c->sampling);
  if (node_turns(chat_leaf(c))) fprintf(stderr, "history %u turns\n", node_turns(chat_leaf(c)));
  if (c->terminal) fprintf(stderr, "/help lists the commands\n");
  fprintf(stderr, "\n");
}

// ---------------------------------------------------------------- the conversation

static int ask_json(struct chat *c, const char *line, size_t bytes) {
  json_error_t error;
  json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  const json_t *question = json_object_get(object, "question");
  int code = EXIT_OK;
  if (!object)
    code = complain(EXIT_FAILED, "a line is not JSON: %s", error.text);
  else if (!json_is_string(question))
    code = complain(EXIT_FAILED, "a line has no \"question\" whose value is a string");
  else
    code = chat_ask(c, json_string_value(question), json_string_length(question));
  json_decref(object);
  return code;
}

static int take_line(struct chat *c, const char *line, size_t bytes) {
  if (!bytes) return EXIT_OK;
  if (c->request->as_json && line[0] == '{') return ask_json(c, line, bytes);
  if (line[0] == '/' && line[1] != '/') return chat_command(c, line);
  const bool slash = line[0] == '/';
  return chat_ask(c, line + slash, bytes - slash);
}

// The next line without its end. False: there is none, or Ctrl-C came first.
static bool read_line(const struct chat *c, char **line, size_t *room, size_t *bytes) {
  if (c->terminal) {
    interrupt_forget(); // which stopped the last answer
    fputs("> ", stdout);
    fflush(stdout);
  }
  const ptrdiff_t n = interrupt_input() ? console_line(line, room) : -1;
  if (n < 0) {
    if (c->terminal) putchar('\n');
    return false;
  }
  if (c->terminal) interrupt_forget();
  *bytes = (size_t)n;
  if (*bytes && (*line)[*bytes - 1] == '\n') (*line)[--*bytes] = 0;
  if (*bytes && (*line)[*bytes - 1] == '\r') (*line)[--*bytes] = 0;
  return true;
}

// Takes a line and saves --history. A new answer is always saved. A turn that is taken back is saved only if the file
// holds this branch. So a branch that has just been opened does not replace the file. A system text alone is not saved.
static int take_and_save(struct chat *c, const char *line, size_t bytes) {
  const struct node *before = chat_leaf(c);
  const uint32_t branch = c->branch, turns = node_turns(before);
  int code = take_line(c, line, bytes);
  if (!c->request->history || c->branch != branch || chat_leaf(c) == before) return code;
  const uint32_t now = node_turns(chat_leaf(c));
  const bool answered = now && now >= turns, taken_back = now < turns;
  if (!answered && !(taken_back && branch == c->file_branch)) return code;
  c->file_branch = branch;
  int saved = chat_save(c, c->request->history);
  return code ? code : saved;
}

// At a terminal a failure is a sentence, and the conversation goes on, unless the device is lost.
static int converse(struct chat *c) {
  char *line = NULL;
  size_t room = 0, bytes;
  int code = EXIT_OK;
  while (!c->ended) {
    if (!read_line(c, &line, &room, &bytes)) {
      if (interrupted() && c->terminal && !interrupt_final()) continue;
      if (interrupted()) code = EXIT_INTERRUPTED;
      break;
    }
    code = take_and_save(c, line, bytes);
    if (c->terminal && !c->ended && bytes && line[0] != '/') putchar('\n');
    if (!c->terminal || code == EXIT_DEVICE) {
      if (code) break;
    } else {
      code = EXIT_OK;
    }
  }
  free(line);
  return code;
}

int command_chat(int argc, char **argv) {
  struct chat_request r = {.engine = ENGINE_DEFAULTS, .choice = CHOICE_DEFAULTS, .tokens = 4096, .keep = 32};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("the conversation"),
      TEXT(0, "template", "NAME", &r.template, "the chat template; without it, the model's own, if it is known"),
      TEXT(0, "system", "TEXT", &r.system, "the system text that the conversation begins with"),
      TEXT(0, "history", "FILE", &r.history,
           "continue the conversation in this file, if it exists; the file is saved after every turn; the first answer "
           "in another branch replaces it"),
      TEXT(0, "thinking", "on|off", &r.thinking, "think before answers; without it, the template decides"),
      FLAG(0, "hide-thinking", &r.hide_thinking, "show answers only"),
      TEXTS(0, "stop", "TEXT", &r.stops, "end an answer before this text; may be repeated"),
      COUNT('n', "tokens", "N", &r.tokens, 1, 1u << 24, "the most tokens of an answer, with its thinking"),
      COUNT(0, "keep", "N", &r.keep, 1, 1u << 20,
            "keep the model's state of the last N turns; others are computed "
            "again when they are needed"),
      FLAG('q', "quiet", &r.engine.quiet, "print only failures, and what commands list, on standard error"),
      FLAG(0, "json", &r.as_json,
           "print a line of JSON for each answer instead of the stream; a line of input may be {\"question\": ...}"),
      CHOICE_OPTIONS(&r.choice),
      ENGINE_OPTIONS(&r.engine),
      COUNT('c', "context", "N", &r.engine.context, 0, 0,
            "most tokens of a conversation, for models whose state grows with it; 0: 16384"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  code = choice_read(&r.choice, &arguments);
  if (code) return code;
  if (arguments.count && r.engine.model)
    return complain(EXIT_USAGE, "two models, \"%s\" and \"%s\": one at a time", r.engine.model, arguments.items[0]);
  if (arguments.count) r.engine.model = arguments.items[0];
  struct voice voice = {.stop = NULL};
  struct chat chat = {.request = &r,
                      .voice = &voice,
                      .terminal = console_is_terminal(stdin) && console_is_terminal(stdout) && !r.as_json};
  chat.most_bytes = memory_for_states();
  code = open_chat(&chat);
  if (code) return close_chat(&chat, code);
  announce(&chat);
  setvbuf(stdin, NULL, _IONBF, 0); // interrupt_input() does not see what is in a buffer
  code = interrupt_prepare(chat.terminal);
  if (!code) code = converse(&chat);
  return close_chat(&chat, code);
}
