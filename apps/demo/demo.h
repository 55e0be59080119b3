// demo.h: declares the demos, which need no trained weights. argv begins after the demo's name.
#ifndef DEMO_H
#define DEMO_H
#include "engine.h"

// Rows of a demo's option table. There is no --model, because a demo makes its own model.
#define DEMO_DEVICE_OPTIONS(e)                                                                                         \
  HEADING("device"),                                                                                                   \
      TEXT('d', "device", "WHICH", &(e)->device, "best, cpu, a number or a part of a name from 'deltaic devices'"),    \
      COUNT('t', "threads", "N", &(e)->threads, 0, 1024, "threads of the CPU; 0: all cores"),                          \
      TEXT(0, "cache-dir", "DIR", &(e)->cache_dir, "folder for compiled pipelines; \"\": none"),                       \
      FLAG(0, "validate", &(e)->validate,                                                                              \
           "run under the Vulkan validation layer, where installed; its errors make the exit code 1")

int demo_state_tracking(int argc, char **argv);
int demo_recall(int argc, char **argv);
#endif
