// arch_qwen3_5: Qwen3.5, dense: Gated DeltaNet layers, and every fourth layer gated softmax attention
// (docs/models.md). The norms are stored as their weight minus 1, except the output norm of the delta rule.
#include "arch_keys.h"

#include "mixer_attention.h"
#include "mixer_delta.h"

// ---------------------------------------------------------------- tensors

// in_proj_qkv and conv1d: the rows of q, then of k, then of v.
static uint64_t qkv_count(const struct layer_spec *layer) {
  const struct delta_spec *s = layer->spec;
  return 2ull * s->H * s->Dk + (uint64_t)s->Hv * s->Dv;
}

static uint64_t q_at(const struct layer_spec *layer, uint32_t row) {
  (void)layer;
  return row;
}

static uint64_t k_at(const struct layer_spec *layer, uint32_t row) {
  const struct delta_spec *s = layer->spec;
  return (uint64_t)s->H * s->Dk + row;
}

static uint64_t v_at(const struct layer_spec *layer, uint32_t row) {
  const struct delta_spec *s = layer->spec;
  return 2ull * s->H * s->Dk + row;
}

// q_proj: the rows of each head's query, then of its gate.
static uint64_t query_count(const struct layer_spec *layer) {
  const struct attention_spec *s = layer->spec;
  return 2ull * s->heads * s->d;
}

static uint64_t query_at(const struct layer_spec *layer, uint32_t row) {
  const uint32_t d = ((const struct attention_spec *)layer->spec)->d;
  return 2ull * (row / d) * d + row % d;
}

static uint64_t gate_at(const struct layer_spec *layer, uint32_t row) {
  return query_at(layer, row) + ((const struct attention_spec *)layer->spec)->d;
}

static const struct row_map q_rows = {qkv_count, q_at}, k_rows = {qkv_count, k_at}, v_rows = {qkv_count, v_at},
                            query_rows = {query_count, query_at}, gate_rows = {query_count, gate_at};

// The names of a kind of files, and the order of their value heads.
struct qwen_names {
  const struct names *outside, *delta, *attention;
  bool tiled;
};

#define LAYER "*layers.#."
static const struct tensor_name tensors[] = {
    NAMED(EMBEDDING, "*embed_tokens.weight"),
    CENTRED(FINAL_NORM, "*norm.weight"),
    NAMED(HEAD, "lm_head.weight"),
    CENTRED(MIXER_NORM, LAYER "input_layernorm.weight"),
    CENTRED(FFN_NORM, LAYER "post_attention_layernorm.weight"),
    NAMED(FFN_GATE, LAYER "mlp.gate_proj.weight"),
    NAMED(FFN_UP, LAYER "mlp.up_proj.weight"),
    NAMED(FFN_DOWN, LAYER "mlp.down_proj.weight"),
    {0},
};

static const struct tensor_name delta_tensors[] = {
    MAPPED(Q, LAYER "linear_attn.in_proj_qkv.weight", &q_rows),
    MAPPED(K, LAYER "linear_attn.in_proj_qkv.weight", &k_rows),
    MAPPED(V, LAYER "linear_attn.in_proj_qkv.weight", &v_rows),
    MAPPED(Q_CONV, LAYER "linear_attn.conv1d.weight", &q_rows),
    MAPPED(K_CONV, LAYER "linear_attn.conv1d.weight", &k_rows),
    MAPPED(V_CONV, LAYER "linear_attn.conv1d.weight", &v_rows),
    NAMED(GATE, LAYER "linear_attn.in_proj_z.weight"),
    NAMED(BETA, LAYER "linear_attn.in_proj_b.weight"),
    NAMED(DECAY, LAYER "linear_attn.in_proj_a.weight"),
    NAMED(A_LOG, LAYER "linear_attn.A_log"),
    NAMED(STEP_BIAS, LAYER "linear_attn.dt_bias"),
    NAMED(OUTPUT_NORM, LAYER "linear_attn.norm.weight"),
    NAMED(OUTPUT, LAYER "linear_attn.out_proj.weight"),
    {0},
};

