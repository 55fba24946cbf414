"""Caches cut by hand: plain numpy on global arrays, no kvplan, one function for each way in which a page is laid out.

Tokens arrays are `[layer, head, token, bytes]`; a worker's slice of one goes into the kernel blocks of a plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Buffers = dict[tuple[int, str], Bytes]
UNTOUCHED = 0xEE


@dataclass(frozen=True)
class Blocks:
    """A block table: `ids` by position from `first`, None where none is; `ratio` kernel blocks of `kernel` tokens."""

    first: int
    ids: tuple[int | None, ...]
    kernel: int
    ratio: int = 1


def random_bytes(*shape: int) -> Bytes:
    """The content of a tensor: noise, so that any two places differ within a few bytes."""
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, np.uint8)


def token_planes(
    worker: int, planes: Mapping[str, Bytes], table: Blocks, order: str, tokens: tuple[int, int], blocks: int
) -> Buffers:
    """Planes whose kernel blocks hold `[head, token, bytes]` slices of tokens in `tokens`; the rest is untouched.

    `order` is "hnd" (a head's tokens follow each other) or "nhd" (a token's heads do).
    """
    found: Buffers = {}
    for name, content in planes.items():
        heads, _, size = content.shape
        buffer = np.full((blocks * table.ratio, table.kernel, heads, size), UNTOUCHED, np.uint8)
        if order == "hnd":
            buffer = np.full((blocks * table.ratio, heads, table.kernel, size), UNTOUCHED, np.uint8).swapaxes(1, 2)
        for token in range(*tokens):
            position, inside = divmod(token, table.kernel * table.ratio)
            logical = table.ids[position - table.first]
            if logical is not None:
                block = logical * table.ratio + inside // table.kernel
                buffer[block, inside % table.kernel] = content[:, token]
        flat = buffer.swapaxes(1, 2) if order == "hnd" else buffer
        found[worker, name] = np.ascontiguousarray(flat).reshape(-1)
    return found


def state_planes(worker: int, planes: Mapping[str, Bytes], slot: Mapping[str, int], stride: int) -> Buffers:
    """Planes of whole states, one a slot, `stride` bytes apart; the rest is untouched."""
    found: Buffers = {}
    for name, page in planes.items():
        buffer = np.full((slot[name] + 2, stride), UNTOUCHED, np.uint8)
        buffer[slot[name], : page.size] = page
        found[worker, name] = buffer.reshape(-1)
    return found


def share(n: int, worker: int, workers: int) -> slice:
    """The items of `n` that a worker holds: an equal share, or one item where there are more workers than items."""
    if workers <= n:
        return slice(worker * n // workers, (worker + 1) * n // workers)
    return slice(worker * n // workers, worker * n // workers + 1)


def apply(copies: Iterable[tuple[int, str, int, int, str, int, int]], source: Buffers, target: Buffers) -> None:
    """memcpy, copy by copy: worker, plane and offset read, worker, plane and offset written, bytes."""
    for w, plane, at, to_w, to_plane, to, size in copies:
        page = source[w, plane][at : at + size]
        assert page.size == size, f"worker {w} {plane}: {at} + {size} lies beyond its end"
        target[to_w, to_plane][to : to + size] = page
