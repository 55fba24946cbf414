"""For every rule of a review a plan of before and one of now: plans that the compiler made, and one edit of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from kvplan.compiler.api import compile_pair
from kvplan.dsl.library import load
from kvplan.plan.needs import Needs
from kvplan.plan.types import Group, Nest, PageRange, Plan, Planes, Side, Table, View, Worker
from kvplan.review.pairing import PlanFile

Files = Mapping[str, PlanFile]
# Rules that no plan can break alone.
WITH: Mapping[str, set[str]] = {
    "KERNEL_BLOCKS": {"TOKEN_BYTES", "SPANS"},
    "PAGE_BYTES": {"TOKEN_BYTES"},
    "TOKEN_BYTES": {"PAGE_BYTES"},
    "WORKERS": {"HOLDS"},
    "WAITS": {"TOLD"},
    "DESCRIPTORS": {"SPANS_CUT"},
    "MOVED_BYTES": {"SPANS_CUT"},
}


@cache
def plan(prefill: str = "tp=4", decode: str = "tp=2") -> Plan:
    return compile_pair(load(), "qwen3-0.6b", prefill, decode).plan


def files(found: Plan | None, text: str, path: str = "m/p.py") -> Files:
    return {path: PlanFile(path, text, found)}


def edited(change: Callable[[Plan], Plan], old: Plan | None = None) -> tuple[Files, Files]:
    """A plan before and after a change. Digests are other ones where the change says so."""
    before = old or plan()
    return files(before, "before"), files(change(before), "after")


def prefill(**fields: Any) -> Callable[[Plan], Plan]:
    return lambda found: replace(found, digest="other", prefill=replace(found.prefill, digest="other", **fields))


def group(**fields: Any) -> tuple[Files, Files]:
    side = plan().prefill
    return edited(prefill(groups=(replace(side.groups[0], **fields),)))


def worker(change: Callable[[Worker], Worker]) -> tuple[Files, Files]:
    return edited(prefill(workers=tuple(map(change, plan().prefill.workers))))


def planes(change: Callable[[Planes], Planes]) -> tuple[Files, Files]:
    return worker(lambda one: replace(one, planes=tuple(map(change, one.planes))))


def view(change: Callable[[View], View]) -> tuple[Files, Files]:
    """The first view of every page of the prefill side."""
    return planes(lambda entry: replace(entry, views=(change(entry.views[0]), *entry.views[1:])))


def axis(name: str, change: Callable[[tuple[str, int, int]], tuple[str, int, int]]) -> tuple[Files, Files]:
    return view(lambda one: replace(one, axes=tuple(change(a) if a[0] == name else a for a in one.axes)))


def reads(change: Callable[[Plan], Any]) -> Callable[[Plan], Plan]:
    return lambda found: replace(found, digest="other", reads=change(found))


def halved(nest: Nest) -> tuple[Nest, ...]:
    """A nest in two, each with half of its bytes."""
    half = nest.bytes // 2
    later = replace(
        nest,
        prefill=(nest.prefill[0], nest.prefill[1] + half),
        decode=(nest.decode[0], nest.decode[1] + half),
        bytes=half,
    )
    return replace(nest, bytes=half), later


def tables(change: Callable[[Table], Table]) -> Callable[[Plan], Plan]:
    return reads(
        lambda found: tuple(tuple(replace(r, table=change(r.table)) for r in of_worker) for of_worker in found.reads)
    )


def cut(table: Table) -> Table:
    return Table(table.per_page, tuple(half for nest in table.per_token for half in halved(nest)))


def crossed(table: Table) -> Table:
    """Both halves of every span of a page, where the other one was."""
    halves = [halved(nest) for nest in table.per_page]
    pairs = [pair for one, other in halves for pair in ((one, other), (other, one))]
    return Table(tuple(replace(a, decode=b.decode) for a, b in pairs), table.per_token)


def shorter(table: Table) -> Table:
    return Table(tuple(replace(nest, bytes=nest.bytes // 2) for nest in table.per_page), table.per_token)


def of_others(found: Plan) -> Any:
    """Both decode workers read from two prefill workers still, but not from the same two."""
    (a, b), (c, d) = found.reads
    return (a, replace(b, worker=2)), (replace(c, worker=1), d)


def told(*names: tuple[int, ...]) -> Plan:
    return replace(plan("tp=2", "tp=4"), digest=str(names), notify=names)


def cases() -> dict[str, tuple[Files, Files]]:
    side: Side = plan().prefill
    named = files(plan(), "text", "m/other.py")
    extra = replace(side.workers[0].planes[0], cache="extra", first=28)
    # Two groups that are the same but for their names.
    twice = replace(plan(), prefill=replace(side, groups=(*side.groups, replace(side.groups[0], name="more"))))
    return {
        "FILE_TEXT": (files(plan(), "before"), files(plan(), "after")),
        "FILE_NAME": (files(plan(), "text"), named),
        "TITLE": edited(lambda found: replace(found, title="Another")),
        "MODEL_NAME": edited(lambda found: replace(found, model="another")),
        "OPTION": edited(lambda found: replace(found, prefill=replace(found.prefill, key="tp=4,block=16"))),
        "PAIR_NEW": ({}, files(plan(), "text")),
        "PAIR_GONE": (files(plan(), "text"), {}),
        "COMPILE_OPTION": edited(
            lambda found: replace(found, digest="other", options=(("elect", "spread"), ("strategy", "direct")))
        ),
        "READERS": edited(reads(of_others)),
        "READS": edited(
            reads(lambda found: tuple(tuple(replace(r, layers=(5,)) for r in some) for some in found.reads))
        ),
        "SPANS_CUT": edited(tables(cut)),
        "STAGES": edited(tables(lambda table: replace(table, unpack=(PageRange(bytes=512),)))),
        "FORMAT": (files(None, "format=0,"), files(plan(), "text")),
        "WORKERS": edited(prefill(workers=(*side.workers, side.workers[0]))),
        "CACHE": worker(lambda one: replace(one, planes=(*one.planes, extra))),
        "SKIPPED": edited(lambda found: replace(found, digest="other", skipped=("draft",))),
        "LAYERS": planes(lambda entry: replace(entry, loops=(("layer", tuple(range(1, 29)), 1),))),
        "TENSOR": view(lambda one: replace(one, tensor="key")),
        "DTYPE": view(lambda one: replace(one, dtype="f16")),
        "EXTENT": axis("dim", lambda one: (one[0], one[1] // 2, one[2])),
        "HOLDS": worker(lambda one: replace(one, holds=(("attention", "head", (3, 5)), ("attention", "head", (7, 8))))),
        "GROUP": edited(prefill(groups=(*side.groups, Group("more", "state", 0, 0, 1, 9)))),
        "GROUP_KIND": group(length="encoder"),
        "BLOCK_TOKENS": group(tokens=32),
        "KERNEL_BLOCKS": group(kernel=8, ratio=2),
        "TURNS": group(shards=2, chunk=16),
        "RING": group(ring=64),
        "PAGE_BYTES": planes(lambda entry: replace(entry, page_bytes=entry.page_bytes + 512)),
        "TOKEN_BYTES": planes(lambda entry: replace(entry, page_bytes=entry.page_bytes + 512)),
        "BLOCK_STRIDE": planes(lambda entry: replace(entry, stride=entry.stride + 512)),
        "AXIS_ORDER": view(lambda one: replace(one, axes=one.axes[::-1])),
        "PLACE": view(lambda one: replace(one, offset=one.offset + 256)),
        "STEPS": axis("token", lambda one: (one[0], one[1], one[2] + 2)),
        "PLANES": planes(lambda entry: replace(entry, first=1)),
        "MEMORY": planes(lambda entry: replace(entry, memory="host")),
        "GROUP_PAIRS": edited(
            lambda plan: replace(plan, digest="o", group_pairs=(replace(plan.group_pairs[0], prefill="more"),)), twice
        ),
        "PAGE_COPIES": edited(
            lambda found: replace(found, digest="other", group_pairs=(replace(found.group_pairs[0], page_rows=0),))
        ),
        "NEEDS": edited(
            lambda plan: replace(plan, digest="other", group_pairs=(replace(plan.group_pairs[0], needs=Needs(keep=9)),))
        ),
        "SPANS": edited(lambda found: tables(cut)(prefill()(found))),
        "DIGEST": edited(lambda found: replace(found, digest="other")),
        "TOLD": (files(told((1,), (), (), ()), "before"), files(told((), (1,), (), ()), "after")),
        "WAITS": (files(told((), (), (), ()), "before"), files(told((1,), (), (), ()), "after")),
        "DESCRIPTORS": edited(tables(crossed)),
        "MOVED_BYTES": edited(tables(shorter)),
    }  # fmt: skip
