"""Find caches that no engine can store, because in each storage of their kind some tile does not divide its axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvplan.dsl.files.static_check import Env, GivenParams, holds, is_ready, known_values
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Axis, Expr, Item, Repeat, Storage
from kvplan.dsl.lang.storage import leaves
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Kind, TensorSpec
from kvplan.dsl.schema.model import Cache
from kvplan.dsl.text.diagnostics import Diagnostic, DslError


def tile_error(kind: Kind, cache: Cache, values: Env, engines: Sequence[Engine]) -> Diagnostic | None:
    """C104 if every storage of the cache's record has such a tile, and no engine has own storages for the kind."""
    given, env = known_values(kind, cache, values)
    record = _record(kind, env)
    if record is None or any(kind.name in engine.own for engine in engines):
        return None
    errors = [next(_errors(storage, record.tensors, given, env), None) for storage in record.storage.values()]
    return errors[0] if all(errors) else None


def _record(kind: Kind, env: Env) -> Kind | None:
    """The kind with the record for these values; None if that depends on a side."""
    for variant in kind.variants:
        chosen = holds(variant.when, env)
        if chosen is not False:
            return kind.as_variant(variant) if chosen else None
    return kind


def _errors(storage: Storage, tensors: Mapping[str, TensorSpec], given: GivenParams, env: Env) -> Iterator[Diagnostic]:
    for axis, extent in (pair for _, items in storage.parts for pair in _tiled(items, tensors, env)):
        try:
            tile = _undivided(axis, evaluate(extent, env), env)
        except DslError:
            continue
        if tile is not None:
            said = f"axis '{axis.name}' has {evaluate(extent, env)} items, which tiles of {tile} do not divide"
            note = f"so it is in the storage '{storage.name}', {axis.span.path}:{axis.span.line}"
            help = f"give a multiple of {tile}, or correct the tile"
            yield Diagnostic("C104", said, given.place(given.blamed(extent, env)), (note,), help)


def _tiled(items: Sequence[Item], tensors: Mapping[str, TensorSpec], env: Env) -> Iterator[tuple[Axis, Expr]]:
    """The loops over tiles, each with the axis' extent in a tensor below it that exists on every side."""
    for loop in (item for item in items if isinstance(item, Repeat)):
        specs = (
            [tensors[leaf.tensor] for leaf in leaves(loop.body) if leaf.tensor in tensors] if loop.axis.tiles else []
        )
        extents = [dict(spec.axes).get(loop.axis.name) for spec in specs if not spec.when or holds(spec.when, env)]
        yield from ((loop.axis, extent) for extent in extents if extent and is_ready(extent, env))
        yield from _tiled(loop.body, tensors, env)


def _undivided(axis: Axis, extent: object, env: Env) -> int | None:
    """The first tile that does not divide the extent it cuts; None if all do, or if that depends on a side."""
    for op, size in axis.tiles:
        tile = evaluate(size, env) if is_ready(size, env) else None
        if not isinstance(extent, int) or not isinstance(tile, int):
            return None
        if tile < 1 or extent % tile:
            return tile
        extent = extent // tile if op == "/" else tile
    return None
