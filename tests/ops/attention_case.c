// attention_case: see attention_case.h.
#include "attention_case.h"

struct attention_case {
  struct attention_args a;
  struct array qkv, cache_k, cache_v;
};

static void reference_attention(double *o, const struct attention_case *v, const struct sequence *s, uint32_t t,
                                uint32_t head) {
  const struct attention_args *a = &v->a;
  uint32_t d = a->d, size = a->kv_heads * d, width = a->heads * d + 2 * size, end = s->pos + t + 1;
  uint32_t first = a->window && end > a->window ? end - a->window : 0, kv = head / (a->heads / a->kv_heads) * d;
  const double *q = v->qkv.v + (s->row + t) * width + head * d;
  double *score = zeros(end - first), max = -INFINITY, sum = 0;
  for (uint32_t p = first; p < end; p++) {
    const double *k = v->cache_k.v + ((size_t)s->slot * a->capacity + p % a->capacity) * size + kv;
    for (uint32_t j = 0; j < d; j++) score[p - first] += q[j] * k[j] / sqrt(d);
    max = fmax(max, score[p - first]);
  }
  for (uint32_t p = first; p < end; p++) sum += exp(score[p - first] - max);
  for (uint32_t p = first; p < end; p++) {
    const double *value = v->cache_v.v + ((size_t)s->slot * a->capacity + p % a->capacity) * size + kv;
    for (uint32_t j = 0; j < d; j++) o[j] += exp(score[p - first] - max) / sum * value[j];
  }
}

void attention_check(const char *what, struct attention_args a, const struct sequence *s, uint32_t B, double scale,
                     enum dtype dtype, uint32_t o_stride, double limit) {
  uint32_t rows = 0, size = a.kv_heads * a.d, width = a.heads * a.d + 2 * size;
  for (uint32_t i = 0; i < B; i++) rows = s[i].row + s[i].T > rows ? s[i].row + s[i].T : rows;
  struct attention_case v = {.a = a};
  double *values = normals((size_t)rows * width);
  for (size_t i = 0; i < (size_t)rows * width; i++) values[i] *= scale;
  v.qkv = activations(rows, width, width + 2, values);
  v.cache_k = activations(3, a.capacity * size, DENSE, normals(3 * (size_t)a.capacity * size));
  v.cache_v = activations(3, a.capacity * size, DENSE, normals(3 * (size_t)a.capacity * size));
  struct array o = activations_in(dtype, rows, a.heads * a.d, o_stride, NULL);
  RUN(op_attention(list, &(struct attention){.o = o.t,
                                             .qkv = v.qkv.t,
                                             .cache_k = v.cache_k.t,
                                             .cache_v = v.cache_v.t,
                                             .sequences = sequences_of(s, B).t,
                                             .a = a}));
  double *want = zeros((size_t)rows * a.heads * a.d);
  for (uint32_t i = 0; i < B; i++)
    for (uint32_t t = 0; t < s[i].T; t++)
      for (uint32_t h = 0; h < a.heads; h++)
        reference_attention(want + (s[i].row + t) * a.heads * a.d + h * a.d, &v, &s[i], t, h);
  expect_close(what, read_values(&o), want, (size_t)rows * a.heads * a.d, limit);
}
