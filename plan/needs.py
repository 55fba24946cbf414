"""The tokens of a request that a reader needs: the one rule, in whole rows of tokens, and the room it takes in a ring.

The second opinion and the checksums have rules of their own, on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """The tokens of a range ending behind token `end` that a reader needs: all, unless `keep` or `chunk` is given.

    `keep`: the last `keep` tokens; `chunk`: those from the last multiple of `chunk` on; and the first `sink` tokens.
    With `whole` the range ends at a multiple of `whole` tokens: the reader computes the later ones again.
    """

    keep: int | None = None
    chunk: int | None = None
    sink: int = 0
    whole: int = 1

    def stop(self, end: int) -> int:
        """Return the end of the range that a reader has if the request ends behind token `end`."""
        return end // self.whole * self.whole

    def low(self, end: int) -> int:
        """Return the first needed token of a range that stops at `end`, apart from sinks; 0 or less for all."""
        window = 0 if self.keep is None else end - self.keep
        return max(window, 0 if self.chunk is None else end // self.chunk * self.chunk)

    def ranges(self, first: int, end: int, rows: int = 1) -> list[tuple[int, int]]:
        """Return the tokens that a reader of [first, end) needs: sinks, and those from `low` on; no empty ranges.

        Rows of `rows` tokens are whole: one that is not full at `end` is not needed, one with a sink is needed whole.
        """
        end = self.stop(end)
        if self.keep is None and self.chunk is None:
            start, stop = first // rows * rows, end // rows * rows
            return [(start, stop)] if start < stop else []
        low = max(first, self.low(end)) // rows * rows
        first, end = first // rows * rows, end // rows * rows
        sink = min(-(-self.sink // rows) * rows, end)
        apart = [(first, end)] if low <= sink else [(first, sink), (low, end)]
        return [(start, stop) for start, stop in apart if start < stop]


ALL = Needs()


def oldest(at: int, ring: int, rows: int = 1) -> int:
    """Return the first token still in a ring that stands after `at` tokens; a row has `rows` tokens."""
    return max(0, -(-at // rows) * rows - ring)


def room(needs: Needs, rows: int = 1) -> int | None:
    """Return the tokens that a ring must have room for, with rows of `rows` tokens; None if no ring is large enough.

    A row that is not full yet takes the place of a whole one, unless the needed rows begin with a chunk; and so do
    tokens behind the last whole block.
    """
    most = [needs.keep + rows - 1] if needs.keep is not None else []
    if needs.chunk is not None:
        most.append(needs.chunk - 1 if needs.chunk % rows == 0 else needs.chunk + rows - 2)
    return min(most) + needs.whole - 1 if most else None
