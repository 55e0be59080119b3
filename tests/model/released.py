"""The released models of Hugging Face's layout: config.json and the shape of every tensor.

    CONFIGS[name]            the config of a released size: qwen3.5-0.8b ... olmo-hybrid-7b
    shapes(config)           {name: shape} of the text model, in the order of the layers
    is_centred(config, name) whether a norm is stored as its weight minus 1
"""


def qwen(D, L, F, heads, kv, Hv, tied, Hk=16, V=248320):
    """Qwen3.5, dense."""
    text = dict(model_type="qwen3_5_text", hidden_size=D, num_hidden_layers=L, intermediate_size=F, num_attention_heads=heads,
                num_key_value_heads=kv, head_dim=256, vocab_size=V, linear_num_key_heads=Hk, linear_num_value_heads=Hv,
                linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, full_attention_interval=4,
                hidden_act="silu", rms_norm_eps=1e-6, attn_output_gate=True, eos_token_id=248044, dtype="bfloat16",
                rope_parameters=dict(rope_type="default", rope_theta=10000000, partial_rotary_factor=0.25,
                                     mrope_section=[11, 11, 10], mrope_interleaved=True))
    return dict(model_type="qwen3_5", tie_word_embeddings=tied, text_config=text)


def with_experts(dense, **keys):
    """A Qwen3.5 whose MLPs are mixtures of experts."""
    text = {k: v for k, v in dict(dense["text_config"], model_type="qwen3_5_moe_text", **keys).items() if k != "intermediate_size"}
    return dict(dense, model_type="qwen3_5_moe", text_config=text)


def olmo():
    """OLMo-Hybrid-7B."""
    return dict(model_type="olmo_hybrid", hidden_size=3840, num_hidden_layers=32, intermediate_size=11008, num_attention_heads=30,
                num_key_value_heads=30, vocab_size=100352, linear_num_key_heads=30, linear_num_value_heads=30,
                linear_key_head_dim=96, linear_value_head_dim=192, linear_conv_kernel_dim=4, linear_allow_neg_eigval=True,
                hidden_act="silu", rms_norm_eps=1e-6, rope_parameters=None, tie_word_embeddings=False, eos_token_id=100257,
                dtype="bfloat16")


CONFIGS = {
    "qwen3.5-0.8b": qwen(1024, 24, 3584, 8, 2, 16, True),
    "qwen3.5-2b": qwen(2048, 24, 6144, 8, 2, 16, True),
    "qwen3.5-4b": qwen(2560, 32, 9216, 16, 4, 32, True),
    "qwen3.5-9b": qwen(4096, 32, 12288, 16, 4, 32, False),
    "qwen3.5-27b": qwen(5120, 64, 17408, 24, 4, 48, False),
    "qwen3.5-35b-a3b": with_experts(qwen(2048, 40, 0, 16, 2, 32, False), num_experts=256, num_experts_per_tok=8,
                                    moe_intermediate_size=512, shared_expert_intermediate_size=512),
    "olmo-hybrid-7b": olmo(),
}


def kinds(c):
    """"linear_attention" or "full_attention" of every layer."""
    every = c.get("full_attention_interval", 4)
    default = ["linear_attention" if (i + 1) % every else "full_attention" for i in range(c["num_hidden_layers"])]
    return c.get("layer_types") or default


def is_centred(config, name):
    return config["model_type"].startswith("qwen3") and "norm" in name and "linear_attn.norm" not in name


def swiglu(p, D, F):
    return {p + "gate_proj.weight": (F, D), p + "up_proj.weight": (F, D), p + "down_proj.weight": (D, F)}


def experts(p, c):
    """In Qwen3-Next one by one, in Qwen3.5 fused."""
    D, E, F = c["hidden_size"], c["num_experts"], c["moe_intermediate_size"]
    t = {p + "gate.weight": (E, D), p + "shared_expert_gate.weight": (1, D)}
    if c["model_type"] == "qwen3_next":
        for e in range(E):
            t.update(swiglu(f"{p}experts.{e}.", D, F))
    else:
        t.update({p + "experts.gate_up_proj": (E, 2 * F, D), p + "experts.down_proj": (E, D, F)})
    t.update(swiglu(p + "shared_expert.", D, c["shared_expert_intermediate_size"]))
    return t


