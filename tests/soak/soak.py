#!/usr/bin/env python3
"""Soak tests of `deltaic serve`: soak.py PROGRAM TOP WHAT [NAME=N ...]. WHAT, and the numbers of its full form:

crash   conversations=200 turns=20 tokens=24 every=10    a replica is killed every 10 s
many    conversations=10000 slots=256 memory=64          more conversations than slots and memory
abuse   seconds=600 good=10                              bad requests beside good clients
next    short=1000 long=100000 tries=9 kills=3 more=1    the time to a next turn's first token, as JSON
cut     streams=8 tokens=20000                           SIGTERM cuts texts, another replica goes on
down    streams=8 tokens=2000 turns=8                    a store that hangs beside streams

SOAK_MODEL and SOAK_DEVICE: another model, another device than the CPU. SOAK_ARGS: more options of all replicas.
"""
import asyncio
import json
import os
import random
import signal
import sys
import time

from soak_abuse import abuse
from soak_tools import Folder, Redis, Refused, check, fetch, question, stream, turn_body

PROGRAM, TOP = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
FORMS = {
    "crash": {"conversations": 200, "turns": 20, "tokens": 24, "every": 10},
    "many": {"conversations": 10000, "slots": 256, "memory": 64},
    "abuse": {"seconds": 600, "good": 10},
    "next": {"short": 1000, "long": 100000, "tries": 9, "kills": 3, "more": 1},
    "cut": {"streams": 8, "tokens": 20000},
    "down": {"streams": 8, "tokens": 2000, "turns": 8},
}
MODEL = os.environ.get("SOAK_MODEL", TOP + "/models/novelist")
COMMON = ["--device", os.environ.get("SOAK_DEVICE", "cpu"), "--model", MODEL,
          *os.environ.get("SOAK_ARGS", "").split()]


# ---------------------------------------------------------------- a replica is killed


async def converse(replicas, conversation, numbers, counts):
    """A conversation's texts. What fails before it is whole is asked again, at any replica."""
    texts, previous = [], None
    for turn in range(numbers["turns"]):
        body = turn_body(conversation, turn, numbers["tokens"], previous)
        end, failure = time.monotonic() + 300, None
        while True:
            check(time.monotonic() < end,
                  f"conversation {conversation}, turn {turn}: no answer in 300 s, {failure!r}; {counts}")
            for replica in replicas:
                check(not replica.child or replica.child.poll() is None, f"a replica ended: {replica.tail()}")
            try:
                answer = await asyncio.wait_for(stream(random.choice(replicas).port, body), 120)
                break
            except Refused as refused:
                check(refused.status in (429, 503), f"conversation {conversation}, turn {turn}: {refused}")
                counts["refused"] += 1
                failure = refused
                await asyncio.sleep(0.2)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                counts["repeated"] += 1
                failure = error
                await asyncio.sleep(0.05)
        texts.append(answer.text)
        previous = answer.id
        counts["turns"] += 1
        counts["cached"] += answer.cached > 0
    return texts


async def all_converse(replicas, numbers, counts):
    return await asyncio.gather(*(converse(replicas, c, numbers, counts) for c in range(numbers["conversations"])))


async def kill_by_turns(replicas, every, counts):
    while True:
        for replica in replicas:
            await asyncio.sleep(every)
            replica.end(signal.SIGKILL)
            counts["killed"] += 1
            await asyncio.sleep(0.5)
            replica.start()
            await replica.ready()


async def crash(folder, n):
    def new_counts():
        return dict.fromkeys(("turns", "repeated", "refused", "killed", "cached"), 0)

    args = ["--reproducible", "--slots", "64", "--quiet"]
    alone = folder.replica("alone", *args)
    await alone.ready()
    quiet = new_counts()
    begin = time.monotonic()
    expected = await all_converse([alone], n, quiet)
    print(f"uninterrupted: {quiet['turns']} turns in {time.monotonic() - begin:.1f} s")
    alone.end()

    redis = folder.add(Redis(folder.path))
    replicas = [folder.replica(f"replica{i}", *args, "--store", redis.url) for i in range(2)]
    for replica in replicas:
        await replica.ready()
    counts = new_counts()
    begin = time.monotonic()
    killer = asyncio.create_task(kill_by_turns(replicas, n["every"], counts))
    texts = await all_converse(replicas, n, counts)
    print(f"with kills: {counts} in {time.monotonic() - begin:.1f} s")
    check(not killer.done(), "the replicas could not be started again")
    killer.cancel()
    wrong = [(c, t) for c in range(n["conversations"]) for t in range(n["turns"]) if texts[c][t] != expected[c][t]]
    check(counts["killed"] > 0, "no replica was killed")
    check(not wrong, f"{len(wrong)} turns differ, the first of conversation {wrong[:1]}")
    check(counts["turns"] == n["conversations"] * n["turns"], "a turn is lost")


