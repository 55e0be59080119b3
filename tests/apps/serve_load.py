#!/usr/bin/python3
"""serve_load.py PORT [--clients N] [--tokens N] [--every S --prompt N] [--key KEY]: so many streams at once from a server of
`deltaic serve`, and every S seconds a prompt of N tokens beside them. Prints tokens/s, the time to the first token and the
time between parts of a stream. Run by hand (docs/serve.md)."""
import argparse, asyncio, json, random, time

options = argparse.ArgumentParser()
options.add_argument("port", type=int)
options.add_argument("--host", default="127.0.0.1")
options.add_argument("--clients", type=int, default=8)
options.add_argument("--tokens", type=int, default=200)
options.add_argument("--begin", type=int, default=16, help="tokens of each stream's prompt")
options.add_argument("--every", type=float, default=0)
options.add_argument("--prompt", type=int, default=8192)
options.add_argument("--vocabulary", type=int, default=4000)
options.add_argument("--key", default="")
o = options.parse_args()
first, gaps, failures = [], [], []


async def ask(body, watch):
    reader, writer = await asyncio.open_connection(o.host, o.port, limit=1 << 24)
    data = json.dumps(body).encode()
    begun = last = time.perf_counter()
    key = f"Authorization: Bearer {o.key}\r\n" if o.key else ""
    writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\n{key}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
    status = await reader.readline()
    if b" 200 " not in status:
        failures.append(status)
    parts = 0
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        now = time.perf_counter()
        if watch:
            (gaps if parts else first).append(now - last)
        last, parts = now, parts + 1
    writer.close()
    return begun, last


def tokens(n):
    return [random.randrange(10, o.vocabulary) for _ in range(n)]


async def beside(end):
    count = 0
    while not end.is_set():
        asyncio.ensure_future(ask({"prompt": tokens(o.prompt), "max_tokens": 1, "store": False}, False))
        count += 1
        try:
            await asyncio.wait_for(end.wait(), o.every)
        except asyncio.TimeoutError:
            pass
    return count


async def main():
    end = asyncio.Event()
    body = {"max_tokens": o.tokens, "ignore_eos": True, "stream": True}
    load = asyncio.ensure_future(beside(end)) if o.every else None
    spans = await asyncio.gather(*(ask({**body, "prompt": tokens(o.begin), "seed": i}, True) for i in range(o.clients)))
    end.set()
    seconds = max(s[1] for s in spans) - min(s[0] for s in spans)
    gaps.sort()
    first.sort()
    at = lambda values, part: values[min(len(values) - 1, int(part * len(values)))] * 1e3
    print(f"{o.clients} streams of {o.tokens} tokens: {o.clients * o.tokens / seconds:.0f} tokens/s in {seconds:.1f} s; "
          f"first token {at(first, .5):.0f} ms (99 %: {at(first, .99):.0f}); between parts mean "
          f"{sum(gaps) / len(gaps) * 1e3:.2f} ms, 50 %: {at(gaps, .5):.2f}, 99 %: {at(gaps, .99):.2f}, longest {gaps[-1] * 1e3:.0f}"
          + (f"; {await load} prompts of {o.prompt} tokens beside them" if load else "")
          + (f"; {len(failures)} FAILED" if failures else ""))


asyncio.run(main())
