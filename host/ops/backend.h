// backend.h: what runs operations: memory, recorders, and the two functions that plan and run a list. A backend is
// chosen once, when a device opens.
#ifndef BACKEND_H
#define BACKEND_H
#include "oplist.h"

struct backend {
  const struct backend_functions *functions;
  uint64_t max_buffer_bytes;  // of one buffer
  uint64_t max_binding_bytes; // of one tensor that an op is given; weights are cut by rows where they have more
  uint64_t parts_bytes;       // of oplist.parts; 0: it has no use for them
  uint32_t batch;             // tokens of a prompt computed at once, unless a session says otherwise
  bool replays;               // recorded work can be run again; else a list runs once when it is recorded
  uint32_t threads;           // of the host that its user allows; 0: all cores
  deltaic_device_info info;
};

struct recorder {
  struct backend *backend;
  const struct backend_functions *functions;
};

struct backend_functions {
  const char *name; // "vulkan", "cpu"
  void (*close)(struct backend *b);
  uint64_t (*free_bytes)(const struct backend *b); // as deltaic_device_info has it, now

  // Memory. As buffer.h; `what` names it in a failure.
  deltaic_status (*buffer_create)(struct backend *b, enum memory_kind kind, uint64_t bytes, const char *what,
                                  struct buffer *out);
  void (*buffer_free)(struct backend *b, struct buffer *buffer);
  deltaic_status (*buffer_write)(struct backend *b, struct buffer *to, uint64_t offset, const void *data,
                                 uint64_t bytes);
  deltaic_status (*buffer_write_by)(struct backend *b, struct buffer *to, uint64_t offset, uint64_t bytes,
                                    uint64_t unit, buffer_fill fill, void *context);
  deltaic_status (*buffer_read)(struct backend *b, struct buffer *from, uint64_t offset, void *data, uint64_t bytes);
  deltaic_status (*buffer_zero)(struct backend *b, struct buffer *buffer, uint64_t offset, uint64_t bytes);

  // Recording. begin (replay: the recording will be run many times, whole; cancel: else stops it; may be NULL), lists,
  // run, run, ... Where backend->replays is false, lists run when they are recorded, and every run must be preceded by
  // begin and the lists again. Recording cannot fail visibly: run returns the first error.
  deltaic_status (*recorder_create)(struct backend *b, struct recorder **out);
  void (*recorder_free)(struct recorder *c);
  void (*recorder_begin)(struct recorder *c, bool replay, const atomic_bool *cancel);
  void (*recorder_list)(struct recorder *c, struct oplist *l);
  deltaic_status (*recorder_run)(struct recorder *c); // runs and waits
  deltaic_counters (*recorder_counters)(const struct recorder *c);
  deltaic_status (*recorder_profile)(struct recorder *c, bool on);
  deltaic_status (*recorder_busy)(struct recorder *c, bool on); // only the sum, which slows nothing
  size_t (*recorder_times)(struct recorder *c, deltaic_kernel_time *times, size_t capacity);

  // Plans the list as recorder_list would, and runs nothing: values have their dtypes then (oplist_tensor). Returns the
  // bytes of scratch that the list takes, and those of its largest tensor.
  uint64_t (*list_bytes)(struct backend *b, struct oplist *l, uint64_t *largest);
};

deltaic_device_info backend_describe_cpu(void); // with all threads; starts none
deltaic_status backend_open_cpu(uint32_t threads, struct backend **out);
struct device;
deltaic_status backend_open_vulkan(struct device *device, struct backend **out); // takes the device, also on failure
#endif
