"""Messages between workers that have met, and tables as they carry them. Sealed as cards are.

A decode worker claims a request and is told the number of its pin; that number names it until the end. Everything in
a message is checked where it is used: its types here, its numbers there.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from kvplan.plan.block_tables import Ring, Slot, Table, Tables
from kvplan.plan.request import LONGEST_ID
from kvplan.plan.types import Blocks, Ints, Runs
from kvplan.runtime.control.card import EngineCard, Hello, Refusal, WorkerCard
from kvplan.runtime.errors import CardError
from kvplan.runtime.machine import TextEnum

MOST_NAMED = 1 << 14
MOST_SUMS = 1 << 16
MOST_GROUPS = 4096
MOST_PARTS = 1 << 14
# No context reaches further, and the sum of two positions stays within int64.
FARTHEST = 1 << 62
# Bytes of a note: the auxiliary data of a request with the most logprobs that an engine returns.
LONGEST_NOTE = 1 << 16
ORDER = np.dtype("<i8")

# What is said of a request may be kept, and so is its name.
RequestId = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
NoteBytes = Annotated[bytes, msgspec.Meta(max_length=LONGEST_NOTE)]
Names = Annotated[tuple[RequestId, ...], msgspec.Meta(max_length=MOST_NAMED)]
Sums = Annotated[tuple[tuple[str, int, int], ...], msgspec.Meta(max_length=MOST_SUMS)]


class WireTable(msgspec.Struct, frozen=True, array_like=True):
    """A block table, a slot or a ring: `kind` is blocks, slot or ring; `ids` are int64, little endian.

    `first` is the position of the first block, or the number of tokens after which a slot or a ring stands.
    """

    kind: str
    first: int
    ids: bytes


WireTables = dict[str, WireTable]


# How often a claim is renewed in a lease.
CLAIMS_PER_LEASE = 6
# Seconds that a lease may have.
LEASES = (0.01, 1e6)


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """Decode: keep these requests for me. Sent before anything is read, and again and again while it is: a heartbeat.

    Those of them that are `streamed` are read as chunks of them are offered; the others only when they are whole.
    `tables` are prefill's blocks as decode was told of them, for requests that are read whole and claimed for the first
    time, `tokens` the ranges that are read of them, if any. `heartbeat` counts the claims of a connection.
    """

    heartbeat: int
    requests: Names
    streamed: Names = ()
    tables: dict[RequestId, WireTables] = {}
    tokens: dict[RequestId, tuple[int, int]] = {}


class LossReason(TextEnum):
    """Why a prefill worker does not keep a request for the one who claims it."""

    UNKNOWN = "unknown"
    FINISHED = "finished"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    # The plan names others to read it.
    UNEXPECTED = "unexpected"
    # As many pairs of run and plan read it as may.
    CROWDED = "crowded"
    # Its blocks are others than decode was told of.
    UNLIKE = "unlike"
    # It was opened for other tokens, or the chunks that it was fed in leave gaps or overlap.
    UNTILED = "untiled"
    # The connection claims as many requests as it may.
    TOO_MANY = "too many"


class Claimed(msgspec.Struct, frozen=True, array_like=True, tag="claimed"):
    """A request is kept for a lease from now, by the pin of this number."""

    request: RequestId
    pin: int


class NotYet(msgspec.Struct, frozen=True, array_like=True, tag="not yet"):
    """A request is not whole, or was never `held` here, but may come: that it is claimed is remembered.

    The tables that a claim names are not remembered before the hold. Once it is held, this is said again, and decode
    names them again.
    """

    request: RequestId
    held: bool = True


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """A request is not kept, and `text` says it in words."""

    request: RequestId
    reason: LossReason
    text: str


ClaimAnswer = Claimed | NotYet | Lost


class ClaimAnswers(msgspec.Struct, frozen=True, tag="answers"):
    """Prefill: of every request of a claim what becomes of it. All claims up to `heartbeat` were heard.

    A claim is good for `lease` seconds. `lends` says that buffers which are asked for now are lent in their turn.
    """

    heartbeat: int
    lease: float
    answers: tuple[ClaimAnswer, ...]
    lends: bool = True


Number = Annotated[int, msgspec.Meta(ge=0, le=FARTHEST)]
# The columns of `Runs`, int64, little endian.
WireRuns = tuple[bytes, bytes, bytes, bytes, bytes]


class WirePart(msgspec.Struct, frozen=True, array_like=True):
    """What of one image is asked for: `part` of the image of `read`, a number among those of the decode worker.

    `size` are the bytes of one block of it in a stage, which both sides compare.
    """

    read: Number
    part: Number
    size: Number
    runs: WireRuns


class AskBuffer(msgspec.Struct, frozen=True, tag="ask buffer"):
    """Who moves bytes: a buffer of your stage for these runs of a request. Decode has it packed, prefill fills it.

    `number` counts the pieces that were asked for over a connection. `layers` are those that move together, None for
    all: they decide which images there are.
    """

    request: RequestId
    number: Number
    layers: tuple[int, ...] | None
    parts: Annotated[tuple[WirePart, ...], msgspec.Meta(min_length=1, max_length=MOST_PARTS)]


class Lent(msgspec.Struct, frozen=True, tag="lent"):
    """Whose stage it is: a piece has the buffer at `address` until it is given back. What prefill lends is packed."""

    request: RequestId
    number: Number
    address: Number


class ReturnBuffer(msgspec.Struct, frozen=True, tag="return buffer"):
    """Who moves bytes: a piece is not read or written any more, or not wanted. Said once of each that was asked for.

    If it was `moved`, all of it was: decode now copies what prefill has written to its place.
    """

    request: RequestId
    number: Number
    moved: bool


class WriteRequest(msgspec.Struct, frozen=True, tag="write"):
    """Decode: write me this request, where the pair pushes. `prefill` tables are empty where prefill knows its own.

    `lends` says that buffers which are asked for now are lent in their turn. With `whole_last_page` the last page may
    be written whole.
    """

    request: RequestId
    tokens: tuple[int, int]
    lengths: dict[str, tuple[int, int]]
    prefill: WireTables
    decode: WireTables
    lends: bool = True
    whole_last_page: bool = False


class Offer(msgspec.Struct, frozen=True, tag="offer"):
    """Prefill: tokens [first, end) of a request are there, in all layers or in `layers`; pages are named by `tables`.

    `number` counts the offers of a pin from 0. With `last`, no more come: states and rings move, too. Without tokens
    the whole request is meant. With `only`, nothing but what `tables` name is read: the name was held before, so that
    blocks that decode was told of may be those of an earlier hold.
    """

    request: RequestId
    pin: int
    number: int
    tokens: tuple[int, int] | None
    layers: tuple[int, ...] | None
    tables: WireTables
    last: bool
    only: bool = False


class Written(msgspec.Struct, frozen=True, tag="written"):
    """Prefill: all of a request that this decode worker needs from here is written: `size` bytes."""

    request: RequestId
    pin: int
    size: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Prefill: the request will not come from here, or, with an `attempt`, that attempt's `Done` is not confirmed.

    `code` names the error. `heartbeat` is the number of the last claim that prefill had read: a request that decode
    claimed later is not meant.
    """

    request: RequestId
    code: str
    message: str
    heartbeat: int
    attempt: int | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Decode: nothing more of a request is needed from here.

    `sums` are checksums (cache, layer, digest) of what arrived of `asked`, over the tokens of `sample` (every, seed).
    `attempt` tells the answer from that to an earlier attempt at the same request.
    """

    request: RequestId
    pin: int
    attempt: int
    sums: Sums = ()
    sample: tuple[int, int] | None = None
    asked: WriteRequest | None = None


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """Prefill's answer to Done: the pin lasted until now, and checksums are identical. Otherwise it is Failed.

    `note` is what the prefill engine attached to the request.
    """

    request: RequestId
    attempt: int
    note: NoteBytes = b""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Decode: a request is given up. Where the pair pushes, prefill answers Stopped when it writes no more.

    With `alone`, this connection took the place of the one that it was wanted through, which is not listened to again.
    """

    request: RequestId
    alone: bool = False


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """Decode: this connection ends. What it claimed is promised for a lease, as if it had fallen silent."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Prefill: nothing of a request that was left is written from here any more.

    `lost` says that its connection broke, or that nothing is known of the request: what was sent may still land.
    """

    request: RequestId
    lost: bool


