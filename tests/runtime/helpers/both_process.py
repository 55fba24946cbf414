"""A process that has the engine `b` of `both.py` over NIXL, and does what its input says, one word a line.

`meet ADDRESS` meets engine a. `move` has one request loaded from a and compares its bytes. The answer is how many
connections there are.
"""

from __future__ import annotations

import sys

from tests.runtime.helpers.both import check, engines, hold, request, submit
from tests.runtime.helpers.plans import Shape

SHAPES = Shape(1, 4), Shape(1, 2, 2)


def main(*ways: str) -> None:
    with engines(*ways, nixl=True) as made:
        b = made.engine("b", "b1", SHAPES[::-1])
        hold(b, request(SHAPES[::-1], "ba", 1), 1)
        print(b.address, flush=True)
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "meet":
                b.decode[0].connect(rest[0], 30)
            if word == "move":
                asked = request(SHAPES, "ab", 0)
                for transfer in submit(b, asked, "a"):
                    transfer.wait()
                check(b, asked, 0)
            print(len(b.connections()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
