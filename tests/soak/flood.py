"""Garbage by the hundred thousand, at a worker that serves requests all the while, and a liar to connect to."""

from __future__ import annotations

import threading
import time
from random import Random

from tests.cluster import garbage
from tests.cluster.cluster import Cluster
from tests.cluster.load import Load, Mix

from kvplan.runtime.control.messages import ToDecode

FULL, REST = 100_000, 40.0


def flood(cluster: Cluster, count: int, random: Random) -> list[str]:
    """Send `count` messages to a prefill worker while requests run; return the faults. All requests must be done."""
    sent = list[int]()
    address = cluster.prefill.addresses[0]
    sender = threading.Thread(target=lambda: sent.append(garbage.to_zmq(address, count, random)), daemon=True)
    sender.start()
    mix = Mix(at_once=4, fed=0.3, cancelled=0, withdrawn=0, timeouts=(30.0,))
    load = Load(cluster, Random(random.random()), mix)
    while sender.is_alive() or load.begun < 10:
        load.step()
    until = time.monotonic() + REST
    while cluster.jobs and time.monotonic() < until:
        load.step(begin=False)
    ended = cluster.tally.ended
    found = [f"{load.begun} requests, of which {dict(ended)}"] if ended["done"] != load.begun else []
    found += [f"{sent} of {count} messages were taken"] if sent != [count] else []
    return [*found, *cluster.tally.wrong, *cluster.settle(0), *cluster.audit()]


def lies(cluster: Cluster, count: int, random: Random) -> list[str]:
    """Connect so often to one who answers garbage; answers that are no named error."""

    def answer(asked: bytes) -> list[bytes]:
        return [garbage.frame(random, ToDecode) for _ in range(random.choice((1, 1, 1, 2)))]

    found, worker = list[str](), cluster.decode[0].workers[0]
    with garbage.liar(answer) as address:
        for _ in range(count):
            said = worker.call("connect", address=address, timeout=0.05)
            if said["ok"] or said["code"] == "crash":
                found.append(str(said))
    return found
