"""A prefill worker in a process of its own: prints its address, reads all addresses, serves until its input ends."""

from __future__ import annotations

import sys
import threading

from kvplan.runtime import Nixl, PrefillWorker, views
from tests.runtime.plans import Model, Shape, plan
from tests.runtime.worlds import fill, memory, tables, truth

SHAPES, MODEL, TOKENS = (Shape(2), Shape(1)), Model(), 45
PREFILL_IDS, DECODE_IDS = list(range(20, 8, -1)), [3, 9, 4, 5, 6, 30, 1, 2, 12, 11, 13, 39]


def main(number: int, generation: str) -> None:
    arrays = memory(SHAPES[0], MODEL, number)
    fill(SHAPES[0], MODEL, number, arrays, truth(MODEL, TOKENS), tables(SHAPES[0], MODEL, PREFILL_IDS, 0, 2, TOKENS))
    made = plan(*SHAPES, MODEL)
    pool = views(made.prefill, number, arrays)
    worker = PrefillWorker(made, number, pool, Nixl(f"p{number}"), generation=generation)
    print(worker.address, flush=True)
    worker.announce(sys.stdin.readline().split())
    threading.Thread(target=report, args=(worker,), daemon=True).start()
    worker.start()
    sys.stdin.read()
    worker.close()


def report(worker: PrefillWorker) -> None:
    while True:
        for request in worker.finished():
            print(f"finished {request}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
