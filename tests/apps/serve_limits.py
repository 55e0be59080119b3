#!/usr/bin/python3
"""serve_limits.py PROGRAM TOP [HANG.so] WHAT...: memory, files and time of `deltaic serve`, what remains after DELETE, and
later instructions."""
import http.client, json, os, resource, socket, subprocess, sys, tempfile, threading, time
from serve_tools import Server, check, done

program, top = sys.argv[1:3]
novelist = top + "/models/novelist"
greedy = {"temperature": 0}


def memory():
    """A request that is too large is refused, and one for which others leave no room has to wait."""
    s = Server(program, novelist, "--slots", "8", "--working", "8")
    scored = dict(echo=True, logprobs=0, max_tokens=0)
    refused = s.post("/v1/completions", prompt=[7] * 6000, status=400, **scored)
    check("more than 2 MiB of memory" in refused["error"]["message"], f"a prompt that is scored: {refused}")
    s.post("/v1/completions", prompt=[7] * 500, n=12, status=400, **scored)
    check(len(s.complete([7] * 500, **scored)["logprobs"]["tokens"]) == 500, "a scored prompt that is small enough")
    s.complete([7] * 6000, max_tokens=1)
    many = dict(prompt="the old house " * 1000, n=100, max_tokens=1, store=False)
    check(len(s.post("/v1/completions", **many)["choices"]) == 100, "a long prompt's choices")
    s.post("/v1/completions", echo=True, status=400, **many)  # each repeats the prompt
    s.wait_metric("request_bytes", 0)

    # Four streams hold nearly all of it.
    held = []
    for i in range(4):
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("POST", "/v1/completions", json.dumps(dict(prompt=[9, i], logprobs=0, max_tokens=3000, ignore_eos=True, stream=True)))
        check(c.getresponse().status == 200, f"stream {i}")
        held.append(c)
    body = dict(prompt=[9, 9], logprobs=0, max_tokens=3000)
    status, headers, data = s.ask("POST", "/v1/completions", body)
    check(status == 429 and headers["Retry-After"] and b"memory for requests is full" in data, f"a fifth: {status} {data}")
    status, headers, data = s.ask("POST", "/v1/completions", dict(prompt="a" * (1 << 20)))
    check(status == 429 and headers["Retry-After"] and b"memory for requests is full" in data, f"a body: {status} {data}")
    s.complete([9, 9], max_tokens=2)
    for c in held:
        c.close()
    s.wait_metric("request_bytes", 0)
    s.complete([9, 9], logprobs=0, max_tokens=1)
    s.end()

    # A body that never fits is refused for good, whether its size is known before or not.
    s = Server(program, novelist, "--slots", "1", "--working", "1")
    large = json.dumps(dict(prompt="a" * (1 << 20))).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    for rest in (b"Content-Length: %d\r\n\r\n" % len(large),
                 b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(large), large)):
        data = s.raw(head + rest)
        check(b" 413 " in data and b"more than 1048576 bytes" in data, f"a body larger than --working: {data}")
    s.wait_metric("request_bytes", 0)
    s.end()


