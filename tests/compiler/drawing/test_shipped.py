"""The text drawings of every shipped model agree with naive indexing about every byte."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from tests.compiler.explain.picture.test_page_map import SHIPPED, compiled, ends
from tests.shares import later

from kvplan.compiler.check.oracle import OraclePlane, planes
from kvplan.compiler.drawing.pieces import Around, DrawnPadding, DrawnSpan, Piece
from kvplan.compiler.drawing.tensors import DrawnTensor, page_of, page_pieces
from kvplan.plan.planes import entries
from kvplan.plan.planes import planes as names
from kvplan.plan.spans import group_named

LABEL = re.compile(r"(\w+) (\d+)(?:-(\d+))?")


def said(
    pieces: tuple[Piece, ...], at: int, around: Around, labels: tuple[str, ...]
) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Every tensor that is drawn, (byte, tensor, what the rows around it are called), of first and last rows."""
    for piece in pieces:
        if isinstance(piece, DrawnSpan):
            assert isinstance(piece.span.drawable, DrawnTensor)
            yield at + piece.span.offset, piece.span.drawable.view.tensor, labels
        elif not isinstance(piece, DrawnPadding):
            for turn in {0, piece.loop.count - 1}:
                inner: Around = (*around, (piece.loop, turn))
                tensor = next(found for found in _tensors(piece.body))
                where = at + piece.offset + turn * piece.loop.step
                yield from said(piece.body, where, inner, (*labels, tensor.row(inner, False)[0]))


def _tensors(pieces: tuple[Piece, ...]) -> Iterator[DrawnTensor]:
    for piece in pieces:
        if isinstance(piece, DrawnSpan):
            assert isinstance(piece.span.drawable, DrawnTensor)
            yield piece.span.drawable
        elif not isinstance(piece, DrawnPadding):
            yield from _tensors(piece.body)


def found(plane: OraclePlane, byte: int, tensor: str) -> dict[str, int]:
    """The coordinate of an element of a tensor by naive indexing."""
    field = next(field for field in plane.fields if field.tensor.name == tensor)
    (first,) = np.argwhere(field.offset == byte)
    return {axis: int(numbers[at]) for (axis, numbers), at in zip(field.axes, first, strict=True)}


@pytest.mark.parametrize("pair", [*SHIPPED[::2], *later((pair,) for pair in SHIPPED[1::2])], ids=" ".join)
def test_rows_are_called_what_naive_indexing_finds(pair: tuple[str, str, str]) -> None:
    made, _ = compiled(pair)
    seen = 0
    for side, bound in ((made.plan.prefill, made.prefill), (made.plan.decode, made.decode)):
        for worker in (side.workers[each.number] for each in ends(bound)):
            known = planes(bound, bound.workers[side.workers.index(worker)])
            firsts = {entry: plane for plane, entry in reversed([*zip(names(worker), entries(worker), strict=True)])}
            for entry, plane in firsts.items():
                drawn = page_pieces(page_of(worker, entry, group_named(side, entry.group)))
                for byte, tensor, labels in said(drawn, 0, (), ()):
                    where = found(known[plane.name], byte, tensor)
                    for axis, low, high in (LABEL.findall(label)[0] for label in labels):
                        item = where["token" if axis == "row" else axis]
                        assert int(low) <= item <= int(high or low), (plane.name, tensor, byte, labels, where)
                    seen += 1
    assert seen
