#!/usr/bin/env python3
"""Reads a GGUF file by itself, and compares it with the folder that it was made from: check_gguf.py FILE FOLDER TYPE.

Of the matrices that a file and its folder both have as they are, every number must be within the error of its type."""
import json
import math
import struct
import sys

path, folder, wanted = sys.argv[1:]
data = open(path, "rb").read()
at = 0
FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def number(form="Q"):
    global at
    (value,) = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize("<" + form)
    return value


def text():
    global at
    size = number()
    at += size
    return data[at - size:at].decode()


def value(kind):
    if kind == 8:
        return text()
    if kind == 9:
        inner, count = number("I"), number()
        return [value(inner) for _ in range(count)]
    return number(FORMS[kind])


def halves(b, i):
    return struct.unpack_from("<e", b, i)[0]


def nibbles(b):
    return [x & 15 for x in b] + [x >> 4 for x in b]


def scales_k(s):
    return [(s[j] & 63, s[j + 4] & 63) if j < 4 else (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4)
            for j in range(8)]


def k(b, five):
    d, m, q, out = halves(b, 0), halves(b, 2), b[48:] if five else b[16:], []
    for j, (scale, least) in enumerate(scales_k(b[4:16])):
        for i in range(32):
            x = q[j // 2 * 32 + i] >> j % 2 * 4 & 15
            x |= (b[16 + i] >> j & 1) << 4 if five else 0
            out.append(d * scale * x - m * least)
    return out


def q6_k(b):
    d, out = halves(b, 208), []
    for i in range(256):
        half, r, l = i // 128, i // 32 % 4, i % 32
        x = b[64 * half + 32 * (r & 1) + l] >> r // 2 * 4 & 15 | (b[128 + 32 * half + l] >> 2 * r & 3) << 4
        out.append(d * struct.unpack_from("b", b, 192 + i // 16)[0] * (x - 32))
    return out


IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def iq4_xs(b):
    d, high, out = halves(b, 0), b[2] | b[3] << 8, []
    for j in range(8):
        scale = (b[4 + j // 2] >> j % 2 * 4 & 15 | (high >> 2 * j & 3) << 4) - 32
        out += [d * scale * IQ4[x] for x in nibbles(b[8 + 16 * j:24 + 16 * j])]
    return out


def q5_0(b):
    fifth = int.from_bytes(b[2:6], "little")
    return [halves(b, 0) * ((x | (fifth >> i & 1) << 4) - 16) for i, x in enumerate(nibbles(b[6:]))]


# number: name, elements and bytes of a block, decoder, the most that the error may be of the numbers' size (RMS)
TYPES = {0: ("f32", 1, 4, lambda b: struct.unpack("<f", b), 0), 1: ("f16", 1, 2, lambda b: struct.unpack("<e", b), 4e-4),
         30: ("bf16", 1, 2, lambda b: struct.unpack("<f", b"\0\0" + b), 0),
         8: ("q8_0", 32, 34, lambda b: [halves(b, 0) * x for x in struct.unpack_from("32b", b, 2)], 0.006),
         2: ("q4_0", 32, 18, lambda b: [halves(b, 0) * (x - 8) for x in nibbles(b[2:])], 0.09), 6: ("q5_0", 32, 22, q5_0, 0.045),
         12: ("q4_k", 256, 144, lambda b: k(b, False), 0.07), 13: ("q5_k", 256, 176, lambda b: k(b, True), 0.035),
         14: ("q6_k", 256, 210, q6_k, 0.02), 20: ("iq4_nl", 32, 18, lambda b: [halves(b, 0) * IQ4[x] for x in nibbles(b[2:])], 0.09),
         23: ("iq4_xs", 256, 136, iq4_xs, 0.09)}
assert data[:4] == b"GGUF"
at = 4
version, tensors, count = number("I"), number(), number()
assert version == 3
keys = {}
for _ in range(count):
    name = text()
    keys[name] = value(number("I"))
listed = []
for _ in range(tensors):
    name, rank = text(), number("I")
    listed.append((name, [number() for _ in range(rank)], number("I"), number()))
base = -(-at // 32) * 32
end = 0
for name, shape, kind, offset in sorted(listed, key=lambda x: x[3]):  # one after the other, aligned
    assert offset == -(-end // 32) * 32 and shape[0] % TYPES[kind][1] == 0, name
    end = offset + math.prod(shape) // TYPES[kind][1] * TYPES[kind][2]
assert base + -(-end // 32) * 32 == len(data)
seen = {TYPES[kind][0] for _, _, kind, _ in listed}
assert wanted in seen, seen

# ---- the folder
raw = open(folder + "/model.safetensors", "rb").read()
(size,) = struct.unpack_from("<Q", raw)
header = json.loads(raw[8:8 + size])
prefix = "model.language_model." if "model.language_model.norm.weight" in header else "model."
SAME = {"ffn_gate.weight": "mlp.gate_proj.weight", "ffn_up.weight": "mlp.up_proj.weight", "ffn_down.weight": "mlp.down_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight", "attn_output.weight": "self_attn.o_proj.weight",
        "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight"}
checked = 0
for name, shape, kind, offset in listed:
    parts = name.split(".", 2)
    source = prefix + "embed_tokens.weight" if name == "token_embd.weight" else \
        f"{prefix}layers.{parts[1]}.{SAME[parts[2]]}" if parts[-1] in SAME and len(parts) == 3 else None
    if not source:
        continue
    begin, stop = header[source]["data_offsets"]
    assert header[source]["shape"] == shape[::-1] and header[source]["dtype"] == "BF16", name
    bits = raw[8 + size + begin:8 + size + stop]
    _, elements, block, decode, most = TYPES[kind]
    error = square = 0.0
    for i in range(0, math.prod(shape), 23 * elements if elements > 1 else 997):  # some of its blocks
        place = base + offset + i // elements * block
        for j, x in enumerate(decode(data[place:place + block])):
            (y,) = struct.unpack("<f", b"\0\0" + bits[2 * (i + j):2 * (i + j) + 2])
            error += (x - y) ** 2
            square += y * y
    assert square > 0 and math.sqrt(error / square) <= most, (name, TYPES[kind][0], math.sqrt(error / square))
    checked += 1
assert checked > 5

# ---- the keys
tokens = keys["tokenizer.ggml.tokens"]
with open(folder + "/tokenizer.json", encoding="utf-8") as f:
    tokenizer = json.load(f)
types = {a["content"]: 3 if a["special"] else 4 for a in tokenizer["added_tokens"]} | {t: 1 for t in tokenizer["model"]["vocab"]}
ids = {a["content"]: a["id"] for a in tokenizer["added_tokens"]} | tokenizer["model"]["vocab"]
for i, token in enumerate(tokens):
    assert ids.get(token, i) == i and keys["tokenizer.ggml.token_type"][i] == types.get(token, 5), token
assert set(ids) <= set(tokens)
assert keys["tokenizer.ggml.pre"] == ("qwen2" if keys["general.architecture"] == "qwen3next" else "qwen35")
assert keys["tokenizer.ggml.merges"] == [" ".join(m) for m in tokenizer["model"]["merges"]]
with open(folder + "/generation_config.json") as f:
    ends = json.load(f)["eos_token_id"]
assert [keys["tokenizer.ggml.eos_token_id"], keys["tokenizer.ggml.eot_token_id"]] == ends
assert keys["tokenizer.ggml.padding_token_id"] == ids["<|endoftext|>"]
with open(folder + "/tokenizer_config.json", encoding="utf-8") as f:
    assert keys["tokenizer.chat_template"] == json.load(f)["chat_template"]
assert abs(keys["general.sampling.temp"] - 0.7) < 1e-6 and keys["general.sampling.top_k"] == 20
assert "general.sampling.penalty_repeat" not in keys and keys["general.quantization_version"] == 2
print(keys["general.architecture"], keys["tokenizer.ggml.pre"], checked, "matrices")
