"""Which pairs cannot be done at all: what the two sides store must be the same thing."""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache, BoundSide, BoundTensor
from kvplan.compiler.errors import Refused


def check_pair(prefill: BoundSide, decode: BoundSide) -> tuple[str, ...]:
    """The optional caches that one side lacks, which are skipped. Raises Refused (C130..C134)."""
    if prefill.model != decode.model:
        raise Refused("C130", f"prefill runs {prefill.model!r}, decode {decode.model!r}", "compile one model at a time")
    theirs = {cache.name: cache for cache in prefill.caches}
    ours = {cache.name: cache for cache in decode.caches}
    skipped = tuple(sorted(theirs.keys() ^ ours.keys()))
    for name in skipped:
        if not (theirs.get(name) or ours[name]).optional:
            raise Refused("C131", f"only one side has the cache {name!r}", "mark it optional to skip it")
    for name in ours.keys() & theirs.keys():
        _check_cache(theirs[name], ours[name])
    return skipped


def _check_cache(prefill: BoundCache, decode: BoundCache) -> None:
    if prefill.layers != decode.layers:
        raise Refused("C132", f"{prefill.name!r} has unlike layers on the two sides")
    names = tuple(t.name for t in prefill.tensors), tuple(t.name for t in decode.tensors)
    if names[0] != names[1]:
        raise Refused(
            "C133",
            f"{prefill.name!r} stores {', '.join(names[0])} on prefill and {', '.join(names[1])} on decode",
            "use one record format on both sides",
        )
    for one, other in zip(prefill.tensors, decode.tensors, strict=True):
        _check_tensor(prefill.name, one, other)


def _check_tensor(cache: str, prefill: BoundTensor, decode: BoundTensor) -> None:
    if prefill.dtype != decode.dtype:
        raise Refused(
            "C134",
            f"{prefill.name!r} of {cache!r} is {prefill.dtype} on prefill and {decode.dtype} on decode",
            "kvplan moves bytes, it does not convert: use one element type on both sides",
        )
    if (prefill.axes, prefill.unit) != (decode.axes, decode.unit):
        raise Refused("C132", f"{prefill.name!r} of {cache!r} has unlike geometry: {prefill.axes} and {decode.axes}")
