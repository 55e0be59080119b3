// checkpoint_writer: writes the folder of a model: config, weights and tokenizer.
#include "checkpoint_writer.h"
#include "common.h"
#include "platform.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- tensors

static float *add(struct checkpoint *c, const char *name, uint32_t rank, uint32_t rows, uint32_t middle,
                  uint32_t cols) {
  struct checkpoint_tensor *t = &c->tensors[c->count++];
  *t = (struct checkpoint_tensor){.rank = rank, .shape = {rows, rank == 3 ? middle : cols, cols}};
  snprintf(t->name, sizeof t->name, "%s", name);
  t->count = (size_t)rows * (rank > 1 ? cols : 1);
  t->data = must_resize(NULL, t->count * sizeof *t->data);
  memset(t->data, 0, t->count * sizeof *t->data);
  return t->data;
}

float *checkpoint_add(struct checkpoint *c, const char *name, uint32_t rows, uint32_t cols) {
  return add(c, name, cols ? 2 : 1, rows, 0, cols);
}

float *checkpoint_add_conv(struct checkpoint *c, const char *name, uint32_t channels, uint32_t taps) {
  return add(c, name, 3, channels, 1, taps);
}

void checkpoint_free(struct checkpoint *c) {
  for (size_t i = 0; i < c->count; ++i) free(c->tensors[i].data);
  c->count = 0;
}

// ---------------------------------------------------------------- files

static int file_begin(struct new_file *file, const char *folder, const char *name, char path[4096]) {
  snprintf(path, 4096, "%s/%s", folder, name);
  return output_begin(file, path);
}

static int write_json(const char *folder, const char *name, json_t *value) {
  char path[4096];
  struct new_file file;
  int code = value ? file_begin(&file, folder, name, path) : EXIT_FAILED;
  if (!code) {
    json_dumpf(value, file.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    code = output_end(&file, path, EXIT_OK);
  }
  json_decref(value);
  return code;
}

static char *header_text(const struct checkpoint *c, size_t *bytes) {
  json_t *header = json_object();
  json_int_t at = 0, size = c->bf16 ? 2 : 4;
  for (size_t i = 0; i < c->count; ++i) {
    const struct checkpoint_tensor *t = &c->tensors[i];
    json_t *shape = json_array();
    for (uint32_t d = 0; d < t->rank; ++d) json_array_append_new(shape, json_integer(t->shape[d]));
    json_int_t end = at + (json_int_t)t->count * size;
    json_object_set_new(
        header, t->name,
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", c->bf16 ? "BF16" : "F32", "shape", shape, "data_offsets", at, end));
    at = end;
  }
  char *text = json_dumps(header, JSON_COMPACT);
  json_decref(header);
  size_t length = text ? strlen(text) : 0;
  *bytes = (length + 7) / 8 * 8; // the data begin at a multiple of eight
  char *padded = must_resize(NULL, *bytes + 1);
  snprintf(padded, *bytes + 1, "%-*s", (int)*bytes, text ? text : "");
  free(text);
  return padded;
}

static void write_number(FILE *file, float value, bool bf16) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (bf16) bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  for (int i = 0; i < (bf16 ? 2 : 4); ++i) fputc((int)(bits >> 8 * i & 0xFF), file);
}

static int write_weights(const struct checkpoint *c, const char *folder) {
  char path[4096];
  size_t bytes;
  struct new_file file;
  int code = file_begin(&file, folder, "model.safetensors", path);
  if (code) return code;
  char *header = header_text(c, &bytes);
  for (int i = 0; i < 8; ++i) fputc((int)((uint64_t)bytes >> 8 * i & 0xFF), file.stream);
  fwrite(header, 1, bytes, file.stream);
  free(header);
  for (size_t i = 0; i < c->count; ++i)
    for (size_t n = 0; n < c->tensors[i].count; ++n) write_number(file.stream, c->tensors[i].data[n], c->bf16);
  return output_end(&file, path, EXIT_OK);
}

// Words are separated by white space, and each word is a token: BPE without merges. Token 0 begins a sequence.
static json_t *tokenizer_json(const char *const *tokens, size_t count) {
  json_t *vocabulary = json_object();
  for (size_t i = 0; i < count; ++i) json_object_set_new(vocabulary, tokens[i], json_integer((json_int_t)i));
  json_t *model = json_pack("{s:s, s:b, s:o, s:[]}", "type", "BPE", "ignore_merges", 1, "vocab", vocabulary, "merges");
  json_t *begin = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 0, "content", tokens[0], "single_word", 0,
                            "lstrip", 1, "rstrip", 1, "normalized", 0, "special", 1);
  json_t *template =
      json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}", "type",
                "TemplateProcessing", "single", "SpecialToken", "id", tokens[0], "type_id", 0, "Sequence", "id", "A",
                "type_id", 0, "pair", "special_tokens", tokens[0], "id", tokens[0], "ids", 0, "tokens", tokens[0]);
  return json_pack("{s:s, s:[o], s:n, s:{s:s}, s:o, s:n, s:o}", "version", "1.0", "added_tokens", begin, "normalizer",
                   "pre_tokenizer", "type", "WhitespaceSplit", "post_processor", template, "decoder", "model", model);
}

static const char *const file_names[] = {"config.json", "tokenizer.json", "model.safetensors"};
enum { FILES = sizeof file_names / sizeof *file_names };

