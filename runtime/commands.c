// commands: two submissions, each a command buffer with its fence, descriptor sets and time stamps. A replayed
// recording uses the first. A streamed one takes turns, so that the host records one while the device runs the other.
//
// Barriers between dispatches are global and narrow: compute -> compute, shader writes -> shader reads and writes. On
// an H200 such a barrier costs about 2 us, where a full one costs 5. Barriers of single buffers gain nothing on the
// GPUs we know.
//
// A barrier is placed before a dispatch that conflicts with an earlier dispatch since the last barrier. A command
// buffer begins with a barrier against earlier work, and ends with one that makes its writes visible to the host.
#include "commands.h"

#include "hazard.h"
#include "platform.h"
#include "ranges.h"
#include "stamps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUBMISSIONS = 2 };

struct submission {
  VkCommandPool pool;
  VkCommandBuffer cmd;
  VkFence fence;
  bool busy; // submitted and not waited for
  struct descriptors descriptors;
  struct stamps stamps;
};

enum recording { NOTHING, OPEN, CLOSED }; // CLOSED: a replayed recording that can be submitted

struct commands {
  struct device *device;
  enum commands_mode mode;
  enum recording recording;
  const atomic_bool *cancel;
  deltaic_status status; // the kept error
  char message[1024];
  struct submission submission[SUBMISSIONS];
  uint32_t now;                // the submission that is recorded or replayed
  uint64_t pending_operations; // recorded in this submission
  uint32_t pace;               // 1 to 8 times plan.submit_operations; of a stream without cancel
  uint64_t flushed_ns;         // when the last flush of such a stream ended; 0: there was none
  uint64_t pending_dispatches;
  struct ranges ranges; // since the last barrier
  VkPipeline bound;
  struct commands_counters counters;
  uint64_t replay_ns; // roughly the shortest time a replay of this recording has taken; 0: none yet

  bool profile_next, profile; // wanted for the next recording; in force in this one
  bool busy_next, busy;       // the same for stamps at the ends of submissions
  struct stamp_sums sums;

  struct hazard_trace *trace;
  uint32_t skip_next, skip_barrier; // wanted for the next recording; in force in this one
  uint32_t barriers;                // between dispatches of this recording
};

// ---------------------------------------------------------------- the kept error

void commands_fail(struct commands *c, deltaic_status status) {
  if (c->status || !status) return;
  c->status = status;
  snprintf(c->message, sizeof c->message, "%s", deltaic_last_error());
}

deltaic_status commands_status(const struct commands *c) {
  return c->status ? fail(c->status, "%s", c->message) : DELTAIC_OK;
}

static void fail_vk(struct commands *c, VkResult result, const char *what) {
  if (result) commands_fail(c, device_fail(c->device, result, what));
}

static bool failed(const struct commands *c) { return c->status != DELTAIC_OK; }

// ---------------------------------------------------------------- submissions

static VkResult submission_create(struct device *device, struct submission *submission) {
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .queueFamilyIndex = device->queue_family};
  VkResult result = device->vk.vkCreateCommandPool(device->handle, &pool, NULL, &submission->pool);
  if (result) return result;
  VkCommandBufferAllocateInfo cmd = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                     .commandPool = submission->pool,
                                     .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                     .commandBufferCount = 1};
  result = device->vk.vkAllocateCommandBuffers(device->handle, &cmd, &submission->cmd);
  if (result) return result;
  VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  return device->vk.vkCreateFence(device->handle, &fence, NULL, &submission->fence);
}

static void submission_destroy(struct device *device, struct submission *submission) {
  device->vk.vkDestroyFence(device->handle, submission->fence, NULL);
  device->vk.vkDestroyCommandPool(device->handle, submission->pool, NULL);
}

static void submission_free(struct device *device, struct submission *submission) {
  if (!atomic_load(&device->silent)) submission_destroy(device, submission);
  descriptors_free(&submission->descriptors, device);
  stamps_free(&submission->stamps, device);
}

// Waits until the submission's work is done. Fails only if the device is lost. Its work may then never end, so the
// submission is not used again.
static deltaic_status submission_wait(struct commands *c, struct submission *submission) {
  if (!submission->busy) return DELTAIC_OK;
  submission->busy = false;
  deltaic_status status = device_wait(c->device, submission->fence, c->mode == COMMANDS_REPLAY ? c->replay_ns : 0);
  if (!status) stamps_collect(&submission->stamps, c->device, c->busy, &c->sums);
  return status;
}

// Waits for every submission even if one fails. Returns the first failure, oldest first.
static deltaic_status wait_all(struct commands *c) {
  deltaic_status first = DELTAIC_OK;
  for (uint32_t i = 1; i <= SUBMISSIONS; i++) {
    deltaic_status status = submission_wait(c, &c->submission[(c->now + i) % SUBMISSIONS]);
    if (!first) first = status;
  }
  return first;
}

