#!/usr/bin/python3
"""Makes tests/vectors/models/novelist.safetensors: what models/novelist must compute, cut down from a full reference
file (float64 logits, greedy tokens, mean NLL). Usage: make_models.py REFERENCE.safetensors OUT"""
import json, struct, sys

KEEP = ("input_ids", "positions", "logits", "greedy.prompt", "greedy.tokens", "greedy.margin", "eval_tokens")
with open(sys.argv[1], "rb") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    header = json.loads(f.read(n))
    data = f.read()
out, blob = {"__metadata__": header["__metadata__"]}, b""
for name in KEEP:
    t = header[name]
    a, b = t["data_offsets"]
    out[name] = dict(t, data_offsets=[len(blob), len(blob) + b - a])
    blob += data[a:b]
head = json.dumps(out).encode()
head += b" " * (-len(head) % 8)
with open(sys.argv[2], "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + blob)
