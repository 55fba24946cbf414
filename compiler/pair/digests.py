"""The three digests of a plan: of the model (what is stored), of a side (where), and of the plan itself."""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.plan.digest import check, digest, plan, sealed, side
from kvplan.plan.types import CONTEXT

__all__ = ["check", "model", "plan", "sealed", "side"]


def model(bound: BoundSide) -> str:
    """Digest of what a side stores: caches, layers, tensors. The model's name and the order of caches do not count."""
    return digest({cache.name: _stored(cache) for cache in bound.caches})


def _stored(cache: BoundCache) -> dict[str, object]:
    tensors = [(tensor.name, tensor.axes, tensor.dtype, tensor.tokens_per_row) for tensor in cache.tensors]
    length = {} if cache.length == CONTEXT else {"length": cache.length}
    # A plan may skip such a cache, and no other: it is none for a model that must have it.
    optional = {"optional": True} if cache.optional else {}
    return {"store": cache.store, "layers": cache.layers, "tensors": tensors, **length, **optional}
