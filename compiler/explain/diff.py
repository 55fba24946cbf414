"""What differs between two plans, by meaning: pages, spans, reads, contract, costs, and who can still talk to whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from kvplan.compiler.emit.cost import plan_cost
from kvplan.compiler.words import reading
from kvplan.dsl.text.diagnostics import ranges
from kvplan.plan.expand import BYTES, D_OFFSET, P_OFFSET, expand_tokens
from kvplan.plan.planes import planes
from kvplan.plan.types import Group, Interval, Plan, Read, Side

V = TypeVar("V")
Key = tuple[str, int]
Found = Mapping[Key, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Change:
    """One fact that differs. `about` is model, groups, pages, reads, spans, contract, cost or peers."""

    about: str
    where: str
    before: str | None
    after: str | None

    def text(self) -> str:
        if self.about == "peers":
            return f"{self.where} {self.after}"
        if self.before is None:
            return f"{self.where}: new, {self.after}"
        if self.after is None:
            return f"{self.where}: gone, {self.before}"
        return f"{self.where}: {self.before} -> {self.after}"


def diff(old: Plan, new: Plan) -> list[Change]:
    """Every change from `old` to `new`, in the order in which a reviewer asks; empty where both do the same."""
    if old.digest == new.digest:
        return []
    found = _differences("model", {("", -1): _model(old)}, {("", -1): _model(new)})
    for name in ("prefill", "decode"):
        mine: tuple[Side, Side] = (getattr(old, name), getattr(new, name))
        found += _differences("groups", _groups(name, mine[0]), _groups(name, mine[1]))
        found += _differences("pages", _pages(name, mine[0]), _pages(name, mine[1]))
    found += _differences("groups", _pairs(old), _pairs(new))
    for about, gather in STEPS.items():
        found += _differences(about, gather(old), gather(new))
    return [*found, peers(old, new)]


def peers(old: Plan, new: Plan) -> Change:
    """Whether a worker with the old plan can still talk to one with the new plan: only where all digests are equal."""
    parts = {"model": "model_digest", "prefill side": "prefill", "decode side": "decode"}
    unlike = [word for word, name in parts.items() if _digest(old, name) != _digest(new, name)]
    if old.digest == new.digest:
        return Change("peers", "old and new peers", "equal digests", "can talk to each other")
    why = f"{', '.join(unlike)} changed" if unlike else "same sides, other tables"
    after = f"refuse each other: {why}; roll out both at once"
    return Change("peers", "old and new peers", "could talk to their like", after)


def _digest(plan: Plan, name: str) -> str:
    value = getattr(plan, name)
    return value.digest if isinstance(value, Side) else str(value)


def _differences(about: str, old: Found, new: Found) -> list[Change]:
    """The facts that differ; equal changes of several workers are said once."""
    workers: dict[tuple[str, str, str | None, str | None], list[int]] = {}
    for word, worker in _union(old, new):
        before, after = old.get((word, worker), {}), new.get((word, worker), {})
        for name in _union(before, after):
            if before.get(name) != after.get(name):
                workers.setdefault((word, name, before.get(name), after.get(name)), []).append(worker)
    return [
        Change(about, _where(word, name, numbers), before, after)
        for (word, name, before, after), numbers in workers.items()
    ]


def _union(old: Iterable[V], new: Iterable[V]) -> list[V]:
    return list(dict.fromkeys([*old, *new]))


def _where(word: str, name: str, numbers: list[int]) -> str:
    who = word if numbers == [-1] else f"{word}{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
    return " · ".join(part for part in (who.strip(), name) if part)


def _model(plan: Plan) -> dict[str, str]:
    stored = {"format": str(plan.format), "model": plan.model, "what is stored": plan.model_digest[:12]}
    stored |= {"prefill side": plan.prefill.key, "decode side": plan.decode.key}
    stored |= {f"option {name}": value for name, value in plan.options}
    return stored | {f"skipped {name}": "yes" for name in plan.skipped}


def _groups(word: str, side: Side) -> Found:
    return {(word, -1): {f"group {group.name}": _group(group) for group in side.groups}}


def _group(group: Group) -> str:
    blocks = f"{group.ratio} kernel block{'s' if group.ratio > 1 else ''} of {group.kernel:,}"
    held = f"{group.tokens:,} tokens in {blocks}" if group.tokens else "a state"
    turns = f", {group.shards} shards take turns of {group.chunk:,}" if group.shards > 1 else ""
    turns += f", in a ring of {group.ring:,}" if group.ring else ""
    turns += f", the table of {group.table}" if group.table else ""
    return f"{held}{turns}, arena {group.arena}, length {group.length}"


def _pairs(plan: Plan) -> Found:
    """What every pair of groups reads of a request."""
    return {("", -1): {f"pair {pair.name}": reading(plan, pair) or "all tokens" for pair in plan.pairs}}


def _pages(word: str, side: Side) -> Found:
    return {(f"{word} worker", number): _page_facts(side, number) for number in range(len(side.workers))}


def _page_facts(side: Side, number: int) -> dict[str, str]:
    worker = side.workers[number]
    found = {"planes": f"{len(planes(worker)):,}", "turn of the tokens": str(worker.shard)}
    for entry in worker.planes:
        cache = entry.cache if entry.cache != entry.group else None
        name = ".".join(word for word in (entry.group, cache, entry.part) if word)
        found[f"{name} page"] = f"{entry.page:,} B"
        found[f"{name} block stride"] = f"{entry.stride:,} B"
        for view in entry.views:
            axes = " ".join(f"{axis}[{count} by {step} B]" for axis, count, step in view.axes)
            found[f"{name} {view.tensor}"] = f"at {view.offset:,}: {view.dtype} {axes}".rstrip()
    return found


def _reads(plan: Plan) -> Found:
    return {
        ("decode worker", n): _gathered((_from(read), _read(read)) for read in reads)
        for n, reads in enumerate(plan.reads)
    }


def _spans(plan: Plan) -> Found:
    return {("decode worker", n): _gathered(_tables(reads)) for n, reads in enumerate(plan.reads)}


def _tables(reads: Iterable[Read]) -> Iterator[tuple[str, str]]:
    for read in reads:
        for name, nests in (("page", read.table.page), ("token", read.table.token)):
            if nests:
                # The spans of a table in short: how many, how long, where the first one lies. Equal
                # texts mean equal tables.
                rows = expand_tokens(nests)
                least, most = int(rows[:, BYTES].min()), int(rows[:, BYTES].max())
                lengths = f"{least:,} B" if least == most else f"{least:,} to {most:,} B"
                first = f"{rows[0, P_OFFSET]:,} -> {rows[0, D_OFFSET]:,}"
                hops = str(sorted({nest.hops for nest in nests} - {()}))
                tag = sha256(rows.tobytes() + (hops.encode() if hops != "[]" else b"")).hexdigest()[:8]
                yield f"{_from(read)} · a {name}", f"{len(rows):,} spans of {lengths}, first at {first}, table {tag}"


def _gathered(facts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Facts by name; those of one name are joined."""
    found: dict[str, list[str]] = {}
    for name, text in facts:
        found.setdefault(name, []).append(text)
    return {name: "; ".join(texts) for name, texts in found.items()}


