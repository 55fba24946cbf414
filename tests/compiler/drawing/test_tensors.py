"""Pages in words: bytes are sums, strides are said apart from them, rows are not called tokens."""

from __future__ import annotations

import pytest

from kvplan.compiler.drawing.bars import bar, legend, levels
from kvplan.compiler.drawing.pieces import Piece
from kvplan.compiler.drawing.tensors import page_of, page_pieces, tokens_per_row
from kvplan.plan.types import Group, Planes, View, Worker

PLANAR = (
    View("k", "bf16", 0, (("token", 16, 256), ("dim", 128, 2))),
    View("v", "bf16", 4096, (("token", 16, 256), ("dim", 128, 2))),
)
RECORD = (
    View("data", "fp8", 0, (("token", 4, 132), ("dim", 128, 1))),
    View("scale", "f32", 128, (("token", 4, 132),)),
)


def drawn(views: tuple[View, ...], size: int, kernel: int) -> tuple[Piece, ...]:
    entry, group = Planes("a", "a", None, 0, (), size, size, views), Group("a", "tokens", kernel, kernel, 1, 0)
    return page_pieces(page_of(Worker(()), entry, group))


def words(views: tuple[View, ...], size: int, kernel: int) -> list[str]:
    return [legend(piece) for piece in drawn(views, size, kernel)]


def top(views: tuple[View, ...], size: int, kernel: int, width: int = 64) -> str:
    return bar(levels("", drawn(views, size, kernel), size)[0], width)


def test_tensors_one_after_the_other_are_pieces_of_their_own() -> None:
    assert words(PLANAR, 8192, 16) == [
        "k 4,096 B (16 token x 128 dim x bf16)",
        "v 4,096 B (16 token x 128 dim x bf16)",
    ]
    assert [cell.strip() for cell in top(PLANAR, 8192, 16).split("|")] == ["", "k", "v", ""]


def test_tensors_inside_one_loop_share_it() -> None:
    assert words(RECORD, 528, 4) == ["4 tokens, 132 B each: data 128 B (128 dim x fp8) | scale 4 B (f32)"]
    assert top(RECORD, 528, 4).split() == [
        "|",
        "token",
        "0",
        "|",
        "token",
        "1",
        "|",
        "token",
        "2",
        "|",
        "token",
        "3",
        "|",
    ]


def test_padding_is_drawn() -> None:
    assert words(RECORD, 600, 4)[-1] == "padding 72 B"
    inside = (View("a", "u8", 0, (("token", 2, 64),)), View("b", "u8", 8, (("token", 2, 64),)))
    assert words(inside, 128, 2) == ["2 tokens, 64 B each: a 1 B (u8) | padding 7 B | b 1 B (u8) | padding 55 B"]


def test_bytes_of_a_tensor_with_gaps_are_those_it_has() -> None:
    scales = View("e", "u8", 64, (("token", 8, 8), ("tile", 7, 1)))
    assert words((scales,), 192, 8) == [
        "padding 64 B", "e 56 B (8 token x 7 tile x u8), 8 tokens of 7 B, 8 B apart", "padding 64 B",
    ]  # fmt: skip
    both = View("e", "u8", 0, (("head", 2, 100), ("token", 8, 8), ("tile", 7, 1)))
    (said, _) = words((both,), 256, 8)
    assert said == "e 112 B (2 head x 8 token x 7 tile x u8), 2 heads of 64 B, 100 B apart, 8 tokens of 7 B, 8 B apart"


def test_rows_of_several_tokens_are_no_tokens() -> None:
    assert words(RECORD, 528, 16) == ["4 rows, 132 B each: data 128 B (128 dim x fp8) | scale 4 B (f32)"]
    tiled = View("k", "u8", 0, (("token/2", 4, 2), ("token", 2, 1)))
    assert words((tiled,), 8, 32) == ["k 8 B (4 row/2 x 2 row x u8)"]
    assert tokens_per_row(tiled, 32) == 4
    assert tokens_per_row(tiled, 0) == 1


def test_rows_in_rows_stand_in_brackets() -> None:
    views = (
        View("k", "u8", 0, (("head", 2, 32), ("token", 4, 4))),
        View("v", "u8", 2, (("head", 2, 32), ("token", 4, 4))),
        View("s", "u8", 16, (("head", 2, 32),)),
    )
    assert words(views, 64, 4) == [
        "2 heads, 32 B each: [4 tokens, 4 B each: k 1 B (u8) | padding 1 B | v 1 B (u8) | padding 1 B] | s 1 B (u8) | "
        "padding 15 B"
    ]


def test_small_pieces_are_seen() -> None:
    tiny = (View("x", "u8", 0, ()), View("y", "u8", 1, ()), View("z", "u8", 2, (("n", 9998, 1),)))
    assert top(tiny, 10_000, 1).startswith("|x|y| ")


@pytest.mark.parametrize("width", [16, 32, 64])
def test_bars_are_as_wide_as_asked_for(width: int) -> None:
    assert len(top(PLANAR, 8192, 16, width)) == width + 1
