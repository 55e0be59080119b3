#!/usr/bin/env python3
"""Times llama.cpp's library on one GGUF file, as llama-bench does: prompts, and single tokens behind nothing.

    bench_llama.py FOLDER FILE.gguf [--prompts 512,2048,8192] [--decode 128] [--tries 3]

FOLDER has libllama and the ggml backends of a build, such as the npm package @node-llama-cpp/linux-x64-cuda, which has
no llama-bench. Every backend there is loaded; all layers go to the GPU. Prompts are read in batches of 2,048 tokens.
Prints tokens/s: the best of the tries, and all of them."""
import argparse
import ctypes
import glob
import os
import random
import time


class Options(ctypes.Structure):
    """A struct of options as the library fills it. It is larger than the library's, of which only the beginning is
    known here."""

    _fields_ = [("words", ctypes.c_uint32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in "tokens embd pos counts ids logits".split()]


def load(folder, name):
    return ctypes.CDLL(sorted(glob.glob(os.path.join(folder, name)))[0], mode=ctypes.RTLD_GLOBAL)


p = argparse.ArgumentParser()
p.add_argument("folder")
p.add_argument("file")
p.add_argument("--prompts", default="512,2048,8192")
p.add_argument("--decode", type=int, default=128)
p.add_argument("--tries", type=int, default=3)
a = p.parse_args()

load(a.folder, "libggml-base.so*")
ggml = load(a.folder, "libggml.*so*")
llama = load(a.folder, "libllama.*so*")
ggml.ggml_backend_load_all_from_path(a.folder.encode())
for name in ("llama_model_default_params", "llama_context_default_params"):
    getattr(llama, name).restype = Options
for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_get_memory", "llama_model_get_vocab"):
    getattr(llama, name).restype = ctypes.c_void_p
llama.llama_batch_get_one.restype = Batch
llama.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
llama.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]

start = time.time()
model = llama.llama_model_load_from_file(a.file.encode(), llama.llama_model_default_params())
if not model:
    raise SystemExit(f"{a.file}: llama.cpp does not load it")
print(f"loaded in {time.time() - start:.1f} s", flush=True)
prompts = [int(n) for n in a.prompts.split(",")]
options = llama.llama_context_default_params()
options.words[0] = max(prompts + [a.decode]) + 64  # n_ctx
options.words[1] = options.words[2] = 2048  # n_batch, n_ubatch
context = ctypes.c_void_p(llama.llama_init_from_model(ctypes.c_void_p(model), options))
memory = ctypes.c_void_p(llama.llama_get_memory(context))
vocabulary = llama.llama_vocab_n_tokens(ctypes.c_void_p(llama.llama_model_get_vocab(ctypes.c_void_p(model))))


def read(tokens):
    ids = (ctypes.c_int32 * len(tokens))(*tokens)
    if llama.llama_decode(context, llama.llama_batch_get_one(ids, len(tokens))):
        raise SystemExit("llama_decode failed")
    llama.llama_synchronize(context)


def timed(what, n, size):
    rates = []
    for _ in range(a.tries + 1):  # the first one warms up
        llama.llama_memory_clear(memory, ctypes.c_bool(True))
        tokens = [random.randrange(vocabulary) for _ in range(n)]
        start = time.time()
        for i in range(0, n, size):
            read(tokens[i : i + size])
        llama.llama_get_logits_ith(context, -1)
        rates.append(n / (time.time() - start))
    print(f"{what:14s} {max(rates[1:]):9.1f} tokens/s of " + ", ".join(f"{r:.1f}" for r in rates[1:]), flush=True)


for n in prompts:
    timed(f"prompt {n}", n, 2048)
if a.decode:
    timed(f"decode {a.decode}", a.decode, 1)
