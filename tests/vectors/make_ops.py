"""Makes vectors/ops/delta.safetensors: inputs of the delta-rule operators, their truth, and how far fla's CUDA kernels
are from it; and vectors/ops/hh.safetensors, the Head-in-Head cases, which no CUDA program computes.

    python3 make_ops.py fla_cuda_ops.safetensors ops/delta.safetensors
    python3 make_ops.py fla_cuda_ops.safetensors ops/hh.safetensors hh

The source holds, per case, q, k, v, beta (bf16, q and k already normalised), g, S0 (f32), the truth of outputs and
final state, and what fla computed. To keep the file small, one sequence per case is kept, the
CUDA results become two numbers in the metadata (relative RMS of cuda_o and cuda_s against the truth), and of the truth
every fourth value column is kept: columns of the state never mix, so a quarter of them says as much.
Needs nothing but Python.
"""
import json
import math
import struct
import sys

COLUMNS = 4  # every how many value columns the truth is kept


def load(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return header.pop("__metadata__"), header, data[8 + size:]


def floats(entry, data):
    first, end = entry["data_offsets"]
    raw = data[first:end]
    if entry["dtype"] == "F32":
        return struct.unpack(f"<{len(raw) // 4}f", raw)
    words = struct.unpack(f"<{len(raw) // 2}H", raw)
    return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(w << 16 for w in words)))


def rms_error(got, want):
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / sum(b * b for b in want))


def main(source, target, kind="delta"):
    metadata, header, data = load(source)
    cases, out, blob = {}, {}, b""
    for case in sorted(c for c in metadata if c.startswith("hh_") == (kind == "hh")):
        info = json.loads(metadata[case])
        batch = info["B"]
        if kind != "hh":
            numbers = {key: floats(header[f"{case}.{key}"], data) for key in ("truth_o", "truth_s", "cuda_o", "cuda_s")}
            info["cuda_o"] = rms_error(numbers["cuda_o"], numbers["truth_o"])
            info["cuda_s"] = rms_error(numbers["cuda_s"], numbers["truth_s"])
        info["B"], info["columns"] = 1, COLUMNS
        cases[case] = json.dumps(info)
        for key in ("q", "k", "v", "beta", "g", "M", "S0", "truth_o", "truth_s"):
            name = f"{case}.{key}"
            if name not in header:
                continue
            entry = header[name]
            first, end = entry["data_offsets"]
            raw, shape = data[first:first + (end - first) // batch], entry["shape"]
            if batch > 1:
                shape = [1] + shape[1:]
            if key.startswith("truth"):
                kept = floats({"dtype": "F32", "data_offsets": [0, len(raw)]}, raw)[::COLUMNS]
                raw, shape[-1] = struct.pack(f"<{len(kept)}f", *kept), shape[-1] // COLUMNS
            out[name] = {"dtype": entry["dtype"], "shape": shape, "data_offsets": [len(blob), len(blob) + len(raw)]}
            blob += raw
    text = json.dumps({"__metadata__": cases, **out}).encode()
    text += b" " * (-len(text) % 8)
    with open(target, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + blob)


if __name__ == "__main__":
    main(*sys.argv[1:])
