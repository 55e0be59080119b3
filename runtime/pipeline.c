// pipeline: creates kernels by (shader, specialization constants). Before the driver receives a module, its reflection
// is compared with the contract, and sizes that Vulkan does not check are compared with the device's limits.
#include "pipeline.h"

#include "cache.h"
#include "platform.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 64 };

struct entry {
  struct kernel kernel; // first: a kernel is handed out as a pointer into its entry
  bool compiling;       // by the thread that added the entry
  struct entry *next;
  uint32_t count;
  uint32_t spec[REFLECT_SPEC];
};

struct pipeline_store {
  pthread_mutex_t lock;
  pthread_cond_t compiled_one; // or failed to: two threads that ask for the same kernel get one
  struct entry *bucket[BUCKETS];
  struct pipeline_cache cache;
  uint32_t compiled;                  // kernels, since the cache was opened
  uint32_t compiling;                 // threads
  uint64_t compile_ns, compile_start; // while at least one thread did; since when
};

// ---------------------------------------------------------------- checks

static deltaic_status check_contract(const struct device *device, const struct shader *shader, uint32_t count,
                                     const struct reflection *r) {
  const char *name = shader->name;
  if (r->bindings != shader->bindings)
    return fail(DELTAIC_INTERNAL, "shader %s: its module has %u bindings, its contract %u", name, r->bindings,
                shader->bindings);
  if (r->push_bytes != shader->push_bytes)
    return fail(DELTAIC_INTERNAL, "shader %s: its module has %u bytes of push constants, its contract %u", name,
                r->push_bytes, shader->push_bytes);
  if (r->push_bytes % 4)
    return fail(DELTAIC_INTERNAL, "shader %s: its push constants are not a multiple of 4 bytes", name);
  if (r->spec_count && r->spec_id[r->spec_count - 1] >= count)
    return fail(DELTAIC_INTERNAL, "shader %s: its module has specialization constant %u, but only %u were given", name,
                r->spec_id[r->spec_count - 1], count);
  if (r->bindings > device->caps.max_storage_buffers)
    return fail(DELTAIC_UNSUPPORTED, "shader %s: it binds %u buffers, %s allows %u", name, r->bindings,
                device->caps.name, device->caps.max_storage_buffers);
  if (r->push_bytes > device->caps.push_bytes)
    return fail(DELTAIC_UNSUPPORTED, "shader %s: it takes %u bytes of push constants, %s allows %u", name,
                r->push_bytes, device->caps.name, device->caps.push_bytes);
  return DELTAIC_OK;
}

static deltaic_status check_size(const struct device *device, const struct shader *shader,
                                 const struct reflected_size *size) {
  const struct device_caps *caps = &device->caps;
  uint64_t invocations = 1;
  for (int i = 0; i < 3; i++) {
    if (size->workgroup[i] == 0 || size->workgroup[i] > caps->max_workgroup[i])
      return fail(DELTAIC_INTERNAL, "shader %s: workgroups of %u x %u x %u on %s, which allows %u x %u x %u",
                  shader->name, size->workgroup[0], size->workgroup[1], size->workgroup[2], caps->name,
                  caps->max_workgroup[0], caps->max_workgroup[1], caps->max_workgroup[2]);
    invocations *= size->workgroup[i]; // each is below 2^16 on every device there is; the product is checked at once
    if (invocations > caps->max_invocations)
      return fail(DELTAIC_INTERNAL, "shader %s: workgroups of %llu invocations on %s, which allows %u", shader->name,
                  (unsigned long long)invocations, caps->name, caps->max_invocations);
  }
  if (size->shared_bytes > caps->shared_bytes)
    return fail(DELTAIC_UNSUPPORTED, "kernel %s needs %llu bytes of shared memory for these sizes, and %s has %u",
                shader->name, (unsigned long long)size->shared_bytes, caps->name, caps->shared_bytes);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- compiling

static void kernel_destroy(struct device *device, struct kernel *kernel) {
  if (atomic_load(&device->silent)) return;
  device->vk.vkDestroyPipeline(device->handle, kernel->pipeline, NULL);
  device->vk.vkDestroyPipelineLayout(device->handle, kernel->layout, NULL);
  device->vk.vkDestroyDescriptorSetLayout(device->handle, kernel->set_layout, NULL);
}

static VkResult create_layouts(struct device *device, struct kernel *kernel) {
  VkDescriptorSetLayoutBinding binding[REFLECT_BINDINGS];
  for (uint32_t i = 0; i < kernel->reflection.bindings; i++)
    binding[i] = (VkDescriptorSetLayoutBinding){.binding = i,
                                                .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                .descriptorCount = 1,
                                                .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
  VkDescriptorSetLayoutCreateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                         .bindingCount = kernel->reflection.bindings,
                                         .pBindings = binding};
  VkResult result = device->vk.vkCreateDescriptorSetLayout(device->handle, &set, NULL, &kernel->set_layout);
  if (result) return result;
  VkPushConstantRange push = {.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT, .size = kernel->reflection.push_bytes};
  VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                       .setLayoutCount = 1,
                                       .pSetLayouts = &kernel->set_layout,
                                       .pushConstantRangeCount = push.size > 0,
                                       .pPushConstantRanges = &push};
  return device->vk.vkCreatePipelineLayout(device->handle, &layout, NULL, &kernel->layout);
}

