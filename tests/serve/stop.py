#!/usr/bin/python3
"""stop.py PROGRAM TOP: `deltaic serve` on lavapipe, with no kernel compiled, gets a signal while it compiles. It ends
before it listens and before all kernels are compiled, with the signal's exit code, and leaves nothing behind but its
caches."""
import os, pty, re, signal, socket, subprocess, sys, tempfile, threading, time

program, top = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.path.append(top + "/tests/soak")
from soak_tools import free_port
launcher = os.environ.get("DELTAIC_LAUNCHER")
command = [launcher, program] if launcher else [program]
LONGEST = 300  # seconds; nothing here takes long
failures = []


def check(good, text):
    if not good:
        failures.append(text)
        print("FAILED:", text, flush=True)


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """At a terminal, since only there the server shows that it compiles. All kernels together take a core less than a
    second: the server gets one core."""

    def __init__(self, folder):
        self.port, self.text, self.log = free_port(), b"", folder + "/log"
        self.slow = None
        folders = {"XDG_CACHE_HOME": folder + "/cache", "TMPDIR": folder + "/tmp",
                   "MESA_SHADER_CACHE_DIR": folder + "/mesa"}
        os.mkdir(folder + "/tmp")
        self.terminal, terminal = pty.openpty()
        core = min(os.sched_getaffinity(0))
        self.process = subprocess.Popen(
            [*command, "serve", top + "/tests/vectors/models/tiny_gated_deltanet", "-d", "lavapipe", "-p", str(self.port)],
            env={**os.environ, **folders, "DELTAIC_LOG": self.log, "BARE": "1", "MESA": "mesa26"}, stderr=terminal,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        os.close(terminal)

    def read(self):
        try:
            part = os.read(self.terminal, 4096)
        except OSError:  # Linux: the other end is closed
            part = b""
        self.text += part
        return part

    def slow_down(self):
        """Lets it run a fifth of the time until end() is called, so that it shows what it does on any machine."""
        self.slow = threading.Event()

        def alternate():
            while not self.slow.wait(0.005):
                self.process.send_signal(signal.SIGSTOP)
                time.sleep(0.02)
                self.process.send_signal(signal.SIGCONT)

        self.slower = threading.Thread(target=alternate, daemon=True)
        self.slower.start()

    def read_until(self, pattern):
        while not re.search(pattern, self.text) and self.read():
            pass
        return re.search(pattern, self.text)

    def end(self, number):
        """The exit code, and how many kernels were compiled."""
        if self.slow:
            self.slow.set()
            self.slower.join()
        self.process.send_signal(number)
        while self.read():
            pass
        code = self.process.wait(LONGEST)
        with open(self.log) as log:
            made = re.findall(r"(\d+) pipelines made", log.read())
        return code, sum(map(int, made))


def run(what, number, code, pattern, all_kernels=None):
    with tempfile.TemporaryDirectory(dir=".", prefix="serve_stop.") as folder:
        folder = os.path.abspath(folder)
        server = Server(folder)
        signal.signal(signal.SIGALRM, lambda *_: server.process.kill())
        signal.alarm(LONGEST)
        if all_kernels is not None:
            server.slow_down()
        check(server.read_until(pattern), f"{what}: the server does not say {pattern}: {server.text}")
        listened = listens(server.port)
        got, made = server.end(number)
        signal.alarm(0)
        text = server.text.decode(errors="replace")
        check(got == code, f"{what}: exit code {got}, not {code}: {text}")
        check("Validation Error" not in text, f"{what}: {text}")
        check(os.listdir(folder + "/tmp") == [], f"{what}: {os.listdir(folder + '/tmp')} is left behind")
        left = [name.split(".", 1)[1] for name in os.listdir(folder + "/cache/deltaic")]
        check(sorted(left) == ["pipelines", "pipelines.lock"], f"{what}: the cache has {left}")
        if all_kernels is None:
            check(listened, f"{what}: the server does not listen")
            return made
        check(not listened and "server  http" not in text, f"{what}: the server listened: {text}")
        check(made < all_kernels, f"{what}: all {made} kernels were compiled")
        check(f"stopped by {what}" in text, f"{what}: {text}")
        print(f"{what}: {made} of {all_kernels} kernels", flush=True)
        return made


kernels = run("started", signal.SIGTERM, 0, b"server  http")
for name, number in ("SIGTERM", signal.SIGTERM), ("Ctrl-C", signal.SIGINT):
    run(name, number, 128 + number, b"compiling for this device: [1-9]", kernels)
print(f"{len(failures)} failed")
sys.exit(bool(failures))
