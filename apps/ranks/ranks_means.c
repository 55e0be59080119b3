// ranks_means: computes means and histograms of the measurements, and chooses the layers and file names of the plots.
#include "ranks.h"

#include <math.h>
#include <stdio.h>

static void add_sample(struct means *s, const struct sample *sample, bool last) {
  s->stable_rank += sample->rank.stable_rank;
  s->utilization += sample->rank.utilization;
  s->entropy_rank += sample->rank.entropy_rank;
  s->condition += sample->rank.condition > 0 ? log(sample->rank.condition) : 0; // for the geometric mean
  if (last) s->last += sample->rank.utilization;
  if (!isnan(sample->similarity)) {
    s->similarity += sample->similarity;
    ++s->n;
  }
  ++s->count;
}

static void add_layer(struct means *s, const struct measured *m, const struct layer_ranks *l, int32_t head) {
  for (size_t t = 0; t < m->times; ++t)
    for (int32_t h = 0; h < l->heads; ++h)
      if (head < 0 || h == head) add_sample(s, &l->samples[t * (size_t)l->heads + (size_t)h], t + 1 == m->times);
}

static struct means divide(struct means s, size_t times) {
  double count = (double)s.count;
  s.stable_rank /= count;
  s.utilization /= count;
  s.entropy_rank /= count;
  s.condition = exp(s.condition / count);
  s.last /= count / (double)times;
  s.similarity = s.n ? s.similarity / (double)s.n : NAN;
  return s;
}

struct means means_of(const struct measured *m, const struct layer_ranks *l, int32_t head) {
  struct means s = {0};
  add_layer(&s, m, l, head);
  return divide(s, m->times);
}

struct means means_of_all(const struct measured *m) {
  struct means s = {0};
  for (size_t i = 0; i < m->layer_count; ++i) add_layer(&s, m, &m->layers[i], -1);
  return divide(s, m->times);
}

bool similarity_shares(const struct measured *m, double *shares, int bins) {
  double count = 0;
  for (int i = 0; i < bins; ++i) shares[i] = 0;
  for (size_t i = 0; i < m->layer_count; ++i)
    for (size_t j = 0; j < m->times * (size_t)m->layers[i].heads; ++j) {
      double s = m->layers[i].samples[j].similarity;
      if (isnan(s)) continue;
      int bin = (int)((s + 1) / 2 * bins);
      ++shares[bin < 0 ? 0 : bin >= bins ? bins - 1 : bin];
      ++count;
    }
  for (int i = 0; i < bins && count > 0; ++i) shares[i] /= count;
  return count > 0;
}

double similarity_entropy(const struct measured *m) {
  enum { BINS = 32 };
  double shares[BINS], entropy = 0;
  if (!similarity_shares(m, shares, BINS)) return NAN;
  for (int i = 0; i < BINS; ++i)
    if (shares[i] > 0) entropy -= shares[i] * log(shares[i]);
  return entropy / log(BINS);
}

struct layer_ranks *find_layer(const struct measured *m, uint32_t layer) {
  for (size_t i = 0; i < m->layer_count; ++i)
    if ((uint32_t)m->layers[i].layer == layer) return &m->layers[i];
  return NULL;
}

struct count_list layers_to_draw(const struct measured *m, const struct count_list *asked, size_t most) {
  struct count_list list = {.count = 0};
  if (asked->count) {
    for (size_t i = 0; i < asked->count && list.count < most; ++i)
      if (find_layer(m, asked->values[i])) list.values[list.count++] = asked->values[i];
    return list;
  }
  size_t count = m->layer_count < most ? m->layer_count : most;
  for (size_t i = 0; i < count; ++i) {
    size_t at = count > 1 ? i * (m->layer_count - 1) / (count - 1) : 0;
    list.values[list.count++] = (uint32_t)m->layers[at].layer;
  }
  return list;
}

struct file_name plot_name(const char *folder, const char *kind, const struct measured *m) {
  struct file_name out;
  snprintf(out.text, sizeof out.text, m ? "%.900s/%s-%s.png" : "%.900s/%s.png", folder, kind, m ? m->name : "");
  return out;
}
