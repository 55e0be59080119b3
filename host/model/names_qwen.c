// names_qwen: tensors of Qwen3.5 and Qwen3-Next, with where the rows of each role lie in fused ones (docs/models.md).
// Norms are stored as their weight minus 1, except the output norm of the delta rule.
#include "names_qwen.h"

#include "arch.h"
#include "mixer_attention.h"
#include "mixer_delta.h"

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

// Qwen3-Next: in_proj_qkvz has for every key head the rows of q, of k, then of v and of z of its value heads;
// in_proj_ba those of beta and of the decay of its value heads.
struct qkvz {
  uint32_t Dk, values, group; // rows of q or k, of v or z, and of all four, of a key head
};

static struct qkvz qkvz_of(const struct layer_spec *layer) {
  const struct delta_spec *s = layer->spec;
  const uint32_t values = s->Hv / s->H * s->Dv;
  return (struct qkvz){s->Dk, values, 2 * s->Dk + 2 * values};
}

static uint64_t qkvz_count(const struct layer_spec *layer) {
  return (uint64_t)((const struct delta_spec *)layer->spec)->H * qkvz_of(layer).group;
}

static uint64_t grouped_q_at(const struct layer_spec *layer, uint32_t row) {
  const struct qkvz g = qkvz_of(layer);
  return (uint64_t)(row / g.Dk) * g.group + row % g.Dk;
}

static uint64_t grouped_k_at(const struct layer_spec *layer, uint32_t row) {
  return grouped_q_at(layer, row) + qkvz_of(layer).Dk;
}

static uint64_t grouped_v_at(const struct layer_spec *layer, uint32_t row) {
  const struct qkvz g = qkvz_of(layer);
  return (uint64_t)(row / g.values) * g.group + 2 * g.Dk + row % g.values;
}

static uint64_t grouped_z_at(const struct layer_spec *layer, uint32_t row) {
  return grouped_v_at(layer, row) + qkvz_of(layer).values;
}

static uint64_t ba_count(const struct layer_spec *layer) { return 2ull * ((const struct delta_spec *)layer->spec)->Hv; }

static uint64_t b_at(const struct layer_spec *layer, uint32_t row) {
  const struct delta_spec *s = layer->spec;
  const uint32_t share = s->Hv / s->H;
  return 2ull * (row / share) * share + row % share;
}

static uint64_t a_at(const struct layer_spec *layer, uint32_t row) {
  const struct delta_spec *s = layer->spec;
  return b_at(layer, row) + s->Hv / s->H;
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

// attn_qkv of attention layers: the rows of q_proj, then those of all keys and of all values.
static uint64_t joined_count(const struct layer_spec *layer) {
  const struct attention_spec *s = layer->spec;
  return query_count(layer) + 2ull * s->kv_heads * s->d;
}

static uint64_t joined_k_at(const struct layer_spec *layer, uint32_t row) { return query_count(layer) + row; }

static uint64_t joined_v_at(const struct layer_spec *layer, uint32_t row) {
  const struct attention_spec *s = layer->spec;
  return query_count(layer) + (uint64_t)s->kv_heads * s->d + row;
}

// GGUF files of Qwen3.5 store value heads in another order than the model's folder (`tiled`, mixer_delta.h). Returns
// the folder's index of the file's value head `head`: `head` itself if they are not tiled.
static uint64_t heads_at(const struct layer_spec *layer, uint32_t head) {
  const struct delta_spec *s = layer->spec;
  return s->tiled ? head % s->H * (s->Hv / s->H) + head / s->H : head;
}

// The same for a row, where each head has Dv rows; for out_proj, whose columns belong to the heads, for a column.
static uint64_t values_at(const struct layer_spec *layer, uint32_t row) {
  const uint32_t Dv = ((const struct delta_spec *)layer->spec)->Dv;
  return heads_at(layer, row / Dv) * Dv + row % Dv;
}

static const struct row_map q_rows = {qkv_count, q_at}, k_rows = {qkv_count, k_at}, v_rows = {qkv_count, v_at},
                            query_rows = {query_count, query_at}, gate_rows = {query_count, gate_at},
                            grouped_q = {qkvz_count, grouped_q_at}, grouped_k = {qkvz_count, grouped_k_at},
                            grouped_v = {qkvz_count, grouped_v_at}, grouped_z = {qkvz_count, grouped_z_at},
                            b_rows = {ba_count, b_at}, a_rows = {ba_count, a_at},
                            joined_query = {joined_count, query_at}, joined_gate = {joined_count, gate_at},
                            joined_k = {joined_count, joined_k_at}, joined_v = {joined_count, joined_v_at},
                            value_order = {.at = values_at}, head_order = {.at = heads_at};

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
    NAMED(ROUTER, LAYER "mlp.gate.weight"),
    NAMED(EXPERTS_GATE_UP, LAYER "mlp.experts.gate_up_proj"),
    NAMED(EXPERTS_GATE, LAYER "mlp.experts.@.gate_proj.weight"),
    NAMED(EXPERTS_UP, LAYER "mlp.experts.@.up_proj.weight"),
    NAMED(EXPERTS_DOWN, LAYER "mlp.experts.down_proj"),
    NAMED(EXPERTS_DOWN, LAYER "mlp.experts.@.down_proj.weight"),
    NAMED(SHARED_SCALE, LAYER "mlp.shared_expert_gate.weight"),
    NAMED(SHARED_GATE, LAYER "mlp.shared_expert.gate_proj.weight"),
    NAMED(SHARED_UP, LAYER "mlp.shared_expert.up_proj.weight"),
    NAMED(SHARED_DOWN, LAYER "mlp.shared_expert.down_proj.weight"),
    {0},
};

