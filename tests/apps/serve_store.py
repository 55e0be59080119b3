#!/usr/bin/python3
"""serve_store.py PROGRAM TOP WHAT...: `deltaic serve` with a Redis of the test's own, and a proxy before it that is slow."""
import socket, sys, tempfile, threading, time
from serve_tools import LOADS, Server, check, done, moved, together

program, top = sys.argv[1:3]
sys.path.append(top + "/tests/soak")
from soak_tools import Redis
novelist = top + "/models/novelist"
hybrid = top + "/tests/vectors/models/tiny_delta_net_global"  # 1 KiB a token
greedy = {"temperature": 0}
FIGURES = (*LOADS, "states_recomputed_total", "store_hits_total")


class Proxy:
    """Passes bytes on. What the store sends comes in parts of `size` bytes, with `pause` seconds before each."""

    def __init__(self, to):
        self.to, self.size, self.pause = to, 1 << 16, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, store = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to))
            for s in (client, store):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.move, args=(client, store, False), daemon=True).start()
            threading.Thread(target=self.move, args=(store, client, True), daemon=True).start()

    def move(self, a, b, slow):
        try:
            while data := a.recv(1 << 16):
                while data:
                    size, pause = (self.size, self.pause) if slow else (len(data), 0)
                    time.sleep(pause)
                    b.sendall(data[:size])
                    data = data[size:]
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def slots(redis):
    """What a slot still has is not fetched."""
    s = Server(program, hybrid, "--slots", "2", "--memory", "1", "--precision", "float32", "--store", redis.url)
    first = s.complete([5 + i % 99 for i in range(1500)], max_tokens=4, **greedy)
    ask = dict(max_tokens=4, logprobs=1, **greedy)
    second, figures = moved(s, FIGURES, lambda: s.post("/v1/completions", prompt=[7], previous_response_id=first["state"], **ask))
    check(figures == [1, 0, 0, 0], f"the next turn: {figures}")
    check(second["usage"]["prompt_tokens_details"]["cached_tokens"] == 1504, f"cached tokens: {second['usage']}")
    again, figures = moved(s, FIGURES, lambda: s.post("/v1/completions", prompt=[7], previous_response_id=first["state"], **ask))
    check(figures == [0, 1, 0, 1], f"the slot has moved on: {figures}")
    check(again["choices"][0]["logprobs"] == second["choices"][0]["logprobs"], "a state in its slot has other numbers")
    # Texts that rely on one slot: one goes on there, the others from a copy.
    base = again["choices"][0]["state"]
    many, figures = moved(s, FIGURES, lambda: s.post("/v1/completions", prompt=[[7], [8], [7]], previous_response_id=base, **ask))
    check(figures == [1, 2, 0, 0], f"three texts behind one slot: {figures}")
    check(many["choices"][0]["logprobs"] == many["choices"][2]["logprobs"], "a copy has other numbers")
    check(many["usage"]["prompt_tokens_details"]["cached_tokens"] == 3 * 1509, f"cached tokens: {many['usage']}")
    base = many["choices"][2]["state"]
    scored, figures = moved(s, FIGURES, lambda: s.post("/v1/completions", prompt=[7], n=3, echo=True, logprobs=0, max_tokens=1,
                                                       previous_response_id=base, **greedy))
    check(figures == [1, 2, 0, 0], f"three choices that are scored: {figures}")
    check(scored["usage"]["prompt_tokens_details"]["cached_tokens"] == 1514, f"cached tokens: {scored['usage']}")
    s.end()


def short(redis):
    """A replica that was just started computes a short history that comes slowly from the store, and fetches a long one."""
    proxy = Proxy(redis.port)
    turns = {}
    figures = ("states_not_fetched_total", "states_loaded_total")
    for size, pause, count, want in ((0, 0, 0, None), (1 << 13, 0.02, 40, [1, 0]), (1 << 16, 0, 1500, [0, 1])):
        if want:
            proxy.size, proxy.pause = size, pause  # the first: 1.1 s for a state of 455 KiB
        s = Server(program, novelist, "--slots", "2", "--precision", "float32", "--store", f"redis://127.0.0.1:{proxy.port}")
        check(s.metric("prompt_tokens_per_second") > 0 and s.metric("prompt_tokens_total") == 0, "the speed of prompts")
        if want:
            ask = dict(prompt=[7], max_tokens=4, previous_response_id=turns[count]["state"], logprobs=1, **greedy)
            again, grew = moved(s, figures, lambda: s.complete(**ask))
            check(grew == want, f"a history of {count} tokens: {grew}, not {want}")
            s.wait_metric("store_waiting_bytes", 0, 60)
        else:
            turns = {n: s.complete([5 + i % 99 for i in range(n)], max_tokens=4, **greedy) for n in (40, 1500)}
        proxy.pause = 0
        s.end()