// Requires the plan's subgroup size, if any, and full subgroups where the workgroup consists of full ones.
static void choose_subgroups(const struct device *device, const struct reflected_size *size,
                             VkPipelineShaderStageCreateInfo *stage,
                             VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *required) {
  const struct device_caps *caps = &device->caps;
  uint32_t subgroup = device->plan.subgroup;
  uint64_t invocations = (uint64_t)size->workgroup[0] * size->workgroup[1] * size->workgroup[2];
  if (subgroup && caps->subgroup_size_control && invocations <= (uint64_t)subgroup * caps->max_subgroups) {
    *required = (VkPipelineShaderStageRequiredSubgroupSizeCreateInfo){
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = subgroup};
    stage->pNext = required;
  } else
    subgroup = caps->subgroup_size;
  if (caps->full_subgroups && size->workgroup[0] % subgroup == 0)
    stage->flags |= VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
}

static VkResult create_pipeline(struct device *device, const VkShaderModuleCreateInfo *module,
                                const struct reflected_size *size, const uint32_t *spec, struct kernel *kernel) {
  const struct reflection *r = &kernel->reflection;
  VkSpecializationMapEntry map[REFLECT_SPEC];
  for (uint32_t i = 0; i < r->spec_count; i++)
    map[i] = (VkSpecializationMapEntry){.constantID = r->spec_id[i], .offset = 4 * r->spec_id[i], .size = 4};
  uint32_t used = r->spec_count ? r->spec_id[r->spec_count - 1] + 1 : 0;
  VkSpecializationInfo specialization = {r->spec_count, map, 4 * used, spec};
  // NVIDIA's driver checks all accesses unless the feature pipelineRobustness is enabled, and then only those of
  // pipelines that request it, so each pipeline states its choice.
  VkPipelineRobustnessCreateInfoEXT robustness = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_ROBUSTNESS_CREATE_INFO_EXT,
      .storageBuffers = kernel->shader->unchecked ? VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT
                                                  : VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_ROBUST_BUFFER_ACCESS_EXT};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo required;
  VkComputePipelineCreateInfo info = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                .pName = "main",
                                                .pSpecializationInfo = &specialization},
                                      .layout = kernel->layout};
  if (device->caps.unchecked) info.pNext = &robustness;
  VkResult result = device->vk.vkCreateShaderModule(device->handle, module, NULL, &info.stage.module);
  if (result) return result;
  choose_subgroups(device, size, &info.stage, &required);
  result = device->vk.vkCreateComputePipelines(device->handle, device->pipelines->cache.handle, 1, &info, NULL,
                                               &kernel->pipeline);
  device->vk.vkDestroyShaderModule(device->handle, info.stage.module, NULL);
  return result;
}