// What Qwen3.5's and Qwen3-Next's delta layers have alike.
static const struct tensor_name alike_tensors[] = {
    MAPPED(Q_CONV, LAYER "linear_attn.conv1d.weight", &q_rows),
    MAPPED(K_CONV, LAYER "linear_attn.conv1d.weight", &k_rows),
    MAPPED(V_CONV, LAYER "linear_attn.conv1d.weight", &v_rows),
    NAMED(A_LOG, LAYER "linear_attn.A_log"),
    NAMED(STEP_BIAS, LAYER "linear_attn.dt_bias"),
    NAMED(OUTPUT_NORM, LAYER "linear_attn.norm.weight"),
    NAMED(OUTPUT, LAYER "linear_attn.out_proj.weight"),
    {0},
};

static const struct tensor_name delta_tensors[] = {
    MAPPED(Q, LAYER "linear_attn.in_proj_qkv.weight", &q_rows),
    MAPPED(K, LAYER "linear_attn.in_proj_qkv.weight", &k_rows),
    MAPPED(V, LAYER "linear_attn.in_proj_qkv.weight", &v_rows),
    NAMED(GATE, LAYER "linear_attn.in_proj_z.weight"),
    NAMED(BETA, LAYER "linear_attn.in_proj_b.weight"),
    NAMED(DECAY, LAYER "linear_attn.in_proj_a.weight"),
    {0},
};

static const struct tensor_name next_tensors[] = {
    MAPPED(Q, LAYER "linear_attn.in_proj_qkvz.weight", &grouped_q),
    MAPPED(K, LAYER "linear_attn.in_proj_qkvz.weight", &grouped_k),
    MAPPED(V, LAYER "linear_attn.in_proj_qkvz.weight", &grouped_v),
    MAPPED(GATE, LAYER "linear_attn.in_proj_qkvz.weight", &grouped_z),
    MAPPED(BETA, LAYER "linear_attn.in_proj_ba.weight", &b_rows),
    MAPPED(DECAY, LAYER "linear_attn.in_proj_ba.weight", &a_rows),
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

// In GGUF norms are stored as their weight. The value heads of Qwen3.5 are tiled; Qwen3-Next's are in the folder's
// order.
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
    NAMED(ROUTER, BLOCK "ffn_gate_inp.weight"),
    NAMED(EXPERTS_GATE, BLOCK "ffn_gate_exps.weight"),
    NAMED(EXPERTS_GATE_UP, BLOCK "ffn_gate_up_exps.weight"),
    NAMED(EXPERTS_UP, BLOCK "ffn_up_exps.weight"),
    NAMED(EXPERTS_DOWN, BLOCK "ffn_down_exps.weight"),
    NAMED(SHARED_SCALE, BLOCK "ffn_gate_inp_shexp.weight"),
    NAMED(SHARED_GATE, BLOCK "ffn_gate_shexp.weight"),
    NAMED(SHARED_UP, BLOCK "ffn_up_shexp.weight"),
    NAMED(SHARED_DOWN, BLOCK "ffn_down_shexp.weight"),
    {0},
};

