"""The matrix: its numbers against the copies of a trace, refusals as cells, bad input before anything is compiled."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.requests import ask, block_table

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import BadInput
from kvplan.compiler.explain.matrix import PairCost, RefusalReason, matrix
from kvplan.dsl.library import Library, load
from kvplan.plan.block_tables import Slot, Table

FP8 = "kv_dtype=fp8,kernel_block=16"
PAIRS = [
    ("llama-3.1-8b", "tp=1", "tp=1"),
    ("llama-3.1-8b", "tp=4", "tp=2,order=nhd"),
    ("llama-3.1-8b", "tp=2,order=nhd", "tp=4,order=nhd,block=48"),
    ("llama-3.1-8b", "tp=8", "tp=16,block=32"),
    ("nemotron-3-nano-30b", f"tp=4,{FP8}", f"tp=1,{FP8}"),
    ("nemotron-3-nano-30b", "tp=2", "tp=8"),
    ("deepseek-v3", "tp=4,dcp=2", "tp=2"),
]


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def apart(side: BoundSide) -> dict[str, Table]:
    """Tables long enough for 1024 tokens in which no two logical blocks are neighbours."""
    ids = {group.name: range(4096 * at, 4096 * at + 2048, 2) for at, group in enumerate(side.groups)}
    return {
        g.name: block_table(0, ids[g.name]) if g.store == "tokens" else Slot(ids[g.name][0], 1024) for g in side.groups
    }


def posted(found: list[Copy]) -> int:
    """Requests left once neighbouring copies, sorted by destination, are joined where nothing lies between them."""
    joined = [
        (a[:2], a.to_worker, a.to_plane) == (b[:2], b.to_worker, b.to_plane)
        and (b.from_offset - a.from_offset, b.to_offset - a.to_offset) == (a.bytes, a.bytes)
        for a, b in pairwise(found)
    ]
    return len(found) - sum(joined)


@pytest.mark.parametrize(("model", "prefill", "decode"), PAIRS)
def test_numbers_are_those_of_a_trace(library: Library, model: str, prefill: str, decode: str) -> None:
    (cell,) = matrix(library, model, [prefill], [decode])
    made = compile_pair(library, model, prefill, decode)
    found = copies(made.plan, ask((0, 1024), apart(made.prefill), apart(made.decode)))
    lengths = np.array([copy.bytes for copy in found])
    assert cell.outcome == PairCost(posted(found), int(lengths.sum()), int(lengths.min()))


def test_rows_are_prefill_sides_in_the_order_given(library: Library) -> None:
    cells = matrix(library, "qwen3-0.6b", ["tp=4", "tp=1"], ["tp=2", "tp=8", "tp=1"])
    assert [(cell.prefill, cell.decode) for cell in cells] == [
        (p, d) for p in ("tp=4", "tp=1") for d in ("tp=2", "tp=8", "tp=1")
    ]


def test_a_refused_side_refuses_its_row_and_an_unlike_pair_its_cell(library: Library) -> None:
    cells = matrix(library, "llama-3.1-8b", ["tp=1", "tp=3"], ["tp=1", "tp=1,kv_dtype=fp8"])
    codes = [cell.outcome.code if isinstance(cell.outcome, RefusalReason) else "" for cell in cells]
    assert codes == ["", "C134", "C110", "C110"]
    assert cells[2].outcome == cells[3].outcome


@pytest.mark.parametrize(("decode", "options", "code"), [("tpp=1", {}, "S005"), ("tp=1", {"elect": "x"}, "S015")])
def test_bad_input_is_no_cell_even_where_the_other_side_is_refused(
    library: Library, decode: str, options: dict[str, str], code: str
) -> None:
    with pytest.raises(BadInput) as caught:
        matrix(library, "llama-3.1-8b", ["tp=3"], [decode], options)
    assert caught.value.code == code


def test_options_of_the_compilation_count(library: Library) -> None:
    pair = ("llama-3.1-8b", ["tp=16"], ["tp=1"])
    one, spread = (matrix(library, *pair, {"elect": rule})[0].outcome for rule in ("one", "spread"))
    assert isinstance(one, PairCost)
    assert isinstance(spread, PairCost)
    assert one.bytes == spread.bytes
    plans = [compile_pair(library, pair[0], "tp=16", "tp=1", {"elect": rule}).plan for rule in ("one", "spread")]
    assert len(plans[0].reads[0]) < len(plans[1].reads[0])


@pytest.mark.parametrize("strategy", ["unpack", "auto"])
def test_what_is_staged_is_counted_as_it_travels(library: Library, strategy: str) -> None:
    """The matrix counts descriptors and bytes like the header of the pair's plan."""
    (cell,) = matrix(library, "llama-3.1-8b", ["tp=4"], ["tp=2,order=nhd"], {"strategy": strategy})
    made = compile_pair(library, "llama-3.1-8b", "tp=4", "tp=2,order=nhd", {"strategy": strategy})
    (move,) = made.facts.moves
    told = move.staged[0]
    assert isinstance(cell.outcome, PairCost)
    assert (cell.outcome.descriptors, cell.outcome.bytes) == (2 * told.descriptors, 2 * told.bytes)
    assert told.descriptors < move.descriptors