deltaic_status shader_unpack(const struct shader *shader, uint32_t **words, uint64_t *count) {
  const uint16_t *from = shader->packed, *end = from + shader->units;
  uint32_t *to = *words = malloc((size_t)shader->units * sizeof *to);
  if (!to) return fail_memory(shader->name, shader->units * sizeof *to);
  while (from < end) {
    const uint32_t unit = *from++;
    if (unit < 0x8000) {
      *to++ = unit;
    } else if (unit < 0x9000) {
      *to++ = (unit & 0xf00) << 8 | (unit & 0xff);
    } else if (unit == 0xffff && end - from >= 2) {
      *to++ = from[0] | (uint32_t)from[1] << 16;
      from += 2;
    } else {
      free(*words);
      *words = NULL;
      return fail(DELTAIC_INTERNAL, "shader %s: its packed module is damaged", shader->name);
    }
  }
  *count = (uint64_t)(to - *words);
  return DELTAIC_OK;
}

static deltaic_status kernel_create_from(struct device *device, const VkShaderModuleCreateInfo *module,
                                         const uint32_t *spec, uint32_t count, struct kernel *kernel) {
  const struct shader *shader = kernel->shader;
  struct reflected_size size;
  deltaic_status status = reflect(shader->name, module->pCode, module->codeSize / 4, &kernel->reflection);
  if (!status) status = check_contract(device, shader, count, &kernel->reflection);
  if (!status) status = reflect_size(shader->name, module->pCode, module->codeSize / 4, spec, count, &size);
  if (!status) status = check_size(device, shader, &size);
  if (status) return status;
  VkResult result = create_layouts(device, kernel);
  if (!result) result = create_pipeline(device, module, &size, spec, kernel);
  if (!result) return DELTAIC_OK;
  status = device_fail(device, result, "a kernel was compiled");
  return fail(status, "shader %s was not compiled: %s", shader->name, deltaic_last_error());
}

static deltaic_status kernel_create(struct device *device, const struct shader *shader, const uint32_t *spec,
                                    uint32_t count, struct kernel *kernel) {
  uint64_t n;
  uint32_t *words;
  deltaic_status status = shader_unpack(shader, &words, &n);
  if (status) return status;
  VkShaderModuleCreateInfo module = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = 4 * n, .pCode = words};
  kernel->shader = shader;
  status = kernel_create_from(device, &module, spec, count, kernel);
  free(words);
  return status;
}

// ---------------------------------------------------------------- interface

static uint32_t bucket_of(const struct shader *shader, const uint32_t *spec, uint32_t count) {
  uint64_t h = (uintptr_t)shader / sizeof *shader;
  for (uint32_t i = 0; i < count; i++) h = (h ^ spec[i]) * 0x9e3779b97f4a7c15;
  return (uint32_t)(h >> 32 ^ h) % BUCKETS;
}

static struct entry *find(struct entry *entry, const struct shader *shader, const uint32_t *spec, uint32_t count) {
  for (; entry; entry = entry->next)
    if (entry->kernel.shader == shader && entry->count == count &&
        (!count || !memcmp(entry->spec, spec, count * sizeof *spec)))
      return entry;
  return NULL;
}

// The next two have the store's lock.
static void compile_begin(struct pipeline_store *store) {
  if (!store->compiling++) store->compile_start = platform_clock_ns();
}

static void compile_end(struct pipeline_store *store) {
  if (!--store->compiling) store->compile_ns += platform_clock_ns() - store->compile_start;
  pthread_cond_broadcast(&store->compiled_one);
}

static void remove_entry(struct entry **bucket, struct entry *entry) {
  while (*bucket != entry) bucket = &(*bucket)->next;
  *bucket = entry->next;
  free(entry);
}

// Under the store's lock, which is free while the kernel is compiled.
static deltaic_status add_entry(struct device *device, const struct shader *shader, const uint32_t *spec,
                                uint32_t count, struct entry **out) {
  struct pipeline_store *store = device->pipelines;
  struct entry *entry = calloc(1, sizeof *entry), **bucket = &store->bucket[bucket_of(shader, spec, count)];
  struct kernel kernel = {.shader = shader};
  if (!entry) return fail_memory(shader->name, sizeof *entry);
  entry->kernel.shader = shader;
  entry->compiling = true;
  entry->count = count;
  if (count) memcpy(entry->spec, spec, count * sizeof *spec);
  entry->next = *bucket;
  *bucket = entry;
  compile_begin(store);
  pthread_mutex_unlock(&store->lock);
  deltaic_status status = kernel_create(device, shader, spec, count, &kernel);
  pthread_mutex_lock(&store->lock);
  if (status) {
    kernel_destroy(device, &kernel);
    remove_entry(bucket, entry);
  } else {
    entry->kernel = kernel;
    entry->compiling = false;
    store->compiled++;
    *out = entry;
  }
  compile_end(store);
  return status;
}

