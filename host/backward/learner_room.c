// learner_room: a learner's recording, and memory that grows between its passes.
#include "learner_inside.h"

void learner_record(struct learner *l) {
  if (!l->recording) l->backend->functions->recorder_begin(l->recorder, false, NULL);
  l->recording = true;
}

deltaic_status learner_run(struct learner *l) {
  const bool any = l->recording;
  l->recording = false;
  return any ? l->backend->functions->recorder_run(l->recorder) : DELTAIC_OK;
}

// Before memory is freed, runs what may use it; the recording goes on.
static deltaic_status run_so_far(struct learner *l) {
  if (!l->recording) return DELTAIC_OK;
  const deltaic_status status = learner_run(l);
  if (!status) learner_record(l);
  return status;
}

deltaic_status learner_room(struct learner *l, struct buffer *b, uint64_t bytes, const char *what) {
  if (b->bytes >= bytes) return DELTAIC_OK;
  const deltaic_status status = b->bytes ? run_so_far(l) : DELTAIC_OK;
  if (status) return status;
  l->backend->functions->buffer_free(l->backend, b);
  return l->backend->functions->buffer_create(l->backend, MEMORY_DEVICE, bytes, what, b);
}

void learner_kept_free(struct learner *l) {
  for (uint32_t i = 0; l->is_kept && i < l->model.spec.L; i++) {
    l->backend->functions->buffer_free(l->backend, &l->kept[i]);
    l->is_kept[i] = false;
  }
  l->kept_bytes = 0;
}

void learner_keep(struct learner *l, uint64_t bytes) {
  if (bytes < l->kept_bytes) learner_kept_free(l);
  l->keep_bytes = bytes;
}

deltaic_status learner_kept_room(struct learner *l, uint32_t i, uint64_t bytes, struct buffer **out) {
  struct buffer *b = &l->kept[i];
  *out = NULL;
  if (b->bytes < bytes) {
    if (l->kept_bytes - b->bytes + bytes > l->keep_bytes) return DELTAIC_OK;
    deltaic_status status = run_so_far(l);
    if (status) return status;
    l->kept_bytes -= b->bytes;
    l->backend->functions->buffer_free(l->backend, b);
    status = l->backend->functions->buffer_create(l->backend, MEMORY_DEVICE, bytes, "a layer's values", b);
    if (status) learner_keep(l, 0);
    if (status) return status == DELTAIC_OUT_OF_MEMORY ? DELTAIC_OK : status;
    l->kept_bytes += bytes;
  }
  *out = b;
  return DELTAIC_OK;
}
