// help.h: declares how commands describe themselves: as help, as a section of the manual, as completion for bash.
#ifndef HELP_H
#define HELP_H
#include "options.h"

enum help_form {
  HELP_NONE,
  HELP_TEXT, // --help, -h
  HELP_MAN,  // --help=man: roff with the macros of man(7)
  HELP_BASH  // --help=bash: a branch of the case in which a completion chooses its words
};

// The form that this word of the command line asks for.
enum help_form help_form(const char *word);
// Prints one command.
void help_print(enum help_form form, const struct usage *usage, const struct option *options);

// Prints text wrapped between words with `indent` spaces before every line; *column is the cursor's column.
void print_wrapped(const char *text, int indent, int *column);
// Prints a line of roff: a request, such as ".SS ", and its text, in which nothing is a request or an escape.
void man_line(const char *request, const char *text);
// Prints paragraphs. Lines that begin with spaces stay lines of their own.
void man_text(const char *text);
// Prints lines as they are.
void man_example(const char *text);
#endif
