"""Writes bpe.json: what models/novelist/tokenizer.json makes of the texts in cases.json, by the algorithm of GPT-2's
encoder.py. It shares no code and no library with the C tokenizer. Needs the `regex` package.

    python3 tests/vectors/tokenizer/make.py
"""
import json
import pathlib

import regex

here = pathlib.Path(__file__).parent
model = json.loads((here / "../../../models/novelist/tokenizer.json").read_text())["model"]
vocab, ranks = model["vocab"], {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
words = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
special = regex.compile(r"(<pad>|<s>|</s>)")

visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
hidden = [b for b in range(256) if b not in visible]
alphabet = {b: chr(b) for b in visible} | {b: chr(256 + n) for n, b in enumerate(hidden)}


def merge(word):
    """Merges the best pair everywhere, again and again, as the definition says."""
    while len(word) > 1:
        best = min(zip(word, word[1:]), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        merged, at = [], 0
        while at < len(word):
            pair = tuple(word[at : at + 2]) == best
            merged.append("".join(word[at : at + 1 + pair]))
            at += 1 + pair
        word = merged
    return word


def encode(text):
    ids = []
    for part in special.split(text):
        if special.fullmatch(part):
            ids.append(vocab[part])
            continue
        for word in words.findall(part):
            ids += [vocab[token] for token in merge([alphabet[b] for b in word.encode()])]
    return ids


cases = []
for case in json.loads((here / "cases.json").read_text())["sp"]:
    ids = encode(case["text"])
    cases.append({"text": case["text"], "ids": ids, "ids_special": [vocab["<s>"], *ids], "decoded": case["text"]})
(here / "bpe.json").write_text(json.dumps({"bpe": cases}) + "\n")
