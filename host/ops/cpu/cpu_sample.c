// cpu_sample: draws the next token, and scores given tokens. It is the definition that shaders/token/sample.comp
// follows.
//
// 1 z[i] = logit, but -inf for NaN and FLT_MAX for +inf. For tokens in `seen` and a penalty other than 0 and 1:
//   z > 0 ? z / penalty : z * penalty, then the replacement of NaN and +inf again.
// 2 temperature 0: the token with the largest z, the lowest id among equals; id 0 if all are -inf. Otherwise m = max z,
//   w[i] = e^((z[i] - m) / temperature). The difference comes first: z / temperature alone may be infinite.
// 3 top-k, then top-p. Both order the tokens by z descending, then by id ascending, and keep a prefix: top-k the first
//   k, top-p the fewest of these whose w reach top_p times the sum of their w. A prefix is a threshold on z and the
//   number of tokens equal to it that are kept. z is compared by a 32-bit key of the same order; a histogram finds 8
//   bits of the threshold at a time.
// 4 min-p drops tokens with w < min_p (m has w = 1).
// 5 key = (seed_low, seed_high), counter = (position of the drawn token, 0, 0, 0), x = Philox-4x32-10(counter, key)
//   (Salmon et al. 2011), u = (x[0] >> 8) 2^-24 in [0, 1). The token is the first, by id, at which the running sum of
//   the kept w exceeds u times their total.
#include "cpu_backend.h"

#include <float.h>

struct draw {
  const struct sampling *p;
  float *z; // (V)
  uint32_t V;
  float max;
};

// What top-k and top-p keep: all keys above `key`, and the first `equals` tokens with that key.
struct cut {
  uint32_t key;
  uint64_t equals;
};

static float tame(float z) {
  if (isnan(z)) return -INFINITY;
  return z > FLT_MAX ? FLT_MAX : z;
}

static void adjust(struct draw *d, const float *logits, const uint32_t *seen) {
  float penalty = d->p->repetition_penalty;
  bool penalise = penalty != 0 && penalty != 1;
  d->max = -INFINITY;
  for (uint32_t i = 0; i < d->V; i++) {
    float z = tame(logits[i]);
    if (penalise && seen[i / 32] >> i % 32 & 1) z = tame(z > 0 ? z / penalty : z * penalty);
    d->z[i] = z;
    if (z > d->max) d->max = z;
  }
}

static uint32_t greedy(const struct draw *d) {
  for (uint32_t i = 0; i < d->V; i++)
    if (d->z[i] == d->max) return i;
  return 0;
}

static double weight(const struct draw *d, float z) { return expf((z - d->max) / d->p->temperature); }

