// plugin.h: declares how the program gets the commands of deltaic_commands.so.
#ifndef PLUGIN_H
#define PLUGIN_H

// Runs "prune" or "rank"; apps/commands.c in the plugin.
typedef int (*plugin_command)(const char *name, int argc, char **argv);

// Loads the plugin and returns its deltaic_command(), or NULL and a sentence that is valid until the next call.
// plugin_posix.c, plugin_windows.c
plugin_command plugin_load(const char **error);
#endif
