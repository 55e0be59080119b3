// arch_common: reads what config.json and the tensors' shapes express in the same way for several families.
#include "arch_common.h"

#include "ffn_dense.h"
#include "mixer_attention.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- sizes from tensors

static deltaic_status fail_rank(const struct checkpoint *checkpoint, const struct file_tensor *t, int rank) {
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %d dimensions, expected %d", checkpoint_path(checkpoint), t->name,
              t->rank, rank);
}

deltaic_status arch_rows(const struct json_reader *r, struct checkpoint *checkpoint, const struct names *names,
                         struct arch_rows ask, uint32_t *size) {
  const struct named_tensor found = ask.items ? names_item(names, checkpoint, ask.layer, ask.role, 0)
                                              : names_find(names, checkpoint, ask.layer, ask.role);
  const struct file_tensor *t = found.rows ? NULL : found.tensor;
  char name[96];
  names_write(names, ask.layer, ask.role, name, sizeof name);
  if (!t && *size == 0)
    return fail(DELTAIC_BAD_SHAPE, "%s: the configured sizes give no whole number of rows of %s per %s", r->file, name,
                ask.what);
  if (!t && *size > ask.limit)
    return fail(DELTAIC_UNSUPPORTED, "%s: the configured sizes give %u rows of %s per %s, more than %llu", r->file,
                *size, name, ask.what, (unsigned long long)ask.limit);
  if (!t) return DELTAIC_OK;
  const char *path = checkpoint_path(checkpoint);
  if (t->rank != 2) return fail_rank(checkpoint, t, 2);
  unsigned long long rows = t->shape[0];
  if (rows == 0 || rows % ask.parts)
    return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %llu rows, expected a multiple of %s, which is %u", path, t->name,
                rows, ask.what, ask.parts);
  if (rows / ask.parts > ask.limit)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %s has %llu rows, more than %llu times %s", path, t->name, rows,
                (unsigned long long)ask.limit, ask.what);
  *size = (uint32_t)(rows / ask.parts);
  return DELTAIC_OK;
}

deltaic_status arch_columns(struct checkpoint *checkpoint, const struct names *names, uint32_t layer, enum role role,
                            uint64_t limit, uint32_t *size) {
  const struct file_tensor *t = names_find(names, checkpoint, layer, role).tensor;
  if (!t) return DELTAIC_OK;
  if (t->rank != 2 && t->rank != 3) return fail_rank(checkpoint, t, 3);
  uint64_t cols = t->shape[t->rank - 1];
  if (cols < 1 || cols > limit)
    return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %llu columns, expected from 1 to %llu",
                checkpoint_path(checkpoint), t->name, (unsigned long long)cols, (unsigned long long)limit);
  *size = (uint32_t)cols;
  return DELTAIC_OK;
}

// The vocabulary is the number of the embedding's rows; its columns must be hidden_size.
static deltaic_status size_embedding(const struct json_reader *r, struct checkpoint *checkpoint,
                                     struct model_spec *out) {
  const struct file_tensor *t = names_find(out->names, checkpoint, 0, ROLE_EMBEDDING).tensor;
  if (!t) return DELTAIC_OK;
  if (t->rank != 2) return fail_rank(checkpoint, t, 2);
  if (t->shape[1] != out->D)
    return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %llu columns, but %s is %u", checkpoint_path(checkpoint), t->name,
                (unsigned long long)t->shape[1], json_name(r, "hidden_size"), out->D);
  if (t->shape[0] < 1 || t->shape[0] > LIMIT_VOCABULARY)
    return fail(DELTAIC_UNSUPPORTED, "%s: tensor %s has %llu rows, expected from 1 to %d", checkpoint_path(checkpoint),
                t->name, (unsigned long long)t->shape[0], LIMIT_VOCABULARY);
  out->V = (uint32_t)t->shape[0];
  return DELTAIC_OK;
}

// I0 = trunc(H * hidden_ratio * 2 / 3), rounded up to a multiple of 256.
static uint32_t mlp_width(uint32_t D, double ratio) {
  double width = trunc(D * ratio * 2 / 3);
  return (uint32_t)(256 * ceil(width / 256));
}

