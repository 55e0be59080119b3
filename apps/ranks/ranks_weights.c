// ranks_weights: reads convolution filters and Head-in-Head masks from the checkpoint's tensors and plots them.
//   N = nonneg(M_org), each row divided by sqrt(sum of squares + 1e-6);  M = N N^T       (docs/mixers.md)
#include "common.h"
#include "plot.h"
#include "ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PANEL_ROWS = 4 }; // layers per image

struct tensor_name {
  char text[96];
};

static struct tensor_name tensor_name(int32_t layer, const char *name) {
  struct tensor_name out;
  snprintf(out.text, sizeof out.text, "model.layers.%d.attn.%s", layer, name);
  return out;
}

// Returns all values of a tensor, or NULL if it does not exist or cannot be read.
static float *read_tensor(const deltaic_tensors *tensors, const char *name, deltaic_tensor_info *info) {
  if (!deltaic_tensors_find(tensors, name, info) || !info->count) return NULL;
  float *out = must_resize(NULL, (size_t)info->count * sizeof *out);
  if (!deltaic_tensors_read(tensors, name, 0, info->count, out)) return out;
  free(out);
  return NULL;
}

// ---------------------------------------------------------------- masks

struct mask_config {
  int32_t r, heads;
  char nonneg; // 's' softplus, 'g' sigmoid, 'e' exp
};

static struct mask_config read_config(const char *path) {
  struct mask_config c = {.r = 1, .nonneg = 's'};
  char file[1100];
  snprintf(file, sizeof file, "%s/config.json", path);
  json_t *config = json_load_file(file, 0, NULL);
  const char *nonneg = json_string_value(json_object_get(config, "hh_nonneg"));
  json_int_t r = json_integer_value(json_object_get(config, "hh_r"));
  json_int_t heads = json_integer_value(json_object_get(config, "num_heads"));
  if (r > 1 && r <= 64) c.r = (int32_t)r;
  if (heads > 0 && heads <= 4096) c.heads = (int32_t)heads;
  if (nonneg && !strcmp(nonneg, "sigmoid")) c.nonneg = 'g';
  if (nonneg && !strcmp(nonneg, "exp")) c.nonneg = 'e';
  json_decref(config);
  return c;
}

static double nonneg(const struct mask *mask, double x) {
  if (mask->nonneg == 'g') return 1 / (1 + exp(-x));
  if (mask->nonneg == 'e') return exp(x);
  return x > 30 ? x : log1p(exp(x));
}

// Adds one token's M to the sums. raw: (heads, r, r), M_org or its projection; overwritten.
static void add_mask(struct mask *mask, double *raw) {
  int32_t r = mask->r;
  for (int32_t row = 0; row < mask->heads * r; ++row) {
    double *x = raw + (size_t)row * (size_t)r, sum = 1e-6;
    for (int32_t i = 0; i < r; ++i) {
      x[i] = nonneg(mask, x[i]);
      sum += x[i] * x[i];
    }
    for (int32_t i = 0; i < r; ++i) x[i] /= sqrt(sum);
  }
  for (int32_t h = 0; h < mask->heads; ++h)
    for (int32_t a = 0; a < r; ++a)
      for (int32_t b = 0; b < r; ++b)
        for (int32_t i = 0; i < r; ++i)
          mask->values[(h * r + a) * r + b] += raw[(h * r + a) * r + i] * raw[(h * r + b) * r + i];
  ++mask->tokens;
}

void mask_add(struct mask *mask, const float *rows, size_t count, size_t width) {
  if (!mask->weight) return;
  size_t numbers = (size_t)mask->heads * (size_t)mask->r * (size_t)mask->r;
  double *raw = must_resize(NULL, numbers * sizeof *raw);
  for (size_t t = 0; t < count; ++t) {
    for (size_t i = 0; i < numbers; ++i) {
      double sum = mask->bias ? mask->bias[i] : 0;
      for (size_t j = 0; j < width; ++j) sum += (double)mask->weight[i * width + j] * rows[t * width + j];
      raw[i] = sum;
    }
    add_mask(mask, raw);
  }
  free(raw);
}

static void open_static(struct mask *mask, const float *M, size_t numbers) {
  double *raw = must_resize(NULL, numbers * sizeof *raw);
  for (size_t i = 0; i < numbers; ++i) raw[i] = M[i];
  add_mask(mask, raw);
  free(raw);
}

static void open_mask(const deltaic_tensors *tensors, const struct mask_config *c, int32_t layer, int32_t width,
                      struct mask *mask) {
  size_t numbers = (size_t)c->heads * (size_t)c->r * (size_t)c->r;
  deltaic_tensor_info info, bias;
  float *M = read_tensor(tensors, tensor_name(layer, "M_org").text, &info);
  *mask = (struct mask){.heads = c->heads, .r = c->r, .nonneg = c->nonneg};
  if (!M) mask->weight = read_tensor(tensors, tensor_name(layer, "m_proj.weight").text, &info);
  if (!M && !mask->weight) return;
  bool fits = numbers && info.count == (M ? numbers : numbers * (size_t)width);
  if (fits) {
    mask->values = must_resize(NULL, numbers * sizeof *mask->values);
    memset(mask->values, 0, numbers * sizeof *mask->values);
  }
  if (fits && M) open_static(mask, M, numbers);
  if (fits && !M) mask->bias = read_tensor(tensors, tensor_name(layer, "m_proj.bias").text, &bias);
  if (mask->bias && bias.count != numbers) fits = false;
  free(M);
  if (fits) return;
  free(mask->weight);
  free(mask->values);
  mask->weight = NULL;
  mask->values = NULL;
}

