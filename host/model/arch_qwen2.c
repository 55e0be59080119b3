// arch_qwen2: the dense transformers Qwen2 and Qwen2.5 in Hugging Face's format: softmax attention with biases on q, k
// and v, and gated MLPs (docs/models.md).
#include "arch_common.h"

#include "mixer_attention.h"

#define LAYER "*layers.#."
static const struct tensor_name tensors[] = {
    NAMED(EMBEDDING, "*embed_tokens.weight"),
    NAMED(FINAL_NORM, "*norm.weight"),
    NAMED(HEAD, "lm_head.weight"),
    NAMED(MIXER_NORM, LAYER "input_layernorm.weight"),
    NAMED(FFN_NORM, LAYER "post_attention_layernorm.weight"),
    NAMED(FFN_GATE, LAYER "mlp.gate_proj.weight"),
    NAMED(FFN_UP, LAYER "mlp.up_proj.weight"),
    NAMED(FFN_DOWN, LAYER "mlp.down_proj.weight"),
    NAMED(Q, LAYER "self_attn.q_proj.weight"),
    NAMED(K, LAYER "self_attn.k_proj.weight"),
    NAMED(V, LAYER "self_attn.v_proj.weight"),
    NAMED(Q_BIAS, LAYER "self_attn.q_proj.bias"),
    NAMED(K_BIAS, LAYER "self_attn.k_proj.bias"),
    NAMED(V_BIAS, LAYER "self_attn.v_proj.bias"),
    NAMED(OUTPUT, LAYER "self_attn.o_proj.weight"),
    {0},
};
static const struct names names = {.prefixes = {"model."}, .tensors = tensors};

static deltaic_status read_attention(struct json_reader *r, const json_t *config, uint32_t D,
                                     struct attention_spec *s) {
  s->heads = (uint32_t)json_int(r, config, "num_attention_heads", 32, 1, LIMIT_HEADS);
  s->kv_heads = (uint32_t)json_int(r, config, "num_key_value_heads", s->heads, 1, LIMIT_HEADS);
  s->rope_theta = json_number(r, config, "rope_theta", 10000, 1e-3, 1e18);
  s->bias = true;
  if (r->status) return r->status;
  if (D % s->heads || D / s->heads % 2 || s->heads % s->kv_heads)
    return fail(
        DELTAIC_BAD_SHAPE,
        "%s: hidden_size %u, num_attention_heads %u and num_key_value_heads %u do not make heads of one even size",
        r->file, D, s->heads, s->kv_heads);
  s->d = s->rotary = D / s->heads;
  return DELTAIC_OK;
}

static deltaic_status read_qwen2(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 struct model_spec *out) {
  struct attention_spec spec = {0};
  if (json_present(config, "rope_scaling") || json_bool(r, config, "use_sliding_window", false))
    return fail(DELTAIC_UNSUPPORTED, "%s: rope_scaling and use_sliding_window are not supported", r->file);
  deltaic_status status = arch_read_ends(r, config, checkpoint, &names, 32, 1e-6f, out);
  if (status) return status;
  out->norm_eps = out->ffn_norm_eps = arch_eps(r, config, "rms_norm_eps", 1e-6f);
  if (!json_object_get(config, "bos_token_id")) out->bos = -1;
  if (!json_object_get(config, "eos_token_id")) out->eos = -1;
  status = arch_read_mlp(r, config, checkpoint, out);
  if (!status) status = read_attention(r, config, out->D, &spec);
  for (uint32_t i = 0; !status && i < out->L; i++)
    status = arch_set_layer(out, i, &mixer_attention, &spec, sizeof spec);
  return status;
}

const struct arch arch_qwen2 = {"qwen2", read_qwen2};
