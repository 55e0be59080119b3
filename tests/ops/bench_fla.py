#!/usr/bin/env python3
"""Times flash-linear-attention's Triton kernels over the shapes of `deltaic bench --operators --json`, and prints both.

    deltaic bench --operators --json > ours.json && python3 tests/ops/bench_fla.py ours.json

For whoever has a CUDA machine with torch, triton and fla; run both on the same card. fla gets bfloat16, as its models do.
Times are CUDA events around one call, the median after a warm-up: as Python calls it, and replayed from a CUDA graph,
where no launch waits for the host. Single tokens, as ours, go through several states in turn, for one would stay in the
L2 cache. Its errors, of outputs o and last states S, are against its own recurrence in float32, on the same rounded
inputs (the first text); ours against ours, in float32 too, on inputs of the same kind. Head-in-Head has no kernel there.
Triton tunes itself at every new shape, up to 40 s a row; FLA_CACHE_RESULTS=1 keeps what it chose for the next time.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

OTHERS = 8  # states beside the first, as in host/session/measure_operator.c


def inputs(row):
    torch.manual_seed(1)
    B, T, H, n = row["sequences"], row["tokens"], row["heads"], row["steps"]

    def random(*shape):
        return torch.randn(*shape, device="cuda")

    x = {
        "q": F.normalize(random(B, T, H, row["key"]), dim=-1).bfloat16(),
        "k": F.normalize(random(B, T * n, H, row["key"]), dim=-1).bfloat16(),
        "v": (2 * torch.rand(B, T * n, H, row["value"], device="cuda") - 1).bfloat16(),
        "beta": torch.rand(B, T * n, H, device="cuda").bfloat16(),
        "initial_state": 0.1 * random(B, H, row["key"], row["value"]),
    }
    if row["gated"]:
        x["g"] = -0.2 * torch.rand(B, T, H, device="cuda")
    return x


def rule(row, x):
    """fla's function for the row, or None."""
    from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
    from fla.ops.gated_delta_product import chunk_gated_delta_product
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

    if row["blocks"] > 1:
        return None
    if row["steps"] > 1:
        if not row["gated"]:
            x["g"] = None
        x["num_householder"] = row["steps"]
        return chunk_gated_delta_product
    if row["gated"]:
        return fused_recurrent_gated_delta_rule if row["recurrent"] else chunk_gated_delta_rule
    return fused_recurrent_delta_rule if row["recurrent"] else chunk_delta_rule


def milliseconds(call, warm=0.4, runs=20):
    start = time.monotonic()
    while time.monotonic() - start < warm:  # the clocks of an idle card are low
        call()
        torch.cuda.synchronize()
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def replayed(call):
    """The call as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def truth(row, x):
    """o and S of the first text by fla's recurrence, all in float32: a product's steps are tokens of their own, the gate
    at a token's first step and its query at the last."""
    from fla.ops.delta_rule import fused_recurrent_delta_rule
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    n = row["steps"]
    one = {name: t[:1].float() for name, t in x.items() if torch.is_tensor(t)}

    def spread(t, at):
        return torch.stack([t if i == at else torch.zeros_like(t) for i in range(n)], 2).flatten(1, 2)

    one["q"] = spread(one["q"], n - 1)
    if row["gated"]:
        one["g"] = spread(one["g"], 0)
    recurrence = fused_recurrent_gated_delta_rule if row["gated"] else fused_recurrent_delta_rule
    o, S = recurrence(**one, output_final_state=True)
    return o[:, n - 1 :: n], S


def errors(row, x, got):
    """Relative RMS of the first text's o and S."""
    return [((a[:1].float() - b).norm() / b.norm()).item() for a, b in zip(got, truth(row, x))]


def complain(row, e):
    print(f"# {row['operator']}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")


def cell(number, form):
    return "-" if number is None else format(number, form)


def main(path):
    with open(path) as f:
        ours = json.load(f)
    print(f"{ours['device']['name']}; fla on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'operator':16} {'texts x tokens':>14} {'d_k x d_v':>10} {'heads':>5} {'ours ms':>9} {'fla ms':>9}"
          f" {'its graph':>9} {'times':>6} {'our o':>7} {'fla o':>7} {'our S':>7} {'fla S':>7}")
    for row in ours["operators"]:
        called = graph = None
        wrong = [None, None]
        try:
            x = inputs(row)
            function = rule(row, x)
            if function:
                state = x["initial_state"]
                states = [state] + [state.clone() for _ in range(OTHERS if row["tokens"] == 1 else 0)]

                def call():
                    return [function(**{**x, "initial_state": s}, output_final_state=True) for s in states]

                with torch.no_grad():
                    got = call()[0]
                    try:
                        wrong = errors(row, x, got)
                    except Exception as e:  # its times are worth having
                        complain(row, e)
                    called = milliseconds(call) / len(states)
                    graph = milliseconds(replayed(call)) / len(states)
        except Exception as e:  # a shape that fla refuses is a row without its time
            complain(row, e)
        mine = 1e3 * row["seconds"]
        texts = f"{row['sequences']} x {row['tokens']}"
        size = f"{row['key']} x {row['value']}"
        best = graph or called
        print(f"{row['operator']:16} {texts:>14} {size:>10} {row['heads']:5} {mine:9.4f} {cell(called, '9.4f'):>9}"
              f" {cell(graph, '9.4f'):>9} {cell(best and best / mine, '6.2f'):>6}"
              f" {cell(row['error_output'], '7.1e'):>7} {cell(wrong[0], '7.1e'):>7}"
              f" {cell(row['error_state'], '7.1e'):>7} {cell(wrong[1], '7.1e'):>7}", flush=True)
        x = got = None
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1])
