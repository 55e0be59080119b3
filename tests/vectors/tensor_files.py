"""Safetensors files and bfloat16, for the scripts that make vectors with numpy."""
import json, struct
import numpy as np

TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64}


def to_bf16(x):
    b = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(h):
    return (h.astype(np.uint32) << 16).view(np.float32)


def load(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    tensors = {}
    for name, t in header.items():
        if name != "__metadata__":
            raw = data[slice(*t["data_offsets"])]
            half = t["dtype"] == "BF16"
            x = from_bf16(np.frombuffer(raw, np.uint16)) if half else np.frombuffer(raw, TYPES[t["dtype"]])
            tensors[name] = x.reshape(t["shape"])
    return tensors


def save(path, tensors, what):
    header, blob = {"__metadata__": {"what": what}}, b""
    for name, x in tensors.items():
        x = np.ascontiguousarray(x)
        dtype = "BF16" if x.dtype == np.uint16 else next(k for k, v in TYPES.items() if v == x.dtype)
        header[name] = dict(dtype=dtype, shape=x.shape, data_offsets=[len(blob), len(blob) + x.nbytes])
        blob += x.tobytes()
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + blob)
