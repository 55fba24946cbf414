"""A dump: the memory of a running engine's caches on one worker, as the engine describes it, independent of a layout.

`read_dump` reads its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvplan.compiler.json_input import JsonInput, shown
from kvplan.compiler.side.text import nearest
from kvplan.dsl.lang.dtypes import NAMES, canonical, size
from kvplan.dsl.text.diagnostics import as_written
from kvplan.dsl.text.grouped import grouped

BLOCK, TOKEN, HEAD, CONTENT = "block", "token", "head", "content"
AXES = (BLOCK, TOKEN, HEAD, CONTENT)
# The number of a layer in its name: the first number that stands alone between dots.
NUMBER = re.compile(r"(?:^|\.)(\d{1,9})(?=\.|$)")
JSON = JsonInput("dump", "docs/from-cache.md", text="D001", keys="D003", types="D003", numbers="D004", most=2**62)
NEEDED = ("kvplan-dump", "engine", "model", "side", "mesh", "blocks", "allocations", "groups", "layers")
FREE = ("rank", "axes", "specs")
LAYER = ("name", "group", "allocation", "offset", "shape", "strides", "dtype")
STORES = ("tokens", "state")


@dataclass(frozen=True, slots=True)
class DumpedGroup:
    """Layers by name that share a block table; tokens of a logical and of a kernel block, 0 for a state.

    `window` and `chunk` are the tokens that its layers attend to, 0 for all.
    """

    layers: tuple[str, ...]
    store: str
    tokens: int
    kernel: int
    window: int
    chunk: int


@dataclass(frozen=True, slots=True)
class DumpedLayer:
    """One view of an allocation. `counts` has the items of each axis, `steps` the bytes between two of them.

    Blocks are kernel blocks. `size` is the bytes of one element, of the canonical `dtype`, `layer` the layer's number
    in the model, `group` the index of its group, `offset` the first byte in allocation number `allocation`.
    """

    name: str
    layer: int
    group: int
    allocation: int
    offset: int
    counts: Mapping[str, int]
    steps: Mapping[str, int]
    size: int
    dtype: str
    spec: Mapping[str, object]

    @property
    def end(self) -> int:
        """The first byte behind all bytes that the view reaches."""
        reach = sum((self.counts[axis] - 1) * self.steps[axis] for axis in self.counts)
        return self.offset + reach + self.size

    @property
    def bytes(self) -> int:
        """The bytes of one layer in one kernel block, without gaps between blocks."""
        found = self.size
        for axis, count in self.counts.items():
            found *= 1 if axis == BLOCK else count
        return found


@dataclass(frozen=True, slots=True)
class Dump:
    """One worker's output: `side` has its engine's options by name, `rank` its coordinate on every axis of `mesh`.

    `blocks` is the pool's size in logical blocks, `allocations` the bytes of each.
    """

    engine: str
    version: str
    model: str
    layout: str
    side: Mapping[str, str]
    mesh: Mapping[str, int]
    rank: Mapping[str, int]
    blocks: int
    allocations: tuple[int, ...]
    groups: tuple[DumpedGroup, ...]
    layers: tuple[DumpedLayer, ...]


def number_in(name: str) -> int | None:
    """Return the layer's number in its name, if any."""
    found = NUMBER.search(name)
    return int(found[1]) if found else None


