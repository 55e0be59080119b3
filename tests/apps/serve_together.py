#!/usr/bin/python3
"""serve_together.py PROGRAM TOP: several texts at once take turns, and do not change each other where that is asked."""
import json, sys, threading, time
from serve_tools import Server, check, done, together

program, top = sys.argv[1], sys.argv[2]
novelist = top + "/models/novelist"


def fair():
    """A long prompt does not stop a stream, and one client's many texts do not shut out another's."""
    s = Server(program, novelist, "--slots", "2", "--stall", "30", "--tokens", "100000")
    times = []

    def watch():
        import http.client
        c = http.client.HTTPConnection("127.0.0.1", s.port)
        c.request("POST", "/v1/completions", json.dumps({"prompt": "The", "max_tokens": 400, "ignore_eos": True, "stream": True}))
        for line in c.getresponse():
            times.append(time.time())

    reader = threading.Thread(target=watch)
    reader.start()
    s.wait_metric("slots_busy", 1)
    s.complete([7] * 3000, max_tokens=1)
    reader.join()
    gaps = sorted(b - a for a, b in zip(times, times[1:]))
    check(gaps[-1] < 2, f"the stream waited for {gaps[-1]:.2f} s")
    # A prompt that is scored reads alone, in turns with others.
    scored = threading.Thread(target=lambda: s.complete([7] * 20000, max_tokens=0, echo=True, logprobs=0))
    scored.start()
    s.wait_metric("slots_busy", 1)
    s.complete([7] * 300, max_tokens=1)
    check(scored.is_alive(), "a prompt waited until another was scored")
    scored.join()
    s.end()


def same_alone():
    """--reproducible: among others a text has the same probabilities, to the last bit."""
    s = Server(program, novelist, "--slots", "12", "--reproducible", "--slice", "64")
    body = dict(prompt=[1] + list(range(100, 250)), max_tokens=40, logprobs=1, seed=3)
    alone = s.complete(**body)

    def other(i):
        return lambda: s.complete([1] + [i + 5] * (9 * i + 1), max_tokens=20 + i, seed=i)

    results = together([other(i) for i in range(9)] + [lambda: s.complete(**body)] + [other(i) for i in range(9, 14)])
    check(results[9]["logprobs"] == alone["logprobs"], "--reproducible: a text's numbers depend on its neighbours")
    # Two turns that continue the same state, one of them behind others.
    both = [s.complete(" and", max_tokens=20, logprobs=1, seed=4, previous_response_id=r["state"]) for r in (alone, results[9])]
    check(both[0]["logprobs"] == both[1]["logprobs"], "--reproducible: the next turn")
    s.end()

    # Experts' rows are those of all texts.
    moe = Server(program, top + "/tests/vectors/models/gguf_qwen3_5_moe/model.gguf", "--slots", "6", "--reproducible")
    body = dict(prompt=list(range(3, 60)), max_tokens=16, logprobs=1, seed=3)
    alone = moe.complete(**body)
    many = together([lambda i=i: moe.complete([i + 5] * (5 * i + 1), max_tokens=20, seed=i) for i in range(5)] + [lambda: moe.complete(**body)])
    check(many[5]["logprobs"] == alone["logprobs"], "--reproducible with experts")
    moe.end()

    # A state that is lost is computed again to the same bits: what was read is read, what was drawn is drawn.
    s = Server(program, novelist, "--slots", "12", "--reproducible", "--slice", "64", "--memory", "1")
    first = s.complete([1] + list(range(100, 200)), max_tokens=12, seed=3)
    second = s.complete(" and", max_tokens=9, seed=4, previous_response_id=first["state"])
    third = dict(prompt=" then", max_tokens=10, logprobs=1, seed=5, previous_response_id=second["state"])
    kept = s.complete(**third)
    together([other(i) for i in range(12)] * 2) # they need all slots and more than the memory
    again = s.post("/v1/completions", **third)
    check(again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "the state is not lost")
    check(again["choices"][0]["logprobs"] == kept["logprobs"], "--reproducible: a state computed again has other bits")
    s.end()


for part in (fair, same_alone):
    begun = time.time()
    part()
    print(f"{part.__name__}: {time.time() - begun:.1f} s")
done("serve_together")
