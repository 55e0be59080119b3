// learner_weights: between the checkpoint's tensors and those of the device, whose rows are joined, transposed or
// computed.
#include "learner_inside.h"

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
  if (r->back) r->back(r->context.bytes, g->cols, f32_row(g, 0), collect_part, c);
  for (int p = 0; p < r->count; p++) {
    const struct weight_part *part = &l->model.weights.parts[r->first_part + (uint64_t)p];
    if (r->layout == PARTS_UNDER) collect_part(c, part, g->cols, f32_row(g, at));
    if (r->layout == PARTS_ALONG) collect_part(c, part, 1, f32_row(g, 0) + at);
    for (uint32_t j = 0; r->layout == PARTS_TRANSPOSED && part->source == c->t && j < part->rows; j++)
      for (uint32_t i = 0; i < g->rows; i++) c->out[weight_part_row(part, j) * g->rows + i] += f32_row(g, i)[at + j];
    at += part->rows + part->zeros;
  }
}

deltaic_status learner_gradient(const struct learner *l, const struct file_tensor *t, float *out) {
  struct collect c = {t, out};
  uint64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->shape[i];
  memset(out, 0, n * sizeof *out);
  for (size_t i = 0; l->weights && i < l->model.weights.count; i++)
    if (l->weights[i].gradient.buffer) collect_request(l, &l->model.weights.requests[i], &l->weights[i].gradient, &c);
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- new values

static void set_request(const struct learner *l, const struct weight_request *r, const struct file_tensor *t) {
  const struct tensor *out = r->out;
  uint32_t at = 0;
  for (uint32_t i = 0; r->back && i < out->rows; i++) r->row(r->context.bytes, i, out->cols, f32_row(out, i));
  for (int p = 0; p < r->count; p++) {
    const struct weight_part *part = &l->model.weights.parts[r->first_part + (uint64_t)p];
    for (uint32_t j = 0; part->source == t && j < part->rows; j++) {
      if (r->layout == PARTS_UNDER) weight_part_read(part, j, 1, out->cols, f32_row(out, at + j));
      if (r->layout == PARTS_ALONG) weight_part_read(part, j, 1, 1, f32_row(out, 0) + at + j);
      for (uint32_t i = 0; r->layout == PARTS_TRANSPOSED && i < out->rows; i++)
        file_tensor_f32(t, weight_part_row(part, j) * out->rows + i, 1, f32_row(out, i) + at + j);
    }
    at += part->rows + part->zeros;
  }
}

void learner_set(struct learner *l, struct file_tensor *t, const float *values) {
  t->data = values;
  t->dtype = FILE_F32;
  for (size_t i = 0; i < l->model.weights.count; i++) {
    const struct weight_request *r = &l->model.weights.requests[i];
    if (!r->same && !r->mixed) set_request(l, r, t);
  }
}
