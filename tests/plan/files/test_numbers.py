"""Numbers of a plan that lead out of what they count are refused, even with digests that match them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.plans import Model, Shape, plan, with_ranges

from kvplan.plan import planes as names
from kvplan.plan.digest import sealed
from kvplan.plan.errors import KvplanError, PlanFormatError
from kvplan.plan.files.loader import load_plan
from kvplan.plan.files.numbers import check_numbers
from kvplan.plan.types import Nest, PageRange, Plan, Read, Table
from kvplan.runtime import DecodeWorker, Identity, InMemory, Plain, Pool, PrefillWorker, views
from kvplan.runtime.transport.inmemory import Hub

MADE = with_ranges(plan(Shape(2), Shape(1)), "unpack", "pack")


def with_read(change: Callable[[Read], Read]) -> Plan:
    """The plan with another first read."""
    first = MADE.reads[0]
    return sealed(replace(MADE, reads=((change(first[0]), *first[1:]), *MADE.reads[1:])))


def with_table(change: Callable[[Table], Table]) -> Plan:
    return with_read(lambda read: replace(read, table=change(read.table)))


def with_nest(change: Callable[[Nest], Nest]) -> Plan:
    return with_table(lambda table: replace(table, per_page=(change(table.per_page[0]), *table.per_page[1:])))


def with_side(role: str, change: Callable[[Any], Any]) -> Plan:
    return sealed(replace(MADE, **{role: change(getattr(MADE, role))}))  # type: ignore[arg-type]


def with_planes(**change: Any) -> Plan:
    def changed(side: Any) -> Any:
        worker = side.workers[0]
        planes = (replace(worker.planes[0], **change), *worker.planes[1:])
        return replace(side, workers=(replace(worker, planes=planes), *side.workers[1:]))

    return with_side("decode", changed)


def with_group(**change: Any) -> Plan:
    return with_side("decode", lambda side: replace(side, groups=(replace(side.groups[0], **change), *side.groups[1:])))


def with_pair(**change: Any) -> Plan:
    return sealed(replace(MADE, group_pairs=(replace(MADE.group_pairs[0], **change), *MADE.group_pairs[1:])))


WRONG: dict[str, Callable[[], Plan]] = {
    "planes behind the last one": lambda: with_read(lambda read: replace(read, first=(4, 0))),
    "planes before the first one": lambda: with_read(lambda read: replace(read, first=(0, -1))),
    "bytes behind a page": lambda: with_read(lambda read: replace(read, offset=(1 << 20, 0))),
    "bytes before a page": lambda: with_read(lambda read: replace(read, offset=(0, -8))),
    "a prefill worker too many": lambda: with_read(lambda read: replace(read, worker=2)),
    "a prefill worker below 0": lambda: with_read(lambda read: replace(read, worker=-1)),
    "another pair": lambda: with_read(lambda read: replace(read, groups="other")),
    "a read that moves nothing": lambda: with_table(lambda table: Table()),
    "a loop without end": lambda: with_nest(
        lambda nest: replace(nest, loops=(replace(nest.loops[0], count=1 << 40), *nest.loops[1:]))
    ),
    "a loop of no turns": lambda: with_nest(
        lambda nest: replace(nest, loops=(replace(nest.loops[0], count=0), *nest.loops[1:]))
    ),
    "a span of no bytes": lambda: with_nest(lambda nest: replace(nest, bytes=0)),
    "a span of too many bytes": lambda: with_nest(lambda nest: replace(nest, bytes=1 << 40)),
    "tokens in a table of pages": lambda: with_nest(lambda nest: replace(nest, token_step=(8, 8))),
    "a step of tokens that leaves the page": lambda: with_table(
        lambda table: replace(
            table, per_token=(replace(table.per_token[0], token_step=(1 << 30, 8)), *table.per_token[1:])
        )
    ),
    "a tile of no rows": lambda: with_table(
        lambda table: replace(table, per_token=(replace(table.per_token[0], hops=((0, 8, 8),)), *table.per_token[1:]))
    ),
    "a range of planes without end": lambda: with_table(
        lambda table: replace(table, unpack=(PageRange(bytes=8, planes=1 << 40),))
    ),
    "a range behind its page": lambda: with_table(lambda table: replace(table, pack=(PageRange(bytes=1 << 40),))),
    "reads of too few workers": lambda: sealed(replace(MADE, reads=())),
    "a notified worker too many": lambda: sealed(replace(MADE, notify=((7,),))),
    "planes with a gap": lambda: with_planes(first=1),
    "planes twice": lambda: with_planes(loops=(("layer", (3, 7), 0),)),
    "planes without end": lambda: with_planes(loops=(("layer", tuple(range(1 << 9)), 1),) * 2),
    "a page of more than 64 bits": lambda: with_planes(page_bytes=1 << 64, stride=1 << 64),
    "a page of no bytes": lambda: with_planes(page_bytes=0, stride=8),
    "a page longer than its stride": lambda: with_planes(stride=1),
    "planes of no group": lambda: with_planes(group="other"),
    "a shard too many": lambda: with_side(
        "decode",
        lambda side: replace(
            side,
            groups=(replace(side.groups[0], shards=2), *side.groups[1:]),
            workers=(replace(side.workers[0], shard=2),),
        ),
    ),
    "a group of no tokens": lambda: with_group(kernel=0, tokens=0),
    "a group of no blocks": lambda: with_group(ratio=0),
    "a group of no turns": lambda: with_group(chunk=0),
    "a group of no shards": lambda: with_group(shards=0),
    "a ring below 0": lambda: with_group(ring=-1),
    "blocks that are not whole": lambda: with_group(ratio=3),
    "a pair of no rows": lambda: with_pair(rows=0),
    "a pair of other rows": lambda: with_pair(rows=3),
    "a pair of other pages": lambda: with_pair(page_rows=3),
    "a pair of no group": lambda: with_pair(decode="other"),
    "a pair of a state and tokens": lambda: with_pair(decode="state"),
}


def test_plans_as_they_are_compiled_and_made_by_hand() -> None:
    for made in (MADE, plan(Shape(1), Shape(4, kernel=8, ratio=2, tail=8), Model(heads=4))):
        check_numbers(made)


@pytest.mark.parametrize("name", WRONG)
def test_a_number_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(PlanFormatError, match="compile the plan again"):
        check_numbers(WRONG[name]())


def memory(made: Plan, role: str) -> Pool:
    side = getattr(made, role)
    arrays = {plane.name: np.zeros((8, plane.stride), np.uint8) for plane in names.planes(side.workers[0])}
    return views(side, 0, arrays)


@pytest.mark.parametrize("name", WRONG)
def test_neither_worker_takes_such_a_plan(name: str) -> None:
    """It happened: `connect` raised IndexError, and left a client and descriptors each time."""
    given: dict[str, Any] = {"keys": Plain()}
    pools = memory(MADE, "prefill"), memory(MADE, "decode")
    bad = WRONG[name]()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(PlanFormatError):
        PrefillWorker(bad, 0, pools[0], InMemory(Hub()), identity=Identity("P"), **given)
    with pytest.raises(PlanFormatError):
        DecodeWorker([MADE, bad], 0, pools[1], InMemory(Hub()), identity=Identity("D"), **given)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_with_digests_made_anew_is_refused(tmp_path: Path) -> None:
    text = next(Path("examples/plans/qwen3_0_6b").glob("*.py")).read_text()
    (tmp_path / "plan.py").write_text(text)
    good = load_plan(tmp_path / "plan.py")
    bad = sealed(
        replace(good, reads=((replace(good.reads[0][0], first=(1 << 20, 0)), *good.reads[0][1:]), *good.reads[1:]))
    )
    first = text.replace("table=", f"first=({1 << 20}, 0), table=", 1)
    (tmp_path / "plan.py").write_text(first.replace(good.digest, bad.digest))
    with pytest.raises(PlanFormatError, match=r"planes 1048576 to \d+ are moved, the worker has \d+ planes"):
        load_plan(tmp_path / "plan.py")


def numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all whole numbers in a value."""
    if type(value) is int:
        return [path]
    if is_dataclass(value):
        return [found for one in fields(value) for found in numbers(getattr(value, one.name), (*path, one.name))]
    if isinstance(value, tuple):
        return [found for place, item in enumerate(value) for found in numbers(item, (*path, place))]
    return []


