"""Compare the layers of transformers' own cache with a layout: heads, elements, windows, sizes of states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.dsl.library import Library

Json = Mapping[str, Any]
SIDE = "engine=custom"
# The axis of tensors that hold the inputs of a convolution.
TAPS = "tap"
# Kinds of which this cache has rows; latents and rotary keys are its keys and values then.
LATENTS, ROWS, INPUTS = "mla", ("gqa", "mla"), "conv-tokens"


def differences(library: Library, model: str, layers: Sequence[Json]) -> Iterator[str]:
    """Yield each difference in words. Raises CompileError, DslError for a layout that cannot be bound."""
    known = library.model(model)
    bound = bind(library, known, SIDE)
    ours = [_of_layer(bound, n) for n in range(known.layers)]
    if any(len(own) > 1 for own in ours) or len(layers) != len(ours):
        # A layer that runs several times has a place for each of its runs.
        yield from _counted(
            Counter(str(one) for own in ours for one in own), Counter(str(_said(e)) for e in layers if e)
        )
        return
    # Engines may keep the inputs of convolutions as tokens, which are not counted here.
    as_tokens = {n for cache in bound.caches if cache.kind == INPUTS for n in cache.layers}
    for n, (own, engine) in enumerate(zip(ours, layers, strict=True)):
        has = own[0] if own else _said({})
        said = {**_said(engine), **({"conv": has["conv"]} if n in as_tokens else {})}
        if said != has:
            yield f"layer {n}: transformers {said}, layout {has}"


def _counted(ours: Counter[str], theirs: Counter[str]) -> Iterator[str]:
    if ours != theirs:
        yield f"layers: transformers {dict(theirs - ours)}, layout {dict(ours - theirs)}"


def _said(layer: Json) -> dict[str, Any]:
    """A layer's figures by transformers. Windows have no size here: engines count the token itself or not."""
    return {
        "kv": tuple(layer.get("kv") or ()),
        "window": bool(layer.get("window")),
        "conv": sum(layer.get("conv", ())),
        "state": sum(prod(shape) for shape in layer.get("states", ())),
    }


def _of_layer(bound: BoundSide, layer: int) -> list[dict[str, Any]]:
    """A layer's figures by a layout, once for each of its runs."""
    own = [cache for cache in bound.caches if layer in cache.layers]
    states = [tensor for cache in own if cache.store == "state" for tensor in cache.tensors]
    kv = [_rows(cache) for cache in own if cache.store == "tokens" and cache.kind in ROWS] or [((), False)]
    conv = sum(_elements(tensor) for tensor in states if _taps(tensor))
    state = sum(_elements(tensor) for tensor in states if not _taps(tensor))
    return [{"kv": rows, "window": window, "conv": conv, "state": state} for rows, window in kv] if own else []


def _rows(cache: BoundCache) -> tuple[tuple[int, ...], bool]:
    """KV heads, elements of a key and of a value, and whether there is a window."""
    numbers = {name: value for name, value in cache.env.items() if isinstance(value, int)}
    if cache.kind == LATENTS:
        return (1, numbers["latent"], numbers["rope"]), False
    return (numbers["heads"], numbers["dim"], numbers["dim_v"]), bool(numbers["window"] or numbers["chunk"])


def _taps(tensor: BoundTensor) -> bool:
    return any(axis == TAPS for axis, _ in tensor.axes)


def _elements(tensor: BoundTensor) -> int:
    """Elements of a tensor, those of one tap."""
    return prod(size for axis, size in tensor.axes if axis != TAPS)
