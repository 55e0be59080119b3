#!/usr/bin/env python3
"""Writes a checkpoint of random bf16 weights, for speed: random_model.py FOLDER [key=value ...] (config keys; numpy), or
random_model.py FOLDER NAME, the size and layout of a released model (released.py), such as qwen3.5-4b.

The default is the size of fla-hub/delta_net-1.3B-100B: 24 layers of width 2048, 16 heads of 128. The weights are scaled
as an initialised model's, so that activations stay ordinary; the text is of course noise."""
import json, os, struct, sys
import numpy as np
import released


def write(folder, c, shapes):
    """The config, and random tensors of these shapes in bf16."""
    header, at = {"__metadata__": {"made_by": "deltaic tests/model/random_model.py"}}, 0
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
    bf16 = lambda x: (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    normal = rng.standard_normal((1 << 24) + 4093, dtype=np.float32)
    numbers = {scale: bf16(scale * normal) for scale in (0.3, 0.02)}
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for name, shape in shapes.items():
            left, x = int(np.prod(shape)), numbers[0.3 if "conv1d" in name else 0.02]
            if "norm" in name:
                x = bf16(np.full(left, 0 if released.is_centred(c, name) else 1))
            while left: # from elsewhere each time, so that matrices differ
                skip = int(rng.integers(4093)) if len(x) > 1 << 24 else 0
                f.write(x[skip:skip + min(left, 1 << 24)].data)
                left -= min(left, 1 << 24)
    print(f"{folder}: {at / 2:,.0f} parameters")


folder = sys.argv[1]
if len(sys.argv) == 3 and sys.argv[2] in released.CONFIGS:
    c = released.CONFIGS[sys.argv[2]]
    write(folder, c, released.shapes(c))
    sys.exit()
c = dict(model_type="delta_net", hidden_size=2048, num_hidden_layers=24, num_heads=16, expand_k=1, expand_v=1,
         intermediate_size=5632, vocab_size=32000, use_gate=False, tie_word_embeddings=False, conv_size=4,
         torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2)
for a in sys.argv[2:]:
    k, v = a.split("=", 1)
    try:
        c[k] = json.loads(v)
    except ValueError:
        c[k] = v
H, F, V, W, L = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["conv_size"], c["num_hidden_layers"]
kind = c["model_type"]


def linear(p):
    """The tensors of a delta-rule layer."""
    h, n = c["num_heads"], c.get("num_householder", 1)
    hv = c.get("num_v_heads") or h
    if kind in ("delta_net", "delta_net_2"):
        kd, vd = int(H * c["expand_k"]), int(H * c["expand_v"])
    else:
        kd, vd = h * c.setdefault("head_dim", H // h), hv * int(c.setdefault("head_dim", H // h) * c["expand_v"])
    t = {"q_proj.weight": (kd, H), "k_proj.weight": (n * kd, H), "v_proj.weight": (n * vd, H), "b_proj.weight": (n * hv, H),
         "q_conv1d.weight": (kd, 1, W), "k_conv1d.weight": (n * kd, 1, W), "v_conv1d.weight": (n * vd, 1, W),
         "o_norm.weight": (vd // hv,), "o_proj.weight": (H, vd)}
    if kind == "delta_net_2":
        t = {k: v for k, v in t.items() if "conv1d" not in k}
        t.update({f"{x}_conv1d.shared_kernel": (h if c.get("per_head_conv", True) else 1, 1, W) for x in "qkv"})
    if kind == "gated_deltanet" or c.get("use_forget_gate"):
        t.update({"a_proj.weight": (hv, H), "A_log": (hv,), "dt_bias": (hv,)})
    if c.get("use_output_gate", c["use_gate"]):
        t["g_proj.weight"] = (vd, H)
    r = c.get("hh_r", 1)
    if r > 1 and c.get("hh_mask") == "input":
        t.update({"m_proj.weight": (h * r * r, H), "m_proj.bias": (h * r * r,)})
    elif r > 1:
        t["M_org"] = (h, r, r)
    return {p + "attn." + k: v for k, v in t.items()}


def attention(p):
    a = c["attn"] if kind != "transformer" else c
    d = H // a["num_heads"]
    kv = (a.get("num_kv_heads") or a["num_heads"]) * d
    return {p + "attn." + k + ".weight": v for k, v in
            {"q_proj": (H, H), "k_proj": (kv, H), "v_proj": (kv, H), "o_proj": (H, H)}.items()}


def mamba2(p):
    m = dict(dict(head_dim=64, state_size=128, expand=2, n_groups=1, conv_kernel=4), **(c if kind == "mamba2" else c["mamba2"]))
    E = m["expand"] * H
    heads, x = E // m["head_dim"], E + 2 * m["n_groups"] * m["state_size"]
    return {p + "mixer." + k: v for k, v in
            {"in_proj.weight": (E + x + heads, H), "conv1d.weight": (x, 1, m["conv_kernel"]), "conv1d.bias": (x,), "A_log": (heads,),
             "dt_bias": (heads,), "D": (heads,), "norm.weight": (E,), "out_proj.weight": (H, E)}.items()}


if kind == "mamba2":
    shapes = {"backbone.embeddings.weight": (V, H), "backbone.norm_f.weight": (H,)}
else:
    shapes = {"model.embeddings.weight": (V, H), "model.norm.weight": (H,)}
if not c["tie_word_embeddings"]:
    shapes["lm_head.weight"] = (V, H)
for i in range(L):
    mixer = c["mixers"][i] if c.get("mixers") else "attention" if kind == "transformer" or i in (c.get("attn") or {}).get("layers", []) else kind
    if kind == "mamba2":
        shapes[f"backbone.layers.{i}.norm.weight"] = (H,)
        shapes.update(mamba2(f"backbone.layers.{i}."))
        continue
    p = f"model.layers.{i}."
    shapes.update({p + "attn_norm.weight": (H,), p + "mlp_norm.weight": (H,), p + "mlp.gate_proj.weight": (F, H),
                   p + "mlp.up_proj.weight": (F, H), p + "mlp.down_proj.weight": (H, F)})
    shapes.update({"attention": attention, "mamba2": mamba2}.get(mixer, linear)(p))
write(folder, c, shapes)
