"""Effects of the prefill core: commands, messages and completions that go in, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

import msgspec

from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import KvplanError
from kvplan.plan.layers import Layers
from kvplan.plan.types import Interval, Runs
from kvplan.runtime.control.messages import AskBuffer, Done, Lent, ReturnBuffer
from kvplan.runtime.protocol.effects import Input, Output
from kvplan.runtime.protocol.leases import LeaseEvent, Released
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.transfer.chunks import Chunk


class WriteKey(NamedTuple):
    """Which write is meant: of a request, through one connection."""

    reader: Reader
    request: str


# Commands. One that cannot be carried out is `Rejected`.


class Hold(Input, frozen=True, eq=False):
    """Keep a request. With `tokens` it is offered in chunks, otherwise whole: `ready` now, or once it is Computed.

    One that is `whole` and has `tokens` is one chunk. Its readers are given the `note` when it has arrived.
    """

    request: str
    tokens: Interval | None
    tables: Tables | None
    ready: bool
    note: bytes = b""
    whole: bool = False


class PassBy(Input, frozen=True, eq=False):
    """Release a request that nobody will ever read."""

    request: str


class OfferChunk(Input, frozen=True, eq=False):
    """A chunk of an opened request is there, or will be once it is Computed. The last one may have a note."""

    request: str
    chunk: Chunk
    note: bytes = b""


class Withdraw(Input, frozen=True, eq=False):
    """Give a request up, and tell its readers why."""

    request: str
    error: KvplanError


class Taken(Input, frozen=True, eq=False):
    """The caller knows that these requests are released: their names may be held again."""

    requests: tuple[str, ...]


class DropReaders(Input, frozen=True, eq=False):
    """Forget a decode engine. If it is `dead`, its processes have ended, and what is written to them pins nothing."""

    name: str
    dead: bool


class Close(Input, frozen=True, eq=False):
    """Forget all readers, and what is being compared."""


# What happens


class Introduce(Input, frozen=True, eq=False):
    """A decode worker says hello through a connection, and will be `Met`. Earlier runs of its engine are over."""

    identity: bytes
    name: str
    run: str


class Met(Input, frozen=True, eq=False):
    """A reader was shown this worker's card."""

    reader: Reader


class ReaderHeard(Input, frozen=True, eq=False):
    """A message of a reader. `error` says why its memory cannot be reached anew, where it wants to be written to."""

    reader: Reader
    message: Any
    error: KvplanError | None = None


class Stranger(Input, frozen=True, eq=False):
    """A message through a connection that has not said hello, or was dropped."""

    identity: bytes
    message: Any


class Unheard(Input, frozen=True, eq=False):
    """What a reader says can no longer be acted upon, or nothing can be said to it: its connection ends."""

    reader: Reader
    why: str
    malformed: bool = False


class RequestRefused(Input, frozen=True, eq=False):
    """A message that was passed on for a request cannot be acted upon."""

    reader: Reader
    request: str
    error: KvplanError


class Computed(Input, frozen=True, eq=False):
    """So many chunks of a request are computed, or 1 for one that is held as a whole."""

    request: str
    count: int


class Expire(Input, frozen=True, eq=False):
    """All that was said up to now is heard: leases may end."""


class Round(Input, frozen=True, eq=False):
    """Everything is to be moved on. The lines of the readers that are `behind` take nothing for now.

    `borrowers` have a buffer of the stage here. It `lends` if buffers that are asked for now are lent in their turn.
    """

    behind: Set[Reader]
    borrowers: Set[Reader]
    lends: bool


# What came of outputs


class WriteMoved(Input, frozen=True, eq=False):
    """All of a write is written: `size` bytes."""

    key: WriteKey
    size: int


class WriteBroken(Input, frozen=True, eq=False):
    """Something of a write cannot be written. Nothing more of it is posted."""

    key: WriteKey
    cause: Exception


class WriteSettled(Input, frozen=True, eq=False):
    """Nothing of a write that was stopped reads blocks here any more. What it sent may be `under_way` to the peer.

    `lost` says that its connection broke, so that what was sent may still land.
    """

    key: WriteKey
    lost: bool
    under_way: bool = False


class ChecksumsCompared(Input, frozen=True, eq=False):
    """Checksums were compared: `error` is None if they are identical."""

    reader: Reader
    done: Done
    error: KvplanError | None


# Outputs


class Reply(Output, frozen=True, eq=False):
    """Say a message through a connection that has not said hello."""

    identity: bytes
    message: msgspec.Struct


class Note(Output, frozen=True, eq=False):
    """What a message was, for the caller. It is no step of the protocol if it is `counted` as a message here."""

    event: LeaseEvent
    counted: bool = False


class WriteFailed(Output, frozen=True, eq=False):
    """Something of a write cannot be written. It fails with that if it `ends` now."""

    key: WriteKey
    error: KvplanError
    ends: bool


class Rejected(Output, frozen=True, eq=False):
    """A command is not carried out."""

    error: KvplanError


class MoveWrite(Output, frozen=True, eq=False):
    """Write these runs by pair, in all layers or some. After the `last` ones no more come."""

    key: WriteKey
    layers: Layers | None
    runs: Mapping[str, Runs]
    last: bool


class StopWrite(Output, frozen=True, eq=False):
    """Post nothing more of a write. It is `Settled` when nothing of it reads blocks here."""

    key: WriteKey
    # The peer's processes have ended: what is under way to them is not waited for.
    dead: bool = False


class Pass(Output, frozen=True, eq=False):
    """A message of the little protocol by which buffers are asked for, lent and returned."""

    reader: Reader
    message: AskBuffer | ReturnBuffer | Lent


class LeaveBuffers(Output, frozen=True, eq=False):
    """A reader gives a request up: nothing more of it is packed for it."""

    reader: Reader
    request: str


class Compare(Output, frozen=True, eq=False):
    """Compare the checksums of a Done with those of the blocks here. `named` tables count before its own."""

    reader: Reader
    done: Done
    named: Tables


class StopComparing(Output, frozen=True, eq=False):
    """Nobody asks for a comparison any more."""

    reader: Reader
    request: str


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