// Checkpoints before February 2025 have gate and up in one tensor of 2F rows.
static deltaic_status size_mlp(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                               const struct model_spec *out, uint32_t *F) {
  double ratio = json_number(r, config, "hidden_ratio", 4, 1.0 / 1024, 1024);
  int64_t width = json_int(r, config, "intermediate_size", 0, 1, 16 * LIMIT_WIDTH);
  if (r->status) return r->status;
  *F = width ? (uint32_t)width : mlp_width(out->D, ratio);
  bool joined = !names_find(out->names, checkpoint, 0, ROLE_FFN_UP).tensor;
  return arch_rows(r, checkpoint, out->names,
                   (struct arch_rows){.role = joined ? ROLE_FFN_GATE : ROLE_FFN_UP,
                                      .parts = joined ? 2 : 1,
                                      .what = "gate and up",
                                      .limit = 16 * LIMIT_WIDTH},
                   F);
}

// ---------------------------------------------------------------- config keys

int arch_choice(struct json_reader *r, const json_t *config, const char *key, const char *const *choices) {
  const char *text = json_text(r, config, key, choices[0]);
  for (int i = 0; choices[i]; i++)
    if (!strcmp(choices[i], text)) return i;
  if (!r->status)
    r->status = fail(DELTAIC_UNSUPPORTED, "%s: %s \"%.100s\" is not supported", r->file, json_name(r, key), text);
  return 0;
}

// Missing: the default. null: none (-1). A list: its first element.
static int32_t read_token(struct json_reader *r, const json_t *config, const char *key, int32_t missing, uint32_t V) {
  const json_t *value = json_object_get(config, key);
  if (!value) return missing < (int64_t)V ? missing : -1;
  if (!json_is_array(value)) return (int32_t)json_int(r, config, key, -1, -1, (int64_t)V - 1);
  if (json_array_size(value) == 0) return -1;
  json_t *first = json_pack("{s:O}", key, json_array_get(value, 0));
  if (!first && !r->status) r->status = fail_memory("a config", 0);
  int32_t token = (int32_t)json_int(r, first, key, -1, -1, (int64_t)V - 1);
  json_decref(first);
  return token;
}

float arch_eps(struct json_reader *r, const json_t *keys, const char *key, float missing) {
  const double eps = json_number(r, keys, key, (double)missing, 0, 1);
  if (eps > 0 && eps < FLT_MIN && !r->status)
    r->status = fail(DELTAIC_UNSUPPORTED, "%s: %s is %g: devices take what is below %.3g for 0", r->file,
                     json_name(r, key), eps, (double)FLT_MIN);
  return (float)eps;
}

deltaic_status arch_read_ends(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                              const struct names *names, uint32_t default_layers, float default_eps,
                              struct model_spec *out) {
  out->names = names;
  out->D = (uint32_t)json_int(r, config, "hidden_size", 2048, 1, LIMIT_WIDTH);
  out->L = (uint32_t)json_int(r, config, "num_hidden_layers", default_layers, 1, LIMIT_LAYERS);
  out->V = (uint32_t)json_int(r, config, "vocab_size", 32000, 1, LIMIT_VOCABULARY);
  out->norm_eps = arch_eps(r, config, "norm_eps", default_eps);
  out->tied = json_bool(r, config, "tie_word_embeddings", false);
  if (r->status) return r->status;
  deltaic_status status = size_embedding(r, checkpoint, out);
  if (status) return status;
  out->bos = read_token(r, config, "bos_token_id", 1, out->V);
  out->eos = read_token(r, config, "eos_token_id", 2, out->V);
  if (r->status) return r->status;
  const json_int_t context = json_integer_value(json_object_get(config, "max_position_embeddings"));
  out->context = context > 0 && context <= INT32_MAX ? (uint32_t)context : 0;
  out->layers = calloc(out->L, sizeof *out->layers);
  return out->layers ? DELTAIC_OK : fail_memory("the model's layers", out->L * sizeof *out->layers);
}

