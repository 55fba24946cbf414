"""Effects: outputs of a protocol core. Its driver takes them after each call, and carries them out in order."""

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
    """An action that a worker has to carry out for its core."""


# Both roles


class Counted(Output, frozen=True, eq=False):
    """Count the messages of each kind."""

    kinds: Mapping[MessageKind, int]


class Send(Output, frozen=True, eq=False):
    """Send a message to a peer. A `droppable` one is left out while earlier ones wait for room in the line."""

    peer: Any
    message: msgspec.Struct
    droppable: bool = False


class Move(Output, frozen=True, eq=False):
    """Move these runs by pair, in all layers or some. No more come after the `last` ones.

    The `key` is a LoadPart if decode reads, a WriteKey if prefill writes.
    """

    key: Any
    layers: Layers | None
    runs: Mapping[str, Runs]
    last: bool


class Stop(Output, frozen=True, eq=False):
    """Post nothing more of this `key`. Report it to `settled` when nothing of it is in progress any more."""

    key: Any


class Buffer(Output, frozen=True, eq=False):
    """Handle a peer's message that asks for a buffer of the stage here, returns one, or lends one of its own.

    The `key` is the LoadPart whose piece a writer moves, or the Reader that reads or lends.
    """

    key: Any
    message: Buffers


@dataclass(slots=True, eq=False)
class Outputs:
    """The outputs that a core has collected, and the count of its messages by kind."""

    out: list[Output] = field(default_factory=list, init=False)
    message_counts: dict[MessageKind, int] = field(default_factory=dict, init=False)

    def count(self, kind: MessageKind) -> None:
        """Count a message of this kind."""
        self.message_counts[kind] = self.message_counts.get(kind, 0) + 1

    def take(self) -> list[Output]:
        """Return the outputs, each once."""
        out, self.out = self.out, []
        if self.message_counts:
            out.append(Counted(self.message_counts))
            self.message_counts = {}
        return out


# Decode


class Foresee(Output, frozen=True, eq=False):
    """Prepare these runs while idle: a part will probably move them in one piece."""

    part: LoadPart
    runs: Mapping[str, Runs]


class AskWrite(Output, frozen=True, eq=False):
    """Ask a prefill worker to write a request."""

    load: Load
    part: LoadPart


class Sum(Output, frozen=True, eq=False):
    """Compute the checksums of the bytes that came from a prefill worker."""

    load: Load
    part: LoadPart


class Ended(Output, frozen=True, eq=False):
    """Notify the caller that a request has ended."""

    load: Load


class EngineLost(Output, frozen=True, eq=False):
    """Drop an engine that cannot be used any more."""

    engine: KnownEngine
    error: KvplanError


# Prefill


class WriteKey(NamedTuple):
    """The key of a write: a request, and the reader that it is written to."""

    reader: Reader
    request: str


class Reply(Output, frozen=True, eq=False):
    """Send a message through a connection that has not said hello."""

    identity: bytes
    message: msgspec.Struct


class WriteFailed(Output, frozen=True, eq=False):
    """Report that part of a write failed. The write fails by this error if it `ends` now."""

    key: WriteKey
    error: KvplanError
    ends: bool


class ReaderLeft(Output, frozen=True, eq=False):
    """Pack and compare nothing more of a request for a reader that gave it up."""

    reader: Reader
    request: str


class Compare(Output, frozen=True, eq=False):
    """Compare the checksums of a Done with those of the blocks here. `named` tables take precedence over the Done's."""

    reader: Reader
    done: Done
    named: Tables


class RequestEnded(Output, frozen=True, eq=False):
    """Stop all work for a request that can no longer be read."""

    request: str


class Free(Output, frozen=True, eq=False):
    """Notify the caller that a request's blocks are free."""

    released: Released


class Drop(Output, frozen=True, eq=False):
    """Forget a reader, and its connection."""

    reader: Reader
    why: str
