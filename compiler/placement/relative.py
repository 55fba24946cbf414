"""Two units as they lie to each other: groups that differ only in their layers' numbers become equal, and cost once."""

from __future__ import annotations

from dataclasses import replace

from kvplan.compiler.placement.tree import PlacedCache


def relative(source: PlacedCache, target: PlacedCache) -> tuple[PlacedCache, PlacedCache]:
    """Both units with planes counted from their own first, and layers as indices of `target`'s (-1: not there)."""
    index = {layer: i for i, layer in enumerate(target.layers)}
    layers = tuple(index.get(layer, -1) for layer in source.layers)
    own = tuple(range(len(target.layers)))
    return replace(source, group="", first=0, layers=layers), replace(target, group="", first=0, layers=own)


def shape(source: PlacedCache, target: PlacedCache) -> tuple[object, ...]:
    """A key that two pairs of relative units share only if they are equal. Parts are known by identity: place makes
    equal ones once per worker, and they live as long as the placements."""
    return id(source.parts), id(target.parts), source.layers, len(target.layers)
