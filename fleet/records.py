"""What an engine says of itself to a fleet, and those who keep it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Protocol

import msgspec

from kvplan.fleet.errors import FleetError

FORMAT = 1
# An etcd refuses values above 1.5 MiB; a thousand workers' addresses are 40 KiB.
LARGEST = 1 << 18

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Words = Annotated[str, msgspec.Meta(max_length=4096)]


class EngineRole(StrEnum):
    """What an engine does."""

    PREFILL = "prefill"
    DECODE = "decode"
    BOTH = "both"


class EngineState(StrEnum):
    """Whether requests may be sent to an engine: one that drains ends those that it has."""

    READY = "ready"
    DRAINING = "draining"


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An engine: name, this run of it, and all that peers need before they connect.

    `side` and `side_key` are the digest and the readable key of its side, `addresses` one of each worker (prefill's
    only), `key` its public key, empty without keys, `revision` that of its weights as in its Identity, `free_blocks`
    how many blocks nobody has, as it said last. `started` is when this run began, seconds since 1970: of two runs of a
    name the one that began later counts.
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
    """Who keeps records of engines."""

    def engines(self) -> Mapping[str, EngineRecord]:
        """Engines by name, one run of each."""


class StaticFleet:
    """Engines that are given, and stay."""

    def __init__(self, records: Iterable[EngineRecord]) -> None:
        """Raises FleetError where two have one name."""
        self._engines: dict[str, EngineRecord] = {}
        for record in records:
            if record.name in self._engines:
                raise FleetError(f"two engines are named {record.name}: give each a name of its own")
            self._engines[record.name] = record

    def engines(self) -> Mapping[str, EngineRecord]:
        return dict(self._engines)


def encoded(record: EngineRecord) -> bytes:
    """A record as it is kept: JSON. Raises FleetError where it is too long, or one that others would not read."""
    try:
        data = msgspec.json.encode(record)
    except (TypeError, ValueError) as error:
        raise FleetError(f"what {record.name!a} says of itself cannot be kept: {error}") from error
    if len(data) > LARGEST:
        raise FleetError(f"what {record.name} says of itself has {len(data)} bytes, at most {LARGEST} are kept")
    decoded(data, f"what {record.name!a} says of itself")
    return data


def decoded(data: bytes, where: str) -> EngineRecord:
    """A record that was kept. Raises FleetError, which begins with `where`; fields that are not known are left out."""
    if len(data) > LARGEST:
        raise FleetError(f"{where} has {len(data)} bytes: it is no engine's record")
    try:
        record = msgspec.json.decode(data, type=EngineRecord)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FleetError(f"{where} is no engine's record: {error}") from error
    return readable(record, where)


def readable(record: EngineRecord, where: str) -> EngineRecord:
    """A record of a format that is known here. Raises FleetError, which begins with `where`."""
    if record.format > FORMAT:
        raise FleetError(f"{where} has format {record.format}, this kvplan reads {FORMAT}: use a newer one")
    return record