// Copies a spec for a layer, which owns it. NULL: out of memory, with *status set.
static void *copy_spec(const void *spec, size_t bytes, deltaic_status *status) {
  void *copy = malloc(bytes);
  *status = copy ? DELTAIC_OK : fail_memory("a layer's description", bytes);
  return copy ? memcpy(copy, spec, bytes) : NULL;
}

deltaic_status arch_set_ffn(struct model_spec *out, uint32_t i, const struct ffn *ffn, const void *spec, size_t bytes) {
  deltaic_status status;
  void *copy = copy_spec(spec, bytes, &status);
  if (status) return status;
  free(out->layers[i].ffn_spec);
  out->layers[i].ffn_spec = copy;
  out->layers[i].ffn = ffn;
  return DELTAIC_OK;
}

deltaic_status arch_read_mlp(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                             struct model_spec *out) {
  static const char *const activations[] = {"swish", "silu", "powlu", NULL};
  struct dense_spec s = {0};
  s.activation = arch_choice(r, config, "hidden_act", activations) == 2 ? ACTIVATION_POWLU : ACTIVATION_SILU;
  deltaic_status status = r->status ? r->status : size_mlp(r, config, checkpoint, out, &s.F);
  for (uint32_t i = 0; !status && i < out->L; i++) {
    out->layers[i].ffn = &ffn_dense;
    out->layers[i].ffn_spec = copy_spec(&s, sizeof s, &status);
  }
  return status;
}

// ---------------------------------------------------------------- softmax-attention layers

deltaic_status arch_set_layer(struct model_spec *out, uint32_t i, const struct mixer *mixer, const void *spec,
                              size_t bytes) {
  deltaic_status status;
  out->layers[i].spec = copy_spec(spec, bytes, &status);
  if (!status) out->layers[i].mixer = mixer;
  return status;
}

deltaic_status arch_read_attention(struct json_reader *r, const json_t *keys, uint32_t default_heads, uint32_t D,
                                   struct attention_spec *out) {
  out->heads = (uint32_t)json_int(r, keys, "num_heads", default_heads, 1, LIMIT_HEADS);
  out->kv_heads = (uint32_t)json_int(r, keys, "num_kv_heads", out->heads, 1, LIMIT_HEADS);
  out->window = (uint32_t)json_int(r, keys, "window_size", 0, 1, INT32_MAX);
  out->rope_theta = json_number(r, keys, "rope_theta", 10000, 1e-3, 1e18);
  const double rotated = json_number(r, keys, "partial_rotary_factor", 1, 0, 1);
  out->d = (uint32_t)json_int(r, keys, "head_dim", 0, 1, LIMIT_HEAD_SIZE);
  out->bias = json_bool(r, keys, "qkv_bias", false);
  out->gate = json_bool(r, keys, "attn_output_gate", false);
  out->qk_norm = json_bool(r, keys, "qk_norm", false);
  out->norm_eps = 1e-5f; // the default of fla's RMSNorm: fla does not pass norm_eps on
  if (r->status) return r->status;
  if (out->heads % out->kv_heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: num_kv_heads %u does not divide num_heads %u", r->file, out->kv_heads,
                out->heads);
  if (!out->d && D % out->heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: num_heads %u does not divide hidden_size %u", r->file, out->heads, D);
  if (!out->d) out->d = D / out->heads;
  out->rotary = (uint32_t)(out->d * rotated);
  if (out->rotary % 2)
    return fail(DELTAIC_BAD_SHAPE, "%s: a head has %u rotated elements; their number must be even", r->file,
                out->rotary);
  return DELTAIC_OK;
}

void arch_pass_over_blocks(struct checkpoint *checkpoint, uint32_t first, uint32_t count) {
  for (uint64_t i = 0; i < checkpoint_count(checkpoint); i++) {
    struct file_tensor *t = checkpoint_at(checkpoint, i);
    char *end;
    if (strncmp(t->name, "blk.", 4)) continue;
    const unsigned long block = strtoul(t->name + 4, &end, 10);
    if (*end == '.' && block >= first && block - first < count) t->used = true;
  }
}
