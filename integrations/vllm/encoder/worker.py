"""A worker's half: it copies items between the engine's encoder cache and the rows that its processes share."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass

import torch

from kvplan.integrations.vllm.encoder.metadata import NOTHING, RowsPlace, StepItems
from kvplan.integrations.vllm.encoder.region import SharedRows
from kvplan.runtime.ops import logs

# vLLM's encoder outputs by item hash, (rows, elements of a row).
EncoderCache = MutableMapping[str, torch.Tensor]


@dataclass(slots=True)
class EncoderWorker:
    """Worker `rank` of an engine. Its `rows` have `width` elements of type `dtype`; items are loaded to `device`.

    All workers have the same items, so only one of them `saves`. Copies are complete when a call returns, because torch
    waits for copies from and to memory that is not pinned.
    """

    rows: SharedRows
    rank: int
    saves: bool
    width: int
    dtype: torch.dtype
    device: str = "cpu"
    _orders: StepItems = NOTHING

    def begin(self, orders: StepItems) -> None:
        """Begin a step."""
        self._orders = orders

    def load(self, cache: EncoderCache) -> None:
        """Put the items that the step needs into the engine's cache, in separate memory."""
        for hash, place in self._orders.loads.items():
            cache[hash] = self._tensor(place).to(self.device, copy=True)

    def save(self, cache: EncoderCache, hash: str) -> None:
        """Copy an item of the engine's cache into the pool if the step orders it."""
        place = self._orders.saves.get(hash)
        if place is None or not self.saves or self.rows.signed(place.first, place.ticket):
            return
        made, wanted = cache[hash], (place.rows, self.width)
        if tuple(made.shape) != wanted or made.dtype != self.dtype:
            error = f"it is {tuple(made.shape)} of {made.dtype}, the layout has {wanted} of {self.dtype}"
            logs.event(logs.WARNING, "item not saved", item=hash, error=error)
            return
        self._tensor(place).copy_(made)
        self.rows.sign(place.first, place.ticket)

    def save_all(self, cache: EncoderCache) -> None:
        """Copy ordered items that the engine's cache had before the step: the encoder does not run for them."""
        for hash in self._orders.saves:
            if hash in cache:
                self.save(cache, hash)

    def end(self) -> None:
        """End the step: its orders are done."""
        if self._orders.step:
            self.rows.did(self.rank, self._orders.step)
        self._orders = NOTHING

    def _tensor(self, place: RowsPlace) -> torch.Tensor:
        """Return an item's rows in the pool."""
        size = place.rows * self.width * self.dtype.itemsize
        return torch.from_numpy(self.rows.part(place.first, size)).view(self.dtype).view(place.rows, self.width)
