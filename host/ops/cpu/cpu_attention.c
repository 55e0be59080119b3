// cpu_attention: rotary positions and softmax attention over a ring of keys and values.
#include "cpu_backend.h"

struct attention_call {
  struct tensor o, qkv, cache_k, cache_v, table;
  const struct sequence *q;
  struct attention_args a;
  uint32_t together; // heads of a task
};

// The rotation (c + is) of a sum of angles is the product of their rotations, so the table has one row per byte of the
// position. A byte of 0 rotates by nothing.
static void rotate(float *x, const struct tensor *table, uint32_t position) {
  const uint32_t half = table->cols / 2;
  if (!half) return;
  for (uint32_t level = 0; level < 4; level++) {
    uint32_t byte = position >> 8 * level & 255;
    if (!byte) continue;
    const float *cosine = f32_row(table, level * 256 + byte), *sine = cosine + (table->cols - half);
    for (uint32_t j = 0; j < half; j++) {
      float a = x[j], b = x[j + half];
      x[j] = a * cosine[j] - b * sine[j];
      x[j + half] = a * sine[j] + b * cosine[j];
    }
  }
}

static float *cache_row(const struct tensor *cache, const struct attention_call *v, uint32_t position) {
  uint64_t size = (uint64_t)v->a.kv_heads * v->a.d;
  return f32_row(cache, v->q->slot) + position % v->a.capacity * size;
}

static void rope_append_row(void *context, uint64_t t, uint32_t worker) {
  const struct attention_call *v = context;
  (void)worker;
  uint32_t position = v->q->pos + (uint32_t)t, d = v->a.d, size = v->a.kv_heads * d;
  float *row = f32_row(&v->qkv, v->q->row + t), *k = row + (uint64_t)v->a.heads * d;
  for (uint32_t h = 0; h < v->a.heads + v->a.kv_heads; h++) rotate(row + (uint64_t)h * d, &v->table, position);
  memcpy(cache_row(&v->cache_k, v, position), k, size * sizeof(float));
  memcpy(cache_row(&v->cache_v, v, position), k + size, size * sizeof(float));
}

void cpu_rope_append(struct recorder *c, const struct rope_append *rope) {
  const struct attention_args *a = &rope->a;
  cpu_copy_to_output(c, rope->y, rope->x);
  if (!cpu_begin(c)) return;
  uint64_t n = 0, width = (uint64_t)a->heads + a->kv_heads;
  struct attention_call v = {
      .qkv = rope->y, .cache_k = rope->cache_k, .cache_v = rope->cache_v, .table = rope->table, .a = *a};
  for (uint32_t s = 0; s < rope->sequences.rows; s++) {
    v.q = sequence_at(&rope->sequences, s);
    assert(v.q->T <= a->capacity);
    cpu_parallel(c, v.q->T, 6 * width * rope->table.cols * v.q->T, rope_append_row, &v);
    n += v.q->T;
  }
  cpu_end(c, "rope_append", NULL, 4 * n * a->d * (2 * width + 3ull * a->kv_heads), 6 * n * width * rope->table.cols);
}

enum { POSITIONS = 64, MOST_TOGETHER = 16 }; // scores that are held at once; heads of a task

// Online softmax: with the maximum m of the scores so far, sum = sum of e^(score - m) and o = sum of e^(score - m) v. A
// larger maximum rescales both.
struct softmax {
  float max, sum;
};

enum { KEYS = 4 }; // that a loop reads at once

// score[i] = scale q k[i].
static inline __attribute__((always_inline)) void scores_of(float *score, const float *q, const float *const *k,
                                                            uint32_t d, float scale) {
  half_lanes sums[KEYS][2] = {{{0}}};
  for (uint32_t j = 0; j < d; j += LANES)
    for (int i = 0; i < KEYS; i++)
      for (int h = 0; h < 2; h++) sums[i][h] += ((const half_lanes *)(q + j))[h] * ((const half_lanes *)(k[i] + j))[h];
  for (int i = 0; i < KEYS; i++) score[i] = scale * lanes_sum((const lanes *)sums[i]);
}

// o += p[0] v[0] + p[1] v[1] + ..., from left to right.
static inline __attribute__((always_inline)) void add_values(float *restrict o, const float *p, const float *const *v,
                                                             uint32_t d) {
  for (uint32_t j = 0; j < d; j += LANES / 2) {
    half_lanes sum = *(half_lanes *)(o + j);
    for (int i = 0; i < KEYS; i++) sum += p[i] * *(const half_lanes *)(v[i] + j);
    *(half_lanes *)(o + j) = sum;
  }
}

// The scores become e^(score - max).
static inline __attribute__((always_inline)) void soften(struct softmax *f, float *o, float *score, uint32_t n,
                                                         uint32_t d) {
  float max = f->max;
  for (uint32_t i = 0; i < n; i++)
    if (score[i] > max) max = score[i];
  const float shrink = expf(f->max - max);
  f->max = max;
  f->sum *= shrink;
  for (uint32_t j = 0; j < d; j++) o[j] *= shrink;
  for (uint32_t i = 0; i < n; i++) f->sum += score[i] = expf(score[i] - max);
}

