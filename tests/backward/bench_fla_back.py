#!/usr/bin/env python3
"""Times the backward pass of flash-linear-attention's chunkwise delta rule, beside `bench_back time` of Deltaic.

    bench_fla_back.py SEQUENCES TOKENS HEADS D [gated]

For whoever has a CUDA machine with torch, triton and fla; run both on the same card. Inputs are bfloat16, and gradients
of q, k, v and beta, and of g if gated, come out. Prints
milliseconds between two events of the device, the median of 20 runs after a warm-up. Triton tunes itself first, which
takes minutes."""
import statistics
import sys

import torch
import torch.nn.functional as F
from fla.ops.delta_rule import chunk_delta_rule
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

B, T, H, D = map(int, sys.argv[1:5])
gated = "gated" in sys.argv[5:]
torch.manual_seed(1)


def random(*shape):
    return torch.randn(*shape, device="cuda")


x = {
    "q": F.normalize(random(B, T, H, D), dim=-1).bfloat16(),
    "k": F.normalize(random(B, T, H, D), dim=-1).bfloat16(),
    "v": random(B, T, H, D).bfloat16(),
    "beta": torch.rand(B, T, H, device="cuda").bfloat16(),
}
if gated:
    x["g"] = -0.2 * torch.rand(B, T, H, device="cuda")
for value in x.values():
    value.requires_grad_()
o, _ = (chunk_gated_delta_rule if gated else chunk_delta_rule)(**x)
do = random(*o.shape).bfloat16()
times = []
for _ in range(25):
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    torch.autograd.grad(o, list(x.values()), do, retain_graph=True)
    last.record()
    torch.cuda.synchronize()
    times.append(first.elapsed_time(last))
print(f"fla, {B} x {T}, {H} heads of {D}{', gated' if gated else ''}: {statistics.median(times[5:]):.3f} ms")
