"""Laws of a landing: every byte is in one piece, pieces say what they hold, pictures are small and to scale."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import product

import numpy as np
import pytest
from tests.compiler.plans import plan

from kvplan.compiler.api import compile_pair
from kvplan.compiler.drawing.pieces import DrawnPadding, DrawnSpan, PageLoop, PageSpan
from kvplan.compiler.drawing.pieces import pieces as pieces_of_page
from kvplan.compiler.errors import BadInput
from kvplan.compiler.explain.landing.spans import DECODE, PREFILL, LandingSpan, laid, numbered, pieces
from kvplan.compiler.explain.landing.text import landing
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.library import load
from kvplan.plan.types import Nest, Plan, Read, Table, View

PAIRS = [
    ("llama-3.1-8b", "tp=4", "tp=2"),
    ("llama-3.1-8b", "tp=2", "tp=4"),
    ("llama-3.1-8b", "tp=4", "tp=2,order=nhd"),
    ("llama-3.1-8b", "tp=4,order=LHBNC", "tp=2,order=LHBNC"),
    ("llama-3.1-8b", "tp=2,order=BLHNC", "tp=1,order=BHLNC"),
    ("llama-3.1-8b", "tp=1,block=48", "tp=2,block=32,order=nhd"),
    ("llama-3.1-8b", "tp=16", "tp=1,pp=2"),
    ("deepseek-v3", "tp=8", "tp=8,dcp=8,block=64"),
    ("nemotron-3-nano-30b", "tp=4", "tp=1"),
    ("granite-4.0-h-small", "tp=1", "tp=2"),
]


@cache
def made(model: str, prefill: str, decode: str) -> Plan:
    return compile_pair(load(), model, prefill, decode).plan


def offsets(where: PageSpan) -> list[int]:
    turns = product(*(range(0, loop.count * loop.step, loop.step) for loop in where.loops))
    return [where.offset + sum(moves) for moves in turns]


@cache
def stored(views: tuple[View, ...], page: int) -> np.ndarray:
    """How many elements lie over each byte of a page."""
    found = np.zeros(page, np.int64)
    for view in views:
        at = np.array([view.offset])
        for _, count, step in (*view.axes, ("byte", size(view.dtype), 1)):
            at = (at[:, None] + np.arange(count) * step).reshape(-1)
        found[at] += 1
    return found


@pytest.mark.parametrize("names", PAIRS)
def test_every_stored_byte_of_a_decode_page_is_in_one_piece(names: tuple[str, str, str]) -> None:
    found = made(*names)
    for reader, worker in enumerate(found.decode.workers[:2]):
        found_in = defaultdict(list)
        for piece in pieces(found, reader):
            for number, where in laid(piece, DECODE):
                found_in[number].append(where)
        for number, (plane, entry) in enumerate(numbered(worker)):
            labelled = np.zeros(plane.page, np.int64)
            for where in found_in[number]:
                for offset in offsets(where):
                    labelled[offset : offset + where.bytes] += 1
            assert np.array_equal(labelled, stored(entry.views, plane.page)), plane.name


@pytest.mark.parametrize("names", PAIRS)
def test_pieces_lie_in_the_prefill_pages_they_name(names: tuple[str, str, str]) -> None:
    found = made(*names)
    for piece in pieces(found, 0):
        planes = numbered(found.prefill.workers[piece.read.worker])
        for number, where in laid(piece, PREFILL):
            assert planes[number][0].cache == piece.read.cache
            assert 0 <= where.offset <= max(offsets(where)) <= planes[number][0].page - where.bytes


@pytest.mark.parametrize("names", PAIRS)
def test_the_pieces_of_a_read_hold_together_what_the_read_holds(names: tuple[str, str, str]) -> None:
    found = made(*names)
    held: dict[tuple[int, str, str, str], set[int]] = defaultdict(set)
    for piece in pieces(found, 1 % len(found.reads)):
        for axis, (first, last) in piece.holds:
            held[piece.read.worker, piece.read.groups, piece.read.cache, axis] |= set(range(first, last))
    for read in found.reads[1 % len(found.reads)]:
        for axis, where in read.holds:
            assert held[read.worker, read.groups, read.cache, axis] == set(range(*where))


@pytest.mark.parametrize("names", PAIRS)
def test_pictures_are_small_and_name_every_letter(names: tuple[str, str, str]) -> None:
    found = made(*names)
    lines = landing(found, 0)
    assert max(map(len, lines)) <= 100
    assert len(lines) < 100
    rows = [line.split()[0] for line in lines if " prefill " in line and line.split()[1] == "prefill"]
    assert {piece.letter for piece in pieces(found, 0)} == set(rows)


def test_shares_of_heads() -> None:
    assert landing(plan(4, 2), 1) == [
        "attention: 64 spans a block of 16 tokens, all 32 layers: A 32, B 32",
        "  decode worker 1: 32 pages of 32,768 B each",
        "  |                A k+v head 4-5               |                B k+v head 6-7               |",
        "",
        "  prefill worker 2: 32 pages of 16,384 B each",
        "  |                A k+v head 4-5               |",
        "  prefill worker 3: 32 pages of 16,384 B each",
        "  |                B k+v head 6-7               |",
        "",
        "     from       takes     tensors  prefill at  decode at   bytes  how often",
        "  A  prefill 2  head 4-5  k+v               0          0  16,384  x 32 layers",
        "  B  prefill 3  head 6-7  k+v               0     16,384  16,384  x 32 layers",
        "",
        "  A B x 32 layers: a page each on both sides",
    ]


def test_tokens_outside_heads_are_drawn_once_and_counted() -> None:
    assert landing(made("llama-3.1-8b", "tp=4,order=nhd", "tp=2,order=nhd"), 0) == [
        "attention: 1,024 spans a block of 16 tokens, all 32 layers: A 512, B 512",
        "  decode worker 0: 32 pages of 32,768 B each",
        "  |     token 0     |     token 1     |     token 2     |        …        |     token 15    |",
        "    first of 16 tokens, 2,048 B",
        "    |               A k+v head 0-1               |               B k+v head 2-3               |",
        "",
        "  prefill worker 0: 32 pages of 16,384 B each",
        "  |  A 0   |  A 1   |  A 2   |   …    |  A 15  |",
        "  prefill worker 1: 32 pages of 16,384 B each",
        "  |  B 0   |  B 1   |  B 2   |   …    |  B 15  |",
        "",
        "     from       takes     tensors  prefill at  decode at  bytes  how often",
        "  A  prefill 0  head 0-1  k+v               0          0  1,024  x 32 layers x 16 tokens",
        "  B  prefill 1  head 2-3  k+v               0      1,024  1,024  x 32 layers x 16 tokens",
        "",
        "  A B x 32 layers: a page each on both sides",
        "  A B x 16 tokens: prefill every 1,024 B, adjacent; decode every 2,048 B, 1,024 B between",
    ]


def test_unlike_pages_show_runs_of_tokens() -> None:
    lines = landing(plan(4, 2, kernels=(48, 32)), 0)
    assert lines[0] == "attention: 128 spans a run of tokens, all 32 layers: A 64, B 64"
    assert lines[-1] == "  runs end where a page of either side ends: after 32, 16, 16, 32 tokens, then again"
    assert lines[5].count("A k+v head") == 2
    assert len(lines[5]) < 0.8 * len(lines[2]), "both pages are drawn to one scale"


def test_runs_that_are_all_as_long_are_told_once() -> None:
    assert (
        landing(plan(4, 2, kernels=(16, 32)), 0)[-1] == "  runs end where a page of either side ends: every 16 tokens"
    )


def test_runs_of_pages_that_seldom_end_together_are_cut_short() -> None:
    said = " ".join(" ".join(landing(plan(4, 2, kernels=(4099, 4111)), 0)).split())
    assert said.endswith("side ends: after 4,099, 12, 4,087, 24, 4,075, 36, 4,063, 48 tokens, …")


def test_parts_of_a_state_have_letters_of_their_own() -> None:
    lines = landing(plan(4, 2, with_state=True), 0)
    at = lines.index("mamba (mamba.0): 40 spans a state, all 10 layers: A 10, B 10, C 10, D 10")
    assert lines[at + 2].replace(" ", "") == "|A|C|Bssmhead0-1|Dssmhead2-3|"


def test_workers_that_share_tokens_say_which() -> None:
    lines = landing(made("deepseek-v3", "tp=8", "tp=8,dcp=8,block=64"), 3)
    assert "  decode worker 3 holds tokens 192-255, 704-767, … of a request" in lines


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("deepseek-v3", "tp=2,dcp=2", "tp=1"), "A latent+rope"),
        (("deepseek-v3", "tp=2,dcp=2,block=32", "tp=1,block=64"), "A latent+rope"),
        (("llama-3.1-8b", "engine=custom,pcp=2", "tp=1"), "A k+v head 0-7"),
    ],
)
def test_prefill_workers_that_take_turns_are_drawn_once(names: tuple[str, str, str], words: str) -> None:
    lines = landing(made(*names), 0)
    (page,) = (lines[i + 1] for i, line in enumerate(lines) if line.startswith("  decode worker 0: "))
    assert words in page or page.startswith("  |A")
    assert "B" not in page.replace("B |", "|")
    assert "  B: the same places as A, for the tokens of other workers" in lines
    assert [line[:24] for line in lines if " holds tokens " in line] == [f"  prefill worker {n} holds" for n in (0, 1)]


def test_spans_that_lie_on_each_other_stay_so() -> None:
    one, other = (laid(piece, DECODE) for piece in pieces(made("deepseek-v3", "tp=2,dcp=2", "tp=1"), 0))
    both = [next(one)[1], next(other)[1]]
    drawn = pieces_of_page(both, 18_432, whole=False)
    assert [(piece.offset, piece.end) for piece in drawn] == [(0, 18_432), (0, 18_432)]


def test_what_is_for_others_is_blank() -> None:
    lines = landing(made("llama-3.1-8b", "tp=2", "tp=4"), 1)
    page = lines[lines.index("  prefill worker 0: 32 pages of 32,768 B each") + 1]
    assert [cell.strip() for cell in page.split("|")[1:-1]] == ["", "A k+v head 2-3"]
    assert "  blank: not for this decode worker" in lines


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (
            ("nemotron-3-nano-30b", "tp=4", "tp=1"),
            "80 to 96 spans a state, all 5 to 6 layers of each group; mamba.0 is drawn",
        ),
        (
            ("granite-4.0-h-small", "tp=2,pp=2", "tp=1"),
            "16 spans a state, all 4 layers of each group; mamba.0 is drawn",
        ),
    ],
)
def test_groups_unlike_in_their_layers_are_drawn_once(names: tuple[str, str, str], title: str) -> None:
    said = " ".join(" ".join(landing(made(*names), 0)).split())
    assert title in said
    assert said.count("spans a state") == 1


def spans(*nests: Nest) -> list[PageSpan]:
    read = Read(0, "a", "a", (0,), (), Table(nests))
    return [
        where
        for number, nest in enumerate(nests)
        for _, where in laid(LandingSpan("AB"[number], 0, read, nest, (), (12, 12)), DECODE)
    ]


def test_tiles_of_tokens_are_loops_of_their_own() -> None:
    nest = Nest(("k",), (0, 0), (0, 0), 2, (), (2, 2), ((4, 0, 8),))
    (where,) = spans(nest)
    assert sorted(offsets(where)) == [2 * row + row // 4 * 8 for row in range(12)]


def test_loops_that_interlace_are_unrolled() -> None:
    drawable = spans(Nest(("k",), (0, 0), (0, 0), 2))[0].drawable
    one, other = PageSpan(0, 2, (PageLoop("x", 3, 8),), drawable), PageSpan(4, 2, (PageLoop("y", 2, 16),), drawable)
    drawn = pieces_of_page([one, other], 24, whole=False)
    assert [piece.offset for piece in drawn if isinstance(piece, DrawnSpan)] == [0, 4, 8, 16, 20]
    assert [(piece.offset, piece.end) for piece in drawn if isinstance(piece, DrawnPadding)] == [
        (2, 4), (6, 8), (10, 16), (18, 20), (22, 24),
    ]  # fmt: skip


@pytest.mark.parametrize("worker", [-1, 2])
def test_workers_that_do_not_exist(worker: int) -> None:
    with pytest.raises(BadInput, match="S024"):
        pieces(plan(4, 2), worker)


def test_spans_that_alternate_with_others_of_the_piece_are_not_adjacent() -> None:
    said = "\n".join(landing(compile_pair(load(), "qwen3-0.6b", "tp=2,order=nhd", "tp=1").plan, 0))
    assert "every 512 B, adjacent" in said
    assert "its heads between" in said
