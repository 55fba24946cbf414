"""Sides built by hand: no layout files, no engine, only the numbers that a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.random_sides.storage import storage

from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, BoundWorker, Stride
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Storage

SIZES = {1: "u8", 2: "bf16", 4: "f32"}


def tensor(name: str, size: int = 2, split: Mapping[str, str] | None = None, unit: int = 1, **axes: int) -> BoundTensor:
    """A tensor of elements of `size` bytes; `token=0` is the token axis."""
    return BoundTensor(name, tuple(axes.items()), SIZES[size], size, tuple((split or {}).items()), unit)


def cache(
    text: str | Mapping[str, str],
    *tensors: BoundTensor,
    name: str = "c",
    layers: Sequence[int] = (0,),
    kernel: int = 0,
    stride: int | None = None,
    **env: int,
) -> BoundCache:
    """A cache whose storage expression is `text`; `kernel` 0 makes it a state."""
    store = "tokens" if kernel else "state"
    parsed: Storage = storage(text)
    return BoundCache(
        name, name, store, tuple(layers), tensors, parsed, dict(env), kernel, fixed(stride), False, kernel
    )


def fixed(stride: int | None) -> Stride | None:
    """Blocks so many bytes apart."""
    return None if stride is None else Stride(parse_expr(str(stride)), {})


def group(*members: tuple[BoundCache, Sequence[int]], name: str = "", ratio: int = 1, arena: int = 0) -> BoundGroup:
    """Layers of caches under one block table."""
    first = members[0][0]
    pairs = tuple((c.name, n) for c, layers in members for n in layers)
    return BoundGroup(name or first.name, first.store, pairs, first.kernel * ratio, first.kernel, ratio, arena)


def side(
    caches: Sequence[BoundCache],
    groups: Sequence[BoundGroup] = (),
    tp: int = 1,
    stages: Sequence[range] = (),
    dcp: int = 1,
    chunk: int = 1,
    copies: str = "consecutive",
    apart: bool = False,
) -> BoundSide:
    """A side with `tp` workers in each pipeline stage; every cache is a group of its own if none are given.

    Neighbours take turns of tokens, or workers that lie `apart` do.
    """
    last = max(n for c in caches for n in c.layers) + 1
    stages = stages or (range(last),)
    at = [(p, t) for p in range(len(stages)) for t in range(tp)]
    turn = [t // -(-tp // dcp) if apart else t % dcp for t in range(tp)]
    workers = tuple(
        BoundWorker(i, (("pp", p), ("tp", t), ("dcp", turn[t])), stages[p], turn[t]) for i, (p, t) in enumerate(at)
    )
    found = tuple(groups) or tuple(group((c, c.layers), arena=i) for i, c in enumerate(caches))
    sizes = (("pp", len(stages)), ("tp", tp), ("dcp", dcp))
    return BoundSide(f"tp={tp}", "e", "m", sizes, copies, tuple(caches), found, workers, (), dcp, chunk)