deltaic_status commands_create(struct device *device, struct commands **out) {
  *out = NULL;
  deltaic_status status = device_check(device);
  if (status) return status;
  struct commands *c = calloc(1, sizeof *c);
  if (!c) return fail_memory("a command recorder", sizeof *c);
  c->device = device;
  c->pace = 1;
  VkResult result = VK_SUCCESS;
  for (int i = 0; i < SUBMISSIONS && !result; i++) result = submission_create(device, &c->submission[i]);
  if (result) {
    status = device_fail(device, result, "a command recorder was made");
    commands_free(c);
    return status;
  }
  *out = c;
  return DELTAIC_OK;
}

void commands_free(struct commands *c) {
  if (!c) return;
  struct device *device = c->device;
  wait_all(c);
  if (atomic_load(&device->lost)) device_idle(device); // a wait that failed may have left work behind
  for (int i = 0; i < SUBMISSIONS; i++) submission_free(device, &c->submission[i]);
  free(c->ranges.items);
  free(c->sums.times);
  free(c);
}

// ---------------------------------------------------------------- barriers

static void barrier(struct commands *c, VkPipelineStageFlags from, VkAccessFlags wrote, VkPipelineStageFlags to,
                    VkAccessFlags uses) {
  VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = wrote, .dstAccessMask = uses};
  c->device->vk.vkCmdPipelineBarrier(c->submission[c->now].cmd, from, to, 0, 1, &memory, 0, NULL, 0, NULL);
}

