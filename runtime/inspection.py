"""Inspection: the state of one worker between two steps, as values, for people who debug an engine and for tests.

`worker.inspect()` returns it. It never changes later, and the runtime does not read it. Times are seconds: compare
them with `now` of the same inspection. docs/runtime.md has an example.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageState:
    """The stage of a worker: `buffer_bytes` per buffer. It is `open` once its memory is registered.

    `free` has the addresses of free buffers. `lent` has (address, peer whose bytes the buffer carries). `kept` counts,
    by peer, lent buffers of requests that have ended: the peer may still read or write them. `waiting` names the peers
    that need a buffer, the longest wait first. `copies` counts the copies that wait for a thread.
    """

    buffer_bytes: int
    open: bool
    free: tuple[int, ...]
    lent: tuple[tuple[int, str], ...]
    kept: tuple[tuple[str, int], ...]
    waiting: tuple[str, ...]
    copies: int


@dataclass(frozen=True, slots=True)
class PeerStageState:
    """The stage of a `peer`, as known to the worker that moves bytes through it.

    `asked` counts the pieces requested and not returned, `ready` those among them that have a buffer. `kept` counts
    buffers of cancelled slices. `waiting` pieces are requested later. `lends` is what the peer's last message said.
    """

    peer: str
    asked: int
    ready: int
    kept: int
    waiting: int
    lends: bool


@dataclass(frozen=True, slots=True)
class SliceState:
    """A slice of a request. It waits for its turn (`stage` is limited), for a buffer (staged) or for bytes (posted)."""

    request: str
    stage: str


@dataclass(frozen=True, slots=True)
class PartState:
    """The progress of a request with one prefill `worker`. docs/runtime.md has a drawing of the phases.

    `hold` is the number of the worker's hold, None until it confirms it. `moved_bytes` have arrived. `writes` is True
    from the request to write until the worker stops. `reads` counts slices of a failed request that may still move.
    """

    worker: int
    phase: str
    hold: int | None
    moved_bytes: int
    writes: bool
    reads: int


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request of decode, with a part for each prefill worker of the plan. It ends at its `deadline` at the latest."""

    request: str
    engine: str
    deadline: float
    parts: tuple[PartState, ...]


@dataclass(frozen=True, slots=True)
class PrefillEngineState:
    """A prefill engine that a decode worker has met. `peers` are the transport's names of the engine's workers.

    `status` is connected, replanned (older requests still use an older plan) or retired (dropped, but transfers from it
    may still be in progress). `mode` is pull or push.
    """

    name: str
    run: str
    plan: str
    mode: str
    status: str
    peers: frozenset[str]


@dataclass(frozen=True, slots=True)
class HoldState:
    """A hold of a prefill worker, by its `number`: it keeps the blocks of `request`.

    If it is `withdrawn`, no claims are taken. Its blocks are kept until `until`, or longer if decode claims it again.
    `promises` are (decode worker, its run, end), `done` are (decode worker, its run) of those that have read it.
    """

    request: str
    number: int
    withdrawn: bool
    until: float
    promises: tuple[tuple[int, str, float], ...]
    done: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class SourceState:
    """The readable part of a held request: it is `whole`, or `computed` of the `chunks` offered so far are readable.

    `hold` is the number of the hold.
    """

    request: str
    hold: int
    whole: bool
    chunks: int
    computed: int


@dataclass(frozen=True, slots=True)
class WriteState:
    """A request that prefill writes to the decode worker `reader`. `phase` is writing or ended.

    An ended one may still have writes in progress.
    """

    request: str
    reader: str
    phase: str
    under_way: bool


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A connection of a decode worker to a prefill worker: the decode worker, and the requests that it claims.

    `peer` is its name in the transport, None if it reads by itself. `heard` is the time of its last message.
    """

    key: str
    engine: str
    run: str
    worker: int
    plan: str
    peer: str | None
    heard: float
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """A connection with one worker of another engine, `made_here` or by that worker.

    If `asks`, the decode half here uses it to ask that worker's prefill half. If `answers`, the prefill half here uses
    it to answer that worker's decode half.
    """

    engine: str
    run: str
    worker: int
    made_here: bool
    asks: bool
    answers: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state of a worker. Fields of the other role are empty.

    `transport` is the worker's own name in its transport. `peers` are all peers that the transport knows; `met` are
    those that the worker will remove from it. `connections` are those of both halves, if the worker prefills.
    `checksums` counts those being computed or waiting. `peer_stages` are the stages that the worker borrows from peers.

    Decode: `requests` are in progress. `failed` ones have blocks in quarantine. `ended` ones have ended, but their
    callbacks have not been called. `written` and `quarantined` are blocks as (arena, number).

    Prefill: `unannounced` requests wait for their events, or their readers have not been notified. `packs` counts the
    pieces that decode workers asked to have packed. `uncollected` requests have free blocks, which `released()` has not
    returned.
    """

    name: str
    now: float
    transport: str
    peers: frozenset[str]
    met: frozenset[str]
    stage: StageState
    connections: tuple[ConnectionState, ...]
    bytes_in_flight: int = 0
    slices: tuple[SliceState, ...] = ()
    checksums: int = 0
    engines: tuple[PrefillEngineState, ...] = ()
    requests: tuple[RequestState, ...] = ()
    failed: tuple[RequestState, ...] = ()
    ended: tuple[str, ...] = ()
    written: frozenset[tuple[int, int]] = frozenset()
    quarantined: frozenset[tuple[int, int]] = frozenset()
    readers: tuple[ReaderState, ...] = ()
    holds: tuple[HoldState, ...] = ()
    sources: tuple[SourceState, ...] = ()
    unannounced: tuple[str, ...] = ()
    writes: tuple[WriteState, ...] = ()
    packs: int = 0
    uncollected: tuple[str, ...] = ()
    peer_stages: tuple[PeerStageState, ...] = ()
