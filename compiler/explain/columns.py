"""Tables of text: columns as wide as they need to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def columns(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """One line for the head and for every row, cells two blanks apart; columns of numbers to the right."""
    body = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    found = [_column(head[index], [row[index] for row in body]) for index in range(len(head))]
    return ["  ".join(cells).rstrip() for cells in zip(*found, strict=True)]


def _column(head: str, cells: Sequence[str]) -> list[str]:
    width = max(map(len, (head, *cells)))
    numbers = all(cell.replace(",", "").isdigit() for cell in cells if cell)
    return [cell.rjust(width) if numbers else cell.ljust(width) for cell in (head, *cells)]
