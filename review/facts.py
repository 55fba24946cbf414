"""The facts of one plan that a review compares, each under the rule that reports its change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from math import ceil

import numpy as np

from kvplan.compiler.cost.cost import TOKENS, ends_of
from kvplan.compiler.cost.strategy import pulled
from kvplan.compiler.explain.contract import expected
from kvplan.compiler.words import interval, many, needed, part_name, reading
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.expand import BYTES, D_OFFSET, P_OFFSET, TokenRows, expand_tokens, tokens
from kvplan.plan.match import MatchRule, rule_of
from kvplan.plan.spans import each_token, group_named, in_tiles
from kvplan.plan.types import ALL, Group, Ints, Needs, Nest, PageRange, Plan, Planes, Read, Runs, Side, View, Worker

Value = int | str
DEFAULT = "the engine's default"
# How the pages of a pair are copied.
WHOLE, RUNS = "page by page", "by runs of tokens"
# The number of a worker among those that take turns.
TURN = "turn"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a fact: a side (empty for both), a cache or group, a part of it, and a word for the value.

    `unit` is the unit of a number.
    """

    rule: str
    side: str = ""
    name: str = ""
    part: str = ""
    word: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact; `worker` is None if it is not about one worker."""

    subject: Subject
    value: Value
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class CostLength:
    """The length of the request whose cost is compared: `tokens`, more if one of the plans has a chunk."""

    tokens: int
    chunked: bool

    def tokens_of(self, needs: Needs) -> int:
        """The tokens of the request for a plan. With a chunk the last one is full but for a token, the worst case."""
        return (self.tokens // needs.chunk + 1) * needs.chunk - 1 if needs.chunk else self.tokens

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens" + (", or more up to the end of a chunk" if self.chunked else "")


def facts(plan: Plan, lengths: Mapping[str, CostLength]) -> Iterator[Fact]:
    """Everything about a plan that a review compares; costs are of requests of `lengths` tokens, by cache."""
    yield from _plan(plan)
    for name, side in (("prefill", plan.prefill), ("decode", plan.decode)):
        yield from _side(name, side)
    yield from _reads(plan)
    yield from _contract(plan)
    yield from costs(plan, lengths)


def _plan(plan: Plan) -> Iterator[Fact]:
    yield Fact(Subject("FORMAT", name="format"), plan.format)
    yield Fact(Subject("TITLE", name="title"), plan.title)
    yield Fact(Subject("MODEL_NAME", name="model"), plan.model)
    for name, value in plan.options:
        yield Fact(Subject("COMPILE_OPTION", name=f"--{name}"), value)
    for name in plan.skipped:
        yield Fact(Subject("SKIPPED", name=name), "not moved")


def _side(name: str, side: Side) -> Iterator[Fact]:
    for key, value in options(side):
        yield Fact(Subject("OPTION", name, key), value)
    yield Fact(Subject("WORKERS", name, unit="workers"), len(side.workers))
    yield from _stored(name, side)
    for group in side.groups:
        yield from _group(name, side, group)
    for number, worker in enumerate(side.workers):
        yield from (Fact(fact.subject, fact.value, number) for fact in _worker(name, side, worker))


def options(side: Side) -> Iterator[tuple[str, str]]:
    """The options of a side's key, with their values."""
    for item in side.key.split(","):
        key, _, value = item.partition("=")
        yield key, value


def _stored(name: str, side: Side) -> Iterator[Fact]:
    """The caches, layers and tensors that all workers of a side store together."""
    layers: dict[str, set[int]] = {}
    tensors: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
    whole: dict[tuple[str, str], int] = {}
    memories: dict[str, str] = {}
    for worker in side.workers:
        for cache, axis, (_, end) in worker.holds:
            whole[cache, axis] = max(whole.get((cache, axis), 0), end)
        for entry in worker.planes:
            layers.setdefault(entry.cache, set()).update(_layers(entry))
            tensors.update({(entry.cache, view.tensor): (view.dtype, _extents(view)) for view in entry.views})
            memories[entry.cache] = entry.memory or "not declared"
    for cache, numbers in layers.items():
        yield Fact(Subject("CACHE", name, cache), "stored")
        yield Fact(Subject("LAYERS", name, cache), f"{many(len(numbers), 'layer')} ({ranges(numbers)})")
        yield Fact(Subject("MEMORY", name, cache, word="memory"), memories[cache])
    for (cache, tensor), (dtype, extents) in tensors.items():
        yield Fact(Subject("TENSOR", name, cache, tensor), "stored")
        yield Fact(Subject("DTYPE", name, cache, tensor), dtype)
        for axis, extent in extents.items():
            yield Fact(Subject("EXTENT", name, cache, tensor, f"axis {axis}"), whole.get((cache, axis), extent))


