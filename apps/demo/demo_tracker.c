// demo_tracker: designs and writes the DeltaProduct, and measures the errors of its states.
#include "demo_tracker.h"
#include "checkpoint_writer.h"
#include "common.h" // must_resize

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  COPIES = 16,      // per coordinate; more copies make the L2 norm's eps matter less but add rounding errors
  CANDIDATES = 128, // number of queries tried for each head
};

static const struct representation *representation_of(const struct tracker *t, uint32_t head) {
  return &t->group->representations[t->representation[head]];
}

static uint32_t start_rank(const struct tracker *t, const struct representation *r) {
  return r->rank < t->options.steps ? r->rank : t->options.steps;
}

// ---------------------------------------------------------------- the readout

static double uniform(uint64_t *state) { // returns a number in [-1, 1)
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 11) / 4503599627370496.0 - 1;
}

static void random_direction(double *q, uint32_t d, uint64_t *seed) {
  double norm;
  do {
    norm = 0;
    for (uint32_t i = 0; i < d; ++i) {
      q[i] = uniform(seed);
      norm += q[i] * q[i];
    }
  } while (norm > 1 || norm < 0.01);
  for (uint32_t i = 0; i < d; ++i) q[i] /= sqrt(norm);
}

// Sets out = start^T R^T q, scaled to the length sqrt(Dv) of the output norm. Returns the length before scaling.
static double head_features(const struct tracker *t, uint32_t head, uint32_t element, double *out) {
  const struct representation *r = representation_of(t, head);
  const double *R = group_matrix(t->group, t->representation[head], element), *q = t->query[head];
  double sum = 0;
  for (uint32_t j = 0; j < t->value_size; ++j) {
    out[j] = 0;
    for (uint32_t a = 0; a < r->d && j < start_rank(t, r); ++a)
      for (uint32_t b = 0; b < r->d; ++b) out[j] += q[a] * R[a * r->d + b] * r->start[b * r->rank + j];
    sum += out[j] * out[j];
  }
  for (uint32_t j = 0; j < t->value_size; ++j) out[j] *= sum > 0 ? sqrt(t->value_size / sum) : 0;
  return sqrt(sum);
}

// Sets out = sums + one head's squared distances of all pairs of elements, (order, order), and returns the minimum. The
// weight of a head is small if its output is nearly zero at an element, because the output norm amplifies errors there.
static double add_distances(const struct tracker *t, uint32_t head, const double *sums, double *out) {
  uint32_t order = t->group->order, Dv = t->value_size;
  double *f = must_resize(NULL, (size_t)order * Dv * sizeof *f), least = HUGE_VAL, shortest = 1;
  for (uint32_t a = 0; a < order; ++a) shortest = fmin(shortest, head_features(t, head, a, f + (size_t)a * Dv));
  double trust = shortest > 0.3 ? 1 : 0.01;
  for (uint32_t a = 0; a < order; ++a)
    for (uint32_t b = 0; b < a; ++b) {
      double sum = 0;
      for (uint32_t j = 0; j < Dv; ++j) sum += pow(f[(size_t)a * Dv + j] - f[(size_t)b * Dv + j], 2);
      size_t at = (size_t)a * order + b;
      double total = sums[at] + trust * sum;
      if (out) out[at] = total;
      least = fmin(least, total);
    }
  free(f);
  return least;
}

// Chooses for one head after the other the representation and query that maximize the smallest distance.
static void choose_queries(struct tracker *t) {
  uint32_t order = t->group->order, kinds = t->group->representation_count;
  double *sums = must_resize(NULL, (size_t)order * order * sizeof *sums);
  uint64_t seed = 1;
  memset(sums, 0, (size_t)order * order * sizeof *sums);
  for (uint32_t h = 0; h < t->options.heads; ++h) {
    double best = -1, query[GROUP_DIMENSION];
    uint32_t kind = 0;
    for (uint32_t c = 0; c < CANDIDATES; ++c) {
      t->representation[h] = c < kinds ? c : (uint32_t)((uniform(&seed) + 1) / 2 * kinds);
      random_direction(t->query[h], representation_of(t, h)->d, &seed);
      double least = add_distances(t, h, sums, NULL);
      if (least <= best + 1e-12) continue;
      best = least;
      kind = t->representation[h];
      memcpy(query, t->query[h], sizeof query);
    }
    t->representation[h] = kind;
    memcpy(t->query[h], query, sizeof query);
    add_distances(t, h, sums, sums);
  }
  free(sums);
}

static void collect_features(struct tracker *t) {
  uint32_t order = t->group->order, width = t->options.heads * t->value_size;
  t->features = must_resize(NULL, (size_t)order * width * sizeof *t->features);
  for (uint32_t a = 0; a < order; ++a)
    for (uint32_t h = 0; h < t->options.heads; ++h)
      head_features(t, h, a, t->features + (size_t)a * width + h * t->value_size);
  t->margin = 2;
  for (uint32_t a = 0; a < order; ++a)
    for (uint32_t b = 0; b < a; ++b) {
      double sum = 0;
      for (uint32_t i = 0; i < width; ++i)
        sum += pow(t->features[(size_t)a * width + i] - t->features[(size_t)b * width + i], 2);
      t->margin = fmin(t->margin, 0.5 * sum / width);
    }
}

