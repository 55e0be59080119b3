// device_handle.h: the structs behind the public handles of contexts and devices.
#ifndef DEVICE_HANDLE_H
#define DEVICE_HANDLE_H
#include "backend.h"

struct deltaic_context {
  struct instance instance;
  char *cache_dir; // compiled pipelines are not saved
};

struct deltaic_device {
  struct backend *backend;
  bool awake;                // measurements follow each other closely, so that its clock stays up
  struct recorder *collects; // gets the lists of measurements, for their kernels alone; NULL: measurements run
  char *timed_path;          // choices that were timed (timed.h); NULL: they cannot be kept
};
#endif
