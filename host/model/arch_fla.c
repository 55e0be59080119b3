// arch_fla: what the families of flash-linear-attention share: the tensors' names, and the config outside the
// linear-attention layers, including softmax-attention and Mamba-2 layers in hybrids.
#include "arch_common.h"

#include "mixer_attention.h"
#include "mixer_delta.h"

#include <math.h>
#include <string.h>

// delta_net_2: the filter of a channel is that of its head, or the only one.
static uint64_t filter_count(const struct layer_spec *layer) {
  return ((const struct delta_spec *)layer->spec)->filters;
}

static uint64_t key_filter(const struct layer_spec *layer, uint32_t channel) {
  const struct delta_spec *s = layer->spec;
  return s->filters > 1 ? channel / s->Dk : 0;
}

static uint64_t value_filter(const struct layer_spec *layer, uint32_t channel) {
  const struct delta_spec *s = layer->spec;
  return s->filters > 1 ? channel / s->Dv : 0;
}

static const struct row_map key_filters = {filter_count, key_filter}, value_filters = {filter_count, value_filter};

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
    NAMED(K, LAYER "attn.k_projs.@.weight"), // DeltaProduct before June 2025: an item per householder step
    NAMED(V, LAYER "attn.v_proj.weight"),
    NAMED(V, LAYER "attn.v_projs.@.weight"),
    NAMED(Q_BIAS, LAYER "attn.q_proj.bias"),
    NAMED(K_BIAS, LAYER "attn.k_proj.bias"),
    NAMED(V_BIAS, LAYER "attn.v_proj.bias"),
    NAMED(Q_NORM, LAYER "attn.q_norm.weight"),
    NAMED(K_NORM, LAYER "attn.k_norm.weight"),
    NAMED(Q_CONV, LAYER "attn.q_conv1d.weight"),
    NAMED(Q_CONV, LAYER "attn.q_conv1ds.0.weight"), // later items were never used
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

// delta_net_2
static const struct tensor_name tensors_of_shared[] = {
    MAPPED(Q_CONV, LAYER "attn.q_conv1d.shared_kernel", &key_filters),
    MAPPED(K_CONV, LAYER "attn.k_conv1d.shared_kernel", &key_filters),
    MAPPED(V_CONV, LAYER "attn.v_conv1d.shared_kernel", &value_filters),
    {0},
};

// No version of the layer read attn.D; rotation frequencies follow from rope_theta.
static const char *const ignored_of_fla[] = {"model.layers.*.attn.D", "model.layers.*.rotary.inv_freq",
                                             "model.layers.*.attn.q_conv1ds.*", NULL};

#define PREFIXES                                                                                                       \
  { "model." }
static const struct names names_of_fla = {.prefixes = PREFIXES, .tensors = tensors_of_fla, .ignored = ignored_of_fla};
static const struct names names_of_shared = {
    .prefixes = PREFIXES, .tensors = tensors_of_shared, .ignored = ignored_of_fla, .base = &names_of_fla};
static const struct names names_of_mamba2_layer = {
    .prefixes = PREFIXES, .tensors = tensors_of_mamba2_mixer, .base = &names_of_fla};