def ffn(p, c, i):
    dense = i in c.get("mlp_only_layers", []) or (i + 1) % c.get("decoder_sparse_step", 1)
    if "num_experts" in c and not dense:
        return experts(p, c)
    return swiglu(p, c["hidden_size"], c["intermediate_size"])


def qwen_delta(p, c):
    D, Hk, Hv = c["hidden_size"], c["linear_num_key_heads"], c["linear_num_value_heads"]
    key, value, W = Hk * c["linear_key_head_dim"], Hv * c["linear_value_head_dim"], c["linear_conv_kernel_dim"]
    t = {"A_log": (Hv,), "dt_bias": (Hv,), "conv1d.weight": (2 * key + value, 1, W), "norm.weight": (value // Hv,),
         "out_proj.weight": (D, value)}
    if c["model_type"] == "qwen3_next":
        t.update({"in_proj_qkvz.weight": (2 * key + 2 * value, D), "in_proj_ba.weight": (2 * Hv, D)})
    else:
        t.update({"in_proj_qkv.weight": (2 * key + value, D), "in_proj_z.weight": (value, D), "in_proj_a.weight": (Hv, D),
                  "in_proj_b.weight": (Hv, D)})
    return {p + k: s for k, s in t.items()}


def qwen_attention(p, c):
    D, d = c["hidden_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    t = {"q_proj.weight": (2 * q, D), "k_proj.weight": (kv, D), "v_proj.weight": (kv, D), "o_proj.weight": (D, q),
         "q_norm.weight": (d,), "k_norm.weight": (d,)}
    if c.get("attention_bias"):
        t.update({"q_proj.bias": (2 * q,), "k_proj.bias": (kv,), "v_proj.bias": (kv,), "o_proj.bias": (D,)})
    return {p + k: s for k, s in t.items()}


def olmo_layer(p, c, kind):
    D, Ha = c["hidden_size"], c["num_attention_heads"]
    q, kv = D, c["num_key_value_heads"] * D // Ha
    if kind == "full_attention":
        return {p + k + ".weight": s for k, s in {
            "post_attention_layernorm": (D,), "post_feedforward_layernorm": (D,), "self_attn.q_proj": (q, D),
            "self_attn.k_proj": (kv, D), "self_attn.v_proj": (kv, D), "self_attn.o_proj": (D, q), "self_attn.q_norm": (q,),
            "self_attn.k_norm": (kv,)}.items()}
    Hk, Hv, W = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_conv_kernel_dim"]
    key, value, m = Hk * c["linear_key_head_dim"], Hv * c["linear_value_head_dim"], p + "linear_attn."
    t = {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,)}
    t.update({m + k: s for k, s in {
        "q_proj.weight": (key, D), "k_proj.weight": (key, D), "v_proj.weight": (value, D), "g_proj.weight": (value, D),
        "a_proj.weight": (Hv, D), "b_proj.weight": (Hv, D), "o_proj.weight": (D, value), "q_conv1d.weight": (key, 1, W),
        "k_conv1d.weight": (key, 1, W), "v_conv1d.weight": (value, 1, W), "A_log": (Hv,), "dt_bias": (Hv,),
        "o_norm.weight": (value // Hv,)}.items()})
    return t


def qwen_layer(p, c, kind):
    D = c["hidden_size"]
    t = {p + "input_layernorm.weight": (D,), p + "post_attention_layernorm.weight": (D,)}
    t.update(qwen_attention(p + "self_attn.", c) if kind == "full_attention" else qwen_delta(p + "linear_attn.", c))
    return t


def shapes(config):
    c = config.get("text_config", config)
    D, V = c["hidden_size"], c["vocab_size"]
    root = "model.language_model." if "text_config" in config else "model."
    t = {root + "embed_tokens.weight": (V, D), root + "norm.weight": (D,)}
    if not config.get("tie_word_embeddings"):
        t["lm_head.weight"] = (V, D)
    for i, kind in enumerate(kinds(c)):
        p = f"{root}layers.{i}."
        t.update((olmo_layer if config["model_type"] == "olmo_hybrid" else qwen_layer)(p, c, kind))
        t.update(ffn(p + "mlp.", c, i))
    return t