static const struct tensor_name attention_tensors[] = {
    MAPPED(Q, LAYER "self_attn.q_proj.weight", &query_rows),
    MAPPED(GATE, LAYER "self_attn.q_proj.weight", &gate_rows),
    NAMED(K, LAYER "self_attn.k_proj.weight"),
    NAMED(V, LAYER "self_attn.v_proj.weight"),
    MAPPED(Q_BIAS, LAYER "self_attn.q_proj.bias", &query_rows),
    MAPPED(GATE_BIAS, LAYER "self_attn.q_proj.bias", &gate_rows),
    NAMED(K_BIAS, LAYER "self_attn.k_proj.bias"),
    NAMED(V_BIAS, LAYER "self_attn.v_proj.bias"),
    CENTRED(Q_NORM, LAYER "self_attn.q_norm.weight"),
    CENTRED(K_NORM, LAYER "self_attn.k_norm.weight"),
    NAMED(OUTPUT, LAYER "self_attn.o_proj.weight"),
    NAMED(OUTPUT_BIAS, LAYER "self_attn.o_proj.bias"),
    {0},
};

// The layer that predicts a second token, and what reads images.
static const char *const ignored[] = {"mtp.*", "model.visual.*", "*.rotary_emb.inv_freq", NULL};

#define PREFIXES                                                                                                       \
  { "model.language_model.", "model." }
static const struct names names = {.prefixes = PREFIXES, .tensors = tensors, .ignored = ignored};
static const struct names delta_names = {.prefixes = PREFIXES, .tensors = delta_tensors, .base = &names};
static const struct names attention_names = {.prefixes = PREFIXES, .tensors = attention_tensors, .base = &names};

static const struct qwen_names folder_names = {&names, &delta_names, &attention_names, false};

// In GGUF norms are stored as their weight, and the value heads are tiled.
#define BLOCK "blk.#."
static const struct tensor_name gguf_tensors[] = {
    NAMED(EMBEDDING, "token_embd.weight"),
    NAMED(FINAL_NORM, "output_norm.weight"),
    NAMED(HEAD, "output.weight"),
    NAMED(MIXER_NORM, BLOCK "attn_norm.weight"),
    NAMED(FFN_NORM, BLOCK "post_attention_norm.weight"),
    NAMED(FFN_GATE, BLOCK "ffn_gate.weight"),
    NAMED(FFN_UP, BLOCK "ffn_up.weight"),
    NAMED(FFN_DOWN, BLOCK "ffn_down.weight"),
    {0},
};

static const struct tensor_name gguf_delta_tensors[] = {
    MAPPED(Q, BLOCK "attn_qkv.weight", &q_rows),
    MAPPED(K, BLOCK "attn_qkv.weight", &k_rows),
    MAPPED(V, BLOCK "attn_qkv.weight", &v_rows),
    MAPPED(Q_CONV, BLOCK "ssm_conv1d.weight", &q_rows),
    MAPPED(K_CONV, BLOCK "ssm_conv1d.weight", &k_rows),
    MAPPED(V_CONV, BLOCK "ssm_conv1d.weight", &v_rows),
    NAMED(GATE, BLOCK "attn_gate.weight"),
    NAMED(BETA, BLOCK "ssm_beta.weight"),
    NAMED(DECAY, BLOCK "ssm_alpha.weight"),
    MINUS_EXP(A_LOG, BLOCK "ssm_a"),
    NAMED(STEP_BIAS, BLOCK "ssm_dt.bias"),
    NAMED(OUTPUT_NORM, BLOCK "ssm_norm.weight"),
    NAMED(OUTPUT, BLOCK "ssm_out.weight"),
    {0},
};

static const struct tensor_name gguf_attention_tensors[] = {
    MAPPED(Q, BLOCK "attn_q.weight", &query_rows),
    MAPPED(GATE, BLOCK "attn_q.weight", &gate_rows),
    NAMED(K, BLOCK "attn_k.weight"),
    NAMED(V, BLOCK "attn_v.weight"),
    NAMED(Q_NORM, BLOCK "attn_q_norm.weight"),
    NAMED(K_NORM, BLOCK "attn_k_norm.weight"),
    NAMED(OUTPUT, BLOCK "attn_output.weight"),
    {0},
};

