// commands: the plugin deltaic_commands.so, which has the commands that need LAPACK, and its own copy of apps/common.
#include "command.h"
#include "common.h"

#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

EXPORTED int deltaic_command(const char *name, int argc, char **argv);

int deltaic_command(const char *name, int argc, char **argv) {
  complain_as(name);
  int (*const run)(int, char **) = !strcmp(name, "prune")      ? command_prune
                                   : !strcmp(name, "tune")     ? command_tune
                                   : !strcmp(name, "validate") ? command_validate_gradients
                                                               : command_rank;
  return interrupt_code(run(argc, argv));
}
