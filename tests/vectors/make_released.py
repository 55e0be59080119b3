#!/usr/bin/python3
"""Makes tests/vectors/models/released_*: small random checkpoints in the layout of released models, and what each must
compute. Usage: make_released.py FOLDER_OF_REFERENCE OUT_FOLDER

The reference is reference_released.py, float64 in numpy, which agrees with the classes of transformers 5.17 to 1e-12.
Sizes are awkward on purpose: multiples of nothing, heads of attention that are not D / heads, several value heads."""
import json, os, sys
import numpy as np

sys.path += [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"), sys.argv[1]]
import reference_released as R
import released
from make_ablations import bf16, nll, write

V, TOKENS, PROMPT, GREEDY, WINDOWS = 64, 140, 12, 12, (2, 24)
GAP = 5e-3  # least distance of the scores of a chosen expert and of the next, relative, beyond what 16 bits may turn
ROPE = dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 0], mrope_interleaved=True)
QWEN = dict(hidden_size=40, num_hidden_layers=3, vocab_size=V, intermediate_size=52, num_attention_heads=4, num_key_value_heads=2,
            head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=10,
            linear_conv_kernel_dim=4, hidden_act="silu", rms_norm_eps=1e-6, rope_parameters=ROPE, eos_token_id=2,
            layer_types=["linear_attention", "full_attention", "linear_attention"], mtp_num_hidden_layers=1)
OLMO = dict(model_type="olmo_hybrid", hidden_size=40, num_hidden_layers=3, vocab_size=V, intermediate_size=52, num_attention_heads=4,
            num_key_value_heads=2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=11,
            linear_value_head_dim=22, linear_conv_kernel_dim=4, hidden_act="silu", rms_norm_eps=1e-6, tie_word_embeddings=False,
            rope_parameters=None, rope_theta=None, linear_allow_neg_eigval=True, bos_token_id=None, eos_token_id=2,
            linear_dt_min=0.001, layer_types=["linear_attention", "full_attention", "linear_attention"])
EXTRA = {"mtp.fc.weight": (6, 4), "model.visual.blocks.0.attn.qkv.weight": (6, 4)}  # to be passed over

CASES = {
    "qwen3_5": dict(model_type="qwen3_5", tie_word_embeddings=True, image_token_id=60, vision_config=dict(depth=1),
                    text_config=dict(QWEN, model_type="qwen3_5_text", tie_word_embeddings=False)),
    "qwen3_5_bias": dict(QWEN, model_type="qwen3_5_text", attention_bias=True, layer_types=None, full_attention_interval=2,
                         head_dim=32, linear_num_value_heads=2, output_gate_type="swish"),
    "qwen3_5_moe": dict(model_type="qwen3_5_moe", tie_word_embeddings=False,
                        text_config=dict({k: v for k, v in QWEN.items() if k != "intermediate_size"}, model_type="qwen3_5_moe_text",
                                         num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
                                         shared_expert_intermediate_size=20, tie_word_embeddings=False)),
    "qwen3_next": dict({k: v for k, v in QWEN.items() if k != "rope_parameters"}, model_type="qwen3_next", rope_theta=500.0,
                       partial_rotary_factor=0.25, rope_scaling=None, num_experts=6, num_experts_per_tok=3, norm_topk_prob=False,
                       moe_intermediate_size=12, shared_expert_intermediate_size=20, mlp_only_layers=[1], decoder_sparse_step=1,
                       linear_num_key_heads=3),
    "olmo_hybrid": OLMO,
    "olmo_hybrid_rope": dict(OLMO, rope_parameters=dict(rope_type="default", rope_theta=500.0), num_key_value_heads=4,
                             linear_allow_neg_eigval=False, linear_key_head_dim=12, linear_value_head_dim=16),
}


def random_tensors(config, rng):
    bits, values = {}, {}
    extra = EXTRA if config["model_type"].startswith("qwen") else {}
    for name, shape in dict(released.shapes(config), **extra).items():
        x = rng.standard_normal(shape)
        if "norm" in name:
            x = 0.2 * x + (0 if released.is_centred(config, name) else 1)
        elif name.endswith("A_log"):
            x = np.log(rng.uniform(0.2, 4, shape))
        elif name.endswith("bias"):
            x = rng.uniform(-3, 0, shape) if name.endswith("dt_bias") else 0.3 * x
        elif name.endswith("mlp.gate.weight"):
            x *= 4 / np.sqrt(shape[-1])  # chooses clearly
        elif "embed_tokens" not in name:  # the residual stream begins as large as what the layers add
            x /= np.sqrt(shape[-1])
        if name.endswith(("A_log", "linear_attn.norm.weight")):
            values[name] = x.astype(np.float32).astype(float)
            bits[name] = ("F32", x.astype(np.float32))
        else:
            b, values[name] = bf16(x)
            bits[name] = ("BF16", b)
    return bits, values


def evaluate(t, c, ids, rows=None, trace=None):
    return R.forward(t, c, np.asarray(ids), rows=rows, trace=trace)[0]


def gap_of(t, c, ids):
    """The least relative distance between the scores of a chosen expert and of the next; infinite without experts."""
    least, inner = [np.inf], R.top_k

    def watch(scores, k):
        s = -np.sort(-scores, axis=-1)
        if k < s.shape[-1]:
            least.append((1 - s[..., k] / s[..., k - 1]).min())
        return inner(scores, k)

    R.top_k = watch
    evaluate(t, c, ids)
    R.top_k = inner
    return min(least)


def make(name, c, folder, seed):
    rng = np.random.default_rng(seed)
    bits, t = random_tensors(c, rng)
    ids, prompt, windows = rng.integers(0, V, TOKENS), rng.integers(0, V, PROMPT), rng.integers(0, V, WINDOWS)
    positions, trace = np.arange(3, TOKENS, 7), []
    if gap_of(t, c, ids) < GAP:
        return make(name, c, folder, seed + 100)
    tokens, margins = list(prompt), []
    for _ in range(GREEDY):
        row = evaluate(t, c, tokens, rows=[-1])[0]
        best = np.sort(row)[::-1]
        tokens.append(int(row.argmax()))
        margins.append(best[0] - best[1])
    if min(margins) < 1e-3:  # a choice that rounding may turn
        return make(name, c, folder, seed + 100)
    mean = sum(nll(evaluate(t, c, w)[:-1], w[1:]) for w in windows) / (windows.shape[0] * (windows.shape[1] - 1))
    whole = evaluate(t, c, ids, trace=trace)
    i32 = lambda x: ("I32", np.asarray(x, np.int32))
    f32 = lambda x: ("F32", np.asarray(x, np.float32))
    out = os.path.join(folder, "released_" + name)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(c, f, indent=1)
        f.write("\n")
    write(os.path.join(out, "model.safetensors"), bits, {})
    write(os.path.join(out, "reference.safetensors"),
          {"input_ids": i32(ids), "positions": i32(positions), "logits": f32(whole[positions]), "mixer_output": f32(trace),
           "greedy.prompt": i32(prompt), "greedy.tokens": i32(tokens[PROMPT:]), "greedy.margin": f32(margins),
           "eval_tokens": i32(windows)}, {"nll": repr(float(mean)), "computed": "float64, from the weights in the file"})
    print(f"{name}: seed {seed}, rms of logits {np.sqrt((whole ** 2).mean()):.3f}, mean NLL {mean:.4f}, least margin "
          f"{min(margins):.4f}")


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    for i, (name, c) in enumerate(CASES.items()):
        make(name, c, sys.argv[2], i)
