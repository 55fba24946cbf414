"""A side with every number resolved: what is stored, who holds it, how it is paged. No addresses yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Expr, SizeSet, Storage, Value
from kvplan.plan.types import ALL, CONTEXT, Needs

# (cache, global layer)
Members = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class BoundTensor:
    """One tensor: `axes` are (name, global extent) in logical order, the token axis with extent 0.

    `unit` tokens make one row of the token axis; `size` is the bytes of one element; `split` maps an axis to the
    mesh axis it is shared over, `shares` to the number of items of every worker on it where they are listed.
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    dtype: str
    size: int
    split: tuple[tuple[str, str], ...]
    tokens_per_row: int = 1
    shares: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Stride:
    """The distance of two blocks in bytes: an expression over `env`, `page` (bytes of a page) and `block_bytes` (that
    the largest group of the worker takes in one block, rounded up to what its caches are aligned to)."""

    expr: Expr
    env: Mapping[str, Value | SizeSet]


@dataclass(frozen=True, slots=True)
class BoundCache:
    """One cache: its global layers, tensors and storage expression; `env` has the values its expressions use.

    `tokens` and `kernel` are the tokens of a logical and of a kernel block (0 for a state). Without a `stride` blocks
    are a page apart. `needs` says which tokens a reader must have; `length` names the range of tokens that a request
    gives for it. A `ring` keeps the last so many tokens, token t where t % ring is (0: every token has a place).
    A layer takes `padded` bytes of a block at least, and blocks are a multiple of `align` bytes. `memory` is where its
    blocks lie, empty where the side does not say it.
    """

    name: str
    kind: str
    store: str
    layers: tuple[int, ...]
    tensors: tuple[BoundTensor, ...]
    storage: Storage
    env: Mapping[str, Value | SizeSet]
    kernel: int
    stride: Stride | None
    optional: bool
    tokens: int = 0
    needs: Needs = ALL
    length: str = CONTEXT
    ring: int = 0
    padded: int = 0
    align: int = 1
    memory: str = ""

    @property
    def shared(self) -> bool:
        """Whether workers that take turns of the tokens share this cache out; states and rings are whole on each."""
        return self.store == "tokens" and not self.ring


@dataclass(frozen=True, slots=True)
class BoundGroup:
    """Layers (cache, global layer) that share one block table, in the engine's order, over all pipeline stages.

    Groups with one `table` have the engine's one table, which the side's text names apart.
    """

    name: str
    store: str
    members: Members
    tokens: int
    kernel: int
    ratio: int
    arena: int
    length: str = CONTEXT
    ring: int = 0
    table: str = ""

    @property
    def shared(self) -> bool:
        """As of its caches."""
        return self.store == "tokens" and not self.ring


@dataclass(frozen=True, slots=True)
class BoundWorker:
    """One worker: its coordinate on every mesh axis, derived ones too, and the global layers of its pipeline stage.

    `turn` is its place among the workers that take turns of tokens, 0 where they do not.
    """

    number: int
    at: tuple[tuple[str, int], ...]
    layers: range
    token_shard: int = 0


@dataclass(frozen=True, slots=True)
class BoundSide:
    """One side of a pair. `key` is the canonical text that names it, `notes` say which derived values were overridden.

    `sizes` has the size of every mesh axis, derived ones too. `copies` says how an axis of n items lies on t > n
    workers: consecutive (worker i holds item i*n//t) or round_robin (i % n). For t <= n worker i holds
    [i*n//t, (i+1)*n//t), unless shares are listed. `ways` workers take turns of `chunk` tokens of a token cache, 1
    where tokens are not shared out. `blocks` is the pool's size in logical blocks, None if not given.
    `absent` are the caches of the model that the side does not store, (name, why). `stored` are the members of the
    engine's own groups where the side's text names tables otherwise. `unprobed` are the caches of which the engine's
    file alone says how they lie in a page.
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
    token_shards: int = 1
    interleave_tokens: int = 1
    blocks: int | None = None
    absent: tuple[tuple[str, str], ...] = ()
    stored: tuple[Members, ...] = ()
    unprobed: tuple[str, ...] = ()

    @property
    def block_members(self) -> tuple[Members, ...]:
        """The layers that share blocks: the engine's own groups (`stored`), whatever its tables are named."""
        return self.stored or tuple(group.members for group in self.groups)

    @property
    def windowed(self) -> bool:
        """Whether readers of some cache need only some of a request's tokens."""
        return any(cache.needs != ALL for cache in self.caches)

    def at(self, rank: Mapping[str, int]) -> BoundWorker | None:
        """The worker whose coordinate on every mesh axis is that of `rank`, or 0 if `rank` lacks the axis."""
        fits = (worker for worker in self.workers if all(rank.get(axis, 0) == number for axis, number in worker.at))
        return next(fits, None)
