// lanes: chooses the number of sequences, so that one pass over the weights serves many tokens and the states leave
// memory for other uses.
#include "lanes.h"
#include "common.h"

enum { GPU_LANES = 64, CPU_LANES = 8, GPU_BATCH = 2048, MOST_LANES = 256 };

static bool is_gpu(const struct engine *engine) {
  deltaic_device_kind kind = engine->device_info.kind;
  return kind == DELTAIC_DEVICE_DISCRETE || kind == DELTAIC_DEVICE_INTEGRATED || kind == DELTAIC_DEVICE_VIRTUAL;
}

uint64_t lanes_within(const deltaic_device_info *info, const deltaic_memory *memory) {
  uint64_t used = memory->weights_bytes + memory->scratch_bytes;
  uint64_t left = info->memory_bytes > used ? info->memory_bytes - used : 0;
  if (info->free_bytes) left = info->free_bytes > memory->scratch_bytes ? info->free_bytes - memory->scratch_bytes : 0;
  uint64_t fit = memory->state_bytes ? left / 2 / memory->state_bytes : MOST_LANES;
  return fit ? fit : 1;
}

static uint64_t lanes_that_fit(const struct engine *engine, const struct engine_options *options) {
  deltaic_session_options o = session_options(options);
  deltaic_memory memory;
  o.sequences = 1;
  if (deltaic_model_get_memory(engine->model, &o, &memory)) return 1;
  deltaic_device_info info;
  deltaic_device_get_info(engine->device, &info); // queried after the weights are loaded
  return lanes_within(&info, &memory);
}

static uint32_t choose_count(const struct engine *engine, const struct engine_options *options, uint32_t least,
                             uint64_t most) {
  uint64_t count = options->sequences, fit = lanes_that_fit(engine, options);
  if (!count) {
    count = is_gpu(engine) ? GPU_LANES : CPU_LANES;
    if (count > fit) count = fit;
  }
  if (count > most) count = most;
  if (count > MOST_LANES) count = MOST_LANES;
  return count < least ? least : (uint32_t)count;
}

int lanes_open(struct lanes *lanes, const struct engine *engine, const struct engine_options *options, uint32_t least,
               uint64_t most, uint64_t context) {
  struct engine_options o = *options;
  o.context = context < UINT32_MAX ? (uint32_t)context : UINT32_MAX;
  if (!o.batch) o.batch = is_gpu(engine) ? GPU_BATCH : 512;
  lanes->count = choose_count(engine, &o, least, most);
  lanes->batch = o.batch < lanes->count ? lanes->count : o.batch;
  deltaic_session_options session = session_options(&o);
  session.sequences = lanes->count;
  session.batch = lanes->batch;
  int code = complain_status(deltaic_session_create(engine->model, &session, &lanes->session));
  if (!code) interrupt_watch(lanes->session);
  return code;
}

void lanes_close(struct lanes *lanes) {
  interrupt_watch(NULL);
  deltaic_session_free(lanes->session);
  *lanes = (struct lanes){0};
}
