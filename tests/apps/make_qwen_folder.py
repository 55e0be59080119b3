#!/usr/bin/env python3
"""Makes a small random model in the layout of a released one: make_qwen_folder.py FOLDER qwen3_5|qwen3_5_moe|qwen3_next
[TEMPLATE]. Keys and values of the delta rule are equally long, as llama.cpp needs it, and rows have 256 elements. The
tokenizer is byte-level BPE, split as that model's."""
import array
import json
import math
import os
import random
import struct
import sys

folder, kind = sys.argv[1:3]
experts, fused = kind != "qwen3_5", kind == "qwen3_next"
D, L, F, E, Ha, Hkv, d, Hk, Hv, dk = 256, 4, 512, 4, 4, 2, 64, 2, 4, 32
random.seed(kind)

# ---- the tokenizer
codes = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
others = [b for b in range(256) if b not in codes]
letters = {b: chr(b) for b in codes} | {b: chr(256 + i) for i, b in enumerate(others)}
merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("o", "u"), ("Ġ", "h"), ("i", "n"), ("in", "g")]
vocab = {c: i for i, c in enumerate(list(letters.values()) + [a + b for a, b in merges])}
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
plain = ["<think>", "</think>"]
added = [dict(id=len(vocab) + i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=t in special)
         for i, t in enumerate(special + plain)]
ids = {a["content"]: a["id"] for a in added}
V = -(-(len(vocab) + len(added)) // 32) * 32
marks = "" if fused else r"\p{M}"
regex = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?" + (r"\p{L}+" if fused else r"[\p{L}\p{M}]+") +
         r"|\p{N}| ?[^\s\p{L}" + marks + r"\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
tokenizer = dict(version="1.0", added_tokens=added, normalizer=dict(type="NFC"),
                 pre_tokenizer=dict(type="Sequence", pretokenizers=[
                     dict(type="Split", pattern=dict(Regex=regex), behavior="Isolated", invert=False),
                     dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)]),
                 post_processor=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False),
                 decoder=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False),
                 model=dict(type="BPE", vocab=vocab, merges=[list(m) for m in merges], ignore_merges=False))

# ---- the config
text = dict(model_type=kind + "_text", hidden_size=D, num_hidden_layers=L, vocab_size=V, num_attention_heads=Ha, num_key_value_heads=Hkv,
            head_dim=d, linear_num_key_heads=Hk, linear_num_value_heads=Hv, linear_key_head_dim=dk, linear_value_head_dim=dk,
            linear_conv_kernel_dim=4, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=4096,
            layer_types=["linear_attention"] * 3 + ["full_attention"], eos_token_id=ids["<|endoftext|>"])
rope = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[3, 3, 2], mrope_interleaved=True)
if experts:
    text.update(num_experts=E, num_experts_per_tok=2, moe_intermediate_size=256, shared_expert_intermediate_size=256)
else:
    text.update(intermediate_size=F)
if fused:
    config = dict(text, model_type=kind, rope_theta=10000.0, partial_rotary_factor=0.25, rope_scaling=None, norm_topk_prob=True,
                  mlp_only_layers=[], decoder_sparse_step=1, tie_word_embeddings=False)
else:
    text.update(rope_parameters=rope)
    config = dict(model_type=kind, text_config=text, tie_word_embeddings=not experts, vision_config=dict(depth=1))

# ---- the tensors
tensors = {}


def matrix(name, *shape, scale=1.0, tokens=False):
    n, s = math.prod(shape), 1.7 * scale / math.sqrt(shape[-1])
    x = array.array("f", (random.uniform(-s, s) for _ in range(n)))
    for i in range(shape[0] if tokens else 0):  # only tokens of printable letters are ever likely
        if i >= 94:
            x[i * D:i * D + D] = array.array("f", bytes(4 * D))
    halves = array.array("H", x.tobytes())[1::2]
    tensors[name] = (list(shape), "BF16", halves.tobytes())


def vector(name, values):
    tensors[name] = ([len(values)], "F32", struct.pack(f"<{len(values)}f", *values))


prefix = "model." if fused else "model.language_model."


def norm(name, n, one=0.0):
    vector(name, [one + random.uniform(-0.2, 0.2) for _ in range(n)])


def mlp(name, F):
    for part in "gate", "up":
        matrix(f"{name}.{part}_proj.weight", F, D)
    matrix(f"{name}.down_proj.weight", D, F)


matrix(prefix + "embed_tokens.weight", V, D, scale=8 if experts else 2, tokens=not experts)
norm(prefix + "norm.weight", D)
if not config["tie_word_embeddings"]:
    matrix("lm_head.weight", V, D, scale=3, tokens=True)
for i in range(L):
    layer = f"{prefix}layers.{i}."
    norm(layer + "input_layernorm.weight", D)
    norm(layer + "post_attention_layernorm.weight", D)
    if not experts:
        mlp(layer + "mlp", F)
    else:
        matrix(layer + "mlp.gate.weight", E, D, scale=4)
        if fused:
            for e in range(E):
                mlp(layer + f"mlp.experts.{e}", 256)
        else:
            matrix(layer + "mlp.experts.gate_up_proj", E, 512, D)
            matrix(layer + "mlp.experts.down_proj", E, D, 256)
        mlp(layer + "mlp.shared_expert", 256)
        matrix(layer + "mlp.shared_expert_gate.weight", 1, D)
    if text["layer_types"][i] == "full_attention":
        a = layer + "self_attn."
        matrix(a + "q_proj.weight", 2 * Ha * d, D)
        matrix(a + "k_proj.weight", Hkv * d, D)
        matrix(a + "v_proj.weight", Hkv * d, D)
        matrix(a + "o_proj.weight", D, Ha * d)
        norm(a + "q_norm.weight", d)
        norm(a + "k_norm.weight", d)
        continue
    a = layer + "linear_attn."
    if fused:
        matrix(a + "in_proj_qkvz.weight", 2 * Hk * dk + 2 * Hv * dk, D)
        matrix(a + "in_proj_ba.weight", 2 * Hv, D)
    else:
        matrix(a + "in_proj_qkv.weight", 2 * Hk * dk + Hv * dk, D)
        matrix(a + "in_proj_z.weight", Hv * dk, D)
        matrix(a + "in_proj_b.weight", Hv, D)
        matrix(a + "in_proj_a.weight", Hv, D)
    matrix(a + "conv1d.weight", 2 * Hk * dk + Hv * dk, 1, 4)
    vector(a + "A_log", [math.log(random.uniform(0.2, 4)) for _ in range(Hv)])
    vector(a + "dt_bias", [random.uniform(-3, 0) for _ in range(Hv)])
    norm(a + "norm.weight", dk, 1.0)
    matrix(a + "out_proj.weight", D, Hv * dk)
matrix("mtp.fc.weight", 4, 4)

# ---- the files
os.makedirs(folder, exist_ok=True)
header, at = {}, 0
for name, (shape, dtype, data) in tensors.items():
    header[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(data)])
    at += len(data)
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
with open(os.path.join(folder, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + b"".join(data for _, _, data in tensors.values()))
files = {"config.json": config, "tokenizer.json": tokenizer,
         "generation_config.json": dict(eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]], do_sample=True, temperature=0.7, top_k=20,
                                        top_p=0.8),
         "tokenizer_config.json": dict(eos_token="<|im_end|>", pad_token="<|endoftext|>")}
if len(sys.argv) > 3:
    with open(sys.argv[3], encoding="utf-8") as f:
        files["tokenizer_config.json"]["chat_template"] = f.read()
for name, value in files.items():
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        json.dump(value, f)
