// options.h: declares a command's options as a table, from which parsing, checking and --help are derived.
#ifndef OPTIONS_H
#define OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
  OPTION_HEADING, // not an option: a heading in the help
  OPTION_FLAG,    // bool
  OPTION_COUNT,   // uint32_t
  OPTION_COUNT64, // uint64_t below 2^63, the limit of JSON readers
  OPTION_NUMBER,  // float
  OPTION_TEXT,    // const char *
  OPTION_OUTPUT,  // const char *: a file to write; refused before any work if it cannot be written
  OPTION_LIST,    // struct count_list: 128,512
  OPTION_TEXTS,   // struct text_list: the option may be repeated
  OPTION_END      // ends the table
};

enum { LIST_CAPACITY = 16, ARGUMENTS_CAPACITY = 16, OPTIONS_CAPACITY = 64 };

struct count_list {
  uint32_t values[LIST_CAPACITY];
  size_t count;
};

struct text_list {
  const char *items[LIST_CAPACITY];
  size_t count;
};

struct option {
  enum option_kind kind;
  char letter;        // 'n' for -n; 0: none
  const char *name;   // "tokens" for --tokens, or the text of a heading
  const char *value;  // name of the value in the help: "N"
  const char *help;   // the initial value of `target` is appended as the default, except 0 and UINT32_MAX
  void *target;       // has the type of the kind; holds the default
  double least, most; // limits of counts and numbers; both 0: the limits of the type
  bool once;          // given twice is an error; otherwise the last one counts
};

struct usage {
  const char *name;      // "generate"
  const char *arguments; // "[options] FILE"
  const char *summary;   // one line
  const char *text;      // further help text; may be NULL
  const char *examples;
  size_t most_arguments; // the largest number of arguments that are not options
};

// Rows of a table. The compound literals check the target's type. letter 0: no letter.
#define HEADING(text)                                                                                                  \
  { .kind = OPTION_HEADING, .name = text }
#define OPTION(kind_, type, letter_, name_, value_, target_, help_)                                                    \
  .kind = kind_, .letter = letter_, .name = name_, .value = value_, .target = (type *){target_}, .help = help_
#define FLAG(letter, name, target, help)                                                                               \
  { OPTION(OPTION_FLAG, bool, letter, name, NULL, target, help) }
#define TEXT(letter, name, value, target, help)                                                                        \
  { OPTION(OPTION_TEXT, const char *, letter, name, value, target, help) }
#define ONCE(letter, name, value, target, help)                                                                        \
  { OPTION(OPTION_TEXT, const char *, letter, name, value, target, help), .once = true }
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
#define TEXTS(letter, name, value, target, help)                                                                       \
  { OPTION(OPTION_TEXTS, struct text_list, letter, name, value, target, help) }
#define OPTIONS_END                                                                                                    \
  { .kind = OPTION_END }

// The arguments that are not options ("-" included), and the names of the given options, each once.
struct arguments {
  const char *items[ARGUMENTS_CAPACITY], *given[OPTIONS_CAPACITY];
  size_t count, given_count;
};
bool option_given(const struct arguments *arguments, const char *name);
// Returns the first of the NULL-terminated `names` that was given, or NULL.
const char *option_given_of(const struct arguments *arguments, const char *const *names);

// argv: without the command's name. If it returns false, exit with *code; the message or help has been printed.
bool options_parse(const struct usage *usage, const struct option *options, int argc, char **argv,
                   struct arguments *arguments, int *code);
// Returns the name that is most similar to `word`, or NULL if none is similar enough.
const char *nearest_name(const char *word, const char *const *names, size_t count);
#endif
