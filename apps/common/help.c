// help: prints what a command's usage and table of options say.
#include "help.h"

#include <stdio.h>
#include <string.h>

enum { HELP_WIDTH = 80, HELP_COLUMN = 30 };

enum help_form help_form(const char *word) {
  if (!strcmp(word, "--help") || !strcmp(word, "-h")) return HELP_TEXT;
  if (!strcmp(word, "--help=man")) return HELP_MAN;
  return strcmp(word, "--help=bash") ? HELP_NONE : HELP_BASH;
}

// ---------------------------------------------------------------- text

// Prints one line. If it begins with spaces, its continuation rows are indented by two more.
static void print_line(const char *text, const char *end, int indent, int *column) {
  int spaces = (int)strspn(text, " "), from = indent + spaces;
  text += spaces;
  while (text < end) {
    size_t word = strcspn(text, " \n");
    if (*column > from && *column + 1 + (int)word > HELP_WIDTH) {
      putchar('\n');
      *column = 0;
      from = indent + (spaces ? spaces + 2 : 0);
    }
    if (*column < from)
      *column += printf("%*s", from - *column, "");
    else if (word && *column > from)
      *column += printf(" ");
    *column += printf("%.*s", (int)word, text);
    text += word;
    if (text < end) ++text;
  }
  putchar('\n');
  *column = 0;
}

void print_wrapped(const char *text, int indent, int *column) {
  const char *end = text + strcspn(text, "\n");
  for (; *end; text = end + 1, end = text + strcspn(text, "\n")) print_line(text, end, indent, column);
  print_line(text, end, indent, column);
}

static void default_text(const struct option *option, char *text, size_t capacity) {
  *text = 0;
  if (option->kind == OPTION_COUNT && *(uint32_t *)option->target && *(uint32_t *)option->target != UINT32_MAX)
    snprintf(text, capacity, " (default %u)", *(uint32_t *)option->target);
  if (option->kind == OPTION_NUMBER && *(float *)option->target > 0)
    snprintf(text, capacity, " (default %g)", *(float *)option->target);
  if (option->kind == OPTION_TEXT && *(const char **)option->target)
    snprintf(text, capacity, " (default %s)", *(const char **)option->target);
  if (option->kind != OPTION_LIST) return;
  const struct count_list *list = option->target;
  int used = 0;
  for (size_t i = 0; i < list->count && used < (int)capacity; ++i)
    used += snprintf(text + used, capacity - (size_t)used, "%s%u", i ? "," : " (default ", list->values[i]);
  if (used && used < (int)capacity) snprintf(text + used, capacity - (size_t)used, ")");
}

static void option_help(const struct option *option) {
  if (option->kind == OPTION_HEADING) {
    printf("\n%s:\n", option->name);
    return;
  }
  char fallback[200], help[1000];
  default_text(option, fallback, sizeof fallback);
  snprintf(help, sizeof help, "%s%s", option->help, fallback);
  int column =
      option->letter ? printf("  -%c, --%s", option->letter, option->name) : printf("      --%s", option->name);
  if (option->value) column += printf(" %s", option->value);
  if (column >= HELP_COLUMN - 1) {
    putchar('\n');
    column = 0;
  }
  print_wrapped(help, HELP_COLUMN, &column);
}

static void print_help(const struct usage *usage, const struct option *options) {
  int column = 0;
  printf("usage: deltaic %s %s\n\n", usage->name, usage->arguments);
  print_wrapped(usage->summary, 0, &column);
  if (usage->text) {
    putchar('\n');
    print_wrapped(usage->text, 0, &column);
  }
  for (const struct option *o = options; o->kind != OPTION_END; ++o) option_help(o);
  printf("  -h, --help%*sthis text\n", HELP_COLUMN - 12, "");
  printf("\nexamples:\n%s", usage->examples);
}

// ---------------------------------------------------------------- roff

static void man_character(char c) {
  switch (c) {
  case '\\': fputs("\\e", stdout); break;
  case '-': fputs("\\-", stdout); break; // a hyphen would not be found again, nor copied, as a minus
  case '\'': fputs("\\(aq", stdout); break;
  case '"': fputs("\\(dq", stdout); break;
  case '`': fputs("\\(ga", stdout); break;
  case '^': fputs("\\(ha", stdout); break;
  case '~': fputs("\\(ti", stdout); break;
  default: putchar(c);
  }
}

static void man_characters(const char *text, size_t count) {
  if (count && *text == '.') fputs("\\&", stdout);
  for (size_t i = 0; i < count; ++i) man_character(text[i]);
}

void man_line(const char *request, const char *text) {
  fputs(request, stdout);
  man_characters(text, strlen(text));
  putchar('\n');
}

void man_text(const char *text) {
  bool begins = true;
  while (*text) {
    size_t count = strcspn(text, "\n"), spaces = strspn(text, " ");
    if (begins || spaces) puts(begins ? ".PP" : ".br");
    if (count > spaces) {
      man_characters(text + spaces, count - spaces);
      putchar('\n');
    }
    begins = !count;
    text += count;
    if (*text) ++text;
  }
}

void man_example(const char *text) {
  puts(".PP\n.nf");
  while (*text) {
    size_t count = strcspn(text, "\n");
    man_characters(text, count);
    putchar('\n');
    text += count;
    if (*text) ++text;
  }
  puts(".fi");
}

static void man_option(const struct option *option) {
  char fallback[200], letter[8] = "";
  if (option->kind == OPTION_HEADING) {
    man_line(".PP\n.I ", option->name);
    return;
  }
  default_text(option, fallback, sizeof fallback);
  if (option->letter) snprintf(letter, sizeof letter, "\\-%c, ", option->letter);
  printf(".TP\n\\fB%s\\-\\-", letter);
  man_characters(option->name, strlen(option->name));
  printf("\\fR%s", option->value ? " \\fI" : "");
  man_line("", option->value ? option->value : "");
  man_line("\\fR", option->help);
  if (*fallback) man_line("", fallback + 1);
}

static void print_man(const struct usage *usage, const struct option *options) {
  man_line(".SS deltaic ", usage->name);
  printf(".PP\n.B deltaic ");
  man_line("", usage->name);
  man_line("", usage->arguments);
  man_text(usage->summary);
  if (usage->text) man_text(usage->text);
  for (const struct option *o = options; o->kind != OPTION_END; ++o) man_option(o);
  man_example(usage->examples);
}

// ---------------------------------------------------------------- bash

static void print_bash(const struct usage *usage, const struct option *options) {
  printf("    '%s '*) options='", usage->name);
  for (const struct option *o = options; o->kind != OPTION_END; ++o) {
    if (o->kind == OPTION_HEADING) continue;
    if (o->letter) printf("-%c ", o->letter);
    printf("--%s ", o->name);
  }
  printf("-h --help' ;;\n");
}

void help_print(enum help_form form, const struct usage *usage, const struct option *options) {
  if (form == HELP_MAN)
    print_man(usage, options);
  else if (form == HELP_BASH)
    print_bash(usage, options);
  else
    print_help(usage, options);
}
