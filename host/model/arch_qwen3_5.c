// arch_qwen3_5: Qwen3.5, dense or with experts, and Qwen3-Next: Gated DeltaNet layers, and every fourth layer gated
// softmax attention (docs/models.md).
#include "arch_keys.h"

#include "ffn_experts.h"
#include "mixer_attention.h"
#include "mixer_delta.h"
#include "names_qwen.h"

static const char *const known_outside[] = {"text_config", "vision_config", "tie_word_embeddings",
                                            "language_model_only", NULL};
#define KNOWN                                                                                                          \
  "attention_bias", "attn_output_gate", "full_attention_interval", "head_dim", "hidden_act", "hidden_size",            \
      "intermediate_size", "layer_types", "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads",     \
      "linear_num_value_heads", "linear_value_head_dim", "mamba_ssm_dtype", "mlp_only_layers", "num_attention_heads",  \
      "num_hidden_layers", "num_key_value_heads", "output_gate_type", "partial_rotary_factor", "rms_norm_eps",         \
      "rope_parameters", "rope_scaling", "rope_theta", "tie_word_embeddings", "vocab_size"
static const char *const known[] = {KNOWN, NULL};
static const char *const known_experts[] = {
    KNOWN,         "decoder_sparse_step", "moe_intermediate_size",           "norm_topk_prob",
    "num_experts", "num_experts_per_tok", "shared_expert_intermediate_size", NULL};
#define DEFAULTS(D, L, V, heads, kv_heads)                                                                             \
  {"hidden_size", D}, {"num_hidden_layers", L}, {"vocab_size", V}, {"num_attention_heads", heads},                     \
      {"num_key_value_heads", kv_heads}, {"head_dim", 256}, {"linear_num_key_heads", 16},                              \
      {"linear_num_value_heads", 32}, {"linear_key_head_dim", 128}, {"linear_value_head_dim", 128},                    \
      {"linear_conv_kernel_dim", 4}, {                                                                                 \
    "full_attention_interval", 4                                                                                       \
  }
static const struct arch_default dense_defaults[] = {
    DEFAULTS(4096, 32, 248320, 16, 4), {"intermediate_size", 12288}, {0}};
static const struct arch_default expert_defaults[] = {DEFAULTS(2048, 40, 248320, 16, 2),
                                                      {"num_experts", 256},
                                                      {"num_experts_per_tok", 8},
                                                      {"moe_intermediate_size", 512},
                                                      {"shared_expert_intermediate_size", 512},
                                                      {0}};
static const struct arch_default next_defaults[] = {DEFAULTS(2048, 48, 151936, 16, 2),
                                                    {"intermediate_size", 5632},
                                                    {"num_experts", 512},
                                                    {"num_experts_per_tok", 10},
                                                    {"moe_intermediate_size", 512},
                                                    {"shared_expert_intermediate_size", 512},
                                                    {0}};

struct family {
  const struct names *outside, *delta, *attention; // names of the tensors
  bool tiled;                                      // the order of the value heads (mixer_delta.h)
  const struct arch_default *defaults;
  bool experts, dense_layers; // dense_layers: some layers may be dense
};

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

static deltaic_status read_delta(struct json_reader *r, const json_t *config, bool tiled, float norm_eps,
                                 struct delta_spec *s) {
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
                           .tiled = tiled,
                           .norm_eps = norm_eps};
  s->H = (uint32_t)json_int(r, config, "linear_num_key_heads", 0, 1, LIMIT_HEADS);
  s->Hv = (uint32_t)json_int(r, config, "linear_num_value_heads", 0, 1, LIMIT_HEADS);
  s->Dk = (uint32_t)json_int(r, config, "linear_key_head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->Dv = (uint32_t)json_int(r, config, "linear_value_head_dim", 0, 1, LIMIT_HEAD_SIZE);
  s->W = (uint32_t)json_int(r, config, "linear_conv_kernel_dim", 0, 1, LIMIT_CONV);
  (void)arch_choice(r, config, "output_gate_type", gates);
  return r->status ? r->status : arch_check_value_heads(r, s);
}

