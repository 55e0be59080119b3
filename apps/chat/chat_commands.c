// chat_commands: the lines of a conversation that begin with a slash.
#include "chat.h"
#include "common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void note(const struct chat *c, const char *format, ...) {
  va_list arguments;
  if (c->request->engine.quiet) return;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

struct turns_text {
  char text[24]; // "3 turns"
};
static struct turns_text turns_text(const struct node *node) {
  struct turns_text out;
  const uint32_t turns = node_turns(node);
  snprintf(out.text, sizeof out.text, "%u turn%s", turns, turns == 1 ? "" : "s");
  return out;
}

// The node `turns` answers before the end of the branch.
static struct node *node_back(const struct chat *c, uint32_t turns) {
  struct node *node = chat_leaf(c);
  for (; turns && node->parent; --turns) node = node->parent;
  return turns ? NULL : node;
}

static const struct node *first_of(const struct node *node) {
  while (node->parent) node = node->parent;
  return node;
}

// A whole number from 1; `missing` if there is no text. 0: neither.
static uint32_t number(const char *text, uint32_t missing) {
  char *end;
  if (!*text) return missing;
  unsigned long n = strtoul(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && n <= 1000000 ? (uint32_t)n : 0;
}

static int undo(struct chat *c, const char *text) {
  uint32_t turns = number(text, 1);
  if (!turns) return complain(EXIT_FAILED, "/undo takes a number of turns, not \"%s\"", text);
  struct node *node = node_back(c, turns);
  if (!node) return complain(EXIT_FAILED, "/undo %u: the conversation has %s", turns, turns_text(chat_leaf(c)).text);
  chat_move(c, node);
  note(c, "%s left", turns_text(node).text);
  return EXIT_OK;
}

static int retry(struct chat *c, const char *text) {
  struct node *leaf = chat_leaf(c);
  struct bytes question = {0};
  if (*text) return complain(EXIT_FAILED, "/retry takes nothing, not \"%s\"", text);
  if (!leaf->parent) return complain(EXIT_FAILED, "/retry: nothing has been asked");
  bytes_add(&question, leaf->question.data, leaf->question.size);
  node_use(leaf);
  chat_move(c, leaf->parent);
  int code = chat_ask(c, question.data, question.size);
  if (chat_leaf(c) == leaf->parent) chat_move(c, leaf); // there is no new answer: the old one stays
  node_drop(c, leaf);
  free(question.data);
  return code;
}

static int fork_branch(struct chat *c, const char *text) {
  uint32_t from = c->branch + 1, turns = number(text, 1);
  struct node *node = *text ? node_back(c, turns) : chat_leaf(c);
  if (!turns || !node) return complain(EXIT_FAILED, "/fork takes a number of turns to go back, not \"%s\"", text);
  if (!chat_open_branch(c, node)) return EXIT_FAILED;
  note(c, "branch %u goes on from branch %u, turn %u", c->branch + 1, from, node_turns(node));
  return EXIT_OK;
}

static int list_branches(struct chat *c, const char *text) {
  if (*text) return complain(EXIT_FAILED, "/branches takes nothing, not \"%s\"", text);
  for (uint32_t i = 0; i < c->branch_count; ++i) {
    const struct node *leaf = c->branches[i];
    fprintf(stderr, "%c %u  %s%s%.60s\n", i == c->branch ? '*' : ' ', i + 1, turns_text(leaf).text,
            leaf->parent ? ", the last: " : "", leaf->parent ? leaf->question.data : "");
  }
  return EXIT_OK;
}

static int switch_branch(struct chat *c, const char *text) {
  uint32_t n = number(text, 0);
  if (!n || n > c->branch_count)
    return complain(EXIT_FAILED, "/switch takes a branch from 1 to %u, not \"%s\"", c->branch_count, text);
  c->branch = n - 1;
  note(c, "branch %u, %s", n, turns_text(chat_leaf(c)).text);
  return EXIT_OK;
}

static int set_system(struct chat *c, const char *text) {
  const struct node *first = first_of(chat_leaf(c));
  if (!*text) {
    fprintf(stderr, "%s\n", first->has_system ? first->question.data : "no system text; the template may have its own");
    return EXIT_OK;
  }
  struct node *node = node_first(text, strlen(text));
  if (chat_leaf(c)->parent) {
    if (!chat_open_branch(c, node)) return EXIT_FAILED;
    note(c, "a new conversation, branch %u", c->branch + 1);
  } else {
    chat_move(c, node);
  }
  return EXIT_OK;
}

static int begin_anew(struct chat *c, const char *text) {
  const struct node *first = first_of(chat_leaf(c));
  if (*text) return complain(EXIT_FAILED, "/new takes nothing, not \"%s\"", text);
  struct node *node = node_first(first->has_system ? first->question.data : NULL, first->question.size);
  if (!chat_open_branch(c, node)) return EXIT_FAILED;
  note(c, "a new conversation, branch %u", c->branch + 1);
  return EXIT_OK;
}

static int save(struct chat *c, const char *text) {
  if (!*text) return complain(EXIT_FAILED, "/save takes a file");
  int code = chat_save(c, text);
  if (!code) note(c, "saved in %s", text);
  return code;
}

static int load(struct chat *c, const char *text) {
  if (!*text) return complain(EXIT_FAILED, "/load takes a file");
  int code = chat_load(c, text);
  if (!code) note(c, "branch %u, %s", c->branch + 1, turns_text(chat_leaf(c)).text);
  return code;
}

static int set_thinking(struct chat *c, const char *text) {
  deltaic_thinking wish = !strcmp(text, "on")    ? DELTAIC_THINKING_ON
                          : !strcmp(text, "off") ? DELTAIC_THINKING_OFF
                                                 : DELTAIC_THINKING_DEFAULT;
  if (!wish) return complain(EXIT_FAILED, "/thinking takes on or off, not \"%s\"", text);
  if (wish == DELTAIC_THINKING_ON ? !c->info.thinking_on : !c->info.thinking_off)
    return complain(EXIT_FAILED, "template %s: it cannot turn thinking %s", c->info.name, text);
  c->thinking = wish;
  return EXIT_OK;
}

static int quit(struct chat *c, const char *text) {
  (void)text;
  c->ended = true;
  return EXIT_OK;
}

static int help(struct chat *c, const char *text);

static const struct command {
  const char *name, *value;
  int (*run)(struct chat *c, const char *text);
  const char *help;
} commands[] = {
    {"/undo", "[N]", undo, "take the last turn back, or the last N"},
    {"/retry", "", retry, "ask the last question again"},
    {"/fork", "[N]", fork_branch, "open a branch here, or N turns before; this one stays as it is"},
    {"/branches", "", list_branches, "list the branches"},
    {"/switch", "N", switch_branch, "go to branch N"},
    {"/system", "[TEXT]", set_system, "show the system text; TEXT: begin a conversation with it"},
    {"/new", "", begin_anew, "begin a conversation with the same system text"},
    {"/save", "FILE", save, "save the conversation with the model's state"},
    {"/load", "FILE", load, "go on with a saved conversation, in a branch of its own"},
    {"/thinking", "on|off", set_thinking, "of the next answers"},
    {"/quit", "", quit, "end; so does the end of the input (Ctrl-D)"},
    {"/help", "", help, "this text"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int help(struct chat *c, const char *text) {
  (void)c, (void)text;
  for (int i = 0; i < COMMANDS; ++i) {
    int column = fprintf(stderr, "  %s %s", commands[i].name, commands[i].value);
    fprintf(stderr, "%*s%s\n", 22 - column, "", commands[i].help);
  }
  fprintf(stderr, "  //...               a line that begins with a slash\n"
                  "Ctrl-C stops an answer. Nothing is computed again after /undo, /fork and /load.\n");
  return EXIT_OK;
}

int chat_command(struct chat *c, const char *line) {
  const size_t length = strcspn(line, " ");
  const char *value = line + length + strspn(line + length, " ");
  const char *names[COMMANDS];
  char word[32];
  for (int i = 0; i < COMMANDS; ++i) {
    names[i] = commands[i].name;
    if (strlen(names[i]) == length && !memcmp(names[i], line, length)) return commands[i].run(c, value);
  }
  snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), line);
  const char *meant = nearest_name(word, names, COMMANDS);
  if (meant) return complain(EXIT_FAILED, "there is no %s; did you mean %s?", word, meant);
  return complain(EXIT_FAILED, "there is no %s; /help lists the commands", word);
}
