// demo: holds the table of demos.
#include "demo.h"
#include "command.h"
#include "common.h"
#include "help.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *summary;
} demos[] = {
    {"state-tracking", demo_state_tracking, "a DeltaProduct that multiplies in a group, without training"},
    {"recall", demo_recall, "a DeltaNet that remembers pairs of a key and a value, without training"},
};
enum { DEMOS = sizeof demos / sizeof *demos };

static void print_help(void) {
  printf("usage: deltaic demo NAME [options]\n\n"
         "Builds a checkpoint by construction, runs it, and checks every answer.\n\n"
         "demos:\n");
  for (int i = 0; i < DEMOS; ++i) printf("  %-16s%s\n", demos[i].name, demos[i].summary);
  printf("\n'deltaic demo NAME --help': all about one\n\n"
         "examples:\n"
         "  deltaic demo state-tracking --group S5\n"
         "  deltaic demo recall\n");
}

// Of the manual and the completion, the demos' parts.
static int print_demos(char *form) {
  int code = EXIT_OK;
  for (int i = 0; i < DEMOS && !code; ++i) code = demos[i].run(1, &form);
  if (help_form(form) == HELP_BASH) {
    printf("    'demo ') options='-h --help' words='");
    for (int i = 0; i < DEMOS; ++i) printf("%s ", demos[i].name);
    printf("' ;;\n");
  }
  return code;
}

int command_demo(int argc, char **argv) {
  const char *name = argc ? argv[0] : "", *names[DEMOS];
  if (help_form(name) == HELP_TEXT) {
    print_help();
    return EXIT_OK;
  }
  if (help_form(name)) return print_demos(argv[0]);
  for (int i = 0; i < DEMOS; ++i) {
    names[i] = demos[i].name;
    if (!strcmp(name, names[i])) return demos[i].run(argc - 1, argv + 1);
  }
  if (!*name) return complain(EXIT_USAGE, "no demo; 'deltaic demo --help' lists them");
  const char *meant = nearest_name(name, names, DEMOS);
  if (meant) return complain(EXIT_USAGE, "there is no demo \"%s\"; did you mean %s?", name, meant);
  return complain(EXIT_USAGE, "there is no demo \"%s\"; 'deltaic demo --help' lists them", name);
}
