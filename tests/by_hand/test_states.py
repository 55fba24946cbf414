"""States of every kind, cut by hand: parts of a convolution with shares of their own, in both orders.

Every number here – channels, heads, groups, taps, bytes – was written down by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.by_hand.moving import moved, same
from tests.by_hand.pages import blank, filler, flat, noise, stained
from tests.by_hand.slicing import UNTOUCHED, Buffers, Bytes, share


@dataclass(frozen=True)
class Part:
    """A part of a convolution: `items` shared over the workers, each of so many channels; `element` bytes."""

    items: int
    channels: int
    element: int = 2


@dataclass(frozen=True)
class State:
    """Convolution parts of `taps`, then `items` matrices of `matrix` bytes. `grows`: a drafted token adds a tap."""

    layers: tuple[int, ...]
    taps: int = 0
    conv: tuple[Part, ...] = ()
    items: int = 0
    matrix: int = 0
    grows: bool = True


STATES = {
    "m1": State((0, 7), 3, (Part(12, 1),), 12, 4 * 4, grows=False),
    "m2": State((1, 3), 3, (Part(6, 4), Part(2, 8), Part(2, 8)), 6, 4 * 8 * 4),
    "one": State((2,), 2, (Part(6, 4), Part(1, 8), Part(1, 8)), 6, 4 * 8 * 2),
    "gdn": State((4,), 3, (Part(2, 4), Part(2, 4), Part(6, 8)), 6, 8 * 4 * 2),
    "kda": State((5,), 3, (Part(4, 4), Part(4, 4), Part(4, 4)), 4, 4 * 4 * 4),
    "lin": State((6,), items=4, matrix=8 * 8 * 4),
    "short": State((4, 5, 6), 2, (Part(12, 1),)),
}
END, POOL = 41, 7


@dataclass(frozen=True)
class Side:
    tp: int
    order: str = "DS"
    draft: int = 0
    slot: int = 3

    @property
    def text(self) -> str:
        return f"engine=custom,tp={self.tp},conv={self.order},draft_tokens={self.draft}"


def tensors(state: State, layer: int) -> dict[str, Bytes]:
    """Global tensors of one layer: parts `[item, channel, tap, element]`, and matrices `[item, bytes]`."""
    found = {
        str(n): noise(part.items, part.channels, state.taps, part.element, seed=100 * layer + n)
        for n, part in enumerate(state.conv)
    }
    return {**found, "matrix": noise(state.items, state.matrix, seed=100 * layer + 99)}


def page(state: State, parts: dict[str, Bytes], side: Side, rank: int) -> Bytes:
    """Return the bytes that one worker stores for a layer's state, in memory order."""
    conv = [parts[str(n)][share(part.items, rank, side.tp)] for n, part in enumerate(state.conv)]
    grown = [np.concatenate([part, drafted(part, side.draft if state.grows else 0)], axis=2) for part in conv]
    matrix = parts["matrix"][share(state.items, rank, side.tp)] if state.items else filler(0)
    if side.order == "DS":
        return flat(*grown, matrix)
    rows = [part[:, :, tap] for tap in range(grown[0].shape[2]) for part in grown] if grown else []
    return flat(*rows, matrix)


def drafted(part: Bytes, taps: int) -> Bytes:
    """The taps of drafted tokens, which no copy writes."""
    items, channels, _, element = part.shape
    return filler(items, channels, taps, element)


def buffers(side: Side, content: dict[tuple[str, int], dict[str, Bytes]]) -> Buffers:
    found: Buffers = {}
    for rank in range(side.tp):
        for (cache, layer), parts in content.items():
            one = page(STATES[cache], parts, side, rank)
            pool = np.full((POOL, one.size), UNTOUCHED, np.uint8)
            pool[side.slot] = one
            found[rank, f"{cache}.{layer}"] = pool.reshape(-1)
    return found


PAIRS = [(Side(a), Side(b, slot=5)) for a, b in ((4, 1), (1, 4), (2, 3), (3, 2), (8, 2), (2, 8), (4, 4))]
PAIRS += [(Side(a, "DS"), Side(b, "SD", slot=5)) for a, b in ((1, 1), (4, 1), (2, 3))]
PAIRS += [(Side(a, "SD"), Side(b, "DS", slot=5)) for a, b in ((1, 4), (3, 2))]
PAIRS += [(Side(a, "SD"), Side(b, "SD", slot=0)) for a, b in ((4, 1), (1, 4), (2, 2))]
PAIRS += [
    (Side(2, p, a), Side(3, d, b, 5))
    for p, d in (("DS", "DS"), ("SD", "DS"), ("SD", "SD"))
    for a, b in ((0, 2), (3, 1))
]


@pytest.mark.parametrize(("prefill", "decode"), PAIRS, ids=lambda side: f"{side.tp} {side.order} {side.draft}")
def test_states(prefill: Side, decode: Side) -> None:
    content = {(cache, layer): tensors(state, layer) for cache, state in STATES.items() for layer in state.layers}
    nothing = {key: blank(parts) for key, parts in content.items()}
    source = stained(buffers(prefill, content), buffers(prefill, nothing))
    target = buffers(decode, content)
    request: dict[str, Any] = {"tokens": [0, END]}
    for word, side in (("prefill", prefill), ("decode", decode)):
        request[word] = {cache: {"slot": side.slot, "at": END} for cache in STATES}
    same(moved("states", (prefill.text, decode.text), request, source, target), target)