# ---------------------------------------------------------------- many conversations


async def many(folder, n):
    tokens, gate = 4, asyncio.Semaphore(n["slots"])
    for stored in (True, False):
        redis = folder.add(Redis(folder.path)) if stored else None
        args = ["--slots", str(n["slots"]), "--memory", str(n["memory"]), "--quiet"]
        # 20,000 states take 4.8 GiB of 16 bits; the store is to lose none.
        args += ["--store", redis.url, "--store-bits", "16", "--store-size", "0"] if redis else []
        replica = folder.replica(f"many{stored}", *args)
        await replica.ready()
        await stream(replica.port, turn_body(0, 0, tokens, None))
        before, most = replica.resident(), 0

        async def turn(c, i, previous):
            nonlocal most
            async with gate:
                answer = await stream(replica.port, turn_body(c, i, tokens, previous))
            most = max(most, replica.resident())
            return answer.id

        begin = time.monotonic()
        ids = await asyncio.gather(*(turn(c, 0, None) for c in range(n["conversations"])))
        order = list(range(n["conversations"]))
        random.Random(1).shuffle(order)
        await asyncio.gather(*(turn(c, 1, ids[c]) for c in order))
        m = await replica.metrics()
        seconds = time.monotonic() - begin
        print(f"{'with' if stored else 'without'} a store: {2 * n['conversations']} turns in {seconds:.1f} s, "
              f"{m['states_recomputed_total']:.0f} states computed again, "
              f"{m['store_hits_total']:.0f} values from the store, {m['memory_evicted_total']:.0f} left memory, "
              f"{most / 2**20:.0f} MiB resident, {before / 2**20:.0f} at first")
        check(m["memory_evicted_total"] > 0, "the memory bound was not reached")
        # Turns have a quarter of the states' share; the store's queue and what runs come on top.
        bound = (n["memory"] * 1.5 + 600) * 2**20
        check(m["memory_bytes"] <= 1.25 * n["memory"] * 2**20, f"{m['memory_bytes']:.0f} bytes of states and turns")
        check(most - before < bound, f"{(most - before) / 2**20:.0f} MiB more than at first")
        if stored:
            check(m["states_recomputed_total"] == 0, "states were lost in spite of a store")
        else:
            check(m["states_recomputed_total"] > 0, "no state had to be computed again")
        replica.end()


# ---------------------------------------------------------------- the next turn


async def first_token(replica, turn, tokens):
    """Seconds until the first token behind a turn and these tokens, and how many did not have to be read."""
    begin = time.monotonic()
    answer = await stream(replica.port, {"prompt": tokens, "max_tokens": 2, "temperature": 0, "ignore_eos": True,
                                         "store": False, "previous_response_id": turn})
    return answer.times[0] - begin, answer.cached


async def warm(replica):
    await replica.ready()
    await stream(replica.port, {"prompt": "Warm", "max_tokens": 2})


async def after_kill(one, two, turn, more):
    """Kills replica `one`, which has the state in memory, and asks the other. Then `one` has it again."""
    one.end(signal.SIGKILL)
    took = await first_token(two, turn, more)
    one.start()
    await warm(one)
    await first_token(one, turn, more)
    return took


