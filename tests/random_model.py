#!/usr/bin/env python3
"""Writes a checkpoint of random bf16 weights, for speed: random_model.py FOLDER [key=value ...] (config keys; numpy).

The default is the size of fla-hub/delta_net-1.3B-100B: 24 layers of width 2048, 16 heads of 128. The weights are scaled
as an initialised model's, so that activations stay ordinary; the text is of course noise."""
import json, os, struct, sys
import numpy as np

folder = sys.argv[1]
c = dict(model_type="delta_net", hidden_size=2048, num_hidden_layers=24, num_heads=16, expand_k=1, expand_v=1,
         intermediate_size=5632, vocab_size=32000, use_gate=False, tie_word_embeddings=False, conv_size=4,
         torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
for a in sys.argv[2:]:
    k, v = a.split("=", 1)
    try:
        c[k] = json.loads(v)
    except ValueError:
        c[k] = v
H, F, V, W = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["conv_size"]
gated = c["model_type"] == "gated_deltanet"
if gated:
    h = c["num_heads"]
    hv = c.get("num_v_heads") or h
    dk = c.setdefault("head_dim", H // h)
    kd, vd = h * dk, hv * int(dk * c["expand_v"])
    gate = c.get("use_gate", True)
else:
    h = hv = c["num_heads"]
    kd, vd = int(H * c["expand_k"]), int(H * c["expand_v"])
    gate = c["use_gate"]
shapes = {"model.embeddings.weight": (V, H), "model.norm.weight": (H,)}
if not c["tie_word_embeddings"]:
    shapes["lm_head.weight"] = (V, H)
for i in range(c["num_hidden_layers"]):
    p = f"model.layers.{i}."
    shapes.update({p + "attn_norm.weight": (H,), p + "mlp_norm.weight": (H,), p + "mlp.gate_proj.weight": (F, H),
                   p + "mlp.up_proj.weight": (F, H), p + "mlp.down_proj.weight": (H, F)})
    p += "attn."
    shapes.update({p + "q_proj.weight": (kd, H), p + "k_proj.weight": (kd, H), p + "v_proj.weight": (vd, H),
                   p + "b_proj.weight": (hv, H), p + "q_conv1d.weight": (kd, 1, W), p + "k_conv1d.weight": (kd, 1, W),
                   p + "v_conv1d.weight": (vd, 1, W), p + "o_norm.weight": (vd // hv,), p + "o_proj.weight": (H, vd)})
    if gated:
        shapes.update({p + "a_proj.weight": (hv, H), p + "A_log": (hv,), p + "dt_bias": (hv,)})
    r = c.get("hh_r", 1)
    if r > 1 and c.get("hh_mask") == "input":
        shapes[p + "m_proj.weight"] = (hv * r * r, H)
    elif r > 1:
        shapes[p + "M_org"] = (hv, r, r)
    if gate:
        shapes[p + "g_proj.weight"] = (vd, H)
header, at = {"__metadata__": {"made_by": "deltaic tests/random_model.py"}}, 0
for name, shape in shapes.items():
    n = 2 * int(np.prod(shape))
    header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + n]}
    at += n
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
rng = np.random.default_rng(0)
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "config.json"), "w") as f:
    json.dump(c, f, indent=2)
with open(os.path.join(folder, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head)
    for name, shape in shapes.items():
        n = int(np.prod(shape))
        scale = 0.3 if "conv1d" in name else 0.02
        x = np.ones(n, np.float32) if "norm" in name else scale * rng.standard_normal(n, dtype=np.float32)
        f.write((x.view(np.uint32) >> 16).astype(np.uint16).tobytes())
print(f"{folder}: {at / 2:,.0f} parameters")
