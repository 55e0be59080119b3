// stamps: records time stamps and sums them by kernel.
#include "stamps.h"

#include "list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 256 }; // of a pool

// ---------------------------------------------------------------- recording

static deltaic_status add_pool(struct stamps *s, struct device *device) {
  VkQueryPoolCreateInfo info = {
      .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = QUERIES};
  deltaic_status status =
      list_room(&s->pools, s->pool_count, &s->pool_capacity, sizeof *s->pools, "a recording's time stamps");
  if (status) return status;
  VkResult result = device->vk.vkCreateQueryPool(device->handle, &info, NULL, &s->pools[s->pool_count]);
  if (result) return device_fail(device, result, "time stamps were set up");
  s->pool_count++;
  return DELTAIC_OK;
}

static void stamp(const struct stamps *s, struct device *device, VkCommandBuffer cmd, size_t query) {
  device->vk.vkCmdWriteTimestamp(cmd, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, s->pools[query / QUERIES], query % QUERIES);
}

deltaic_status stamps_before(struct stamps *s, struct device *device, VkCommandBuffer cmd, struct timed dispatch) {
  const size_t query = 2 * s->timed_count;
  deltaic_status status =
      list_room(&s->timed, s->timed_count, &s->timed_capacity, sizeof *s->timed, "a recording's time stamps");
  if (!status && query / QUERIES == s->pool_count) status = add_pool(s, device);
  if (status) return status;
  if (query % QUERIES == 0) device->vk.vkCmdResetQueryPool(cmd, s->pools[query / QUERIES], 0, QUERIES);
  s->timed[s->timed_count++] = dispatch;
  stamp(s, device, cmd, query);
  return DELTAIC_OK;
}

void stamps_after(struct stamps *s, struct device *device, VkCommandBuffer cmd) {
  stamp(s, device, cmd, 2 * s->timed_count - 1);
}

deltaic_status stamps_begin(struct stamps *s, struct device *device, VkCommandBuffer cmd) {
  deltaic_status status = s->pool_count ? DELTAIC_OK : add_pool(s, device);
  if (status) return status;
  device->vk.vkCmdResetQueryPool(cmd, s->pools[0], 0, 2);
  device->vk.vkCmdWriteTimestamp(cmd, VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, s->pools[0], 0);
  return DELTAIC_OK;
}

void stamps_end(struct stamps *s, struct device *device, VkCommandBuffer cmd) { stamp(s, device, cmd, 1); }

// ---------------------------------------------------------------- reading

static deltaic_kernel_time *time_of(struct stamp_sums *sums, const char *name) {
  for (size_t i = 0; i < sums->count; i++)
    if (!strncmp(sums->times[i].name, name, sizeof sums->times[i].name - 1)) return &sums->times[i];
  if (list_room(&sums->times, sums->count, &sums->capacity, sizeof *sums->times, "the times of kernels")) return NULL;
  deltaic_kernel_time *time = &sums->times[sums->count++];
  *time = (deltaic_kernel_time){0};
  snprintf(time->name, sizeof time->name, "%s", name);
  return time;
}

// Returns the sum that the queries' time belongs to and reads their ticks; NULL when they cannot be read.
static deltaic_kernel_time *read_pair(const struct stamps *s, struct device *device, size_t query, const char *name,
                                      struct stamp_sums *sums, uint64_t ticks[2]) {
  VkResult result =
      device->vk.vkGetQueryPoolResults(device->handle, s->pools[query / QUERIES], query % QUERIES, 2, 2 * sizeof *ticks,
                                       ticks, sizeof *ticks, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
  return result ? NULL : time_of(sums, name);
}

static double seconds_of(const struct device *device, uint64_t ticks) {
  return (double)ticks * (double)device->caps.timestamp_period * 1e-9;
}

// A submission may begin before the previous one has ended; overlapping time is counted once.
static void collect_ends(const struct stamps *s, struct device *device, uint64_t mask, struct stamp_sums *sums) {
  uint64_t ticks[2];
  deltaic_kernel_time *time = read_pair(s, device, 0, "submissions", sums, ticks);
  if (!time) return;
  uint64_t begin = ticks[0] & mask, end = ticks[1] & mask;
  if (begin < sums->busy_until) begin = sums->busy_until;
  time->dispatches++;
  if (end > begin) time->seconds += seconds_of(device, end - begin);
  sums->busy_until = end;
}

void stamps_collect(const struct stamps *s, struct device *device, bool ends, struct stamp_sums *sums) {
  const uint32_t bits = device->caps.timestamp_bits;
  const uint64_t mask = bits >= 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
  if (ends) collect_ends(s, device, mask, sums);
  for (size_t i = 0; i < s->timed_count; i++) {
    uint64_t ticks[2];
    deltaic_kernel_time *time = read_pair(s, device, 2 * i, s->timed[i].name, sums, ticks);
    if (!time) continue;
    time->dispatches++;
    time->seconds += seconds_of(device, (ticks[1] - ticks[0]) & mask);
    time->bytes += s->timed[i].bytes;
    time->operations += s->timed[i].operations;
  }
}

void stamps_free(struct stamps *s, struct device *device) {
  for (size_t i = 0; i < s->pool_count && !atomic_load(&device->silent); i++)
    device->vk.vkDestroyQueryPool(device->handle, s->pools[i], NULL);
  free(s->pools);
  free(s->timed);
}
