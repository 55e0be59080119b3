// plugin.h: declares how the program gets the commands of its plugins.
#ifndef PLUGIN_H
#define PLUGIN_H

// The plugins: commands that need LAPACK (apps/commands.c), and the server, which needs an HTTP library
// (apps/serving.c).
enum plugin { PLUGIN_COMMANDS, PLUGIN_SERVE };

// Runs a command of the plugin: its deltaic_command().
typedef int (*plugin_command)(const char *name, int argc, char **argv);

// Loads the plugin and returns its deltaic_command(), or NULL and a sentence that is valid until the next call.
// plugin_posix.c, plugin_windows.c
plugin_command plugin_load(enum plugin plugin, const char **error);
#endif
