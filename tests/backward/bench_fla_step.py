#!/usr/bin/env python3
"""Times training steps of transformers + flash-linear-attention, without AdamW: what bench_step times of Deltaic.

    bench_fla_step.py FOLDER lora|everything ROWS T STEPS [checkpoint|whole]

For whoever has a CUDA machine with torch, transformers and fla; run both on the same card. FOLDER has a config.json of
fla's; weights are random, in bf16. lora: adapters of rank 32 on q_proj, k_proj and v_proj, and convolutions, norms and
biases themselves. checkpoint: every layer is computed again in the backward pass; whole: all its values are kept.
Prints the seconds of each step, then the median as tokens/s, and the most memory that torch had."""
import statistics
import sys
import time

import torch
import fla.models  # noqa: F401 (registers its models)
from transformers import AutoConfig, AutoModelForCausalLM


class Adapted(torch.nn.Module):
    """A matrix with an adapter beside it."""

    def __init__(self, base, rank=32, alpha=64):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.a = torch.nn.Parameter(0.01 * torch.randn(rank, base.in_features, device="cuda", dtype=torch.bfloat16))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, rank, device="cuda", dtype=torch.bfloat16))

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.a.T) @ self.b.T


def adapt(model):
    for name, p in model.named_parameters():
        p.requires_grad = any(part in name for part in ("conv1d", "norm", "bias"))
    for module in list(model.modules()):
        for name in ("q_proj", "k_proj", "v_proj"):
            if isinstance(getattr(module, name, None), torch.nn.Linear):
                setattr(module, name, Adapted(getattr(module, name)))


folder, what, rows, T, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
again = sys.argv[6:] != ["whole"]
torch.manual_seed(1)
config = AutoConfig.from_pretrained(folder)
config.use_cache = False
model = AutoModelForCausalLM.from_config(config).to("cuda", torch.bfloat16).train()
if what == "lora":
    adapt(model)
if again:
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
tokens = torch.randint(3, config.vocab_size, (rows, T), device="cuda")
seconds = []
for i in range(steps + 3):
    torch.cuda.synchronize()
    start = time.time()
    model(input_ids=tokens, labels=tokens).loss.backward()
    for p in model.parameters():
        p.grad = None
    torch.cuda.synchronize()
    seconds.append(time.time() - start)
print("seconds " + ", ".join(f"{s:.3f}" for s in seconds) + " (the first three warm up)")
median = statistics.median(seconds[3:])
print(f"fla {config.model_type}, {what}, {rows} x {T}, {'checkpointed' if again else 'whole'}: median {median:.4f} s, "
      f"{rows * T / median:.0f} tokens/s, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