def read_dump(text: str) -> Dump:
    """Parse a dump. Raises BadInput (D001..D008)."""
    value = JSON.read(text)
    version = JSON.mapping(value, "a dump", ("kvplan-dump",), None)["kvplan-dump"]
    if version != 1 or isinstance(version, bool):
        JSON.bad("D002", f"a dump of version {version!r} cannot be read", 'print "kvplan-dump": 1')
    top = JSON.mapping(value, "a dump", NEEDED, FREE)
    engine = JSON.mapping(top["engine"], "engine", ("name",), ("version",))
    model = JSON.mapping(top["model"], "model", (), ("id", "layout"))
    mesh = _numbers(top["mesh"], "mesh", 1)
    rank = {**dict.fromkeys(mesh, 0), **_numbers(top.get("rank", {}), "rank", 0)}
    _check_rank(mesh, rank)
    groups = tuple(_group(item, f"groups[{n}]") for n, item in enumerate(JSON.sequence(top["groups"], "groups")))
    sizes = enumerate(JSON.sequence(top["allocations"], "allocations"))
    allocations = tuple(JSON.whole(item, f"allocations[{n}]", 1) for n, item in sizes)
    layers = tuple(_layer(item, f"layers[{n}]", top) for n, item in enumerate(JSON.sequence(top["layers"], "layers")))
    _check_groups(groups, layers)
    for layer in layers:
        _check_view(layer, allocations)
        _check_spec(layer, groups[layer.group].store)
    return Dump(
        JSON.words(engine["name"], "engine.name"),
        JSON.words(engine.get("version", ""), "engine.version"),
        JSON.words(model.get("id", ""), "model.id"),
        JSON.words(model.get("layout", ""), "model.layout"),
        {key: _option(value, f"side.{key}") for key, value in JSON.mapping(top["side"], "side", free=None).items()},
        mesh,
        rank,
        JSON.whole(top["blocks"], "blocks", 1),
        allocations,
        groups,
        layers,
    )


def _numbers(value: object, where: str, least: int) -> dict[str, int]:
    given = JSON.mapping(value, where, free=None)
    return {key: JSON.whole(number, f"{where}.{key}", least) for key, number in given.items()}


def _option(value: object, where: str) -> str:
    if not isinstance(value, str | int):
        JSON.bad("D003", f"{where} is {shown(value)}, not a text or a number")
    return as_written(value)


def _check_rank(mesh: Mapping[str, int], rank: Mapping[str, int]) -> None:
    for axis, number in rank.items():
        if axis not in mesh:
            JSON.bad("D003", f"rank has an axis {axis!r} that the mesh lacks", nearest(axis, sorted(mesh)))
        if number >= mesh[axis]:
            JSON.bad("D004", f"rank.{axis} is {number} in a mesh of {mesh[axis]}", "ranks are counted from 0")


def _group(value: object, where: str) -> DumpedGroup:
    found = JSON.mapping(value, where, ("store", "layers"), ("tokens", "kernel_tokens", "window", "chunk"))
    if found["store"] not in STORES:
        JSON.bad("D003", f"{where}.store is {shown(found['store'])}", f"allowed: {', '.join(STORES)}")
    paged = found["store"] == "tokens"
    if paged != ("tokens" in found):
        message = f"{where} {'lacks' if paged else 'is a state and has'} 'tokens'"
        JSON.bad("D003", message, "blocks of tokens have tokens")
    tokens = JSON.whole(found["tokens"], f"{where}.tokens", 1) if paged else 0
    kernel = JSON.whole(found.get("kernel_tokens", tokens), f"{where}.kernel_tokens", 1 if paged else 0)
    if paged and tokens % kernel:
        message = f"{where}: kernel blocks of {kernel} do not divide {tokens} tokens"
        JSON.bad("D004", message, "a block is whole kernel blocks")
    window, chunk = (JSON.whole(found.get(word, 0), f"{where}.{word}") for word in ("window", "chunk"))
    names = tuple(JSON.words(name, f"{where}.layers") for name in JSON.sequence(found["layers"], f"{where}.layers"))
    return DumpedGroup(names, found["store"], tokens, kernel, window, chunk)


def _layer(value: object, where: str, top: Mapping[str, Any]) -> DumpedLayer:
    found = JSON.mapping(value, where, LAYER, ("layer", "spec", "axes"))
    name = JSON.words(found["name"], f"{where}.name")
    number = JSON.whole(found["layer"], f"{where}.layer") if "layer" in found else number_in(name)
    if number is None:
        JSON.bad("D008", f"{where}: nothing says which layer {name!r} is", 'print its number, "layer": 7')
    axes = _axes(found.get("axes", top.get("axes", [])), f"{where}.axes")
    shape, strides = (JSON.sequence(found[key], f"{where}.{key}") for key in ("shape", "strides"))
    if not len(axes) == len(shape) == len(strides):
        JSON.bad("D007", f"{where} has {len(axes)} axes, a shape of {len(shape)} and {len(strides)} strides")
    counts = {axis: JSON.whole(n, f"{where}.shape", 1) for axis, n in zip(axes, shape, strict=True)}
    steps = {axis: JSON.whole(n, f"{where}.strides") for axis, n in zip(axes, strides, strict=True)}
    dtype = _dtype(found["dtype"], f"{where}.dtype")
    group, allocation, offset = (JSON.whole(found[key], f"{where}.{key}") for key in ("group", "allocation", "offset"))
    spec = _spec(found.get("spec", {}), top.get("specs", []), f"{where}.spec")
    return DumpedLayer(name, number, group, allocation, offset, counts, steps, size(dtype), dtype, spec)


