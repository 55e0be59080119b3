"""What the soak tests share: replicas and a Redis that can be killed, and a client of /v1/completions."""
import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time


def check(condition, text):
    if not condition:
        raise SystemExit("FAILED: " + text)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    """A program of the test's own, which is started again with the same arguments."""

    def __init__(self, folder, name, args, env=None):
        self.log = os.path.join(folder, name + ".log")
        self.args, self.env, self.child = args, env, None

    def start(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          env={**os.environ, **(self.env or {})})

    def end(self, how=signal.SIGKILL):
        if self.child:
            self.child.send_signal(how)
            self.child.wait()
            code, self.child = self.child.returncode, None
            return code

    def tail(self):
        with open(self.log, errors="replace") as log:
            return log.read()[-3000:]

    def resident(self):
        with open(f"/proc/{self.child.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024


class Replica(Process):
    def __init__(self, folder, name, program, args, env=None):
        self.port = free_port()
        super().__init__(folder, name, [program, "serve", "--port", str(self.port), *args], env)

    async def ready(self, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.child and self.child.poll() is not None:
                break
            try:
                status, _ = await fetch(self.port, "GET", "/health")
                if status == 200:
                    return
            except (OSError, ValueError, asyncio.IncompleteReadError):
                pass
            await asyncio.sleep(0.05)
        raise SystemExit(f"no replica: {self.tail()}")

    async def metrics(self):
        _, text = await fetch(self.port, "GET", "/metrics")
        found = re.findall(r"^deltaic_(\w+) ([0-9.eE+-]+)$", text.decode(), re.M)
        return {name: float(value) for name, value in found}


class Redis(Process):
    def __init__(self, folder):
        self.port = free_port()
        args = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--dir", folder]
        super().__init__(folder, "redis", ["redis-server", *args])
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self):
        super().start()
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"no Redis: {self.tail()}")


class Folder:
    """A folder below the current one, and the processes whose files are in it; both end with the block. Its replicas are
    of one program and have some arguments in common."""

    def __init__(self, program, common):
        self.program, self.common = program, common

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="soak.", dir=os.getcwd())
        self.processes = []
        os.environ["XDG_CACHE_HOME"] = self.path
        return self

    def add(self, process):
        self.processes.append(process)
        process.start()
        return process

    def replica(self, name, *args):
        return self.add(Replica(self.path, name, self.program, [*self.common, *args]))

    def __exit__(self, kind, *_):
        for process in self.processes:
            if kind:
                print(process.log, process.tail(), sep="\n")
            process.end()
        shutil.rmtree(self.path, ignore_errors=True)


def request_bytes(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


async def read_head(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status = int(head.split(" ", 2)[1])
    return status, {name.lower(): value for name, value in re.findall(r"^([\w-]+): *(.*?)\r$", head, re.M)}


async def read_body(reader, headers):
    """The body's pieces as they come; a body that ends early is an IncompleteReadError."""
    if "chunked" in headers.get("transfer-encoding", ""):
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            piece = await reader.readexactly(size + 2)
            if not size:
                return
            yield piece[:-2]
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        yield await reader.read()


async def fetch(port, method, path, body=b"", seconds=120):
    async def talk():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request_bytes(method, path, body))
            await writer.drain()
            status, headers = await read_head(reader)
            return status, b"".join([piece async for piece in read_body(reader, headers)])
        finally:
            writer.close()

    return await asyncio.wait_for(talk(), seconds)


class Answer:
    def __init__(self):
        self.text, self.id, self.times, self.cached = "", None, [], 0


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


async def stream(port, body, stop_after=None):
    """One streamed completion. stop_after: goes away after so many pieces, and returns None."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer, rest, done, finish = Answer(), b"", False, None
    try:
        writer.write(request_bytes("POST", "/v1/completions",
                                   json.dumps({**body, "stream": True,
                                               "stream_options": {"include_usage": True}}).encode()))
        await writer.drain()
        status, headers = await read_head(reader)
        if status != 200:
            raise Refused(status, b"".join([piece async for piece in read_body(reader, headers)]).decode())
        async for piece in read_body(reader, headers):
            rest += piece
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                if line[5:].strip() == b"[DONE]":
                    done = True
                    continue
                event = json.loads(line[5:])
                if "error" in event:
                    raise Refused(500, json.dumps(event["error"]))
                answer.id = event["id"]
                for choice in event["choices"]:
                    answer.text += choice["text"]
                    finish = choice.get("finish_reason") or finish
                    answer.times.append(time.monotonic())
                usage = event.get("usage") or {}
                answer.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", answer.cached)
            if stop_after and len(answer.times) >= stop_after:
                return None
    finally:
        writer.close()
    if not done or not finish:
        raise EOFError("the stream ended early")
    return answer


WORDS = """the old house road hill winter letter friend morning silence garden captain daughter river window evening
fortune stranger promise candle""".split()


def question(conversation, turn):
    """What a conversation's turn asks, always the same."""
    draw = random.Random(conversation * 1000 + turn)
    words = " ".join(draw.choice(WORDS) for _ in range(draw.randrange(4, 12)))
    return (" " if turn else "") + words + "."


def turn_body(conversation, turn, tokens, previous):
    body = {"prompt": question(conversation, turn), "max_tokens": tokens, "seed": conversation * 100 + turn,
            "temperature": 0.8}
    if previous:
        body["previous_response_id"] = previous
    return body