def _layers(entry: Planes) -> set[int]:
    return {*entry.layers, *(index for axis, indices, _ in entry.loops if axis == "layer" for index in indices)}


def _extents(view: View) -> dict[str, int]:
    """The number of items by axis, without tokens and layers. An axis in tiles, `dim/8` and `dim`, counts as one."""
    found: dict[str, int] = {}
    for axis, count, _ in view.axes:
        base = axis.partition("/")[0]
        found[base] = found.get(base, 1) * count
    return {axis: count for axis, count in found.items() if axis not in ("token", "layer")}


def _group(name: str, side: Side, group: Group) -> Iterator[Fact]:
    yield Fact(Subject("GROUP", name, group.name), "there")
    kind = [group.store, f"length {group.length}", *([f"the table of {group.table}"] if group.table else [])]
    yield Fact(Subject("GROUP_KIND", name, group.name), ", ".join(kind))
    yield Fact(Subject("GROUP_KIND", name, group.name, word="groups in its memory"), ", ".join(side.sharing(group)))
    caches = {entry.cache: None for worker in side.workers for entry in worker.planes if entry.group == group.name}
    for cache in caches if group.tokens else ():
        yield from _blocks(name, cache, group)


def _blocks(name: str, cache: str, group: Group) -> Iterator[Fact]:
    """The facts of a cache's blocks, by the cache: its name stays the same if groups form differently."""
    yield Fact(Subject("BLOCK_TOKENS", name, cache, word="block", unit="tokens"), group.tokens)
    kernel = "one" if group.ratio == 1 else f"{group.ratio} of {group.kernel:,} tokens"
    yield Fact(Subject("KERNEL_BLOCKS", name, cache, word="kernel blocks of a block"), kernel)
    turns = "no turns" if group.shards == 1 else f"{group.shards} workers, {many(group.chunk, 'token')} each"
    yield Fact(Subject("TURNS", name, cache), turns)
    yield Fact(Subject("RING", name, cache, word="ring", unit="tokens"), group.ring or "none")


def _worker(name: str, side: Side, worker: Worker) -> Iterator[Fact]:
    yield Fact(Subject("TURNS", name, word=TURN), worker.shard)
    for cache, axis, held in worker.holds:
        yield Fact(Subject("HOLDS", name, cache, "", axis), interval(held))
    for entry in worker.planes:
        part = part_name(entry.part, (view.tensor for view in entry.views))
        loops = ", ".join(f"{axis} {ranges(indices)}, {step} apart" for axis, indices, step in entry.loops)
        inside = f", layers {ranges(entry.layers)} inside" if entry.layers else ""
        yield Fact(
            Subject("PLANES", name, entry.cache, part, f"in {entry.group}"), f"from {entry.first}: {loops}{inside}"
        )
        yield from _page(name, entry, part, group_named(side, entry.group).kernel)
        yield Fact(Subject("BLOCK_STRIDE", name, entry.cache, part, "from block to block", "B"), entry.stride)
        for view in entry.views:
            yield Fact(Subject("PLACE", name, entry.cache, view.tensor, "begins at byte"), view.offset)
            order = " ".join(axis for axis, _, _ in view.axes)
            yield Fact(Subject("AXIS_ORDER", name, entry.cache, view.tensor, "axes"), order)
            for axis, _, step in view.axes:
                yield Fact(Subject("STEPS", name, entry.cache, view.tensor, f"from {axis} to {axis}", "B"), step)


def _page(name: str, entry: Planes, part: str, tokens: int) -> Iterator[Fact]:
    """The bytes of a page and of one of its tokens: a larger block changes only the bytes of the page."""
    yield Fact(Subject("PAGE_BYTES", name, entry.cache, part, "page", "B"), entry.page_bytes)
    if tokens:
        exact = entry.page_bytes % tokens == 0
        each: Value = entry.page_bytes // tokens if exact else f"{entry.page_bytes / tokens:,.1f}"
        per = "per token on one worker" if entry.layers else "per token and layer on one worker"
        yield Fact(Subject("TOKEN_BYTES", name, entry.cache, part, per, "B"), each)


