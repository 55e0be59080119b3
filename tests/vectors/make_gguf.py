#!/usr/bin/python3
"""Makes tests/vectors/models/gguf_*: small GGUF files of Qwen3.5, and what each must compute.
Usage: make_gguf.py FOLDER_OF_REFERENCE OUT_FOLDER   (the folder of reference_released.py and gguf_blocks.py)

gguf_qwen3_5 and gguf_qwen3_5_moe are models/released_... in F32 and BF16, with a second-token block that is passed over; their
references are the folders'. gguf_qwen3_next is a random one, gguf_qwen3_next_joined the same with tensors joined. gguf_blocks has every quantized type; random blocks are its weights, and its reference is float64 of
what they decode to. Names, folded norms and the order of value heads are those of llama.cpp's converter."""
import json, os, struct, sys
import numpy as np

sys.path += [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"), sys.argv[1]]
import gguf_blocks
import make_released as M
import released
from make_ablations import nll, write
from tensor_files import load, to_bf16

OUTSIDE = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight", "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.in_proj_ba.weight": "ssm_ba.weight", "linear_attn.out_proj.weight": "ssm_out.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight", "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.gate_proj": "ffn_gate_exps.weight", "mlp.experts.up_proj": "ffn_up_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight", "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight"}
NUMBERS = {name: (number, values, size) for number, (name, values, size, _) in gguf_blocks.TYPES.items()}


def gguf_name(name):
    for prefix in ("model.language_model.", "model."):
        name = name[len(prefix):] if name.startswith(prefix) else name
    if name.startswith("layers."):
        _, i, rest = name.split(".", 2)
        return f"blk.{i}." + BLOCK[rest]
    return OUTSIDE.get(name)


def tile(x, c, axis=0, back=False):
    """The value heads of the last part of an axis, (key head, i) <-> (i, key head)."""
    H, Hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
    shape = (Hv // H, H) if back else (H, Hv // H)
    x = np.moveaxis(x, axis, 0)
    y = x.reshape(*shape, x.shape[0] // Hv, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
    return np.moveaxis(y, 0, axis)


def order(name, x, c, back=False):
    """The order of a tensor's value heads in a folder -> in GGUF."""
    keys = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        return np.concatenate([x[:keys], tile(x[keys:], c, back=back)])
    if name.endswith(("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias")):
        return tile(x, c, back=back)
    return tile(x, c, axis=1, back=back) if name.endswith("linear_attn.out_proj.weight") else x


def convert(name, x, c, tiled=True):
    x = order(name, x, c) if tiled else x
    if name.endswith("shared_expert_gate.weight"):
        return x[0]
    if "norm" in name and released.is_centred(c, name):
        x = x + 1
    if name.endswith("A_log"):
        x = -np.exp(x)
    return x.reshape(x.shape[0], x.shape[2]) if name.endswith("conv1d.weight") else x


def encode(x, kind):
    if kind == "BF16":
        return to_bf16(x).tobytes()
    return x.astype("<f4" if kind == "F32" else "<f2").tobytes()


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(x):
    if isinstance(x, bool):
        return 7, struct.pack("<B", x)
    if isinstance(x, int):
        return 4, struct.pack("<I", x)
    if isinstance(x, float):
        return 6, struct.pack("<f", x)
    if isinstance(x, str):
        return 8, text(x)
    if type(x[0]) is int:  # as gguf-py writes lists
        return 9, struct.pack(f"<IQ{len(x)}i", 5, len(x), *x)
    kinds = [value(y) for y in x]
    return 9, struct.pack("<IQ", kinds[0][0], len(x)) + b"".join(b for _, b in kinds)


def write_gguf(path, keys, tensors):
    """tensors: name -> (shape, type, bytes)."""
    head, data = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys)), b""
    for key, x in keys.items():
        kind, body = value(x)
        head += text(key) + struct.pack("<I", kind) + body
    for name, (shape, kind, body) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], NUMBERS[kind][0], len(data))
        data += body + bytes(-len(body) % 32)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def keys_of(c, more, arch="qwen35"):
    a = arch + "."
    rope = c["rope_parameters"]
    head = c["head_dim"]
    pairs = int(head * rope["partial_rotary_factor"]) // 2
    letters = [chr(33 + i) for i in range(60)]
    names = {"feed_forward_length": "intermediate_size", "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok",
             "expert_feed_forward_length": "moe_intermediate_size", "expert_shared_feed_forward_length": "shared_expert_intermediate_size"}
    ffn = {a + key: c[name] for key, name in names.items() if name in c}
    return ffn | {"general.architecture": arch, "general.name": "tiny", a + "block_count": c["num_hidden_layers"] + more,
            a + "nextn_predict_layers": more, a + "context_length": 4096, a + "embedding_length": c["hidden_size"],
            a + "attention.head_count": c["num_attention_heads"],
            a + "attention.head_count_kv": c["num_key_value_heads"], a + "attention.key_length": head,
            a + "attention.value_length": head, a + "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
            a + "rope.dimension_count": int(head * rope["partial_rotary_factor"]), a + "rope.freq_base": float(rope["rope_theta"]),
            a + "rope.dimension_sections": [pairs - 2, 1, 1, 0], a + "ssm.conv_kernel": c["linear_conv_kernel_dim"],
            a + "ssm.state_size": c["linear_key_head_dim"], a + "ssm.group_count": c["linear_num_key_heads"],
            a + "ssm.time_step_rank": c["linear_num_value_heads"],
            a + "ssm.inner_size": c["linear_num_value_heads"] * c["linear_value_head_dim"],
            a + "attention.recurrent_layers": [t == "linear_attention" for t in c["layer_types"]] + [False] * more,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen35",
            "tokenizer.ggml.tokens": ["<a>", "<b>", "<end>", "AB"] + letters, "tokenizer.ggml.merges": ["A B"],
            "tokenizer.ggml.token_type": [3, 3, 3] + [1] * 61, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": "{{ messages }}"}


def split_experts(found):
    """gate_up_proj (E, 2 F, D) as gate and up."""
    for name, x in found.items():
        if name.endswith("experts.gate_up_proj"):
            F = x.shape[1] // 2
            yield name.replace("gate_up", "gate"), x[:, :F]
            yield name.replace("gate_up", "up"), x[:, F:]
        else:
            yield name, x


def plain(folder, model, arch):
    source = os.path.join(folder, "released_" + model)
    with open(os.path.join(source, "config.json")) as f:
        c = json.load(f)
    text_config = c["text_config"]
    tensors, found = {}, load(os.path.join(source, "model.safetensors"))
    for i, (name, x) in enumerate(split_experts(found)):
        if gguf_name(name) and not (c["tie_word_embeddings"] and name == "lm_head.weight"):
            x = convert(name, x.astype(np.float64), text_config)
            kind = ("F32" if i % 5 == 0 else "BF16") if x.ndim > 1 and "conv1d" not in name else "F32"
            tensors[gguf_name(name)] = (x.shape, kind, encode(x, kind))
    tensors["blk.3.nextn.eh_proj.weight"] = ((2, 4), "F32", bytes(32))
    tensors["blk.3.attn_norm.weight"] = ((4,), "F32", bytes(16))
    os.makedirs(os.path.join(folder, "gguf_" + model), exist_ok=True)
    write_gguf(os.path.join(folder, "gguf_" + model, "model.gguf"), keys_of(text_config, 1, arch), tensors)


# ---------------------------------------------------------------- quantized

BLOCKS = dict(M.QWEN, model_type="qwen3_5_text", tie_word_embeddings=False, hidden_size=256, num_hidden_layers=2, intermediate_size=96,
              num_attention_heads=4, num_key_value_heads=2, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6,
              linear_key_head_dim=16, linear_value_head_dim=16, layer_types=["linear_attention", "full_attention"])
TYPES = {"token_embd.weight": "Q6_K", "output.weight": "Q8_0", "attn_qkv.weight": "Q5_K", "attn_gate.weight": "Q4_K",
         "ssm_alpha.weight": "Q8_0", "ssm_beta.weight": "F32", "ssm_out.weight": "Q5_0", "blk.0.ffn_gate.weight": "IQ4_XS",
         "blk.0.ffn_up.weight": "Q4_K", "blk.0.ffn_down.weight": "Q4_0", "attn_q.weight": "Q4_K", "attn_k.weight": "Q4_K",
         "attn_v.weight": "Q6_K", "attn_output.weight": "IQ4_NL", "blk.1.ffn_gate.weight": "Q4_K", "blk.1.ffn_up.weight": "Q4_K",
         "blk.1.ffn_down.weight": "F16"}
SCALES = {"Q6_K": [208], "Q4_K": [0, 2], "Q5_K": [0, 2]}


def random_blocks(shape, kind, rng):
    """Random blocks whose values have about the variance 1 / columns, and the values."""
    _, values, size = NUMBERS[kind]
    count = shape[0] * shape[1] // values
    b = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if kind in ("Q4_K", "Q5_K"):  # the minimum is the middle of the range
        b[:, 4:16] &= 0x3F
        b[:, 8:12] = b[:, 4:8]
        b[:, 12:16] = (b[:, 12:16] & 15) * 17
    decode = gguf_blocks.TYPES[NUMBERS[kind][0]][3]
    for at in SCALES.get(kind, [0]):
        one = 7.5 if at == 2 and kind == "Q4_K" else 15.5 if at == 2 else 1
        b[:, at:at + 2] = np.full(count, one, "<f2").view(np.uint8).reshape(count, 2)
    factor = 1 / np.sqrt(shape[1]) / decode(b).std() * rng.uniform(0.5, 1.5, count)
    for at in SCALES.get(kind, [0]):
        one = b[:, at:at + 2].copy().view("<f2")[:, 0].astype(np.float64)
        b[:, at:at + 2] = (one * factor).astype("<f2").view(np.uint8).reshape(count, 2)
    return b.tobytes(), decode(b).reshape(shape)


def ungroup(found, c):
    """in_proj_qkvz, grouped by key heads, as q, k and v of all heads, and z; a tensor of each expert as one of all."""
    H, dk = c["linear_num_key_heads"], c["linear_key_head_dim"]
    wide = c["linear_num_value_heads"] // H * c["linear_value_head_dim"]
    for name, x in found.items():
        if name.endswith("in_proj_qkvz.weight"):
            parts = np.split(x.reshape(H, -1, x.shape[1]), [dk, 2 * dk, 2 * dk + wide], axis=1)
            parts = [p.reshape(-1, x.shape[1]) for p in parts]
            yield name.replace("qkvz", "qkv"), np.concatenate(parts[:3])
            yield name.replace("qkvz", "z"), parts[3]
        elif ".experts.0." in name:
            every = [found[name.replace("experts.0.", f"experts.{e}.")] for e in range(c["num_experts"])]
            yield name.replace("experts.0.", "experts.").removesuffix(".weight"), np.stack(every)
        elif ".experts." not in name:
            yield name, x


NEXT = dict({k: v for k, v in M.CASES["qwen3_next"].items()}, num_hidden_layers=2, mlp_only_layers=[], norm_topk_prob=True,
            layer_types=["linear_attention", "full_attention"])


def join(tensors, t):
    """Delta layers with ssm_in as in the folder, attention with one attn_qkv, gates and ups of each expert together."""
    out = dict(tensors)
    for name, x in t.items():
        if name.endswith("in_proj_qkvz.weight"):
            block = gguf_name(name.replace("qkvz", "qkv")).removesuffix("attn_qkv.weight")
            del out[block + "attn_qkv.weight"], out[block + "attn_gate.weight"]
            out[block + "ssm_in.weight"] = (x.shape, "BF16", encode(x, "BF16"))
    for name in tensors:
        block = name.removesuffix("attn_q.weight")
        if block != name:
            parts = [out.pop(block + f"attn_{p}.weight") for p in "qkv"]
            shape = (sum(shape[0] for shape, _, _ in parts), parts[0][0][1])
            out[block + "attn_qkv.weight"] = (shape, "BF16", b"".join(body for _, _, body in parts))
        block = name.removesuffix("ffn_gate_exps.weight")
        if block != name:
            (E, F, D), _, gates = out.pop(name)
            ups = out.pop(block + "ffn_up_exps.weight")[2]
            size = len(gates) // E
            both = [x[e * size:(e + 1) * size] for e in range(E) for x in (gates, ups)]
            out[block + "ffn_gate_up_exps.weight"] = ((E, 2 * F, D), "BF16", b"".join(both))
    return out


def following(folder, seed):
    """Qwen3-Next, whose value heads keep the folder's order."""
    rng = np.random.default_rng(seed)
    bits, t = M.random_tensors(NEXT, rng)
    tensors = {}
    for name, x in ungroup(t, NEXT):
        out = gguf_name(name)
        if out:
            y = convert(name, x, NEXT, tiled=False)
            kind = "BF16" if y.ndim > 1 and "conv1d" not in name else "F32"
            tensors[out] = (y.shape, kind, encode(y, kind))
    keys = keys_of(dict(NEXT, rope_parameters=M.ROPE), 0, "qwen3next")

    def put(path):
        write_gguf(path, keys, tensors)
        joined = path.replace("qwen3_next", "qwen3_next_joined")
        os.makedirs(os.path.dirname(joined), exist_ok=True)
        write_gguf(joined, keys, join(tensors, t))
    return finish(folder, "qwen3_next", NEXT, t, put, rng) or following(folder, seed + 100)


def blocks(folder, seed):
    rng = np.random.default_rng(seed)
    c = dict(BLOCKS)
    _, t = M.random_tensors(c, rng)
    tensors = {}
    for name, x in t.items():
        out = gguf_name(name)
        if not out:
            continue
        kind = TYPES.get(out) or TYPES.get(out.split(".", 2)[-1]) or "F32"
        y = convert(name, x, c)
        if NUMBERS[kind][1] > 1:
            body, y = random_blocks(y.shape, kind, rng)
            t[name] = order(name, y, c, back=True)
        else:
            body = encode(y, kind)
            if kind == "F16":
                t[name] = order(name, y.astype(np.float16).astype(np.float64), c, back=True)
        tensors[out] = (y.shape, kind, body)
    return finish(folder, "blocks", c, t, lambda path: write_gguf(path, keys_of(c, 0), tensors), rng) or blocks(folder, seed + 100)


def finish(folder, name, c, t, put, rng):
    """Writes a file and its reference; False if a choice might turn."""
    ids, prompt, windows = rng.integers(0, M.V, M.TOKENS), rng.integers(0, M.V, M.PROMPT), rng.integers(0, M.V, M.WINDOWS)
    positions = np.arange(3, M.TOKENS, 7)
    tokens, margins = list(prompt), []
    for _ in range(M.GREEDY):
        row = M.evaluate(t, c, tokens, rows=[-1])[0]
        best = np.sort(row)[::-1]
        tokens.append(int(row.argmax()))
        margins.append(best[0] - best[1])
    if min(margins) < 1e-3 or M.gap_of(t, c, ids) < M.GAP:
        return False
    mean = sum(nll(M.evaluate(t, c, w)[:-1], w[1:]) for w in windows) / (windows.shape[0] * (windows.shape[1] - 1))
    whole = M.evaluate(t, c, ids)
    i32 = lambda x: ("I32", np.asarray(x, np.int32))
    f32 = lambda x: ("F32", np.asarray(x, np.float32))
    out = os.path.join(folder, "gguf_" + name)
    os.makedirs(out, exist_ok=True)
    put(os.path.join(out, "model.gguf"))
    write(os.path.join(out, "reference.safetensors"),
          {"input_ids": i32(ids), "positions": i32(positions), "logits": f32(whole[positions]), "greedy.prompt": i32(prompt),
           "greedy.tokens": i32(tokens[M.PROMPT:]), "greedy.margin": f32(margins), "eval_tokens": i32(windows)},
          {"nll": repr(float(mean)), "computed": "float64, from what the file's blocks decode to"})
    print(f"{name}: rms of logits {np.sqrt((whole ** 2).mean()):.3f}, mean NLL {mean:.4f}, least margin {min(margins):.4f}")
    return True


if __name__ == "__main__":
    plain(sys.argv[2], "qwen3_5", "qwen35")
    plain(sys.argv[2], "qwen3_5_moe", "qwen35moe")
    blocks(sys.argv[2], 18)
    following(sys.argv[2], 19)