static const struct names gguf_outside = {.prefixes = {""}, .tensors = gguf_tensors};
static const struct names gguf_delta = {.prefixes = {""}, .tensors = gguf_delta_tensors, .base = &gguf_outside};
static const struct names gguf_attention = {.prefixes = {""}, .tensors = gguf_attention_tensors, .base = &gguf_outside};
static const struct qwen_names gguf_names = {&gguf_outside, &gguf_delta, &gguf_attention, true};

// ---------------------------------------------------------------- config

static const char *const known_outside[] = {"text_config", "vision_config", "tie_word_embeddings",
                                            "language_model_only", NULL};
static const char *const known[] = {"attention_bias",
                                    "attn_output_gate",
                                    "full_attention_interval",
                                    "head_dim",
                                    "hidden_act",
                                    "hidden_size",
                                    "intermediate_size",
                                    "layer_types",
                                    "linear_conv_kernel_dim",
                                    "linear_key_head_dim",
                                    "linear_num_key_heads",
                                    "linear_num_value_heads",
                                    "linear_value_head_dim",
                                    "mamba_ssm_dtype",
                                    "mlp_only_layers",
                                    "num_attention_heads",
                                    "num_hidden_layers",
                                    "num_key_value_heads",
                                    "output_gate_type",
                                    "partial_rotary_factor",
                                    "rms_norm_eps",
                                    "rope_parameters",
                                    "rope_scaling",
                                    "rope_theta",
                                    "tie_word_embeddings",
                                    "vocab_size",
                                    NULL};
static const struct arch_default defaults[] = {{"hidden_size", 4096},
                                               {"intermediate_size", 12288},
                                               {"num_hidden_layers", 32},
                                               {"vocab_size", 248320},
                                               {"num_attention_heads", 16},
                                               {"num_key_value_heads", 4},
                                               {"head_dim", 256},
                                               {"linear_num_key_heads", 16},
                                               {"linear_num_value_heads", 32},
                                               {"linear_key_head_dim", 128},
                                               {"linear_value_head_dim", 128},
                                               {"linear_conv_kernel_dim", 4},
                                               {"full_attention_interval", 4},
                                               {0}};

