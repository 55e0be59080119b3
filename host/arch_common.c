// arch_common: what config.json and a checkpoint's shapes say in the same way for several families.
#include "arch_common.h"

#include "ffn_dense.h"
#include "mixer_attention.h"

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
  if (t->rank != 3) return fail_rank(checkpoint, t, 3);
  uint64_t cols = t->shape[2];
  if (cols < 1 || cols > limit)
    return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %llu columns, expected from 1 to %llu",
                checkpoint_path(checkpoint), t->name, (unsigned long long)cols, (unsigned long long)limit);
  *size = (uint32_t)cols;
  return DELTAIC_OK;
}

// The vocabulary is the embedding's rows; its columns must be hidden_size.
static deltaic_status size_embedding(struct checkpoint *checkpoint, struct model_spec *out) {
  const struct file_tensor *t = names_find(out->names, checkpoint, 0, ROLE_EMBEDDING).tensor;
  if (!t) return DELTAIC_OK;
  if (t->rank != 2) return fail_rank(checkpoint, t, 2);
  if (t->shape[1] != out->D)
    return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %llu columns, but hidden_size is %u", checkpoint_path(checkpoint),
                t->name, (unsigned long long)t->shape[1], out->D);
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

// Before February 2025 gate and up were one tensor of 2F rows.
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
  if (!r->status) r->status = fail(DELTAIC_UNSUPPORTED, "%s: %s \"%.100s\" is not supported", r->file, key, text);
  return 0;
}

// Keys under which fla, or the checkpoints' other writers, compute something else. Each is harmless when it is missing,
// null, false, or has its neutral value.
static deltaic_status refuse_keys(const struct json_reader *r, const json_t *config) {
  static const struct refused_key {
    const char *key;
    double neutral;
  } refused[] = {{"attnres_block_size", NAN}, {"hh_r", 1},          {"share_conv_kernel", 0}, {"use_rope", 0},
                 {"per_head_norm", 0},        {"per_head_conv", 0}, {"share_kv_conv", 0},     {"shift_only_conv", 0}};
  const char *type = json_string_value(json_object_get(config, "model_type"));
  bool hh = type && (!strcmp(type, "delta_net") || !strcmp(type, "gated_deltanet"));
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    if (hh && !strcmp(refused[i].key, "hh_r")) continue; // the families that have Head-in-Head
    const json_t *value = json_object_get(config, refused[i].key);
    if (!value || json_is_null(value) || json_is_false(value)) continue;
    if (json_is_number(value) && json_number_value(value) == refused[i].neutral) continue;
    return fail(DELTAIC_UNSUPPORTED, "%s: config key %s asks for something that is not supported", r->file,
                refused[i].key);
  }
  if (json_present(config, "d_model") && !json_present(config, "hidden_size"))
    return fail(DELTAIC_UNSUPPORTED,
                "%s: names sizes as before March 2024 (d_model); rename them to hidden_size and the like", r->file);
  return DELTAIC_OK;
}

// A missing key is the default, null is none (-1), of a list the first counts.
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

// norm_first checkpoints (2024) keep the MLP's norm inside the MLP, where it had its own eps.
static float ffn_norm_eps(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint, float norm_eps) {
  bool inside = checkpoint && checkpoint_find(checkpoint, "model.layers.0.mlp.norm.weight");
  return json_bool(r, config, "norm_first", true) && inside ? 1e-5f : norm_eps;
}

