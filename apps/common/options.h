// options.h: a command's options as a table. Parsing, checking and --help all come from it.
#ifndef OPTIONS_H
#define OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
  OPTION_HEADING, // no option: a line of the help
  OPTION_FLAG,    // bool
  OPTION_COUNT,   // uint32_t
  OPTION_COUNT64, // uint64_t, below 2^63: what JSON readers hold
  OPTION_NUMBER,  // float
  OPTION_TEXT,    // const char *
  OPTION_OUTPUT,  // the same: a file to write, refused before any work when that cannot be
  OPTION_LIST,    // struct count_list: 128,512
  OPTION_END      // ends the table
};

enum { LIST_CAPACITY = 16, ARGUMENTS_CAPACITY = 16, OPTIONS_CAPACITY = 64 };

struct count_list {
  uint32_t values[LIST_CAPACITY];
  size_t count;
};

struct option {
  enum option_kind kind;
  char letter;        // 'n' for -n; 0: none
  const char *name;   // "tokens" for --tokens; the text of a heading
  const char *value;  // what the help calls the value: "N"
  const char *help;   // the value that `target` begins with is added as the default, unless it is zero
  void *target;       // of the kind's type; holds the default
  double least, most; // of counts and numbers; both 0: whatever the type holds
};

struct usage {
  const char *name;      // "generate"
  const char *arguments; // "[options] FILE"
  const char *summary;   // one line
  const char *text;      // what one must know; may be NULL
  const char *examples;
  size_t most_arguments; // besides options
};

// Rows of a table; the compound literals check the target's type. letter 0: none.
#define HEADING(text)                                                                                                  \
  { .kind = OPTION_HEADING, .name = text }
#define OPTION(kind_, type, letter_, name_, value_, target_, help_)                                                    \
  .kind = kind_, .letter = letter_, .name = name_, .value = value_, .target = (type *){target_}, .help = help_
#define FLAG(letter, name, target, help)                                                                               \
  { OPTION(OPTION_FLAG, bool, letter, name, NULL, target, help) }
#define TEXT(letter, name, value, target, help)                                                                        \
  { OPTION(OPTION_TEXT, const char *, letter, name, value, target, help) }
#define OUTPUT(letter, name, value, target, help)                                                                      \
  { OPTION(OPTION_OUTPUT, const char *, letter, name, value, target, help) }
#define COUNT(letter, name, value, target, least_, most_, help)                                                        \
  { OPTION(OPTION_COUNT, uint32_t, letter, name, value, target, help), .least = least_, .most = most_ }
#define COUNT64(letter, name, value, target, help)                                                                     \
  { OPTION(OPTION_COUNT64, uint64_t, letter, name, value, target, help) }
#define NUMBER(letter, name, value, target, most_, help)                                                               \
  { OPTION(OPTION_NUMBER, float, letter, name, value, target, help), .most = most_ }
#define LIST(letter, name, value, target, least_, most_, help)                                                         \
  { OPTION(OPTION_LIST, struct count_list, letter, name, value, target, help), .least = least_, .most = most_ }
#define OPTIONS_END                                                                                                    \
  { .kind = OPTION_END }

// What is not an option, "-" too; and which options are there, by name, each once.
struct arguments {
  const char *items[ARGUMENTS_CAPACITY], *given[OPTIONS_CAPACITY];
  size_t count, given_count;
};
bool option_given(const struct arguments *arguments, const char *name);
// The first of `names`, which end with NULL, that is there; NULL: none.
const char *option_given_of(const struct arguments *arguments, const char *const *names);

// argv: without the command's name. false: leave with *code, everything has been said (--help, or a mistake).
bool options_parse(const struct usage *usage, const struct option *options, int argc, char **argv,
                   struct arguments *arguments, int *code);
// The name that `word` was probably meant to be, or NULL.
const char *nearest_name(const char *word, const char *const *names, size_t count);
// Prints text with `indent` spaces before every line, broken between words; *column is where the cursor is.
void print_wrapped(const char *text, int indent, int *column);
#endif