def at(value: Any, path: tuple[Any, ...], number: int) -> Any:
    """A value with another number at that path."""
    if not path:
        return number
    if isinstance(value, tuple):
        return (*value[: path[0]], at(value[path[0]], path[1:], number), *value[path[0] + 1 :])
    return replace(value, **{path[0]: at(getattr(value, path[0]), path[1:], number)})


@pytest.mark.parametrize("number", [-1, 1 << 20, 1 << 62, (1 << 64) - 1])
def test_any_number_changed_is_refused_or_connects(number: int) -> None:
    """Whatever is edited, there is a named error or a connection, and no client stays where there is none."""
    small = plan(Shape(1), Shape(1), Model(heads=1, layers=(0,)))
    for path in (
        numbers(small.reads, ("reads",))
        + numbers(small.group_pairs, ("group_pairs",))
        + numbers(small.notify, ("notify",))
    ):
        try:
            bad = sealed(at(small, path, number))
            check_numbers(bad)
        except PlanFormatError:
            continue
        hub, given = Hub(), {"keys": Plain()}
        source = PrefillWorker(bad, 0, memory(bad, "prefill"), InMemory(hub), identity=Identity("P"), **given)  # type: ignore[arg-type]
        source.announce([source.address])
        target = DecodeWorker(bad, 0, memory(bad, "decode"), InMemory(hub), identity=Identity("D"), **given)  # type: ignore[arg-type]
        try:
            target.connect(source.address, 10)
        except KvplanError:
            assert target.peers() == ()
        target.close()
        source.close()
