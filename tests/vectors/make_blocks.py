#!/usr/bin/env python3
"""Blocks of every GGUF type with their values in float64: make_blocks.py GGUF_BLOCKS, the folder of gguf_blocks.py.

Writes ops/blocks.safetensors: for each type NAME, NAME (blocks, bytes of one), the bytes as BF16 numbers, and
NAME.values (blocks, values), rounded from float64 to F32. Bytes are random, scales are finite."""
import os, sys
import numpy as np

sys.path.insert(0, sys.argv[1])
import gguf_blocks
from tensor_files import save, to_bf16

BLOCKS = 4
SCALES = {"Q6_K": [208], "Q4_K": [0, 2], "Q5_K": [0, 2]}  # bytes at which f16 scales begin; others: 0
rng = np.random.default_rng(18)
tensors = {}
for name, values, size, decode in gguf_blocks.TYPES.values():
    if name not in ("Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"):
        continue
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in SCALES.get(name, [0]):
        scales = rng.normal(size=BLOCKS) * 0.01
        scales[1] = 3e-6  # not normal in f16
        blocks[:, at:at + 2] = scales.astype("<f2").view(np.uint8).reshape(BLOCKS, 2)
    tensors[name.lower()] = to_bf16(blocks)
    tensors[name.lower() + ".values"] = decode(blocks).astype(np.float32)
save(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops", "blocks.safetensors"), tensors, "make_blocks.py")
