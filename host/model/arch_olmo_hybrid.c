// arch_olmo_hybrid: OLMo-Hybrid: Gated DeltaNet layers with the norms before the mixer and the FFN, and softmax
// attention layers with the norms after them (docs/models.md).
#include "arch_keys.h"

#include "mixer_attention.h"
#include "mixer_delta.h"

// ---------------------------------------------------------------- tensors

#define LAYER "*layers.#."
static const struct tensor_name tensors[] = {
    NAMED(EMBEDDING, "*embed_tokens.weight"),
    NAMED(FINAL_NORM, "*norm.weight"),
    NAMED(HEAD, "lm_head.weight"),
    NAMED(FFN_GATE, LAYER "mlp.gate_proj.weight"),
    NAMED(FFN_UP, LAYER "mlp.up_proj.weight"),
    NAMED(FFN_DOWN, LAYER "mlp.down_proj.weight"),
    {0},
};

static const struct tensor_name delta_tensors[] = {
    NAMED(MIXER_NORM, LAYER "input_layernorm.weight"),
    NAMED(MIXER_NORM, LAYER "attention_layer_norm.weight"), // before transformers renamed it
    NAMED(FFN_NORM, LAYER "post_attention_layernorm.weight"),
    NAMED(FFN_NORM, LAYER "feedforward_layer_norm.weight"),
    NAMED(Q, LAYER "linear_attn.q_proj.weight"),
    NAMED(K, LAYER "linear_attn.k_proj.weight"),
    NAMED(V, LAYER "linear_attn.v_proj.weight"),
    NAMED(Q_CONV, LAYER "linear_attn.q_conv1d.weight"),
    NAMED(K_CONV, LAYER "linear_attn.k_conv1d.weight"),
    NAMED(V_CONV, LAYER "linear_attn.v_conv1d.weight"),
    NAMED(GATE, LAYER "linear_attn.g_proj.weight"),
    NAMED(BETA, LAYER "linear_attn.b_proj.weight"),
    NAMED(DECAY, LAYER "linear_attn.a_proj.weight"),
    NAMED(A_LOG, LAYER "linear_attn.A_log"),
    NAMED(STEP_BIAS, LAYER "linear_attn.dt_bias"),
    NAMED(OUTPUT_NORM, LAYER "linear_attn.o_norm.weight"),
    NAMED(OUTPUT, LAYER "linear_attn.o_proj.weight"),
    {0},
};

static const struct tensor_name attention_tensors[] = {
    NAMED(MIXER_NORM, LAYER "post_attention_layernorm.weight"),
    NAMED(FFN_NORM, LAYER "post_feedforward_layernorm.weight"),
    NAMED(Q, LAYER "self_attn.q_proj.weight"),
    NAMED(K, LAYER "self_attn.k_proj.weight"),
    NAMED(V, LAYER "self_attn.v_proj.weight"),
    NAMED(Q_BIAS, LAYER "self_attn.q_proj.bias"),
    NAMED(K_BIAS, LAYER "self_attn.k_proj.bias"),
    NAMED(V_BIAS, LAYER "self_attn.v_proj.bias"),
    NAMED(Q_NORM, LAYER "self_attn.q_norm.weight"),
    NAMED(K_NORM, LAYER "self_attn.k_norm.weight"),
    NAMED(OUTPUT, LAYER "self_attn.o_proj.weight"),
    NAMED(OUTPUT_BIAS, LAYER "self_attn.o_proj.bias"),
    {0},
};

static const char *const ignored[] = {"*.rotary_emb.inv_freq", NULL};
static const struct names names = {.prefixes = {"model."}, .tensors = tensors, .ignored = ignored};
static const struct names delta_names = {.prefixes = {"model."}, .tensors = delta_tensors, .base = &names};
static const struct names attention_names = {.prefixes = {"model."}, .tensors = attention_tensors, .base = &names};

// ---------------------------------------------------------------- config

// linear_a_log_* and linear_dt_* describe how weights are initialised; key_sizes is written by the pruner.
static const char *const known[] = {"attention_bias",
                                    "head_dim",
                                    "hidden_act",
                                    "hidden_size",
                                    "intermediate_size",
                                    "key_sizes",
                                    "layer_types",
                                    "linear_a_log_*",
                                    "linear_allow_neg_eigval",
                                    "linear_conv_kernel_dim",
                                    "linear_dt_*",
                                    "linear_key_head_dim",
                                    "linear_num_key_heads",
                                    "linear_num_value_heads",
                                    "linear_value_head_dim",
                                    "num_attention_heads",
                                    "num_hidden_layers",
                                    "num_key_value_heads",
                                    "rms_norm_eps",
                                    "rope_parameters",
                                    "rope_scaling",
                                    "rope_theta",
                                    "tie_word_embeddings",
                                    "vocab_size",
                                    NULL};
