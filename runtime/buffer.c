// buffer: VkBuffers with an allocation each (they are few and live long), and the transfers into and out of them.
//
// The host copies mapped memory itself, except that reads of uncached memory, which are very slow, go through staging.
// Staging has two buffers per direction, so that the host copies one while the device copies the other. They are
// created when first needed and grow to 8 MiB each, or to the length of a longer row.
#include "buffer.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 2, PIECE_MIN = 1 << 20, PIECE_MAX = 8 << 20, DIRECT_READ = 4096 };

struct piece {
  VkBuffer vk;
  VkDeviceMemory memory;
  void *mapped;
};

struct ring {
  struct piece piece[PIECES];
  uint64_t bytes; // of each piece; 0: not made yet
};

struct transfer {
  pthread_mutex_t lock;
  VkCommandPool pool;
  VkCommandBuffer cmd[PIECES];
  VkFence fence[PIECES];
  bool busy[PIECES]; // submitted and not waited for
  struct ring up, down;
};

// ---------------------------------------------------------------- memory

static deltaic_status no_memory(struct device *device, VkResult result, const char *what, uint64_t bytes) {
  if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
      result == VK_ERROR_TOO_MANY_OBJECTS || result == VK_ERROR_MEMORY_MAP_FAILED)
    return fail(DELTAIC_OUT_OF_MEMORY, "out of memory on %s: %llu bytes for %s", device->caps.name,
                (unsigned long long)bytes, what);
  return device_fail(device, result, what);
}

static bool type_coherent(const struct device *device, int type) {
  const uint32_t flags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  return (device->caps.memory_type[type].flags & flags) == flags;
}

static void memory_free(struct device *device, VkBuffer *vk, VkDeviceMemory *memory) {
  if (!atomic_load(&device->silent)) {
    device->vk.vkDestroyBuffer(device->handle, *vk, NULL);
    device->vk.vkFreeMemory(device->handle, *memory, NULL); // unmaps
  }
  *vk = VK_NULL_HANDLE;
  *memory = VK_NULL_HANDLE;
}

// A buffer of `type` memory, mapped when the host can see that.
static deltaic_status memory_create(struct device *device, int type, uint64_t bytes, const char *what, VkBuffer *vk,
                                    VkDeviceMemory *memory, void **mapped) {
  *vk = VK_NULL_HANDLE;
  *memory = VK_NULL_HANDLE;
  *mapped = NULL;
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                             .size = bytes ? (bytes + 3) & ~(uint64_t)3 : 4, // vkCmdFillBuffer writes whole words
                             .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                      VK_BUFFER_USAGE_TRANSFER_DST_BIT};
  VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .memoryTypeIndex = (uint32_t)type};
  VkMemoryRequirements needs;
  VkResult result = device->vk.vkCreateBuffer(device->handle, &info, NULL, vk);
  if (result) goto failed;
  device->vk.vkGetBufferMemoryRequirements(device->handle, *vk, &needs);
  allocate.allocationSize = needs.size;
  if (!(needs.memoryTypeBits >> type & 1)) {
    memory_free(device, vk, memory);
    return fail(DELTAIC_INTERNAL, "%s: memory type %d does not take storage buffers (%s)", device->caps.name, type,
                what);
  }
  result = device->vk.vkAllocateMemory(device->handle, &allocate, NULL, memory);
  if (!result) result = device->vk.vkBindBufferMemory(device->handle, *vk, *memory, 0);
  if (!result && type_coherent(device, type))
    result = device->vk.vkMapMemory(device->handle, *memory, 0, VK_WHOLE_SIZE, 0, mapped);
  if (!result) return DELTAIC_OK;
failed:
  memory_free(device, vk, memory);
  return no_memory(device, result, what, bytes);
}

static int kind_type(const struct plan *plan, enum memory_kind kind) {
  return kind == MEMORY_SHARED ? plan->memory_shared : plan->memory_device;
}

deltaic_status buffer_create(struct device *device, enum memory_kind kind, uint64_t bytes, const char *what,
                             struct buffer *out) {
  memset(out, 0, sizeof *out);
  deltaic_status status = device_check(device);
  if (status) return status;
  if (bytes > device->plan.block_bytes)
    return fail(DELTAIC_OUT_OF_MEMORY, "%llu bytes for %s: a buffer on %s holds at most %llu",
                (unsigned long long)bytes, what, device->caps.name, (unsigned long long)device->plan.block_bytes);
  struct buffer buffer = {.bytes = bytes, .kind = kind};
  const struct plan *plan = &device->plan;
  // The part of device memory that the host can map may be smaller than the heap (below 80 of 140 GiB on an H200). When
  // it is full, shared buffers use host memory and other buffers use unmapped device memory.
  const int type = kind_type(plan, kind),
            other = kind == MEMORY_SHARED ? plan->memory_staging : plan->memory_unmapped;
  status = memory_create(device, type, bytes, what, &buffer.vk, &buffer.memory, &buffer.mapped);
  if (status == DELTAIC_OUT_OF_MEMORY && type != other)
    status = memory_create(device, other, bytes, what, &buffer.vk, &buffer.memory, &buffer.mapped);
  if (!status) *out = buffer;
  return status;
}