static deltaic_status set_mixers(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 const struct family *family, struct model_spec *out) {
  struct attention_spec attention = {0};
  struct delta_spec delta;
  const uint32_t every = (uint32_t)json_int(r, config, "full_attention_interval", 0, 1, LIMIT_LAYERS);
  deltaic_status status = read_delta(r, config, family->tiled, out->norm_eps, &delta);
  if (!status) status = read_attention(r, config, out->norm_eps, &attention);
  for (uint32_t i = 0; !status && i < out->L; i++) {
    struct delta_spec s = delta;
    const bool full = arch_is_attention(r, config, out->L, every, i);
    out->layers[i].names = full ? family->attention : family->delta;
    status = r->status || full ? r->status : arch_size_delta(r, checkpoint, family->delta, i, &s);
    if (!status)
      status = full ? arch_set_layer(out, i, &mixer_attention, &attention, sizeof attention)
                    : arch_set_layer(out, i, &mixer_gated_deltanet, &s, sizeof s);
  }
  return status;
}

static deltaic_status read_experts(struct json_reader *r, const json_t *config, bool normalized,
                                   struct experts_spec *s) {
  s->E = (uint32_t)json_int(r, config, "num_experts", 0, 1, LIMIT_EXPERTS);
  s->k = (uint32_t)json_int(r, config, "num_experts_per_tok", 0, 1, LIMIT_EXPERTS);
  s->F = (uint32_t)json_int(r, config, "moe_intermediate_size", 0, 1, LIMIT_WIDTH);
  s->shared = (uint32_t)json_int(r, config, "shared_expert_intermediate_size", 0, 1, LIMIT_WIDTH);
  s->normalized = normalized;
  s->activation = ACTIVATION_SILU;
  if (r->status) return r->status;
  if (s->k > s->E)
    return fail(DELTAIC_BAD_FILE, "%s: %s %u is more than %s %u", r->file, json_name(r, "num_experts_per_tok"), s->k,
                json_name(r, "num_experts"), s->E);
  return DELTAIC_OK;
}

// Whether layer i has a dense MLP: mlp_only_layers lists it, or decoder_sparse_step passes over it.
static bool is_dense(struct json_reader *r, const json_t *config, uint32_t i) {
  const uint32_t step = (uint32_t)json_int(r, config, "decoder_sparse_step", 1, 1, LIMIT_LAYERS);
  const json_t *list = json_object_get(config, "mlp_only_layers"), *value;
  size_t k;
  bool listed = false;
  if (!r->status && list && !json_is_null(list) && !json_is_array(list))
    r->status = fail(DELTAIC_BAD_FILE, "%s: mlp_only_layers must be a list", r->file);
  json_array_foreach(list, k, value) listed |= json_is_integer(value) && json_integer_value(value) == i;
  return listed || (i + 1) % step;
}

static deltaic_status set_experts(struct json_reader *r, const json_t *config, const struct family *family,
                                  struct model_spec *out) {
  struct experts_spec s;
  const bool normalized = !family->dense_layers || json_bool(r, config, "norm_topk_prob", true);
  deltaic_status status = read_experts(r, config, normalized, &s);
  if (!status && (uint64_t)s.E * (2ull * s.F > out->D ? 2ull * s.F : out->D) > INT32_MAX)
    status = fail(DELTAIC_UNSUPPORTED, "%s: %s %u of %s %u are more than supported", r->file,
                  json_name(r, "num_experts"), s.E, json_name(r, "moe_intermediate_size"), s.F);
  for (uint32_t i = 0; !status && i < out->L; i++) {
    if (!family->dense_layers || !is_dense(r, config, i)) status = arch_set_ffn(out, i, &ffn_experts, &s, sizeof s);
    if (!status) status = r->status;
  }
  return status;
}

// The config of the whole model has the text's in text_config. tie_word_embeddings and the ids of special tokens count
// from outside, where they are there.
static json_t *text_of(struct json_reader *r, const json_t *config, const struct arch_default *defaults) {
  static const char *const ids[] = {"bos_token_id", "eos_token_id"};
  const json_t *inner = json_object_get(config, "text_config"), *tied = json_object_get(config, "tie_word_embeddings");
  json_t *text = arch_with_defaults(r, inner ? inner : config, defaults);
  bool bad = !text;
  if (inner && !bad && tied && !json_is_null(tied)) bad = json_object_set(text, "tie_word_embeddings", (json_t *)tied);
  for (int i = 0; i < 2 && inner && !bad; i++)
    if (json_present(config, ids[i])) bad = json_object_set(text, ids[i], json_object_get(config, ids[i]));
  if (bad && !r->status) r->status = fail_memory("a config", 0);
  return text;
}

