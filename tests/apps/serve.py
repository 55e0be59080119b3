#!/usr/bin/python3
"""serve.py PROGRAM TOP: `deltaic serve` as clients meet it, on the CPU."""
import json, shutil, socket, sys, tempfile, threading, time
from serve_chats import outputs
from serve_tools import LOADS, Server, check, done, moved, not_numbers, together, without_logits

program, top = sys.argv[1], sys.argv[2]
novelist = top + "/models/novelist"
greedy = {"temperature": 0}
folder = tempfile.mkdtemp()


def texts():
    s = Server(program, novelist, "--slots", "4", "--memory", "64")
    for host, status in (("localhost:8", 200), ("127.0.0.1", 200), ("[::1]:8", 200), ("evil:8", 403), ("local:8", 403), ("1.evil", 403)):
        page = {"Origin": "http://" + host, "Host": host}
        check(s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, page)[0] == status, f"a page of {host}")
    # A page whose name points to this machine reads without Origin.
    for host, status in (("localhost:8", 200), ("LOCALHOST", 200), ("127.0.0.1:8", 200), ("[::1]", 200), ("evil.example", 403), ("127.0.0.1.evil", 403)):
        for path in ("/v1/models", "/metrics", "/", "/v1/nothing"):
            want = 404 if path == "/v1/nothing" else status
            check(s.ask("GET", path, None, {"Host": host})[0] == want, f"{path} of {host}")
        check(s.ask("GET", "/health", None, {"Host": host})[0] == 200, f"/health of {host}")
    check(s.raw(b"GET /v1/models HTTP/1.0\r\n\r\n")[9:12] == b"200", "HTTP/1.0 without Host")
    check(json.loads(s.ask("GET", "/v1/models")[2])["data"][0]["id"] == "novelist", "/v1/models")
    check(s.ask("GET", "/v1/models/novelist")[0] == 200 and s.ask("GET", "/v1/models/x")[0] == 404, "one model")
    whole = s.complete("The old house", max_tokens=24, **greedy)
    check(whole["finish_reason"] == "length", "max_tokens ends a text")

    # Streamed, it is the same text; so it is among others, and whatever the number of slots.
    events = s.stream("/v1/completions", prompt="The old house", max_tokens=24, stream_options={"include_usage": True}, **greedy)
    check(events[-1] == "[DONE]" and events[-2]["usage"]["completion_tokens"] == 24, "the stream's end")
    check("".join(c["text"] for e in events[:-2] for c in e["choices"]) == whole["text"], "streamed text differs")
    check(len(events) > 4, "a stream comes in parts")
    many = s.post("/v1/completions", prompt=["The old house", "It was", "The old house"], n=2, max_tokens=12, seed=5)
    check(len(many["choices"]) == 6 and [c["index"] for c in many["choices"]] == list(range(6)), "prompts times n")
    a, b = many["choices"][0]["text"], many["choices"][1]["text"]
    check(a == many["choices"][4]["text"] and a != b, "the same seed, the same text; n draws others")
    alone = s.complete("The old house", max_tokens=12, seed=6)
    check(alone["text"] == b, "choice 1 has the next seed")

    # Stop strings, echo, probabilities.
    stop = whole["text"][10:14]
    cut = s.complete("The old house", max_tokens=24, stop=[stop], **greedy)
    check(cut["text"] == whole["text"][: whole["text"].index(stop)] and cut["finish_reason"] == "stop", "stop string")
    scored = s.complete("The old house", max_tokens=3, echo=True, logprobs=3, **greedy)
    notes = scored["logprobs"]
    check(scored["text"].startswith("The old house") and "".join(notes["tokens"][1:]) == scored["text"], "echo")
    check(notes["token_logprobs"][0] is None and all(v <= 0 for v in notes["token_logprobs"][1:]), "probabilities")
    for token, value, best in zip(notes["tokens"][-3:], notes["token_logprobs"][-3:], notes["top_logprobs"][-3:]):
        check(len(best) == 3 and max(best, key=best.get) == token and best[token] == value, "greedy takes the likeliest")
    ids = s.complete([1, 5, 9], max_tokens=0, echo=True, logprobs=0)
    check(len(ids["logprobs"]["tokens"]) == 3, "tokens as a prompt, scored only")
    # Offsets count characters, of which a token may have a part.
    ids = s.complete([130, 105, 161, 227, 108, 5], max_tokens=1, echo=True, logprobs=0)
    check(ids["text"].startswith("\u00e9\u20ac") and ids["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 2, 3], f"offsets: {ids}")
    # A prompt's score does not depend on whether a state brought its beginning.
    first = s.complete("The old house stood", max_tokens=0, **greedy)
    split = s.complete(" upon a hill", max_tokens=0, echo=True, logprobs=0, previous_response_id=first["state"])
    joined = s.complete("The old house stood upon a hill", max_tokens=0, echo=True, logprobs=0)
    pairs = zip(split["logprobs"]["token_logprobs"], joined["logprobs"]["token_logprobs"][-len(split["logprobs"]["tokens"]):])
    check(all(abs(x - y) < 1e-3 for x, y in pairs), f"scores behind a state: {split['logprobs']} {joined['logprobs']}")

    # Turns: the state continues the text with the same tokens, and computes nothing again.
    head = s.complete("The old house", max_tokens=10, **greedy)
    rest = s.post("/v1/completions", prompt=[], max_tokens=14, previous_response_id=head["state"], status=400, **greedy)
    check("empty list" in rest["error"]["message"], "an empty list of prompts")
    rest = s.post("/v1/completions", prompt="", max_tokens=14, previous_response_id=head["state"], **greedy)
    check(head["text"] + rest["choices"][0]["text"] == whole["text"], "a turn goes on where it ended")
    check(rest["usage"]["prompt_tokens_details"]["cached_tokens"] == rest["usage"]["prompt_tokens"] == 14, "all is cached")
    # Without new tokens nothing is read: the other choices wait for nobody.
    three = s.post("/v1/completions", prompt="", n=3, max_tokens=14, previous_response_id=head["state"], **greedy)
    check([c["text"] for c in three["choices"]] == [rest["choices"][0]["text"]] * 3, "choices behind a state")
    none = s.post("/v1/completions", prompt="", n=3, max_tokens=0, previous_response_id=head["state"], **greedy)
    check([c["text"] for c in none["choices"]] == [""] * 3 and none["usage"]["completion_tokens"] == 0, "no token is made")
    first = s.post("/v1/responses", input="The old house", max_output_tokens=10, **greedy)
    check(first["output"][0]["content"][0]["text"] == head["text"] and first["status"] == "incomplete", "/v1/responses")
    second = s.post("/v1/responses", input=" and", max_output_tokens=5, previous_response_id=first["id"], **greedy)
    check(second["usage"]["input_tokens_details"]["cached_tokens"] == 14, "the response's state")
    events = s.stream("/v1/responses", input=" and", max_output_tokens=5, previous_response_id=first["id"], **greedy)
    check([e["sequence_number"] for e in events] == list(range(len(events))), "numbered events")
    outputs(events, "a response's stream")
    check("".join(e.get("delta", "") for e in events) == second["output"][0]["content"][0]["text"], "streamed response")
    check(events[0]["type"] == "response.created" and events[-1]["type"] == "response.incomplete", "first and last event")
    # A response is kept as it was given, streamed or not, until it is deleted.
    for response in (second, events[-1]["response"]):
        path = "/v1/responses/" + response["id"]
        status, _, data = s.ask("GET", path)
        check(status == 200 and json.loads(data) == response, f"a response that is kept: {status} {data} {response}")
        status, _, data = s.ask("DELETE", path)
        check(status == 200 and json.loads(data) == {"id": response["id"], "object": "response", "deleted": True}, f"DELETE: {data}")
        for method in ("GET", "DELETE"):
            status, _, data = s.ask(method, path)
            check(status == 404 and b"there is no such response" in data, f"{method} of a deleted response: {status} {data}")
        s.post("/v1/responses", input="x", previous_response_id=response["id"], status=404)
    for wrong in ("resp_0", "resp_a.b", first["id"] + "-r", head["state"], "..%2fx"):
        check(s.ask("GET", "/v1/responses/" + wrong)[0] == s.ask("DELETE", "/v1/responses/" + wrong)[0] == 404, f"no response: {wrong}")
    s.post("/v1/responses", input="x", previous_response_id="resp_0", status=404)
    kept = s.post("/v1/responses", input="The", max_output_tokens=2, store=False)
    s.post("/v1/responses", input="x", previous_response_id=kept["id"], status=404)
    check(s.ask("GET", "/v1/responses/" + kept["id"])[0] == 404, "a response with store false")

    # States as resources.
    status, _, data = s.ask("GET", "/v1/states/" + first["id"])
    check(status == 200 and len(data) > 400000, "GET of a state")
    check(s.ask("PUT", "/v1/states/copy", data)[0] == 200, "PUT of a state")
    again = s.post("/v1/responses", input=" and", max_output_tokens=5, previous_response_id="copy", **greedy)
    check(again["output"][0]["content"] == second["output"][0]["content"], "the copied state")
    fork = s.post("/v1/states", **{"from": first["id"]})["id"]
    for wrong, status in (({}, 400), ({"from": 5}, 400), ({"from": None}, 400), (b"{", 400), ({"from": "resp_0"}, 404)):
        got, _, error = s.ask("POST", "/v1/states", wrong)
        check(got == status, f"a fork of {wrong}: {got} {error}")
    check(s.ask("DELETE", "/v1/states/copy")[0] == 200 and s.ask("GET", "/v1/states/copy")[0] == 404, "DELETE")
    again = s.post("/v1/responses", input=" and", max_output_tokens=5, previous_response_id=fork, **greedy)
    check(again["output"][0]["content"] == second["output"][0]["content"], "a fork outlives what it was made of")
    for wrong in (b"", data[:15], data[:-1], data[:200] + b"\xff" * 8 + data[208:], b"\0" * 64, data[:4] + b"\xff" * 12 + data[16:]):
        check(s.ask("PUT", "/v1/states/bad", wrong)[0] == 400, f"a state of {len(wrong)} bytes that is none")
    got, _, error = s.ask("PUT", "/v1/states/bad", without_logits(data, 4096))
    check(got == 400 and b"the state has no logits" in error, f"a state without logits: {got} {error}")
    # What the server cannot answer is in its log, once.
    check(s.ask("PUT", "/v1/states/nan", not_numbers(data))[0] == 200, "a state without numbers")
    for stream in (False, True):
        ask = dict(max_tokens=2, previous_response_id="nan")
        if stream:
            error = s.stream("/v1/completions", prompt="x", **ask)[-2]["error"]
            failed = s.stream("/v1/responses", input="x", max_output_tokens=2, previous_response_id="nan")[-1]
            check(failed["type"] == "response.failed" and "not finite" in failed["response"]["error"]["message"], f"{failed}")
        else:
            error = s.post("/v1/completions", prompt="x", status=500, **ask)["error"]
        check(error["type"] == "server_error" and "not finite" in error["message"], f"logits that are no numbers: {error}")
    check(s.ask("PUT", "/v1/states/a.b", data)[0] == 400 and s.ask("GET", "/v1/states/..%2fx")[0] == 400, "ids of states")

    # More turns than the memory holds: the least recent state is computed again, to the same text.
    for i in range(160):
        s.complete([1, i + 10], max_tokens=1, **greedy)
    check(s.metric("memory_evicted_total") > 10 and s.metric("memory_bytes") < 80 << 20, "memory is bounded")
    old = s.post("/v1/responses", input=" and", max_output_tokens=5, previous_response_id=first["id"], **greedy)
    check(old["output"][0]["content"] == second["output"][0]["content"], "a state computed again")
    check(old["usage"]["input_tokens_details"]["cached_tokens"] == 0, "it was not there")
    s.end()
    failed = [line for line in s.log if "a request failed: the model's logits are not finite" in line]
    check(len(failed) == 3, f"the log: {s.log}")


def full():
    """A text that fills the context is kept; what goes on from it has no room for a token, and disturbs nobody."""
    s = Server(program, top + "/tests/vectors/models/tiny_delta_net_global", "--slots", "2", "--context", "48")
    first = s.complete([1, 5, 9], max_tokens=100, ignore_eos=True, **greedy)
    check(first["finish_reason"] == "length", "the context ends a text")
    body = dict(prompt="", max_tokens=4, previous_response_id=first["state"])
    beside = dict(prompt=[1, 7], max_tokens=40, ignore_eos=True, **greedy)
    results = together([lambda: s.post("/v1/completions", **beside)] + [lambda: s.post("/v1/completions", **body)] * 3)
    check(results[0]["usage"]["completion_tokens"] == 40, f"a text beside a full one: {results[0]}")
    check(all(r["usage"]["completion_tokens"] == 0 for r in results[1:]), "a full context has no room for a token")
    s.end()


def in_place():
    """A turn that finds its state in a slot copies nothing, and says what one that loads the state says."""
    for model in (top + "/tests/vectors/models/gguf_qwen3_5/model.gguf", novelist):
        s = Server(program, model, "--slots", "3", "--precision", "float32")
        first = s.complete(list(range(3, 60)), max_tokens=8, **greedy)
        body = dict(max_tokens=8, logprobs=1, previous_response_id=first["state"], **greedy)
        second, (resident, loaded) = moved(s, LOADS, lambda: s.complete([7, 8, 9], **body))
        check((resident, loaded) == (1, 0), f"{model}: the next turn: {resident} states in place, {loaded} loaded")
        again, (resident, loaded) = moved(s, LOADS, lambda: s.complete([7, 8, 9], **body))
        check((resident, loaded) == (0, 1), f"{model}: the slot has moved on: {resident} states in place, {loaded} loaded")
        check(again["logprobs"] == second["logprobs"], f"{model}: a state in place has other numbers than a loaded one")
        third = dict(max_tokens=2, previous_response_id=second["state"], **greedy)
        for i in range(3): # they take all slots
            s.complete([i + 5], max_tokens=1, **greedy)
        _, (resident, loaded) = moved(s, LOADS, lambda: s.complete([5], **third))
        check((resident, loaded) == (0, 1), f"{model}: the slots are others': {resident} states in place, {loaded} loaded")
        last = s.complete(list(range(4, 61)), max_tokens=8, **greedy)
        other = s.ask("GET", "/v1/states/" + first["state"])[2]
        check(s.ask("PUT", "/v1/states/" + last["state"], other)[0] == 200, "PUT replaces a state")
        replaced, (resident, _) = moved(s, LOADS, lambda: s.complete([7, 8, 9], **{**body, "previous_response_id": last["state"]}))
        check(resident == 0 and replaced["logprobs"] == second["logprobs"], f"{model}: a state that was replaced is in place")
        gone = s.complete([4], max_tokens=1, **greedy)["state"]
        check(s.ask("DELETE", "/v1/states/" + gone)[0] == 200, "DELETE of a state that is in its slot")
        s.post("/v1/completions", prompt=[5], max_tokens=1, previous_response_id=gone, status=404)
        s.end()

    # A state that has left the host's memory is found in its slot, and its tokens count as cached.
    s = Server(program, novelist, "--slots", "8", "--memory", "1")
    first = s.complete(list(range(3, 60)), max_tokens=8, **greedy)
    for i in range(6):
        s.complete([i + 5], max_tokens=1)
    second, (resident, loaded) = moved(s, LOADS, lambda: s.post("/v1/completions", prompt=[7], max_tokens=2, n=2, previous_response_id=first["state"], **greedy))
    check((resident, loaded) == (1, 1), f"no memory: {resident} states in place, {loaded} loaded")
    check(second["usage"]["prompt_tokens_details"]["cached_tokens"] == 65, f"no memory: {second['usage']}")
    s.end()

    # The state behind the question stays in a slot that is free, until the text ends or another needs the slot.
    talk = [{"role": "user", "content": "The house"}]
    options = dict(max_tokens=12, **greedy)
    for slots in ("1", "2"):
        s = Server(program, novelist, "--template", "qwen3.5", "--slots", slots, "--precision", "float32")
        first = s.post("/v1/chat/completions", messages=talk, **options)["choices"][0]["message"]["content"]
        longer = talk + [{"role": "assistant", "content": first}, {"role": "user", "content": "It was late."}]
        answer, (resident, loaded) = moved(s, LOADS, lambda: s.post("/v1/chat/completions", messages=longer, **options))
        check((resident, loaded) == ((0, 1) if slots == "1" else (1, 0)), f"{slots} slots: {resident} states in place, {loaded} loaded")
        if slots == "1":
            alone = answer["choices"][0]["message"]
        check(answer["choices"][0]["message"] == alone, "a question's state in place gives another answer")
        both = together([lambda: s.post("/v1/chat/completions", messages=longer, **{**options, "max_tokens": 60}),
                         lambda: s.post("/v1/chat/completions", messages=longer, **options)] * 2)
        check([b["choices"][0]["message"] for b in both[1::2]] == [alone] * 2, "texts that need the slots of others")
        s.end()


def refusals():
    keys = folder + "/keys"
    open(keys, "w").write("# keys\nfirst key\nsecond\n")
    s = Server(program, novelist, "--slots", "2", "--queue", "3", "--keys", keys, "--body", "64", "--timeout", "2", "--tokens", "1000000")
    key = {"Authorization": "Bearer second"}

    def ask(body, status, text, path="/v1/completions"):
        got, _, data = s.ask("POST", path, body, key)
        error = json.loads(data)["error"]
        check(got == status and text in error["message"] and error["type"], f"{body}: {got} {error}, not {status} {text}")

    for header in ({}, {"Authorization": "Bearer secon"}, {"Authorization": "second"}, {"Authorization": "Bearer # keys"}):
        check(s.ask("POST", "/v1/completions", {"prompt": "x"}, header)[0] == 401, f"key {header}")
    check(s.ask("GET", "/metrics")[0] == 401 and s.ask("GET", "/health")[0] == 200 and s.ask("GET", "/")[0] == 200, "open routes")
    check(s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, key)[0] == 200, "a right key")
    check(s.ask("POST", "/v1/completions", {"prompt": "x"}, {**key, "Origin": "http://evil"})[0] == 403, "another origin")
    own = {**key, "Origin": "http://evil:8080", "Host": "evil:8080"}
    check(s.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1}, own)[0] == 200, "a name of its own, with a key")
    check(s.ask("GET", "/v1/nothing", None, key)[0] == 404 and s.ask("GET", "/v1/completions", None, key)[0] == 405, "routes")
    for path, methods in (("/v1/completions", "POST"), ("/health", "GET, HEAD"), ("/v1/states/x", "GET, PUT, DELETE")):
        status, headers, _ = s.ask("PATCH", path, None, key)
        check(status == 405 and headers["Allow"] == methods, f"PATCH {path}: {status} {headers}")
    for method in ("ET", "GE", "P", "T,", "GET,"):
        check(s.raw(f"{method} /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())[9:12] in (b"400", b"405"), f"the method {method}")
    ask(None, 404, "there is no POST /v1/?", "/v1/%ff")
    ask({"prompt": "x", "model": "x" * 99 + "\u00e9"}, 404, 'x?"')
    ask(b"{", 400, "not JSON")
    ask(b"[1]", 400, "not an object")
    ask(b'{"prompt":' + b"[" * 100 + b"]" * 100 + b"}", 400, "nested deeper")
    ask({"max_tokens": 3}, 400, "no prompt")
    ask({"prompt": 5}, 400, "prompt takes")
    ask({"prompt": [4096]}, 400, "not below the vocabulary")
    ask({"prompt": "x", "temperature": -1}, 400, "temperature takes")
    ask({"prompt": "x", "n": 0}, 400, "n takes")
    ask({"prompt": ["x"] * 2049}, 400, "2048 are the most")
    ask({"prompt": "x", "logit_bias": {"5": 1}}, 400, "logit_bias is not supported")
    ask({"prompt": "x", "frequency_penalty": 0.5}, 400, "repetition_penalty is")
    ask({"prompt": "x", "model": "gpt-4"}, 404, 'no model "gpt-4"')
    ask({"prompt": "x" * 70000}, 413, "more than 65536 bytes")
    ask({"messages": [{"role": "user", "content": "x"}]}, 400, "no chat template", "/v1/chat/completions")
    ask({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}, 400, "tools is not supported", "/v1/chat/completions")
    ask({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}, 400, "response_format", "/v1/chat/completions")
    ask({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "image_url", "/v1/chat/completions")
    ask({"messages": [{"role": "tool", "content": "x"}]}, 400, 'the role "tool"', "/v1/chat/completions")
    ask({"input": "x", "text": {"format": {"type": "json_schema"}}}, 400, "text.format", "/v1/responses")
    ask({"prompt": ["x"] * 2, "n": 2}, 400, "4 texts; the queue has room for 3")
    data = json.dumps({"prompt": ["x"] * 3, "max_tokens": 1000000, "ignore_eos": True}).encode()
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer second\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        time.sleep(0.3) # two have slots, one waits
        ask({"prompt": ["x"] * 3}, 429, "the queue is full")
        check(int(s.ask("POST", "/v1/completions", {"prompt": ["x"] * 3}, key)[1]["Retry-After"]) >= 1, "Retry-After")
    # Malformed and slow requests.
    check(b" 200 " not in s.raw(b"nonsense\r\n\r\n")[:40], "no HTTP")
    check(b"431" in s.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40000 + b"\r\n\r\n")[:40], "a large header")
    begun = time.time()
    s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer second\r\nContent-Length: 100\r\n\r\n{")
    check(time.time() - begun < 10, "a request that does not come is dropped")
    # A connection that is used again: what it waited before a request is not the request's time.
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first = c.recv(4096)
        time.sleep(1.3)
        body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer second\r\nContent-Length: %d\r\n\r\n" % len(body))
        time.sleep(1.2)
        c.sendall(body)
        check(b" 200 " in first[:20] and b" 200 " in c.recv(4096)[:20], "a second request after a rest")

    def trickle():
        with socket.create_connection(("127.0.0.1", s.port)) as c:
            for _ in range(100):
                c.sendall(b"G")
                time.sleep(0.1)

    begun = time.time()
    try:
        trickle()
    except OSError:
        pass
    check(time.time() - begun < 8, "a header that comes byte by byte is dropped")
    s.end()


def cancelled():
    s = Server(program, novelist, "--slots", "2", "--tokens", "1000000")
    long = {"prompt": "The", "max_tokens": 1000000, "ignore_eos": True}

    def open_one(body):
        c = socket.create_connection(("127.0.0.1", s.port))
        data = json.dumps(body).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        return c

    # One that runs, a stream, one that waits in the queue: each leaves its place.
    for bodies in ([long], [{**long, "stream": True}], [long, long, long]):
        clients = [open_one(b) for b in bodies]
        s.wait_metric("slots_busy", min(2, len(bodies)))
        s.wait_metric("queue_length", max(0, len(bodies) - 2))
        for c in clients:
            c.close()
        s.wait_metric("slots_busy", 0)
        s.wait_metric("queue_length", 0)
    # A prompt that is being read.
    c = open_one({"prompt": [5] * 200000, "max_tokens": 1})
    s.wait_metric("slots_busy", 1)
    c.close()
    s.wait_metric("slots_busy", 0)
    check(s.metric("prompt_tokens_total") < 200000, "the prompt was read to its end")
    s.wait_metric("requests_cancelled_total", 6)  # counted a moment after the slot is free
    s.end()

    # SIGTERM: what ends within --drain ends, and the rest is cut and kept.
    s = Server(program, novelist, "--slots", "2", "--tokens", "1000000", "--drain", "5")
    ended = []
    short = threading.Thread(target=lambda: ended.append(s.complete("The", max_tokens=30, ignore_eos=True)))
    endless = threading.Thread(target=lambda: ended.append(s.complete("The", max_tokens=1000000, ignore_eos=True)))
    endless.start(), short.start()
    while s.metric("slots_busy") < 2 and not ended: # the short one may have ended
        time.sleep(0.01)
    begun = time.time()
    s.end()
    short.join(), endless.join()
    check(sorted(c["finish_reason"] for c in ended) == ["length", "shutdown"], "texts end when the server does")
    check(time.time() - begun < 40, "the limit of --drain")


def beside():
    """Ten good clients beside malformed, oversized, slow and abandoned requests."""
    s = Server(program, novelist, "--slots", "4", "--body", "64", "--timeout", "2", "--connections", "200")
    body = dict(max_tokens=20, **greedy)
    expected = [s.complete(f"Chapter {i}", **body)["text"] for i in range(10)]
    stop = threading.Event()
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    long = json.dumps({"prompt": "x", "max_tokens": 4096, "ignore_eos": True, "stream": True}).encode()
    bad = [b"\0\1\2\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
           post % 3 + b"{}}", post % (1 << 62), post % 1000000 + b"x" * 1000, b"GET /" + b"a" * 100000, post % 100,
           b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"[" * 65536 + b"\r\n" * 3,
           post % len(long) + long]

    def abuse(i):
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", s.port), timeout=0.3) as c:
                    c.sendall(bad[i % len(bad)])
                    c.recv(100)
            except OSError:
                pass
            i += 1

    abusers = [threading.Thread(target=abuse, args=(i,)) for i in range(12)]
    for a in abusers:
        a.start()

    def good(i):
        return all(s.complete(f"Chapter {i}", **body)["text"] == expected[i] for _ in range(3))

    check(all(together([lambda i=i: good(i) for i in range(10)])), "good clients get other texts beside bad ones")
    stop.set()
    for a in abusers:
        a.join()
    s.wait_metric("slots_busy", 0)
    s.wait_metric("connections", 1)
    s.end()


try:
    for part in sys.argv[3:] or ["texts", "full", "in_place", "refusals", "cancelled", "beside"]:
        begun = time.time()
        globals()[part]()
        print(f"{part}: {time.time() - begun:.1f} s")
finally:
    shutil.rmtree(folder)
done("serve")
