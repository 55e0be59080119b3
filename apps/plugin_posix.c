// plugin_posix: loads a plugin where there is dlopen(). The program's RPATH says where it is.
#include "plugin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// OpenBLAS waits for ever, or crashes, where it gets no address space (ulimit -v): a work area for each thread that
// computes, and its libraries.
enum { MIB = 1 << 20, WORK_AREA = 128, LIBRARIES = 128 };

static int has_space(void) {
  long threads = sysconf(_SC_NPROCESSORS_ONLN);
  size_t bytes = (WORK_AREA * (size_t)(threads > 0 ? threads : 1) + LIBRARIES) * MIB;
  void *space = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return space != MAP_FAILED && !munmap(space, bytes);
}

plugin_command plugin_load(enum plugin which, const char **error) {
  static const char *const names[] = {[PLUGIN_COMMANDS] = "deltaic_commands.so", [PLUGIN_SERVE] = "deltaic_serve.so"};
  if (which == PLUGIN_COMMANDS) {
    // The plugin computes with OpenBLAS on one thread; without this OpenBLAS starts one for each core as it is loaded.
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    *error = "OpenBLAS needs more address space than there is (ulimit -v)";
    if (!has_space()) return NULL;
  }
  void *plugin = dlopen(names[which], RTLD_NOW | RTLD_LOCAL);
  plugin_command command = plugin ? (plugin_command)dlsym(plugin, "deltaic_command") : NULL;
  if (!command) *error = dlerror();
  return command;
}
