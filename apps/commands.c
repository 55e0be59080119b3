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
  return interrupt_code(strcmp(name, "prune") ? command_rank(argc, argv) : command_prune(argc, argv));
}
