// demo_recaller: computes and writes the weights of the DeltaNet.
#include "demo_recaller.h"
#include "checkpoint_writer.h"
#include "common.h" // must_resize, random_below

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// beta = sigmoid(x): x = 40 gives exactly 1 in float32, -18 gives 1.5e-8, -40 gives 4e-18.
enum { WRITE = 40, WRITE_FAINTLY = -18, KEEP = -40 };

// Approximates a standard normal number by the sum of twelve uniform ones, which has variance 1.
static double normal(uint64_t *state) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += (random_below(state, 1u << 24) + 0.5) / (1u << 24);
  return sum;
}

struct writing {
  const struct recaller *r;
  struct one_layer layer;
  float *q, *k, *v, *beta;
};

// Gives the query of a key token the same projection as its key.
static void set_key(const struct writing *w, uint32_t key, uint64_t *seed) {
  uint32_t n = w->r->key_size, token = (uint32_t)recaller_key(key);
  double *direction = must_resize(NULL, n * sizeof *direction);
  for (uint32_t i = 0; i < n; ++i) direction[i] = i == key;
  if (w->r->orthogonal)
    reach_direction(direction, n, direction);
  else
    for (uint32_t i = 0; i < n; ++i) direction[i] = 2 * normal(seed);
  for (uint32_t i = 0; i < n; ++i) {
    one_layer_set(&w->layer, w->q, i, token, direction[i]);
    one_layer_set(&w->layer, w->k, i, token, direction[i]);
  }
  free(direction);
}

static void set_value(const struct writing *w, uint32_t value) {
  uint32_t token = (uint32_t)recaller_value(w->r, value);
  one_layer_set(&w->layer, w->v, value, token, silu_inverse(1));
  one_layer_read(&w->layer, token, value, 30 / sqrt(w->r->values)); // an exact recall leads by e^30
}

static void set_tokens(const struct writing *w) {
  const struct recaller *r = w->r;
  uint64_t seed = r->seed;
  for (uint32_t t = 0; t < w->layer.tokens; ++t) {
    bool value = t > r->keys;
    one_layer_set(&w->layer, w->beta, 0, t, !value ? KEEP : r->additive ? WRITE_FAINTLY : WRITE);
  }
  for (uint32_t i = 0; i < r->keys; ++i) set_key(w, i, &seed);
  for (uint32_t i = 0; i < r->values; ++i) set_value(w, i);
}

// Tap 0 reads the previous token, tap 1 the token itself.
static void set_conv(struct checkpoint *c, const char *name, uint32_t channels, int tap) {
  float *taps = checkpoint_add_conv(c, name, channels, 2);
  for (uint32_t i = 0; i < channels; ++i) taps[2 * i + (uint32_t)tap] = 1;
}

static json_t *recaller_config(const struct recaller *r, const struct one_layer *layer) {
  json_t *config = one_layer_config(layer, "delta_net", 1);
  json_t *own = json_pack("{s:f, s:f, s:b, s:i, s:b, s:b, s:s, s:s}", "expand_k", (double)r->key_size / layer->width,
                          "expand_v", (double)r->values / layer->width, "use_short_conv", 1, "conv_size", 2, "use_gate",
                          0, "use_beta", 1, "qk_norm", "l2", "qk_activation", "silu");
  json_object_update(config, own); // the ratios are exact because the width is a power of two
  json_decref(own);
  return config;
}

static int write_named(const struct checkpoint *c, const struct recaller *r, json_t *config, const char *folder) {
  uint32_t tokens = 1 + r->keys + r->values;
  char(*names)[16] = must_resize(NULL, tokens * sizeof *names);
  const char **list = must_resize(NULL, tokens * sizeof *list);
  for (uint32_t t = 0; t < tokens; ++t) list[t] = names[t];
  snprintf(names[0], sizeof *names, "<s>");
  for (uint32_t i = 0; i < r->keys; ++i) snprintf(names[recaller_key(i)], sizeof *names, "k%u", i);
  for (uint32_t i = 0; i < r->values; ++i) snprintf(names[recaller_value(r, i)], sizeof *names, "v%u", i);
  int code = checkpoint_write(c, folder, config, list, tokens);
  free(list);
  free(names);
  return code;
}

int recaller_write(const struct recaller *r, const char *folder) {
  struct checkpoint c = {.count = 0};
  struct writing w = {.r = r, .layer = one_layer_begin(&c, 1 + r->keys + r->values, r->values)};
  w.q = checkpoint_add(&c, "model.layers.0.attn.q_proj.weight", r->key_size, w.layer.width);
  w.k = checkpoint_add(&c, "model.layers.0.attn.k_proj.weight", r->key_size, w.layer.width);
  w.v = checkpoint_add(&c, "model.layers.0.attn.v_proj.weight", r->values, w.layer.width);
  w.beta = checkpoint_add(&c, "model.layers.0.attn.b_proj.weight", 1, w.layer.width);
  set_conv(&c, "model.layers.0.attn.q_conv1d.weight", r->key_size, 1);
  set_conv(&c, "model.layers.0.attn.k_conv1d.weight", r->key_size, 0);
  set_conv(&c, "model.layers.0.attn.v_conv1d.weight", r->values, 1);
  float *norm = checkpoint_add(&c, "model.layers.0.attn.o_norm.weight", r->values, 0);
  for (uint32_t j = 0; j < r->values; ++j) norm[j] = 1;
  set_tokens(&w);
  int code = write_named(&c, r, recaller_config(r, &w.layer), folder);
  checkpoint_free(&c);
  return code;
}