static const struct arch_default defaults[] = {{"hidden_size", 3840},
                                               {"intermediate_size", 11008},
                                               {"num_hidden_layers", 32},
                                               {"vocab_size", 100352},
                                               {"num_attention_heads", 30},
                                               {"linear_conv_kernel_dim", 4},
                                               {0}};

static deltaic_status read_attention(struct json_reader *r, const json_t *config, const struct model_spec *out,
                                     struct attention_spec *s) {
  struct arch_rope rope;
  s->heads = (uint32_t)json_int(r, config, "num_attention_heads", 0, 1, LIMIT_HEADS);
  s->kv_heads = (uint32_t)json_int(r, config, "num_key_value_heads", s->heads, 1, LIMIT_HEADS);
  s->d = (uint32_t)json_int(r, config, "head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->bias = s->output_bias = json_bool(r, config, "attention_bias", false);
  s->qk_norm = s->whole_norm = true;
  s->norm_eps = out->norm_eps;
  deltaic_status status = arch_read_rope(r, config, 1, &rope);
  if (status) return status;
  if (rope.rotated != 1)
    return fail(DELTAIC_UNSUPPORTED, "%s: partial_rotary_factor %g is not supported", r->file, rope.rotated);
  if (!s->d && out->D % s->heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: num_attention_heads %u does not divide hidden_size %u", r->file, s->heads,
                out->D);
  if (!s->d) s->d = out->D / s->heads;
  return arch_check_heads(r, &rope, s);
}

// The output norm's eps does not follow rms_norm_eps.
static deltaic_status read_delta(struct json_reader *r, const json_t *config, uint32_t D, uint32_t heads,
                                 struct delta_spec *s) {
  *s = (struct delta_spec){.n = 1,
                           .r = 1,
                           .activation = ACTIVATION_SILU,
                           .norm = KEY_NORM_L2,
                           .has_beta = true,
                           .gated = true,
                           .output_gate = true,
                           .output_norm = true,
                           .norm_eps = 1e-5f};
  s->H = (uint32_t)json_int(r, config, "linear_num_key_heads", heads, 1, LIMIT_HEADS);
  s->Hv = (uint32_t)json_int(r, config, "linear_num_value_heads", heads, 1, LIMIT_HEADS);
  const uint32_t Dk = (uint32_t)json_int(r, config, "linear_key_head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->Dk = Dk ? Dk : (uint32_t)(0.75 * D / s->H);
  s->Dv = (uint32_t)json_int(r, config, "linear_value_head_dim", 2 * s->Dk, 1, LIMIT_HEAD_SIZE);
  s->W = (uint32_t)json_int(r, config, "linear_conv_kernel_dim", 0, 1, LIMIT_CONV);
  s->beta_scale = json_bool(r, config, "linear_allow_neg_eigval", true) ? 2.0f : 1.0f;
  return r->status ? r->status : arch_check_value_heads(r, s);
}

// Without an attention layer in the list, the last layer is one, as in transformers.
static bool is_attention(struct json_reader *r, const json_t *config, uint32_t L, uint32_t i) {
  bool any = false;
  for (uint32_t k = 0; k < L && i == L - 1 && !any; k++) any = arch_is_attention(r, config, L, 4, k);
  return (i == L - 1 && !any) || arch_is_attention(r, config, L, 4, i);
}

static deltaic_status set_layers(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 struct model_spec *out) {
  struct attention_spec attention = {0};
  struct delta_spec delta;
  deltaic_status status = read_attention(r, config, out, &attention);
  if (!status) status = read_delta(r, config, out->D, attention.heads, &delta);
  for (uint32_t i = 0; !status && i < out->L; i++) {
    struct layer_spec *layer = &out->layers[i];
    struct delta_spec s = delta;
    layer->norms_after = is_attention(r, config, out->L, i);
    layer->names = layer->norms_after ? &attention_names : &delta_names;
    status = r->status || layer->norms_after ? r->status : arch_size_delta(r, checkpoint, &delta_names, i, &s);
    if (!status)
      status = layer->norms_after ? arch_set_layer(out, i, &mixer_attention, &attention, sizeof attention)
                                  : arch_set_layer(out, i, &mixer_gated_deltanet, &s, sizeof s);
  }
  return status;
}

static deltaic_status read_olmo_hybrid(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                       struct model_spec *out) {
  json_t *filled = arch_with_defaults(r, config, defaults);
  deltaic_status status = r->status ? r->status : arch_read_strictly(r, filled, checkpoint, &names, known, out);
  if (!status) status = set_layers(r, filled, checkpoint, out);
  json_decref(filled);
  return status;
}

const struct arch arch_olmo_hybrid = {"olmo_hybrid", read_olmo_hybrid};