void buffer_free(struct device *device, struct buffer *buffer) {
  if (buffer->vk || buffer->memory) memory_free(device, &buffer->vk, &buffer->memory);
  memset(buffer, 0, sizeof *buffer);
}

// ---------------------------------------------------------------- staging

deltaic_status transfer_create(struct device *device) {
  struct transfer *t = calloc(1, sizeof *t);
  if (!t) return fail_memory("transfers", sizeof *t);
  device->transfer = t;
  pthread_mutex_init(&t->lock, NULL);
  VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                  .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT |
                                           VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                  .queueFamilyIndex = device->queue_family};
  VkResult result = device->vk.vkCreateCommandPool(device->handle, &pool, NULL, &t->pool);
  if (!result) {
    VkCommandBufferAllocateInfo buffers = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                           .commandPool = t->pool,
                                           .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                           .commandBufferCount = PIECES};
    result = device->vk.vkAllocateCommandBuffers(device->handle, &buffers, t->cmd);
  }
  VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  for (int i = 0; i < PIECES && !result; i++)
    result = device->vk.vkCreateFence(device->handle, &fence, NULL, &t->fence[i]);
  return result ? device_fail(device, result, "transfers were set up") : DELTAIC_OK;
}

static void ring_free(struct device *device, struct ring *ring) {
  for (int i = 0; i < PIECES; i++) memory_free(device, &ring->piece[i].vk, &ring->piece[i].memory);
  *ring = (struct ring){0};
}

void transfer_free(struct device *device) {
  struct transfer *t = device->transfer;
  if (!t) return;
  ring_free(device, &t->up);
  ring_free(device, &t->down);
  if (!atomic_load(&device->silent)) {
    for (int i = 0; i < PIECES; i++) device->vk.vkDestroyFence(device->handle, t->fence[i], NULL);
    device->vk.vkDestroyCommandPool(device->handle, t->pool, NULL);
  }
  pthread_mutex_destroy(&t->lock);
  free(t);
  device->transfer = NULL;
}

// Only between transfers: nothing may be in flight.
static deltaic_status ring_reserve(struct device *device, struct ring *ring, int type, uint64_t bytes, uint64_t unit) {
  uint64_t size = PIECE_MIN;
  while ((size < bytes && size < PIECE_MAX) || size < unit) size *= 2;
  if (size > device->plan.block_bytes) size = device->plan.block_bytes;
  if (size < unit)
    return fail(DELTAIC_OUT_OF_MEMORY, "a row of %llu bytes is more than staging on %s holds", (unsigned long long)unit,
                device->caps.name);
  if (ring->bytes >= size) return DELTAIC_OK;
  ring_free(device, ring);
  deltaic_status status = DELTAIC_OK;
  for (int i = 0; i < PIECES && !status; i++) {
    struct piece *piece = &ring->piece[i];
    status = memory_create(device, type, size, "staging", &piece->vk, &piece->memory, &piece->mapped);
  }
  if (status) {
    deltaic_status kept = fail(status, "%s", deltaic_last_error());
    ring_free(device, ring);
    return kept;
  }
  ring->bytes = size;
  return DELTAIC_OK;
}

static deltaic_status piece_wait(struct device *device, int i) {
  struct transfer *t = device->transfer;
  if (!t->busy[i]) return DELTAIC_OK;
  t->busy[i] = false;
  return device_wait(device, t->fence[i], 0);
}

// Waits for both pieces, also after a failure, and returns the first failure.
static deltaic_status pieces_wait(struct device *device, deltaic_status status) {
  for (int i = 0; i < PIECES; i++) {
    deltaic_status waited = piece_wait(device, i);
    if (!status) status = waited;
  }
  return status;
}

static void barrier(struct device *device, VkCommandBuffer cmd, VkPipelineStageFlags from, VkAccessFlags wrote,
                    VkPipelineStageFlags to, VkAccessFlags uses) {
  VkMemoryBarrier memory = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = wrote, .dstAccessMask = uses};
  device->vk.vkCmdPipelineBarrier(cmd, from, to, 0, 1, &memory, 0, NULL, 0, NULL);
}

