"""Records of engines in a fleet, and the fleets that hold them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Protocol

import msgspec

from kvplan.fleet.errors import FleetError

FORMAT = 1
# The most bytes of a record. etcd refuses values above 1.5 MiB; a thousand workers' addresses are 40 KiB.
LARGEST = 1 << 18

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Words = Annotated[str, msgspec.Meta(max_length=4096)]


class EngineRole(StrEnum):
    """The role of an engine: prefill, decode or both."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class EngineState(StrEnum):
    """The state of an engine: ready for requests, or draining, which only ends those that it has."""

    READY = "ready"
    DRAINING = "draining"


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of an engine: its name, this run of it, and all that peers need before they connect.

    `side` and `side_key` are the digest and the readable key of its side. `addresses` has one address per worker, only
    for prefill. `key` is its public key, empty without keys, `revision` that of its weights, as in its Identity.
    `free_blocks` is its last count. `started` is the begin of this run in seconds since 1970: of two runs with one name
    the later one counts.
    """

    name: Text
    run: Text
    role: EngineRole
    model: Text
    model_digest: Text
    side: Text
    side_key: Words
    addresses: tuple[Text, ...] = ()
    key: Words = ""
    revision: Words = ""
    protocol: int = 0
    free_blocks: Annotated[int, msgspec.Meta(ge=0)] = 0
    state: EngineState = EngineState.READY
    started: float = msgspec.field(default_factory=time.time)
    format: Annotated[int, msgspec.Meta(ge=1)] = FORMAT

    @property
    def prefills(self) -> bool:
        return self.role is not EngineRole.DECODE

    @property
    def decodes(self) -> bool:
        return self.role is not EngineRole.PREFILL


class Fleet(Protocol):
    """A source of records of engines."""

    def engines(self) -> Mapping[str, EngineRecord]:
        """Return engines by name, one run of each."""


class StaticFleet:
    """A fixed list of engines."""

    def __init__(self, records: Iterable[EngineRecord]) -> None:
        """Take records. Raises FleetError if two have one name."""
        self._engines: dict[str, EngineRecord] = {}
        for record in records:
            if record.name in self._engines:
                raise FleetError(f"two engines are named {record.name}: give each a name of its own")
            self._engines[record.name] = record

    def engines(self) -> Mapping[str, EngineRecord]:
        return dict(self._engines)


def encoded(record: EngineRecord) -> bytes:
    """Return a record as JSON. Raises FleetError if it is too long, or readers would refuse it."""
    try:
        data = msgspec.json.encode(record)
    except (TypeError, ValueError) as error:
        raise FleetError(f"what {record.name!a} says of itself cannot be kept: {error}") from error
    if len(data) > LARGEST:
        raise FleetError(f"what {record.name} says of itself has {len(data)} bytes, at most {LARGEST} are kept")
    decoded(data, f"what {record.name!a} says of itself")
    return data


def decoded(data: bytes, where: str) -> EngineRecord:
    """Return a record from JSON, without unknown fields. Raises FleetError that begins with `where`."""
    if len(data) > LARGEST:
        raise FleetError(f"{where} has {len(data)} bytes: it is no engine's record")
    try:
        record = msgspec.json.decode(data, type=EngineRecord)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FleetError(f"{where} is no engine's record: {error}") from error
    return readable(record, where)


def readable(record: EngineRecord, where: str) -> EngineRecord:
    """Return the record if its format is known here. Raises FleetError that begins with `where`."""
    if record.format > FORMAT:
        raise FleetError(f"{where} has format {record.format}, this kvplan reads {FORMAT}: use a newer one")
    return record