static deltaic_status check_count(const struct shader *shader, uint32_t count) {
  if (count <= REFLECT_SPEC) return DELTAIC_OK;
  return fail(DELTAIC_INTERNAL, "shader %s: %u specialization constants; %d are supported", shader->name, count,
              REFLECT_SPEC);
}

// Asks without the lock: the caller's function may use the device.
static deltaic_status ask(const struct device *device) {
  struct pipeline_store *store = device->pipelines;
  pthread_mutex_lock(&store->lock);
  const uint64_t compiled = store->compiled;
  pthread_mutex_unlock(&store->lock);
  if (!device->compiling || device->compiling(device->compiling_user, compiled, 0)) return DELTAIC_OK;
  return fail(DELTAIC_CANCELLED, "cancelled while pipelines were compiled");
}

deltaic_status kernel_compile(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count,
                              const struct kernel **out) {
  *out = NULL;
  struct pipeline_store *store = device->pipelines;
  struct entry *entry;
  deltaic_status status = check_count(shader, count);
  if (status) return status;
  pthread_mutex_lock(&store->lock);
  while ((entry = find(store->bucket[bucket_of(shader, spec, count)], shader, spec, count)) && entry->compiling)
    pthread_cond_wait(&store->compiled_one, &store->lock);
  if (!entry) status = add_entry(device, shader, spec, count, &entry);
  pthread_mutex_unlock(&store->lock);
  if (!status) *out = &entry->kernel;
  return status;
}

bool kernel_is_known(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count) {
  struct pipeline_store *store = device->pipelines;
  pthread_mutex_lock(&store->lock);
  const bool known = find(store->bucket[bucket_of(shader, spec, count)], shader, spec, count);
  pthread_mutex_unlock(&store->lock);
  return known;
}

deltaic_status kernel_get(struct device *device, const struct shader *shader, const uint32_t *spec, uint32_t count,
                          const struct kernel **out) {
  *out = NULL;
  deltaic_status status = check_count(shader, count);
  if (!status && !kernel_is_known(device, shader, spec, count)) status = ask(device);
  return status ? status : kernel_compile(device, shader, spec, count, out);
}

uint64_t pipelines_compile_ns(struct device *device) {
  struct pipeline_store *store = device->pipelines;
  pthread_mutex_lock(&store->lock);
  const uint64_t now = store->compiling ? platform_clock_ns() - store->compile_start : 0, ns = store->compile_ns + now;
  pthread_mutex_unlock(&store->lock);
  return ns;
}

deltaic_status pipelines_create(struct device *device, const char *cache_dir) {
  struct pipeline_store *store = calloc(1, sizeof *store);
  if (!store) return fail_memory("kernels", sizeof *store);
  device->pipelines = store;
  pthread_mutex_init(&store->lock, NULL);
  pthread_cond_init(&store->compiled_one, NULL);
  VkResult result = cache_open(device, cache_dir, &store->cache);
  return result ? device_fail(device, result, "the pipeline cache was made") : DELTAIC_OK;
}

void pipelines_free(struct device *device) {
  struct pipeline_store *store = device->pipelines;
  if (!store) return;
  if (store->compiled) {
    instance_log(device->instance, DELTAIC_LOG_INFO, "%u pipelines made in %.0f ms", store->compiled,
                 store->compile_ns / 1e6);
    cache_save(device, &store->cache);
  }
  for (int i = 0; i < BUCKETS; i++)
    for (struct entry *entry = store->bucket[i], *after; entry; entry = after) {
      after = entry->next;
      kernel_destroy(device, &entry->kernel);
      free(entry);
    }
  cache_close(device, &store->cache);
  pthread_mutex_destroy(&store->lock);
  pthread_cond_destroy(&store->compiled_one);
  free(store);
  device->pipelines = NULL;
}
