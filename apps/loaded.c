// loaded: the commands that need LAPACK. They are in a plugin, so that no other command loads LAPACK.
#include "command.h"
#include "common.h"
#include "plugin.h"

static int run_loaded(const char *name, int argc, char **argv) {
  const char *error = NULL;
  plugin_command command = plugin_load(&error);
  if (!command) return complain(EXIT_FAILED, "this command is in a plugin, which cannot be loaded: %s", error);
  return command(name, argc, argv);
}

int command_prune(int argc, char **argv) { return run_loaded("prune", argc, argv); }
int command_rank(int argc, char **argv) { return run_loaded("rank", argc, argv); }
