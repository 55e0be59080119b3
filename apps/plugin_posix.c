// plugin_posix: loads the plugin where there is dlopen(). The program's RPATH says where it is.
#include "plugin.h"

#include <dlfcn.h>
#include <stdlib.h>

plugin_command plugin_load(const char **error) {
  // The plugin computes with OpenBLAS on one thread. Without this OpenBLAS starts one for each core as it is loaded,
  // and hangs where there is not enough address space for them.
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  void *plugin = dlopen("deltaic_commands.so", RTLD_NOW | RTLD_LOCAL);
  plugin_command command = plugin ? (plugin_command)dlsym(plugin, "deltaic_command") : NULL;
  if (!command) *error = dlerror();
  return command;
}