// All heads of a task; keys and values come from the second cache once for all of them.
CPU_CLONES static void attend_block(struct softmax *f, float *o, const float *q, const struct attention_call *v,
                                    uint32_t kv_head, uint32_t first, uint32_t n) {
  const uint32_t d = v->a.d, heads = v->together, fours = d % LANES ? 0 : n / KEYS * KEYS;
  const float *k[POSITIONS], *values[POSITIONS], scale = 1 / sqrtf((float)d);
  float score[MOST_TOGETHER][POSITIONS];
  for (uint32_t i = 0; i < n; i++) {
    k[i] = cache_row(&v->cache_k, v, first + i) + (uint64_t)kv_head * d;
    values[i] = cache_row(&v->cache_v, v, first + i) + (uint64_t)kv_head * d;
  }
  for (uint32_t i = 0; i < fours; i += KEYS)
    for (uint32_t h = 0; h < heads; h++) scores_of(&score[h][i], q + h * d, k + i, d, scale);
  for (uint32_t i = fours; i < n; i++)
    for (uint32_t h = 0; h < heads; h++) score[h][i] = scale * lanes_dot(q + h * d, k[i], d);
  for (uint32_t h = 0; h < heads; h++) soften(&f[h], o + h * d, score[h], n, d);
  for (uint32_t i = 0; i < fours; i += KEYS)
    for (uint32_t h = 0; h < heads; h++) add_values(o + h * d, &score[h][i], values + i, d);
  for (uint32_t i = fours; i < n; i++)
    for (uint32_t h = 0; h < heads; h++)
      for (uint32_t j = 0; j < d; j++) o[h * d + j] += score[h][i] * values[i][j];
}

// A token's heads that share keys and values go through these together, a block of positions at a time.
static void attention_heads(void *context, uint64_t index, uint32_t worker) {
  const struct attention_call *v = context;
  (void)worker;
  const uint32_t tasks = v->a.heads / v->together, t = (uint32_t)(index / tasks), d = v->a.d;
  const uint32_t head = (uint32_t)(index % tasks) * v->together;
  const uint32_t end = v->q->pos + t + 1, begin = v->a.window && end > v->a.window ? end - v->a.window : 0;
  const float *q = f32_row(&v->qkv, v->q->row + t) + (uint64_t)head * d;
  float *o = f32_row(&v->o, v->q->row + t) + (uint64_t)head * d;
  struct softmax f[MOST_TOGETHER];
  memset(o, 0, (uint64_t)v->together * d * sizeof(float));
  for (uint32_t i = 0; i < v->together; i++) f[i] = (struct softmax){-INFINITY, 0};
  for (uint32_t first = begin; first < end; first += POSITIONS)
    attend_block(f, o, q, v, head / (v->a.heads / v->a.kv_heads), first,
                 end - first < POSITIONS ? end - first : POSITIONS);
  for (uint32_t i = 0; i < v->together; i++)
    for (uint32_t j = 0; j < d; j++) o[i * d + j] /= f[i].sum;
}

// Heads of a task: as many as share keys and values, if enough tasks remain for all threads.
static uint32_t heads_together(const struct recorder *c, const struct attention_args *a, uint32_t T) {
  const uint32_t share = a->heads / a->kv_heads;
  for (uint32_t heads = share < MOST_TOGETHER ? share : MOST_TOGETHER; heads > 1; heads--)
    if (share % heads == 0 && (uint64_t)T * a->heads / heads >= 4ull * cpu_threads(c->backend)) return heads;
  return 1;
}

// Sum of the positions that the tokens of a sequence see.
static uint64_t positions_seen(const struct sequence *q, uint32_t window) {
  uint64_t n = 0;
  for (uint32_t t = 0; t < q->T; t++) n += window && q->pos + t + 1 > window ? window : q->pos + t + 1;
  return n;
}

void cpu_attention(struct recorder *c, const struct attention *op) {
  if (!cpu_begin(c)) return;
  const struct attention_args *a = &op->a;
  uint64_t bytes = 0, operations = 0;
  struct attention_call v = {.o = op->o, .qkv = op->qkv, .cache_k = op->cache_k, .cache_v = op->cache_v, .a = *a};
  for (uint32_t s = 0; s < op->sequences.rows; s++) {
    v.q = sequence_at(&op->sequences, s);
    uint64_t work = 4 * positions_seen(v.q, a->window) * a->heads * a->d;
    v.together = heads_together(c, a, v.q->T);
    cpu_parallel(c, (uint64_t)v.q->T * (a->heads / v.together), work, attention_heads, &v);
    uint64_t span = v.q->pos + v.q->T; // positions that some token sees
    if (a->window && span > v.q->T + a->window - 1) span = v.q->T + a->window - 1;
    bytes += 8 * a->d * ((uint64_t)v.q->T * a->heads + span * a->kv_heads);
    operations += work;
  }
  cpu_end(c, "attention", NULL, bytes, operations);
}
