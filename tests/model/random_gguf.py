#!/usr/bin/env python3
"""Writes a GGUF file of random weights, so that llama.cpp can be timed beside Deltaic on the same file:
random_gguf.py FILE [key=value ...] (numpy).

The architecture is qwen35: the gated delta rule, with softmax attention in every N-th layer (interval=N; llama.cpp asserts that
there is one). The default has about the size of random_model.py's gated_deltanet with use_gate=true. size=0.8b (2b, 4b, 9b,
27b, 35b-a3b) gives the shapes of a released Qwen3.5; the last has experts (qwen35moe). type is f16, q8_0 or q4_k_m, the mixture of llama.cpp. tokens=1 writes a tokenizer
whose tokens have no meaning, for servers. Other keys: the names in `c`. Blocks repeat after a while: only their values are random, not their order."""
import struct
import sys

import numpy as np

c = dict(layers=24, width=2048, heads=16, kv=0, dim=0, key_heads=0, value_heads=0, size=0, mlp=5632, vocab=32000, interval=24,
         rotary=0, tied=0, experts=0, used=8, tokens=0, type="f16")
SIZES = {"0.8b": (1024, 24, 3584, 8, 2, 16, 1), "2b": (2048, 24, 6144, 8, 2, 16, 1), "4b": (2560, 32, 9216, 16, 4, 32, 1),
         "9b": (4096, 32, 12288, 16, 4, 32, 0), "27b": (5120, 64, 17408, 24, 4, 48, 0), "35b-a3b": (2048, 40, 512, 16, 2, 32, 0)}
for key, value in (a.split("=") for a in sys.argv[2:]):
    if value in SIZES:
        c.update(zip(("width", "layers", "mlp", "heads", "kv", "value_heads", "tied"), SIZES[value]))
        c.update(dim=256, key_heads=16, size=128, vocab=248320, interval=4, rotary=64,
                 experts=256 if value == "35b-a3b" else 0)
    else:
        c[key] = value if key == "type" else int(value)
D, F, V, H, d = c["width"], c["mlp"], c["vocab"], c["heads"], c["dim"] or c["width"] // c["heads"]
kv, Hk, Hv, dk = c["kv"] or H, c["key_heads"] or H, c["value_heads"] or H, c["size"] or d
rotary = c["rotary"] or d // 2


def string(s):
    s = s.encode()
    return struct.pack("<Q", len(s)) + s