int checkpoint_place(const char *folder, bool force) {
  int made = platform_make_folder(folder, false);
  if (!made) return EXIT_OK;
  if (made != EEXIST) return complain_file(folder, made);
  if (!platform_is(folder, PATH_FOLDER)) return complain(EXIT_FAILED, "%s: is a file, not a folder", folder);
  for (size_t i = 0; i < FILES && !force; ++i) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, file_names[i]);
    if (file_there(path)) return complain(EXIT_FAILED, "%s: is there already (--force replaces it)", path);
  }
  return EXIT_OK;
}

int checkpoint_write_tokenizer(const char *folder, const char *const *tokens, size_t count) {
  return write_json(folder, "tokenizer.json", tokenizer_json(tokens, count));
}

int checkpoint_write(const struct checkpoint *c, const char *folder, json_t *config, const char *const *tokens,
                     size_t count) {
  int code = write_json(folder, "config.json", config);
  if (!code) code = checkpoint_write_tokenizer(folder, tokens, count);
  return code ? code : write_weights(c, folder);
}

void checkpoint_delete(const char *folder) {
  char path[4096];
  for (size_t i = 0; i < FILES; ++i) {
    snprintf(path, sizeof path, "%s/%s", folder, file_names[i]);
    platform_remove(path);
  }
  platform_remove_folder(folder);
}

char *temporary_folder(void) {
  char *top = platform_temporary_folder(), *path = must_resize(NULL, top ? strlen(top) + 48 : 1);
  int code = top ? EEXIST : ENOMEM;
  for (unsigned i = 0; code == EEXIST; ++i) {
    sprintf(path, "%s/deltaic-demo-%u-%u", top, platform_process(), i);
    code = platform_make_folder(path, true);
  }
  free(top);
  if (!code) return path;
  complain_file(path, code);
  free(path);
  return NULL;
}

// ---------------------------------------------------------------- one layer

static uint32_t root_of_four(uint32_t least) {
  uint32_t root = 4; // square root of a width of 16
  while (root * root < least) root *= 2;
  return root;
}

static void ones(float *data, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) data[i] = 1;
}

struct one_layer one_layer_begin(struct checkpoint *c, uint32_t tokens, uint32_t features) {
  uint32_t root = root_of_four(tokens + features), D = root * root;
  struct one_layer m = {.tokens = tokens, .features = features, .width = D, .scale = 1 / (float)root};
  float *embeddings = checkpoint_add(c, "model.embeddings.weight", tokens, D);
  for (uint32_t t = 0; t < tokens; ++t) embeddings[(size_t)t * D + t] = (float)root;
  ones(checkpoint_add(c, "model.layers.0.attn_norm.weight", D, 0), D);
  ones(checkpoint_add(c, "model.layers.0.mlp_norm.weight", D, 0), D);
  ones(checkpoint_add(c, "model.norm.weight", D, 0), D);
  checkpoint_add(c, "model.layers.0.mlp.gate_proj.weight", 1, D);
  checkpoint_add(c, "model.layers.0.mlp.up_proj.weight", 1, D);
  checkpoint_add(c, "model.layers.0.mlp.down_proj.weight", D, 1);
  float *out = checkpoint_add(c, "model.layers.0.attn.o_proj.weight", D, features);
  for (uint32_t f = 0; f < features; ++f) out[(size_t)(tokens + f) * features + f] = 1;
  m.lm_head = checkpoint_add(c, "lm_head.weight", tokens, D);
  return m;
}

void one_layer_set(const struct one_layer *m, float *projection, uint32_t row, uint32_t token, double value) {
  projection[(size_t)row * m->width + token] = (float)value * m->scale;
}

// Before the final norm, the stream's sum of squares is `width` (token) plus `features` (output norm).
void one_layer_read(const struct one_layer *m, uint32_t token, uint32_t feature, double weight) {
  double rms = sqrt(1 + (double)m->features / m->width);
  m->lm_head[(size_t)token * m->width + m->tokens + feature] = (float)(weight * rms);
}

json_t *one_layer_config(const struct one_layer *m, const char *model_type, uint32_t heads) {
  return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:b, s:i, s:n, s:s}", "model_type", model_type,
                   "hidden_size", (int)m->width, "num_hidden_layers", 1, "num_heads", (int)heads, "vocab_size",
                   (int)m->tokens, "intermediate_size", 1, "hidden_act", "swish", "norm_eps", 1e-30,
                   "tie_word_embeddings", 0, "bos_token_id", 0, "eos_token_id", "torch_dtype", "float32");
}

// ---------------------------------------------------------------- the feature map

static double silu(double x) { return x / (1 + exp(-x)); }

double silu_inverse(double y) {
  double low = -1.2784645427610738, high = fmax(y, 0) + 1; // silu increases above its minimum
  for (int i = 0; i < 80; ++i) {
    double middle = 0.5 * (low + high);
    if (silu(middle) < y)
      low = middle;
    else
      high = middle;
  }
  return y == 0 ? 0 : 0.5 * (low + high);
}

void reach_direction(const double *target, uint32_t n, double *projection) {
  double most = 0, least = 0;
  for (uint32_t i = 0; i < n; ++i) {
    most = fmax(most, target[i]);
    least = fmax(least, -target[i]);
  }
  double s = most > 0 ? 8 / most : 1e9;
  if (least > 0) s = fmin(s, 0.27 / least);
  for (uint32_t i = 0; i < n; ++i) projection[i] = silu_inverse(s * target[i]);
}
