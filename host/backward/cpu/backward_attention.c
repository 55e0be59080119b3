// backward_attention: backward pass of softmax attention. With s_j = q k_j / sqrt(d) over the positions that a query
// sees, P = softmax(s), delta = sum P_j (do v_j):
//   dS_j = P_j (do v_j - delta) / sqrt(d),  dq = sum dS_j k_j,  dk_j += dS_j q,  dv_j += P_j do
// P is computed again for each query. The call begins its sequences, so all keys and values are rows of this call.
#include "backward_cpu.h"

struct attention_call {
  struct attention o;
  struct tensor d_o, dqkv;
  float *scores; // (threads, 2 longest): P, then do v
  uint32_t longest;
};

// One sequence and key head, with all query heads that share it: no other task adds to these keys.
static void key_head(void *context, uint64_t index, uint32_t worker) {
  const struct attention_call *v = context;
  const struct attention_args *a = &v->o.a;
  const struct sequence *q = walk_sequence(&v->o.sequences, (uint32_t)(index / a->kv_heads));
  const uint32_t d = a->d, group = a->heads / a->kv_heads, kv = (uint32_t)(index % a->kv_heads);
  const uint32_t k_at = (a->heads + kv) * d, v_at = k_at + a->kv_heads * d;
  const float scale = 1 / sqrtf((float)d);
  float *P = v->scores + (uint64_t)worker * 2 * v->longest, *dP = P + v->longest;
  for (uint32_t i = 0; i < q->T; i++)
    for (uint32_t h = kv * group; h < (kv + 1) * group; h++) {
      const uint32_t first = a->window && i + 1 > a->window ? i + 1 - a->window : 0;
      const float *query = f32_row(&v->o.qkv, q->row + i) + h * d, *d_o = f32_row(&v->d_o, q->row + i) + h * d;
      float *dq = f32_row(&v->dqkv, q->row + i) + h * d, most = -INFINITY;
      double sum = 0, delta = 0;
      for (uint32_t j = first; j <= i; j++) {
        const float *row = f32_row(&v->o.qkv, q->row + j);
        P[j] = scale * lanes_dot(query, row + k_at, d);
        dP[j] = lanes_dot(d_o, row + v_at, d);
        most = fmaxf(most, P[j]);
      }
      for (uint32_t j = first; j <= i; j++) sum += P[j] = expf(P[j] - most);
      for (uint32_t j = first; j <= i; j++) delta += (P[j] /= (float)sum) * (double)dP[j];
      for (uint32_t j = first; j <= i; j++) {
        const float *row = f32_row(&v->o.qkv, q->row + j), dS = scale * P[j] * (dP[j] - (float)delta);
        float *to = f32_row(&v->dqkv, q->row + j);
        for (uint32_t x = 0; x < d; x++) {
          dq[x] += dS * row[k_at + x];
          to[k_at + x] += dS * query[x];
          to[v_at + x] += P[j] * d_o[x];
        }
      }
    }
}

void backward_attention(struct walk *w, const struct attention *op) {
  const struct attention_args *a = &op->a;
  struct attention_call v = {.o = *op, .d_o = walk_gradient(w, op->o), .dqkv = walk_gradient(w, op->qkv)};
  uint64_t work = 0;
  for (uint32_t s = 0; s < op->sequences.rows; s++) {
    const struct sequence *q = walk_sequence(&op->sequences, s);
    assert(q->pos == 0);
    if (q->T > v.longest) v.longest = q->T;
    work += 5ull * q->T * q->T * a->heads * a->d;
  }
  v.scores = back_room(w, 2ull * v.longest * cpu_threads(w->c->backend));
  if (v.scores) cpu_parallel(w->c, (uint64_t)op->sequences.rows * a->kv_heads, work, key_head, &v);
}
