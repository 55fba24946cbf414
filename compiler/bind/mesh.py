"""A side's workers: every coordinate of the worker grid in the engine's order, with derived axes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

from kvplan.compiler.bound import BoundWorker
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.side.options import Env
from kvplan.compiler.side.text import nearest, whole
from kvplan.dsl.lang.evaluate import evaluate, filled
from kvplan.dsl.schema.engine import LAYERS, Engine
from kvplan.dsl.schema.model import Model

PIPELINE = "pp"
MOST_WORKERS = 4096


def mesh_sizes(engine: Engine, given: Mapping[str, str]) -> dict[str, int]:
    """Return the size of every mesh axis, 1 if the side does not give it. Raises BadInput (S004, S011)."""
    axes = (*engine.mesh.workers, *engine.mesh.derived)
    sizes = {axis: whole(axis, given.get(axis, "1"), 1) for axis in axes}
    count = prod(sizes[axis] for axis in engine.mesh.workers)
    if count > MOST_WORKERS:
        raise BadInput("S011", f"{count} workers on one side", f"at most {MOST_WORKERS}")
    return sizes


def workers(
    engine: Engine, sizes: Mapping[str, int], model: Model, env: Env, listed: str | None
) -> tuple[BoundWorker, ...]:
    """Return all workers, numbered with the first axis outermost; the last pipeline stage also has the draft layers.

    Raises Refused (C112) for odd coordinates.
    """
    grid = list(product(*(range(sizes[axis]) for axis in engine.mesh.workers)))
    if listed and PIPELINE not in engine.mesh.workers:
        raise BadInput("S005", "unknown side key 'layers'", f"the engine has no {PIPELINE} axis")
    *others, last = stages(filled(engine.mesh.layers, env), model.layers, sizes.get(PIPELINE, 1), listed)
    cut = (*others, range(last.start, last.stop + model.drafts))
    return tuple(_worker(engine, {**env, **sizes}, number, at, cut) for number, at in enumerate(grid))


def _worker(engine: Engine, env: Env, number: int, at: tuple[int, ...], cut: tuple[range, ...]) -> BoundWorker:
    where: dict[str, int] = dict(zip(engine.mesh.workers, at, strict=True))
    known = {**env, **{f"rank({axis})": index for axis, index in where.items()}}
    for axis, expr in engine.mesh.derived.items():
        where[axis] = _coordinate(axis, evaluate(expr, known), env[axis])
    turn = 0
    for axis in engine.mesh.tokens:
        turn = turn * int(str(env[axis])) + where[axis]
    return BoundWorker(number, tuple(where.items()), cut[where.get(PIPELINE, 0)], turn)


def _coordinate(axis: str, value: object, size: object) -> int:
    if not isinstance(value, int) or not isinstance(size, int) or not 0 <= value < size:
        said = f"a worker's coordinate on {axis} comes out as {value}, outside [0, {size})"
        raise Refused("C112", said, f"correct the engine's rule for {axis}, or give {axis} another size")
    return value


def stages(rule: str, layers: int, count: int, listed: str | None = None) -> tuple[range, ...]:
    """Return the global layers of every stage. `listed` is a side's `31+30`. Raises BadInput, Refused."""
    if count > layers:
        raise Refused("C111", f"{layers} layers cannot be cut into {count} stages", f"use pp <= {layers}")
    sizes = _listed(listed, layers, count) if listed else _by_rule(rule, layers, count)
    starts = [sum(sizes[:stage]) for stage in range(count)]
    return tuple(range(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _listed(text: str, layers: int, count: int) -> list[int]:
    sizes = [whole("layers", piece) for piece in text.split("+")]
    if len(sizes) != count or sum(sizes) != layers:
        message = f"layers={text} is not {count} stages of {layers} layers together"
        raise BadInput("S007", message, "one number per stage")
    return sizes


def _by_rule(rule: str, layers: int, count: int) -> list[int]:
    """Return the number of layers of each stage. A remainder goes to the first stages (`even`), to those before the
    last one (`remainder_before_last`), or to the last ones (`remainder_last`)."""
    each, rest = divmod(layers, count)
    if rule == "even":
        return [each + (stage < rest) for stage in range(count)]
    if rule == "remainder_before_last":
        return [each + (0 < count - 1 - stage <= rest) for stage in range(count)]
    if rule == "remainder_last":
        return [each + (count - stage <= rest) for stage in range(count)]
    raise BadInput("S006", f"unknown pipeline rule {rule!r}", nearest(rule, LAYERS))