# Buffers are asked for by who moves bytes, and lent by the other: both say all three.
Buffers = AskBuffer | Lent | ReturnBuffer
ToPrefill = Hello | Claim | Buffers | WriteRequest | Done | Leave | Bye
ToDecode = EngineCard | WorkerCard | Refusal | ClaimAnswers | Buffers | Offer | Written | Failed | Confirmed | Stopped


def pack(tables: Tables) -> WireTables:
    """Checked tables by group as messages carry them."""
    return {name: _pack(table) for name, table in tables.items()}


def unpack(tables: WireTables) -> dict[str, Table]:
    """Tables by group that came from a peer; their numbers are still to be checked. Raises CardError."""
    if len(tables) > MOST_GROUPS:
        raise CardError(f"a message names {len(tables)} groups, at most {MOST_GROUPS}")
    return {name: _unpack(name, table) for name, table in tables.items()}


def pack_runs(runs: Runs) -> WireRuns:
    """Runs as messages carry them."""
    block, token, to, at, count = (column.astype(ORDER).tobytes() for column in runs)
    return block, token, to, at, count


def unpack_runs(runs: WireRuns) -> Runs:
    """Runs that came from a peer; their numbers are still to be checked. Raises CardError."""
    if any(len(column) != len(runs[0]) or len(column) % ORDER.itemsize for column in runs):
        raise CardError(f"runs have columns of {[len(column) for column in runs]} bytes: 8 for each run in all of them")
    return Runs(*(np.frombuffer(column, ORDER).astype(np.int64) for column in runs))


def _pack(table: Table) -> WireTable:
    if isinstance(table, Blocks):
        return WireTable("blocks", table.first, table.ids.astype(ORDER).tobytes())
    if isinstance(table, Ring):
        return WireTable("ring", table.at, table.ids.astype(ORDER).tobytes())
    return WireTable("slot", table.at, np.array([table.slot], ORDER).tobytes())


def _unpack(name: str, table: WireTable) -> Table:
    if len(table.ids) % ORDER.itemsize:
        raise CardError(f"the table of group {name!r} has {len(table.ids)} bytes of ids, which are 8 bytes each")
    if not 0 <= table.first <= FARTHEST:
        raise CardError(f"the table of group {name!r} begins at {table.first}, which no context reaches")
    ids: Ints = np.frombuffer(table.ids, ORDER).astype(np.int64)
    if table.kind == "blocks":
        return Blocks(table.first, ids)
    if table.kind == "ring":
        return Ring(ids, table.first)
    if table.kind == "slot" and len(ids) == 1:
        return Slot(int(ids[0]), table.first)
    raise CardError(f"the table of group {name!r} is a {table.kind!r} of {len(ids)} ids: no such table")
