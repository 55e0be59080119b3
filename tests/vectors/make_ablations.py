#!/usr/bin/python3
"""Makes tests/vectors/models/ablation_*: small random checkpoints, one for each of some combinations of options, and what
each must compute, evaluated here in float64 from the definitions in docs/mixers.md. Usage: make_ablations.py OUT_FOLDER

Nothing is shared with the library: this is a second reading of the same equations, one token and one head at a time."""
import json, os, struct, sys
import numpy as np

V, D, L, F, H, W = 64, 32, 2, 48, 2, 4
TOKENS, PROMPT, GREEDY, WINDOWS = 100, 12, 12, (2, 24)


def delta(model_type, **keys):
    own = dict(head_dim=8, expand_v=1.5, allow_neg_eigval=False) if "gated" in model_type else dict(expand_v=0.5)
    return dict(dict(model_type=model_type, num_heads=H, conv_size=W, **own), **keys)


def gated(**keys):
    return delta("gated_deltanet", **keys)


CASES = {
    "relu_l2": gated(ablation=dict(qk_activation="relu", qk_norm="l2")),
    "elu_l1": gated(ablation=dict(qk_activation="elu", qk_norm="l1")),
    "silu_l1_ungated": gated(ablation=dict(qk_activation="silu", qk_norm="l1"), use_gate=False),
    "elu_sum_no_conv": gated(ablation=dict(qk_activation="elu", qk_norm="sum"), use_short_conv=False),
    "identity_none": gated(ablation=dict(qk_activation="identity", qk_norm="none"), allow_neg_eigval=False),
    "gate_without_norm": gated(ablation=dict(use_output_norm=False)),
    "bare_output": gated(ablation=dict(use_output_norm=False), use_gate=False, use_short_conv=False),
    "no_decay": gated(ablation=dict(use_decay=False, qk_activation="elu", qk_norm="l2"), num_v_heads=4),
    "no_beta": gated(ablation=dict(use_beta=False)),
    "delta_net_relu_l1": delta("delta_net", ablation=dict(qk_norm="l1"), qk_activation="relu", use_beta=False),
    "delta_net_decay": delta("delta_net", ablation=dict(use_decay=True, qk_norm="l2", use_output_norm=False),
                             qk_activation="identity", allow_neg_eigval=True),
    "product_elu_l1": delta("gated_deltaproduct", ablation=dict(qk_activation="elu", qk_norm="l1"), num_householder=3,
                            use_forget_gate=True, allow_neg_eigval=True),
    "transformer": dict(model_type="transformer", num_heads=4, num_kv_heads=2, qkv_bias=True, rope_theta=500.0),
    "transformer_norm_window": dict(model_type="transformer", num_heads=4, qk_norm=True, window_size=9),
    "filter_a_head": delta("delta_net_2"),
    "one_filter": delta("delta_net_2", per_head_conv=False, use_gate=True, allow_neg_eigval=True),
}


# ---------------------------------------------------------------- the model in float64

def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x):
    return x * sigmoid(x)


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


FEATURES = {"silu": silu, "relu": lambda x: np.maximum(x, 0), "identity": lambda x: x,
            "elu": lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))}
NORMS = {"l2": lambda x: np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6), "sum": lambda x: x.sum(-1, keepdims=True),
         "l1": lambda x: np.abs(x).sum(-1, keepdims=True), "none": lambda x: np.ones_like(x[..., :1])}


