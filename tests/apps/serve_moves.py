#!/usr/bin/python3
"""serve_moves.py PROGRAM TOP: large states of a hybrid, which move piece by piece between the steps of a stream."""
import json, random, socket, sys, threading, time
from serve_tools import LOADS, Server, check, done, moved

program, top = sys.argv[1:3]
hybrid = top + "/tests/vectors/models/tiny_delta_net_global"  # 1 KiB a token
TOKENS = 8000
greedy = {"temperature": 0}
BYTES = ("state_saved_bytes_total", "state_loaded_bytes_total")


def server(*more):
    return Server(program, hybrid, "--slots", "5", "--context", "30000", "--tokens", "30000", "--precision", "float32", *more)


def long_turn(s):
    return s.complete([5 + i % 99 for i in range(TOKENS)], max_tokens=4, **greedy)


def post(s, body):
    """A connection that has asked, and does not read yet."""
    c = socket.create_connection(("127.0.0.1", s.port), timeout=60)
    data = json.dumps(body).encode()
    c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return c


def shared():
    """A turn saves what is new; what it shares with the turn before is in both states, wherever they go."""
    s = server()
    first = long_turn(s)
    ask = dict(prompt=[7, 8], max_tokens=4, logprobs=1, **greedy)
    second, (resident, _, saved, _) = moved(s, (*LOADS, *BYTES), lambda: s.complete(previous_response_id=first["state"], **ask))
    check(resident == 1 and 0 < saved < 1 << 20, f"a turn that went on in its slot saved {saved} bytes")
    grown = s.metric("memory_bytes")
    third, (_, loaded, saved, came) = moved(s, (*LOADS, *BYTES), lambda: s.complete(previous_response_id=first["state"], **ask))
    check(loaded == 1 and 0 < saved < 1 << 20 and came > 8000000, f"a state that was loaded: {loaded}, {came} bytes, {saved} saved")
    check(third["logprobs"] == second["logprobs"], "a loaded state has other numbers than one in place")
    check(s.metric("memory_bytes") - grown < 1 << 20, "the memory counts shared blocks twice")
    # The second turn's state goes on from memory, and as bytes, when the turn before is gone.
    check(s.ask("DELETE", "/v1/states/" + first["state"])[0] == 200, "DELETE")
    fourth = s.complete(previous_response_id=second["state"], **ask)
    status, _, data = s.ask("GET", "/v1/states/" + second["state"])
    check(status == 200 and len(data) > 8000000, f"GET: {status}, {len(data)} bytes")
    check(s.ask("PUT", "/v1/states/copy", data)[0] == 200, "PUT")
    damaged = data[:5000000] + bytes([data[5000000] ^ 4]) + data[5000001:]
    status, _, error = s.ask("PUT", "/v1/states/bad", damaged)
    check(status == 400 and b"no state of this server" in error, f"a damaged state: {status} {error}")
    for turn in (second["state"], "copy"):
        again, (_, loaded) = moved(s, LOADS, lambda: s.complete(previous_response_id=turn, **ask))
        check(loaded == 1 and again["logprobs"] == fourth["logprobs"], f"{turn}: {loaded} loaded, {again} {fourth}")
    s.end()


def beside():
    """A stream makes steps while the states of other texts are loaded and saved."""
    s = server("--stall", "1")
    state = long_turn(s)["state"]
    check(s.ask("PUT", "/v1/states/copy", s.ask("GET", "/v1/states/" + state)[2])[0] == 200, "PUT")
    with post(s, dict(prompt=[9], max_tokens=30000, ignore_eos=True, stream=True)):
        s.wait_metric("slots_busy", 1)
        names = ("state_pieces_total", "state_rounds_total", "steps_total", *BYTES)

        def all_moved(what, function, least=0):
            _, (pieces, rounds, steps, saved, came) = moved(s, names, function)
            check(came > 32000000 and (saved > least if least else saved == 0), f"{what}: {came} bytes in, {saved} out")
            check(2 <= rounds <= steps, f"{what}: {pieces} pieces moved in {rounds} rounds with {steps} steps")
            print(f"{what}: {pieces} pieces moved in {rounds} rounds with {steps} steps")

        ask = dict(prompt=[[7]] * 4, previous_response_id="copy", **greedy)
        all_moved("loaded", lambda: s.post("/v1/completions", max_tokens=2, store=False, **ask))

        def without_the_state_before():  # so that nothing can be shared
            c = post(s, dict(max_tokens=100, ignore_eos=True, **ask))
            s.wait_metric("slots_busy", 5)
            check(s.ask("DELETE", "/v1/states/copy")[0] == 200, "DELETE")
            s.wait_metric("slots_busy", 1)
            c.close()

        all_moved("loaded and saved", without_the_state_before, 32000000)
    s.wait_metric("slots_busy", 0)
    s.end()


def cut():
    """Clients that leave while their states move disturb nobody, and neither does the server's end."""
    s = server("--stall", "1", "--drain", "0")
    first = long_turn(s)
    ask = dict(prompt=[7], max_tokens=4, logprobs=1, previous_response_id=first["state"], **greedy)
    want = s.complete(**ask)["logprobs"]
    random.seed(1)
    for _ in range(40):
        clients = [post(s, ask) for _ in range(4)]
        time.sleep(random.random() * 0.03)
        for c in clients:
            c.close()
    s.wait_metric("slots_busy", 0)
    s.wait_metric("queue_length", 0)
    again, (resident, loaded) = moved(s, LOADS, lambda: s.complete(**ask))
    check(resident + loaded == 1 and again["logprobs"] == want, f"after clients that left: {again}")
    clients = [post(s, {**ask, "max_tokens": 20000}) for _ in range(6)]
    time.sleep(0.02)
    begun = time.time()
    s.end()
    check(time.time() - begun < 20, f"the server ended after {time.time() - begun:.1f} s")
    for c in clients:
        c.close()


for function in (shared, beside, cut):
    start = time.time()
    function()
    print(f"{function.__name__}: {time.time() - start:.1f} s", flush=True)
done("serve_moves")
