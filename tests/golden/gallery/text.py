"""Pieces of Markdown: tables, links, sizes, words. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.yaml_reader import Tree, YamlList, YamlScalar, YamlTable

UNITS = ("B", "KiB", "MiB", "GiB")
# From a page in docs/gallery/kinds or docs/gallery/models.
ROOT = "../../.."
NOBODY = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table; nothing at all without rows. Columns that are empty in every row are left out."""
    found = [[cell(value) for value in row] for row in rows]
    used = [n for n in range(len(head)) if any(row[n] for row in found)]
    lines = [[head[n] for n in used], ["---"] * len(used), *([row[n] or NOBODY for n in used] for row in found)]
    return [f"| {' | '.join(line)} |" for line in lines] if found else []


def cell(value: object) -> str:
    """One line, in which a bar separates nothing."""
    return " ".join(str(value).split()).replace("|", "\\|")


def block(lines: Iterable[str], language: str = "text") -> list[str]:
    return [f"```{language}", *(line.rstrip() for line in lines), "```"]


def page(*sections: Sequence[str]) -> str:
    """Sections with an empty line between them; empty ones are left out."""
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def code(text: object) -> str:
    return f"`{' '.join(str(text).split())}`" if str(text) else ""


def codes(words: Iterable[object]) -> str:
    return ", ".join(code(word) for word in words)


def size(count: int) -> str:
    """`512 B`, `1.5 KiB`, `128 MiB`: four figures at most."""
    if count < 1024:
        return f"{count} B"
    power = min(int(math.log(count, 1024)), len(UNITS) - 1)
    return f"{count / 1024**power:.4g} {UNITS[power]}"


def exact(number: Fraction) -> str:
    """`1,152`, or a decimal fraction that is not rounded where there is one: `4.5625`."""
    return f"{int(number):,}" if number.denominator == 1 else f"{float(number):,}"


def count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def spans(numbers: Iterable[int]) -> str:
    """`0-3, 7`; numbers at equal distances as `3, 7, … 47`."""
    known = sorted(numbers)
    steps = {b - a for a, b in pairwise(known)}
    if len(known) > 3 and len(steps) == 1 and steps != {1}:
        return f"{known[0]}, {known[1]}, … {known[-1]}"
    runs: list[list[int]] = []
    for number in known:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def said(root: YamlTable, key: str) -> str:
    """The text of a key, empty where there is none; several values with commas."""
    return written(root.get(key))


def written(tree: Tree | None) -> str:
    if isinstance(tree, YamlScalar):
        return " ".join(tree.split())
    if isinstance(tree, YamlList):
        return " or ".join(written(item) for item in tree.items)
    return ", ".join(f"{e.key} {written(e.value)}" for e in tree.entries) if isinstance(tree, YamlTable) else ""


def default_first(library: Library) -> list[Engine]:
    """All engines, the one that sides run which name none first."""
    first = library.default_engine
    return [library.engines[name] for name in sorted(library.engines, key=lambda name: (name != first, name))]