void tracker_design(const struct group *group, const struct tracker_options *options, struct tracker *out) {
  *out = (struct tracker){.group = group, .options = *options};
  uint32_t d = 0;
  for (uint32_t r = 0; r < group->representation_count; ++r) {
    const struct representation *one = &group->representations[r];
    if (one->d > d) d = one->d;
    if (start_rank(out, one) > out->value_size) out->value_size = start_rank(out, one);
  }
  if (!out->options.heads) out->options.heads = group->order > 2 ? 4 : 1;
  if (!out->options.copies) out->options.copies = COPIES;
  out->key_size = d * out->options.copies;
  choose_queries(out);
  collect_features(out);
}

void tracker_free(struct tracker *t) {
  free(t->features);
  t->features = NULL;
}

// ---------------------------------------------------------------- the weights

struct writing {
  const struct tracker *t;
  struct one_layer layer;
  float *q, *k, *v, *b;
};

// Repeats each coordinate of a d-vector `copies` times and keeps its norm. Entries from d * copies on are zero.
static void spread(const struct tracker *t, const double *vector, uint32_t d, double *out) {
  uint32_t copies = t->options.copies;
  memset(out, 0, t->key_size * sizeof *out);
  for (uint32_t i = 0; i < d * copies; ++i) out[i] = vector[i / copies] / sqrt(copies);
}

static void set_direction(const struct writing *w, float *projection, uint32_t row, uint32_t token,
                          const double *vector, uint32_t d, bool either_sign) {
  uint32_t n = w->t->key_size;
  double *target = must_resize(NULL, 2 * n * sizeof *target), *reached = target + n, most = 0, least = 0;
  spread(w->t, vector, d, target);
  for (uint32_t i = 0; i < n; ++i) {
    most = fmax(most, target[i]);
    least = fmax(least, -target[i]);
  }
  bool flip = either_sign && least > most + 1e-9; // k and -k are the same reflection; choose the smaller negatives
  for (uint32_t i = 0; i < n && flip; ++i) target[i] = -target[i];
  reach_direction(target, n, reached);
  for (uint32_t i = 0; i < n; ++i) one_layer_set(&w->layer, projection, row + i, token, reached[i]);
  free(target);
}

static void set_key(const struct writing *w, uint32_t step, uint32_t head, uint32_t token, const double *key,
                    uint32_t d, double strength) {
  const struct tracker *t = w->t;
  uint32_t row = (step * t->options.heads + head) * t->key_size;
  set_direction(w, w->k, row, token, key, d, token != 0);
  one_layer_set(&w->layer, w->b, step * t->options.heads + head, token, strength);
}

// beta = 2 sigmoid(x), or sigmoid(x): x = 40 gives exactly 2, or 1, in float32; 0 gives 1, or 1/2; -40 gives 8e-18.
enum { FULL = 40, HALF = 0, NONE = -40 };

// Token 0 writes the columns k_m of `start`: S = sum k_m e_m^T with orthonormal k_m and beta = 1.
static void set_begin(const struct writing *w, uint32_t head) {
  const struct tracker *t = w->t;
  const struct representation *r = representation_of(t, head);
  for (uint32_t m = 0; m < start_rank(t, r); ++m) {
    double column[GROUP_DIMENSION];
    for (uint32_t i = 0; i < r->d; ++i) column[i] = r->start[i * r->rank + m];
    set_key(w, m, head, 0, column, r->d, t->options.no_negatives ? FULL : HALF);
    uint32_t row = (m * t->options.heads + head) * t->value_size + m;
    one_layer_set(&w->layer, w->v, row, 0, silu_inverse(1));
  }
}

static void set_element(const struct writing *w, uint32_t head, uint32_t element) {
  const struct tracker *t = w->t;
  uint32_t d = representation_of(t, head)->d;
  double keys[GROUP_DIMENSION * GROUP_DIMENSION];
  uint32_t n = reflections(group_matrix(t->group, t->representation[head], element), d, keys);
  for (uint32_t m = 0; m < n && m < t->options.steps; ++m)
    set_key(w, m, head, (uint32_t)tracker_token(element), keys + m * d, d, FULL);
}

static void set_readout(const struct writing *w) {
  const struct tracker *t = w->t;
  uint32_t width = t->options.heads * t->value_size;
  double scale = t->margin > 1e-6 ? 30 / (t->margin * width) : 1; // the correct element leads by at least e^30
  for (uint32_t a = 0; a < t->group->order; ++a)
    for (uint32_t f = 0; f < width; ++f)
      one_layer_read(&w->layer, (uint32_t)tracker_token(a), f, scale * t->features[(size_t)a * width + f]);
}

