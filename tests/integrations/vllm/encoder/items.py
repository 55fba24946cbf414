"""Requests with items as vLLM's scheduler has them, and engines with a pool over real workers of the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import torch
from tests.runtime.helpers.waiting import until

from kvplan.integrations.shared.config import read_config
from kvplan.integrations.vllm.encoder.layout import PLACE, EncoderFacts, encoder_layout
from kvplan.integrations.vllm.encoder.metadata import StepItems
from kvplan.integrations.vllm.encoder.region import SharedRows
from kvplan.integrations.vllm.encoder.scheduler import EncoderScheduler
from kvplan.integrations.vllm.encoder.setup import EncoderEngine, connector_scheduler, shared_rows
from kvplan.integrations.vllm.encoder.transfers import ItemTransfers
from kvplan.integrations.vllm.encoder.worker import EncoderWorker

DIM, LEVELS = 8, 2
FACTS = EncoderFacts(DIM, LEVELS, "float32", "processor", "weights")


class Status(Enum):
    FINISHED_LENGTH_CAPPED = 1
    FINISHED_ABORTED = 2


SERVED, ABORTED = Status


@dataclass(frozen=True)
class FakePosition:
    offset: int
    length: int

    def get_num_embeds(self) -> int:
        return self.length


@dataclass(frozen=True)
class FakeFeature:
    """An item of a prompt. `data` is what the encoder gets, None for one that another engine has to encode."""

    identifier: str
    mm_position: FakePosition
    data: str | None = "pixels"
    modality: str = "image"


@dataclass
class FakeRequest:
    request_id: str
    mm_features: list[FakeFeature]
    ec_transfer_params: dict[str, Any] | None = None
    status: Status = SERVED

    @property
    def new(self) -> SimpleNamespace:
        """The item in the output of the step that schedules it first."""
        return SimpleNamespace(req_id=self.request_id, mm_features=self.mm_features)


def request(
    name: str, items: dict[str, int], params: dict[str, Any] | None = None, data: str | None = "pixels"
) -> FakeRequest:
    """A request whose prompt is items of so many rows, one after the other."""
    features, offset = [], 0
    for hash, rows in items.items():
        features.append(FakeFeature(hash, FakePosition(offset, rows), data))
        offset += rows
    return FakeRequest(name, features, params)


def content(hash: str, rows: int, width: int = DIM * LEVELS) -> torch.Tensor:
    """The encoder's output for an item."""
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(crc32(hash.encode())))


@dataclass
class Engine:
    """An engine of one worker with its pool; what it does in a step is done at once."""

    scheduler: EncoderScheduler
    transfers: ItemTransfers
    worker: EncoderWorker
    rows: SharedRows
    cache: dict[str, torch.Tensor] = field(default_factory=dict)

    def encode(self, *requests: FakeRequest) -> list[dict[str, Any]]:
        """Encode and end requests in one step; return each one's parameters."""
        orders = self.scheduler.orders([each.new for each in requests], 1)
        self.worker.begin(orders)
        self.worker.save_all(self.cache)
        for each in requests:
            for feature in each.mm_features:
                hash, rows = feature.identifier, feature.mm_position.length
                if hash not in self.cache:
                    self.cache[hash] = content(hash, rows)
                    self.worker.save(self.cache, hash)
        self.worker.end()
        return [self.scheduler.finished(each) for each in requests]

    def take(self, one: FakeRequest) -> dict[str, torch.Tensor]:
        """Return the items that a step loads for a request that waits for them."""
        until(lambda: self.idle() and self.scheduler.available(one, 0))
        for feature in one.mm_features:
            self.scheduler.allocated(feature)
        orders = self.scheduler.orders([one.new], 1)
        loaded: dict[str, torch.Tensor] = {}
        self.step(orders, loaded)
        return loaded

    def step(self, orders: StepItems, cache: dict[str, torch.Tensor]) -> None:
        self.worker.begin(orders)
        self.worker.load(cache)
        self.worker.end()

    def idle(self) -> bool:
        """A step without tokens."""
        return self.scheduler.orders([], 0).step == 0

    def held(self) -> set[str]:
        """Which users keep items."""
        self.idle()
        return {user for item in self.scheduler.pool for user in item.users}


@contextmanager
def engines(
    folder: Path, *roles: str, facts: Sequence[EncoderFacts] = (), pool_rows: int = 1024, **config: Any
) -> Iterator[list[Engine]]:
    """Engines that encode, prefill or do both."""
    made: list[Engine] = []
    try:
        for number, role in enumerate(roles):
            made.append(engine(f"{role}-{number}", role, facts[number] if facts else FACTS, pool_rows, folder, config))
        yield made
    finally:
        for each in made:
            each.transfers.close()


def engine(name: str, role: str, facts: EncoderFacts, pool_rows: int, folder: Path, given: dict[str, Any]) -> Engine:
    config = read_config(given, {}, place=PLACE)
    layout = encoder_layout(config, facts)
    size = pool_rows * facts.dim * facts.levels * 4
    saves, loads = role in ("encode", "both"), role in ("prefill", "both")
    memory = f"{folder}.{name}"
    about = EncoderEngine(name, f"{name}.run", facts.revision, saves, loads, memory, 1, size)
    rows = shared_rows(layout, about)
    worker = EncoderWorker(rows, 0, True, layout.width, torch.float32)
    rows.join(0)
    rows.unlink()
    scheduler, transfers = connector_scheduler(config, layout, about, rows, 1)
    scheduler.encodable = lambda feature: feature.data is not None
    return Engine(scheduler, transfers, worker, rows)
