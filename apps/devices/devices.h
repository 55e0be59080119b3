// devices.h: declares the parts of devices.
#ifndef DEVICES_H
#define DEVICES_H
#include "engine.h"

// A device's description, to free; on failure it prints a message and returns NULL.
char *devices_describe(deltaic_context *context, int32_t index);

// What to do with one device.
struct devices_work {
  bool check;  // compare every kernel with the CPU; print what differs, or one line
  bool time;   // time the choices that no table can know, on software too; `check` does it on others
  bool forget; // the choices that were timed
};
int devices_work(const struct engine_options *options, const struct devices_work *work, bool as_json); // an exit code
#endif
