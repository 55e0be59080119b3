// options: finds, checks and stores a command's options.
#include "options.h"
#include "common.h" // complain, exit codes
#include "help.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- values

static bool parse_u64(const char *text, uint64_t *out) {
  if (!isdigit((unsigned char)*text)) return false; // strtoull accepts signs and blanks
  char *end;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return !errno && !*end;
}

static bool parse_double(const char *text, double *out) {
  if (!isdigit((unsigned char)*text) && *text != '.') return false;
  if (text[strspn(text, "0123456789.eE+-")]) return false; // rejects hexadecimal and "inf"
  char *end;
  *out = strtod(text, &end);
  return !*end && isfinite(*out);
}

static bool in_range(const struct option *option, double value, double type_most) {
  bool bounded = option->least != 0 || option->most != 0;
  return value >= (bounded ? option->least : 0) && value <= (bounded && option->most != 0 ? option->most : type_most);
}

static bool store_count(const struct option *option, const char *value, uint32_t *out) {
  uint64_t number;
  if (!parse_u64(value, &number) || !in_range(option, (double)number, UINT32_MAX)) return false;
  *out = (uint32_t)number;
  return true;
}

static bool store_list(const struct option *option, const char *value, struct count_list *out) {
  struct count_list list = {.count = 0};
  for (;;) {
    char item[32];
    size_t length = strcspn(value, ",");
    if (!length || length >= sizeof item || list.count == LIST_CAPACITY) return false;
    memcpy(item, value, length);
    item[length] = 0;
    if (!store_count(option, item, &list.values[list.count++])) return false;
    if (!value[length]) break;
    value += length + 1;
  }
  *out = list;
  return true;
}

static bool store_text(const char *value, struct text_list *out) {
  if (!*value || out->count == LIST_CAPACITY) return false;
  out->items[out->count++] = value;
  return true;
}

static bool store(const struct option *option, const char *value) {
  double number;
  switch (option->kind) {
  case OPTION_FLAG: *(bool *)option->target = true; return true;
  case OPTION_COUNT: return store_count(option, value, option->target);
  case OPTION_COUNT64: return parse_u64(value, option->target) && *(uint64_t *)option->target <= INT64_MAX;
  case OPTION_NUMBER:
    if (!parse_double(value, &number) || !in_range(option, number, FLT_MAX)) return false;
    *(float *)option->target = (float)number;
    return true;
  case OPTION_TEXT:
  case OPTION_OUTPUT: *(const char **)option->target = value; return true;
  case OPTION_LIST: return store_list(option, value, option->target);
  case OPTION_TEXTS: return store_text(value, option->target);
  case OPTION_HEADING:
  case OPTION_END: break;
  }
  return false;
}

// Describes the accepted values, e.g. "a whole number from 1 to 100".
static void describe_values(const struct option *option, char *text, size_t capacity) {
  bool real = option->kind == OPTION_NUMBER;
  const char *noun = real                          ? "a number"
                     : option->kind == OPTION_LIST ? "up to 16 whole numbers with commas between, each"
                                                   : "a whole number";
  double most = option->most != 0 ? option->most : real ? 0 : option->kind == OPTION_COUNT64 ? 0 : UINT32_MAX;
  if (option->kind == OPTION_TEXTS)
    snprintf(text, capacity, "up to %d texts, none empty", LIST_CAPACITY);
  else if (most != 0)
    snprintf(text, capacity, "%s from %g to %.10g", noun, option->least, most);
  else if (real)
    snprintf(text, capacity, "%s of at least %g", noun, option->least);
  else
    snprintf(text, capacity, "%s below 2^63", noun);
}

// ---------------------------------------------------------------- parsing of argv

struct walk {
  const struct option *options;
  int argc, at;
  char **argv;
  const char *cluster; // the rest of "-qj" after -q
  bool only_arguments; // after "--"
};

struct item {
  const struct option *option; // NULL: an argument
  const char *text;            // the option's value, or the argument
  char spelling[64];           // the option as typed: "--tokens"
  enum help_form help;
};

