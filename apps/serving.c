// serving: the plugin deltaic_serve.so, which has the server, and its own copy of apps/common.
#include "command.h"
#include "common.h"

__attribute__((visibility("default"))) int deltaic_command(const char *name, int argc, char **argv);

int deltaic_command(const char *name, int argc, char **argv) {
  complain_as(name);
  return interrupt_code(command_serve(argc, argv));
}
