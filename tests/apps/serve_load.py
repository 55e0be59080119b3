#!/usr/bin/python3
"""serve_load.py PROGRAM TOP LOAD_SERVE: what tests/soak/load_serve counts, on a server of `deltaic serve`."""
import json, subprocess, sys
from serve_tools import Server, check, done

program, top, load = sys.argv[1:4]


def run(*args, code=0):
    got = subprocess.run([load, *args], capture_output=True, text=True, timeout=120)
    check(got.returncode == code, f"{args}: exit code {got.returncode}: {got.stdout} {got.stderr}")
    return json.loads(got.stdout) if code < 2 else got.stderr


s = Server(program, top + "/models/novelist", "--slots", "8", "--reproducible", "--stall", "1")
port = str(s.port)
for seconds in ("1", "6", "40"):  # until a slow machine has answered a prompt too
    seen = run("--clients", "4", "--seconds", seconds, "--tokens", "60", "--prompt", "300", "--every", "0.2", port)
    if seen["first_ms"] and seen["prompts"]["first_ms"]:
        break
check(seen["clients"] == 4 and seen["errors"] == 0, f"streams: {seen}")
check(seen["first_ms"]["count"] >= 4 and seen["prompts"]["first_ms"]["count"] > 0, f"first tokens: {seen}")
check(seen["between_ms"]["p50"] <= seen["between_ms"]["p99"] <= seen["between_ms"]["max"], f"times: {seen}")
check(0 < seen["parts_per_second"] <= 1.1 * seen["tokens_per_second"] and 0 < seen["tokens_per_step"] <= 8, f"tokens: {seen}")
s.wait_metric("slots_busy", 0)

seen = run("--clients", "7", "--same", "24", "--tries", "2", port)
check(seen["equal"] == 2 and seen["all_ran"], f"the same tokens beside others: {seen}")

seen = run("--turns", "100,900", "--tries", "3", port)
check([row["behind"] for row in seen["turns"]] == [100, 900], f"turns: {seen}")
check(all(row["first_ms"]["count"] == 3 and row["least_cached"] >= row["behind"] for row in seen["turns"]), f"cached: {seen}")
seen = run("--turns", "100", "--tries", "3", "--resend", port)
check(seen["turns"][0]["least_cached"] == 0, f"without an id nothing is cached: {seen}")

seen = run("--turns", "100", "--vocabulary", "1000000", port, code=1)
check(seen["errors"] == 1 and "vocabulary" in seen["first_error"], f"an answer of 400: {seen}")
check("no number" in run("--clients", "x", port, code=2), "a wrong option")
s.end()
check("refused" in run("--turns", "5", port, code=1)["first_error"], "no server")
done("load_serve")
