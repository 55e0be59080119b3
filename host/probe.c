// probe: see probe.h.
#include "probe.h"

#include <stdlib.h>
#include <string.h>

void probe_free(struct probe *p) {
  free(p->data);
  free(p->kept);
  *p = (struct probe){0};
}

static bool reserve(struct probe *p, float **room, uint64_t *have, uint64_t bytes) {
  if (bytes <= *have) return true;
  free(*room);
  *room = malloc(bytes);
  *have = *room ? bytes : 0;
  if (!*room) p->status = fail_memory("an activation to be looked at", bytes);
  return *room != NULL;
}

// Brings t, whose rows may lie apart, to the host.
static bool fetch(struct probe *p, struct recorder *c, struct tensor t, float **room, uint64_t *have) {
  if (p->status != DELTAIC_OK) return false;
  if (!reserve(p, room, have, tensor_bytes(&t))) return false;
  p->status = c->ops->recorder_run(c);
  if (p->status == DELTAIC_OK) p->status = c->ops->buffer_read(c->backend, t.buffer, t.offset, *room, tensor_bytes(&t));
  c->ops->recorder_begin(c, false, p->cancel);
  for (uint64_t r = 1; p->status == DELTAIC_OK && r < t.rows && t.stride != t.cols; r++)
    memmove(*room + r * t.cols, *room + r * t.stride, t.cols * sizeof **room);
  return p->status == DELTAIC_OK;
}

static void hand_out(struct probe *p, deltaic_probe_kind kind, size_t rows, size_t cols) {
  deltaic_probed probed = p->sizes;
  probed.kind = kind;
  probed.layer = p->layer;
  probed.position = p->position + (kind == DELTAIC_PROBE_STATE ? p->tokens - 1 : 0);
  probed.rows = rows;
  probed.cols = cols;
  probed.data = p->data;
  if (!p->function(p->user, &probed)) p->status = fail(DELTAIC_CANCELLED, "stopped by the probe");
}

void probe_tensor(struct probe *p, struct recorder *c, deltaic_probe_kind kind, struct tensor t, size_t rows,
                  size_t cols) {
  if (!probe_wants(p, kind) || !t.buffer) return;
  if (fetch(p, c, t, &p->data, &p->data_bytes)) hand_out(p, kind, rows, cols);
}

static void put(struct probe *p, struct recorder *c, struct tensor x, const float *data) {
  if (p->status == DELTAIC_OK) p->status = c->ops->buffer_write(c->backend, x.buffer, x.offset, data, tensor_bytes(&x));
}

void probe_output_begin(struct probe *p, struct recorder *c, struct tensor x) {
  if (!probe_wants(p, DELTAIC_PROBE_MIXER_OUTPUT)) return;
  if (!fetch(p, c, x, &p->kept, &p->kept_bytes)) return;
  if (!reserve(p, &p->data, &p->data_bytes, tensor_bytes(&x))) return;
  memset(p->data, 0, tensor_bytes(&x));
  put(p, c, x, p->data);
}

void probe_output_end(struct probe *p, struct recorder *c, struct tensor x) {
  if (!probe_wants(p, DELTAIC_PROBE_MIXER_OUTPUT)) return;
  if (!fetch(p, c, x, &p->data, &p->data_bytes)) return;
  hand_out(p, DELTAIC_PROBE_MIXER_OUTPUT, x.rows, x.cols);
  for (uint64_t i = 0; i < (uint64_t)x.rows * x.cols; i++) p->kept[i] += p->data[i]; // the sum that matmul would make
  put(p, c, x, p->kept);
}
