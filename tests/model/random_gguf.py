#!/usr/bin/env python3
"""Writes a GGUF file of random weights of the size of random_model.py's gated_deltanet with use_gate=true, so that llama.cpp
can be timed beside Deltaic: random_gguf.py FILE [key=value ...] (layers, width, heads, mlp, vocab, interval; numpy).

llama.cpp runs the gated delta rule in its Qwen 3.5 hybrids; interval=N makes every N-th layer softmax attention as there,
the default the last of 24. It asserts that there is one. Matrices are f16."""
import struct
import sys

import numpy as np

c = dict(layers=24, width=2048, heads=16, mlp=5632, vocab=32000, interval=24)
c.update((k, int(v)) for k, v in (a.split("=") for a in sys.argv[2:]))
D, F, V, H = c["width"], c["mlp"], c["vocab"], c["heads"]
d = D // H


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def pair(key, value):
    if isinstance(value, str):
        return string(key) + struct.pack("<I", 8) + string(value)
    if isinstance(value, list):
        return string(key) + struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    return string(key) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value))


keys = {"general.architecture": "qwen35", "tokenizer.ggml.model": "none"}
keys.update(("qwen35." + k, v) for k, v in {
    "block_count": c["layers"], "context_length": 1 << 17, "embedding_length": D, "feed_forward_length": F, "vocab_size": V,
    "attention.head_count": H, "attention.head_count_kv": H, "attention.key_length": d, "attention.value_length": d,
    "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": d // 2, "rope.dimension_sections": [d // 4, 0, 0, 0],
    "rope.freq_base": 1e4, "ssm.conv_kernel": 4, "ssm.inner_size": D, "ssm.state_size": d, "ssm.time_step_rank": H,
    "ssm.group_count": H, "full_attention_interval": c["interval"]}.items())

# Shapes as GGUF has them, the inner dimension first; vectors are f32.
shapes = {"token_embd.weight": (D, V), "output_norm.weight": (D,), "output.weight": (D, V)}
for i in range(c["layers"]):
    layer = {"attn_norm.weight": (D,), "post_attention_norm.weight": (D,), "ffn_gate.weight": (D, F), "ffn_up.weight": (D, F),
             "ffn_down.weight": (F, D)}
    if (i + 1) % c["interval"] == 0:
        layer.update({"attn_q.weight": (D, 2 * D), "attn_k.weight": (D, D), "attn_v.weight": (D, D),
                      "attn_output.weight": (D, D), "attn_q_norm.weight": (d,), "attn_k_norm.weight": (d,)})
    else:
        layer.update({"attn_qkv.weight": (D, 3 * D), "attn_gate.weight": (D, D), "ssm_out.weight": (D, D),
                      "ssm_conv1d.weight": (4, 3 * D), "ssm_beta.weight": (D, H), "ssm_alpha.weight": (D, H),
                      "ssm_norm.weight": (d,), "ssm_dt.bias": (H,), "ssm_a": (H,)})
    shapes.update((f"blk.{i}.{name}", shape) for name, shape in layer.items())

rng = np.random.default_rng(0)
info, offset = b"", 0
for name, shape in shapes.items():
    half = len(shape) == 2 and "conv1d" not in name
    info += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 1 if half else 0, offset)
    offset += -(-int(np.prod(shape)) * (2 if half else 4) // 32) * 32
head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(pair(*k) for k in keys.items()) + info
with open(sys.argv[1], "wb") as f:
    f.write(head + bytes(-len(head) % 32))
    for name, shape in shapes.items():
        n = int(np.prod(shape))
        if "norm" in name:
            x = np.ones(n, np.float32)
        elif name.endswith("ssm_a"):
            x = np.full(n, -0.1, np.float32)
        else:
            x = 0.02 * rng.standard_normal(n, dtype=np.float32)
        x = x.astype(np.float16 if len(shape) == 2 and "conv1d" not in name else np.float32).tobytes()
        f.write(x + bytes(-len(x) % 32))
print(f"{sys.argv[1]}: {sum(int(np.prod(s)) for s in shapes.values()):,} parameters")
