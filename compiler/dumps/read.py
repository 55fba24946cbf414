"""A dump's text to a Dump, or the first thing that is wrong with it (D001..D008)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvplan.compiler.dumps.dump import AXES, BLOCK, Dump, DumpedGroup, DumpedLayer, number_in
from kvplan.compiler.dumps.json_fields import (
    a_list,
    a_mapping,
    a_text,
    a_whole,
    an_option,
    bad,
    from_json,
    shown,
    some_numbers,
)
from kvplan.compiler.side.text import nearest
from kvplan.dsl.lang.dtypes import NAMES, canonical, size

TOP = (
    "kvplan-dump", "engine", "model", "side", "mesh", "rank", "blocks", "allocations", "axes", "specs", "groups",
    "layers",
)  # fmt: skip
GROUP = ("store", "tokens", "kernel_tokens", "window", "chunk", "layers")
LAYER = ("name", "layer", "group", "allocation", "offset", "shape", "strides", "dtype", "spec", "axes")
STORES = ("tokens", "state")


def read_dump(text: str) -> Dump:
    """Raises BadInput (D001..D008)."""
    top = a_mapping(from_json(text), "a dump", TOP, ("kvplan-dump",))
    if top["kvplan-dump"] != 1 or isinstance(top["kvplan-dump"], bool):
        bad("D002", f"a dump of version {top['kvplan-dump']!r} cannot be read", 'print "kvplan-dump": 1')
    a_mapping(top, "a dump", TOP, tuple(key for key in TOP if key not in ("rank", "axes", "specs")))
    engine = a_mapping(top["engine"], "engine", ("name", "version"), ("name",))
    model = a_mapping(top["model"], "model", ("id", "layout"))
    mesh = some_numbers(top["mesh"], "mesh", 1)
    rank = {**dict.fromkeys(mesh, 0), **some_numbers(top.get("rank", {}), "rank", 0)}
    _check_rank(mesh, rank)
    groups = tuple(_group(item, f"groups[{n}]") for n, item in enumerate(a_list(top["groups"], "groups")))
    allocations = tuple(
        a_whole(item, f"allocations[{n}]", 1) for n, item in enumerate(a_list(top["allocations"], "allocations"))
    )
    rows = enumerate(a_list(top["layers"], "layers"))
    layers = tuple(_layer(item, f"layers[{n}]", top) for n, item in rows)
    _check_groups(groups, layers)
    for layer in layers:
        _check_view(layer, allocations)
    return Dump(
        a_text(engine["name"], "engine.name"),
        a_text(engine.get("version", ""), "engine.version"),
        a_text(model.get("id", ""), "model.id"),
        a_text(model.get("layout", ""), "model.layout"),
        {key: an_option(value, f"side.{key}") for key, value in a_mapping(top["side"], "side").items()},
        mesh,
        rank,
        a_whole(top["blocks"], "blocks", 1),
        allocations,
        groups,
        layers,
    )


def _check_rank(mesh: Mapping[str, int], rank: Mapping[str, int]) -> None:
    for axis, number in rank.items():
        if axis not in mesh:
            bad("D003", f"rank has an axis {axis!r} that the mesh lacks", nearest(axis, sorted(mesh)))
        if number >= mesh[axis]:
            bad("D004", f"rank.{axis} is {number} in a mesh of {mesh[axis]}", "ranks are counted from 0")


def _group(value: object, where: str) -> DumpedGroup:
    found = a_mapping(value, where, GROUP, ("store", "layers"))
    if found["store"] not in STORES:
        bad("D003", f"{where}.store is {shown(found['store'])}", f"allowed: {', '.join(STORES)}")
    paged = found["store"] == "tokens"
    if paged != ("tokens" in found):
        bad("D003", f"{where} {'lacks' if paged else 'is a state and has'} 'tokens'", "blocks of tokens have tokens")
    tokens = a_whole(found["tokens"], f"{where}.tokens", 1) if paged else 0
    kernel = a_whole(found.get("kernel_tokens", tokens), f"{where}.kernel_tokens", 1 if paged else 0)
    if paged and tokens % kernel:
        bad(
            "D004",
            f"{where}: kernel blocks of {kernel} do not divide {tokens} tokens",
            "a block is whole kernel blocks",
        )
    window, chunk = (a_whole(found.get(word, 0), f"{where}.{word}") for word in ("window", "chunk"))
    names = tuple(a_text(name, f"{where}.layers") for name in a_list(found["layers"], f"{where}.layers"))
    return DumpedGroup(names, found["store"], tokens, kernel, window, chunk)


def _layer(value: object, where: str, top: Mapping[str, Any]) -> DumpedLayer:
    found = a_mapping(value, where, LAYER, ("name", "group", "allocation", "offset", "shape", "strides", "dtype"))
    name = a_text(found["name"], f"{where}.name")
    number = a_whole(found["layer"], f"{where}.layer") if "layer" in found else number_in(name)
    if number is None:
        bad("D008", f"{where}: nothing says which layer {name!r} is", 'print its number, "layer": 7')
    axes = _axes(found.get("axes", top.get("axes", [])), f"{where}.axes")
    shape, strides = (a_list(found[key], f"{where}.{key}") for key in ("shape", "strides"))
    if not len(axes) == len(shape) == len(strides):
        bad("D007", f"{where} has {len(axes)} axes, a shape of {len(shape)} and {len(strides)} strides")
    counts = {axis: a_whole(n, f"{where}.shape", 1) for axis, n in zip(axes, shape, strict=True)}
    steps = {axis: a_whole(n, f"{where}.strides") for axis, n in zip(axes, strides, strict=True)}
    dtype = a_text(found["dtype"], f"{where}.dtype")
    if canonical(dtype) not in map(canonical, NAMES):
        bad("D007", f"{where}.dtype is {dtype!r}, no element type", nearest(dtype, sorted(NAMES)))
    group, allocation, offset = (a_whole(found[key], f"{where}.{key}") for key in ("group", "allocation", "offset"))
    spec = _spec(found.get("spec", {}), top.get("specs", []), f"{where}.spec")
    return DumpedLayer(name, number, group, allocation, offset, counts, steps, canonical(dtype), size(dtype), spec)


def _axes(value: object, where: str) -> list[str]:
    found = a_list(value, where)
    for axis in found:
        if axis not in AXES:
            bad("D007", f"{where} has {shown(axis)}", f"allowed: {', '.join(AXES)}")
    if len(set(found)) != len(found) or BLOCK not in found:
        bad("D007", f"{where} must have 'block', and each axis once")
    return found


def _spec(value: object, specs: object, where: str) -> Mapping[str, object]:
    """A mapping, or the number of one in the dump's `specs`."""
    if isinstance(value, dict):
        return value
    known, number = a_list(specs, "specs"), a_whole(value, where)
    if number >= len(known):
        bad("D004", f"{where} is {number}, of {len(known)} specs", "specs are counted from 0")
    return a_mapping(known[number], f"specs[{number}]")


