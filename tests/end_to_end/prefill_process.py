"""Every other prefill worker of one case after the other, over NIXL, as lines of the standard input ask for it.

`case STRATEGY NAME` prints the workers' addresses; `addresses …` are announced; `stamp REQUEST` fills the memory and
holds it; `finished REQUEST` waits until every worker that stores something has released the request; `end` gives the
case up.
"""

from __future__ import annotations

import sys
import time

from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.hardest import HARDEST
from tests.end_to_end.memory import PADDED, ids_of, refill, regions_of, stamp
from tests.end_to_end.worlds import SECONDS, STAGE, ended, holds, source

from kvplan.runtime import Nixl, PrefillWorker


def heard() -> tuple[str, str]:
    """The next line of input: its first word, and the rest."""
    word, _, rest = sys.stdin.readline().strip().partition(" ")
    return word, rest


def serve(name: str, strategy: str, first: int, step: int) -> None:
    """All of one case."""
    case = HARDEST[name]
    plan, both, asked = compiled(case, strategy), sides(case), requests(case)
    ids, regions = max(ids_of(r.prefill) for r in asked.values()), regions_of(both, list(asked.values()))
    mine = [source(plan, both[0], n, ids, Nixl, stage_bytes=STAGE) for n in range(first, len(both[0].workers), step)]
    print(" ".join(worker.address for worker, _ in mine), flush=True)
    addresses = heard()[1].split()
    for worker, _ in mine:
        worker.announce(addresses)
    told = [worker for worker, memory in mine if holds(memory, plan)]
    while (line := heard())[0] != "end":
        word, request = line
        for worker, memory in mine if word == "stamp" else ():
            refill(memory, PADDED)
            stamp(memory, regions, asked[request].prefill)
            worker.hold(request)
        print("stamped" if word == "stamp" else finished(told, request), flush=True)
    for worker, _ in mine:
        worker.close()


def finished(workers: list[PrefillWorker], request: str) -> str:
    """`finished` once each of `workers` has released `request`, and no other; otherwise what they released."""
    released: list[tuple[str, ...]] = [() for _ in workers]
    until = time.monotonic() + SECONDS
    while not all(released) and time.monotonic() < until:
        released = [names + ended(worker) for names, worker in zip(released, workers, strict=True)]
        time.sleep(0.001)
    return "finished" if all(names == (request,) for names in released) else repr(released)


def main(first: int, step: int) -> None:
    """Serve cases until the input ends."""
    while (line := heard())[0] == "case":
        strategy, _, name = line[1].partition(" ")
        serve(name, strategy, first, step)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
