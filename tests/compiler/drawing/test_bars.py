"""Laws of the drawings: nothing is left out, columns follow bytes, global numbers are shown."""

from __future__ import annotations

import pytest

from kvplan.compiler.drawing.bars import Level, Segment, bar
from kvplan.compiler.drawing.tensors import WIDTH, draw, page_of
from kvplan.plan.types import Group, Planes, View, Worker

TOKENS = Group("a", "tokens", 16, 16, 1, 0)


def planes(views: tuple[View, ...], page: int) -> Planes:
    return Planes("a", "a", None, 0, (("layer", (0, 1), 1),), page, page, views)


HEADS = (("head", 4, 8192), ("token", 16, 512), ("dim", 128, 2))
PAGE = planes((View("k", "bf16", 0, HEADS), View("v", "bf16", 256, HEADS)), 32768)


def test_heads_then_tokens_then_vectors() -> None:
    lines = draw(page_of(Worker((PAGE,), holds=(("a", "head", (4, 8)),)), PAGE, TOKENS))
    assert lines[0] == "page, 32,768 B"
    assert [word for word in lines[1].split() if word.isdigit()] == ["4", "5", "6", "7"]
    assert lines[2] == "each of 4 heads, 8,192 B"
    assert lines[3].split("|")[-2].strip() == "token 15"
    assert lines[4] == "each of 16 tokens, 512 B"
    assert lines[6:] == ["  k 256 B (128 dim x bf16)", "  v 256 B (128 dim x bf16)"]


def test_an_axis_in_tiles_is_numbered_from_its_share_on() -> None:
    tiles = (("head/2", 2, 4096), ("token", 16, 256), ("head", 2, 128), ("dim", 64, 2))
    worker = Worker((), holds=(("a", "head", (4, 8)),))
    lines = draw(page_of(worker, planes((View("k", "bf16", 0, tiles),), 8192), TOKENS))
    assert lines[-1] == "  k 8,192 B (2 head/2 x 16 token x 2 head x 64 dim x bf16)"
    both = planes((View("k", "bf16", 0, tiles), View("v", "bf16", 64, tiles)), 8192)
    lines = draw(page_of(worker, both, TOKENS))
    assert [cell.strip() for cell in lines[1].split("|")[1:-1]] == ["head 4-5", "head 6-7"]


def test_layers_inside_a_page_are_those_of_the_group() -> None:
    layers = (("layer", 2, 4096), ("token", 16, 256), ("dim", 128, 2))
    entry = Planes(
        "a", "a", page_bytes=8192, views=(View("k", "bf16", 0, layers), View("v", "bf16", 2048, layers)), layers=(3, 7)
    )
    lines = draw(page_of(Worker(()), entry, TOKENS))
    assert [cell.strip() for cell in lines[1].split("|")[1:-1]] == ["layer 3", "layer 7"]


def test_padding_is_shown_with_its_bytes() -> None:
    lines = draw(page_of(Worker(()), planes((View("s", "f32", 0, (("dim", 8, 4),)),), 64), TOKENS))
    assert lines[1].count(".") > WIDTH // 3
    assert lines[-1] == "  padding 32 B"


@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (5, 3, 8), (1, 100_000), (7,)])
def test_columns_are_in_proportion(sizes: tuple[int, ...]) -> None:
    level = Level("t", sum(sizes), tuple(Segment(size, ("x",)) for size in sizes))
    widths = [len(cell) + 1 for cell in bar(level, WIDTH)[1:-1].split("|")]
    assert all(abs(w - max(2, WIDTH * s / sum(sizes))) <= 2 for w, s in zip(widths, sizes, strict=True))


@pytest.mark.parametrize("sizes", [(1,) * 20 + (10_000,), (1, 1, 1), (3, 5) * 10])
def test_bars_are_no_wider_than_asked_for(sizes: tuple[int, ...]) -> None:
    level = Level("t", sum(sizes), tuple(Segment(size, ("x",)) for size in sizes))
    assert len(bar(level, WIDTH)) <= WIDTH + 1


def test_the_longest_label_that_has_room_is_shown() -> None:
    cut = [Segment(size, ("the whole label", "shorter", "s")) for size in (20, 10, 3)]
    said = [cell.strip() for cell in bar(Level("t", 33, tuple(cut)), 33)[1:-1].split("|")]
    assert said == ["the whole label", "shorter", "s"]


def test_a_bar_of_many_spans_stays_narrow() -> None:
    views = tuple(View(f"x{n}", "u8", 2 * n, ()) for n in range(400))
    line = draw(page_of(Worker(()), planes(views, 800), TOKENS))[1]
    assert len(line) <= WIDTH + 4
    assert "…" in line