deltaic_status arch_read_ends(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                              const struct names *names, uint32_t default_layers, double default_eps,
                              struct model_spec *out) {
  out->names = names;
  out->D = (uint32_t)json_int(r, config, "hidden_size", 2048, 1, LIMIT_WIDTH);
  out->L = (uint32_t)json_int(r, config, "num_hidden_layers", default_layers, 1, LIMIT_LAYERS);
  out->V = (uint32_t)json_int(r, config, "vocab_size", 32000, 1, LIMIT_VOCABULARY);
  out->norm_eps = (float)json_number(r, config, "norm_eps", default_eps, 0, 1);
  out->tied = json_bool(r, config, "tie_word_embeddings", false);
  if (r->status) return r->status;
  deltaic_status status = size_embedding(checkpoint, out);
  if (status) return status;
  out->bos = read_token(r, config, "bos_token_id", 1, out->V);
  out->eos = read_token(r, config, "eos_token_id", 2, out->V);
  if (r->status) return r->status;
  out->layers = calloc(out->L, sizeof *out->layers);
  return out->layers ? DELTAIC_OK : fail_memory("the model's layers", out->L * sizeof *out->layers);
}

// The spec's copy that a layer owns; NULL without memory, with *status set.
static void *copy_spec(const void *spec, size_t bytes, deltaic_status *status) {
  void *copy = malloc(bytes);
  *status = copy ? DELTAIC_OK : fail_memory("a layer's description", bytes);
  return copy ? memcpy(copy, spec, bytes) : NULL;
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
  out->qk_norm = json_bool(r, keys, "qk_norm", false);
  if (r->status) return r->status;
  if (out->heads % out->kv_heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: num_kv_heads %u does not divide num_heads %u", r->file, out->kv_heads,
                out->heads);
  if (!out->d && D % out->heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: num_heads %u does not divide hidden_size %u", r->file, out->heads, D);
  if (!out->d) out->d = D / out->heads;
  out->rotary = (uint32_t)(out->d * rotated);
  if (out->rotary % 2)
    return fail(DELTAIC_BAD_SHAPE, "%s: %u numbers of a head cannot be rotated: there must be an even number of them",
                r->file, out->rotary);
  return DELTAIC_OK;
}

static deltaic_status read_attn_object(struct json_reader *r, const json_t *attn, uint32_t D,
                                       struct attention_spec *out) {
  if (!json_present(attn, "num_heads")) return fail(DELTAIC_BAD_FILE, "%s: attn has no num_heads", r->file);
  deltaic_status status = arch_read_attention(r, attn, 1, D, out);
  return status ? fail(status, "%s (in attn)", deltaic_last_error()) : DELTAIC_OK;
}

static deltaic_status set_attention(struct json_reader *r, const json_t *attn, struct model_spec *out) {
  if (!json_is_object(attn)) return fail(DELTAIC_BAD_FILE, "%s: attn must be an object or a list of them", r->file);
  struct attention_spec spec = {0};
  deltaic_status status = read_attn_object(r, attn, out->D, &spec);
  if (status) return status;
  const json_t *layers = json_object_get(attn, "layers"), *value;
  size_t k;
  if (!json_is_array(layers)) return fail(DELTAIC_BAD_FILE, "%s: attn has no list of layers", r->file);
  json_array_foreach(layers, k, value) {
    if (!json_is_integer(value)) return fail(DELTAIC_BAD_FILE, "%s: attn: layers must be integers", r->file);
    long long i = json_integer_value(value);
    if (i < 0 || i >= out->L)
      return fail(DELTAIC_BAD_FILE, "%s: attn: layer %lld is not one of the model's %u layers", r->file, i, out->L);
    if (out->layers[i].mixer) return fail(DELTAIC_BAD_FILE, "%s: attn: layer %lld is listed twice", r->file, i);
    status = arch_set_layer(out, (uint32_t)i, &mixer_attention, &spec, sizeof spec);
    if (status) return status;
  }
  return DELTAIC_OK;
}

static deltaic_status read_attn(struct json_reader *r, const json_t *config, struct model_spec *out) {
  const json_t *attn = json_object_get(config, "attn"), *value;
  size_t i;
  if (!attn || json_is_null(attn)) return DELTAIC_OK;
  if (!json_is_array(attn)) return set_attention(r, attn, out);
  json_array_foreach(attn, i, value) {
    deltaic_status status = set_attention(r, value, out);
    if (status) return status;
  }
  return DELTAIC_OK;
}

// mixers: every layer's kind, in place of attn's list of layers. Those of the family's own are left to
// it.
static deltaic_status set_mixer(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint, uint32_t i,
                                const char *kind, struct model_spec *out) {
  const json_t *attn = json_object_get(config, "attn"), *mamba2 = json_object_get(config, "mamba2");
  if (!strcmp(kind, out->architecture)) return DELTAIC_OK;
  if (!strcmp(kind, "mamba2")) {
    if (!mamba2 || json_is_null(mamba2) || json_is_object(mamba2))
      return arch_set_mamba2(r, mamba2, checkpoint, i, out);
    return fail(DELTAIC_BAD_FILE, "%s: mamba2 must be an object", r->file);
  }
  if (strcmp(kind, "attention"))
    return fail(DELTAIC_UNSUPPORTED, "%s: mixers: \"%.100s\" is not supported; supported are: %s, mamba2, attention",
                r->file, kind, out->architecture);
  if (!json_is_object(attn)) return fail(DELTAIC_BAD_FILE, "%s: mixers with attention need an object attn", r->file);
  struct attention_spec spec = {0};
  deltaic_status status = read_attn_object(r, attn, out->D, &spec);
  return status ? status : arch_set_layer(out, i, &mixer_attention, &spec, sizeof spec);
}

static deltaic_status read_mixers(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  struct model_spec *out) {
  const json_t *mixers = json_object_get(config, "mixers");
  if (!json_is_array(mixers) || json_array_size(mixers) != out->L)
    return fail(DELTAIC_BAD_FILE, "%s: mixers must be a list of %u names, one for each layer", r->file, out->L);
  for (uint32_t i = 0; i < out->L; i++) {
    const char *kind = json_string_value(json_array_get(mixers, i));
    if (!kind) return fail(DELTAIC_BAD_FILE, "%s: mixers: layer %u has no name", r->file, i);
    deltaic_status status = set_mixer(r, config, checkpoint, i, kind, out);
    if (status) return status;
  }
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- what lies outside the layers of the family

#define LAYER "*layers.#."
static const struct tensor_name tensors_of_fla[] = {
    NAMED(EMBEDDING, "*embeddings.weight"),
    NAMED(FINAL_NORM, "*norm.weight"),
    NAMED(HEAD, "lm_head.weight"),
    NAMED(MIXER_NORM, LAYER "attn_norm.weight"),
    NAMED(MIXER_NORM, LAYER "attn.norm.weight"), // norm_first, 2024
    NAMED(FFN_NORM, LAYER "mlp_norm.weight"),
    NAMED(FFN_NORM, LAYER "mlp.norm.weight"),
    NAMED(FFN_GATE, LAYER "mlp.gate_proj.weight"),
    NAMED(FFN_UP, LAYER "mlp.up_proj.weight"),
    NAMED(FFN_DOWN, LAYER "mlp.down_proj.weight"),
    NAMED(Q, LAYER "attn.q_proj.weight"),
    NAMED(K, LAYER "attn.k_proj.weight"),
    NAMED(K, LAYER "attn.k_projs.@.weight"), // DeltaProduct before June 2025: an item for each step
    NAMED(V, LAYER "attn.v_proj.weight"),
    NAMED(V, LAYER "attn.v_projs.@.weight"),
    NAMED(Q_BIAS, LAYER "attn.q_proj.bias"),
    NAMED(K_BIAS, LAYER "attn.k_proj.bias"),
    NAMED(V_BIAS, LAYER "attn.v_proj.bias"),
    NAMED(Q_NORM, LAYER "attn.q_norm.weight"),
    NAMED(K_NORM, LAYER "attn.k_norm.weight"),
    NAMED(Q_CONV, LAYER "attn.q_conv1d.weight"),
    NAMED(Q_CONV, LAYER "attn.q_conv1ds.0.weight"), // those after it were never used
    NAMED(Q_CONV, LAYER "attn.q_conv1ds.@.weight"),
    NAMED(K_CONV, LAYER "attn.k_conv1d.weight"),
    NAMED(K_CONV, LAYER "attn.k_conv1ds.@.weight"),
    NAMED(V_CONV, LAYER "attn.v_conv1d.weight"),
    NAMED(V_CONV, LAYER "attn.v_conv1ds.@.weight"),
    NAMED(Q_CONV_BIAS, LAYER "attn.q_conv1d.bias"),
    NAMED(Q_CONV_BIAS, LAYER "attn.q_conv1ds.@.bias"),
    NAMED(K_CONV_BIAS, LAYER "attn.k_conv1d.bias"),
    NAMED(K_CONV_BIAS, LAYER "attn.k_conv1ds.@.bias"),
    NAMED(V_CONV_BIAS, LAYER "attn.v_conv1d.bias"),
    NAMED(GATE, LAYER "attn.g_proj.weight"),
    NAMED(BETA, LAYER "attn.b_proj.weight"),
    NAMED(BETA, LAYER "attn.beta_proj.weight"),
    NAMED(BETA, LAYER "attn.b_projs.@.weight"),
    NAMED(DECAY, LAYER "attn.a_proj.weight"),
    NAMED(A_LOG, LAYER "attn.A_log"),
    NAMED(STEP_BIAS, LAYER "attn.dt_bias"),
    NAMED(MASK, LAYER "attn.m_proj.weight"),
    NAMED(MASK_BIAS, LAYER "attn.m_proj.bias"),
    NAMED(MASK_FIXED, LAYER "attn.M_org"),
    NAMED(OUTPUT_NORM, LAYER "attn.o_norm.weight"),
    NAMED(OUTPUT, LAYER "attn.o_proj.weight"),
    {0},
};

// attn.D was never read by any version of the layer; rotation frequencies follow from rope_theta.
static const char *const ignored_of_fla[] = {"model.layers.*.attn.D", "model.layers.*.rotary.inv_freq",
                                             "model.layers.*.attn.q_conv1ds.*", NULL};

static const struct names names_of_fla = {
    .prefixes = {"model."}, .tensors = tensors_of_fla, .ignored = ignored_of_fla, .base = &names_mamba2_mixer};

// Layouts that would otherwise only show as a missing tensor.
static deltaic_status refuse_tensors(struct checkpoint *checkpoint, uint32_t layers) {
  static const struct refused_tensor {
    const char *name, *what;
  } refused[] = {{"attn.o_norm.norms.0.weight", "an output norm per head (per_head_norm)"},
                 {"attn.q_conv1d.shared_kernel", "convolution kernels shared between channels (delta_net_2)"},
                 {"attn.q_conv1d.r", "convolutions that only shift (delta_net_2's shift_only_conv)"},
                 {"attn.h_conv1d.weight", "one convolution before the projections (share_conv_kernel)"}};
  for (uint32_t i = 0; checkpoint && i < layers; i++)
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
      const struct file_tensor *t = checkpoint_findf(checkpoint, "model.layers.%u.%s", i, refused[k].name);
      if (t)
        return fail(DELTAIC_UNSUPPORTED, "%s: tensor %s belongs to %s, which is not supported",
                    checkpoint_path(checkpoint), t->name, refused[k].what);
    }
  return DELTAIC_OK;
}

deltaic_status arch_read_outside(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 uint32_t default_layers, struct model_spec *out) {
  deltaic_status status = refuse_keys(r, config);
  if (!status) status = arch_read_ends(r, config, checkpoint, &names_of_fla, default_layers, 1e-6, out);
  if (!status) out->ffn_norm_eps = ffn_norm_eps(r, config, checkpoint, out->norm_eps);
  if (!status) status = arch_read_mlp(r, config, checkpoint, out);
  if (!status) status = refuse_tensors(checkpoint, out->L);
  if (status) return status;
  if (json_present(config, "mixers")) return read_mixers(r, config, checkpoint, out);
  if (json_present(config, "mamba2"))
    return fail(DELTAIC_UNSUPPORTED, "%s: config key mamba2 is of use only with mixers", r->file);
  return read_attn(r, config, out);
}
