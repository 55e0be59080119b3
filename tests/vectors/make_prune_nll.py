#!/usr/bin/python3
"""Makes tests/vectors/prune/nll.safetensors: mean NLL of models after pruning, in float64; and refit.safetensors, the
tokens of docs/pruning.md's refit of the default checkpoint.

usage: make_prune_nll.py SPEC CHECKPOINTS REFERENCE OUT [MODEL...]

MODEL: trained checkpoints, default gated_deltanet. SPEC has reference_pruning.py, reference_model.py, reference.py

For who makes the fixtures; SPEC is not in this repository (spec.py).

MODEL.calibration, MODEL.eval: windows of tokens. Metadata `rows`: [{model, method, ratio, nll}], each method of
reference_pruning.py on the calibration's tokens, then reference_model.py on the eval's. Weights that pca
rotates are rounded to bf16, as they are in a file."""
import json, struct
import numpy as np
import spec
from tensor_files import from_bf16, load, save, to_bf16

folder, checkpoints, reference, out, *models = spec.arguments(__doc__, 4)
R, RM, P = spec.modules(folder, "reference", "reference_model", "reference_pruning")

def record(t, config, windows):
    """By layer: the projections' inputs, and activations of queries and of the keys of all steps [rows, heads, d]."""
    inputs, units, layers = {}, {}, []
    mixer, l2norm = RM.mixer, R.l2norm

    def on_mixer(x, t, p, c, st):
        layers.append(p)
        inputs.setdefault(p, []).append(x)
        units.setdefault(p, [])
        return mixer(x, t, p, c, st)

    def on_norm(x, *rest):
        units[layers[-1]].append(x)
        return l2norm(x, *rest)

    RM.mixer, R.l2norm = on_mixer, on_norm
    for ids in windows:
        RM.forward(t, config, ids)
    RM.mixer, R.l2norm = mixer, l2norm
    join = lambda parts: np.concatenate([x.reshape(-1, *x.shape[-2:]) for x in parts])
    return {p: (np.concatenate(inputs[p]), join(units[p][0::2]), join(units[p][1::2])) for p in inputs}


def nll(t, config, windows):
    losses = []
    for ids in windows:
        logits, _ = RM.forward(t, config, ids[:-1])
        logits = logits - logits.max(-1, keepdims=True)
        losses.append(np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(ids) - 1), ids[1:]])
    return float(np.concatenate(losses).mean())


def choose(method, t, p, seen, head, c, keep):
    d, n = c["dk"], c["nh"]
    part = slice(head * d, (head + 1) * d)
    wq = t[p + "q_proj.weight"][part]
    wk = np.concatenate([t[p + "k_proj.weight"][m * c["key_dim"]:][part] for m in range(n)], 1)
    x, q, k = seen[p]
    if method == "l1":
        return P.top_indices(np.abs(wq).sum(1) + np.abs(wk).sum(1), keep)
    if method == "s-wanda":
        norm = np.sqrt((x * x).sum(0))
        return P.top_indices((np.abs(wq) * norm).sum(1) + (np.abs(wk) * np.tile(norm, n)).sum(1), keep)
    M = np.concatenate([q[:, head], k[:, head]])
    if method == "drrqr":
        return np.sort(P.strong_rrqr_gram(M.T @ M, keep, 1.5, 10 ** 6)[0])
    T = P.pca_projection(np.concatenate([R.l2norm(q[:, head]), R.l2norm(k[:, head])]), keep)
    return T * np.sign(T[np.arange(keep), np.abs(T).argmax(1)])[:, None]   # SiLU comes after: signs count


def rotate(t, config, chosen):
    """pca: projections T W, filters (T T) W, rounded."""
    c = RM.complete(config)
    none = [[np.arange(len(chosen[p][0])) for _ in range(c["num_heads"])] if p in chosen else None
            for p in (f"model.layers.{i}.attn." for i in range(c["num_hidden_layers"]))]
    small, new = RM.cut_keys(t, config, none)
    for p, Ts in chosen.items():
        for name in ("q_proj", "k_proj", "q_conv1d", "k_conv1d"):
            if p + name + ".weight" not in t:
                continue
            w = t[p + name + ".weight"]
            blocks = w.reshape(-1, len(Ts), c["dk"], *w.shape[1:])
            rows = [np.tensordot((T * T) if "conv" in name else T, b[h], 1) for b in blocks for h, T in enumerate(Ts)]
            small[p + name + ".weight"] = from_bf16(to_bf16(np.concatenate(rows))).astype(float)
    return small, new


def pruned_nll(t, config, seen, method, ratio, windows):
    c = RM.complete(config)
    keep = P.target_dim(c["dk"], ratio)
    chosen = {p: [choose(method, t, p, seen, h, c, keep) for h in range(c["num_heads"])] for p in seen}
    if method == "pca":
        small, new = rotate(t, config, chosen)
    else:
        names = [f"model.layers.{i}.attn." for i in range(c["num_hidden_layers"])]
        small, new = RM.cut_keys(t, config, [chosen.get(p) for p in names])
    return nll(small, new, windows)


tensors, rows = {}, []


def model(name, folder, calibration, windows, wanted):
    config = json.load(open(f"{folder}/config.json"))
    t = RM.modernise({k: v.astype(float) for k, v in load(f"{folder}/model.safetensors").items()}, config)
    seen = record(t, config, calibration)
    tensors[f"{name}.calibration"], tensors[f"{name}.eval"] = calibration, windows
    for method, ratio in wanted:
        loss = nll(t, config, windows) if method == "none" else pruned_nll(t, config, seen, method, ratio, windows)
        rows.append(dict(model=name, method=method, ratio=ratio, nll=loss))
        print(rows[-1], flush=True)


tiny = [("none", 0), ("l1", 0.5), ("s-wanda", 0.5), ("drrqr", 0.5), ("pca", 0.5), ("drrqr", 0.3)]
for name in ("tiny_delta_net", "tiny_gated_deltanet_gva", "tiny_gated_deltanet_h1", "tiny_gated_delta_product"):
    folder = f"{checkpoints}/{name}"
    ids = load(f"{reference}/../models/{name}.safetensors")["eval_tokens"].astype(np.int32)
    model(name, folder, ids[:2, :192], ids[2:, :192], tiny)
large = [("none", 0), ("l1", 0.3), ("s-wanda", 0.3), ("s-wanda", 0.5), ("s-wanda", 0.75), ("pca", 0.3), ("pca", 0.5),
         ("drrqr", 0.3), ("drrqr", 0.4), ("drrqr", 0.875)]
for name in models or ["gated_deltanet"]:
    ref = load(f"{reference}/prune_{name}.safetensors")
    model(name, f"{checkpoints}/{name}", ref["calibration_tokens"], ref["eval_tokens"][:4], large)

header, blob = {"__metadata__": {"rows": json.dumps(rows)}}, b""
for name, x in tensors.items():
    x = np.ascontiguousarray(x, np.int32)
    header[name] = dict(dtype="I32", shape=x.shape, data_offsets=[len(blob), len(blob) + x.nbytes])
    blob += x.tobytes()
head = json.dumps(header).encode()
head += b" " * (-len(head) % 8)
with open(f"{out}/nll.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + blob)

text = load(f"{reference}/calibration.safetensors")["tokens"]
save(f"{out}/refit.safetensors",
     {"calibration": text, "eval": load(f"{reference}/prune_gated_deltanet.safetensors")["eval_tokens"]},
     "tokens of the default checkpoint: the text that docs/pruning.md's refit has, and what it is evaluated on")
