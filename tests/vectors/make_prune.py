#!/usr/bin/python3
"""Makes the safetensors files of tests/vectors/prune.

usage: make_prune.py SPEC CHECKPOINTS REFERENCE OUT    SPEC has reference_pruning.py, reference_model.py, reference.py

For who makes the fixtures; SPEC is not in this repository (spec.py).

MODEL.safetensors: what the published pruners chose for every layer and head of MODEL (l1, rrqr at 25, 50, 75 %), cut
down from REFERENCE/prune_MODEL.safetensors, and what they chose it from: L1 norms of the weights' rows, and the Gram
matrices (lower triangles, f32) of the stacked queries and keys, by the float64 model on the reference's calibration
tokens. For two heads of the default checkpoint the activations too, as bf16, and S-Wanda's sets, which the published
code cannot compute. algorithms.safetensors: random matrices with what reference_pruning.py makes of them."""
import json, os
import numpy as np
import spec
from tensor_files import from_bf16, load, save, to_bf16

folder, checkpoints, reference, out = spec.arguments(__doc__, 4)[:4]
R, RM, P = spec.modules(folder, "reference", "reference_model", "reference_pruning")

def record(tensors, config, windows):
    """What layers see: the projections' inputs [layer][tokens, hidden], activations q, k [layer][tokens, heads, d]."""
    inputs, units = [], []
    mixer, l2norm = RM.mixer, R.l2norm
    RM.mixer = lambda x, *rest: (inputs.append(x), mixer(x, *rest))[1]
    R.l2norm = lambda x, *rest: (units.append(x), l2norm(x, *rest))[1]
    for ids in windows:
        RM.forward(tensors, config, ids)
    RM.mixer, R.l2norm = mixer, l2norm
    layers = config["num_hidden_layers"]
    join = lambda parts: np.concatenate([p.reshape(-1, *p.shape[-2:]) for p in parts])
    return ([np.concatenate(inputs[i::layers]) for i in range(layers)],
            [join(units[2 * i::2 * layers]) for i in range(layers)],
            [join(units[2 * i + 1::2 * layers]) for i in range(layers)])


def check_rrqr(G, want, keep, name):
    got, swaps, rho = P.strong_rrqr_gram(G, keep)
    assert sorted(got) == sorted(want), name
    return got


def checkpoint(model, rows_of):
    ref = load(f"{reference}/prune_{model}.safetensors")
    folder = f"{checkpoints}/{model}"
    config = json.load(open(f"{folder}/config.json"))
    t = {k: v.astype(float) for k, v in load(f"{folder}/model.safetensors").items()}
    c = RM.complete(config)
    heads, d, layers = c["num_heads"], c["dk"], config["num_hidden_layers"]
    keep = {p: P.target_dim(d, p / 100) for p in (25, 50, 75)}
    inputs, q, k = record(t, config, ref["calibration_tokens"])
    w = lambda i, name: t[f"model.layers.{i}.attn.{name}.weight"]
    low = np.tril_indices(d)
    out_t = {f"{m}.{p}": ref[f"{m}.{p}.indices"].astype(np.int32) for m in ("l1", "rrqr") for p in keep}
    out_t["l1.q"] = np.array([np.abs(w(i, "q_proj")).sum(1) for i in range(layers)])
    out_t["l1.k"] = np.array([np.abs(w(i, "k_proj")).sum(1) for i in range(layers)])
    gram = np.zeros((layers, heads, len(low[0])), np.float32)
    for i in range(layers):
        for h in range(heads):
            M = np.concatenate([q[i][:, h], k[i][:, h]])
            gram[i, h] = (M.T @ M)[low]
            G = np.zeros((d, d))
            G[low] = gram[i, h]
            G = G + np.tril(G, -1).T
            for p, n in keep.items():                           # what is stored still chooses the published sets
                part = slice(h * n, (h + 1) * n)
                check_rrqr(G, ref[f"rrqr.{p}.indices"][i][part] - h * d, n, (model, i, h, p))
                one = slice(h * d, (h + 1) * d)
                mine = P.top_indices(P.l1_scores(w(i, "q_proj")[one], w(i, "k_proj")[one]), n) + h * d
                assert np.array_equal(mine, ref[f"l1.{p}.indices"][i][part]), (model, i, h, p)
    out_t["gram"] = gram
    for i, h in rows_of:
        rows = to_bf16(ref[f"rrqr_input.layer{i}.head{h}"])
        M = from_bf16(rows).astype(float)
        for p, n in keep.items():
            want = ref[f"rrqr_indices.layer{i}.head{h}.keep{n}"]
            assert np.array_equal(check_rrqr(M.T @ M, want, n, (model, i, h, p)), want)
            assert np.array_equal(np.sort(want), np.sort(ref[f"rrqr.{p}.indices"][i][h * n:(h + 1) * n]) - h * d)
        out_t[f"rows.{i}.{h}"] = rows                           # queries, then keys
    if rows_of:
        out_t["inputs.squares"] = np.array([(x * x).sum(0) for x in inputs])
        for p, n in keep.items():
            out_t[f"wanda.{p}"] = np.array([np.concatenate([h * d + P.top_indices(P.wanda_scores(
                w(i, "q_proj")[h * d:(h + 1) * d], w(i, "k_proj")[h * d:(h + 1) * d], inputs[i]), n)
                for h in range(heads)]) for i in range(layers)]).astype(np.int32)
    save(f"{out}/{model}.safetensors", out_t, f"index sets of the published pruners for {model}")


