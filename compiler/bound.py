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

    `tokens_per_row` tokens make one row of the token axis; `size` is the bytes of one element. `split` maps an axis to
    the mesh axis that it is shared over, `shares` to the items of every worker on that axis, if they are listed.
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
    """The distance between two blocks in bytes: an expression over `env`, `page` (bytes of a page) and `block_bytes`
    (bytes of a block of the worker's largest group, rounded up to the alignment of its caches)."""

    expr: Expr
    env: Mapping[str, Value | SizeSet]


@dataclass(frozen=True, slots=True)
class BoundCache:
    """One cache: its global layers, tensors and storage expression; `env` has the values that its expressions use.

    `tokens` and `kernel` are the tokens of a logical and of a kernel block (0 for a state). Without a `stride` blocks
    are a page apart. `needs` says which tokens a reader must have; `length` names the range of tokens that a request
    gives for it. A `ring` keeps the last `ring` tokens, token t at t % ring; 0 means that no place is used again.
    A layer takes at least `padded` bytes of a block, and blocks are a multiple of `align` bytes. `memory` is the memory
    that its blocks lie in, empty if the side does not say.
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
        """Whether workers that take turns of tokens divide this cache among them; each has all of a state or a ring."""
        return self.store == "tokens" and not self.ring


@dataclass(frozen=True, slots=True)
class BoundGroup:
    """Layers (cache, global layer) that share one block table, in the engine's order, over all pipeline stages.

    The side's text may give names to parts of one table of the engine: groups with the same `table` are such parts.
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
        """Whether workers that take turns of tokens divide this group's caches among them."""
        return self.store == "tokens" and not self.ring


@dataclass(frozen=True, slots=True)
class BoundWorker:
    """One worker: its coordinate on every mesh axis, including derived ones, and the global layers of its stage.

    `token_shard` is its place among the workers that take turns of tokens, 0 if they do not.
    """

    number: int
    at: tuple[tuple[str, int], ...]
    layers: range
    token_shard: int = 0


@dataclass(frozen=True, slots=True)
class BoundSide:
    """One side of a pair. `key` is the canonical text that names it, `notes` say which derived values were overridden.

    `sizes` has the size of every mesh axis, including derived ones. `copies` says how n items lie on t > n workers:
    consecutive (worker i holds item i*n//t) or round_robin (i % n). For t <= n worker i holds [i*n//t, (i+1)*n//t),
    unless shares are listed. `token_shards` workers take turns of `interleave_tokens` tokens of a token cache; 1 means
    that tokens are not divided. `blocks` is the pool's size in logical blocks, None if not given.
    `absent` are the model's caches that the side does not store, (name, reason). `stored` are the members of the
    engine's own groups if the side's text names other tables. `unprobed` are the caches whose page layout comes from
    the engine's file alone.
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
        """The layers that share blocks: the engine's own groups (`stored`), however its tables are named."""
        return self.stored or tuple(group.members for group in self.groups)

    @property
    def windowed(self) -> bool:
        """Whether some cache's readers need only some of a request's tokens."""
        return any(cache.needs != ALL for cache in self.caches)

    def at(self, rank: Mapping[str, int]) -> BoundWorker | None:
        """Return the worker with the mesh coordinates of `rank`; axes that `rank` lacks count as 0."""
        fits = (worker for worker in self.workers if all(rank.get(axis, 0) == number for axis, number in worker.at))
        return next(fits, None)
