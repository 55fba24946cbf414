"""Dumps in a line each: layers that differ only by number and place are one row. `unpacked` gives the dump back.

Integers of many layers are runs, `FIRST+STEPxCOUNT`: `0+1x5 6+1x3` is 0 1 2 3 4 6 7 8, `7` is 7.
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
    kept = {"side": dump["side"], "mesh": mesh, "rank": rank, "blocks": dump["blocks"]}
    return {**kept, "allocations": dump["allocations"], "groups": groups, "layers": rows}


def unpacked(fact: Json, specs: Sequence[Json], engine: str, release: str) -> dict[str, Any]:
    """The dump of a fact, for `kvplan from-cache`."""
    layers = [layer for row in fact["layers"] for layer in _layers(row)]
    numbered = enumerate(fact["groups"])
    groups = [{**g, "layers": [layer["name"] for layer in layers if layer["group"] == n]} for n, g in numbered]
    head = {"kvplan-dump": 1, "engine": {"name": engine, "version": release}, "model": {}, "side": fact["side"]}
    return {
        **head,
        "mesh": {"tp": 1, **fact["mesh"]},
        "rank": fact["rank"],
        "blocks": fact["blocks"],
        "allocations": fact["allocations"],
        "axes": AXES,
        "specs": list(specs),
        "groups": groups,
        "layers": layers,
    }


def _numbered(spec: Json, specs: list[Json]) -> int:
    if spec not in specs:
        specs.append(spec)
    return specs.index(spec)


def _alike(layer: Json) -> tuple[object, ...]:
    return (NUMBER.sub("#", layer["name"], count=1), *(str(layer[key]) for key in SAME))


def _row(layers: Sequence[Json]) -> Json:
    """Layers of one form: their names' numbers, their layers' numbers where these are others, and their offsets."""
    first, names = layers[0], [NUMBER.search(layer["name"]) for layer in layers]
    inside = runs([int(found[1]) for found in names if found])
    numbers, offsets = (runs([layer[key] for layer in layers]) for key in ("layer", "offset"))
    row = {"name": NUMBER.sub("#", first["name"], count=1), "numbers": inside, "offsets": offsets}
    return {**row, **({} if numbers == inside else {"layers": numbers}), **{key: first[key] for key in SAME}}


def _layers(row: Json) -> Iterator[dict[str, Any]]:
    offsets = numbers_of(row["offsets"])
    inside = numbers_of(row["numbers"])
    numbers = numbers_of(row.get("layers", row["numbers"]))
    names = [row["name"].replace("#", str(n), 1) for n in inside] or [row["name"]]
    same = {key: row[key] for key in SAME}
    for name, number, offset in zip(names, numbers, offsets, strict=True):
        yield {"name": name, "layer": number, "offset": offset, **same}
