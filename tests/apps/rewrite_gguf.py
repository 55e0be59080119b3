#!/usr/bin/env python3
"""Rewrites a GGUF file with other keys: rewrite_gguf.py IN OUT [key=JSON | key=@FILE ...] [parts=N].

A key's value is text, an integer, or a list of texts or of integers. parts=N writes N files, whose names end in
-0000i-of-0000N.gguf in place of .gguf; the keys are in the first."""
import json
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
data = open(sys.argv[1], "rb").read()
at = 8


def number(form="Q"):
    global at
    (value,) = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize(form)
    return value


def text():
    global at
    size = number()
    at += size
    return data[at - size:at]


def skip(kind):
    global at
    if kind == 8:
        text()
    elif kind == 9:
        inner, count = number("I"), number()
        for _ in range(count):
            skip(inner)
    else:
        at += SIZES[kind]


def string(s):
    return struct.pack("<Q", len(s)) + s


def value(v):
    """A type and what follows it."""
    if isinstance(v, list):
        items = [value(x) for x in v]
        return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(v)) + b"".join(i[4:] for i in items)
    return struct.pack("<Ii", 5, v) if isinstance(v, int) else struct.pack("<I", 8) + string(v.encode())


tensors, keys = number(), {}
for _ in range(number()):
    name, begin = text(), at
    skip(number("I"))
    keys[name] = data[begin:at]
listed = []
for _ in range(tensors):
    begin = at
    text()
    rank = number("I")
    at += 8 * rank + 4
    listed.append((data[begin:at], number()))
base = (at + 31) // 32 * 32
ends = sorted([offset for _, offset in listed] + [len(data) - base])

parts = 1
for key, given in (a.split("=", 1) for a in sys.argv[3:]):
    if key == "parts":
        parts = int(given)
    elif given.startswith("@"):
        keys[key.encode()] = value(open(given[1:], encoding="utf-8").read())
    else:
        keys[key.encode()] = value(json.loads(given))

for part in range(parts):
    mine = listed[part::parts]
    own = dict(keys) if part == 0 else {}
    if parts > 1:
        own[b"split.no"], own[b"split.count"], own[b"split.tensors.count"] = value(part), value(parts), value(tensors)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(mine), len(own)) + b"".join(string(k) + v for k, v in own.items())
    blob = b""
    for head, offset in mine:
        out += head + struct.pack("<Q", len(blob))
        blob += data[base + offset:base + ends[ends.index(offset) + 1]]
        blob += bytes(-len(blob) % 32)
    path = sys.argv[2] if parts == 1 else f"{sys.argv[2][:-5]}-{part + 1:05}-of-{parts:05}.gguf"
    open(path, "wb").write(out + bytes(-len(out) % 32) + blob)
