"""Overrides: values in a side's text that replace what the engine's rules derive.
Law: an override is redundant, or moves something, or is refused. A key without redundant overrides names the same side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.compiler.errors import Refused
from kvplan.compiler.paging.derive import DerivedValues, Over, RuleInputs, derived
from kvplan.compiler.placement.place import local_sizes, place
from kvplan.compiler.side.text import whole
from kvplan.dsl.lang.nodes import SizeSet, Value
from kvplan.dsl.schema.engine import Engine

Bind = Callable[[Over], tuple[DerivedValues, BoundSide]]
T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Overrides:
    """`changed`: the overrides that make a difference, key -> value, with a note on each. `idle`: those of them that
    move nothing, key -> the derived value."""

    changed: Mapping[str, int]
    notes: tuple[str, ...]
    idle: Mapping[str, Value | SizeSet]


def override_keys(engine: Engine, caches: Sequence[str]) -> list[str]:
    """Return the side keys that override a derived value: for all caches (`tokens`), or for one (`tokens.NAME`).

    The interleave is the same for all caches, so the values that it uses cannot be overridden for one cache.
    """
    interleave = engine.mesh.interleave
    own = [name for name in engine.derive if interleave is None or name not in interleave.names]
    return [*engine.derive, *(f"{name}.{cache}" for name in own for cache in caches)]


def given_values(engine: Engine, caches: tuple[BoundCache, ...], given: Mapping[str, str]) -> dict[str, int]:
    """Return the overrides in a side's text. Raises BadInput (S004), Refused (C139) for a value that is fixed."""
    over = {key: whole(key, given[key], 1) for key in override_keys(engine, [c.name for c in caches]) if key in given}
    for key in over:
        fixed = engine.docs[key.partition(".")[0]].fixed
        if fixed:
            raise Refused("C139", f"{key} cannot be given to {engine.name}: {fixed}", "leave it out")
    return over


def once(make: Callable[[Mapping[str, V]], T]) -> Callable[[Mapping[str, V]], T]:
    """Cache `make` by keys: finding redundant overrides leaves out one after another and repeats itself."""
    made = lru_cache(None)(lambda items: make(dict(items)))
    return lambda given: made(tuple(given.items()))


def overrides(facts: RuleInputs, bind: Bind, over: Over) -> Overrides:
    """Classify the overrides of a side that `bind` makes. Raises Refused (C139)."""
    kept, meant = dict(over), _meaning(facts, bind, over)
    for key in over:
        if _meaning(facts, bind, _without(kept, key)) == meant:
            kept = _without(kept, key)
    plain = {key: _plain(facts, kept, key) for key in kept}
    notes = [f"{key}={value} is given; the engine would derive {plain[key]}" for key, value in kept.items()]
    here = _placed(bind, kept)
    idle = [key for key in kept if here is not None and _placed(bind, _without(kept, key)) == here]
    if here is not None:
        _check_overlaid(bind, kept)
    return Overrides(kept, tuple(notes), {key: plain[key] for key in idle})


def check_idle(engine: Engine, found: Overrides) -> None:
    """Refuse overrides that move nothing (C139)."""
    for key, plain in found.idle.items():
        said = f"{key}={found.changed[key]} moves nothing on this side: blocks lie as with {plain}, which is derived"
        raise Refused("C139", said, f"leave it out; `kvplan explain {engine.name}` says what it is for")


def _without(over: Over, key: str) -> dict[str, int]:
    return {other: value for other, value in over.items() if other != key}


def _meaning(facts: RuleInputs, bind: Bind, over: Over) -> tuple[object, ...] | None:
    """Return the derived values of the side and of each cache, and its groups; None if the rules refuse."""
    try:
        found, bound = bind(over)
    except Refused:
        return None
    values = [[env[name] for name in facts.engine.derive] for env in (found.env, *found.caches.values())]
    return values, bound.groups


def _placed(bind: Bind, over: Over) -> tuple[object, ...] | None:
    """Return where everything lies; None if the placement is refused."""
    try:
        return layout(bind(over)[1])
    except Refused:
        return None


def layout(side: BoundSide) -> tuple[object, ...]:
    """Return what is stored and where, on one worker of each layout. Raises Refused (C10x)."""
    held = {w: str([local_sizes(side, w, cache, 1).extents for cache in side.caches]) for w in side.workers}
    sorts = {(what, worker.layers): worker for worker, what in held.items()}
    units = [place(side, worker) for worker in sorts.values()]
    stored = [(cache.name, cache.layers, cache.tensors, cache.needs, cache.memory) for cache in side.caches]
    return side.groups, side.token_shards, side.interleave_tokens, stored, units


def _check_overlaid(bind: Bind, over: Over) -> None:
    """Refuse (C139) overrides that give overlaid groups different block sizes: two ids would share bytes."""
    sizes, plain = _block_sizes(bind(over)[1]), _block_sizes(bind({})[1])
    for arena, found in sizes.items():
        if len({*found.values()}) > 1 and len({*plain.get(arena, {}).values()}) <= 1:
            listed = ", ".join(f"{group} {size:,} B" for group, size in found.items())
            said = f"{', '.join(over)}: groups that overlay each other would have different block sizes: {listed}"
            raise Refused("C139", said, "give all of them the same")


def _block_sizes(side: BoundSide) -> dict[int, dict[str, int]]:
    """Return the bytes between logical blocks by arena and group, for arenas with overlaid groups."""
    groups = {group.name: group for group in side.groups}
    found: dict[int, dict[str, int]] = {}
    if len({group.arena for group in side.groups}) == len(groups):
        return found
    # One worker of each pipeline stage, because a single worker may lack layers of some group.
    for worker in {worker.layers: worker for worker in side.workers}.values():
        for unit in place(side, worker):
            group, sizes = groups[unit.group], found.setdefault(groups[unit.group].arena, {})
            size = max(part.stride for part in unit.parts) * group.ratio
            sizes[group.name] = max(size, sizes.get(group.name, 0))
    return found


def _plain(facts: RuleInputs, over: Over, key: str) -> Value | SizeSet:
    """Return the derived value without an override: of its cache, or of the first cache whose value differs."""
    name, _, cache = key.partition(".")
    try:
        found = derived(facts, _without(over, key))
    except Refused:
        return "nothing"
    values = [found.caches[cache][name]] if cache else [env[name] for env in (found.env, *found.caches.values())]
    return next((plain for plain in values if plain != over[key]), over[key])
