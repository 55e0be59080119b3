#!/usr/bin/python3
"""Makes tests/vectors/rank/MODEL.csv: what `deltaic rank --csv` must give for MODEL reading tests/vectors/rank/text.txt,
states after every 16 tokens, from the float64 models of reference_model.py and numpy's singular values.

usage: make_rank.py SPEC MODELS OUT MODEL...    SPEC has reference.py and reference_model.py

For who makes the fixtures; SPEC is not in this repository (spec.py).

Condition and rank are left empty where a singular value lies so near to 1e-6 of the first that rounding decides."""
import json, os
import numpy as np
import spec
from tensor_files import load

folder, models, out, *names = spec.arguments(__doc__, 4)
_, RM = spec.modules(folder, "reference", "reference_model")

EVERY, ZERO = 16, 1e-6


def byte_ids(tokenizer, text):
    """Byte-level tokens without merges: GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in plain}
    for b in range(256):
        letters.setdefault(b, chr(256 + len(letters) - len(plain)))
    vocab = tokenizer["model"]["vocab"]
    assert not tokenizer["model"]["merges"]
    return [vocab[letters[b]] for b in text]


def measures(S):
    s = np.linalg.svd(S, compute_uv=False)
    p = s / s.sum()
    p = p[p > 0]
    stable = (s ** 2).sum() / s[0] ** 2
    near = ((s / s[0] > 0.1 * ZERO) & (s / s[0] < 10 * ZERO)).any()
    rank = int((s > ZERO * s[0]).sum())
    return [stable, stable / len(s), np.exp(-(p * np.log(p)).sum()), "" if near else s[0] / s[rank - 1],
            "" if near else rank]


def states(path, text):
    """Rows of (layer, head, token, measures, similarity)."""
    config = json.load(open(os.path.join(path, "config.json")))
    tensors = {name: x.astype(np.float64) for name, x in load(os.path.join(path, "model.safetensors")).items()}
    ids = [config["bos_token_id"]] + byte_ids(json.load(open(os.path.join(path, "tokenizer.json"))), text)
    rows, cache, before = [], None, {}
    for t in range(0, len(ids), EVERY):
        _, cache = RM.forward(tensors, config, ids[t:t + EVERY], cache)
        for layer, st in enumerate(cache):
            for head, S in enumerate(st.get("S", [])):
                old = before.get((layer, head))
                cosine = "" if old is None else (S * old).sum() / np.linalg.norm(S) / np.linalg.norm(old)
                rows.append((layer, head, min(t + EVERY, len(ids)), *measures(S), cosine))
                before[layer, head] = S
    return sorted(rows, key=lambda r: (r[0], r[2], r[1]))


text = open(os.path.join(out, "text.txt"), "rb").read()
for model in names:
    with open(os.path.join(out, model + ".csv"), "w") as f:
        f.write("checkpoint,layer,head,token,stable_rank,utilization,entropy_rank,condition,rank,similarity\n")
        for row in states(os.path.join(models, model), text):
            f.write(",".join([model, *(x if isinstance(x, str) else "%.9g" % x for x in row)]) + "\n")
