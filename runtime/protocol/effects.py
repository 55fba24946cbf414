"""Effects: what a protocol core wants done. Its driver takes them after each call, and carries them out in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import KvplanError
from kvplan.plan.layers import Layers
from kvplan.plan.types import Runs
from kvplan.runtime.control.messages import Buffers, Done
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.leases import Released
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart
from kvplan.runtime.protocol.readers import Reader


class Output(msgspec.Struct, frozen=True, eq=False):
    """Something that a worker has to do for its core."""


# Both roles


class Counted(Output, frozen=True, eq=False):
    """Count the messages of each kind."""

    kinds: Mapping[MessageKind, int]


class Send(Output, frozen=True, eq=False):
    """Say a message to a peer. One that is `droppable` is left out while earlier ones wait for room in the line."""

    peer: Any
    message: msgspec.Struct
    droppable: bool = False


class Move(Output, frozen=True, eq=False):
    """Move these runs by pair, in all layers or some. After the `last` ones no more come.

    The `key` is a LoadPart of what decode reads, or the WriteKey of what prefill writes.
    """

    key: Any
    layers: Layers | None
    runs: Mapping[str, Runs]
    last: bool


class Stop(Output, frozen=True, eq=False):
    """Post nothing more of what has this `key`. It is `settled` when nothing of it touches blocks here any more.

    If the peer's processes are `dead`, what is in progress to them is not waited for.
    """

    key: Any
    dead: bool = False


class Buffer(Output, frozen=True, eq=False):
    """A peer asks for a buffer of the stage here, returns one, or lends one of its own.

    The `key` is the LoadPart of which a writer moves a piece, or the Reader that reads or lends.
    """

    key: Any
    message: Buffers


@dataclass(slots=True, eq=False)
class Outputs:
    """The outputs that a core has collected, and the count of its messages by kind."""

    out: list[Output] = field(default_factory=list, init=False)
    heard: dict[MessageKind, int] = field(default_factory=dict, init=False)

    def count(self, kind: MessageKind) -> None:
        """A message was taken for that."""
        self.heard[kind] = self.heard.get(kind, 0) + 1

    def take(self) -> list[Output]:
        """Return the outputs, each once."""
        out, self.out = self.out, []
        if self.heard:
            out.append(Counted(self.heard))
            self.heard = {}
        return out


# Decode


class Foresee(Output, frozen=True, eq=False):
    """A part will probably move these runs in one piece: prepare that while nobody has anything else to do."""

    part: LoadPart
    runs: Mapping[str, Runs]


class AskWrite(Output, frozen=True, eq=False):
    """Ask a prefill worker to write a request."""

    load: Load
    part: LoadPart


class Sum(Output, frozen=True, eq=False):
    """Compute the checksums of what came from a prefill worker."""

    load: Load
    part: LoadPart


class Ended(Output, frozen=True, eq=False):
    """A request has ended."""

    load: Load


class EngineLost(Output, frozen=True, eq=False):
    """An engine cannot be used any more."""

    engine: KnownEngine
    error: KvplanError


# Prefill


class WriteKey(NamedTuple):
    """Which write is meant: of a request, through one connection."""

    reader: Reader
    request: str


class Reply(Output, frozen=True, eq=False):
    """Say a message through a connection that has not said hello."""

    identity: bytes
    message: msgspec.Struct


class WriteFailed(Output, frozen=True, eq=False):
    """Something of a write cannot be written. It fails with that if it `ends` now."""

    key: WriteKey
    error: KvplanError
    ends: bool


class ReaderLeft(Output, frozen=True, eq=False):
    """A reader gives a request up: nothing more of it is packed or compared for it."""

    reader: Reader
    request: str


class Compare(Output, frozen=True, eq=False):
    """Compare the checksums of a Done with those of the blocks here. `named` tables count before its own."""

    reader: Reader
    done: Done
    named: Tables


class RequestEnded(Output, frozen=True, eq=False):
    """A request can be read no more."""

    request: str


class Free(Output, frozen=True, eq=False):
    """A request's blocks may be freed."""

    released: Released


class Drop(Output, frozen=True, eq=False):
    """A reader is forgotten."""

    reader: Reader
    why: str
