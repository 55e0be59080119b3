// backend.h: the interface of a backend: its memory, its recorders, and the two functions that plan and run a list of
// operations. A backend is chosen once, when a device opens.
#ifndef BACKEND_H
#define BACKEND_H
#include "oplist.h"

struct backend {
  const struct backend_functions *functions;
  uint64_t max_buffer_bytes;  // of one buffer
  uint64_t max_binding_bytes; // of one tensor of an operation; larger weights are cut by rows
  uint64_t parts_bytes;       // size of oplist.parts; 0: the backend does not need it
  uint32_t batch;             // default number of prompt tokens that are computed at once
  bool tiles;                 // weights of blocks are stored as tiles (dtype_tile)
  bool rounds;                // products of fast lists (oplist.matrices) may round their operands to f16
  bool imagined;              // computes nothing (imagined.h)
  bool replays;               // a recording can run again; false: a list runs once, while it is recorded
  uint32_t threads;           // host threads that may be used; 0: all cores
  deltaic_device_info info;
};

struct recorder {
  struct backend *backend;
  const struct backend_functions *functions;
};

struct backend_functions {
  const char *name; // "vulkan", "cpu"
  void (*close)(struct backend *b);
  uint64_t (*free_bytes)(const struct backend *b);    // current value of deltaic_device_info.free_bytes
  double (*compile_seconds)(const struct backend *b); // spent on making pipelines so far

  // Memory: the same functions as in buffer.h. `what` names the buffer in error messages.
  deltaic_status (*buffer_create)(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                  struct buffer *out);
  void (*buffer_free)(struct backend *b, struct buffer *buffer);
  deltaic_status (*buffer_write)(struct backend *b, struct buffer *to, uint64_t offset, const void *data,
                                 uint64_t bytes);
  deltaic_status (*buffer_write_by)(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes,
                                    uint64_t unit, buffer_fill fill, void *context);
  deltaic_status (*buffer_read)(struct backend *b, struct buffer *from, uint64_t offset, void *data, uint64_t bytes);
  deltaic_status (*buffer_read_parts)(struct backend *b, const struct buffer_part *parts, size_t n);
  deltaic_status (*buffer_zero)(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes);

  // Recording: begin, then lists, then run as often as needed. `replay` says that the whole recording will run many
  // times. `cancel` stops a run without replay; it may be NULL. Where backend->replays is false, a list runs while it
  // is recorded, so begin and the lists must precede every run. Recording returns no errors: run returns the first one.
  deltaic_status (*recorder_create)(struct backend *b, struct recorder **out);
  void (*recorder_free)(struct recorder *c);
  void (*recorder_begin)(struct recorder *c, bool replay, const atomic_bool *cancel);
  void (*recorder_list)(struct recorder *c, struct oplist *l);
  deltaic_status (*recorder_run)(struct recorder *c); // runs and waits
  deltaic_counters (*recorder_counters)(const struct recorder *c);
  deltaic_status (*recorder_profile)(struct recorder *c, bool on);
  deltaic_status (*recorder_busy)(struct recorder *c, bool on); // measures only the busy time, at no cost
  size_t (*recorder_times)(struct recorder *c, deltaic_kernel_time *times, size_t capacity);

  // Compiles, on all cores, the kernels of the lists that `lists` gives to a recorder, which runs none of them. Where
  // there is nothing to compile, `lists` is not called. CANCELLED: device->compiling did not want more.
  deltaic_status (*compile)(struct backend *b, void (*lists)(struct recorder *c, void *context), void *context);

  // A backend that plans as this one does, and computes nothing (imagined.h). This one outlives it.
  deltaic_status (*imagine)(const struct backend *b, struct backend **out);

  // Plans the list as recorder_list would, but runs nothing. Afterwards the values have their dtypes (oplist_tensor).
  // Returns the bytes of scratch that the list needs, and sets *largest to those of its largest tensor.
  uint64_t (*list_bytes)(struct backend *b, struct oplist *l, uint64_t *largest);
};

deltaic_device_info backend_describe_cpu(void); // for all threads; starts none of them
deltaic_status backend_open_cpu(uint32_t threads, struct backend **out) INSIDE(backend_open_cpu);
struct device;
deltaic_status backend_open_vulkan(struct device *device, struct backend **out); // takes the device, even on failure
#endif