static const struct tensor_name gguf_delta_tensors[] = {
    MAPPED(Q, BLOCK "attn_qkv.weight", &q_rows),
    MAPPED(K, BLOCK "attn_qkv.weight", &k_rows),
    {ROLE_V, BLOCK "attn_qkv.weight", .rows = &v_rows, .row_order = &value_order},
    MAPPED(Q_CONV, BLOCK "ssm_conv1d.weight", &q_rows),
    MAPPED(K_CONV, BLOCK "ssm_conv1d.weight", &k_rows),
    {ROLE_V_CONV, BLOCK "ssm_conv1d.weight", .rows = &v_rows, .row_order = &value_order},
    {ROLE_GATE, BLOCK "attn_gate.weight", .row_order = &value_order},
    {ROLE_BETA, BLOCK "ssm_beta.weight", .row_order = &head_order},
    {ROLE_DECAY, BLOCK "ssm_alpha.weight", .row_order = &head_order},
    {ROLE_A_LOG, BLOCK "ssm_a", .minus_exp = true, .row_order = &head_order},
    {ROLE_STEP_BIAS, BLOCK "ssm_dt.bias", .row_order = &head_order},
    NAMED(OUTPUT_NORM, BLOCK "ssm_norm.weight"),
    {ROLE_OUTPUT, BLOCK "ssm_out.weight", .column_order = &value_order},
    {0},
};

static const struct tensor_name gguf_next_tensors[] = {
    MAPPED(BETA, BLOCK "ssm_ba.weight", &b_rows),
    MAPPED(DECAY, BLOCK "ssm_ba.weight", &a_rows),
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

// Other layouts that llama.cpp reads: of older files of Qwen3-Next, and of files whose attention is one matrix.
static const struct tensor_name gguf_older_next_tensors[] = {
    MAPPED(Q, BLOCK "ssm_in.weight", &grouped_q),
    MAPPED(K, BLOCK "ssm_in.weight", &grouped_k),
    MAPPED(V, BLOCK "ssm_in.weight", &grouped_v),
    MAPPED(GATE, BLOCK "ssm_in.weight", &grouped_z),
    {0},
};

static const struct tensor_name gguf_joined_attention_tensors[] = {
    MAPPED(Q, BLOCK "attn_qkv.weight", &joined_query),
    MAPPED(GATE, BLOCK "attn_qkv.weight", &joined_gate),
    MAPPED(K, BLOCK "attn_qkv.weight", &joined_k),
    MAPPED(V, BLOCK "attn_qkv.weight", &joined_v),
    {0},
};

// The layer that predicts a second token, and what reads images.
static const char *const ignored[] = {"mtp.*",    "model.mtp.*",           "model.visual.*",
                                      "visual.*", "*.rotary_emb.inv_freq", NULL};

#define PREFIXES                                                                                                       \
  { "model.language_model.", "model." }
const struct names names_qwen = {.prefixes = PREFIXES, .tensors = tensors, .ignored = ignored};
static const struct names alike = {.prefixes = PREFIXES, .tensors = alike_tensors, .base = &names_qwen};
const struct names names_qwen_delta = {.prefixes = PREFIXES, .tensors = delta_tensors, .base = &alike};
const struct names names_qwen_next = {.prefixes = PREFIXES, .tensors = next_tensors, .base = &alike};
const struct names names_qwen_attention = {.prefixes = PREFIXES, .tensors = attention_tensors, .base = &names_qwen};

#define TEXT_PREFIXES                                                                                                  \
  { "model.", "model.language_model." }
const struct names names_qwen_text = {.prefixes = TEXT_PREFIXES, .tensors = tensors, .ignored = ignored};
const struct names names_qwen_text_delta = {.prefixes = TEXT_PREFIXES, .tensors = delta_tensors, .base = &alike};
const struct names names_qwen_text_attention = {
    .prefixes = TEXT_PREFIXES, .tensors = attention_tensors, .base = &names_qwen};

#define NO_PREFIX                                                                                                      \
  { "" }
const struct names names_qwen_gguf = {.prefixes = NO_PREFIX, .tensors = gguf_tensors, .folder = &names_qwen};
const struct names names_qwen_gguf_delta = {
    .prefixes = NO_PREFIX, .tensors = gguf_delta_tensors, .base = &names_qwen_gguf, .folder = &names_qwen_delta};
static const struct names gguf_older_next = {
    .prefixes = NO_PREFIX, .tensors = gguf_older_next_tensors, .base = &names_qwen_gguf};
static const struct names gguf_next_delta = {
    .prefixes = NO_PREFIX, .tensors = gguf_delta_tensors, .base = &gguf_older_next};
const struct names names_qwen_gguf_next = {
    .prefixes = NO_PREFIX, .tensors = gguf_next_tensors, .base = &gguf_next_delta, .folder = &names_qwen_next};
static const struct names gguf_joined_attention = {
    .prefixes = NO_PREFIX, .tensors = gguf_joined_attention_tensors, .base = &names_qwen_gguf};
const struct names names_qwen_gguf_attention = {.prefixes = NO_PREFIX,
                                                .tensors = gguf_attention_tensors,
                                                .base = &gguf_joined_attention,
                                                .folder = &names_qwen_attention};
