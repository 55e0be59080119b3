"""Makes vectors/ops/mamba2.safetensors: a Mamba-2 mixer's operators between its projections, inputs and truth.

    python3 make_mamba2.py ops/mamba2.safetensors

Inputs are random f32. The truth is float64, token by token from the definition (Dao and Gu 2024):
  u = silu(conv(xBC) + bias);  x [heads, P], B, C [groups, N] = split(u)
  dt = clamp(softplus(raw + dt_bias), dt_limit);  S <- e^(-dt e^A_log) S + B^T (dt x);  y = C S + D x
  out = the gated norm of y by z: place 0 rms(y silu(z)) weight, 1 rms(y) weight silu(z), 2 y silu(z)
State S is [heads, N, P] and starts as S0; the convolution starts from zeros. Head j is of group j / (heads / groups).
Needs nothing but Python.
"""
import json
import math
import random
import struct
import sys

CASES = {
    "plain": dict(T=65, heads=4, P=8, N=16, groups=1, place=0),
    "one_token": dict(T=1, heads=2, P=5, N=3, groups=2, place=0),
    "groups": dict(T=130, heads=6, P=5, N=7, groups=3, place=0),
    "norm_before_gate": dict(T=64, heads=4, P=12, N=9, groups=2, place=1),
    "no_norm": dict(T=63, heads=3, P=16, N=12, groups=1, place=2),
    "D_per_element": dict(T=70, heads=2, P=33, N=20, groups=1, place=0, D_per_element=1),
    "dt_limit": dict(T=100, heads=4, P=8, N=8, groups=4, place=1, D_per_element=1, low=0.02, high=0.4),
}
W, EPS = 4, 1e-5


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def normals(rng, n, scale=1.0):
    return [f32(scale * rng.gauss(0, 1)) for _ in range(n)]


def silu(z):
    return z / (1 + math.exp(-z)) if z > 0 else z * math.exp(z) / (1 + math.exp(z))


def softplus(z):
    return z if z > 20 else math.log1p(math.exp(z))


def conv(v, c):
    channels, out = c["heads"] * c["P"] + 2 * c["groups"] * c["N"], []
    for t in range(c["T"]):
        row = list(v["conv_bias"])
        for w in range(max(0, W - 1 - t), W):
            for i in range(channels):
                row[i] += v["conv"][w * channels + i] * v["xBC"][(t - W + 1 + w) * channels + i]
        out.append([silu(z) for z in row])
    return out


def scan(v, c, u):
    heads, P, N, groups = c["heads"], c["P"], c["N"], c["groups"]
    S, y = list(v["S0"]), []
    for t in range(c["T"]):
        for j in range(heads):
            at = heads * P + j // (heads // groups) * N
            x, B, C = u[t][j * P:(j + 1) * P], u[t][at:at + N], u[t][at + groups * N:at + groups * N + N]
            dt = softplus(v["raw"][t * heads + j] + v["dt_bias"][j])
            dt = min(max(dt, c["low"]), c["high"] if c["high"] >= 0 else math.inf)
            decay = math.exp(-dt * math.exp(v["A_log"][j]))
            for p in range(P):
                out = v["D"][j * P + p if c["D_per_element"] else j] * x[p]
                for n in range(N):
                    i = (j * N + n) * P + p
                    S[i] = decay * S[i] + B[n] * dt * x[p]
                    out += C[n] * S[i]
                y.append(out)
    return y, S


def gated_norm(v, c, y):
    E = c["heads"] * c["P"]
    size, out = E // c["groups"], []
    for t in range(c["T"]):
        row, gate = y[t * E:(t + 1) * E], [silu(z) for z in v["z"][t * E:(t + 1) * E]]
        if c["place"] != 1:
            row = [a * b for a, b in zip(row, gate)]
        if c["place"] != 2:
            for first in range(0, E, size):
                root = math.sqrt(sum(a * a for a in row[first:first + size]) / size + EPS)
                for i in range(first, first + size):
                    row[i] *= v["weight"][i] / root
        out += [a * b for a, b in zip(row, gate)] if c["place"] == 1 else row
    return out


def inputs(rng, c):
    T, heads, N, groups, E = c["T"], c["heads"], c["N"], c["groups"], c["heads"] * c["P"]
    channels = E + 2 * groups * N
    return {
        "xBC": normals(rng, T * channels), "conv": normals(rng, W * channels, 0.5), "conv_bias": normals(rng, channels),
        "raw": normals(rng, T * heads), "dt_bias": [f32(rng.uniform(-4, 0)) for _ in range(heads)],
        "A_log": [f32(math.log(rng.uniform(0.5, 16))) for _ in range(heads)],
        "D": normals(rng, E if c["D_per_element"] else heads), "S0": normals(rng, E * N),
        "z": normals(rng, T * E), "weight": normals(rng, E),
    }


def main(target):
    rng, out, blob = random.Random(4), {"__metadata__": {}}, b""
    for name, given in CASES.items():
        c = dict(dict(D_per_element=0, low=0.0, high=-1.0), **given)
        v = inputs(rng, c)
        y, S = scan(v, c, conv(v, c))
        v.update(truth_y=y, truth_s=S, truth_out=gated_norm(v, c, y))
        out["__metadata__"][name] = json.dumps(c)
        for key, values in v.items():
            raw = struct.pack(f"<{len(values)}f", *values)
            out[f"{name}.{key}"] = {"dtype": "F32", "shape": [len(values)],
                                    "data_offsets": [len(blob), len(blob) + len(raw)]}
            blob += raw
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob)


if __name__ == "__main__":
    main(*sys.argv[1:])
