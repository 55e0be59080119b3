// devices.h: declares the parts of devices.
#ifndef DEVICES_H
#define DEVICES_H
#include "engine.h"

// Compares every kernel of the device with the CPU; prints what differs, or one line. Returns an exit code.
int devices_check(struct engine_options *options, bool as_json);
#endif