def _from(read: Read) -> str:
    cache = "" if read.pair.startswith(read.cache) else f" · {read.cache}"
    return f"from prefill worker {read.worker} · {read.pair}{cache}"


def _read(read: Read) -> str:
    return " ".join([f"layers {ranges(read.layers)}", *(f"{axis} {interval(held)}" for axis, held in read.holds)])


def interval(held: Interval) -> str:
    """A half-open interval as a reader counts: `0-3` for [0, 4)."""
    return "none" if held[0] >= held[1] else ranges(range(*held))


def _contract(plan: Plan) -> Found:
    told = {
        ("decode worker", n): {"only tells prefill workers": ranges(names) or "none"}
        for n, names in enumerate(plan.notify)
    }
    waits = {("prefill worker", n): {"waits for": f"{count} notifications"} for n, count in enumerate(expected(plan))}
    return {**told, **waits}


def expected(plan: Plan) -> list[int]:
    """How many notifications every prefill worker waits for: one of each decode worker that reads or tells it."""
    tells = [{*(read.worker for read in reads), *told} for reads, told in zip(plan.reads, plan.notify, strict=True)]
    return [sum(number in told for told in tells) for number in range(len(plan.prefill.workers))]


def _cost(plan: Plan) -> Found:
    found: dict[Key, dict[str, str]] = {}
    for move in plan_cost(plan).moves:
        unit = "request" if move.store != "tokens" else "1024 tokens"
        for worker in move.workers:
            mine = found.setdefault(("decode worker", worker), {})
            mine[f"{move.pair} requests per {unit}"] = f"{move.requests:,}"
            mine[f"{move.pair} bytes per {unit}"] = f"{move.bytes:,}"
    return found


STEPS: Mapping[str, Callable[[Plan], Found]] = {"reads": _reads, "spans": _spans, "contract": _contract, "cost": _cost}
