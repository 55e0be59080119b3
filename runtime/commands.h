// commands.h: records dispatches, places the barriers they need, submits, waits, measures.
//
// Recording cannot fail visibly: the first error is kept, later calls do nothing, and submit reports it. Barriers are
// the recorder's work: every dispatch's bindings are ranges read or written (the module says which), and a barrier goes
// before a dispatch that conflicts with one since the last barrier.
//
// Two ways of use. Replayed (decode): begin(replay), dispatches, end, then submit any number of times; each submit is
// one vkQueueSubmit. Streamed (prefill): begin(stream); the recorder submits by itself whenever about
// plan.submit_operations have been recorded, keeps at most two submissions in flight, and stops when *cancel is set;
// submit sends the rest. Without cancel that number doubles, up to
// eight times, while a submission takes less than 2 ms, and halves when one takes more than 8 ms. Both: submit waits
// until the device has finished.
#ifndef COMMANDS_H
#define COMMANDS_H
#include "descriptors.h"

struct commands;

enum commands_mode { COMMANDS_REPLAY, COMMANDS_STREAM };

deltaic_status commands_create(struct device *device, struct commands **out);
void commands_free(struct commands *commands); // waits for work in flight; accepts NULL

void commands_begin(struct commands *commands, enum commands_mode mode,
                    const atomic_bool *cancel); // of a stream; may be NULL
// bindings: kernel->reflection.bindings of them. push: kernel's push_bytes bytes. groups: workgroups in x, y, z; a zero
// dispatches nothing. operations: multiplications and additions, for pacing and for the profile.
void commands_dispatch(struct commands *commands, const struct kernel *kernel, const struct binding *bindings,
                       const void *push, const uint32_t groups[3], uint64_t operations);
// False once the recording has failed or been cancelled. For callers whose preparation of a dispatch takes long.
bool commands_going(struct commands *commands);
// Keeps the error; later calls do nothing. For callers that build dispatches.
void commands_fail(struct commands *commands, deltaic_status status);
deltaic_status commands_status(const struct commands *commands); // the kept error, DELTAIC_OK when none
// Ends the recording if it is open, submits, waits. A replayed recording stays, and what its run returns, DEVICE_LOST,
// is not kept.
deltaic_status commands_submit(struct commands *commands);

struct commands_counters {
  uint64_t submits, recordings, dispatches;
};
struct commands_counters commands_count(const struct commands *commands);

// Profiling: time stamps around each dispatch, dispatches one after the other. Applies to recordings begun after it.
deltaic_status commands_profile(struct commands *commands, bool on);
// Time stamps at both ends of each submission, which cost next to nothing: one entry, "submissions", of the time in
// which the device had one to work on. Not while profiling.
deltaic_status commands_busy(struct commands *commands, bool on);
// Sums by kernel name since profiling began; returns how many kernels there are.
size_t commands_times(struct commands *commands, deltaic_kernel_time *times, size_t capacity);

// The trace for the hazard checker (hazard.h) and its proof: with a trace set, every dispatch's ranges and every
// barrier are appended, also the one at the start of a command buffer. skip_barrier n > 0 leaves out the n-th barrier
// between dispatches of the next recording (tests only).
struct hazard_trace;
void commands_trace(struct commands *commands, struct hazard_trace *trace, uint32_t skip_barrier);
#endif
