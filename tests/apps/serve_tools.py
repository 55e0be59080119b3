"""serve_tools.py: starts and stops `deltaic serve`, and asks it. For the tests serve*.py."""
import atexit, http.client, json, os, re, signal, socket, struct, subprocess, sys, threading, time

failures, checks = [], 0


def check(good, text):
    global checks
    checks += 1
    if not good:
        failures.append(text)
        print("FAILED:", text, file=sys.stderr, flush=True)


class Server:
    def __init__(self, program, model, *args, device="cpu", launcher=None, env={}):
        self.log = []
        command = [launcher, program] if launcher else [program]
        self.process = subprocess.Popen([*command, "serve", model, "-d", device, "-p", "0", *args],
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
        atexit.register(self.process.kill)  # a test that fails must not wait for its server
        self.port = None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.match(r"server  http://.*:(\d+), (\d+) slots", line)
            if found:
                self.port, self.slots = int(found[1]), int(found[2])
                break
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        if not self.port:
            sys.exit("the server did not start: " + "".join(self.log))

    def ask(self, method, path, body=None, headers={}, timeout=120):
        """(status, headers, bytes)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.headers, data

    def post(self, path, status=200, **body):
        got, _, data = self.ask("POST", path, body)
        check(got == status, f"{path} {str(body)[:500]}: {got}, not {status}: {data[:300]}")
        return json.loads(data)

    def complete(self, prompt, **more):
        return self.post("/v1/completions", prompt=prompt, **more)["choices"][0]

    def stream(self, path, **body):
        """The events of an answer, as parsed JSON, and [DONE] as a string."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        answer, events = connection.getresponse(), []
        check(answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream"), f"{path}: no stream")
        for line in answer:
            if line.startswith(b"data: "):
                text = line[6:].decode()
                events.append(json.loads(text) if text.startswith("{") else text.strip())
        connection.close()
        return events

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2].decode()
        return float(re.search(rf"^deltaic_{name} (\S+)$", text, re.M)[1])

    def wait_metric(self, name, value, seconds=30):
        end = time.time() + seconds
        while (found := self.metric(name)) != value and time.time() < end:
            time.sleep(0.02)
        check(found == value, f"{name} is {found}, not {value}")

    def raw(self, data, timeout=30):
        """What comes back for these bytes until the server closes, or `timeout`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            out = b""
            try:
                s.sendall(data)
                while part := s.recv(65536):
                    out += part
            except OSError:
                pass
            return out

    def end(self, code=0):
        self.process.send_signal(signal.SIGTERM)
        got = self.process.wait(timeout=120)
        self.reader.join()
        check(got == code, f"exit code {got}, not {code}: {''.join(self.log)[-2000:]}")


def hash_bytes(h, data):
    """host/base/hash.h, which the head of a saved state has."""
    mask = (1 << 64) - 1

    def word(h, w):
        h = (h ^ w) * 0x100000001B3 & mask
        return h ^ h >> 32

    lanes, whole = [h, h + 1, h + 2, h + 3], len(data) // 32 * 32
    for four in struct.iter_unpack("<4Q", data[:whole]):
        lanes = [word(lane, w) for lane, w in zip(lanes, four)]
    for lane, w in zip(lanes, struct.unpack("<4Q", data[whole:].ljust(32, b"\0"))):
        h = word(word(h, lane), w)
    return word(h, len(data) - whole)


def changed_state(state, change):
    """The bytes of GET /v1/states/ID where `change` made another payload of the state's; its flag says whether the state
    has logits."""
    magic, turn_bytes, state_bytes = struct.unpack_from("<IIQ", state)
    turn, saved = state[16 : 16 + turn_bytes], state[16 + turn_bytes :]
    payload, logits = change(saved[48:])
    head = saved[:12] + struct.pack("<I", logits) + saved[16:32] + struct.pack("<QQ", len(payload), 0)
    sum = hash_bytes(hash_bytes(0xCBF29CE484222325, head), payload)
    return struct.pack("<IIQ", magic, turn_bytes, 48 + len(payload)) + turn + head[:40] + struct.pack("<Q", sum) + payload


def without_logits(state, vocabulary):
    return changed_state(state, lambda payload: (payload[: -4 * vocabulary], 0))  # they come last


def not_numbers(state):
    return changed_state(state, lambda payload: (struct.pack("<f", float("nan")) * (len(payload) // 4), 1))


# States that were found in their slot, and states that were copied to the device.
LOADS = ("states_resident_total", "states_loaded_total")


def moved(s, names, function):
    """What the function returns, and how much these figures grew while it ran."""
    before = [s.metric(name) for name in names]
    result = function()
    return result, [int(s.metric(name) - b) for name, b in zip(names, before)]


def together(functions):
    """Runs all at once and returns their results in order."""
    out = [None] * len(functions)

    def run(i):
        out[i] = functions[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def done(name):
    print(f"{name}: {checks} checks, {len(failures)} failed")
    sys.exit(bool(failures))