static void barrier_between(struct commands *c) {
  c->ranges.count = 0;
  if (++c->barriers == c->skip_barrier) return;
  barrier(c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
          VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  if (c->trace) hazard_barrier(c->trace);
}

static void remember(struct commands *c, const struct kernel *kernel, const struct binding *bindings) {
  const struct reflection *r = &kernel->reflection;
  if (c->trace) hazard_dispatch(c->trace, kernel->shader->name);
  for (uint32_t i = 0; i < r->bindings; i++) {
    const struct binding *b = &bindings[i];
    if (c->trace) hazard_access(c->trace, b->buffer, b->offset, b->bytes, r->reads[i], r->writes[i]);
  }
  commands_fail(c, ranges_add(&c->ranges, r, bindings));
}

// ---------------------------------------------------------------- profiling

// A kernel may bind one range twice, as two types; its bytes count once.
static bool bound_before(const bool *used, const struct binding *bindings, uint32_t i) {
  for (uint32_t j = 0; j < i; j++)
    if (used[j] && bindings[j].buffer == bindings[i].buffer && bindings[j].offset == bindings[i].offset) return true;
  return false;
}

static struct timed timed_dispatch(const struct kernel *kernel, const struct binding *bindings, uint64_t operations) {
  struct timed timed = {.name = kernel->shader->name, .operations = operations};
  const struct reflection *r = &kernel->reflection;
  for (uint32_t i = 0; i < r->bindings; i++)
    timed.bytes += (bindings[i].touched ? bindings[i].touched : bindings[i].bytes) *
                   ((uint64_t)(r->reads[i] && !bindings[i].overwritten && !bound_before(r->reads, bindings, i)) +
                    (r->writes[i] && !bound_before(r->writes, bindings, i)));
  return timed;
}

static deltaic_status set_stamps(struct commands *c, bool *next, bool on) {
  if (on && !c->device->caps.timestamp_bits)
    return fail(DELTAIC_UNSUPPORTED, "%s has no time stamps on its compute queue", c->device->caps.name);
  if (on && !*next) c->sums.count = c->sums.busy_until = 0;
  *next = on;
  return DELTAIC_OK;
}

deltaic_status commands_profile(struct commands *c, bool on) { return set_stamps(c, &c->profile_next, on); }

deltaic_status commands_busy(struct commands *c, bool on) { return set_stamps(c, &c->busy_next, on); }

size_t commands_times(struct commands *c, deltaic_kernel_time *times, size_t capacity) {
  size_t n = c->sums.count < capacity ? c->sums.count : capacity;
  if (n) memcpy(times, c->sums.times, n * sizeof *times);
  return c->sums.count;
}

// ---------------------------------------------------------------- recording

// Opens submission `now`, which is not in flight.
static void submission_begin(struct commands *c) {
  struct device *device = c->device;
  struct submission *submission = &c->submission[c->now];
  descriptors_reset(&submission->descriptors, device);
  submission->stamps.timed_count = 0;
  c->ranges.count = 0;
  c->bound = VK_NULL_HANDLE;
  c->pending_operations = c->pending_dispatches = 0;
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  if (c->mode == COMMANDS_STREAM) info.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
  fail_vk(c, device->vk.vkResetCommandPool(device->handle, submission->pool, 0), "a recording was begun");
  if (failed(c)) return;
  fail_vk(c, device->vk.vkBeginCommandBuffer(submission->cmd, &info), "a recording was begun");
  if (failed(c)) return;
  c->recording = OPEN;
  c->counters.recordings++;
  if (c->busy) commands_fail(c, stamps_begin(&submission->stamps, device, submission->cmd));
  barrier(c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT | VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_HOST_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  if (c->trace) hazard_barrier(c->trace);
}

static void submission_end(struct commands *c) {
  barrier(c, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_HOST_READ_BIT);
  if (c->busy && !failed(c)) stamps_end(&c->submission[c->now].stamps, c->device, c->submission[c->now].cmd);
  c->recording = CLOSED;
  fail_vk(c, c->device->vk.vkEndCommandBuffer(c->submission[c->now].cmd), "a recording was ended");
}

static deltaic_status submission_send(struct commands *c) {
  struct submission *submission = &c->submission[c->now];
  deltaic_status status = device_submit(c->device, submission->cmd, submission->fence);
  submission->busy = !status;
  c->counters.submits += !status;
  return status;
}

bool commands_going(struct commands *c) {
  if (!failed(c) && c->cancel && atomic_load(c->cancel)) commands_fail(c, fail(DELTAIC_CANCELLED, "cancelled"));
  return !failed(c);
}

void commands_begin(struct commands *c, enum commands_mode mode, const atomic_bool *cancel) {
  wait_all(c); // after an error, which is told already
  c->status = DELTAIC_OK;
  c->mode = mode;
  c->cancel = cancel;
  c->recording = NOTHING;
  c->now = 0;
  c->replay_ns = c->flushed_ns = 0;
  c->profile = c->profile_next;
  c->busy = c->busy_next && !c->profile;
  c->skip_barrier = c->skip_next;
  c->barriers = c->skip_next = 0;
  commands_fail(c, device_check(c->device));
  if (!failed(c)) submission_begin(c);
}

// Between short submissions the device is idle for a part of the time. A flush sends one submission and waits for the
// one before it, so two flushes are as far apart as one submission takes.
static void adjust_pace(struct commands *c) {
  enum { MOST = 8, SHORT_NS = 2000000, LONG_NS = 8000000 };
  const uint64_t now = platform_clock_ns(), took = now - c->flushed_ns;
  if (c->flushed_ns && took < SHORT_NS && c->pace < MOST) c->pace *= 2;
  if (c->flushed_ns && took > LONG_NS && c->pace > 1) c->pace /= 2;
  c->flushed_ns = now;
}

static uint64_t submission_operations(const struct commands *c) {
  return c->device->plan.submit_operations * (c->cancel ? 1 : c->pace);
}

// Streaming: sends what is recorded and goes on in the other submission.
static void flush(struct commands *c) {
  submission_end(c);
  if (commands_going(c)) commands_fail(c, submission_send(c));
  if (failed(c)) return;
  c->now = (c->now + 1) % SUBMISSIONS;
  commands_fail(c, submission_wait(c, &c->submission[c->now]));
  if (!c->cancel) adjust_pace(c);
  if (!failed(c)) submission_begin(c);
}

static deltaic_status check_bindings(const struct commands *c, const struct kernel *kernel,
                                     const struct binding *bindings) {
  const struct plan *plan = &c->device->plan;
  const char *name = kernel->shader->name;
  for (uint32_t i = 0; i < kernel->reflection.bindings; i++) {
    const struct binding *b = &bindings[i];
    uint64_t end;
    if (!b->buffer || !b->buffer->vk || !b->bytes)
      return fail(DELTAIC_INTERNAL, "%s: binding %u has no buffer or no bytes", name, i);
    if (!size_add(b->offset, b->bytes, &end) || end > b->buffer->bytes)
      return fail(DELTAIC_INTERNAL, "%s: binding %u, %llu bytes at %llu, leaves its buffer of %llu", name, i,
                  (unsigned long long)b->bytes, (unsigned long long)b->offset, (unsigned long long)b->buffer->bytes);
    if (b->offset % plan->offset_alignment)
      return fail(DELTAIC_INTERNAL, "%s: binding %u begins at %llu, not at a multiple of %u", name, i,
                  (unsigned long long)b->offset, plan->offset_alignment);
    if (b->bytes > plan->binding_bytes)
      return fail(DELTAIC_INTERNAL, "%s: binding %u has %llu bytes, %s allows %llu", name, i,
                  (unsigned long long)b->bytes, c->device->caps.name, (unsigned long long)plan->binding_bytes);
  }
  return DELTAIC_OK;
}

static deltaic_status check_groups(const struct commands *c, const struct kernel *kernel, const uint32_t groups[3]) {
  const uint32_t *most = c->device->caps.max_groups;
  if (groups[0] <= most[0] && groups[1] <= most[1] && groups[2] <= most[2]) return DELTAIC_OK;
  return fail(DELTAIC_INTERNAL, "%s: %u x %u x %u workgroups, %s allows %u x %u x %u", kernel->shader->name, groups[0],
              groups[1], groups[2], c->device->caps.name, most[0], most[1], most[2]);
}

static void record(struct commands *c, const struct kernel *kernel, const struct binding *bindings, const void *push,
                   const uint32_t groups[3], uint64_t operations) {
  const struct VolkDeviceTable *vk = &c->device->vk;
  struct submission *submission = &c->submission[c->now];
  VkCommandBuffer cmd = submission->cmd;
  bool serial = c->profile && c->ranges.count;
  if (serial || ranges_conflict(&c->ranges, &kernel->reflection, bindings)) barrier_between(c);
  remember(c, kernel, bindings);
  if (c->bound != kernel->pipeline)
    vk->vkCmdBindPipeline(cmd, VK_PIPELINE_BIND_POINT_COMPUTE, c->bound = kernel->pipeline);
  if (!failed(c)) commands_fail(c, descriptors_bind(&submission->descriptors, c->device, cmd, kernel, bindings));
  if (kernel->reflection.push_bytes)
    vk->vkCmdPushConstants(cmd, kernel->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, kernel->reflection.push_bytes, push);
  if (c->profile && !failed(c))
    commands_fail(c, stamps_before(&submission->stamps, c->device, cmd, timed_dispatch(kernel, bindings, operations)));
  if (failed(c)) return;
  vk->vkCmdDispatch(cmd, groups[0], groups[1], groups[2]);
  if (c->profile) stamps_after(&submission->stamps, c->device, cmd);
}

void commands_dispatch(struct commands *c, const struct kernel *kernel, const struct binding *bindings,
                       const void *push, const uint32_t groups[3], uint64_t operations) {
  if (failed(c)) return;
  if (c->recording != OPEN) {
    commands_fail(c, fail(DELTAIC_INTERNAL, "%s was dispatched outside a recording", kernel->shader->name));
    return;
  }
  if (!groups[0] || !groups[1] || !groups[2]) return;
  commands_fail(c, check_bindings(c, kernel, bindings));
  if (!failed(c)) commands_fail(c, check_groups(c, kernel, groups));
  if (!failed(c)) record(c, kernel, bindings, push, groups, operations);
  if (failed(c)) return;
  c->counters.dispatches++;
  c->pending_dispatches++;
  c->pending_operations += operations;
  if (c->mode == COMMANDS_STREAM && c->pending_operations >= submission_operations(c)) flush(c);
}

// ---------------------------------------------------------------- submitting

// The last of a streamed recording; afterwards there is none.
static deltaic_status finish_stream(struct commands *c) {
  if (!failed(c) && c->recording != OPEN)
    commands_fail(c, fail(DELTAIC_INTERNAL, "there is no streamed recording to submit"));
  if (c->recording == OPEN) submission_end(c);
  if (commands_going(c) && c->pending_dispatches) commands_fail(c, submission_send(c));
  commands_fail(c, wait_all(c));
  c->recording = NOTHING;
  return commands_status(c);
}

// The wait sleeps through part of what is expected, so what is measured must not lengthen it much: one late run would
// make the next ones late.
static void expect_next(struct commands *c, uint64_t took_ns) {
  if (!c->replay_ns || took_ns < c->replay_ns)
    c->replay_ns = took_ns;
  else
    c->replay_ns += c->replay_ns / 64;
}

// A failure to run is not an error of the recording: it is returned, not kept.
static deltaic_status replay(struct commands *c) {
  if (c->recording == OPEN) submission_end(c);
  if (!failed(c) && c->recording != CLOSED) commands_fail(c, fail(DELTAIC_INTERNAL, "there is no recording to submit"));
  if (failed(c)) return commands_status(c);
  uint64_t start = platform_clock_ns();
  deltaic_status status = submission_send(c);
  if (!status) status = wait_all(c);
  if (!status) expect_next(c, platform_clock_ns() - start);
  return status;
}

deltaic_status commands_submit(struct commands *c) { return c->mode == COMMANDS_STREAM ? finish_stream(c) : replay(c); }

struct commands_counters commands_count(const struct commands *c) {
  return c->counters;
}

void commands_trace(struct commands *c, struct hazard_trace *trace, uint32_t skip_barrier) {
  c->trace = trace;
  c->skip_next = skip_barrier;
}
