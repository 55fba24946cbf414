"""Dumps in a line each: layers that differ only by number and place are one row. `unpacked` gives the dump back.

A row has the name with `#` in place of its number, these numbers, those of the layers if they are others, the offsets,
and what all its layers share (SAME). Integers are runs, `FIRST+STEPxCOUNT`: `0+1x5 6+1x3` is 0 1 2 3 4 6 7 8, `7` is 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvplan.dsl.text.grouped import grouped

Json = Mapping[str, Any]
AXES = ["block", "head", "token", "content"]
NUMBER = re.compile(r"(?:(?<=\.)|^)(\d+)(?=\.|$)")
SAME = ("group", "spec", "shape", "strides", "dtype", "allocation")
RUN = re.compile(r"(-?\d+)(?:\+(-?\d+)x(\d+))?")


def runs(numbers: Sequence[int]) -> str:
    """Integers as text, the longest run first; `numbers_of` reads it."""
    found, at = [], 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 0
        end = at + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        count = end - at if end - at > 2 else 1
        found.append(f"{numbers[at]}+{step}x{count}" if count > 1 else str(numbers[at]))
        at += count
    return " ".join(found)


def numbers_of(text: str) -> list[int]:
    found = [RUN.fullmatch(word) for word in text.split()]
    assert all(found), f"not a list of runs: {text!r}"
    return [int(m[1]) + int(m[2] or 0) * n for m in found if m for n in range(int(m[3] or 1))]


def packed(dump: Json, specs: list[Json]) -> Json:
    """A dump without what others of its model share: its specs go into `specs`, once each."""
    own = [_numbered(spec, specs) for spec in dump["specs"]]
    layers = [{**layer, "spec": own[layer["spec"]]} for layer in dump["layers"]]
    rows = [_row(same) for same in grouped((_alike(layer), layer) for layer in layers).values()]
    groups = [{key: value for key, value in group.items() if key != "layers"} for group in dump["groups"]]
    mesh = {axis: size for axis, size in dump["mesh"].items() if size > 1}
    rank = {axis: number for axis, number in dump["rank"].items() if number}
    where = {**({"mesh": mesh} if mesh else {}), **({"rank": rank} if rank else {})}
    kept = {"side": dump["side"], **where, "blocks": dump["blocks"], "allocations": dump["allocations"]}
    return {**kept, "groups": groups, "layers": rows}


def unpacked(fact: Json, specs: Sequence[Json], engine: str, release: str) -> dict[str, Any]:
    """The dump of a fact, for `kvplan from-cache`."""
    layers = [layer for row in fact["layers"] for layer in _layers(row)]
    numbered = enumerate(fact["groups"])
    groups = [{**g, "layers": [layer["name"] for layer in layers if layer["group"] == n]} for n, g in numbered]
    head = {"kvplan-dump": 1, "engine": {"name": engine, "version": release}, "model": {}, "side": fact["side"]}
    return {
        **head,
        "mesh": {"tp": 1, **fact.get("mesh", {})},
        "rank": fact.get("rank", {}),
        "blocks": fact["blocks"],
        "allocations": fact["allocations"],
        "axes": AXES,
        "specs": list(specs),
        "groups": groups,
        "layers": layers,
    }


def packed_pool(pool: Json) -> Json:
    """A pool whose lists of numbers are runs."""
    return {**pool, "pages": _runs_of(pool["pages"]), "states": {n: _runs_of(b) for n, b in pool["states"].items()}}


def unpacked_pool(row: Json) -> dict[str, Any]:
    return {**row, "pages": _buffers(row["pages"]), "states": {name: _buffers(b) for name, b in row["states"].items()}}


def _runs_of(buffers: Json) -> Json:
    return {word: runs(numbers) for word, numbers in buffers.items()}


def _buffers(row: Json) -> dict[str, list[int]]:
    return {word: numbers_of(text) for word, text in row.items()}


def _numbered(spec: Json, specs: list[Json]) -> int:
    if spec not in specs:
        specs.append(spec)
    return specs.index(spec)


def _alike(layer: Json) -> tuple[object, ...]:
    return (NUMBER.sub("#", layer["name"], count=1), *(str(layer[key]) for key in SAME))


def _row(layers: Sequence[Json]) -> list[object]:
    """Layers of one form as a row: the numbers of layers only if they are not those in the names."""
    first, names = layers[0], [NUMBER.search(layer["name"]) for layer in layers]
    inside = runs([int(found[1]) for found in names if found])
    numbers, offsets = (runs([layer[key] for layer in layers]) for key in ("layer", "offset"))
    own = (NUMBER.sub("#", first["name"], count=1), inside, "" if numbers == inside else numbers, offsets)
    return [*own, *(first[key] for key in SAME)]


def _layers(row: Sequence[Any]) -> Iterator[dict[str, Any]]:
    name, inside, numbers, offsets, *rest = row
    names = [name.replace("#", str(number), 1) for number in numbers_of(inside)] or [name]
    every = zip(names, numbers_of(numbers or inside), numbers_of(offsets), strict=True)
    for called, number, offset in every:
        yield {"name": called, "layer": number, "offset": offset, **dict(zip(SAME, rest, strict=True))}
