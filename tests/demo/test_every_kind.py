"""The demo for every kind of cache: it passes over memory, and nothing wrong, missing or too much passes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.demo.pairs import moved, ready, scaled, untouched
from tests.shares import later

from kvplan.compiler.api import Compiled
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import NeededTokens
from kvplan.compiler.check.oracle import OraclePlane, planes
from kvplan.compiler.check.pages import needed
from kvplan.demo import requests as demo_asked
from kvplan.demo.content import WrongBytesError, arrived, check, stamp
from kvplan.demo.processes import ProcessError
from kvplan.demo.requests import RequestShare
from kvplan.plan.types import ALL, CONTEXT, Needs

PACKED = "order=BLHNC,block=256"
SORTS: Mapping[str, tuple[str, str, str]] = {
    "window": ("gpt-oss-20b", "tp=2", "tp=1"),
    "chunk": ("llama-4-scout", "tp=1", "tp=2,order=nhd"),
    "length": ("whisper-large-v3", "tp=1", "tp=2,block=32"),
    "ring": ("rings", "tp=2,draft_tokens=3", "tp=1"),
    "rows": ("deepseek-v4-flash", f"tp=1,{PACKED}", f"tp=2,{PACKED}"),
    "skipped": ("deepseek-v4-flash", f"tp=1,{PACKED}", f"tp=1,{PACKED},draft_tokens=1"),
    "state": ("nemotron-3-nano-30b", "tp=4", "tp=2"),
    "turns": ("deepseek-v3", "tp=2,dcp=2,interleave=16", "tp=2"),
}
# The largest model; without what it skips, its pages are those of "rows".
DEAR = ("rows", "skipped")
OTHERS = [sort for sort in SORTS if sort not in DEAR]
Mask = npt.NDArray[np.bool_]


@pytest.fixture(autouse=True)
def _few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_asked, "LEAST_TOKENS", 100)


@pytest.fixture(params=SORTS)
def made(request: pytest.FixtureRequest) -> Compiled:
    return scaled(*SORTS[request.param])


def written(made: Compiled, share: RequestShare) -> dict[str, Mask]:
    """Which bytes must have arrived in the last plane of every cache that moves: the same whatever was there before."""
    low, high = untouched(made, share), untouched(made, share)
    for memory, value in ((low, 0), (high, 255)):
        for arena in memory.arenas:
            arena[:] = value
        stamp(share, arrived, memory.planes)
    last = {plane.cache: name for name, plane in planes(share.side, share.side.workers[0]).items()}
    found = {name: low.planes[name] == high.planes[name] for cache, name in last.items() if cache not in share.skipped}
    assert all(mask.any() for mask in found.values())
    return found


def test_a_request_moves_and_every_byte_is_checked(made: Compiled, tmp_path: Path) -> None:
    for outcome in moved(made, tmp_path):
        assert outcome.compared > outcome.content > 0
        assert 0 < outcome.descriptors == outcome.predicted


@pytest.mark.parametrize("made", [*OTHERS, *later(DEAR)], indirect=True)
def test_one_wrong_byte_of_any_cache_is_found(made: Compiled) -> None:
    share, right, before = ready(made)
    check(share, right, before)
    for name, mask in written(made, share).items():
        for block, byte in np.argwhere(mask)[-1:]:
            right.planes[name][block, byte] ^= 1
            with pytest.raises(WrongBytesError, match=f"block {block}, byte {byte} "):
                check(share, right, untouched(made, share))
            right.planes[name][block, byte] ^= 1


@pytest.mark.parametrize("made", [*OTHERS, *later(DEAR)], indirect=True)
def test_a_block_of_any_cache_that_never_came_is_found(made: Compiled) -> None:
    share, right, before = ready(made)
    for name, mask in written(made, share).items():
        for block in np.flatnonzero(mask.any(axis=1))[:1]:
            came = right.planes[name][block].copy()
            right.planes[name][block] = before.planes[name][block]
            with pytest.raises(WrongBytesError, match=f"block {block}, byte "):
                check(share, right, untouched(made, share))
            right.planes[name][block] = came


def unneeded(share: RequestShare, plane: OraclePlane) -> NeededTokens:
    """The tokens that a plan without windows would move."""
    return replace(needed(share.decode, plane, share.request), needs=ALL)


def unfinished(share: RequestShare, plane: OraclePlane) -> NeededTokens:
    """The tokens that a plan would move if it moved rows that are not full yet."""
    need, rows = needed(share.decode, plane, share.request), {field.tensor.tokens_per_row for field in plane.fields}
    return replace(need, end=need.end + max(rows) - 1)


def other_length(share: RequestShare, plane: OraclePlane) -> NeededTokens:
    """The tokens that a plan would move if it counted all caches in tokens of the context."""
    first, end = share.request.tokens
    return replace(needed(share.decode, plane, share.request), first=first, end=end)


@pytest.mark.parametrize(
    ("sort", "rule", "plane"),
    [
        ("window", unneeded, "sliding"),
        ("chunk", unneeded, "local"),
        ("ring", unneeded, "keys|scores|tail"),
        ("rows", unfinished, "few|many|indexer"),
        ("length", other_length, "cross"),
        ("skipped", arrived, "draft"),
    ],
)
def test_more_than_what_is_needed_is_found(
    sort: str, rule: Callable[[RequestShare, OraclePlane], NeededTokens], plane: str
) -> None:
    share, right, before = ready(scaled(*SORTS[sort]))
    stamp(replace(share, skipped=frozenset()), rule, right.planes)
    with pytest.raises(WrongBytesError, match=f"plane ({plane})"):
        check(share, right, before)


def kept(side: BoundSide, more: int) -> BoundSide:
    """A side whose windows are `more` tokens longer."""
    longer = {c.name: Needs(c.needs.keep + more) for c in side.caches if c.needs.keep is not None}
    caches = tuple(replace(cache, needs=longer.get(cache.name, cache.needs)) for cache in side.caches)
    assert longer
    return replace(side, caches=caches)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_plan_that_moves_a_token_too_few_or_too_many_fails(tmp_path: Path, more: int) -> None:
    made = scaled(*SORTS["window"])
    with pytest.raises(ProcessError, match=r"WrongBytesError: decode worker 0: plane sliding"):
        moved(replace(made, decode=kept(made.decode, more)), tmp_path)


def test_ranges_leave_something_out_and_something_in() -> None:
    for sort in SORTS.values():
        made = scaled(*sort)
        first, end = demo_asked.ranges(made)[CONTEXT]
        for needs in (cache.needs for cache in made.decode.caches if cache.needs != ALL):
            assert first < needs.low(end) < end


def test_a_long_chunk_begins_in_the_middle_of_the_range() -> None:
    made = scaled(*SORTS["chunk"])
    caches = tuple(replace(c, needs=Needs(chunk=8192) if c.needs.chunk else c.needs) for c in made.decode.caches)
    first, end = demo_asked.ranges(replace(made, decode=replace(made.decode, caches=caches)))[CONTEXT]
    assert first < 8192 < end <= first + 1000


def test_lengths_have_ranges_of_their_own() -> None:
    asked = demo_asked.ranges(scaled(*SORTS["length"]))
    assert set(asked) == {CONTEXT, "encoder"}
    assert asked["encoder"] != asked[CONTEXT]
