"""Which tokens of a request a reader needs: the one rule, in whole rows of tokens, and what it asks of a ring.

The second opinion and the checksums have rules of their own, on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """Which tokens of a range that ends behind token `end` a reader must have: all, unless `keep` or `chunk` is given.

    `keep`: the last `keep` tokens; `chunk`: those from the last multiple of `chunk` on; and the first `sink` tokens.
    With `whole` the range ends at a multiple of so many tokens: those behind it are computed again by the reader.
    """

    keep: int | None = None
    chunk: int | None = None
    sink: int = 0
    whole: int = 1

    def stop(self, end: int) -> int:
        """Where the range ends that a reader has, of one that ends behind token `end`."""
        return end // self.whole * self.whole

    def low(self, end: int) -> int:
        """The first token that is needed of a range that stops at `end`, sinks set aside; 0 or less for all."""
        window = 0 if self.keep is None else end - self.keep
        return max(window, 0 if self.chunk is None else end // self.chunk * self.chunk)

    def ranges(self, first: int, end: int, rows: int = 1) -> list[tuple[int, int]]:
        """The tokens that a reader of [first, end) must have: sinks, and those from `low` on; none that is empty.

        Rows of `rows` tokens are whole: one that is not full at `end` is nobody's, one with a sink is needed whole.
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
    """The first token that a ring which stands after `at` tokens still holds, where a row is of `rows` tokens."""
    return max(0, -(-at // rows) * rows - ring)


def room(needs: Needs, rows: int = 1) -> int | None:
    """The tokens that a ring must have room for, with rows of `rows` tokens; None where no ring is large enough.

    A row that is not full yet takes the place of a whole one, unless the needed rows begin with a chunk; and so do
    tokens behind the last whole block.
    """
    most = [needs.keep + rows - 1] if needs.keep is not None else []
    if needs.chunk is not None:
        most.append(needs.chunk - 1 if needs.chunk % rows == 0 else needs.chunk + rows - 2)
    return min(most) + needs.whole - 1 if most else None
