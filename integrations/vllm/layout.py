"""The layout of an engine, found by the served model's configuration and the engine's own facts, and compared with the
memory that it registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kvplan.compiler.api import side_of
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.dumps.compare import Difference, compare, matched, side_text, worker_of
from kvplan.compiler.dumps.dump import BLOCK, Dump, DumpedLayer
from kvplan.compiler.dumps.expected import ExpectedLayer, pieces
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.model import Model
from kvplan.dsl.schema.names import DRAFT_TOKENS
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.facts import EngineFacts
from kvplan.integrations.shared.served import GIVE_OPTIONS, another_layout, engine_layout, model_layout, side_options
from kvplan.integrations.shared.settings import settings
from kvplan.integrations.vllm.clearing import BlockClearing
from kvplan.integrations.vllm.dump import block_sizes, dumped, first_spec, limited, moved_groups
from kvplan.integrations.vllm.metadata import GroupName
from kvplan.integrations.vllm.offers import LayerBatches
from kvplan.integrations.vllm.tables import spans
from kvplan.plan.planes import Plane, planes
from kvplan.plan.types import Side
from kvplan.runtime.memory.arrays import Memory, describe
from kvplan.runtime.prefill.events import ComputeEvent


@dataclass(frozen=True, slots=True)
class WorkerLayout:
    """One worker's part of a side: its number, its memory by plane, and the engine's groups by the plan's names.

    `batches` are the layers that the engine reports as computed, by its names, None if layers share a page; `mark`
    makes an event after all work that the device was given. Without a plans directory, plans are compiled into the
    folder `cache`. `settings` have to be equal on both sides of a pair.
    """

    side: Side
    model: str
    model_digest: str
    worker: int
    memory: Mapping[str, Memory]
    groups: tuple[GroupName, ...]
    clearing: BlockClearing | None
    batches: LayerBatches | None = None
    mark: Callable[[], ComputeEvent | None] = lambda: None
    cache: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def worker_layout(config: ConnectorConfig, facts: EngineFacts, caches: Any, tensors: Mapping[str, Any]) -> WorkerLayout:
    """Return the layout of a worker's registered memory.

    Raises ConnectorError (I004 no layout, I005 another layout, I009 no cache), DslError, BadInput (I003 no engine) or
    Refused.
    """
    layouts, name, cache = model_layout(config, facts)
    engine = engine_layout(layouts, config.engine, facts)
    options = side_options(config, facts, engine)
    model = layouts.model(name)
    said = dumped(facts, options, caches, tensors, model.layers, model.drafts)
    dump, bound, differences = as_allocated(layouts, model, engine, said, block_sizes(caches))
    if differences:
        raise _differing(bound, differences, DRAFT_TOKENS in facts.options)
    side, digest = side_of(bound)
    worker = worker_of(dump, bound)
    pairs = matched(dump, pieces(bound, worker))
    memory = memory_of(planes(side.workers[worker.number]), pairs, tensors)
    groups = _groups(side, caches, pairs)
    clearing = _clearing(side, caches, groups, tensors) if caches.needs_kv_cache_zeroing else None
    offering = layer_batches(pairs), marking(tensors)
    agreed = settings(bound, facts)
    return WorkerLayout(side, bound.model, digest, worker.number, memory, groups, clearing, *offering, cache, agreed)


def check_needs(side: Side) -> None:
    """Raise ConnectorError (I012) if decode has to compute more of a prompt than vLLM does: its last token."""
    if given := [name for name, needs in side.needs if needs.whole > 1]:
        help = "decode on another engine, or leave `whole` out: all tokens are moved then"
        raise ConnectorError("I012", f"vLLM does not compute what `needs: {{whole: …}}` of {given[0]} leaves out", help)


def as_allocated(
    layouts: Library, model: Model, engine: Engine, dump: Dump, blocks: Sequence[int]
) -> tuple[Dump, BoundSide, tuple[Difference, ...]]:
    """Return the dump with its side's block, the side, and their differences, for the block with the fewest
    differences.

    An engine may no longer report its block after its caches are allocated. It is one of `blocks`, the block sizes of
    its groups: other groups derive theirs from it. Raises Refused if no block is possible.
    """
    found, refused = list[tuple[Dump, BoundSide, tuple[Difference, ...]]](), list[Refused]()
    for way in _with_blocks(engine, dump, blocks):
        try:
            bound = bind(layouts, model, side_text(way, engine, ""))
            found.append((way, bound, compare(way, bound)))
        except Refused as error:
            refused.append(error)
            continue
        if not found[-1][2]:
            break
    if not found:
        raise refused[0]
    return min(found, key=lambda each: len(each[2]))


def _with_blocks(engine: Engine, dump: Dump, blocks: Sequence[int]) -> list[Dump]:
    """Return the dump with each of these blocks, the largest first; unchanged if it has its block."""
    if BLOCK in dump.side or BLOCK not in engine.options or not blocks:
        return [dump]
    return [replace(dump, side={**dump.side, BLOCK: str(block)}) for block in sorted({*blocks}, reverse=True)]


def _differing(side: BoundSide, differences: Sequence[Difference], drafts: bool) -> ConnectorError:
    """Return the error for a difference, and what to do; if the engine `drafts`, layers without a cache may be its."""
    lines = [
        f"{d.cache or 'no cache'}: {d.what}: the engine has {d.dump}, the layout {d.layout} ({d.layers[0]})"
        for d in differences
    ]
    what = f"what the engine allocated is not as {side.model} {side.key} says"
    help = GIVE_OPTIONS
    if drafts and not all(difference.cache for difference in differences):
        help = 'if they are layers of its drafts, give a "layout" that has them: `drafts: N` and a cache (docs/vllm.md)'
    return another_layout(what, lines, help)


def memory_of(
    every: Sequence[Plane], pairs: Sequence[tuple[DumpedLayer, ExpectedLayer]], tensors: Mapping[str, Any]
) -> dict[str, Memory]:
    """Return the memory of each plane: its first layer's tensor, behind the heads of earlier planes."""
    firsts: dict[tuple[str, str], int] = {}
    for plane in every:
        for axis, index in plane.at:
            firsts[plane.cache, axis] = min(index, firsts.get((plane.cache, axis), index))
    found = {}
    for plane in every:
        layer = next(dumped for dumped, piece in pairs if _begins(piece, plane))
        before = sum((index - firsts[plane.cache, axis]) * layer.steps[axis] for axis, index in plane.at)
        found[plane.name] = _plane_memory(plane, layer, tensors[layer.name], before)
    return found