def options(c):
    """The options of a delta layer by name, whatever key said them."""
    kind, a = c["model_type"], c.get("ablation", {})
    o = dict(n=c.get("num_householder", 1), scale=2.0 if c.get("allow_neg_eigval") else 1.0,
             conv=c.get("use_short_conv", True), gate=c.get("use_gate", "gated" in kind),
             decay=c.get("use_forget_gate", kind == "gated_deltanet"), feature=c.get("qk_activation", "silu"),
             norm="l2", beta=c.get("use_beta", True), out_norm=True, Hv=c.get("num_v_heads", H))
    if kind == "delta_net_2":
        o.update(filters=H if c.get("per_head_conv", True) else 1)
    if "gated" not in kind:
        o.update(Dk=D // H, Dv=int(D * c["expand_v"]) // H)
    else:
        o.update(Dk=c["head_dim"], Dv=int(c["head_dim"] * c["expand_v"]))
    names = dict(qk_activation="feature", qk_norm="norm", use_beta="beta", use_decay="decay",
                 use_output_norm="out_norm")
    o.update({names[k]: v for k, v in a.items()})
    return o


def shapes_of_mixer(c):
    if c["model_type"] == "transformer":
        d, heads, kv = D // c["num_heads"], c["num_heads"], c.get("num_kv_heads", c["num_heads"])
        t = {"q_proj.weight": (D, D), "k_proj.weight": (kv * d, D), "v_proj.weight": (kv * d, D),
             "o_proj.weight": (D, D)}
        if c.get("qkv_bias"):
            t.update({"q_proj.bias": (heads * d,), "k_proj.bias": (kv * d,), "v_proj.bias": (kv * d,)})
        if c.get("qk_norm"):
            t.update({"q_norm.weight": (d,), "k_norm.weight": (d,)})
        return t
    o = options(c)
    key, value = H * o["Dk"], o["Hv"] * o["Dv"]
    t = {"q_proj.weight": (key, D), "k_proj.weight": (o["n"] * key, D), "v_proj.weight": (o["n"] * value, D),
         "o_proj.weight": (D, value)}
    if "filters" in o:
        t.update({f"{p}_conv1d.shared_kernel": (o["filters"], 1, W) for p in "qkv"})
    elif o["conv"]:
        t.update({"q_conv1d.weight": (key, 1, W), "k_conv1d.weight": (o["n"] * key, 1, W),
                  "v_conv1d.weight": (o["n"] * value, 1, W)})
    if o["beta"]:
        t["b_proj.weight"] = (o["n"] * o["Hv"], D)
    if o["decay"]:
        t.update({"a_proj.weight": (o["Hv"], D), "A_log": (o["Hv"],), "dt_bias": (o["Hv"],)})
    if o["gate"]:
        t["g_proj.weight"] = (value, D)
    if o["out_norm"]:
        t["o_norm.weight"] = (o["Dv"],)
    return t


def mixed(x, t, name, o, act):
    """Projection, convolution over time (zeros before the text), SiLU when act."""
    y = x @ t[name + "_proj.weight"].T
    if o["conv"]:
        if "filters" in o:  # the channels of a head are adjacent
            shared = t[name + "_conv1d.shared_kernel"][:, 0]
            kernel = shared.repeat(y.shape[1] // len(shared), 0)
        else:
            kernel = t[name + "_conv1d.weight"][:, 0]
        padded = np.concatenate([np.zeros((W - 1, y.shape[1])), y])
        y = sum(kernel[:, w] * padded[w:w + len(y)] for w in range(W))
    return silu(y) if act else y


def delta_layer(x, t, c):
    o = options(c)
    T, n, Hv, Dk, Dv = len(x), o["n"], o["Hv"], o["Dk"], o["Dv"]
    inside = o["feature"] == "silu"
    feature = (lambda y: y) if inside else FEATURES[o["feature"]]
    q = feature(mixed(x, t, "q", o, inside).reshape(T, H, Dk))
    k = feature(mixed(x, t, "k", o, inside).reshape(T, n, H, Dk))
    q, k = q / NORMS[o["norm"]](q), k / NORMS[o["norm"]](k)
    v = mixed(x, t, "v", o, True).reshape(T, n, Hv, Dv)
    beta = sigmoid(x @ t["b_proj.weight"].T).reshape(T, n, Hv) if o["beta"] else np.ones((T, n, Hv))
    beta = o["scale"] * beta
    g = np.zeros((T, Hv))
    if o["decay"]:
        g = -np.exp(t["A_log"]) * np.log1p(np.exp(x @ t["a_proj.weight"].T + t["dt_bias"]))
    out = np.zeros((T, Hv, Dv))
    for h in range(Hv):
        j, S = h // (Hv // H), np.zeros((Dk, Dv))
        for i in range(T):
            S = np.exp(g[i, h]) * S
            for m in range(n):
                S = S + np.outer(k[i, m, j], beta[i, m, h] * (v[i, m, h] - k[i, m, j] @ S))
            out[i, h] = q[i, j] @ S / np.sqrt(Dk)
    if o["out_norm"]:
        out = rms(out, t["o_norm.weight"], 1e-6)
    out = out.reshape(T, Hv * Dv)
    if o["gate"]:
        out = out * silu(x @ t["g_proj.weight"].T)
    return out @ t["o_proj.weight"].T


def rotate(x, theta):
    d = x.shape[-1]
    angle = np.arange(len(x))[:, None] * theta ** (-np.arange(0, d, 2) / d)
    cos, sin, a, b = np.cos(angle)[:, None], np.sin(angle)[:, None], x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention_layer(x, t, c):
    T, heads = len(x), c["num_heads"]
    d = D // heads
    q, k, v = ((x @ t[p + "_proj.weight"].T + t.get(p + "_proj.bias", 0)).reshape(T, -1, d) for p in "qkv")
    if c.get("qk_norm"):
        q, k = rms(q, t["q_norm.weight"], 1e-5), rms(k, t["k_norm.weight"], 1e-5)
    q, k = rotate(q, c.get("rope_theta", 10000.0)), rotate(k, c.get("rope_theta", 10000.0))
    out, window = np.zeros_like(q), c.get("window_size", T)
    for i in range(T):
        seen = slice(max(0, i - window + 1), i + 1)
        for h in range(heads):
            j = h // (heads // k.shape[1])
            s = k[seen, j] @ q[i, h] / np.sqrt(d)
            p = np.exp(s - s.max())
            out[i, h] = p / p.sum() @ v[seen, j]
    return out.reshape(T, D) @ t["o_proj.weight"].T


def logits_of(tensors, c, ids):
    layer = attention_layer if c["model_type"] == "transformer" else delta_layer
    x = tensors["model.embeddings.weight"][ids]
    for i in range(L):
        p = f"model.layers.{i}."
        own = {k[len(p) + 5:]: v for k, v in tensors.items() if k.startswith(p + "attn.")}
        x = x + layer(rms(x, tensors[p + "attn_norm.weight"], 1e-6), own, c)
        y = rms(x, tensors[p + "mlp_norm.weight"], 1e-6)
        y = silu(y @ tensors[p + "mlp.gate_proj.weight"].T) * (y @ tensors[p + "mlp.up_proj.weight"].T)
        x = x + y @ tensors[p + "mlp.down_proj.weight"].T
    return rms(x, tensors["model.norm.weight"], 1e-6) @ tensors["lm_head.weight"].T


# ---------------------------------------------------------------- the files

def bf16(x):
    """Bits of the nearest bf16 and its value."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(float)


def write(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, array) in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = dict(dtype=dtype, shape=list(array.shape), data_offsets=[len(data), len(data) + len(raw)])
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def random_tensors(c, rng):
    shapes = {"model.embeddings.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(L):
        p = f"model.layers.{i}."
        shapes.update({p + "attn_norm.weight": (D,), p + "mlp_norm.weight": (D,), p + "mlp.gate_proj.weight": (F, D),
                       p + "mlp.up_proj.weight": (F, D), p + "mlp.down_proj.weight": (D, F)})
        shapes.update({p + "attn." + k: s for k, s in shapes_of_mixer(c).items()})
    bits, values = {}, {}
    unbounded = c.get("ablation", {}).get("qk_norm") == "none"
    for name, shape in shapes.items():
        if "norm" in name:
            x = 1 + 0.2 * rng.standard_normal(shape)
        elif name.endswith("A_log"):
            x = np.log(rng.uniform(0.2, 4, shape))
        elif name.endswith(("dt_bias", "bias")):
            x = rng.uniform(-3, 0, shape)
        else:
            x = rng.standard_normal(shape) / np.sqrt(shape[-1])
            if unbounded and name.endswith("k_proj.weight"):
                x *= 0.4  # beta |k|^2 below 2, or the state would grow for ever
        b, values[name] = bf16(x)
        bits[name] = ("BF16", b)
    return bits, values


def nll(logits, targets):
    most = logits.max(-1, keepdims=True)
    return (np.log(np.exp(logits - most).sum(-1)) + most[:, 0] - logits[np.arange(len(targets)), targets]).sum()


def make(name, c, folder, seed):
    rng = np.random.default_rng(seed)
    config = dict(c, hidden_size=D, num_hidden_layers=L, vocab_size=V, intermediate_size=F, norm_eps=1e-6)
    bits, t = random_tensors(c, rng)
    ids, prompt, windows = rng.integers(0, V, TOKENS), rng.integers(0, V, PROMPT), rng.integers(0, V, WINDOWS)
    positions = np.arange(3, TOKENS, 6)
    tokens, margins = list(prompt), []
    for _ in range(GREEDY):
        row = logits_of(t, c, np.array(tokens))[-1]
        best = np.sort(row)[::-1]
        tokens.append(int(row.argmax()))
        margins.append(best[0] - best[1])
    if min(margins) < 1e-3:  # a choice that rounding may turn
        return make(name, c, folder, seed + 100)
    mean = sum(nll(logits_of(t, c, w)[:-1], w[1:]) for w in windows) / (windows.shape[0] * (windows.shape[1] - 1))
    whole = logits_of(t, c, ids)
    assert np.isfinite(whole).all()
    i32 = lambda x: ("I32", np.asarray(x, np.int32))
    f32 = lambda x: ("F32", np.asarray(x, np.float32))
    out = os.path.join(folder, "ablation_" + name)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    write(os.path.join(out, "model.safetensors"), bits, {})
    write(os.path.join(out, "reference.safetensors"),
          {"input_ids": i32(ids), "positions": i32(positions), "logits": f32(whole[positions]),
           "greedy.prompt": i32(prompt), "greedy.tokens": i32(tokens[PROMPT:]), "greedy.margin": f32(margins),
           "eval_tokens": i32(windows)}, {"nll": repr(float(mean)), "computed": "float64, from the bf16 weights"})
    print(f"{name}: rms of logits {np.sqrt((whole ** 2).mean()):.3f}, mean NLL {mean:.4f}, least margin "
          f"{min(margins):.4f}")


if __name__ == "__main__":
    for seed, (name, c) in enumerate(CASES.items()):
        make(name, c, sys.argv[1], seed)
