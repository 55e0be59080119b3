#!/usr/bin/python3
"""Writes reference.safetensors of a trained delta_net or delta_net_2: what it must compute, evaluated in float64 by
make_ablations.py from its bf16 weights. Usage: make_shared.py FOLDER TEXTS.safetensors

TEXTS has input_ids, positions, greedy.prompt and eval_tokens, such as tiny_delta_net's reference.safetensors."""
import json, os, struct, sys
import numpy as np
import make_ablations as model

GREEDY = 32


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in header.items():
        if name == "__metadata__" or t["dtype"] not in ("BF16", "I32"):
            continue
        raw = data[t["data_offsets"][0]:t["data_offsets"][1]]
        x = np.frombuffer(raw, np.int32 if t["dtype"] == "I32" else np.uint16)
        if t["dtype"] == "BF16":
            x = (x.astype(np.uint32) << 16).view(np.float32).astype(float)
        out[name] = x.reshape(t["shape"])
    return out


folder, texts = sys.argv[1], read(sys.argv[2])
with open(os.path.join(folder, "config.json")) as f:
    c = json.load(f)
tensors = read(os.path.join(folder, "model.safetensors"))
tensors.setdefault("lm_head.weight", tensors["model.embeddings.weight"])
model.V, model.D, model.L = c["vocab_size"], c["hidden_size"], c["num_hidden_layers"]
model.H, model.W = c["num_heads"], c["conv_size"]
ids, positions, windows = (texts[k] for k in ("input_ids", "positions", "eval_tokens"))
tokens, margins = list(texts["greedy.prompt"]), []
for _ in range(GREEDY):
    row = model.logits_of(tensors, c, np.array(tokens))[-1]
    best = np.sort(row)[::-1]
    tokens.append(int(row.argmax()))
    margins.append(best[0] - best[1])
mean = sum(model.nll(model.logits_of(tensors, c, w)[:-1], w[1:]) for w in windows) / (
    windows.shape[0] * (windows.shape[1] - 1))
i32 = lambda x: ("I32", np.asarray(x, np.int32))
f32 = lambda x: ("F32", np.asarray(x, np.float32))
model.write(os.path.join(folder, "reference.safetensors"),
            {"input_ids": i32(ids), "positions": i32(positions),
             "logits": f32(model.logits_of(tensors, c, ids)[positions]), "greedy.prompt": i32(texts["greedy.prompt"]),
             "greedy.tokens": i32(tokens[len(texts["greedy.prompt"]):]), "greedy.margin": f32(margins),
             "eval_tokens": i32(windows)}, {"nll": repr(float(mean)), "computed": "float64, from the bf16 weights"})
print(f"{folder}: mean NLL {mean:.4f}, least margin {min(margins):.4f}")