def _plane_memory(plane: Plane, layer: DumpedLayer, tensor: Any, before: int) -> Memory:
    array, blocks = describe(tensor), layer.counts["block"]
    size = (blocks - 1) * plane.stride + plane.page
    base, allocation = array.address + before, array.allocation
    return Memory(base, plane.stride, blocks, size, array.mem_type, array.device, allocation)


def _begins(piece: ExpectedLayer, plane: Plane) -> bool:
    """Whether a layer begins a plane: its only layer, or the first of those that lie inside its blocks."""
    own = piece.layer == plane.layer if plane.layer is not None else not piece.inside
    return own and (piece.cache, piece.group, piece.part or None) == (plane.cache, plane.group, plane.part)


def layer_batches(pairs: Sequence[tuple[DumpedLayer, ExpectedLayer]]) -> LayerBatches | None:
    """Return a worker's layers for offers; None if layers cannot be offered separately."""
    if any(piece.inside is not None for _, piece in pairs):
        return None
    paged = {dumped.name: piece.layer for dumped, piece in pairs if piece.facts["store"] == "tokens"}
    return LayerBatches(paged, {piece.layer for _, piece in pairs})


def marking(tensors: Mapping[str, Any]) -> Callable[[], ComputeEvent | None]:
    """Return a function that makes an event after all work given to a device, or None on a CPU, which has done it."""
    device = next(iter(tensors.values())).device
    if device.type == "cpu":
        return lambda: None
    import torch

    def mark() -> ComputeEvent:
        event: ComputeEvent = torch.Event(device)
        event.record()  # type: ignore[attr-defined]
        return event

    return mark


def _groups(side: Side, caches: Any, pairs: Sequence[tuple[DumpedLayer, ExpectedLayer]]) -> tuple[GroupName, ...]:
    """Return each of the engine's moved groups, without a name if none of its layers is here."""
    stores = {group.name: "ring" if group.ring else group.store for group in side.groups}
    names = {dumped.name: GroupName(piece.group, stores[piece.group]) for dumped, piece in pairs}
    moved = moved_groups(caches)
    return tuple(next((names[name] for name in group.layer_names if name in names), GroupName()) for group in moved)


def _clearing(side: Side, caches: Any, groups: Sequence[GroupName], tensors: Mapping[str, Any]) -> BlockClearing:
    tokens = spans(side)
    paged = {
        number: tokens[group.name] for number, group in enumerate(groups) if group.name and group.store == "tokens"
    }
    moved = moved_groups(caches)
    here = {number: [tensors[name] for name in moved[number].layer_names if name in tensors] for number in paged}
    windows = [number for number in paged if limited(first_spec(moved[number]))]
    return BlockClearing(paged, here, caches.num_blocks, windows)
