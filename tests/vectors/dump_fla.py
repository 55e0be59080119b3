#!/usr/bin/env python3
"""Writes what flash-linear-attention (fla) computes on this machine's CUDA device into a file that `deltaic validate`
reads (docs/validate.md).

    dump_fla.py CHECKPOINT OUT.safetensors --text book.txt                  a new reference: fla's numbers are it
    dump_fla.py CHECKPOINT OUT.safetensors --like REFERENCE.safetensors     REFERENCE with fla's numbers beside its own

Needs torch, triton, transformers and fla's source or package (PYTHONPATH); --text also `tokenizers`. Softmax-attention
layers run on flash-attn where it is installed and the dtype is a 16-bit one, else on torch's own attention.

fla's chunk kernels refuse float32, so that --dtype float32 uses the recurrent kernels, with IEEE products (no TF32)
unless --tf32 is given. Every number is stored in the dtype in which fla gave it."""
import argparse, json, math, os, struct, sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("checkpoint")
parser.add_argument("out")
parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
parser.add_argument("--mode", choices=["chunk", "fused_recurrent"], help="fla's kernels for more than 64 tokens")
parser.add_argument("--tf32", action="store_true", help="let float32 products round their inputs to TF32")
parser.add_argument("--like", help="a reference whose tokens are used, and whose tensors come along")
parser.add_argument("--name", help="what fla's tensors are called beside those of --like (default cuda_bf16 and so on)")
parser.add_argument("--text", help="a text to take tokens from")
parser.add_argument("--tokens", type=int, default=515)
parser.add_argument("--positions", type=int, default=75, help="about so many rows of logits are kept")
parser.add_argument("--windows", type=int, default=4, help="of 512 tokens, for the mean NLL; 0: none")
parser.add_argument("--greedy", type=int, default=64, help="greedy tokens after the first 24; 0: none")
parser.add_argument("--tensors", default="mixer_output", help="of residual,mixer_input,heads,mixer_output,state")
args = parser.parse_args()
wanted = [t for t in args.tensors.split(",") if t]
KINDS = ("residual", "mixer_input", "heads", "mixer_output", "state")
if any(t not in KINDS for t in wanted):
    parser.error("--tensors takes " + ", ".join(KINDS))
if bool(args.like) == bool(args.text):
    parser.error("either --like or --text")
if args.dtype == "float32" and not args.tf32:
    os.environ["TRITON_F32_DEFAULT"] = "ieee"  # read when triton is imported
args.mode = args.mode or ("fused_recurrent" if args.dtype == "float32" else "chunk")

import torch
import triton
import transformers
import fla  # registers its models with transformers
import fla.layers.attn
from transformers import AutoConfig, AutoModelForCausalLM

torch.backends.cuda.matmul.allow_tf32 = args.tf32
torch.backends.cudnn.allow_tf32 = args.tf32
DTYPE = getattr(torch, args.dtype)
SHORT = {"bfloat16": "bf16", "float16": "f16", "float32": "tf32" if args.tf32 else "f32"}[args.dtype]
CODES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
         torch.int32: "I32"}


# ---------------------------------------------------------------- safetensors, written and read here: few lines, and
# exact about metadata

