"""Makes models/tiny_mamba2 and models/tiny_mamba2_options: Mamba-2 checkpoints of random weights in fla's layout, and
what they must compute.

    python3 make_mamba2_model.py models

The reference is float64, token by token from the definition (make_mamba2.py has the operators'), evaluated with the
weights as stored (matrices bf16, vectors f32): logits of input_ids at positions, every layer's mixer_output, greedy
tokens after greedy.prompt with the margin of each choice, and the mean negative log-likelihood (nll in the metadata) of
eval_tokens, each row from a fresh state. Needs nothing but Python.
"""
import json
import math
import os
import random
import struct
import sys

from make_mamba2 import f32, silu, softplus

MODELS = {
    "tiny_mamba2": dict(model_type="mamba2", hidden_size=24, num_hidden_layers=3, vocab_size=61, head_dim=12, expand=2,
                        state_size=16, n_groups=1, conv_kernel=4, norm_eps=1e-5, dt_limit=[0.0, math.inf],
                        tie_word_embeddings=False),
    "tiny_mamba2_options": dict(model_type="mamba2", hidden_size=20, num_hidden_layers=2, vocab_size=61, head_dim=5,
                                expand=3, state_size=7, n_groups=3, conv_kernel=3, norm_eps=1e-4, use_bias=True,
                                use_conv_bias=False, D_has_hdim=True, norm_before_gate=True, dt_limit=[0.02, 0.4],
                                tie_word_embeddings=True),
}
LENGTH, GREEDY, WINDOWS, WINDOW = 150, 24, 2, 96


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]


def sizes(c):
    E = c["expand"] * c["hidden_size"]
    return E, E // c["head_dim"], E + 2 * c["n_groups"] * c["state_size"]


def shapes(c, embedding):
    D, V = c["hidden_size"], c["vocab_size"]
    E, heads, C = sizes(c)
    yield f"backbone.{embedding}.weight", [V, D], 1.0
    for i in range(c["num_hidden_layers"]):
        p = f"backbone.layers.{i}."
        yield p + "norm.weight", [D], "norm"
        yield p + "mixer.in_proj.weight", [E + C + heads, D], D ** -0.5
        yield p + "mixer.conv1d.weight", [C, 1, c["conv_kernel"]], 0.5
        if c.get("use_conv_bias", True):
            yield p + "mixer.conv1d.bias", [C], "vector"
        if c.get("use_bias"):
            yield p + "mixer.in_proj.bias", [E + C + heads], "vector"
            yield p + "mixer.out_proj.bias", [D], "vector"
        yield p + "mixer.A_log", [heads], "A_log"
        yield p + "mixer.dt_bias", [heads], "dt_bias"
        yield p + "mixer.D", [E if c.get("D_has_hdim") else heads], "norm"
        yield p + "mixer.norm.weight", [E], "norm"
        yield p + "mixer.out_proj.weight", [D, E], E ** -0.5
    yield "backbone.norm_f.weight", [D], "norm"
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [V, D], 2 * D ** -0.5


def draw(rng, kind):
    if kind == "norm":
        return f32(1 + 0.2 * rng.gauss(0, 1))
    if kind == "vector":
        return f32(0.2 * rng.gauss(0, 1))
    if kind == "A_log":
        return f32(math.log(rng.uniform(0.5, 16)))
    if kind == "dt_bias":
        return f32(rng.uniform(-4, 0))
    return bf16(kind * rng.gauss(0, 1))


def rms(x, weight, eps, groups=1):
    n, out = len(x) // groups, []
    for first in range(0, len(x), n):
        root = math.sqrt(sum(a * a for a in x[first:first + n]) / n + eps)
        out += [a / root * w for a, w in zip(x[first:first + n], weight[first:first + n])]
    return out


def product(w, x, bias=None):
    n = len(x)
    y = [sum(a * b for a, b in zip(w[i:i + n], x)) for i in range(0, len(w), n)]
    return [a + b for a, b in zip(y, bias)] if bias else y


