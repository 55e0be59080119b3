// probe: reads an activation from the device and passes it to the caller (probe.h).
#include "probe.h"

#include <stdlib.h>
#include <string.h>

void probe_free(struct probe *p) {
  free(p->data);
  *p = (struct probe){0};
}

static bool reserve(struct probe *p, uint64_t bytes) {
  if (bytes <= p->data_bytes) return true;
  free(p->data);
  p->data = malloc(bytes);
  p->data_bytes = p->data ? bytes : 0;
  if (!p->data) p->status = fail_memory("a probed activation", bytes);
  return p->data != NULL;
}

// Reads t, whose rows may not be contiguous, from the device.
static bool fetch(struct probe *p, struct recorder *c, struct tensor t) {
  if (p->status != DELTAIC_OK || !reserve(p, tensor_bytes(&t))) return false;
  p->status = c->functions->recorder_run(c);
  if (p->status == DELTAIC_OK)
    p->status = c->functions->buffer_read(c->backend, t.buffer, t.offset, p->data, tensor_bytes(&t));
  c->functions->recorder_begin(c, false, p->cancel);
  for (uint64_t r = 1; p->status == DELTAIC_OK && r < t.rows && t.stride != t.cols; r++)
    memmove(p->data + r * t.cols, p->data + r * t.stride, t.cols * sizeof *p->data);
  return p->status == DELTAIC_OK;
}

// Indices are integers on the device.
static void make_floats(float *data, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    int32_t index;
    memcpy(&index, data + i, sizeof index);
    data[i] = (float)index;
  }
}

void probe_look(void *context, struct recorder *c, const struct probed *op) {
  struct probe *p = context;
  deltaic_probed probed = op->what;
  if (!fetch(p, c, op->t)) return;
  if (probed.kind == DELTAIC_PROBE_EXPERTS) make_floats(p->data, (uint64_t)probed.rows * probed.cols);
  probed.position = p->position + (probed.kind == DELTAIC_PROBE_STATE ? p->tokens - 1 : 0);
  probed.data = p->data;
  if (!p->function(p->user, &probed)) p->status = fail(DELTAIC_CANCELLED, "the probe stopped the computation");
}
