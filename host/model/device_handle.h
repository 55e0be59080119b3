// device_handle.h: what the public handles of contexts and devices are.
#ifndef DEVICE_HANDLE_H
#define DEVICE_HANDLE_H
#include "backend.h"

struct deltaic_context {
  struct instance instance;
  char *cache_dir; // NULL: compiled pipelines are not kept
};

struct deltaic_device {
  struct backend *backend;
};
#endif