def load(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = bytearray(f.read())
    metadata, tensors = header.pop("__metadata__", {}), {}
    back = {code: dtype for dtype, code in CODES.items()}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        raw = torch.frombuffer(data, dtype=torch.uint8, count=end - begin, offset=begin).clone()
        tensors[name] = raw.view(back[t["dtype"]]).reshape(t["shape"])
    return tensors, metadata


def save(path, tensors, metadata):
    header, at, blobs = {"__metadata__": metadata}, 0, []
    for name, x in tensors.items():
        x = x.detach().cpu().contiguous()
        blob = x.reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": CODES[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(blobs))


# ---------------------------------------------------------------- the model

def torch_attention(q, k, v, causal=True, window_size=(-1, -1), **_):
    """flash_attn_func by torch: q, k, v [B, T, heads, d], grouped key and value heads, a window to the left."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    rows = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    cols = torch.arange(k.shape[2], device=q.device)[None]
    mask = cols <= rows if causal else torch.ones_like(cols <= rows)
    if window_size[0] >= 0:
        mask &= cols >= rows - window_size[0]
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def open_model():
    if args.dtype == "float32" or fla.layers.attn.flash_attn_func is None:
        fla.layers.attn.flash_attn_func = torch_attention
    config = AutoConfig.from_pretrained(args.checkpoint)
    if hasattr(config, "attn_mode"):
        config.attn_mode = args.mode
    # Built and filled by hand: transformers 5 wants a dict where fla's classes still list their tied weights.
    cls = AutoModelForCausalLM._model_mapping[type(config)]
    if isinstance(cls._tied_weights_keys, list):
        cls._tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}
    model = cls(config)
    from safetensors.torch import load_file
    state = {}
    for name in sorted(os.listdir(args.checkpoint)):
        if name.endswith(".safetensors") and name.startswith("model"):
            state.update(load_file(os.path.join(args.checkpoint, name)))
    missing, unexpected = model.load_state_dict(state, strict=False)
    if config.tie_word_embeddings:
        model.lm_head.weight = model.get_input_embeddings().weight
        missing = [m for m in missing if m != "lm_head.weight"]
    if missing or unexpected:
        raise SystemExit(f"{args.checkpoint}: missing {missing}, unexpected {unexpected}")
    return model.to("cuda", DTYPE).eval()


def blocks_of(model):
    return (model.model if hasattr(model, "model") else model.backbone).layers


def mixer_of(block):
    return block.attn if hasattr(block, "attn") else block.mixer


class Record:
    """Hooks that keep what every layer reads and gives, as [T, ...] on the CPU."""

    def __init__(self, model):
        self.seen, self.handles = {}, []
        for i, block in enumerate(blocks_of(model)):
            mixer = mixer_of(block)
            out = mixer.o_proj if hasattr(mixer, "o_proj") else mixer.out_proj
            self.before(block, "residual", i)
            self.before(mixer, "mixer_input", i)
            self.before(out, "heads", i)
            self.handles.append(mixer.register_forward_hook(
                lambda m, a, y, i=i: self.keep("mixer_output", i, y[0] if isinstance(y, tuple) else y)))

    def before(self, module, kind, i):
        def hook(m, a, kw):
            self.keep(kind, i, a[0] if a else kw["hidden_states"])
        self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))

    def keep(self, kind, i, x):
        if kind in wanted:
            self.seen[kind, i] = x[0].detach().cpu()

    def close(self):
        for h in self.handles:
            h.remove()


@torch.no_grad()
def logits_of(model, ids):
    ids = torch.as_tensor(ids, dtype=torch.long, device="cuda")[None]
    return model(input_ids=ids, use_cache=False).logits[0]


@torch.no_grad()
def states_of(model, ids):
    """{layer: [value heads, key size, value size]}; gated_deltanet's kernels of 2026 keep values first."""
    import inspect
    ids = torch.as_tensor(ids, dtype=torch.long, device="cuda")[None]
    cache = model(input_ids=ids, use_cache=True).past_key_values
    states = {}
    for i, block in enumerate(blocks_of(model)):
        mixer, entry = mixer_of(block), cache[i]
        state = entry.get("recurrent_state") if isinstance(entry, dict) else None
        if state is None or not hasattr(mixer, "head_k_dim"):
            continue
        values_first = "state_v_first=True" in inspect.getsource(type(mixer).forward)
        states[i] = (state[0].transpose(-1, -2) if values_first else state[0]).float().cpu()
    return states


def mean_nll(model, windows):
    total, count = 0.0, 0
    for row in windows:
        row = torch.as_tensor(row, dtype=torch.long, device="cuda")
        logits = logits_of(model, row)[:-1].double()
        picked = logits.gather(1, row[1:, None])[:, 0]
        total += (torch.logsumexp(logits, dim=1) - picked).sum().item()
        count += len(row) - 1
    return total / count


def greedy(model, prompt, count):
    ids, margins = list(prompt), []
    for _ in range(count):
        best = logits_of(model, ids)[-1].float().topk(2)
        ids.append(best.indices[0].item())
        margins.append((best.values[0] - best.values[1]).item())
    return ids[len(prompt):], margins


# ---------------------------------------------------------------- what is written

def stack(kind, layers, seen):
    """One tensor [layers, ...] where every layer has it in one shape, else kind.LAYER."""
    have = [i for i in range(layers) if (kind, i) in seen]
    shapes = {tuple(seen[kind, i].shape) for i in have}
    if len(have) == layers and len(shapes) == 1:
        return {kind: torch.stack([seen[kind, i] for i in have])}
    return {f"{kind}.{i}": seen[kind, i] for i in have}


def activations(model, ids, positions):
    record = Record(model)
    logits = logits_of(model, ids)
    record.close()
    seen = dict(record.seen)
    if "state" in wanted:
        seen.update({("state", i): s for i, s in states_of(model, ids).items()})
    out = {"logits": logits[torch.as_tensor(positions, dtype=torch.long, device="cuda")].cpu()}
    for kind in wanted:
        out.update(stack(kind, len(blocks_of(model)), seen))
    return out


def program_text():
    source = os.path.dirname(os.path.dirname(os.path.abspath(fla.__file__)))
    commit = os.popen(f"git -C '{source}' rev-parse --short HEAD 2>/dev/null").read().strip()
    version = commit or getattr(fla, "__version__", "of unknown version")
    attention = "torch" if fla.layers.attn.flash_attn_func is torch_attention else "flash-attn"
    return (f"flash-linear-attention {version}, Triton {triton.__version__}, torch {torch.__version__} on an "
            f"{torch.cuda.get_device_name()}, {SHORT}, {args.mode} kernels, softmax attention by {attention}")


def take_tokens():
    """Tokens of the text: input_ids, then windows from what follows."""
    from tokenizers import Tokenizer
    text = open(args.text, encoding="utf-8").read()
    tokenizer = Tokenizer.from_file(os.path.join(args.checkpoint, "tokenizer.json"))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    need = args.tokens + 512 * args.windows
    if len(ids) < need:
        sys.exit(f"{args.text}: has {len(ids)} tokens, {need} are needed")
    return ids[:args.tokens], [ids[args.tokens + 512 * w:args.tokens + 512 * (w + 1)] for w in range(args.windows)]


def make_new(model):
    ids, windows = take_tokens()
    step = max(1, math.ceil(len(ids) / args.positions))
    positions = sorted({*range(0, len(ids), step), len(ids) - 1})
    tensors = {"input_ids": torch.tensor(ids, dtype=torch.int32),
               "positions": torch.tensor(positions, dtype=torch.int32)}
    tensors.update(activations(model, ids, positions))
    metadata = {"computed": program_text(), "precision": "tf32" if args.tf32 else args.dtype}
    if windows:
        tensors["eval_tokens"] = torch.tensor(windows, dtype=torch.int32)
        metadata["nll"] = repr(mean_nll(model, windows))
    if args.greedy:
        tokens, margins = greedy(model, ids[:24], args.greedy)
        tensors["greedy.prompt"] = torch.tensor(ids[:24], dtype=torch.int32)
        tensors["greedy.tokens"] = torch.tensor(tokens, dtype=torch.int32)
        tensors["greedy.margin"] = torch.tensor(margins, dtype=torch.float32)
    return tensors, metadata


def make_beside(model):
    tensors, metadata = load(args.like)
    name = args.name or "cuda_" + SHORT
    ids = tensors["input_ids"].reshape(-1).tolist()
    positions = tensors["positions"].tolist() if "positions" in tensors else range(len(ids))
    tensors.update({f"{name}.{k}": x for k, x in activations(model, ids, list(positions)).items()})
    metadata[name] = program_text()
    metadata[name + "_precision"] = "tf32" if args.tf32 else args.dtype
    if "eval_tokens" in tensors:
        metadata[name + "_nll"] = repr(mean_nll(model, tensors["eval_tokens"].tolist()))
    return tensors, metadata


model = open_model()
tensors, metadata = make_beside(model) if args.like else make_new(model)
save(args.out, tensors, metadata)
print(f"{args.out}: " + ", ".join(f"{k} {list(x.shape)}" for k, x in tensors.items()))
for key, value in metadata.items():
    print(f"  {key}: {value}")