def states():
    """The answers to GET of states take of the memory for requests, and a state larger than it is refused."""
    hybrid = top + "/tests/vectors/models/tiny_delta_net_global"  # 1 KiB a token
    s = Server(program, hybrid, "--slots", "2", "--context", "8000", "--working", "16")
    state = s.complete([5] * 7000, max_tokens=1)["state"]  # more than what the kernel takes for a client that does not read
    held = []
    for i in range(2):
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        c.sendall(f"GET /v1/states/{state} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        check(b" 200 " in c.recv(1024), f"state {i}")
        held.append(c)
    status, headers, data = s.ask("GET", "/v1/states/" + state)
    check(status == 429 and headers["Retry-After"] and b"memory for requests is full" in data, f"a third: {status} {data[:99]}")
    for c in held:
        c.close()
    s.wait_metric("request_bytes", 0)
    check(s.ask("GET", "/v1/states/" + state)[0] == 200, "the state, when others have theirs")
    s.wait_metric("request_bytes", 0)
    s.end()

    s = Server(program, hybrid, "--working", "1")
    state = s.complete([5] * 1500, max_tokens=1)["state"]
    status, _, data = s.ask("GET", "/v1/states/" + state)
    check(status == 413 and b"the memory for requests has 1048576" in data, f"a large state: {status} {data[:99]}")
    s.end()


def waiting():
    """States that are put while every slot is busy wait, as many as there are slots; a client may leave meanwhile."""
    s = Server(program, novelist, "--slots", "2", "--tokens", "1000000")
    state = s.complete("The old house", max_tokens=3)["state"]
    data = s.ask("GET", "/v1/states/" + state)[2]
    with socket.create_connection(("127.0.0.1", s.port)) as busy:
        body = json.dumps(dict(prompt="The", n=2, max_tokens=1000000, ignore_eos=True, stream=True)).encode()
        busy.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        s.wait_metric("slots_busy", 2)
        before, refused = s.metric("request_bytes"), s.metric("requests_refused_total")
        with socket.create_connection(("127.0.0.1", s.port)) as c:
            c.sendall(b"PUT /v1/states/gone HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            s.wait_metric("request_bytes", before + len(data))
        s.wait_metric("requests_cancelled_total", 1)
        answers = {}
        puts = [threading.Thread(target=lambda i=i: answers.update({f"copy{i}": s.ask("PUT", f"/v1/states/copy{i}", data)})) for i in range(3)]
        for put in puts:
            put.start()
        s.wait_metric("requests_refused_total", refused + 1)
        s.wait_metric("request_bytes", before + 2 * len(data))
        check(s.ask("GET", "/v1/states/" + state)[0] == 200, "a state is read while others wait to be checked")
        check(all(a[0] == 429 for a in answers.values()) and s.metric("slots_busy") == 2, f"states that were checked without a slot: {answers}")
    for put in puts:
        put.join()
    check(sorted(a[0] for a in answers.values()) == [200, 200, 429], f"states that waited: {answers}")
    check(all(bool(a[1]["Retry-After"]) == (a[0] == 429) for a in answers.values()), f"Retry-After: {answers}")
    taken = next(name for name, a in answers.items() if a[0] == 200)
    check(s.complete(" and", previous_response_id=taken, max_tokens=1)["text"] is not None, "a state that waited")
    check(s.ask("GET", "/v1/states/gone")[0] == 404, "the state of a client that left")
    s.end()


def drain():
    """After SIGTERM a client that reads slowly gets the whole answer; one that does not read is waited for --drain seconds."""
    hybrid = top + "/tests/vectors/models/tiny_delta_net_global"
    for reads in (True, False):
        s = Server(program, hybrid, "--slots", "2", "--context", "8000", "--drain", "30" if reads else "3")
        state = s.complete([5] * 7000, max_tokens=1)["state"]
        with socket.socket() as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.connect(("127.0.0.1", s.port))
            c.sendall(f"GET /v1/states/{state} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            data = c.recv(1024)
            begun = time.time()
            ended = threading.Thread(target=s.end)
            ended.start()
            time.sleep(1)
            while reads and (part := c.recv(1 << 16)):
                data += part
            ended.join()
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split()[0])
        if reads:
            check(len(body) == length > 7000000, f"{len(body)} of {length} bytes came")
        else:
            check(3 <= time.time() - begun < 20, f"the server ended after {time.time() - begun:.1f} s")


def stalled():
    """A client that stops reading in the middle of a stream is dropped after --timeout, and nobody else waits."""
    s = Server(program, novelist, "--slots", "2", "--timeout", "2", "--tokens", "1000000",
               "--reproducible")  # the stream is slow: the kernel's buffer takes half a minute to fill
    alone = s.complete("The old house", max_tokens=40, **greedy)
    data = json.dumps(dict(prompt="The", max_tokens=1000000, ignore_eos=True, stream=True)).encode()
    with socket.socket() as c:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.connect(("127.0.0.1", s.port))
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        check(b" 200 " in c.recv(1024), "the stream")
        s.wait_metric("slots_busy", 1)
        begun, beside = time.time(), []
        while s.metric("slots_busy") and time.time() - begun < 60:
            beside.append(s.complete("The old house", max_tokens=40, **greedy)["text"])
        check(time.time() - begun < 15, f"the client holds its slot for {time.time() - begun:.1f} s")
        check(len(beside) > 1 and set(beside) == {alone["text"]}, f"the texts of another client: {beside}")
    s.wait_metric("requests_cancelled_total", 1)
    s.wait_metric("connections", 1)
    s.wait_metric("request_bytes", 0)
    s.end()


def files():
    """The limit of open files is raised where that is allowed, else the server says what it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    s = Server(program, novelist, "--connections", "300")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with open(f"/proc/{s.process.pid}/limits") as limits:
        line = next(line for line in limits if line.startswith("Max open files"))
    check(int(line.split()[3]) >= 300, f"the limit: {line}")
    s.end()
    got = subprocess.run([program, "serve", novelist, "-d", "cpu", "-p", "0", "--connections", "300"], capture_output=True, text=True,
                         timeout=60, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)))
    check(got.returncode == 2 and "--connections 300 needs" in got.stderr and "may have 200" in got.stderr, f"files: {got}")


def copies():
    """DELETE of a chat's turn also removes what a client that sends the conversation again would find."""
    for template in ("chatml", "qwen3.5"):
        s = Server(program, novelist, "--template", template, "--slots", "2")
        talk = [{"role": "user", "content": "The house"}]
        first = s.post("/v1/chat/completions", messages=talk, max_tokens=8, **greedy)["choices"][0]
        again = talk + [{"role": "assistant", "content": first["message"]["content"]}, {"role": "user", "content": "And then?"}]

        def cached():
            usage = s.post("/v1/chat/completions", messages=again, max_tokens=2, store=False, **greedy)["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"]

        check(cached() > 3, f"{template}: the conversation is known")
        check(s.ask("DELETE", "/v1/states/" + first["state"])[0] == 200, f"{template}: DELETE")
        check(cached() == 0, f"{template}: the conversation is still known")
        check(s.metric("memory_bytes") == 0, f"{template}: its text or a state is still there")

        # DELETE of a fork leaves the conversation known. The state is shared, so it is computed again.
        first = s.post("/v1/chat/completions", messages=talk, max_tokens=8, **greedy)["choices"][0]
        check(cached() > 3, f"{template}: the conversation is known again")
        fork = s.post("/v1/states", **{"from": first["state"]})["id"]
        check(s.ask("DELETE", "/v1/states/" + fork)[0] == 200, f"{template}: DELETE of a fork")
        computed = s.metric("states_recomputed_total")
        cached()
        check(s.metric("states_recomputed_total") == computed + 1, f"{template}: the fork's end made the conversation unknown")
        s.end()


def answers():
    """A response whose turn has left the memory before its answer is still given, and DELETE removes it."""
    s = Server(program, novelist, "--slots", "2", "--memory", "1")
    large = s.complete([9] * 6000, max_tokens=1)["state"]
    first = s.post("/v1/responses", input="The old house", max_output_tokens=2)
    path = "/v1/responses/" + first["id"]
    for i in range(12):  # a fork is another turn of 24 KB; turns have 256 KiB
        s.post("/v1/states", **{"from": large})
        check(s.ask("GET", path)[0] == 200, f"the answer after {i} turns")
    s.post("/v1/responses", input="x", previous_response_id=first["id"], status=404)
    check([s.ask(method, path)[0] for method in ("GET", "DELETE", "GET", "DELETE")] == [200, 200, 404, 404], "an answer without its turn")
    s.end()


def instructions():
    """Instructions of a later response, where the template takes a system message first only: they replace the others."""
    s = Server(program, novelist, "--template", "qwen3.5", "--precision", "float32", "--slots", "2")
    for system in ("Speak.", None):
        said = dict(max_output_tokens=8, reasoning={"effort": "none"}, **greedy)
        one = s.post("/v1/responses", input="The house", instructions=system, **said)
        two = s.post("/v1/responses", input="And then?", instructions="Be brief.", previous_response_id=one["id"], **said)
        text = one["output"][0]["content"][0]["text"]
        whole = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The house"},
                 {"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
        fresh = s.post("/v1/responses", input=whole, store=False, **said)
        check(two["output"][0]["content"] == fresh["output"][0]["content"], f"after {system}: {two} {fresh}")
        check(two["usage"]["input_tokens"] == fresh["usage"]["input_tokens"], f"after {system}: tokens")
        three = s.post("/v1/responses", input="Why?", previous_response_id=two["id"], **said)
        check(three["usage"]["input_tokens_details"]["cached_tokens"] > 10, f"after {system}: the third goes on")
    s.end()


def end():
    """A computation that never returns does not keep the server from ending."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.environ["HANG"] = folder + "/hang"
        os.environ["LD_PRELOAD"] = sys.argv[3]
        s = Server(program, novelist, "--slots", "2", "--drain", "0", "--timeout", "1")
        del os.environ["LD_PRELOAD"]
        s.complete("The old house", logprobs=0, max_tokens=1)
        open(file, "w").close()
        body = b'{"prompt": "x", "logprobs": 0}'
        request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        ask = threading.Thread(target=lambda: s.raw(request))
        ask.start()
        s.wait_metric("slots_busy", 1)
        s.end(code=1)
        check("has not answered for 1 s" in "".join(s.log), f"the end: {s.log}")
        ask.join()


def long_prompts():
    """Other connections are served while long prompts are encoded, and prompts whose clients have left are not encoded."""
    s = Server(program, novelist, "--slots", "2")
    text = "the old house " * 75000
    body = dict(prompt=text, echo=True, logprobs=20, max_tokens=0)  # refused once it is encoded
    data = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data)
    for _ in range(5):  # a busy machine may encode all prompts before it runs this thread; then again
        refused, cancelled, finished = s.metric("requests_refused_total"), s.metric("requests_cancelled_total"), []
        asked = [threading.Thread(target=lambda: finished.append(s.post("/v1/completions", status=400, **body))) for _ in range(8)]
        for thread in asked:
            thread.start()
        while s.metric("request_bytes") < 7 * len(text) and not finished:
            time.sleep(0.01)
        for _ in range(8):
            check(s.ask("GET", "/health")[0] == 200, "health")
        for _ in range(4):  # clients that leave
            with socket.create_connection(("127.0.0.1", s.port), timeout=60) as c:
                c.sendall(head + data)
        served_meanwhile = len(finished) < 8
        for thread in asked:
            thread.join()
        s.wait_metric("request_bytes", 0)
        if served_meanwhile:
            break
    check(served_meanwhile, "connections waited for the prompts of others")
    s.wait_metric("requests_cancelled_total", cancelled + 4)
    check(s.metric("requests_refused_total") == refused + 8, "a prompt whose client had left was encoded")
    s.end()


for name in [name for name in sys.argv[3:] if not name.endswith(".so")]:
    start = time.time()
    globals()[name]()
    print(f"{name}: {time.time() - start:.1f} s", flush=True)
done("serve_limits")