enum step { STEP_ITEM, STEP_END, STEP_ERROR };

static const struct option *find_letter(const struct option *options, char letter) {
  for (; options->kind != OPTION_END; ++options)
    if (options->kind != OPTION_HEADING && options->letter == letter) return options;
  return NULL;
}

static const struct option *find_name(const struct option *options, const char *name, size_t length) {
  for (; options->kind != OPTION_END; ++options)
    if (options->kind != OPTION_HEADING && strlen(options->name) == length && !memcmp(options->name, name, length))
      return options;
  return NULL;
}

// Takes the next word of argv as the value of item->option.
static enum step take_value(struct walk *walk, struct item *item, bool speak) {
  if (walk->at < walk->argc) {
    item->text = walk->argv[walk->at++];
    return STEP_ITEM;
  }
  if (speak) complain(EXIT_USAGE, "%s needs a value: %s %s", item->spelling, item->spelling, item->option->value);
  return STEP_ERROR;
}

static enum step step_letter(struct walk *walk, struct item *item, bool speak) {
  char letter = *walk->cluster++;
  const char *rest = *walk->cluster ? walk->cluster : NULL;
  snprintf(item->spelling, sizeof item->spelling, "-%c", letter);
  item->help = letter == 'h' ? HELP_TEXT : HELP_NONE;
  item->option = find_letter(walk->options, letter);
  bool takes_value = item->option && item->option->kind != OPTION_FLAG;
  walk->cluster = takes_value ? NULL : rest;
  if (item->help) return STEP_ITEM;
  if (!item->option) {
    if (speak) complain(EXIT_USAGE, "there is no option %s; --help lists them", item->spelling);
    return STEP_ERROR;
  }
  if (!takes_value) return STEP_ITEM;
  item->text = rest;
  return rest ? STEP_ITEM : take_value(walk, item, speak);
}

static void complain_unknown(const struct option *options, const char *spelling) {
  const char *names[OPTIONS_CAPACITY];
  size_t count = 0;
  for (; options->kind != OPTION_END && count < OPTIONS_CAPACITY; ++options)
    if (options->kind != OPTION_HEADING) names[count++] = options->name;
  const char *meant = nearest_name(spelling + 2, names, count);
  if (meant)
    complain(EXIT_USAGE, "there is no option %s; did you mean --%s?", spelling, meant);
  else
    complain(EXIT_USAGE, "there is no option %s; --help lists them", spelling);
}

static enum step step_name(struct walk *walk, struct item *item, const char *word, bool speak) {
  size_t length = strcspn(word, "=");
  snprintf(item->spelling, sizeof item->spelling, "--%.*s", (int)(length < 60 ? length : 60), word);
  item->help = help_form(word - 2);
  item->option = find_name(walk->options, word, length);
  if (item->help) return STEP_ITEM;
  if (!item->option) {
    if (speak) complain_unknown(walk->options, item->spelling);
    return STEP_ERROR;
  }
  if (word[length]) item->text = word + length + 1;
  if (item->option->kind == OPTION_FLAG) {
    if (!item->text) return STEP_ITEM;
    if (speak) complain(EXIT_USAGE, "%s takes no value", item->spelling);
    return STEP_ERROR;
  }
  return item->text ? STEP_ITEM : take_value(walk, item, speak);
}

static enum step step(struct walk *walk, struct item *item, bool speak) {
  *item = (struct item){0};
  if (walk->cluster) return step_letter(walk, item, speak);
  if (walk->at >= walk->argc) return STEP_END;
  char *word = walk->argv[walk->at++];
  if (walk->only_arguments || word[0] != '-' || !word[1]) {
    item->text = word;
    return STEP_ITEM;
  }
  if (word[1] != '-') {
    walk->cluster = word + 1;
    return step_letter(walk, item, speak);
  }
  if (word[2]) return step_name(walk, item, word + 2, speak);
  walk->only_arguments = true;
  return step(walk, item, speak);
}

// --help is handled before any value is stored, so that it shows the defaults.
static enum help_form asked_help(struct walk walk) {
  struct item item;
  while (step(&walk, &item, false) == STEP_ITEM)
    if (item.help) return item.help;
  return HELP_NONE;
}