def _check_groups(groups: Sequence[DumpedGroup], layers: Sequence[DumpedLayer]) -> None:
    """Each layer has a name of its own and is in one group, the one that it names."""
    known = {layer.name for layer in layers}
    if len(known) < len(layers):
        names = [layer.name for layer in layers]
        bad("D005", f"two layers are called {next(n for n in names if names.count(n) > 1)!r}", "names are unique")
    inside: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        for name in group.layers:
            inside.setdefault(name, []).append(number)
    for name in inside.keys() - known:
        bad("D005", f"a group has a layer {name!r} that is not among the layers", nearest(name, sorted(known)))
    for layer in layers:
        found = inside.get(layer.name, [])
        if found != [layer.group]:
            listed = f"in groups {', '.join(map(str, found))}" if found else "in no group"
            said = f"layer {layer.name!r} names group {layer.group} and is listed {listed}"
            bad("D005", said, "list it once, there")


def _check_view(layer: DumpedLayer, allocations: Sequence[int]) -> None:
    if layer.allocation >= len(allocations):
        bad("D006", f"layer {layer.name!r} lies in allocation {layer.allocation} of {len(allocations)}")
    if layer.end > allocations[layer.allocation]:
        said = (
            f"layer {layer.name!r} reaches byte {layer.end} of an allocation of {allocations[layer.allocation]} bytes"
        )
        bad("D006", said, "offsets and strides are in bytes")