static deltaic_status read_attention(struct json_reader *r, const json_t *config, float norm_eps,
                                     struct attention_spec *s) {
  struct arch_rope rope;
  s->heads = (uint32_t)json_int(r, config, "num_attention_heads", 0, 1, LIMIT_HEADS);
  s->kv_heads = (uint32_t)json_int(r, config, "num_key_value_heads", 0, 1, LIMIT_HEADS);
  s->d = (uint32_t)json_int(r, config, "head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->bias = s->output_bias = json_bool(r, config, "attention_bias", false);
  s->gate = s->qk_norm = true;
  s->norm_eps = norm_eps;
  if (!json_bool(r, config, "attn_output_gate", true) && !r->status)
    return fail(DELTAIC_UNSUPPORTED, "%s: attn_output_gate false is not supported", r->file);
  deltaic_status status = arch_read_rope(r, config, 0.25, &rope);
  if (!status && !rope.theta) return fail(DELTAIC_BAD_FILE, "%s: has no rope_theta", r->file);
  return status ? status : arch_check_heads(r, &rope, s);
}

static deltaic_status read_delta(struct json_reader *r, const json_t *config, const struct qwen_names *n,
                                 float norm_eps, struct delta_spec *s) {
  static const char *const gates[] = {"swish", "silu", NULL};
  *s = (struct delta_spec){.n = 1,
                           .r = 1,
                           .activation = ACTIVATION_SILU,
                           .norm = KEY_NORM_L2,
                           .has_beta = true,
                           .beta_scale = 1,
                           .gated = true,
                           .output_gate = true,
                           .output_norm = true,
                           .tiled = n->tiled,
                           .norm_eps = norm_eps};
  s->H = (uint32_t)json_int(r, config, "linear_num_key_heads", 0, 1, LIMIT_HEADS);
  s->Hv = (uint32_t)json_int(r, config, "linear_num_value_heads", 0, 1, LIMIT_HEADS);
  s->Dk = (uint32_t)json_int(r, config, "linear_key_head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->Dv = (uint32_t)json_int(r, config, "linear_value_head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->W = (uint32_t)json_int(r, config, "linear_conv_kernel_dim", 0, 1, LIMIT_CONV);
  (void)arch_choice(r, config, "output_gate_type", gates);
  return r->status ? r->status : arch_check_value_heads(r, s);
}

static deltaic_status set_layers(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 const struct qwen_names *n, struct model_spec *out) {
  struct attention_spec attention = {0};
  struct delta_spec delta;
  const uint32_t every = (uint32_t)json_int(r, config, "full_attention_interval", 0, 1, LIMIT_LAYERS);
  deltaic_status status = read_delta(r, config, n, out->norm_eps, &delta);
  if (!status) status = read_attention(r, config, out->norm_eps, &attention);
  for (uint32_t i = 0; !status && i < out->L; i++) {
    struct delta_spec s = delta;
    const bool full = arch_is_attention(r, config, out->L, every, i);
    out->layers[i].names = full ? n->attention : n->delta;
    status = r->status || full ? r->status : arch_size_delta(r, checkpoint, n->delta, i, &s);
    if (!status)
      status = full ? arch_set_layer(out, i, &mixer_attention, &attention, sizeof attention)
                    : arch_set_layer(out, i, &mixer_gated_deltanet, &s, sizeof s);
  }
  return status;
}

// The config of the whole model has the text's in text_config. tie_word_embeddings outside wins; the ids of special
// tokens outside are for those that the text's config lacks.
static json_t *text_of(struct json_reader *r, const json_t *config) {
  static const char *const ids[] = {"bos_token_id", "eos_token_id"};
  const json_t *inner = json_object_get(config, "text_config"), *tied = json_object_get(config, "tie_word_embeddings");
  json_t *text = arch_with_defaults(r, inner ? inner : config, defaults);
  bool bad = !text;
  if (inner && !bad && tied && !json_is_null(tied)) bad = json_object_set(text, "tie_word_embeddings", (json_t *)tied);
  for (int i = 0; i < 2 && inner && !bad; i++)
    if (!json_object_get(text, ids[i]) && json_object_get(config, ids[i]))
      bad = json_object_set(text, ids[i], json_object_get(config, ids[i]));
  if (bad && !r->status) r->status = fail_memory("a config", 0);
  return text;
}

static deltaic_status read_qwen3_5(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                   struct model_spec *out) {
  const json_t *inner = json_object_get(config, "text_config");
  if (inner && !json_is_object(inner)) return fail(DELTAIC_BAD_FILE, "%s: text_config must be an object", r->file);
  deltaic_status status = inner ? arch_check_keys(r, config, known_outside, NULL) : DELTAIC_OK;
  if (status) return status;
  json_t *text = text_of(r, config);
  status = r->status ? r->status : arch_read_strictly(r, text, checkpoint, &names, known, out);
  if (!status) status = set_layers(r, text, checkpoint, &folder_names, out);
  json_decref(text);
  return status;
}

// A GGUF file; arch_gguf.c has made the config of its keys. The blocks after the last layer predict a second token.
static deltaic_status read_qwen35(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  struct model_spec *out) {
  deltaic_status status = arch_read_strictly(r, config, checkpoint, &gguf_outside, known, out);
  const uint32_t more = (uint32_t)json_int(r, config, "mtp_num_hidden_layers", 0, 0, LIMIT_LAYERS);
  if (!status) status = r->status;
  if (!status) arch_pass_over_blocks(checkpoint, out->L, more);
  return status ? status : set_layers(r, config, checkpoint, &gguf_names, out);
}

const struct arch arch_qwen35 = {"qwen35", read_qwen35};
const struct arch arch_qwen3_5 = {"qwen3_5", read_qwen3_5};
const struct arch arch_qwen3_5_text = {"qwen3_5_text", read_qwen3_5};
