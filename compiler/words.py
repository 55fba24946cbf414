"""Plans in words: numbers with their nouns, what a pair of groups reads, tables of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap

from kvplan.dsl.text.diagnostics import ranges
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.spans import group_named
from kvplan.plan.types import CONTEXT, GroupPair, Needs, Plan

# An installed kvplan has no docs.
DOCS = "https://github.com/kvplan/kvplan/blob/main/docs"
# The explanation of a transfer's figures.
FIGURES = (
    "A span is contiguous on both sides; NIXL posts one descriptor for a span, or for several that adjoin. Descriptors "
    "in the worst case (no adjacent blocks)"
)
NUMBER = re.compile(r"[\d,.]+")


def many(count: int, word: str) -> str:
    """Return a count with its noun: `1 head`, `2 heads`, `2 runs of tokens`."""
    noun, of, rest = word.partition(" of ")
    return f"{count:,} {noun}{'' if count == 1 else 's'}{of}{rest}"


def interval(held: Sequence[int]) -> str:
    """Return a half-open interval as a reader counts: `0-3` for [0, 4)."""
    first, end = held
    return "none" if first >= end else ranges(range(first, end))


def part_name(part: str | None, tensors: Iterable[str]) -> str:
    """Name an allocation: by its tensors if it has only a number, which would look like that of a worker or group.

    Empty if all of a layer lies in one allocation.
    """
    return "+".join(dict.fromkeys(tensors)) if part and part.isdigit() else part or ""


def needed(needs: Needs) -> str:
    """Say which tokens a reader must have; empty for all of them."""
    late = [f"the last {many(needs.keep, 'token')}"] if needs.keep is not None else []
    late += [f"those from the last multiple of {needs.chunk:,} on"] if needs.chunk is not None else []
    early = [f"the first {many(needs.sink, 'token')}"] if late and needs.sink else []
    whole = f"those in whole blocks of {needs.whole:,}" if needs.whole > 1 else ""
    of = f", of {whole}" if early or late else whole
    return " and ".join([*early, *late]) + (of if whole else "")


def reading(plan: Plan, pair: GroupPair) -> str:
    """Say how a pair's reading differs from `all tokens of the context`; empty if it does not."""
    length = group_named(plan.decode, pair.decode).length
    words = [f"only {needed(pair.needs)}"] if needed(pair.needs) else []
    words += [f"a row per {pair.rows:,} tokens, moved whole with the last of them"] if pair.rows > 1 else []
    words += [f"tokens are those of {length!r}"] if length != CONTEXT else []
    return "; ".join(words)


def readings(plan: Plan) -> list[str]:
    """Return a sentence for every such reading, with its pairs."""
    alike = grouped(
        (f"{said}{_window(pair.needs)}", pair.name) for pair in plan.group_pairs if (said := reading(plan, pair))
    )
    return [f"{', '.join(pairs)}{', each' if len(pairs) > 1 else ''}: {said}." for said, pairs in alike.items()]


def _window(needs: Needs) -> str:
    return "" if needs.keep is None else f" (a window of {needs.keep + 1:,} includes the next token)"


def columns(head: Sequence[str], rows: Iterable[Sequence[object]], width: int = 0) -> list[str]:
    """Return one line for the head and for every row, cells two blanks apart; numbers are aligned to the right.

    With a `width` in characters the widest columns of words are wrapped until the table fits, as far as words allow.
    """
    body = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    every = [list(head), *body]
    numbers = [all(NUMBER.fullmatch(row[n]) for row in body if row[n]) for n in range(len(head))]
    widths = _narrowed([max(len(row[n]) for row in every) for n in range(len(head))], every, width)
    lines = (line for row in every for line in zip_longest(*map(_wrapped, row, widths), fillvalue=""))
    return ["  ".join(map(_aligned, line, widths, numbers)).rstrip() for line in lines]


def _narrowed(widths: list[int], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Narrow columns until a table fits; none becomes narrower than its longest word."""
    least = [max((len(word) for row in rows for word in row[n].split()), default=0) for n in range(len(widths))]
    while width and sum(widths) + 2 * (len(widths) - 1) > width:
        spare = [have - need for have, need in zip(widths, least, strict=True)]
        if max(spare) <= 0:
            break
        at = max(range(len(widths)), key=lambda n: (spare[n] > 0, widths[n]))
        widths[at] -= 1
    return widths


def _wrapped(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return wrap(cell, width, break_long_words=False, break_on_hyphens=False)


def _aligned(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
