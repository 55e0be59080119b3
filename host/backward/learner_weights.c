// learner_weights: between the checkpoint's tensors and those of the device, whose rows are joined, transposed or
// computed.
#include "learner_inside.h"

#include <stdlib.h>

static float *row_of(const struct tensor *t, uint64_t row) { return (float *)t->buffer->mapped + row * t->stride; }

// A copy of the tensor on the host, `at` being its buffer; the learner has its memory.
static deltaic_status take_copy(struct learner *l, struct tensor *t, struct buffer *at) {
  const uint64_t bytes = (uint64_t)t->rows * t->stride * sizeof(float);
  if (l->host_bytes < bytes) {
    free(l->host);
    l->host = malloc(bytes);
    l->host_bytes = l->host ? bytes : 0;
    if (!l->host) return fail_memory("a tensor", bytes);
  }
  *at = (struct buffer){.bytes = bytes, .mapped = l->host};
  const deltaic_status status = l->backend->functions->buffer_read(l->backend, t->buffer, t->offset, l->host, bytes);
  t->buffer = at;
  t->offset = 0;
  return status;
}

// Whether a request's tensor has parts of t. Computed rows may.
static bool is_of(const struct learner *l, const struct weight_request *r, const struct file_tensor *t) {
  bool found = r->back != NULL;
  for (int p = 0; p < r->count; p++) found |= l->model.weights.parts[r->first_part + (uint64_t)p].source == t;
  return found;
}

struct collect {
  const struct file_tensor *t;
  float *out;
};

static void collect_part(void *user, const struct weight_part *part, uint32_t cols, const float *d) {
  struct collect *c = user;
  if (part->source != c->t) return;
  for (uint32_t i = 0; i < part->rows; i++)
    for (uint32_t k = 0; k < cols; k++) c->out[weight_part_row(part, i) * cols + k] += d[(uint64_t)i * cols + k];
}

static void collect_request(const struct learner *l, const struct weight_request *r, const struct tensor *g,
                            struct collect *c) {
  uint32_t at = 0;
  if (r->back) r->back(r->context.bytes, g->cols, row_of(g, 0), collect_part, c);
  for (int p = 0; p < r->count; p++) {
    const struct weight_part *part = &l->model.weights.parts[r->first_part + (uint64_t)p];
    if (r->layout == PARTS_UNDER) collect_part(c, part, g->cols, row_of(g, at));
    if (r->layout == PARTS_ALONG) collect_part(c, part, 1, row_of(g, 0) + at);
    for (uint32_t j = 0; r->layout == PARTS_TRANSPOSED && part->source == c->t && j < part->rows; j++)
      for (uint32_t i = 0; i < g->rows; i++) c->out[weight_part_row(part, j) * g->rows + i] += row_of(g, i)[at + j];
    at += part->rows + part->zeros;
  }
}

deltaic_status learner_gradient(struct learner *l, const struct file_tensor *t, float *out) {
  struct collect c = {t, out};
  uint64_t n = 1;
  deltaic_status status = DELTAIC_OK;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  memset(out, 0, n * sizeof *out);
  for (size_t i = 0; l->weights && i < l->model.weights.count && !status; i++) {
    const struct weight_request *r = &l->model.weights.requests[i];
    struct tensor g = l->weights[i].gradient;
    struct buffer at;
    if (!g.buffer || !is_of(l, r, t)) continue;
    status = take_copy(l, &g, &at);
    if (!status) collect_request(l, r, &g, &c);
  }
  for (uint64_t i = 0; i < n; i++) out[i] *= (float)(1 / learner_unit(l));
  return status;
}

// ---------------------------------------------------------------- new values

static void set_rows(const struct learner *l, const struct weight_request *r, const struct file_tensor *t,
                     const struct tensor *out) {
  uint32_t at = 0;
  for (uint32_t i = 0; r->back && i < out->rows; i++) r->row(r->context.bytes, i, out->cols, row_of(out, i));
  for (int p = 0; p < r->count; p++) {
    const struct weight_part *part = &l->model.weights.parts[r->first_part + (uint64_t)p];
    for (uint32_t j = 0; part->source == t && j < part->rows; j++) {
      if (r->layout == PARTS_UNDER) weight_part_read(part, j, 1, out->cols, row_of(out, at + j));
      if (r->layout == PARTS_ALONG) weight_part_read(part, j, 1, 1, row_of(out, 0) + at + j);
      for (uint32_t i = 0; r->layout == PARTS_TRANSPOSED && i < out->rows; i++)
        file_tensor_f32(t, weight_part_row(part, j) * out->rows + i, 1, row_of(out, i) + at + j);
    }
    at += part->rows + part->zeros;
  }
}

static deltaic_status set_request(struct learner *l, const struct weight_request *r, const struct file_tensor *t) {
  struct tensor copy = *r->out;
  struct buffer at;
  deltaic_status status = take_copy(l, &copy, &at);
  if (status) return status;
  set_rows(l, r, t, &copy);
  return l->backend->functions->buffer_write(l->backend, r->out->buffer, r->out->offset, l->host, at.bytes);
}

deltaic_status learner_set(struct learner *l, struct file_tensor *t, const float *values) {
  deltaic_status status = DELTAIC_OK;
  t->data = values;
  t->dtype = FILE_F32;
  for (size_t i = 0; i < l->model.weights.count && !status; i++) {
    const struct weight_request *r = &l->model.weights.requests[i];
    if (!r->same && !r->mixed && is_of(l, r, t)) status = set_request(l, r, t);
  }
  return status;
}
