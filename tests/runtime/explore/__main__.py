"""`make model`: every order of messages, copies and troubles of two protocol cores, and how many states there are."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from tests.runtime.explore.search import Found, explore
from tests.runtime.explore.world import Fixed

# Each of these may happen at any point.
TROUBLES = ("time", "lose", "cancel", "withdraw", "fail", "restart prefill", "restart decode")
# Names of the holds, and how many troubles there may be.
SPACES = ((("a", "a"), 1), (("a", "a"), 2), (("a", "b", "a"), 1))
DEPTH = 200


def space(names: tuple[str, ...], push: bool, chunked: bool, most: int, depth: int = DEPTH) -> Found:
    """All states of these holds with at most so many troubles, to a depth."""
    return explore(Fixed.of(push, chunked, names), dict.fromkeys(TROUBLES, most), most, depth)


def main(depth: int) -> None:
    either = False, True
    wanted = [(*of, most) for (names, most) in SPACES for of in product((names,), either, either)]
    print(f"{'holds':8} {'mode':5} {'moved':7} troubles  states    steps     ends    depth")
    began = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        found = [(of, pool.submit(space, *of, depth)) for of in wanted]
        for (names, push, chunked, most), future in found:
            one = future.result()
            what = f"{','.join(names):8} {'push' if push else 'pull':5} {'chunks' if chunked else 'whole':7} {most:8}"
            reach = f"{one.depth}, all of them" if one.whole else f"{one.depth}, and there are more"
            print(f"{what}  {one.states:<9} {one.steps:<9} {one.ends:<7} {reach}", flush=True)
    print(f"no law is broken in any of them ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEPTH)