def _reads(plan: Plan) -> Iterator[Fact]:
    for pair in plan.group_pairs:
        yield Fact(Subject("GROUP_PAIRS", name=pair.name), f"{pair.prefill} and {pair.decode}")
        caches = {read.cache: None for reads in plan.reads for read in reads if read.groups == pair.name}
        for cache in caches if group_named(plan.decode, pair.decode).tokens else ():
            yield Fact(Subject("PAGE_COPIES", name=cache, word="pages are copied"), WHOLE if pair.page_rows else RUNS)
        yield from (Fact(Subject("NEEDS", name=cache), reading(plan, pair) or "all tokens") for cache in caches)
    yield from _kept(plan)
    rules = {pair.name: rule_of(plan, pair) for pair in plan.group_pairs}
    for number, reads in enumerate(plan.reads):
        workers = ranges(read.worker for read in reads) or "none"
        yield Fact(Subject("READERS", "decode", "reads from prefill workers"), workers, number)
        for read in reads:
            yield Fact(Subject("READS", "decode", read.cache), _read(read), number)
            for name, text in _tables(read, rules[read.groups]):
                yield Fact(Subject("SPANS", "decode", read.cache, word=name), text, number)
            for name, ranges_ in (("unpack", read.table.unpack), ("pack", read.table.pack)):
                text = f"through a stage, {', '.join(map(_page_range, ranges_))}" if ranges_ else "no stage"
                yield Fact(Subject("STAGES", "decode", read.cache, word=name), text, number)


def copied_by(plan: Plan, cache: str) -> str:
    """The word RUNS, with the reason why the pages of a cache are not copied whole."""
    pairs = {read.groups for reads in plan.reads for read in reads if read.cache == cache}
    pair = next(pair for pair in plan.group_pairs if pair.name in pairs)
    prefill, decode = (group_named(*one).kernel for one in ((plan.prefill, pair.prefill), (plan.decode, pair.decode)))
    if prefill == decode:
        return f"{RUNS}, because the sides' pages differ"
    return f"{RUNS}, because a page has {many(prefill, 'token')} on prefill, {decode:,} on decode"


def _kept(plan: Plan) -> Iterator[Fact]:
    """The tokens that prefill keeps of each cache, if they differ from those that decode needs."""
    kept, read = dict(plan.prefill.needs), dict(plan.decode.needs)
    for cache in sorted({*kept, *read}):
        if kept.get(cache) != read.get(cache):
            yield Fact(Subject("NEEDS", "prefill", cache, word="kept"), needed(kept.get(cache, ALL)) or "all tokens")


def _page_range(part: PageRange) -> str:
    """`65,536 B of each page in 64 KV cache tensors`, with the first byte and the first tensor if these are not 0."""
    at = f" from byte {part.offset:,}" if part.offset else ""
    planes = many(part.planes, "KV cache tensor") + (f" from number {part.plane}" if part.plane else "")
    return f"{part.bytes:,} B{at} of each page in {planes}" + (f", {part.step} apart" if part.step != 1 else "")


def _read(read: Read) -> str:
    return ", ".join([f"layers {ranges(read.layers)}", *(f"{axis} {interval(some)}" for axis, some in read.holds)])


def _tables(read: Read, rule: MatchRule) -> Iterator[tuple[str, str]]:
    """A table in short: the number and length of its spans, and where the first lies. Equal texts mean equal tables."""
    table = read.table.moved((0, read.offset[0]), (0, read.offset[1]))
    for name, nests in (("page by page", table.per_page), ("by runs of tokens", table.per_token)):
        if nests:
            rows = expand_tokens(nests)
            copied = _of_a_page(rows) if nests is table.per_page else _of_a_run(nests, rule)
            first = f"first at byte {rows[0, P_OFFSET]:,} of prefill, {rows[0, D_OFFSET]:,} of decode"
            hops = sorted({nest.hops for nest in nests} - {()})
            tag = sha256(rows.tobytes() + str((hops, read.first)).encode()).hexdigest()[:8]
            yield name, f"{copied}, {first} ({tag})"


def _of_a_page(rows: Ints) -> str:
    return f"{many(len(rows), 'span')} of {_lengths(rows[:, BYTES])}"


def _of_a_run(nests: tuple[Nest, ...], rule: MatchRule) -> str:
    """The spans of the longest run that blocks allow: `128 spans of 8,192 B in a run of 16 tokens`."""
    run = Runs(*(np.array([value], np.int64) for value in (0, 0, 0, 0, rule.steps[0])))
    pieces = [(some, _pieces(some, run)) for some in tokens(nests)]
    count = sum(len(some.table) * len(each) for some, each in pieces)
    sizes = [np.multiply.outer(np.unique(some.table[:, BYTES]), np.unique(each)) for some, each in pieces]
    length = _lengths(np.concatenate([size.reshape(-1) for size in sizes]))
    return f"{many(count, 'span')} of {length} in a run of {many(rule.steps[0] * rule.rows, 'token')}"


