#!/usr/bin/python3
"""serve_vulkan.py PROGRAM TOP: requests that a Vulkan device computes (lavapipe, watched by the validation layer where
DELTAIC_LAUNCHER starts it) have the answers of the CPU."""
import os, sys, tempfile
from serve_tools import Server, check, done, together

program, top = sys.argv[1:3]
model = top + "/tests/vectors/models/tiny_gated_deltanet"
prompts = [[1, *range(40, 100)], [1, 50, 60], [1, *range(100, 133)]]


def answers(s):
    """Texts together, a turn that finds its state in a slot, a stream, turns that load it, a fork, a state that is put."""
    ask = dict(max_tokens=6, temperature=0, ignore_eos=True, logprobs=2)
    texts = together([lambda p=p: s.complete(p, **ask) for p in prompts])
    first = texts[0]["state"]
    turns = [s.complete([70, 80], previous_response_id=first, **ask)] # its slot is free: there are as many as texts
    events = s.stream("/v1/completions", prompt=prompts[1], **ask)
    check("".join(c["text"] for e in events[:-1] for c in e["choices"]) == texts[1]["text"], "a stream has another text")
    turns.append(s.complete([70, 80], previous_response_id=first, **ask))
    status, _, state = s.ask("GET", "/v1/states/" + first)
    check(status == 200 and s.ask("PUT", "/v1/states/copy", state)[0] == 200, "a state that is put")
    fork = s.post("/v1/states", **{"from": first})["id"]
    turns += [s.complete([70, 80], previous_response_id=key, **ask) for key in ("copy", fork)]
    check(all(turn["text"] == turns[0]["text"] for turn in turns), "turns from one state have other texts")
    check(s.metric("states_loaded_total") >= 2, "no state was loaded")
    check(s.metric("states_resident_total") >= 1, "no turn found its state in a slot")
    return texts + turns


with tempfile.TemporaryDirectory() as folder:
    results = []
    for device in ("cpu", "lavapipe"):
        launcher = os.environ.get("DELTAIC_LAUNCHER") if device != "cpu" else None
        env = {"BARE": "1", "MESA": "mesa26", "XDG_CACHE_HOME": folder}
        s = Server(program, model, "--slots", "3", "--precision", "float32", device=device, launcher=launcher, env=env)
        results.append(answers(s))
        s.end()
        check(not any("Validation Error" in line for line in s.log), "".join(s.log))
    for i, (a, b) in enumerate(zip(*results)):
        check(a["text"] == b["text"], f"answer {i}: {a['text']!r} on the CPU, {b['text']!r} on the device")
        values = zip(a["logprobs"]["token_logprobs"], b["logprobs"]["token_logprobs"])
        check(all(abs(x - y) < 1e-3 for x, y in values), f"answer {i}: other probabilities")
done("serve_vulkan")
