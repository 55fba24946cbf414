"""Two units as they lie to each other: groups that differ only in their layers' numbers become equal, and cost once."""

from __future__ import annotations

from dataclasses import replace

from kvplan.compiler.place import Unit
from kvplan.runtime.plan import Nest, Table


def relative(source: Unit, target: Unit) -> tuple[Unit, Unit]:
    """Both units with planes counted from their own first, and layers as indices of `target`'s (-1: not there)."""
    index = {layer: i for i, layer in enumerate(target.layers)}
    layers = tuple(index.get(layer, -1) for layer in source.layers)
    own = tuple(range(len(target.layers)))
    return replace(source, group="", first=0, layers=layers), replace(target, group="", first=0, layers=own)


def shifted(table: Table, prefill: int, decode: int) -> Table:
    """The table with plane numbers moved on by so many on either side."""
    return Table(
        tuple(_moved(nest, prefill, decode) for nest in table.page),
        tuple(_moved(nest, prefill, decode) for nest in table.token),
    )


def _moved(nest: Nest, prefill: int, decode: int) -> Nest:
    p, d = nest.prefill, nest.decode
    return replace(nest, prefill=(p[0] + prefill, p[1]), decode=(d[0] + decode, d[1]))