def store_only(redis):
    """With --memory 0 a turn, and a state that is in no slot, come from the store each time."""
    s = Server(program, hybrid, "--slots", "1", "--memory", "0", "--precision", "float32", "--store", redis.url)
    first = s.complete([5 + i % 99 for i in range(1500)], max_tokens=4, **greedy)
    s.wait_metric("store_waiting_bytes", 0)
    ask = dict(prompt=[7], max_tokens=4, store=False, previous_response_id=first["state"], **greedy)
    answers = [moved(s, FIGURES, lambda: s.complete(**ask)) for _ in range(2)]
    check([figures for _, figures in answers] == [[1, 0, 0, 1], [0, 1, 0, 2]], f"nothing in memory: {answers}")
    check(len({answer["text"] for answer, _ in answers}) == 1, f"other texts: {answers}")
    check(s.metric("memory_bytes") == 0, "something is in memory")
    s.end()


def templates(redis):
    """A conversation that is sent again to a server with another template does not go on from what the first one read."""
    talk = [{"role": "user", "content": "The house"}]
    for template, known in (("chatml", True), ("qwen2.5", False)):
        s = Server(program, novelist, "--template", template, "--slots", "2", "--precision", "float32", "--store", redis.url)
        if known:
            said = s.post("/v1/chat/completions", messages=talk, max_tokens=8, **greedy)["choices"][0]["message"]["content"]
            talk += [{"role": "assistant", "content": said}, {"role": "user", "content": "It was late."}]
            one = s.post("/v1/responses", input="The house", max_output_tokens=8, **greedy)["id"]
        cached = s.post("/v1/chat/completions", messages=talk, max_tokens=2, **greedy)["usage"]["prompt_tokens_details"]["cached_tokens"]
        check((cached > 0) == known, f"{template}: {cached} tokens came with a state")
        # A response of another template is read again, with this one.
        two = s.post("/v1/responses", input="It was late.", previous_response_id=one, max_output_tokens=8, **greedy)
        whole = s.post("/v1/responses", input=talk, store=False, max_output_tokens=8, **greedy)
        check(two["output"][0]["content"] == whole["output"][0]["content"], f"{template}: {two} {whole}")
        check(two["usage"]["input_tokens"] == whole["usage"]["input_tokens"], f"{template}: {two} {whole}")
        check((two["usage"]["input_tokens_details"]["cached_tokens"] > 0) == known, f"{template}: {two['usage']}")
        three = s.post("/v1/responses", input="Why?", previous_response_id=two["id"], max_output_tokens=2, **greedy)
        check(three["usage"]["input_tokens_details"]["cached_tokens"] > 10, f"{template}: the third goes on")
        s.end()
    s = Server(program, novelist, "--slots", "1", "--store", redis.url)
    refused = s.post("/v1/responses", input="It was late.", previous_response_id=one, status=400)
    check("template chatml, but this server has none" in refused["error"]["message"], f"no template: {refused}")
    s.complete("", max_tokens=1, previous_response_id=one)  # its tokens, as they are
    s.end()


def large(redis):
    """A response that another replica keeps and that is larger than this one's memory for requests."""
    s = Server(program, novelist, "--slots", "1", "--working", "16", "--store", redis.url)
    path = "/v1/responses/" + s.post("/v1/responses", input="The", user="a" * (1 << 20), max_output_tokens=2, **greedy)["id"]
    check(s.ask("GET", path)[0] == 200, "a large response")
    s.end()
    s = Server(program, novelist, "--slots", "1", "--working", "1", "--store", redis.url)
    status, _, data = s.ask("GET", path)
    check(status == 413 and b"the memory for requests has 1048576" in data, f"a response that is too large: {status} {data[:99]}")
    check([s.ask("DELETE", path)[0], s.ask("GET", path)[0]] == [200, 404], "its end")
    s.end()