def _pieces(some: TokenRows, run: Runs) -> Ints:
    """The number of rows of tokens in each span of a run: one if rows do not adjoin."""
    return (in_tiles(run, some.hops) if some.joined else each_token(run)).count


def _lengths(sizes: Ints) -> str:
    least, most = int(sizes.min()), int(sizes.max())
    return f"{least:,} B" if least == most else f"{least:,} to {most:,} B"


def _contract(plan: Plan) -> Iterator[Fact]:
    for number, notified in enumerate(plan.notify):
        yield Fact(
            Subject("TOLD", "decode", "notifies prefill workers from which it reads nothing"),
            f"[{ranges(notified)}]",
            number,
        )
    for number, count in enumerate(expected(plan)):
        yield Fact(Subject("WAITS", "prefill", "a worker waits for", unit="notifications"), count, number)


def cost_lengths(plans: Iterable[Plan]) -> dict[str, CostLength]:
    """The length of the request, by cache, whose cost a review of `plans` compares."""
    caches: dict[str, set[Needs]] = {}
    for plan in plans:
        needs = {pair.name: pair.needs for pair in plan.group_pairs}
        for cache, pair in {(read.cache, read.groups) for reads in plan.reads for read in reads}:
            caches.setdefault(cache, set()).add(needs[pair])
    return {cache: _cost_length(some) for cache, some in caches.items()}


def tokens_of(plan: Plan, cache: str, lengths: Mapping[str, CostLength]) -> int:
    """The tokens of the longest request whose cost is counted for a cache of a plan; `TOKENS` if the plan lacks it."""
    names = {read.groups for reads in plan.reads for read in reads if read.cache == cache}
    needs = (pair.needs for pair in plan.group_pairs if pair.name in names)
    return max((lengths[cache].tokens_of(one) for one in needs), default=TOKENS)


def _cost_length(needs: Collection[Needs]) -> CostLength:
    """Twice the largest window or chunk: a shorter request shows no change of these."""
    largest = max(max((one.keep or 0) + one.sink, one.chunk or 0) for one in needs)
    chunked = any(one.chunk is not None for one in needs)
    return CostLength(max(1, ceil(2 * largest / TOKENS)) * TOKENS, chunked)


def costs(plan: Plan, lengths: Mapping[str, CostLength]) -> Iterator[Fact]:
    """The descriptors of the busiest decode worker and bytes of the busiest worker, by cache, for a plan that pulls.

    Workers move at the same time: the one that posts, receives or sends most decides how long a transfer takes.
    """
    moved: dict[tuple[str, str], tuple[Counter[int], Counter[tuple[str, int]]]] = {}
    ends = lru_cache(partial(ends_of, plan))
    needs = {pair.name: pair.needs for pair in plan.group_pairs}
    states = {pair.name for pair in plan.group_pairs if group_named(plan.decode, pair.decode).store == "state"}
    for worker, read in ((worker, read) for worker, reads in enumerate(plan.reads) for read in reads):
        length = lengths[read.cache]
        per = "request" if read.groups in states else str(length)
        posted, sizes = moved.setdefault((read.cache, per), (Counter(), Counter()))
        inputs = ends(length.tokens_of(needs[read.groups]))(worker, read)
        descriptors, size = pulled(read.table, inputs)
        posted[worker] += descriptors
        sizes["decode", worker] += size
        sizes["prefill", read.worker] += size
    for (name, per), (posted, sizes) in moved.items():
        by_poster, by_worker = f"per decode worker and {per}", f"per worker and {per}"
        yield Fact(Subject("DESCRIPTORS", name=name, word=by_poster, unit="descriptors"), max(posted.values()))
        yield Fact(Subject("MOVED_BYTES", name=name, word=by_worker, unit="B"), max(sizes.values()))


def gathered(found: Iterable[Fact]) -> dict[Subject, dict[int | None, Value]]:
    """Facts by subject, then by worker. Several values of one worker, for example one a group, become one text."""
    values: dict[Subject, dict[int | None, dict[Value, None]]] = {}
    for fact in found:
        values.setdefault(fact.subject, {}).setdefault(fact.worker, {})[fact.value] = None
    return {subject: {worker: _one([*some]) for worker, some in workers.items()} for subject, workers in values.items()}


def _one(values: list[Value]) -> Value:
    return values[0] if len(values) == 1 else " / ".join(f"{v:,}" if isinstance(v, int) else v for v in values)