static deltaic_status read_family(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  const struct family *family, struct model_spec *out) {
  const json_t *inner = json_object_get(config, "text_config");
  if (inner && !json_is_object(inner)) return fail(DELTAIC_BAD_FILE, "%s: text_config must be an object", r->file);
  deltaic_status status = inner ? arch_check_keys(r, config, known_outside, NULL) : DELTAIC_OK;
  if (status) return status;
  json_t *text = text_of(r, config, family->defaults);
  const char *const *keys = family->experts ? known_experts : known;
  status = r->status ? r->status : arch_read_strictly(r, text, checkpoint, family->outside, keys, out);
  if (!status) status = set_mixers(r, text, checkpoint, family, out);
  if (!status && family->experts) status = set_experts(r, text, family, out);
  json_decref(text);
  return status;
}

#define FOLDER(names) .outside = &names_qwen, .delta = (names), .attention = &names_qwen_attention
#define GGUF(names) .outside = &names_qwen_gguf, .delta = (names), .attention = &names_qwen_gguf_attention

static deltaic_status read_qwen3_5(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                   struct model_spec *out) {
  static const struct family family = {FOLDER(&names_qwen_delta), .defaults = dense_defaults};
  return read_family(r, config, checkpoint, &family, out);
}

static deltaic_status read_qwen3_5_text(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                        struct model_spec *out) {
  static const struct family family = {.outside = &names_qwen_text,
                                       .delta = &names_qwen_text_delta,
                                       .attention = &names_qwen_text_attention,
                                       .defaults = dense_defaults};
  return read_family(r, config, checkpoint, &family, out);
}

static deltaic_status read_qwen3_5_moe(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                       struct model_spec *out) {
  static const struct family family = {FOLDER(&names_qwen_delta), .defaults = expert_defaults, .experts = true};
  return read_family(r, config, checkpoint, &family, out);
}

static deltaic_status read_qwen3_next(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                      struct model_spec *out) {
  static const struct family family = {FOLDER(&names_qwen_next), .defaults = next_defaults, .experts = true,
                                       .dense_layers = true};
  return read_family(r, config, checkpoint, &family, out);
}

// GGUF files: arch_gguf.c has made the config of their keys. The blocks after the last layer predict a second token.
static deltaic_status read_gguf(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                const struct family *family, struct model_spec *out) {
  const uint32_t more = (uint32_t)json_int(r, config, "mtp_num_hidden_layers", 0, 0, LIMIT_LAYERS);
  deltaic_status status = r->status ? r->status : read_family(r, config, checkpoint, family, out);
  if (!status) arch_pass_over_blocks(checkpoint, out->L, more);
  return status;
}

static deltaic_status read_qwen35(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  struct model_spec *out) {
  static const struct family family = {GGUF(&names_qwen_gguf_delta), .tiled = true, .defaults = dense_defaults};
  return read_gguf(r, config, checkpoint, &family, out);
}

static deltaic_status read_qwen35moe(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                     struct model_spec *out) {
  static const struct family family = {GGUF(&names_qwen_gguf_delta), .tiled = true, .defaults = expert_defaults,
                                       .experts = true};
  return read_gguf(r, config, checkpoint, &family, out);
}

static deltaic_status read_qwen3next(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                     struct model_spec *out) {
  static const struct family family = {GGUF(&names_qwen_gguf_next), .defaults = next_defaults, .experts = true};
  return read_gguf(r, config, checkpoint, &family, out);
}

const struct arch arch_qwen3next = {"qwen3next", read_qwen3next};
const struct arch arch_qwen35 = {"qwen35", read_qwen35};
const struct arch arch_qwen35moe = {"qwen35moe", read_qwen35moe};
const struct arch arch_qwen3_5 = {"qwen3_5", read_qwen3_5};
const struct arch arch_qwen3_5_text = {"qwen3_5_text", read_qwen3_5_text};
const struct arch arch_qwen3_5_moe = {"qwen3_5_moe", read_qwen3_5_moe};
const struct arch arch_qwen3_5_moe_text = {"qwen3_5_moe_text", read_qwen3_5_moe};
const struct arch arch_qwen3_next = {"qwen3_next", read_qwen3_next};