class Model:
    def __init__(self, c, weights):
        self.c, self.w = c, weights
        E, heads, C = sizes(c)
        self.past = [[[0.0] * C for _ in range(c["conv_kernel"] - 1)] for _ in range(c["num_hidden_layers"])]
        self.S = [[0.0] * (heads * c["state_size"] * c["head_dim"]) for _ in range(c["num_hidden_layers"])]

    def mixer(self, i, x):
        c, w, p = self.c, self.w, f"backbone.layers.{i}.mixer."
        E, heads, C = sizes(c)
        P, N, groups, W = c["head_dim"], c["state_size"], c["n_groups"], c["conv_kernel"]
        proj = product(w[p + "in_proj.weight"], x, w.get(p + "in_proj.bias"))
        z, xBC, raw = proj[:E], proj[E:E + C], proj[E + C:]
        self.past[i].append(xBC)
        taps, bias = w[p + "conv1d.weight"], w.get(p + "conv1d.bias") or [0.0] * C
        u = [silu(bias[k] + sum(taps[k * W + t] * self.past[i][t][k] for t in range(W))) for k in range(C)]
        self.past[i].pop(0)
        S, y = self.S[i], []
        for j in range(heads):
            at = E + j // (heads // groups) * N
            B, read = u[at:at + N], u[at + groups * N:at + groups * N + N]
            dt = min(max(softplus(raw[j] + w[p + "dt_bias"][j]), c["dt_limit"][0]), c["dt_limit"][1])
            decay = math.exp(-dt * math.exp(w[p + "A_log"][j]))
            for q in range(P):
                k = j * P + q
                out = w[p + "D"][k if c.get("D_has_hdim") else j] * u[k]
                for n in range(N):
                    s = (j * N + n) * P + q
                    S[s] = decay * S[s] + B[n] * dt * u[k]
                    out += read[n] * S[s]
                y.append(out)
        gate = [silu(a) for a in z]
        if c.get("norm_before_gate"):
            y = [a * b for a, b in zip(rms(y, w[p + "norm.weight"], c["norm_eps"], groups), gate)]
        else:
            y = rms([a * b for a, b in zip(y, gate)], w[p + "norm.weight"], c["norm_eps"], groups)
        return product(w[p + "out_proj.weight"], y, w.get(p + "out_proj.bias"))

    def step(self, token, trace=None):
        c, w, D = self.c, self.w, self.c["hidden_size"]
        table = w.get("backbone.embeddings.weight") or w["backbone.embedding.weight"]
        x = table[token * D:(token + 1) * D]
        for i in range(c["num_hidden_layers"]):
            y = self.mixer(i, rms(x, w[f"backbone.layers.{i}.norm.weight"], c["norm_eps"]))
            if trace is not None:
                trace[i] += y
            x = [a + b for a, b in zip(x, y)]
        return product(w.get("lm_head.weight") or table, rms(x, w["backbone.norm_f.weight"], c["norm_eps"]))


def nll(logits, target):
    most = max(logits)
    return math.log(sum(math.exp(a - most) for a in logits)) + most - logits[target]


def save(path, tensors, metadata):
    header, blob = {"__metadata__": metadata}, b""
    for name, (dtype, shape, values) in tensors.items():
        if dtype == "BF16":
            raw = b"".join(struct.pack("<f", x)[2:] for x in values)
        else:
            raw = struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'i'}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
        blob += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob)


def reference(c, weights, rng):
    V, L, D = c["vocab_size"], c["num_hidden_layers"], c["hidden_size"]
    ids = [rng.randrange(V) for _ in range(LENGTH)]
    positions, trace, model = list(range(0, LENGTH, 7)) + [LENGTH - 1], [[] for _ in range(L)], Model(c, weights)
    logits = [model.step(t, trace) for t in ids]
    model, tokens, margins = Model(c, weights), [], []
    for t in ids[:12]:
        last = model.step(t)
    for _ in range(GREEDY):
        order = sorted(range(V), key=lambda i: -last[i])
        tokens.append(order[0])
        margins.append(last[order[0]] - last[order[1]])
        last = model.step(tokens[-1])
    assert min(margins) > 1e-3, "a greedy choice is too close: take another seed"
    rows, total = [[rng.randrange(V) for _ in range(WINDOW)] for _ in range(WINDOWS)], 0
    for row in rows:
        model = Model(c, weights)
        total += sum(nll(model.step(t), target) for t, target in zip(row, row[1:]))
    return {
        "input_ids": ("I32", [LENGTH], ids), "positions": ("I32", [len(positions)], positions),
        "logits": ("F32", [len(positions), V], [x for p in positions for x in logits[p]]),
        "mixer_output": ("F32", [L, LENGTH, D], [x for layer in trace for x in layer]),
        "greedy.prompt": ("I32", [12], ids[:12]), "greedy.tokens": ("I32", [GREEDY], tokens),
        "greedy.margin": ("F32", [GREEDY], margins),
        "eval_tokens": ("I32", [WINDOWS, WINDOW], [t for row in rows for t in row]),
    }, {"nll": repr(total / (WINDOWS * (WINDOW - 1))), "computed": "float64, from the weights as stored"}


def main(folder):
    for seed, (name, c) in enumerate(MODELS.items()):
        rng, path = random.Random(seed), os.path.join(folder, name)
        os.makedirs(path, exist_ok=True)
        tensors = {}
        for key, shape, kind in shapes(c, "embeddings" if name == "tiny_mamba2" else "embedding"):
            values = [draw(rng, kind) for _ in range(math.prod(shape))]
            tensors[key] = ("F32" if isinstance(kind, str) else "BF16", shape, values)
        with open(os.path.join(path, "config.json"), "w") as file:
            file.write(json.dumps(c, indent=2) + "\n")
        save(os.path.join(path, "model.safetensors"), tensors, {"format": "pt"})
        weights = {key: values for key, (_, _, values) in tensors.items()}
        save(os.path.join(path, "reference.safetensors"), *reference(c, weights, rng))


if __name__ == "__main__":
    main(*sys.argv[1:])