static deltaic_status piece_begin(struct device *device, int i) {
  VkCommandBuffer cmd = device->transfer->cmd[i];
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                   .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
  VkResult result = device->vk.vkBeginCommandBuffer(cmd, &info);
  if (result) return device_fail(device, result, "a transfer was recorded");
  barrier(device, cmd, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
          VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT,
          VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
  return DELTAIC_OK;
}

static deltaic_status piece_end(struct device *device, int i) {
  struct transfer *t = device->transfer;
  barrier(device, t->cmd[i], VK_PIPELINE_STAGE_TRANSFER_BIT, VK_ACCESS_TRANSFER_WRITE_BIT, VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_HOST_READ_BIT);
  VkResult result = device->vk.vkEndCommandBuffer(t->cmd[i]);
  if (result) return device_fail(device, result, "a transfer was recorded");
  deltaic_status status = device_submit(device, t->cmd[i], t->fence[i]);
  t->busy[i] = !status;
  return status;
}

static deltaic_status piece_copy(struct device *device, int i, VkBuffer to, uint64_t to_offset, VkBuffer from,
                                 uint64_t from_offset, uint64_t bytes) {
  VkBufferCopy region = {.srcOffset = from_offset, .dstOffset = to_offset, .size = bytes};
  deltaic_status status = piece_begin(device, i);
  if (status) return status;
  device->vk.vkCmdCopyBuffer(device->transfer->cmd[i], from, to, 1, &region);
  return piece_end(device, i);
}

static uint64_t part(uint64_t total, uint64_t done, uint64_t most) { return total - done < most ? total - done : most; }

// ---------------------------------------------------------------- transfers

static deltaic_status check_range(const struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  uint64_t end;
  if (size_add(offset, bytes, &end) && end <= buffer->bytes) return DELTAIC_OK;
  return fail(DELTAIC_INTERNAL, "a transfer of %llu bytes at %llu leaves its buffer of %llu", (unsigned long long)bytes,
              (unsigned long long)offset, (unsigned long long)buffer->bytes);
}

static deltaic_status check_transfer(struct device *device, const struct buffer *buffer, uint64_t offset,
                                     uint64_t bytes) {
  deltaic_status status = device_check(device);
  return status ? status : check_range(buffer, offset, bytes);
}

static deltaic_status upload(struct device *device, struct buffer *buffer, uint64_t offset, uint64_t bytes,
                             uint64_t unit, buffer_fill fill, void *context) {
  struct ring *ring = &device->transfer->up;
  deltaic_status status = ring_reserve(device, ring, device->plan.memory_staging, bytes, unit);
  int i = 0;
  for (uint64_t done = 0; done < bytes && !status; i = (i + 1) % PIECES) {
    uint64_t n = part(bytes, done, ring->bytes / unit * unit);
    status = piece_wait(device, i);
    if (!status) status = fill(context, done, n, ring->piece[i].mapped);
    if (!status) status = piece_copy(device, i, buffer->vk, offset + done, ring->piece[i].vk, 0, n);
    done += n;
  }
  return pieces_wait(device, status);
}

// A place in the bytes of several parts.
struct place {
  size_t part;
  uint64_t done; // of this part
};

// The bytes of one part from this place on, at most `most`. 0: the parts have no more.
static uint64_t run_at(const struct buffer_part *parts, size_t n, struct place *at, uint64_t most) {
  for (; at->part < n && at->done == parts[at->part].bytes; at->done = 0) at->part++;
  return at->part < n ? part(parts[at->part].bytes, at->done, most) : 0;
}

// Lets the device fill staging.
static deltaic_status ask(struct device *device, int i, const struct buffer_part *parts, size_t n, struct place *at) {
  struct ring *ring = &device->transfer->down;
  deltaic_status status = piece_begin(device, i);
  uint64_t used = 0;
  for (uint64_t run; !status && (run = run_at(parts, n, at, ring->bytes - used)); used += run, at->done += run) {
    const struct buffer_part *p = &parts[at->part];
    VkBufferCopy region = {.srcOffset = p->offset + at->done, .dstOffset = used, .size = run};
    device->vk.vkCmdCopyBuffer(device->transfer->cmd[i], p->buffer->vk, ring->piece[i].vk, 1, &region);
  }
  return status ? status : piece_end(device, i);
}

// Takes what the device has filled.
static deltaic_status take(struct device *device, int i, const struct buffer_part *parts, size_t n, struct place *at) {
  struct ring *ring = &device->transfer->down;
  deltaic_status status = piece_wait(device, i);
  uint64_t used = 0;
  for (uint64_t run; !status && (run = run_at(parts, n, at, ring->bytes - used)); used += run, at->done += run)
    memcpy((char *)parts[at->part].data + at->done, (char *)ring->piece[i].mapped + used, run);
  return status;
}

static deltaic_status download(struct device *device, const struct buffer_part *parts, size_t n) {
  struct place asked = {0}, taken = {0};
  uint64_t bytes = 0;
  for (size_t i = 0; i < n; i++) bytes += parts[i].bytes;
  deltaic_status status = ring_reserve(device, &device->transfer->down, device->plan.memory_readback, bytes, 1);
  for (int i = 0; i < PIECES && !status && run_at(parts, n, &asked, 1); i++) status = ask(device, i, parts, n, &asked);
  for (int i = 0; !status && run_at(parts, n, &taken, 1); i = (i + 1) % PIECES) {
    status = take(device, i, parts, n, &taken);
    if (!status && run_at(parts, n, &asked, 1)) status = ask(device, i, parts, n, &asked);
  }
  return pieces_wait(device, status);
}

deltaic_status buffer_write_by(struct device *device, struct buffer *buffer, uint64_t offset, uint64_t bytes,
                               uint64_t unit, buffer_fill fill, void *context) {
  deltaic_status status = check_transfer(device, buffer, offset, bytes);
  if (status || !bytes) return status;
  if (buffer->mapped) return fill(context, 0, bytes, (char *)buffer->mapped + offset);
  pthread_mutex_lock(&device->transfer->lock);
  status = upload(device, buffer, offset, bytes, unit, fill, context);
  pthread_mutex_unlock(&device->transfer->lock);
  return status;
}

static deltaic_status copy(void *data, uint64_t first, uint64_t n, void *to) {
  memcpy(to, (const char *)data + first, n);
  return DELTAIC_OK;
}

deltaic_status buffer_write(struct device *device, struct buffer *buffer, uint64_t offset, const void *data,
                            uint64_t bytes) {
  return buffer_write_by(device, buffer, offset, bytes, 1, copy, (void *)data);
}

static bool reads_fast(const struct device *device, const struct buffer *buffer) {
  uint32_t flags = device->caps.memory_type[kind_type(&device->plan, buffer->kind)].flags;
  return buffer->mapped && (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
}

deltaic_status buffer_read_parts(struct device *device, const struct buffer_part *parts, size_t n) {
  bool fast = true;
  for (size_t i = 0; i < n; i++) {
    deltaic_status status = check_transfer(device, parts[i].buffer, parts[i].offset, parts[i].bytes);
    if (status) return status;
    fast = fast && reads_fast(device, parts[i].buffer);
  }
  // A few bytes are read faster than the device could be asked for them.
  if (fast || (n == 1 && parts->buffer->mapped && parts->bytes <= DIRECT_READ)) {
    for (size_t i = 0; i < n; i++)
      if (parts[i].bytes)
        memcpy(parts[i].data, (const char *)parts[i].buffer->mapped + parts[i].offset, parts[i].bytes);
    return DELTAIC_OK;
  }
  pthread_mutex_lock(&device->transfer->lock);
  deltaic_status status = download(device, parts, n);
  pthread_mutex_unlock(&device->transfer->lock);
  return status;
}

deltaic_status buffer_read(struct device *device, struct buffer *buffer, uint64_t offset, void *data, uint64_t bytes) {
  const struct buffer_part part = {buffer, offset, bytes, data};
  return buffer_read_parts(device, &part, 1);
}

static deltaic_status fill_words(struct device *device, struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  pthread_mutex_lock(&device->transfer->lock);
  deltaic_status status = piece_begin(device, 0);
  if (!status) {
    device->vk.vkCmdFillBuffer(device->transfer->cmd[0], buffer->vk, offset, bytes, 0);
    status = piece_end(device, 0);
  }
  status = pieces_wait(device, status);
  pthread_mutex_unlock(&device->transfer->lock);
  return status;
}

deltaic_status buffer_zero(struct device *device, struct buffer *buffer, uint64_t offset, uint64_t bytes) {
  deltaic_status status = check_transfer(device, buffer, offset, bytes);
  if (status || !bytes) return status;
  if (buffer->mapped) {
    memset((char *)buffer->mapped + offset, 0, bytes);
    return DELTAIC_OK;
  }
  static const char zeros[8];
  uint64_t first = (offset + 3) & ~(uint64_t)3, end = offset + bytes, last = end & ~(uint64_t)3;
  if (first >= last) return buffer_write(device, buffer, offset, zeros, bytes); // at most 7 bytes
  status = buffer_write(device, buffer, offset, zeros, first - offset);
  if (!status) status = fill_words(device, buffer, first, last - first);
  if (!status) status = buffer_write(device, buffer, last, zeros, end - last);
  return status;
}