// Keys that make fla, or other writers of checkpoints, compute something else. A key has no effect if it is missing,
// null, false, or its neutral value.
static deltaic_status refuse_keys(const struct json_reader *r, const json_t *config) {
  static const struct refused_key {
    const char *key;
    double neutral;
  } refused[] = {{"attnres_block_size", NAN}, {"hh_r", 1},          {"share_conv_kernel", 0}, {"use_rope", 0},
                 {"per_head_norm", 0},        {"per_head_conv", 0}, {"share_kv_conv", 0},     {"shift_only_conv", 0},
                 {"conv_scaled_shift", 0}};
  const char *type = json_string_value(json_object_get(config, "model_type"));
  bool hh = type && (!strcmp(type, "delta_net") || !strcmp(type, "gated_deltanet"));
  bool shared = type && !strcmp(type, "delta_net_2");
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    if (hh && !strcmp(refused[i].key, "hh_r")) continue; // this family supports Head-in-Head
    if (shared && !strcmp(refused[i].key, "per_head_conv")) continue;
    const json_t *value = json_object_get(config, refused[i].key);
    if (!value || json_is_null(value) || json_is_false(value)) continue;
    if (json_is_number(value) && json_number_value(value) == refused[i].neutral) continue;
    return fail(DELTAIC_UNSUPPORTED, "%s: config key %s has a value that is not supported", r->file, refused[i].key);
  }
  if (json_present(config, "d_model") && !json_present(config, "hidden_size"))
    return fail(DELTAIC_UNSUPPORTED,
                "%s: uses key names from before March 2024 (d_model); rename them (hidden_size and so on)", r->file);
  return DELTAIC_OK;
}

// norm_first checkpoints (2024) have the MLP's norm inside the MLP, with its own eps.
static float ffn_norm_eps(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint, float norm_eps) {
  bool inside = checkpoint && checkpoint_find(checkpoint, "model.layers.0.mlp.norm.weight");
  return json_bool(r, config, "norm_first", true) && inside ? 1e-5f : norm_eps;
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

// `mixers` names the kind of every layer, instead of `attn`'s list of layers. Skips the family's own kind.
static deltaic_status set_mixer(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint, uint32_t i,
                                const char *kind, struct model_spec *out) {
  const json_t *attn = json_object_get(config, "attn"), *mamba2 = json_object_get(config, "mamba2");
  if (!strcmp(kind, out->architecture)) return DELTAIC_OK;
  if (!strcmp(kind, "mamba2")) {
    out->layers[i].names = &names_of_mamba2_layer;
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

// Refuses old layouts with a message of their own, instead of a missing tensor.
static deltaic_status refuse_tensors(struct checkpoint *checkpoint, const struct model_spec *spec) {
  static const struct refused_tensor {
    const char *name, *what;
  } refused[] = {{"attn.o_norm.norms.0.weight", "an output norm per head (per_head_norm)"},
                 {"attn.q_conv1d.r", "convolutions that only shift (delta_net_2's shift_only_conv)"},
                 {"attn.h_conv1d.weight", "one convolution before the projections (share_conv_kernel)"},
                 {"attn.q_conv1d.shared_kernel", "convolution kernels shared between channels (delta_net_2)"}};
  const size_t count = sizeof refused / sizeof *refused - !strcmp(spec->architecture, "delta_net_2");
  for (uint32_t i = 0; checkpoint && i < spec->L; i++)
    for (size_t k = 0; k < count; k++) {
      const struct file_tensor *t = checkpoint_findf(checkpoint, "model.layers.%u.%s", i, refused[k].name);
      if (t)
        return fail(DELTAIC_UNSUPPORTED, "%s: tensor %s belongs to %s, which is not supported",
                    checkpoint_path(checkpoint), t->name, refused[k].what);
    }
  return DELTAIC_OK;
}

deltaic_status arch_read_outside(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 uint32_t default_layers, struct model_spec *out) {
  const struct names *names = strcmp(out->architecture, "delta_net_2") ? &names_of_fla : &names_of_shared;
  deltaic_status status = refuse_keys(r, config);
  if (!status) status = arch_read_ends(r, config, checkpoint, names, default_layers, 1e-6f, out);
  if (!status) out->ffn_norm_eps = ffn_norm_eps(r, config, checkpoint, out->norm_eps);
  if (!status) status = arch_read_mlp(r, config, checkpoint, out);
  if (!status) status = refuse_tensors(checkpoint, out);
  if (status) return status;
  if (json_present(config, "mixers")) return read_mixers(r, config, checkpoint, out);
  if (json_present(config, "mamba2"))
    return fail(DELTAIC_UNSUPPORTED, "%s: config key mamba2 needs the key mixers", r->file);
  return read_attn(r, config, out);
}
