"""Plans in words: numbers with their nouns, what a pair of groups reads of a request, tables of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvplan.dsl.text.diagnostics import ranges
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.spans import group_named
from kvplan.plan.types import CONTEXT, Needs, Pair, Plan

# What the figures of a transfer count.
FIGURES = (
    "A span is contiguous on both sides; NIXL posts one descriptor for a span, or for several that adjoin. Descriptors "
    "in the worst case (no adjacent blocks)"
)


def many(count: int, word: str) -> str:
    """`1 head`, `2 heads`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def interval(held: Sequence[int]) -> str:
    """A half-open interval as a reader counts: `0-3` for [0, 4)."""
    first, end = held
    return "none" if first >= end else ranges(range(first, end))


def needed(needs: Needs) -> str:
    """Which tokens a reader must have; empty for all of them."""
    late = [f"the last {many(needs.keep, 'token')}"] if needs.keep is not None else []
    late += [f"those from the last multiple of {needs.chunk:,} on"] if needs.chunk is not None else []
    early = [f"the first {many(needs.sink, 'token')}"] if late and needs.sink else []
    return " and ".join([*early, *late])


def reading(plan: Plan, pair: Pair) -> str:
    """Everything about what a pair reads that is not `all tokens of the context`; empty where it is."""
    length = group_named(plan.decode, pair.decode).length
    words = [f"only {needed(pair.needs)}"] if needed(pair.needs) else []
    words += [f"a row per {pair.rows:,} tokens, moved whole with the last of them"] if pair.rows > 1 else []
    words += [f"tokens are those of {length!r}"] if length != CONTEXT else []
    return "; ".join(words)


def readings(plan: Plan) -> list[str]:
    """A sentence for every such reading, with the pairs that it is of."""
    alike = grouped((reading(plan, pair), pair.name) for pair in plan.pairs)
    return [f"{', '.join(pairs)}{', each' if len(pairs) > 1 else ''}: {said}." for said, pairs in alike.items() if said]


def columns(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """One line for the head and for every row, cells two blanks apart; columns of numbers to the right."""
    body = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    found = [_column(head[index], [row[index] for row in body]) for index in range(len(head))]
    return ["  ".join(cells).rstrip() for cells in zip(*found, strict=True)]


def _column(head: str, cells: Sequence[str]) -> list[str]:
    width = max(map(len, (head, *cells)))
    numbers = all(cell.replace(",", "").isdigit() for cell in cells if cell)
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in (head, *cells)]
