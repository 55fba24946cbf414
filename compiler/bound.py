"""A side with every number resolved: what is stored, who holds it, how it is paged. No addresses yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.dsl.model import Sizes, Storage, Value


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """One tensor: `axes` are (name, global extent) in logical order, the token axis with extent 0.

    `unit` tokens make one row of the token axis; `size` is the bytes of one element; `split` maps an axis to the
    mesh axis it is shared over.
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    dtype: str
    size: int
    split: tuple[tuple[str, str], ...]
    unit: int = 1


@dataclass(frozen=True, slots=True)
class BoundCache:
    """One cache: its global layers, tensors and storage expression; `env` has the values its expressions use.

    `kernel` is the number of tokens per kernel block (0 for a state). `stride` is the distance of two blocks in
    bytes, None where it is the page itself.
    """

    name: str
    kind: str
    store: str
    layers: tuple[int, ...]
    tensors: tuple[BoundTensor, ...]
    storage: Storage
    env: Mapping[str, Value | Sizes]
    kernel: int
    stride: int | None
    optional: bool


@dataclass(frozen=True, slots=True)
class BoundGroup:
    """Layers (cache, global layer) that share one block table, in the engine's order, over all pipeline stages."""

    name: str
    store: str
    members: tuple[tuple[str, int], ...]
    tokens: int
    kernel: int
    ratio: int
    arena: int


@dataclass(frozen=True, slots=True)
class BoundWorker:
    """One worker: its coordinate on every mesh axis, derived ones too, and the global layers of its pipeline stage."""

    number: int
    at: tuple[tuple[str, int], ...]
    layers: range


@dataclass(frozen=True, slots=True)
class BoundSide:
    """One side of a pair. `key` is the canonical text that names it, `notes` say which derived values were overridden.

    `sizes` has the size of every mesh axis, derived ones too. `copies` says how an axis of n items lies on t > n
    workers: consecutive (worker i holds item i*n//t) or round_robin (i % n). For t <= n worker i holds
    [i*n//t, (i+1)*n//t). `tokens_over` names the mesh axis that token caches are shared out over in turns of
    `chunk` tokens, None where they are not. `blocks` is the pool's size in logical blocks, None if not given.
    """

    key: str
    engine: str
    model: str
    sizes: tuple[tuple[str, int], ...]
    copies: str
    caches: tuple[BoundCache, ...]
    groups: tuple[BoundGroup, ...]
    workers: tuple[BoundWorker, ...]
    notes: tuple[str, ...] = ()
    tokens_over: str | None = None
    chunk: int = 1
    blocks: int | None = None