def _dtype(value: object, where: str) -> str:
    """Return the canonical name of an element type."""
    name = JSON.words(value, where)
    if canonical(name) not in map(canonical, NAMES):
        JSON.bad("D007", f"{where} is {name!r}, no element type", nearest(name, sorted(NAMES)))
    return canonical(name)


def _axes(value: object, where: str) -> list[str]:
    found = JSON.sequence(value, where)
    for axis in found:
        if axis not in AXES:
            JSON.bad("D007", f"{where} has {shown(axis)}", f"allowed: {', '.join(AXES)}")
    if len(set(found)) != len(found) or BLOCK not in found:
        JSON.bad("D007", f"{where} must have 'block', and each axis once")
    return found


def _spec(value: object, specs: object, where: str) -> Mapping[str, object]:
    """Return a spec: a mapping, or one of the dump's `specs` by number."""
    if isinstance(value, dict):
        return value
    known, number = JSON.sequence(specs, "specs"), JSON.whole(value, where)
    if number >= len(known):
        JSON.bad("D004", f"{where} is {number}, of {len(known)} specs", "specs are counted from 0")
    return JSON.mapping(known[number], f"specs[{number}]", free=None)


def _check_spec(layer: DumpedLayer, store: str) -> None:
    """Check that the compared parts of a spec are readable: they may be left out, but must not be malformed."""
    spec, where = layer.spec, f"the spec of layer {layer.name!r}"
    if store == "tokens":
        for key in (key for key in ("head_size", "head_size_v") if spec.get(key) is not None):
            JSON.whole(spec[key], f"{where}: {key}")
        if spec.get("dtype") is not None:
            _dtype(spec["dtype"], f"{where}: dtype")
        return
    if not {"shapes", "dtypes"} & spec.keys():
        return
    shapes, dtypes = (JSON.sequence(spec.get(key), f"{where}: {key}") for key in ("shapes", "dtypes"))
    if len(shapes) != len(dtypes):
        JSON.bad("D007", f"{where} has {len(shapes)} shapes and {len(dtypes)} dtypes", "print one of each per array")
    for number, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        for count in JSON.sequence(shape, f"{where}: shapes[{number}]"):
            JSON.whole(count, f"{where}: shapes[{number}]", 1)
        _dtype(dtype, f"{where}: dtypes[{number}]")


def _check_groups(groups: Sequence[DumpedGroup], layers: Sequence[DumpedLayer]) -> None:
    """Check that each layer has a unique name and is in one group, the one that it names."""
    known = {layer.name for layer in layers}
    if len(known) < len(layers):
        names = [layer.name for layer in layers]
        JSON.bad("D005", f"two layers are called {next(n for n in names if names.count(n) > 1)!r}", "names are unique")
    inside = grouped((name, number) for number, group in enumerate(groups) for name in group.layers)
    for name in inside.keys() - known:
        JSON.bad("D005", f"a group has a layer {name!r} that is not among the layers", nearest(name, sorted(known)))
    for layer in layers:
        found = inside.get(layer.name, [])
        if found != [layer.group]:
            listed = f"in groups {', '.join(map(str, found))}" if found else "in no group"
            said = f"layer {layer.name!r} names group {layer.group} and is listed {listed}"
            JSON.bad("D005", said, "list it once, there")


def _check_view(layer: DumpedLayer, allocations: Sequence[int]) -> None:
    if layer.allocation >= len(allocations):
        JSON.bad("D006", f"layer {layer.name!r} lies in allocation {layer.allocation} of {len(allocations)}")
    if layer.end > allocations[layer.allocation]:
        reach = f"reaches byte {layer.end} of an allocation of {allocations[layer.allocation]} bytes"
        JSON.bad("D006", f"layer {layer.name!r} {reach}", "offsets and strides are in bytes")
