"""Search: every order in which a world's steps may happen, to a depth, each state once."""

from __future__ import annotations

import copyreg
import io
import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.runtime.explore.world import Fixed, World

from kvplan.runtime.transfer.demand import PairRules

# Objects that no step changes are not copied.
_SHARED: dict[int, Any] = {}


def _shared(number: int) -> Any:
    return _SHARED[number]


def _share(one: Any) -> tuple[Any, tuple[int]]:
    _SHARED[id(one)] = one
    return _shared, (id(one),)


TABLE = {**copyreg.dispatch_table, **dict.fromkeys((Fixed, PairRules), _share)}


@dataclass
class Found:
    """How many states and steps there are up to a depth. It is the `whole` space if no state is further away.

    `ends` are states after which only time goes on: everything has to end then.
    """

    states: int = 1
    steps: int = 0
    ends: int = 0
    depth: int = 0
    whole: bool = False


def explore(fixed: Fixed, left: Mapping[str, int], most: int, depth: int) -> Found:
    """Take every step from every state, breadth first. Raises what a step raises, with the way to it."""
    found, first = Found(), saved(World.new(fixed, left, most))
    layer: dict[bytes, tuple[str, ...]] = {first: ()}
    seen = {hash(first)}
    while layer and found.depth < depth:
        found.depth += 1
        layer = _next(layer, seen, found)
    found.states, found.whole = len(seen), not layer
    return found


def _next(layer: dict[bytes, tuple[str, ...]], seen: set[int], found: Found) -> dict[bytes, tuple[str, ...]]:
    """The states one step further that were not seen before."""
    new: dict[bytes, tuple[str, ...]] = {}
    for data, way in layer.items():
        world = restored(data)
        names = [name for name, _ in world.steps()]
        if not names:
            found.ends += 1
            _take("finish", world.finish, way)
        for number, name in enumerate(names):
            world = restored(data)
            found.steps += 1
            _take(name, list(world.steps())[number][1], way)
            after = saved(world)
            if hash(after) not in seen:
                seen.add(hash(after))
                new[after] = (*way, name)
    return new


def walk(world: World, draw: random.Random) -> None:
    """Take random steps until only time goes on: then everything has to end. Raises as `explore`."""
    way: tuple[str, ...] = ()
    while list(world.steps()):
        troubles = draw.random() < 0.1
        name, step = draw.choice(list(world.troubles() if troubles else world.calm()) or list(world.steps()))
        _take(name, step, way)
        way = (*way, name)
    _take("finish", world.finish, way)


def _take(name: str, step: Callable[[], None], way: tuple[str, ...]) -> None:
    try:
        step()
    except Exception as error:
        error.add_note(" → ".join((*way, name)))
        raise


def saved(world: World) -> bytes:
    """A world as bytes, which are the same for the same state."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.dispatch_table = TABLE
    pickler.dump(world)
    return file.getvalue()


def restored(data: bytes) -> World:
    world = pickle.loads(data)
    assert isinstance(world, World)
    return world
