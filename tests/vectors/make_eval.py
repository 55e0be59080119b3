#!/usr/bin/python3
"""Makes tests/vectors/eval/expected.json: what lm-evaluation-harness's arithmetic gives for the small task files beside
it, over float64 logits of models/novelist.

usage: make_eval.py SPEC TOP        SPEC has reference_model.py and reference.py (numpy); TOP is this repository

For who makes the fixtures; SPEC is not in this repository (spec.py).

It shares no code with apps/eval*.c: prompts, tokenizer, windows, sums and errors are written again from the harness's
rules (docs/eval.md)."""
import json, math, pathlib, random, re, struct
import numpy as np
import spec

folder, top = spec.arguments(__doc__, 2)[:2]
top = pathlib.Path(top)
_, RM = spec.modules(folder, "reference", "reference_model")

here, model = top / "tests/vectors/eval", top / "models/novelist"
MAX_LENGTH = 200  # below the documents' lengths, so that there are windows; the test asks for the same


# ---------------------------------------------------------------- the model

def load(path):
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        x = raw[8 + n + a:8 + n + b]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(x, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(x, {"F32": np.float32, "F16": np.float16}[t["dtype"]])
        tensors[name] = x.astype(np.float64).reshape(t["shape"])
    return tensors


config = json.loads((model / "config.json").read_text())
tensors = load(model / "model.safetensors")
BOS = config["bos_token_id"]


def score(context, continuation):
    """Log-likelihood of the continuation's tokens, and whether each is the likeliest."""
    ids = (context + continuation)[-(MAX_LENGTH + 1):]
    logits = np.asarray(RM.forward(tensors, config, ids[:-1])[0], np.float64)[-len(continuation):]
    top_ = logits.max(-1, keepdims=True)
    logp = logits - top_ - np.log(np.exp(logits - top_).sum(-1, keepdims=True))
    return (float(logp[np.arange(len(continuation)), continuation].sum()),
            bool((logits.argmax(-1) == continuation).all()))


# ---------------------------------------------------------------- the tokenizer: byte-level BPE

bpe = json.loads((model / "tokenizer.json").read_text())["model"]
vocab, ranks = bpe["vocab"], {tuple(p): r for r, p in enumerate(bpe["merges"])}
# GPT-2's pattern; [^\W\d_] is \p{L} and \d is \p{N} for every text here.
words = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
hidden = [b for b in range(256) if b not in visible]
alphabet = {b: chr(b) for b in visible} | {b: chr(256 + n) for n, b in enumerate(hidden)}


def merge(word):
    while len(word) > 1:
        best = min(zip(word, word[1:]), key=lambda p: ranks.get(p, len(ranks)))
        if best not in ranks:
            break
        out, at = [], 0
        while at < len(word):
            pair = tuple(word[at:at + 2]) == best
            out.append("".join(word[at:at + 1 + pair]))
            at += 1 + pair
        word = out
    return word


def encode(text, special):
    if text.startswith("<s>"):  # the harness adds no second one
        return [BOS, *encode(text[3:], False)]
    ids = [vocab[t] for w in words.findall(text) for t in merge([alphabet[b] for b in w.encode()])]
    return [BOS, *ids] if special else ids


# ---------------------------------------------------------------- the harness's rules

def loglikelihood(context, continuation, special=True):
    if isinstance(context, list):
        return score(context, continuation)
    if context == "":
        return score([BOS], encode(continuation, False))
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    before = encode(context, special)
    return score(before, encode(context + continuation, special)[len(before):])


def rolling(text, special=True):
    ids, total, done = encode(text, special), 0.0, 0
    while done < len(ids):
        n = min(MAX_LENGTH, len(ids) - done)
        end = done + n
        given = [BOS] if done == 0 else ids[end - MAX_LENGTH - 1:done]
        total += score(given, ids[done:end])[0]
        done = end
    return total, len(ids)


def detokenize(s):
    s = s.replace("s '", "s'")
    s = re.sub(r"/' [0-9]/", r"/'[0-9]/", s)
    for mark in "-,.":
        s = s.replace(f" @{mark}@ ", mark)
    for mark in ":;.!?,":
        s = s.replace(f" {mark} ", f"{mark} ")
    for a, b in ("()", "[]", "{}", '""', "''"):
        inside = "[^" + re.escape(b) + "]*?"
        s = re.sub(re.escape(a) + r"\s*(" + inside + r")\s*" + re.escape(b), lambda m: a + m[1] + b, s)
    for n in (4, 3, 2):
        s = s.replace(" ".join("=" * n), "=" * n)
    for a, b in ((" \u00b0 ", "\u00b0"), (" \n", "\n"), ("\n ", "\n"), (" N ", " 1 "), (" 's", "'s")):
        s = s.replace(a, b)
    return s


def documents(text):
    lines = []
    for line in text.split("\n"):
        short = line.replace("= = =", "===").replace("= =", "==").strip()
        if short.startswith("= ") and short.endswith(" ="):
            if "\n".join(lines).strip():
                yield "\n".join(lines)
            lines = []
        lines.append(line)
    yield "\n".join(lines)


def mean_error(x):
    m = sum(x) / len(x)
    return math.sqrt(sum((v - m) ** 2 for v in x) / (len(x) - 1)) / math.sqrt(len(x))


def bootstrap(f, x, draws=100000):
    rng = random.Random(1234)
    values = [f(rng.choices(x, k=len(x))) for _ in range(draws)]
    m = sum(values) / draws
    return math.sqrt(sum((v - m) ** 2 for v in values) / (draws - 1))


def perplexity(x):
    return math.exp(-sum(x) / len(x))


def lines(name):
    return [json.loads(x) for x in (here / name).read_text(encoding="utf8").splitlines()]


def multiple(cases):
    """cases: (contexts, continuations, choices, gold)."""
    ll, right = [], {"acc": [], "acc_norm": [], "acc_bytes": []}
    for contexts, continuations, choices, gold in cases:
        x = np.array([loglikelihood(c, t)[0] for c, t in zip(contexts, continuations)])
        ll.append(x.tolist())
        for key, size in (("acc", 1), ("acc_norm", np.array([len(c) for c in choices], float)),
                          ("acc_bytes", np.array([len(c.encode()) if isinstance(c, str) else len(c) for c in choices],
                                                 float))):
            right[key].append(float(np.argmax(x / size) == gold))
    return {"ll": ll, "metrics": {k: [sum(v) / len(v), mean_error(v)] for k, v in right.items()}}


def plain(context, choices, gold):
    return [context] * len(choices), [" " + c for c in choices], choices, gold


def wikihow(text):
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def winogrande(d):
    gap = d["sentence"].index("_")
    options = [d["option1"], d["option2"]]
    contexts = [d["sentence"][:gap] + o for o in options]
    return contexts, [" " + d["sentence"][gap + 1:].strip()] * 2, contexts, int(d["answer"]) - 1


def arc(d):
    q = d["question"]
    if isinstance(q, dict):
        texts, labels, q = [c["text"] for c in q["choices"]], [c["label"] for c in q["choices"]], q["stem"]
    else:
        texts, labels = d["choices"]["text"], d["choices"]["label"]
    return plain(f"Question: {q}\nAnswer:", texts, labels.index(d["answerKey"]))


def case(d):
    before = d.get("delimiter", " ") if isinstance(d["context"], str) else []
    n = len(d["choices"])
    return [d["context"]] * n, [before + c for c in d["choices"]], d["choices"], d["gold"]


def lambada(special):
    pairs = [(" ".join(t.split(" ")[:-1]), " " + t.split(" ")[-1]) for t in (d["text"] for d in lines("lambada.jsonl"))]
    got = [loglikelihood(c, t, special) for c, t in pairs]
    ll, right = [g[0] for g in got], [float(g[1]) for g in got]
    return {"ll": [[x] for x in ll], "metrics": {"acc": [sum(right) / len(right), mean_error(right)],
                                                 "perplexity": [perplexity(ll), bootstrap(perplexity, ll)]}}


def wikitext():
    pages = list(documents((here / "wikitext.raw").read_text(encoding="utf8")))
    got = [rolling(detokenize(p)) for p in pages]
    total = -sum(g[0] for g in got)
    n_words = sum(len(re.split(r"\s+", p)) for p in pages)
    n_bytes = sum(len(p.encode()) for p in pages)
    return {"ll": [[g[0]] for g in got], "metrics": {
        "word_perplexity": [math.exp(total / n_words), None], "byte_perplexity": [math.exp(total / n_bytes), None],
        "bits_per_byte": [total / n_bytes / math.log(2), None],
        "token_perplexity": [math.exp(total / sum(g[1] for g in got)), None]}}


labels = [int(x) for x in (here / "piqa-labels.lst").read_text().split()]
expected = {
    "max_length": MAX_LENGTH,
    "lambada": lambada(True),
    "lambada without begin tokens": lambada(False),
    "wikitext": wikitext(),
    "piqa": multiple(plain(f"Question: {d['goal']}\nAnswer:", [d["sol1"], d["sol2"]], g)
                     for d, g in zip(lines("piqa.jsonl"), labels)),
    "hellaswag": multiple(plain(wikihow(f"{d['activity_label']}: {d['ctx_a']} {d['ctx_b'].capitalize()}"),
                                [wikihow(e) for e in d["endings"]], int(d["label"])) for d in lines("hellaswag.jsonl")),
    "winogrande": multiple(winogrande(d) for d in lines("winogrande.jsonl")),
    "arc": multiple(arc(d) for d in lines("arc.jsonl")),
    "boolq": multiple(plain(f"{d['passage']}\nQuestion: {d['question']}?\nAnswer:", ["no", "yes"],
                            int(d["label"] if "label" in d else d["answer"])) for d in lines("boolq.jsonl")),
    "siqa": multiple(plain(f"Q: {d['context']} {d['question']}\nA:", [d["answerA"], d["answerB"], d["answerC"]],
                           int(d["label"]) - 1) for d in lines("siqa.jsonl")),
    "cases": multiple(case(d) for d in lines("cases.jsonl")),
}
for unused in ("acc_norm", "acc_bytes"):  # the harness has none for it: its choices are contexts
    del expected["winogrande"]["metrics"][unused]
(here / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
