"""Bad requests beside good clients: the part of the soak tests that is called abuse."""
import asyncio
import json
import random
import signal
import socket
import time

from soak_tools import Refused, check, fetch, request_bytes, stream, turn_body


async def raw(port, data, seconds=1.0, slow=False):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for at in range(0, len(data), 1 if slow else 65536):
            writer.write(data[at:at + (1 if slow else 65536)])
            await writer.drain()
            if slow:
                await asyncio.sleep(seconds)
        await asyncio.wait_for(reader.read(65536), seconds)
    except (OSError, asyncio.TimeoutError):
        pass
    finally:
        writer.transport.abort()


def bad_request(draw):
    good = json.dumps({"prompt": "The old house", "max_tokens": 5}).encode()
    post = request_bytes("POST", "/v1/completions", good)
    cut = draw.randrange(len(post))
    noise = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 400)))
    bodies = [b"{", b"[" * 100000, b'{"a":' * 5000, b'"\\ud800"', b"null", b"[]", b'{"prompt": 1}', b'{"prompt": []}',
              b'{"prompt": [999999999]}', b'{"prompt": "x", "max_tokens": -1}', b'{"prompt": "x", "max_tokens": 1e300}',
              b'{"prompt": "x", "n": 1000000}', b'{"prompt": "x", "temperature": "hot"}', b'{"prompt": "\xff\xfe"}',
              b'{"prompt": "x", "model": "../../etc/passwd"}', b'{"prompt": "x", "previous_response_id": "../../x"}',
              b'{"prompt": "x", "stop": ' + json.dumps(["s" * 5000] * 300).encode() + b"}",
              b'{"prompt": "' + b"x" * (1 << 20) + b'", "max_tokens": 1}', noise]
    return draw.choice([
        noise, post[:cut] + noise + post[cut:], post[:cut], b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 1000,
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nxx",
        request_bytes("GET", "/../../etc/passwd"), request_bytes("GET", "/v1/states/" + "x" * 300),
        request_bytes("PUT", "/v1/states/x", noise), request_bytes("DELETE", "/"),
        *(request_bytes("POST", "/v1/" + draw.choice(["completions", "chat/completions", "responses", "states"]), body)
          for body in draw.sample(bodies, 6))])


async def stop_reading(port, seconds):
    """Asks for a long stream, and then takes nothing of it."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(s, ("127.0.0.1", port))
        body = {"prompt": "Somebody stops", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        await loop.sock_sendall(s, request_bytes("POST", "/v1/completions", json.dumps(body).encode()))
        await asyncio.sleep(seconds)


async def misbehave(port, end, seed, counts):
    draw = random.Random(seed)
    while time.monotonic() < end:
        kind = draw.choice(["malformed", "malformed", "oversized", "slow", "abandoned", "stalled"])
        try:
            if kind == "malformed":
                await raw(port, bad_request(draw))
            elif kind == "oversized":
                head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (1 << 26)
                await raw(port, head + b"x" * (1 << 22))
            elif kind == "slow":
                await raw(port, request_bytes("POST", "/v1/completions", b'{"prompt": "slow"}')[:40], 0.05, slow=True)
            elif kind == "stalled":
                await stop_reading(port, 7)
            else:
                await stream(port, {"prompt": "Somebody leaves", "max_tokens": 500}, stop_after=draw.randrange(1, 4))
        except (OSError, EOFError, ValueError, Refused, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        counts[kind] = counts.get(kind, 0) + 1


async def behave(port, end, client, expected, counts):
    while time.monotonic() < end:
        try:
            answer = await asyncio.wait_for(stream(port, turn_body(client, 0, 40, None)), 120)
        except Refused as refused: # a queue that is full
            check(refused.status == 429, f"a good client is refused: {refused}")
            counts["refused"] = counts.get("refused", 0) + 1
            await asyncio.sleep(0.5)
            continue
        check(answer.text == expected[client], f"good client {client} got another text")
        counts["good"] = counts.get("good", 0) + 1


async def abuse(folder, n):
    replica = folder.replica("abuse", "--reproducible", "--slots", "16", "--memory", "16", "--timeout", "5", "--quiet")
    await replica.ready()
    expected = [(await stream(replica.port, turn_body(c, 0, 40, None))).text for c in range(n["good"])]
    counts, sizes = {}, []
    end = time.monotonic() + n["seconds"]

    async def watch():
        while time.monotonic() < end:
            await asyncio.sleep(n["seconds"] / 20)
            sizes.append(replica.resident())

    await asyncio.gather(watch(), *(behave(replica.port, end, c, expected, counts) for c in range(n["good"])),
                         *(misbehave(replica.port, end, seed, counts) for seed in range(16)))
    print(counts, "resident MiB:", [size >> 20 for size in sizes])
    check(replica.child.poll() is None, "the server ended")
    kinds = "malformed", "oversized", "slow", "abandoned", "stalled", "good"
    check(all(counts.get(kind) for kind in kinds), "some kind did not run")
    half = len(sizes) // 2
    check(max(sizes[half:]) < max(sizes[:half]) * 1.1 + (16 << 20), "the memory grows")
    for _ in range(100):
        m = await replica.metrics()
        if not m["slots_busy"] and not m["queue_length"]:
            break
        await asyncio.sleep(0.1)
    check(not m["slots_busy"] and not m["queue_length"], f"clients that went away are still served: {m}")
    check((await fetch(replica.port, "GET", "/health"))[0] == 200, "no health")
    code = replica.end(signal.SIGTERM)
    check(code in (0, 143), f"exit code {code}")
    for word in ("Sanitizer", "runtime error"):
        check(word not in replica.tail(), "a sanitizer reports")
