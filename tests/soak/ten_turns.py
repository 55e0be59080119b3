#!/usr/bin/env python3
"""Milliseconds to the first token of every turn of conversations that take turns on one server.

    ten_turns.py PORT [resend] [NAME=N ...]

before=8000 turns=10 conversations=1 more=32 tokens=16 vocabulary=256: each turn adds `more` random tokens behind
`before`, and the answer has `tokens`. `deltaic serve` gets the id of the turn before. With `resend`, llama.cpp's server
gets all tokens again by its own interface, the ones that it drew included.
"""
import asyncio
import json
import random
import sys
import time

from soak_tools import read_body, read_head, request_bytes

PORT = int(sys.argv[1])
RESEND = "resend" in sys.argv
NUMBERS = {"before": 8000, "turns": 10, "conversations": 1, "more": 32, "tokens": 16, "vocabulary": 256}
NUMBERS.update((name, int(value)) for name, value in (a.split("=") for a in sys.argv[2:] if "=" in a))


async def ask(path, body):
    """Milliseconds to the first token, and the events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    begin, first, events, rest = time.monotonic(), None, [], b""
    writer.write(request_bytes("POST", path, json.dumps({**body, "stream": True}).encode()))
    await writer.drain()
    status, headers = await read_head(reader)
    async for piece in read_body(reader, headers):
        rest += piece
        *lines, rest = rest.split(b"\n")
        for line in lines:
            if line.startswith(b"data: {"):
                first = first or time.monotonic()
                events.append(json.loads(line[6:]))
    writer.close()
    if status != 200 or not events:
        raise SystemExit(f"{path}: {status} {rest[:300]}")
    return 1e3 * (first - begin), events


async def turn(c, more):
    """A turn of conversation c, a dict of what it has so far."""
    if RESEND:
        c["ids"] = c.get("ids", []) + more
        ms, events = await ask("/completion", {"prompt": c["ids"], "n_predict": NUMBERS["tokens"], "temperature": 0,
                                               "ignore_eos": True, "cache_prompt": True, "return_tokens": True})
        c["ids"] += [token for event in events for token in event.get("tokens") or []]
    else:
        body = {"prompt": more, "max_tokens": NUMBERS["tokens"], "temperature": 0, "ignore_eos": True}
        if "id" in c:
            body["previous_response_id"] = c["id"]
        ms, events = await ask("/v1/completions", body)
        c["id"] = events[-1]["id"]
    return ms


async def main():
    draw = random.Random(1)

    def tokens(n):
        return [draw.randrange(NUMBERS["vocabulary"]) for _ in range(n)]

    conversations = [{} for _ in range(NUMBERS["conversations"])]
    read = [await turn(c, tokens(NUMBERS["before"])) for c in conversations]
    rows = [[await turn(c, tokens(NUMBERS["more"])) for c in conversations] for _ in range(NUMBERS["turns"])]
    flat = sorted(ms for row in rows for ms in row)
    print(json.dumps({**NUMBERS, "read_ms": [round(ms, 1) for ms in read], "median_ms": round(flat[len(flat) // 2], 1),
                      "first_ms": [[round(ms, 1) for ms in row] for row in rows]}))


asyncio.run(main())
