#!/usr/bin/env python3
"""Makes tests/vectors/cuda/NAME.safetensors from dump_fla.py's files: make_cuda.py OUT BF16.safetensors F32.safetensors

BF16 was made with --like the float64 reference of tests/vectors/models. Keeps the tokens, the float64 logits and mixer
outputs, fla's in both precisions (the default model's mixer outputs are left out: five megabytes), and their metadata."""
import json, struct, sys


def load(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        return header, f.read()


out, blob, meta = {}, b"", {}
for path in sys.argv[2:]:
    header, data = load(path)
    meta.update({k: v for k, v in header["__metadata__"].items() if k.startswith("cuda_") or k in ("computed", "precision")})
    for name, t in header.items():
        wanted = name in ("input_ids", "positions", "logits", "mixer_output") or name.startswith("cuda_")
        a, b = t["data_offsets"] if name != "__metadata__" else (0, 0)
        if not wanted or name in out or (name.endswith("mixer_output") and b - a > 1 << 18):
            continue
        out[name] = dict(t, data_offsets=[len(blob), len(blob) + b - a])
        blob += data[a:b]
head = json.dumps(dict(__metadata__=meta, **out)).encode()
head += b" " * (-len(head) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(head)) + head + blob)