def within(seconds, s, status, **body):
    begun = time.time()
    got, headers, data = s.ask("POST", "/v1/completions", body)
    check(got == status, f"{body}: {got}, not {status}: {data[:300]}")
    check((status == 503) == bool(headers["Retry-After"]), f"{body}: {status}, Retry-After: {headers['Retry-After']}")
    check(time.time() - begun < seconds, f"{body}: {time.time() - begun:.1f} s")


def slow(redis):
    """A store that sends byte by byte: an operation has one limit. One that sends large states steadily has more time."""
    proxy = Proxy(redis.port)
    args = (hybrid, "--slots", "2", "--context", "9000", "--precision", "float32", "--store", f"redis://127.0.0.1:{proxy.port}", "--store-timeout", "300")
    s = Server(program, *args)
    first = s.complete([5 + i % 99 for i in range(8192)], max_tokens=4, **greedy)
    s.end()
    s = Server(program, *args)
    ask = dict(prompt=[7], max_tokens=2, previous_response_id=first["state"], **greedy)
    proxy.size, proxy.pause = 1, 0.02
    within(10, s, 503, **ask)  # the turn has 33,000 bytes
    check(s.metric("store_up") == 0, "the store is up")
    check(any("takes longer than --store-timeout allows" in line for line in s.log), f"the log: {s.log}")
    # Without the store, texts that need nothing of it are as fast as ever, and end when its time is over.
    within(10, s, 200, prompt=[7], max_tokens=2)
    proxy.size, proxy.pause = 1 << 16, 0.003  # 21 MiB/s at most: 8 MiB take longer than 300 ms
    for _ in range(20):
        s.ask("POST", "/v1/completions", ask)
        if s.metric("states_loaded_total"):
            break
        time.sleep(0.2)
    check(s.metric("states_loaded_total") == 1, "a large state that comes steadily was not loaded")
    check(s.metric("store_up") == 1, "the store is down")
    proxy.pause = 0
    s.end()


def late(redis):
    """Turns that end together while the store takes most of a second for each: no client waits for all of them."""
    proxy = Proxy(redis.port)
    s = Server(program, hybrid, "--slots", "16", "--store", f"redis://127.0.0.1:{proxy.port}", "--store-timeout", "10000")
    proxy.size, proxy.pause = 1, 0.1  # an answer of nine bytes
    begun = time.time()
    together([lambda i=i: s.complete([5 + i, 6], max_tokens=8, ignore_eos=True, **greedy) for i in range(16)])
    check(time.time() - begun < 6, f"16 texts took {time.time() - begun:.1f} s")
    check(s.metric("store_up") == 1, "the store is down")
    proxy.pause = 0
    s.wait_metric("store_waiting_bytes", 0)
    check(s.metric("store_puts_total") >= 32, "turns and states were not written")
    s.end()


def end(redis):
    """A replica that ends writes to a slow store for a bounded time."""
    proxy = Proxy(redis.port)
    s = Server(program, hybrid, "--slots", "16", "--store", f"redis://127.0.0.1:{proxy.port}", "--store-timeout", "10000")
    proxy.pause = 0.5  # two answers a value: a state takes a second
    together([lambda i=i: s.complete([5 + i, 6], max_tokens=2, ignore_eos=True, **greedy) for i in range(48)])
    begun, waiting = time.time(), s.metric("store_waiting_bytes")
    check(waiting > 0, "nothing waits")
    s.end()
    check(time.time() - begun < 20, f"the replica ended after {time.time() - begun:.1f} s with {waiting} bytes")


with tempfile.TemporaryDirectory() as folder:
    redis = Redis(folder)
    redis.start()
    try:
        for name in sys.argv[3:]:
            begun = time.time()
            globals()[name](redis)
            print(f"{name}: {time.time() - begun:.1f} s", flush=True)
    finally:
        redis.end()
done("serve_store")
