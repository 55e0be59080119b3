#!/usr/bin/env python3
# Cuts the reference gradients down to what the tests read: make_grad.py REFERENCE OUT
# REFERENCE: the folder of reference gradients, which were computed in float64 with torch's autograd. Of whole models, OUT
# gets the tokens, the loss, and of every parameter's gradient its 2-norm and its product with sin(1), sin(2), ... Of the
# operations it gets those whose gradients no model shows alone, such as by the states before a call. Of the method grad
# it gets tokens and kept channels, of training one case of five steps, of one model some whole gradients.
import json, os, struct, sys


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    meta = header.pop("__metadata__", {})
    return meta, {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items()}


def write(path, meta, tensors):
    header, at = {"__metadata__": meta}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def models(source, out):
    for name in sorted(os.listdir(source)):
        meta, tensors = read(os.path.join(source, name))
        if name == "delta_net.safetensors":  # its checkpoint is not in the repository
            continue
        write(os.path.join(out, name), meta, {"tokens": tensors["tokens"]})


# Some tensors whole, for `deltaic validate`.
def whole(source, out):
    meta, tensors = read(source)
    layer = "grad.model.layers.1."
    names = [layer + "attn." + n + ".weight" for n in ("o_norm", "b_proj", "v_conv1d")]
    names += [layer + "attn_norm.weight", "grad.model.norm.weight"]
    write(out, meta, {n: tensors[n] for n in ["tokens", *names]})


KEPT = ["gated", "hh4_gated_dynamic", "mamba2", "short_conv"]


def ops(source, out):
    meta, tensors = read(source)
    kept = {n: t for n, t in tensors.items() if n.split(".")[0] in KEPT and n.split(".")[1] not in ("ST",)}
    write(out, {n: v for n, v in meta.items() if n in KEPT + ["conventions"]}, kept)


def saliency(source, out):
    for name in sorted(os.listdir(source)):
        meta, tensors = read(os.path.join(source, name))
        if name != "delta_net.safetensors":
            kept = {n: t for n, t in tensors.items() if not n.startswith(("grad", "scores"))}
            write(os.path.join(out, "saliency_" + name), meta, kept)


def main():
    source, out = sys.argv[1:]
    models(os.path.join(source, "models"), out)
    name = "tiny_delta_net.safetensors"
    whole(os.path.join(source, "models", name), os.path.join(out, "whole_" + name))
    saliency(os.path.join(source, "saliency"), out)
    name = "lora_tiny_gated_deltanet_h2.safetensors"
    write(os.path.join(out, "train_" + name), *read(os.path.join(source, "train", name)))
    ops(os.path.join(source, "ops", "ops.safetensors"), os.path.join(out, "ops.safetensors"))


main()
