"""Large inputs take little work or are refused before any work: the tests count calls and rows and measure no time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.cost import cost
from kvplan.compiler.cost.cost import spans_of
from kvplan.compiler.errors import Refused
from kvplan.compiler.pair import elect, groups
from kvplan.compiler.placement import holdings
from kvplan.compiler.placement.shards import meet
from kvplan.compiler.prove import cover, match
from kvplan.dsl.library import load
from kvplan.plan import expand
from kvplan.plan.types import Ints, Nest

MODEL = "kvplan: 1\nmodel: m\ntitle: M\ndtype: bf16\nquery_heads: {heads}\nlayers: {layers}\ncaches:\n"
CACHE = "  {name}: {{kind: gqa, layers: {where}, heads: {heads}, dim: {dim}{more}}}\n"


def compiled(folder: Path, prefill: str, decode: str, heads: int = 8, dim: int = 64, layers: int = 4) -> Compiled:
    return _compiled(folder, prefill, decode, MODEL.format(heads=heads, layers=layers)
        + CACHE.format(name="attention", where="all", heads=heads, dim=dim, more=""))  # fmt: skip


def _compiled(folder: Path, prefill: str, decode: str, text: str) -> Compiled:
    (folder / "m.yaml").write_text(text)
    return compile_pair(load((), (folder,)), "m", f"engine=custom,{prefill}", f"engine=custom,{decode}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], Counter[str]]:
    """Has calls of a module's functions counted."""
    found: Counter[str] = Counter()

    def counted(module: Any, name: str) -> Counter[str]:
        real = getattr(module, name)

        def call(*args: Any) -> Any:
            found[name] += 1
            return real(*args)

        monkeypatch.setattr(module, name, call)
        return found

    return counted


def test_of_many_workers_those_that_share_something_are_tested(tmp_path: Path, calls: Any) -> None:
    tested = calls(holdings, "overlap")
    compiled(tmp_path, "tp=64", "tp=32", heads=64)
    # Twice, by the compiler and by the proof, for k and for v: of 64 x 32 pairs those that read.
    assert tested["overlap"] == 2 * 2 * 64


def test_of_many_stages_those_that_share_layers_are_tested(tmp_path: Path, calls: Any) -> None:
    tested = calls(holdings, "overlap")
    compiled(tmp_path, "pp=32", "pp=16", layers=32)
    assert tested["overlap"] == 2 * 2 * 32


def test_of_many_groups_those_with_layers_in_common_meet(tmp_path: Path, calls: Any) -> None:
    met, sizes = calls(groups, "_meet"), calls(cost, "_sizes")
    text = MODEL.format(heads=8, layers=40) + "".join(
        CACHE.format(name=name, where=where, heads=8, dim=64, more=more)
        for name, where, more in (("full", "layer == 0", ""), ("slide", "layer > 0", ", window: 64"))
    )
    made = _compiled(tmp_path, "tp=4,form=by_page", "tp=2,form=by_page", text)
    count = len(made.plan.decode.groups)
    assert count == 40
    # Once, for the pairs of the plan and for the reads; planes of identical workers once, whatever is read.
    assert met["_meet"] == count
    assert sizes["_sizes"] == 2


def test_pages_that_no_request_fills_are_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    real = expand.expand_tokens

    def counted(nests: tuple[Nest, ...]) -> Ints:
        rows.append(expand.size(nests))
        return real(nests)

    monkeypatch.setattr(expand, "expand_tokens", counted)
    made = compiled(tmp_path, "tp=1,block=4096,order=LBNHC", "tp=1,block=4096")
    (read,) = made.plan.reads[0]
    assert expand.size(read.table.per_page) == 4 * 4096 * 8
    # One row of tokens of one layer: all layers are identical.
    assert max(rows) == 8


def test_planes_of_one_side_are_counted_once(tmp_path: Path) -> None:
    made = compiled(tmp_path, "tp=1,order=LBHNC", "tp=1,order=BHLNC", layers=64)
    (read,) = made.plan.reads[0]
    assert expand.size(read.table.per_page) == 64 * 8
    assert spans_of(read.table, cost.ends_of(made.plan)(0, read)) == 8 * 1024 // 16
    assert made.facts.moves[0].descriptors == 64 * 8 * 1024 // 16


@pytest.mark.parametrize("order", ["LBHNC", "shuffled"])
def test_rows_of_tokens_are_proved_by_those_that_decide(tmp_path: Path, calls: Any, order: str) -> None:
    asked = calls(match, "_reach")
    compiled(tmp_path, f"tp=1,block=4096,order={order}", "tp=1,block=16", heads=2, dim=16, layers=1)
    assert asked["_reach"] < 200


def test_a_long_progression_doubles() -> None:
    # Visiting as many turns one by one would take days.
    count = 1 << 22
    assert cover.progression(1, [(count, 2)]).bit_count() == count


@pytest.mark.parametrize(("count", "delta"), [(1, 3), (2, 3), (5, 1), (7, 2), (8, 3), (13, 4)])
def test_a_progression_is_all_of_its_turns(count: int, delta: int) -> None:
    assert cover.progression(2, [(count, delta)]) == sum(1 << (2 + turn * delta) for turn in range(count))


def test_whether_shares_meet_is_told_without_their_tokens() -> None:
    turn = 1 << 40
    assert meet((3, turn, 1), (5, 7 * turn, 2))
    assert not meet((4, turn, 1), (2, turn, 0))


@pytest.mark.parametrize(
    ("code", "prefill", "decode", "sizes", "said"),
    [
        ("C141", "tp=512,dcp=512", "tp=511,dcp=511", {"heads": 1}, "16,384"),
        ("C142", "tp=1,order=swizzled", "tp=1", {"dim": 1 << 20}, "2 B of v together"),
        ("C142", "tp=1,order=swizzled,block=16777216", "tp=1,block=16777216", {"dim": 1 << 12}, "'attention'"),
        ("C142", "tp=1,order=LBNHC,block=16777216", "tp=1,block=16777216", {}, "16,777,216 token"),
        ("C143", "tp=1,order=LHBNC", "tp=1", {"heads": 4096, "layers": 200}, "819,200 of them of 'attention'"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_expanded(
    tmp_path: Path, calls: Any, code: str, prefill: str, decode: str, sizes: dict[str, int], said: str
) -> None:
    expanded, read = calls(expand, "expand_tokens"), calls(elect, "_choices")
    with pytest.raises(Refused) as refused:
        compiled(tmp_path, prefill, decode, **sizes)
    assert refused.value.code == code
    assert said in str(refused.value)
    assert refused.value.help
    assert expanded["expand_tokens"] == 0
    assert read["_choices"] <= elect.MOST_READS
