"""Descriptors that NIXL posted, by its own telemetry, against the runtime's prediction and the fewest possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.peer import SECONDS, met
from kvplan.bench.report import Row
from kvplan.bench.stage import TOP, pool

if TYPE_CHECKING:
    from kvplan.bench.peer import PeerPair
    from kvplan.plan.types import Group, Ints, Plan, Side
    from kvplan.runtime import Blocks, Request, Slot

AREA = "descriptors posted"
BLOCKS = 12
PAIRS = (
    ("qwen3-0.6b", "tp=1", "tp=1"),
    ("qwen3-0.6b", "tp=1", "tp=2"),
    ("qwen3-0.6b", "tp=1", "tp=1,block=32"),
    ("nemotron-3-nano-30b", "tp=1", "tp=1"),
)
Order = Callable[[int], "Ints"]


def in_order(count: int) -> Ints:
    """Return ascending ids."""
    return np.arange(count, dtype=np.int64)


def halves(count: int) -> Ints:
    """Return two runs of adjacent ids, the second one first."""
    return np.roll(in_order(count), count // 2)


def shuffled(count: int) -> Ints:
    """Return ids in random order."""
    return np.random.default_rng(3).permutation(count).astype(np.int64)


ORDERS: tuple[tuple[str, Order, Order], ...] = (
    ("in order", in_order, in_order),
    ("two runs", in_order, halves),
    ("shuffled", shuffled, in_order),
)


def measure(pairs: int) -> list[Row]:
    """Measure one request for every pair of sides and every order of blocks; ragged at both ends."""
    return [row for model, prefill, decode in PAIRS for row in _sides(model, prefill, decode)]


def _sides(model: str, prefill: str, decode: str) -> list[Row]:
    with met(model, prefill, decode, lambda _: BLOCKS, len(ORDERS)) as pair:
        return [_row(pair, f"{model} {prefill} -> {decode}, {name}", *order) for name, *order in ORDERS]


def _row(pair: PeerPair, name: str, prefill: Order, decode: Order) -> Row:
    wanted = request(pair.plan, next(pair.names), prefill, decode)
    done = pair.decode.submit(wanted, SECONDS).wait()
    fewest = minimum(pair.plan, wanted)
    details: dict[str, object] = {"posted": done.posted, "predicted": done.descriptors, "fewest": fewest}
    met_ = done.posted == done.descriptors == fewest
    return Row(
        AREA, name, f"{done.posted:,}", f"{done.descriptors:,} predicted, {fewest:,} fewest", met_, details=details
    )


def request(plan: Plan, name: str, prefill: Order, decode: Order) -> Request:
    """Return a request of nearly all tokens of the smaller side's pool, without a few at both ends; states are last."""
    from kvplan.runtime import Request

    states = max(sum(group.store == "state" for group in side.groups) for side in (plan.prefill, plan.decode))
    room = min(g.tokens * (BLOCKS - states) for side in (plan.prefill, plan.decode) for g in side.groups if g.tokens)
    first, end = 5, room - 3
    ours, theirs = tables(plan.decode.groups, decode, end), tables(plan.prefill.groups, prefill, end)
    return Request(name, (first, end), theirs, ours)


def tables(groups: tuple[Group, ...], order: Order, tokens: int, blocks: int = BLOCKS) -> dict[str, Blocks | Slot]:
    """Return the first of `blocks` for tokens up to `tokens`, the last ones for states at that token."""
    from kvplan.runtime import Blocks, Slot

    states = [group.name for group in groups if group.store == "state"]
    slots: dict[str, Blocks | Slot] = {name: Slot(blocks - 1 - i, tokens) for i, name in enumerate(states)}
    counts = {group.name: -(-tokens // group.tokens) for group in groups if group.tokens}
    return slots | {name: Blocks(0, order(count)) for name, count in counts.items()}


def minimum(plan: Plan, wanted: Request) -> int:
    """Count runs of bytes that are contiguous on both sides, in the compiler's trace, by the simplest possible loop."""
    from kvplan.compiler.check.trace import copies

    found = [copy for copy in copies(plan, wanted) if (copy.from_worker, copy.to_worker) == (0, 0)]
    theirs, ours = _bases(plan.prefill), _bases(plan.decode)
    spans = [(ours[c.to_plane] + c.to_offset, theirs[c.from_plane] + c.from_offset, c.bytes) for c in found]
    runs, end = 0, (-1, -1)
    for to, source, size in sorted(spans):
        runs += (to, source) != end
        end = to + size, source + size
    return runs


def _bases(side: Side) -> dict[str, int]:
    from kvplan.plan import planes as names

    bases = pool(side, 0, BLOCKS, TOP).geometry.base.tolist()
    return {plane.name: base for plane, base in zip(names.planes(side.workers[0]), bases, strict=True)}
