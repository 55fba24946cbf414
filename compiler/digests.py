"""The three digests of a plan: of the model (what is stored), of each side (its location), and of the plan itself."""

from __future__ import annotations

from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.plan.digest import check, digest, plan, sealed, side
from kvplan.plan.types import CONTEXT

__all__ = ["check", "model", "plan", "sealed", "side"]


def model(bound: BoundSide) -> str:
    """Return the digest of what every side of a model stores: layers and tensors of all caches that are not optional.

    A side's own digest covers its optional caches. The model's name and the order of caches do not count.
    """
    return digest({cache.name: _stored(cache) for cache in bound.caches if not cache.optional})


def _stored(cache: BoundCache) -> dict[str, object]:
    tensors = [(tensor.name, tensor.axes, tensor.dtype, tensor.tokens_per_row) for tensor in cache.tensors]
    length = {} if cache.length == CONTEXT else {"length": cache.length}
    return {"store": cache.store, "layers": cache.layers, "tensors": tensors, **length}