async def next_turn(folder, n):
    redis = folder.add(Redis(folder.path))
    args = ["--store", redis.url, "--context", str(n["long"] + n["more"] + 10), "--quiet"]
    one = folder.replica("one", "--memory", "65536", *args)
    two = folder.replica("two", "--memory", "0", *args)
    await warm(one)
    await warm(two)
    more, computed = [301 + i for i in range(n["more"])], 0
    for length in (n["short"], n["long"]):
        draw = random.Random(length)
        tokens = [draw.randrange(300, 3000) for _ in range(length)]
        begin = time.monotonic()
        turn = await stream(one.port, {"prompt": tokens, "max_tokens": 1, "temperature": 0, "ignore_eos": True})
        read = turn.times[0] - begin
        while (await one.metrics())["store_waiting_bytes"]:
            await asyncio.sleep(0.01)
        places = {"memory": (n["tries"], lambda: first_token(one, turn.id, more)),
                  "Redis": (n["tries"], lambda: first_token(two, turn.id, more)),
                  "Redis, the holder killed": (n["kills"], lambda: after_kill(one, two, turn.id, more))}
        for place, (tries, ask) in places.items():
            took = [await ask() for _ in range(tries)]
            ms = sorted(round(1e3 * seconds, 1) for seconds, _ in took)
            again = sum(cached < length for _, cached in took)
            computed += again
            print(json.dumps({"behind": length, "read_seconds": round(read, 2), "more": n["more"], "state": place,
                              "first_ms": {"p50": ms[len(ms) // 2], "min": ms[0], "max": ms[-1], "count": len(ms)},
                              "computed_again": again}), flush=True)
    check(not computed, f"{computed} times the history was computed again")


# ---------------------------------------------------------------- SIGTERM


async def cut(folder, n):
    redis = folder.add(Redis(folder.path))
    args = ["--store", redis.url, "--drain", "1", "--tokens", str(n["tokens"]), "--slots", "16"]
    one, two = (folder.replica(name, *args) for name in ("one", "two"))
    await one.ready()
    await two.ready()
    streams = [asyncio.create_task(stream(one.port, {"prompt": question(i, 0), "max_tokens": n["tokens"], "seed": i}))
               for i in range(n["streams"])]
    await asyncio.sleep(1)
    running = [task for task in streams if not task.done()]
    check(running, "every text ended before the signal")
    one.child.send_signal(signal.SIGTERM)
    answers = await asyncio.gather(*running)
    check(one.child.wait() == 0, "the server's exit code is not 0")
    for answer in answers:
        again = await stream(two.port, {"prompt": " Then", "max_tokens": 2, "previous_response_id": answer.id})
        check(again.cached >= len(answer.times), f"{again.cached} of {len(answer.times)} tokens were kept")
    print(f"{len(answers)} texts were cut and went on")


# ---------------------------------------------------------------- a store that hangs


async def timed(port, body):
    begin = time.monotonic()
    answer = await stream(port, body)
    answer.times = [begin, *answer.times, time.monotonic()]
    return answer


async def down(folder, n):
    timeout = 8  # seconds, far longer than any other pause
    redis = folder.add(Redis(folder.path))
    replica = folder.replica("replica", "--store", redis.url, "--store-timeout", str(1000 * timeout), "--slots", "16",
                             "--tokens", "10000")
    await replica.ready()
    # A long text: fetching its state is faster than computing it, even on a slow machine.
    turn = await stream(replica.port, {"prompt": question(0, 0) * 100, "max_tokens": 8, "temperature": 0})
    replica.end(signal.SIGTERM)  # so that it has nothing in memory
    replica.start()
    await replica.ready()
    streams = [asyncio.create_task(timed(replica.port, {"prompt": question(i, 0), "max_tokens": n["tokens"], "seed": i,
                                                        "store": False})) for i in range(n["streams"])]
    while (await replica.metrics())["slots_busy"] < n["streams"]:
        await asyncio.sleep(0.01)
    redis.child.send_signal(signal.SIGSTOP)
    ask = {"prompt": " Then", "max_tokens": 2, "previous_response_id": turn.id}
    path = f"/v1/states/{turn.id}"
    gets = [asyncio.create_task(fetch(replica.port, "GET", path)) for _ in range(n["turns"])]
    turns = [asyncio.create_task(stream(replica.port, ask)) for _ in range(n["turns"])]
    answers = await asyncio.gather(*streams)
    gap = max(b - a for answer in answers for a, b in zip(answer.times, answer.times[1:]))
    check(gap < timeout / 2, f"a stream waited {gap:.1f} s beside a store that hangs")
    refused = await asyncio.gather(*turns, return_exceptions=True)
    check(all(isinstance(r, Refused) for r in refused), f"turns without the store: {refused}")
    check(all(r.status == 503 for r in refused), f"turns without the store: {refused}")
    check({status for status, _ in await asyncio.gather(*gets)} == {503}, "a store that hangs has sent a state")
    check("does not answer" in replica.tail(), "the log does not tell that the store hangs")
    redis.child.send_signal(signal.SIGCONT)
    for _ in range(100):
        try:
            again = await stream(replica.port, ask)
            break
        except Refused:
            await asyncio.sleep(0.2)
    check(again.cached >= 8, "the turn was not found when the store answered again")
    status, state = await fetch(replica.port, "GET", path)
    check(status == 200, f"GET of a state: {status}")
    status, text = await fetch(replica.port, "PUT", "/v1/states/put_back", state)
    check(status == 200, f"PUT of a state: {status}, {text}")
    again = await stream(replica.port, {**ask, "previous_response_id": "put_back"})
    check(again.cached >= 8, "the state that was put back was not used")
    print(f"the longest wait of {n['streams']} streams: {1e3 * gap:.0f} ms")


async def main():
    if len(sys.argv) < 4 or sys.argv[3] not in FORMS:
        raise SystemExit(__doc__)
    what, numbers = sys.argv[3], dict(pair.split("=") for pair in sys.argv[4:])
    wrong = set(numbers) - set(FORMS[what])
    check(not wrong, f"{what} has no {wrong}")
    n = {**FORMS[what], **{name: int(value) for name, value in numbers.items()}}
    print(what, n)
    with Folder(PROGRAM, COMMON) as folder:
        forms = {"crash": crash, "many": many, "abuse": abuse, "next": next_turn, "cut": cut, "down": down}
        await forms[what](folder, n)
    print("passed")


asyncio.run(main())