bool option_given(const struct arguments *arguments, const char *name) {
  for (size_t i = 0; i < arguments->given_count; ++i)
    if (!strcmp(arguments->given[i], name)) return true;
  return false;
}

const char *option_given_of(const struct arguments *arguments, const char *const *names) {
  while (*names && !option_given(arguments, *names)) ++names;
  return *names;
}

static bool store_item(const struct item *item, struct arguments *arguments) {
  const struct option *option = item->option;
  if (option->once && option_given(arguments, option->name)) {
    complain(EXIT_USAGE, "%s may be given only once", item->spelling);
    return false;
  }
  if (!store(option, item->text)) {
    char values[120];
    describe_values(option, values, sizeof values);
    complain(EXIT_USAGE, "%s takes %s, not \"%s\"", item->spelling, values, item->text);
    return false;
  }
  if (!option_given(arguments, option->name) && arguments->given_count < OPTIONS_CAPACITY)
    arguments->given[arguments->given_count++] = option->name;
  return true;
}

static bool store_argument(const struct usage *usage, struct arguments *arguments, const char *text) {
  if (!*text) { // an unset shell variable
    complain(EXIT_USAGE, "an argument is empty; usage: deltaic %s %s", usage->name, usage->arguments);
    return false;
  }
  if (arguments->count == usage->most_arguments) {
    if (arguments->count == ARGUMENTS_CAPACITY)
      complain(EXIT_USAGE, "\"%s\" is one argument too many: %d are the most", text, ARGUMENTS_CAPACITY);
    else
      complain(EXIT_USAGE, "unexpected argument \"%s\"; usage: deltaic %s %s", text, usage->name, usage->arguments);
    return false;
  }
  arguments->items[arguments->count++] = text;
  return true;
}

static int check_outputs(const struct option *options) {
  int code = EXIT_OK;
  for (; options->kind != OPTION_END && !code; ++options)
    if (options->kind == OPTION_OUTPUT && *(const char **)options->target)
      code = output_check(*(const char **)options->target);
  return code;
}

bool options_parse(const struct usage *usage, const struct option *options, int argc, char **argv,
                   struct arguments *arguments, int *code) {
  struct walk walk = {.options = options, .argc = argc, .argv = argv};
  struct item item;
  enum step result;
  *arguments = (struct arguments){.count = 0, .given_count = 0};
  enum help_form help = asked_help(walk);
  if (help) {
    help_print(help, usage, options);
    *code = EXIT_OK;
    return false;
  }
  *code = EXIT_USAGE;
  while ((result = step(&walk, &item, true)) == STEP_ITEM)
    if (!(item.option ? store_item(&item, arguments) : store_argument(usage, arguments, item.text))) return false;
  if (result != STEP_END) return false;
  *code = check_outputs(options);
  return !*code;
}

// ---------------------------------------------------------------- suggestions

static size_t least3(size_t a, size_t b, size_t c) {
  size_t least = a < b ? a : b;
  return least < c ? least : c;
}

// Computes the Levenshtein distance row by row; SIZE_MAX if a word has 32 bytes or more.
static size_t edit_distance(const char *a, const char *b) {
  size_t row[32], n = strlen(b);
  if (n >= 32 || strlen(a) >= 32) return SIZE_MAX;
  for (size_t j = 0; j <= n; ++j) row[j] = j;
  for (size_t i = 1; *a; ++i, ++a) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= n; ++j) {
      size_t above = row[j];
      row[j] = least3(above + 1, row[j - 1] + 1, diagonal + (*a != b[j - 1]));
      diagonal = above;
    }
  }
  return row[n];
}

const char *nearest_name(const char *word, const char *const *names, size_t count) {
  const char *nearest = NULL;
  size_t least = 3; // a word with more than two errors is a different word
  for (size_t i = 0; i < count; ++i) {
    size_t distance = edit_distance(word, names[i]);
    if (distance >= least) continue;
    least = distance;
    nearest = names[i];
  }
  return nearest;
}
