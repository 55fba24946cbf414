"""The figure of every shipped model: labels have room, and tensors as much area as they have bytes."""

from __future__ import annotations

import re
from functools import cache
from itertools import combinations

import pytest
from tests.compiler.explain.picture.test_page_map import DRAWN, PAIRS, compiled

from kvplan.compiler.explain.picture.figure import CHARACTER, LEFT, LINE, MAP, WIDTH, figure

Box = tuple[float, float, float, float]
TEXT = re.compile(r'<text(?: class="(\w+)")? x="([\d.-]+)" y="([\d.-]+)">([^<]*)</text>')
PATH = re.compile(r'<path[^>]* style="fill: var\(--h\d\)"[^>]* d="([^"]*)"/>')
PADDED = re.compile(r'<path class="pad" d="([^"]*)"/>')
BOX = re.compile(r"M([\d.]+) ([\d.]+)H([\d.]+)v([\d.]+)")
BOLD = 8  # pixels of a character of the title


@cache
def drawn(pair: tuple[str, str, str]) -> str:
    return figure(compiled(pair)[0].plan)


def label_boxes(svg: str) -> list[tuple[str, Box]]:
    """Every label with the room that it takes: left, top, right, bottom."""
    found = []
    for kind, x, y, text in TEXT.findall(svg):
        wide = len(text) * (BOLD if kind == "title" else CHARACTER)
        left = float(x) - {"end": wide, "mid": wide / 2}.get(kind, 0)
        found.append((text, (left, float(y) - LINE + 3, left + wide, float(y) + 2)))
    return found


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def areas(paths: list[str]) -> float:
    return sum((float(x2) - float(x1)) * float(h) for d in paths for x1, _, x2, h in BOX.findall(d))


@pytest.mark.parametrize("pair", [*DRAWN, *PAIRS], ids=" ".join)
def test_labels_do_not_overlap(pair: tuple[str, str, str]) -> None:
    labels = label_boxes(drawn(pair))
    assert len(labels) > 4
    assert [(one, other) for (one, a), (other, b) in combinations(labels, 2) if overlap(a, b)] == []
    assert [text for text, (left, _, right, _) in labels if left < 0 or right > WIDTH] == []


@pytest.mark.parametrize("pair", [*DRAWN, *PAIRS], ids=" ".join)
def test_what_tensors_have_is_drawn(pair: tuple[str, str, str]) -> None:
    """Colours fill as much of all pages as the tensors of the pages do, which is nearly everything."""
    svg = drawn(pair)
    assert len(svg) < 150_000
    assert 0.5 < areas(PATH.findall(svg)) / areas(PADDED.findall(svg)) < 1.001


def test_each_page_is_joined_to_the_one_that_it_lands_in() -> None:
    """Two caches of one group: latent vectors go to latent vectors, and the indexer's keys to the indexer's."""
    svg = drawn(("deepseek-v3.2", "tp=8", "tp=8"))
    ways = re.findall(r'<path class="way" d="M(\d+) ([\d.]+)C[\d. ]+ (\d+) ([\d.]+)"/>', svg)
    assert len({start for _, start, _, _ in ways}) == len(ways) == 2
    assert [start for _, start, _, _ in ways] == [end for _, _, _, end in ways]
    assert {(int(left), int(right)) for left, _, right, _ in ways} == {(LEFT + MAP + 4, LEFT + MAP + 80)}