// Maps floats to unsigned integers of the same order: negative floats are reversed and come first.
static uint32_t order_key(float z) {
  uint32_t bits;
  z += 0.0f; // -0 equals 0
  memcpy(&bits, &z, sizeof bits);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float key_value(uint32_t key) {
  uint32_t bits = key & 0x80000000u ? key & 0x7fffffffu : ~key;
  float z;
  memcpy(&z, &bits, sizeof z);
  return z;
}

// The cut that keeps the fewest tokens whose measure (1 each, or w if by_weight) reaches `target` > 0. Only tokens that
// `within` keeps count, up to the ties at its key.
static struct cut find_cut(const struct draw *d, double target, bool by_weight, struct cut within) {
  uint32_t prefix = 0;
  double above = 0; // measure of all keys above those that begin with prefix
  for (int shift = 24; shift >= 0; shift -= 8) {
    double bins[256] = {0};
    for (uint32_t i = 0; i < d->V; i++) {
      uint32_t key = order_key(d->z[i]);
      if (key < within.key || (shift < 24 && key >> (shift + 8) != prefix)) continue;
      bins[key >> shift & 255] += by_weight ? weight(d, d->z[i]) : 1;
    }
    uint32_t last = 0, bin = 255; // last: where the search ends if rounding loses the target
    while (bins[last] == 0 && last < 255) last++;
    while (bin > last && above + bins[bin] < target) above += bins[bin--];
    prefix = prefix << 8 | bin;
  }
  double each = by_weight ? weight(d, key_value(prefix)) : 1, need = target - above;
  double equals = each > 0 ? ceil(need / each) : 1;
  struct cut cut = {prefix, equals < 1 ? 1 : equals > d->V ? d->V : (uint64_t)equals};
  if (cut.key == within.key && cut.equals > within.equals) cut.equals = within.equals;
  return cut;
}

// Visits the kept tokens by id. Returns the sum of their weights, or stops at the first token whose running sum exceeds
// `until` and stores it in *id (the last kept token if rounding leaves none).
static double walk(const struct draw *d, struct cut cut, double until, uint32_t *id) {
  double sum = 0;
  uint64_t equals = 0;
  for (uint32_t i = 0; i < d->V; i++) {
    uint32_t key = order_key(d->z[i]);
    if (key < cut.key || (key == cut.key && equals++ >= cut.equals)) continue;
    double w = weight(d, d->z[i]);
    if (w < (d->p->min_p < 1 ? d->p->min_p : 1) || w == 0) continue;
    *id = i;
    sum += w;
    if (sum > until) break;
  }
  return sum;
}

// Philox-4x32-10, first word.
static uint32_t philox(uint32_t counter, uint32_t key_low, uint32_t key_high) {
  uint32_t x[4] = {counter, 0, 0, 0};
  for (int round = 0; round < 10; round++) {
    uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
    uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key_low, (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ key_high,
                     (uint32_t)a};
    memcpy(x, y, sizeof x);
    key_low += 0x9E3779B9u;
    key_high += 0xBB67AE85u;
  }
  return x[0];
}

static uint32_t draw(const struct draw *d, uint32_t position) {
  const struct sampling *p = d->p;
  if (!(p->temperature > 0) || d->max == -INFINITY) return greedy(d);
  uint32_t id = 0;
  struct cut cut = {0, d->V};
  if (p->top_k && p->top_k < d->V) cut = find_cut(d, p->top_k, false, cut);
  if (p->top_p > 0 && p->top_p < 1) {
    struct draw all = *d;
    struct sampling without_min_p = *p;
    without_min_p.min_p = 0;
    all.p = &without_min_p;
    cut = find_cut(d, p->top_p * walk(&all, cut, INFINITY, &id), true, cut);
  }
  double u = (philox(position, p->seed_low, p->seed_high) >> 8) * 0x1p-24;
  walk(d, cut, u * walk(d, cut, INFINITY, &id), &id);
  return id;
}

static void sample_sequence(void *context, uint64_t s, uint32_t worker) {
  const struct sample *v = context;
  (void)worker;
  struct sequence *q = (struct sequence *)tensor_row(&v->sequences, 0) + s;
  uint32_t *seen = tensor_row(&v->seen, q->slot);
  struct draw d = {.p = (const struct sampling *)tensor_row(&v->sampling, 0) + s, .z = f32_row(&v->scratch, s)};
  d.V = v->logits.cols;
  adjust(&d, f32_row(&v->logits, q->slot), seen);
  *q = (struct sequence){.row = (uint32_t)s, .T = 1, .pos = q->pos + q->T, .slot = q->slot};
  uint32_t id = draw(&d, q->pos);
  ((int32_t *)tensor_row(&v->tokens, 0))[s] = (int32_t)id;
  seen[id / 32] |= 1u << id % 32;
}

void cpu_sample(struct recorder *c, const struct sample *sample) {
  if (!cpu_begin(c)) return;
  uint64_t n = (uint64_t)sample->sequences.rows * sample->logits.cols;
  cpu_parallel(c, sample->sequences.rows, 4 * n, sample_sequence, (void *)sample);
  cpu_end(c, "sample", NULL, 8 * n, 4 * n);
}

// ---------------------------------------------------------------- scores

static void score_row(void *context, uint64_t t, uint32_t worker) {
  const struct score *v = context;
  (void)worker;
  const int32_t target = ((const int32_t *)tensor_row(&v->targets, 0))[v->first + t];
  if (target < 0) return;
  const float *z = f32_row(&v->logits, t);
  float most = z[0], *score = f32_row(&v->scores, v->first + t);
  double sum = 0;
  int32_t likeliest = 0;
  for (uint32_t i = 1; i < v->logits.cols; i++)
    if (z[i] > most) most = z[i], likeliest = (int32_t)i;
  for (uint32_t i = 0; i < v->logits.cols; i++) sum += expf(z[i] - most);
  score[0] = (float)((double)z[target] - most - log(sum));
  score[1] = likeliest == target;
}

void cpu_score(struct recorder *c, const struct score *score) {
  if (!cpu_begin(c)) return;
  const uint64_t n = (uint64_t)score->logits.rows * score->logits.cols;
  cpu_parallel(c, score->logits.rows, 4 * n, score_row, (void *)score);
  cpu_end(c, "score", NULL, 4 * n, 4 * n);
}
