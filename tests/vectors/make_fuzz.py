#!/usr/bin/env python3
"""Writes the fuzzers' seeds and dictionaries: make_fuzz.py. Small valid files of every kind, so that mutations reach
past the JSON parser."""
import json, os, struct

here = os.path.dirname(os.path.abspath(__file__))


def put(target, name, data):
    folder = os.path.join(here, "fuzz", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False).encode())


def bpe(vocab, merges, **more):
    model = dict(type="BPE", vocab={t: i for i, t in enumerate(vocab)}, merges=merges)
    model.update(more)
    return model


letters = list("abehlot5Ġ.") + ["he", "ll", "llo", "hello", "Ġa", "ab"]
merges = ["h e", "l l", "ll o", "he llo", "Ġ a", "a b"]
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
put("fuzz_tokenizer", "gpt2", dict(model=bpe(letters, merges), pre_tokenizer=byte_level, decoder=byte_level, added_tokens=[
    dict(id=16, content="</s>", special=True, lstrip=True, rstrip=False, single_word=False, normalized=False)]))
put("fuzz_tokenizer", "llama3", dict(
    model=bpe(letters, [m.split() for m in merges], ignore_merges=True), decoder=byte_level,
    pre_tokenizer=dict(type="Sequence", pretokenizers=[
        dict(type="Split", pattern={"Regex": r"(?i:'s|'t)|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}, behavior="Isolated",
             invert=False), dict(byte_level, use_regex=False)])))
pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(0x60, 0x70)] + ["▁", "a", "b", "l", "o", "▁a", "ab", "lo"]
sp = bpe(pieces, ["▁ a", "a b", "l o"], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
decoders = [dict(type="Replace", pattern={"String": "▁"}, content=" "), dict(type="ByteFallback"), dict(type="Fuse"),
            dict(type="Strip", content=" ", start=1, stop=0)]
template = dict(type="TemplateProcessing", single=[{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                pair=[], special_tokens={"<s>": dict(id="<s>", ids=[1], tokens=["<s>"])})
put("fuzz_tokenizer", "llama2", dict(model=sp, decoder=dict(type="Sequence", decoders=decoders), post_processor=template,
    normalizer=dict(type="Sequence", normalizers=[dict(type="Prepend", prepend="▁"), dict(type="Replace", pattern={"String": " "}, content="▁")])))
put("fuzz_tokenizer", "metaspace", dict(model=sp, post_processor=template,
    pre_tokenizer=dict(type="Metaspace", replacement="▁", prepend_scheme="first", split=True),
    decoder=dict(type="Metaspace", replacement="▁", prepend_scheme="first", split=True)))
put("fuzz_tokenizer", "normalizers", dict(model=bpe(letters, merges), pre_tokenizer=dict(type="Digits", individual_digits=True),
    normalizer=dict(type="Sequence", normalizers=[dict(type="NFKC"), dict(type="Lowercase"), dict(type="StripAccents"),
                                                  dict(type="Strip", strip_left=True, strip_right=True)]), decoder=None))
put("fuzz_tokenizer", "words", dict(model=bpe(letters, merges), pre_tokenizer=dict(type="Sequence", pretokenizers=[
    dict(type="Whitespace"), dict(type="Punctuation", behavior="Isolated"), dict(type="WhitespaceSplit")])))

for name in sorted(os.listdir(os.path.join(here, "models"))):
    config = os.path.join(here, "models", name, "config.json")
    if name.startswith(("tiny", "released")) and os.path.exists(config):
        with open(config) as f:
            put("fuzz_config", name, b"0" + json.dumps(json.load(f)).encode())  # 0: without tensors; 1: with some


def tensors(header, data):
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + data


put("fuzz_safetensors", "two", tensors({"__metadata__": {"a": "b"}, "x": dict(dtype="F32", shape=[2, 1], data_offsets=[0, 8]),
                                        "y": dict(dtype="BF16", shape=[3], data_offsets=[8, 14])}, bytes(14)))
put("fuzz_safetensors", "empty", tensors({"z": dict(dtype="I64", shape=[0], data_offsets=[0, 0])}, b""))
put("fuzz_safetensors", "scalar", tensors({"s": dict(dtype="F16", shape=[], data_offsets=[0, 2])}, bytes(2)))



def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def gguf(keys, tensors, data):
    """What follows the magic number and the version. keys: (name, type, bytes); tensors: (name, sizes, type, offset)."""
    head = struct.pack("<QQ", len(tensors), len(keys))
    for name, kind, value in keys:
        head += text(name) + struct.pack("<I", kind) + value
    for name, sizes, kind, offset in tensors:
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
    return head + bytes(-(len(head) + 8) % 32) + data


put("fuzz_gguf", "keys", gguf([("general.architecture", 8, text("qwen35")), ("a", 4, struct.pack("<I", 7)), ("b", 6, struct.pack("<f", .5)),
                               ("c", 7, b"\1"), ("d", 11, struct.pack("<q", -1)), ("e", 12, struct.pack("<d", 1e300)),
                               ("tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("Ġb")),
                               ("types", 9, struct.pack("<IQ2i", 5, 2, 1, 3))], [], b""))
put("fuzz_gguf", "tensors", gguf([("general.alignment", 4, struct.pack("<I", 32))],
                                 [("a", [4, 2], 0, 0), ("b", [32, 1], 8, 32), ("c", [256], 12, 96), ("d", [256], 14, 256)], bytes(512)))
sizes = dict(block_count=4, embedding_length=8, feed_forward_length=16, full_attention_interval=2, nextn_predict_layers=1) | {
    "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 4, "attention.value_length": 4,
    "rope.dimension_count": 2, "ssm.conv_kernel": 4, "ssm.state_size": 4, "ssm.group_count": 1, "ssm.time_step_rank": 2,
    "ssm.inner_size": 8}
put("fuzz_gguf", "qwen35", gguf(
    [("general.architecture", 8, text("qwen35")), ("qwen35.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-6)),
     ("qwen35.rope.freq_base", 6, struct.pack("<f", 1e7)), ("tokenizer.ggml.model", 8, text("gpt2")),
     ("tokenizer.ggml.pre", 8, text("qwen2")), ("tokenizer.ggml.add_bos_token", 7, b"\1"),
     ("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 0)), ("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 1)),
     ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 5) + b"".join(map(text, ["<s>", "</s>", "a", "b", "ab"]))),
     ("tokenizer.ggml.token_type", 9, struct.pack("<IQ5i", 5, 5, 3, 4, 1, 1, 1)),
     ("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, 1) + text("a b"))]
    + [("qwen35." + k, 4, struct.pack("<I", v)) for k, v in sizes.items()], [("token_embd.weight", [8, 5], 0, 0)], bytes(160)))
own = json.dumps(dict(model_type="delta_net", hidden_size=8, num_hidden_layers=1, num_heads=2, vocab_size=5, intermediate_size=16))
put("fuzz_gguf", "own", gguf(
    [("general.architecture", 8, text("delta_net")), ("deltaic.config", 8, text(own)),
     ("deltaic.generation_config", 8, text('{"eos_token_id": [1, 2], "do_sample": true, "top_k": 5}')),
     ("tokenizer.huggingface.json", 8, text(json.dumps(dict(model=bpe(["a", "b", "ab"], ["a b"])))))],
    [("model.embeddings.weight", [8, 5], 0, 0)], bytes(160)))
put("fuzz_gguf", "parts", gguf([("split.no", 2, b"\0\0"), ("split.count", 2, b"\2\0"), ("split.tensors.count", 5, b"\1\0\0\0")],
                               [("a", [8], 30, 0)], bytes(32)))

words = {
    "fuzz_tokenizer": """{ } [ ] : , null true false "type" "model" "vocab" "merges" "BPE" "added_tokens" "id" "content" "special"
        "normalizer" "pre_tokenizer" "post_processor" "decoder" "Sequence" "ByteLevel" "Metaspace" "Split" "Regex" "String" "pattern"
        "behavior" "Isolated" "Removed" "MergedWithPrevious" "MergedWithNext" "Contiguous" "invert" "NFC" "NFD" "NFKD" "Replace"
        "Prepend" "ByteFallback" "Fuse" "Strip" "byte_fallback" "unk_token" "fuse_unk" "ignore_merges" "TemplateProcessing" """,
    "fuzz_config": """{ } [ ] : , null true false 0 -1 1e300 "model_type" "delta_net" "gated_deltanet" "hidden_size" "num_heads"
        "num_v_heads" "head_dim" "expand_k" "expand_v" "num_hidden_layers" "attn" "layers" "window_size" "rope_theta" "vocab_size"
        "qk_norm" "qk_activation" "use_gate" "use_beta" "use_short_conv" "conv_size" "intermediate_size" "hidden_ratio" """,
    "fuzz_safetensors": """{ } [ ] : , "__metadata__" "dtype" "shape" "data_offsets" "F32" "F16" "BF16" "I64" "I32" "F64"
        18446744073709551615 9223372036854775807 4294967296 """,
    "fuzz_gguf": """general.architecture general.alignment split.no split.count split.tensors.count qwen35 output.weight
        qwen35.attention.recurrent_layers qwen35.vocab_size tokenizer.ggml.add_eos_token deltaic.config
        deltaic.generation_config tokenizer.huggingface.json qwen2 qwen35 llama-bpe gpt-2 <s> </s>""",
    "fuzz_chat": "<think> </think> <tool_response> </tool_response> <|im_start|> <|im_end|>",
}
for target, text in words.items():
    with open(os.path.join(here, "fuzz", target + ".dict"), "w") as f:
        for word in text.split():
            f.write('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"\n')