int masks_open(struct measured *m, int32_t layers, int32_t width) {
  struct mask_config c = read_config(m->path);
  deltaic_tensors *tensors;
  m->model_layers = layers;
  m->masks = must_resize(NULL, (size_t)layers * sizeof *m->masks);
  memset(m->masks, 0, (size_t)layers * sizeof *m->masks);
  int code = c.r > 1 ? complain_status(deltaic_tensors_open(m->path, &tensors)) : EXIT_OK;
  if (code || c.r == 1) return code;
  for (int32_t i = 0; i < layers; ++i) open_mask(tensors, &c, i, width, &m->masks[i]);
  deltaic_tensors_close(tensors);
  return EXIT_OK;
}

void masks_free(struct measured *m) {
  for (int32_t i = 0; i < m->model_layers; ++i) {
    free(m->masks[i].values);
    free(m->masks[i].weight);
    free(m->masks[i].bias);
  }
  free(m->masks);
}

static void draw_mask(struct plot *plot, struct area area, const struct mask *mask, int32_t layer, int32_t head) {
  size_t numbers = (size_t)mask->r * (size_t)mask->r;
  double *values = must_resize(NULL, numbers * sizeof *values);
  char title[64];
  snprintf(title, sizeof title, "layer %d, head %d", layer, head);
  for (size_t i = 0; i < numbers; ++i)
    values[i] = mask->values[(size_t)head * numbers + i] / (double)(mask->tokens ? mask->tokens : 1);
  struct heat heat = {.title = title,
                      .x_title = "block b",
                      .y_title = "block a",
                      .values = values,
                      .rows = (size_t)mask->r,
                      .cols = (size_t)mask->r,
                      .most = 1,
                      .numbers = mask->r <= 4};
  plot_heat(plot, area, &heat);
  free(values);
}

int plot_masks(const struct measured *m, const struct rank_request *request) {
  struct count_list layers = layers_to_draw(m, &request->layers, PANEL_ROWS - 1);
  int32_t heads = 0;
  bool input = false;
  for (size_t i = 0; i < layers.count; ++i) {
    const struct mask *mask = &m->masks[layers.values[i]];
    if (mask->values) heads = mask->heads < 4 ? mask->heads : 4;
    input |= mask->weight != NULL;
  }
  if (!heads) return EXIT_OK;
  char title[200];
  snprintf(title, sizeof title, "%s: Head-in-Head masks%s", m->name, input ? ", means over the text" : "");
  struct plot *plot = plot_create(title);
  for (size_t i = 0; i < layers.count; ++i)
    for (int32_t h = 0; h < heads; ++h) {
      const struct mask *mask = &m->masks[layers.values[i]];
      struct area area = plot_area(plot, heads, (int)layers.count, h, (int)i);
      if (mask->values && h < mask->heads) draw_mask(plot, area, mask, (int32_t)layers.values[i], h);
    }
  return plot_finish(plot, plot_name(request->plot, "masks", m).text);
}

// ---------------------------------------------------------------- filters

// Draws taps as rows and channels as columns.
static bool draw_filter(struct plot *plot, struct area area, const deltaic_tensors *tensors, int32_t layer,
                        const char *letter) {
  deltaic_tensor_info info;
  char name[32], title[64];
  snprintf(name, sizeof name, "%s_conv1d.weight", letter);
  float *weights = read_tensor(tensors, tensor_name(layer, name).text, &info);
  if (!weights) return false;
  size_t taps = (size_t)info.shape[info.rank - 1], channels = (size_t)info.count / taps;
  double *values = must_resize(NULL, taps * channels * sizeof *values);
  for (size_t c = 0; c < channels; ++c)
    for (size_t t = 0; t < taps; ++t) values[t * channels + c] = weights[c * taps + taps - 1 - t];
  snprintf(title, sizeof title, "layer %d, %s", layer, letter);
  struct heat heat = {.title = title,
                      .x_title = "channel",
                      .y_title = "tokens back",
                      .values = values,
                      .rows = taps,
                      .cols = channels,
                      .diverging = true};
  plot_heat(plot, area, &heat);
  free(values);
  free(weights);
  return true;
}

int plot_filters(const struct measured *m, const struct rank_request *request) {
  static const char *const letters[] = {"q", "k", "v"};
  struct count_list layers = layers_to_draw(m, &request->layers, PANEL_ROWS);
  deltaic_tensors *tensors;
  char title[200];
  bool any = false;
  int code = complain_status(deltaic_tensors_open(m->path, &tensors));
  if (code) return code;
  snprintf(title, sizeof title, "%s: convolution filters (weights)", m->name);
  struct plot *plot = plot_create(title);
  for (size_t i = 0; i < layers.count; ++i)
    for (int p = 0; p < 3; ++p)
      any |= draw_filter(plot, plot_area(plot, 3, (int)layers.count, p, (int)i), tensors, (int32_t)layers.values[i],
                         letters[p]);
  deltaic_tensors_close(tensors);
  if (any) return plot_finish(plot, plot_name(request->plot, "filters", m).text);
  plot_free(plot); // the layers have no convolutions
  return EXIT_OK;
}
