// loaded: the commands that need LAPACK or an HTTP library. They are in plugins, so that no other command loads these.
#include "command.h"
#include "common.h"
#include "help.h"
#include "plugin.h"

static int run_loaded(enum plugin plugin, const char *name, int argc, char **argv) {
  const char *error = NULL;
  plugin_command command = plugin_load(plugin, &error);
  if (!command) return complain(EXIT_FAILED, "this command is in a plugin, which cannot be loaded: %s", error);
  return command(name, argc, argv);
}

int command_prune(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "prune", argc, argv); }
int command_tune(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "tune", argc, argv); }
int command_validate_gradients(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "validate", argc, argv); }
int command_rank(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "rank", argc, argv); }

int command_serve(int argc, char **argv) {
#ifdef DELTAIC_SERVER
  return run_loaded(PLUGIN_SERVE, "serve", argc, argv);
#else
  if (argc && help_form(argv[0]) > HELP_TEXT) return EXIT_OK; // the manual and the completion are without it
  return complain(EXIT_FAILED, "this build has no server: libmicrohttpd and hiredis were not there when it was made "
                               "(Debian: libmicrohttpd-dev, libhiredis-dev)");
#endif
}