def pair(key, value):
    if isinstance(value, str):
        return string(key) + struct.pack("<I", 8) + string(value)
    if isinstance(value, list) and isinstance(value[0], str):
        return string(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(string(v) for v in value)
    if isinstance(value, list):
        return string(key) + struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return string(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


E, arch = c["experts"], "qwen35moe" if c["experts"] else "qwen35"
keys = {"general.architecture": arch, "tokenizer.ggml.model": "none"}
if E:
    keys.update((f"{arch}.expert_{k}", v) for k, v in {"count": E, "used_count": c["used"], "feed_forward_length": F,
                                                       "shared_feed_forward_length": F}.items())
keys.update((f"{arch}.{k}", v) for k, v in {
    "block_count": c["layers"], "context_length": 1 << 17, "embedding_length": D, "feed_forward_length": F, "vocab_size": V,
    "attention.head_count": H, "attention.head_count_kv": kv, "attention.key_length": d, "attention.value_length": d,
    "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": rotary, "rope.dimension_sections": [rotary // 2, 0, 0, 0],
    "rope.freq_base": 1e7, "ssm.conv_kernel": 4, "ssm.inner_size": Hv * dk, "ssm.state_size": dk, "ssm.time_step_rank": Hv,
    "ssm.group_count": Hk, "full_attention_interval": c["interval"]}.items())

if c["tokens"]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)] # bytes that stand for themselves in GPT-2's alphabet
    others = [b for b in range(256) if b not in plain]
    vocabulary = [chr(b) for b in plain] + [chr(256 + i) for i in range(len(others))]
    merges, known = [], set(vocabulary)
    for a, b in zip(*np.random.default_rng(2).integers(0, 1 << 62, (2, 4 * V))): # words of two that are there
        a, b = (vocabulary[int(i) % min(len(vocabulary), 20000)] for i in (a, b))
        if len(vocabulary) < V - 1 and len(a + b) < 16 and a + b not in known:
            known.add(a + b)
            vocabulary.append(a + b)
            merges.append(f"{a} {b}")
    vocabulary += [f"<{i}>" for i in range(len(vocabulary), V)]
    keys.update({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.eos_token_id": V - 1,
                 "tokenizer.ggml.tokens": vocabulary, "tokenizer.ggml.token_type": [1] * (V - 1) + [3],
                 "tokenizer.ggml.merges": merges})

# Shapes as GGUF has them, the inner dimension first; vectors are f32.
C = 2 * Hk * dk + Hv * dk
shapes = {"token_embd.weight": (D, V), "output_norm.weight": (D,)}
if not c["tied"]:
    shapes["output.weight"] = (D, V)
for i in range(c["layers"]):
    layer = {"attn_norm.weight": (D,), "post_attention_norm.weight": (D,)}
    if E:
        layer.update({"ffn_gate_inp.weight": (D, E), "ffn_gate_exps.weight": (D, F, E), "ffn_up_exps.weight": (D, F, E),
                      "ffn_down_exps.weight": (F, D, E), "ffn_gate_inp_shexp.weight": (D,)})
    layer.update({f"ffn_{part}{'_shexp' if E else ''}.weight": (F, D) if part == "down" else (D, F)
                  for part in ("gate", "up", "down")})
    if (i + 1) % c["interval"] == 0:
        layer.update({"attn_q.weight": (D, 2 * H * d), "attn_k.weight": (D, kv * d), "attn_v.weight": (D, kv * d),
                      "attn_output.weight": (H * d, D), "attn_q_norm.weight": (d,), "attn_k_norm.weight": (d,)})
    else:
        layer.update({"attn_qkv.weight": (D, C), "attn_gate.weight": (D, Hv * dk), "ssm_out.weight": (Hv * dk, D),
                      "ssm_conv1d.weight": (4, C), "ssm_beta.weight": (D, Hv), "ssm_alpha.weight": (D, Hv),
                      "ssm_norm.weight": (dk,), "ssm_dt.bias": (Hv,), "ssm_a": (Hv,)})
    shapes.update((f"blk.{i}.{name}", shape) for name, shape in layer.items())

# Of a block: number, elements, bytes, and f16 scales {byte: value}, for weights of about 0.02.
TYPES = {"f32": (0, 1, 4, {}), "f16": (1, 1, 2, {}), "q8_0": (8, 32, 34, {0: 2.7e-4}), "q4_k": (12, 256, 144, {0: 1.4e-4, 2: 1e-3}),
         "q5_k": (13, 256, 176, {0: 6.8e-5, 2: 1e-3}), "q6_k": (14, 256, 210, {208: 6e-5})}


def more_bits(i, n):
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def type_of(name, shape):
    if len(shape) == 1 or "conv1d" in name or "gate_inp" in name:
        return "f32"
    if c["type"] != "q4_k_m":
        return c["type"]
    if name == "output.weight" or (c["tied"] and name == "token_embd.weight"):
        return "q6_k"
    layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
    if any(part in name for part in ("ffn_down", "attn_v", "attn_qkv")) and more_bits(layer, c["layers"]):
        return "q6_k"
    return "q4_k"


rng = np.random.default_rng(0)


def blocks(kind, count):
    """Random blocks of a type."""
    _, elements, size, scales = TYPES[kind]
    if elements == 1:
        x = 0.02 * rng.standard_normal(count, dtype=np.float32)
        return x.astype(np.float16 if kind == "f16" else np.float32).view(np.uint8).reshape(count, size)
    b = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if kind == "q6_k":
        b[:, 192:208] &= 31
    for at, scale in scales.items():
        b[:, at:at + 2] = np.full(count, scale, "<f2").view(np.uint8).reshape(count, 2)
    return b


template = {}
info, offset = b"", 0
for name, shape in shapes.items():
    number, elements, size, _ = TYPES[type_of(name, shape)]
    info += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)
    offset += -(-(int(np.prod(shape)) // elements * size) // 32) * 32
head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(pair(*k) for k in keys.items()) + info
with open(sys.argv[1], "wb") as f:
    f.write(head + bytes(-len(head) % 32))
    for name, shape in shapes.items():
        n, kind = int(np.prod(shape)), type_of(name, shape)
        _, elements, size, _ = TYPES[kind]
        if "norm" in name or name.endswith("ssm_a"):
            f.write(np.full(n, 1 if "norm" in name else -0.1, np.float32).tobytes())
        elif kind == "f32":
            f.write(blocks(kind, n).tobytes())
        else:
            if kind not in template:
                template[kind] = blocks(kind, 1 << 22 if elements == 1 else 1 << 15).tobytes()
            left = n // elements * size
            while left:
                f.write(template[kind][:left])
                left -= min(left, len(template[kind]))
        f.write(bytes(-f.tell() % 32))
print(f"{sys.argv[1]}: {sum(int(np.prod(s)) for s in shapes.values()):,} parameters")
