"""The cards that peers show each other, and how they are sealed: msgpack behind a magic word and a checksum."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec
import numpy as np

from kvplan.runtime.errors import CardError, DigestError
from kvplan.runtime.geometry import Geometry
from kvplan.runtime.plan import Ints, Plan

MAGIC = b"kvplan1\n"
CHECKSUM = 16
LARGEST = 64 << 20
MOST_WORKERS = 1 << 16
T = TypeVar("T")


class EngineCard(msgspec.Struct, frozen=True, tag="engine"):
    """What a prefill engine is: digests, readable side key, where its workers answer, which generation it is."""

    model: str
    side: str
    plan: str
    key: str
    addresses: tuple[str, ...]
    generation: str


class WorkerCard(msgspec.Struct, frozen=True, tag="worker"):
    """Where one worker's planes lie, by plane number, and what the transport needs to reach them."""

    worker: int
    plan: str
    generation: str
    base: tuple[int, ...]
    stride: tuple[int, ...]
    page: tuple[int, ...]
    count: tuple[int, ...]
    device: tuple[int, ...]
    region: tuple[int, ...]
    regions: tuple[tuple[int, int, int], ...]
    mem_type: str
    metadata: bytes
    checksum: bytes


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A decode worker asks for a card: `want` is engine or worker."""

    want: str
    plan: str
    worker: int


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """No card, and why. With `again`, asking later may help."""

    code: str
    message: str
    again: bool = False


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A decode worker needs nothing more of a request from the worker that it tells."""

    plan: str
    request: str
    worker: int


def seal(value: msgspec.Struct) -> bytes:
    """`value` as bytes that show every change. Raises CardError where they are too many."""
    body = msgspec.msgpack.encode(value)
    if len(body) > LARGEST:
        raise CardError(f"a card of {len(body)} bytes is above {LARGEST}: register fewer regions")
    return MAGIC + checksum(body) + body


def unseal(data: bytes, kind: type[T]) -> T:
    """The value of type `kind` in `data`. Raises CardError where it is not exactly as `seal` made it."""
    head = len(MAGIC) + CHECKSUM
    if len(data) > LARGEST + head:
        raise CardError(f"a message of {len(data)} bytes is above {LARGEST}")
    if not data.startswith(MAGIC):
        raise CardError("a message is not of this protocol: is the peer a kvplan of the same release?")
    body = data[head:]
    if checksum(body) != data[len(MAGIC) : head]:
        raise CardError("a message is truncated or corrupt: connect again")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # Text that is no UTF-8 and deep nesting are no errors of msgspec's own.
        raise CardError(f"a message is not a {kind}: {error}") from error


def checksum(data: bytes) -> bytes:
    """16 bytes that change with the data."""
    return hashlib.blake2b(data, digest_size=CHECKSUM).digest()


def describe(worker: int, plan: Plan, generation: str, geometry: Geometry, metadata: bytes) -> WorkerCard:
    """The card of a worker whose planes lie as `geometry` says."""
    columns = {name: tuple(getattr(geometry, name).tolist()) for name in COLUMNS}
    regions = tuple((start, size, device) for start, size, device in geometry.regions.tolist())
    return WorkerCard(
        worker=worker,
        plan=plan.digest,
        generation=generation,
        regions=regions,
        mem_type=geometry.mem_type,
        metadata=metadata,
        checksum=checksum(metadata),
        **columns,
    )


COLUMNS = ("base", "stride", "page", "count", "device", "region")


def geometry(card: WorkerCard) -> Geometry:
    """The planes of a card. Raises CardError where a number is no int64."""
    try:
        columns = {name: np.array(getattr(card, name), np.int64) for name in COLUMNS}
        regions = np.array(card.regions, np.int64).reshape(-1, 3)
    except OverflowError as error:
        raise CardError(f"worker {card.worker} sends an address or size beyond the address space") from error
    return _geometry(columns, regions, card.mem_type)


def _geometry(columns: dict[str, Ints], regions: Ints, mem_type: str) -> Geometry:
    base, stride, page, count, device, region = (columns[name] for name in COLUMNS)
    return Geometry(base, stride, page, count, device, region, regions, mem_type)


def check_engine(card: EngineCard, plan: Plan) -> None:
    """Raises DigestError or CardError where an engine does not run the prefill side of `plan`."""
    for name, got, want in (
        ("model", card.model, plan.model_digest),
        ("side", card.side, plan.prefill.digest),
        ("plan", card.plan, plan.digest),
    ):
        if got != want:
            raise DigestError(f"peer {card.key!r} has {name} digest {got}, ours is {want}: compile both again")
    if len(card.addresses) > MOST_WORKERS or len(card.addresses) != len(plan.prefill.workers):
        raise CardError(f"peer {card.key!r} has {len(card.addresses)} workers, the plan {len(plan.prefill.workers)}")


def check_worker(card: WorkerCard, engine: EngineCard, plan: Plan, worker: int) -> None:
    """Raises CardError or DigestError where a card is not that of the worker asked for, or its metadata changed."""
    if card.worker != worker:
        raise CardError(f"asked worker {worker} of {engine.key!r}, worker {card.worker} answered: check the addresses")
    if card.plan != plan.digest:
        raise DigestError(f"worker {worker} has plan digest {card.plan}, ours is {plan.digest}: compile both again")
    if card.generation != engine.generation:
        raise CardError(f"worker {worker} is of another generation than its engine: connect again")
    if checksum(card.metadata) != card.checksum:
        raise CardError(f"the transport metadata of worker {worker} is truncated or corrupt: connect again")
