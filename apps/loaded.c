// loaded: the commands that need LAPACK or an HTTP library. They are in plugins, so that no other command loads these.
#include "command.h"
#include "common.h"
#include "help.h"
#include "plugin.h"

// Why this build has no such plugin, or NULL if it has one.
static const char *missing(enum plugin plugin) {
#ifndef DELTAIC_COMMANDS
  if (plugin == PLUGIN_COMMANDS)
    return "this build is without LAPACK, which this command needs (CMake's option DELTAIC_PRUNER)";
#endif
#ifndef DELTAIC_SERVER
  if (plugin == PLUGIN_SERVE)
    return "this build has no server: libmicrohttpd, hiredis and OpenSSL were not there when it was made (Debian: "
           "libmicrohttpd-dev, libhiredis-dev, libssl-dev)";
#endif
  (void)plugin;
  return NULL;
}

static int run_loaded(enum plugin plugin, const char *name, int argc, char **argv) {
  const char *why = missing(plugin), *error = NULL;
  if (why && argc && help_form(argv[0]) > HELP_TEXT) return EXIT_OK; // the manual and the completion are without it
  if (why) return complain(EXIT_FAILED, "%s", why);
  plugin_command command = plugin_load(plugin, &error);
  if (!command) return complain(EXIT_FAILED, "this command is in a plugin, which cannot be loaded: %s", error);
  return command(name, argc, argv);
}

int command_prune(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "prune", argc, argv); }
int command_tune(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "tune", argc, argv); }
int command_validate_gradients(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "validate", argc, argv); }
int command_rank(int argc, char **argv) { return run_loaded(PLUGIN_COMMANDS, "rank", argc, argv); }
int command_serve(int argc, char **argv) { return run_loaded(PLUGIN_SERVE, "serve", argc, argv); }