def scores(rng, o):
    """Two key steps, as DeltaProduct has."""
    wq, wk = rng.standard_normal((24, 40)).astype(np.float32), rng.standard_normal((2, 24, 40)).astype(np.float32)
    x = rng.standard_normal((50, 40)) * np.exp(rng.uniform(-1, 1, 40))
    both, none = np.concatenate(list(wk), 1).astype(float), np.zeros((24, 40))
    x2, q = np.tile(x, (1, 2)), np.pad(wq, ((0, 0), (0, 40))).astype(float)
    o["score.wq"], o["score.wk"], o["score.squares"] = wq, wk, (x * x).sum(0)
    for side, a, b in (("both", q, both), ("keys", 0 * q, both), ("queries", q, 0 * both)):
        o[f"score.l1.{side}"] = P.l1_scores(a, b)
        o[f"score.wanda.{side}"] = P.wanda_scores(a, b, x2)
        o[f"score.wanda.{side}.kept"] = P.top_indices(P.wanda_scores(a, b, x2), 11).astype(np.int32)


def rrqr(rng, o):
    """Correlated matrices with f at or near 1, so that there are swaps."""
    ms, want, counts, rhos = [], [], [], []
    for trial in range(16):
        M = (rng.standard_normal((40, 16)) @ rng.standard_normal((16, 16))).astype(np.float32)
        kept, swaps, rho = P.strong_rrqr(M.astype(float), 9, 1.0 if trial % 2 else 1.02, 200)
        ms.append(M), want.append(np.sort(kept)), counts.append(swaps), rhos.append(rho)
    o["rrqr.m"], o["rrqr.kept"] = np.array(ms), np.array(want, np.int32)
    o["rrqr.swaps"], o["rrqr.rho"] = np.array(counts, np.int32), np.array(rhos)


def pca(rng, o):
    """Projections of normalized keys and queries; as the published code has them: centred, both with half the mean."""
    d, T, n = 10, 200, 4
    silu = lambda x: x / (1 + np.exp(-x))
    k, q = (silu(rng.standard_normal((T, d)) @ rng.standard_normal((d, d))).astype(np.float32) for _ in range(2))
    o["pca.q"], o["pca.k"] = q, k
    q, k = (x / np.linalg.norm(x.astype(float), axis=1, keepdims=True) for x in (q, k))
    positive = lambda T: T * np.sign(T[np.arange(len(T)), np.abs(T).argmax(1)])[:, None]
    o["pca.keys"] = positive(P.pca_projection(k, n))
    o["pca.queries"] = positive(P.pca_projection(q, n))
    o["pca.both"] = positive(P.pca_projection(np.concatenate([q, k]), n))
    o["pca.adversarial"] = positive(P.pca_projection(k, d)[::-1][:n])
    o["pca.keys.centred"] = positive(P.pca_projection(k, n, centred=True))
    s1, s2, N = (k.sum(0) + q.sum(0)) / 2, (k.T @ k + q.T @ q) / 2, 2 * T
    cov = (s2 - N * np.outer(s1 / N, s1 / N)) / (N - 1)
    o["pca.both.centred"] = positive(np.linalg.eigh(cov)[1][:, ::-1][:, :n].T)
    w = rng.standard_normal((d, 4)).astype(np.float32)
    o["pca.filters"], o["pca.filters.new"] = w, P.adapted_filters(o["pca.keys"], w.astype(float))
    o["pca.weights.new"] = o["pca.keys"] @ w.astype(float)


def ranks(rng, o):
    A = np.array([rng.standard_normal((12, 9)) * np.exp(rng.uniform(-s, s, 9)) for s in (0, 1, 2, 3)])
    A[3, :, 8] = A[3, :, 0] - A[3, :, 1]                        # rank 8
    o["rank.a"] = A
    volume = [np.log(np.linalg.svd(a)[1]).sum() for a in A[:3]] + [0]
    o["rank.values"] = np.array([[P.stable_rank(a), P.rank_utilization(a), P.entropy_rank(a), P.condition(a),
                                  np.linalg.matrix_rank(a), v] for a, v in zip(A, volume)])


rng, o = np.random.default_rng(5), {}
for part in (scores, rrqr, pca, ranks):
    part(rng, o)
os.makedirs(out, exist_ok=True)
save(f"{out}/algorithms.safetensors", o, "random matrices with what reference_pruning.py makes of them")
checkpoint("gated_deltanet", [(0, 0), (5, 0)])
checkpoint("delta_net", [])
