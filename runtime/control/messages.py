"""Messages between workers that have met, sealed like cards, and the form of block tables in them.

A decode worker claims a request and receives the number of its hold. Decoding checks
the types in a message; the code that uses its numbers checks them.
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
# The largest position: no context reaches further, and the sum of two positions stays within int64.
FARTHEST = 1 << 62
# The most bytes of a note: enough for the auxiliary data of a request with the most logprobs that an engine returns.
LONGEST_NOTE = 1 << 16
ORDER = np.dtype("<i8")

# Bounded, because workers store the names of requests that messages mention.
RequestId = Annotated[str, msgspec.Meta(max_length=LONGEST_ID)]
NoteBytes = Annotated[bytes, msgspec.Meta(max_length=LONGEST_NOTE)]
Names = Annotated[tuple[RequestId, ...], msgspec.Meta(max_length=MOST_NAMED)]
Sums = Annotated[tuple[tuple[str, int, int], ...], msgspec.Meta(max_length=MOST_SUMS)]


class WireTable(msgspec.Struct, frozen=True, array_like=True):
    """A block table, a slot or a ring: `kind` is blocks, slot or ring; `ids` are int64, little endian.

    `first` is the position of the first block, or the number of tokens that a slot or a ring has taken in.
    """

    kind: str
    first: int
    ids: bytes


WireTables = dict[str, WireTable]


# In seconds: the shortest and the longest lease, the default, and what decode assumes before a peer says its own.
LEASE_RANGE, DEFAULT_LEASE, FIRST_LEASE = (0.01, 1e6), 30.0, 6.0
# How many times a claim is renewed during a lease, and for how many leases a decode worker may be silent.
CLAIMS_PER_LEASE, SILENT_LEASES = 6, 3


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """Decode: keep these requests for me. Sent before the first read, and repeated as a heartbeat until the last one.

    Decode reads `streamed` requests chunk by chunk as they are offered, and the others only when they are whole. At the
    first claim of a request that is read whole, `tables` are prefill's blocks as decode knows them, and `tokens` the
    range that decode reads, if any. `heartbeat` counts the claims of a connection.
    """

    heartbeat: int
    requests: Names
    streamed: Names = ()
    tables: dict[RequestId, WireTables] = {}
    tokens: dict[RequestId, tuple[int, int]] = {}


class LossReason(TextEnum):
    """The reason why a prefill worker does not keep a request for a claim."""

    UNKNOWN = "unknown"
    FINISHED = "finished"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    # By the plan, other decode workers read it.
    UNEXPECTED = "unexpected"
    # The limit of readers, by run and plan, is reached.
    CROWDED = "crowded"
    # Its blocks are not those that decode named.
    UNLIKE = "unlike"
    # It was opened for other tokens, or its chunks leave gaps or overlap.
    UNTILED = "untiled"
    # The connection already claims the most requests that it may.
    TOO_MANY = "too many"


class Claimed(msgspec.Struct, frozen=True, array_like=True, tag="claimed"):
    """A request is kept for one lease from when prefill read the claim. `hold` is its number."""

    request: RequestId
    hold: int


class NotYet(msgspec.Struct, frozen=True, array_like=True, tag="not yet"):
    """A request is not whole, or was never `held` here, but may come. Prefill remembers the claim.

    Prefill does not remember the claim's tables before the hold. Once the request is held, it sends this again, and
    decode names the tables again.
    """

    request: RequestId
    held: bool = True


class Lost(msgspec.Struct, frozen=True, array_like=True, tag="lost"):
    """A request is not kept. `text` has the reason in words."""

    request: RequestId
    reason: LossReason
    text: str


ClaimAnswer = Claimed | NotYet | Lost


class ClaimAnswers(msgspec.Struct, frozen=True, tag="answers"):
    """Prefill: the answers for all requests of a claim. All claims up to `heartbeat` were received.

    A promise lasts `lease` seconds. `lends` says that prefill will lend buffers that are requested now.
    """

    heartbeat: int
    lease: float
    answers: tuple[ClaimAnswer, ...]
    lends: bool = True


Number = Annotated[int, msgspec.Meta(ge=0, le=FARTHEST)]
# The most layers that one offer names.
MOST_LAYERS = 1 << 16
# The columns of `Runs`, int64, little endian.
WireRuns = tuple[bytes, bytes, bytes, bytes, bytes]


class WirePart(msgspec.Struct, frozen=True, array_like=True):
    """The `runs` to stage of one image: that of `part` of the decode worker's read number `read`.

    `size` is the size in bytes of one of its blocks in a stage. Both sides compare it.
    """

    read: Number
    part: Number
    size: Number
    runs: WireRuns


class AskBuffer(msgspec.Struct, frozen=True, tag="ask buffer"):
    """The side that moves bytes: lend me a buffer of your stage for these runs of a request.

    If decode asks, prefill packs the buffer for it; if prefill asks, it fills the buffer itself. `number` counts the
    pieces of a connection. `layers` are those that move together, None for all: they decide which images exist.
    """

    request: RequestId
    number: Number
    layers: tuple[int, ...] | None
    parts: Annotated[tuple[WirePart, ...], msgspec.Meta(min_length=1, max_length=MOST_PARTS)]


class Lent(msgspec.Struct, frozen=True, tag="lent"):
    """The owner of the stage: a piece has the buffer at `address` until it is returned. Prefill has packed its own."""

    request: RequestId
    number: Number
    address: Annotated[int, msgspec.Meta(ge=1, le=FARTHEST)]


class ReturnBuffer(msgspec.Struct, frozen=True, tag="return buffer"):
    """The side that moves bytes: a piece is done or not wanted. It is sent once for each piece that was requested.

    `moved` says that all of the piece has moved: decode then copies the bytes that prefill wrote to their place.
    """

    request: RequestId
    number: Number
    moved: bool


class WriteRequest(msgspec.Struct, frozen=True, tag="write"):
    """Decode: write this request to me, if the pair pushes. `prefill` tables are empty if prefill knows its own.

    `lends` says that decode will lend buffers that are requested now. With `whole_last_page` the last page may be
    written whole.
    """

    request: RequestId
    tokens: tuple[int, int]
    lengths: dict[str, tuple[int, int]]
    prefill: WireTables
    decode: WireTables
    lends: bool = True
    whole_last_page: bool = False


class Offer(msgspec.Struct, frozen=True, tag="offer"):
    """Prefill: tokens [first, end) of a request are ready, in all layers or in `layers`, in the pages of `tables`.

    `number` counts the offers of a hold from 0. The `last` one also offers states and rings. Without `tokens` it offers
    the whole request. With `only`, decode must read only pages that `tables` name: the request's name was held before,
    so the blocks that decode knows may be those of an earlier hold.
    """

    request: RequestId
    hold: int
    number: int
    tokens: tuple[int, int] | None
    layers: Annotated[tuple[int, ...], msgspec.Meta(max_length=MOST_LAYERS)] | None
    tables: WireTables
    last: bool
    only: bool = False


class Written(msgspec.Struct, frozen=True, tag="written"):
    """Prefill: this worker has written all of a request that the decode worker needs from it: `size` bytes."""

    request: RequestId
    hold: int
    size: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Prefill: this worker will not deliver the request, or, with an `attempt`, does not confirm that attempt's `Done`.

    `code` names the error. `heartbeat` is the number of the last claim that prefill had read. If decode claimed the
    request later, this message does not concern it.
    """

    request: RequestId
    code: str
    message: str
    heartbeat: int
    attempt: int | None = None


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Decode: this decode worker needs no more of a request from the prefill worker.

    `sums` are checksums (cache, layer, digest) of the bytes that arrived for `asked`, over the tokens of `sample`
    (every, seed). `attempt` distinguishes the answer from one to an earlier attempt at the same request.
    """

    request: RequestId
    hold: int
    attempt: int
    sums: Sums = ()
    sample: tuple[int, int] | None = None
    asked: WriteRequest | None = None


class Confirmed(msgspec.Struct, frozen=True, tag="confirmed"):
    """Prefill: the answer to Done if its hold lasted unwithdrawn and the checksums agree. Otherwise it is Failed.

    `note` is what the prefill engine attached to the request.
    """

    request: RequestId
    attempt: int
    note: NoteBytes = b""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Decode: a request is cancelled. If the pair pushes, prefill answers Stopped once it no longer writes.

    With `alone`, this connection replaces the one over which decode wanted the request, which decode no longer reads.
    """

    request: RequestId
    alone: bool = False


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """Decode: this connection ends. The promises to it end at their time, as if it had fallen silent."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Prefill: this worker no longer writes a request that decode left.

    With `lost`, the transport's connection broke or the request is unknown, so bytes sent earlier may still arrive.
    """

    request: RequestId
    lost: bool


# The side that moves bytes asks for buffers, and the other lends them. Either role may do either, so both send all.
Buffers = AskBuffer | Lent | ReturnBuffer
ToPrefill = Hello | Claim | Buffers | WriteRequest | Done | Leave | Bye
ToDecode = EngineCard | WorkerCard | Refusal | ClaimAnswers | Buffers | Offer | Written | Failed | Confirmed | Stopped


def pack(tables: Tables) -> WireTables:
    """Return checked tables by group, as messages carry them."""
    return {name: _pack(table) for name, table in tables.items()}


def unpack(tables: WireTables) -> dict[str, Table]:
    """Return a peer's tables by group. The caller must check their numbers. Raises CardError."""
    if len(tables) > MOST_GROUPS:
        raise CardError(f"a message names {len(tables)} groups, at most {MOST_GROUPS}")
    return {name: _unpack(name, table) for name, table in tables.items()}


def pack_runs(runs: Runs) -> WireRuns:
    """Return runs as messages carry them."""
    block, token, to, at, count = (column.astype(ORDER).tobytes() for column in runs)
    return block, token, to, at, count


def unpack_runs(runs: WireRuns) -> Runs:
    """Return a peer's runs. The caller must check their numbers. Raises CardError."""
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