static void set_weights(const struct writing *w) {
  const struct tracker *t = w->t;
  uint32_t heads = t->options.heads, betas = heads * t->options.steps;
  for (uint32_t token = 0; token <= t->group->order; ++token) {
    for (uint32_t row = 0; row < betas; ++row) one_layer_set(&w->layer, w->b, row, token, NONE);
    for (uint32_t h = 0; h < heads; ++h) {
      set_direction(w, w->q, h * t->key_size, token, t->query[h], representation_of(t, h)->d, false);
      if (token)
        set_element(w, h, token - 1);
      else
        set_begin(w, h);
    }
  }
  set_readout(w);
}

// Returns expand_v, rounded up if that is needed for value_size = trunc(head_dim * expand_v).
static double ratio_of(uint32_t value_size, uint32_t key_size) {
  double ratio = (double)value_size / key_size;
  while (ratio * key_size < value_size) ratio = nextafter(ratio, 2);
  return ratio;
}

static json_t *tracker_config(const struct tracker *t, const struct one_layer *layer) {
  json_t *config = one_layer_config(layer, "gated_deltaproduct", t->options.heads);
  json_t *own =
      json_pack("{s:i, s:f, s:b, s:b, s:i, s:b, s:b}", "head_dim", (int)t->key_size, "expand_v",
                ratio_of(t->value_size, t->key_size), "use_output_gate", 0, "use_forget_gate", 0, "num_householder",
                (int)t->options.steps, "allow_neg_eigval", !t->options.no_negatives, "use_short_conv", 0);
  json_object_update(config, own);
  json_decref(own);
  return config;
}

int tracker_write(const struct tracker *t, const char *folder) {
  static const char prefix[] = "model.layers.0.attn.";
  struct checkpoint c = {.bf16 = t->options.bf16};
  uint32_t heads = t->options.heads, steps = t->options.steps, tokens = t->group->order + 1;
  struct writing w = {.t = t, .layer = one_layer_begin(&c, tokens, heads * t->value_size)};
  const struct {
    float **data;
    const char *name;
    uint32_t rows;
  } parts[] = {{&w.q, "q_proj", heads * t->key_size},
               {&w.k, "k_proj", steps * heads * t->key_size},
               {&w.v, "v_proj", steps * heads * t->value_size},
               {&w.b, "b_proj", steps * heads}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i) {
    char name[64];
    snprintf(name, sizeof name, "%s%s.weight", prefix, parts[i].name);
    *parts[i].data = checkpoint_add(&c, name, parts[i].rows, w.layer.width);
  }
  float *norm = checkpoint_add(&c, "model.layers.0.attn.o_norm.weight", t->value_size, 0);
  for (uint32_t j = 0; j < t->value_size; ++j) norm[j] = 1;
  set_weights(&w);
  const char **names = must_resize(NULL, tokens * sizeof *names);
  names[0] = "<s>";
  for (uint32_t a = 0; a < t->group->order; ++a) names[tracker_token(a)] = t->group->names[a];
  int code = checkpoint_write(&c, folder, tracker_config(t, &w.layer), names, tokens);
  free(names);
  checkpoint_free(&c);
  return code;
}

// ---------------------------------------------------------------- the exact state

// Returns entry (i, j) of spread(R start).
static double true_state(const struct tracker *t, uint32_t head, uint32_t element, uint32_t i, uint32_t j) {
  const struct representation *r = representation_of(t, head);
  const double *R = group_matrix(t->group, t->representation[head], element);
  double sum = 0;
  if (i / t->options.copies >= r->d || j >= start_rank(t, r)) return 0;
  for (uint32_t b = 0; b < r->d; ++b) sum += R[i / t->options.copies * r->d + b] * r->start[b * r->rank + j];
  return sum / sqrt(t->options.copies);
}

static void add_head_error(const struct tracker *t, uint32_t head, uint32_t element, const float *S,
                           struct state_error *error) {
  uint32_t rank = start_rank(t, representation_of(t, head)), Dv = t->value_size;
  double dot = 0, size = 0, gram[GROUP_DIMENSION * GROUP_DIMENSION] = {0};
  for (uint32_t i = 0; i < t->key_size; ++i)
    for (uint32_t j = 0; j < Dv; ++j) {
      dot += S[i * Dv + j] * true_state(t, head, element, i, j);
      size += (double)S[i * Dv + j] * S[i * Dv + j];
      for (uint32_t k = 0; k < Dv; ++k) gram[j * Dv + k] += (double)S[i * Dv + j] * S[i * Dv + k];
    }
  double cosine = dot / sqrt(size * rank); // |S*|^2 = rank
  error->shrunk = fmax(error->shrunk, 1 - sqrt(size / rank));
  error->distance = fmax(error->distance, sqrt(fmax(0, 2 - 2 * cosine)));
  for (uint32_t j = 0; j < rank; ++j)
    for (uint32_t k = 0; k < rank; ++k)
      error->orthogonality = fmax(error->orthogonality, fabs(gram[j * Dv + k] * rank / size - (j == k)));
}

struct state_error tracker_error(const struct tracker *t, uint32_t element, const float *state) {
  struct state_error error = {0};
  for (uint32_t h = 0; h < t->options.heads; ++h)
    add_head_error(t, h, element, state + (size_t)h * t->key_size * t->value_size, &error);
  return error;
}
